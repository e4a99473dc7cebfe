"""The NAAN registry: readers and writers of its formats, one module each, and the update and comparison of its files.

    read(data)                                recognises the format by its content and returns a Table
    write_json(table), write_natab(table)     return text, write_natab also each Loss
    Plan                                      the changes between two tables
    Pull, FirstPull                           what Client.pull did
    TableSource, TableState                   Client.table, and a table at one moment
    Table, Entry, Nma, Who, NaanPolicy        a table, and the parts of its records

JSON keeps everything. natab cannot, so its writer lists what it left out. These functions do no I/O; ``Table.read``
reads a file.

A new format is a module with a function ``read(text, builder)``, which collects entries and bad records in a
``TableBuilder`` (``table.py``) and returns its table, and a line in ``read`` or ``_line_reader`` below. A separate
package declares a ``Reader`` as an entry point of ``maptr.readers``.

These names are public, like those of ``help(maptr)``. Internal: its modules may change in any release.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any

from maptr import entry_points
from maptr.errors import PluginError, TableError
from maptr.registry import anvl, json_records, natab, prefixes
from maptr.registry.json_records import write as write_json
from maptr.registry.natab import Loss
from maptr.registry.natab import write as write_natab
from maptr.registry.plan import Plan
from maptr.registry.table import (
    MAX_LINES,
    MAX_PARTS,
    MAX_TABLE,
    Entry,
    NaanPolicy,
    Nma,
    OnBad,
    Table,
    TableBuilder,
    Who,
    normal_key,
)

if TYPE_CHECKING:
    from maptr.registry.pull import FirstPull, Pull
    from maptr.registry.table_state import TableSource, TableState

__all__ = [
    "Entry",
    "FirstPull",
    "Loss",
    "NaanPolicy",
    "Nma",
    "OnBad",
    "Plan",
    "Pull",
    "Reader",
    "Table",
    "TableBuilder",
    "TableSource",
    "TableState",
    "Who",
    "read",
    "write_json",
    "write_natab",
]

Reader = Callable[[str, TableBuilder], bool]
"""Adds the records of a text to the builder; returns False if the text has another format. The type of
``maptr.readers``."""

_LINE = re.compile(r"[^\r\n]+")
_ANVL = re.compile(r"(?:erc|naa)\s*:\s*(?!/)", re.IGNORECASE)
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # of str.splitlines
_YAML_FIELD = re.compile(r"\s+[\w.-]+\s*:(?:\s|\Z)")


# Reading a table needs no HTTP and no discovery.
_LATE = dict.fromkeys(("FirstPull", "Pull"), "maptr.registry.pull")
_LATE |= dict.fromkeys(("TableSource", "TableState"), "maptr.registry.table_state")


def _imported(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LATE[name]), name)
    return value


if not TYPE_CHECKING:  # type checkers would accept every name then
    __getattr__ = _imported


def read(
    data: bytes | str,
    *,
    filename: str = "",
    on_bad: OnBad | None = None,
    scheme: str = "https",
    is_pulled: bool = False,
) -> Table:
    """Read the table in a registry file of any format, recognised by its content, never by the file's name.

    A bad record raises TableError with file and line or record; with ``on_bad`` it is passed to that function and left
    out. Data that is not a registry (empty, cut short, a web page, not UTF-8, beyond a limit) always raises TableError.
    No other exception is raised, except by ``on_bad``. ``scheme`` applies to a natab's hosts (port 80 means http).
    ``is_pulled``: the data come from another machine, so the limits are lower.
    """
    builder = TableBuilder(filename, on_bad, is_pulled=is_pulled)
    text = _text(data, builder)
    match text.lstrip()[:1]:
        case "{" | "[":
            return json_records.read(text, builder)
        case "":
            reason = "the file is empty"
        case "<":
            reason = "it looks like a web page"
        case _:
            if (reader := _line_reader(text, scheme)) is not None:
                return reader(text, builder)
            if (table := _read_by_plugin(text, filename, on_bad)) is not None:
                return table
            reason = "it has no entry of any known format"
    raise builder.error(f"not a registry: {reason}", line=1)


def _line_reader(text: str, scheme: str) -> Callable[[str, TableBuilder], Table] | None:
    """Return the reader of a line-based format; None if none of the first lines belongs to a known one."""
    lines = filter(str.strip, (match[0] for match in islice(_LINE.finditer(text), MAX_PARTS)))
    for line, following in pairwise(chain(lines, [""])):
        if _ANVL.match(line):
            return anvl.read
        if prefixes.KEY.match(line):
            return prefixes.read
        if natab.END.match(line) or (_begins_natab(line) and not _YAML_FIELD.match(following)):
            return partial(natab.read, scheme=scheme)
    return None


def _read_by_plugin(text: str, filename: str, on_bad: OnBad | None) -> Table | None:
    """Return the table of the first reader of an installed package that recognises the text, or None."""
    for name in entry_points.names(entry_points.READERS):
        builder = TableBuilder(filename, on_bad)
        try:
            reader: Reader = entry_points.load(entry_points.READERS, name)
            if reader(text, builder):
                return builder.table()
        except TableError:
            raise
        except Exception as error:  # the package's code may raise anything
            reason = str(error) if isinstance(error, PluginError) else f"{type(error).__name__}: {error}"
            raise builder.error(f"the reader {name!r} failed: {reason}", line=1) from error
    return None


def _begins_natab(line: str) -> bool:
    """Return whether a line is a natab entry. The digit distinguishes ``12345:`` from ``Note:``."""
    match = natab.ENTRY.match(line.strip())
    return match is not None and any(map(str.isdigit, normal_key(match["naan"])))


def _text(data: bytes | str, builder: TableBuilder) -> str:
    """Decode the data. Raises TableError if it is too long, not UTF-8, or not text."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data

    def error(reason: str, at: int = 0) -> TableError:
        return builder.error(reason, line=raw.count(b"\n", 0, at) + 1)

    if len(raw) > MAX_TABLE:
        raise error(f"not a registry: longer than {MAX_TABLE} bytes")
    if raw.startswith(b"\x1f\x8b"):
        raise error("not a registry: gzip data; unpack it first")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as wrong:
        raise error("not UTF-8", wrong.start) from None
    if b"\0" in raw:
        raise error("not text: a NUL character", raw.index(b"\0"))
    builder.limit(text, _LINE_ENDS, MAX_LINES, "lines")
    return text.removeprefix("\ufeff")
