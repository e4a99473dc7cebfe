"""One call to a cache, without waiting: the steps from what is kept, through DNS and the table, to a discovery.

``steps`` is a generator of values. Whoever drives it flies and waits as each ``Wait`` says, and nothing more; so the
sync and the async twin differ only in how they wait (``driving`` and ``driving_async``).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass

import dns.exception

from maptr.cache.breaker import Circuits
from maptr.cache.flight import Flight, Flights
from maptr.cache.from_table import TableReader
from maptr.cache.memory import Key
from maptr.cache.policy import Choice, Dns, Natab, Policy, Take
from maptr.cache.request import Request
from maptr.cache.store import Store
from maptr.discovery import CLOCK_SLACK, Discovery, DiscoveryError, Outcome, Step
from maptr.protocol.names import fold
from maptr.registry.followed_file import TableState
from maptr.walk import Walk

log = logging.getLogger("maptr.cache")

GRACE = 0.5  # seconds past its lifetime that a discovery may take to say that it is over
ROUNDS = 3  # discoveries that one caller waits for: another ARK's may not have led where this one's does
AFTERWARDS = 0.004  # seconds of the patience for what follows it: to wake up, and to answer from the table
READY_SECONDS = 1.0  # that a discovery is handed out as it is: its TTL counts in whole seconds


@dataclass(frozen=True, slots=True)
class Wait:
    """What a driver is asked to do: fly where the caller has to, then wait so many seconds, 0 for not at all."""

    flight: Flight
    request: Request
    fly: bool
    seconds: float
    inline: bool = False  # nothing else can answer: the caller may as well fly it himself


Steps = Generator[Wait, None, tuple[Discovery, float]]


class Answering:
    """What calls share: the answers kept, the questions under way, and who did not answer. For threads and tasks."""

    def __init__(
        self,
        store: Store,
        *,
        patience: float,
        table_limit: float | None,
        clock: Callable[[], float],
        wall: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self.store = store
        self._patience = patience
        self._table_limit = table_limit
        self._clock, self._wall = clock, wall
        self._servers = Circuits(rng, clock)
        self._names = Circuits(rng, clock, threshold=1)
        self._flights = Flights(clock)
        self._reader = TableReader(store.reader)

    def steps(self, request: Request, policy: Policy, table: Callable[[], TableState]) -> Steps:
        """Ends with the discovery, and when by the steady clock it is to be made anew.

        A policy that takes what DNS says whatever the table has is not kept waiting while a table is read.
        """
        if getattr(policy, "takes_dns", False):
            kept, _ = self.store.lacks(request.view, request.ark, request.settings)
            if kept is not None and kept.discovery.candidates and kept.refresh_at > self._clock():
                choice = policy.choose(Dns.ANSWERS, Natab.MISSING)
                until = min(self._clock() + READY_SECONDS, kept.refresh_at)
                return self._made(request, choice, kept.discovery, None), until
        natab, offered = self._look(request, table)
        said, found, until = Dns.UNASKED, None, self._clock() + READY_SECONDS
        if policy.asks(natab):
            helps = policy.choose(Dns.SILENT, natab).take in (Take.NATAB, Take.NATAB_STALE)
            said, found, refresh_at = yield from self._from_dns(request, table_helps=helps)
            until = min(until, refresh_at)
        return self._made(request, policy.choose(said, natab), found, offered), until

    def unasked(self, request: Request, policy: Policy, table: Callable[[], TableState]) -> Discovery | None:
        """What a policy makes of the table alone; None where it has DNS asked."""
        natab, offered = self._look(request, table)
        if policy.asks(natab):
            return None
        return self._made(request, policy.choose(Dns.UNASKED, natab), None, offered)

    def judge(self, request: Request, policy: Policy, table: Callable[[], TableState], result: Discovery) -> Discovery:
        """What a policy makes of what DNS said just now to somebody who asked without the cache."""
        if getattr(policy, "takes_dns", False) and result.candidates and result.security != "bogus":
            choice = policy.choose(Dns.ANSWERS, Natab.MISSING)
            return self._made(request, choice, result.replace(fetched=self._wall()), None)
        natab, offered = self._look(request, table)
        if result.security == "bogus":
            said, found = Dns.BOGUS, result.replace(candidates=(), complete=False)
        elif result.complete or result.candidates:
            said, found = _said(result), result.replace(fetched=self._wall())
        else:
            said, found, _ = self._unsaid(request, *_unheard(result))
        return self._made(request, policy.choose(said, natab), found, offered)

    def _look(self, request: Request, table: Callable[[], TableState]) -> tuple[Natab, Discovery | None]:
        """What the table says."""
        state = table()
        too_old = (
            self._table_limit is not None
            and state.fetched is not None
            # Unknown is too old where there is a limit: a clock was set since.
            and not -CLOCK_SLACK <= self._wall() - state.fetched <= self._table_limit
        )
        return self._reader.read(request.ark, request.settings, state, too_old=too_old)

    def _from_dns(
        self, request: Request, *, table_helps: bool
    ) -> Generator[Wait, None, tuple[Dns, Discovery | None, float]]:
        """What DNS says, what it found, and when that is to be asked again."""
        why, outcome = "", Outcome.UNREACHABLE
        deadline = self._clock() + request.lifetime + GRACE
        for _ in range(ROUNDS):
            kept, lacking = self.store.lacks(request.view, request.ark, request.settings)
            if kept is not None:
                if kept.refresh_at <= self._clock() and self._may_ask(request, request.key):
                    yield from self._refresh(request)
                return _said(kept.discovery), kept.discovery, kept.refresh_at
            key = (request.view, lacking)
            troubled = self._servers.is_open(request.view) or self._names.is_open(key)
            if not self._may_ask(request, key):
                why = f"not asked again yet: {self._names.why(key) or self._servers.why(request.view)}"
                break
            flight, fly = self._flights.join(request.key, request.lifetime)
            if flight is None:
                why = "not asked: too many questions are under way"
                break
            helped = table_helps or self.store.helps(request.view, request.ark, request.settings, request.key)
            seconds = max(0.001, deadline - self._clock())
            if helped:
                patience = 0.0 if troubled else self._patience - AFTERWARDS - (self._clock() - flight.started)
                seconds = min(max(0.0, patience), seconds)
            yield Wait(flight, request, fly, seconds, inline=not helped)
            if not flight.landed.done():
                why, outcome = "still being asked", Outcome.TIMEOUT
                if fly and not troubled:
                    self._servers.failed(request.view, outcome.value)
                break
            result = flight.landed.result()
            if result.security == "bogus":
                return Dns.BOGUS, result.replace(candidates=(), complete=False), 0.0
            found = result if fly else self.store.share(request.view, request.ark, request.settings, result)
            if found is not None and (found.complete or found.candidates):
                return _said(found), found.replace(fetched=self._wall()), 0.0
            if not result.complete:
                why, outcome = _unheard(result)
                break
        return self._unsaid(request, why, outcome)

    def _unsaid(self, request: Request, why: str, outcome: Outcome) -> tuple[Dns, Discovery, float]:
        """What is left where DNS does not say: what is kept, past its time or not."""
        there = self.store.all_there_is(request.view, request.ark, request.settings, why, outcome)
        if there.discovery.candidates:
            return (Dns.KEPT if there.stale else Dns.ANSWERS), there.discovery, 0.0
        return Dns.SILENT, there.discovery.replace(complete=False), 0.0

    def _may_ask(self, request: Request, key: Key) -> bool:
        return self._names.admits(key) and self._servers.admits(request.view)

    def _refresh(self, request: Request) -> Generator[Wait, None, None]:
        flight, fly = self._flights.join(request.key, request.lifetime)
        if flight is not None and fly:
            yield Wait(flight, request, fly=True, seconds=0.0)

    def _made(self, request: Request, choice: Choice, found: Discovery | None, offered: Discovery | None) -> Discovery:
        reason = choice.reason
        if choice.take in (Take.NATAB, Take.NATAB_STALE) and offered is not None:
            made = offered.replace(stale=choice.take is Take.NATAB_STALE)
            if found is not None:
                made = made.replace(trace=(*found.trace, *offered.trace))
        elif choice.take in (Take.DNS, Take.KEPT, Take.NONE) and found is not None:
            made = found
        else:
            complete = choice.take is Take.NONE
            source = "natab" if found is None else found.source
            asked, security = ((), "indeterminate") if found is None else (found.trace, found.security)
            made = Discovery(request.ark, (), asked, complete, source, security, scheme=request.settings.scheme)
            if offered is not None and offered.reason:
                reason = f"{reason}: {offered.reason}"
        return made.expiring(self._wall(), reason=reason)

    # ---- what comes of asking

    def landed(self, flight: Flight, request: Request, result: Discovery) -> None:
        """Learn from a discovery and hand it to all who wait, whatever happens."""
        try:
            self.learn(request.view, result)
        finally:
            self._flights.land(flight, result)

    def failed(self, flight: Flight, request: Request, error: BaseException) -> None:
        """A discovery that raised: DNS did not say; anything but an error of DNS is told to the caller as it is."""
        if isinstance(error, DiscoveryError) and error.discovery is not None:
            self.landed(flight, request, error.discovery)
        elif isinstance(error, dns.exception.DNSException | OSError):
            self.landed(flight, request, _unasked(request, str(error) or type(error).__name__))
        else:
            log.error("internal error, asking for %s: %r", request.ark, error)
            self._flights.land(flight, error)

    def given_up(self, flight: Flight, request: Request) -> None:
        """A discovery that nobody goes on with."""
        self._flights.land(flight, _unasked(request, "the program stopped waiting"))

    def learn(self, view: str, result: Discovery) -> None:
        """Keep what was said, and note who did not say."""
        bogus = result.security == "bogus"
        if not bogus:
            self.store.learn(view, result)
        for step in result.trace:
            if step.outcome is not Outcome.LIMIT:
                key = (view, fold(step.name))
                if step.outcome.said and not bogus:
                    self._names.succeeded(key)
                else:
                    self._names.failed(key, f"{step.outcome.value} {step.note}".strip())
        if result.trace and result.trace[0].outcome.said:
            self._servers.succeeded(view)
        else:
            self._servers.failed(view, _why(result))


def _said(discovery: Discovery) -> Dns:
    if discovery.candidates:
        return Dns.ANSWERS
    return Dns.NONE if discovery.complete else Dns.SILENT


def _why(discovery: Discovery) -> str:
    unsaid = next((step for step in discovery.trace if not step.outcome.said), None)
    return f"{unsaid.outcome.value} {unsaid.note}".strip() if unsaid is not None else "DNS did not say"


def _unheard(discovery: Discovery) -> tuple[str, Outcome]:
    """The same for a trace, which says how a question ended beside the note."""
    unsaid = next((step for step in discovery.trace if not step.outcome.said), None)
    return (unsaid.note, unsaid.outcome) if unsaid is not None else ("DNS did not say", Outcome.UNREACHABLE)


def _unasked(request: Request, why: str) -> Discovery:
    root = Walk(request.ark, request.settings).next()[0]
    step = Step(root.name, 0, Outcome.UNREACHABLE, note=why)
    return Discovery(request.ark, (), (step,), complete=False)
