"""The engine of ``bulk``: a stream of ARKs in, hundreds of questions outstanding, discoveries out.

Drivers and no more: the walks are in ``many``, the sockets in ``mux``; how to wait is in ``waiters``.
Memory does not grow with the stream.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Hashable, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from maptr.ark import MAX_NAAN, Ark
from maptr.client import call
from maptr.client.call import Clock
from maptr.client.multiplexer import CONCURRENCY, Mux
from maptr.client.scheduler import Many, RunClock
from maptr.client.stub import Stub
from maptr.client.sync import make_stub
from maptr.client.waiters import LoopWaiter, SelectorWaiter, Waiter
from maptr.discovery import Discovery
from maptr.errors import ConfigError
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.walk import Answer, Settings

if TYPE_CHECKING:
    import dns.name

    from maptr.client.trust import TrustAnchors

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
