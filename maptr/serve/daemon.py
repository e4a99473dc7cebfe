"""The daemon: what owns configuration, zones, journals and sockets, and has their queries answered.

SIGHUP reads configuration and zones anew, SIGTERM and SIGINT stop, the control socket tells how it is. Answering is
``front.py``, here in this process, or in several workers (``workers.py``). Whoever runs it configures logging
("maptr.serve").
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maptr.address import Address as Address  # whoever has a Daemon has these
from maptr.config import Config
from maptr.context import NO_IDENTITY, UDP_PAYLOAD, Context, Identity
from maptr.cookies import CookieSettings
from maptr.errors import ConfigError
from maptr.exchange import Access
from maptr.rrl import RrlSettings
from maptr.serve import (
    alarm,
    batch,
    control,
    hangup,
    httpd,
    metrics,
    publisher,
    sdnotify,
    settings,
    signer,
    slots,
    status,
    stream,
    tcp,
    zones,
)
from maptr.serve.background import in_thread
from maptr.serve.bind import Sockets, bind
from maptr.serve.counters import Counters, total
from maptr.serve.early import Early
from maptr.serve.front import Front, State
from maptr.serve.primary import NO_SECONDARIES, Primary, PrimarySettings
from maptr.serve.publisher import Clock, publish, sign_again, to_sign
from maptr.serve.responder import Responder
from maptr.serve.served import Outcome, Served
from maptr.serve.tls import Certificate, TlsSettings
from maptr.serve.workers import Workers
from maptr.snapshot import Snapshot

if TYPE_CHECKING:
    from maptr.serve.puller import Puller

log = logging.getLogger("maptr.serve")


@dataclass(frozen=True, slots=True)
class _Again:
    """Everything that a reload swaps, made ready, and what became of each zone."""

    config: Config | None
    served: Served
    state: State
    outcomes: list[Outcome]


class Daemon:
    """Serve the zones on the addresses until told to stop. ``snapshot`` is what it answers from now.

    ``served`` says more of the zones than the snapshot: those that did not load, and why. With ``reread`` a reload
    reads the configuration again, which ``config`` is now. ``control`` is the path of the control socket, ``metrics``
    where metrics and health are told over HTTP.
    ``cookies`` None takes a secret of its own, ``rrl`` None the default limits, ``clock`` is in seconds since 1970.
    More than one of ``workers`` fork from the process that runs this, in its main thread, and have the limits divided
    among them. ``early`` has bound the addresses and answers there already.
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
        tcp_limits: stream.TcpLimits = stream.DEFAULT_LIMITS,
        udp_payload: int = UDP_PAYLOAD,
        primary: PrimarySettings = NO_SECONDARIES,
        served: Served | None = None,
        config: Config | None = None,
        reread: Callable[[], Config] | None = None,
        control: Path | None = None,
        metrics: Address | None = None,
        workers: int = 1,
        early: Early | None = None,
        clock: Clock = time.time,
    ) -> None:
        self._clock = clock
        self.primary = Primary(primary, clock=clock)
        self.served = served or Served.of(sources, snapshot)
        self.config = config
        self.config_error = self.certificate_error = ""
        self.certificate = Certificate(tls) if tls else None
        responder = (
            early.responder
            if early
            else Responder(
                identity=identity,
                cookies=cookies,
                rrl=(rrl or RrlSettings()).shared(workers),
                udp_payload=udp_payload,
                idle_timeout=tcp_limits.idle_timeout,
            )
        )
        self.front = Front(
            responder,
            snapshot,
            self.primary.access(snapshot),
            limits=tcp_limits.shared(workers),
            certificate=self.certificate,
            clock=clock,
        )
        self.workers: Workers | None = None  # where there are several
        self.reloads = status.Reloads()
        self.started_at = clock()
        self.metrics_bound: Address | None = None
        self.bound: list[Address] = []
        self.tls_bound: list[Address] = []
        self._count = workers
        self._early = early
        self._sources = tuple(sources)
        self._addresses = tuple(addresses)
        self._tls_addresses = tls.listen if tls else ()
        self._reread = reread
        self._control = control
        self._metrics = metrics
        self._metrics_socket: socket.socket | None = None
        self._sockets: list[Sockets] = []
        self._control_socket: socket.socket | None = None
        self.puller: Puller | None = None  # where there is a table
        self._pulling: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._reload_wanted = asyncio.Event()
        self._reloading = asyncio.Lock()

    @property
    def snapshot(self) -> Snapshot:
        return self.front.snapshot

    def bind(self) -> None:
        """Open every socket; ``bound`` then has the real ports. Raises ConfigError if one cannot be had."""
        early = self._early
        self._sockets = [early.sockets] if early else bind(self._addresses, self._tls_addresses, self._count)
        first = self._sockets[0]
        self.bound = [Address(a.host, s.getsockname()[1]) for a, s in zip(self._addresses, first.udp, strict=True)]
        self.tls_bound = [
            Address(a.host, s.getsockname()[1]) for a, s in zip(self._tls_addresses, first.tls, strict=True)
        ]
        try:
            if self._metrics is not None:
                self._metrics_socket = httpd.bind(self._metrics)
                self.metrics_bound = Address(self._metrics.host, self._metrics_socket.getsockname()[1])
            if self._control is not None:
                self._control_socket = control.bind(self._control)
        except BaseException:
            for sockets in self._sockets:
                sockets.close()
            self._sockets = []
            if self._metrics_socket is not None:
                self._metrics_socket.close()
            raise

    async def run(self, *, signals: bool = False) -> None:
        """Answer until ``stop``; binds first where that has not been done. Raises ConfigError if it cannot begin.

        ``signals``: SIGHUP, SIGTERM and SIGINT mean what they mean to a daemon; for the main thread only.
        """
        if not self._sockets:
            self.bind()
        loop = asyncio.get_running_loop()
        access = self.primary.start(self._sources, self.snapshot)
        state = State.of(self.snapshot, access, self.front.responder.context)
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop)
            loop.add_signal_handler(signal.SIGHUP, self.reload)
            hangup.heard()
        async with contextlib.AsyncExitStack() as stack:
            controller = None
            if self._control_socket is not None:
                controller = control.ControlServer(self._control_socket, self.command)
                stack.push_async_callback(controller.stop)
            if self._count == 1:
                self.front.swap(state)
                early, sockets = self._early, self._sockets[0]
                counters = early.counters if early else Counters.shared(self.front.writers(sockets))
                self.front.start(sockets, counters, early)
                stack.push_async_callback(self._stop_front)
            else:
                self.workers = Workers(self.front, self._sockets, clock=self._clock)
                stack.push_async_callback(self.workers.stop)
                try:
                    trouble = await self.workers.replace(state)
                except OSError as error:
                    trouble = error.strerror or str(error)
                if trouble:
                    raise ConfigError(f"cannot run {self._count} workers: {trouble}")
            if controller is not None:
                await controller.start()
            if self._metrics_socket is not None:
                teller = httpd.HttpServer(self._metrics_socket, self.told)
                stack.push_async_callback(teller.stop)
                await teller.start()
            await self._serve(access)
        log.info("stopped")

    async def _serve(self, access: Access) -> None:
        """Queries are answered; do the rest until ``stop``."""
        loop = asyncio.get_running_loop()
        reloader = loop.create_task(self._reload_when_wanted())
        self._say_ready()
        sdnotify.notify(sdnotify.READY)
        watchers = [
            loop.create_task(alarm.watch(lambda: self.snapshot, lambda: self.served.expiring())),
            loop.create_task(self._sign_when_due()),
        ]
        self._pull()
        self.primary.tell(access, self.snapshot)
        try:
            await self._stopping.wait()
        finally:
            sdnotify.notify(sdnotify.STOPPING)
            reloader.cancel()
            for watcher in watchers:
                watcher.cancel()
            if self._pulling is not None:
                self._pulling.cancel()
            await self.primary.stop()

    async def _stop_front(self) -> None:
        await self.front.quiet()
        await self.front.drain(tcp.LEAVING)

    def _say_ready(self) -> None:
        count = len(self.snapshot.zones)
        log.info(
            "ready, serving %d zone%s on %s (udp, tcp)%s",
            count,
            "" if count == 1 else "s",
            ", ".join(map(str, self.bound)),
            f", {', '.join(map(str, self.tls_bound))} (tls)" if self.tls_bound else "",
        )
        why_not = batch.why_not()
        log.info("udp %s", f"in batches of {slots.BATCH}" if why_not is None else f"one by one, {why_not}")
        if self._count > 1:
            log.info("%d workers answer", self._count)
        if self.metrics_bound is not None:
            log.info("metrics on http://%s/metrics", self.metrics_bound)

    def stop(self) -> None:
        self._stopping.set()

    def reload(self) -> None:
        """Read configuration, zones and certificate again soon; asked for during a reload, once more after it."""
        self._reload_wanted.set()

    async def command(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the control socket asks: ``{"command": "status"}``, or ``reload`` with ``zone`` and ``force``."""
        zone, force = request.get("zone"), request.get("force", False)
        match request.get("command"):
            case "status":
                live = status.Live.of(self)
                return await in_thread(lambda: status.describe(self, self._clock(), live))
            case "reload" if isinstance(force, bool) and (zone is None or isinstance(zone, str)):
                return await self.reload_now(zone, force=force)
        return {"error": "no such command: status, or reload with zone (a text) and force (true or false)"}

    async def told(self, path: str) -> httpd.Reply | None:
        """What is told over HTTP at a path."""
        if path not in (metrics.METRICS, metrics.HEALTH):
            return None
        live = status.Live.of(self)

        def reply() -> httpd.Reply:
            return metrics.reply(path, status.describe(self, self._clock(), live))

        # Where workers answer nobody waits for this loop, and threads, one after the other, would keep it from forking.
        return await in_thread(reply) if self.workers is None else reply()

    async def reload_now(self, zone: str | None = None, *, force: bool = False) -> dict[str, Any]:
        """Read one zone, or the configuration and every zone; what became of each, or an error that stopped it all."""
        reply = await self._reload(zone, force)
        self.reloads.count(reply, self._clock())
        return reply

    async def _reload(self, zone: str | None, force: bool) -> dict[str, Any]:
        async with self._reloading:
            sdnotify.notify(sdnotify.reloading())
            secondaries = self.primary.settings
            try:
                # In a thread, for parsing takes far longer than any query may wait.
                again = await in_thread(lambda: self._read_again(zone, force))
                reply: dict[str, Any] = {"zones": [outcome.to_dict() for outcome in again.outcomes]}
                if zone is None:
                    await self._read_certificate(reply)
                await self._adopt(again, reply)
            except (ConfigError, OSError) as error:
                self.primary.settings = secondaries
                if zone is None:
                    self.config_error = str(error)
                    log.error("configuration not reloaded, everything stays: %s", error)
                return {"error": str(error)}
            else:
                if zone is None:
                    self.config_error = ""
                    self._pull()
                await in_thread(lambda: alarm.tell(again.state.snapshot, self._clock(), again.served.expiring()))
                return reply
            finally:
                sdnotify.notify(sdnotify.READY)

    def _pull(self) -> None:
        """Pull the table now, and from now on, if there is one."""
        if self.puller is not None:
            self.puller.wake()
        elif self.config is not None and settings.has_table(self.config):
            from maptr.serve.puller import Puller  # and with it HTTP and every reader of registries

            self.puller = Puller(lambda: self.config, self.reload_now, clock=self._clock)
            self._pulling = asyncio.get_running_loop().create_task(self.puller.run())

    def _read_again(self, zone: str | None, force: bool) -> _Again:
        """The next state, made beside this one. Raises ConfigError, and OSError for the configuration's file."""
        config, context, only = self.config, self.front.responder.context, None
        if zone is not None:
            only = settings.served_origin(zone, self.served.states)
        elif self._reread is not None:
            new = self._reread()
            if config is not None:
                settings.check_change(config, new)
            config, context = new, settings.renewed(context, new)
        sources = self._sources if config is None else settings.sources_of(config)
        served, outcomes = publish(sources, self.served, clock=self._clock, only=only, force=force)
        if served.answers_as(self.served) and config == self.config and (zone is not None or self.certificate is None):
            assert self.front.state is not None  # noqa: S101 - it is answered from
            return _Again(config, served, self.front.state, outcomes)
        if config is not None:
            self.primary.settings = settings.primary_of(config)
        return self._ready(config, served, context, outcomes)

    async def sign_now(self) -> None:
        """Sign the zones whose keys changed or whose signatures are due, as their files were last read."""
        async with self._reloading:
            signs = any(state.source.signing for state in self.served.states.values())
            if signs and (again := await in_thread(self._sign_again)) is not None:
                with contextlib.suppress(ConfigError):  # no workers for it: that is in the log, and the next look tries
                    await self._adopt(again, {})

    def _sign_again(self) -> _Again | None:
        """The next state, if zones are to be signed; None where nothing is to be done."""
        if not (origins := to_sign(self.served, self._clock())):
            return None
        served, outcomes = sign_again(self.served, origins, clock=self._clock)
        if served.answers_as(self.served):
            assert self.front.state is not None  # noqa: S101 - it is answered from
            return _Again(self.config, served, self.front.state, outcomes)
        return self._ready(self.config, served, self.front.responder.context, outcomes)

    def _ready(self, config: Config | None, served: Served, context: Context, outcomes: list[Outcome]) -> _Again:
        snapshot = served.snapshot()
        sources = [state.source for state in served.states.values()]
        access = self.primary.follow(self.front.access, sources, self.snapshot, snapshot)
        return _Again(config, served, State.of(snapshot, access, context), outcomes)

    async def _read_certificate(self, reply: dict[str, Any]) -> None:
        if self.certificate is None:
            return
        self.certificate_error = await in_thread(self.certificate.reload)
        if self.certificate_error:
            reply["error"] = f"certificate not reloaded, the old one stays: {self.certificate_error}"

    async def _adopt(self, again: _Again, reply: dict[str, Any]) -> None:
        """Answer from what was read, and then tell of it. Raises ConfigError where workers cannot be had for it."""
        old, before, state = self.snapshot, self.front.access, again.state
        if self.workers is None:
            self.front.swap(state)
        elif state.snapshot is not old:
            try:
                trouble = await self.workers.replace(state)
            except OSError as error:
                reason = error.strerror or str(error)
                log.error("no workers can be forked for what was read, everything stays: %s", reason)
                raise ConfigError(f"no workers can be forked for what was read: {reason}") from error
            if trouble:
                reply["error"] = trouble
        self.config, self.served = again.config, again.served
        publisher.tell(again.outcomes)
        self.primary.tell(state.access, state.snapshot, old, before)

    def counted(self) -> Counters:
        """The sum of what all count who answer, or did since the start."""
        return total(self.front.counters) if self.workers is None else self.workers.counted()

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
