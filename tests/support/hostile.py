"""Scripted name servers on real sockets, which may send any response.

A ``Script`` gets the bytes of a query and its transport, and returns the packets to send back, in order.
"""

from __future__ import annotations

import socket
import socketserver
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from maptr.naptr.record import Naptr
from maptr.protocol import names
from tests.support.ports import free_port
from tests.support.scripted import running

Script = Callable[[bytes, str], list[bytes]]

QR, AA, TC = 0x8000, 0x0400, 0x0200
CNAME, NAPTR, SOA, NS, A = 5, 35, 6, 2, 1


def question(query: bytes) -> tuple[tuple[bytes, ...], bytes]:
    """The queried name in lower case, and the bytes of the question section."""
    labels = []
    at = 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].lower())
        at += 1 + query[at]
    return tuple(labels), query[12 : at + 5]


def record(owner: str | None, rdtype: int, rdata: bytes, *, ttl: int = 60, rdclass: int = 1) -> bytes:
    """A record in wire format; the owner None is a pointer to the question."""
    name = b"\xc0\x0c" if owner is None else names.to_wire(names.parse(owner))
    return name + struct.pack("!HHIH", rdtype, rdclass, ttl, len(rdata)) + rdata


def naptr(
    replacement: str = ".", *, flags: bytes = b"h", regexp: bytes = b"", order: int = 0, preference: int = 0
) -> bytes:
    """NAPTR rdata."""
    return Naptr(order, preference, flags, b"ark", regexp, names.parse(replacement)).to_wire()


def reply(
    query: bytes,
    answer: list[bytes] | None = None,
    *,
    authority: list[bytes] | None = None,
    additional: list[bytes] | None = None,
    flags: int = AA,
    rcode: int = 0,
    ident: bytes | None = None,
    asked: bytes | None = None,
) -> bytes:
    """A response to the query, of any content."""
    sections = [answer or [], authority or [], additional or []]
    head = (ident or query[:2]) + struct.pack("!5H", QR | flags | rcode, 1, *map(len, sections))
    return head + (asked or question(query)[1]) + b"".join(b"".join(section) for section in sections)


SOA_RDATA = names.to_wire((b"a",)) * 2 + struct.pack("!5I", 1, 2, 3, 4, 60)


def hosts(zone: dict[str, list[bytes]]) -> Script:
    """A correct server with NAPTR rdata by name."""
    table: dict[names.Labels, list[bytes]] = {names.fold(names.parse(name)): rdatas for name, rdatas in zone.items()}

    def answer(query: bytes, transport: str) -> list[bytes]:
        rdatas = table.get(question(query)[0])
        if rdatas is None:
            return [reply(query, authority=[record("ark.arpa.", SOA, SOA_RDATA)], rcode=3)]
        whole = reply(query, [record(None, NAPTR, rdata) for rdata in rdatas])
        return [whole if transport == "tcp" or len(whole) <= 1232 else reply(query, flags=AA | TC)]

    return answer


@dataclass
class Hostile:
    """A server on a loopback address, with UDP and TCP on the same port: its queries so far, and the ports of clients
    over UDP."""

    script: Script
    host: str
    port: int
    queries: list[tuple[bytes, str]] = field(default_factory=list)
    clients: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        return f"{self.host}#{self.port}"

    def answers(self, query: bytes, transport: str) -> list[bytes]:
        self.queries.append((query, transport))
        return self.script(query, transport)


class _Udp(socketserver.UDPServer):
    max_packet_size = 65535


class _Tcp(socketserver.TCPServer):
    allow_reuse_address = True


@contextmanager
def hostile(script: Script, host: str = "127.0.0.1", port: int = 0) -> Iterator[Hostile]:
    """Run a server."""
    server = Hostile(script, host, port or free_port(host))

    class OverUdp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            query, sock = self.request
            server.clients.add(self.client_address[1])
            for packet in server.answers(query, "udp"):
                with suppress(OSError):  # the client has gone
                    sock.sendto(packet, self.client_address)

    class OverTcp(socketserver.StreamRequestHandler):
        timeout = 1

        def handle(self) -> None:
            with suppress(OSError):
                query = self.rfile.read(int.from_bytes(self.rfile.read(2), "big"))
                for packet in server.answers(query, "tcp") if query else ():  # else the client has timed out
                    self.wfile.write(struct.pack("!H", len(packet)) + packet)

    udp = _Udp((host, server.port), OverUdp)
    udp.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    with running(udp), running(_Tcp((host, server.port), OverTcp)):
        yield server
