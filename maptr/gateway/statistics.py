"""Statistics of a gateway's requests: NAANs and shoulders, failures, sources, inflections and referrers, by hour and
day, without client addresses.

The last minute's counts are in memory, the others in SQLite: hours for two weeks, days for a year. Their number is
bounded: of each kind, only the most frequent values are kept, and the rest as "other".
"""

from __future__ import annotations

import calendar
import logging
import os
import re
import sqlite3
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from maptr.daemon.background import Repetitions
from maptr.daemon.process import in_thread
from maptr.errors import ConfigError, printable, time_text
from maptr.files import sqlite_errors
from maptr.gateway.message import Unreadable
from maptr.registry.dates import LATEST

log = logging.getLogger("maptr.gateway")

HOUR, DAY = 3_600, 86_400  # seconds
HOURS_KEPT, DAYS_KEPT = 14 * 24, 400  # counting only those with a request
TABLES = ("hours", "days")
MAX_VALUES = 200  # of one kind in a minute, and in a past hour or day
MAX_FRESH = 5_000  # of one kind in the current hour or day
# Distinct requests that are counted as a whole, which is fast, before their values are counted one by one: that takes
# some 4 us per request, and the event loop must not be held up.
MAX_REQUESTS = 300
DAYS = 7  # of a report, by default
LISTED = 50  # values of one kind in a report
MONTHS = 13  # of a report: the current one, and the twelve before it
MAX_AGENT = 256  # characters read from a User-Agent header
# Distinct pairs of shoulder and User-Agent header in memory, until a thread has recognised the crawlers: that takes 0.2
# to 0.6 ms per header.
MAX_AGENTS = 2_000
MAX_COUNT = 1 << 40  # of one value; the sum over a full file stays within SQLite's integers
COLUMNS = ["start", "kind", "value", "n"]
OTHER = "other"
REQUESTS, NAAN, FAILED, REASON, STATUS, SOURCE, INFLECTION, REFERRER, SHOULDER, CRAWLED, CLIENT = KINDS = (
    *("requests", "naan", "failed", "reason", "status", "source", "inflection", "referrer"),
    *("shoulder", "crawled", "client"),  # shoulders without crawlers, shoulders of crawlers, and both in total
)
AGENT = "agent"  # a shoulder and a User-Agent header: in memory, never in the file
CRAWLER = "crawler"  # the value of CLIENT for crawlers; OTHER for all others
REST = dict.fromkeys(KINDS, OTHER) | {FAILED: f"{OTHER} 0 "}  # the values under which rare ones are counted
FAILING = (400, 404, 410, 414, 503)  # not an ARK, no such ARK, gone, too long, not known

_NAAN = re.compile(r"(?ai)ark(?::|%3A)(?:/|%2F)*([0-9a-z-]{1,64})(?=[/?#.]|%2F|\Z)")
_SHOULDER = re.compile(r"(?ai)ark(?::|%3A)(?:/|%2F)*[0-9a-z-]{1,64}(?:/|%2F)+([a-z-]{1,32}[0-9])")
_INFLECTION = re.compile(r"\?(?:info|\?)?\Z")
_CALENDAR = re.compile(r"((?:19|20)\d\d)(?:-(\d\d)(?:-(\d\d))?)?", re.ASCII)
_FAILURE = re.compile(r"\S{1,64} [0-9]{1,3} [a-z-]{0,40}")
_HOST = re.compile(r"(?ai)https?://([a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?=[:/?#]|\Z)")

# The file may have been edited or damaged: rows that maptr did not write are skipped.
_SOUND = (
    "(typeof(start) = 'integer' AND typeof(kind) = 'text' AND typeof(value) = 'text'"
    f" AND typeof(n) = 'integer' AND n BETWEEN 0 AND {MAX_COUNT})"
)

Key = tuple[int, str, str]
"""The start of an hour, the kind and the value."""

Request = tuple[int, str, int, str, str | None, str | None, str]
"""What is counted about a request: hour, NAAN, HTTP status, source, inflection, referring host, and reason."""


def naan_in(target: str) -> str:
    """Return the NAAN of the first ARK in a target; "" if none."""
    found = _NAAN.search(target)
    return found[1].replace("-", "").lower() if found is not None else ""


def shoulder_in(target: str) -> str:
    """Return the shoulder of the first ARK in a target: the letters and digit that start its name; "" if none."""
    found = _SHOULDER.search(target)
    return found[1].replace("-", "") if found is not None else ""


@lru_cache
def _crawler_patterns() -> Callable[[str], bool] | None:
    try:
        from crawleruseragents import is_crawler  # imported late: only the thread that writes counts needs it
    except ImportError:  # of the extra ``gateway``
        return None
    return cast(Callable[[str], bool], is_crawler)


@lru_cache(maxsize=4_096)
def is_crawler(agent: str) -> bool:
    """Return whether a User-Agent header's value is a known crawler's."""
    known = _crawler_patterns()
    return known is not None and known(agent)


def classified(counts: Counter[Key]) -> Counter[Key]:
    """Return counts with the clients' classes in place of their User-Agent headers."""
    made: Counter[Key] = Counter()
    for (start, kind, value), n in counts.items():
        if kind != AGENT:
            made[start, kind, value] += n
            continue
        shoulder, _, agent = value.partition(" ")
        crawls = is_crawler(agent)
        made[start, CLIENT, CRAWLER if crawls else OTHER] += n
        if shoulder:
            made[start, CRAWLED if crawls else SHOULDER, shoulder] += n
    return made


def span_of(period: str) -> tuple[int, int]:
    """Return a period's start in seconds since 1970, and its end, which is the next one's start.

    A period is a year, month or day in UTC, such as 2025, 2025-11 or 2025-11-03, or a range from the first to the last
    of two with ``/`` between (ISO 8601). Raises ValueError, also for more than DAYS_KEPT days.
    """
    first, _, last = period.partition("/")
    try:
        (since, _), (_, until) = _calendar_span(first), _calendar_span(last or first)
    except ValueError:
        since = until = 0
    if not 0 < until - since <= DAYS_KEPT * DAY:
        example = "such as 2025, 2025-11, 2025-11-03 or 2025-07/2026-06"
        raise ValueError(f"{period[:40]!r} is not a period of at most {DAYS_KEPT} days, {example}")
    return since, until


def _calendar_span(text: str) -> tuple[int, int]:
    found = _CALENDAR.fullmatch(text)
    if found is None:
        raise ValueError(text)
    year, month, day = (int(part or 0) for part in found.groups())
    start = date(year, month or 1, day or 1)
    if day:
        end = start + timedelta(days=1)
    else:
        end = date(year + month // 12, month % 12 + 1, 1) if month else date(year + 1, 1, 1)
    return calendar.timegm(start.timetuple()), calendar.timegm(end.timetuple())


class Failure(NamedTuple):
    """The failed requests for a NAAN's ARKs with one HTTP status and one reason, "" if it is not known."""

    naan: str
    status: int
    reason: str
    requests: int

    @classmethod
    def of(cls, value: str, requests: int) -> Failure:
        naan, status, reason = value.split(" ", 2)
        return cls(naan, int(status), reason, requests)


class Month(NamedTuple):
    """The requests in a calendar month in UTC, such as 2025-11: all, those by crawlers, failed ones, and by shoulder
    without crawlers."""

    month: str
    requests: int
    crawlers: int
    failed: int
    shoulders: dict[str, int]


class Report(NamedTuple):
    """The counts from one time until another: the requests in each hour or day, and the most frequent values of each
    kind.

    ``seconds`` is the length of one of the ``periods``. ``months`` are the latest ones, whatever the report's period.
    """

    since: float
    until: float
    requests: int
    periods: tuple[tuple[float, int], ...]
    seconds: int
    values: dict[str, tuple[tuple[str, int], ...]]
    months: tuple[Month, ...]

    @property
    def shoulders(self) -> list[tuple[str, int, int]]:
        """The shoulders, most frequent first: the requests without crawlers, and those by crawlers."""
        others, crawled = dict(self.values[SHOULDER]), dict(self.values[CRAWLED])
        found = [(value, others.get(value, 0), crawled.get(value, 0)) for value in others | crawled]
        return sorted(found, key=lambda one: (-one[1], -one[2], one[0]))

    @property
    def failed(self) -> list[Failure]:
        """The failures by NAAN, HTTP status and reason, most frequent first."""
        return [Failure.of(value, count) for value, count in self.values[FAILED]]

    def to_dict(self) -> dict[str, Any]:
        """Return the report in JSON types."""
        return {
            "since": self.since,
            "until": self.until,
            "requests": self.requests,
            "naans": [{"naan": value, "requests": count} for value, count in self.values[NAAN]],
            "failed": [one._asdict() for one in self.failed],
            "reasons": dict(self.values[REASON]),
            "statuses": dict(self.values[STATUS]),
            "sources": dict(self.values[SOURCE]),
            "inflections": dict(self.values[INFLECTION]),
            "referrers": [{"host": value, "requests": count} for value, count in self.values[REFERRER]],
            "shoulders": [
                {"shoulder": value, "requests": others, "crawlers": crawlers}
                for value, others, crawlers in self.shoulders
            ],
            "clients": dict(self.values[CLIENT]),
            "months": [month._asdict() for month in self.months],
            "seconds": self.seconds,
            "periods": [{"start": start, "requests": count} for start, count in self.periods],
        }

    def rows(self, table: str, name_of: Callable[[str], str] = str) -> list[tuple[object, ...]]:
        """Return a table of TABLES_OF_REPORT as rows, of which the first has the column names. ``name_of`` gives a
        NAAN's organisation."""
        if table == "naans":
            rows = [(naan, name_of(naan), n) for naan, n in self.values[NAAN]]
            return [("naan", "who", "requests"), *rows]
        if table == "shoulders":
            return [("shoulder", "requests", "crawlers"), *self.shoulders]
        if table == "failures":
            return [Failure._fields, *self.failed]
        if table == "periods":
            times = [(time_text(start), n) for start, n in self.periods]
            return [("start", "requests"), *times]
        if table == "months":
            names = self.month_shoulders()
            months = [(*one[:4], *(one.shoulders.get(name, 0) for name in names)) for one in self.months]
            return [(*Month._fields[:4], *names), *months]
        kind = TABLES_OF_REPORT[table]
        return [(kind, "requests"), *self.values[kind]]

    def month_shoulders(self) -> list[str]:
        """Return the months' shoulders, most frequent first."""
        whole: Counter[str] = Counter()
        for month in self.months:
            whole.update(month.shoulders)
        return [name for name, _ in sorted(whole.items(), key=lambda pair: (-pair[1], pair[0]))[:LISTED]]


TABLES_OF_REPORT = {
    "months": REQUESTS,
    "periods": REQUESTS,
    "naans": NAAN,
    "shoulders": SHOULDER,
    "failures": FAILED,
    "reasons": REASON,
    "statuses": STATUS,
    "sources": SOURCE,
    "inflections": INFLECTION,
    "referrers": REFERRER,
    "clients": CLIENT,
}
"""The tables of a report, each with the kind of its values."""

Readings = Callable[[int | None, str], Callable[[], Report]]
"""``Statistics.reading``."""


class _Agents:
    """The requests by shoulder and User-Agent header: ``known`` has the pairs counted since the last write."""

    def __init__(self) -> None:
        self.known: set[tuple[int, str, str]] = set()
        self._counts: Counter[tuple[int, str, str]] = Counter()

    def count(self, hour: int, shoulder: str, agent: str) -> None:
        asked = hour, shoulder, agent
        if asked not in self.known:
            if len(self.known) >= MAX_AGENTS:
                asked = hour, shoulder and OTHER, ""
            self.known.add(asked)
        self._counts[asked] += 1

    def taken(self) -> Counter[Key]:
        """Return the counts, and begin new ones."""
        taken, self._counts = self._counts, Counter()
        return Counter({(hour, AGENT, f"{shoulder} {agent}"): n for (hour, shoulder, agent), n in taken.items()})


class Statistics:
    """The counts of one gateway, kept in ``file``, or only in this process without one. One thread counts.

    ``open`` or the first use creates the file, unless ``is_read_only``: then nothing is created or changed. Counts go
    one way: from ``count`` to ``_handed``, in immutable batches, and from there to the file, under the lock. So a
    report has each batch once, and no batch is lost if a thread outlives its task.
    """

    def __init__(self, file: Path | None = None, *, wall: Callable[[], float], is_read_only: bool = False) -> None:
        self._wall = wall
        self._is_read_only = is_read_only
        self._requests: Counter[Request] = Counter()
        self._waiting: Counter[Key] = Counter()
        self._known: dict[tuple[int, str], set[str]] = {}
        self._agents = _Agents()
        self._handed: list[Counter[Key]] = []
        self._written = 0  # batches that are in the file, and no longer in ``_handed``
        self._lock = threading.Lock()  # guards the file, and removals from ``_handed``
        self._is_closed = False
        self._file = file
        self._logged = Repetitions()
        self._opened: tuple[int | None, sqlite3.Connection] | None = None

    @property
    def _store(self) -> sqlite3.Connection:
        """The open file: opened again if it was removed or replaced. Raises sqlite3.Error."""
        if self._opened is not None:
            if self._opened[0] == self._inode():
                return self._opened[1]
            self._opened[1].close()
            self._opened = None
        store = sqlite3.connect(self._uri, uri=True, check_same_thread=False, isolation_level=None)
        store.text_factory = lambda raw: raw.decode("utf-8", "replace")
        with sqlite_errors():
            is_empty = _check_schema(store)
        if self._is_read_only and is_empty:
            raise sqlite3.DatabaseError("not a file of statistics: it is empty")
        if not self._is_read_only:
            store.execute("PRAGMA journal_mode = WAL")
            store.execute("PRAGMA synchronous = NORMAL")
            for table in TABLES:
                store.execute(
                    f"CREATE TABLE IF NOT EXISTS {table} (start INTEGER, kind TEXT, value TEXT, n INTEGER,"
                    " PRIMARY KEY (start, kind, value)) WITHOUT ROWID"
                )
        self._opened = self._inode(), store
        return store

    def _inode(self) -> int | None:
        try:
            return None if self._file is None else self._file.stat().st_ino
        except OSError:  # SQLite says why it cannot be opened
            return None

    @property
    def _uri(self) -> str:
        if self._file is None:
            return ":memory:"
        uri = f"file:{quote(os.fsencode(self._file))}"
        if not self._is_read_only:
            return uri
        # Without a log, no gateway has the file open, and SQLite would create a log beside it.
        is_open = Path(f"{self._file}-wal").exists()
        return f"{uri}?mode=ro" if is_open else f"{uri}?mode=ro&immutable=1"

    def check(self) -> None:
        """Raise ConfigError for a file that ``open`` cannot use. Nothing is created or changed."""
        file = self._file
        if file is not None and file.exists() and file.stat().st_size:
            Statistics(file, wall=self._wall, is_read_only=True).open()
        elif file is not None and not os.access(file.parent, os.W_OK):
            raise ConfigError(f"{file.parent}: no file can be made there", key="gateway.stats")

    def open(self) -> None:
        """Open the file, or create it if it does not exist. Raises ConfigError."""
        try:
            _ = self._store
        except sqlite3.Error as error:
            raise ConfigError(f"{self._file}: {error}", key="gateway.stats") from None

    def count(
        self, naan: str, target: str, status: int, source: str, referrer: str, reason: str = "", agent: str = ""
    ) -> None:
        """Count the answer to a request for an ARK. ``source``, ``referrer`` and ``agent`` are headers, or "".
        ``reason`` says why it failed, in one of a few words."""
        inflection = _INFLECTION.search(target) if "?" in target else None
        host = _HOST.match(referrer) if referrer else None
        hour = int(self._wall()) // HOUR * HOUR
        found = source.partition(";")[0], inflection and inflection[0], host and host[1], reason
        self._requests[hour, naan or "none", int(status), *found] += 1
        if status != HTTPStatus.NO_CONTENT:
            shoulder = shoulder_in(target) if naan and status not in FAILING else ""
            self._agents.count(hour, shoulder and f"{naan}/{shoulder}", agent[:MAX_AGENT])
        if len(self._requests) >= MAX_REQUESTS:
            self._split()

    def _split(self) -> None:
        columns: defaultdict[tuple[int, str], Counter[str]] = defaultdict(Counter)  # by hour and kind
        for (hour, naan, status, source, inflection, host, reason), n in self._requests.items():
            if status == HTTPStatus.NO_CONTENT:  # a browser asks for the methods before it asks for the ARK
                continue
            columns[hour, REQUESTS][""] += n
            columns[hour, NAAN][naan] += n
            columns[hour, STATUS][str(status)] += n
            if source:
                columns[hour, SOURCE][source] += n
            if inflection:
                columns[hour, INFLECTION][inflection] += n
            if host:
                columns[hour, REFERRER][host.lower()] += n
            if status in FAILING:
                columns[hour, FAILED][f"{naan} {status} {reason}"] += n
                columns[hour, REASON][reason or OTHER] += n
        self._requests.clear()
        for (hour, kind), values in columns.items():
            known = self._known.setdefault((hour, kind), set())
            for value, n in values.most_common():
                counted = value if value in known or len(known) < MAX_VALUES else REST[kind]
                known.add(counted)
                self._waiting[hour, kind, counted] += n

    def _hand_over(self) -> int:
        """Hand over the counts so far, and return the number of batches since the start. For the thread that counts."""
        self._split()
        self._waiting.update(self._agents.taken())
        if self._waiting:
            self._handed.append(self._waiting)
            self._waiting = Counter()
        return self._written + len(self._handed)

    async def keep(self) -> None:
        """Write the counts in memory, in a thread. If the file cannot be written, they stay, and that is logged."""
        self._hand_over()
        try:
            await in_thread(self._write)
            self._known.clear()
            self._agents.known.clear()
            self._logged.forget("kept")
        except sqlite3.Error as error:
            if self._logged.is_new("kept", str(error)):
                log.error("statistics not kept: %s: %s", self._file, error)

    def _write(self) -> None:
        """Write the batches handed over. If the file is closed, ``close`` has written them. Raises sqlite3.Error."""
        with self._lock:
            if not self._is_closed:
                self._write_batches()

    def _write_batches(self) -> None:
        size, taken = len(self._handed), Counter[Key]()
        for batch in self._handed[:size]:
            taken.update(batch)
        try:
            self._write_counts(taken)
        except BaseException:
            if size > 1:  # so that a file that cannot be written costs no more memory than one batch
                self._handed[:size] = [taken]
                self._written += size - 1
            raise
        del self._handed[:size]
        self._written += size

    def _write_counts(self, taken: Counter[Key]) -> None:
        """Write counts, and remove old ones. Raises sqlite3.Error."""
        now = int(self._wall())
        known = classified(taken)
        with self._store as store:
            store.execute("BEGIN")
            for table, size, most in zip(TABLES, (HOUR, DAY), (HOURS_KEPT, DAYS_KEPT), strict=True):
                counts = ((start // size * size, kind, value, n) for (start, kind, value), n in known.items())
                _add(store, table, counts)
                _forget(store, table, now // size * size, most)
                _shorten(store, table, now // size * size, MAX_FRESH)
                _shorten(store, table, now // size * size - size, MAX_VALUES)
            ahead = f"SELECT count(DISTINCT start), max(start) FROM hours WHERE start > ? AND {_SOUND}"  # noqa: S608
            found, latest = store.execute(ahead, (now + HOUR,)).fetchone()  # a clock may go back a little
        if self._logged.is_new("ahead", found):
            until = min(latest, LATEST)
            log.warning("statistics of %d hours until %s are from the future: set aside", found, time_text(until))

    def report(self, days: int | None = None, period: str = "") -> Report:
        """Return the counts of the last ``days`` (default DAYS), or of a period (``span_of``): by hour within the last
        two weeks, else by day.

        Raises Unreadable, and ValueError for an invalid period, or if both are given.
        """
        return self.reading(days, period)()

    def reading(self, days: int | None = None, period: str = "") -> Callable[[], Report]:
        """Return a function that reports the counts so far. Any thread may call it: a full file takes long."""
        now = self._wall()
        end = int(now) + 1
        if not period:
            length = (DAYS if days is None else days) * DAY
            size = HOUR if length <= HOURS_KEPT * HOUR else DAY
            since = (int(now) // size + 1) * size - length
        elif days is None:
            since, last = span_of(period)
            size = HOUR if end - since <= HOURS_KEPT * HOUR else DAY
            end = min(end, last)
        else:
            raise ValueError("both days and a period are given: give only one")
        until = max(since, min(now, end))  # for a period that begins later
        return partial(self._report, since, end, until, size, self._hand_over(), int(now) + 1)

    def _report(self, since: int, end: int, until: float, seconds: int, batches: int, now: int) -> Report:
        """Return the report on the file and the first ``batches`` that were handed over."""
        table = "hours" if seconds == HOUR else "days"
        periods: Counter[float] = Counter()
        counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
        try:
            with self._lock:
                store = self._store
                within = f"FROM {table} WHERE start >= ? AND start < ?"
                select = f"SELECT start, n {within} AND kind = ? AND {_SOUND}"
                for start, n in store.execute(select, (since, end, REQUESTS)):
                    periods[start] += n
                select = f"SELECT kind, value, sum(n) {within} AND {_SOUND} GROUP BY 1, 2"
                rows: Iterable[tuple[str, str, int]] = store.execute(select, (since, end)).fetchall()
                (bad,) = store.execute(f"SELECT count(*) FROM {table} WHERE NOT {_SOUND}").fetchone()  # noqa: S608
                first = _months_before(now)
                monthly: Iterable[tuple[str, str, str, int]] = store.execute(_BY_MONTH, (first, now)).fetchall()
                waiting = [classified(batch) for batch in self._handed[: max(0, batches - self._written)]]
        except sqlite3.Error as error:
            if not self._is_read_only and self._logged.is_new("report", str(error)):  # a command reports it
                log.error("statistics not read: %s: %s", self._file, error)
            raise Unreadable("the statistics cannot be read now") from error
        for kind, value, n in rows:
            if kind in counts and (kind != FAILED or _FAILURE.fullmatch(value)):
                counts[kind][value] += n
        if self._logged.is_new("bad", bad):
            log.error("statistics: %s: %d bad rows of the table %s are left out", self._file, bad, table)
        by_month: dict[str, dict[str, Counter[str]]] = {}
        for month, kind, value, n in monthly:
            by_month.setdefault(month, {}).setdefault(kind, Counter())[value] += n
        for batch in waiting:
            for (start, kind, value), n in batch.items():
                if first <= start < now:
                    by_month.setdefault(time_text(start)[:7], {}).setdefault(kind, Counter())[value] += n
                if since <= start < end:
                    counts[kind][value] += n
                    periods[start // seconds * seconds] += n if kind == REQUESTS else 0
        ordered = {kind: sorted(counts[kind].items(), key=lambda pair: (-pair[1], pair[0])) for kind in KINDS[1:]}
        listed = {kind: tuple(pairs[:LISTED]) for kind, pairs in ordered.items()}
        whole = tuple((float(start), periods[start]) for start in range(since, end, seconds))
        months = tuple(_month(name, by_month[name]) for name in sorted(by_month, reverse=True))
        return Report(float(since), until, sum(counts[REQUESTS].values()), whole, seconds, listed, months)

    def close(self) -> None:
        """Write the last counts, and close the file. Nothing is counted or written afterwards."""
        self._hand_over()
        with self._lock:
            self._is_closed = True
            with closing(self._store):
                if not self._is_read_only:
                    self._write_batches()


_BY_MONTH = (
    "SELECT strftime('%Y-%m', start, 'unixepoch'), kind, value, sum(n) FROM days WHERE start >= ? AND start < ?"  # noqa: S608 - constants
    f" AND kind IN ('{REQUESTS}', '{STATUS}', '{SHOULDER}', '{CLIENT}') AND {_SOUND} GROUP BY 1, 2, 3"
)


def _months_before(now: int) -> int:
    """Return the start of the first of the last MONTHS."""
    today = datetime.fromtimestamp(now, UTC)
    months = today.year * 12 + today.month - MONTHS
    return calendar.timegm((months // 12, months % 12 + 1, 1, 0, 0, 0))


def _month(name: str, counts: Mapping[str, Counter[str]]) -> Month:
    none = Counter[str]()
    failed = sum(counts.get(STATUS, none)[str(status)] for status in FAILING)
    shoulders = dict(counts.get(SHOULDER, none).most_common(LISTED))
    return Month(name, sum(counts.get(REQUESTS, none).values()), counts.get(CLIENT, none)[CRAWLER], failed, shoulders)


def _check_schema(store: sqlite3.Connection) -> bool:
    """Return whether a database is empty. Raises sqlite3.DatabaseError if it is not a file of statistics: another
    program's view or trigger could run anything."""
    tables = 0
    for kind, name, page in store.execute("SELECT type, name, rootpage FROM sqlite_master"):
        if kind == "table" and page and name in TABLES:
            columns = [row[1] for row in store.execute(f"PRAGMA table_xinfo({name})")]
            if columns != COLUMNS:
                raise sqlite3.DatabaseError(f"not a file of statistics: {name} has other columns")
            tables += 1
        elif not name.startswith("sqlite_"):  # such as ANALYZE's tables
            raise sqlite3.DatabaseError(f"not a file of statistics: it has a {kind} {printable(name)}")
    return not tables


def _add(store: sqlite3.Connection, table: str, counts: Iterable[tuple[int, str, str, int]]) -> None:
    known = f"CASE WHEN {_SOUND} THEN n ELSE 0 END"
    insert = (
        f"INSERT INTO {table} VALUES (?, ?, ?, ?)"  # noqa: S608 - constants
        f" ON CONFLICT DO UPDATE SET n = min({known} + excluded.n, {MAX_COUNT})"
    )
    store.executemany(insert, counts)


def _forget(store: sqlite3.Connection, table: str, now: int, most: int) -> None:
    """Remove all but the latest ``most`` hours or days until ``now``.

    Only those with a request count, not a span of time, because a clock that runs ahead must not delete the others.
    Rows later than now come from such a clock, or are right and the clock is behind: they are set aside and neither
    counted nor used to replace others; the nearest ``most`` of them are kept.
    """
    for where, order in (("start <= ?", "DESC"), ("start > ?", "ASC")):
        surplus = f"SELECT DISTINCT start FROM {table} WHERE {where} ORDER BY start {order} LIMIT -1 OFFSET {most}"  # noqa: S608
        store.execute(f"DELETE FROM {table} WHERE start IN ({surplus})", (now,))  # noqa: S608


def _shorten(store: sqlite3.Connection, table: str, start: int, most: int) -> None:
    """Merge the rare values of an hour or a day into one count."""
    for kind in (NAAN, FAILED, REFERRER, SHOULDER, CRAWLED):
        where = f"FROM {table} WHERE start = ? AND kind = ? AND value"
        known = (start, kind, REST[kind])
        select = f"SELECT value, n {where} != ? AND {_SOUND} ORDER BY n DESC, value LIMIT -1 OFFSET {most}"
        if rare := store.execute(select, known).fetchall():
            store.executemany(f"DELETE {where} = ?", ((start, kind, value) for value, _ in rare))
            _add(store, table, [(*known, sum(n for _, n in rare))])
