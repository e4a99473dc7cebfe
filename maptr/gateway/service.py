"""``Service``: a configuration's gateway, from its start to its end.

A reload rereads ``[gateway]``, redirects, certificate, logo and languages; if one is bad, the old settings are kept.
Connections stay open. Sockets and client do not change.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from maptr import paths
from maptr.answer.context import Context, Identity
from maptr.ark import Ark
from maptr.cache import NATAB_ONLY
from maptr.choose import Chooser
from maptr.client import Client
from maptr.config import Config
from maptr.config.model import GatewayConfig
from maptr.daemon import process
from maptr.daemon.background import Background, announced_reload
from maptr.daemon.certificate import Certificate
from maptr.daemon.process import in_thread
from maptr.daemon.pulling import TablePulls
from maptr.discovery import BUILT_IN, DiscoveryFailed
from maptr.errors import ConfigError, raise_all, reason_of
from maptr.files import Followed
from maptr.gateway import pages
from maptr.gateway.appearance import Appearance, read_appearance
from maptr.gateway.links import monitor
from maptr.gateway.links.monitor import LinkMonitor
from maptr.gateway.metrics import CERTIFICATE, LINKS, OWN_OBJECTS, Metrics
from maptr.gateway.objects import UNREAD, Redirects
from maptr.gateway.own_naans import OwnNaans
from maptr.gateway.redirects.following import KeptStores, follow
from maptr.gateway.server import HttpServer
from maptr.gateway.site import DriftReport, Site
from maptr.gateway.statistics import Statistics
from maptr.gateway.zones import ZoneFiles
from maptr.protocol.address import Address
from maptr.reconcile.probes import ProbeLog, Prober, probe_some
from maptr.registry.dates import day
from maptr.registry.followed_file import TableState
from maptr.registry.search import NaanIndex
from maptr.registry.table import Table
from maptr.zone.snapshot import Snapshot

log = logging.getLogger("maptr.gateway")

CERTIFICATE_EVERY = 10.0  # seconds between checks of the certificate's validity
REFRESH = 0.5  # seconds between checks of the files of table, redirects and zones
STATS_EVERY = 60.0  # seconds between writes of the counts in memory
PROBE_ROUND = 60.0  # seconds between rounds of probes, or readings of the results of maptr table probe
DNS_EVERY = 5.0  # seconds between tests whether DNS answers
TEST_ARK = Ark("99999", "maptr")  # in the NAAN for tests; any answer, even "none", shows that DNS answers
FIRST_TEST = 1.0  # seconds that the start waits for the first DNS test


class Service:
    """The gateway. ``config`` is the configuration at the start; ``reread`` rereads it for a reload.

    ``zones`` gives the zones for DNS over HTTPS if a server in this process has them; by default they are read from the
    configured files. ``chooser`` chooses among several mapping authorities.
    Raises one ConfigError for all unusable files, such as the certificate or the statistics. Unreadable own objects do
    not prevent a start: ARKs that may be among them get 503. With ``is_check``, they also raise ConfigError.
    ``is_local``: the gateway is for this machine's users, and answers no request for another host's name.
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
        is_check: bool = False,
        is_local: bool = False,
    ) -> None:
        self.current = CurrentSite(client, config, zones)
        self._config = config
        self._at_start = config.gateway
        self._reread = reread
        self._allow_private = allow_private
        self._metrics = Metrics()
        self._statistics = Statistics(config.gateway.stats, wall=time.time)
        cache = None if is_check or client.history is None else client.history.path
        self._kept = KeptStores(None if cache is None or str(cache) == ":memory:" else cache.parent)
        self._links = LinkMonitor(self._kept, allow_private=allow_private)
        redirects, self._certificate, appearance = self._read_files(config, is_start=True, is_check=is_check)
        tls = None if self._certificate is None else self._certificate.context
        self.current.configure(config, redirects, self._metrics, self._statistics, appearance)
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
                is_local=is_local,
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
        """The operator's addresses, likewise."""
        return self._admin.bound

    def bind(self) -> None:
        """Bind the sockets. Raises ConfigError."""
        try:
            self._statistics.open()
        except ConfigError as error:  # they remain in memory, and each attempt to keep them reopens the file
            log.error("statistics not kept: %s", error.reason)
        try:
            self._public.bind(self._config.gateway.listen, "gateway.listen")
            self._admin.bind(self._config.gateway.admin_listen, "gateway.admin_listen")
        except ConfigError as error:
            self._public.close()
            self._admin.close()
            raise self._config.error(error.key, error.reason) from None

    @property
    def urls(self) -> list[str]:
        """The URLs at which the gateway can be reached."""
        scheme = "http" if self._config.gateway.certificate is None else "https"
        return [f"{scheme}://{address}/" for address in self.bound]

    async def run(self, *, signals: bool = False) -> None:
        """Answer until ``stop``, after ``bind``. ``signals``: handle SIGHUP, SIGTERM and SIGINT; main thread only."""
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
                log.info("operator pages on %s", ", ".join(f"http://{address}/" for address in self.bound_admin))
            log.info("ready, serving on %s", ", ".join(self.urls))
            process.notify(process.READY)
            await self._stopping.wait()
        finally:
            process.notify(process.STOPPING)
            self._links.stop()
            await self._background.stop()
            await in_thread(self._links.close)
            await self._public.stop()
            await self._admin.stop()
            with contextlib.suppress(sqlite3.Error):
                await in_thread(self._statistics.close)
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
        background.repeat(CERTIFICATE_EVERY, self._check_certificate, "certificate not checked")
        background.repeat(STATS_EVERY, self._statistics.keep, "statistics not kept")
        every = self._config.gateway.probe_every
        background.repeat(PROBE_ROUND, lambda: current.probe(every), "servers not probed")
        background.repeat(lambda: monitor.IDLE if self._links.is_idle else 0.0, self._check_links, "links not checked")
        if not current.asks_no_dns:
            background.repeat(DNS_EVERY, current.test_dns, "DNS not tested")
            if seconds := self._config.gateway.drift_every:
                background.repeat(seconds, current.compare, "table and DNS not compared")

    async def _pull(self) -> None:
        failed, config, file = None, self._config, self._pulled_file()
        if file is not None:
            await in_thread(lambda: self._pulls.pull(config, file))
            failed = bool(self._pulls.state.error)
        if failed is not self.current.site.pull_failed:  # a new site remakes its pages
            self.current.site = replace(self.current.site, pull_failed=failed)

    async def _check_links(self) -> None:
        current, settings = self.current, self._config.gateway
        redirects = current.site.redirects
        found = await in_thread(lambda: self._links.work(settings, redirects))
        alarms = current.alarms(LINKS, "" if found is None else found.alarm)
        if (found, alarms) != (current.site.links, current.site.alarms):
            current.site = replace(current.site, links=found, alarms=alarms)

    async def _check_certificate(self) -> None:
        certificate, trouble, expires = self._certificate, "", None
        if certificate is not None:
            trouble, expires = await in_thread(lambda: certificate.log_trouble(time.time())), certificate.expires
        alarms = self.current.alarms(CERTIFICATE, trouble)
        site = self.current.site
        if (alarms, expires) != (site.alarms, site.certificate_expires):
            self.current.site = replace(site, alarms=alarms, certificate_expires=expires)

    def certificate_trouble(self) -> str:
        """Return the alarm about the certificate; "" without one."""
        return "" if self._certificate is None else self._certificate.trouble(time.time())

    def _pulled_file(self) -> Path | None:
        """Return the file into which this gateway pulls the table. ``maptr serve`` pulls its zones' table."""
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
            redirects, certificate, appearance = await in_thread(lambda: self._read_files(config))
        except (ConfigError, OSError) as error:
            log.error("not reloaded: %s", reason_of(error))
            self._metrics.reloads.labels("refused").inc()
            return
        for key in ("listen", "admin_listen", "stats", "probe_every", "drift_every"):
            if getattr(config.gateway, key) != getattr(self._at_start, key):
                log.warning("gateway.%s was not changed: that needs a restart", key)
        self._config = config
        self._certificate = certificate
        self._public.configure(config.gateway, None if certificate is None else certificate.context)
        self._admin.configure(config.gateway, None)
        await in_thread(lambda: self.current.follow_zones(config))
        self.current.configure(config, redirects, self._metrics, self._statistics, appearance)
        await self.current.refresh()
        await self._check_certificate()
        self._metrics.reloads.labels("done").inc()
        log.info("reloaded")

    def _read_files(
        self, config: Config, *, is_start: bool = False, is_check: bool = False
    ) -> tuple[Followed[Redirects] | None, Certificate | None, Appearance]:
        """Read the redirects, the certificate, and the pages' logo and texts; at the start, check the statistics file.
        Raises ConfigError."""
        settings, errors, unread = config.gateway, list[ConfigError](), list[ConfigError]()
        redirects = certificate = None
        appearance = Appearance()
        try:
            if settings.redirects is not None:
                redirects = self._follow(settings)
        except ConfigError as error:
            is_kept = (is_start and not is_check) or self.current.lacks(settings.redirects)
            (unread if is_kept else errors).append(config.error("gateway.redirects", str(error)))
        try:
            if settings.certificate is not None and settings.key is not None:
                certificate = Certificate(
                    settings.certificate,
                    settings.key,
                    alpn="http/1.1",
                    warn_before=settings.certificate_warn_before,
                    reload_by="SIGHUP",
                )
        except ConfigError as error:
            errors.append(config.error("gateway.certificate", error.reason))
        try:
            appearance = read_appearance(config)
        except ConfigError as error:
            errors += error.all
        try:
            if is_start:
                self._statistics.check()
        except ConfigError as error:
            if is_check or settings.stats is None or not settings.stats.exists():
                errors.append(config.error("gateway.stats", error.reason))  # a damaged file does not prevent a start
        if errors:
            raise_all(sorted((*errors, *unread), key=lambda error: error.line))
        if unread:
            redirects = self._follow(settings, is_required=False)
        for remark in appearance.remarks:
            log.warning("%s", remark)
        pages.prepare(appearance.languages.values())
        return redirects, certificate, appearance

    def _follow(self, settings: GatewayConfig, *, is_required: bool = True) -> Followed[Redirects]:
        """Follow the file of own objects. Unless ``is_required``, it need not be readable yet. Raises ConfigError."""
        assert settings.redirects is not None  # noqa: S101 - checked by the caller
        return follow(
            settings.redirects,
            allow_private=self._allow_private,
            clock=time.monotonic,
            is_required=is_required,
            kept=self._kept,
            public=settings.public_columns,
            last=self.current.known_of(settings.redirects),
        )


def _of_broken(redirects: Redirects) -> str:
    """Return the rows of own objects that could not be served."""
    broken = redirects.objects.broken
    if not broken:
        return ""
    ark, reason = next(iter(broken.items()))
    named = reason if reason.startswith(ark) else f"{ark}: {reason}"
    return f"{redirects.file}: {len(broken)} rows that get 503: {named} (maptr redirects check names all)"


class CurrentSite:
    """The current ``site``, which the methods replace. ``refresh``, ``test_dns``, ``probe`` and ``compare`` are called
    at intervals.

    ``zones`` gives the zones for DNS over HTTPS; without it, ``zone_files`` has them. ``tested`` is set once it is
    known whether DNS answers.
    """

    def __init__(self, client: Client, config: Config, zones: Callable[[], Snapshot] | None = None) -> None:
        self.site = Site()
        self.asks_no_dns = client.sources.engine.policy.name == NATAB_ONLY
        self.tested = asyncio.Event()
        self.zone_files = ZoneFiles(config.zones if zones is None else ())
        self._client = client
        self._zones = zones
        self._has_admin = bool(config.gateway.admin_listen)  # bound at the start
        self._redirects: Followed[Redirects] | None = None
        self._naans = OwnNaans(client.history)
        self._refreshing = asyncio.Lock()
        self._prober = Prober(contact=config.gateway.asks_as)
        self._dns_trouble = "" if self.asks_no_dns else "not tested yet"
        if self.asks_no_dns:
            self.tested.set()

    def configure(
        self,
        config: Config,
        redirects: Followed[Redirects] | None,
        metrics: Metrics,
        statistics: Statistics,
        appearance: Appearance,
    ) -> None:
        """Use these settings, redirects and page appearance from now on."""
        self._redirects = redirects
        settings, serve = config.gateway, config.serve
        known = UNREAD if redirects is None else redirects.value
        if redirects is not None and not known.objects.is_read:
            known = self._naans.shown(redirects, settings.public_url, self.site.table)
        self.site = replace(
            self.site,
            settings=settings,
            appearance=appearance,
            redirects=known,
            has_admin=self._has_admin,
            hyphens=config.client.hyphens,
            compares=bool(settings.drift_every) and not self.asks_no_dns,
            dns_context=Context(Identity(serve.nsid, serve.version, serve.hostname)),
            metrics=lambda: metrics.page(self.site),
            statistics=statistics.reading,
            traffic=metrics.traffic,
        )

    def alarms(self, kind: str, text: str) -> Mapping[str, str]:
        """Return the site's alarms with this one, which is logged where it is found; without a text, it has ended."""
        if not text and kind in self.site.alarms:
            log.info("alarm ended: %s", kind)
        others = {known: each for known, each in self.site.alarms.items() if known != kind}
        return {**others, kind: text} if text else others

    def known_of(self, path: Path) -> Redirects:
        """Return the content of a file of own objects that is already followed."""
        followed = self._redirects
        return followed.value if followed is not None and followed.path == path else UNREAD

    def lacks(self, path: Path | None) -> bool:
        """Return whether a file of own objects is followed but was never read."""
        followed = self._redirects
        return followed is not None and followed.path == path and not followed.value.objects.is_read

    def follow_zones(self, config: Config) -> None:
        """Follow another configuration's zones. Reads them: call it in a thread."""
        if self._zones is None:
            self.zone_files.follow(config.zones)

    async def refresh(self) -> None:
        """Check the files of table, redirects and zones."""
        async with self._refreshing:  # so that no check replaces the result of a later one
            await self._refresh()

    async def _refresh(self) -> None:
        file, table, zones_of = self._redirects, self._client.table, self._zones or self.zone_files.refresh
        public_url = self.site.settings.public_url

        def look() -> tuple[TableState, Redirects, str, Snapshot | None]:
            state, redirects, trouble = table.current(), UNREAD, ""
            if file is not None:
                file.current()
                redirects = self._naans.shown(file, public_url, state.table)
                trouble = redirects.objects.trouble()
            return state, redirects, trouble, zones_of()

        state, redirects, failing, zones = await in_thread(look)
        index = self.site.index
        if state.table is not self.site.table_state.table:  # in a thread, because it reads every record
            index = await in_thread(lambda: NaanIndex(state.table or Table()))
        if file is not self._redirects:  # a reload has meanwhile checked a new file
            return
        troubles = [f"table: {state.trouble}"] if state.trouble else []
        if state.table is None and not state.trouble and self.asks_no_dns:
            troubles.append("table: there is none")
        troubles += [f"DNS: {self._dns_trouble}"] if self._dns_trouble else []
        trouble = redirects.trouble or (f"{redirects.file}: {failing}" if failing else "")
        troubles += [f"redirects: {trouble}"] if trouble else []
        troubles += self.zone_files.troubles
        now = self.site
        sources = self._sources_of(state, redirects)
        if sources != now.sources:
            log.info("sources: %s", "; ".join(sources) or "none")
        alarm = trouble or redirects.alarm or _of_broken(redirects)
        alarms = self.alarms(OWN_OBJECTS, f"redirects: {alarm}" if alarm else "")
        same = state is now.table_state and redirects is now.redirects and zones is now.zones and alarms == now.alarms
        if not same or list(now.troubles) != troubles or sources != now.sources:
            self.site = replace(
                now,
                table_state=state,
                index=index,
                redirects=redirects,
                zones=zones,
                troubles=tuple(troubles),
                alarms=alarms,
                sources=sources,
            )

    def _sources_of(self, state: TableState, redirects: Redirects) -> tuple[str, ...]:
        """Return the sources of the gateway's answers, without addresses and paths, because clients may read it."""
        found = [] if self.asks_no_dns else ["DNS"]
        if state.table is not None:
            built_in = f"built-in registry of {day(state.date)}, " if state.kind == BUILT_IN else ""
            found.append(f"{built_in or 'table of '}{len(state.table)} records")
        if not redirects.objects.is_read:
            found.append("redirects that cannot be read")
        elif self._redirects is not None:
            left = f", {redirects.left_out} bad rows left out" if redirects.left_out else ""
            found.append(f"redirects of {len(redirects.objects)} ARKs{left}")
        return tuple(found)

    async def probe(self, every: float) -> None:
        """Probe a few of the table's servers that were not probed for that many seconds, 0 for none. Read the results,
        including those of ``maptr table probe``."""
        if self._client.history is not None:
            probes = ProbeLog(self._client.history)
            if every:
                await in_thread(lambda: probe_some(self.site.table, probes, every, self._prober))
            found = await in_thread(probes.all)
            self.site = replace(self.site, liveness=found)

    async def test_dns(self) -> None:
        """Test whether DNS answers."""
        resolver = self._client.resolver
        try:
            found = await resolver.discover_async(TEST_ARK, resolver.lifetime)
        except DiscoveryFailed as error:  # no server can be queried
            found = error.discovery
        # A DNS without the origin answers, but only a table can say where an ARK leads.
        missing, last = found.missing_origin, found.decisive
        trouble = ""
        if missing and not self.site.table:
            trouble = f"{missing} does not exist there"
        elif not (missing or found.complete):  # without the server's address, because clients may read it
            trouble = "no server can be asked" if last is None else last.ended
        if trouble != self._dns_trouble:
            if not trouble:
                log.info("DNS answers")
            elif missing:
                log.warning("the DNS servers asked do not have %s: configure one that does", missing)
            else:
                log.warning("DNS does not answer: %s", found.reason or found.incomplete_reason())
        self._dns_trouble = trouble
        await self.refresh()
        self.tested.set()

    async def compare(self) -> None:
        """Compare the table with DNS."""
        if self.site.table:
            report = await in_thread(self._report)
            self.site = replace(self.site, drift=report)

    def _report(self) -> DriftReport:
        verdicts = tuple(itertools.chain.from_iterable(self._client.drift_many()))
        return DriftReport(verdicts, time.time(), self._client.resolver.serial(), self._client.drift_history())
