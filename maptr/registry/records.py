"""What every format's reader needs: records gathered in order, bad ones named, no key taken twice.

Not here: how any one format looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from maptr.errors import TableError
from maptr.registry.table import Entry, Table, parse_key
from maptr.text import printable

# Each costs a kilobyte of memory or two, and a hostile source has room for millions.
MAX_ENTRIES = 500_000  # the real registry has 1,428
MAX_BAD = 10_000

OnBad = Callable[[TableError], None]


class Records:
    """The records read so far of one file.

    With ``on_bad`` each bad record is told there and left out; without, the first one is raised. More records than
    MAX_ENTRIES, or bad ones than MAX_BAD, are a TableError of the whole.
    """

    def __init__(self, filename: str = "", on_bad: OnBad | None = None) -> None:
        self.filename = filename
        self._on_bad = on_bad
        self._entries: dict[str, Entry] = {}
        self.refused: set[str] = set()
        self._bad = 0
        self._over: TableError | None = None

    def add(self, entry: Entry) -> None:
        """Keep an entry. A key that is there already makes this record the bad one."""
        first = self._entries.get(entry.key)
        if first is not None:
            where = f", first on line {first.line}" if first.line else ""
            self.bad(f"is there twice{where}", line=entry.line, record=entry.key)
            return
        self._entries[entry.key] = entry
        self.check(len(self._entries))

    def key(self, text: str, *, line: int = 0, name: str = "") -> tuple[str, str]:
        """NAAN and shoulder of a key; TableError if it is none, by ``name`` where the key is empty."""
        try:
            return parse_key(text)
        except ValueError as error:
            raise self.error(str(error), line=line, record=shown(text) or name) from None

    def error(self, reason: str, *, line: int = 0, record: str = "") -> TableError:
        return TableError(reason, filename=self.filename, line=line, record=record)

    def bad(self, reason: str, *, line: int = 0, record: str = "") -> None:
        """A record (or a stray line) is bad: tell it, or raise TableError."""
        self.refuse(self.error(reason, line=line, record=record))

    def refuse(self, error: TableError) -> None:
        if self._on_bad is None:
            raise error
        if self._over is not None:  # a reader took it for an error of one record
            raise self._over
        self._bad += 1
        self.check(0, self._bad)
        self.refused.add(error.record)
        self._on_bad(error)

    def check(self, entries: int, bad: int = 0) -> None:
        """TableError where there are more records, or more bad ones, than a registry has."""
        for count, most, what in ((entries, MAX_ENTRIES, "records"), (bad, MAX_BAD, "bad records")):
            if count > most:
                self._over = self.error(f"not a registry: more than {most} {what}", line=1)
                raise self._over

    @property
    def entries(self) -> list[Entry]:
        """The entries kept, in order."""
        return list(self._entries.values())

    def table(self, metadata: Mapping[str, Any] | None = None) -> Table:
        return Table(self._entries.values(), metadata=metadata, unread=self.unread)

    @property
    def unread(self) -> Iterator[str]:
        """The keys of the records that were refused, where they have one."""
        for record in self.refused:
            with suppress(ValueError):
                yield "/".join(filter(None, parse_key(record)))


def shown(text: str) -> str:
    """Text from a file as a message may show it: one line, printable, not too long."""
    plain = printable(text)
    return plain if len(plain) <= 60 else plain[:57] + "..."
