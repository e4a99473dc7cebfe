"""Answers heard in a run, for as long as there is room: plain replies as octets, others as Answers.

They are apart because the garbage collector does not look into a dict of nothing but octets, and with 100,000 in it
that is a quarter of a run.
"""

from __future__ import annotations

from itertools import islice

from maptr.plainreply import RECORDS_AT
from maptr.question import Answer

MAX_KEPT = 100_000  # records kept of answers already heard, an empty answer counting as one: 150 MB at the very worst
PART = 8  # of which the oldest makes room when there is none


class Heard:
    """Answers by name, in wire format and lower case."""

    def __init__(self, most: int = MAX_KEPT) -> None:
        self._most = most
        self._plain: dict[bytes, bytes] = {}
        self._others: dict[bytes, Answer] = {}
        self._records = 0

    def __len__(self) -> int:
        return len(self._plain) + len(self._others)

    def get(self, key: bytes) -> bytes | Answer | None:
        """What is kept of a name: a plain reply's octets, or another answer."""
        return self._plain.get(key) or self._others.get(key)

    def keep_plain(self, key: bytes, kept: bytes) -> None:
        self._plain[key] = kept
        self._records += kept[RECORDS_AT]
        if self._records > self._most:
            self._make_room()

    def keep(self, key: bytes, answer: Answer) -> None:
        self._others[key] = answer
        self._records += len(answer.records) or 1
        if self._records > self._most:
            self._make_room()

    def _make_room(self) -> None:
        """Forget the oldest of either kind, a part of them at once: to find the first of a dict takes longer the more
        have gone before it."""
        while self._records > self._most:
            for key in list(islice(self._plain, -(-len(self._plain) // PART))):
                self._records -= self._plain.pop(key)[RECORDS_AT]
            for key in list(islice(self._others, -(-len(self._others) // PART))):
                self._records -= len(self._others.pop(key).records) or 1
