"""Probes of mapping authorities, kept in the cache's SQLite file, and the liveness that follows from them.

A ``Prober`` has a few connections at a time, and never two at once to one address.

Liveness is advisory: it never removes a candidate. A server that did not answer several probes in a row is *suspect*:
its candidates are tried last, and reports name it.
"""

from __future__ import annotations

import queue
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import groupby
from typing import Any

from maptr import url
from maptr.cache.disk import Disk
from maptr.errors import NmaError
from maptr.registry.table import Table
from maptr.registry.target import example_url
from maptr.web import http
from maptr.web.http import ProbeFunction, can_connect

MAX_PROBES = 50  # of one server
SUSPECT_AFTER = 3  # unanswered probes in a row
TRUSTED_FOR = 604_800.0  # seconds for which the last probe is valid

CONCURRENCY = 8  # probes of a Prober at a time
PAUSE = 2.0  # seconds between two probes of one address, whatever the host names
PROBE_SECONDS = 5.0  # for one probe of a Prober
AT_ONCE = 20  # servers that a gateway probes in a minute, at most
MIN_AGE = 3600.0  # seconds before the same place may be probed again

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
        place = where.server
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


class Prober:
    """Probes the places of mapping authorities. ``look_up`` has the signature of ``http.look_up``."""

    def __init__(
        self,
        *,
        concurrency: int = CONCURRENCY,
        seconds: float = PROBE_SECONDS,
        allow_private: bool = False,
        ask: ProbeFunction | None = None,
        look_up: Callable[[str, int, float], list[str]] = http.look_up,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._concurrency, self._seconds, self._allow_private = concurrency, seconds, allow_private
        self._ask = ask or can_connect(allow_private=allow_private)
        self._look_up = look_up
        self._clock, self._wall, self._sleep = clock, wall, sleep
        self._locks: dict[str, threading.Lock] = {}  # by address
        self._open_at: dict[str, float] = {}

    def probe(self, places: Iterable[str]) -> Iterator[Probe]:
        """Probe each place once; the results come as the probes end."""
        waiting = deque(dict.fromkeys(places))
        done: queue.SimpleQueue[Future[Probe]] = queue.SimpleQueue()

        def work() -> None:
            with suppress(IndexError):  # nothing is left
                while True:
                    place, future = waiting.popleft(), Future[Probe]()
                    try:
                        future.set_result(self.one(place))
                    except BaseException as error:
                        future.set_exception(error)
                    done.put(future)

        count = len(waiting)
        for _ in range(min(self._concurrency, count)):
            threading.Thread(target=work, name="maptr-probe", daemon=True).start()
        try:
            for _ in range(count):
                yield done.get().result()
        finally:
            waiting.clear()

    def one(self, place: str) -> Probe:
        """Probe one place, after the pause that its address needs."""
        outcome, note = ProbeResult.ANSWERED, ""
        try:
            where = url.parse_allowed(place, allow_private=self._allow_private)
            addresses = self._look_up(where.host.text, where.port or http.PORTS[where.scheme], self._seconds)
            if not self._allow_private and all(map(url.is_local, addresses)):
                raise ValueError(f"{addresses[0]} is not a public address")
            with self._turn(addresses[0]):
                self._ask(where, self._seconds)
        except ValueError as error:
            outcome, note = ProbeResult.NOT_ASKED, str(error)
        except NmaError as error:
            outcome, note = ProbeResult.SILENT, str(error)
        return Probe(place, self._wall(), outcome, note)

    @contextmanager
    def _turn(self, address: str) -> Iterator[None]:
        """Keep other probes of an address out, and wait for the pause since the last one."""
        with self._locks.setdefault(address, threading.Lock()):
            if (wait := self._open_at.get(address, 0.0) - self._clock()) > 0:
                self._sleep(wait)
            try:
                yield
            finally:
                self._open_at[address] = self._clock() + PAUSE


def probe_some(table: Table, history: ProbeLog, every: float, prober: Prober, rng: random.Random | None = None) -> int:
    """Probe AT_ONCE servers of a table that were not probed for ``every`` seconds, and keep the results.

    If none of several answers, perhaps because of the network of this machine, nothing is kept. Returns the number that
    is kept.
    """
    known, now = history.all(), time.time()
    due = [place for place in servers_of(table) if place not in known or not 0 <= now - known[place].at < every]
    (rng or random.Random()).shuffle(due)  # spreads the probes of one host
    probes = list(prober.probe(due[:AT_ONCE]))
    asked = [probe for probe in probes if probe.outcome is not ProbeResult.NOT_ASKED]
    if len(asked) > 1 and all(probe.outcome is ProbeResult.SILENT for probe in asked):
        return 0
    return len(asked) if history.record(probes) else 0


def servers_of(table: Table, naans: Iterable[str] = ()) -> list[str]:
    """Return the servers of a table, each once, in its order; only those of ``naans`` if any are given."""
    wanted = set(naans)
    found: dict[str, None] = {}
    for entry in table.values():
        for nma in entry.nmas if not wanted or entry.naan in wanted else ():
            if (place := url.server_of(example_url(nma.target))) is not None:
                found[place] = None
    return list(found)
