"""Search for NAANs by number, acronym or name of the organisation, in any case and without accents."""

from __future__ import annotations

import unicodedata
from operator import itemgetter

from maptr.registry.table import Entry, Table

MAX_QUERY = 200  # characters that are read
NO_MATCH = 4  # the rank of an entry that does not match


class NaanIndex:
    """The NAANs of a table by what they can be found by. Folding the names takes longest, so it is made once."""

    def __init__(self, table: Table) -> None:
        entries = [table[naan] for naan in table.naans()]
        self._rows = [(entry, *_folded_names(entry)) for entry in entries]

    def search(self, query: str) -> list[Entry]:
        """Return the NAANs that match, best first: the number or acronym itself, its start, the start of the name, and
        last every name that has all words of the query. Equal ones are in the order of the table."""
        words = _folded(query[:MAX_QUERY]).split()
        ranked = [(_rank(words, short, names), entry) for entry, short, names in self._rows] if words else []
        return [entry for rank, entry in sorted(ranked, key=itemgetter(0)) if rank < NO_MATCH]


def _folded_names(entry: Entry) -> tuple[list[str], list[str]]:
    """Return number and acronym, and the names."""
    names = filter(None, (entry.who.name, entry.who.name_native))
    return [entry.naan, _folded(entry.who.acronym or "")], [*map(_folded, names)]


def _rank(words: list[str], short: list[str], names: list[str]) -> int:
    text = " ".join(words)
    ways = (
        text in short,
        any(each.startswith(text) for each in short),
        any(name.startswith(text) for name in names),
        any(all(word in name for word in words) for name in names),
    )
    return (*ways, True).index(True)


def _folded(text: str) -> str:
    """Return a text without case and accents, its words with one blank between them."""
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
    return " ".join(plain.casefold().split())
