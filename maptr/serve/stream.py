"""One client's stream (RFC 7766): messages framed, pipelined and answered in order, and how long it may take over each.

A protocol of asyncio without a task: what arrives together is answered at once and sent together, which is what a
query on an open connection costs least with. Replies are taken from their maker as the client reads them, so a slow
reader of a zone costs one message. A turn is short, so that no client holds up the others.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable, Iterable, Iterator
from typing import cast

from maptr.errors import ZoneError
from maptr.serve.connections import DEFAULT_LIMITS, TcpLimits
from maptr.serve.tlsstream import Tls

REPLY_TIMEOUT = 7200.0  # seconds for all messages of one reply, however they trickle: BIND's max-transfer-time-out
SHUTDOWN_TIMEOUT = 1.0  # seconds to wait for a client's own end of TLS, which tells us nothing
HELD_BUFFER = 128 * 1024  # octets of queries waiting for their turn, past which no more are read
MAX_TURN = 32  # answered before others have their turn; a general reply takes a tenth of a millisecond
TURN_OCTETS = 16 * 1024  # of replies, likewise: a message of a transfer


class Conversation(asyncio.Protocol):
    """Message after message, until the stream ends or is idle: what was asked before is answered.

    ``answer`` gives the messages of a reply. It may raise ZoneError amid them, which ends the connection. ``heard``
    is called for what was asked and sent, ``ended`` once, when the connection is no more. ``later`` calls what it is
    given when others had their turn. With ``security`` it is TLS.
    """

    def __init__(
        self,
        answer: Callable[[bytes], Iterable[bytes]],
        *,
        limits: TcpLimits = DEFAULT_LIMITS,
        security: ssl.SSLContext | None = None,
        heard: Callable[[], object] = lambda: None,
        ended: Callable[[Conversation], object] = lambda _: None,
        later: Callable[[Callable[[], object]], object] | None = None,
    ) -> None:
        self._answer = answer
        self._limits = limits
        self._tls = Tls(security) if security is not None else None
        self._heard = heard
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._later = later or self._loop.call_soon
        self._transport: asyncio.Transport | None = None
        self._shutdown: asyncio.TimerHandle | None = None  # until which a client may end TLS, too
        self._held = b""  # octets that came and are no message yet, or wait for their turn
        self._replies: Iterator[bytes] | None = None  # the rest of the reply that is being sent
        self._busy = False  # a turn will come, or the client has to read first
        self._unread = False  # the client does not read
        self._full = False  # and neither do we
        self._ending = self._eof = self._closing = self._gone = False
        self._reply_until = math.inf
        self.until = math.inf  # the client's time for what it has to do now; whoever has the clock tells ``look``
        self.waits_since = math.inf  # for a message; never, while one is answered

    # ---- what the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._tls is None:
            self._wait()
        else:
            self._give(self._limits.handshake_timeout)

    def data_received(self, data: bytes) -> None:
        if self._tls is not None and not self._closing:
            try:
                data = self._tls.received(data)
            except ssl.SSLError:
                self._send(b"")  # the alert
                self.abort()
                return
            self._send(b"")  # of the handshake
        if self._closing:
            return
        self._held = self._held + data if self._held else data
        if not self._busy:
            self._turn()
        elif len(self._held) > HELD_BUFFER:
            self._full = True
            self._there.pause_reading()

    def eof_received(self) -> bool:
        self._ending = self._eof = True
        if self._closing:
            self._there.close()
        elif not self._busy:
            self._finish()
        return True  # half-closed: what was asked is still answered

    def pause_writing(self) -> None:
        self._unread = True

    def resume_writing(self) -> None:
        self._unread = False
        if not self._closing:
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = self._closing = True
        # They know each other, and no collector or timer shall be waited for: TLS takes some 50 KB of memory.
        self._transport = self._tls = None
        if self._shutdown is not None:
            self._shutdown.cancel()
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
        if self._closing:
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
                    if size >= TURN_OCTETS:
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
            self._send(b"".join(out))
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
        elif self._ending or (self._tls is not None and self._tls.ended):
            self._finish()
        elif self.waits_since == math.inf and (self._tls is None or self._tls.open):
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

    def _send(self, octets: bytes) -> None:
        if self._tls is not None:
            try:
                octets = self._tls.sealed(octets)
            except ssl.SSLError:  # the client ended TLS, or broke it
                self.abort()
                return
        if octets:
            self._there.write(octets)

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
        transport = self._there
        if self._tls is None:
            transport.close()
            return
        # Unread octets would reset the connection, and what we sent last might never be seen.
        transport.write(self._tls.closed())
        transport.write_eof()
        if not self._gone:
            self._shutdown = self._loop.call_later(0 if self._eof else SHUTDOWN_TIMEOUT, transport.close)

    def _give(self, seconds: float) -> None:
        """So long from now the client has."""
        self.until = min(self._loop.time() + seconds, self._reply_until)
