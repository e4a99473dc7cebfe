"""What a walk asks, what it is told, and what its caller may decide about it.

[from walk] The Maptr algorithm without I/O (draft-kunze-ark appendix B, with the additions of this project).

    1. Ask for NAPTR at <NAAN>.<origin>.
    2. Keep only records whose service is "ark".
    3. Flags "h": a candidate, the replacement being its host. Flags "u": a candidate, the regexp making its URL.
    4. Flags empty: ask again at the replacement, or at the name that the regexp makes of the ARK;
       all branches, until exhausted.
    5. None found: no mapping authority. Otherwise choose by any criterion.

Everything that decides a discovery is here. A driver asks what ``next()`` gives, side by side or one by one, and tells
the answers in any order. The result is the same, because a depth is read only when all of its answers are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from maptr import url
from maptr.ark import Ark
from maptr.discovery import REGEXP_STEPS, SECURITY, Candidate, Discovery, Found, Link, Outcome, Reading, Step, rank
from maptr.naptr.automaton import Budget, BudgetSpent
from maptr.naptr.record import Kind, Naptr, Rule, read
from maptr.naptr.regexp import ResultTooLongError
from maptr.protocol import names
from maptr.protocol.names import ARK_ARPA, Labels
from maptr.protocol.numbers import MAX_TTL, NAPTR, SOA

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


def root_name(ark: Ark, origin: Labels) -> Labels:
    """Where the walk of an ARK begins. Raises ValueError where NAAN and origin make no domain name."""
    return names.check((ark.naan.encode(), *origin))


class Walk:
    """One run of the algorithm: ``next()``, ask, ``tell()``, until ``next()`` gives nothing; then ``result()``.

    NXDOMAIN for the root name says that there is no mapping authority only where the origin exists. Where the reply
    does not show that, and it is not ``origin_known``, the origin's SOA is a further question. ``root`` is the root
    name, where ``root_name`` made it already.
    Raises ValueError where NAAN and origin make no domain name.
    """

    ark_read = False  # a regexp has read the ARK beyond its NAAN: another ARK may walk elsewhere
    _given = False  # the open questions
    _complete = True
    _ttl: int | None = None
    _security = ""

    def __init__(
        self,
        ark: Ark,
        settings: Settings | None = None,
        *,
        reader: Reader | None = None,
        origin_known: bool = False,
        budget: Budget | None = None,
        root: Labels | None = None,
    ) -> None:
        self.ark = ark
        self.settings = settings = settings or DEFAULTS
        self.steps: list[Step] = []  # the trace so far: every question of the depths that have been read
        self._read = reader or read
        root = root or root_name(ark, settings.origin)
        self._open = [_new(Question, (root, (), MAX_TTL, NAPTR))]  # the questions of the depth that is asked now
        self._answers: dict[Labels, Answer] = {}
        self._asked = {names.fold(root)}
        self._undotted = settings.reading_origin()
        self._found: list[Found] = []
        self._budget = budget or Budget(settings.regexp_steps)
        self._records_left = settings.max_records
        self._origin_known = origin_known
        self._too_long: list[tuple[tuple[int, int], ...]] = []  # paths of records whose URL is too long

    def next(self) -> list[Question]:
        """The questions that are open and were not given before, best path first; they may be asked side by side.

        Empty while answers are outstanding, and when the walk is over.
        """
        if self._given:
            return []
        self._given = True
        return list(self._open)

    def tell(self, question: Question, answer: Answer) -> None:
        """The answer to an open question, once."""
        self._answers[question.name] = answer
        if len(self._answers) == len(self._open):
            self._read_depth()

    @property
    def over(self) -> bool:
        return not self._open

    def result(self, now: float | None = None) -> Discovery:
        """The discovery, its expiration counted from ``now``. Questions still open count as without answer in time."""
        while self._open:
            for question in self._open:
                self._answers.setdefault(question.name, Answer(Outcome.TIMEOUT, note=TIME_OVER))
            self._read_depth()
        ranked = rank(self._found, self.ark, self.settings.scheme, self._too_long)
        most = self.settings.max_candidates
        trace = tuple(self.steps)
        complete = self._complete
        if len(ranked) > most:
            complete = False
            note = f"{len(ranked)} candidates found, the best {most} kept"
            trace += (Step(trace[0].name, 0, Outcome.LIMIT, note=note),)
        ttl = self._ttl if complete else None
        return Discovery(
            self.ark,
            ranked[:most],
            trace,
            complete,
            "dns",
            self._security,
            ttl,
            None if ttl is None or now is None else now + ttl,
            self.settings.scheme,
        )

    def _read_depth(self) -> None:
        """Read the answers to all open questions; open those of the next depth."""
        onward: dict[Labels, Question] = {}
        answers, self._answers = self._answers, {}
        root = not self.steps
        for question in self._open:
            self.steps.append(self._read_answer(question, answers[question.name], onward))
        self._open = self._admit(onward) if onward else []
        if root and self.steps[0].outcome is Outcome.NXDOMAIN and not self._has_origin(answers.popitem()[1]):
            self._open = [Question(self.settings.origin, rdtype=SOA)]
        self._given = False

    def _has_origin(self, answer: Answer) -> bool:
        """Whether NXDOMAIN for the root name shows that the origin exists: a zone at or below it denies the name."""
        return self._origin_known or (answer.zone is not None and names.is_below(answer.zone, self.settings.origin))

    def _read_answer(self, question: Question, answer: Answer, onward: dict[Labels, Question]) -> Step:
        outcome, records, ttl, note, server, elapsed, security, links, _ = answer
        if security != self._security:
            self._security = max(self._security or security, security, key=SECURITY.index)
        if question.rdtype == SOA:  # records, or none, at an origin that exists
            records = ()
            if outcome is Outcome.NXDOMAIN:
                outcome = Outcome.NO_ORIGIN
        elif outcome is Outcome.ANSWER and not records:
            outcome = Outcome.NODATA
        sane = None if ttl is None else ttl if 0 <= ttl <= MAX_TTL else 0
        if not outcome.said:
            self._complete = False
        elif sane is not None and (self._ttl is None or sane < self._ttl):
            self._ttl = sane
        here = question
        if sane is not None and sane < question.ttl:
            here = _new(Question, (question.name, question.path, sane, question.rdtype))
        if len(records) > 1:  # in canonical order, each once
            unique = {naptr.canonical(): naptr for naptr in records}
            records = [unique[key] for key in sorted(unique)]
        self._records_left -= len(records)
        if self._records_left < 0:
            self._complete = False
            left = len(records) + self._records_left
            over = f"{left} of {len(records)} records read, {self.settings.max_records} in one walk"
            note = f"{note}; {over}" if note else over
            records, self._records_left = records[:left], 0
        readings = tuple([self._read_record(here, naptr, onward) for naptr in records])
        rdtype = "NAPTR" if question.rdtype == NAPTR else "SOA"
        # All fields, in their order.
        step = question.name, len(question.path), outcome, readings, note, ttl, server, elapsed, security, links, rdtype
        return _new(Step, step)

    def _read_record(self, here: Question, naptr: Naptr, onward: dict[Labels, Question]) -> Reading:
        rule: Rule | None = None
        try:
            rule = self._read(naptr, undotted=self._undotted, budget=self._budget)
            kind = rule.kind
            if kind is Kind.OTHER:
                return Reading(naptr, kind, False, rule.notes)
            if kind is Kind.HOST:
                reasons = self._host(here, rule)
            elif kind is Kind.URL:
                reasons = self._url(here, rule)
            else:
                reasons = self._redirect(here, rule, onward)
        except BudgetSpent:
            self._complete = False
            spent = f"not read: the {self.settings.regexp_steps} regexp steps of this walk are spent"
            return Reading(naptr, rule.kind if rule else Kind.OTHER, False, (*(rule.notes if rule else ()), spent))
        except _Passed as passed:
            assert rule is not None  # noqa: S101 - a rule that was read is passed over
            return Reading(naptr, rule.kind, False, (*rule.notes, str(passed)))
        return _new(Reading, (naptr, kind, True, (*rule.notes, *reasons)))

    def _host(self, here: Question, rule: Rule) -> list[str]:
        order, preference = rule.naptr[:2]
        path = (*here.path, (order, preference))
        owner = names.to_text(here.name)
        taken: list[str] = []
        refused: list[str] = []
        for index, (where, port) in enumerate(rule.hosts):
            host = where.text
            if where.is_local and not self.settings.allow_private:
                refused.append(f"{host} is not a public host")
                continue
            # All fields, in their order.
            made = host, port, order, preference, owner, here.ttl, "dns", "", path, "", None, "", None
            self._found.append(_new(Found, (_new(Candidate, made), rule.naptr, index)))
            taken.append(f"candidate {host}:{port}" if port else f"candidate {host}")
        if not taken:
            raise _Passed("; ".join(refused))
        return taken + refused

    def _url(self, here: Question, rule: Rule) -> list[str]:
        order, preference = rule.naptr[:2]
        made = ""
        try:
            made = self._apply(rule)
            where = url.parse_allowed(made, allow_private=self.settings.allow_private)
        except (url.TooLongError, ResultTooLongError) as error:
            # The record is for this ARK, and its URL is not known: no lesser record may take its place.
            self._complete = False
            self._too_long.append((*here.path, (order, preference)))
            raise _Passed(f"{error}; records of a worse rank are left out") from None
        except ValueError as error:
            raise _Passed(f"makes {made[:200]!a}: {error}") from None
        candidate = Candidate(
            where.host.in_url,
            where.port,
            order,
            preference,
            names.to_text(here.name),
            here.ttl,
            target=made,
            path=(*here.path, (order, preference)),
            made_for=self.ark.in_url,
            substitution=rule.substitution,
        )
        self._found.append(Found(candidate, rule.naptr, 0))
        return [f"candidate {made}"]

    def _redirect(self, here: Question, rule: Rule, onward: dict[Labels, Question]) -> list[str]:
        target = rule.naptr.replacement
        if rule.substitution is not None:
            made = ""
            try:
                made = self._apply(rule)
                target = names.parse(made)
            except ResultTooLongError as error:
                raise _Passed(str(error)) from None
            except ValueError as error:
                raise _Passed(f"makes {made[:200]!a}, which is no domain name: {error}") from None
        shown = names.to_text(target)
        key = names.fold(target)
        if key in self._asked:
            return [f"redirect to {shown}, asked already"]
        question = Question(target, (*here.path, rule.naptr[:2]), here.ttl)
        if key in onward:
            onward[key] = min(onward[key], question, key=question_rank)
            return [f"redirect to {shown}, asked once for several records"]
        onward[key] = question
        return [f"redirect to {shown}"]

    def _apply(self, rule: Rule) -> str:
        """What the rule makes of the ARK. Raises _Passed, BudgetSpent and ResultTooLongError."""
        assert rule.substitution is not None  # noqa: S101 - naptr.read gives every such rule one
        self.ark_read = True
        made = rule.substitution.apply(self.ark.in_url.encode(), self._budget)
        if made is None:
            raise _Passed("its regexp does not match this ARK")
        return made.decode("ascii", "backslashreplace")

    def _admit(self, onward: dict[Labels, Question]) -> list[Question]:
        """The questions of the next depth, within the limits; those beyond are on the trace as a limit."""
        admitted: list[Question] = []
        for question in sorted(onward.values(), key=question_rank):
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
        self.steps.append(Step(question.name, question.depth, Outcome.LIMIT, note=why))


class _Passed(Exception):
    """A record that is a rule but does not count, its text being the reason."""
