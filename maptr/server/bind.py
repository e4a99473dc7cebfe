"""The sockets that a server answers on, or a clear error where one cannot be bound."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from maptr.errors import ConfigError
from maptr.protocol.address import Address
from maptr.server import udp

# Tries to find one port that is free for UDP and TCP both, where any port will do.
PORT_TRIES = 20
BACKLOG = 128  # connections that wait to be accepted
# Octets of a segment, either way: what every path of IPv6 takes whole (RFC 8200 5) less the headers. A path that drops
# longer ones without a word, as tunnels do, would drop each long reply again and again. BIND and Knot have the same.
MAX_SEGMENT = 1220


class Sockets:
    """A socket of each kind for each address."""

    __slots__ = ("tcp", "tls", "udp")

    def __init__(self) -> None:
        self.udp: list[socket.socket] = []
        self.tcp: list[socket.socket] = []
        self.tls: list[socket.socket] = []

    def __iter__(self) -> Iterator[socket.socket]:
        yield from (*self.udp, *self.tcp, *self.tls)

    def close(self) -> None:
        for sock in self:
            sock.close()


def bind(addresses: Sequence[Address], tls_addresses: Sequence[Address]) -> Sockets:
    """Sockets for all addresses. Raises ConfigError, and leaves nothing open then."""
    sockets = Sockets()
    try:
        for address in addresses:
            udp_socket, tcp_socket = _bind_pair(address)
            sockets.udp.append(udp_socket)
            sockets.tcp.append(tcp_socket)
        for address in tls_addresses:
            sockets.tls.append(_open_tcp(address))
    except BaseException:
        sockets.close()
        raise
    return sockets


def bound_at(address: Address, sock: socket.socket) -> Address:
    """The address with the port that was had, where any would do."""
    return Address(address.host, sock.getsockname()[1])


def _bind_pair(address: Address) -> tuple[socket.socket, socket.socket]:
    """A UDP and a TCP socket on the same port. Raises ConfigError."""
    for attempt in range(PORT_TRIES):
        udp_socket = _open_udp(address)
        try:
            return udp_socket, open_tcp_socket(address.host, udp_socket.getsockname()[1])
        except OSError as error:
            udp_socket.close()
            if address.port or error.errno != errno.EADDRINUSE or attempt == PORT_TRIES - 1:
                raise cannot_listen(address, error) from error
    raise AssertionError("unreachable")


def _open_udp(address: Address) -> socket.socket:
    try:
        return udp.open_socket(address.host, address.port)
    except OSError as error:
        raise cannot_listen(address, error) from error


def _open_tcp(address: Address) -> socket.socket:
    try:
        return open_tcp_socket(address.host, address.port)
    except OSError as error:
        raise cannot_listen(address, error) from error


def cannot_listen(where: Address | Path, error: OSError, *, key: str = "") -> ConfigError:
    """What to raise; ``key`` is the setting that says where."""
    low = isinstance(error, PermissionError) and isinstance(where, Address) and where.port < socket.IPPORT_RESERVED
    advice = ": such ports are for root, and for who has CAP_NET_BIND_SERVICE" if low else ""
    return ConfigError(f"cannot listen on {where}: {error.strerror or error}{advice}", key=key)


def open_tcp_socket(host: str, port: int) -> socket.socket:
    """A listening non-blocking socket. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # For each connection that comes of it: no reply shall wait until the one before is acknowledged.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):  # not every system lets a socket that listens have one
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, MAX_SEGMENT)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(udp.sockaddr(host, port))
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock
