"""``CurrentSite``: what the gateway answers from, kept current with its files, DNS and the probes."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from maptr.answer.context import Context, Identity
from maptr.ark import Ark
from maptr.cache import NATAB_ONLY
from maptr.client import Client
from maptr.config import Config
from maptr.daemon.process import in_thread
from maptr.discovery import BUILT_IN, DiscoveryFailed
from maptr.files import Followed
from maptr.gateway.metrics import Metrics
from maptr.gateway.objects import UNREAD, Redirects
from maptr.gateway.site import DriftReport, Site
from maptr.gateway.statistics import Statistics
from maptr.gateway.zones import ZoneFiles
from maptr.reconcile.probes import ProbeLog, Prober, probe_some
from maptr.registry.followed_file import TableState
from maptr.registry.search import NaanIndex
from maptr.registry.table import Table
from maptr.zone.snapshot import Snapshot

log = logging.getLogger("maptr.gateway")

TEST_ARK = Ark("99999", "maptr")  # of the NAAN for tests; any answer, also that there is none, shows that DNS answers


class CurrentSite:
    """The present ``site``. The methods replace it; ``refresh``, ``test_dns`` and the others are called at intervals.

    ``zones`` gives the zones for DNS over HTTPS; without it, ``zone_files`` has them. ``tested`` is set when it is
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
        self._prober = Prober(contact=config.gateway.public_url or config.gateway.contact)
        self._dns_trouble = "" if self.asks_no_dns else "not tested yet"
        if self.asks_no_dns:
            self.tested.set()

    def configure(
        self, config: Config, redirects: Followed[Redirects] | None, metrics: Metrics, statistics: Statistics
    ) -> None:
        """Use these settings and redirects from now on."""
        self._redirects = redirects
        settings, serve = config.gateway, config.serve
        self.site = replace(
            self.site,
            settings=settings,
            redirects=UNREAD if redirects is None else redirects.value,
            has_admin=self._has_admin,
            hyphens=config.client.hyphens,
            compares=bool(settings.drift_every) and not self.asks_no_dns,
            dns_context=Context(Identity(serve.nsid, serve.version, serve.hostname)),
            metrics=lambda: metrics.page(self.site),
            statistics=statistics.reading,
            traffic=metrics.traffic,
        )

    def follow_zones(self, config: Config) -> None:
        """Follow the zones of another configuration. Reads them: call it in a thread."""
        if self._zones is None:
            self.zone_files.follow(config.zones)

    async def refresh(self) -> None:
        """Look at the files of table, redirects and zones."""
        file, table, zones_of = self._redirects, self._client.table, self._zones or self.zone_files.refresh
        state, redirects, zones = await in_thread(
            lambda: (table.current(), file.current() if file else UNREAD, zones_of())
        )
        index = self.site.index
        if state.table is not self.site.table_state.table:  # in a thread, because it reads every record
            index = await in_thread(lambda: NaanIndex(state.table or Table()))
        if file is not self._redirects:  # a reload has looked at the new one meanwhile
            return
        troubles = [f"table: {state.trouble}"] if state.trouble else []
        if state.table is None and not state.trouble and self.asks_no_dns:
            troubles.append("table: there is none")
        troubles += [f"DNS: {self._dns_trouble}"] if self._dns_trouble else []
        troubles += [f"redirects: {redirects.trouble}"] if redirects.trouble else []
        troubles += self.zone_files.troubles
        now = self.site
        sources = self._sources_of(state, redirects)
        if sources != now.sources:
            log.info("sources: %s", "; ".join(sources) or "none")
        same = state is now.table_state and redirects is now.redirects and zones is now.zones
        if not same or list(now.troubles) != troubles or sources != now.sources:
            self.site = replace(
                now,
                table_state=state,
                index=index,
                redirects=redirects,
                zones=zones,
                troubles=tuple(troubles),
                sources=sources,
            )

    def _sources_of(self, state: TableState, redirects: Redirects) -> tuple[str, ...]:
        """Return what the gateway answers from, without addresses and paths, because clients may read it."""
        found = [] if self.asks_no_dns else ["DNS"]
        if state.table is not None:
            built_in = f"built-in registry of {state.table.metadata.get('date')}, " if state.kind == BUILT_IN else ""
            found.append(f"{built_in or 'table of '}{len(state.table)} records")
        if self._redirects is not None:
            left = f", {redirects.left_out} bad rows left out" if redirects.left_out else ""
            found.append(f"redirects of {len(redirects.objects)} ARKs{left}")
        return tuple(found)

    async def probe(self, every: float) -> None:
        """Probe a few of the servers of the table that were not probed for so many seconds, 0 for none. Read the
        results, and those of ``maptr table probe``."""
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
        except DiscoveryFailed as error:  # no server can be asked
            found = error.discovery
        # A DNS without the origin answers, but only a table can say where an ARK leads.
        missing, last = found.missing_origin, found.decisive
        trouble = ""
        if missing and not self.site.table:
            trouble = f"{missing} does not exist there"
        elif not (missing or found.complete):  # without the address of the server, because clients may read it
            trouble = "no server can be asked" if last is None else last.ended
        if trouble != self._dns_trouble:
            if not trouble:
                log.info("DNS answers")
            elif missing:
                log.warning("%s does not exist in the DNS that was asked: name a server that has it", missing)
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
