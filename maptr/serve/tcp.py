"""DNS over TCP (RFC 7766): framing, pipelining, and limits that keep one client from starving the others."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterator

from maptr.answer import Transport
from maptr.errors import ZoneError

# The messages of one reply, taken as the client reads them: none, one, or many for a zone transfer.
Answers = Callable[[bytes, Transport, str], Iterator[bytes]]

# Seconds a client has for one whole message, from the last reply to its final octet: "on the order of a few
# seconds" (RFC 7766 6.2.3). It bounds a trickle of octets as it does silence.
IDLE_TIMEOUT = 10.0
# Seconds a client has to read what is waiting for it once the send buffer is full.
WRITE_TIMEOUT = 10.0
MAX_CONNECTIONS = 500  # BIND's tcp-clients is 150, NSD's tcp-count 100; an idle one here costs some kilobytes
MAX_PER_CLIENT = 50  # RFC 7766 6.2.2 lets a server limit connections of one address
BACKLOG = 128
SEND_BUFFER = 128 * 1024  # octets of replies waiting for a slow reader: two of the largest
# Seconds for one whole reply, however it trickles: BIND's max-transfer-time-out.
REPLY_TIMEOUT = 7200.0


def open_socket(host: str, port: int) -> socket.socket:
    """A listening non-blocking socket. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


class TcpListener:
    """Answers connections on one socket.

    Past the limit the connection idle for longest makes room for a new one; past a client's own limit its new
    connection is closed.
    """

    def __init__(
        self,
        sock: socket.socket,
        answer: Answers,
        *,
        idle_timeout: float = IDLE_TIMEOUT,
        write_timeout: float = WRITE_TIMEOUT,
        max_connections: int = MAX_CONNECTIONS,
        max_per_client: int = MAX_PER_CLIENT,
    ) -> None:
        self._sock = sock
        self._answer = answer
        self._idle_timeout = idle_timeout
        self._write_timeout = write_timeout
        self._max_connections = max_connections
        self._max_per_client = max_per_client
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}  # longest idle first
        self._per_client: Counter[str] = Counter()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, sock=self._sock, backlog=BACKLOG)

    async def stop(self) -> None:
        """Stop listening and drop what is open: a client of DNS asks elsewhere, or again."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._open.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        client = peer[0] if peer else ""
        if self._per_client[client] >= self._max_per_client:
            writer.transport.abort()
            return
        if len(self._open) >= self._max_connections:
            self._open.pop(next(iter(self._open))).cancel()
        self._per_client[client] += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer, client))
        self._open[writer] = task
        # A callback, not a finally: a task cancelled before its first step never enters its own try.
        task.add_done_callback(lambda _: self._forget(writer, client))

    def _forget(self, writer: asyncio.StreamWriter, client: str) -> None:
        writer.transport.abort()
        self._open.pop(writer, None)
        self._per_client[client] -= 1
        if not self._per_client[client]:
            del self._per_client[client]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: str) -> None:
        try:
            writer.transport.set_write_buffer_limits(high=SEND_BUFFER)
            await self._converse(reader, writer, client)
            async with asyncio.timeout(self._write_timeout):
                writer.close()
                await writer.wait_closed()
        except (asyncio.IncompleteReadError, TimeoutError, OSError, ZoneError):
            pass  # the client left, stalled or was cut off, or a transfer was: nothing to say, and nobody to say it to

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: str) -> None:
        """Message after message, in order, to the end of the stream: what was asked before is answered."""
        while True:
            async with asyncio.timeout(self._idle_timeout):
                try:
                    length = int.from_bytes(await reader.readexactly(2), "big")
                except asyncio.IncompleteReadError:
                    return
                query = await reader.readexactly(length)
            self._is_busy(writer)
            async with asyncio.timeout(REPLY_TIMEOUT):
                for reply in self._answer(query, Transport.TCP, client):
                    self._is_busy(writer)
                    writer.write(len(reply).to_bytes(2, "big") + reply)
                    async with asyncio.timeout(self._write_timeout):
                        await writer.drain()
                    # Drain gives way only when the buffer is full, so a long transfer would hold the loop.
                    await asyncio.sleep(0)
            # Neither does read while octets are ready, nor a query that gets silence.
            await asyncio.sleep(0)

    def _is_busy(self, writer: asyncio.StreamWriter) -> None:
        """It is now the least idle."""
        task = self._open.pop(writer, None)
        if task is not None:
            self._open[writer] = task
