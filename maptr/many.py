"""Many walks side by side, without I/O: one question for each distinct name, however many ARKs ask it.

What to ask and when it is answered goes through here; how it is asked is the business of ``mux``, of whom that of
``asking``. Memory is bounded by the walks that a driver starts at once, and by what ``heard`` keeps. Names are in wire
format: a driver writes them into packets as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from maptr import names
from maptr.ark import Ark
from maptr.discovery import Discovery
from maptr.heard import MAX_KEPT, Heard
from maptr.onward import Deadlines, Going, Onward
from maptr.plainreply import PlainReply, Reader
from maptr.question import Answer, Settings
from maptr.rulecache import RuleCache
from maptr.walk import Walk

MAX_SAME = 4_096  # NAANs whose reply or discovery is kept for further ARKs; the real registry has 1,432

Token = TypeVar("Token", bound=Hashable)


class Many(Generic[Token]):
    """Walks under way, and the answers heard so far; ``done`` holds what is ready to be taken away.

    An answer counts for the whole run, whatever its TTL, for as long as there is room to keep it. Of ARKs with one
    NAAN the first walks; where its walk looked at no more of the ARK than that, the others have its discovery.
    ``reader`` is the one whose plain replies are told. ``lifetime`` bounds each walk, in seconds of ``clock`` from the
    first packet of its first question; that question is bounded by who asks it. Call ``tick()`` as often as it says.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        lifetime: float,
        clock: Callable[[], float],
        reader: Reader | None = None,
        max_kept: int = MAX_KEPT,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.done: deque[tuple[Token, Discovery]] = deque()
        self.open = 0
        self._settings = settings
        self._origin = names.to_wire(settings.origin)
        self._most = min(names.MAX_LABEL, names.MAX_NAME - 1 - len(self._origin))
        self._reader = reader or Reader(settings)
        self._heard = Heard(max_kept)
        self._now = now
        self._rules = RuleCache()
        self._roots: dict[bytes, list[tuple[Token, Ark]]] = {}  # root names asked, in lower case; who waits
        self._onward: dict[bytes, Onward[Token]] = {}  # other names asked
        self._deadlines: Deadlines[Token] = Deadlines(lifetime, clock)
        self._new: list[bytes] = []
        self._new_onward: list[Onward[Token]] = []
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
            if key in self._onward:  # a redirect leads there
                self._begin(token, Walk(ark, self._settings, reader=self._rules), 0.0)
                return
            self._roots[key] = [(token, ark)]
            self._new.append(name)
        elif isinstance(known, Answer):
            self._walk_all([(token, ark)], known, keep=True)
        else:
            self._give([(token, ark)], self._reader.revive(known, name), keep=True)

    def take(self) -> list[bytes]:
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
        return bool(self._new or self._new_onward)

    def tick(self) -> float | None:
        """End the walks whose time is over; seconds until it must be called again, None for never."""
        for going in self._deadlines.overdue():
            self._end(going)
        return self._deadlines.pause

    def tell(self, name: bytes, answer: Answer | PlainReply) -> None:
        """The answer to a name that was taken, for every walk that waits for it."""
        key = name.lower()
        arks = self._roots.pop(key, None)
        onward = self._onward.pop(key, None) if self._onward else None
        if isinstance(answer, PlainReply):
            self._heard.keep_plain(key, answer.kept)
            if arks is not None:
                self._give(arks, answer, keep=len(arks) > 1)
            if onward is None:
                return
            answer = self._reader.answer(answer.kept)
        else:
            self._heard.keep(key, answer)
            if arks is not None:
                self._walk_all(arks, answer, keep=len(arks) > 1, elapsed=answer.elapsed or 0.0)
        for going in onward.walks if onward is not None else ():
            going.walk.tell(going.open.pop(key), answer)
            self._go_on(going)

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

    def _walk_all(self, arks: list[tuple[Token, Ark]], answer: Answer, *, keep: bool, elapsed: float = 0.0) -> None:
        """The walks of ARKs with one root name, which is answered, so many seconds after it was asked for them.
        ``keep`` where there may be more of them."""
        same: Discovery | None = None
        for token, ark in arks:
            if same is not None and same.ark.naan == ark.naan:
                self.open -= 1
                self.done.append((token, self._like(same, ark)))
                continue
            walk = Walk(ark, self._settings, reader=self._rules)
            walk.tell(walk.next()[0], answer)
            self._begin(token, walk, elapsed)
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
                name = names.to_wire(question.name)
                key = name.lower()
                known = self._heard.get(key)
                if known is not None:
                    walk.tell(question, known if isinstance(known, Answer) else self._reader.answer(known))
                    continue
                onward = self._onward.get(key)
                if onward is None:
                    onward = self._onward[key] = Onward(name)
                    if key not in self._roots:
                        self._new_onward.append(onward)
                onward.walks[going] = None
                going.open[key] = question
        if walk.over:
            self._finish(going.token, walk)

    def _end(self, going: Going[Token]) -> None:
        """The walk's time is over: it leaves with what it heard."""
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


_LENGTHS = [bytes((size,)) for size in range(names.MAX_LABEL + 1)]  # of a label, on the wire
