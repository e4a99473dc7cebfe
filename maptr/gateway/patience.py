"""Threads for requests that must wait for a file, such as a locked database. The event loop never waits for one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from maptr.daemon.process import in_thread
from maptr.gateway.message import Unreadable

T = TypeVar("T")

THREADS = 4  # more would only wait for the same lock or disk
PATIENCE = 0.5  # seconds that one request waits for a thread and for files
TOO_LONG = "what this request needs cannot be read now"


class WaitingThreads:
    """At most THREADS working threads, including those whose request has given up. For one event loop."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(THREADS)
        self._working: set[asyncio.Task[object]] = set()

    async def run(self, work: Callable[[], T], seconds: float) -> T:
        """Return the result of the work. Raises Unreadable if it takes longer; a thread that has begun continues."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._turns.acquire()
                task = asyncio.ensure_future(in_thread(work))
                self._working.add(task)
                task.add_done_callback(self._done)
                return await asyncio.shield(task)
        except TimeoutError:
            raise Unreadable(TOO_LONG) from None

    def _done(self, task: asyncio.Task[object]) -> None:
        self._turns.release()
        self._working.discard(task)
        if not task.cancelled():
            task.exception()  # if the request has given up, nothing else retrieves it

    async def stop(self) -> None:
        """Stop waiting for threads."""
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)


class Allowance:
    """The seconds that one request has left to wait in ``threads``."""

    def __init__(self, threads: WaitingThreads, seconds: float = PATIENCE) -> None:
        self._threads = threads
        self._left = seconds

    async def run(self, work: Callable[[], T]) -> T:
        began = time.monotonic()
        try:
            return await self._threads.run(work, self._left)
        finally:
            self._left -= time.monotonic() - began
