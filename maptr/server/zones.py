"""Zone files for the server: where they are, and reading them. Whether what was read is published: ``publisher``."""

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


def read_zone(source: ZoneSource) -> ZoneView:
    """Read and check one zone file.

    Raises ZoneError with file and line for what is wrong in it, OSError where it or a file it includes cannot
    be read. Data outside the zone is an error, where dnspython's own reader passes over it in silence.
    """
    return _read(read_whole(source.path), source).view


def read_octets(octets: bytes, source: ZoneSource) -> ZoneView:
    """The zone in the bytes of its file, without a check of its ZONEMD. Raises what ``read_zone`` does."""
    return read_zone_file(octets, source.origin, source.path).view


class Checked(NamedTuple):
    """A zone file that read well and has no error; what may be wrong with it all the same, a line each."""

    view: ZoneView
    warnings: tuple[str, ...] = ()


def read_checked(source: ZoneSource) -> Checked:
    """Read a zone file as ``read_zone`` does, and look at the zone as a whole.

    Raises ZoneError for a DNS error, for a ZONEMD that does not hold, for what Maptr finds where that is to be
    refused, and for a file that changed while it was read; OSError where a file cannot be read.
    """
    before = stamp(source.path)
    octets = read_whole(source.path)
    read = _read(octets, source)
    warnings = _check(read, source)
    if stamp(source.path) != before:
        raise ZoneError("changed while it was read: write beside it and rename", filename=str(source.path))
    return Checked(read.view, warnings)


def _read(octets: bytes, source: ZoneSource) -> ZoneFile:
    """The zone in the bytes of its file. Raises ZoneError if its ZONEMD does not verify."""
    read = read_zone_file(octets, source.origin, source.path)
    try:
        check_digest(read.view)
    except ZoneError as error:
        raise ZoneError(error.reason, filename=str(source.path)) from None
    return read


# Checkers call these errors, and BIND refuses the zone. NSD, Knot and PowerDNS serve it; so do we, with a warning.
_SERVED_ALL_THE_SAME = ("no-address", "server-alias")


def _check(read: ZoneFile, source: ZoneSource) -> tuple[str, ...]:
    """What may be wrong with the zone as a whole, a line each. Raises ZoneError for what is not served."""
    found = list(check_integrity(read.view))
    _refuse(found, source)
    if source.guards.lint != "off" and (read.doubtful is None or read.doubtful):
        rules = check_rules(read.view, read.doubtful)
        if source.guards.lint == "refuse":
            _refuse(rules, source)
        found += rules
    return tuple(map(str, found))


def _refuse(findings: Sequence[Finding], source: ZoneSource) -> None:
    if not findings:
        return

    errors = [
        found for found in findings if found.severity is Severity.ERROR and found.code not in _SERVED_ALL_THE_SAME
    ]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise ZoneError(f"{errors[0]}{more}", filename=str(source.path))
