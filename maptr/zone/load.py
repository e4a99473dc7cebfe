"""Reading and checking of a zone file as a whole, before the zone is served."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from maptr.errors import ZoneError
from maptr.files import file_signature, read_whole
from maptr.protocol.names import Labels
from maptr.zone.check import check_integrity, check_rules
from maptr.zone.finding import Finding, Severity
from maptr.zone.reader import ZoneFile, read_zone_file
from maptr.zone.snapshot import ZoneView
from maptr.zone.zonemd import check_digest

MAX_WARNINGS = 10  # findings of a zone in the log and the status; ``maptr zone check`` shows all
# BIND refuses a zone with these errors. NSD, Knot and PowerDNS serve it; maptr serves it with a warning.
SERVED_WITH_ERROR = ("no-address", "server-alias", "wildcard-delegation", "ds-at-apex", "owner-not-a-hash")


class Checked(NamedTuple):
    """A zone that may be served, and its findings, one line each."""

    view: ZoneView
    warnings: tuple[str, ...] = ()

    def first_warnings(self) -> tuple[str, ...]:
        """Return the findings for the log and the status: the first ones, and how many more there are."""
        more = len(self.warnings) - MAX_WARNINGS
        return self.warnings[:MAX_WARNINGS] + ((f"and {more} more findings",) if more > 0 else ())


def read_checked(path: Path, name: Labels, *, lint: str = "warn") -> Checked:
    """Read a zone file, verify its ZONEMD, and check the zone as a whole. ``lint`` is that of a zone's configuration.

    Raises ZoneError with file and line, also for errors that prevent a zone from being served and for a file that
    changed during reading, and OSError for the file.
    """
    before = file_signature(path)
    read = read_verified(read_whole(path), name, path)
    findings = list(check_integrity(read.view))
    _refuse(findings, path)
    if lint != "off" and (read.doubtful is None or read.doubtful):
        rules = check_rules(read.view, read.doubtful)
        if lint == "refuse":
            _refuse(rules, path)
        findings += rules
    if file_signature(path) != before:
        raise ZoneError("changed while it was read: write beside it and rename", filename=str(path))
    return Checked(read.view, tuple(map(str, findings)))


def read_verified(data: bytes, name: Labels, path: Path) -> ZoneFile:
    """Read the zone in the content of a file, and verify its ZONEMD.

    Raises ZoneError with file and line. Data outside the zone is an error.
    """
    read = read_zone_file(data, name, path)
    try:
        check_digest(read.view)
    except ZoneError as error:
        raise ZoneError(error.reason, filename=str(path)) from None
    return read


def _refuse(findings: Sequence[Finding], path: Path) -> None:
    errors = [found for found in findings if found.severity is Severity.ERROR and found.code not in SERVED_WITH_ERROR]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise ZoneError(f"{errors[0]}{more}", filename=str(path))
