"""The Maptr algorithm without I/O (draft-kunze-ark appendix B, with the additions of this project).

    1. Ask for NAPTR at <NAAN>.<origin>.
    2. Keep only records whose service is "ark".
    3. Flags "h": a candidate, the replacement being its host. Flags "u": a candidate, the regexp making its URL.
    4. Flags empty: ask again at the replacement, or at the name that the regexp makes of the ARK;
       all branches, until exhausted.
    5. None found: no mapping authority. Otherwise choose by any criterion.

Everything that decides a discovery lives here. A driver asks what ``next()`` gives, all at once or one by one, and
tells the answers in any order; the result is the same, because a depth is read only when all of it is told.

A walk whose root says all there is, in the commonest way, ends there by a shortcut: ``plain``. Its trace, which
costs more than its candidates, is then made by walking again in full, when somebody looks at it.
"""

from __future__ import annotations

from functools import partial

from maptr import names, plain, url
from maptr.ark import Ark
from maptr.candidate import Candidate, Found, rank
from maptr.discovery import Discovery
from maptr.names import Labels
from maptr.naptr import Kind, Naptr, Rule, read
from maptr.nfa import Budget, BudgetSpent
from maptr.question import (
    ARK_ARPA,
    DEFAULTS,
    MAX_CANDIDATES,
    MAX_DEPTH,
    MAX_QUESTIONS,
    MAX_RECORDS,
    MAX_TTL,
    Answer,
    Question,
    Reader,
    Settings,
    question_rank,
)
from maptr.trace import SECURITY, Outcome, Reading, Step

__all__ = [
    "ARK_ARPA",
    "DEFAULTS",
    "MAX_CANDIDATES",
    "MAX_DEPTH",
    "MAX_QUESTIONS",
    "MAX_RECORDS",
    "MAX_TTL",
    "Answer",
    "Question",
    "Reader",
    "Settings",
    "Walk",
    "full_trace",
]


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
        planner: plain.Planner = plain.make_plan,
        shortcut: bool = True,
    ) -> None:
        self.ark = ark
        self.settings = settings or DEFAULTS
        self.ark_read = False  # beyond its NAAN: by a regexp, so that another ARK may walk elsewhere
        self._read = reader or read
        self._make_plan = planner
        self._shortcut = shortcut
        self._plain: tuple[tuple[Candidate, ...], Answer] | None = None
        self._level = _Level([Question(names.check((ark.naan.encode(), *self.settings.origin)))])
        self._begun = False

    def _begin(self) -> None:
        """What only a walk in full keeps account of."""
        self._begun = True
        self._asked: set[Labels] = {names.fold(question.name) for question in self._level.questions}
        self._steps: list[Step] = []
        self._found: list[Found] = []
        self._budget = Budget(self.settings.regexp_steps)
        self._records_left = self.settings.max_records
        self._complete = True
        self._ttls: list[int] = []
        self._security: set[str] = set()

    def next(self) -> list[Question]:
        """The questions that are open and were not given before, best path first; they may be asked side by side.

        Empty while answers are outstanding, and when the walk is over.
        """
        return self._level.take()

    def tell(self, question: Question, answer: Answer) -> None:
        """The answer to an open question, once."""
        if not self._begun and self._shortcut and (found := self._take_shortcut(question, answer)) is not None:
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
            plan = self._make_plan(
                answer.records,
                question.name,
                _sane(answer.ttl, MAX_TTL),
                undotted=self.settings.reading_origin(),
                allow_private=self.settings.allow_private,
                steps=self.settings.regexp_steps,
            )
            if plan is None:
                return None
            self.ark_read = plan.fixed is None
            return plan.candidates(self.ark)
        return () if answer.outcome.said and not answer.records else None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The trace so far: every question of the depths that have been read."""
        if self._plain is not None:
            return full_trace(self.ark, self.settings, self._plain[1])
        return tuple(self._steps) if self._begun else ()

    @property
    def over(self) -> bool:
        return not self._level.questions

    def result(self, now: float | None = None) -> Discovery:
        """The discovery, its expiration counted from ``now``. Questions still open count as without answer in time."""
        if self._plain is not None:
            found, answer = self._plain
            ttl = None if answer.ttl is None else _sane(answer.ttl, 0)
            return Discovery(
                self.ark,
                found,
                partial(full_trace, self.ark, self.settings, answer),
                security=answer.security,
                ttl=ttl,
                expiration=None if ttl is None or now is None else now + ttl,
                scheme=self.settings.scheme,
            )
        while not self.over:
            for question in self._level.questions:
                if question.name not in self._level.answers:
                    self._level.answers[question.name] = Answer(Outcome.TIMEOUT, note="the walk's time was over")
            self._read_level()
        ranked = rank(self._found)
        most = self.settings.max_candidates
        trace = tuple(self._steps)
        complete = self._complete
        if len(ranked) > most:
            complete = False
            note = f"{len(ranked)} candidates found, the best {most} kept"
            trace += (Step(trace[0].name, 0, Outcome.LIMIT, note=note),)
        ttl = min(self._ttls, default=None) if complete else None
        security = max(self._security, key=SECURITY.index, default="indeterminate")
        return Discovery(
            self.ark,
            ranked[:most],
            trace,
            complete,
            security=security,
            ttl=ttl,
            expiration=None if ttl is None or now is None else now + ttl,
            scheme=self.settings.scheme,
        )

    # ---- reading a depth, in an order that does not depend on how the answers came

    def _read_level(self) -> None:
        if not self._begun:
            self._begin()
        onward: dict[Labels, Question] = {}
        for question in self._level.questions:
            answer = self._level.answers[question.name]
            self._steps.append(self._read_answer(question, answer, onward))
        self._level = _Level(self._admit(onward))

    def _read_answer(self, question: Question, answer: Answer, onward: dict[Labels, Question]) -> Step:
        self._complete &= answer.outcome.said
        self._security.add(answer.security)
        if answer.outcome.said and answer.ttl is not None:
            self._ttls.append(_sane(answer.ttl, 0))
        here = Question(question.name, question.path, min(question.ttl, _sane(answer.ttl, MAX_TTL)))
        unique = {naptr.canonical(): naptr for naptr in answer.records}
        taken = sorted(unique)[: self._records_left]
        self._records_left -= len(taken)
        note = answer.note
        if len(taken) < len(unique):
            self._complete = False
            over = f"{len(taken)} of {len(unique)} records read, {self.settings.max_records} in one walk"
            note = f"{note}; {over}" if note else over
        readings = tuple(self._read_record(here, unique[key], key, onward) for key in taken)
        outcome = Outcome.NODATA if answer.outcome is Outcome.ANSWER and not unique else answer.outcome
        return Step(
            question.name,
            question.depth,
            outcome,
            readings,
            note,
            answer.ttl,
            answer.server,
            answer.elapsed,
            answer.security,
            answer.links,
        )

    def _read_record(self, here: Question, naptr: Naptr, key: bytes, onward: dict[Labels, Question]) -> Reading:
        spent = f"not read: the {self.settings.regexp_steps} regexp steps of this walk are spent"
        try:
            rule = self._read(naptr, undotted=self.settings.reading_origin(), budget=self._budget)
        except BudgetSpent:
            self._complete = False
            return Reading(naptr, Kind.OTHER, False, (spent,))
        path = (*here.path, (naptr.order, naptr.preference))
        if rule.kind is Kind.OTHER:
            return Reading(naptr, rule.kind, False, rule.notes)
        try:
            if rule.kind is Kind.HOST:
                reasons = self._host(here, rule, path, key)
            elif rule.kind is Kind.URL:
                reasons = self._url(here, rule, path, key)
            else:
                reasons = self._redirect(here, rule, path, onward)
        except BudgetSpent:
            self._complete = False
            reasons = [spent]
        except _Passed as passed:
            reasons = [str(passed)]
        else:
            return Reading(naptr, rule.kind, True, (*rule.notes, *reasons))
        return Reading(naptr, rule.kind, False, (*rule.notes, *reasons))

    def _host(self, here: Question, rule: Rule, path: tuple[tuple[int, int], ...], key: bytes) -> list[str]:
        taken: list[str] = []
        refused: list[str] = []
        for index, (host, port) in enumerate(rule.hosts):
            if url.parse_host(host).is_local and not self.settings.allow_private:
                refused.append(f"{host} is not a public host")
                continue
            candidate = Candidate(host, port, *path[-1], names.to_text(here.name), here.ttl, path=path)
            self._found.append(Found(candidate, key, index))
            taken.append(f"candidate {host}" + (f":{port}" if port else ""))
        if not taken:
            raise _Passed("; ".join(refused))
        return taken + refused

    def _url(self, here: Question, rule: Rule, path: tuple[tuple[int, int], ...], key: bytes) -> list[str]:
        made = self._apply(rule)
        if made is None:
            raise _Passed("its regexp does not match this ARK")
        if refusal := url.refusal(made, allow_private=self.settings.allow_private):
            raise _Passed(f"makes {made[:200]!a}: {refusal}")
        where = url.parse(made)
        candidate = Candidate(
            where.host.in_url,
            where.port,
            *path[-1],
            names.to_text(here.name),
            here.ttl,
            target=made,
            path=path,
            made_for=self.ark.resolution,
            substitution=rule.substitution,
        )
        self._found.append(Found(candidate, key, 0))
        return [f"candidate {made}"]

    def _redirect(
        self, here: Question, rule: Rule, path: tuple[tuple[int, int], ...], onward: dict[Labels, Question]
    ) -> list[str]:
        target = rule.naptr.replacement
        if rule.substitution is not None:
            made = self._apply(rule)
            if made is None:
                raise _Passed("its regexp does not match this ARK")
            try:
                target = names.parse(made)
            except ValueError as error:
                raise _Passed(f"makes {made[:200]!a}, which is no domain name: {error}") from None
        shown = names.to_text(target)
        key = names.fold(target)
        if key in self._asked:
            return [f"redirect to {shown}, asked already"]
        question = Question(target, path, here.ttl)
        if key in onward:
            onward[key] = min(onward[key], question, key=question_rank)
            return [f"redirect to {shown}, asked once for several records"]
        onward[key] = question
        return [f"redirect to {shown}"]

    def _apply(self, rule: Rule) -> str | None:
        if rule.substitution is None:  # pragma: no cover - naptr.read gives every such rule one
            return None
        self.ark_read = True
        try:
            made = rule.substitution.apply(self.ark.resolution.encode(), self._budget)
        except ValueError as error:
            raise _Passed(str(error)) from None
        return None if made is None else made.decode("ascii", "backslashreplace")

    def _admit(self, onward: dict[Labels, Question]) -> list[Question]:
        """The questions of the next depth, within the limits; those beyond are on the trace as a limit."""
        questions = sorted(onward.values(), key=question_rank)
        admitted: list[Question] = []
        for question in questions:
            if question.depth > self.settings.max_depth:
                self._refuse(question, f"deeper than {self.settings.max_depth} redirects")
            elif len(self._asked) >= self.settings.max_questions:
                self._refuse(question, f"more than {self.settings.max_questions} questions")
            else:
                self._asked.add(names.fold(question.name))
                admitted.append(question)
        return admitted

    def _refuse(self, question: Question, why: str) -> None:
        self._complete = False
        self._steps.append(Step(question.name, question.depth, Outcome.LIMIT, note=why))


def full_trace(ark: Ark, settings: Settings, answer: Answer) -> tuple[Step, ...]:
    """The trace of a walk that ended at its root."""
    walk = Walk(ark, settings, shortcut=False)
    walk.tell(walk.next()[0], answer)
    return walk.result().trace


def _sane(ttl: int | None, unknown: int) -> int:
    """A TTL in seconds; 0 for an impossible one."""
    if ttl is None:
        return unknown
    return ttl if 0 <= ttl <= MAX_TTL else 0


class _Passed(Exception):
    """A record that is a rule but does not count, its text being the reason."""


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
