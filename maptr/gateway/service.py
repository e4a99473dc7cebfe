"""``Service``: the gateway of a configuration, from its start to its end: sockets, state, and what keeps it current.

A reload reads ``[gateway]``, redirects and certificate again; if one is bad, everything stays as it is. Connections
stay open. Sockets and cache are those of the start.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import logging
import socket
import ssl
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from maptr.answer.context import Context, Identity
from maptr.ark import Ark
from maptr.cache import NATAB_ONLY
from maptr.cache.probe_log import ProbeLog
from maptr.choose import Chooser
from maptr.client import Client
from maptr.config import Config
from maptr.config.model import GatewayConfig
from maptr.daemon import process
from maptr.daemon.certificate import Certificate
from maptr.daemon.process import in_thread
from maptr.daemon.sockets import bound_at, explained, open_tcp
from maptr.discovery import DiscoveryFailed
from maptr.errors import ConfigError, reason_of
from maptr.files import Followed
from maptr.gateway import pages
from maptr.gateway.metrics import Metrics
from maptr.gateway.redirects import UNREAD, Redirects, follow
from maptr.gateway.server import HttpServer
from maptr.gateway.site import DriftReport, Site
from maptr.gateway.zones import ZoneFiles
from maptr.protocol.address import Address
from maptr.registry.followed_file import TableState
from maptr.zone.snapshot import Snapshot

log = logging.getLogger("maptr.gateway")

REFRESH = 1.0  # seconds between two looks at the files of table and redirects
PROBES_EVERY = 60.0  # seconds between two readings of the probes that maptr table probe keeps
DNS_EVERY = 5.0  # seconds between two tests whether DNS answers
FIRST_TEST = 1.0  # seconds that the start waits for the first of them
TEST_ARK = Ark("99999", "maptr")  # of the NAAN for tests; any answer, also that there is none, shows that DNS answers


class Service:
    """The gateway. ``config`` is the configuration at the start, ``reread`` reads it again for a reload.

    ``zones`` gives the zones for DNS over HTTPS if a server in this process has them; by default they are read from the
    files of the configuration (``zone_files``). ``chooser`` chooses among several mapping authorities.
    Raises ConfigError for redirects or a certificate that cannot be used.
    """

    def __init__(
        self,
        config: Config,
        client: Client,
        *,
        reread: Callable[[], Config] | None = None,
        zones: Callable[[], Snapshot] | None = None,
        chooser: Chooser | None = None,
        allow_private: bool = False,
    ) -> None:
        pages.prepare()
        self.bound: list[Address] = []
        self.site = Site()
        self._config = config
        self._client = client
        self._reread = reread
        self._allow_private = allow_private
        self._metrics = Metrics()
        self._redirects = self._read_redirects(config.gateway)
        self._reads_zones = zones is None
        self.zone_files = ZoneFiles(config.zones if zones is None else ())
        self._zones = zones or self.zone_files.refresh
        self._asks_no_dns = client.policy == NATAB_ONLY
        self._site_of(config)
        self._http = HttpServer(
            client.sources,
            lambda: self.site,
            config.gateway,
            chooser=chooser,
            metrics=self._metrics,
            tls=_tls(config),
        )
        self._sockets: list[socket.socket] = []
        self._stopping = asyncio.Event()
        self._reloading = asyncio.Event()
        self._tested = asyncio.Event()  # whether DNS answers is known
        self._dns_trouble = "not tested yet"
        if self._asks_no_dns:
            self._dns_trouble = ""
            self._tested.set()

    def bind(self) -> None:
        """Bind the sockets; ``bound`` then has the actual ports. Raises ConfigError."""
        try:
            for address in self._config.gateway.listen:
                with explained(address, key="gateway.listen"):
                    self._sockets.append(open_tcp(*address))
                self.bound.append(bound_at(address, self._sockets[-1]))
        except ConfigError as error:
            for sock in self._sockets:
                sock.close()
            raise self._config.error(error.key, error.reason) from None

    @property
    def urls(self) -> list[str]:
        """Where the gateway can be reached."""
        scheme = "https" if self._http.has_tls else "http"
        return [f"{scheme}://{address}/" for address in self.bound]

    async def run(self, *, signals: bool = False) -> None:
        """Answer until ``stop``. ``signals``: handle SIGHUP, SIGTERM and SIGINT; for the main thread only."""
        if not self.bound:
            self.bind()
        if signals:
            self._handle_signals()
        await self._refresh()
        tasks = [asyncio.create_task(each) for each in self._background()]
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._tested.wait(), FIRST_TEST)
            if not self.site.public_url and not all(ipaddress.ip_address(host).is_loopback for host, _ in self.bound):
                log.warning("gateway.public_url is not set: the Host header decides which URLs are the gateway's own")
            self._http.start(self._sockets)
            log.info("ready, serving on %s", ", ".join(self.urls))
            process.notify(process.READY)
            await self._stopping.wait()
        finally:
            process.notify(process.STOPPING)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._http.stop()
        log.info("stopped")

    def stop(self) -> None:
        self._stopping.set()

    def reload(self) -> None:
        """Request a reload."""
        self._reloading.set()

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in process.STOP_SIGNALS:
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(process.RELOAD_SIGNAL, self.reload)
        process.unblock_signals()

    def _background(self) -> list[Coroutine[Any, Any, None]]:
        every = [(REFRESH, self._refresh), (PROBES_EVERY, self._read_probes)]
        if not self._asks_no_dns:
            every.append((DNS_EVERY, self._test_dns))
            if self._config.gateway.drift_every:
                every.append((float(self._config.gateway.drift_every), self._compare))
        return [self._reload_on_request(), *(_repeat(seconds, do) for seconds, do in every)]

    # ---- what keeps the site current

    async def _refresh(self) -> None:
        """Look at the files of table and redirects."""
        file = self._redirects
        table, zones_of = self._client.table, self._zones
        state, redirects, zones = await in_thread(
            lambda: (table.current(), file.current() if file else UNREAD, zones_of())
        )
        if file is not self._redirects:  # a reload has looked at the new one meanwhile
            return
        troubles = [f"table: {state.trouble}"] if state.trouble else []
        if state.table is None and not state.trouble and self._asks_no_dns:
            troubles.append("table: there is none")
        troubles += [f"DNS: {self._dns_trouble}"] if self._dns_trouble else []
        if redirects.trouble:
            troubles.append(f"redirects: {redirects.trouble}")
        troubles += self.zone_files.troubles
        now = self.site
        same = state is now.table_state and redirects.rules is now.redirects and zones is now.zones
        sources = self._sources_of(state, redirects)
        if sources != now.sources:
            log.info("sources: %s", "; ".join(sources) or "none")
        if not same or list(now.troubles) != troubles or sources != now.sources:
            self.site = replace(
                now,
                table_state=state,
                redirects=redirects.rules,
                singles=redirects.naans,
                zones=zones,
                troubles=tuple(troubles),
                sources=sources,
            )

    def _sources_of(self, state: TableState, redirects: Redirects) -> tuple[str, ...]:
        """Return what the gateway answers from, without addresses and paths, because clients may read it."""
        found = [] if self._asks_no_dns else ["DNS"]
        if state.table is not None:
            found.append(f"table of {len(state.table)} records")
        if self._redirects is not None:
            found.append(f"redirects of {len(redirects.rules)} ARKs")
        return tuple(found)

    async def _read_probes(self) -> None:
        history = self._client.history
        if history is not None:
            found = await in_thread(ProbeLog(history, wall=time.time).all)
            self.site = replace(self.site, liveness=found)

    async def _test_dns(self) -> None:
        resolver = self._client.resolver
        try:
            found = await resolver.discover_async(TEST_ARK, resolver.lifetime)
        except DiscoveryFailed as error:  # no server can be asked
            found = error.discovery
        # A DNS without the origin answers, but only a table can say where an ARK leads.
        missing = found.missing_origin
        if found.complete or (missing and self.site.table):
            trouble = ""
        else:
            trouble = f"{missing} does not exist there" if missing else found.reason or found.incomplete_reason()
        if missing and trouble and trouble != self._dns_trouble:
            log.warning("%s does not exist in the DNS that was asked: name a server that has it", missing)
        self._dns_trouble = trouble
        await self._refresh()
        self._tested.set()

    async def _compare(self) -> None:
        """Compare the table with DNS."""
        if self.site.table:
            report = await in_thread(self._report)
            self.site = replace(self.site, drift=report)

    def _report(self) -> DriftReport:
        verdicts = tuple(itertools.chain.from_iterable(self._client.drift_many()))
        return DriftReport(verdicts, time.time(), self._client.resolver.serial(), self._client.drift_history())

    # ---- reload

    async def _reload_on_request(self) -> None:
        while await self._reloading.wait():
            self._reloading.clear()
            process.notify(process.reloading())
            await self._reload()
            process.notify(process.READY)

    async def _reload(self) -> None:
        reread = self._reread
        if reread is None:
            return
        try:
            config = await in_thread(reread)
            redirects = await in_thread(lambda: self._read_redirects(config.gateway))
            tls = await in_thread(lambda: _tls(config))
        except (ConfigError, OSError) as error:
            log.error("not reloaded: %s", reason_of(error))
            self._metrics.reloads.labels("refused").inc()
            return
        if config.gateway.listen != self._config.gateway.listen:
            log.warning("gateway.listen is as it was at the start: restart to change it")
        self._config, self._redirects = config, redirects
        self._http.configure(config.gateway, tls)
        if self._reads_zones:
            await in_thread(lambda: self.zone_files.follow(config.zones))
        self._site_of(config)
        await self._refresh()
        self._metrics.reloads.labels("done").inc()
        log.info("reloaded")

    def _site_of(self, config: Config) -> None:
        settings, serve = config.gateway, config.serve
        self.site = replace(
            self.site,
            public_url=settings.public_url,
            has_tls=settings.certificate is not None,
            hyphens=config.client.hyphens,
            root=settings.root,
            metadata=settings.metadata,
            describes=settings.inflections == "describe",
            compares=bool(settings.drift_every) and not self._asks_no_dns,
            dns_context=Context(Identity(serve.nsid, serve.version, serve.hostname)),
            metrics=lambda: self._metrics.page(self.site),
            traffic=self._metrics.traffic,
        )

    def _read_redirects(self, settings: GatewayConfig) -> Followed[Redirects] | None:
        if settings.redirects is None:
            return None
        return follow(settings.redirects, allow_private=self._allow_private, clock=time.monotonic)


def _tls(config: Config) -> ssl.SSLContext | None:
    """Raises ConfigError."""
    settings = config.gateway
    if settings.certificate is None or settings.key is None:
        return None
    try:
        return Certificate(settings.certificate, settings.key, alpn="http/1.1").context
    except ConfigError as error:
        raise config.error("gateway.certificate", error.reason) from None


async def _repeat(seconds: float, do: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do something now and at an interval. A failure is logged."""
    while True:
        try:
            await do()
        except Exception:
            log.exception("internal error")
        await asyncio.sleep(seconds)
