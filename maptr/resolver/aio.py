"""``discover_async``: the walk of ``discover`` on an event loop. The questions of one depth are asked side by side."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Literal

from maptr.ark import Ark, Profile
from maptr.discovery import Discovery
from maptr.resolver.call import Call, StepHook, at_port, listed, need_asyncio, prefer
from maptr.resolver.multiplexer import Ready
from maptr.resolver.servers import is_address
from maptr.resolver.stub import Stub
from maptr.resolver.sync import StubLookups, resolver_for
from maptr.walk import Settings

if TYPE_CHECKING:
    import dns.asyncresolver
    import dns.name
    import dns.resolver

    from maptr.choose import Chooser
    from maptr.resolver.dnspython import DnspythonLookups
    from maptr.resolver.validation.validator import TrustAnchors


async def discover_async(
    ark: Ark | str | bytes,
    *,
    resolver: dns.asyncresolver.Resolver | Stub | None = None,
    nameservers: Iterable[str] | None = None,
    origin: str | dns.name.Name = "ark.arpa.",
    lifetime: float | None = None,
    raise_on_none: bool = True,
    chooser: Chooser | None = None,
    on_step: StepHook | None = None,
    settings: Settings | None = None,
    trust_ad: bool = False,
    trust_anchors: TrustAnchors | None = None,
    require: Literal["secure"] | None = None,
    profile: Profile = "current",
) -> Discovery:
    """``discover``, awaited: same arguments, same discovery, same errors.

    Cancelling it cancels its queries. A server given by name is looked up in a thread, within ``lifetime``. A chooser
    with a true attribute ``waits``, such as ``Reachable``, is called in a thread, too.

    >>> asyncio.run(discover_async("ark:12345/x6np1wh8k", nameservers=[server])).url()
    'https://ark.example.org/ark:12345/x6np1wh8k'
    """
    call = Call(
        ark, origin, lifetime, raise_on_none, chooser, on_step, settings, trust_ad, trust_anchors, require, profile
    )
    return await discover_with_async(call, resolver, nameservers)


async def discover_at_async(
    where: str,
    ark: Ark | str | bytes,
    *,
    port: int = 53,
    origin: str | dns.name.Name = "ark.arpa.",
    lifetime: float | None = None,
    raise_on_none: bool = True,
    chooser: Chooser | None = None,
    on_step: StepHook | None = None,
    settings: Settings | None = None,
    trust_ad: bool = False,
    trust_anchors: TrustAnchors | None = None,
    require: Literal["secure"] | None = None,
    profile: Profile = "current",
) -> Discovery:
    """``discover_at``, awaited: same arguments, same discovery, same errors.

    >>> asyncio.run(discover_at_async(host, "ark:12345/x6np1wh8k", port=port)).complete
    True
    """
    call = Call(
        ark, origin, lifetime, raise_on_none, chooser, on_step, settings, trust_ad, trust_anchors, require, profile
    )
    return await discover_with_async(call, None, at_port(where, port))


async def discover_with_async(
    run: Call, resolver: dns.asyncresolver.Resolver | Stub | None, nameservers: Iterable[str] | None
) -> Discovery:
    """``sync.discover_with``, awaited."""
    need_asyncio()
    given: Stub | dns.asyncresolver.Resolver | dns.resolver.Resolver | None
    nameservers = None if nameservers is None else listed(nameservers)
    with run.named():
        if all(is_address(text.partition("#")[0]) for text in nameservers or ()):
            given = resolver_for(resolver, nameservers, run)
        else:
            given = await asyncio.to_thread(resolver_for, resolver, nameservers, run)  # looks up names
    if isinstance(given, Stub):
        with closing(StubLookups(given, run, LoopWaiter())) as lookups:
            return await _walk(run, lookups)
    from maptr.resolver.dnspython import DnspythonLookups  # dnspython takes 70 ms to import

    with run.named():
        return await _walk(run, DnspythonLookups(given, run, awaited=True))


async def _walk(run: Call, lookups: StubLookups | DnspythonLookups) -> Discovery:
    while questions := run.walk.next():
        known = lookups.origins.recall(questions, lookups.trust)
        run.tell(
            questions, known or lookups.origins.remember(questions, lookups.trust, await lookups.ask_async(questions))
        )
    return await prefer_async(run.finish(), run.chooser)


async def prefer_async(discovery: Discovery, chooser: Chooser | None) -> Discovery:
    """``call.prefer``, in a thread if the chooser waits for mapping authorities."""
    if getattr(chooser, "waits", False):
        return await asyncio.to_thread(prefer, discovery, chooser)
    return prefer(discovery, chooser)


class LoopWaiter:
    """Waits on the running event loop, which must have ``add_reader`` (on Windows, the default one does not)."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def watch(self, sock: socket.socket, ready: Ready, *, write: bool = False) -> None:
        (self._loop.add_writer if write else self._loop.add_reader)(sock, self._call, ready)

    def unwatch(self, sock: socket.socket) -> None:
        self._loop.remove_reader(sock)
        self._loop.remove_writer(sock)

    def _call(self, ready: Ready) -> None:
        ready()
        self._event.set()

    async def wait(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()
