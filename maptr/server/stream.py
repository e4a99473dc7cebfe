"""DNS over one stream (RFC 7766): framed messages, pipelined, answered in order, within limits of time and memory.

An asyncio protocol without a task: queries that arrive together are answered and sent together. The messages of a
response are made as the client reads them, so a client that reads a zone slowly costs the memory of one message. A turn
is short, so that no client delays the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, cast

from maptr.config.model import IDLE_TIMEOUT, MAX_CONNECTIONS, MAX_PER_CLIENT
from maptr.errors import ZoneError

WRITE_TIMEOUT = 10.0  # seconds for a client to read once the send buffer is full
HANDSHAKE_TIMEOUT = 10.0  # seconds for a TLS handshake, as long as for a query
REPLY_TIMEOUT = 7200.0  # seconds for all messages of one response, read slowly or not: BIND's max-transfer-time-out
HELD_BUFFER = 128 * 1024  # bytes of queries that wait for their turn, beyond which no more are read
SEND_BUFFER = 128 * 1024  # bytes of responses that a slow client has not read: two of the largest
MAX_TURN = 32  # queries answered in one turn; one takes a tenth of a millisecond on the general path
TURN_SIZE = 16 * 1024  # bytes of responses in one turn: a message of a transfer
TURNS_TIME = 0.005  # seconds of turns before the event loop looks for new data; a transfer's message takes some of it


class TcpLimits(NamedTuple):
    """Limits of streams. Numbers of connections are over all addresses, times are in seconds."""

    max_connections: int = MAX_CONNECTIONS
    max_per_client: int = MAX_PER_CLIENT
    idle_timeout: float = IDLE_TIMEOUT
    write_timeout: float = WRITE_TIMEOUT
    handshake_timeout: float = HANDSHAKE_TIMEOUT


DEFAULT_LIMITS = TcpLimits()


class RoundRobin:
    """Round-robin scheduling of the streams that have more to send, so that new queries do not wait for all of them."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._scheduled = False

    def add(self, turn: Callable[[], object]) -> None:
        """Call this soon, after the turns that already wait."""
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
        finally:  # the other turns follow one that raises
            self._schedule()


class Stream(asyncio.Protocol):
    """Answers message after message, until the client ends the stream or its deadline has passed.

    ``answer`` gives the messages of a response, and may raise ZoneError among them, which ends the connection.
    ``on_query`` is called after queries are answered, ``on_end`` once, when the connection is closed. ``schedule``
    calls its argument after the turns of others. A ``secure`` stream ends in both directions at once, as asyncio's TLS
    does. ``sock`` is the accepted socket, to be shut down if the stream is aborted before it has a transport.
    """

    def __init__(
        self,
        answer: Callable[[bytes], Iterable[bytes]],
        *,
        sock: socket.socket | None = None,
        limits: TcpLimits = DEFAULT_LIMITS,
        secure: bool = False,
        on_query: Callable[[Stream], object] = lambda _: None,
        on_end: Callable[[Stream], object] = lambda _: None,
        schedule: Callable[[Callable[[], object]], object] | None = None,
    ) -> None:
        self._answer = answer
        self._sock = sock
        self._limits = limits
        self._secure = secure
        self._on_query = on_query
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._schedule = schedule or self._loop.call_soon
        self._transport: asyncio.Transport | None = None
        self._held = b""  # received data: the part of a message, or messages that wait for their turn
        self._replies: Iterator[bytes] | None = None  # the rest of the response that is being sent
        self._busy = False  # a turn is scheduled, or the client has to read first
        self._write_paused = False  # the client does not read
        self._read_paused = False  # too much data is held
        self._ending = self._closing = self._gone = False
        self.begun = False  # has a transport, for TLS after the handshake
        self._reply_deadline = math.inf
        self._waiting = False  # for a message
        self.deadline = self._loop.time() + limits.handshake_timeout  # after which ``check_deadline`` ends the stream

    # ---- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.begun, self._sock = True, None
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(SEND_BUFFER)
        if self._gone:  # ended during the handshake
            self._transport.abort()
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._held = self._held + data if self._held else data
        if not self._busy:
            self._turn()
        elif len(self._held) > HELD_BUFFER:
            self._read_paused = True
            self._writer.pause_reading()

    def eof_received(self) -> bool:
        self._ending = True
        if not self._closing and not self._busy:
            self._finish()
        return not self._secure  # half-closed: received queries are still answered

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        if not self._closing:
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = self._closing = True
        self._transport = None  # a reference cycle, and TLS takes some 50 KB of memory
        self._replies = None  # ends a transfer
        self._on_end(self)

    # ---- called by the listener

    def end(self) -> None:
        """End the stream after the queries received so far are answered; in a handshake, at once."""
        self._ending = True
        if self._transport is None:
            self.abort()
        elif not self._busy and not self._closing:
            self._finish()

    def abort(self) -> None:
        """End the stream at once. In a handshake, shut down its socket: asyncio has no other clean way."""
        self._gone = self._closing = True
        if self._transport is not None:
            self._transport.abort()
        elif self._sock is not None:
            with contextlib.suppress(OSError):  # the client has reset the connection
                self._sock.shutdown(socket.SHUT_RDWR)

    def check_deadline(self, now: float) -> None:
        """End the stream if its deadline has passed."""
        if now < self.deadline or self._gone:
            return
        if self._waiting:
            self._finish()
        else:
            self.abort()

    # ---- answering

    @property
    def _writer(self) -> asyncio.Transport:
        assert self._transport is not None  # noqa: S101 - it has called
        return self._transport

    def _turn(self) -> None:
        """Answer the received queries, up to the limits of a turn, and send the responses in one write."""
        if self._closing or self._writer.is_closing():  # by the client
            return
        data, at, replies = self._held, 0, self._replies
        out: list[bytes] = []
        size = count = 0
        more = failed = False
        while not more:
            if replies is None:
                end = at + 2
                if len(data) < end or len(data) < (end := end + (data[at] << 8 | data[at + 1])):
                    break
                if count == MAX_TURN:
                    more = True
                    break
                replies = iter(self._answer(data[at + 2 : end]))
                at = end
                count += 1
                self._reply_deadline = math.inf
            try:
                for reply in replies:
                    out += (len(reply).to_bytes(2, "big"), reply)
                    size += len(reply) + 2
                    if size >= TURN_SIZE:
                        more = True
                        break
                else:
                    replies = None
            except ZoneError:  # the transfer cannot go on, and has no message for that
                failed = more = True
            except BaseException:
                self.abort()
                raise
        self._held, self._replies = data[at:], replies
        if out:
            self._writer.write(b"".join(out))
        if failed:
            self.abort()
            return
        if out or count:
            self._on_query(self)
            self._waiting = False
        self._after(more)

    def _after(self, more: bool) -> None:
        """After a turn: wait for the client to read, schedule the next turn, or wait for the next query."""
        if self._closing:
            return
        if self._replies is not None and self._reply_deadline == math.inf:
            self._reply_deadline = self._loop.time() + REPLY_TIMEOUT
        if self._write_paused:
            self._busy, self._waiting = True, False
            self._extend(self._limits.write_timeout)
        elif more:
            self._go_on()
        elif self._ending:
            self._finish()
        elif not self._waiting:
            self._wait()  # for a whole message: a part of one does not extend the deadline
        if self._read_paused and len(self._held) <= HELD_BUFFER and not self._closing:
            self._read_paused = False
            self._writer.resume_reading()

    def _go_on(self) -> None:
        self._busy, self._waiting = True, False
        self.deadline = self._reply_deadline
        self._schedule(self._turn)

    def _wait(self) -> None:
        self._busy, self._waiting = False, True
        self._extend(self._limits.idle_timeout)

    # ---- the end, and the deadline

    def _finish(self) -> None:
        """Close the stream, and give the client time to read the responses."""
        self._closing = True
        self._waiting = False
        self._extend(self._limits.write_timeout)
        self._writer.close()

    def _extend(self, seconds: float) -> None:
        """Set the deadline to so many seconds from now."""
        self.deadline = min(self._loop.time() + seconds, self._reply_deadline)
