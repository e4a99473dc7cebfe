"""A server's connections: accepting them, and their limits.

At the limit, the connection that has been idle longest makes room; at its client's limit, a new one is refused.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast

from maptr.config.model import ConnectionLimits
from maptr.daemon.background import Repetitions
from maptr.daemon.log_limit import LogLimit
from maptr.protocol.address import client_of

log = logging.getLogger("maptr.daemon")

ACCEPT_AT_ONCE = 4  # connections accepted before the event loop continues, so that it notices closed ones
ACCEPT_PAUSE = 1.0  # seconds to wait if the system has no more file descriptors, as in asyncio's own servers


class Connection(Protocol):
    """A connection, hashable by identity."""

    def abort(self) -> None: ...


@dataclass(slots=True, eq=False)
class Counts:
    """Connections: currently open, accepted, refused because the client had too many, and closed to make room."""

    open: int = 0
    accepted: int = 0
    refused: int = 0
    shed: int = 0


C = TypeVar("C", bound=Connection)


class OpenConnections(Generic[C]):
    """A server's open connections within ``limits``. ``counts`` counts them.

    A connection is idle until ``busy``, and again after ``idle``.
    """

    def __init__(self, limits: ConnectionLimits, counts: Counts) -> None:
        self.limits = limits
        self.counts = counts
        self.failed_handshakes = LogLimit()
        self._clients: dict[C, str] = {}
        self._per_client: Counter[str] = Counter()
        self._idle: dict[C, float] = {}  # since when; longest first

    def __len__(self) -> int:
        return len(self._clients)

    def __contains__(self, connection: object) -> bool:
        return connection in self._clients

    def __iter__(self) -> Iterator[C]:
        return iter(tuple(self._clients))

    def admit(self, connection: C, address: str, *, exempt: bool = False) -> bool:
        """Count a new connection. Returns False if its client has too many, unless exempt, or no connection can make
        room."""
        if not (exempt or self.has_room(address)) or (
            len(self._clients) >= self.limits.max_connections and not self.shed()
        ):
            self.counts.refused += 1
            return False
        self._clients[connection] = client = client_of(address)
        self._per_client[client] += 1
        self.counts.open += 1
        self.counts.accepted += 1
        self.idle(connection)
        return True

    def has_room(self, address: str) -> bool:
        """Return whether a client may have one more connection. An IPv6 /64 counts as one client."""
        return self._per_client[client_of(address)] < self.limits.max_per_client

    def rename(self, connection: C, address: str) -> None:
        """Count an open connection for another client, such as a proxy's client."""
        if connection in self._clients:
            self._forget_client(connection)
            self._clients[connection] = client = client_of(address)
            self._per_client[client] += 1

    def idle(self, connection: C) -> None:
        """Record that a connection is idle from now on: it makes room after all other idle ones."""
        if connection in self._clients:
            self._idle.pop(connection, None)
            self._idle[connection] = time.monotonic()

    def busy(self, connection: C) -> None:
        """Record that a connection must not make room."""
        self._idle.pop(connection, None)

    def is_busy(self, connection: C) -> bool:
        return connection in self._clients and connection not in self._idle

    def idle_for(self, seconds: float) -> list[C]:
        """Return the connections that have been idle for that long, longest first."""
        latest = time.monotonic() - seconds
        return [each for each, since in itertools.takewhile(lambda item: item[1] <= latest, self._idle.items())]

    def shed(self) -> bool:
        """Close the connection that has been idle longest; False if none is idle."""
        longest = next(iter(self._idle), None)
        if longest is None:
            return False
        self.remove(longest)
        longest.abort()
        self.counts.shed += 1
        return True

    def remove(self, connection: C) -> None:
        """Record that a connection is closed. A second call does nothing."""
        if connection in self._clients:
            self._forget_client(connection)
            self._idle.pop(connection, None)
            self.counts.open -= 1

    def _forget_client(self, connection: C) -> None:
        client = self._clients.pop(connection)
        self._per_client[client] -= 1
        if not self._per_client[client]:
            del self._per_client[client]


class Acceptor(ABC, Generic[C]):
    """Accepts connections on listening sockets in the event loop, within the limits of ``connections``.

    If no file descriptor is free, the connection that has been idle longest makes room, and accepting pauses.
    """

    at_once = ACCEPT_AT_ONCE

    def __init__(self, connections: OpenConnections[C]) -> None:
        self.connections = connections
        self._sockets: Sequence[socket.socket] = ()
        self._tasks: dict[C, asyncio.Task[None]] = {}  # those that ``connect``
        self._logged = Repetitions()

    @abstractmethod
    def make(self, sock: socket.socket, client: str) -> C:
        """Return the connection for an accepted socket; the client's address is "" if it has none."""

    @abstractmethod
    async def connect(self, connection: C, sock: socket.socket, client: str) -> None:
        """Start a connection that is within the limits, for example with ``begin``. An OSError closes it."""

    async def begin(
        self,
        connection: C,
        sock: socket.socket,
        client: str,
        *,
        tls: ssl.SSLContext | None,
        handshake: float,
        shutdown: float,
    ) -> None:
        """Give a connection's socket to asyncio, with ``tls`` after the handshake. The connection is a protocol.

        ``handshake`` and ``shutdown`` are how many seconds TLS may take to begin and to end. A failed handshake is
        logged. Raises OSError.
        """
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: cast(asyncio.Protocol, connection),
                sock,
                ssl=tls,
                ssl_handshake_timeout=handshake if tls else None,
                ssl_shutdown_timeout=shutdown if tls else None,
            )
        except OSError as error:
            if tls is not None and connection in self.connections:  # otherwise it has made room for another
                self._log_failed_handshake(client, error)
            raise

    def _log_failed_handshake(self, client: str, error: OSError) -> None:
        if (suffix := self.connections.failed_handshakes.suffix()) is not None:
            log.info("TLS handshake with %s failed: %s%s", client, handshake_fault(error), suffix)

    def exempts(self, client: str) -> bool:
        """Return whether a client may have any number of connections."""
        return False

    def accept_on(self, sockets: Sequence[socket.socket]) -> None:
        self._sockets = sockets
        for sock in sockets:
            self._listen(sock)

    def accept_no_more(self) -> None:
        """Close the listening sockets."""
        for sock in self._sockets:
            if sock.fileno() != -1:
                asyncio.get_running_loop().remove_reader(sock)
                sock.close()

    def accept_waiting(self) -> None:
        """Accept the connections that the kernel has accepted."""
        for sock in self._sockets:
            self._accept(sock)

    def _listen(self, sock: socket.socket) -> None:
        if sock.fileno() != -1:
            asyncio.get_running_loop().add_reader(sock, self._accept, sock)

    def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(self.at_once):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, ConnectionError):
                return  # the client closed the connection before it was accepted
            except OSError as error:
                reason = error.strerror or str(error)
                if self._logged.is_new(listening, reason):
                    log.warning("cannot accept connections, trying again every %g s: %s", ACCEPT_PAUSE, reason)
                self.connections.shed()
                loop.remove_reader(listening)
                loop.call_later(ACCEPT_PAUSE, self._listen, listening)
                return
            self._logged.forget(listening)
            sock.setblocking(False)
            self._start(sock, address[0] if address else "")  # a Unix socket has none

    def _start(self, sock: socket.socket, client: str) -> None:
        connection = self.make(sock, client)
        if not self.connections.admit(connection, client, exempt=self.exempts(client)):
            sock.close()
            return
        self._tasks[connection] = task = asyncio.get_running_loop().create_task(self._connect(connection, sock, client))
        task.add_done_callback(lambda _: self._tasks.pop(connection))

    async def _connect(self, connection: C, sock: socket.socket, client: str) -> None:
        try:
            await self.connect(connection, sock, client)
        except OSError as error:  # includes ssl.SSLError, for a failed handshake
            error.__traceback__ = None  # its frames hold the error: a cycle that keeps the memory of a TLS connection
            self.connections.remove(connection)
            sock.close()


def handshake_fault(error: OSError) -> str:
    """Return why a TLS handshake failed: OpenSSL's reason, such as a client's alert, or that the client ended it."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "the client ended the connection").lower().replace("_", " ")
    if isinstance(error, ConnectionAbortedError | TimeoutError):
        return "timeout"
    return "the client ended the connection"
