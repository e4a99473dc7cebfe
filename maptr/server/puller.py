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

from maptr.errors import MaptrError, reason_of
from maptr.protocol.names import to_text
from maptr.registry import sandbox
from maptr.registry.plan import Plan
from maptr.registry.pull import apply_pull, jittered, plan_pull
from maptr.server import settings
from maptr.server.background import in_thread
from maptr.server.driftreport import DriftReport, look_for_drift

if TYPE_CHECKING:
    from maptr.config import Config

log = logging.getLogger("maptr.serve")

FIRST_RETRY = 30.0  # seconds after a pull that failed; doubled each time, up to the interval

Publish = Callable[[str], Awaitable[dict[str, Any]]]
"""Publishes a zone by its name, as a reload of it does."""


@dataclass(frozen=True, slots=True)
class PullState:
    """The last pull that went well, the failure since (``error`` is "" where there is none), and the drift. Times are
    seconds since 1970; ``kept`` has key and reason of each record that keeps its last good entry."""

    source: str = ""
    checked_at: float | None = None
    changed_at: float | None = None
    error: str = ""
    failed_at: float | None = None
    failures: int = 0
    kept: tuple[tuple[str, str], ...] = ()
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
        parser = sandbox.Parser()
        try:
            changed = await in_thread(lambda: self._pull(config, file, parser)) if table.url else False
        finally:
            parser.stop()
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
        return jittered(every, self._rng.uniform)

    def _zones(self, table: Path | None) -> list[str]:
        """The zones that are built from a table, or from any that is there."""
        config = self._config()
        zones = config.zones if config is not None else ()
        built = [zone for zone in zones if zone.table is not None and table in (None, zone.table)]
        return [to_text(zone.name) for zone in built if zone.table is not None and zone.table.exists()]

    # ---- pulling

    def _pull(self, config: Config, file: Path, parser: sandbox.Parser) -> bool:
        """True where the table is another one now. Reads and writes files, so it belongs in a thread."""
        table = config.table
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            found = plan_pull(
                file,
                table.sources,
                demands=settings.demands_of(config),
                cafile=None if table.cafile is None else str(table.cafile),
                read=parser.read,
            )
            apply_pull(found, wall=self._clock)
        except (MaptrError, OSError) as error:
            if parser.is_stopped:
                return False  # the server ends
            reason = reason_of(error)
            if reason != self.state.error:
                log.error("table %s not pulled, the old one stays: %s", file, reason)
            failures = self.state.failures + 1
            self.state = replace(self.state, error=reason, failed_at=self._clock(), failures=failures)
            return False
        for reason in found.passed_over:
            log.warning("table %s: passed over: %s", file, reason)
        kept = found.plan.kept
        if kept and kept != self.state.kept:
            log.error("table %s: %s", file, _kept(kept))
        if found.plan:
            log.info("table %s pulled from %s: %s", file, found.source, _counted(found.plan))
        elif self.state.error or not self.state.checked_at:
            log.info("table %s up to date with %s", file, found.source)
        now = self._clock()
        changed = now if found.plan else self.state.changed_at
        self.state = PullState(found.source, now, changed, kept=kept, drift=self.state.drift)
        return bool(found.plan)

    async def _look_for_drift(self, config: Config, file: Path) -> None:
        reports = await look_for_drift(config, file, self._clock)
        before = {report.server: str(report) for report in self.state.drift}
        for report in reports:
            if str(report) != before.get(report.server):
                level = logging.WARNING if report.is_bad else logging.INFO
                log.log(level, "drift of %s against the table: %s", report.server, report)
        self.state = replace(self.state, drift=reports)

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
            "kept": [{"record": key, "reason": reason} for key, reason in state.kept],
            "drift": [report.describe(time_text) for report in state.drift],
        }

    def alarms(self) -> list[str]:
        """What somebody should see to."""
        found = [f"the table was not pulled, the old one stays: {self.state.error}"] if self.state.error else []
        if self.state.kept:
            found.append(_kept(self.state.kept))
        return found + [
            f"drift of {report.server} against the table: {report}" for report in self.state.drift if report.is_bad
        ]


def _kept(kept: tuple[tuple[str, str], ...]) -> str:
    count = f"{len(kept)} record{' keeps its' if len(kept) == 1 else 's keep their'} last good entry"
    (key, reason), more = kept[0], len(kept) - 1
    return f"{count}, for the source has what cannot be read: {key}: {reason}{f' and {more} more' if more else ''}"


def _counted(plan: Plan) -> str:
    counts = {"added": len(plan.added), "changed": len(plan.changed), "removed": len(plan.removed)}
    return ", ".join(f"{count} {what}" for what, count in counts.items())
