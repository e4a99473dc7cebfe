"""The asyncio side of a cache. A separate module, so that a program that does not use asyncio starts without it."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Future
from typing import TYPE_CHECKING

from maptr.cache.lookups import Driver, Finish, PendingLookup, Wait
from maptr.discovery import Discovery
from maptr.resolver.aio import prefer_async

if TYPE_CHECKING:
    from maptr.choose import Chooser
    from maptr.resolver.resolver import Resolver


class TaskDriver(Driver):
    """Runs lookups in asyncio tasks. Cancelling a caller does not cancel the lookup, which others may wait for."""

    def __init__(self, resolver: Resolver, finish: Finish) -> None:
        super().__init__(resolver, finish)
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Cancel the lookups that run in the current event loop, and wait for their end."""
        loop = asyncio.get_running_loop()
        tasks = [task for task in self._tasks.copy() if task.get_loop() is loop]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def prefer(self, found: Discovery, chooser: Chooser | None) -> Discovery:
        return await prefer_async(found, chooser)

    def _start(self, wait: Wait) -> None:
        loop = asyncio.get_running_loop()
        wait.pending.is_lost = loop.is_closed
        task = loop.create_task(self._look_up(wait.pending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wait(self, done: Future[Discovery], seconds: float) -> None:
        """Wait for a lookup, which may run in a thread or in a task of another event loop."""
        loop = asyncio.get_running_loop()
        event = asyncio.Event()

        def wake(_: object) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

        done.add_done_callback(wake)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), seconds)

    async def _discover(self, pending: PendingLookup) -> Discovery:
        return await self._resolver.discover_async(pending.ark, pending.deadline)
