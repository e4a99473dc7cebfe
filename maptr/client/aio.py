"""discover_async(): the walk of ``discover`` on an event loop, with the questions of one depth side by side."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Unpack

from maptr.ark import Ark
from maptr.client.call import Call, CallOptions, Origins, has_urls, listed, prefer
from maptr.client.multiplexer import LoopWaiter, Multiplexer
from maptr.client.servers import is_address, no_address, read_server, servers_at
from maptr.client.stub import Stub
from maptr.client.sync import resolver_for
from maptr.discovery import Discovery
from maptr.errors import ConfigError
from maptr.protocol.names import Labels
from maptr.protocol.numbers import SOA
from maptr.walk import Answer, Question

if TYPE_CHECKING:
    import dns.asyncresolver
    import dns.resolver

    from maptr.choose import Chooser


async def discover_async(
    ark: Ark | str | bytes,
    *,
    resolver: dns.asyncresolver.Resolver | Stub | None = None,
    nameservers: Iterable[str] | None = None,
    **options: Unpack[CallOptions],
) -> Discovery:
    """``discover``, awaited: same arguments, same discovery, same errors.

    Cancelling it cancels its queries. A server given by name is looked up by the event loop's resolver, within
    ``lifetime``. A chooser with a true attribute ``waits``, such as ``Reachable``, is called in a thread.

    >>> asyncio.run(discover_async("ark:12345/x6np1wh8k", nameservers=[server])).url()
    'https://ark.example.org/ark:12345/x6np1wh8k'
    """
    run = Call(ark, **options)
    given: Stub | dns.asyncresolver.Resolver | dns.resolver.Resolver | None
    if nameservers is not None and resolver is None:
        nameservers = await addresses_of(nameservers, run.left)
    if has_urls(nameservers):
        given = await asyncio.to_thread(resolver_for, resolver, nameservers, run)  # looks up names
    else:
        given = resolver_for(resolver, nameservers, run)
    ask: _Ask = _StubLookups(given) if isinstance(given, Stub) else _ResolverLookups(given, run)
    while questions := run.walk.next():
        for question, answer in zip(questions, await ask(run, questions), strict=True):
            run.tell(question, answer)
    return await prefer_async(run.finish(), run.chooser)


async def addresses_of(nameservers: Iterable[str], seconds: float) -> list[str]:
    """The servers, names replaced by their addresses, which the event loop's resolver looks up in so many seconds.

    Raises ConfigError, and DiscoveryFailed for a name without address.
    """
    loop = asyncio.get_running_loop()
    made: list[str] = []
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            for text in listed(nameservers):
                _, mark, rest = text.rpartition("://")
                host, port = (rest, 0) if mark else read_server(text)
                if mark or is_address(host):  # a URL keeps its name, for its certificate
                    made.append(text)
                    continue
                try:
                    found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
                except (OSError, UnicodeError) as error:
                    raise no_address(host, error) from None
                made += [str(server) for server in servers_at(port, found)]
    except TimeoutError as error:
        raise no_address(host, error) from None
    except ValueError as error:
        raise ConfigError(str(error), key="nameservers") from None
    return made


async def discover_at_async(
    where: str, ark: Ark | str | bytes, *, port: int = 53, **options: Unpack[CallOptions]
) -> Discovery:
    """``discover_at``, awaited.

    >>> asyncio.run(discover_at_async(host, "ark:12345/x6np1wh8k", port=port)).complete
    True
    """
    return await discover_async(ark, nameservers=[where if "#" in where else f"{where}#{port}"], **options)


async def prefer_async(discovery: Discovery, chooser: Chooser | None) -> Discovery:
    """``call.prefer``, in a thread if the chooser waits for mapping authorities."""
    if getattr(chooser, "waits", False):
        return await asyncio.to_thread(prefer, discovery, chooser)
    return prefer(discovery, chooser)


async def ask_once(
    origins: Origins, question: Question, trust: Hashable, ask: Callable[[], Awaitable[Answer]], seconds: float
) -> Answer:
    """``Origins.ask``, awaited: while one call in an event loop asks for an origin, the others wait for its answer."""
    if question.rdtype != SOA:
        return await ask()
    place = question.name, trust, asyncio.get_running_loop()
    asked: asyncio.Event | None = origins.asked.get(place)
    if asked is None:
        asked = origins.asked[place] = asyncio.Event()
        try:
            known = origins.recall(question, trust)
            return origins.remember(question, trust, await ask()) if known is None else known
        finally:
            del origins.asked[place]
            asked.set()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await asked.wait()
    known = origins.recall(question, trust)
    return origins.remember(question, trust, await ask()) if known is None else known


_Ask = Callable[[Call, list[Question]], Awaitable[list[Answer]]]


class _StubLookups:
    """Asks plain servers."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub

    async def __call__(self, run: Call, questions: list[Question]) -> list[Answer]:
        if len(questions) > 1:
            return await self._ask(run, questions)

        async def ask() -> Answer:
            return (await self._ask(run, questions))[0]

        return [await ask_once(self._stub.origins, questions[0], self._stub.trust, ask, run.left)]

    async def _ask(self, run: Call, questions: list[Question]) -> list[Answer]:
        origins, trust = self._stub.origins, self._stub.trust
        waiter = LoopWaiter()
        multiplexer = Multiplexer(self._stub, waiter, seconds=run.left, concurrency=len(questions), clock=run.clock)
        answers: dict[Labels, Answer] = {}
        try:
            for question in questions:
                if (known := origins.recall(question, trust)) is not None:
                    answers[question.name] = known
                else:
                    multiplexer.ask(question.name, answers.__setitem__, question.rdtype)
            while True:
                pause = multiplexer.tick()
                if len(answers) == len(questions):
                    return [origins.remember(question, trust, answers[question.name]) for question in questions]
                await waiter.wait(pause)
        finally:
            multiplexer.close()


class _ResolverLookups:
    """Asks a dnspython resolver, by default the system's."""

    def __init__(self, given: dns.asyncresolver.Resolver | dns.resolver.Resolver | None, run: Call) -> None:
        from maptr.client import resolver as reading  # dnspython takes 70 ms to import

        given = given or reading.default_resolver()
        self._origins = reading.origins_of(given)
        self._lookups = reading.DnspythonLookups(reading.as_async(given), run)

    async def __call__(self, run: Call, questions: list[Question]) -> list[Answer]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._ask(run, question)) for question in questions]
        return [task.result() for task in tasks]

    async def _ask(self, run: Call, question: Question) -> Answer:
        return await ask_once(self._origins, question, self._lookups.trust, partial(self._look_up, question), run.left)

    async def _look_up(self, question: Question) -> Answer:
        lookup = self._lookups.start(question)
        while lookup.answer is None:
            try:
                found = await self._lookups.resolver.resolve(**lookup.arguments())
            except Exception as error:
                lookup.fail(error)
            else:
                lookup.tell(found)
        return lookup.answer
