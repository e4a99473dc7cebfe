"""What ``mux`` keeps account of: questions on their way, when they are overdue, and TCP connections they go over."""

from __future__ import annotations

import errno
import socket
from collections import deque
from collections.abc import Callable, Iterator
from math import inf

from maptr.client.attempt import Asked, Attempt, Server
from maptr.client.ports import Port
from maptr.client.stub import family, framed
from maptr.client.waiters import Waiter
from maptr.protocol.names import Labels
from maptr.protocol.numbers import MAX_MESSAGE
from maptr.walk import Answer

Done = Callable[[Labels, Answer], None]


class Flight:
    """One question on its way; ``seconds`` bound it from its first packet. ``done`` gets its name and its answer."""

    __slots__ = ("attempt", "deadline", "done", "exchange", "ident", "name", "port", "seconds", "started", "tcp")

    def __init__(self, name: Labels, exchange: Asked, done: Done, seconds: float) -> None:
        self.name = name
        self.exchange = exchange
        self.done = done
        self.seconds = seconds
        self.attempt: Attempt | None = None
        self.started: float | None = None  # when its first packet was sent
        self.deadline = inf
        self.port: Port | None = None  # where its message is outstanding, by this ID
        self.ident = b""
        self.tcp: Connection | None = None

    def start(self, now: float) -> None:
        """Its first packet is sent now."""
        self.started, self.deadline = now, now + self.seconds

    def elapsed(self, now: float) -> float:
        """Seconds since its first packet."""
        return 0.0 if self.started is None else now - self.started


class Overdue:
    """When the attempts under way are given up.

    One queue for each length of wait keeps each queue in order of time, to a tenth of a second.
    """

    def __init__(self) -> None:
        self._queues: dict[float, deque[tuple[float, Flight, Attempt]]] = {}

    def set(self, flight: Flight, attempt: Attempt, now: float, until: float) -> None:
        """The attempt was just sent, and is waited for so long."""
        wait = round(until - now, 1)
        queue = self._queues.get(wait)
        if queue is None:
            queue = self._queues[wait] = deque()
        queue.append((until, flight, attempt))

    def take(self, now: float) -> Iterator[tuple[Flight, Attempt]]:
        """Those to give up now; those that something came of are forgotten on the way."""
        for queue in self._queues.values():
            while queue:
                until, flight, attempt = queue[0]
                under_way = flight.attempt is attempt
                if under_way and until > now:
                    break
                queue.popleft()
                if under_way:
                    yield flight, attempt

    @property
    def next(self) -> float:
        """When the next may be overdue; never is inf."""
        return min((queue[0][0] for queue in self._queues.values() if queue), default=inf)

    def flights(self) -> Iterator[Flight]:
        """All that are waited for, and some that are not any more."""
        return (flight for queue in self._queues.values() for _, flight, _ in queue)


class Connection:
    """One TCP exchange, without waiting: what is still to be sent, and what has come (RFC 1035 4.2.2).

    ``begin`` has it done by a waiter. ``write`` and ``read`` go as far as the socket lets them. Both, and making one,
    raise OSError.
    """

    __slots__ = ("_done", "_got", "_left", "_waiter", "sock")

    def __init__(self, server: Server, packet: bytes) -> None:
        self._left = framed(packet)
        self._got = b""
        self.sock = socket.socket(family(server), socket.SOCK_STREAM)
        self.sock.setblocking(False)
        code = self.sock.connect_ex(server)
        if code not in (0, errno.EINPROGRESS):
            self.sock.close()
            raise OSError(code, "cannot connect")

    def begin(self, waiter: Waiter, done: Callable[[bytes | OSError], None]) -> None:
        """Have ``done`` called with the reply, or with what went wrong, once; until ``end``."""
        self._waiter, self._done = waiter, done
        waiter.watch(self.sock, self._send, write=True)

    def end(self) -> None:
        """After ``begin``: leave the socket."""
        self._waiter.unwatch(self.sock)
        self.sock.close()

    def _send(self) -> None:
        try:
            sent = self.write()
        except OSError as error:
            self._done(error)
            return
        if sent:
            self._waiter.unwatch(self.sock)
            self._waiter.watch(self.sock, self._receive)

    def _receive(self) -> None:
        try:
            reply = self.read()
        except OSError as error:
            self._done(error)
            return
        if reply is not None:
            self._done(reply)

    def write(self) -> bool:
        """Send; True when all is sent."""
        try:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, "cannot connect")
            self._left = self._left[self.sock.send(self._left) :]
        except BlockingIOError:
            return False
        return not self._left

    def read(self) -> bytes | None:
        """The reply; None until it is whole."""
        try:
            part = self.sock.recv(MAX_MESSAGE)
        except BlockingIOError:
            return None
        if not part:
            raise OSError("the server closes the TCP connection early")
        self._got += part
        size = int.from_bytes(self._got[:2], "big")
        return self._got[2 : size + 2] if len(self._got) >= max(2, size + 2) else None
