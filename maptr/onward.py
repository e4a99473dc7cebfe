"""The further questions of many walks: who waits for which answer, and until when. A part of ``many``.

A walk's time runs from the first packet of its first question. When it is over the walk leaves, whoever else waits for
the same answer; and a question that nobody waits for is dropped. So a question has no time of its own: it lasts until
the last of those who wait for it has to leave, and no answer that others are told is cut short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from maptr.question import TIME_OVER, Answer, Question
from maptr.trace import Outcome
from maptr.walk import Walk

Token = TypeVar("Token")


class Going(Generic[Token]):
    """A walk that asks on; ``open`` are the questions it waits for, by name in wire format and lower case."""

    __slots__ = ("open", "token", "walk")

    def __init__(self, token: Token, walk: Walk) -> None:
        self.token = token
        self.walk = walk
        self.open: dict[bytes, Question] = {}


class Onward(Generic[Token]):
    """A question, by name in wire format, and the walks that wait for it, in the order in which they came.

    Whoever asks it says by ``unanswered`` what it comes to for a walk that leaves now, and ends it by ``drop``.
    """

    __slots__ = ("drop", "name", "unanswered", "walks")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.walks: dict[Going[Token], None] = {}
        self.unanswered: Callable[[], Answer] = _not_asked
        self.drop: Callable[[], None] = _nothing


def _not_asked() -> Answer:
    return Answer(Outcome.TIMEOUT, note=TIME_OVER)


def _nothing() -> None:
    pass


class Deadlines(Generic[Token]):
    """When the time of each walk is over. ``lifetime`` is in seconds."""

    def __init__(self, lifetime: float, clock: Callable[[], float]) -> None:
        self._lifetime = lifetime
        self._clock = clock
        self._heap: list[tuple[float, int, Going[Token]]] = []
        self._numbers = count()
        self._most = 100

    def set(self, going: Going[Token], elapsed: float) -> None:
        """The walk's first packet was sent so many seconds ago."""
        if len(self._heap) > self._most:  # most of these walks have ended, and would be kept until their time is over
            self._heap = [entry for entry in self._heap if not entry[2].walk.over]
            heapify(self._heap)
            self._most = 100 + 2 * len(self._heap)
        heappush(self._heap, (self._clock() - elapsed + self._lifetime, next(self._numbers), going))

    def overdue(self) -> Iterator[Going[Token]]:
        """The walks whose time is over, each once."""
        if self._heap:
            now = self._clock()
            while self._heap and self._heap[0][0] <= now:
                going = heappop(self._heap)[2]
                if not going.walk.over:
                    yield going

    @property
    def pause(self) -> float | None:
        """Seconds until the next may be overdue, None where none will be."""
        return max(0.0, self._heap[0][0] - self._clock()) if self._heap else None
