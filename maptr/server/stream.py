"""DNS over TCP and TLS (RFC 7766, RFC 7858): streams of messages, and their connections within limits.

A ``Stream`` is an asyncio protocol without a task: queries that arrive together are answered together, in one write.
A response's messages are made as the client reads them, so a client that reads a zone slowly takes the memory of one
message. Streams are served in short turns, so that no client delays the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import math
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import cast

from maptr.answer.context import ReceivedQuery, Transport
from maptr.config.model import ConnectionLimits
from maptr.daemon.certificate import Certificate
from maptr.daemon.connections import Acceptor, Counts, OpenConnections
from maptr.errors import ZoneError

log = logging.getLogger("maptr.serve")

Answers = Callable[[ReceivedQuery], Iterable[bytes]]  # the messages of one response

WRITE_TIMEOUT = 10.0  # seconds for a client to read once the send buffer is full
HANDSHAKE_TIMEOUT = 10.0  # seconds for a TLS handshake, the same as for a query
REPLY_TIMEOUT = 7200.0  # seconds for all messages of one response: BIND's max-transfer-time-out
HELD_BUFFER = 128 * 1024  # bytes of queries that wait for their turn; beyond this, reading pauses
SEND_BUFFER = 128 * 1024  # bytes of responses that a slow client has not read: two of the largest
MAX_TURN = 32  # queries answered in one turn; one takes a tenth of a millisecond on the general path
TURN_SIZE = 16 * 1024  # bytes of responses in one turn: one message of a transfer
TURNS_TIME = 0.005  # seconds of turns before the event loop reads new data; one message of a transfer takes less
CHECKS = 10  # checks for connections past their deadline in the time of the shortest limit
CHECK_INTERVAL = 0.1  # minimum seconds between two of these checks
LEAVE_TIMEOUT = 1.0  # seconds to send unfinished responses when the server stops
LEAVE_INTERVAL = 0.02  # seconds between checks whether they are sent


class RoundRobin:
    """A round-robin scheduler for streams with more to send, so that new queries need not wait for all of them."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._scheduled = False

    def add(self, turn: Callable[[], object]) -> None:
        """Schedule a turn after those that are already waiting."""
        self._waiting.append(turn)
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + TURNS_TIME
        self._scheduled = False
        try:
            while self._waiting and loop.time() < end:
                self._waiting.popleft()()
        finally:  # a turn that raises must not stop the others
            self._schedule()


class HeldQueries:
    """Received bytes as length-prefixed messages (RFC 1035 4.2.2); the last may be incomplete."""

    def __init__(self) -> None:
        self._data = b""
        self._at = 0  # where the next message begins

    def __len__(self) -> int:
        return len(self._data) - self._at

    def add(self, data: bytes) -> None:
        self._data = self._data[self._at :] + data
        self._at = 0

    def take(self) -> bytes | None:
        """Remove and return the next message; None if it is not complete."""
        data, at = self._data, self._at
        start = at + 2
        if len(data) < start:
            return None
        end = start + (data[at] << 8 | data[at + 1])
        if len(data) < end:
            return None
        self._at = end
        return data[start:end]


class StreamState(enum.Enum):
    CONNECTING = "during the TLS handshake, before there is a transport"
    WAITING = "for a message"
    BUSY = "a turn is scheduled, or the client must read first"
    ENDING = "busy, and closing once the received queries are answered"
    CLOSING = "once the client has read the responses"
    GONE = "closed or aborted"


WAITING, BUSY, ENDING = StreamState.WAITING, StreamState.BUSY, StreamState.ENDING
OVER = StreamState.CLOSING, StreamState.GONE


class Stream(asyncio.Protocol):
    """A connection that answers queries in order until the client ends it or its deadline has passed.

    ``answer`` yields a response's messages; a ZoneError from it ends the connection. ``connections`` has the limits,
    and is notified of queries and of the end. ``sock`` is the accepted socket, which is shut down if the stream is
    aborted before it has a transport.
    """

    def __init__(
        self, answer: Callable[[bytes], Iterable[bytes]], connections: Connections, *, sock: socket.socket | None = None
    ) -> None:
        self._answer = answer
        self._connections = connections
        self._sock = sock
        self._transport: asyncio.Transport | None = None
        self._held = HeldQueries()  # an incomplete query, or queries that wait for their turn
        self._replies: Iterator[bytes] | None = None  # the rest of the response that is being sent
        self._reply_deadline = math.inf  # until it is sent; set once it takes more than a turn
        self._write_paused = False  # the client does not read
        self.state = StreamState.CONNECTING
        self._extend(HANDSHAKE_TIMEOUT)

    # ---- callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._sock = None
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(SEND_BUFFER)
        if self.state is StreamState.GONE:  # the stream was ended during the handshake
            self._transport.abort()
        else:
            self._wait()

    def data_received(self, data: bytes) -> None:
        if self.state in OVER:
            return
        self._held.add(data)
        if self.state is WAITING:
            self._turn()
        elif len(self._held) > HELD_BUFFER:
            self._writer.pause_reading()  # until ``_go_on``; a second call does nothing

    def eof_received(self) -> bool:
        self.end()
        # A half-closed stream still answers the received queries; asyncio's TLS closes both directions at once.
        return self._transport is not None and self._transport.get_extra_info("sslcontext") is None

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        if self.state not in OVER:
            self._schedule()

    def connection_lost(self, exc: Exception | None) -> None:
        self.state = StreamState.GONE
        self._transport = None  # breaks a reference cycle; a TLS transport takes about 50 KB
        self._replies = None  # ends a transfer
        self._connections.remove(self)

    # ---- methods for the listener

    def end(self) -> None:
        """End the stream once the received queries are answered; during a handshake, at once."""
        if self.state is StreamState.CONNECTING:
            self.abort()
        elif self.state is WAITING:
            self._finish()
        elif self.state is BUSY:
            self.state = ENDING

    def abort(self) -> None:
        """End the stream at once. During a handshake, shut down the socket: asyncio has no other clean way."""
        self.state = StreamState.GONE
        if self._transport is not None:
            self._transport.abort()
        elif self._sock is not None:
            with contextlib.suppress(OSError):  # the client may have reset the connection
                self._sock.shutdown(socket.SHUT_RDWR)

    def check_deadline(self, now: float) -> None:
        """End the stream if its deadline has passed."""
        if now < self.deadline or self.state is StreamState.GONE:
            return
        if self.state is WAITING:
            self._finish()
        else:
            self.abort()

    # ---- answering

    @property
    def _writer(self) -> asyncio.Transport:
        assert self._transport is not None  # noqa: S101 - called only after ``connection_made``
        return self._transport

    def _turn(self) -> None:
        """Answer the received queries, up to the limits of a turn, and send the responses in one write."""
        if self.state in OVER or self._writer.is_closing():  # the client may have closed the connection
            return
        out: list[bytes] = []
        try:
            queries, is_full = self._fill(out)
        except ZoneError:  # the protocol has no message for a failed transfer
            if out:
                self._writer.write(b"".join(out))
            self.abort()
            return
        except BaseException:
            self.abort()
            raise
        if out:
            self._writer.write(b"".join(out))
        if out or queries:
            self._connections.idle(self)
        if self.state not in OVER:
            self._go_on(is_full, bool(out or queries))

    def _fill(self, out: list[bytes]) -> tuple[int, bool]:
        """Append the bytes that a turn sends: the rest of the last response, and the responses to held queries.

        Returns the number of these queries, and whether a limit ended the turn before all were answered.
        """
        size = queries = 0
        while queries < MAX_TURN:
            if self._replies is None:
                query = self._held.take()
                if query is None:
                    return queries, False
                queries += 1
                self._replies = iter(self._answer(query))
                self._reply_deadline = math.inf
            for reply in self._replies:
                out += (len(reply).to_bytes(2, "big"), reply)
                size += len(reply) + 2
                if size >= TURN_SIZE:
                    return queries, True
            self._replies = None
        return queries, True

    def _go_on(self, is_full: bool, is_active: bool) -> None:
        """After a turn: wait for the client to read, schedule another turn, end the stream, or wait for a query."""
        if self._replies is not None and self._reply_deadline == math.inf:
            self._reply_deadline = asyncio.get_running_loop().time() + REPLY_TIMEOUT
        if self._write_paused:
            self._be_busy()
            self._extend(WRITE_TIMEOUT)
        elif is_full:
            self._schedule()
        elif self.state is ENDING:
            self._finish()
            return
        elif is_active or self.state is BUSY:
            self._wait()  # only a complete message extends the deadline
        if len(self._held) <= HELD_BUFFER:
            self._writer.resume_reading()

    def _schedule(self) -> None:
        """Schedule another turn."""
        self._be_busy()
        self.deadline = self._reply_deadline
        self._connections.turns.add(self._turn)

    def _be_busy(self) -> None:
        if self.state is WAITING:
            self.state = BUSY

    def _wait(self) -> None:
        self.state = WAITING
        self._extend(self._connections.limits.idle_timeout)

    # ---- the end and the deadline

    def _finish(self) -> None:
        """Close the stream once the client has read the responses, or its time has passed."""
        self.state = StreamState.CLOSING
        self._extend(WRITE_TIMEOUT)
        self._writer.close()

    def _extend(self, seconds: float) -> None:
        """Let ``check_deadline`` end the stream after that many seconds."""
        self.deadline = min(asyncio.get_running_loop().time() + seconds, self._reply_deadline)


class Connections(OpenConnections[Stream]):
    """The open connections of all listeners, with their deadlines.

    They may be closed to make room even while being answered.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__(limits, Counts())
        self.turns = RoundRobin()
        shortest = min(limits.idle_timeout, WRITE_TIMEOUT, HANDSHAKE_TIMEOUT)
        self._check_interval = max(CHECK_INTERVAL, shortest / CHECKS)
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, connection: Stream, address: str, *, exempt: bool = False) -> bool:
        """Count a new connection. Returns False if its client already has too many."""
        if not super().admit(connection, address, exempt=exempt):
            return False
        if self._timer is None:
            self._check_deadlines()
        return True

    async def drain(self) -> None:
        """Finish sending responses within LEAVE_TIMEOUT, and close all connections."""
        for close in (Stream.end, Stream.abort):
            for stream in self:
                close(stream)
            until = time.monotonic() + LEAVE_TIMEOUT
            while self and time.monotonic() < until:
                await asyncio.sleep(LEAVE_INTERVAL)
        if self._timer is not None:
            self._timer.cancel()

    def _check_deadlines(self) -> None:
        """Close the connections past their deadline, now and at intervals while there are connections."""
        loop = asyncio.get_running_loop()
        for stream in self:
            stream.check_deadline(loop.time())
        self._timer = loop.call_later(self._check_interval, self._check_deadlines) if self else None


class TcpListener(Acceptor[Stream]):
    """Accepts connections on one socket: TCP, or TLS with a ``certificate``. Listeners share ``connections``."""

    connections: Connections

    def __init__(
        self, sock: socket.socket, answer: Answers, connections: Connections, certificate: Certificate | None = None
    ) -> None:
        super().__init__(connections)
        self._sock = sock
        self._answer = answer
        self._certificate = certificate
        self._transport = Transport.TLS if certificate else Transport.TCP

    def start(self) -> None:
        self.accept_on([self._sock])

    async def stop(self) -> None:
        self.accept_no_more()

    def make(self, sock: socket.socket, client: str) -> Stream:
        return Stream(
            lambda query: self._answer(ReceivedQuery(query, self._transport, client)), self.connections, sock=sock
        )

    async def connect(self, connection: Stream, sock: socket.socket, client: str) -> None:
        tls = self._certificate.context if self._certificate else None
        # TLS may take this long to end, because unsent data must be sent first.
        await self.begin(connection, sock, client, tls=tls, handshake=HANDSHAKE_TIMEOUT, shutdown=WRITE_TIMEOUT)
