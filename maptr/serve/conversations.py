"""Short conversations over streams, for those who tell how the server is: bounded in number, ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

MAX_CONNECTIONS = 16  # at once; people, their scripts and a scraper or two, not crowds

Converse = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


class Conversations:
    """Each connection in a task of its own; one too many is hung up on, and each is gone when its task is."""

    def __init__(self, converse: Converse) -> None:
        self._converse = converse
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """For ``asyncio.start_server`` and its likes."""
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
