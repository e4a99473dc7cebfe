"""The probes of mapping authorities, kept in the cache's SQLite file beside answers and verdicts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from itertools import groupby

from maptr import url
from maptr.cache.disk import Disk
from maptr.registry.liveness import Liveness, Probe, ProbeResult, place_of

MAX_PROBES = 50  # of one server

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

        return self._disk.run(write) is True

    def all(self) -> dict[str, Liveness]:
        """The liveness of each server that was ever probed."""
        return self._read("")

    def is_suspect(self, where: url.Url) -> bool:
        """True for a server that did not answer several probes in a row. ``Reachable`` takes it as ``suspects``."""
        place = place_of(where)
        known = self._read("WHERE place = ?", place).get(place)
        return known is not None and known.is_suspect(self._wall())

    def _read(self, which: str, *values: str) -> dict[str, Liveness]:
        def read(connection: sqlite3.Connection) -> list[tuple[str, float, int, str]]:
            connection.execute(_SCHEMA)
            query = f"SELECT place, at, answered, note FROM probe {which} ORDER BY place, at"  # noqa: S608 - constants
            return connection.execute(query, values).fetchall()

        rows = self._disk.run(read) or []
        return {
            place: Liveness.of(place, [(at, bool(answered), note) for _, at, answered, note in group])
            for place, group in groupby(rows, key=lambda row: row[0])
        }
