"""Short conversations over streams, for those who tell how the server is: bounded in number, ended together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator

MAX_CONNECTIONS = 16  # at once; people, their scripts and a scraper or two, not crowds

Converse = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


class Conversations:
    """Each connection in a task of its own, gone when its task is.

    Where there are enough, a new one takes the place of the oldest, which has said nothing in its time, or takes none
    of what it was told; strangers who only hold the line so keep nobody out. One whose request is under way stays.
    """

    def __init__(self, converse: Converse) -> None:
        self._converse = converse
        self._tasks: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._answered: set[asyncio.Task[None] | None] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """For ``asyncio.start_server`` and its likes."""
        if len(self._tasks) >= MAX_CONNECTIONS:
            oldest = next((task for task in self._tasks if task not in self._answered), None)
            if oldest is None:
                writer.transport.abort()
                return
            del self._tasks[oldest]
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))
        task.add_done_callback(lambda _: writer.transport.abort())

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """For a conversation: what it was asked is under way."""
        task = asyncio.current_task()
        self._answered.add(task)
        try:
            yield
        finally:
            self._answered.discard(task)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
