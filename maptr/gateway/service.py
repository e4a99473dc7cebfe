"""``Service``: the gateway of a configuration, from its start to its end.

A reload reads ``[gateway]``, redirects and certificate again; if one is bad, the old settings stay in use. Connections
stay open. Sockets and client are those of the start.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import sqlite3
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from maptr import paths
from maptr.choose import Chooser
from maptr.client import Client
from maptr.config import Config
from maptr.daemon import process
from maptr.daemon.background import Background, announced_reload
from maptr.daemon.certificate import Certificate
from maptr.daemon.process import in_thread
from maptr.daemon.pulling import TablePulls
from maptr.errors import ConfigError, raise_all, reason_of
from maptr.files import Followed
from maptr.gateway import pages
from maptr.gateway.current import CurrentSite
from maptr.gateway.metrics import Metrics
from maptr.gateway.objects import Redirects
from maptr.gateway.redirects import follow
from maptr.gateway.server import HttpServer
from maptr.gateway.statistics import Statistics
from maptr.protocol.address import Address
from maptr.zone.snapshot import Snapshot

log = logging.getLogger("maptr.gateway")

REFRESH = 0.5  # seconds between two checks of the files of table, redirects and zones
STATS_EVERY = 60.0  # seconds between two times that the counts in memory are written
PROBE_ROUND = 60.0  # seconds between two rounds of probes, or two readings of those that maptr table probe keeps
DNS_EVERY = 5.0  # seconds between two tests whether DNS answers
FIRST_TEST = 1.0  # seconds that the start waits for the first of them


class Service:
    """The gateway. ``config`` is the configuration at the start, ``reread`` reads it again for a reload.

    ``zones`` gives the zones for DNS over HTTPS if a server in this process has them; by default they are read from the
    files of the configuration. ``chooser`` chooses among several mapping authorities.
    Raises ConfigError for redirects, a certificate or a file of statistics that cannot be used: for all of them.
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
        self.current = CurrentSite(client, config, zones)
        self._config = config
        self._at_start = config.gateway
        self._reread = reread
        self._allow_private = allow_private
        self._metrics = Metrics()
        self._statistics = Statistics(config.gateway.stats, wall=time.time)
        redirects, tls = self._read_files(config, is_start=True)
        self.current.configure(config, redirects, self._metrics, self._statistics)
        self._public, self._admin = (
            HttpServer(
                client.sources,
                lambda: self.current.site,
                config.gateway,
                chooser=chooser,
                metrics=self._metrics,
                statistics=self._statistics,
                tls=None if is_admin else tls,
                is_admin=is_admin,
            )
            for is_admin in (False, True)
        )
        self._stopping = asyncio.Event()
        self._background = Background(self._reload)
        self._pulls = TablePulls(clock=time.time)

    @property
    def bound(self) -> list[Address]:
        """The addresses, with their actual ports, once they are bound."""
        return self._public.bound

    @property
    def bound_admin(self) -> list[Address]:
        """The same of the addresses for the operator."""
        return self._admin.bound

    def bind(self) -> None:
        """Bind the sockets. Raises ConfigError."""
        try:
            self._statistics.open()
            self._public.bind(self._config.gateway.listen, "gateway.listen")
            self._admin.bind(self._config.gateway.admin_listen, "gateway.admin_listen")
        except ConfigError as error:
            self._public.close()
            self._admin.close()
            raise self._config.error(error.key, error.reason) from None

    @property
    def urls(self) -> list[str]:
        """Where the gateway can be reached."""
        scheme = "http" if self._config.gateway.certificate is None else "https"
        return [f"{scheme}://{address}/" for address in self.bound]

    async def run(self, *, signals: bool = False) -> None:
        """Answer until ``stop``. ``signals``: handle SIGHUP, SIGTERM and SIGINT; for the main thread only."""
        if not self.bound:
            self.bind()
        if signals:
            process.handle_signals(self.stop, self.reload)
        await self.current.refresh()
        self._start_background()
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.current.tested.wait(), FIRST_TEST)
            public_url = self._config.gateway.public_url
            if not public_url and not all(ipaddress.ip_address(host).is_loopback for host, _ in self.bound):
                log.warning("gateway.public_url is not set: the Host header decides which URLs are the gateway's own")
            self._public.start()
            if self.bound_admin:
                self._admin.start()
                log.info("for operators: %s", ", ".join(f"http://{address}/" for address in self.bound_admin))
            log.info("ready, serving on %s", ", ".join(self.urls))
            process.notify(process.READY)
            await self._stopping.wait()
        finally:
            process.notify(process.STOPPING)
            await self._background.stop()
            await self._public.stop()
            await self._admin.stop()
            with contextlib.suppress(sqlite3.Error):
                self._statistics.close()
        log.info("stopped")

    def stop(self) -> None:
        self._stopping.set()

    def reload(self) -> None:
        """Request a reload."""
        self._background.request_reload()

    def _start_background(self) -> None:
        background, current = self._background, self.current
        background.start()
        background.repeat(REFRESH, current.refresh, "files not checked")
        background.repeat(lambda: self._pulls.pause(self._config.table.every), self._pull, "table not pulled")
        background.repeat(STATS_EVERY, self._statistics.keep, "statistics not kept")
        every = self._config.gateway.probe_every
        background.repeat(PROBE_ROUND, lambda: current.probe(every), "servers not probed")
        if not current.asks_no_dns:
            background.repeat(DNS_EVERY, current.test_dns, "DNS not tested")
            if seconds := self._config.gateway.drift_every:
                background.repeat(seconds, current.compare, "table and DNS not compared")

    async def _pull(self) -> None:
        failed = None
        if (file := self._pulled_file()) is not None:
            await self._pulls.pull(self._config, file)
            failed = bool(self._pulls.state.error)
        if failed is not self.current.site.pull_failed:  # a new site makes its pages again
            self.current.site = replace(self.current.site, pull_failed=failed)

    def _pulled_file(self) -> Path | None:
        """Return the file into which this gateway pulls the table. ``maptr serve`` pulls that of its zones."""
        table, zones = self._config.table, self._config.zones
        if not table.url or any(zone.table is not None for zone in zones):
            return None
        return table.file or Path(paths.table_file(os.environ))

    async def _reload(self) -> None:
        if self._reread is not None:
            with announced_reload():
                await self._reload_with(self._reread)

    async def _reload_with(self, reread: Callable[[], Config]) -> None:
        try:
            config = await in_thread(reread)
            redirects, tls = await in_thread(lambda: self._read_files(config))
        except (ConfigError, OSError) as error:
            log.error("not reloaded: %s", reason_of(error))
            self._metrics.reloads.labels("refused").inc()
            return
        for key in ("listen", "admin_listen", "stats", "probe_every", "drift_every"):
            if getattr(config.gateway, key) != getattr(self._at_start, key):
                log.warning("gateway.%s is as it was at the start: restart to change it", key)
        self._config = config
        self._public.configure(config.gateway, tls)
        self._admin.configure(config.gateway, None)
        await in_thread(lambda: self.current.follow_zones(config))
        self.current.configure(config, redirects, self._metrics, self._statistics)
        await self.current.refresh()
        self._metrics.reloads.labels("done").inc()
        log.info("reloaded")

    def _read_files(
        self, config: Config, *, is_start: bool = False
    ) -> tuple[Followed[Redirects] | None, ssl.SSLContext | None]:
        """Read the redirects and the certificate, and at the start check the file of statistics. Raises ConfigError."""
        settings, errors = config.gateway, list[ConfigError]()
        redirects = tls = None
        try:
            if settings.redirects is not None:
                redirects = follow(settings.redirects, allow_private=self._allow_private, clock=time.monotonic)
        except ConfigError as error:
            errors.append(config.error("gateway.redirects", str(error)))
        try:
            if settings.certificate is not None and settings.key is not None:
                tls = Certificate(settings.certificate, settings.key, alpn="http/1.1").context
        except ConfigError as error:
            errors.append(config.error("gateway.certificate", error.reason))
        try:
            if is_start:
                self._statistics.check()
        except ConfigError as error:
            errors.append(config.error("gateway.stats", error.reason))
        raise_all(sorted(errors, key=lambda error: error.line))
        return redirects, tls
