"""One question on its way, and the sockets it goes over: what ``mux`` keeps account of. Nothing is decided here."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable
from math import inf

from maptr.asking import Asked, Attempt, Server
from maptr.stub import family, framed, open_udp
from maptr.walk import Answer

RECEIVE_BUFFER = 1 << 20  # octets; the kernel cuts it to net.core.rmem_max

Done = Callable[[Answer], None]


class Flight:
    """One question on its way; ``seconds`` bound it from its first packet."""

    __slots__ = ("attempt", "deadline", "done", "exchange", "key", "seconds", "started", "tcp")

    def __init__(self, exchange: Asked, done: Done, seconds: float) -> None:
        self.exchange = exchange
        self.done = done
        self.seconds = seconds
        self.attempt: Attempt | None = None
        self.started: float | None = None  # when its first packet was sent
        self.deadline = inf
        self.key: tuple[Port, bytes] | None = None
        self.tcp: Connection | None = None

    def start(self, now: float) -> None:
        """Its first packet is sent now."""
        self.started, self.deadline = now, now + self.seconds

    def elapsed(self, now: float) -> float:
        """Seconds since its first packet."""
        return 0.0 if self.started is None else now - self.started


class Port:
    """One UDP socket to one server, and what is outstanding on it by ID."""

    __slots__ = ("flights", "reuses", "server", "sock")

    def __init__(self, server: Server) -> None:
        self.server = server
        self.sock = open_udp(server)
        self.sock.setblocking(False)
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self.flights: dict[bytes, Flight] = {}
        self.reuses = 0


class Connection:
    """One TCP exchange: what is still to be sent, and what has come."""

    __slots__ = ("got", "left", "sock")

    def __init__(self, server: Server, packet: bytes) -> None:
        self.left = framed(packet)
        self.got = b""
        self.sock = socket.socket(family(server), socket.SOCK_STREAM)
        self.sock.setblocking(False)
        code = self.sock.connect_ex(server)
        if code not in (0, errno.EINPROGRESS):
            self.sock.close()
            raise OSError(code, "cannot connect")
