"""A zone's file: built from a registry's table if it has one, read, and checked before it may be served.

A zone built from a table is a candidate file beside the zone's own file until the guards have accepted it. So a
restart serves the version published last, and a bad table is refused as a bad zone file is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from maptr.errors import ParserFailed, TableError, ZoneError
from maptr.files import read_whole, stamp, write_atomically
from maptr.protocol.serial import following_serial, next_serial
from maptr.registry import sandbox
from maptr.server.state import TableBuild, ZoneSource
from maptr.zone import build
from maptr.zone.check import check_integrity, check_rules
from maptr.zone.finding import Finding, Severity
from maptr.zone.lint import LeftOut
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


# ---- zones built from a table


@contextmanager
def candidate(source: ZoneSource, now: float, *, starting: bool = False) -> Iterator[tuple[ZoneSource, LeftOut | None]]:
    """The source to read, and the records of the table that it lacks (None if the table was not read).

    A new candidate becomes the zone's file at the end of the context, and is removed after an exception. There is none
    if the source has no table, if the table has not changed, and at a start that finds a published version. Raises
    ZoneError for a table that makes no zone, and OSError.
    """
    if source.table is None or (starting and source.path.exists()):
        yield source, None
        return
    text, left_out = _build(source, source.table, now)
    if text is None:
        yield source, left_out
        return
    path = source.path.with_name(f".{source.path.name}.next")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())
    try:
        yield source._replace(path=path), left_out
        path.replace(source.path)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def _build(source: ZoneSource, how: TableBuild, now: float) -> tuple[str | None, LeftOut]:
    """The text of the zone, None if only its serial would differ from the zone's file; and the records it lacks."""
    try:
        table, unread = sandbox.read(read_whole(how.table), filename=str(how.table), scheme=how.scheme)
    except TableError as error:
        raise ZoneError(error.reason, filename=error.filename, line=error.line) from None
    except ParserFailed as error:
        raise ZoneError(str(error)) from None
    include = tuple((str(path), read_whole(path).decode()) for path in how.include)
    settings = build.ZoneSettings(source.origin, how.servers, how.contact, how.ttl, include)
    before = build.serial_of(read_whole(source.path).decode().splitlines()) if source.path.exists() else None
    style = "date" if source.guards.serial == "file" else source.guards.serial  # as ``maptr zone build`` counts
    if before is not None:
        serial = following_serial(before[0], style, now)
    else:
        serial = next_serial("1" if style == "increment" else style, now)
    result = build.build(table, serial, settings, unread=unread)
    after = build.serial_of(result.text.splitlines())
    same = before is not None and after is not None and before[1] == after[1]
    return None if same else result.text, result.left_out
