"""The file of a zone that is built from a registry's table.

The zone is first written to a candidate file, which replaces the zone's file once it is accepted. So a restart serves
the last published version, and a bad table is refused in the same way as a bad zone file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from maptr import registry
from maptr.config import ZoneConfig
from maptr.errors import TableError, ZoneError
from maptr.files import read_whole, write_atomically
from maptr.protocol.serial import following_serial, next_serial
from maptr.zone import build
from maptr.zone.lint import LeftOut


@contextmanager
def candidate(zone: ZoneConfig, now: float, *, starting: bool = False) -> Iterator[tuple[ZoneConfig, LeftOut | None]]:
    """Yield the zone with the file to read, and the records left out of it (None if the table was not read).

    A new candidate becomes the zone's file at the end of the context, and is removed after an exception. There is none
    if the zone has no table, if the zone would not change, and at a start with a published version. Raises ZoneError
    for a table from which no zone can be built, and OSError.
    """
    if zone.table is None or (starting and zone.file.exists()):
        yield zone, None
        return
    text, left_out = _build(zone, zone.table, now)
    if text is None:
        yield zone, left_out
        return
    path = zone.file.with_name(f".{zone.file.name}.next")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())
    try:
        yield replace(zone, file=path), left_out
        path.replace(zone.file)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def _build(zone: ZoneConfig, table_file: Path, now: float) -> tuple[str | None, LeftOut]:
    """Return the text of the zone, None if only its serial would change, and the records left out of it."""
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
    old = read_whole(zone.file).decode(errors="replace") if zone.file.exists() else ""
    before = build.serial_of(old)
    style = "date" if zone.serial == "file" else zone.serial  # as ``maptr zone build`` counts
    if before is not None:
        serial = following_serial(before, style, now)
    else:
        serial = next_serial("1" if style == "increment" else style, now)
    result = build.build(table, serial, settings, unread=unread)
    return None if result.is_same(old) else result.text, result.left_out
