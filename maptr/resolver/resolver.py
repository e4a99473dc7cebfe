"""``Resolver``: what a client asks of DNS, for one ARK or for many, by plain servers or by a dnspython resolver.

``walk`` decides what to ask and what an answer means. ``multiplexer`` asks plain servers, ``dnspython`` its resolvers,
and ``bulk`` has the walks of a stream. The two forms of a method differ only in how they wait.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable
from contextlib import closing
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from maptr.ark import Ark
from maptr.discovery import Discovery, NoServer
from maptr.protocol.names import Labels
from maptr.resolver.call import StepHook, TimedWalk
from maptr.resolver.multiplexer import Multiplexer, SelectorWaiter
from maptr.resolver.servers import system_servers
from maptr.resolver.stub import Stub
from maptr.resolver.upstream import Upstream
from maptr.walk import Answer, Question

if TYPE_CHECKING:
    from concurrent.futures import Future

    import dns.resolver

    from maptr.resolver.bulk import Item, Run, Token
    from maptr.resolver.dnspython import DnspythonLookups


class Resolver(Upstream):
    """Runs walks over DNS. The methods return an incomplete discovery if DNS does not answer.

    They raise NoServer, a DiscoveryFailed, if no server can be asked.
    """

    def discover(self, ark: Ark, lifetime: float, on_step: StepHook | None = None) -> Discovery:
        run = TimedWalk(ark, self.settings, lifetime, on_step, clock=self.clock)
        with closing(self._lookups(self._opened_for(run), run, SelectorWaiter)) as lookups:
            while questions := run.walk.next():
                known = self.origin.recall(questions)
                run.tell(questions, known or self.origin.remember(questions, lookups.ask(questions)))
        return run.result()

    async def discover_async(self, ark: Ark, lifetime: float, on_step: StepHook | None = None) -> Discovery:
        """``discover``, awaited. Cancelling it cancels its queries. The questions of one depth are asked together."""
        import asyncio  # it doubles the start time of a program

        from maptr.resolver.aio import LoopWaiter, need_asyncio

        need_asyncio()
        run = TimedWalk(ark, self.settings, lifetime, on_step, clock=self.clock)
        asked = await asyncio.to_thread(self._opened_for, run) if self.blocks else self._opened_for(run)
        with closing(self._lookups(asked, run, LoopWaiter)) as lookups:
            while questions := run.walk.next():
                known = self.origin.recall(questions)
                run.tell(questions, known or self.origin.remember(questions, await lookups.ask_async(questions)))
        return run.result()

    def _opened_for(self, run: TimedWalk) -> Stub | dns.resolver.BaseResolver:
        """Return what asks, within the time of a walk. The discovery of a NoServer has the ARK."""
        try:
            return self.opened(run.left)
        except NoServer as error:
            error.discovery = error.discovery.replace(ark=run.walk.ark)
            raise

    def _lookups(
        self, asked: Stub | dns.resolver.BaseResolver, run: TimedWalk, waiter: Callable[[], Any]
    ) -> StubLookups | DnspythonLookups:
        if isinstance(asked, Stub):
            return StubLookups(asked, run, waiter())
        from maptr.resolver.dnspython import DnspythonLookups  # dnspython takes 70 ms to import

        return DnspythonLookups(asked, run, self.validator, trust_ad=self.trust_ad)

    def discover_many(
        self, pairs: Iterable[tuple[Token, Item]], lifetime: float, *, ordered: bool = True
    ) -> Generator[tuple[Token, Discovery], None, None]:
        """Yield each token with the discovery of its ARK. Closing the generator closes every socket.

        ``lifetime`` bounds each walk from the first packet of its first question.
        """
        from maptr.resolver.bulk import Run  # a command that looks up one ARK starts without it

        stub = self.opened(lifetime)
        if not isinstance(stub, Stub):
            yield from self._one_by_one(pairs, lifetime)
            return
        waiter = SelectorWaiter()
        run: Run[Token] = Run(self, stub, lifetime, waiter, ordered)
        with closing(run):
            stream = iter(pairs)
            while not run.over:
                if wanted := run.wanted:
                    run.start(list(islice(stream, wanted)), wanted)
                pause = run.tick()
                yield from run.ready()
                if run.scheduler.open:
                    waiter.wait(0 if run.wanted else pause)

    async def discover_many_async(
        self, pairs: AsyncIterator[tuple[Token, Item]], lifetime: float, *, ordered: bool = True
    ) -> AsyncGenerator[tuple[Token, Discovery], None]:
        """``discover_many`` on the running event loop."""
        import asyncio

        from maptr.resolver.aio import LoopWaiter, need_asyncio
        from maptr.resolver.bulk import Run

        need_asyncio()
        stub = await asyncio.to_thread(self.opened, lifetime) if self.blocks else self.opened(lifetime)
        if not isinstance(stub, Stub):
            twin = self._with_cache()
            async for token, item in pairs:
                yield token, item if isinstance(item, Discovery) else await twin.discover_async(item, lifetime)
            return
        waiter = LoopWaiter()
        run: Run[Token] = Run(self, stub, lifetime, waiter, ordered)
        with closing(run):
            while not run.over:
                if wanted := run.wanted:
                    taken = [pair for _ in range(wanted) if (pair := await anext(pairs, None)) is not None]
                    run.start(taken, wanted)
                pause = run.tick()
                for done in run.ready():
                    yield done
                if run.scheduler.open:
                    await waiter.wait(0 if run.wanted else pause)

    def _one_by_one(
        self, pairs: Iterable[tuple[Token, Item]], lifetime: float
    ) -> Generator[tuple[Token, Discovery], None, None]:
        """Ask a dnspython resolver; one that was made for servers by HTTPS also in several threads."""
        from concurrent.futures import ThreadPoolExecutor

        twin = self._with_cache()

        def ask(item: Item) -> Discovery:
            return item if isinstance(item, Discovery) else twin.discover(item, lifetime)

        if self.is_dnspython:
            yield from ((token, ask(item)) for token, item in pairs)
            return
        waiting: deque[tuple[Token, Future[Discovery]]] = deque()
        with ThreadPoolExecutor(self.max_connections) as pool:
            for token, item in pairs:
                waiting.append((token, pool.submit(ask, item)))
                if len(waiting) >= self.max_connections:
                    token, future = waiting.popleft()
                    yield token, future.result()
            for token, future in waiting:
                yield token, future.result()

    def _with_cache(self) -> Self:
        """Return a copy whose dnspython resolver keeps answers for the run, if it was made for servers by HTTPS."""
        twin = copy.copy(self)
        if not self.is_dnspython:
            import dns.resolver  # only for HTTPS: it takes 70 ms to import

            made: Any = copy.copy(self.opened(0.0))
            made.cache = dns.resolver.LRUCache()
            twin._asked = made
        return twin

    def serial(self) -> int | None:
        """Return the serial of the zone at the origin, asked now; None if DNS does not say."""
        import dns.exception  # late: dns.resolver doubles the start time of a command
        import dns.name

        from maptr.resolver.dnspython import as_sync, make_resolver

        try:
            asked = as_sync(self.given) if self.is_dnspython else make_resolver(self.given or system_servers())
            origin = dns.name.Name((*self.settings.origin, b""))
            answer = asked.resolve(origin, "SOA", lifetime=self.lifetime, search=False)
        except (dns.exception.DNSException, OSError):
            return None
        serial: int = answer[0].serial
        return serial


class StubLookups:
    """The lookups of one walk at plain servers. A failure is an answer, too."""

    def __init__(self, stub: Stub, run: TimedWalk, waiter: Any) -> None:
        self._multiplexer = Multiplexer(stub, waiter, clock=run.clock)
        self._waiter = waiter
        self.close = self._multiplexer.close
        self._run = run

    def _start(self, questions: list[Question]) -> dict[Labels, Answer]:
        """Queue questions, to be answered within the time of the walk. Returns a dictionary that the answers fill."""
        answers: dict[Labels, Answer] = {}
        for question in questions:
            done = partial(answers.__setitem__, question.name)
            self._multiplexer.ask(question.name, done, question.rdtype, seconds=self._run.left)
        return answers

    def ask(self, questions: list[Question]) -> list[Answer]:
        """Return the answers to questions, which are asked side by side."""
        answers = self._start(questions)
        while len(answers) < len(questions):
            self._waiter.wait(self._multiplexer.tick() or 0)
        return [answers[question.name] for question in questions]

    async def ask_async(self, questions: list[Question]) -> list[Answer]:
        """``ask``, awaited."""
        answers = self._start(questions)
        while len(answers) < len(questions):
            await self._waiter.wait(self._multiplexer.tick() or 0)
        return [answers[question.name] for question in questions]
