"""Scripted name servers on real sockets, which may send any response.

A ``Script`` gets the bytes of a query and its transport, and returns the packets to send back, in order.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from maptr.naptr.record import Naptr
from maptr.protocol import names
from tests.support.ports import free_port

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
    table = {names.fold(names.parse(name)): rdatas for name, rdatas in zone.items()}

    def answer(query: bytes, transport: str) -> list[bytes]:
        rdatas = table.get(question(query)[0])
        if rdatas is None:
            return [reply(query, authority=[record("ark.arpa.", SOA, SOA_RDATA)], rcode=3)]
        whole = reply(query, [record(None, NAPTR, rdata) for rdata in rdatas])
        return [whole if transport == "tcp" or len(whole) <= 1232 else reply(query, flags=AA | TC)]

    return answer


class Hostile:
    """A server on a loopback address, with UDP and TCP on the same port."""

    def __init__(self, script: Script, host: str = "127.0.0.1", port: int = 0) -> None:
        self.script = script
        self.queries: list[tuple[bytes, str]] = []
        self.clients: set[int] = set()
        self.host, self.port = host, port or free_port(host)
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.udp.bind((self.host, self.port))
        self.tcp.bind((self.host, self.port))
        self.tcp.listen()
        self.tcp.settimeout(0.05)
        self.udp.settimeout(0.05)
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self._serve_udp), threading.Thread(target=self._serve_tcp)]

    @property
    def name(self) -> str:
        return f"{self.host}#{self.port}"

    def _serve_udp(self) -> None:
        while not self.over.is_set():
            with suppress(TimeoutError):
                query, client = self.udp.recvfrom(65535)
                if self.over.is_set():
                    return
                self.queries.append((query, "udp"))
                self.clients.add(client[1])
                for packet in self.script(query, "udp"):
                    self.udp.sendto(packet, client)

    def _serve_tcp(self) -> None:
        while not self.over.is_set():
            with suppress(OSError):
                connection, _ = self.tcp.accept()
                with connection:
                    if self.over.is_set():
                        return
                    connection.settimeout(1)
                    size = int.from_bytes(connection.recv(2), "big")
                    query = connection.recv(size)
                    if not query:  # the client has timed out
                        continue
                    self.queries.append((query, "tcp"))
                    for packet in self.script(query, "tcp"):
                        connection.sendall(struct.pack("!H", len(packet)) + packet)


@contextmanager
def hostile(script: Script, host: str = "127.0.0.1", port: int = 0) -> Iterator[Hostile]:
    """Run a server."""
    server = Hostile(script, host, port)
    for thread in server.threads:
        thread.start()
    try:
        yield server
    finally:
        server.over.set()
        with suppress(OSError):  # wakes both threads
            server.udp.sendto(b"", (server.host, server.port))
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp:
                tcp.connect((server.host, server.port))
        for thread in server.threads:
            thread.join()
        server.udp.close()
        server.tcp.close()
