"""Many walks side by side, without I/O: one question for each distinct name, however many ARKs ask it.

What to ask, and what to do with an answer, is decided here; ``mux`` asks. Memory is bounded by the walks that a driver
starts at once, and by MAX_KEPT.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count, islice
from math import inf
from typing import Generic, TypeVar

from maptr.ark import Ark
from maptr.discovery import Discovery, Outcome
from maptr.naptr.automaton import Budget
from maptr.naptr.record import RuleCache
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.protocol.numbers import NAPTR
from maptr.walk import TIME_OVER, Answer, Question, Settings, Walk, root_name

MAX_KEPT = 100_000  # records of answers that are kept, an answer without records counting as one: 150 MB at the worst
MAX_SAME = 4_096  # NAANs whose discovery is kept for further ARKs; the real registry has fewer than 2,000
STEPS_EACH = 5_000  # of regexps, that each further walk of a NAAN adds to the budget of all its walks
SLICE = 0.02  # seconds of walking after which the sockets get their turn
LONG = 0.002  # seconds of computing that are no part of anybody's time
_PART = 8  # the oldest of so many parts of what is kept makes room for more

Token = TypeVar("Token", bound=Hashable)
_NOT_ASKED = Answer(Outcome.TIMEOUT, note=TIME_OVER)
Key = Labels | tuple[int, Labels]  # of an answer: the folded name, with the type where that is not NAPTR


class RunClock:
    """The clock of one run, without the time that the run itself computes: that is not a server's silence."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._own = 0.0

    def __call__(self) -> float:
        return self._clock() - self._own

    def leave_out(self, seconds: float) -> None:
        """So many seconds were our own."""
        if seconds > LONG:
            self._own += seconds


class _Root(Generic[Token]):
    """The ARKs with one root name, and its answer, which came so many seconds after it was asked for them. ``keep``
    where there may be more of them; ``same`` is what holds for all of them."""

    __slots__ = ("answer", "arks", "elapsed", "keep", "same")

    def __init__(self, token: Token, ark: Ark, name: Labels) -> None:
        self.arks = deque(((token, ark, name),))
        self.answer = _NOT_ASKED
        self.keep = False
        self.elapsed = 0.0
        self.same: Discovery | None = None


class Going(Generic[Token]):
    """A walk that asks further questions; ``open`` are those it waits for, by folded name."""

    __slots__ = ("open", "token", "walk")

    def __init__(self, token: Token, walk: Walk) -> None:
        self.token = token
        self.walk = walk
        self.open: dict[Key, Question] = {}


class Onward(Generic[Token]):
    """A further question, which a redirect led to, and the walks that wait for it, in the order in which they came.

    A walk whose time is over leaves, whoever else waits for the same answer. A question that no walk waits for is
    dropped, so it has no lifetime of its own. Whoever asks it sets ``unanswered``, which says what the question comes
    to for a walk that leaves now, and ``drop``, which ends it.
    """

    __slots__ = ("drop", "name", "rdtype", "unanswered", "walks")

    def __init__(self, name: Labels, rdtype: int) -> None:
        self.name = name
        self.rdtype = rdtype
        self.walks: dict[Going[Token], None] = {}
        self.unanswered: Callable[[], Answer] = _not_asked
        self.drop: Callable[[], None] = _nothing


class Many(Generic[Token]):
    """Walks under way, and the answers known so far; ``done`` holds the discoveries that are ready.

    An answer counts for the whole run, whatever its TTL, for as long as there is room to keep it. Of ARKs with one
    NAAN the first walks; where its walk read no more of the ARK than the NAAN, the others have its discovery.
    ``lifetime`` bounds each walk, in seconds of ``clock`` from the first packet of its first question; that question
    is bounded by whoever asks it. Regexps have one budget for each walk, and one for all walks of a NAAN. Call
    ``tick()`` as often as it says.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        lifetime: float,
        clock: RunClock | Callable[[], float],
        max_kept: int = MAX_KEPT,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.done: deque[tuple[Token, Discovery]] = deque()
        self.open = 0
        self._settings = settings
        self._origin = names.fold(settings.origin)
        self._known = _Known(max_kept)
        self._now = now
        self._clock = clock if isinstance(clock, RunClock) else RunClock(clock)
        self._until = inf  # when the sockets get their turn
        self._told: deque[_Root[Token]] = deque()  # those that are answered, and whose walks are not begun
        self._budgets: dict[str, Budget] = {}
        self._rules = RuleCache()
        self._roots: dict[Key, _Root[Token]] = {}  # those that are asked, by folded name
        self._onward: dict[Key, Onward[Token]] = {}  # further questions that are asked
        self._deadlines: _Deadlines[Token] = _Deadlines(lifetime, self._clock)
        self._new: list[Labels] = []
        self._new_onward: list[Onward[Token]] = []
        self._same: dict[str, Discovery] = {}  # by NAAN: what holds for every ARK of it

    def start(self, token: Token, ark: Ark) -> None:
        """Begin the walk of one ARK. Raises ValueError where NAAN and origin make no domain name."""
        same = self._same.get(ark.naan)
        if same is not None:
            self.done.append((token, self._like(same, ark)))
            return
        name = root_name(ark, self._settings.origin)
        key = (name[0].lower(), *self._origin)
        self.open += 1
        waiting = self._roots.get(key)
        if waiting is not None:
            waiting.arks.append((token, ark, name))
            waiting.keep = True
            return
        known = self._known.get(key)
        if known is None and key in self._onward:  # a redirect of another walk leads there
            self._begin(token, self._walk(ark, name), 0.0)
            return
        root = _Root(token, ark, name)
        if known is not None:
            root.answer, root.keep = known, True
            self._told.append(root)
            self._go()
        else:
            self._roots[key] = root
            self._new.append(name)

    def take(self) -> list[Labels]:
        """The names to ask now; none of them twice while it is asked or kept."""
        new, self._new = self._new, []
        return new

    def take_onward(self) -> list[Onward[Token]]:
        """The same, where redirects led: to be asked first, and until they are answered or dropped."""
        new, self._new_onward = self._new_onward, []
        return [onward for onward in new if onward.walks]

    @property
    def has_new(self) -> bool:
        """True where there is something to take."""
        return bool(self._new or self._new_onward or self._told)

    def tick(self) -> float | None:
        """End the walks whose time is over; seconds until it must be called again, None for never."""
        self._until = self._clock() + SLICE
        self._go()
        for going in self._deadlines.overdue():
            self._end(going)
        return self._deadlines.pause

    def tell(self, name: Labels, answer: Answer, rdtype: int = NAPTR) -> None:
        """The answer to a question that was taken, for every walk that waits for it."""
        key = _key(name, rdtype)
        self._known.keep(key, answer)
        root = self._roots.pop(key, None)
        onward = self._onward.pop(key, None) if self._onward else None
        if root is not None:
            root.answer, root.elapsed = answer, answer.elapsed or 0.0
            self._told.append(root)
            self._go()
        for going in onward.walks if onward is not None else ():
            going.walk.tell(going.open.pop(key), answer)
            self._go_on(going)

    def _go(self) -> None:
        """Walk for those that are answered, in the slices of time that ``tick`` begins."""
        clock, waiting = self._clock, self._told
        started = now = clock()
        while waiting and now < self._until:
            told = waiting[0]
            self._walk_one(told, *told.arks.popleft())
            if not told.arks:
                waiting.popleft()
                if told.same is not None:
                    if len(self._same) >= MAX_SAME:
                        self._same.clear()
                    self._same[told.same.ark.naan] = told.same
            now = clock()
        clock.leave_out(now - started)

    def _walk_one(self, told: _Root[Token], token: Token, ark: Ark, name: Labels) -> None:
        if told.same is not None and told.same.ark.naan == ark.naan:
            self.open -= 1
            self.done.append((token, self._like(told.same, ark)))
            return
        walk = self._walk(ark, name)
        walk.tell(walk.next()[0], told.answer)
        self._begin(token, walk, told.elapsed)
        if told.keep and walk.over and not walk.ark_read:
            told.same = self.done[-1][1]

    def _walk(self, ark: Ark, root: Labels) -> Walk:
        shared = self._budgets.get(ark.naan)
        if shared is None:
            if len(self._budgets) >= MAX_SAME:
                self._budgets.clear()
            shared = self._budgets[ark.naan] = Budget(self._settings.regexp_steps)
        else:
            shared.steps += STEPS_EACH
        budget = Budget(self._settings.regexp_steps, shared)
        return Walk(ark, self._settings, reader=self._rules, budget=budget, root=root)

    def _like(self, same: Discovery, ark: Ark) -> Discovery:
        """What was discovered, for another ARK of the NAAN."""
        return same.of(ark, None if same.ttl is None or self._now is None else self._now() + same.ttl)

    def _begin(self, token: Token, walk: Walk, elapsed: float) -> None:
        """Go on with a walk whose first packet was sent so many seconds ago."""
        if walk.over:
            self._finish(token, walk)
            return
        going = Going(token, walk)
        self._deadlines.set(going, elapsed)
        self._go_on(going)

    def _go_on(self, going: Going[Token]) -> None:
        walk = going.walk
        while not walk.over and (questions := walk.next()):
            for question in questions:
                key = _key(question.name, question.rdtype)
                known = self._known.get(key)
                if known is not None:
                    walk.tell(question, known)
                    continue
                onward = self._onward.get(key)
                if onward is None:
                    onward = self._onward[key] = Onward(question.name, question.rdtype)
                    if key not in self._roots:
                        self._new_onward.append(onward)
                onward.walks[going] = None
                going.open[key] = question
        if walk.over:
            self._finish(going.token, walk)

    def _end(self, going: Going[Token]) -> None:
        """The walk's time is over: it leaves with what is known."""
        for key, question in going.open.items():
            onward = self._onward[key]
            going.walk.tell(question, onward.unanswered())
            del onward.walks[going]
            if not onward.walks:
                del self._onward[key]
                onward.drop()
        self._finish(going.token, going.walk)

    def _finish(self, token: Token, walk: Walk) -> None:
        self.open -= 1
        self.done.append((token, walk.result(self._now() if self._now is not None else None)))


class _Known:
    """Answers by folded name, as many as there is room for."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._answers: dict[Key, Answer] = {}
        self._records = 0
        self.get = self._answers.get

    def keep(self, key: Key, answer: Answer) -> None:
        self._answers[key] = answer
        self._records += len(answer.records) or 1
        while self._records > self._most:
            # A part at once: to find the first key of a dict takes longer the more have gone before it.
            for old in list(islice(self._answers, -(-len(self._answers) // _PART))):
                self._records -= len(self._answers.pop(old).records) or 1


class _Deadlines(Generic[Token]):
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


def _key(name: Labels, rdtype: int) -> Key:
    return names.fold(name) if rdtype == NAPTR else (rdtype, names.fold(name))


def _not_asked() -> Answer:
    return _NOT_ASKED


def _nothing() -> None:
    pass
