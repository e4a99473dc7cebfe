"""The Maptr algorithm without I/O (draft-kunze-ark appendix B, with maptr's additions).

    1. Query type NAPTR at <NAAN>.<origin>.
    2. Keep only records whose service is "ark".
    3. Flags "h": a candidate whose host is the replacement. Flags "u": a candidate whose URL the regexp makes.
    4. Flags empty: query again at the replacement, or at the name that the regexp makes from the ARK.
       Follow all branches to their end.
    5. No candidate: there is no mapping authority. Otherwise choose one by any criterion.

Everything that decides a discovery is here. A client sends the questions of ``next()``, together or one by one, and
passes the answers to ``tell()`` in any order: a depth is read only when all of its answers are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from maptr import url
from maptr.ark import Ark, Hyphens
from maptr.discovery import REGEXP_STEPS, SECURITY, Candidate, Discovery, Limit, Link, Outcome, Reading, Step
from maptr.naptr.automaton import Budget, BudgetSpent
from maptr.naptr.record import Kind, Naptr, NaptrRRset, Rule, read
from maptr.naptr.regexp import ResultTooLongError
from maptr.protocol import names
from maptr.protocol.extended_error import ExtendedError
from maptr.protocol.names import ARK_ARPA, Labels
from maptr.protocol.numbers import MAX_TTL, NAPTR, SOA

MAX_DEPTH = 8  # redirects on one path; a longer path is a loop or an attack
MAX_QUESTIONS = 32  # in one walk
MAX_CANDIDATES = 64  # the best are kept
MAX_RECORDS = 512  # in one walk, which then takes less than 20 ms; the longest real RRset has 17
RECORD_STEPS = 40  # the work of reading a record, in steps of regexp matching

_new = tuple.__new__  # faster than the class itself: scripts/bench client

# Python 3.11 looks up a name of the module faster than a member of an enum: scripts/bench client.
_ANSWER, _NODATA, _NXDOMAIN = Outcome.ANSWER, Outcome.NODATA, Outcome.NXDOMAIN
_HOST, _URL, _OTHER = Kind.HOST, Kind.URL, Kind.OTHER

TIME_OVER = "the walk's time was over"  # the note of a question that was not sent in time

RulePath = tuple[tuple[int, int], ...]
"""Order and preference of each record from the root name to here."""


class Settings(NamedTuple):
    """The settings of a walk (draft-kunze-ark appendix B). ``discover`` takes its origin from ``origin=`` instead.

    ``scheme`` is the scheme for ``h`` candidates and for the hosts of a natab, but port 80 means http.
    ``allow_private`` allows rules that lead to hosts that are not public. ``hyphens`` is ``"keep"`` to send an ARK's
    hyphens on as received, for authorities that need them; the draft removes them (3.2). The others are limits:
    redirects on one path, questions, candidates, records, regexp steps. A walk that reaches one is not ``complete``.

    >>> Client([server], settings=Settings(scheme="http")).discover("ark:12345/x1").url()
    'http://ark.example.org/ark:12345/x1'
    """

    origin: Labels = ARK_ARPA
    scheme: str = "https"
    allow_private: bool = False
    max_depth: int = MAX_DEPTH
    max_questions: int = MAX_QUESTIONS
    max_candidates: int = MAX_CANDIDATES
    max_records: int = MAX_RECORDS
    regexp_steps: int = REGEXP_STEPS
    hyphens: Hyphens = "remove"


DEFAULTS = Settings()


class Question(NamedTuple):
    """A name to query. ``path`` has the redirects that led here, ``ttl`` their shortest TTL. ``rdtype`` is SOA for the
    question whether the origin exists."""

    name: Labels
    path: RulePath = ()
    ttl: int = MAX_TTL
    rdtype: int = NAPTR


class Answer(NamedTuple):
    """DNS's answer to one question. ``ttl`` is the TTL of the records or of the negative answer, in seconds.

    ``zone`` is set for NXDOMAIN and NODATA: the owner of the SOA in the response, which is a zone that exists. It is
    the queried name if that is an alias, or if an authoritative server has no data for it; else None without SOA.
    ``extended`` are the extended errors of servers that failed, which ``note`` has in words.
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
    extended: tuple[ExtendedError, ...] = ()

    def after(self, elapsed: float) -> Answer:
        """Return a copy with the seconds since the question."""
        return _new(Answer, (*self[:5], elapsed, *self[6:]))  # faster than _replace: scripts/bench client

    def as_step(
        self,
        name: Labels,
        rdtype: int,
        depth: int = 0,
        *,
        outcome: Outcome | None = None,
        note: str | None = None,
        readings: tuple[Reading, ...] = (),
        limit: Limit | None = None,
    ) -> Step:
        """Return the step of a trace that this answer makes, with its own outcome and note unless others are given."""
        return Step(
            name,
            depth,
            outcome or self.outcome,
            readings=readings,
            note=self.note if note is None else note,
            ttl=self.ttl,
            server=self.server,
            elapsed=self.elapsed,
            security=self.security,
            links=self.links,
            rdtype="SOA" if rdtype == SOA else "NAPTR",
            limit=limit,
            extended=self.extended,
        )


_REUSABLE = "_reusable_answers"  # an attribute of a Discovery; it is no part of its value, text or JSON


def reusable_answers(found: Discovery) -> Mapping[Labels, Answer]:
    """Return the answers that a discovery's walk received, by queried name: those that hold for other ARKs whose origin
    is known to exist. Empty for a discovery that was read from JSON."""
    answers: Mapping[Labels, Answer] = vars(found).get(_REUSABLE, {})
    return answers


Reader = Callable[..., Rule]
"""``naptr.record.read``, or a RuleCache."""


def question_rank(question: Question) -> tuple[object, ...]:
    """Return a sort key: best path first."""
    return question.path, names.fold(question.name), question.name, question.ttl


def root_name(ark: Ark, origin: Labels) -> Labels:
    """Return the first name of a walk. Raises ValueError if NAAN and origin do not make a valid domain name."""
    return names.check((ark.naan.encode(), *origin))


class Walk:
    """One run of the algorithm: ``next()``, query, ``tell()``, until ``next()`` returns nothing; then ``result()``.

    A negative answer for the root name means that there is no mapping authority only if the origin exists. If the
    response does not show that, as from servers that filter or do not know NAPTR, and the caller does not know it
    (``origin_known``), the SOA of the origin is one more question.
    ``root`` is the result of ``root_name``, if the caller already has it.

    Raises ValueError if NAAN and origin do not make a valid domain name.
    """

    _given = False  # True if ``next`` has returned the open questions
    _limit: Limit | None = None  # the one that the answer being read has reached
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
        self.settings = settings = settings or DEFAULTS
        self.ark = ark = ark.sent(settings.hyphens)
        self.steps: list[Step] = []  # the trace of the depths that have been read
        self.places: list[Question] = []  # the question of each step, with the TTL of its answer if that is shorter
        self._reader = reader or read
        root = root or root_name(ark, settings.origin)
        self._open = [_new(Question, (root, (), MAX_TTL, NAPTR))]  # the questions of the current depth
        self._answers: dict[Labels, Answer] = {}  # to these
        self._reusable: dict[Labels, Answer] = {}  # answers that serve the other ARKs of the NAAN
        self._asked = {names.fold(root)}
        # The draft prints hosts below ark.arpa without a final dot.
        has_undotted = settings.origin is ARK_ARPA or names.fold(settings.origin) == ARK_ARPA
        self._undotted = ARK_ARPA if has_undotted else None
        self.found: list[Found] = []
        self.budget = budget or Budget(settings.regexp_steps)
        self._records_left = settings.max_records
        self._origin_known = origin_known
        self._too_long: list[RulePath] = []  # of records whose URL is too long

    def next(self) -> list[Question]:
        """Return new questions, best path first. They may be sent together.

        Empty while answers are missing, and when the walk is over.
        """
        if self._given:
            return []
        self._given = True
        return list(self._open)

    def tell(self, question: Question, answer: Answer) -> None:
        """Take the answer to an open question. Each question has one answer."""
        self._answers[question.name] = answer
        if len(self._answers) == len(self._open):
            self._read_depth()

    @property
    def over(self) -> bool:
        return not self._open

    def result(
        self, now: float | None = None, *, source: str = "dns", stale: bool = False, fetched: float | None = None
    ) -> Discovery:
        """Return the discovery, with its expiration counted from ``now``. Open questions count as timed out."""
        while self._open:
            for question in self._open:
                self._answers.setdefault(question.name, Answer(Outcome.TIMEOUT, note=TIME_OVER))
            self._read_depth()
        if len(self.steps) > 1:  # the records of one name are in their order
            self.found.sort(key=Found.rank)
        ranked = _rank([one.candidate for one in self.found], self._too_long)
        most = self.settings.max_candidates
        trace = tuple(self.steps)
        if len(ranked) > most:
            note = f"{len(ranked)} candidates found, the best {most} kept"
            trace += (Step(trace[0].name, 0, Outcome.LIMIT, note=note, limit=Limit.CANDIDATES),)
        complete = all(step.complete for step in trace)
        ttl = self._ttl if complete else None
        until = None if ttl is None or now is None else now + ttl
        scheme = self.settings.scheme
        made = (self.ark, ranked[:most], trace, complete, source, self._security, ttl, until, scheme, stale)
        found = Discovery(*made, fetched=fetched, work=self._work())
        vars(found)[_REUSABLE] = self._reusable
        return found

    def _work(self) -> int:
        records = self.settings.max_records - max(0, self._records_left)
        return max(0, self.settings.regexp_steps - self.budget.steps) + RECORD_STEPS * records

    def _read_depth(self) -> None:
        """Read the answers to all open questions, and open those of the next depth."""
        onward: dict[Labels, Question] = {}
        answers, self._answers = self._answers, {}
        root = not self.steps
        for question in self._open:
            step = self._read_answer(question, answers[question.name], onward)
            self.steps.append(step)
            if question.rdtype == NAPTR and self._limit is not Limit.RECORDS:
                self._reusable[question.name] = answers[question.name]
            elif question.rdtype == SOA and not step.outcome.answered:
                self._reusable.clear()  # "no such name" says nothing if the origin is not known to exist
        self._open = self._admit(onward) if onward else []
        if root and not self._has_origin(answers.popitem()[1]):
            self._open = [Question(self.settings.origin, rdtype=SOA)]
        self._given = False

    def _has_origin(self, answer: Answer) -> bool:
        """Return whether the answer for the root name need not, or does, show that the origin exists: by records,
        NXDOMAIN from a zone at or below it, or NODATA with any SOA (RFC 2308 2)."""
        if self._origin_known or answer.outcome not in (_NXDOMAIN, _NODATA):
            return True
        zone = answer.zone
        return zone is not None and (answer.outcome is _NODATA or names.is_below(zone, self.settings.origin))

    def _read_answer(self, question: Question, answer: Answer, onward: dict[Labels, Question]) -> Step:
        outcome, records, ttl, note, security = answer.outcome, answer.records, answer.ttl, answer.note, answer.security
        if security != self._security:
            self._security = max(self._security or security, security, key=SECURITY.index)
        if question.rdtype == SOA:  # records, or NODATA with a SOA: the origin exists
            records = ()
            if outcome is _NXDOMAIN or (outcome is _NODATA and answer.zone is None):
                outcome = Outcome.NO_ORIGIN
        elif outcome is _ANSWER and not records:
            outcome = _NODATA
        sane = None if ttl is None else ttl if ttl <= MAX_TTL else 0
        if outcome.answered and sane is not None and (self._ttl is None or sane < self._ttl):
            self._ttl = sane
        here = question
        if sane is not None and sane < question.ttl:
            here = _new(Question, (question.name, question.path, sane, question.rdtype))
        self.places.append(here)
        if not isinstance(records, NaptrRRset):
            records = NaptrRRset.of(records)
        self._records_left -= len(records)
        self._limit = None
        if self._records_left < 0:
            self._limit = Limit.RECORDS
            left = len(records) + self._records_left
            over = f"{left} of {len(records)} records read: at most {self.settings.max_records} in one walk"
            note = f"{note}; {over}" if note else over
            records, self._records_left = records[:left], 0
        readings = tuple([self._read_record(here, naptr, onward) for naptr in records])
        return answer.as_step(
            question.name,
            question.rdtype,
            len(question.path),
            outcome=outcome,
            note=note,
            readings=readings,
            limit=self._limit,
        )

    def _read_record(self, here: Question, naptr: Naptr, onward: dict[Labels, Question]) -> Reading:
        rule: Rule | None = None
        try:
            rule = self.read(naptr, self.budget)
            kind = rule.kind
            if kind is _OTHER:
                return Reading(naptr, kind, False, rule.notes)
            if kind is _HOST:
                leads_to, reasons = self._host(here, rule)
            elif kind is _URL:
                leads_to, reasons = self._url(here, rule)
            else:
                leads_to, reasons = self._redirect(here, rule, onward)
        except BudgetSpent:
            self._limit = Limit.REGEXP_STEPS
            spent = f"not read: the {self.settings.regexp_steps} regexp steps of this walk are spent"
            return Reading(naptr, rule.kind if rule else _OTHER, False, (*(rule.notes if rule else ()), spent))
        except _Skipped as skipped:
            assert rule is not None  # noqa: S101 - only a rule that was read can be skipped
            return _not_counted(rule, skipped)
        return _counted(rule, leads_to, reasons)

    def read(self, naptr: Naptr, budget: Budget) -> Rule:
        return self._reader(naptr, undotted=self._undotted, budget=budget)

    def _host(self, here: Question, rule: Rule) -> tuple[list[str], list[str]]:
        """Add the candidates of a host rule. Returns their places, and the reasons."""
        taken: list[str] = []
        refused: list[str] = []
        for index, (where, port) in enumerate(rule.hosts):
            host = where.text
            if where.is_local and not self.settings.allow_private:
                refused.append(f"{host} is not a public host")
                continue
            self._add(here, rule, index, host, port)
            taken.append(f"{host}:{port}" if port else host)
        if not taken:
            raise _Skipped("; ".join(refused))
        return taken, [f"candidate {place}" for place in taken] + refused

    def _url(self, here: Question, rule: Rule) -> tuple[list[str], list[str]]:
        """Add the candidate of a URL rule. Returns its URL, and the reason."""
        try:
            made = _make_url(rule, self.ark, self.budget)
            host, port = _place(made, rule, self.settings)
        except _TooLong:
            # The record is for this ARK, but its URL is unknown: no record of a worse rank may replace it.
            self._limit = Limit.URL_LENGTH
            self._too_long.append((*here.path, rule.naptr[:2]))
            raise
        self._add(here, rule, 0, host, port, made)
        return [made], [f"candidate {made}"]

    def _add(self, here: Question, rule: Rule, nth: int, host: str, port: int | None, target: str = "") -> None:
        """Add the candidate of a rule; ``nth`` is the number of its host in the record."""
        candidate = _candidate(here, rule, self.ark, host, port, target, self.settings.scheme)
        self.found.append(_new(Found, (candidate, rule.naptr, nth)))

    def _redirect(self, here: Question, rule: Rule, onward: dict[Labels, Question]) -> tuple[list[str], list[str]]:
        """Open the question of a redirect. Returns its name, and the reason."""
        target = rule.naptr.replacement
        if rule.substitution is not None:
            made = ""
            try:
                made = _apply(rule, self.ark, self.budget)
                target = names.parse(made)
            except ResultTooLongError as error:
                raise _Skipped(str(error)) from None
            except ValueError as error:
                raise _Skipped(f"makes {made[:200]!a}, which is not a valid domain name: {error}") from None
        shown = names.to_text(target)
        key = names.fold(target)
        if key in self._asked:
            return [shown], [f"redirect to {shown}, already asked"]
        question = Question(target, (*here.path, rule.naptr[:2]), here.ttl)
        if key in onward:
            onward[key] = min(onward[key], question, key=question_rank)
            return [shown], [f"redirect to {shown}, asked once for several records"]
        onward[key] = question
        return [shown], [f"redirect to {shown}"]

    def _admit(self, onward: dict[Labels, Question]) -> list[Question]:
        """Return the questions of the next depth within the limits. The others are noted on the trace."""
        admitted: list[Question] = []
        for question in sorted(onward.values(), key=question_rank):
            if len(question.path) > self.settings.max_depth:
                self._refuse(question, Limit.DEPTH, f"deeper than {self.settings.max_depth} redirects")
            elif len(self._asked) >= self.settings.max_questions:
                self._refuse(question, Limit.QUESTIONS, f"more than {self.settings.max_questions} questions")
            else:
                self._asked.add(names.fold(question.name))
                admitted.append(question)
        return admitted

    def _refuse(self, question: Question, limit: Limit, why: str) -> None:
        self.steps.append(Step(question.name, len(question.path), Outcome.LIMIT, note=why, limit=limit))


class SharedWalk:
    """A walk that serves the other ARKs of its NAAN: they ask the same questions, and only URL rules read the ARK."""

    def __init__(self, found: Discovery, sources: list[_Source], budget: Budget, settings: Settings) -> None:
        self._discovery = found
        self._sources = sources  # best first
        self._reads_ark = any(source.rule is not None for source in sources)
        self._settings = settings
        self._steps = budget.steps  # left for matching when the rules are read
        records = sum(len(step.readings) for step in found.trace)
        self._work = settings.regexp_steps - budget.steps + RECORD_STEPS * records

    @classmethod
    def of(cls, walk: Walk, found: Discovery) -> SharedWalk | None:
        """Return the shared walk of a walk and its discovery; None if a regexp made a name, or at a limit."""
        if any(step.limit is not None for step in found.trace):
            return None
        settings, budget = walk.settings, Budget(walk.settings.regexp_steps)
        sources = [_Source(one.rank(), one.candidate) for one in walk.found if not one.candidate.target]
        for depth, (step, here) in enumerate(zip(found.trace, walk.places, strict=True)):
            for nth, reading in enumerate(step.readings):
                rule = walk.read(reading.naptr, budget)
                if rule.kind is Kind.REDIRECT and rule.substitution is not None:
                    return None
                if rule.kind is _URL:
                    start, host, port = _known_start(rule, settings)
                    candidate = _candidate(here, rule, walk.ark, host, port, "", settings.scheme)
                    rank = Found(candidate, rule.naptr, 0).rank()
                    sources.append(_Source(rank, candidate, rule, start, depth, nth))
        if len(sources) > settings.max_candidates:
            return None
        return cls(found, sorted(sources, key=lambda source: source.rank), budget, settings)

    def discovery(self, ark: Ark, shared: Budget | None = None) -> Discovery | None:
        """Return the discovery that the walk of another ARK would have; None if it would reach a limit.

        ``shared`` is a budget of several walks.
        """
        if not self._reads_ark:
            same = tuple([candidate.replace(ark=ark) for candidate in self._discovery.candidates])
            return self._discovery.replace(ark=ark, candidates=same)
        budget = Budget(self._steps, shared)
        found: list[Candidate] = []
        readings: dict[int, list[Reading]] = {}
        for _, candidate, rule, start, depth, nth in self._sources:
            if rule is None:
                found.append(candidate.replace(ark=ark))
                continue
            if depth not in readings:
                readings[depth] = list(self._discovery.trace[depth].readings)
            try:
                made = _make_url(rule, ark, budget)
                if start and url.is_below(made, start):
                    found.append(candidate.replace(ark=ark, target=made))
                else:
                    host, port = _place(made, rule, self._settings)
                    found.append(candidate.replace(ark=ark, host=host, port=port, target=made))
                readings[depth][nth] = _counted(rule, [made], [f"candidate {made}"])
            except (BudgetSpent, _TooLong):
                return None
            except _Skipped as skipped:
                readings[depth][nth] = _not_counted(rule, skipped)
        trace = list(self._discovery.trace)
        for depth, changed in readings.items():
            trace[depth] = trace[depth].replace(readings=tuple(changed))
        work = self._work + self._steps - budget.steps
        return self._discovery.replace(ark=ark, candidates=_rank(found, ()), trace=tuple(trace), work=work)


class _Source(NamedTuple):
    """The source of a candidate: a host, with its candidate; or a URL rule, with what no ARK changes in its candidate.
    ``start`` is the start of a URL at its host, ``depth`` the number of its step, ``nth`` that of its record there."""

    rank: tuple[object, ...]
    candidate: Candidate
    rule: Rule | None = None
    start: str = ""
    depth: int = 0
    nth: int = 0


def _make_url(rule: Rule, ark: Ark, budget: Budget) -> str:
    """Return the URL that a rule makes of an ARK. Raises _Skipped, _TooLong and BudgetSpent."""
    try:
        return _apply(rule, ark, budget)
    except ResultTooLongError as error:
        raise _TooLong(error) from None


def _place(made: str, rule: Rule, settings: Settings) -> tuple[str, int | None]:
    """Return host and port of a URL that a rule made. Raises _Skipped and _TooLong."""
    try:
        where = url.parse_allowed(made, allow_private=settings.allow_private)
    except url.TooLongError as error:
        raise _TooLong(error) from None
    except ValueError as error:
        raise _Skipped(f"makes {made[:200]!a}: {error}") from None
    # The text after the match is kept: it must not become part of the host of a URL without a path.
    start = _start(rule)
    if not ((_has_path(start) and made.startswith(start)) or url.is_at(made, start)):
        raise _Skipped(f"makes {made[:200]!a}, which is not at the host of its rule")
    return where.host.in_url, where.port


def _known_start(rule: Rule, settings: Settings) -> tuple[str, str, int | None]:
    """Return the start that shows that a URL of the rule is at its host, and host and port; else an empty text."""
    start = _start(rule)
    try:
        return (start, *_place(start, rule, settings)) if _has_path(start) else ("", "", None)
    except _Skipped:
        return "", "", None


def _start(rule: Rule) -> str:
    """Return the text with which the URLs of a rule start."""
    first = rule.substitution.replacement[:1] if rule.substitution is not None else ()
    return first[0].decode("ascii", "backslashreplace") if first and isinstance(first[0], bytes) else ""


def _has_path(start: str) -> bool:
    return "/" in start.partition("://")[2]


def _apply(rule: Rule, ark: Ark, budget: Budget) -> str:
    """Apply a rule's regexp to an ARK. Raises _Skipped, BudgetSpent and ResultTooLongError."""
    assert rule.substitution is not None  # noqa: S101 - the caller has checked it
    made = rule.substitution.apply(ark.in_url.encode(), budget)
    if made is None and "-" in ark.resolution:  # hyphens that were kept: the rule's shoulder may have one
        made = rule.substitution.apply(ark.without_hyphens.replace("#", "%23").encode(), budget)
    if made is None:
        raise _Skipped("its regexp does not match this ARK")
    return made.decode("ascii", "backslashreplace")


def _candidate(
    here: Question, rule: Rule, ark: Ark, host: str, port: int | None, target: str, scheme: str
) -> Candidate:
    rank = rule.naptr[:2]
    return Candidate(
        host,
        port,
        *rank,
        names.to_text(here.name),
        ttl=here.ttl,
        target=target,
        path=(*here.path, rank),
        ark=ark,
        substitution=rule.substitution,
        default_scheme=scheme,
    )


def _counted(rule: Rule, leads_to: Sequence[str], reasons: Sequence[str]) -> Reading:
    return Reading(rule.naptr, rule.kind, True, (*rule.notes, *reasons), tuple(leads_to))


def _not_counted(rule: Rule, skipped: _Skipped) -> Reading:
    return Reading(rule.naptr, rule.kind, False, (*rule.notes, str(skipped)))


class _Skipped(Exception):
    """A rule is skipped. The text is the reason."""


class _TooLong(_Skipped):
    """A rule is for this ARK, but its URL is too long."""

    def __init__(self, error: ValueError) -> None:
        super().__init__(f"{error}; records of a worse rank are left out")


class Found(NamedTuple):
    """A candidate, its record, and the number of the host in that record."""

    candidate: Candidate
    naptr: Naptr
    nth: int

    def rank(self) -> tuple[object, ...]:
        """(Order, preference) along the path, then rdata in canonical order."""
        path = self.candidate.path
        return _without_final_zeros(path), self.naptr.canonical(), self.nth, len(path), self.candidate.owner.lower()


def _without_final_zeros(path: RulePath) -> RulePath:
    # The draft sets order and preference to 0, and then the number of redirects must not matter.
    while path and path[-1] == (0, 0):
        path = path[:-1]
    return path


def _rank(found: Sequence[Candidate], unknown: Sequence[RulePath]) -> tuple[Candidate, ...]:
    """Return the candidates that were found, in the order of their ranks; each URL once.

    URLs that differ only in the slash after ``ark:`` count as one. ``unknown`` are the paths of records for this ARK
    whose URL is unknown: candidates of a worse rank than one of these are left out.
    """
    if len(found) < 2 and not unknown:
        return tuple(found)
    if unknown:
        worst = min(map(_without_final_zeros, unknown))
        found = [candidate for candidate in found if _without_final_zeros(candidate.path) <= worst]
    ranked: dict[str, Candidate] = {}
    for candidate in found:
        ranked.setdefault(url.normalized(candidate.url()), candidate)
    return tuple(ranked.values())
