"""Who waits for sockets to be ready: ``selectors`` for the sync drivers, the running event loop for the async ones."""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Callable
from typing import Protocol

Ready = Callable[[], None]


class Waiter(Protocol):
    """Who calls back when a socket can be read, or written."""

    def watch(self, sock: socket.socket, ready: Ready, *, write: bool = False) -> None: ...
    def unwatch(self, sock: socket.socket) -> None: ...


class SelectorWaiter:
    """Waits on ``selectors``."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, sock: socket.socket, ready: Ready, *, write: bool = False) -> None:
        self._selector.register(sock, selectors.EVENT_WRITE if write else selectors.EVENT_READ, ready)

    def unwatch(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)

    def wait(self, seconds: float | None) -> None:
        for key, _ in self._selector.select(seconds):
            key.data()

    def close(self) -> None:
        self._selector.close()


class LoopWaiter:
    """Waits on the running event loop (one with ``add_reader``, as everywhere but on Windows)."""

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
        if seconds == 0:
            await asyncio.sleep(0)
            return
        timer = None if seconds is None else self._loop.call_later(seconds, self._event.set)
        try:
            await self._event.wait()
        finally:
            self._event.clear()
            if timer is not None:
                timer.cancel()
