"""Cache: discover() answered from memory, disk, DNS and a table, and from which it was, and how old, always told.

What to do next is one generator of values, ``_steps``; the sync and the async driver differ only in how they ask
and wait. A caller waits for DNS as long as its patience goes where something else can answer, the question goes on
without him, and the next caller finds its answer.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

import dns.exception
import dns.name

from maptr import asyncclient, client, drift
from maptr.ark import Ark
from maptr.bulk import discover_many
from maptr.cache import policy as policies
from maptr.cache.circuit import Circuits
from maptr.cache.disk import Disk
from maptr.cache.flight import Flight, Flights
from maptr.cache.fromtable import TableReader
from maptr.cache.kept import STALE_LIMIT, Store
from maptr.cache.memory import MAX_NAMES, Key, Memory
from maptr.cache.policy import Choice, Dns, Policy, Take
from maptr.cache.watched import FixedTable, WatchedTable, table_source
from maptr.call import LIFETIME, StepHook, origin_labels
from maptr.choose import Chooser
from maptr.discovery import Discovery, Outcome, Step
from maptr.drift import Drift, reconcile
from maptr.errors import DiscoveryError
from maptr.names import fold
from maptr.table import Table
from maptr.walk import Settings, Walk

log = logging.getLogger("maptr.cache")

PATIENCE = 0.3  # seconds a caller waits for DNS where something else can answer (RFC 8767 section 5 says 1.8)
GRACE = 0.5  # seconds past its lifetime that a discovery may take to say that it is over
ROUNDS = 3  # discoveries that one caller waits for: another ARK's may not have led where this one's does
READY_SECONDS = 1.0  # that a discovery is handed out as it is: its TTL counts in whole seconds
MAX_READY = 10_000

Ask = Callable[..., Discovery]
AskAsync = Callable[..., Awaitable[Discovery]]


@dataclass(frozen=True, slots=True)
class _Request:
    """One call: what is asked for, of whom, and how long it may take."""

    ark: Ark
    settings: Settings
    view: str
    lifetime: float
    resolver: Any
    origin: str | dns.name.Name

    @property
    def key(self) -> Key:
        return self.view, fold((self.ark.naan.encode(), *self.settings.origin))


@dataclass(frozen=True, slots=True)
class _Wait:
    """What a driver is asked to do: fly where the caller has to, then wait so many seconds, 0 for not at all."""

    flight: Flight
    request: _Request
    fly: bool
    seconds: float
    inline: bool = False  # nothing else can answer: the caller may as well fly it himself


_Steps = Generator[_Wait, None, tuple[Discovery, float]]


class Cache:
    """A discover() that remembers. One for many threads and tasks; its disk file may be shared by processes.

    ``natab`` is a Table, or a file of any registry format, followed as it changes. ``path`` is the SQLite file, None
    for no disk. ``policy`` says who is believed: see ``policy``. ``server`` and ``port`` name the server asked, by
    default the system's resolver. ``patience``: seconds to wait for DNS where a stale answer or the table has
    one. ``stale_limit``: seconds past its TTL that an answer may still be given where DNS is silent (RFC 8767).
    ``table_limit``: seconds after which a table that its source has not confirmed is stale, None for never.
    ``history``: the SQLite file of verdicts, by default ``path``. ``size``: names kept in memory. Raises ConfigError.
    """

    def __init__(
        self,
        natab: str | os.PathLike[str] | Table | None = None,
        path: str | os.PathLike[str] | None = None,
        policy: str | Policy = "dns-first",
        *,
        server: str | None = None,
        port: int = 53,
        origin: str | dns.name.Name = "ark.arpa.",
        lifetime: float | None = None,
        settings: Settings | None = None,
        patience: float = PATIENCE,
        stale_limit: float = STALE_LIMIT,
        table_limit: float | None = None,
        history: str | os.PathLike[str] | None = None,
        size: int = MAX_NAMES,
        ask: Ask | None = None,
        ask_async: AskAsync | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self.policy = policies.named(policy)
        self.table: WatchedTable | FixedTable = table_source(natab, clock)
        self._origin = origin
        self._settings = (settings or Settings())._replace(origin=origin_labels(origin))
        self._lifetime = LIFETIME if lifetime is None else lifetime
        self._patience = patience
        self._table_limit = table_limit
        self._view = "" if server is None else server if "#" in server else f"{server}#{port}"
        self._ask, self._ask_async = _askers(ask, ask_async, server, port)
        servers = None if server is None else [server if "#" in server else f"{server}#{port}"]
        self._bulk = partial(discover_many, nameservers=servers) if ask is None else None
        self._clock, self._wall = clock, wall
        self.disk = Disk(path, wall=wall) if path is not None else None
        self.history = Disk(history, wall=wall) if history is not None else self.disk
        self._store = Store(Memory(size), self.disk, clock=clock, wall=wall, stale_limit=stale_limit)
        rng = rng or random.Random()
        self._servers = Circuits(rng, clock)
        self._names = Circuits(rng, clock, threshold=1)
        self._flights = Flights(clock)
        self._reader = TableReader(self._store.reader)
        self._ready: OrderedDict[str, tuple[float, Discovery]] = OrderedDict()
        self._ready_lock = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def discover(
        self,
        ark: Ark | str | bytes,
        *,
        resolver: Any = None,
        origin: str | dns.name.Name | None = None,
        lifetime: float | None = None,
        raise_on_none: bool = True,
        chooser: Chooser | None = None,
        on_step: StepHook | None = None,
        settings: Settings | None = None,
    ) -> Discovery:
        """``maptr.discover``, from wherever the answer is to be had; its arguments default to the cache's own.

        The discovery says its ``source`` (dns, memory, disk, natab), its ``age``, whether it is ``stale``, and the
        ``reason``. Raises as ``maptr.discover`` does: NoMappingAuthority only where a side that may say none did.
        """
        plain = resolver is None and origin is None and chooser is None and on_step is None and settings is None
        if plain and type(ark) is str and (ready := self._from_ready(ark)) is not None:
            return ready
        request = self._request(ark, resolver, origin, lifetime, settings)
        steps = self._steps(request, self.policy)
        try:
            while True:
                wait = next(steps)
                if wait.fly and wait.inline:
                    self._fly(wait)
                elif wait.fly:
                    threading.Thread(target=self._fly, args=(wait,), name="maptr-ask", daemon=True).start()
                if wait.seconds:
                    concurrent.futures.wait([wait.flight.landed], timeout=wait.seconds)
        except StopIteration as done:
            found, until = done.value
        return self._finish(ark if plain else None, found, until, raise_on_none, chooser, on_step)

    async def discover_async(
        self,
        ark: Ark | str | bytes,
        *,
        resolver: Any = None,
        origin: str | dns.name.Name | None = None,
        lifetime: float | None = None,
        raise_on_none: bool = True,
        chooser: Chooser | None = None,
        on_step: StepHook | None = None,
        settings: Settings | None = None,
    ) -> Discovery:
        """``discover``, awaited. Cancelling it leaves the question under way for whoever else waits for it."""
        plain = resolver is None and origin is None and chooser is None and on_step is None and settings is None
        if plain and type(ark) is str and (ready := self._from_ready(ark)) is not None:
            return ready
        request = self._request(ark, resolver, origin, lifetime, settings)
        if isinstance(self.table, WatchedTable) and not self.table.is_read:
            await asyncio.to_thread(self.table.current)
        steps = self._steps(request, self.policy)
        try:
            while True:
                wait = next(steps)
                if wait.fly:
                    task = asyncio.get_running_loop().create_task(self._fly_async(wait))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                if wait.seconds and not wait.flight.landed.done():
                    await _landed(wait.flight, wait.seconds)
        except StopIteration as done:
            found, until = done.value
        return self._finish(ark if plain else None, found, until, raise_on_none, chooser, on_step)

    def drift(self, naan: str) -> list[Drift]:
        """The verdicts on a NAAN and its shoulders: the table against what DNS says, asked only where it is not kept.

        Verdicts are added to the history on disk, which is what tells a stale side from one that differs.
        """
        return next(self.drift_many([naan]))

    def drift_many(self, naans: Iterable[str] | None = None) -> Iterator[list[Drift]]:
        """``drift`` for many NAANs, in order, hundreds of questions under way at a time.

        None stands for every NAAN of the table, and every one in the history, so that what the table has lost is
        looked at too. Raises DiscoveryFailed for a server without address.
        """
        table = self.table.current().table or Table()
        histories = self.history.histories(self._view) if self.history is not None else {}
        if naans is None:
            naans = sorted({record.partition("/")[0] for record in [*table, *histories]})
        naans = list(naans)
        verdicts: list[Drift] = []
        try:
            for naan, answer in self._asked(naans, table):
                say = self._say if answer is None else partial(self._say_after, answer)
                found = list(reconcile(naan, table, say, lambda record: histories.get(record, drift.NO_HISTORY)))
                verdicts += found
                yield found
        finally:
            if self.history is not None:
                self.history.record(self._view, verdicts)

    def _asked(self, naans: list[str], table: Table) -> Iterator[tuple[str, Discovery | None]]:
        """Each NAAN, with the discovery of its probe where that was asked just now; its answers are then kept."""
        probes = {naan: drift.probe_of(naan, "", [entry.shoulder for entry in table.shoulders(naan)]) for naan in naans}
        lacking = {naan for naan in naans if self._store.lacks(self._view, probes[naan], self._settings)[0] is None}
        answers: Iterator[Discovery] = iter(())
        if self._bulk is not None:
            answers = self._bulk(
                [probes[naan] for naan in naans if naan in lacking],
                origin=self._origin,
                settings=self._settings,
                lifetime=self._lifetime,
            )
        for naan in naans:
            answer = next(answers, None) if naan in lacking else None
            if answer is not None:
                self._learn(self._view, answer)
            yield naan, answer

    async def drift_async(self, naan: str) -> list[Drift]:
        """``drift``, awaited, in a thread."""
        return await asyncio.to_thread(self.drift, naan)

    def follow(self, natab: str | os.PathLike[str] | Table | None) -> None:
        """Take another table from now on; what DNS said is kept. Raises ConfigError."""
        self.table = table_source(natab, self._clock)
        with self._ready_lock:
            self._ready.clear()

    def forget(self, naan: str) -> None:
        """Ask DNS again for a NAAN when it is next wanted: for whoever knows that it was just changed."""
        root = fold((naan.lower().encode(), *self._settings.origin))
        self._store.forget(self._view, root)
        with self._ready_lock:
            self._ready.clear()

    def close(self) -> None:
        """Close the files. Questions under way end by themselves."""
        for disk in (self.disk, self.history):
            if disk is not None:
                disk.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    # ---- one call, without waiting

    def _request(
        self,
        ark: Ark | str | bytes,
        resolver: Any,
        origin: str | dns.name.Name | None,
        lifetime: float | None,
        settings: Settings | None,
    ) -> _Request:
        parsed = ark if isinstance(ark, Ark) else Ark.parse(ark)
        made = self._settings
        if origin is not None or settings is not None:
            labels = origin_labels(origin) if origin is not None else made.origin
            made = (settings or made)._replace(origin=labels)
        view = self._view if resolver is None else _view(resolver)
        wanted = self._lifetime if lifetime is None else lifetime
        return _Request(parsed, made, view, wanted, resolver, self._origin if origin is None else origin)

    def _steps(self, request: _Request, policy: Policy) -> _Steps:
        state = self.table.current()
        too_old = (
            self._table_limit is not None
            and state.fetched is not None
            and self._wall() - state.fetched > self._table_limit
        )
        natab, offered = self._reader.read(request.ark, request.settings, state, too_old=too_old)
        said, found, until = Dns.UNASKED, None, self._clock() + READY_SECONDS
        if policy.asks(natab):
            helps = policy.choose(Dns.SILENT, natab).take in (Take.NATAB, Take.NATAB_STALE)
            said, found, refresh_at = yield from self._from_dns(request, table_helps=helps)
            until = min(until, refresh_at)
        return self._made(request, policy.choose(said, natab), found, offered), until

    def _from_dns(
        self, request: _Request, *, table_helps: bool
    ) -> Generator[_Wait, None, tuple[Dns, Discovery | None, float]]:
        """What DNS says, what it found, and when that is to be asked again."""
        why, outcome = "", Outcome.UNREACHABLE
        deadline = self._clock() + request.lifetime + GRACE
        for _ in range(ROUNDS):
            kept, lacking = self._store.lacks(request.view, request.ark, request.settings)
            if kept is not None:
                if kept.refresh_at <= self._clock() and self._may_ask(request, request.key):
                    yield from self._refresh(request)
                return _said(kept.discovery), kept.discovery, kept.refresh_at
            key = (request.view, lacking)
            troubled = self._servers.is_open(request.view) or self._names.is_open(key)
            if not self._may_ask(request, key):
                why = f"not asked again yet: {self._names.why(key) or self._servers.why(request.view)}"
                break
            flight, fly = self._flights.join(request.key)
            if flight is None:
                why = "not asked: too many questions are under way"
                break
            helped = table_helps or self._store.helps(request.view, request.ark, request.settings, request.key)
            seconds = max(0.001, deadline - self._clock())
            if helped:
                patience = 0.0 if troubled else self._patience - (self._clock() - flight.started)
                seconds = min(max(0.0, patience), seconds)
            yield _Wait(flight, request, fly, seconds, inline=not helped)
            if not flight.landed.done():
                why, outcome = "no answer in time", Outcome.TIMEOUT
                if fly and not troubled:
                    self._servers.failed(request.view, why)
                break
            result = flight.landed.result()
            if result.security == "bogus":
                return Dns.BOGUS, result.replace(candidates=(), complete=False), 0.0
            found = result if fly else self._store.share(request.view, request.ark, request.settings, result)
            if found is not None and (found.complete or found.candidates):
                return _said(found), found.replace(fetched=self._wall()), 0.0
            if not result.complete:
                why = _why(result)
                outcome = next((step.outcome for step in result.trace if not step.outcome.said), outcome)
                break
        there = self._store.all_there_is(request.view, request.ark, request.settings, why, outcome)
        if there.discovery.candidates:
            return (Dns.KEPT if there.stale else Dns.ANSWERS), there.discovery, 0.0
        return Dns.SILENT, there.discovery.replace(complete=False), 0.0

    def _may_ask(self, request: _Request, key: Key) -> bool:
        return self._names.admits(key) and self._servers.admits(request.view)

    def _refresh(self, request: _Request) -> Generator[_Wait, None, None]:
        flight, fly = self._flights.join(request.key)
        if flight is not None and fly:
            yield _Wait(flight, request, fly=True, seconds=0.0)

    def _made(self, request: _Request, choice: Choice, found: Discovery | None, offered: Discovery | None) -> Discovery:
        trace = found.trace if found is not None else ()
        if choice.take in (Take.NATAB, Take.NATAB_STALE) and offered is not None:
            made = offered.replace(trace=(*trace, *offered.trace), stale=choice.take is Take.NATAB_STALE)
        elif choice.take in (Take.DNS, Take.KEPT, Take.NONE) and found is not None:
            made = found
        else:
            complete = choice.take is Take.NONE
            source = "natab" if found is None else found.source
            made = Discovery(request.ark, (), trace, complete, source, scheme=request.settings.scheme)
        return made.replace(reason=choice.reason).expiring(self._wall())

    # ---- asking, and what comes of it

    def _fly(self, wait: _Wait) -> None:
        flight, request = wait.flight, wait.request
        try:
            result = self._ask(request.ark, **self._ask_options(request))
        except BaseException as error:
            self._failed(flight, request, error)
        else:
            self._landed(flight, request, result)

    async def _fly_async(self, wait: _Wait) -> None:
        flight, request = wait.flight, wait.request
        try:
            result = await self._ask_async(request.ark, **self._ask_options(request))
        except asyncio.CancelledError:
            self._flights.land(flight, _unasked(request, "the program stopped waiting"))
            raise
        except BaseException as error:
            self._failed(flight, request, error)
        else:
            self._landed(flight, request, result)

    def _ask_options(self, request: _Request) -> dict[str, Any]:
        options = {
            "origin": request.origin,
            "lifetime": request.lifetime,
            "settings": request.settings,
            "raise_on_none": False,
        }
        return options if request.resolver is None else {**options, "resolver": request.resolver}

    def _failed(self, flight: Flight, request: _Request, error: BaseException) -> None:
        """A discovery that raised: DNS did not say; anything but an error of DNS is told to the caller as it is."""
        if isinstance(error, DiscoveryError) and error.discovery is not None:
            self._landed(flight, request, error.discovery)
        elif isinstance(error, dns.exception.DNSException | OSError):
            self._landed(flight, request, _unasked(request, str(error) or type(error).__name__))
        else:
            log.error("internal error, asking for %s: %r", request.ark, error)
            self._flights.land(flight, error)

    def _landed(self, flight: Flight, request: _Request, result: Discovery) -> None:
        """Learn from a discovery and hand it to all who wait, whatever happens."""
        try:
            self._learn(request.view, result)
        finally:
            self._flights.land(flight, result)

    def _learn(self, view: str, result: Discovery) -> None:
        """Keep what was said, and note who did not say."""
        bogus = result.security == "bogus"
        if not bogus:
            self._store.learn(view, result)
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

    def _say(self, ark: Ark) -> Discovery:
        """What DNS says of an ARK, for the verdict: never the table, never stale, never raised."""
        request = self._request(ark, None, None, None, None)
        steps = self._steps(request, policies.DnsOnly())
        try:
            while True:
                wait = next(steps)
                if wait.fly:
                    self._fly(wait)
                elif wait.seconds:
                    concurrent.futures.wait([wait.flight.landed], timeout=wait.seconds)
        except StopIteration as done:
            found: Discovery = done.value[0]
        return found.replace(complete=False) if found.stale else found

    def _say_after(self, asked: Discovery, ark: Ark) -> Discovery:
        """The same, one ARK of the NAAN having been asked just now: where that was not said, neither is the other."""
        if ark.resolution == asked.ark.resolution:
            return asked
        return self._say(ark) if asked.complete else asked.replace(ark=ark)

    # ---- handing out

    def _from_ready(self, ark: str) -> Discovery | None:
        ready = self._ready.get(ark)
        if ready is None or ready[0] <= self._clock():
            return None
        return ready[1]

    def _finish(
        self,
        text: Ark | str | bytes | None,
        found: Discovery,
        until: float,
        raise_on_none: bool,
        chooser: Chooser | None,
        on_step: StepHook | None,
    ) -> Discovery:
        if on_step is not None:
            for step in found.trace:
                on_step(step)
        if raise_on_none or not found.complete:
            found.raise_for_none()
        if type(text) is str and found.candidates and until > self._clock():
            with self._ready_lock:
                self._ready[text] = (until, found if found.source != "dns" else found.replace(source="memory"))
                self._ready.move_to_end(text)
                while len(self._ready) > MAX_READY:
                    self._ready.popitem(last=False)
        return found.preferring(chooser) if chooser is not None and found.candidates else found


def _askers(ask: Ask | None, ask_async: AskAsync | None, server: str | None, port: int) -> tuple[Ask, AskAsync]:
    if server is None:
        return ask or client.discover, ask_async or asyncclient.discover_async
    at = partial(client.discover_at, server, port=port)
    at_async = partial(asyncclient.discover_at_async, server, port=port)
    return ask or at, ask_async or at_async


def _view(resolver: Any) -> str:
    """The servers of a resolver, as text: what one set of servers said is never given out as another's word."""
    servers = ",".join(str(server) for server in getattr(resolver, "nameservers", ()))
    return f"{servers}#{getattr(resolver, 'port', '')}" if servers else repr(resolver)


async def _landed(flight: Flight, seconds: float) -> None:
    """Wait for a flight, cancelling nothing; it may be flown by a thread or by a task of another loop."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()

    def tell(_: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(event.set)

    flight.landed.add_done_callback(tell)
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


def _said(discovery: Discovery) -> Dns:
    if discovery.candidates:
        return Dns.ANSWERS
    return Dns.NONE if discovery.complete else Dns.SILENT


def _why(discovery: Discovery) -> str:
    unsaid = next((step for step in discovery.trace if not step.outcome.said), None)
    return f"{unsaid.outcome.value} {unsaid.note}".strip() if unsaid is not None else "DNS did not say"


def _unasked(request: _Request, why: str) -> Discovery:
    root = Walk(request.ark, request.settings).next()[0]
    step = Step(root.name, 0, Outcome.UNREACHABLE, note=why)
    return Discovery(request.ark, (), (step,), complete=False)
