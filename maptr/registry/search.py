"""Search for NAANs by number, acronym or name of the organisation, ignoring case, accents and punctuation."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import chain

from maptr.registry.table import Entry, Table

MAX_QUERY = 200  # characters that are used
MAX_WORDS = 8  # words that are used
NO_MATCH = 4  # the rank of an entry that does not match
LABELS = ("ark", "naan")  # what people write before a number


class NaanIndex:
    """A search index of a table's NAANs. It is made once, because folding the names takes most of the time."""

    def __init__(self, table: Table) -> None:
        entries = [table[naan] for naan in table.naans()]
        self._rows = [(entry, *_folded_names(entry)) for entry in entries]

    def search(self, query: str) -> list[Entry]:
        """Return the NAANs that match, best first: the number or acronym itself, a prefix of it, a prefix of the name,
        and last every record that has all words of the query. Equal ones are in table order."""
        given = _folded(query[:MAX_QUERY]).split()[:MAX_WORDS]
        said = [word for word in given if word not in LABELS] or given
        words = dict.fromkeys(said)
        start, longest = "\n" + " ".join(said), max(words, key=len, default="\0")
        ranked: tuple[list[Entry], ...] = tuple([] for _ in range(NO_MATCH + 1))
        for entry, short, names in self._rows:
            if longest in short or longest in names:  # most names do not have it
                ranked[_rank(start, words, short, names)].append(entry)
        return [*chain(*ranked[:NO_MATCH])]


def _folded_names(entry: Entry) -> tuple[str, str]:
    """Return number and acronym, and the names, each between line ends."""
    names = filter(None, (entry.who.name, entry.who.name_native))
    return f"\n{entry.naan}\n{_folded(entry.who.acronym or '')}\n", "\n".join(["", *map(_folded, names), ""])


def _rank(start: str, words: Iterable[str], short: str, names: str) -> int:
    if start in short:
        return 0 if f"{start}\n" in short else 1
    if start in names:
        return 2
    return 3 if all(word in short or word in names for word in words) else NO_MATCH


def _folded(text: str) -> str:
    """Return a text without case and accents, its letters and digits as words with one blank between them."""
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
    return " ".join(re.findall(r"[^\W_]+", plain.casefold()))
