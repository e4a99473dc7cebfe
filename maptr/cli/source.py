"""Reading what a command is given: a file, or ``-`` for standard input. What cannot be read ends it with code 8."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from maptr import registry
from maptr.cli import output
from maptr.errors import TableError, reason_of
from maptr.registry.table import Table

if TYPE_CHECKING:
    from maptr.zone.check import Examined

MAX_OCTETS = 1 << 28  # 256 MiB: 200 times the real registry; a device that never ends is no file


def read_octets(file: str) -> bytes:
    """All of a file."""
    try:
        if file == "-":
            data = output.standard_input().read(MAX_OCTETS + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(MAX_OCTETS + 1)
    except OSError as error:
        output.fail(f"{shown(file)}: {error.strerror or error}", output.EXIT_UNREADABLE)
    if len(data) > MAX_OCTETS:
        output.fail(f"{shown(file)}: longer than {MAX_OCTETS} octets", output.EXIT_UNREADABLE)
    return data


def read_text(file: str) -> str:
    """All of a file that is UTF-8."""
    try:
        return read_octets(file).decode()
    except UnicodeDecodeError as error:
        output.fail(f"{shown(file)}: not UTF-8: {error}", output.EXIT_UNREADABLE)


def examined(text: str, origin: str | None, file: str) -> Examined:
    """What ``zonecheck`` finds in the text of a zone file, and in those that it includes."""
    from maptr.zone.check import examine

    try:
        return examine(text, origin=origin, filename=shown(file))
    except OSError as error:
        output.fail(f"{shown(file)}: $INCLUDE: {reason_of(error)}", output.EXIT_UNREADABLE)


def read_table(file: str, scheme: str = "https") -> tuple[Table, list[TableError]]:
    """The table of a registry in any format, and its bad records, which are not in it. ``scheme`` is natab's hosts'."""
    bad: list[TableError] = []
    try:
        return registry.read(read_octets(file), filename=shown(file), on_bad=bad.append, scheme=scheme), bad
    except TableError as error:
        output.fail(str(error), output.EXIT_UNREADABLE)


def shown(file: str) -> str:
    """The name of a file as messages give it."""
    return "<stdin>" if file == "-" else file
