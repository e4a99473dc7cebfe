"""Line numbers of the keys of a TOML text, which tomli does not report.

The text must be one that tomli accepts: nothing is checked here.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator

KeyPath = tuple[str | int, ...]
"""Keys from the root, with an index after each array of tables: ``("zone", 0, "name")``."""

# A comment, a string of each kind, punctuation, a date with its time, or a bare word; commas are left out. A multi-line
# string may have two quotes before its end.
_TOKEN = re.compile(
    r"""\#[^\n]*
    | "{3}(?:\\.|[^\\])*?"{3,5} | '{3}.*?'{3,5} | "(?:\\.|[^"\\])*" | '[^']*'
    | [][{}=] | \d{4}-\d\d-\d\d\ [\d:.Zz+-]+ | [^][{}=,"'#\s]+""",
    re.VERBOSE | re.DOTALL,
)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line number, from 1, of every table, key and array element."""
    return _Scanner(text).lines


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """Yield each token that is not a comment, with its line."""
    line, counted = 1, 0
    for found in _TOKEN.finditer(text):
        line += text.count("\n", counted, found.start())
        counted = found.start()
        if not found[0].startswith("#"):
            yield found[0], line


class _Scanner:
    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._tables: Counter[KeyPath] = Counter()  # the tables of each array so far
        self._tokens = deque(_tokens(text))
        table: KeyPath = ()
        while self._tokens:
            if self._next_is("["):
                table = self._header()
            else:
                self._pair(table)

    def _next_is(self, tokens: str) -> bool:
        return self._tokens[0][0] in tokens

    def _header(self) -> KeyPath:
        _, line = self._tokens.popleft()
        if is_array := self._next_is("["):
            self._tokens.popleft()
        *above, last = self._key("]")
        path: KeyPath = ()
        for part in above:
            path = self._current((*path, part))
        path = (*path, last)
        self.lines.setdefault(path, line)
        if is_array:
            self._tokens.popleft()
            self._tables[path] += 1
        path = self._current(path)
        self.lines.setdefault(path, line)
        return path

    def _current(self, path: KeyPath) -> KeyPath:
        """Return the path of the array's last table so far if the path is an array of tables, else the path itself."""
        return (*path, self._tables[path] - 1) if path in self._tables else path

    def _key(self, end: str) -> list[str]:
        """Return the parts of the dotted key before the token ``end``."""
        import tomli  # late: many commands run without a configuration file

        text = ""
        while (token := self._tokens.popleft()[0]) != end:
            text += token
        value = tomli.loads(f"{text} = 0")
        parts = []
        while isinstance(value, dict):
            part, value = next(iter(value.items()))
            parts.append(part)
        return parts

    def _pair(self, table: KeyPath) -> None:
        line = self._tokens[0][1]
        path = table
        for part in self._key("="):
            path = (*path, part)
            self.lines.setdefault(path, line)
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        word, _ = self._tokens.popleft()
        if word == "[":
            number = 0
            while not self._next_is("]"):
                self.lines.setdefault((*path, number), self._tokens[0][1])
                self._value((*path, number))
                number += 1
            self._tokens.popleft()
        elif word == "{":
            while not self._next_is("}"):
                self._pair(path)
            self._tokens.popleft()
