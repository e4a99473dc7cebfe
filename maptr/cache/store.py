"""The layers as one: answers kept in memory and on disk, walked again for any ARK, fresh or within the limit for
stale ones. Learns from every discovery; asks nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maptr.ark import Ark
from maptr.cache import STALE_LIMIT
from maptr.cache.memory import Kept, Key, Memory, keeping_time, longest_keeping
from maptr.cache.replay import answers_of, walk_again
from maptr.discovery import CLOCK_SLACK, Discovery, Outcome
from maptr.files import ForkLock
from maptr.naptr.automaton import Budget
from maptr.naptr.record import Naptr, Rule, RuleCache
from maptr.protocol.names import Labels
from maptr.walk import Answer, Settings

if TYPE_CHECKING:
    from maptr.cache.disk import Disk

STALE_TTL = 30  # seconds; RFC 8767 section 4: the TTL of a stale answer
REFRESH_PART = 0.1  # of a lifetime: an answer used in this last part of it is asked again ahead


class LockedRules:
    """Rules read once for many walks, in many threads."""

    def __init__(self) -> None:
        self._rules = RuleCache()
        self._lock = ForkLock()

    def __call__(self, naptr: Naptr, *, undotted: Labels | None, budget: Budget) -> Rule:
        with self._lock:
            return self._rules(naptr, undotted=undotted, budget=budget)


@dataclass(slots=True)
class Found:
    """A discovery made of kept answers, with what the walk met on the way."""

    discovery: Discovery
    refresh_at: float
    stale: bool = False


class Store:
    """Memory in front of disk. ``clock`` is steady and tells what is fresh; ``wall`` is what the disk understands."""

    def __init__(
        self,
        memory: Memory,
        disk: Disk | None,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        stale_limit: float = STALE_LIMIT,
    ) -> None:
        self.memory = memory
        self.disk = disk
        self._clock = clock
        self._wall = wall
        self._stale_limit = stale_limit
        self.reader = LockedRules()

    def learn(self, view: str, discovery: Discovery) -> None:
        """Keep every answer that DNS gave in the course of a discovery."""
        now, wall = self._clock(), self._wall()
        for name, answer in answers_of(discovery):
            lifetime = keeping_time(answer)
            if lifetime:
                self.memory.put((view, name), Kept(answer, wall, now + lifetime, lifetime))
                if self.disk is not None:
                    self.disk.put(view, name, answer, wall, wall + lifetime)

    def lacks(self, view: str, ark: Ark, settings: Settings) -> tuple[Found | None, Labels]:
        """The discovery that fresh answers give; or None, and the first name that lacks one."""
        walk = _Rewalk(self, view)
        discovery = walk_again(ark, settings, walk.look_up, self.reader)
        return (walk.found(discovery), ()) if discovery is not None else (None, walk.lacking)

    def all_there_is(
        self, view: str, ark: Ark, settings: Settings, why: str, outcome: Outcome = Outcome.UNREACHABLE
    ) -> Found:
        """The discovery that fresh and stale answers give, the rest unsaid: ``outcome``, with ``why`` as its note."""
        walk = _Rewalk(self, view, unsaid=Answer(outcome, note=why))
        discovery = walk_again(ark, settings, walk.look_up, self.reader)
        assert discovery is not None  # noqa: S101 - every name got an answer, if only that it is unsaid
        return walk.found(discovery)

    def helps(self, view: str, ark: Ark, settings: Settings, root: Key) -> bool:
        """True where fresh and stale answers give a candidate."""
        return self.get(*root, self._clock()) is not None and bool(
            self.all_there_is(view, ark, settings, "").discovery.candidates
        )

    def share(self, view: str, ark: Ark, settings: Settings, other: Discovery) -> Discovery | None:
        """What another ARK's discovery, just made, and the fresh answers kept say of this one; None if they do not."""
        said = {name: answer for name, answer in answers_of(other) if answer.outcome.said}
        walk = _Rewalk(self, view)
        return walk_again(ark, settings, lambda name: said.get(name) or walk.look_up(name), self.reader)

    def forget(self, view: str, name: Labels) -> None:
        """Keep nothing for a name any more."""
        self.memory.drop((view, name))
        if self.disk is not None:
            self.disk.drop(view, name)

    def get(self, view: str, name: Labels, now: float) -> Kept | None:
        """The freshest answer kept for a name; one past the limit for stale ones is none.

        ``now`` is that of the clock, the same as what is fresh is told by: an answer of unknown age ends at once.
        """
        kept = self.memory.get((view, name))
        if (kept is None or kept.expires <= now) and self.disk is not None:
            kept = self._from_disk(view, name, now) or kept
        if kept is None or kept.expires + self._stale_limit <= now:
            return None
        return kept

    def _from_disk(self, view: str, name: Labels, now: float) -> Kept | None:
        row = self.disk.get(view, name) if self.disk is not None else None
        if row is None:
            return None
        answer, fetched, expires = row
        wall = self._wall()
        lifetime = max(0.0, min(expires - fetched, longest_keeping(answer)))
        left = min(expires - wall, fetched + lifetime - wall, lifetime)  # damaged, it might end when nobody lives
        if fetched > wall + CLOCK_SLACK:
            left = 0.0  # the clock went back, or another machine wrote this: its age cannot be known
        self.memory.put((view, name), Kept(answer, fetched, now + left, lifetime))
        return Kept(answer, fetched, now + left, lifetime, "disk")

    @property
    def now(self) -> float:
        return self._clock()


class _Rewalk:
    """One walk over what is kept: the answers it is given, and the worst that can be said of them."""

    def __init__(self, store: Store, view: str, *, unsaid: Answer | None = None) -> None:
        """``unsaid`` is the answer where none is kept, and then stale ones count; without, only fresh ones do."""
        self._store = store
        self._view = view
        self._unsaid = unsaid
        self._now = store.now
        self._fetched: float | None = None
        self._refresh_at = float("inf")
        self._source = "memory"
        self._stale = False
        self.lacking: Labels = ()

    def look_up(self, name: Labels) -> Answer | None:
        kept = self._store.get(self._view, name, self._now)
        fresh = kept is not None and kept.expires > self._now
        if kept is None or (self._unsaid is None and not fresh):
            if self._unsaid is None:
                self.lacking = name
            return self._unsaid
        self._fetched = kept.fetched if self._fetched is None else min(self._fetched, kept.fetched)
        self._refresh_at = min(self._refresh_at, kept.expires - kept.lifetime * REFRESH_PART)
        if kept.layer == "disk":
            self._source = "disk"
        if fresh:
            return kept.at(self._now)
        self._stale = True
        return kept.answer._replace(ttl=STALE_TTL)

    def found(self, discovery: Discovery) -> Found:
        made = discovery.replace(source=self._source, fetched=self._fetched, stale=self._stale)
        return Found(made, self._refresh_at, self._stale)
