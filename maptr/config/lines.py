"""Line numbers of the keys of a TOML text, which tomli does not report.

tomli parses each statement alone: a table header, or a key and its value. It gets an array on several lines element by
element. The text must be one that tomli accepts: nothing is checked here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

KeyPath = tuple[str | int, ...]
"""Keys from the root, with an index after each array of tables: ``("zone", 0, "name")``."""


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line number, from 1, of every table, key and array element."""
    found: dict[KeyPath, int] = {}
    tables: Counter[KeyPath] = Counter()  # the number of tables in each array of tables so far
    table: KeyPath = ()
    array: KeyPath = ()  # the array that is open
    size = 0  # its number of elements so far
    statement, first = "", 1
    for number, line in enumerate(text.split("\n"), 1):
        statement += f"{line.lstrip(' ,') if array else line}\n"
        value, is_open = _parse(statement)
        if value is None:
            continue
        if array:
            for index, *below in _paths(value["_"]):
                found.setdefault((*array, size + index, *below), number)
            size += len(value["_"])
        elif statement.lstrip().startswith("["):
            table = ()
            *_, header = _paths(value)
            for part in header:
                if part == 0:  # of [[table]]
                    tables[table] += 1
                if table in tables:
                    table = (*table, tables[table] - 1)
                if part != 0:
                    table = (*table, part)
                found.setdefault(table, number)
        else:
            for path in _paths(value):
                found.setdefault((*table, *path), first)
            if is_open:
                array = table
                while isinstance(value, dict):
                    ((part, value),) = value.items()
                    array = (*array, part)
                size = len(value)
        if is_open:
            statement = "_ = ["
        else:
            statement, first, array = "", number + 1, ()
    return found


def _parse(statement: str) -> tuple[Any, bool]:
    """Return the value of a statement, None if it ends in a string or a nested array, and whether its array is open."""
    import tomli  # late: many commands run without a configuration file

    for end in ("", "]"):
        try:
            return tomli.loads(statement + end), bool(end)
        except tomli.TOMLDecodeError:
            pass
    return None, True


def _paths(value: object, path: KeyPath = ()) -> Iterator[Any]:
    """Yield the path of each key and element in a value."""
    if path:
        yield path
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, inner in below:
        yield from _paths(inner, (*path, part))
