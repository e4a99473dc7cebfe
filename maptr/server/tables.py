"""Zones that are built from a table: their text, and the file beside the zone's own that it waits in to be judged.

What is published is a zone file like any other, written by the rules of ``maptr zone build``; so a restart serves
what was published last, and a table that is worse meets the same guards as a zone file that is.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from maptr.errors import ParserFailed, TableError, ZoneError
from maptr.files import read_whole, write_atomically
from maptr.protocol.names import Labels
from maptr.protocol.serial import next_serial
from maptr.registry import sandbox
from maptr.registry.table import MAX_TABLE
from maptr.zone import build
from maptr.zone.build import NameServer
from maptr.zone.lint import LeftOut

if TYPE_CHECKING:
    from maptr.server.zones import ZoneSource


@dataclass(frozen=True, slots=True)
class TableBuild:
    """The registry that a zone is built from, and what else is in the zone; ``include`` are files."""

    table: Path
    servers: tuple[NameServer, ...] = ()
    contact: Labels = (b"hostmaster",)
    ttl: int = build.TTL
    include: tuple[Path, ...] = ()
    scheme: str = "https"  # of a natab's hosts


def prepared(source: ZoneSource, now: float, *, starting: bool = False) -> tuple[ZoneSource, LeftOut | None]:
    """The source to read: itself where it is no table's, or at a start has what was published last; else the
    candidate that the table makes now, which ``settle`` puts in its place or takes away. And what of the table is not
    in it, None where the table was not looked at.

    Raises ZoneError where the table makes no zone, OSError where a file cannot be read or written.
    """
    if source.table is None or (starting and source.path.exists()):
        return source, None
    text, left_out = built(source, now)
    if text is None:
        return source, left_out
    candidate = source.path.with_name(f".{source.path.name}.next")
    source.path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(candidate, text.encode())
    return source._replace(path=candidate), left_out


def settle(source: ZoneSource, reading: ZoneSource, *, published: bool) -> None:
    """Make the candidate the zone's file, or take it away. Raises OSError."""
    if reading.path == source.path:
        return
    if published:
        reading.path.replace(source.path)
    else:
        with suppress(OSError):
            reading.path.unlink()


def built(source: ZoneSource, now: float) -> tuple[str | None, LeftOut]:
    """The text of the zone that the table makes, None where it says what the zone's file has; and what of the table
    is not in it. Raises as above."""
    made = source.table
    assert made is not None  # noqa: S101 - else nobody asks
    with made.table.open("rb") as file:
        octets = file.read(MAX_TABLE + 1)
    if len(octets) > MAX_TABLE:
        raise ZoneError(f"more than {MAX_TABLE} octets", filename=str(made.table))
    try:
        table, unread = sandbox.read(octets, filename=str(made.table), scheme=made.scheme)
    except TableError as error:
        raise ZoneError(error.reason, filename=error.filename, line=error.line) from None
    except ParserFailed as error:
        raise ZoneError(str(error)) from None
    include = tuple((str(path), read_whole(path).decode()) for path in made.include)
    settings = build.Settings(source.origin, made.servers, made.contact, made.ttl, include)
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
