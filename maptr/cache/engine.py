"""Decides which source answers: cached answers, DNS or the table.

``Engine.discover`` is a generator that sends no queries: it yields a ``Wait`` for each lookup, and a driver starts the
lookup and waits. Threads and tasks share one engine.
"""

from __future__ import annotations

import logging
import random
from typing import NamedTuple

import dns.exception

from maptr.ark import Ark
from maptr.cache import PATIENCE
from maptr.cache.lookups import CircuitBreakers, PendingLookup, PendingLookups, Steps, Wait
from maptr.cache.policy import Choice, SourcePolicy, Take
from maptr.cache.store import Fresh, Store
from maptr.cache.table import TableAnswer, TableReader
from maptr.discovery import CLOCK_SLACK, Discovery, DiscoveryError, NoServer, Outcome, Step
from maptr.protocol.names import Labels, fold
from maptr.registry.followed_file import TableSource
from maptr.resolver.call import Deadline, Lifetime
from maptr.states import Dns, Natab, States
from maptr.walk import root_name

log = logging.getLogger("maptr.cache")

GRACE = 0.5  # seconds past its deadline in which a lookup may report that its time is over
ROUNDS = 3  # lookups that one caller waits for: the redirects of one ARK need not be those of another
OVERHEAD = 0.004  # seconds of the patience that are left for waking up and for answering from the table
ALL = "all servers"  # the key of the circuit breaker for all servers
# Failures that affect every name. Others, such as SERVFAIL, may be limited to one delegation.
SHARED = frozenset({Outcome.TIMEOUT, Outcome.UNREACHABLE, Outcome.REFUSED, Outcome.NO_ORIGIN})
# What may be taken, by where it comes from.
_OF_TABLE, _OF_DNS, _WITHOUT = (
    (Take.NATAB, Take.NATAB_STALE),
    (Take.DNS, Take.KEPT, Take.NONE),
    (Take.NONE, Take.UNKNOWN),
)
REUSE_SECONDS = 1.0  # for which a discovery is handed out unchanged: its TTL counts whole seconds


class FromDns(NamedTuple):
    """What DNS says about an ARK: its state, the discovery, and the time at which to fetch it again."""

    state: Dns
    found: Discovery
    refresh_at: float = 0.0


class Engine:
    """Cached answers, pending lookups, circuit breakers, table and policy. Safe for threads and tasks.

    Settings and clocks are the store's. The other options are those of ``maptr.Client``.
    """

    def __init__(
        self,
        store: Store,
        policy: SourcePolicy,
        table: TableSource,
        *,
        patience: float = PATIENCE,
        table_limit: float | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.store = store
        self.policy = policy
        self.table = table
        self._settings = store.settings
        self._patience = patience
        self._table_limit = table_limit
        self._clock, self._wall = store.clock, store.wall
        rng = rng or random.Random()
        self._servers = CircuitBreakers(rng, self._clock)
        self._names = CircuitBreakers(rng, self._clock, threshold=1)
        self._pending = PendingLookups(self._clock)
        self._table_reader = TableReader()
        self._answers: bool | None = None  # whether DNS answered when a caller waited for it; None: none has waited yet
        self._logged = ""  # the last internal error

    def discover(self, ark: Ark, lifetime: Lifetime) -> Steps[tuple[Discovery, float]]:
        """Return the discovery, and the time of the monotonic clock until which it may be handed out again.

        A policy with ``takes_dns`` does not wait until the table is read if a fresh answer is cached.
        """
        policy = self.policy
        kept = None
        if policy.takes_dns:
            kept = self.store.fresh(ark)
            if kept.found and kept.refresh_at > self._clock():
                choice = policy.choose(Dns.ANSWERS, Natab.UNASKED)
                until = min(self._clock() + REUSE_SECONDS, kept.refresh_at)
                return self._make(ark, choice, kept.found, None), until
        natab, from_table = self._read_table(ark)
        state, found, until = Dns.UNASKED, None, 0.0  # the table answers as fast as a cached discovery
        if policy.asks(natab):
            helps = self._table_helps(natab)
            state, found, refresh_at = yield from self.from_dns(ark, lifetime, table_helps=helps, fresh=kept)
            until = min(self._clock() + REUSE_SECONDS, refresh_at)
        return self._make(ark, policy.choose(state, natab), found, from_table), until

    def _table_helps(self, natab: Natab) -> bool:
        return self.policy.choose(Dns.UNKNOWN, natab).take in _OF_TABLE

    def is_impatient(self, ark: Ark) -> bool:
        """Return whether to wait for DNS no longer than the patience: as far as is known it does not answer, and
        another source does."""
        if self._answers and not self._servers.is_open(ALL):
            return False
        return self._table_helps(self._read_table(ark)[0]) or self.store.has_candidate(ark)

    def at_once(self, ark: Ark) -> Discovery | None:
        """Return the discovery that needs no query now; None if DNS must be queried."""
        if (found := self.from_table(ark)) is not None:
            return found
        kept = self.store.fresh(ark).found
        return None if kept is None else self._from_both(kept)

    def from_table(self, ark: Ark) -> Discovery | None:
        """Return the discovery of the table alone; None if the policy needs the state of DNS."""
        if self.policy.takes_dns:
            return None
        natab, from_table = self._read_table(ark)
        if self.policy.asks(natab):
            return None
        return self._make(ark, self.policy.choose(Dns.UNASKED, natab), None, from_table)

    def choose(self, result: Discovery) -> Discovery:
        """Return the discovery that the policy chooses, given one that DNS just gave. Caches its answers."""
        self.learn(result)
        return self._from_both(result.replace(fetched=self._wall()))

    def _from_both(self, result: Discovery) -> Discovery:
        ark = result.ark
        if self.policy.takes_dns and result.candidates and result.security != "bogus":
            return self._make(ark, self.policy.choose(Dns.ANSWERS, Natab.UNASKED), result, None)
        natab, from_table = self._read_table(ark)
        if result.security == "bogus":
            state, found = Dns.BOGUS, result.replace(candidates=(), complete=False)
        elif result.complete or result.candidates:
            state, found = _state(result), result
        else:
            state, found, _ = self._any_age(ark, *_failure(result))
        return self._make(ark, self.policy.choose(state, natab), found, from_table)

    def finish(self, pending: PendingLookup, result: Discovery | Exception | None) -> None:
        """Record the result of a lookup, and hand it to all that wait.

        None: the caller that asked has stopped, and the others ask themselves. A DNS error becomes an incomplete
        discovery; any other exception is raised to the callers.
        """
        ark = pending.ark
        if isinstance(result, DiscoveryError) and not isinstance(result, NoServer):
            result = result.discovery
        elif isinstance(result, dns.exception.DNSException | OSError):
            result = self.not_asked(ark, str(result) or type(result).__name__)
        try:
            if isinstance(result, Discovery):
                self.learn(result)
            elif result is not None and repr(result) != self._logged:
                self._logged = repr(result)
                log.error("internal error while looking up %s: %s", ark, self._logged)
        finally:
            self._pending.finish(pending, result)

    def learn(self, result: Discovery) -> None:
        """Cache the answers of a discovery, and record which names and servers failed."""
        bogus = result.security == "bogus"
        if not bogus:
            self.store.learn(result)
        for step in result.trace:
            if step.outcome is not Outcome.LIMIT:
                name = fold(step.name)
                if step.outcome.answered and not bogus:
                    self._names.succeeded(name)
                else:
                    self._names.failed(name, f"{step.outcome.value} {step.note}".strip())
        if result.trace and result.trace[0].outcome.answered:
            self._answers = True
            self._servers.succeeded(ALL)
        else:
            outcome, note = _failure(result)
            if outcome in SHARED:
                self._servers.failed(ALL, f"{outcome.value} {note}".strip())

    def forget(self, naan: str | None) -> None:
        """Drop DNS's cached answer for a NAAN, and query it again even if that has failed; None: all answers."""
        if naan is None:
            self.store.clear()
            self._names.clear()
        else:
            name = self.store.root(Ark(naan, ""))
            self.store.forget(name)
            self._names.succeeded(name)
        self._servers.clear()
        self._answers = None

    def not_asked(self, ark: Ark, why: str) -> Discovery:
        """Return the discovery of a lookup that sent no query. ``why`` is the note of its only step."""
        step = Step(root_name(ark, self._settings.origin), 0, Outcome.UNREACHABLE, note=why)
        return Discovery(ark, (), (step,), complete=False)

    def _read_table(self, ark: Ark) -> tuple[Natab, TableAnswer | None]:
        state = self.table.current()
        too_old = (
            self._table_limit is not None
            and state.fetched is not None
            # A time in the future means an unknown age, because the clock was set back, and counts as too old.
            and not -CLOCK_SLACK <= self._wall() - state.fetched <= self._table_limit
        )
        return self._table_reader.read(ark, self._settings, state, too_old=too_old)

    def from_dns(
        self, ark: Ark, lifetime: Lifetime, *, table_helps: bool = False, fresh: Fresh | None = None
    ) -> Steps[FromDns]:
        """Return what DNS says: cached answers if they are fresh, else what a lookup finds, which other callers share.

        Without an answer in time, cached answers of any age count. ``table_helps``: the table answers if DNS does not.
        ``fresh`` are the cached answers, if the caller already has them.
        """
        deadline = Deadline.of(lifetime, self._clock)
        note = ""
        for _ in range(ROUNDS):
            kept = fresh or self.store.fresh(ark)
            fresh = None
            if kept.found is not None:
                yield from self._refresh(ark, kept, deadline)
                return FromDns(_state(kept.found), kept.found, kept.refresh_at)
            if not self._may_ask(kept.missing):
                why = self._names.why(kept.missing) or self._servers.why(ALL)
                return self._any_age(ark, Outcome.UNREACHABLE, f"not asked again yet: {why}")
            pending, is_new = self._pending.join(ark, self.store.root(ark), deadline)
            if pending is None:
                return self._any_age(ark, Outcome.UNREACHABLE, "not asked: too many lookups in flight")
            is_troubled = self._servers.is_open(ALL) or self._names.is_open(kept.missing)
            if table_helps or (kept.has_some and self.store.has_candidate(ark)):
                yield Wait(pending, is_new, self._patience_left(pending, deadline, is_troubled=is_troubled))
            else:
                yield Wait(pending, is_new, _seconds(deadline), inline=True)
            if not pending.done.done():
                if is_new and not is_troubled:
                    self._answers = False
                    self._servers.failed(ALL, Outcome.TIMEOUT.value)
                return self._any_age(ark, Outcome.TIMEOUT, "still being asked")
            if pending.done.cancelled():
                note = "the program stopped waiting"
                continue
            ended = self._ended(ark, pending.done.result(), is_own=is_new)
            if ended is not None:
                return ended
        return self._any_age(ark, Outcome.UNREACHABLE, note)

    def _refresh(self, ark: Ark, kept: Fresh, deadline: Deadline) -> Steps[None]:
        """Start a lookup in the background if a fresh answer soon expires."""
        root = self.store.root(ark)
        if kept.refresh_at <= self._clock() and self._may_ask(root):
            pending, is_new = self._pending.join(ark, root, deadline)
            if pending is not None and is_new:
                yield Wait(pending, start=True, seconds=0.0)

    def _patience_left(self, pending: PendingLookup, deadline: Deadline, *, is_troubled: bool) -> float:
        """Return the seconds to wait for a lookup when another source can answer."""
        if is_troubled or self._answers is False:
            return 0.0
        patience = self._patience - OVERHEAD - (self._clock() - pending.started)
        return min(max(0.0, patience), _seconds(deadline))

    def _ended(self, ark: Ark, result: Discovery, *, is_own: bool) -> FromDns | None:
        """Return what a lookup says about an ARK; None if it was for another one, with other redirects."""
        if result.security == "bogus":
            return FromDns(Dns.BOGUS, result.replace(candidates=(), complete=False))
        found = result if is_own else self.store.combine(ark, result)
        if found is not None and (found.complete or found.candidates):
            return FromDns(_state(found), found.replace(fetched=self._wall()))
        return None if result.complete else self._any_age(ark, *_failure(result))

    def _any_age(self, ark: Ark, outcome: Outcome, note: str) -> FromDns:
        """Return what fresh and stale answers say, because DNS does not answer now."""
        found = self.store.any_age(ark, outcome, note)
        if found.candidates:
            return FromDns(Dns.KEPT if found.stale else Dns.ANSWERS, found)
        return FromDns(Dns.UNKNOWN, found.replace(complete=False))

    def _may_ask(self, name: Labels) -> bool:
        return self._names.admits(name) and self._servers.admits(ALL)

    def _make(self, ark: Ark, choice: Choice, from_dns: Discovery | None, from_table: TableAnswer | None) -> Discovery:
        reason, states = choice.reason, States(choice.dns, choice.natab)
        if choice.take in _OF_TABLE and from_table is not None:
            stale, before = choice.take is Take.NATAB_STALE, () if from_dns is None else from_dns.trace
            reason = f"{reason}: {from_table.reason}"
            return from_table.discovery(self._wall(), reason, states, stale=stale, before=before)
        if choice.take in _OF_DNS and from_dns is not None:
            made = from_dns
        else:
            complete = choice.take is Take.NONE
            source = "natab" if from_dns is None else from_dns.source
            trace, security = ((), "indeterminate") if from_dns is None else (from_dns.trace, from_dns.security)
            made = Discovery(ark, (), trace, complete, source, security, scheme=self._settings.scheme)
        if choice.take in _WITHOUT and choice.natab is not Natab.UNASKED:
            why = self.table.current().trouble if from_table is None else from_table.reason
            reason = f"{reason}: {why}" if why else reason
        return made.expiring(self._wall(), reason=reason, states=states)


def _seconds(deadline: Deadline) -> float:
    """Return how long a caller waits for a lookup; never 0, which would be no wait."""
    return max(0.001, deadline.left() + GRACE)


def _state(discovery: Discovery) -> Dns:
    if discovery.candidates:
        return Dns.ANSWERS
    return Dns.NONE if discovery.complete else Dns.UNKNOWN


def _failure(discovery: Discovery) -> tuple[Outcome, str]:
    """Outcome and note of the first question that DNS did not answer."""
    failed = next((step for step in discovery.trace if not step.outcome.answered), None)
    return (failed.outcome, failed.note) if failed is not None else (Outcome.UNREACHABLE, "DNS did not answer")
