"""Many walks side by side, without I/O: one question for each distinct name, however many ARKs ask it.

What to ask and when it is answered goes through here; how it is asked is the business of ``mux``, of whom that of
``asking``. Memory is bounded by the walks that a driver starts at once, and by MAX_KEPT.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from maptr import names
from maptr.ark import Ark
from maptr.discovery import Discovery
from maptr.names import Labels
from maptr.naptr import Naptr, Rule, read
from maptr.nfa import Budget
from maptr.walk import Answer, Question, Settings, Walk

MAX_KEPT = 100_000  # records kept of answers already heard, an empty answer counting as one: 100 MB at the very worst

MAX_SAME = 10_000  # NAANs whose discovery is kept for further ARKs: 10 MB of the usual ones

MAX_PROGRAMS = 400_000  # instructions of regexps kept ready; a rule of ours has 50, and each takes about 100 octets

Token = TypeVar("Token", bound=Hashable)


class Many(Generic[Token]):
    """Walks under way, and the answers heard so far; ``done`` holds what is ready to be taken away.

    An answer counts for the whole run, whatever its TTL, for as long as there is room to keep it. Of ARKs with one
    NAAN the first walks; where its walk looked at no more of the ARK than that, the others have its discovery.
    """

    def __init__(self, settings: Settings, *, max_kept: int = MAX_KEPT, now: Callable[[], float] | None = None) -> None:
        self.done: deque[tuple[Token, Discovery]] = deque()
        self.open = 0
        self.asked = 0
        self._settings = settings
        self._answers: OrderedDict[Labels, Answer] = OrderedDict()
        self._kept = 0
        self._max_kept = max_kept
        self._now = now
        self._rules = Rules()
        self._roots: dict[Labels, tuple[str, list[tuple[Token, Ark]]]] = {}  # asked, by folded name; who waits
        self._root_of: dict[str, list[tuple[Token, Ark]]] = {}
        self._waiting: dict[Labels, list[tuple[Token, Walk, Question]]] = {}
        self._new: list[Labels] = []
        self._same: dict[str, Discovery] = {}  # by NAAN: what holds for every ARK of it

    def start(self, token: Token, ark: Ark) -> None:
        """Begin the walk of one ARK. Raises ValueError where NAAN and origin make no domain name."""
        naan = ark.naan
        same = self._same.get(naan)
        if same is not None:
            self.done.append((token, self._like(same, ark)))
            return
        waiting = self._root_of.get(naan)
        if waiting is not None:
            self.open += 1
            waiting.append((token, ark))
            return
        name = names.check((naan.encode(), *self._settings.origin))
        key = names.fold(name)
        self.open += 1
        answer = self._answers.get(key)
        if answer is not None:
            self._walk_all(naan, [(token, ark)], answer, keep=True)
        elif key in self._roots or key in self._waiting:  # asked for another spelling, or a redirect
            self._go_on(token, Walk(ark, self._settings, reader=self._rules))
        else:
            here = [(token, ark)]
            self._roots[key] = naan, here
            self._root_of[naan] = here
            self._new.append(name)
            self.asked += 1

    def take(self) -> list[Labels]:
        """The names to ask now; none of them twice while it is asked or kept."""
        new, self._new = self._new, []
        return new

    def tell(self, name: Labels, answer: Answer) -> None:
        """The answer to a name that was taken, for every walk that waits for it."""
        key = names.fold(name)
        self._keep(key, answer)
        root = self._roots.pop(key, None)
        if root is not None:
            naan, arks = root
            del self._root_of[naan]
            self._walk_all(naan, arks, answer, keep=len(arks) > 1)
        walks: dict[int, tuple[Token, Walk]] = {}
        for token, walk, question in self._waiting.pop(key, ()):
            walk.tell(question, answer)
            walks[id(walk)] = token, walk
        for token, walk in walks.values():
            self._go_on(token, walk)

    def _walk_all(self, naan: str, arks: list[tuple[Token, Ark]], answer: Answer, *, keep: bool) -> None:
        """The walks of ARKs with one NAAN, whose root is answered. ``keep`` where there may be more of them."""
        same: Discovery | None = None
        for token, ark in arks:
            if same is not None:
                self.open -= 1
                self.done.append((token, self._like(same, ark)))
                continue
            walk = Walk(ark, self._settings, reader=self._rules)
            walk.tell(walk.next()[0], answer)
            self._go_on(token, walk)
            if walk.over and not walk.ark_read:
                same = self.done[-1][1]
        if keep and same is not None:
            if len(self._same) >= MAX_SAME:
                self._same.clear()
            self._same[naan] = same

    def _like(self, same: Discovery, ark: Ark) -> Discovery:
        """What was discovered, for another ARK of the NAAN."""
        expiration = None if same.ttl is None or self._now is None else self._now() + same.ttl
        return same.of(ark, expiration)

    def _go_on(self, token: Token, walk: Walk) -> None:
        while not walk.over and (questions := walk.next()):
            for question in questions:
                key = names.fold(question.name)
                answer = self._answers.get(key)
                if answer is not None:
                    walk.tell(question, answer)
                    continue
                waiting = self._waiting.get(key)
                if waiting is None:
                    waiting = self._waiting[key] = []
                    if key not in self._roots:
                        self._new.append(question.name)
                        self.asked += 1
                waiting.append((token, walk, question))
        if walk.over:
            self.open -= 1
            self.done.append((token, walk.result(self._now() if self._now is not None else None)))

    def _keep(self, key: Labels, answer: Answer) -> None:
        self._answers[key] = answer
        self._kept += len(answer.records) or 1
        while self._kept > self._max_kept:
            _, oldest = self._answers.popitem(last=False)
            self._kept -= len(oldest.records) or 1


class Rules:
    """``naptr.read`` that remembers: many ARKs share few rules, and compiling a regexp costs more than matching it.

    A walk's budget pays as if nothing were remembered, so that the walk ends as it would alone.
    """

    def __init__(self) -> None:
        self._rules: OrderedDict[tuple[Naptr, Labels | None], tuple[Rule, int]] = OrderedDict()
        self._size = 0

    def __call__(self, naptr: Naptr, *, undotted: Labels | None, budget: Budget) -> Rule:
        key = naptr, undotted
        known = self._rules.get(key)
        if known is not None:
            budget.spend(known[1])
            return known[0]
        before = budget.steps
        rule = read(naptr, undotted=undotted, budget=budget)
        self._rules[key] = rule, before - budget.steps
        self._size += _size(rule)
        while self._size > MAX_PROGRAMS:
            self._size -= _size(self._rules.popitem(last=False)[1][0])
        return rule


def _size(rule: Rule) -> int:
    return 10 + (len(rule.substitution.expression.program) if rule.substitution is not None else 0)
