"""Search for NAANs by number, acronym or name of the organisation, in any case and without accents."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from maptr.registry.table import Entry, Table

MAX_QUERY = 200  # characters that are read


def search(table: Table, query: str) -> list[Entry]:
    """Return the NAANs that match, best first: the number or acronym itself, its start, the start of the name, and last
    every name that has all words of the query. Equal ones are in the order of the table."""
    words = _folded(query[:MAX_QUERY]).split()
    if not words:
        return []
    ranked = ((_rank(entry, words), entry) for entry in map(table.__getitem__, table.naans()))
    found = sorted(((rank, entry) for rank, entry in ranked if rank is not None), key=lambda pair: pair[0])
    return [entry for _, entry in found]


def _rank(entry: Entry, words: list[str]) -> int | None:
    text = " ".join(words)
    short = [entry.naan, _folded(entry.who.acronym or "")]
    names = [_folded(name) for name in (entry.who.name, entry.who.name_native) if name]
    if text in short:
        return 0
    if any(each.startswith(text) for each in short):
        return 1
    if any(name.startswith(text) for name in names):
        return 2
    if any(_has_all(name, words) for name in names):
        return 3
    return None


def _has_all(name: str, words: list[str]) -> bool:
    return all(word in name for word in words)


def _folded(text: str) -> str:
    """Return a text without case and accents, its words with one blank between them."""
    return " ".join("".join(_letters(text)).casefold().split())


def _letters(text: str) -> Iterator[str]:
    return (letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
