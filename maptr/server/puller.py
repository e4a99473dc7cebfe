"""The puller: downloads the registry's table at intervals, publishes a changed table, and checks servers for drift.

A failure leaves the table and the zone as they are; the log and the status report it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from maptr.client import Client
from maptr.config import Config
from maptr.daemon.process import in_thread
from maptr.errors import MaptrError, reason_of
from maptr.protocol.names import to_text
from maptr.reconcile.history import open_history
from maptr.reconcile.verdict import Drift
from maptr.registry import sandbox
from maptr.registry.plan import Plan
from maptr.registry.pull import apply_pull, jittered, plan_pull
from maptr.server import settings
from maptr.server.alarm import Alarm, AlarmKind
from maptr.server.state import Clock
from maptr.server.status import KeptRecord, ServerDrift, TableStatus

log = logging.getLogger("maptr.serve")

FIRST_RETRY = 30.0  # seconds after the first failed pull; doubled after each failure, up to the interval
DRIFT_WAITS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # seconds for secondaries to catch up before drift is reported
DRIFT_RATE = 100.0  # queries per second: servers limit the rate of responses, NSD to 200 by default
HISTORY = "drift.sqlite"  # the history of verdicts, in the state folder

Publish = Callable[[str], Awaitable[object]]  # reloads a zone by its name


class Puller:
    """Keeps the table of the current configuration up to date. ``run`` runs until it is cancelled."""

    def __init__(self, config: Callable[[], Config], publish: Publish, *, clock: Clock) -> None:
        self.state = TableStatus("")
        self._failures = 0
        self._config = config
        self._publish = publish
        self._clock = clock
        self._wanted = asyncio.Event()

    def wake(self) -> None:
        """Pull now. Called after a reload."""
        self._wanted.set()

    async def run(self) -> None:
        """Publish the zones whose tables changed while the server was down, then pull at each interval."""
        first = True
        while True:
            self._wanted.clear()  # before the pull, so that a request during it counts
            try:
                for zone in self._zones(None) if first else ():
                    await self._publish(zone)
                first = False
                await self.pull_now()
            except Exception:
                log.exception("internal error, table not pulled")
            try:
                async with asyncio.timeout(self.pause()):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    async def pull_now(self) -> None:
        config = self._config()
        if config.table.file is None:
            self.state, self._failures = TableStatus(""), 0
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

    def pause(self) -> float:
        """Return the seconds until the next pull, with a random variation; fewer after a failure."""
        every = float(self._config().table.every)
        if self._failures:
            every = min(every, FIRST_RETRY * 2.0 ** min(self._failures - 1, 16))
        return jittered(every, random.uniform)

    def _zones(self, table: Path | None) -> list[str]:
        """Return the zones that are built from this table, or, with None, from any table that exists."""
        tables = {zone.name: zone.table for zone in self._config().zones if table in (None, zone.table)}
        return [to_text(name) for name, built_from in tables.items() if built_from is not None and built_from.exists()]

    # ---- pulling

    def _pull(self, config: Config, file: Path, parser: sandbox.Parser) -> bool:
        """Pull the table, and return whether it has changed. Reads and writes files: call it in a thread."""
        table = config.table
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            cafile = None if table.cafile is None else str(table.cafile)
            requirements = settings.requirements_of(config)
            found = plan_pull(file, table.sources, requirements=requirements, cafile=cafile, read=parser.read)
            apply_pull(found, wall=self._clock)
        except (MaptrError, OSError) as error:
            if parser.is_stopped:
                return False  # the server stops
            reason = reason_of(error)
            if reason != self.state.error:
                log.error("table %s not pulled, the old one stays: %s", file, reason)
            self._failures += 1
            self.state = replace(self.state, error=reason, failed=self._clock())
            return False
        for reason in found.passed_over:
            log.warning("table %s: source skipped: %s", file, reason)
        kept = tuple(KeptRecord(*each) for each in found.plan.kept)
        if kept and kept != self.state.kept:
            log.error("table %s: %s", file, _kept(kept))
        if found.plan:
            log.info("table %s pulled from %s: %s", file, found.source, _counted(found.plan))
        elif self.state.error or not self.state.checked:
            log.info("table %s up to date with %s", file, found.source)
        now = self._clock()
        changed = now if found.plan else self.state.changed
        self._failures = 0
        self.state = TableStatus("", found.source, now, changed, kept=kept, drift=self.state.drift)
        return bool(found.plan)

    async def _look_for_drift(self, config: Config, file: Path) -> None:
        """Compare the servers with the table, repeatedly while they differ, because secondaries need time to follow."""
        for wait in (*DRIFT_WAITS, None):
            reports = await in_thread(
                lambda: tuple(_report(config, file, server, self._clock) for server in config.table.drift)
            )
            if wait is None or not any(report.is_bad for report in reports):
                break
            await asyncio.sleep(wait)
        before = {report.server: str(report) for report in self.state.drift}
        for report in reports:
            if str(report) != before.get(report.server):
                level = logging.WARNING if report.is_bad else logging.INFO
                log.log(level, "drift of %s against the table: %s", report.server, report)
        self.state = replace(self.state, drift=reports)

    # ---- for the status

    def status(self) -> TableStatus | None:
        """Return the status; None if no table is pulled or compared with servers."""
        table = self._config().table
        return replace(self.state, file=str(table.file)) if table.url or table.drift else None

    def alarms(self) -> Iterator[Alarm]:
        state = self.state
        if state.error:
            yield Alarm(AlarmKind.TABLE_NOT_PULLED, f"the table was not pulled, the old one stays: {state.error}")
        if state.kept:
            yield Alarm(AlarmKind.RECORDS_KEPT, _kept(state.kept))
        for report in state.drift:
            if report.is_bad:
                yield Alarm(AlarmKind.DRIFT, f"drift of {report.server} against the table: {report}")


def _kept(kept: Sequence[KeptRecord]) -> str:
    count = f"{len(kept)} record{' keeps its' if len(kept) == 1 else 's keep their'} last good entry"
    first, more = kept[0], len(kept) - 1
    others = f" and {more} more" if more else ""
    return f"{count}, as the source has unreadable data: {first.record}: {first.reason}{others}"


def _counted(plan: Plan) -> str:
    counts = {"added": len(plan.added), "changed": len(plan.changed), "removed": len(plan.removed)}
    return ", ".join(f"{count} {what}" for what, count in counts.items())


def _report(config: Config, file: Path, server: str, clock: Clock) -> ServerDrift:
    """Compare a server with the table. Reads the file and queries the server: call it in a thread."""
    state = config.serve.state
    verdicts: list[Drift] = []
    zones = [to_text(zone.name) for zone in config.zones if zone.table == config.table.file]
    try:
        table, _ = sandbox.read(file.read_bytes(), filename=str(file))
        for origin in zones or [to_text(config.client.origin)]:
            history = None if state is None else open_history(state / HISTORY, wall=clock, own=True)
            with Client(
                [server], origin=origin, table=table, policy="dns-only", history=history, rate=DRIFT_RATE
            ) as client:
                verdicts += [one for group in client.drift_many() for one in group]
    except (MaptrError, OSError) as error:
        return ServerDrift(server, clock(), 0, error=reason_of(error))
    deviating = [one for one in verdicts if one.verdict.is_drift or one.verdict == "unknown"]
    return ServerDrift(server, clock(), len(verdicts), tuple(f"{one.record} {one.verdict}" for one in deviating))
