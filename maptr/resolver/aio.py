"""The asyncio side of a resolver: a module of its own, because a program that does not await starts without it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from maptr.discovery import Discovery
from maptr.errors import NoEventLoop
from maptr.resolver.call import prefer
from maptr.resolver.multiplexer import Ready

if TYPE_CHECKING:
    from maptr.choose import Chooser


def need_asyncio() -> None:
    """Raise NoEventLoop unless asyncio runs the caller."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        advice = "under trio, await trio.to_thread.run_sync(discover, ark)"
        raise NoEventLoop(f"no event loop of asyncio runs here: {advice}") from None


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

    def close(self) -> None:
        """Do nothing: the event loop belongs to the program."""
