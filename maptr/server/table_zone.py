"""Zones that are built from a registry's table.

The built zone is a candidate file beside the zone's own file until the guards have accepted it. So a restart serves
the version published last, and a bad table is refused as a bad zone file is.
"""

from __future__ import annotations

from contextlib import suppress

from maptr.errors import ParserFailed, TableError, ZoneError
from maptr.files import read_whole, write_atomically
from maptr.protocol.serial import next_serial
from maptr.registry import sandbox
from maptr.registry.table import MAX_TABLE
from maptr.server.state import TableBuild, ZoneSource
from maptr.zone import build
from maptr.zone.lint import LeftOut


def prepare(source: ZoneSource, now: float, *, starting: bool = False) -> tuple[ZoneSource, LeftOut | None]:
    """The source to read, and the records of the table that it lacks (None if the table was not read).

    The source is a candidate for ``settle``; the source itself if it has no table, if the table has not changed, and
    at a start that finds a published version. Raises ZoneError for a table that makes no zone, and OSError.
    """
    if source.table is None or (starting and source.path.exists()):
        return source, None
    text, left_out = _build(source, source.table, now)
    if text is None:
        return source, left_out
    candidate = source.path.with_name(f".{source.path.name}.next")
    source.path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(candidate, text.encode())
    return source._replace(path=candidate), left_out


def settle(source: ZoneSource, reading: ZoneSource, *, published: bool) -> None:
    """Make the candidate the zone's file, or remove it. Raises OSError."""
    if reading.path == source.path:
        return
    if published:
        reading.path.replace(source.path)
    else:
        with suppress(OSError):
            reading.path.unlink()


def _build(source: ZoneSource, how: TableBuild, now: float) -> tuple[str | None, LeftOut]:
    """The text of the zone, None if only its serial would differ from the zone's file; and the records it lacks."""
    with how.table.open("rb") as file:
        data = file.read(MAX_TABLE + 1)
    if len(data) > MAX_TABLE:
        raise ZoneError(f"more than {MAX_TABLE} bytes", filename=str(how.table))
    try:
        table, unread = sandbox.read(data, filename=str(how.table), scheme=how.scheme)
    except TableError as error:
        raise ZoneError(error.reason, filename=error.filename, line=error.line) from None
    except ParserFailed as error:
        raise ZoneError(str(error)) from None
    include = tuple((str(path), read_whole(path).decode()) for path in how.include)
    settings = build.ZoneSettings(source.origin, how.servers, how.contact, how.ttl, include)
    before = build.serial_of(read_whole(source.path).decode().splitlines()) if source.path.exists() else None
    serial = _serial(source.guards.serial, now, before[0] if before else None)
    result = build.build(table, serial, settings, unread=unread)
    after = build.serial_of(result.text.splitlines())
    same = before is not None and after is not None and before[1] == after[1]
    return None if same else result.text, result.left_out


def _serial(style: str, now: float, before: int | None) -> int:
    """``file``, the default, counts by the date, as ``maptr zone build`` does."""
    if style == "increment":
        return 1 if before is None else (before + 1) & 0xFFFF_FFFF
    return next_serial("date" if style == "file" else style, now, before)
