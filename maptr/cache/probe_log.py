"""The probes of mapping authorities, kept in the cache's SQLite file beside answers and verdicts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from itertools import groupby

from maptr import url
from maptr.cache.disk import Disk
from maptr.files import ForkLock
from maptr.registry.liveness import Liveness, Probe, ProbeResult, place_of

MAX_PROBES = 50  # of one server
READ_EVERY = 60.0  # seconds for which ``is_suspect`` uses what it has read

_SCHEMA = """
CREATE TABLE IF NOT EXISTS probe (
    place TEXT, at REAL, answered INTEGER, note TEXT, PRIMARY KEY (place, at)
) WITHOUT ROWID
"""


class ProbeLog:
    """The log of probes in the file ``disk``. ``wall`` is the wall clock. Safe for threads.

    A file that cannot be read has no probes.
    """

    def __init__(self, disk: Disk, *, wall: Callable[[], float]) -> None:
        self._disk = disk
        self._wall = wall
        self._read: tuple[float, dict[str, Liveness]] | None = None
        self._lock = ForkLock()

    def record(self, probes: Iterable[Probe]) -> bool:
        """Keep the probes of servers that were asked. False if the file cannot be written."""
        rows = [
            (probe.place, probe.at, probe.outcome is ProbeResult.ANSWERED, probe.note)
            for probe in probes
            if probe.outcome is not ProbeResult.NOT_ASKED
        ]

        def write(connection: sqlite3.Connection) -> bool:
            connection.execute(_SCHEMA)
            connection.executemany("INSERT OR REPLACE INTO probe VALUES (?, ?, ?, ?)", rows)
            connection.executemany(
                "DELETE FROM probe WHERE place = ?1 AND at NOT IN"
                " (SELECT at FROM probe WHERE place = ?1 ORDER BY at DESC LIMIT ?2)",
                [(place, MAX_PROBES) for place in {row[0] for row in rows}],
            )
            return True

        with self._lock:
            self._read = None
        return self._disk.run(write) is True

    def all(self) -> dict[str, Liveness]:
        """The liveness of each server that was ever probed."""

        def read(connection: sqlite3.Connection) -> list[tuple[str, float, int, str]]:
            connection.execute(_SCHEMA)
            return connection.execute("SELECT place, at, answered, note FROM probe ORDER BY place, at").fetchall()

        rows = self._disk.run(read) or []
        return {
            place: Liveness.of(place, [(at, bool(answered), note) for _, at, answered, note in group])
            for place, group in groupby(rows, key=lambda row: row[0])
        }

    def is_suspect(self, where: url.Url) -> bool:
        """True for a server that did not answer several probes in a row. ``Reachable`` takes it as ``suspects``."""
        now = self._wall()
        with self._lock:
            if self._read is None or not 0 <= now - self._read[0] < READ_EVERY:
                self._read = (now, self.all())
            known = self._read[1].get(place_of(where))
        return known is not None and known.is_suspect(now)
