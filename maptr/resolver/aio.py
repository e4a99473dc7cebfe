"""The walk of ``Resolver.discover`` on an event loop. The questions of one depth are asked side by side."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from maptr.discovery import Discovery
from maptr.resolver.call import TimedWalk, need_asyncio, prefer
from maptr.resolver.multiplexer import Ready
from maptr.resolver.stub import Stub
from maptr.resolver.sync import StubLookups
from maptr.resolver.upstream import Upstream, names_ark

if TYPE_CHECKING:
    import dns.resolver

    from maptr.choose import Chooser
    from maptr.resolver.dnspython import DnspythonLookups


async def discover_async(upstream: Upstream, run: TimedWalk) -> Discovery:
    """Run a walk to its end."""
    need_asyncio()
    with names_ark(run.walk.ark):
        asked = await opened(upstream, run.left)
    if isinstance(asked, Stub):
        with closing(StubLookups(asked, run, LoopWaiter())) as lookups:
            return await _walk(upstream, run, lookups)
    from maptr.resolver.dnspython import DnspythonLookups  # dnspython takes 70 ms to import

    asking = DnspythonLookups(asked, run, upstream.validator, trust_ad=upstream.trust_ad, awaited=True)
    return await _walk(upstream, run, asking)


async def opened(upstream: Upstream, seconds: float) -> Stub | dns.resolver.BaseResolver:
    """``Upstream.opened``, in a thread if it looks up names."""
    if upstream.blocks:
        return await asyncio.to_thread(upstream.opened, seconds)
    return upstream.opened(seconds)


async def _walk(upstream: Upstream, run: TimedWalk, lookups: StubLookups | DnspythonLookups) -> Discovery:
    origin = upstream.origin
    while questions := run.walk.next():
        known = origin.recall(questions)
        run.tell(questions, known or origin.remember(questions, await lookups.ask_async(questions)))
    return run.result()


async def prefer_async(found: Discovery, chooser: Chooser | None) -> Discovery:
    """``call.prefer``, in a thread if the chooser waits for mapping authorities."""
    if getattr(chooser, "waits", False):
        return await asyncio.to_thread(prefer, found, chooser)
    return prefer(found, chooser)


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
