"""The daemon, which owns sockets, zones and journals, and answers queries until it is stopped.

SIGHUP reloads the configuration and zones; SIGTERM and SIGINT stop the daemon. The control socket takes the commands of
``execute``. The caller configures logging ("maptr.serve").
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from maptr import __version__
from maptr.config import Config
from maptr.daemon import process, sockets
from maptr.daemon.certificate import Certificate
from maptr.daemon.private import shrink_tls_buffers
from maptr.daemon.process import in_thread
from maptr.daemon.progress import StartProgress
from maptr.daemon.pulling import TableStatus
from maptr.daemon.sockets import Sockets, bound_at, limits_within_descriptors
from maptr.errors import ConfigError
from maptr.protocol.address import Address
from maptr.protocol.names import Folded, to_text
from maptr.server import batch, control, settings, udp
from maptr.server.counters import Counters, total
from maptr.server.reloader import Reloader
from maptr.server.starting import NotReady
from maptr.server.state import Clock, Served
from maptr.server.status import CatalogStatus, Status, age, to_json
from maptr.server.stream import Connections, TcpListener
from maptr.server.udp import BatchListener, UdpListener

log = logging.getLogger("maptr.serve")


def certificate_of(config: Config) -> Certificate | None:
    """Read the certificate that ``[serve.tls]`` names; None if it names none. Raises ConfigError."""
    tls = config.serve.tls
    if tls.certificate is None or tls.key is None:
        return None
    try:
        return Certificate(tls.certificate, tls.key, warn_before=tls.warn_before)
    except ConfigError as error:
        raise config.error("serve.tls.certificate", error.reason) from None


class Daemon:
    """Serves the zones of a configuration until it is stopped.

    ``served`` has these zones as loaded; if ``bind`` is called first, set ``reloader.served`` to them afterwards. A
    reload rereads the configuration with ``reread``. ``bound`` has the sockets if they are already bound. ``clock`` is
    in seconds since 1970. Raises ConfigError for an unusable certificate.
    """

    def __init__(
        self,
        config: Config,
        served: Served = MappingProxyType({}),
        *,
        reread: Callable[[], Config] | None = None,
        bound: Sockets | None = None,
        clock: Clock = time.time,
    ) -> None:
        serve, tls = config.serve, config.serve.tls
        self._config = config
        self._clock = clock
        certificate = certificate_of(config)
        self.responder = settings.responder_of(config)
        limits = limits_within_descriptors(serve.tcp, 2 * len(serve.listen) + len(tls.listen))
        # The first counters are the event loop's; each of the rest is a UDP socket's.
        self._counters: Sequence[Counters] = [Counters()]
        self._connections = Connections(limits)
        self.reloader = Reloader(config, served, self.responder, certificate=certificate, reread=reread, clock=clock)
        self.started_at = clock()
        self.metrics_bound: Address | None = None
        self.bound: list[Address] = []
        self.tls_bound: list[Address] = []
        self._sockets = bound
        self._not_ready: NotReady | None = None
        self._stopping = asyncio.Event()
        self.progress = StartProgress()

    def bind(self) -> None:
        """Bind all sockets; afterwards, ``bound`` has the actual ports. Raises ConfigError."""
        config, serve = self._config, self._config.serve
        bound = self._sockets or sockets.bind(config)
        try:
            if config.control is not None:
                bound.control = control.bind(config.control, serve.control_group)
        except ConfigError as error:
            bound.close()
            raise config.error(error.key, error.reason) from None
        self._sockets = bound
        if self._not_ready is None:
            self._not_ready = NotReady(bound.udp, self.responder, self._counters[0])
            self._not_ready.start()
        self.bound = list(map(bound_at, serve.listen, bound.udp))
        self.tls_bound = list(map(bound_at, serve.tls.listen, bound.tls))
        if serve.metrics is not None and bound.metrics is not None:
            self.metrics_bound = bound_at(serve.metrics, bound.metrics)

    def close(self) -> None:
        """Close the sockets that ``run`` has not closed, for example after a signal during the start."""
        if self._not_ready is not None:
            self._not_ready.stop()
        if self._sockets is not None:
            self._sockets.close()

    async def run(self, *, signals: bool = False) -> None:
        """Answer queries until ``stop``. Calls ``bind`` if necessary. Raises ConfigError if it cannot start.

        ``signals``: handle SIGHUP, SIGTERM and SIGINT, which only the main thread can do.
        """
        if not (self.bound or self.tls_bound):
            self.bind()
        assert self._sockets is not None  # noqa: S101 - bound above
        with self.progress as progress:
            progress.doing = "reading the journals"
            state = self.reloader.first_state()
        if signals:
            process.handle_signals(self.stop, self.reloader.background.request_reload)
        async with contextlib.AsyncExitStack() as stack:
            controller = None
            if self._sockets.control is not None:
                controller = control.server(self._sockets.control, self.execute)
                stack.push_async_callback(controller.stop)
                stack.callback(self._sockets.remove_control)
            if self._not_ready is not None:
                self._not_ready.stop()
            self.responder.swap(state)
            listeners = self._listeners(self._sockets)
            for listener in listeners:
                listener.start()
            stack.push_async_callback(self._connections.drain)
            stack.push_async_callback(lambda: asyncio.gather(*(listener.stop() for listener in listeners)))
            if controller is not None:
                controller.start()
            if self._sockets.metrics is not None:
                from maptr.server import metrics  # late: it imports HTTP, which most servers do not need

                hosts = lambda: self.reloader.config.serve.metrics_hosts  # noqa: E731
                http = metrics.server(self._sockets.metrics, self.status, hosts)
                stack.push_async_callback(http.stop)
                http.start()
            await self.reloader.look_at_alarms()
            self._log_ready(len(state.snapshot.zones))
            process.notify(process.READY)
            stack.push_async_callback(self.reloader.stop)
            stack.callback(process.notify, process.STOPPING)
            self.reloader.start()
            await self._stopping.wait()
        log.info("stopped")

    def _listeners(self, sockets: Sockets) -> list[UdpListener | BatchListener | TcpListener]:
        main = self._counters[0]
        self._counters = [main, *(Counters() for _ in sockets.udp)]
        answer, tls = functools.partial(self.responder.answers, counters=main), self.reloader.certificate
        if tls is not None:
            shrink_tls_buffers()
        listen = UdpListener if batch.why_not() else BatchListener
        return [
            *(TcpListener(sock, answer, self._connections) for sock in sockets.tcp),
            *(TcpListener(sock, answer, self._connections, tls) for sock in sockets.tls if tls),
            *(listen(sock, self.responder, each) for sock, each in zip(sockets.udp, self._counters[1:], strict=True)),
        ]

    def _log_ready(self, count: int) -> None:
        log.info(
            "ready, serving %d zone%s on %s (udp, tcp)%s",
            count,
            "" if count == 1 else "s",
            ", ".join(map(str, self.bound)),
            f", {', '.join(map(str, self.tls_bound))} (tls)" if self.tls_bound else "",
        )
        why_not = batch.why_not()
        log.info("udp %s", f"in batches of {udp.BATCH}" if why_not is None else f"one query at a time ({why_not})")
        self.reloader.log_cookies()
        if self.metrics_bound is not None:
            log.info("metrics on http://%s/metrics", self.metrics_bound)

    def stop(self) -> None:
        self._stopping.set()

    async def execute(self, request: dict[str, Any]) -> dict[str, Any]:
        """Execute a control request: ``{"command": "status"}``, ``pull``, ``sign``, ``notify``, ``freeze`` or ``thaw``
        with an optional ``zone``, or ``reload`` with optional ``zone`` and ``force``. Raises ConfigError and ZoneError.
        """
        zone, force = request.get("zone"), request.get("force", False)
        match request.get("command"):
            case "status":
                return await in_thread(lambda: to_json(self.status()))
            case "pull" if zone is None:
                return await self._pull()
            case "notify" if zone is None or isinstance(zone, str):
                return self._notify(zone)
            case "freeze" | "thaw" as verb if zone is None or isinstance(zone, str):
                origin = self._origin(zone, self.reloader.served)
                done, unstored = await self.reloader.set_frozen(origin, is_frozen=verb == "freeze")
                return {"done": done, **({"warning": unstored} if unstored else {})}
            case "sign" if zone is None:
                found = await self.reloader.sign_now(retry=True)
                return await in_thread(lambda: asdict(found))
            case "reload" if isinstance(force, bool) and (zone is None or isinstance(zone, str)):
                origin = await in_thread(lambda: self._origin(zone, self.reloader.served))
                found = await self.reloader.reload_now(origin, force=force, by_operator=True)
                return await in_thread(lambda: asdict(found))
        known = "status, pull, notify, sign, freeze, thaw, or reload, with zone (a text) and force (true or false)"
        return {"error": f"no such command: {known}"}

    async def _pull(self) -> dict[str, Any]:
        puller = self.reloader.puller
        if puller is None or not self.reloader.config.table.url:
            return {"error": "no table is pulled: set table.url and table.file to its source and its file"}
        if reason := puller.frozen_reason():
            return {"error": reason}
        published = {result.zone: result for result in await puller.pull_now()}
        for state in self.reloader.served.values():
            if state.zone.table == self.reloader.config.table.file and state.error:
                published.setdefault(to_text(state.zone.name), state.refused())
        return {**asdict(puller.status() or TableStatus()), "zones": [asdict(zone) for zone in published.values()]}

    def _notify(self, zone: str | None) -> dict[str, Any]:
        origin = self._origin(zone, self.responder.state.access.secondaries)
        return {"notified": self.reloader.monitor.notify_again(origin)}

    @staticmethod
    def _origin(zone: str | None, served: Iterable[Folded]) -> Folded | None:
        """Return the zone that a request names; None for all. Raises ConfigError if it is not served."""
        return None if zone is None else settings.served_origin(zone, served)

    def status(self) -> Status:
        """Return the status. This takes long with many zones: call it in a thread."""
        reloader, now, certificate = self.reloader, self._clock(), self.reloader.certificate
        counters, alarms = total(self._counters), reloader.alarms()
        silences = settings.silences_of(reloader.config)
        silenced = tuple(alarm for alarm in alarms if any(silence.covers(alarm) for silence in silences))
        return Status(
            version=__version__,
            pid=os.getpid(),
            config=reloader.config.filename or None,
            started=self.started_at,
            uptime=age(self.started_at, now) or 0.0,
            listen=tuple(map(str, self.bound)),
            listen_tls=tuple(map(str, self.tls_bound)),
            metrics=None if self.metrics_bound is None else str(self.metrics_bound),
            zones=tuple(
                each.status(now, reloader.monitor.statuses(each.zone.name, each.view, each.zone.notify))
                for each in reloader.served.values()
            ),
            catalog=self._catalog_status(),
            reloads=reloader.reloads,
            config_error=reloader.config_error,
            certificate_error="" if certificate is None else certificate.error,
            certificate_expires=None if certificate is None else certificate.expires,
            table=None if reloader.puller is None else reloader.puller.status(),
            queries=counters.to_dict(),
            **counters.groups(),
            rate_limit=asdict(self.responder.limiter.tally),
            connections=asdict(self._connections.counts),
            alarms=tuple(alarm for alarm in alarms if alarm not in silenced),
            silenced=silenced,
        )

    def _catalog_status(self) -> CatalogStatus | None:
        access = self.responder.state.access
        if (view := access.catalog) is None:
            return None
        targets = access.secondaries_of(view.origin).notify
        return CatalogStatus(
            to_text(view.origin), view.serial, self.reloader.monitor.statuses(view.origin, view, targets)
        )
