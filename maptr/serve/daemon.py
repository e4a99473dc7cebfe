"""The daemon: binds, answers from one immutable Snapshot, and swaps it when the zones are read again.

SIGHUP reads the zone files and the certificate anew, SIGTERM and SIGINT stop. Whoever runs it configures logging
("maptr.serve").
"""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence

from maptr.address import Address as Address  # whoever has a Daemon has these
from maptr.answer import Transport
from maptr.context import NO_IDENTITY, UDP_PAYLOAD, Identity
from maptr.cookies import CookieSettings
from maptr.errors import ConfigError, ZoneError
from maptr.exchange import Access, exchange
from maptr.rrl import RrlSettings
from maptr.serve import alarm, batch, slots, tcp, udp, zones
from maptr.serve.connections import Connections
from maptr.serve.primary import NO_SECONDARIES, Primary, PrimarySettings
from maptr.serve.responder import Responder
from maptr.serve.tls import Certificate, TlsSettings
from maptr.snapshot import Snapshot

log = logging.getLogger("maptr.serve")

# Tries to find one port that is free for UDP and TCP both, where any port will do.
PORT_TRIES = 20


class Daemon:
    """Serve the zones on the addresses until told to stop. ``snapshot`` is what it answers from now.

    ``cookies`` None takes a secret of its own, ``rrl`` None the default limits, ``clock`` is in seconds since 1970.
    Raises ConfigError for a certificate that cannot be used and for secondaries' keys that are not there.
    """

    def __init__(
        self,
        sources: Sequence[zones.ZoneSource],
        addresses: Sequence[Address],
        snapshot: Snapshot,
        *,
        identity: Identity = NO_IDENTITY,
        cookies: CookieSettings | None = None,
        rrl: RrlSettings | None = None,
        tls: TlsSettings | None = None,
        tcp_limits: tcp.TcpLimits = tcp.DEFAULT_LIMITS,
        udp_payload: int = UDP_PAYLOAD,
        primary: PrimarySettings = NO_SECONDARIES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self.primary = Primary(primary, clock=clock)
        self._access = self.primary.access(snapshot)
        self.snapshot = snapshot
        self.responder = Responder(
            identity=identity,
            cookies=cookies,
            rrl=rrl,
            udp_payload=udp_payload,
            idle_timeout=tcp_limits.idle_timeout,
        )
        self._tcp_limits = tcp_limits
        self.bound: list[Address] = []
        self.tls_bound: list[Address] = []
        self._sources = tuple(sources)
        self._addresses = tuple(addresses)
        self._tls_addresses = tls.listen if tls else ()
        self._certificate = Certificate(tls) if tls else None
        self._sockets: list[tuple[socket.socket, socket.socket]] = []
        self._tls_sockets: list[socket.socket] = []
        self._stopping = asyncio.Event()
        self._reload_wanted = asyncio.Event()

    def bind(self) -> None:
        """Open every socket; ``bound`` then has the real ports. Raises ConfigError if one cannot be had."""
        try:
            for address in self._addresses:
                pair = _bind_pair(address)
                self._sockets.append(pair)
                self.bound.append(Address(address.host, pair[0].getsockname()[1]))
            for address in self._tls_addresses:
                sock = _bind_tls(address)
                self._tls_sockets.append(sock)
                self.tls_bound.append(Address(address.host, sock.getsockname()[1]))
        except BaseException:
            for sock in [*(sock for pair in self._sockets for sock in pair), *self._tls_sockets]:
                sock.close()
            self._sockets.clear()
            self._tls_sockets.clear()
            raise

    async def run(self, *, signals: bool = False) -> None:
        """Answer until ``stop``; binds first where that has not been done.

        ``signals``: SIGHUP, SIGTERM and SIGINT mean what they mean to a daemon; for the main thread only.
        """
        if not self._sockets:
            self.bind()
        self._access = self.primary.start(self._sources, self.snapshot)
        loop = asyncio.get_running_loop()
        self._prepare(self.snapshot, self._access)
        batched = batch.why_not() is None
        udp_listeners: list[udp.UdpListener | batch.BatchListener] = [
            batch.BatchListener(pair[0], self.responder, self.answer)
            if batched
            else udp.UdpListener(pair[0], self.answer)
            for pair in self._sockets
        ]
        limits = self._tcp_limits
        connections = Connections(max_connections=limits.max_connections, max_per_client=limits.max_per_client)
        plain = [(pair[1], None) for pair in self._sockets]
        secure = [(sock, self._certificate.context) for sock in self._tls_sockets if self._certificate]
        tcp_listeners = [
            tcp.TcpListener(sock, self.answers, connections, security=security, limits=limits)
            for sock, security in (*plain, *secure)
        ]
        for tcp_listener in tcp_listeners:
            tcp_listener.start()
        for udp_listener in udp_listeners:
            udp_listener.start(loop)
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop)
            loop.add_signal_handler(signal.SIGHUP, self.reload)
        reloader = loop.create_task(self._reload_when_wanted())
        count = len(self.snapshot.zones)
        log.info(
            "ready, serving %d zone%s on %s (udp, tcp)%s",
            count,
            "" if count == 1 else "s",
            ", ".join(map(str, self.bound)),
            f", {', '.join(map(str, self.tls_bound))} (tls)" if self.tls_bound else "",
        )
        watcher = loop.create_task(alarm.watch(lambda: self.snapshot))
        log.info("udp %s", f"in batches of {slots.BATCH}" if batched else f"one by one: {batch.why_not()}")
        self.primary.tell(self._access, self.snapshot)
        try:
            await self._stopping.wait()
        finally:
            reloader.cancel()
            watcher.cancel()
            await self.primary.stop()
            for udp_listener in udp_listeners:
                udp_listener.stop(loop)
            for tcp_listener in tcp_listeners:
                await tcp_listener.stop()
        log.info("stopped")

    def stop(self) -> None:
        self._stopping.set()

    def reload(self) -> None:
        """Read the zones and the certificate again soon; asked for during a reload, once more after it."""
        self._reload_wanted.set()

    def answer(self, query: bytes, transport: Transport, client: str) -> bytes | None:
        """One reply from the snapshot of this moment. A bug in answering costs its query, not the server."""
        return next(self.answers(query, transport, client), None)

    def answers(self, query: bytes, transport: Transport, client: str) -> Iterator[bytes]:
        """The messages of one reply, many for a transfer. Raises ZoneError, logged, where one cannot go on."""
        now, respond = int(self._clock()), self.responder.answer
        begun = False
        try:
            if (found := self.responder.find(query, self.snapshot)) is not None:
                reply = self.responder.settle(found, query, self.snapshot, transport, client)
                yield from () if reply is None else (reply,)
                return
            for message in exchange(
                query,
                self.snapshot,
                self._access,
                transport=transport,
                client=client,
                now=now,
                reply=respond,
                note=log.info,
            ):
                yield message
                begun = True
        except ZoneError as error:
            log.error("a transfer to %s ends early: %s", client, error)
            raise
        except Exception:
            log.exception("internal error, query dropped: %s", query.hex())
            if begun:
                raise ZoneError("a transfer cut off") from None

    async def _reload_when_wanted(self) -> None:
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            # In a thread, for parsing takes far longer than any query may wait.
            try:
                if self._certificate is not None:
                    await asyncio.to_thread(self._certificate.reload)
                await self._publish(await asyncio.to_thread(zones.reload, self._sources, self.snapshot))
                await asyncio.to_thread(alarm.tell, self.snapshot, time.time())
            except Exception:
                log.exception("internal error, nothing reloaded")

    def _prepare(self, snapshot: Snapshot, access: Access) -> None:
        self.responder.prepare(snapshot, [access.catalog.view.origin] if access.catalog else [])

    async def _publish(self, snapshot: Snapshot) -> None:
        """Answer from this snapshot from now on, its journals swapped with it, and tell the secondaries."""
        old, before = self.snapshot, self._access
        access = await asyncio.to_thread(self.primary.follow, before, self._sources, old, snapshot)
        await asyncio.to_thread(self._prepare, snapshot, access)
        self.snapshot, self._access = snapshot, access
        self.primary.tell(access, snapshot, old, before)


def _bind_pair(address: Address) -> tuple[socket.socket, socket.socket]:
    """A UDP and a TCP socket on the same port. Raises ConfigError."""
    for attempt in range(PORT_TRIES):
        try:
            udp_socket = udp.open_socket(address.host, address.port)
        except OSError as error:
            raise _cannot_listen(address, error) from error
        try:
            return udp_socket, tcp.open_socket(address.host, udp_socket.getsockname()[1])
        except OSError as error:
            udp_socket.close()
            if address.port or error.errno != errno.EADDRINUSE or attempt == PORT_TRIES - 1:
                raise _cannot_listen(address, error) from error
    raise AssertionError("unreachable")


def _bind_tls(address: Address) -> socket.socket:
    """A TCP socket for DNS over TLS. Raises ConfigError."""
    try:
        return tcp.open_socket(address.host, address.port)
    except OSError as error:
        raise _cannot_listen(address, error) from error


def _cannot_listen(address: Address, error: OSError) -> ConfigError:
    return ConfigError(f"cannot listen on {address}: {error.strerror or error}")
