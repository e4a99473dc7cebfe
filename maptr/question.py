"""What a walk asks, what it is told, and what its caller may decide about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from maptr.candidate import REGEXP_STEPS
from maptr.naptr.automaton import Budget
from maptr.naptr.record import Naptr, Rule
from maptr.protocol import names
from maptr.protocol.names import ARK_ARPA, Labels
from maptr.protocol.numbers import MAX_TTL, NAPTR
from maptr.trace import Link, Outcome

MAX_DEPTH = 8  # redirects on one path; deeper is a loop or an attack
MAX_QUESTIONS = 32  # in one walk
MAX_CANDIDATES = 64  # the best are kept
MAX_RECORDS = 2048  # read in one walk; one reply has room for about that many, and the longest real one has 17

_new = tuple.__new__  # half the time of a NamedTuple's own
TIME_OVER = "the walk's time was over"  # what the trace says of a question that was not asked any more


class Settings(NamedTuple):
    """What a caller may decide about a walk.

    ``scheme`` is that of an ``h`` candidate's URL, and of a natab's host; with port 80 both are http.
    ``allow_private`` lets rules lead to hosts that are not public.
    ``undotted`` is the origin below which a host without final dot is read both ways; by default
    ``ark.arpa`` where that is the origin, and none elsewhere.
    """

    origin: Labels = ARK_ARPA
    scheme: str = "https"
    allow_private: bool = False
    undotted: Labels | None = None
    max_depth: int = MAX_DEPTH
    max_questions: int = MAX_QUESTIONS
    max_candidates: int = MAX_CANDIDATES
    max_records: int = MAX_RECORDS
    regexp_steps: int = REGEXP_STEPS

    def reading_origin(self) -> Labels | None:
        if self.undotted is None and (self.origin == ARK_ARPA or names.fold(self.origin) == ARK_ARPA):
            return ARK_ARPA
        return self.undotted


DEFAULTS = Settings()


class Question(NamedTuple):
    """A name to ask NAPTR at. ``path`` holds order and preference of the redirects that led here. ``rdtype`` is SOA for
    the one question whether the origin exists."""

    name: Labels
    path: tuple[tuple[int, int], ...] = ()
    ttl: int = MAX_TTL
    rdtype: int = NAPTR

    @property
    def depth(self) -> int:
        return len(self.path)


class Answer(NamedTuple):
    """What DNS said to one question. ``ttl`` is that of the records, or of the negative answer, in seconds.

    ``zone`` is, for NXDOMAIN, the owner of the SOA in the reply, which is a zone that exists. It is the name that was
    asked where an alias stands there, and None where the reply has no SOA.
    """

    outcome: Outcome
    records: Sequence[Naptr] = ()
    ttl: int | None = None
    note: str = ""
    server: str = ""
    elapsed: float | None = None
    security: str = "indeterminate"
    links: tuple[Link, ...] = ()
    zone: Labels | None = None

    def after(self, elapsed: float) -> Answer:
        """The same, so many seconds after the question."""
        return _new(Answer, (*self[:5], elapsed, *self[6:]))


class Reader(Protocol):
    """``naptr.read``, or one that remembers."""

    def __call__(self, naptr: Naptr, *, undotted: Labels | None, budget: Budget) -> Rule: ...


def question_rank(question: Question) -> tuple[object, ...]:
    """A key to sort by: best path first."""
    return question.path, names.fold(question.name), question.name, question.ttl
