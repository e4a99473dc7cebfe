"""Probes of mapping authorities, kept in the cache's SQLite file, and the liveness that follows from them.

Liveness is advisory: it never removes a candidate. A server that did not answer several probes in a row is *suspect*:
its candidates are tried last, and reports name it. ``maptr.nma.reachable`` sends the probes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import groupby
from typing import Any

from maptr import url
from maptr.cache.disk import Disk
from maptr.registry.table import Table
from maptr.registry.target import example_url

MAX_PROBES = 50  # of one server
SUSPECT_AFTER = 3  # unanswered probes in a row
TRUSTED_FOR = 604_800.0  # seconds for which the last probe is valid

_SCHEMA = """
CREATE TABLE IF NOT EXISTS probe (
    place TEXT, at REAL, answered INTEGER, note TEXT, PRIMARY KEY (place, at)
) WITHOUT ROWID
"""


class ProbeResult(StrEnum):
    """How a probe ended. A place that is not asked (a private address, not an http URL) has not failed."""

    ANSWERED = "answered"
    SILENT = "silent"
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe of a place, such as ``https://ark.example.org:8443``; ``at`` is in seconds since 1970."""

    place: str
    at: float
    outcome: ProbeResult
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Liveness:
    """The state of a place: ``failures`` in a row, the first at ``since``, the last at ``at``."""

    place: str
    at: float
    answered_at: float | None = None
    failures: int = 0
    since: float | None = None
    note: str = ""

    @classmethod
    def of(cls, place: str, probes: Iterable[tuple[float, bool, str]]) -> Liveness:
        """Return the state after some probes, given as (time, answered, note), oldest first."""
        found = cls(place, 0.0)
        for at, answered, note in probes:
            if answered:
                found = cls(place, at, at)
            else:
                since = at if found.since is None else found.since
                found = replace(found, at=at, failures=found.failures + 1, since=since, note=note)
        return found

    def is_suspect(self, now: float) -> bool:
        return self.failures >= SUSPECT_AFTER and abs(now - self.at) <= TRUSTED_FOR

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


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
        return self._read("")

    def is_suspect(self, where: url.Url) -> bool:
        """Return whether a server did not answer several probes in a row: the ``suspects`` of ``Reachable``."""
        place = where.place
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


def places_of(table: Table, naans: Iterable[str] = ()) -> list[str]:
    """Return the servers of a table, each once, in its order; only those of ``naans`` if any are given."""
    wanted = set(naans)
    found: dict[str, None] = {}
    for entry in table.values():
        for nma in entry.nmas if not wanted or entry.naan in wanted else ():
            if (place := place_in(example_url(nma.target))) is not None:
                found[place] = None
    return list(found)


def place_in(text: str) -> str | None:
    """Return the server of a URL given as text; None if the URL is not usable."""
    try:
        return url.parse(text).place
    except ValueError:
        return None
