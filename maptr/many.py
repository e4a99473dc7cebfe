"""Many walks side by side, without I/O: one question for each distinct name, however many ARKs ask it.

What to ask and when it is answered goes through here; how it is asked is the business of ``mux``, of whom that of
``asking``. Memory is bounded by the walks that a driver starts at once, and by what ``heard`` keeps. Names are in wire
format: a driver writes them into packets as they are.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from maptr import names
from maptr.ark import Ark
from maptr.discovery import Discovery
from maptr.heard import MAX_KEPT, Heard
from maptr.names import Labels
from maptr.naptr import Naptr, Rule, read
from maptr.nfa import Budget
from maptr.plainreply import PlainReply, Reader
from maptr.walk import Answer, Question, Settings, Walk

MAX_SAME = 4_096  # NAANs whose plan or discovery is kept for further ARKs; the real registry has 1,432

MAX_PROGRAMS = 400_000  # instructions of regexps kept ready; a rule of ours has 50, and each takes about 100 octets

Token = TypeVar("Token", bound=Hashable)


class Many(Generic[Token]):
    """Walks under way, and the answers heard so far; ``done`` holds what is ready to be taken away.

    An answer counts for the whole run, whatever its TTL, for as long as there is room to keep it. Of ARKs with one
    NAAN the first walks; where its walk looked at no more of the ARK than that, the others have its discovery.
    ``reader`` is the one whose plain replies are told.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        reader: Reader | None = None,
        max_kept: int = MAX_KEPT,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.done: deque[tuple[Token, Discovery]] = deque()
        self.open = 0
        self.asked = 0
        self._settings = settings
        self._origin = names.to_wire(settings.origin)
        self._most = min(names.MAX_LABEL, names.MAX_NAME - 1 - len(self._origin))
        self._reader = reader or Reader(settings)
        self._heard = Heard(max_kept)
        self._now = now
        self._rules = Rules()
        self._roots: dict[bytes, list[tuple[Token, Ark]]] = {}  # root names asked, in lower case; who waits
        self._waiting: dict[bytes, list[tuple[Token, Walk, Question]]] = {}  # other names
        self._new: list[bytes] = []
        self._same: dict[str, Discovery | PlainReply] = {}  # by NAAN: what holds for every ARK of it

    def start(self, token: Token, ark: Ark) -> None:
        """Begin the walk of one ARK. Raises ValueError where NAAN and origin make no domain name."""
        same = self._same.get(ark.naan)
        if same is not None:
            self.done.append((token, self._like(same, ark)))
            return
        label = ark.naan.encode()
        if not 0 < len(label) <= self._most:
            names.check((label, *self._settings.origin))
        name = _LENGTHS[len(label)] + label + self._origin
        key = name.lower()
        self.open += 1
        waiting = self._roots.get(key)
        if waiting is not None:
            waiting.append((token, ark))
            return
        known = self._heard.get(key)
        if known is None:
            if key in self._waiting:  # a redirect leads there
                self._go_on(token, Walk(ark, self._settings, reader=self._rules))
                return
            self._roots[key] = [(token, ark)]
            self._new.append(name)
            self.asked += 1
        elif isinstance(known, Answer):
            self._walk_all([(token, ark)], known, keep=True)
        else:
            self._give([(token, ark)], self._reader.revive(known, name), keep=True)

    def take(self) -> list[bytes]:
        """The names to ask now; none of them twice while it is asked or kept."""
        new, self._new = self._new, []
        return new

    @property
    def has_new(self) -> bool:
        """True where ``take()`` has something to give."""
        return bool(self._new)

    def tell(self, name: bytes, answer: Answer | PlainReply) -> None:
        """The answer to a name that was taken, for every walk that waits for it."""
        key = name.lower()
        arks = self._roots.pop(key, None)
        waiting = self._waiting.pop(key, None) if self._waiting else None
        if isinstance(answer, PlainReply):
            self._heard.keep_plain(key, answer.kept)
            if arks is not None:
                self._give(arks, answer, keep=len(arks) > 1)
            if waiting is None:
                return
            answer = self._reader.answer(answer.kept)
        else:
            self._heard.keep(key, answer)
            if arks is not None:
                self._walk_all(arks, answer, keep=len(arks) > 1)
        walks: dict[int, tuple[Token, Walk]] = {}
        for token, walk, question in waiting or ():
            walk.tell(question, answer)
            walks[id(walk)] = token, walk
        for token, walk in walks.values():
            self._go_on(token, walk)

    def _give(self, arks: list[tuple[Token, Ark]], reply: PlainReply, *, keep: bool) -> None:
        """The discoveries of ARKs whose root has a plain reply. ``keep`` where there may be more of them."""
        naan = arks[0][1].naan
        expiration = None if self._now is None else self._now() + reply.ttl
        for token, ark in arks:
            if ark.naan == naan:
                self.open -= 1
                self.done.append((token, reply.discovery(ark, expiration)))
            else:  # spelt otherwise, and so asked at a name of other letters
                self._walk_all([(token, ark)], self._reader.answer(reply.kept), keep=False)
        if keep:
            self._keep_same(naan, reply)

    def _walk_all(self, arks: list[tuple[Token, Ark]], answer: Answer, *, keep: bool) -> None:
        """The walks of ARKs with one root name, which is answered. ``keep`` where there may be more of them."""
        same: Discovery | None = None
        for token, ark in arks:
            if same is not None and same.ark.naan == ark.naan:
                self.open -= 1
                self.done.append((token, self._like(same, ark)))
                continue
            walk = Walk(ark, self._settings, reader=self._rules)
            walk.tell(walk.next()[0], answer)
            self._go_on(token, walk)
            if walk.over and not walk.ark_read:
                same = self.done[-1][1]
        if keep and same is not None:
            self._keep_same(same.ark.naan, same)

    def _keep_same(self, naan: str, same: Discovery | PlainReply) -> None:
        """What holds for every ARK of the NAAN."""
        if len(self._same) >= MAX_SAME:
            self._same.clear()
        self._same[naan] = same

    def _like(self, same: Discovery | PlainReply, ark: Ark) -> Discovery:
        """What was discovered, for another ARK of the NAAN."""
        expiration = None if same.ttl is None or self._now is None else self._now() + same.ttl
        if isinstance(same, PlainReply):
            return same.discovery(ark, expiration)
        return same.of(ark, expiration)

    def _go_on(self, token: Token, walk: Walk) -> None:
        while not walk.over and (questions := walk.next()):
            for question in questions:
                name = names.to_wire(question.name)
                key = name.lower()
                known = self._heard.get(key)
                if known is not None:
                    walk.tell(question, known if isinstance(known, Answer) else self._reader.answer(known))
                    continue
                waiting = self._waiting.get(key)
                if waiting is None:
                    waiting = self._waiting[key] = []
                    if key not in self._roots:
                        self._new.append(name)
                        self.asked += 1
                waiting.append((token, walk, question))
        if walk.over:
            self.open -= 1
            self.done.append((token, walk.result(self._now() if self._now is not None else None)))


_LENGTHS = [bytes((size,)) for size in range(names.MAX_LABEL + 1)]  # of a label, on the wire


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
    return 10 + (rule.substitution.expression.size if rule.substitution is not None else 0)
