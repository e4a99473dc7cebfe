"""Listeners for DNS over TCP and, with a certificate, over TLS: who is let in, and how all are sent away.

What is said on a stream is ``stream.py``'s. How many may connect is decided in ``connections.py``; what TLS is spoken,
in ``tls.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import socket
import ssl
from collections.abc import Callable, Iterable

from maptr.answer.context import Transport
from maptr.server.connections import DEFAULT_LIMITS, Connection, Connections, TcpLimits
from maptr.server.stream import Stream, Turns

log = logging.getLogger("maptr.serve")

# The messages of one reply, taken as the client reads them: none, one, or many for a zone transfer.
Answers = Callable[[bytes, Transport, str], Iterable[bytes]]

ACCEPTED_AT_ONCE = 4  # connections; some passes of the event loop later their ends are noticed, and count no more
# Seconds to wait when the system has no more sockets to give; asyncio's own servers wait as long.
ACCEPT_PAUSE = 1.0
LOOK_INTERVAL = 0.1  # seconds at least between two looks at whose time is over
LEAVE_TIMEOUT = 1.0  # seconds for replies under way, when the server stops
LEAVE_INTERVAL = 0.02  # seconds between two looks whether they are sent


class TcpListener:
    """Answers connections on one socket, within the limits that it shares with other listeners.

    ``security`` gives the TLS context of each new connection; without it the stream is plain TCP. ``turns`` are shared
    with other listeners, too.
    """

    def __init__(
        self,
        sock: socket.socket,
        answer: Answers,
        connections: Connections,
        *,
        security: Callable[[], ssl.SSLContext] | None = None,
        limits: TcpLimits = DEFAULT_LIMITS,
        turns: Turns | None = None,
    ) -> None:
        self._turns = turns
        self._sock = sock
        self._answer = answer
        self._connections = connections
        self._security = security
        self._transport = Transport.TCP if security is None else Transport.TLS
        self._limits = limits
        # A time that a client is given is never over before so long, that is before the next look.
        self._shortest = min(limits.idle_timeout, limits.write_timeout, limits.handshake_timeout)
        self._timer: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._open: set[Stream] = set()
        self._opening: dict[Stream, socket.socket] = {}  # those that no transport has yet: in a handshake, most of them
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._listen()

    def quiet(self) -> None:
        """Accept no more."""
        if self._sock.fileno() == -1:
            return
        if self._pause is None:
            self._loop.remove_reader(self._sock)
        else:
            self._pause.cancel()
        self._sock.close()

    async def drain(self) -> None:
        """After ``quiet``: send what is under way, and close all connections."""
        for stream in tuple(self._open):
            self._abort(stream) if stream in self._opening else stream.end()
        await self._wait_for_ends()
        for stream in tuple(self._open):
            self._abort(stream)
        await self._wait_for_ends()
        if self._timer is not None:
            self._timer.cancel()

    async def _wait_for_ends(self) -> None:
        until = self._loop.time() + LEAVE_TIMEOUT
        while (self._open or self._tasks) and self._loop.time() < until:
            await asyncio.sleep(LEAVE_INTERVAL)

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, ConnectionError):
                return  # gone before it was accepted
            except OSError as error:
                log.warning("no connection accepted for %g s: %s", ACCEPT_PAUSE, error.strerror or error)
                self._connections.shed()
                self._loop.remove_reader(self._sock)
                self._pause = self._loop.call_later(ACCEPT_PAUSE, self._listen)
                return
            self._admit(sock, address[0])

    def _admit(self, sock: socket.socket, client: str) -> None:
        connection = self._connections.admit(client, lambda: self._abort(stream))
        if connection is None:
            sock.close()
            return
        sock.setblocking(False)
        stream = Stream(
            lambda query: self._answer(query, self._transport, client),
            limits=self._limits,
            secure=self._security is not None,
            heard=functools.partial(self._connections.touch, connection),
            ended=functools.partial(self._ended, connection),
            later=None if self._turns is None else self._turns.add,
        )
        self._open.add(stream)
        if self._timer is None:
            self._timer = self._loop.call_later(self._shortest, self._look)
        self._opening[stream] = sock
        task = self._loop.create_task(self._connect(sock, stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, sock: socket.socket, stream: Stream) -> None:
        """Begin the stream, after the handshake where it is TLS."""
        secure = self._security is not None
        try:
            await self._loop.connect_accepted_socket(
                lambda: stream,
                sock,
                ssl=self._security() if self._security else None,
                ssl_handshake_timeout=self._limits.handshake_timeout if secure else None,
                ssl_shutdown_timeout=self._limits.write_timeout if secure else None,  # what is unsent is sent in it
            )
        except OSError:  # no handshake, ssl.SSLError for one
            sock.close()
        finally:
            del self._opening[stream]
            if not stream.begun:
                stream.connection_lost(None)

    def _abort(self, stream: Stream) -> None:
        """End a stream at once. A handshake fails by it, for asyncio has no other way to end one cleanly."""
        stream.abort()
        sock = self._opening.get(stream)
        if sock is not None:
            with contextlib.suppress(OSError):  # the client has reset the connection
                sock.shutdown(socket.SHUT_RDWR)

    def _ended(self, connection: Connection, stream: Stream) -> None:
        self._open.discard(stream)
        self._connections.remove(connection)

    def _look(self) -> None:
        """End those whose time is over. One timer is enough for all of them, for it comes when the first may be."""
        now = self._loop.time()
        for stream in tuple(self._open):
            stream.look(now)
        due = min((stream.until for stream in self._open), default=math.inf)
        if self._open:
            when = max(now + LOOK_INTERVAL, min(due, now + self._shortest))
            self._timer = self._loop.call_at(when, self._look)
        else:
            self._timer = None
