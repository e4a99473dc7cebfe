"""Probes of mapping authorities: HEAD requests, and the liveness that follows from them, in the cache's SQLite file.

A server is probed with one request, for the ARK that its registrant names for tests, else for its root. Any response
below 500 is an answer. A ``Prober`` has a few connections at a time, never two to one address.

Liveness is advisory: it never removes a candidate. A server that did not answer several probes in a row is *suspect*:
its candidates are tried last, and reports name it.
"""

from __future__ import annotations

import logging
import queue
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import Any

from maptr import url
from maptr.cache.disk import Disk
from maptr.errors import Fault, NmaError
from maptr.registry.table import Table
from maptr.registry.target import example_url
from maptr.web import http

log = logging.getLogger("maptr.gateway")

MAX_PERIODS = 20  # of one server
MAX_SERVERS = 50_000  # more than the servers of any table that is pulled
KEPT_FOR = 90 * 86_400.0  # seconds
SUSPECT_AFTER = 3  # unanswered probes in a row
TRUSTED_FOR = 604_800.0  # seconds for which the last probe is valid
CERTIFICATE_WARNING = 14 * 86_400.0  # seconds before a certificate expires; many are renewed 30 days before

CONCURRENCY = 8  # probes of a Prober at a time
PAUSE = 2.0  # seconds between two probes of one address, whatever the host names
PROBE_SECONDS = 5.0  # for one probe of a Prober
AT_ONCE = 20  # the most servers that a gateway probes in a minute
MIN_AGE = 3600.0  # seconds before the same place may be probed again
_FAULTS = {str(fault): fault for fault in Fault}  # another release may have others
_UNSUPPORTED = 501  # the server does not know the method (RFC 9110 15.6.2)

_COLUMNS = "place, since, at, probes, fault, note, status, certificate_end"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS period (
    place TEXT, since REAL, at REAL, probes INTEGER, fault TEXT, note TEXT, status INTEGER, certificate_end REAL,
    PRIMARY KEY (place, since)
) WITHOUT ROWID
"""


class ProbeResult(StrEnum):
    """How a probe ended. A place that is not asked (a private address, not an http URL) has not failed."""

    ANSWERED = "answered"
    FAILED = "failed"
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe of a place, such as ``https://ark.example.org:8443``; ``at`` is in seconds since 1970.

    ``status`` is the HTTP response's. ``certificate_end`` is known if the certificate is valid.
    """

    place: str
    at: float
    outcome: ProbeResult
    note: str = ""
    fault: Fault | None = None
    status: int | None = None
    certificate_end: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Period:
    """Successive probes with one result, the first at ``since``, the last at ``at`` (seconds since 1970): the server
    answered (no ``fault``), or it did not, and ``fault`` is the last probe's."""

    since: float
    at: float
    probes: int
    fault: Fault | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Liveness:
    """A place's state since ``since``, by its last probe at ``at``; ``failures`` counts unanswered probes in a row.

    ``history`` has the periods, the latest first. ``certificate_end`` is the last valid certificate's.
    """

    place: str
    at: float
    answered_at: float | None = None
    failures: int = 0
    since: float | None = None
    note: str = ""
    fault: Fault | None = None
    status: int | None = None
    certificate_end: float | None = None
    history: Sequence[Period] = field(default_factory=list)

    @classmethod
    def of(
        cls, place: str, periods: Sequence[Period], status: int | None = None, certificate_end: float | None = None
    ) -> Liveness:
        """Return the state after these periods, given latest first."""
        last = periods[0]
        answered_at = next((one.at for one in periods if one.fault is None), None)
        failures = 0 if last.fault is None else last.probes
        state = (last.since, last.note, last.fault, status, certificate_end, periods)
        return cls(place, last.at, answered_at, failures, *state)

    def is_suspect(self, now: float) -> bool:
        return self.failures >= SUSPECT_AFTER and abs(now - self.at) <= TRUSTED_FOR

    def certificate_ends_soon(self, now: float) -> bool:
        """Return whether the certificate has expired, or will within CERTIFICATE_WARNING, if the last probe saw it."""
        seen = self.fault in (None, Fault.EXPIRED, Fault.SERVER_ERROR)
        return seen and self.certificate_end is not None and self.certificate_end - now < CERTIFICATE_WARNING

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ProbeLog:
    """The log of probes in the file ``disk``: each server's last MAX_PERIODS periods.

    Thread-safe. A file that cannot be read has no probes. Periods older than KEPT_FOR, or in the future, are ignored
    but not deleted, because the clock may be wrong, or was.
    """

    disk: Disk

    def record(self, probes: Iterable[Probe]) -> bool:
        """Store the probes of servers that were asked. False if the file cannot be written."""
        asked = [probe for probe in probes if probe.outcome is not ProbeResult.NOT_ASKED]

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(_SCHEMA)
            for probe in asked:
                _write(connection, probe)
            last = "SELECT place FROM period GROUP BY place ORDER BY max(at) DESC LIMIT -1 OFFSET ?"
            connection.execute(f"DELETE FROM period WHERE place IN ({last})", (MAX_SERVERS,))  # noqa: S608 - constants

        return self.disk.transaction(write)

    def all(self) -> dict[str, Liveness]:
        return self._read("1")

    def is_suspect(self, where: url.Url) -> bool:
        """Return whether a server did not answer several probes in a row: the ``suspects`` of ``Reachable``."""
        place = where.server
        known = self._read("place = ?", place).get(place)
        return known is not None and known.is_suspect(self.disk.wall())

    def _read(self, which: str, *values: str) -> dict[str, Liveness]:
        def read(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            connection.execute(_SCHEMA)
            now = self.disk.wall()
            where = f"{which} AND at >= ? AND since <= ?"
            query = f"SELECT {_COLUMNS} FROM period WHERE {where} ORDER BY place, since DESC"  # noqa: S608 - constants
            return connection.execute(query, (*values, now - KEPT_FOR, now)).fetchall()

        found = {}
        for place, group in groupby(self.disk.run(read) or [], key=lambda row: str(row[0])):
            rows = list(group)
            periods = [
                Period(since, at, count, fault and _FAULTS.get(fault, Fault.UNREACHABLE), note)
                for _, since, at, count, fault, note, *_ in rows
            ]
            found[place] = Liveness.of(place, periods, *rows[0][6:])
        return found


def _write(connection: sqlite3.Connection, probe: Probe) -> None:
    """Extend a place's last period by a probe with the same result, or begin a new period."""
    place, at, fault = probe.place, probe.at, probe.fault
    known = "SELECT since, fault IS NULL, certificate_end FROM period WHERE place = ? AND since <= ?"
    last = connection.execute(f"{known} ORDER BY since DESC LIMIT 1", (place, at)).fetchone()
    since, answered, known_end = last or (at, None, None)
    values = (fault, probe.note, probe.status, probe.certificate_end or known_end)
    if answered == (fault is None):
        connection.execute(
            "UPDATE period SET at = ?, probes = probes + 1, fault = ?, note = ?, status = ?,"
            " certificate_end = ? WHERE place = ? AND since = ?",
            (at, *values, place, since),
        )
        return
    insert = f"INSERT OR REPLACE INTO period ({_COLUMNS}) VALUES (?, ?, ?, 1, ?, ?, ?, ?)"  # noqa: S608 - constants
    connection.execute(insert, (place, at, at, *values))
    connection.execute(
        "DELETE FROM period WHERE place = ? AND since NOT IN"
        " (SELECT since FROM period WHERE place = ? ORDER BY since DESC LIMIT ?)",
        (place, place, MAX_PERIODS),
    )


class Prober:
    """Probes mapping authorities. ``contact`` tells their operators who asks: a URL or an e-mail address."""

    def __init__(
        self,
        *,
        concurrency: int = CONCURRENCY,
        seconds: float = PROBE_SECONDS,
        allow_private: bool = False,
        contact: str = "",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._concurrency, self._seconds, self._allow_private = concurrency, seconds, allow_private
        self._user_agent = http.user_agent(contact)
        self._clock, self._wall, self._sleep = clock, wall, sleep
        self._locks: dict[str, threading.Lock] = {}  # by address
        self._open_at: dict[str, float] = {}
        self._tried: dict[str, float] = {}  # by place
        self.is_offline = False  # whether no server answered in the last round of ``probe_some``

    def may_try(self, place: str, seconds: float) -> bool:
        """Return whether a place was not tried for that many seconds, whether or not the result was kept."""
        return self._clock() - self._tried.get(place, float("-inf")) >= seconds

    def probe(self, servers: Mapping[str, str]) -> Iterator[Probe]:
        """Probe each place once, at the URL given for it; yield results as probes end."""
        now = self._clock()
        self._open_at = {address: at for address, at in self._open_at.items() if at > now}
        self._locks = {address: lock for address, lock in self._locks.items() if lock.locked()}
        waiting = deque(servers.items())
        done: queue.SimpleQueue[Probe | BaseException] = queue.SimpleQueue()

        def work() -> None:
            with suppress(IndexError):  # nothing is left
                while True:
                    server = waiting.popleft()
                    try:
                        done.put(self.probe_one(*server))
                    except BaseException as error:
                        done.put(error)

        for _ in range(min(self._concurrency, len(servers))):
            threading.Thread(target=work, name="maptr-probe", daemon=True).start()
        try:
            for _ in servers:
                if isinstance(found := done.get(), BaseException):
                    raise found
                yield found
        finally:
            waiting.clear()

    def probe_one(self, place: str, target: str) -> Probe:
        """Probe one place at a URL, after the pause that its address needs."""
        made = partial(Probe, place)
        self._tried[place] = self._clock()
        try:
            where = url.parse_allowed(target, allow_private=self._allow_private)
            addresses = http.look_up(where.host.text, where.port or url.PORTS[where.scheme], self._seconds)
            if not self._allow_private and all(map(url.is_local, addresses)):
                raise ValueError(f"{addresses[0]} is not a public address")
            with self._turn(addresses[0]):
                found = http.head(where, self._seconds, allow_private=self._allow_private, user_agent=self._user_agent)
        except ValueError as error:
            return made(self._wall(), ProbeResult.NOT_ASKED, str(error))
        except NmaError as error:
            return made(self._wall(), ProbeResult.FAILED, str(error), error.fault)
        if found.status == _UNSUPPORTED or found.status < 500:
            return made(self._wall(), ProbeResult.ANSWERED, "", None, *found)
        return made(self._wall(), ProbeResult.FAILED, f"HTTP status {found.status}", Fault.SERVER_ERROR, *found)

    @contextmanager
    def _turn(self, address: str) -> Iterator[None]:
        """Exclude other probes of an address, and wait until PAUSE after its last one."""
        with self._locks.setdefault(address, threading.Lock()):
            if (wait := self._open_at.get(address, 0.0) - self._clock()) > 0:
                self._sleep(wait)
            try:
                yield
            finally:
                self._open_at[address] = self._clock() + PAUSE


def probe_some(table: Table, history: ProbeLog, every: float, prober: Prober) -> int:
    """Probe AT_ONCE servers of a table that were not probed for ``every`` seconds, and keep the results.

    Returns the number that is kept: none if ``is_offline``. A server whose result is not kept waits just as long.
    """
    servers = [one for one in due(servers_of(table), history, every) if prober.may_try(one[0], min(every, MIN_AGE))]
    probes = list(prober.probe(dict(servers[:AT_ONCE])))
    asked = [probe for probe in probes if probe.outcome is not ProbeResult.NOT_ASKED]
    if is_offline(asked):
        if not prober.is_offline:
            log.warning("no probe was answered, perhaps because of this machine's network: %s", asked[0].note)
        prober.is_offline = True
        return 0
    prober.is_offline = prober.is_offline and not asked
    return len(asked) if history.record(asked) else 0


def due(servers: Mapping[str, str], history: ProbeLog, every: float) -> list[tuple[str, str]]:
    """Return the servers that were not probed for ``every`` seconds, with their URLs, in an order that spreads the
    probes of one host."""
    known, now = history.all(), history.disk.wall()
    found = [one for one in servers.items() if one[0] not in known or not 0 <= now - known[one[0]].at < every]
    random.shuffle(found)
    return found


def is_offline(probes: Sequence[Probe]) -> bool:
    """Return whether none of several servers sent a response, perhaps because of this machine's network."""
    asked = [probe for probe in probes if probe.outcome is not ProbeResult.NOT_ASKED]
    return len(asked) > 1 and all(probe.status is None for probe in asked)


def servers_of(table: Table, naans: Iterable[str] = ()) -> dict[str, str]:
    """Return the servers of a table in its order, each with the URL to probe: that of the first ARK for tests, else its
    root. Only the servers of ``naans`` if any are given."""
    wanted = set(naans)
    found: dict[str, str] = {}
    for entry in table.values():
        for nma in entry.nmas if not wanted or entry.naan in wanted else ():
            if (place := url.server_of(example_url(nma.target))) is None:
                continue
            root, ark = f"{place}/", entry.test_ark
            target = nma.url(ark, entry.shoulder) if ark is not None else root
            if found.setdefault(place, root) == root and url.server_of(target) == place:
                found[place] = target
    return found
