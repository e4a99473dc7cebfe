"""The line of each key of a TOML text, which tomli does not report.

Only for texts that tomli accepts: nothing is checked here, and for other texts the lines are undefined.
"""

from __future__ import annotations

from collections import Counter

KeyPath = tuple[str | int, ...]
"""Keys from the root, with an index after each array of tables: ``("zone", 0, "name")``."""

_BLANK = " \t\r\n"
_QUOTES = ('"""', "'''", '"', "'")  # the longer first: three quotes are not an empty string and a quote


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line, from 1, of every table, key and array element."""
    return _Scanner(text).lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {}
        self._tables: Counter[KeyPath] = Counter()  # the tables of each array so far
        self._counted = (0, 1)  # an offset and its line, from which to count on
        table: KeyPath = ()
        while self._next():
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _next(self) -> bool:
        """Skip white space and comments; False at the end."""
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif self.text[self.at] in _BLANK:
                self.at += 1
            else:
                return True
        return False

    def _mark(self, path: KeyPath) -> None:
        offset, line = self._counted
        line += self.text.count("\n", offset, self.at)
        self._counted = (self.at, line)
        self.lines.setdefault(path, line)

    def _header(self) -> KeyPath:
        is_array = self.text.startswith("[[", self.at)
        start = self.at + 1 + is_array
        *above, last = self._key(start, "]")
        path: KeyPath = ()
        for part in above:
            path = self._current((*path, part))
        path = (*path, last)
        self._mark(path)
        if is_array:
            self._tables[path] += 1
        path = self._current(path)
        self._mark(path)
        self.at += 1 + is_array
        return path

    def _current(self, path: KeyPath) -> KeyPath:
        """The name of an array in a header stands for the last table of the array."""
        return (*path, self._tables[path] - 1) if path in self._tables else path

    def _key(self, start: int, end: str) -> list[str]:
        """The parts of the dotted key that begins at ``start``. Moves ``at`` to the character that ends it."""
        self.at = start
        while self.text[self.at] != end:
            self._step()
        import tomli  # here, because many commands run without a configuration file

        value = tomli.loads(f"{self.text[start : self.at]} = 0")
        parts = []
        while isinstance(value, dict):
            part, value = next(iter(value.items()))
            parts.append(part)
        return parts

    def _pair(self, table: KeyPath) -> None:
        start = self.at
        parts = self._key(start, "=")
        self.at = start
        for count in range(1, len(parts) + 1):
            self._mark((*table, *parts[:count]))
        self._key(start, "=")
        self.at += 1
        self._value((*table, *parts))

    def _value(self, path: KeyPath) -> None:
        self._next()
        if self.text[self.at] == "[":
            self.at += 1
            number = 0
            while self._next() and self.text[self.at] != "]":
                self._mark((*path, number))
                self._value((*path, number))
                number += 1
                self._comma()
            self.at += 1
        elif self.text[self.at] == "{":
            self.at += 1
            while self._next() and self.text[self.at] != "}":
                self._pair(path)
                self._comma()
            self.at += 1
        else:
            while self.at < len(self.text) and self.text[self.at] not in ",]}\n#":
                self._step()

    def _comma(self) -> None:
        if self._next() and self.text[self.at] == ",":
            self.at += 1

    def _step(self) -> None:
        """Skip one character or one string."""
        quote = next((quote for quote in _QUOTES if self.text.startswith(quote, self.at)), "")
        if not quote:
            self.at += 1
            return
        self.at += len(quote)
        while not self.text.startswith(quote, self.at):
            self.at += 2 if self.text[self.at] == "\\" and quote[0] == '"' else 1
        self.at += len(quote)
        # Up to two quotes may come directly before the three that end a string.
        while len(quote) == 3 and self.text.startswith(quote[0], self.at):
            self.at += 1
