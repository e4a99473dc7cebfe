"""The zone file of a zone that is built from a registry's table.

The zone is first written to a candidate file, which replaces the zone's file once it is accepted. So a restart serves
the last published version, and a bad table is refused in the same way as a bad zone file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from maptr import registry
from maptr.config import ZoneConfig
from maptr.errors import TableError, ZoneError
from maptr.files import read_whole, write_atomically
from maptr.protocol.serial import choose
from maptr.zone import build
from maptr.zone.lint import LeftOut


@contextmanager
def candidate(
    zone: ZoneConfig, now: float, *, starting: bool = False, others: Callable[[], Iterable[int]] = tuple
) -> Iterator[tuple[ZoneConfig, LeftOut | None]]:
    """Yield the zone with the file to read, and the left-out records (None if the table was not read).

    A new candidate becomes the zone's file at the end of the context, and is removed after an exception. There is none
    if the zone has no table, if the zone would not change, and at a start with a published version. ``others`` gives
    the secondaries' serials, which a candidate's serial passes. Raises OSError, and ZoneError for a table from which no
    zone can be built.
    """
    old = read_whole(zone.file).decode(errors="replace") if zone.table and zone.file.exists() else ""
    if zone.table is None or (starting and old):
        yield zone, None
        return
    last = build.serial_of(old)
    built = _build(zone, zone.table, last or 0)
    if built.text == old:
        yield zone, built.left_out
        return
    built = built.with_serial(choose(None, last, zone.style, now, others()))
    path = zone.file.with_name(f".{zone.file.name}.next")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, built.text.encode())
    try:
        yield replace(zone, file=path), built.left_out
        path.replace(zone.file)
    except ZoneError as error:
        file, line = built.place(error.filename, error.line)
        raise ZoneError(error.reason, filename=file, line=line, owner=error.owner, code=error.code) from None
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _build(zone: ZoneConfig, table_file: Path, serial: int) -> build.Build:
    unread: list[TableError] = []
    try:
        table = registry.read(
            read_whole(table_file), filename=str(table_file), on_bad=unread.append, scheme=zone.scheme
        )
    except TableError as error:
        raise ZoneError(error.reason, filename=error.filename, line=error.line) from None
    include = tuple((str(path), read_whole(path)) for path in zone.include)
    servers = tuple(build.NameServer.parse(text, zone.name) for text in zone.ns)
    settings = build.ZoneSettings(zone.name, servers, zone.contact, zone.ttl, include)
    return build.build(table, serial, settings, unread=unread)
