"""The Maptr algorithm without I/O (draft-kunze-ark appendix B, with the additions of this project).

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

from collections.abc import Callable, Sequence
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

_new = tuple.__new__  # a third of the time of a NamedTuple's own

# Python 3.11 takes three times as long to look up a member of an enum as a name of the module.
_ANSWER, _NODATA, _NXDOMAIN = Outcome.ANSWER, Outcome.NODATA, Outcome.NXDOMAIN
_HOST, _URL, _OTHER = Kind.HOST, Kind.URL, Kind.OTHER

TIME_OVER = "the walk's time was over"  # the note of a question that was not sent in time

RulePath = tuple[tuple[int, int], ...]
"""Order and preference of each record from the root name to here."""


class Settings(NamedTuple):
    """The settings of a walk (draft-kunze-ark appendix B). ``discover`` takes its origin from ``origin=`` instead.

    ``scheme`` is the scheme for ``h`` candidates and for the hosts of a natab, but port 80 means http.
    ``allow_private`` allows rules that lead to hosts that are not public. ``hyphens`` is ``"keep"`` to send the hyphens
    of an ARK on as they came, for authorities that need them; the draft removes them (3.2). The others are limits:
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
    """The answer of DNS to one question. ``ttl`` is that of the records, or of the negative answer, in seconds.

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
        return _new(Answer, (*self[:5], elapsed, *self[6:]))  # _replace takes twice the time


Reader = Callable[..., Rule]
"""``naptr.record.read``, or a RuleCache."""


def question_rank(question: Question) -> tuple[object, ...]:
    """Return a sort key: best path first."""
    return question.path, names.fold(question.name), question.name, question.ttl


def root_name(ark: Ark, origin: Labels) -> Labels:
    """Return the first name of a walk. Raises ValueError if NAAN and origin do not make a valid domain name."""
    return names.check((ark.naan.encode(), *origin))


def for_other(found: Discovery, ark: Ark, now: float | None = None) -> Discovery:
    """Return the discovery of another ARK of its NAAN, if the walk did not read the ARK (``Walk.ark_read``)."""
    candidates = tuple([candidate.replace(ark=ark) for candidate in found.candidates])
    if now is None:
        return found.replace(ark=ark, candidates=candidates)
    return found.expiring(now, ark=ark, candidates=candidates)


class Walk:
    """One run of the algorithm: ``next()``, query, ``tell()``, until ``next()`` returns nothing; then ``result()``.

    A negative answer for the root name means that there is no mapping authority only if the origin exists. If the
    response does not show that, as those of servers that filter or do not know NAPTR, and the caller does not know it
    (``origin_known``), the SOA of the origin is one more question.
    ``root`` is the result of ``root_name``, if the caller has it already. Many attributes: the variables of the
    algorithm and its limits, which are set while a depth is read and change together.

    Raises ValueError if NAAN and origin do not make a valid domain name.
    """

    ark_read = False  # a regexp has read the ARK, so that other ARKs of its NAAN may have other candidates
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
        self._read = reader or read
        root = root or root_name(ark, settings.origin)
        self._open = [_new(Question, (root, (), MAX_TTL, NAPTR))]  # the questions of the current depth
        self._answers: dict[Labels, Answer] = {}
        self._asked = {names.fold(root)}
        # The draft prints hosts below ark.arpa without a final dot.
        has_undotted = settings.origin is ARK_ARPA or names.fold(settings.origin) == ARK_ARPA
        self._undotted = ARK_ARPA if has_undotted else None
        self._found: list[_Found] = []
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
            self._found.sort(key=_Found.rank)
        ranked = _rank(self._found, self.ark, self.settings.scheme, self._too_long)
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
        return Discovery(*made, fetched=fetched, work=self._work())

    def _work(self) -> int:
        records = self.settings.max_records - max(0, self._records_left)
        return max(0, self.settings.regexp_steps - self.budget.steps) + RECORD_STEPS * records

    def _read_depth(self) -> None:
        """Read the answers to all open questions, and open those of the next depth."""
        onward: dict[Labels, Question] = {}
        answers, self._answers = self._answers, {}
        root = not self.steps
        for question in self._open:
            self.steps.append(self._read_answer(question, answers[question.name], onward))
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
        outcome, records, ttl, note, server, took, security, links, _, extended = answer
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
        if not isinstance(records, NaptrRRset):
            records = NaptrRRset.of(records)
        self._records_left -= len(records)
        self._limit = None
        if self._records_left < 0:
            self._limit = Limit.RECORDS
            left = len(records) + self._records_left
            over = f"{left} of {len(records)} records read: {self.settings.max_records} in one walk at most"
            note = f"{note}; {over}" if note else over
            records, self._records_left = records[:left], 0
        readings = tuple([self._read_record(here, naptr, onward) for naptr in records])
        rdtype = "NAPTR" if question.rdtype == NAPTR else "SOA"
        return Step(
            question.name,
            len(question.path),
            outcome,
            readings=readings,
            note=note,
            ttl=ttl,
            server=server,
            elapsed=took,
            security=security,
            links=links,
            rdtype=rdtype,
            limit=self._limit,
            extended=extended,
        )

    def _read_record(self, here: Question, naptr: Naptr, onward: dict[Labels, Question]) -> Reading:
        rule: Rule | None = None
        try:
            rule = self._read(naptr, undotted=self._undotted, budget=self.budget)
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
            return Reading(naptr, rule.kind, False, (*rule.notes, str(skipped)))
        return _new(Reading, (naptr, kind, True, (*rule.notes, *reasons), tuple(leads_to)))

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
        made = ""
        try:
            made = self._apply(rule)
            where = url.parse_allowed(made, allow_private=self.settings.allow_private)
            self._check_host(made, rule)
        except (url.TooLongError, ResultTooLongError) as error:
            # The record is for this ARK, but its URL is unknown: no record of a worse rank may replace it.
            self._limit = Limit.URL_LENGTH
            self._too_long.append((*here.path, rule.naptr[:2]))
            raise _Skipped(f"{error}; records of a worse rank are left out") from None
        except ValueError as error:
            raise _Skipped(f"makes {made[:200]!a}: {error}") from None
        self._add(here, rule, 0, where.host.in_url, where.port, made)
        return [made], [f"candidate {made}"]

    @staticmethod
    def _check_host(made: str, rule: Rule) -> None:
        """Raise _Skipped if the text after the match, which stays, became a part of the host of a URL without path."""
        start = rule.substitution.replacement[:1] if rule.substitution is not None else ()
        base = start[0].decode("ascii", "backslashreplace") if start and isinstance(start[0], bytes) else ""
        has_path = "/" in base.partition("://")[2] and made.startswith(base)
        if not (has_path or url.is_at(made, base)):
            raise _Skipped(f"makes {made[:200]!a}, which is not at the host of its rule")

    def _add(self, here: Question, rule: Rule, nth: int, host: str, port: int | None, target: str = "") -> None:
        """Add the candidate of a rule; ``nth`` is the number of its host in the record."""
        naptr = rule.naptr
        rank = naptr[:2]
        candidate = Candidate(
            host,
            port,
            *rank,
            names.to_text(here.name),
            ttl=here.ttl,
            target=target,
            path=(*here.path, rank),
            ark=self.ark,
            substitution=rule.substitution,
            default_scheme=self.settings.scheme,
        )
        self._found.append(_new(_Found, (candidate, naptr, nth)))

    def _redirect(self, here: Question, rule: Rule, onward: dict[Labels, Question]) -> tuple[list[str], list[str]]:
        """Open the question of a redirect. Returns its name, and the reason."""
        target = rule.naptr.replacement
        if rule.substitution is not None:
            made = ""
            try:
                made = self._apply(rule)
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

    def _apply(self, rule: Rule) -> str:
        """Apply the rule's regexp to the ARK. Raises _Skipped, BudgetSpent and ResultTooLongError."""
        assert rule.substitution is not None  # noqa: S101 - the caller has checked it
        self.ark_read = True
        made = rule.substitution.apply(self.ark.in_url.encode(), self.budget)
        if made is None and "-" in self.ark.resolution:  # kept ones: there may be one in the shoulder of the rule
            made = rule.substitution.apply(self.ark.without_hyphens.replace("#", "%23").encode(), self.budget)
        if made is None:
            raise _Skipped("its regexp does not match this ARK")
        return made.decode("ascii", "backslashreplace")

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


class _Skipped(Exception):
    """A rule is skipped. The text is the reason."""


class _Found(NamedTuple):
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


def _rank(found: Sequence[_Found], ark: Ark, scheme: str, unknown: Sequence[RulePath]) -> tuple[Candidate, ...]:
    """Return the candidates that were found, in the order of their ranks; each URL once.

    URLs that differ only in the slash after ``ark:`` count as one. ``unknown`` are the paths of records for this ARK
    whose URL is unknown: candidates of a worse rank than one of these are left out.
    """
    if len(found) < 2 and not unknown:
        return tuple([candidate for candidate, _, _ in found])
    if unknown:
        worst = min(map(_without_final_zeros, unknown))
        found = [one for one in found if _without_final_zeros(one.candidate.path) <= worst]
    ranked: dict[str, Candidate] = {}
    for candidate, _, _ in found:
        ranked.setdefault(url.normalized(candidate.url(ark, scheme=scheme)), candidate)
    return tuple(ranked.values())
