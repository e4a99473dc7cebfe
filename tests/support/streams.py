"""DNS over TCP for tests: a zone, queries in frames, sockets that read them, and listeners to ask."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import dns.message
import dns.zone
import pytest

from maptr.config import Config
from maptr.config.model import ConnectionLimits, TlsConfig
from maptr.daemon.certificate import Certificate
from maptr.daemon.sockets import open_tcp
from maptr.protocol.address import Address
from maptr.server import stream
from maptr.server.counters import Counters
from maptr.server.daemon import Daemon
from maptr.server.responder import Responder, ServerState
from maptr.server.settings import context_of
from maptr.server.stream import Connections, TcpListener
from maptr.transfer.acl import AccessRule
from maptr.transfer.session import Access
from maptr.zone.snapshot import Snapshot
from tests.support.running import Running, answering, daemon_of
from tests.support.waiting import PATIENCE, until
from tests.support.zones import snapshot_of_zones

ZONE = "\n".join(
    [
        "@ 60 SOA ns host 1 7200 3600 1209600 300",
        "@ 60 NS ns",
        "ns 60 A 192.0.2.1",
        '12345 60 NAPTR 10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://h.example:8443/p/ark:/12345/\\\\1!" .',
        '12345 60 NAPTR 100 10 "h" "ark" "" h.example\\0588443.',
        *(f'big 60 TXT "{i:0200d}"' for i in range(250)),
    ]
)
SNAPSHOT = snapshot_of_zones(dns.zone.from_text(ZONE, "ark.arpa.", relativize=False))
QUERY = dns.message.make_query("12345.ark.arpa.", "NAPTR")
WIRE = QUERY.to_wire()
FRAME = len(WIRE).to_bytes(2, "big") + WIRE
BIG = dns.message.make_query("big.ark.arpa.", "TXT").to_wire()
BIG_FRAME = len(BIG).to_bytes(2, "big") + BIG


@contextlib.contextmanager
def serving(*addresses: Address) -> Iterator[Daemon]:
    daemon = daemon_of(SNAPSHOT, *addresses or (Address("127.0.0.1", 0),))
    with answering(daemon):
        yield daemon


def responding(snapshot: Snapshot = SNAPSHOT, *, context: dict[str, Any] | None = None, **settings: Any) -> Responder:
    """A responder that answers from a snapshot; some fields of its context may be given."""
    responder = Responder(context_of(Config()), **settings)
    responder.swap(ServerState(snapshot, Access(), replace(responder.state.context, **context or {})))
    return responder


@contextlib.contextmanager
def limited(**limits: Any) -> Iterator[ConnectionLimits]:
    """The test's own limits, in the configuration and, in capitals, among the constants of ``stream.py``.

    By default, times are longer than a slow machine needs.
    """
    limits = dict.fromkeys(("idle_timeout", "WRITE_TIMEOUT", "HANDSHAKE_TIMEOUT"), PATIENCE) | limits
    with pytest.MonkeyPatch.context() as patch:
        for name in filter(str.isupper, limits):
            patch.setattr(stream, name, limits[name])
        yield ConnectionLimits(**{name: limit for name, limit in limits.items() if name.islower()})


class Listening:
    """A TcpListener on its own port, with its counters."""

    def __init__(self, certificate: Certificate | None, limits: ConnectionLimits) -> None:
        sock = open_tcp("127.0.0.1", 0)
        self.port = sock.getsockname()[1]
        self.connections = Connections(limits)
        answers = functools.partial(responding().answers, counters=Counters())
        self.listener = TcpListener(sock, answers, self.connections, certificate)
        self.running = Running()
        self.failures: list[dict[str, Any]] = []
        self.running.loop.set_exception_handler(lambda _, context: self.failures.append(context))

    def start(self) -> None:
        self.running.call(self.listener.start)

    def stop(self) -> None:
        """Stop and drain it; a second call does nothing."""

        async def end() -> None:
            await self.listener.stop()
            await self.connections.drain()

        asyncio.run_coroutine_threadsafe(end(), self.running.loop).result(PATIENCE)


@contextlib.contextmanager
def listening(certificate: Certificate | None = None, *, start: bool = True, **limits: Any) -> Iterator[Listening]:
    """A listener with the test's own limits. Afterwards, none of its connections, tasks or file descriptors may be
    left."""
    descriptors = open_descriptors()
    with limited(**limits) as config:
        found = Listening(certificate, config)
        if start:
            found.start()
        try:
            yield found
        finally:
            found.stop()
            wait_for(lambda: not asyncio.all_tasks(found.running.loop))
            found.running.close()
    wait_for(lambda: open_descriptors() <= descriptors)
    assert (found.connections.counts.open, found.failures) == (0, [])


def open_descriptors() -> int:
    """The number of open file descriptors; 0 where the system does not show them."""
    return len([*Path("/proc/self/fd").glob("*")])


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def receive(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def receive_message(sock: socket.socket) -> dns.message.Message:
    return dns.message.from_wire(receive(sock, int.from_bytes(receive(sock, 2), "big")))


def messages(received: bytes) -> Iterator[bytes]:
    """The messages of a stream, which must be whole."""
    while received:
        end = 2 + int.from_bytes(received[:2], "big")
        assert len(received) >= end
        yield received[2:end]
        received = received[end:]


def ask(sock: socket.socket) -> dns.message.Message:
    sock.sendall(FRAME)
    return receive_message(sock)


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True


def wait_until_cut_off(sock: socket.socket) -> None:
    """Wait until the server has closed the connection, without reading: data sent then is refused."""
    sock.setblocking(False)
    deadline = time.monotonic() + PATIENCE
    with contextlib.suppress(ConnectionError):
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                sock.send(b"\0")
            time.sleep(0.05)
        raise AssertionError("still connected")


def wait_for(met: Callable[[], bool]) -> None:
    """Wait until the server has noticed."""
    until(met, "the server notices")


@cache
def large() -> Snapshot:
    """A zone of a megabyte, built when a test needs it."""
    text = "@ 60 SOA ns host 1 7200 3600 1209600 300\n@ 60 NS ns\nns 60 A 192.0.2.1\n"
    text += "\n".join(f'n{i} 60 TXT "{i:0250d}"' for i in range(3000))
    return snapshot_of_zones(dns.zone.from_text(text, "ark.arpa.", relativize=False))


@contextlib.contextmanager
def transferring(tls: TlsConfig | None = None, **timeouts: float) -> Iterator[Daemon]:
    """A daemon that transfers a zone of a megabyte to any client here."""
    rules = (AccessRule.from_text("127.0.0.1"),)
    with limited(**timeouts) as limits:
        daemon = daemon_of(large(), Address("127.0.0.1", 0), transfer=rules, tcp=limits, tls=tls or TlsConfig())
        with answering(daemon):
            yield daemon


def frame(query: dns.message.Message) -> bytes:
    wire = query.to_wire()
    return len(wire).to_bytes(2, "big") + wire


def linger(sock: socket.socket) -> None:
    """Closing the socket will reset the connection."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
