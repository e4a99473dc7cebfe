"""A server's background work: reloads and periodic tasks, with their log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator

from maptr.daemon import process

log = logging.getLogger("maptr.daemon")

Work = Callable[[], Awaitable[object]]


class Repetitions:
    """A repeated task's warnings: each is logged once, and again when it has changed or returns."""

    def __init__(self) -> None:
        self._logged: dict[Hashable, object] = {}

    def is_new(self, about: Hashable, found: object) -> bool:
        """Return whether to log a finding. A falsy value means that there is nothing to log."""
        if not found:
            self.forget(about)
            return False
        before, self._logged[about] = self._logged.get(about), found
        return found != before

    def forget(self, about: Hashable) -> None:
        """Log the next finding about it even if it is the same."""
        self._logged.pop(about, None)


class Background:
    """A server's background work until ``stop``. ``reload`` is called after each ``request_reload``; a request during
    a reload causes another reload. An exception is logged once while it lasts, and the work continues."""

    def __init__(self, reload: Work) -> None:
        self._reload = reload
        self._logged = Repetitions()
        self._requested = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self.repeat(0.0, self._reload_on_request, "nothing reloaded")

    def repeat(
        self, seconds: float | Callable[[], float], work: Work, failure: str, *, wanted: asyncio.Event | None = None
    ) -> None:
        """Do the work now and after each pause, which ``wanted`` ends.

        ``failure`` says what was not done, for the log line after an exception.
        """
        wake = wanted or asyncio.Event()

        async def run() -> None:
            while True:
                wake.clear()  # before the work, so that a request during it counts
                try:
                    await work()
                    self._logged.forget(run)
                except Exception as error:
                    if self._logged.is_new(run, repr(error)):
                        log.exception("internal error, %s", failure)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds() if callable(seconds) else seconds):
                        await wake.wait()

        self._tasks.append(asyncio.get_running_loop().create_task(run()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def request_reload(self) -> None:
        self._requested.set()

    async def _reload_on_request(self) -> None:
        await self._requested.wait()
        self._requested.clear()
        await self._reload()


@contextlib.contextmanager
def announced_reload() -> Iterator[None]:
    """Tell systemd when a reload begins and ends."""
    process.notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
    try:
        yield
    finally:
        process.notify(process.READY)
