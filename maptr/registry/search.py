"""Search for NAANs by number, acronym or name of the organisation, in any case and without accents."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import NamedTuple, Self

from maptr.registry.table import Entry, Table

MAX_QUERY = 200  # characters that are read


class NaanIndex:
    """The NAANs of a table by what they can be found by. Folding the names takes longest, so it is made once."""

    def __init__(self, table: Table) -> None:
        self._rows = [_Searchable.of(table[naan]) for naan in table.naans()]

    def search(self, query: str) -> list[Entry]:
        """Return the NAANs that match, best first: the number or acronym itself, its start, the start of the name, and
        last every name that has all words of the query. Equal ones are in the order of the table."""
        words = _folded(query[:MAX_QUERY]).split()
        if not words:
            return []
        ranked = ((row.rank(words), row.entry) for row in self._rows)
        found = sorted(((rank, entry) for rank, entry in ranked if rank is not None), key=lambda pair: pair[0])
        return [entry for _, entry in found]


class _Searchable(NamedTuple):
    entry: Entry
    short: tuple[str, ...]  # number and acronym
    names: tuple[str, ...]

    @classmethod
    def of(cls, entry: Entry) -> Self:
        names = filter(None, (entry.who.name, entry.who.name_native))
        return cls(entry, (entry.naan, _folded(entry.who.acronym or "")), tuple(map(_folded, names)))

    def rank(self, words: list[str]) -> int | None:
        text = " ".join(words)
        if text in self.short:
            return 0
        if any(each.startswith(text) for each in self.short):
            return 1
        if any(name.startswith(text) for name in self.names):
            return 2
        return 3 if any(all(word in name for word in words) for name in self.names) else None


def _folded(text: str) -> str:
    """Return a text without case and accents, its words with one blank between them."""
    return " ".join("".join(_letters(text)).casefold().split())


def _letters(text: str) -> Iterator[str]:
    return (letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
