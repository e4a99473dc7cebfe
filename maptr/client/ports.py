"""UDP sockets for many questions: a few to each server, for a forger to guess which (RFC 5452 9.2)."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from maptr.client.attempt import Server
from maptr.client.stub import open_udp
from maptr.client.waiters import Waiter

if TYPE_CHECKING:
    from maptr.client.flight import Flight

SOCKETS = 4  # for each server: source ports a forger must guess among, on top of ID and letters
REUSES = 10_000  # questions after which a socket gives way to one with a new port
MAX_BURSTS = 64  # read from one socket before questions are given up
BURST = 64  # packets read from one socket before the others get their turn
RECEIVE_BUFFER = 1 << 20  # octets; the kernel cuts it to net.core.rmem_max


class Port:
    """One UDP socket to one server, and what is outstanding on it by ID. Raises OSError."""

    __slots__ = ("flights", "reuses", "server", "sock")

    def __init__(self, server: Server) -> None:
        self.server = server
        self.sock = open_udp(server)
        self.sock.setblocking(False)
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self.flights: dict[bytes, Flight] = {}
        self.reuses = 0


class Ports:
    """The ports to each server, used in turn; ``read`` is called with one where something has come by it, and gives
    whether there may be more."""

    def __init__(self, waiter: Waiter, read: Callable[[Port], bool]) -> None:
        self._waiter = waiter
        self._read = read
        self._ports: dict[Server, list[Port]] = {}
        self._turn = 0

    def next(self, server: Server) -> Port:
        """The port for the next question to this server. Raises OSError."""
        ports = self._ports.get(server)
        if ports is None:
            ports = self._ports[server] = []
        self._turn += 1
        if len(ports) < SOCKETS:
            ports.append(self._open(server))
            return ports[-1]
        index = self._turn % SOCKETS
        port = ports[index]
        port.reuses += 1
        if port.reuses > REUSES and not port.flights:
            self._retire(port)
            port = ports[index] = self._open(server)
        return port

    def read_all(self) -> None:
        """Read what has come by any of them and was not read yet."""
        for ports in list(self._ports.values()):
            for port in list(ports):
                for _ in range(MAX_BURSTS):
                    if not port.flights or not self._read(port):
                        break

    def close(self) -> None:
        for ports in self._ports.values():
            for port in ports:
                self._retire(port)
        self._ports.clear()

    def _open(self, server: Server) -> Port:
        port = Port(server)
        self._waiter.watch(port.sock, partial(self._ready, port))
        return port

    def _ready(self, port: Port) -> None:
        self._read(port)

    def _retire(self, port: Port) -> None:
        self._waiter.unwatch(port.sock)
        port.sock.close()
