"""A server for operators' requests, on the control socket and over HTTP: one request per connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

from maptr.config.model import TcpConfig
from maptr.daemon.connections import Acceptor, Counts, OpenConnections
from maptr.daemon.sockets import MAX_REQUESTS

TIMEOUT = 10.0  # seconds to receive a request, and to send its response: Prometheus's default timeout


class _Connection:
    task: asyncio.Task[None]
    writer: asyncio.StreamWriter | None = None

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def abort(self) -> None:
        self.task.cancel()

    def close(self) -> None:
        self._sock.close() if self.writer is None else self.writer.transport.abort()


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
        self._respond = respond
        self._end = end
        self._limit = limit
        self._connections: OpenConnections[_Connection] = OpenConnections(
            TcpConfig(MAX_REQUESTS, MAX_REQUESTS, TIMEOUT), Counts()
        )
        self._acceptor = Acceptor([sock], self._admit, self._connections.shed)

    async def start(self) -> None:
        self._acceptor.start()

    async def stop(self) -> None:
        self._acceptor.stop()
        tasks = [connection.task for connection in self._connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _admit(self, sock: socket.socket, client: str) -> None:
        connection = _Connection(sock)
        if not self._connections.admit(connection, client, exempt=True):
            sock.close()
            return
        connection.task = asyncio.get_running_loop().create_task(self._serve(connection, sock))
        connection.task.add_done_callback(lambda _: self._connections.remove(connection))
        connection.task.add_done_callback(lambda _: connection.close())

    async def _serve(self, connection: _Connection, sock: socket.socket) -> None:
        reader, connection.writer = await asyncio.open_connection(sock=sock, limit=self._limit)
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(TIMEOUT):
                try:
                    request = await reader.readuntil(self._end)
                except asyncio.IncompleteReadError as error:
                    request = error.partial
                except asyncio.LimitOverrunError:
                    request = await reader.readexactly(self._limit)
            self._connections.busy(connection)
            try:
                response = await self._respond(request)
            finally:
                self._connections.idle(connection)
            async with asyncio.timeout(TIMEOUT):
                connection.writer.write(response)
                await connection.writer.drain()
                connection.writer.write_eof()
                # Read any data after the request, because closing with unread data would reset the connection, which
                # could discard the response.
                while await reader.read(self._limit):
                    pass
