"""The servers that carry a table held against it: one report a server, for log and status.

A verdict on each record is the cache's to give (``maptr.cache.drift``); when it is asked for, ``puller.py`` says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maptr.cache import DNS_ONLY
from maptr.cache.cache import Cache
from maptr.cache.disk import Disk
from maptr.errors import MaptrError, reason_of
from maptr.protocol.names import to_text
from maptr.registry import sandbox
from maptr.server.background import in_thread

if TYPE_CHECKING:
    from maptr.cache.drift import Drift
    from maptr.config import Config

WAITS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # seconds that secondaries are given before drift is believed
RATE = 100.0  # packets a second: servers limit the rate of replies, NSD to 200 unless told otherwise
MAX_NAMED = 5  # records named in a line
HISTORY = "drift.sqlite"  # in the state folder: the history of verdicts


@dataclass(frozen=True, slots=True)
class DriftReport:
    """What one server says, held against the table. ``at`` is in seconds since 1970. ``deviating`` are
    "record verdict" of what differs."""

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

    @property
    def is_bad(self) -> bool:
        """True where somebody should see to it."""
        return bool(self.deviating or self.error)

    def describe(self, time_text: Callable[[float | None], str | None]) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "server": self.server,
            "at": time_text(self.at),
            "records": self.records,
            "deviating": list(self.deviating),
            "error": self.error,
        }


async def look_for_drift(config: Config, file: Path, clock: Callable[[], float]) -> tuple[DriftReport, ...]:
    """One report a server. Secondaries take a moment to follow, so what deviates is asked again for a while."""
    servers = config.table.drift
    for wait in (*WAITS, None):
        reports = await in_thread(lambda: tuple(_report(config, file, server, clock) for server in servers))
        if wait is None or not any(report.is_bad for report in reports):
            break
        await asyncio.sleep(wait)
    return reports


def _report(config: Config, file: Path, server: str, clock: Callable[[], float]) -> DriftReport:
    """Reads the file and asks the server, so it belongs in a thread."""
    state = config.serve.state
    verdicts: list[Drift] = []
    try:
        table, _ = sandbox.read(file.read_bytes(), filename=str(file))
        for origin in _origins(config):
            with Cache(
                table,
                None,
                DNS_ONLY,
                nameservers=[server],
                origin=origin,
                history=None if state is None else Disk(state / HISTORY, wall=clock, own=True),
                rate=RATE,
            ) as cache:
                verdicts += [one for group in cache.drift_many() for one in group]
    except (MaptrError, OSError) as error:
        return DriftReport(server, clock(), 0, error=reason_of(error))
    deviating = [one for one in verdicts if one.verdict.is_drift or one.verdict == "unknown"]
    return DriftReport(server, clock(), len(verdicts), tuple(f"{one.record} {one.verdict}" for one in deviating))


def _origins(config: Config) -> list[str]:
    """The origins below which the table is published: those of its zones, else that of clients."""
    zones = [to_text(zone.name) for zone in config.zones if zone.table == config.table.file]
    return zones or [to_text(config.client.origin)]
