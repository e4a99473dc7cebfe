"""What a cache keeps in memory: the answer to each name asked, for as long as its TTL allows, least used out first.

Answers and not discoveries are kept, so that every ARK of a NAAN is answered by one question. Whoever reads
decides what stale means to him; here an answer stays until it is pushed out or past all use.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from maptr.discovery import Outcome
from maptr.files import ForkLock
from maptr.protocol.names import Labels
from maptr.walk import Answer

MAX_KEEP = 604_800  # seconds; RFC 8767 section 4: a TTL of more than a week is capped
MAX_NEGATIVE = 10_800  # seconds; RFC 2308 section 5 finds one to three hours to work well
MAX_NAMES = 100_000  # about 1 kB each; the real registry has 1,432

Key = tuple[str, Labels]
"""The servers asked, as text, and the folded name."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer as it was got. ``fetched`` is wall-clock time, ``expires`` a time of the cache's steady clock."""

    answer: Answer
    fetched: float
    expires: float
    lifetime: float
    layer: str = "memory"

    def at(self, now: float) -> Answer:
        """The answer with the TTL that is left of it."""
        answer = self.answer
        left = max(0, int(self.expires - now))
        return Answer(answer.outcome, answer.records, left, answer.note, answer.server, security=answer.security)


def keeping_time(answer: Answer) -> int:
    """Seconds that an answer may be kept; 0 for none: no TTL was given, or DNS did not say (RFC 2308 section 5)."""
    return 0 if answer.ttl is None or answer.ttl < 0 else min(answer.ttl, longest_keeping(answer))


def longest_keeping(answer: Answer) -> int:
    """Seconds that an answer may be kept at most, whatever its TTL."""
    if not answer.outcome.said:
        return 0
    return MAX_KEEP if answer.outcome is Outcome.ANSWER and answer.records else MAX_NEGATIVE


class Memory:
    """Answers by key, at most ``size`` of them. Safe for threads."""

    def __init__(self, size: int = MAX_NAMES) -> None:
        self._size = size
        self._kept: OrderedDict[Key, Kept] = OrderedDict()
        self._lock = ForkLock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key) -> Kept | None:
        """What is kept for the key, fresh or not."""
        kept = self._kept.get(key)
        if kept is not None:
            try:  # noqa: SIM105 - suppress() takes longer than all the rest
                self._kept.move_to_end(key)
            except KeyError:  # pushed out at this very moment, by another thread
                pass
        return kept

    def put(self, key: Key, kept: Kept) -> None:
        with self._lock:
            self._kept[key] = kept
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)

    def drop(self, key: Key) -> None:
        with self._lock:
            self._kept.pop(key, None)
