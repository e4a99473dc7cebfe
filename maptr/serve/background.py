"""Work that would hold the event loop, in a thread that the end of the process does not wait for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

LOOK = 0.01  # seconds between two looks whether threads have ended


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
    try:
        return await future
    finally:
        if future.done() and not future.cancelled():
            thread.join()  # it has nothing left to do, and whoever forks must be alone


async def when_alone(function: Callable[[], T], *, seconds: float | None = None) -> T:
    """What the function gives, called by the event loop outside of any task while no other thread runs: it may fork.

    Raises TimeoutError if a thread goes on for so many seconds, and what the function raises.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def attempt() -> None:
        if future.done():
            return  # nobody waits any more
        if threading.active_count() > 1:
            loop.call_later(LOOK, attempt)
            return
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)

    loop.call_soon(attempt)
    try:
        async with asyncio.timeout(seconds):
            return await future
    except TimeoutError:
        raise TimeoutError(f"another thread has run for {seconds:g} seconds") from None
