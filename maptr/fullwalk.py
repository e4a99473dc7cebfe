"""A walk in full: what each record of each depth comes to, where it leads, and what it all adds up to.

What a walk is, and how it is driven, is ``walk.py``. A depth is read only when all of it is told, and in an order that
does not depend on how the answers came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from maptr import names, url
from maptr.ark import Ark
from maptr.candidate import Candidate, Found, rank
from maptr.discovery import Discovery
from maptr.names import Labels
from maptr.naptr import Kind, Naptr, Rule
from maptr.nfa import Budget, BudgetSpent
from maptr.protocol import MAX_TTL
from maptr.question import Answer, Question, Reader, Settings, question_rank, sane_ttl
from maptr.trace import SECURITY, Outcome, Reading, Step


class FullWalk:
    """All that a walk has read so far. ``ark_read``: beyond its NAAN, by a regexp."""

    def __init__(self, ark: Ark, settings: Settings, read: Reader, root: Labels) -> None:
        self.ark = ark
        self.settings = settings
        self.ark_read = False
        self.steps: list[Step] = []
        self._read = read
        self._asked = {names.fold(root)}
        self._found: list[Found] = []
        self._budget = Budget(settings.regexp_steps)
        self._records_left = settings.max_records
        self._complete = True
        self._ttls: list[int] = []
        self._security: set[str] = set()

    def read(self, questions: Sequence[Question], answers: Mapping[Labels, Answer]) -> list[Question]:
        """Read a whole depth; the questions of the next one, best path first."""
        onward: dict[Labels, Question] = {}
        for question in questions:
            self.steps.append(self._read_answer(question, answers[question.name], onward))
        return self._admit(onward)

    def result(self, now: float | None) -> Discovery:
        """The discovery, its expiration counted from ``now``."""
        ranked = rank(self._found)
        most = self.settings.max_candidates
        trace = tuple(self.steps)
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

    def _read_answer(self, question: Question, answer: Answer, onward: dict[Labels, Question]) -> Step:
        self._complete &= answer.outcome.said
        self._security.add(answer.security)
        if answer.outcome.said and answer.ttl is not None:
            self._ttls.append(sane_ttl(answer.ttl, 0))
        here = Question(question.name, question.path, min(question.ttl, sane_ttl(answer.ttl, MAX_TTL)))
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
        self.steps.append(Step(question.name, question.depth, Outcome.LIMIT, note=why))


class _Passed(Exception):
    """A record that is a rule but does not count, its text being the reason."""
