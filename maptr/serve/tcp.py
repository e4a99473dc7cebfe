"""DNS over streams (RFC 7766): framing, pipelining and timeouts, over TCP and, with a certificate, over TLS.

How many may connect is decided in ``connections.py``; what TLS is spoken, in ``tls.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from maptr.answer import Transport
from maptr.errors import ZoneError
from maptr.serve.connections import MAX_CONNECTIONS, MAX_PER_CLIENT, Connection, Connections
from maptr.serve.tlsstream import TlsStream

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

    def shared(self, workers: int) -> TcpLimits:
        """Those of each of so many workers, over which the kernel spreads connections: rounded up."""
        return replace(
            self,
            max_connections=-(-self.max_connections // workers),
            max_per_client=-(-self.max_per_client // workers),
        )


DEFAULT_LIMITS = TcpLimits()


@dataclass(frozen=True, slots=True)
class Pace:
    """How a listener that accepts no more ends the connections that it has, in seconds from then.

    One that has been ``idle`` so long is closed; after ``busy`` each is, once it has the replies to what it asked; and
    at the ``end`` whatever is left, amid a transfer for one.
    """

    idle: float
    busy: float
    end: float


# To go: what is asked has its reply, and nobody is waited for.
LEAVING = Pace(idle=0.0, busy=0.0, end=1.0)
# To make way for those who have newer zones. NSD gives connections that are left a tenth of a second.
GIVING_WAY = Pace(idle=0.5, busy=10.0, end=600.0)
DRAIN_INTERVAL = 0.05  # seconds between two looks at who is idle


def open_socket(host: str, port: int, *, joining: bool = False) -> socket.socket:
    """A listening non-blocking socket; ``joining`` as in ``udp.open_socket``. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if joining:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
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
        self._pause: asyncio.TimerHandle | None = None
        self._tasks: dict[asyncio.Task[None], _Patience] = {}

    def start(self) -> None:
        self._pause = None
        asyncio.get_running_loop().add_reader(self._sock, self._accept)

    def quiet(self) -> None:
        """Accept no more; what waits to be accepted waits for whoever else has the socket."""
        if self._sock.fileno() == -1:
            return
        if self._pause is not None:
            self._pause.cancel()
        asyncio.get_running_loop().remove_reader(self._sock)
        self._sock.close()

    async def stop(self) -> None:
        self.quiet()
        await self.drain(LEAVING)

    async def drain(self, pace: Pace) -> None:
        """After ``quiet``: let connections end what they are at, and close them; see ``Pace``."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        while self._tasks and (now := loop.time()) < started + pace.end:
            for patience in self._tasks.values():
                if now >= started + pace.busy or patience.began <= now - pace.idle:
                    patience.end()
            await asyncio.wait(self._tasks, timeout=DRAIN_INTERVAL)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self) -> None:
        # Here and not in a coroutine: one that is cancelled may have a connection that nobody would hear of, and
        # asyncio's own servers tell of a TLS client only after its handshake, when it could no longer be counted.
        try:
            sock, peer = self._sock.accept()
        except (BlockingIOError, ConnectionError):
            return  # taken by another process, or gone before it was accepted
        except OSError as error:
            log.warning("no connection accepted for %g s: %s", ACCEPT_PAUSE, error.strerror or error)
            self._connections.shed()
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._sock)
            self._pause = loop.call_later(ACCEPT_PAUSE, self.start)
            return
        self._admit(sock, peer[0])

    def _admit(self, sock: socket.socket, client: str) -> None:
        connection = self._connections.admit(client, lambda: task.cancel())
        if connection is None:
            sock.close()
            return
        patience = _Patience(self._limits.idle_timeout)
        task = asyncio.get_running_loop().create_task(self._serve(sock, client, connection, patience))
        self._tasks[task] = patience

        def forget(_: object) -> None:
            # A callback, not a finally: a task cancelled before its first step never enters its own try.
            sock.close()
            del self._tasks[task]
            self._connections.remove(connection)

        task.add_done_callback(forget)

    async def _serve(self, sock: socket.socket, client: str, connection: Connection, patience: _Patience) -> None:
        def heard() -> None:
            patience.pause()
            self._connections.touch(connection)

        with contextlib.suppress(TimeoutError, OSError, ZoneError):
            # The client left, stalled or was cut off, or a transfer was: nothing to say, and nobody to say it to.
            reader, writer = await self._open(sock)
            try:
                await converse(
                    reader,
                    writer,
                    lambda query: self._answer(query, self._transport, client),
                    wait=patience.begin,
                    write_timeout=self._limits.write_timeout,
                    on_message=heard,
                )
                async with asyncio.timeout(self._limits.write_timeout):
                    writer.close()
                    await writer.wait_closed()
            finally:
                writer.transport.abort()

    async def _open(self, sock: socket.socket) -> tuple[Reader, ClosingWriter]:
        """The connection's two ends; over TLS, after the handshake. Raises OSError."""
        loop = asyncio.get_running_loop()
        sock.setblocking(False)
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, sock)
        transport.set_write_buffer_limits(high=SEND_BUFFER)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        if self._security is None:
            return reader, writer
        stream = TlsStream(reader, writer, self._security())
        try:
            async with asyncio.timeout(self._limits.handshake_timeout):
                await stream.handshake()
        except BaseException:
            transport.abort()
            raise
        return stream, stream


class _Patience:
    """How long a connection waits for its next message, which whoever drains it cuts short."""

    def __init__(self, seconds: float) -> None:
        self.began = math.inf  # when it began to wait; never, while a message is answered
        self._seconds = seconds
        self._timeout: asyncio.Timeout | None = None
        self._ending = False

    def begin(self) -> asyncio.Timeout:
        self.began = asyncio.get_running_loop().time()
        self._timeout = asyncio.timeout(0 if self._ending else self._seconds)
        return self._timeout

    def pause(self) -> None:
        self.began = math.inf

    def end(self) -> None:
        """Wait no more; what has come already is still answered."""
        if not self._ending and self.began != math.inf and self._timeout is not None:
            with contextlib.suppress(RuntimeError):  # it is over already
                self._timeout.reschedule(asyncio.get_running_loop().time())
        self._ending = True


class Reader(Protocol):
    """The part of an ``asyncio.StreamReader`` that a conversation needs."""

    async def readexactly(self, n: int) -> bytes: ...


class Writer(Protocol):
    """The part of an ``asyncio.StreamWriter`` that a conversation needs."""

    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...


class ClosingWriter(Writer, Protocol):
    """And what its end needs."""

    @property
    def transport(self) -> asyncio.WriteTransport: ...
    def close(self) -> None: ...
    async def wait_closed(self) -> None: ...


async def converse(
    reader: Reader,
    writer: Writer,
    answer: Callable[[bytes], Iterable[bytes]],
    *,
    wait: Callable[[], asyncio.Timeout] = lambda: asyncio.timeout(IDLE_TIMEOUT),
    write_timeout: float = WRITE_TIMEOUT,
    on_message: Callable[[], object] = lambda: None,
) -> None:
    """Message after message, in order, until the stream ends or is idle: what was asked before is answered.

    ``wait`` gives the time for each message. Raises TimeoutError for a client that does not read, and what the
    streams raise.
    """
    while True:
        try:
            async with wait():
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
