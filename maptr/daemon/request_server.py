"""A server for operators' requests, on the control socket and over HTTP: one request per connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping

from maptr.config.model import ConnectionLimits
from maptr.daemon.connections import Acceptor, Counts, OpenConnections
from maptr.daemon.sockets import MAX_REQUESTS

TIMEOUT = 10.0  # seconds to receive a request, and to send its response: Prometheus's default timeout


class _Connection:
    def __init__(self, tasks: Mapping[_Connection, asyncio.Task[None]]) -> None:
        self._tasks = tasks

    def abort(self) -> None:
        self._tasks[self].cancel()


class RequestServer(Acceptor[_Connection]):
    """Answers one request on each connection to a bound socket. Disconnects slow clients.

    A request ends with ``end`` and has at most ``limit`` bytes; ``respond`` returns its response. Any other gets none.

    At the limit, a new connection replaces the oldest one whose request is not being answered, so that idle connections
    cannot lock out operators; if all requests are being answered, the new connection is refused.
    """

    def __init__(
        self, sock: socket.socket, respond: Callable[[bytes], Awaitable[bytes]], *, end: bytes, limit: int
    ) -> None:
        # One client may have all the connections: at the limit, its oldest makes room for its newest.
        super().__init__(OpenConnections(ConnectionLimits(MAX_REQUESTS, MAX_REQUESTS + 1, TIMEOUT), Counts()))
        self._sock = sock
        self._respond = respond
        self._end = end
        self._limit = limit

    def start(self) -> None:
        self.accept_on([self._sock])

    async def stop(self) -> None:
        self.accept_no_more()
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def respond(self, request: bytes, sock: socket.socket) -> bytes:
        """Return the response to a request on a connection."""
        return await self._respond(request)

    def make(self, sock: socket.socket, client: str) -> _Connection:
        return _Connection(self._tasks)

    async def connect(self, connection: _Connection, sock: socket.socket, client: str) -> None:
        reader, writer = await asyncio.open_connection(sock=sock, limit=self._limit)
        try:
            async with asyncio.timeout(TIMEOUT):
                request = await reader.readuntil(self._end)
            self.connections.busy(connection)
            try:
                response = await self.respond(request, sock)
            finally:
                self.connections.idle(connection)
            async with asyncio.timeout(TIMEOUT):
                writer.write(response)
                await writer.drain()
                writer.write_eof()
                # Read any data after the request, because closing with unread data would reset the connection, which
                # could discard the response.
                while await reader.read(self._limit):
                    pass
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self.connections.remove(connection)
            writer.transport.abort()
