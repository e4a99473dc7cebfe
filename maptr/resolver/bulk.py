"""Bulk lookups: a stream of ARKs in, discoveries out, with hundreds of queries outstanding and each name queried once.

``Scheduler`` runs the walks, without I/O: it decides what to ask and what an answer leads to. ``Run`` is one stream of
them; ``multiplexer`` sends the queries. Memory does not grow with the stream: it is bounded by the number of walks that
are started at once, and by MAX_KEPT.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import inf
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from maptr.ark import Ark
from maptr.discovery import Discovery, Outcome
from maptr.naptr.automaton import Budget
from maptr.naptr.record import NaptrRRset, RuleCache
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.protocol.numbers import NAPTR
from maptr.resolver.call import Clock, log_answer, logs
from maptr.resolver.multiplexer import Multiplexer
from maptr.walk import TIME_OVER, Answer, Question, Settings, SharedWalk, Walk, root_name

WINDOW = 4  # ARKs started, for each question that may be outstanding
HELD = 32  # discoveries held back for order, for each question that may be outstanding: 22 MB at most by default
INTAKE = 64  # ARKs taken from the stream before the sockets are read
MAX_KEPT = 100_000  # records of cached answers, an answer without records counting as one: at most 150 MB
MAX_NAANS = 4_096  # whose regexp budget or discovery is cached; the real registry has fewer than 2,000
STEPS_EACH = 5_000  # regexp steps that each further walk of a NAAN adds to the budget of all its walks
SLICE = 0.02  # seconds of computing, or of waiting for the stream, after which the sockets are read

T = TypeVar("T")
Token = TypeVar("Token", bound=Hashable)
Item: TypeAlias = Ark | Discovery
"""An ARK, or the discovery of an item that needs none, which is passed on as it is."""
_NOT_ASKED = Answer(Outcome.TIMEOUT, note=TIME_OVER)
Key = tuple[int, Labels]  # of a question: its type and folded name


class NewWalk(NamedTuple, Generic[Token]):
    """A walk that has not begun: the answer to its first question, for ``name``, is not known or not read."""

    token: Token
    ark: Ark
    name: Labels


@dataclass(slots=True, eq=False)
class ActiveWalk(Generic[Token]):
    """A walk that asks further questions until its ``deadline``; ``open`` are those it waits for."""

    token: Token
    walk: Walk
    deadline: float
    open: dict[Key, Question] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class SharedQuestion(Generic[Token]):
    """A question, the ``new`` walks that begin with it, and the ``walks`` that a redirect led to it.

    If a redirect led to it first, its ``deadline`` is that of the redirected walk.
    """

    key: Key
    name: Labels
    new: list[NewWalk[Token]] = field(default_factory=list)
    walks: dict[ActiveWalk[Token], None] = field(default_factory=dict)
    deadline: float | None = None

    @property
    def rdtype(self) -> int:
        return self.key[0]


class _Questions(Generic[Token]):
    """The questions of a run. Each is asked once, and its answer cached while there is room for the records.

    ``shared`` has, by NAAN, the walk that serves all of its ARKs.
    """

    def __init__(self) -> None:
        self.answers: dict[Key, Answer] = {}
        self.shared: dict[str, SharedWalk] = {}
        self.asked: dict[Key, SharedQuestion[Token]] = {}  # and not answered
        self.unsent: list[SharedQuestion[Token]] = []
        self._room = MAX_KEPT

    def ask(self, key: Key, name: Labels, deadline: float | None = None) -> SharedQuestion[Token]:
        """Return the outstanding question with this key, or a new one."""
        question = self.asked.get(key)
        if question is None:
            question = self.asked[key] = SharedQuestion(key, name, deadline=deadline)
            self.unsent.append(question)
        return question

    def take(self) -> list[SharedQuestion[Token]]:
        """Return those to send. One whose walks have all ended meanwhile is dropped."""
        unsent, self.unsent = self.unsent, []
        wanted: list[SharedQuestion[Token]] = []
        for question in unsent:
            if question.new or question.walks:
                wanted.append(question)
            else:
                del self.asked[question.key]
        return wanted

    def answered(self, question: SharedQuestion[Token], answer: Answer) -> None:
        """Cache an answer. A time-out counts for the question only if it was not limited by one walk's deadline."""
        del self.asked[question.key]
        if question.deadline is not None and answer.outcome is Outcome.TIMEOUT:
            return
        size = len(answer.records) or 1
        if size > self._room:
            self.answers.clear()
            self.shared.clear()
            self._room = MAX_KEPT
        self._room -= size
        self.answers[question.key] = answer

    def share(self, naan: str, walk: SharedWalk) -> None:
        if len(self.shared) >= MAX_NAANS:
            self.shared.clear()
        self.shared[naan] = walk


class _WalkMaker:
    """Makes walks with one regexp budget for each walk, and one for all walks of a NAAN."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.origin = names.fold(settings.origin)
        self._budgets: dict[str, Budget] = {}
        self._rules = RuleCache()

    def make(self, ark: Ark, name: Labels) -> Walk:
        shared = self.budget(ark.naan)
        if shared is not None:
            budget = Budget(self.settings.regexp_steps, shared)
        else:
            if len(self._budgets) >= MAX_NAANS:
                self._budgets.clear()
            budget = self._budgets[ark.naan] = Budget(self.settings.regexp_steps)
        return Walk(ark, self.settings, reader=self._rules, budget=budget, root=name)

    def budget(self, naan: str) -> Budget | None:
        """Return the budget of all walks of a NAAN, with the steps of one more; None for the first."""
        budget = self._budgets.get(naan)
        if budget is not None:
            budget.steps += STEPS_EACH
        return budget


class Scheduler(Generic[Token]):
    """The walks of a run; ``done`` holds the discoveries that are ready, ``open`` counts the others.

    A walk is *new* until its first question is answered: all that begin with the same question wait for it together.
    One that needs further questions is *active* until they are answered or its time is over. An answer holds for the
    whole run, whatever its TTL, while there is room for it.

    ``lifetime`` bounds each walk, in seconds of ``clock`` from the first packet of its first question; the driver
    bounds that question. Call ``tick()`` again when the delay that it returns is over.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        lifetime: float,
        clock: Clock,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.done: deque[tuple[Token, Discovery]] = deque()
        self.open = 0
        self._maker = _WalkMaker(settings)
        self._questions: _Questions[Token] = _Questions()
        self._now = now
        self._clock = clock
        self._lifetime = lifetime
        # New walks that can begin, each with its first answer and the seconds that this took.
        self._ready: deque[tuple[NewWalk[Token], Answer, float]] = deque()
        self._active: dict[ActiveWalk[Token], None] = {}
        self._next_deadline = inf  # no active walk ends before this

    @property
    def has_new(self) -> bool:
        """Whether there are new questions, or walks that can begin."""
        return bool(self._questions.unsent or self._ready)

    def start(self, token: Token, ark: Ark) -> None:
        """Start the walk of one ARK. Raises ValueError if NAAN and origin do not make a valid domain name."""
        settings = self._maker.settings
        ark = ark.sent(settings.hyphens)
        shared = self._questions.shared.get(ark.naan)
        if shared is not None:
            found = shared.discovery(ark, self._maker.budget(ark.naan))
            if found is not None:
                self.done.append((token, found.expiring(self._now())))
                return
        self.open += 1
        name = root_name(ark, settings.origin)
        key = NAPTR, (name[0].lower(), *self._maker.origin)
        answer = self._questions.answers.get(key)
        if answer is not None:
            self._ready.append((NewWalk(token, ark, name), answer, 0.0))
            return
        outstanding = self._questions.asked.get(key)
        if outstanding is not None and not outstanding.new:  # a redirect led there, so this walk also has a deadline
            self._begin(token, self._maker.make(ark, name), 0.0)
        else:
            self._questions.ask(key, name).new.append(NewWalk(token, ark, name))

    def take(self) -> list[SharedQuestion[Token]]:
        """Return the questions to send now. Each answer is passed to ``tell``."""
        return self._questions.take()

    def tell(self, question: SharedQuestion[Token], answer: Answer) -> None:
        """Pass the answer to a question to every walk that waits for it."""
        if logs():
            log_answer(question.name, question.rdtype, answer)
        if len(answer.records) > 1:  # each walk that reads it would sort the records
            answer = answer._replace(records=NaptrRRset.of(answer.records))
        self._questions.answered(question, answer)
        self._ready.extend((new, answer, answer.elapsed or 0.0) for new in question.new)
        given_up = self._given_up(question, answer)
        for active in question.walks:
            asked = active.open.pop(question.key)
            if active.deadline > given_up:
                self._wait_for(active, question.key, asked)
            else:
                active.walk.tell(asked, answer)
                self._continue(active)

    def _given_up(self, question: SharedQuestion[Token], answer: Answer) -> float:
        """Return the deadline of the walk for which a question was asked, if it was given up then: walks with more time
        ask it again. Else inf, because no walk has more time."""
        deadline = question.deadline
        if deadline is None or answer.outcome is not Outcome.TIMEOUT or deadline > self._clock():
            return inf
        return deadline

    def tick(self, now: float) -> float | None:
        """Compute the walks that can go on, and end those whose time is over at ``now``.

        Returns the seconds until the next call is due, None for never.
        """
        self._begin_ready()
        if self._next_deadline <= now:
            for active in [active for active in self._active if active.deadline <= now]:
                self._time_out(active)
            self._next_deadline = min((active.deadline for active in self._active), default=inf)
        return max(0.0, self._next_deadline - now) if self._active else None

    def _begin_ready(self) -> None:
        """Begin new walks whose first question is answered, for at most a SLICE of time."""
        end = self._clock() + SLICE
        while self._ready and self._clock() < end:
            new, answer, elapsed = self._ready.popleft()
            walk = self._maker.make(new.ark, new.name)
            walk.tell(walk.next()[0], answer)
            self._begin(new.token, walk, elapsed)

    def _begin(self, token: Token, walk: Walk, elapsed: float) -> None:
        """Finish a walk that needs no further question, or make it active. Its time began ``elapsed`` seconds ago."""
        if walk.over:
            found = self._finish(token, walk)
            if walk.budget.shared is not None and (shared := SharedWalk.of(walk, found)) is not None:
                self._questions.share(walk.ark.naan, shared)  # from a NAAN's second walk on: many have only one
            return
        active = ActiveWalk(token, walk, self._clock() - elapsed + self._lifetime)
        self._active[active] = None
        self._next_deadline = min(self._next_deadline, active.deadline)
        self._continue(active)

    def _continue(self, active: ActiveWalk[Token]) -> None:
        """Answer the questions of a walk that are known, and have it wait for the others."""
        walk = active.walk
        while not walk.over and (questions := walk.next()):
            for question in questions:
                key = question.rdtype, names.fold(question.name)
                answer = self._questions.answers.get(key)
                if answer is None:
                    self._wait_for(active, key, question)
                else:
                    walk.tell(question, answer)
        if walk.over:
            self._end(active)

    def _wait_for(self, active: ActiveWalk[Token], key: Key, question: Question) -> None:
        self._questions.ask(key, question.name, active.deadline).walks[active] = None
        active.open[key] = question

    def _time_out(self, active: ActiveWalk[Token]) -> None:
        for key, question in active.open.items():
            active.walk.tell(question, _NOT_ASKED)
            del self._questions.asked[key].walks[active]
        self._end(active)

    def _end(self, active: ActiveWalk[Token]) -> None:
        del self._active[active]
        self._finish(active.token, active.walk)

    def _finish(self, token: Token, walk: Walk) -> Discovery:
        self.open -= 1
        found = walk.result(self._now())
        self.done.append((token, found))
        return found


def take(stream: Iterator[T], most: int, clock: Clock) -> tuple[list[T], bool]:
    """Return items of a stream, those of a SLICE of time if it is slow, and whether they are the last ones."""
    taken: list[T] = []
    end = clock() + SLICE
    for item in islice(stream, most):
        taken.append(item)
        if clock() > end:
            return taken, False
    return taken, len(taken) < most


class RunClock:
    """The clock of a run. It stands still in a ``with`` block: while the caller works on a discovery, or makes the next
    ARKs, no socket is read, so this time does not count against servers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stood = 0.0  # seconds
        self._since: float | None = None

    def __call__(self) -> float:
        return (self._clock() if self._since is None else self._since) - self._stood

    def __enter__(self) -> None:
        self._since = self._clock()

    def __exit__(self, *_: object) -> None:
        if self._since is not None:
            self._stood += self._clock() - self._since
            self._since = None


class Run(Generic[Token]):
    """One run: ARKs in, walks in progress, discoveries out, in the order of the stream if ``ordered``."""

    def __init__(
        self, multiplexer: Multiplexer, settings: Settings, lifetime: float, *, ordered: bool, clock: RunClock
    ) -> None:
        self.scheduler: Scheduler[tuple[int, Token]] = Scheduler(settings, lifetime=lifetime, clock=clock)
        self.close = multiplexer.close
        self._multiplexer = multiplexer
        self._lifetime = lifetime
        self._ordered = ordered
        self.clock = clock
        self._held: dict[int, tuple[Token, Discovery]] = {}
        self._started = self._given = 0
        self._ended = False

    @property
    def wanted(self) -> int:
        """How many ARKs may be started before the sockets are read."""
        if self._ended or self._multiplexer.waiting >= INTAKE:
            return 0  # more would only wait, and take memory
        questions = self._multiplexer.concurrency
        return max(0, min(INTAKE, questions * WINDOW - self.scheduler.open, questions * HELD - len(self._held)))

    @property
    def over(self) -> bool:
        return self._ended and not (self.scheduler.open or self.scheduler.done or self._held)

    def start(self, pairs: list[tuple[Token, Item]], ended: bool) -> None:
        """Start a walk for each ARK; ``ended`` says that they are the last of the stream."""
        self._ended = ended
        for token, ark in pairs:
            if isinstance(ark, Ark):  # faster than testing for Discovery
                self.scheduler.start((self._started, token), ark)
            else:
                self.scheduler.done.append(((self._started, token), ark))
            self._started += 1

    def ready(self) -> list[tuple[Token, Discovery]]:
        """Return the discoveries whose turn it is."""
        done, held = self.scheduler.done, self._held
        if not self._ordered:
            ready = [(token, discovery) for (_, token), discovery in done]
            done.clear()
            return ready
        while done:
            (number, token), discovery = done.popleft()
            held[number] = token, discovery
        ready = []
        while self._given in held:
            ready.append(held.pop(self._given))
            self._given += 1
        return ready

    def tick(self) -> float | None:
        """Send queries and end walks, as limits and time allow.

        Returns the seconds until the next call is due, None for never.
        """
        now = self.clock()
        self._multiplexer.expire()  # first: a question that ends with its walk says why
        over = self.scheduler.tick(now)
        tell = self.scheduler.tell  # one object for all questions
        for question in self.scheduler.take():
            done = partial(tell, question)
            seconds, deadline = self._lifetime, question.deadline
            self._multiplexer.ask(question.name, done, question.rdtype, seconds=seconds, deadline=deadline)
        pauses = [pause for pause in (over, self._multiplexer.send()) if pause is not None]
        return 0.0 if self.scheduler.has_new else min(pauses, default=None)
