"""UDP: one socket drained in bursts from the event loop; replies leave from the address that was asked."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from maptr.answer.context import Transport

if TYPE_CHECKING:
    import asyncio

Answer = Callable[[bytes, Transport, str], bytes | None]

MAX_DATAGRAM = 65535  # RFC 768: the length field
# Datagrams taken before the loop gets its turn: enough to spare most wake-ups, few enough not to starve TCP.
BURST = 64
# Bursts of queries wait here while Python works; the kernel cuts it to net.core.rmem_max.
RECEIVE_BUFFER = 4 * 1024 * 1024
# And replies here until the network has taken them: some batches of the longest, of which the default holds less than
# one. NSD has the same; the kernel cuts it to net.core.wmem_max.
SEND_BUFFER = 1024 * 1024
# Linux's numbers, for Pythons that do not name them.
IP_PKTINFO = getattr(socket, "IP_PKTINFO", 8)
# Linux's ways to ignore what ICMP says of a path's MTU, the better one first (ip(7), ipv6(7)).
MTU_DISCOVER = {socket.AF_INET: (socket.IPPROTO_IP, 10), socket.AF_INET6: (socket.IPPROTO_IPV6, 23)}
PMTUDISC_OMIT, PMTUDISC_DONT = 5, 0


def open_socket(host: str, port: int) -> socket.socket:
    """A bound non-blocking socket; ``[::]`` is IPv6 alone, so it stands beside 0.0.0.0. Raises OSError."""
    address = ipaddress.ip_address(host)
    sock = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        for buffer, size in ((socket.SO_RCVBUF, RECEIVE_BUFFER), (socket.SO_SNDBUF, SEND_BUFFER)):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, buffer, size)
        if sys.platform.startswith("linux"):
            ignore_path_mtu(sock)
        if address.version == 6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if address.is_unspecified and address.version == 6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        elif address.is_unspecified:
            sock.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        sock.bind(sockaddr(host, port))
    except BaseException:
        sock.close()
        raise
    return sock


def sockaddr(host: str, port: int) -> tuple[str, int] | tuple[str, int, int, int]:
    """What bind(2) takes; of an address with its interface (``fe80::1%eth0``, RFC 4007 11) both. Raises OSError."""
    host, _, interface = host.partition("%")
    return (host, port, 0, socket.if_nametoindex(interface)) if interface else (host, port)


def ignore_path_mtu(sock: socket.socket) -> None:
    """Have no forged ICMP message make the kernel send replies in fragments, which others can forge, too (RFC 9715)."""
    for how in (PMTUDISC_OMIT, PMTUDISC_DONT):
        with contextlib.suppress(OSError):
            sock.setsockopt(*MTU_DISCOVER[sock.family], how)
            return


def is_anywhere(sock: socket.socket) -> bool:
    """Whether it takes what is sent to any address, and so must say from which its replies leave."""
    return ipaddress.ip_address(sock.getsockname()[0]).is_unspecified


class UdpListener:
    """Answers what arrives on one socket. Full send buffers and lost clients lose replies, as UDP does."""

    def __init__(self, sock: socket.socket, answer: Answer) -> None:
        self._sock = sock
        self._answer = answer
        self._drain = self._drain_anywhere if is_anywhere(sock) else self._drain_one_address

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.add_reader(self._sock, self._drain)

    def stop(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._sock)
        self._sock.close()

    def _drain_one_address(self) -> None:
        for _ in range(BURST):
            try:
                query, client = self._sock.recvfrom(MAX_DATAGRAM)
            except OSError:  # nothing more, or an ICMP error that an earlier reply met
                return
            reply = self._answer(query, Transport.UDP, client[0])
            if reply is not None:
                with contextlib.suppress(OSError):
                    self._sock.sendto(reply, client)

    def _drain_anywhere(self) -> None:
        """As above for 0.0.0.0 and ``[::]``: the kernel says where each query came in, and is told again."""
        for _ in range(BURST):
            try:
                query, control, _flags, client = self._sock.recvmsg(MAX_DATAGRAM, 64)
            except OSError:
                return
            reply = self._answer(query, Transport.UDP, client[0])
            if reply is not None:
                with contextlib.suppress(OSError):
                    self._sock.sendmsg([reply], reply_source(control), 0, client)


def reply_source(control: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """The packet information to answer with: the same address, but no interface, which would bypass the routes."""
    sources = []
    for level, kind, data in control:
        if (level, kind) == (socket.IPPROTO_IP, IP_PKTINFO):  # ip(7): interface, local address, destination
            sources.append((level, kind, struct.pack("@i", 0) + data[4:]))
        elif (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):  # RFC 3542 6: address, interface
            sources.append((level, kind, data[:16] + struct.pack("@I", 0)))
    return sources
