"""The line numbers of a configuration file's keys, which tomli does not report.

Tomli has accepted the text, so this reader only follows its structure: it knows keys, brackets and strings, and skips
all other values.
"""

from __future__ import annotations

import re
from collections import Counter

KeyPath = tuple[str | int, ...]
"""Keys from the root, with an index after each array of tables: ``("zone", 0, "name")``."""

# A multi-line string, whose closing three quotes may follow two more; a one-line string; a comment; a mark; a word.
_TOKEN = re.compile(
    r'''"""(?:[^"\\]++|\\.|"(?!""))*"{3,5}|"(?:[^"\\\n]++|\\.)*"'''
    r"""|'''(?:[^']++|'(?!''))*'{3,5}|'[^'\n]*'|#[^\n]*|[][{}=,.\n]|[^][{}=,.\s"'#]+""",
    re.DOTALL,
)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line number, from 1, of every table, key and array element of a text that tomli accepts."""
    reader = _Reader(text)
    reader.read()
    return reader.found


class _Reader:
    """Reads a document token by token. ``found`` has the line of each path, or the first one of several."""

    def __init__(self, text: str) -> None:
        self.found: dict[KeyPath, int] = {}
        self._tables: Counter[KeyPath] = Counter()  # the number of tables so far in each array of tables
        self._tokens: list[tuple[str, int]] = []  # with their lines
        self._at = 0
        line = 1
        for match in _TOKEN.finditer(text):
            if not match[0].startswith("#"):
                self._tokens.append((match[0], line))
            line += match[0].count("\n")
        self._tokens.append(("", line))  # the end

    @property
    def _next(self) -> str:
        return self._tokens[self._at][0]

    @property
    def _line(self) -> int:
        return self._tokens[self._at][1]

    def read(self) -> None:
        table: KeyPath = ()
        while self._next:
            if self._next == "\n":
                self._at += 1
            elif self._next == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> KeyPath:
        """Read ``[table]`` or ``[[table]]``. Returns its path, with the index of each table in an array."""
        line, is_array = self._line, self._tokens[self._at + 1][0] == "["
        self._at += 2 if is_array else 1
        parts = self._key()
        self._at += 2 if is_array else 1
        if is_array:
            self._tables[self._path(parts[:-1], line) + parts[-1:]] += 1
        return self._path(parts, line)

    def _path(self, parts: tuple[str, ...], line: int) -> KeyPath:
        """Record the tables above and at a key. Returns the last one's path; in an array, its last table's."""
        path: KeyPath = ()
        for part in parts:
            path = (*path, part)
            self.found.setdefault(path, line)
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
                self.found.setdefault(path, line)
        return path

    def _key(self) -> tuple[str, ...]:
        """Read the parts of a dotted key, up to what follows it."""
        parts = []
        while self._next not in ("=", "]"):
            if self._next != ".":
                parts.append(_unquoted(self._next))
            self._at += 1
        return tuple(parts)

    def _pair(self, path: KeyPath) -> None:
        """Read a key and its value in a table."""
        line = self._line
        for part in self._key():
            path = (*path, part)
            self.found.setdefault(path, line)
        self._at += 1  # the equals sign
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        """Read a value, up to what follows it."""
        if self._next == "[":
            self._array(path)
        elif self._next == "{":
            self._inline_table(path)
        else:
            while self._next not in ("", "\n", ",", "]", "}"):
                self._at += 1

    def _array(self, path: KeyPath) -> None:
        self._at += 1
        index = 0
        while self._next != "]":
            if self._next in ("\n", ","):
                self._at += 1
                continue
            element = (*path, index)
            self.found.setdefault(element, self._line)
            self._value(element)
            index += 1
        self._at += 1

    def _inline_table(self, path: KeyPath) -> None:
        self._at += 1
        while self._next != "}":
            if self._next in ("\n", ","):
                self._at += 1
            else:
                self._pair(path)
        self._at += 1


def _unquoted(part: str) -> str:
    """Return a part of a key without its quotes and escapes."""
    if part[0] not in "\"'":
        return part
    import tomli  # not at a command's start, which usually has no configuration

    return str(tomli.loads(f"_ = {part}")["_"])
