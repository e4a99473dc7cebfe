"""``Resolver``: where and how a client asks DNS, for one ARK or for many, by plain servers or a dnspython resolver.

``walk`` decides what to ask and what an answer means. ``multiplexer`` asks plain servers, ``dnspython`` its resolvers,
and ``bulk`` has the walks of a stream. A look-up is a coroutine, which blocks in a thread and waits in a task.
"""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import closing
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, get_args

from maptr.ark import MAX_NAAN, Ark, Hyphens
from maptr.discovery import Discovery, NoServer
from maptr.errors import ConfigError
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.protocol.numbers import SOA
from maptr.resolver.call import LIFETIME, Clock, Deadline, Lifetime, StepHook, TimedWalk, checked, complete
from maptr.resolver.connections import MAX_CONNECTIONS, TcpPool, Waiter
from maptr.resolver.multiplexer import CONCURRENCY, MAX_CONCURRENCY, Multiplexer, SelectorWaiter
from maptr.resolver.servers import HTTPS, TCP, TLS, FailedServers, check_server, is_address, system_servers
from maptr.resolver.stub import Stub
from maptr.url import PORTS
from maptr.walk import DEFAULTS, Answer, Question, Settings

if TYPE_CHECKING:
    from concurrent.futures import Future

    import dns.name
    import dns.resolver

    from maptr.resolver.aio import LoopWaiter, SharedConnections
    from maptr.resolver.bulk import Item, Run, Token
    from maptr.resolver.dnspython import DnspythonLookups
    from maptr.resolver.validation.validator import TrustAnchors, Validator

ORIGIN_SECONDS = 60.0  # for which the answer whether the origin exists is cached


class Resolver:
    """Runs walks over DNS. The options are those of ``maptr.Client``. Threads and tasks may share one. Raises
    ConfigError and TypeError. The methods return an incomplete discovery if DNS does not answer. They raise NoServer if
    no server can be queried.
    """

    def __init__(
        self,
        nameservers: Iterable[str] | dns.resolver.BaseResolver | None = None,
        *,
        origin: str | dns.name.Name | None = None,
        lifetime: float | None = None,
        settings: Settings | None = None,
        trust_ad: bool = False,
        trust_anchors: TrustAnchors | None = None,
        concurrency: int | None = None,
        rate: float | None = None,
        max_connections: int | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.settings = with_origin(settings, origin)
        self.lifetime = checked(LIFETIME if lifetime is None else lifetime, "lifetime")
        self.trust_ad = trust_ad
        self.validator = _validator(trust_anchors, trust_ad)
        self.given: Any = nameservers  # servers as text, a dnspython resolver, or None for the system's servers
        if nameservers is not None and not hasattr(nameservers, "resolve"):
            self.given = check_nameservers(nameservers)  # type: ignore[arg-type]
        if self._over_https:
            from maptr.resolver.dnspython import need_https  # as below

            need_https()
        self.concurrency = checked_count(
            CONCURRENCY if concurrency is None else concurrency, "concurrency", MAX_CONCURRENCY
        )
        self.max_connections = checked_count(
            MAX_CONNECTIONS if max_connections is None else max_connections, "max_connections"
        )
        self.rate = _checked_rate(rate)
        if self.is_dnspython and any(limit is not None for limit in (concurrency, rate, max_connections)):
            raise ConfigError(
                "a dnspython resolver is asked one question at a time: concurrency, rate and max_connections do not"
                " apply"
            )
        self.clock = clock
        self.failed: FailedServers | None = None  # of look-ups of one ARK, if nothing else remembers failures
        self._shared: SharedConnections | None = None  # of awaited look-ups
        self._origin: tuple[float, list[Answer]] = 0.0, []  # the answer whether it exists, and until when it is cached
        self._asked: Stub | dns.resolver.BaseResolver | None = None

    def __repr__(self) -> str:
        if self.given is None:
            return "the system's servers"
        return ", ".join(self.given) if isinstance(self.given, tuple) else repr(self.given)

    @property
    def is_dnspython(self) -> bool:
        return hasattr(self.given, "resolve")

    @property
    def _over_https(self) -> bool:
        return isinstance(self.given, tuple) and any(text.startswith(HTTPS) for text in self.given)

    @property
    def questions(self) -> int:
        """The number of names for which plain servers were asked."""
        return self._asked.questions if isinstance(self._asked, Stub) else 0

    @property
    def blocks(self) -> bool:
        """Whether its first use looks up a server's name, which blocks."""
        if self._asked is not None or self.given is None or self.is_dnspython:
            return False
        texts = (text.removeprefix(TCP).removeprefix(TLS).partition("#")[0] for text in self.given)
        return not all(map(is_address, texts))

    def opened(self, seconds: float) -> Stub | dns.resolver.BaseResolver:
        """Return the stub or the dnspython resolver that asks. The first call looks up servers given by name, each for
        that many seconds. Raises NoServer."""
        if self._asked is None:
            seconds = max(0.0, seconds)
            if self.is_dnspython:
                self._asked = self.given
            elif self._over_https:  # left to dnspython
                from maptr.resolver.dnspython import make_resolver  # slow to import

                self._asked = make_resolver(self.given, lifetime=seconds)
            else:
                self._asked = Stub(self.given, trust_ad=self.trust_ad, validator=self.validator, lifetime=seconds)
        return self._asked

    def discover(self, ark: Ark, lifetime: Lifetime, on_step: StepHook | None = None) -> Discovery:
        run = self._timed(ark, lifetime, on_step)
        return complete(self._walk(run, self._opened_for(run), SelectorWaiter()))

    def _timed(self, ark: Ark, lifetime: Lifetime, on_step: StepHook | None = None) -> TimedWalk:
        return TimedWalk(ark, self.settings, Deadline.of(lifetime, self.clock), on_step)

    async def discover_async(self, ark: Ark, lifetime: Lifetime, on_step: StepHook | None = None) -> Discovery:
        """``discover``, awaited. Cancelling it cancels its queries. The questions of one depth are asked together."""
        import asyncio  # it doubles the start time of a program

        from maptr.resolver.aio import LoopWaiter, need_asyncio

        need_asyncio()
        run = self._timed(ark, lifetime, on_step)
        asked = await asyncio.to_thread(self._opened_for, run) if self.blocks else self._opened_for(run)
        return await self._walk(run, asked, LoopWaiter())

    async def _walk(
        self, run: TimedWalk, asked: Stub | dns.resolver.BaseResolver, waiter: SelectorWaiter | LoopWaiter
    ) -> Discovery:
        with closing(self._lookups(run, asked, waiter)) as lookups:
            while questions := run.walk.next():
                answers = self._kept_origin(questions)
                if not answers:
                    answers = await lookups.ask(questions)
                    self._keep_origin(questions, answers)
                run.tell(questions, answers)
        return run.result()

    def close(self) -> None:
        """Forget which servers failed, and close the connections that look-ups of this event loop shared."""
        if self.failed is not None:
            self.failed.clear()
        if self._shared is not None:
            self._shared.close()

    def _kept_origin(self, questions: list[Question]) -> list[Answer]:
        """Return the answer for the SOA of the origin, if this is the question for it and the answer is cached."""
        until, answers = self._origin
        return answers if questions[0].rdtype == SOA and until > self.clock() else []

    def _keep_origin(self, questions: list[Question], answers: list[Answer]) -> None:
        if questions[0].rdtype == SOA and answers[0].outcome.answered:
            self._origin = self.clock() + ORIGIN_SECONDS, answers

    def _opened_for(self, run: TimedWalk) -> Stub | dns.resolver.BaseResolver:
        """Return the stub or resolver that asks, within the walk's time. A NoServer's discovery has the ARK."""
        try:
            return self.opened(run.deadline.left())
        except NoServer as error:
            error.discovery = error.discovery.replace(ark=run.walk.ark)
            raise

    def _lookups(
        self, run: TimedWalk, asked: Stub | dns.resolver.BaseResolver, waiter: SelectorWaiter | LoopWaiter
    ) -> StubLookups | DnspythonLookups:
        in_task = not isinstance(waiter, SelectorWaiter)
        if not isinstance(asked, Stub):
            from maptr.resolver.dnspython import DnspythonLookups  # dnspython is slow to import

            return DnspythonLookups(asked, run, self.validator, trust_ad=self.trust_ad, side_by_side=in_task)
        multiplexer = Multiplexer(
            asked,
            waiter,
            max_connections=self.max_connections,
            tcp=self._shared_tcp(asked) if in_task else None,
            failed=self.failed,
            clock=run.deadline.clock,
        )
        return StubLookups(multiplexer, run.deadline, waiter.pause)

    def _shared_tcp(self, stub: Stub) -> TcpPool:
        """Return the connections that awaited look-ups share in the running event loop."""
        from maptr.resolver.aio import SharedConnections  # it imports asyncio

        if self._shared is None:
            self._shared = SharedConnections(stub, self.max_connections)
        return self._shared.here()

    def discover_many(
        self, pairs: Iterable[tuple[Token, Item]], lifetime: float, *, ordered: bool = True
    ) -> Generator[tuple[Token, Discovery], None, None]:
        """Yield each token with the discovery of its ARK. Closing the generator closes every socket.

        ``lifetime`` bounds each walk from the first packet of its first question.
        """
        stub = self.opened(lifetime)
        if not isinstance(stub, Stub):
            yield from self._one_by_one(stub, pairs, lifetime)
            return
        from maptr.resolver.bulk import take  # a command that looks up one ARK starts without it

        waiter = SelectorWaiter()
        with closing(self._run(stub, lifetime, waiter, ordered)) as run:
            stream = iter(pairs)
            while not run.over:
                if wanted := run.wanted:
                    with run.clock:
                        taken = take(stream, wanted, self.clock)
                    run.start(*taken)
                pause = run.tick()
                with run.clock:
                    yield from run.ready()
                if run.scheduler.open:
                    waiter.wait(0 if run.wanted else pause)

    async def discover_many_async(
        self, pairs: AsyncIterator[tuple[Token, Item]], lifetime: float, *, ordered: bool = True
    ) -> AsyncGenerator[tuple[Token, Discovery], None]:
        """``discover_many`` on the running event loop."""
        import asyncio

        from maptr.resolver.aio import Feed, LoopWaiter, need_asyncio

        need_asyncio()
        stub = await asyncio.to_thread(self.opened, lifetime) if self.blocks else self.opened(lifetime)
        if not isinstance(stub, Stub):
            asked = self._for_run(stub)
            async for token, item in pairs:
                if not isinstance(item, Discovery):
                    item = await self._walk(self._timed(item, lifetime), asked, LoopWaiter())
                yield token, item
            return
        waiter = LoopWaiter()
        with closing(self._run(stub, lifetime, waiter, ordered)) as run:
            feed = Feed(pairs, waiter.wake)
            try:
                while not run.over:
                    if wanted := run.wanted:
                        run.start(*feed.take(wanted))
                    pause = run.tick()
                    with run.clock:
                        for done in run.ready():
                            yield done
                    if not run.over:
                        await waiter.pause(0 if feed and run.wanted else pause)
            finally:
                await feed.close()

    def _run(self, stub: Stub, lifetime: float, waiter: Waiter, ordered: bool) -> Run[Any]:
        from maptr.resolver.bulk import Run, RunClock  # as above

        clock = RunClock(self.clock)
        multiplexer = Multiplexer(
            stub,
            waiter,
            concurrency=self.concurrency,
            rate=self.rate,
            max_connections=self.max_connections,
            clock=clock,
        )
        return Run(multiplexer, self.settings, lifetime, ordered=ordered, clock=clock)

    def _one_by_one(
        self, resolver: dns.resolver.BaseResolver, pairs: Iterable[tuple[Token, Item]], lifetime: float
    ) -> Generator[tuple[Token, Discovery], None, None]:
        """Query a dnspython resolver; one that was made for HTTPS servers, in several threads."""
        from concurrent.futures import ThreadPoolExecutor

        asked = self._for_run(resolver)

        def ask(item: Item) -> Discovery:
            if isinstance(item, Discovery):
                return item
            return complete(self._walk(self._timed(item, lifetime), asked, SelectorWaiter()))

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

    def _for_run(self, resolver: dns.resolver.BaseResolver) -> dns.resolver.BaseResolver:
        """Return a resolver for many ARKs: one that was made for HTTPS servers then caches its answers."""
        if self.is_dnspython:
            return resolver
        import dns.resolver  # only for HTTPS: slow to import

        made = copy.copy(resolver)
        made.cache = dns.resolver.LRUCache()
        return made

    def serial(self) -> int | None:
        """Return the serial of the zone at the origin, asked now; None if DNS does not say."""
        import dns.resolver  # imported late: it doubles a command's start time

        from maptr.resolver.dnspython import make_resolver, of_kind

        try:
            given = self.given if self.is_dnspython else make_resolver(self.given or system_servers())
            asked = of_kind(given, dns.resolver.Resolver)
            origin = dns.name.Name((*self.settings.origin, b""))
            answer = asked.resolve(origin, "SOA", lifetime=self.lifetime, search=False)
        except (dns.exception.DNSException, OSError):
            return None
        serial: int = answer[0].serial
        return serial


class StubLookups:
    """The lookups of one walk at plain servers. A failure is also an answer."""

    def __init__(self, multiplexer: Multiplexer, deadline: Deadline, pause: Callable[[float], Awaitable[None]]) -> None:
        self._multiplexer = multiplexer
        self._deadline = deadline
        self._pause = pause
        self.close = multiplexer.close

    async def ask(self, questions: list[Question]) -> list[Answer]:
        """Return the answers to questions, which are asked side by side within the walk's time."""
        answers: dict[Labels, Answer] = {}
        for question in questions:
            done = partial(answers.__setitem__, question.name)
            self._multiplexer.ask(question.name, done, question.rdtype, deadline=self._deadline.until)
        while len(answers) < len(questions):
            await self._pause(self._multiplexer.tick() or 0)
        return [answers[question.name] for question in questions]


# ---- options


def with_origin(settings: Settings | None, origin: str | dns.name.Name | Labels | None = None) -> Settings:
    """Return the settings with this origin, None for their own.

    Raises ConfigError for an invalid value or domain name, or TypeError.
    """
    settings = DEFAULTS if settings is None else settings
    if not isinstance(settings, Settings):
        raise TypeError(f"settings: {settings!r} is not a maptr.Settings")
    for key, known in (("scheme", tuple(PORTS)), ("hyphens", get_args(Hyphens))):
        if (given := getattr(settings, key)) not in known:
            raise ConfigError(f"{given!r} is not one of {', '.join(known)}", key=key)
    for key in ("max_depth", "max_questions", "max_candidates", "max_records", "regexp_steps"):
        checked_count(getattr(settings, key), key, least=0)
    given = settings.origin if origin is None else origin
    try:
        if isinstance(given, str):
            labels = names.parse(given)
        elif isinstance(given, tuple) and all(isinstance(label, bytes) for label in given):
            labels = names.check(given)
        elif hasattr(given, "labels"):
            labels = names.check(tuple(label for label in given.labels if label))
        else:
            raise TypeError(f"origin: {given!r} is neither a str nor a dns.name.Name")
    except ValueError as error:
        raise ConfigError(f"{given} is not a valid domain name: {error}", key="origin") from None
    if names.wire_length(labels) + MAX_NAAN + 1 > names.MAX_NAME:
        raise ConfigError(f"{given} is too long for a NAAN below it", key="origin")
    return settings if labels == settings.origin else settings._replace(origin=labels)


def check_nameservers(nameservers: Iterable[str]) -> tuple[str, ...]:
    """Return the servers after checking how each is written, without a lookup; a single text is one server.

    Raises ConfigError for a bad one, TypeError for anything but text.
    """
    if not isinstance(nameservers, Iterable):
        raise TypeError(f"nameservers: {nameservers!r} is neither a list of servers nor a dnspython resolver")
    found = (nameservers,) if isinstance(nameservers, str) else tuple(nameservers)
    if not found:
        raise ConfigError("is empty: name a server; None means the system's servers", key="nameservers")
    for text in found:
        if not isinstance(text, str):
            raise TypeError(f"nameservers: {text!r} is not a str")
        try:
            check_server(text)
        except ValueError as error:
            raise ConfigError(str(error), key="nameservers") from None
    return found


def checked_count(given: int, key: str, most: float = inf, *, least: int = 1) -> int:
    """Return a number from ``least`` to ``most``. Raises ConfigError for any other, TypeError for another type."""
    if not isinstance(given, int):
        raise TypeError(f"{key}: {given!r} is not a whole number")
    if given < least:
        raise ConfigError(f"must be at least {least}", key=key)
    if given > most:
        raise ConfigError(f"must be at most {most}", key=key)
    return given


def _checked_rate(rate: float | None) -> float | None:
    """Return packets per second. Raises ConfigError unless it is more than 0, TypeError for another type."""
    if not isinstance(rate, int | float | None):
        raise TypeError(f"rate: {rate!r} is not a number")
    if rate is not None and not rate > 0:
        raise ConfigError("must be more than 0", key="rate")
    return rate


def _validator(trust_anchors: TrustAnchors | None, trust_ad: bool) -> Validator | None:
    """Return the given validator, or one with these anchors, if any. Raises ConfigError, also with ``trust_ad``."""
    if trust_anchors is None:
        return None
    from maptr.resolver.validation.validator import Validator  # needs the optional package cryptography

    if trust_ad:
        raise ConfigError("give trust_ad or trust_anchors, not both")
    return trust_anchors if isinstance(trust_anchors, Validator) else Validator(trust_anchors)
