"""DNS over one stream (RFC 7766): messages framed, pipelined and answered in order, within limits of time and memory.

A protocol of asyncio without a task: what arrives together is answered at once and sent together. Replies are taken
from their maker as the client reads them, so a slow reader of a zone costs one message. A turn is short, so that no
client holds up the others.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import cast

from maptr.errors import ZoneError
from maptr.server.connections import DEFAULT_LIMITS, TcpLimits

REPLY_TIMEOUT = 7200.0  # seconds for all messages of one reply, however slowly it is read: BIND's max-transfer-time-out
HELD_BUFFER = 128 * 1024  # bytes of queries waiting for their turn, past which no more are read
SEND_BUFFER = 128 * 1024  # bytes of replies waiting for a slow reader: two of the largest
MAX_TURN = 32  # queries answered before others have their turn; one takes a tenth of a millisecond on the general path
TURN_SIZE = 16 * 1024  # bytes of replies, likewise: a message of a transfer
AT_A_TIME = 0.005  # seconds of turns before the event loop looks for new data; a message of a transfer takes some


class Turns:
    """Round-robin scheduling of the streams that have more to send, so that new queries do not wait for all of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], object]] = deque()
        self._scheduled = False

    def add(self, turn: Callable[[], object]) -> None:
        """Have this called soon, after those that wait already."""
        self._waiting.append(turn)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._take)

    def _take(self) -> None:
        end = self._loop.time() + AT_A_TIME
        try:
            while self._waiting:
                self._waiting.popleft()()
                if self._loop.time() >= end:
                    return
        finally:  # a turn that fails does not take others along
            self._scheduled = bool(self._waiting)
            if self._scheduled:
                self._loop.call_soon(self._take)


class Stream(asyncio.Protocol):
    """Answers message after message, until the stream ends or is idle: what was asked before is answered.

    ``answer`` gives the messages of a reply. It may raise ZoneError amid them, which ends the connection. ``heard``
    is called for what was asked and sent, ``ended`` once, when the connection is gone. ``later`` calls what it is
    given after others had their turn. ``secure`` streams end in both directions at once, as asyncio's TLS does.
    """

    def __init__(
        self,
        answer: Callable[[bytes], Iterable[bytes]],
        *,
        limits: TcpLimits = DEFAULT_LIMITS,
        secure: bool = False,
        heard: Callable[[], object] = lambda: None,
        ended: Callable[[Stream], object] = lambda _: None,
        later: Callable[[Callable[[], object]], object] | None = None,
    ) -> None:
        self._answer = answer
        self._limits = limits
        self._secure = secure
        self._heard = heard
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._later = later or self._loop.call_soon
        self._transport: asyncio.Transport | None = None
        self._held = b""  # data that came and is not a message yet, or waits for its turn
        self._replies: Iterator[bytes] | None = None  # the rest of the reply that is being sent
        self._busy = False  # a turn will come, or the client has to read first
        self._unread = False  # the client does not read
        self._full = False  # and neither do we
        self._ending = self._closing = self._gone = False
        self.begun = False  # by a transport, which comes after the handshake
        self._reply_until = math.inf
        self.waits_since = math.inf  # for a message; never, while one is answered
        self.until = self._loop.time() + limits.handshake_timeout  # the client's time; ``look`` ends it after that

    # ---- what the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.begun = True
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(SEND_BUFFER)
        if self._gone:  # its time was over before
            self._transport.abort()
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._held = self._held + data if self._held else data
        if not self._busy:
            self._turn()
        elif len(self._held) > HELD_BUFFER:
            self._full = True
            self._there.pause_reading()

    def eof_received(self) -> bool:
        self._ending = True
        if not self._closing and not self._busy:
            self._finish()
        return not self._secure  # half-closed: what was asked is still answered

    def pause_writing(self) -> None:
        self._unread = True

    def resume_writing(self) -> None:
        self._unread = False
        if not self._closing:
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = self._closing = True
        self._transport = None  # each knows the other, and TLS takes some 50 KB of memory
        if self._replies is not None:
            self._drop_replies()
        self._ended(self)

    # ---- what others want of it

    def end(self) -> None:
        """Wait for no more; what has come already is still answered."""
        self._ending = True
        if not self._busy and self._transport is not None and not self._closing:
            self._finish()

    def abort(self) -> None:
        """End at once."""
        self._gone = self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def look(self, now: float) -> None:
        """End it where its time is over."""
        if now < self.until or self._gone:
            return
        if self.waits_since < math.inf:
            self._finish()
        else:
            self.abort()

    # ---- answering

    @property
    def _there(self) -> asyncio.Transport:
        assert self._transport is not None  # noqa: S101 - the transport calls
        return self._transport

    def _turn(self) -> None:
        """Answer what has come, as far as a turn goes, and send it in one."""
        if self._closing or self._there.is_closing():  # the client's end of it
            return
        octets, at, replies = self._held, 0, self._replies
        out: list[bytes] = []
        size = count = 0
        more = failed = False
        while not more:
            if replies is None:
                end = at + 2
                if len(octets) < end or len(octets) < (end := end + (octets[at] << 8 | octets[at + 1])):
                    break
                if count == MAX_TURN:
                    more = True
                    break
                replies = iter(self._answer(octets[at + 2 : end]))
                at = end
                count += 1
                self._reply_until = math.inf
            try:
                for reply in replies:
                    out += (len(reply).to_bytes(2, "big"), reply)
                    size += len(reply) + 2
                    if size >= TURN_SIZE:
                        more = True
                        break
                else:
                    replies = None
            except ZoneError:  # a transfer cut off: nothing to say, and nobody to say it to
                failed = more = True
            except BaseException:
                self.abort()
                raise
        self._held, self._replies = octets[at:], replies
        if out:
            self._there.write(b"".join(out))
        if failed:
            self.abort()
            return
        if out or count:
            self._heard()
            self.waits_since = math.inf
        self._after(more)

    def _after(self, more: bool) -> None:
        """What comes after a turn: another one, the client's reading, or its next message."""
        if self._closing:
            return
        if self._replies is not None and self._reply_until == math.inf:
            self._reply_until = self._loop.time() + REPLY_TIMEOUT
        if self._unread:
            self._busy, self.waits_since = True, math.inf
            self._give(self._limits.write_timeout)
        elif more:
            self._go_on()
        elif self._ending:
            self._finish()
        elif self.waits_since == math.inf:
            self._wait()  # for a whole message: what is a part of one gives no new time
        if self._full and len(self._held) <= HELD_BUFFER and not self._closing:
            self._full = False
            self._there.resume_reading()

    def _go_on(self) -> None:
        self._busy, self.waits_since = True, math.inf
        self.until = self._reply_until
        self._later(self._turn)

    def _wait(self) -> None:
        self._busy, self.waits_since = False, self._loop.time()
        self.until = min(self.waits_since + self._limits.idle_timeout, self._reply_until)

    def _drop_replies(self) -> None:
        close = getattr(self._replies, "close", None)
        self._replies = None
        if close is not None:
            close()

    # ---- the end, and time

    def _finish(self) -> None:
        """Close what is answered, and give the client time to read it."""
        self._closing = True
        self.waits_since = math.inf
        self._give(self._limits.write_timeout)
        self._there.close()

    def _give(self, seconds: float) -> None:
        """So long from now the client has."""
        self.until = min(self._loop.time() + seconds, self._reply_until)
