"""Bulk lookups: a stream of ARKs in, discoveries out, with hundreds of queries outstanding and each name queried once.

The walks are in ``scheduler``, the sockets in ``multiplexer``. Memory does not grow with the stream.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Hashable, Iterable, Iterator
from contextlib import aclosing, closing
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack

from maptr.ark import MAX_NAAN, Ark, Profile
from maptr.client import call
from maptr.client.call import Clock
from maptr.client.multiplexer import CONCURRENCY, LoopWaiter, Mux, SelectorWaiter, Waiter
from maptr.client.scheduler import Many, RunClock
from maptr.client.stub import Stub, make_validator
from maptr.client.sync import discover, make_stub
from maptr.discovery import Discovery, DiscoveryFailed
from maptr.errors import ConfigError
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.walk import Answer, Settings

if TYPE_CHECKING:
    import dns.asyncresolver
    import dns.name
    import dns.resolver

    from maptr.client.validation.validator import TrustAnchors

if TYPE_CHECKING:
    import dns.name

    from maptr.client.validation.validator import TrustAnchors

__all__ = ["Bulk", "BulkOptions", "discover_many", "discover_many_async"]


def discover_many(
    arks: Iterable[Ark | str | bytes],
    *,
    nameservers: Iterable[str] | None = None,
    resolver: Stub | dns.resolver.Resolver | None = None,
    ordered: bool = True,
    profile: Profile = "current",
    **options: Unpack[BulkOptions],
) -> Generator[Discovery, None, None]:
    """A discovery for each ARK; an empty one where there is no candidate, not ``complete`` where DNS did not say.

    Asks ``nameservers``, by default the system's, without dnspython; a dnspython ``resolver``, and ``nameservers`` by
    TLS or HTTPS, are asked one question at a time. Without ``ordered`` discoveries come as they are ready. Options:
    ``origin``, ``profile``, ``settings``, ``trust_ad`` and ``trust_anchors`` as for ``discover``; ``lifetime`` bounds
    each walk, in seconds from the first packet of its first question; ``concurrency`` questions are outstanding at most
    (default 256), ``rate`` packets a second go to each server.

    Raises ArkSyntaxError for what is no ARK, TypeError for one ARK, ConfigError, DiscoveryFailed for a server without
    address.

    >>> [found.url() for found in discover_many(["ark:12345/x1", "ark:12345/x2"], nameservers=[server])]
    ['https://ark.example.org/ark:12345/x1', 'https://ark.example.org/ark:12345/x2']
    """
    _refuse_one(arks)
    nameservers = None if nameservers is None else call.listed(nameservers)
    asked = resolver or _by_urls(nameservers)
    if asked is not None and not isinstance(asked, Stub):
        yield from _one_by_one(_parsed(arks, profile), asked, _each_options(options, resolver, nameservers))
        return
    bulk = Bulk(nameservers=nameservers, stub=asked, **options)
    for _, discovery in bulk.run(enumerate(_parsed(arks, profile)), ordered=ordered):
        yield discovery


async def discover_many_async(
    arks: Iterable[Ark | str | bytes] | AsyncIterable[Ark | str | bytes],
    *,
    nameservers: Iterable[str] | None = None,
    resolver: Stub | dns.asyncresolver.Resolver | None = None,
    ordered: bool = True,
    profile: Profile = "current",
    **options: Unpack[BulkOptions],
) -> AsyncGenerator[Discovery, None]:
    """``discover_many``, awaited: same options, same discoveries, same errors. ``arks`` may be an async iterable.
    Closing it (``contextlib.aclosing``) leaves every socket.

    >>> async def urls(arks):
    ...     return [found.url() async for found in discover_many_async(arks, nameservers=[server])]
    >>> asyncio.run(urls(["ark:12345/x1", "ark:12345/x2"]))
    ['https://ark.example.org/ark:12345/x1', 'https://ark.example.org/ark:12345/x2']
    """
    _refuse_one(arks)
    if nameservers is not None and resolver is None:
        from maptr.client.aio import addresses_of

        nameservers = await addresses_of(nameservers, call.seconds(options.get("lifetime")))
    nameservers = None if nameservers is None else call.listed(nameservers)
    asked: Stub | dns.asyncresolver.Resolver | dns.resolver.Resolver | None = resolver
    if asked is None and any("://" in text for text in nameservers or ()):
        import asyncio

        asked = await asyncio.to_thread(_by_urls, nameservers)
    if asked is not None and not isinstance(asked, Stub):
        asking = _one_by_one_async(_parsed_async(arks, profile), asked, _each_options(options, resolver, nameservers))
        async with aclosing(asking):
            async for discovery in asking:
                yield discovery
        return
    bulk = Bulk(nameservers=nameservers, stub=asked, **options)
    numbered = _numbered(arks, profile) if isinstance(arks, AsyncIterable) else enumerate(_parsed(arks, profile))
    async with aclosing(bulk.run_async(numbered, ordered=ordered)) as running:
        async for _, discovery in running:
            yield discovery


class BulkOptions(TypedDict, total=False):
    """What ``discover_many`` takes beside the ARKs, whom to ask, and the order."""

    origin: str | dns.name.Name
    lifetime: float | None
    settings: Settings | None
    concurrency: int
    rate: float | None
    trust_ad: bool
    trust_anchors: TrustAnchors | None
    clock: Clock


def _refuse_one(arks: object) -> None:
    """Text is an iterable of characters, for type checkers too. Raises TypeError."""
    if isinstance(arks, Ark | str | bytes):
        raise TypeError("one ARK was given and not several: discover() takes one, [ark] is a list of it")


def _parsed(arks: Iterable[Ark | str | bytes], profile: Profile) -> Iterator[Ark]:
    return (call.as_ark(ark, profile) for ark in arks)


async def _parsed_async(
    arks: Iterable[Ark | str | bytes] | AsyncIterable[Ark | str | bytes], profile: Profile
) -> AsyncIterator[Ark]:
    if isinstance(arks, AsyncIterable):
        async for ark in arks:
            yield call.as_ark(ark, profile)
        return
    for ark in _parsed(arks, profile):
        yield ark


async def _numbered(arks: AsyncIterable[Ark | str | bytes], profile: Profile) -> AsyncIterator[tuple[int, Ark]]:
    number = 0
    async for ark in _parsed_async(arks, profile):
        yield number, ark
        number += 1


def _by_urls(nameservers: list[str] | None) -> dns.resolver.Resolver | None:
    """Who asks servers of which some are URLs, each name once; None for plain ones."""
    if not any("://" in text for text in nameservers or ()):
        return None
    import dns.resolver

    from maptr.client.resolver import make_resolver

    made = make_resolver(nameservers or ())
    made.cache = dns.resolver.LRUCache()
    return made


def _one_by_one(arks: Iterable[Ark], resolver: dns.resolver.Resolver, options: call.Options) -> Iterator[Discovery]:
    for ark in arks:
        try:
            yield discover(ark, resolver=resolver, **options)
        except DiscoveryFailed as failed:
            if failed.discovery is None:
                raise
            yield failed.discovery


async def _one_by_one_async(
    arks: AsyncIterable[Ark],
    resolver: dns.asyncresolver.Resolver | dns.resolver.Resolver,
    options: call.Options,
) -> AsyncGenerator[Discovery, None]:
    import dns.asyncresolver

    from maptr.client.aio import discover_async
    from maptr.client.resolver import as_async

    asked = resolver if isinstance(resolver, dns.asyncresolver.Resolver) else as_async(resolver)
    async for ark in arks:
        try:
            yield await discover_async(ark, resolver=asked, **options)
        except DiscoveryFailed as failed:
            if failed.discovery is None:
                raise
            yield failed.discovery


def _each_options(options: BulkOptions, resolver: object, nameservers: list[str] | None) -> call.Options:
    """Those of a run that a dnspython resolver is asked in, for each of its discoveries. Raises ConfigError."""
    call.check_whom(resolver, nameservers)
    if {"concurrency", "rate"} & options.keys():
        raise ConfigError("a dnspython resolver is asked one question at a time: no concurrency, no rate")
    each: call.Options = {"raise_on_none": False, **options}  # type: ignore[typeddict-item]
    if (anchors := options.get("trust_anchors")) is not None:  # what is validated for one ARK serves the next
        each["trust_anchors"] = make_validator(anchors, options.get("trust_ad", False))
    return each


WINDOW = 4  # ARKs begun or held back for order, for each question that may be outstanding
INTAKE = 64  # ARKs taken before the sockets get their turn

Token = TypeVar("Token", bound=Hashable)


class Bulk:
    """The options of one bulk run. ``questions`` counts the names asked by the last run."""

    def __init__(
        self,
        *,
        nameservers: Iterable[str] | None = None,
        stub: Stub | None = None,
        origin: str | dns.name.Name = "ark.arpa.",
        lifetime: float | None = None,
        settings: Settings | None = None,
        concurrency: int = CONCURRENCY,
        rate: float | None = None,
        trust_ad: bool = False,
        trust_anchors: TrustAnchors | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        call.check_whom(stub, nameservers)
        if concurrency < 1:
            raise ConfigError("one at least", key="concurrency")
        if rate is not None and not rate > 0:
            raise ConfigError("more than nought", key="rate")
        if stub is not None:
            stub = stub.trusting(trust_anchors)
        elif nameservers is None:
            stub = Stub.system(trust_ad=trust_ad, trust_anchors=trust_anchors)
        else:
            stub = make_stub(
                nameservers, trust_ad=trust_ad, trust_anchors=trust_anchors, lifetime=call.seconds(lifetime)
            )
        self.questions = 0
        self.settings = call.with_origin(settings, origin)
        if names.wire_length(self.settings.origin) + MAX_NAAN + 1 > names.MAX_NAME:
            raise ConfigError(f"{origin} leaves no room for a NAAN below it", key="origin")
        self.window = concurrency * WINDOW
        self._stub = stub
        self._seconds = call.seconds(lifetime)
        self._concurrency = concurrency
        self._rate = rate
        self._clock = clock

    def run(self, arks: Iterable[tuple[Token, Ark]], *, ordered: bool = True) -> Iterator[tuple[Token, Discovery]]:
        """Each token with its discovery. Closing the generator leaves every socket."""
        waiter = SelectorWaiter()
        with closing(waiter), closing(_Run[Token](self, waiter, ordered)) as run:
            stream = iter(arks)
            while not run.over:
                if wanted := run.wanted:
                    run.take_in(stream, wanted)
                pause = run.tick()
                yield from run.ready()
                if run.many.open:
                    waiter.wait(0 if run.wanted else pause)

    async def run_async(
        self, arks: Iterable[tuple[Token, Ark]] | AsyncIterable[tuple[Token, Ark]], *, ordered: bool = True
    ) -> AsyncGenerator[tuple[Token, Discovery], None]:
        """The same on the running event loop."""
        waiter = LoopWaiter()
        with closing(_Run[Token](self, waiter, ordered)) as run:
            stream = aiter(arks) if isinstance(arks, AsyncIterable) else iter(arks)
            while not run.over:
                if wanted := run.wanted:
                    if isinstance(stream, AsyncIterator):
                        await run.take_in_async(stream, wanted)
                    else:
                        run.take_in(stream, wanted)
                pause = run.tick()
                for done in run.ready():
                    yield done
                if run.many.open:
                    await waiter.wait(0 if run.wanted else pause)

    def many(self, clock: RunClock) -> Many[Any]:
        """The walks of one run."""
        return Many(self.settings, lifetime=self._seconds, clock=clock, now=time.time)

    def clock(self) -> RunClock:
        """That of one run."""
        return RunClock(self._clock)

    def mux(self, waiter: Waiter, clock: RunClock) -> Mux:
        return Mux(
            self._stub,
            waiter,
            seconds=self._seconds,
            concurrency=self._concurrency,
            rate=self._rate,
            clock=clock,
            leave_out=clock.leave_out,
        )

    @property
    def is_cold(self) -> bool:
        """Whether answers are validated, and the keys for that not at hand."""
        validator = self._stub.validator
        return validator is not None and not validator.has_keys(self.settings.origin)


class _Run(Generic[Token]):
    """One run: ARKs in, walks under way, discoveries out, in the order of the stream where that is asked for."""

    def __init__(self, bulk: Bulk, waiter: Waiter, ordered: bool) -> None:
        clock = bulk.clock()
        self.many: Many[tuple[int, Token]] = bulk.many(clock)
        self._mux = bulk.mux(waiter, clock)
        self._bulk = bulk
        self._ordered = ordered
        self._held: dict[int, tuple[Token, Discovery]] = {}
        if bulk.is_cold:
            self._warm(bulk.settings.origin)
        self._started = self._given = 0
        self._ended = False

    @property
    def wanted(self) -> int:
        """How many ARKs may be started before the sockets get their turn."""
        if self._ended or self._mux.waiting >= INTAKE:
            return 0  # what only waits takes memory, and the collector's time
        return max(0, min(INTAKE, self._bulk.window - self.many.open - len(self._held)))

    @property
    def over(self) -> bool:
        return self._ended and not (self.many.open or self.many.done or self._held)

    def take_in(self, stream: Iterator[tuple[Token, Ark]], wanted: int) -> None:
        """Begin so many walks; the stream is over where it has fewer."""
        before = self._started
        for token, ark in islice(stream, wanted):
            self._start(token, ark)
        self._ended = self._started - before < wanted

    async def take_in_async(self, stream: AsyncIterator[tuple[Token, Ark]], wanted: int) -> None:
        """The same, awaited."""
        for _ in range(wanted):
            pair = await anext(stream, None)
            if pair is None:
                self._ended = True
                return
            self._start(*pair)

    def _start(self, token: Token, ark: Ark) -> None:
        self.many.start((self._started, token), ark)
        self._started += 1

    def ready(self) -> Iterator[tuple[Token, Discovery]]:
        """What may be given out now."""
        done, held = self.many.done, self._held
        while done:
            (number, token), discovery = done.popleft()
            if number != self._given and self._ordered:
                held[number] = token, discovery
                continue
            self._given += 1
            yield token, discovery
            while held and self._given in held:
                self._given += 1
                yield held.pop(self._given - 1)

    def tick(self) -> float | None:
        """Send what may be sent, give up what is overdue; seconds until it must be called again, None for never."""
        over = self.many.tick()
        self._ask()
        pauses = [pause for pause in (over, self._mux.tick()) if pause is not None]
        if self.many.has_new:
            return 0.0
        return min(pauses, default=None)

    def close(self) -> None:
        self._mux.close()

    def _warm(self, origin: Labels) -> None:
        """Ask one question alone, at the origin: or every question at the start would ask for the same keys."""
        self._mux.concurrency, wanted = 1, self._mux.concurrency

        def go(_: Labels, __: Answer) -> None:
            self._mux.concurrency = wanted

        self._mux.ask(origin, go)

    def _ask(self) -> None:
        onward = self.many.take_onward()
        for one in onward:
            flight = self._mux.ask_onward(one.name, partial(self.many.tell, rdtype=one.rdtype), one.rdtype)
            one.unanswered, one.drop = partial(self._mux.unanswered, flight), partial(self._mux.drop, flight)
        asked = self.many.take()
        self._bulk.questions += len(asked) + len(onward)
        for name in asked:
            self._mux.ask(name, self.many.tell)
