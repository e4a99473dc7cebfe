"""The answers that a cache keeps in memory and on disk, replayed for any ARK of their NAAN.

The answers that one walk received also serve the other ARKs of its NAAN: ``Store`` runs the walk again over the cached
answers. It sends no queries.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from maptr.ark import Ark
from maptr.cache import MAX_NAMES, STALE_LIMIT
from maptr.discovery import CLOCK_SLACK, Discovery, Outcome
from maptr.files import ForkLock
from maptr.naptr.automaton import Budget
from maptr.naptr.record import Naptr, NaptrRRset, Rule, RuleCache
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.walk import Answer, Reader, Settings, SharedWalk, Walk, reusable_answers, root_name

if TYPE_CHECKING:
    from maptr.cache.disk import Disk

MAX_KEEP = 604_800  # seconds; RFC 8767 section 4: a TTL of more than a week is capped
MAX_REPLAYS = 1_000  # NAANs with a cached walk
MAX_NEGATIVE = 10_800  # seconds; RFC 2308 section 5: one to three hours work well
STALE_TTL = 30  # seconds; RFC 8767 section 4: the TTL of a stale answer
REFRESH_PART = 0.1  # of a lifetime: an answer used in this last part of it is fetched again in the background

K = TypeVar("K")
V = TypeVar("V")


class LruDict(Generic[K, V]):
    """A bounded mapping that drops its least recently used entries. Thread-safe, and safe across a fork."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._lock = ForkLock()

    def get(self, key: K) -> V | None:
        value = self._kept.get(key)
        if value is not None:
            try:  # noqa: SIM105 - suppress() takes longer than the rest of the method
                self._kept.move_to_end(key)
            except KeyError:  # another thread has just dropped it
                pass
        return value

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)

    def drop(self, key: K) -> None:
        with self._lock:
            self._kept.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """An answer with its age. ``fetched`` is wall-clock time, ``expires`` a time of the cache's monotonic clock.

    ``lifetime`` is the number of seconds for which the answer was fresh when it was fetched.
    """

    answer: Answer
    fetched: float
    expires: float
    lifetime: float
    layer: str = "memory"


class Store:
    """Memory in front of disk. ``clock`` is monotonic and decides what is fresh; ``wall`` dates the entries on disk.

    ``view`` is a text that names the servers and how DNSSEC is checked: answers on disk belong to one view. Names are
    case-folded.
    """

    def __init__(
        self,
        settings: Settings,
        disk: Disk | None = None,
        *,
        view: str = "",
        size: int = MAX_NAMES,
        stale_limit: float = STALE_LIMIT,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self._memory: LruDict[Labels, CachedAnswer] = LruDict(size)
        self._disk = disk
        self.view = view
        self.clock = clock
        self.wall = wall
        self._stale_limit = stale_limit
        self._replays: LruDict[str, Replay] = LruDict(MAX_REPLAYS)  # those that serve every ARK of a NAAN
        self._rules = RuleCache()
        self._rules_lock = ForkLock()

    def root(self, ark: Ark) -> Labels:
        """Return the first name that is queried for an ARK."""
        return names.fold((ark.naan.encode(), *self.settings.origin))

    def learn(self, discovery: Discovery) -> None:
        now, wall = self.clock(), self.wall()
        for name, received in reusable_answers(discovery).items():
            lifetime = min(received.ttl or 0, _longest_lifetime(received))
            if lifetime > 0:
                key, answer = names.fold(name), _for_replay(received)
                self._memory.put(key, CachedAnswer(answer, wall, now + lifetime, lifetime))
                if self._disk is not None:
                    self._disk.put(self.view, key, answer, wall, wall + lifetime)

    def rule(self, naptr: Naptr, *, undotted: Labels | None, budget: Budget) -> Rule:
        """``naptr.record.read``, with a cache for regexps."""
        with self._rules_lock:
            return self._rules(naptr, undotted=undotted, budget=budget)

    def fresh(self, ark: Ark) -> Fresh:
        """Return the walk over fresh answers, reused from another ARK of the NAAN if both ask the same questions, for
        the second in which the TTLs are the same."""
        known = self._replays.get(ark.naan)
        if known is not None and known.holds() and (same := known.of(ark)) is not None:
            return same
        made = Replay(self, ark, self.settings).run()
        if made.shared is not None:
            self._replays.put(ark.naan, made)
        return Fresh(made.found, made.refresh_at, made.missing, made.has_some)

    def is_kept(self, name: Labels, answer: CachedAnswer) -> bool:
        """Return whether this is the answer for the name in memory."""
        return self._memory.get(name) is answer

    def any_age(self, ark: Ark, outcome: Outcome, note: str) -> Discovery:
        """Return the discovery from fresh and stale answers; a name without any gets ``outcome`` and ``note``."""
        found = Replay(self, ark, self.settings, absent=Answer(outcome, note=note)).run().found
        assert found is not None  # noqa: S101 - every name has an answer, ``absent`` if no other
        return found

    def has_candidate(self, ark: Ark) -> bool:
        if self.get(self.root(ark), self.clock()) is None:
            return False
        return bool(self.any_age(ark, Outcome.UNREACHABLE, "").candidates)

    def combine(self, ark: Ark, other: Discovery) -> Discovery | None:
        """Return the discovery from another ARK's discovery and the fresh answers; None if an answer is missing."""
        received = reusable_answers(other).items()
        new: dict[Labels, Answer] = {
            names.fold(name): _for_replay(answer) for name, answer in received if answer.outcome.answered
        }
        kept = Replay(self, ark, self.settings)
        walk = replay(ark, self.settings, lambda name: new.get(name) or kept.answer(name), reader=self.rule)
        return None if walk is None else walk.result()

    def forget(self, name: Labels) -> None:
        self._memory.drop(name)
        if self._disk is not None:
            self._disk.drop(self.view, name)

    def clear(self) -> None:
        """Drop everything in memory, and the answers of this view on disk."""
        self._memory.clear()
        if self._disk is not None:
            self._disk.clear(self.view)

    def get(self, name: Labels, now: float) -> CachedAnswer | None:
        """Return the answer for a name, from disk if memory has no fresh one; None past the stale limit."""
        kept = self._memory.get(name)
        if kept is None or kept.expires <= now:
            kept = self._from_disk(name, now) or kept
        return kept if kept is not None and kept.expires + self._stale_limit > now else None

    def _from_disk(self, name: Labels, now: float) -> CachedAnswer | None:
        row = self._disk.get(self.view, name) if self._disk is not None else None
        if row is None:
            return None
        answer, fetched, expires = row
        wall = self.wall()
        lifetime = max(0.0, min(expires - fetched, _longest_lifetime(answer)))
        left = min(expires - wall, fetched + lifetime - wall, lifetime)  # a damaged row may expire in a million years
        if fetched > wall + CLOCK_SLACK:
            left = 0.0  # the clock went back, or another machine wrote the row: its age is unknown
        kept = CachedAnswer(answer, fetched, now + left, lifetime)
        self._memory.put(name, kept)
        return replace(kept, layer="disk")


class Fresh(NamedTuple):
    """The discovery from fresh answers, None if ``missing`` has none, and when the first of them should be fetched.

    ``has_some``: an answer is cached for a name on the way, fresh or stale.
    """

    found: Discovery | None
    refresh_at: float
    missing: Labels = ()
    has_some: bool = True


class Replay:
    """One walk over cached answers.

    ``found`` is its discovery; None if ``missing`` has no answer. ``refresh_at``: when the first answer should be
    fetched again. Stale answers count only if ``absent``, the answer for names without any, is given.
    """

    def __init__(self, store: Store, ark: Ark, settings: Settings, *, absent: Answer | None = None) -> None:
        self._store = store
        self._ark = ark
        self._settings = settings
        self._absent = absent
        self._now = store.clock()  # once: an answer that expires at once is fresh for the whole walk or not at all
        self._fetched: float | None = None
        self._source = "memory"
        self._stale = False
        self.refresh_at = float("inf")
        self.missing: Labels = ()
        self.has_some = False
        self.found: Discovery | None = None
        self.shared: SharedWalk | None = None  # for the other ARKs of its NAAN
        self._until = float("inf")  # when a TTL changes, which counts whole seconds
        self._used: list[tuple[Labels, CachedAnswer]] = []

    def run(self) -> Replay:
        walk = replay(self._ark, self._settings, self.answer, reader=self._store.rule)
        if walk is not None:
            self.found = walk.result(source=self._source, fetched=self._fetched, stale=self._stale)
            if self._absent is None and self._source == "memory":
                self.shared = SharedWalk.of(walk, self.found)
        return self

    def holds(self) -> bool:
        """Return whether it would be the same if it ran now."""
        now = self._store.clock()
        return self._now <= now < self._until and all(self._store.is_kept(name, kept) for name, kept in self._used)

    def of(self, ark: Ark) -> Fresh | None:
        """Return the walk for another ARK of the NAAN; None if that one must run by itself."""
        found = None if self.shared is None else self.shared.discovery(ark.sent(self._settings.hyphens))
        return None if found is None else Fresh(found, self.refresh_at)

    def answer(self, name: Labels) -> Answer | None:
        kept = self._store.get(name, self._now)
        self.has_some = self.has_some or kept is not None
        fresh = kept is not None and kept.expires > self._now
        if kept is None or (not fresh and self._absent is None):
            self.missing = name
            return self._absent
        self._fetched = kept.fetched if self._fetched is None else min(self._fetched, kept.fetched)
        self.refresh_at = min(self.refresh_at, kept.expires - kept.lifetime * REFRESH_PART)
        if kept.layer == "disk":
            self._source = "disk"
        if fresh:
            left = kept.expires - self._now
            self._used.append((name, kept))
            self._until = min(self._until, self._now + left % 1)
            return kept.answer._replace(ttl=max(0, int(left)))
        self._stale = True
        return kept.answer._replace(ttl=STALE_TTL)


def _for_replay(answer: Answer) -> Answer:
    """Return an answer without what is true only of the query that brought it: its time and its chain of trust."""
    records = NaptrRRset.of(answer.records)
    return Answer(answer.outcome, records, answer.ttl, answer.note, answer.server, security=answer.security)


def replay(
    ark: Ark,
    settings: Settings,
    answer: Callable[[Labels], Answer | None],
    *,
    reader: Reader,
) -> Walk | None:
    """Return the walk of an ARK over known answers; None as soon as ``answer`` has none for a name.

    Raises ValueError if NAAN and origin do not make a valid domain name.
    """
    root = root_name(ark, settings.origin)
    first = answer(names.fold(root))
    if first is None:
        return None
    walk = Walk(ark, settings, reader=reader, origin_known=True, root=root)
    walk.tell(walk.next()[0], first)
    while questions := walk.next():
        for question in questions:
            known = answer(names.fold(question.name))
            if known is None:
                return None
            walk.tell(question, known)
    return walk


def _longest_lifetime(answer: Answer) -> int:
    """Return the longest time that an answer may be cached, in seconds; 0 if DNS did not say (RFC 2308 section 5)."""
    if not answer.outcome.answered:
        return 0
    return MAX_KEEP if answer.outcome is Outcome.ANSWER and answer.records else MAX_NEGATIVE
