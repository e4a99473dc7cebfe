"""Bulk lookups: a stream of ARKs in, discoveries out, with hundreds of queries outstanding and each name queried once.

The walks are in ``scheduler``, the sockets in ``multiplexer``. Memory does not grow with the stream.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Hashable,
    Iterable,
)
from contextlib import aclosing, closing
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from maptr.ark import MAX_NAAN, Ark, Profile
from maptr.discovery import Discovery, DiscoveryFailed, NoServer
from maptr.errors import ConfigError
from maptr.protocol import names
from maptr.resolver import call
from maptr.resolver.aio import LoopWaiter, discover_with_async
from maptr.resolver.call import Call, Clock
from maptr.resolver.multiplexer import CONCURRENCY, MAX_CONNECTIONS, Multiplexer, SelectorWaiter, Waiter
from maptr.resolver.scheduler import Scheduler
from maptr.resolver.stub import Stub, make_validator
from maptr.resolver.sync import discover_with, make_stub
from maptr.walk import Settings

if TYPE_CHECKING:
    import dns.asyncresolver
    import dns.name
    import dns.resolver

    from maptr.resolver.validation.validator import TrustAnchors

WINDOW = 4  # ARKs begun, or held back for order, for each question that may be outstanding
INTAKE = 64  # ARKs taken from the stream before the sockets are read

Token = TypeVar("Token", bound=Hashable)
_Item: TypeAlias = Ark | Discovery  # the discovery of an item that is not an ARK
_Options: TypeAlias = (  # origin to max_connections, as in Bulk
    "tuple[str | dns.name.Name, float | None, Settings | None, int | None, float | None, bool, TrustAnchors | None, "
    "int | None]"
)


def discover_many(
    arks: Iterable[Ark | str | bytes],
    *,
    nameservers: Iterable[str] | None = None,
    resolver: Stub | dns.resolver.Resolver | None = None,
    origin: str | dns.name.Name = "ark.arpa.",
    lifetime: float | None = None,
    settings: Settings | None = None,
    concurrency: int | None = None,
    rate: float | None = None,
    trust_ad: bool = False,
    trust_anchors: TrustAnchors | None = None,
    max_connections: int | None = None,
    profile: Profile = "current",
    ordered: bool = True,
) -> Generator[Discovery, None, None]:
    """Find the mapping authorities of many ARKs: a discovery for each.

    A discovery is empty if there is no candidate, and not ``complete`` if DNS gave no answer. One for an item that is
    not an ARK (or not text) has its ``error`` and ``position``, and does not end the stream.

    ``nameservers``, by default the system's, are queried without dnspython. A dnspython ``resolver``, and
    ``nameservers`` by TLS or HTTPS, are asked one question at a time. ``origin``, ``settings``, ``trust_ad``,
    ``trust_anchors`` and ``profile`` are those of ``discover``. ``lifetime`` bounds each walk, in seconds from the
    first packet of its first question (default 5). ``concurrency`` is the number of questions outstanding (default
    256), ``rate`` that of packets a second to each server, ``max_connections`` that of TCP connections at a time
    (default 8, and fewer if the server or the process does not allow so many). Discoveries come in the order of the
    ARKs, or, without ``ordered``, as soon as they are ready. Closing the generator closes every socket.

    Raises TypeError for a single ARK; while it runs, ConfigError as ``discover`` does, and DiscoveryFailed for a server
    without address.

    >>> [found.url() for found in discover_many(["ark:12345/x1", "ark:12345/x2"], nameservers=[server])]
    ['https://ark.example.org/ark:12345/x1', 'https://ark.example.org/ark:12345/x2']
    """
    _refuse_one(arks)
    servers = None if nameservers is None else call.listed(nameservers)
    options = origin, lifetime, settings, concurrency, rate, trust_ad, trust_anchors, max_connections
    items = (call.as_item(item, position, profile) for position, item in enumerate(arks))
    return _discover_many(items, ordered, servers, resolver, options)


def discover_many_async(
    arks: Iterable[Ark | str | bytes] | AsyncIterable[Ark | str | bytes],
    *,
    nameservers: Iterable[str] | None = None,
    resolver: Stub | dns.asyncresolver.Resolver | None = None,
    origin: str | dns.name.Name = "ark.arpa.",
    lifetime: float | None = None,
    settings: Settings | None = None,
    concurrency: int | None = None,
    rate: float | None = None,
    trust_ad: bool = False,
    trust_anchors: TrustAnchors | None = None,
    max_connections: int | None = None,
    profile: Profile = "current",
    ordered: bool = True,
) -> AsyncGenerator[Discovery, None]:
    """``discover_many``, awaited: same options, same discoveries, same errors. ``arks`` may be an async iterable.

    Closing it (``contextlib.aclosing``) closes every socket.

    >>> async def urls(arks):
    ...     return [found.url() async for found in discover_many_async(arks, nameservers=[server])]
    >>> asyncio.run(urls(["ark:12345/x1", "ark:12345/x2"]))
    ['https://ark.example.org/ark:12345/x1', 'https://ark.example.org/ark:12345/x2']
    """
    _refuse_one(arks)
    servers = None if nameservers is None else call.listed(nameservers)
    options = origin, lifetime, settings, concurrency, rate, trust_ad, trust_anchors, max_connections
    return _discover_many_async(_parsed(arks, profile), ordered, servers, resolver, options)


def _calls(resolver: object, servers: list[str] | None, options: _Options) -> Callable[[Ark], Call]:
    """Return a function that makes the call for one ARK at a dnspython resolver. Raises ConfigError."""
    call.check_resolver(resolver, servers)
    origin, lifetime, settings, concurrency, rate, trust_ad, trust_anchors, max_connections = options
    if any(limit is not None for limit in (concurrency, rate, max_connections)):
        raise ConfigError(
            "a dnspython resolver is asked one question at a time: concurrency, rate and max_connections do not apply"
        )
    validator = make_validator(trust_anchors, trust_ad)  # keys validated for one ARK serve the next
    return lambda ark: Call(ark, origin, lifetime, False, None, None, settings, trust_ad, validator)


def _discover_many(
    arks: Iterable[_Item], ordered: bool, servers: list[str] | None, resolver: object, options: _Options
) -> Generator[Discovery, None, None]:
    asked: Any = resolver or _dnspython_resolver(servers)
    if asked is None or isinstance(asked, Stub):
        for _, discovery in Bulk(servers, asked, *options).run(((None, ark) for ark in arks), ordered=ordered):
            yield discovery
        return
    make_call = _calls(resolver, servers, options)
    for ark in arks:
        if isinstance(ark, Discovery):
            yield ark
            continue
        try:
            yield discover_with(make_call(ark), asked, None)
        except NoServer:
            raise
        except DiscoveryFailed as failed:
            yield failed.discovery


async def _discover_many_async(
    arks: AsyncIterator[tuple[None, _Item]],
    ordered: bool,
    servers: list[str] | None,
    resolver: object,
    options: _Options,
) -> AsyncGenerator[Discovery, None]:
    call.need_asyncio()
    asked: Any = resolver or await asyncio.to_thread(_dnspython_resolver, servers)
    if asked is None or isinstance(asked, Stub):
        bulk = await asyncio.to_thread(Bulk, servers, asked, *options)  # in a thread, because it looks up names
        async with aclosing(bulk.run_async(arks, ordered=ordered)) as running:
            async for _, discovery in running:
                yield discovery
        return
    make_call = _calls(resolver, servers, options)
    from maptr.resolver.dnspython import as_async  # imported already, with the resolver

    asked = as_async(asked)
    async for _, ark in arks:
        if isinstance(ark, Discovery):
            yield ark
            continue
        try:
            yield await discover_with_async(make_call(ark), asked, None)
        except NoServer:
            raise
        except DiscoveryFailed as failed:
            yield failed.discovery


def _refuse_one(arks: object) -> None:
    """Raise TypeError for text, which is an iterable of characters for type checkers, too."""
    if isinstance(arks, Ark | str | bytes):
        raise TypeError("expected several ARKs, got one: use discover(ark), or a list: [ark]")


async def _parsed(
    arks: Iterable[Ark | str | bytes] | AsyncIterable[Ark | str | bytes], profile: Profile
) -> AsyncIterator[tuple[None, _Item]]:
    position = 0
    async for item in arks if isinstance(arks, AsyncIterable) else _async(arks):
        yield None, call.as_item(item, position, profile)
        position += 1


async def _async(arks: Iterable[Token]) -> AsyncIterator[Token]:
    for ark in arks:
        yield ark


def _dnspython_resolver(nameservers: Iterable[str] | None) -> dns.resolver.Resolver | None:
    """Return a caching resolver for servers of which some are URLs; None for plain servers."""
    if not call.has_https(nameservers):
        return None
    import dns.resolver  # only for HTTPS: it takes 70 ms to import

    from maptr.resolver.dnspython import make_resolver

    made = make_resolver(nameservers or ())
    made.cache = dns.resolver.LRUCache()
    return made


class Bulk:
    """The options of bulk runs. ``questions`` is the number of names that all runs have queried."""

    def __init__(
        self,
        nameservers: Iterable[str] | None = None,
        stub: Stub | None = None,
        origin: str | dns.name.Name = "ark.arpa.",
        lifetime: float | None = None,
        settings: Settings | None = None,
        concurrency: int | None = None,
        rate: float | None = None,
        trust_ad: bool = False,
        trust_anchors: TrustAnchors | None = None,
        max_connections: int | None = None,
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        call.check_resolver(stub, nameservers)
        self.concurrency = call.checked_count(CONCURRENCY if concurrency is None else concurrency, "concurrency")
        self.rate = call.checked_rate(rate)
        self.max_connections = call.checked_count(
            MAX_CONNECTIONS if max_connections is None else max_connections, "max_connections"
        )
        self.seconds = call.seconds(lifetime)
        if stub is not None:
            self.stub = stub.trusting(trust_anchors, trust_ad=trust_ad)
        elif nameservers is None:
            self.stub = Stub.system(trust_ad=trust_ad, trust_anchors=trust_anchors)
        else:
            self.stub = make_stub(nameservers, trust_ad=trust_ad, trust_anchors=trust_anchors, lifetime=self.seconds)
        self.questions = 0
        self.settings = call.with_origin(settings, origin)
        if names.wire_length(self.settings.origin) + MAX_NAAN + 1 > names.MAX_NAME:
            raise ConfigError(f"{origin} is too long for a NAAN below it", key="origin")
        self.clock = clock

    def run(
        self, arks: Iterable[tuple[Token, _Item]], *, ordered: bool = True
    ) -> Generator[tuple[Token, Discovery], None, None]:
        """Yield each token with its discovery, which may be given instead of an ARK. Closing the generator closes every
        socket."""
        waiter = SelectorWaiter()
        with closing(waiter), closing(_Run[Token](self, waiter, ordered)) as run:
            stream = iter(arks)
            while not run.over:
                if wanted := run.wanted:
                    run.start(list(islice(stream, wanted)), wanted)
                pause = run.tick()
                yield from run.ready()
                if run.scheduler.open:
                    waiter.wait(0 if run.wanted else pause)

    async def run_async(
        self, arks: AsyncIterator[tuple[Token, _Item]], *, ordered: bool = True
    ) -> AsyncGenerator[tuple[Token, Discovery], None]:
        """``run`` on the running event loop."""
        waiter = LoopWaiter()
        with closing(_Run[Token](self, waiter, ordered)) as run:
            while not run.over:
                if wanted := run.wanted:
                    pairs = [pair for _ in range(wanted) if (pair := await anext(arks, None)) is not None]
                    run.start(pairs, wanted)
                pause = run.tick()
                for done in run.ready():
                    yield done
                if run.scheduler.open:
                    await waiter.wait(0 if run.wanted else pause)


class _Run(Generic[Token]):
    """One run: ARKs in, walks in progress, discoveries out, in the order of the stream if ``ordered``."""

    def __init__(self, bulk: Bulk, waiter: Waiter, ordered: bool) -> None:
        clock = bulk.clock
        self.scheduler: Scheduler[tuple[int, Token]] = Scheduler(bulk.settings, lifetime=bulk.seconds, clock=clock)
        self._multiplexer = Multiplexer(
            bulk.stub,
            waiter,
            concurrency=bulk.concurrency,
            rate=bulk.rate,
            max_connections=bulk.max_connections,
            clock=clock,
        )
        self.close = self._multiplexer.close
        self._bulk = bulk
        self._ordered = ordered
        self._held: dict[int, tuple[Token, Discovery]] = {}
        self._started = self._given = 0
        self._ended = False

    @property
    def wanted(self) -> int:
        """How many ARKs may be started before the sockets are read."""
        if self._ended or self._multiplexer.waiting >= INTAKE:
            return 0  # more would only wait, and take memory
        return max(0, min(INTAKE, self._bulk.concurrency * WINDOW - self.scheduler.open - len(self._held)))

    @property
    def over(self) -> bool:
        return self._ended and not (self.scheduler.open or self.scheduler.done or self._held)

    def start(self, pairs: list[tuple[Token, _Item]], wanted: int) -> None:
        """Start a walk for each ARK; the stream has ended if they are fewer than were wanted."""
        self._ended = len(pairs) < wanted
        for token, ark in pairs:
            if isinstance(ark, Discovery):
                self.scheduler.done.append(((self._started, token), ark))
            else:
                self.scheduler.start((self._started, token), ark)
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
        now = self._bulk.clock()
        self._multiplexer.expire()  # first: a question that ends with its walk says why
        over = self.scheduler.tick(now)
        for question in self.scheduler.take():
            self._bulk.questions += 1
            done = partial(self.scheduler.tell, question)
            seconds, deadline = self._bulk.seconds, question.deadline
            self._multiplexer.ask(question.name, done, question.rdtype, seconds=seconds, deadline=deadline)
        pauses = [pause for pause in (over, self._multiplexer.send()) if pause is not None]
        return 0.0 if self.scheduler.has_new else min(pauses, default=None)
