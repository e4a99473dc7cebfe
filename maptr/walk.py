"""The Maptr algorithm without I/O (draft-kunze-ark appendix B, with the additions of this project).

    1. Ask for NAPTR at <NAAN>.<origin>.
    2. Keep only records whose service is "ark".
    3. Flags "h": a candidate, the replacement being its host. Flags "u": a candidate, the regexp making its URL.
    4. Flags empty: ask again at the replacement, or at the name that the regexp makes of the ARK;
       all branches, until exhausted.
    5. None found: no mapping authority. Otherwise choose by any criterion.

Everything that decides a discovery lives here and in ``fullwalk``. A driver asks what ``next()`` gives, all at once or
one by one, and tells the answers in any order; the result is the same, because a depth is read only when all of it is
told.

A walk whose root says all there is, in the commonest way, ends there by a shortcut: ``plain``. Its trace, which
costs more than its candidates, is then made by walking again in full, when somebody looks at it. Any other is walked
in full: ``fullwalk`` reads its records.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from maptr import names, plain
from maptr.ark import Ark
from maptr.candidate import Candidate
from maptr.discovery import Discovery
from maptr.names import Labels
from maptr.naptr import read
from maptr.protocol import MAX_TTL
from maptr.question import (
    DEFAULTS,
    TIME_OVER,
    Answer,
    Question,
    Reader,
    Settings,
    sane_ttl,
)
from maptr.trace import Outcome, Step

if TYPE_CHECKING:
    from maptr.fullwalk import FullWalk


class Walk:
    """One run of the algorithm: ``next()``, ask, ``tell()``, until ``next()`` gives nothing; then ``result()``.

    Raises ValueError where NAAN and origin make no domain name.
    """

    def __init__(
        self,
        ark: Ark,
        settings: Settings | None = None,
        *,
        reader: Reader | None = None,
        ranker: plain.Ranker = plain.make_ranking,
        shortcut: bool = True,
    ) -> None:
        self.ark = ark
        self.settings = settings or DEFAULTS
        self.ark_read = False  # beyond its NAAN: by a regexp, so that another ARK may walk elsewhere
        self._read = reader or read
        self._make_ranking = ranker
        self._shortcut = shortcut
        self._plain: tuple[tuple[Candidate, ...], Answer] | None = None
        self._full: FullWalk | None = None  # from the first depth that the shortcut does not take
        self._level = _Level([Question(names.check((ark.naan.encode(), *self.settings.origin)))])

    def next(self) -> list[Question]:
        """The questions that are open and were not given before, best path first; they may be asked side by side.

        Empty while answers are outstanding, and when the walk is over.
        """
        return self._level.take()

    def tell(self, question: Question, answer: Answer) -> None:
        """The answer to an open question, once."""
        if self._full is None and self._shortcut and (found := self._take_shortcut(question, answer)) is not None:
            self._plain = found, answer
            self._level = _OVER
            return
        self._level.answers[question.name] = answer
        if len(self._level.answers) == len(self._level.questions):
            self._read_level()

    def _take_shortcut(self, question: Question, answer: Answer) -> tuple[Candidate, ...] | None:
        """The candidates, where the answer at the root is all there is and plain; None for a walk in full."""
        if answer.outcome is Outcome.ANSWER:
            if len(answer.records) > min(self.settings.max_candidates, self.settings.max_records):
                return None
            ranking = self._make_ranking(
                answer.records,
                question.name,
                sane_ttl(answer.ttl, MAX_TTL),
                undotted=self.settings.reading_origin(),
                allow_private=self.settings.allow_private,
                steps=self.settings.regexp_steps,
            )
            if ranking is None:
                return None
            self.ark_read = ranking.fixed is None
            return ranking.candidates(self.ark)
        return () if answer.outcome.said and not answer.records else None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The trace so far: every question of the depths that have been read."""
        if self._plain is not None:
            return full_trace(self.settings, self._plain[1], self.ark)
        return () if self._full is None else tuple(self._full.steps)

    @property
    def over(self) -> bool:
        return not self._level.questions

    def result(self, now: float | None = None) -> Discovery:
        """The discovery, its expiration counted from ``now``. Questions still open count as without answer in time."""
        if self._plain is not None:
            found, answer = self._plain
            ttl = None if answer.ttl is None else sane_ttl(answer.ttl, 0)
            return Discovery(
                self.ark,
                found,
                partial(full_trace, self.settings, answer),
                security=answer.security,
                ttl=ttl,
                expiration=None if ttl is None or now is None else now + ttl,
                scheme=self.settings.scheme,
            )
        while not self.over:
            for question in self._level.questions:
                if question.name not in self._level.answers:
                    self._level.answers[question.name] = Answer(Outcome.TIMEOUT, note=TIME_OVER)
            self._read_level()
        return self._in_full().result(now)

    def _read_level(self) -> None:
        full = self._in_full()
        self._level = _Level(full.read(self._level.questions, self._level.answers))
        self.ark_read = full.ark_read

    def _in_full(self) -> FullWalk:
        if self._full is None:
            from maptr.fullwalk import FullWalk  # which most walks need not wait for

            self._full = FullWalk(self.ark, self.settings, self._read, self._level.questions[0].name)
        return self._full


def full_trace(settings: Settings, answer: Answer, ark: Ark) -> tuple[Step, ...]:
    """The trace of a walk that ended at its root."""
    walk = Walk(ark, settings, shortcut=False)
    walk.tell(walk.next()[0], answer)
    return walk.result().trace


class _Level:
    """The questions of one depth: given out once, read when all are answered."""

    __slots__ = ("answers", "questions", "taken")

    def __init__(self, questions: list[Question]) -> None:
        self.questions = questions
        self.answers: dict[Labels, Answer] = {}
        self.taken = False

    def take(self) -> list[Question]:
        if self.taken:
            return []
        self.taken = True
        return list(self.questions)


_OVER = _Level([])
