"""A server for requests of operators, on the control socket and over HTTP: few connections, one request each."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Iterator

MAX_CONNECTIONS = 16  # open at once: for operators, their scripts and a few scrapers

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


class RequestServer:
    """Handles each connection on a bound socket in a task of its own; the connection ends with its task.

    At the limit a new connection replaces the oldest whose request is not being answered, so that connections without
    a request lock out no operator; if all are being answered, the new connection is refused.
    """

    def __init__(self, sock: socket.socket, handle: Handler, *, limit: int) -> None:
        self._sock = sock
        self._handle = handle
        self._limit = limit  # bytes of a request
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._answering: set[asyncio.Task[None] | None] = set()

    async def start(self) -> None:
        start = asyncio.start_unix_server if self._sock.family == socket.AF_UNIX else asyncio.start_server
        self._server = await start(self._accept, sock=self._sock, limit=self._limit)

    async def stop(self) -> None:
        self._sock.close() if self._server is None else self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """For the handler: while its request is being answered, its connection is not replaced."""
        task = asyncio.current_task()
        self._answering.add(task)
        try:
            yield
        finally:
            self._answering.discard(task)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= MAX_CONNECTIONS:
            oldest = next((task for task in self._tasks if task not in self._answering), None)
            if oldest is None:
                writer.transport.abort()
                return
            del self._tasks[oldest]
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._handle(reader, writer))
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))
        task.add_done_callback(lambda _: writer.transport.abort())
