"""A server's listening sockets: their options and addresses, and how many connections the system allows."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import os
import resource
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from maptr.config import Config
from maptr.config.model import ConnectionLimits
from maptr.errors import ConfigError
from maptr.protocol.address import Address
from maptr.resolver.servers import socket_address

log = logging.getLogger("maptr.daemon")

PORT_TRIES = 20  # further attempts, for port 0, to find a port that is free for both UDP and TCP
BACKLOG = 128  # connections that wait to be accepted
# Bytes of a TCP segment in each direction: the minimum IPv6 MTU (RFC 8200 5) without the headers. A tunnel that
# silently drops longer packets would drop every retransmission of a long response. BIND and Knot have the same value.
MAX_SEGMENT = 1220
# Bytes of queries that wait to be read; the kernel limits it to net.core.rmem_max.
RECEIVE_BUFFER = 4 * 1024 * 1024
# Bytes of responses that wait to be sent: some batches of the longest; the default holds less than one batch.
# NSD has the same value; the kernel limits it to net.core.wmem_max.
SEND_BUFFER = 1024 * 1024
IP_PKTINFO = getattr(socket, "IP_PKTINFO", 8)  # Linux's value, for Python versions without this constant
# Linux's options to ignore the path MTU that ICMP reports, and their values by preference (ip(7), ipv6(7)).
MTU_DISCOVER = {socket.AF_INET: (socket.IPPROTO_IP, 10), socket.AF_INET6: (socket.IPPROTO_IPV6, 23)}
PMTUDISC_OMIT, PMTUDISC_DONT = 5, 0
OTHER_FILES = 16  # standard streams, event loop, log, and the files that a reload reads
MAX_REQUESTS = 16  # connections of a ``RequestServer``: enough for operators, their scripts and a few scrapers
RESERVED = 2 * MAX_REQUESTS + OTHER_FILES  # MAX_REQUESTS each for the control socket and for metrics


@dataclass(slots=True)
class Sockets:
    """Bound sockets: UDP and TCP for each address, TLS for each TLS address, and two for operators."""

    udp: list[socket.socket] = field(default_factory=list)
    tcp: list[socket.socket] = field(default_factory=list)
    tls: list[socket.socket] = field(default_factory=list)
    metrics: socket.socket | None = None
    control: socket.socket | None = None

    def remove_control(self) -> None:
        """Remove the control socket's file, unless the socket is closed."""
        if self.control is not None:
            with contextlib.suppress(OSError):
                Path(self.control.getsockname()).unlink()

    def close(self) -> None:
        self.remove_control()
        for sock in filter(None, (*self.udp, *self.tcp, *self.tls, self.metrics, self.control)):
            sock.close()


def bind(config: Config) -> Sockets:
    """Bind all sockets that may need root. On an error, closes them and raises ConfigError."""
    sockets, serve = Sockets(), config.serve
    try:
        for address in serve.listen:
            udp, tcp = _bind_pair(address)
            sockets.udp.append(udp)
            sockets.tcp.append(tcp)
        for address in serve.tls.listen:
            with explained(address, key="serve.tls.listen"):
                sockets.tls.append(open_tcp(*address))
        if serve.metrics is not None:
            with explained(serve.metrics, key="serve.metrics"):
                sockets.metrics = open_tcp(*serve.metrics)
    except ConfigError as error:
        sockets.close()
        raise config.error(error.key, error.reason) from None
    return sockets


def bound_at(address: Address, sock: socket.socket) -> Address:
    """Return the address with the socket's port, which the system chose for port 0."""
    return Address(address.host, sock.getsockname()[1])


@contextlib.contextmanager
def explained(where: Address | Path, *, key: str) -> Iterator[None]:
    """Raise ConfigError if the block cannot bind a socket. ``key`` is the setting with the address."""
    try:
        yield
    except OSError as error:
        low = isinstance(error, PermissionError) and isinstance(where, Address) and where.port < socket.IPPORT_RESERVED
        advice = ": ports below 1024 need root or CAP_NET_BIND_SERVICE" if low else ""
        reason = os.strerror(error.errno) if error.errno else error
        raise ConfigError(f"cannot listen on {where}: {reason}{advice}", key=key) from error


def open_udp(host: str, port: int) -> socket.socket:
    """Open a bound, non-blocking UDP socket; ``[::]`` is IPv6 only, because 0.0.0.0 may be bound too."""
    address = ipaddress.ip_address(host)
    v6 = address.version == 6
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM))
        sock.setblocking(False)
        for buffer, size in ((socket.SO_RCVBUF, RECEIVE_BUFFER), (socket.SO_SNDBUF, SEND_BUFFER)):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, buffer, size)
        if sys.platform.startswith("linux"):
            _ignore_path_mtu(sock)
        if v6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if address.is_unspecified:
            ipv4, ipv6 = (socket.IPPROTO_IP, IP_PKTINFO), (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO)
            sock.setsockopt(*(ipv6 if v6 else ipv4), 1)
        sock.bind(socket_address(host, port))
        stack.pop_all()
    return sock


def open_tcp(host: str, port: int) -> socket.socket:
    """Open a listening, non-blocking TCP socket; ``[::]`` is IPv6 only. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.create_server(socket_address(host, port), family=family, backlog=BACKLOG)
    sock.setblocking(False)
    # The connections inherit these options. A response must not wait until the previous one is acknowledged.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError):  # not every system allows this for a listening socket
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, MAX_SEGMENT)
    return sock


def is_wildcard(sock: socket.socket) -> bool:
    """Return whether the socket is bound to all addresses, so that each response must set its source address."""
    return ipaddress.ip_address(sock.getsockname()[0]).is_unspecified


def limits_within_descriptors(limits: ConnectionLimits, listening: int) -> ConnectionLimits:
    """Return the limits, with fewer connections if the system does not allow that many open files (getrlimit(2)).

    First raises the soft limit as far as needed and possible. ``listening`` is the number of listening sockets. If no
    file descriptor were free, no connection could be accepted, and none would make room.
    """
    others = RESERVED + listening
    wanted = limits.max_connections + others
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits
    fits = max(1, soft - others)
    log.warning(
        "max_connections is %d instead of %d, as a process may have %d files open: raise LimitNOFILE",
        *(fits, limits.max_connections, soft),
    )
    return replace(limits, max_connections=fits)


def _bind_pair(address: Address, others: int = PORT_TRIES) -> tuple[socket.socket, socket.socket]:
    """Return a UDP and a TCP socket on the same port. Raises ConfigError."""
    with explained(address, key="serve.listen"):
        udp = open_udp(*address)
        try:
            return udp, open_tcp(address.host, udp.getsockname()[1])
        except OSError as error:
            udp.close()
            if address.port or error.errno != errno.EADDRINUSE or not others:
                raise
    return _bind_pair(address, others - 1)


def _ignore_path_mtu(sock: socket.socket) -> None:
    """Ignore ICMP's path MTU: a forged one would cause fragments, which are easy to forge (RFC 9715)."""
    for how in (PMTUDISC_OMIT, PMTUDISC_DONT):
        with contextlib.suppress(OSError):
            sock.setsockopt(*MTU_DISCOVER[sock.family], how)
            return
