"""TCP and TLS connections (RFC 7766, RFC 7858): accepting them within limits, the TLS certificate, and closing them.

``stream.py`` answers the queries of one connection.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from maptr.answer.context import Transport
from maptr.errors import ConfigError
from maptr.protocol.address import Address
from maptr.server.counters import Counters
from maptr.server.stream import DEFAULT_LIMITS, RoundRobin, Stream, TcpLimits

log = logging.getLogger("maptr.serve")

Answers = Callable[[bytes, Transport, str], Iterable[bytes]]  # the messages of one response to a query of a client

CLIENT_IPV6_PREFIX = 64  # bits: a client with one address of a link has all of them (RFC 4291 2.5.1)
ACCEPT_AT_ONCE = 4  # connections accepted before the event loop continues, which notices those that have ended
ACCEPT_PAUSE = 1.0  # seconds to wait if the system has no more file descriptors, as asyncio's own servers do
CHECKS = 10  # for connections past their deadline, in the time of the shortest limit
CHECK_INTERVAL = 0.1  # seconds at least between two of these checks
LEAVE_TIMEOUT = 1.0  # seconds for responses under way when the server stops
LEAVE_INTERVAL = 0.02  # seconds between two checks whether they are sent
ALPN = "dot"  # RFC 7858, as registered with IANA
MINIMUM_VERSION = ssl.TLSVersion.TLSv1_2  # RFC 9325 3.1.1


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The addresses for DNS over TLS, and PEM files: the certificate with its chain, and its private key."""

    listen: tuple[Address, ...]
    certificate: Path
    key: Path


class Certificate:
    """``context`` is for new connections. Raises ConfigError if the files cannot be used."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self.context = make_context(settings)

    def reload(self) -> str:
        """Read the files again, for new connections. The result is the reason why the old ones stay, "" if none."""
        try:
            self.context = make_context(self._settings)
        except ConfigError as error:
            log.error("certificate not reloaded, the old one stays: %s", error)
            return str(error)
        log.info("certificate reloaded from %s", self._settings.certificate)
        return ""


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """A server's context for TLS 1.2 and 1.3. Raises ConfigError that names the bad file."""
    for path in (settings.certificate, settings.key):
        try:
            path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = MINIMUM_VERSION
    context.set_alpn_protocols([ALPN])
    context.options |= ssl.OP_NO_RENEGOTIATION  # a client could cause work by it
    try:
        # A callback, as OpenSSL would otherwise ask the terminal for the passphrase of an encrypted key.
        context.load_cert_chain(settings.certificate, settings.key, password=_no_passphrase)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise ConfigError(f"{settings.certificate} with {settings.key}: no usable pair: {reason}") from error
    return context


def _no_passphrase() -> str:
    raise ValueError("the key is encrypted")


class Connections:
    """The open connections of all listeners, within limits of their numbers, until their deadlines or ``drain``.

    At the limit the connection that is idle for longest is closed; at the limit of a client its new one is refused.
    """

    def __init__(self, limits: TcpLimits = DEFAULT_LIMITS, counters: Counters | None = None) -> None:
        self.limits = limits
        self.scheduler = RoundRobin()
        self._counters = counters or Counters()
        self._open: OrderedDict[Stream, str] = OrderedDict()  # idle for longest first, each with its client
        self._per_client: Counter[str] = Counter()
        shortest = min(limits.idle_timeout, limits.write_timeout, limits.handshake_timeout)
        self._check_interval = max(CHECK_INTERVAL, shortest / CHECKS)
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, stream: Stream, address: str) -> bool:
        """Count a new connection; False if its client has too many."""
        client = _client(address)
        if self._per_client[client] >= self.limits.max_per_client:
            self._counters.refused += 1
            return False
        if len(self._open) >= self.limits.max_connections:
            self.shed()
        self._open[stream] = client
        self._per_client[client] += 1
        self._counters.open += 1
        self._counters.accepted += 1
        if self._timer is None:
            self._check_deadlines()
        return True

    def shed(self) -> None:
        """Close the connection that is idle for longest, if there is one."""
        if stream := next(iter(self._open), None):
            self.remove(stream)
            stream.abort()
            self._counters.shed += 1

    def touch(self, stream: Stream) -> None:
        """Note a query: the connection is now the least idle."""
        if stream in self._open:
            self._open.move_to_end(stream)

    def remove(self, stream: Stream) -> None:
        """Note that a connection is closed. A second call does nothing."""
        client = self._open.pop(stream, None)
        if client is None:
            return
        self._counters.open -= 1
        self._per_client[client] -= 1
        if not self._per_client[client]:
            del self._per_client[client]

    async def drain(self) -> None:
        """Send the responses under way, and close all connections."""
        for close in (Stream.end, Stream.abort):
            for stream in tuple(self._open):
                close(stream)
            until = time.monotonic() + LEAVE_TIMEOUT
            while self._open and time.monotonic() < until:
                await asyncio.sleep(LEAVE_INTERVAL)
        if self._timer is not None:
            self._timer.cancel()

    def _check_deadlines(self) -> None:
        """Close the connections past their deadline, now and at an interval while there are connections."""
        loop = asyncio.get_running_loop()
        for stream in tuple(self._open):
            stream.check_deadline(loop.time())
        self._timer = loop.call_later(self._check_interval, self._check_deadlines) if self._open else None


def _client(address: str) -> str:
    """What counts as one client: an IPv4 address, or the network of an IPv6 link."""
    if ":" not in address:
        return address
    return str(ipaddress.IPv6Network((address.partition("%")[0], CLIENT_IPV6_PREFIX), strict=False))


class TcpListener:
    """Accepts the connections of one socket: TCP, or TLS with a ``certificate``. Listeners share ``connections``."""

    def __init__(
        self, sock: socket.socket, answer: Answers, connections: Connections, certificate: Certificate | None = None
    ) -> None:
        self._sock = sock
        self._answer = answer
        self._connections = connections
        self._certificate = certificate
        self._transport = Transport.TLS if certificate else Transport.TCP
        self._limits = connections.limits
        self._pause: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._listen()

    def stop(self) -> None:
        """Accept no more connections."""
        if self._sock.fileno() == -1:
            return
        if self._pause is None:
            self._loop.remove_reader(self._sock)
        else:
            self._pause.cancel()
        self._sock.close()

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, ConnectionError):
                return  # closed before it was accepted
            except OSError as error:
                log.warning("no connection accepted for %g s: %s", ACCEPT_PAUSE, error.strerror or error)
                self._connections.shed()
                self._loop.remove_reader(self._sock)
                self._pause = self._loop.call_later(ACCEPT_PAUSE, self._listen)
                return
            self._admit(sock, address[0])

    def _admit(self, sock: socket.socket, client: str) -> None:
        sock.setblocking(False)
        stream = Stream(
            lambda query: self._answer(query, self._transport, client),
            sock=sock,
            limits=self._limits,
            secure=self._certificate is not None,
            on_query=self._connections.touch,
            on_end=self._connections.remove,
            schedule=self._connections.scheduler.add,
        )
        if not self._connections.admit(stream, client):
            sock.close()
            return
        task = self._loop.create_task(self._connect(sock, stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, sock: socket.socket, stream: Stream) -> None:
        """Start the stream, for TLS after the handshake."""
        tls = self._certificate
        try:
            await self._loop.connect_accepted_socket(
                lambda: stream,
                sock,
                ssl=tls.context if tls else None,
                ssl_handshake_timeout=self._limits.handshake_timeout if tls else None,
                ssl_shutdown_timeout=self._limits.write_timeout if tls else None,  # unsent data is sent in it
            )
        except OSError:  # such as ssl.SSLError of a failed handshake
            sock.close()
        finally:
            if not stream.begun:
                stream.connection_lost(None)
