"""A server for operators' requests, on the control socket and over HTTP: one request per connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

MAX_CONNECTIONS = 16  # enough for operators, their scripts and a few scrapers
TIMEOUT = 10.0  # seconds to receive a request, and to send its response: Prometheus's default timeout


class RequestServer:
    """Answers one request on each connection to a bound socket. Disconnects clients that are too slow.

    A request ends with ``end`` and has at most ``limit`` bytes; ``respond`` returns its response. ``respond`` also gets
    incomplete requests, and the first ``limit`` bytes of longer ones.

    At the limit, a new connection replaces the oldest one whose request is not being answered, so that idle connections
    cannot lock out operators; if all requests are being answered, the new connection is refused.
    """

    def __init__(
        self, sock: socket.socket, respond: Callable[[bytes], Awaitable[bytes]], *, end: bytes, limit: int
    ) -> None:
        self._sock = sock
        self._respond = respond
        self._end = end
        self._limit = limit
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}  # oldest first
        self._answering: set[asyncio.Task[None] | None] = set()

    async def start(self) -> None:
        start = asyncio.start_unix_server if self._sock.family == socket.AF_UNIX else asyncio.start_server
        self._server = await start(self._accept, sock=self._sock, limit=self._limit)

    async def stop(self) -> None:
        self._sock.close() if self._server is None else self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= MAX_CONNECTIONS:
            oldest = next((task for task in self._tasks if task not in self._answering), None)
            if oldest is None:
                writer.transport.abort()
                return
            del self._tasks[oldest]
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(TIMEOUT):
                try:
                    request = await reader.readuntil(self._end)
                except asyncio.IncompleteReadError as error:
                    request = error.partial
                except asyncio.LimitOverrunError:
                    request = await reader.readexactly(self._limit)
            self._answering.add(task)
            try:
                response = await self._respond(request)
            finally:
                self._answering.discard(task)
            async with asyncio.timeout(TIMEOUT):
                writer.write(response)
                await writer.drain()
                writer.write_eof()
                # Read any data after the request, because closing with unread data would reset the connection, which
                # could discard the response.
                while await reader.read(self._limit):
                    pass
