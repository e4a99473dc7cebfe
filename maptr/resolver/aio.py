"""The asyncio side of a resolver: a separate module, so that a program that does not await starts without it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from maptr.discovery import Discovery
from maptr.errors import NoEventLoop
from maptr.resolver.bulk import INTAKE
from maptr.resolver.call import prefer
from maptr.resolver.connections import Ready, TcpPool

if TYPE_CHECKING:
    from maptr.choose import Chooser
    from maptr.resolver.stub import Stub

T = TypeVar("T")


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
        if self._loop.is_closed():
            return
        self._loop.remove_reader(sock)
        self._loop.remove_writer(sock)

    def _call(self, ready: Ready) -> None:
        ready()
        self.wake()

    def wake(self) -> None:
        """End a ``pause``, or the next one."""
        self._event.set()

    async def pause(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()

    def close(self) -> None:
        """Do nothing: the event loop belongs to the program."""


class SharedConnections:
    """The TCP connections that awaited look-ups share (RFC 7766 6.2.1): a pool for each event loop.

    Threads with their own event loops may share one.
    """

    def __init__(self, stub: Stub, most: int) -> None:
        self._stub = stub
        self._most = most
        self._pools: dict[asyncio.AbstractEventLoop, TcpPool] = {}

    def here(self) -> TcpPool:
        """Return the pool of the running event loop."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            self._abandon()
            pool = TcpPool(LoopWaiter(), self._most, lambda: self._stub.tls_context, loop.call_later)
            self._pools[loop] = pool
        return pool

    def close(self) -> None:
        """Close the connections of the running event loop, if one runs here, and of closed ones."""
        self._abandon()
        with suppress(RuntimeError):
            if (pool := self._pools.pop(asyncio.get_running_loop(), None)) is not None:
                pool.close()

    def _abandon(self) -> None:
        for loop in [loop for loop in [*self._pools] if loop.is_closed()]:
            if (pool := self._pools.pop(loop, None)) is not None:
                pool.abandon()


class Feed(Generic[T]):
    """Takes the items of a stream in a separate task, so that waiting for one delays nothing else.

    It holds at most INTAKE of them, and calls ``wake`` for the first one that it holds, and at the end of the stream.
    """

    def __init__(self, stream: AsyncIterator[T], wake: Callable[[], None]) -> None:
        self._taken: list[T] = []
        self._room = asyncio.Event()
        self._task = asyncio.create_task(self._run(stream, wake))

    async def _run(self, stream: AsyncIterator[T], wake: Callable[[], None]) -> None:
        taken = self._taken
        try:
            async for item in stream:
                taken.append(item)
                held = len(taken)
                if held == 1:
                    wake()
                elif held == INTAKE:
                    self._room.clear()
                    await self._room.wait()
        finally:
            wake()

    def __bool__(self) -> bool:
        return bool(self._taken)

    def take(self, most: int) -> tuple[list[T], bool]:
        """Return items that have arrived, and whether they are the last ones. Raises the stream's error."""
        if self._task.done():
            self._task.result()
        taken = self._taken[:most]
        del self._taken[:most]
        self._room.set()
        return taken, self._task.done() and not self._taken

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
