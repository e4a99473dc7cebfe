"""The daemon: what owns sockets, zones and journals, and has their queries answered, from its start to its end.

SIGHUP reads configuration and zones anew (``reloader.py``), SIGTERM and SIGINT stop, the control socket tells how it
is. Answering is ``responder.py``, behind ``listeners.py``. The caller configures logging ("maptr.serve").
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from maptr.config import Config
from maptr.protocol.address import Address
from maptr.server import batch, control, httpd, metrics, status, systemd
from maptr.server.background import in_thread
from maptr.server.bind import Sockets, bound_at
from maptr.server.connections import DEFAULT_LIMITS, TcpLimits
from maptr.server.counters import Counters, total
from maptr.server.listeners import Listeners
from maptr.server.listening import Listening, listen
from maptr.server.primary import NO_SECONDARIES, Primary, PrimarySettings
from maptr.server.publisher import Clock
from maptr.server.reload import Reloader
from maptr.server.responder import Responder, State
from maptr.server.signals import RELOAD, STOP, USER, heard
from maptr.server.state import Served
from maptr.server.tls import Certificate, TlsSettings
from maptr.zone.snapshot import Snapshot

log = logging.getLogger("maptr.serve")


class Daemon:
    """Serve the zones on the addresses until told to stop. ``served`` are the zones as they are answered from now.

    ``responder`` is what answers, by default as the settings are that nobody changed. With ``reread`` a reload reads
    the configuration again, which ``config`` is now. ``control`` is the path of the control socket, ``metrics`` where
    metrics and health are told over HTTP, ``clock`` is in seconds since 1970.
    ``listening`` are the sockets, where they are bound.
    Raises ConfigError for a certificate that cannot be used and for secondaries' keys that are not there.
    """

    def __init__(
        self,
        served: Served,
        addresses: Sequence[Address],
        *,
        responder: Responder | None = None,
        tls: TlsSettings | None = None,
        tcp_limits: TcpLimits = DEFAULT_LIMITS,
        primary: PrimarySettings = NO_SECONDARIES,
        config: Config | None = None,
        reread: Callable[[], Config] | None = None,
        control: Path | None = None,
        metrics: Address | None = None,
        listening: Listening | None = None,
        clock: Clock = time.time,
    ) -> None:
        self._clock = clock
        self.primary = Primary(primary, clock=clock)
        self.certificate = Certificate(tls) if tls else None
        snapshot = served.snapshot()
        self.responder = responder or Responder(idle_timeout=tcp_limits.idle_timeout)
        self.listeners = Listeners(self.responder, limits=tcp_limits, certificate=self.certificate)
        self._snapshot = snapshot
        self.reloader = Reloader(
            self.responder,
            self.primary,
            served,
            certificate=self.certificate,
            config=config,
            reread=reread,
            clock=clock,
        )
        self.started_at = clock()
        self.metrics_bound: Address | None = None
        self.bound: list[Address] = []
        self.tls_bound: list[Address] = []
        self._listening = listening
        self._addresses = tuple(addresses)
        self._tls_addresses = tls.listen if tls else ()
        self._control = control
        self._metrics = metrics
        self._metrics_socket: socket.socket | None = None
        self._sockets: Sockets | None = None
        self._control_socket: socket.socket | None = None
        self._stopping = asyncio.Event()

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot if self.responder.state is None else self.responder.state.snapshot

    def bind(self) -> None:
        """Open every socket; ``bound`` then has the real ports. Raises ConfigError if one cannot be had."""
        listening = self._listening or listen(self._addresses, self._tls_addresses, metrics=self._metrics)
        try:
            if self._control is not None:
                self._control_socket = control.bind(self._control)
        except BaseException:
            listening.close()
            raise
        self._sockets, self._metrics_socket = listening
        self.bound = list(map(bound_at, self._addresses, self._sockets.udp))
        self.tls_bound = list(map(bound_at, self._tls_addresses, self._sockets.tls))
        if self._metrics is not None and self._metrics_socket is not None:
            self.metrics_bound = bound_at(self._metrics, self._metrics_socket)

    async def run(self, *, signals: bool = False) -> None:
        """Answer until ``stop``; binds first where that has not been done. Raises ConfigError if it cannot begin.

        ``signals``: SIGHUP, SIGTERM and SIGINT mean what they mean to a daemon; for the main thread only.
        """
        if self._sockets is None:
            self.bind()
        assert self._sockets is not None  # noqa: S101 - bound above
        access = self.primary.start(self.reloader.served.sources, self.snapshot)
        state = State.of(self.snapshot, access, self.responder.context)
        if signals:
            self._hear_signals()
        async with contextlib.AsyncExitStack() as stack:
            controller = None
            if self._control_socket is not None:
                controller = control.ControlServer(self._control_socket, self.command)
                stack.push_async_callback(controller.stop)
            self.responder.swap(state)
            self.listeners.start(self._sockets)
            stack.push_async_callback(self._stop_listeners)
            if controller is not None:
                await controller.start()
            if self._metrics_socket is not None:
                teller = httpd.HttpServer(self._metrics_socket, self.told)
                stack.push_async_callback(teller.stop)
                await teller.start()
            await self._serve(state)
        log.info("stopped")

    def _hear_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in STOP:
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(RELOAD, self.reload)
        for number in USER:
            loop.add_signal_handler(number, _say_what_serves, number.name)
        heard()

    async def _serve(self, state: State) -> None:
        """Queries are answered; do the rest until ``stop``."""
        self._say_ready()
        systemd.notify(systemd.READY)
        self.reloader.start()
        self.primary.tell(state.access, state.snapshot)
        try:
            await self._stopping.wait()
        finally:
            systemd.notify(systemd.STOPPING)
            self.reloader.stop()
            await self.primary.stop()

    async def _stop_listeners(self) -> None:
        await self.listeners.quiet()
        await self.listeners.drain()

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
        log.info("udp %s", f"in batches of {batch.BATCH}" if why_not is None else f"one by one, {why_not}")
        if self.metrics_bound is not None:
            log.info("metrics on http://%s/metrics", self.metrics_bound)

    def stop(self) -> None:
        self._stopping.set()

    def reload(self) -> None:
        """Read configuration, zones and certificate again soon; asked for during a reload, once more after it."""
        self.reloader.want()

    async def command(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the control socket asks: ``{"command": "status"}``, or ``reload`` with ``zone`` and ``force``."""
        zone, force = request.get("zone"), request.get("force", False)
        match request.get("command"):
            case "status":
                live = status.Live.of(self)
                return await in_thread(lambda: status.describe(self, self._clock(), live))
            case "reload" if isinstance(force, bool) and (zone is None or isinstance(zone, str)):
                return await self.reloader.reload_now(zone, force=force)
        return {"error": "no such command: status, or reload with zone (a text) and force (true or false)"}

    async def told(self, path: str) -> httpd.Reply | None:
        """What is told over HTTP at a path."""
        if path not in (metrics.METRICS, metrics.HEALTH):
            return None
        live = status.Live.of(self)

        def reply() -> httpd.Reply:
            return metrics.reply(path, status.describe(self, self._clock(), live))

        return await in_thread(reply)

    def counted(self) -> Counters:
        """The sum of what all listeners counted since the start."""
        return total(self.listeners.counters)


def _say_what_serves(name: str) -> None:
    log.info("%s means nothing here: maptr status has statistics, maptr reload reads zones", name)
