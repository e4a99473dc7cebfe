"""Who is connected, over every stream listener together, and for how long: the limits of TCP and TLS (RFC 7766 6)."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import NamedTuple

from maptr.config.model import IDLE_TIMEOUT, MAX_CONNECTIONS, MAX_PER_CLIENT
from maptr.server.counters import Counters

# Seconds a client has to read what is waiting for it once the send buffer is full.
WRITE_TIMEOUT = 10.0
HANDSHAKE_TIMEOUT = 10.0  # seconds for all of a TLS handshake, as long as for a message
CLIENT_IPV6_PREFIX = 64  # whoever has one address of a link has them all (RFC 4291 2.5.1)


class TcpLimits(NamedTuple):
    """Connections are those over all addresses together, times are in seconds."""

    max_connections: int = MAX_CONNECTIONS
    max_per_client: int = MAX_PER_CLIENT
    idle_timeout: float = IDLE_TIMEOUT
    write_timeout: float = WRITE_TIMEOUT
    handshake_timeout: float = HANDSHAKE_TIMEOUT


DEFAULT_LIMITS = TcpLimits()


class Connection:
    """One admitted connection of a client."""

    __slots__ = ("client",)

    def __init__(self, client: str) -> None:
        self.client = client


class Connections:
    """Past the limit the connection idle for longest makes room; past a client's own its new one is refused."""

    def __init__(
        self,
        *,
        max_connections: int = MAX_CONNECTIONS,
        max_per_client: int = MAX_PER_CLIENT,
        counters: Counters | None = None,
    ) -> None:
        self._counters = counters or Counters()
        self._max_connections = max_connections
        self._max_per_client = max_per_client
        self._open: dict[Connection, Callable[[], object]] = {}  # longest idle first, and what ends each
        self._per_client: dict[str, int] = {}

    @property
    def count(self) -> int:
        """How many are open now."""
        return len(self._open)

    def admit(self, address: str, close: Callable[[], object]) -> Connection | None:
        """Count one more connection, which ``close`` ends from outside; None where its client has enough."""
        client = _client(address)
        if self._per_client.get(client, 0) >= self._max_per_client:
            self._counters.refused += 1
            return None
        if len(self._open) >= self._max_connections:
            self.shed()
        connection = Connection(client)
        self._open[connection] = close
        self._per_client[client] = self._per_client.get(client, 0) + 1  # one of its own may have made room
        self._counters.open += 1
        self._counters.accepted += 1
        return connection

    def shed(self) -> None:
        """Close the connection idle for longest, if there is one."""
        for connection, close in self._open.items():
            self.remove(connection)
            close()
            self._counters.shed += 1
            return

    def touch(self, connection: Connection) -> None:
        """It has just asked something, so it is the least idle."""
        close = self._open.pop(connection, None)
        if close is not None:
            self._open[connection] = close

    def remove(self, connection: Connection) -> None:
        """It is closed; saying so twice is fine."""
        if connection not in self._open:
            return
        del self._open[connection]
        self._counters.open -= 1
        self._per_client[connection.client] -= 1
        if not self._per_client[connection.client]:
            del self._per_client[connection.client]


def _client(address: str) -> str:
    """What counts as one client: an IPv4 address, or the network of an IPv6 link."""
    if ":" not in address:
        return address
    network = ipaddress.IPv6Network((address.partition("%")[0], CLIENT_IPV6_PREFIX), strict=False)
    return str(network)
