"""The puller: downloads the registry's table at intervals, publishes it when it changes, and checks servers for drift.

A failure leaves the table and the zone unchanged; the log and the status report it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

from maptr import registry
from maptr.client import Client
from maptr.config import Config
from maptr.daemon.process import in_thread
from maptr.daemon.pulling import ServerDrift, TablePulls, TableStatus
from maptr.errors import MaptrError, reason_of
from maptr.files import read_whole, signature_if_any
from maptr.protocol.names import Folded, to_text
from maptr.reconcile.verdict import Drift
from maptr.registry.plan import kept_text
from maptr.server.alarm import Alarm, AlarmKind
from maptr.server.freeze import Frozen
from maptr.server.state import Clock
from maptr.server.status import ReloadResult, ZoneResult

log = logging.getLogger("maptr.serve")

DRIFT_WAITS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # seconds for secondaries to catch up before drift is reported
DRIFT_RATE = 100.0  # queries per second: servers limit their response rate, NSD to 200 by default
HISTORY = "drift.sqlite"  # the verdicts' history, in the state folder

Publish = Callable[[Folded], Awaitable[ReloadResult]]  # reloads a zone


class Puller:
    """Keeps the configured table up to date: ``publish_and_pull`` is called after each ``pause``, and when ``wanted``
    is set, as a reload does. ``look_for_drift`` is called repeatedly, and waits for each pull."""

    def __init__(
        self,
        config: Callable[[], Config],
        publish: Publish,
        *,
        clock: Clock,
        frozen: Callable[[], Frozen] = lambda: Frozen(),
    ) -> None:
        self.pulls = TablePulls(clock=clock, has_alarms=True)
        self._drift: tuple[ServerDrift, ...] = ()
        self._config = config
        self._publish_zone = publish
        self._frozen = frozen
        self._held: set[Folded] = set()  # frozen zones that are due to be published
        self._clock = clock
        self._known: tuple[int, ...] | None = None  # the signature of the table's file after the last pull
        self.wanted = asyncio.Event()
        self._pulling = asyncio.Lock()
        self._pulled = asyncio.Event()

    async def publish_and_pull(self) -> None:
        """Pull the table; the first time, publish the zones whose tables changed while the server was down.

        Frozen zones are published once they are thawed.
        """
        if self._known is None:
            known = signature_if_any(self._config().table.file)
            for zone in self._zones(None):
                await self._publish(zone)
            self._known = known
        else:
            for zone in sorted(self._held):
                await self._publish(zone)
        if not self.frozen_reason():
            await self.pull_now()

    async def pull_now(self) -> tuple[ZoneResult, ...]:
        """Pull the table and, if it has changed, publish the zones that are built from it.

        An operator may also have changed it, with ``maptr table pull``. Returns the published zones' results.
        """
        config = self._config()
        file = config.table.file
        results: tuple[ZoneResult, ...] = ()
        async with self._pulling:  # if two ran at once, one would fail, because the other changes the file
            if file is None or not config.table.url:
                self.pulls.forget()
            else:
                is_edited = signature_if_any(file) != self._known
                is_pulled = await in_thread(lambda: self.pulls.pull(config, file))
                self._known = signature_if_any(file)
                for zone in self._zones(file) if is_edited or is_pulled else ():
                    results += (await self._publish(zone)).zones or ()
        self._pulled.set()
        return results

    def frozen_reason(self) -> str:
        """Return why the table is not pulled; "" if it may be."""
        config = self._config()
        built = [zone.name for zone in config.zones if zone.table is not None and zone.table == config.table.file]
        return self._frozen().table_reason(built)

    async def _publish(self, zone: Folded) -> ReloadResult:
        self._held.discard(zone)
        if self._frozen().since(zone) is None:
            return await self._publish_zone(zone)
        self._held.add(zone)
        return ReloadResult(())

    def pause(self) -> float:
        """Return the seconds until the next pull, with a random variation; fewer after a failure."""
        return self.pulls.pause(self._config().table.every)

    def _zones(self, table: Path | None) -> list[Folded]:
        """Return the zones that are built from this table, or from any existing table with None."""
        built = [zone for zone in self._config().zones if zone.table is not None and table in (None, zone.table)]
        return [zone.name for zone in built if zone.table is not None and zone.table.exists()]

    # ---- drift

    async def look_for_drift(self) -> None:
        """Wait for a pull, and compare the servers with the table, repeatedly while they differ.

        Secondaries need time to follow, and a server that does not answer takes minutes.
        """
        await self._pulled.wait()
        self._pulled.clear()
        config = self._config()
        file = config.table.file
        servers = config.table.drift if file is not None and file.exists() else ()
        for wait in (*DRIFT_WAITS, None):
            reports = await in_thread(lambda: tuple(_report(config, server, self._clock) for server in servers))
            if wait is None or not any(report.is_bad for report in reports):
                break
            await asyncio.sleep(wait)
        before, self._drift = {report.text() for report in self._drift}, reports
        for report in reports:
            if not report.is_bad and report.text() not in before:
                log.info("%s", report.text())

    # ---- status

    def status(self) -> TableStatus | None:
        """Return the status; None if no table is pulled or compared with servers."""
        table = self._config().table
        if not (table.url or table.drift):
            return None
        return replace(self.pulls.state, file=str(table.file), drift=self._drift)

    def alarms(self) -> Iterator[Alarm]:
        state = self.pulls.state
        if failure := self.pulls.failure:
            yield Alarm(AlarmKind.TABLE_NOT_PULLED, f"{failure}; maptr control pull retries")
        if state.kept:
            kept = kept_text([(each.record, each.reason) for each in state.kept])
            yield Alarm(AlarmKind.RECORDS_KEPT, f"table {state.file}: {kept}")
        for report in self._drift:
            if report.is_bad:
                yield Alarm(AlarmKind.DRIFT, report.text(), secondary=report.server, level=logging.WARNING)


def _report(config: Config, server: str, clock: Clock) -> ServerDrift:
    """Compare a server with the table. Reads the file and queries the server: call it in a thread."""
    file, state = config.table.file, config.serve.state
    assert file is not None  # noqa: S101 - the configuration requires it
    verdicts: list[Drift] = []
    zones = [to_text(zone.name) for zone in config.zones if zone.table == config.table.file]
    try:
        table = registry.read(
            read_whole(file), filename=str(file), on_bad=lambda error: None, scheme=config.client.scheme
        )
        for origin in zones or [to_text(config.client.origin)]:
            history = None if state is None else state / HISTORY
            with Client(
                [server], origin=origin, table=table, policy="dns-only", history=history, rate=DRIFT_RATE
            ) as client:
                verdicts += [one for group in client.drift_many() for one in group]
    except (MaptrError, OSError) as error:
        return ServerDrift(server, clock(), 0, error=reason_of(error))
    verdicts = [one for one in verdicts if one.naan not in config.table.drift_except]
    deviating = [one for one in verdicts if one.verdict.is_drift or one.verdict == "unknown"]
    return ServerDrift(server, clock(), len(verdicts), tuple(f"{one.record} {one.verdict}" for one in deviating))
