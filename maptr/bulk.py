"""discover_many(): a stream of ARKs, hundreds of questions outstanding, each name asked once.

Drivers and no more: the walks are in ``many``, the sockets in ``mux``; how to wait is in
``waiters``. Memory does not grow with the stream.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Hashable, Iterable, Iterator
from contextlib import aclosing, closing
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar, Unpack

from maptr import call, names
from maptr.ark import MAX_NAAN, Ark
from maptr.call import Clock
from maptr.client import discover, make_stub
from maptr.discovery import Discovery
from maptr.errors import ConfigError, DiscoveryFailed
from maptr.many import Many
from maptr.mux import CONCURRENCY, Mux
from maptr.names import Labels
from maptr.plainreply import PlainReply, Reader
from maptr.stub import Stub, make_validator
from maptr.volley import Heard, Volley
from maptr.waiters import LoopWaiter, SelectorWaiter, Waiter
from maptr.walk import Answer, Settings

if TYPE_CHECKING:
    import dns.asyncresolver
    import dns.name
    import dns.resolver

    from maptr.trust import TrustAnchors

WINDOW = 4  # ARKs begun or held back for order, for each question that may be outstanding
INTAKE = 64  # ARKs taken before the sockets get their turn

Token = TypeVar("Token", bound=Hashable)


def discover_many(
    arks: Iterable[Ark | str | bytes],
    *,
    nameservers: Iterable[str] | None = None,
    resolver: Stub | dns.resolver.Resolver | None = None,
    ordered: bool = True,
    **options: Unpack[BulkOptions],
) -> Generator[Discovery, None, None]:
    """A discovery for each ARK; an empty one where there is no candidate, not ``complete`` where DNS did not say.

    Asks ``nameservers``, by default the system's, without dnspython; a dnspython ``resolver``, and ``nameservers`` by
    TLS or HTTPS, are asked one question at a time. Without ``ordered`` discoveries come as they are ready. Options:
    ``origin``, ``settings``, ``trust_ad`` and ``trust_anchors`` as for ``discover``; ``lifetime`` bounds each question,
    in seconds from its first packet; ``concurrency`` questions are outstanding at most (default 256), ``rate`` packets
    a second go to each server.

    Raises ArkSyntaxError for what is no ARK, ConfigError, DiscoveryFailed for a server without address.

    >>> [found.url() for found in discover_many(["ark:12345/x1", "ark:12345/x2"], nameservers=[server])]
    ['https://ark.example.org/ark:12345/x1', 'https://ark.example.org/ark:12345/x2']
    """
    nameservers = _listed(nameservers)
    asked = resolver or _by_urls(nameservers)
    if asked is not None and not isinstance(asked, Stub):
        yield from _one_by_one(arks, asked, _each_options(options, resolver, nameservers))
        return
    bulk = Bulk(nameservers=nameservers, stub=asked, **options)
    for _, discovery in bulk.run(_numbered(arks), ordered=ordered):
        yield discovery


async def discover_many_async(
    arks: Iterable[Ark | str | bytes] | AsyncIterable[Ark | str | bytes],
    *,
    nameservers: Iterable[str] | None = None,
    resolver: Stub | dns.asyncresolver.Resolver | None = None,
    ordered: bool = True,
    **options: Unpack[BulkOptions],
) -> AsyncGenerator[Discovery, None]:
    """``discover_many``, awaited: same options, same discoveries, same errors. ``arks`` may be an async iterable.
    Closing it (``contextlib.aclosing``) leaves every socket.

    >>> async def urls(arks):
    ...     return [found.url() async for found in discover_many_async(arks, nameservers=[server])]
    >>> asyncio.run(urls(["ark:12345/x1", "ark:12345/x2"]))
    ['https://ark.example.org/ark:12345/x1', 'https://ark.example.org/ark:12345/x2']
    """
    nameservers = _listed(nameservers)
    asked = resolver or _by_urls(nameservers)
    if asked is not None and not isinstance(asked, Stub):
        asking = _one_by_one_async(arks, asked, _each_options(options, resolver, nameservers))
        async with aclosing(asking):
            async for discovery in asking:
                yield discovery
        return
    bulk = Bulk(nameservers=nameservers, stub=asked, **options)
    async with aclosing(bulk.run_async(_numbered_async(arks), ordered=ordered)) as running:
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
        if stub is not None and nameservers is not None:
            raise ConfigError("give resolver or nameservers, not both")
        if concurrency < 1:
            raise ConfigError("one at least", key="concurrency")
        if rate is not None and not rate > 0:
            raise ConfigError("more than nought", key="rate")
        if stub is not None:
            stub = stub.trusting(trust_anchors)
        elif nameservers is None:
            stub = Stub.system(trust_ad=trust_ad, trust_anchors=trust_anchors)
        else:
            stub = make_stub(nameservers, trust_ad=trust_ad, trust_anchors=trust_anchors)
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
                    taken = run.started
                    for token, ark in islice(stream, wanted):
                        run.start(token, ark)
                    if run.started - taken < wanted:
                        run.end()
                pause = run.tick()
                yield from run.ready()
                if run.many.open:
                    waiter.wait(0 if run.wanted else pause)

    async def run_async(
        self, arks: AsyncIterator[tuple[Token, Ark]], *, ordered: bool = True
    ) -> AsyncGenerator[tuple[Token, Discovery], None]:
        """The same on the running event loop."""
        waiter = LoopWaiter()
        with closing(_Run[Token](self, waiter, ordered)) as run:
            while not run.over:
                for _ in range(run.wanted):
                    pair = await anext(arks, None)
                    if pair is None:
                        run.end()
                        break
                    run.start(*pair)
                pause = run.tick()
                for done in run.ready():
                    yield done
                if run.many.open:
                    await waiter.wait(0 if run.wanted else pause)

    def mux(self, waiter: Waiter) -> Mux:
        return Mux(
            self._stub,
            waiter,
            seconds=self._seconds,
            concurrency=self._concurrency,
            rate=self._rate,
            clock=self._clock,
        )

    @property
    def is_cold(self) -> bool:
        """Whether answers are validated, and the keys for that not at hand."""
        validator = self._stub.validator
        return validator is not None and not validator.has_keys(self.settings.origin)

    def volley(self, mux: Mux, waiter: Waiter, heard: Heard) -> Volley | None:
        """The shortcut to plain answers; None where a rate is to be kept, or answers are validated."""
        if self._rate is not None or not self._stub.servers or self._stub.validator is not None:
            return None
        return Volley(
            self._stub,
            mux,
            waiter,
            heard,
            Reader(self.settings, trust_ad=self._stub.trust_ad),
            seconds=self._seconds,
            concurrency=self._concurrency,
            clock=self._clock,
        )


class _Run(Generic[Token]):
    """One run: ARKs in, walks under way, discoveries out, in the order of the stream where that is asked for."""

    def __init__(self, bulk: Bulk, waiter: Waiter, ordered: bool) -> None:
        self.many: Many[tuple[int, Token]] = Many(bulk.settings, now=time.time)
        self._mux = bulk.mux(waiter)
        self._volley = bulk.volley(self._mux, waiter, self._heard)
        self._drivers: tuple[Mux | Volley, ...] = (self._mux,) if self._volley is None else (self._volley, self._mux)
        self._bulk = bulk
        self._ordered = ordered
        self._held: dict[int, tuple[Token, Discovery]] = {}
        if bulk.is_cold:
            self._warm(bulk.settings.origin)
        self.started = self._given = 0
        self._ended = False

    @property
    def wanted(self) -> int:
        """How many ARKs may be started before the sockets get their turn."""
        return 0 if self._ended else max(0, min(INTAKE, self._bulk.window - self.many.open - len(self._held)))

    @property
    def over(self) -> bool:
        return self._ended and not (self.many.open or self.many.done or self._held)

    def start(self, token: Token, ark: Ark) -> None:
        """Begin a walk."""
        self.many.start((self.started, token), ark)
        self.started += 1

    def end(self) -> None:
        """There is no further ARK."""
        self._ended = True

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
            while self._given in held:
                self._given += 1
                yield held.pop(self._given - 1)

    def tick(self) -> float | None:
        """Send what may be sent, give up what is overdue; seconds until it must be called again, None for never."""
        self._ask()
        pauses = [pause for driver in self._drivers if (pause := driver.tick()) is not None]
        if self.many.has_new or (self._volley is not None and self._volley.room > 0):
            return 0.0  # something ended just now and made room, or new questions
        return min(pauses, default=None)

    def close(self) -> None:
        for driver in self._drivers:
            driver.close()

    def _warm(self, origin: Labels) -> None:
        """Ask one question alone, at the origin: or every question at the start would ask for the same keys."""
        self._mux.concurrency, wanted = 1, self._mux.concurrency

        def go(_: Answer) -> None:
            self._mux.concurrency = wanted

        self._mux.ask(origin, go)

    def _ask(self) -> None:
        for name in self.many.take():
            self._bulk.questions += 1
            if self._volley is not None:
                self._volley.ask(name)
            else:
                self._mux.ask(name, partial(self._heard, name))

    def _heard(self, name: Labels, answer: Answer | PlainReply) -> None:
        self.many.tell(name, answer)


def _parse(ark: Ark | str | bytes) -> Ark:
    return ark if isinstance(ark, Ark) else Ark.parse(ark)


def _numbered(arks: Iterable[Ark | str | bytes]) -> Iterator[tuple[int, Ark]]:
    return ((number, _parse(ark)) for number, ark in enumerate(arks))


async def _numbered_async(
    arks: Iterable[Ark | str | bytes] | AsyncIterable[Ark | str | bytes],
) -> AsyncIterator[tuple[int, Ark]]:
    number = 0
    if isinstance(arks, AsyncIterable):
        async for ark in arks:
            yield number, _parse(ark)
            number += 1
        return
    for ark in arks:
        yield number, _parse(ark)
        number += 1


def _listed(nameservers: Iterable[str] | None) -> list[str] | None:
    return [nameservers] if isinstance(nameservers, str) else None if nameservers is None else list(nameservers)


def _by_urls(nameservers: list[str] | None) -> dns.resolver.Resolver | None:
    """Who asks servers of which some are URLs, each name once; None for plain ones."""
    if not any("://" in text for text in nameservers or ()):
        return None
    import dns.resolver

    from maptr.resolver import make_resolver

    made = make_resolver(nameservers or ())
    made.cache = dns.resolver.LRUCache()
    return made


def _one_by_one(
    arks: Iterable[Ark | str | bytes], resolver: dns.resolver.Resolver, options: call.Options
) -> Iterator[Discovery]:
    for ark in arks:
        try:
            yield discover(ark, resolver=resolver, **options)
        except DiscoveryFailed as failed:
            if failed.discovery is None:
                raise
            yield failed.discovery


async def _one_by_one_async(
    arks: Iterable[Ark | str | bytes] | AsyncIterable[Ark | str | bytes],
    resolver: dns.asyncresolver.Resolver | dns.resolver.Resolver,
    options: call.Options,
) -> AsyncGenerator[Discovery, None]:
    import dns.asyncresolver

    from maptr.asyncclient import discover_async
    from maptr.resolver import as_async

    asked = resolver if isinstance(resolver, dns.asyncresolver.Resolver) else as_async(resolver)
    async for _, ark in _numbered_async(arks):
        try:
            yield await discover_async(ark, resolver=asked, **options)
        except DiscoveryFailed as failed:
            if failed.discovery is None:
                raise
            yield failed.discovery


def _each_options(options: BulkOptions, resolver: object, nameservers: list[str] | None) -> call.Options:
    """Those of a run that a dnspython resolver is asked in, for each of its discoveries. Raises ConfigError."""
    if resolver is not None and nameservers is not None:
        raise ConfigError("give resolver or nameservers, not both")
    if {"concurrency", "rate"} & options.keys():
        raise ConfigError("a dnspython resolver is asked one question at a time: no concurrency, no rate")
    each: call.Options = {"raise_on_none": False, **options}  # type: ignore[typeddict-item]
    if (anchors := options.get("trust_anchors")) is not None:  # what is validated for one ARK serves the next
        each["trust_anchors"] = make_validator(anchors, options.get("trust_ad", False))
    return each
