"""The registry pulled while the server runs: every so often, published where it changed, and held against the
servers that carry it. What goes wrong leaves the table and the zone as they were, and is told in log and status.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maptr import registry
from maptr.cache.cache import Cache
from maptr.errors import MaptrError, reason_of
from maptr.names import to_text
from maptr.plan import Plan
from maptr.pull import apply, look
from maptr.serve import settings
from maptr.serve.background import in_thread

if TYPE_CHECKING:
    from maptr.config import Config
    from maptr.drift import Drift

log = logging.getLogger("maptr.serve")

JITTER = 0.1  # of the interval, either way, so that many servers do not come at once
FIRST_RETRY = 30.0  # seconds after a pull that failed; doubled each time, up to the interval
DRIFT_WAITS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # seconds that secondaries are given before drift is believed
DRIFT_RATE = 100.0  # packets a second: servers limit the rate of replies, NSD to 200 unless told otherwise
MAX_NAMED = 5  # records named in a line
DRIFT_FILE = "drift.sqlite"  # in the state folder: the history of verdicts

Publish = Callable[[str], Awaitable[dict[str, Any]]]
"""Publishes a zone by its name, as a reload of it does."""


@dataclass(frozen=True, slots=True)
class DriftReport:
    """What one server says, held against the table. ``deviating`` are "verdict record" of what differs."""

    server: str
    at: float
    records: int
    deviating: tuple[str, ...] = ()
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return f"not known: {self.error}"
        if not self.deviating:
            return f"none in {self.records} records"
        more = len(self.deviating) - MAX_NAMED
        named = ", ".join(self.deviating[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        return f"{len(self.deviating)} of {self.records} records: {named}"


@dataclass(frozen=True, slots=True)
class PullState:
    """The last pull that went well, the failure since (``error`` is "" where there is none), and the drift. Times are
    seconds since 1970."""

    source: str = ""
    checked_at: float | None = None
    changed_at: float | None = None
    error: str = ""
    failed_at: float | None = None
    failures: int = 0
    drift: tuple[DriftReport, ...] = ()


class Puller:
    """Keeps the table of a configuration, which ``config`` gives as it is now; ``run`` goes on until cancelled."""

    def __init__(
        self,
        config: Callable[[], Config | None],
        publish: Publish,
        *,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self.state = PullState()
        self._config = config
        self._publish = publish
        self._clock = clock
        self._rng = rng or random.Random()
        self._wanted = asyncio.Event()

    def wake(self) -> None:
        """Pull now: the configuration was read again."""
        self._wanted.set()

    async def run(self) -> None:
        """Zones are first brought up to their tables, which may have changed while nobody served."""
        first = True
        while True:
            self._wanted.clear()  # here, so that a wish that comes while one is being pulled is not lost
            try:
                for zone in self._zones(None) if first else ():
                    await self._publish(zone)
                first = False
                await self.pull_now()
            except Exception:
                log.exception("internal error, table not pulled")
            try:
                async with asyncio.timeout(self._pause()):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    async def pull_now(self) -> None:
        """Pull, publish where it changed, and look for drift."""
        config = self._config()
        if config is None or config.table.file is None:
            self.state = PullState()  # whatever there was to say is over
            return
        table, file = config.table, config.table.file
        changed = await in_thread(lambda: self._pull(config, file)) if table.url else False
        if changed:
            for zone in self._zones(file):
                await self._publish(zone)
        if table.drift and file.exists():
            await self._look_for_drift(config, file)

    def _pause(self) -> float:
        config = self._config()
        every = float(config.table.every if config is not None else 3600)
        if self.state.failures:
            every = min(every, FIRST_RETRY * 2.0 ** min(self.state.failures - 1, 16))
        return every * self._rng.uniform(1 - JITTER, 1 + JITTER)

    def _zones(self, table: Path | None) -> list[str]:
        """The zones that are built from a table, or from any that is there."""
        config = self._config()
        zones = config.zones if config is not None else ()
        built = [zone for zone in zones if zone.table is not None and table in (None, zone.table)]
        return [to_text(zone.name) for zone in built if zone.table is not None and zone.table.exists()]

    # ---- pulling

    def _pull(self, config: Config, file: Path) -> bool:
        """True where the table is another one now. Reads and writes files, so it belongs in a thread."""
        table = config.table
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            found = look(
                file,
                table.sources,
                demands=settings.demands_of(config),
                cafile=None if table.cafile is None else str(table.cafile),
            )
            apply(found, wall=self._clock)
        except (MaptrError, OSError) as error:
            reason = reason_of(error)
            if reason != self.state.error:
                log.error("table %s not pulled, the old one stays: %s", file, reason)
            failures = self.state.failures + 1
            self.state = replace(self.state, error=reason, failed_at=self._clock(), failures=failures)
            return False
        for reason in found.passed_over:
            log.warning("table %s: passed over: %s", file, reason)
        if found.plan:
            log.info("table %s pulled from %s: %s", file, found.source, _counted(found.plan))
        elif self.state.error or not self.state.checked_at:
            log.info("table %s up to date with %s", file, found.source)
        now = self._clock()
        changed = now if found.plan else self.state.changed_at
        self.state = PullState(found.source, now, changed, drift=self.state.drift)
        return bool(found.plan)

    # ---- drift

    async def _look_for_drift(self, config: Config, file: Path) -> None:
        """One report a server. Secondaries take a moment to follow, so what deviates is asked again for a while."""
        for wait in (*DRIFT_WAITS, None):
            reports = await in_thread(lambda: [self._drift(config, file, server) for server in config.table.drift])
            if wait is None or not any(report.deviating or report.error for report in reports):
                break
            await asyncio.sleep(wait)
        before = {report.server: str(report) for report in self.state.drift}
        for report in reports:
            if str(report) != before.get(report.server):
                level = logging.WARNING if report.deviating or report.error else logging.INFO
                log.log(level, "drift of %s against the table: %s", report.server, report)
        self.state = replace(self.state, drift=tuple(reports))

    def _drift(self, config: Config, file: Path, server: str) -> DriftReport:
        state = config.serve.state
        verdicts: list[Drift] = []
        try:
            table = registry.read(file.read_bytes(), on_bad=lambda error: None)
            for origin in _origins(config):
                with Cache(
                    table,
                    None,
                    "dns-only",
                    nameservers=[server],
                    origin=origin,
                    history=None if state is None else state / DRIFT_FILE,
                    rate=DRIFT_RATE,
                ) as cache:
                    verdicts += [one for group in cache.drift_many() for one in group]
        except (MaptrError, OSError) as error:
            return DriftReport(server, self._clock(), 0, error=reason_of(error))
        deviating = [one for one in verdicts if one.verdict.is_drift or one.verdict == "unknown"]
        return DriftReport(
            server, self._clock(), len(verdicts), tuple(f"{one.record} {one.verdict}" for one in deviating)
        )

    # ---- for the status

    def describe(self, time_text: Callable[[float | None], str | None]) -> dict[str, Any] | None:
        """Plain values for JSON; None where there is no table to pull or to hold servers against."""
        config = self._config()
        if config is None or not (config.table.url or config.table.drift):
            return None
        state = self.state
        return {
            "file": str(config.table.file),
            "source": state.source,
            "checked": time_text(state.checked_at),
            "changed": time_text(state.changed_at),
            "error": state.error,
            "failed": time_text(state.failed_at),
            "drift": [
                {
                    "server": report.server,
                    "at": time_text(report.at),
                    "records": report.records,
                    "deviating": list(report.deviating),
                    "error": report.error,
                }
                for report in state.drift
            ],
        }

    def alarms(self) -> list[str]:
        """What somebody should see to."""
        found = [f"the table was not pulled, the old one stays: {self.state.error}"] if self.state.error else []
        return found + [
            f"drift of {report.server} against the table: {report}"
            for report in self.state.drift
            if report.deviating or report.error
        ]


def _origins(config: Config) -> list[str]:
    """The origins below which the table is published: those of its zones, else that of clients."""
    zones = [to_text(zone.name) for zone in config.zones if zone.table == config.table.file]
    return zones or [to_text(config.client.origin)]


def _counted(plan: Plan) -> str:
    counts = {"added": len(plan.added), "changed": len(plan.changed), "removed": len(plan.removed)}
    return ", ".join(f"{count} {what}" for what, count in counts.items())
