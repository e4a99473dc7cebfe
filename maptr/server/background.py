"""Work that would hold the event loop, in a thread that the end of the process does not wait for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[[], T]) -> T:
    """What the function gives. Of a process that ends meanwhile nobody hears it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = function()
        except BaseException as error:
            tell(future.set_exception, error)
        else:
            tell(future.set_result, result)

    def tell(setter: Callable[[Any], None], value: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(lambda: None if future.done() else setter(value))

    thread = threading.Thread(target=run, name="background", daemon=True)
    thread.start()
    return await future
