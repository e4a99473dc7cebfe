"""Listeners for DNS over TCP and, with a certificate, over TLS: who is let in, and how all are sent away.

What is said on a stream is ``stream.py``'s. How many may connect is decided in ``connections.py``; what TLS is spoken,
in ``tls.py``.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from maptr.context import Transport
from maptr.serve.channel import Channel
from maptr.serve.connections import DEFAULT_LIMITS, Connection, Connections, TcpLimits
from maptr.serve.stream import Conversation
from maptr.serve.turns import Turns
from maptr.serve.watch import READ, make_watch

log = logging.getLogger("maptr.serve")

# The messages of one reply, taken as the client reads them: none, one, or many for a zone transfer.
Answers = Callable[[bytes, Transport, str], Iterable[bytes]]

ACCEPTED_AT_ONCE = 16  # connections before those that are open have their turn
# Seconds to wait when the system has no more sockets to give; asyncio's own servers wait as long.
ACCEPT_PAUSE = 1.0
LOOK_INTERVAL = 0.1  # seconds at least between two looks at whose time is over
_FAMILIES = {2: socket.AF_INET, 4: socket.AF_INET6}  # by how many parts an address has


@dataclass(frozen=True, slots=True)
class Pace:
    """How a listener that accepts no more ends the connections that it has, in seconds from then.

    One that has been ``idle`` so long is closed; after ``busy`` each is, once it has the replies to what it asked; and
    at the ``end`` whatever is left, amid a transfer for one.
    """

    idle: float
    busy: float
    end: float


LEAVE_TIMEOUT = 1.0  # seconds for replies under way, when the server stops
# Seconds for connections to a worker that makes way for newer zones: idle, ever asking, and amid a long reply. NSD
# gives those that are left a tenth of a second; a transfer may be a secondary's only one before the next change.
DRAIN_IDLE_TIMEOUT = 0.5
DRAIN_BUSY_TIMEOUT = 10.0
DRAIN_TIMEOUT = 600.0
DRAIN_INTERVAL = 0.05  # seconds between two looks at who is idle
LEAVING = Pace(idle=0.0, busy=0.0, end=LEAVE_TIMEOUT)
GIVING_WAY = Pace(idle=DRAIN_IDLE_TIMEOUT, busy=DRAIN_BUSY_TIMEOUT, end=DRAIN_TIMEOUT)


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
        self._watch = make_watch()
        self._watching = False
        self._timer: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._open: set[Conversation] = set()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._watch, self._watch.turn)
        self._watching = True
        self._listen()

    def quiet(self) -> None:
        """Accept no more; what waits to be accepted waits for whoever else has the socket."""
        if self._sock.fileno() == -1:
            return
        if self._pause is None:
            self._watch.remove(self._sock)
        else:
            self._pause.cancel()
        self._sock.close()

    async def drain(self, pace: Pace) -> None:
        """After ``quiet``: let connections end what they are at, and close them; see ``Pace``."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        while self._open and (now := loop.time()) < started + pace.end:
            for conversation in tuple(self._open):
                if now >= started + pace.busy or conversation.waits_since <= now - pace.idle:
                    conversation.end()
            await asyncio.sleep(0)
            if self._open:
                await asyncio.sleep(DRAIN_INTERVAL)
        for conversation in tuple(self._open):
            conversation.abort()
        if self._watching:
            self._watching = False
            loop.remove_reader(self._watch)
            self._watch.close()

    def _listen(self) -> None:
        self._pause = None
        self._watch.add(self._sock, READ, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, client = accept(self._sock)
            except (BlockingIOError, ConnectionError):
                return  # taken by another process, or gone before it was accepted
            except OSError as error:
                log.warning("no connection accepted for %g s: %s", ACCEPT_PAUSE, error.strerror or error)
                self._connections.shed()
                self._watch.remove(self._sock)
                self._pause = self._loop.call_later(ACCEPT_PAUSE, self._listen)
                return
            self._admit(sock, client)

    def _admit(self, sock: socket.SocketType, client: str) -> None:
        connection = self._connections.admit(client, lambda: conversation.abort())
        if connection is None:
            sock.close()
            return

        conversation = Conversation(
            lambda query: self._answer(query, self._transport, client),
            limits=self._limits,
            security=None if self._security is None else self._security(),
            heard=functools.partial(self._connections.touch, connection),
            ended=functools.partial(self._ended, connection),
            later=None if self._turns is None else self._turns.add,
        )
        self._open.add(conversation)
        if self._timer is None:
            self._timer = self._loop.call_later(self._shortest, self._look)
        Channel(sock, conversation, self._watch).open()

    def _ended(self, connection: Connection, conversation: Conversation) -> None:
        self._open.discard(conversation)
        self._connections.remove(connection)

    def _look(self) -> None:
        """End those whose time is over. One timer is enough for all of them, for it comes when the first may be."""
        now = self._loop.time()
        for conversation in tuple(self._open):
            conversation.look(now)
        due = min((conversation.until for conversation in self._open), default=math.inf)
        if self._open:
            when = max(now + LOOK_INTERVAL, min(due, now + self._shortest))
            self._timer = self._loop.call_at(when, self._look)
        else:
            self._timer = None


def accept(listening: socket.socket) -> tuple[socket.SocketType, str]:
    """A connection and its client's address. Raises OSError.

    As ``socket.accept``, but that spends more on names for its constants than the kernel on the connection.
    """
    descriptor, address = listening._accept()  # type: ignore[attr-defined]
    return socket.SocketType(_FAMILIES[len(address)], socket.SOCK_STREAM, 0, descriptor), address[0]
