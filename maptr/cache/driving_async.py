"""Driving the steps of a call in a task. Imported where it is used: asyncio costs a command line its start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from maptr.cache.engine import Answering, Steps, Wait
from maptr.cache.flight import Flight
from maptr.discovery import Discovery

AskAsync = Callable[..., Awaitable[Discovery]]


class AsyncDriver:
    """Asks by ``ask``, awaited. Cancelling a caller leaves the question under way for whoever else waits for it."""

    def __init__(self, answering: Answering, ask: AskAsync) -> None:
        self._answering = answering
        self._ask = ask
        self._tasks: set[asyncio.Task[None]] = set()

    async def drive(self, steps: Steps) -> tuple[Discovery, float]:
        """The end of the steps."""
        try:
            while True:
                wait = next(steps)
                if wait.fly:
                    task = asyncio.get_running_loop().create_task(self._fly(wait))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                if wait.seconds and not wait.flight.landed.done():
                    await _landed(wait.flight, wait.seconds)
        except StopIteration as done:
            end: tuple[Discovery, float] = done.value
        return end

    async def stop(self) -> None:
        """Cancel the questions under way in this loop, and wait until they are gone."""
        loop = asyncio.get_running_loop()
        here = [task for task in list(self._tasks) if task.get_loop() is loop]
        for task in here:
            task.cancel()
        await asyncio.gather(*here, return_exceptions=True)

    async def _fly(self, wait: Wait) -> None:
        try:
            result = await self._ask(wait.request.ark, **wait.request.ask)
        except asyncio.CancelledError:
            self._answering.given_up(wait.flight, wait.request)
            raise
        except BaseException as error:
            self._answering.failed(wait.flight, wait.request, error)
        else:
            self._answering.landed(wait.flight, wait.request, result)


async def _landed(flight: Flight, seconds: float) -> None:
    """Wait for a flight, cancelling nothing; it may be flown by a thread or by a task of another loop."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()

    def tell(_: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(event.set)

    flight.landed.add_done_callback(tell)
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
