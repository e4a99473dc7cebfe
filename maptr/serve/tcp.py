"""DNS over streams (RFC 7766): framing, pipelining and timeouts, over TCP and, with a certificate, over TLS.

How many may connect is decided in ``connections.py``; what TLS is spoken, in ``tls.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from maptr.answer import Transport
from maptr.errors import ZoneError
from maptr.serve.connections import MAX_CONNECTIONS, MAX_PER_CLIENT, Connection, Connections

log = logging.getLogger("maptr.serve")

# The messages of one reply, taken as the client reads them: none, one, or many for a zone transfer.
Answers = Callable[[bytes, Transport, str], Iterable[bytes]]

# Seconds a client has for one whole message, from the last reply to its final octet: "on the order of a few
# seconds" (RFC 7766 6.2.3). It bounds a trickle of octets as it does silence.
IDLE_TIMEOUT = 10.0
# Seconds a client has to read what is waiting for it once the send buffer is full.
WRITE_TIMEOUT = 10.0
REPLY_TIMEOUT = 7200.0  # seconds for all messages of one reply, however they trickle: BIND's max-transfer-time-out
HANDSHAKE_TIMEOUT = 10.0  # seconds for all of a TLS handshake, as long as for a message
SHUTDOWN_TIMEOUT = 1.0  # seconds to wait for a client's own close of TLS, which tells us nothing
BACKLOG = 128
SEND_BUFFER = 128 * 1024  # octets of replies waiting for a slow reader: two of the largest
# Seconds to wait when the system has no more sockets to give; asyncio's own servers wait as long.
ACCEPT_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class TcpLimits:
    """Limits of TCP and TLS: connections over all addresses together, times in seconds."""

    max_connections: int = MAX_CONNECTIONS
    max_per_client: int = MAX_PER_CLIENT
    idle_timeout: float = IDLE_TIMEOUT
    write_timeout: float = WRITE_TIMEOUT
    handshake_timeout: float = HANDSHAKE_TIMEOUT


DEFAULT_LIMITS = TcpLimits()


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
    """Answers connections on one socket, within the limits that it shares with other listeners.

    ``security`` gives the TLS context of each new connection; without it the stream is plain TCP.
    """

    def __init__(
        self,
        sock: socket.socket,
        answer: Answers,
        connections: Connections,
        *,
        security: Callable[[], ssl.SSLContext] | None = None,
        limits: TcpLimits = DEFAULT_LIMITS,
    ) -> None:
        self._sock = sock
        self._answer = answer
        self._connections = connections
        self._security = security
        self._transport = Transport.TCP if security is None else Transport.TLS
        self._limits = limits
        self._accepting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._accepting = asyncio.get_running_loop().create_task(self._accept_forever())

    async def stop(self) -> None:
        """Stop listening and drop what is open: a client of DNS asks elsewhere, or again."""
        tasks = list(self._tasks)
        if self._accepting is not None:
            tasks.append(self._accepting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._sock.close()

    async def _accept_forever(self) -> None:
        # asyncio's own servers tell of a TLS client only after its handshake, when it could no longer be counted.
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, peer = await loop.sock_accept(self._sock)
            except ConnectionError:
                continue  # gone before it was accepted
            except OSError as error:
                log.warning("no connection accepted for %g s: %s", ACCEPT_PAUSE, error.strerror or error)
                self._connections.shed()
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            self._admit(sock, peer[0])

    def _admit(self, sock: socket.socket, client: str) -> None:
        connection = self._connections.admit(client, lambda: task.cancel())
        if connection is None:
            sock.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(sock, client, connection))
        self._tasks.add(task)

        def forget(_: object) -> None:
            # A callback, not a finally: a task cancelled before its first step never enters its own try.
            sock.close()
            self._tasks.discard(task)
            self._connections.remove(connection)

        task.add_done_callback(forget)

    async def _serve(self, sock: socket.socket, client: str, connection: Connection) -> None:
        with contextlib.suppress(TimeoutError, OSError, ZoneError):
            # The client left, stalled or was cut off, or a transfer was: nothing to say, and nobody to say it to.
            reader, writer = await self._open(sock)
            try:
                await converse(
                    reader,
                    writer,
                    lambda query: self._answer(query, self._transport, client),
                    idle_timeout=self._limits.idle_timeout,
                    write_timeout=self._limits.write_timeout,
                    on_message=lambda: self._connections.touch(connection),
                )
                async with asyncio.timeout(self._limits.write_timeout):
                    writer.close()
                    await writer.wait_closed()
            finally:
                writer.transport.abort()

    async def _open(self, sock: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The connection's two ends; over TLS, after the handshake. Raises OSError."""
        loop = asyncio.get_running_loop()
        sock.setblocking(False)
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        if self._security is None:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, sock)
        else:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                sock,
                ssl=self._security(),
                ssl_handshake_timeout=self._limits.handshake_timeout,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT,
            )
        transport.set_write_buffer_limits(high=SEND_BUFFER)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class Writer(Protocol):
    """The part of an ``asyncio.StreamWriter`` that a conversation needs."""

    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...


async def converse(
    reader: asyncio.StreamReader,
    writer: Writer,
    answer: Callable[[bytes], Iterable[bytes]],
    *,
    idle_timeout: float = IDLE_TIMEOUT,
    write_timeout: float = WRITE_TIMEOUT,
    on_message: Callable[[], object] = lambda: None,
) -> None:
    """Message after message, in order, until the stream ends or is idle: what was asked before is answered.

    Raises TimeoutError for a client that does not read, and what the streams raise.
    """
    while True:
        try:
            async with asyncio.timeout(idle_timeout):
                query = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
        except (asyncio.IncompleteReadError, TimeoutError):
            return
        on_message()
        async with asyncio.timeout(REPLY_TIMEOUT):
            for reply in answer(query):
                writer.write(len(reply).to_bytes(2, "big") + reply)
                async with asyncio.timeout(write_timeout):
                    await writer.drain()
                # Neither read nor drain gives way while octets are ready, so a transfer would hold the loop,
                await asyncio.sleep(0)
                on_message()
        await asyncio.sleep(0)  # and so would a long pipeline of queries.
