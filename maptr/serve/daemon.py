"""The daemon: binds, answers from one immutable Snapshot, and swaps it when the zones are read again.

SIGHUP reads configuration and zones anew, SIGTERM and SIGINT stop, the control socket tells how it is. Whoever runs
it configures logging ("maptr.serve").
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maptr.address import Address as Address  # whoever has a Daemon has these
from maptr.answer import Transport
from maptr.config import Config
from maptr.context import NO_IDENTITY, UDP_PAYLOAD, Identity
from maptr.cookies import CookieSettings
from maptr.errors import ConfigError, ZoneError
from maptr.exchange import Access, exchange
from maptr.rrl import RrlSettings
from maptr.serve import (
    alarm,
    batch,
    control,
    httpd,
    metrics,
    sdnotify,
    settings,
    signer,
    slots,
    status,
    tcp,
    udp,
    zones,
)
from maptr.serve.background import in_thread
from maptr.serve.bind import bind_pair, bind_tls
from maptr.serve.connections import Connections
from maptr.serve.counters import Counters
from maptr.serve.primary import NO_SECONDARIES, Primary, PrimarySettings
from maptr.serve.publisher import Clock, Outcome, Served, publish, sign_again, to_sign
from maptr.serve.responder import Responder
from maptr.serve.tls import Certificate, TlsSettings
from maptr.snapshot import Snapshot

log = logging.getLogger("maptr.serve")


@dataclass(frozen=True, slots=True)
class _Again:
    """Everything that a reload swaps, made ready, and what became of each zone."""

    config: Config | None
    served: Served
    new: Snapshot
    access: Access
    outcomes: list[Outcome]


class Daemon:
    """Serve the zones on the addresses until told to stop. ``snapshot`` is what it answers from now.

    ``served`` says more of the zones than the snapshot: those that did not load, and why. With ``reread`` a reload
    reads the configuration again, which ``config`` is now. ``control`` is the path of the control socket, ``metrics``
    where metrics and health are told over HTTP.
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
        served: Served | None = None,
        config: Config | None = None,
        reread: Callable[[], Config] | None = None,
        control: Path | None = None,
        metrics: Address | None = None,
        clock: Clock = time.time,
    ) -> None:
        self._clock = clock
        self.primary = Primary(primary, clock=clock)
        self._access = self.primary.access(snapshot)
        self.snapshot = snapshot
        self.served = served or Served.of(sources, snapshot)
        self.config = config
        self.config_error = self.certificate_error = ""
        self.responder = Responder(
            identity=identity,
            cookies=cookies,
            rrl=rrl,
            udp_payload=udp_payload,
            idle_timeout=tcp_limits.idle_timeout,
        )
        self.counters = self.responder.limiter.tally = Counters()
        self.reloads = status.Reloads()
        self.started_at = clock()
        self.metrics_bound: Address | None = None
        self.bound: list[Address] = []
        self.tls_bound: list[Address] = []
        self._tcp_limits = tcp_limits
        self._sources = tuple(sources)
        self._addresses = tuple(addresses)
        self._tls_addresses = tls.listen if tls else ()
        self._certificate = Certificate(tls) if tls else None
        self._reread = reread
        self._control = control
        self._metrics = metrics
        self._metrics_socket: socket.socket | None = None
        self._sockets: list[tuple[socket.socket, socket.socket]] = []
        self._tls_sockets: list[socket.socket] = []
        self._control_socket: socket.socket | None = None
        self._batches: list[batch.BatchListener] = []
        self._stopping = asyncio.Event()
        self._reload_wanted = asyncio.Event()
        self._reloading = asyncio.Lock()

    def bind(self) -> None:
        """Open every socket; ``bound`` then has the real ports. Raises ConfigError if one cannot be had."""
        try:
            for address in self._addresses:
                pair = bind_pair(address)
                self._sockets.append(pair)
                self.bound.append(Address(address.host, pair[0].getsockname()[1]))
            for address in self._tls_addresses:
                sock = bind_tls(address)
                self._tls_sockets.append(sock)
                self.tls_bound.append(Address(address.host, sock.getsockname()[1]))
            if self._metrics is not None:
                self._metrics_socket = httpd.bind(self._metrics)
                self.metrics_bound = Address(self._metrics.host, self._metrics_socket.getsockname()[1])
            if self._control is not None:
                self._control_socket = control.bind(self._control)
        except BaseException:
            for sock in [*(sock for pair in self._sockets for sock in pair), *self._tls_sockets]:
                sock.close()
            if self._metrics_socket is not None:
                self._metrics_socket.close()
            self._sockets.clear()
            self._tls_sockets.clear()
            raise

    async def run(self, *, signals: bool = False) -> None:
        """Answer until ``stop``; binds first where that has not been done.

        ``signals``: SIGHUP, SIGTERM and SIGINT mean what they mean to a daemon; for the main thread only.
        """
        if not (self._sockets or self._tls_sockets):
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
        self._batches = [listener for listener in udp_listeners if isinstance(listener, batch.BatchListener)]
        controller = None if self._control_socket is None else control.ControlServer(self._control_socket, self.command)
        limits = self._tcp_limits
        connections = Connections(
            max_connections=limits.max_connections, max_per_client=limits.max_per_client, counters=self.counters
        )
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
        if controller is not None:
            await controller.start()
        scraped = None if self._metrics_socket is None else httpd.HttpServer(self._metrics_socket, self.told)
        if scraped is not None:
            await scraped.start()
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
        log.info("udp %s", f"in batches of {slots.BATCH}" if batched else f"one by one, {batch.why_not()}")
        if self.metrics_bound is not None:
            log.info("metrics on http://%s/metrics", self.metrics_bound)
        sdnotify.notify(sdnotify.READY)
        watchers = [loop.create_task(alarm.watch(lambda: self.snapshot)), loop.create_task(self._sign_when_due())]
        self.primary.tell(self._access, self.snapshot)
        try:
            await self._stopping.wait()
        finally:
            sdnotify.notify(sdnotify.STOPPING)
            reloader.cancel()
            if controller is not None:
                await controller.stop()
            if scraped is not None:
                await scraped.stop()
            for watcher in watchers:
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
        """Read configuration, zones and certificate again soon; asked for during a reload, once more after it."""
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
                self.counters.count(transport, reply)
                begun = True
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
                if not begun:
                    self.counters.count(transport, message)
                begun = True
                yield message
        except ZoneError as error:
            log.error("a transfer to %s ends early: %s", client, error)
            raise
        except Exception:
            log.exception("internal error, query dropped: %s", query.hex())
            if begun:
                raise ZoneError("a transfer cut off") from None
        if not begun:
            self.counters.count(transport, None)

    async def command(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the control socket asks: ``{"command": "status"}``, or ``reload`` with ``zone`` and ``force``."""
        zone, force = request.get("zone"), request.get("force", False)
        match request.get("command"):
            case "status":
                return await in_thread(lambda: status.describe(self, self._clock()))
            case "reload" if isinstance(force, bool) and (zone is None or isinstance(zone, str)):
                return await self.reload_now(zone, force=force)
        return {"error": "no such command: status, or reload with zone (a text) and force (true or false)"}

    async def told(self, path: str) -> httpd.Reply | None:
        """What is told over HTTP at a path."""
        if path not in (metrics.METRICS, metrics.HEALTH):
            return None
        return await in_thread(lambda: metrics.reply(path, status.describe(self, self._clock())))

    async def reload_now(self, zone: str | None = None, *, force: bool = False) -> dict[str, Any]:
        """Read one zone, or the configuration and every zone; what became of each, or an error that stopped it all."""
        reply = await self._reload(zone, force)
        self.reloads.count(reply, self._clock())
        return reply

    async def _reload(self, zone: str | None, force: bool) -> dict[str, Any]:
        async with self._reloading:
            sdnotify.notify(sdnotify.reloading())
            try:
                # In a thread, for parsing takes far longer than any query may wait.
                again = await in_thread(lambda: self._read_again(zone, force))
            except (ConfigError, OSError) as error:
                if zone is None:
                    self.config_error = str(error)
                    log.error("configuration not reloaded, everything stays: %s", error)
                return {"error": str(error)}
            else:
                self._swap(again)
                reply: dict[str, Any] = {"zones": [outcome.to_dict() for outcome in again.outcomes]}
                if zone is None:
                    self.config_error = ""
                    await self._refresh(reply)
                await in_thread(lambda: alarm.tell(again.new, self._clock()))
                return reply
            finally:
                sdnotify.notify(sdnotify.READY)

    async def sign_now(self) -> None:
        """Sign the zones whose keys changed or whose signatures are due, as their files were last read."""
        async with self._reloading:
            signs = any(state.source.signing for state in self.served.states.values())
            if signs and (again := await in_thread(self._sign_again)) is not None:
                self._swap(again)

    def _swap(self, again: _Again) -> None:
        old, before = self.snapshot, self._access
        self.config, self.served, self.snapshot, self._access = again.config, again.served, again.new, again.access
        self.primary.tell(again.access, again.new, old, before)

    async def _refresh(self, reply: dict[str, Any]) -> None:
        """What a reload brings beside zones: the certificate, and how queries are answered."""
        if self.config is not None:
            self.responder.context = settings.renewed(self.responder.context, self.config)
            await in_thread(lambda: self._prepare(self.snapshot, self._access))
        if self._certificate is not None:
            self.certificate_error = await in_thread(self._certificate.reload)
            if self.certificate_error:
                reply["error"] = f"certificate not reloaded, the old one stays: {self.certificate_error}"

    def _read_again(self, zone: str | None, force: bool) -> _Again:
        """The next state, made beside this one. Raises ConfigError, and OSError for the configuration's file."""
        config, only = self.config, None
        if zone is not None:
            only = settings.served_origin(zone, self.served.states)
        elif self._reread is not None:
            new = self._reread()
            if config is not None:
                settings.check_change(config, new)
            config = new
        sources = self._sources if config is None else settings.sources_of(config)
        secondaries = self.primary.settings if config is None else settings.primary_of(config)
        served, outcomes = publish(sources, self.served, clock=self._clock, only=only, force=force)
        self.primary.settings = secondaries
        return self._ready(config, served, outcomes)

    def _sign_again(self) -> _Again | None:
        """The next state, if zones are to be signed; None where nothing is to be done."""
        if not (origins := to_sign(self.served, self._clock())):
            return None
        served, outcomes = sign_again(self.served, origins, clock=self._clock)
        return self._ready(self.config, served, outcomes)

    def _ready(self, config: Config | None, served: Served, outcomes: list[Outcome]) -> _Again:
        snapshot = served.snapshot()
        sources = [state.source for state in served.states.values()]
        access = self.primary.follow(self._access, sources, self.snapshot, snapshot)
        self._prepare(snapshot, access)
        return _Again(config, served, snapshot, access, outcomes)

    def counted(self) -> Counters:
        """Queries by transport and result, of all listeners."""
        total = Counters()
        for counters in (self.counters, *(listener.counters for listener in self._batches)):
            total.add(counters)
        return total

    def _prepare(self, snapshot: Snapshot, access: Access) -> None:
        self.responder.prepare(snapshot, [access.catalog.view.origin] if access.catalog else [])

    async def _sign_when_due(self) -> None:
        while True:
            try:
                await self.sign_now()
            except Exception:
                log.exception("internal error, zones not signed")
            await asyncio.sleep(signer.LOOK_INTERVAL)

    async def _reload_when_wanted(self) -> None:
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            try:
                await self.reload_now()
            except Exception:
                log.exception("internal error, nothing reloaded")
