"""The asyncio side of a cache. A module of its own, because a program that does not use asyncio starts without it."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Future
from typing import TYPE_CHECKING

from maptr.cache.lookups import Finish, PendingLookup, Result, Steps
from maptr.discovery import Discovery

if TYPE_CHECKING:
    from maptr.resolver.resolver import Resolver


class TaskDriver:
    """Runs lookups in asyncio tasks. Cancelling a caller does not cancel the lookup, which others may wait for.

    ``finish`` takes the result.
    """

    def __init__(self, resolver: Resolver, finish: Finish) -> None:
        self._resolver = resolver
        self._finish = finish
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, steps: Steps[Result]) -> Result:
        """Run the steps to their end, and return what they return."""
        try:
            while True:
                wait = next(steps)
                if wait.start:
                    loop = asyncio.get_running_loop()
                    wait.pending.is_lost = loop.is_closed
                    task = loop.create_task(self._look_up(wait.pending))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                if wait.seconds and not wait.pending.done.done():
                    await _wait(wait.pending.done, wait.seconds)
        except StopIteration as end:
            result: Result = end.value
        return result

    async def stop(self) -> None:
        """Cancel the lookups that run in the current event loop, and wait for their end."""
        loop = asyncio.get_running_loop()
        tasks = [task for task in self._tasks.copy() if task.get_loop() is loop]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_up(self, pending: PendingLookup) -> None:
        result: Discovery | Exception | None = None
        try:
            result = await self._resolver.discover_async(pending.ark, pending.deadline)
        except Exception as error:
            result = error
        finally:  # without a result if it is cancelled
            self._finish(pending, result)


async def _wait(done: Future[Discovery], seconds: float) -> None:
    """Wait for a lookup, which may run in a thread or in a task of another event loop."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()

    def wake(_: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(event.set)

    done.add_done_callback(wake)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
