"""Reads the zone file of a source, and decides whether the zone may be served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from maptr.errors import ZoneError
from maptr.files import read_whole, stamp
from maptr.server.state import ZoneSource
from maptr.zone.check import check_integrity, check_rules
from maptr.zone.finding import Finding, Severity
from maptr.zone.reader import ZoneFile, read_zone_file
from maptr.zone.snapshot import ZoneView
from maptr.zone.zonemd import check_digest

# BIND refuses a zone with these errors. NSD, Knot and PowerDNS serve it, and so does maptr, with a warning.
SERVED_WITH_ERROR = ("no-address", "server-alias")


class Checked(NamedTuple):
    """A zone that may be served, and the findings in it, a line each."""

    view: ZoneView
    warnings: tuple[str, ...] = ()


def read_zone(source: ZoneSource) -> ZoneView:
    """Read a zone file, and verify its ZONEMD.

    Raises ZoneError with file and line, and OSError for the file or one that it includes. Data outside the zone is an
    error, whereas dnspython's own reader ignores it.
    """
    return _read(source).view


def read_checked(source: ZoneSource) -> Checked:
    """Read a zone file as ``read_zone`` does, and check the zone as a whole.

    Raises ZoneError also for errors that keep a zone from being served, and for a file that changed during reading.
    """
    before = stamp(source.path)
    read = _read(source)
    findings = list(check_integrity(read.view))
    _refuse(findings, source)
    if source.guards.lint != "off" and (read.doubtful is None or read.doubtful):
        rules = check_rules(read.view, read.doubtful)
        if source.guards.lint == "refuse":
            _refuse(rules, source)
        findings += rules
    if stamp(source.path) != before:
        raise ZoneError("changed while it was read: write beside it and rename", filename=str(source.path))
    return Checked(read.view, tuple(map(str, findings)))


def _read(source: ZoneSource) -> ZoneFile:
    read = read_zone_file(read_whole(source.path), source.origin, source.path)
    try:
        check_digest(read.view)
    except ZoneError as error:
        raise ZoneError(error.reason, filename=str(source.path)) from None
    return read


def _refuse(findings: Sequence[Finding], source: ZoneSource) -> None:
    errors = [found for found in findings if found.severity is Severity.ERROR and found.code not in SERVED_WITH_ERROR]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise ZoneError(f"{errors[0]}{more}", filename=str(source.path))
