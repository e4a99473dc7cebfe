"""UDP without batches, for systems other than 64-bit Linux: one socket, drained in bursts from the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable

from maptr.answer.context import Transport
from maptr.server.sockets import IP_PKTINFO, is_wildcard

Answer = Callable[[bytes, Transport, str], bytes | None]

MAX_DATAGRAM = 65535  # RFC 768: the length field
# Datagrams taken before the event loop continues: enough to avoid most wake-ups, few enough not to starve TCP.
BURST = 64


class UdpListener:
    """Answers queries on one socket. Full send buffers and unreachable clients lose responses, as UDP does."""

    def __init__(self, sock: socket.socket, answer: Answer) -> None:
        self._sock = sock
        self._answer = answer
        self._drain = self._drain_wildcard if is_wildcard(sock) else self._drain_one_address

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.add_reader(self._sock, self._drain)

    def stop(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._sock)
        self._sock.close()

    def _drain_one_address(self) -> None:
        for _ in range(BURST):
            try:
                query, client = self._sock.recvfrom(MAX_DATAGRAM)
            except OSError:  # no more queries, or an ICMP error for an earlier response
                return
            reply = self._answer(query, Transport.UDP, client[0])
            if reply is not None:
                with contextlib.suppress(OSError):
                    self._sock.sendto(reply, client)

    def _drain_wildcard(self) -> None:
        """As above for 0.0.0.0 and ``[::]``, with the address that each query was sent to."""
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
    """The packet information of a response: the same address, but no interface, which would bypass the routes."""
    sources = []
    for level, kind, data in control:
        if (level, kind) == (socket.IPPROTO_IP, IP_PKTINFO):  # ip(7): interface, local address, destination
            sources.append((level, kind, struct.pack("@i", 0) + data[4:]))
        elif (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):  # RFC 3542 6: address, interface
            sources.append((level, kind, data[:16] + struct.pack("@I", 0)))
    return sources
