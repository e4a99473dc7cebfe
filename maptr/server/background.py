"""Work that would block the event loop, in a thread that the end of the process does not wait for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[[], T]) -> T:
    """The result of the function, called in a daemon thread."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # the caller may stop to wait, but the work goes on

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="background", daemon=True).start()
    return await asyncio.wrap_future(future)
