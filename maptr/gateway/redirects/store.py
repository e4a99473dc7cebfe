"""A store of own objects: the SQLite database that ``maptr redirects`` writes. A gateway looks up each ARK in it, so
that a million ARKs take little memory.

It has the objects; their file's extra columns, and which of these are public; the number of objects in each
NAAN; the number of the last change to each row that was changed since the first import; the trace of changes; the index
of their words, if SQLite can have one (``words``); and facts about the store itself. ``changes`` and ``importing``
write it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import math
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from stat import S_ISREG
from types import MappingProxyType

from maptr import url
from maptr.ark import Ark
from maptr.daemon.background import Repetitions
from maptr.errors import ConfigError, printable
from maptr.files import sqlite_errors
from maptr.gateway.message import Busy, Unreadable
from maptr.gateway.objects import (
    COLUMNS,
    GONE,
    REDIRECTING,
    UNREADABLE,
    FoundObjects,
    OwnObject,
    OwnObjects,
    read_row,
    to_row,
)
from maptr.gateway.redirects import words
from maptr.gateway.redirects.rows import (
    APPLICATION,
    INTERRUPTED,
    MAX_COLUMNS,
    MAX_LINE,
    VERSION,
    StatementLimit,
    check_tables,
    connected,
    fault_of,
    is_busy,
    is_database,
    is_interrupted,
    more_columns,
    unreadable,
)

log = logging.getLogger("maptr.gateway")

LOCKED = 0.5  # seconds to wait for a SQLite writer; then the file is reread later, or a request gets 503
LOCKED_STEP = 0.01  # seconds between two tries
AT_ONCE = 0.005  # seconds that a look-up in the event loop may take; after a longer one, threads look up
CALM = 20  # faster look-ups in a row by threads before the event loop looks up again
QUIET = 1.0  # idle seconds after which a thread does the next look-up: the disk may be slow or asleep
LOCKED_LONG = 5.0  # seconds without a successful look-up until an alarm is raised
SAMPLES = 10  # ARKs at each end of a NAAN
SLICE = 0.002  # seconds that a scan of all rows keeps other threads waiting
NAMED = 10  # bad rows that the log and the status list one by one
SEARCH = 0.1  # seconds that a search may take; what it has found by then is shown
MAX_FOUND = 100  # objects of one search
OTHER_COLUMNS = "its index has other columns than those that are public now"

FIELDS = ", ".join(f'"{name}"' for name in COLUMNS)
NO_MORE: Mapping[str, str] = MappingProxyType({})
_TABLES = ("redirects", "columns", "naans", "changes", "history", "meta")
SCHEMA = f"""
CREATE TABLE redirects (
    {", ".join(f'"{name}"' for name in COLUMNS if name not in ("ark", "status", "suffix"))},
    ark TEXT PRIMARY KEY NOT NULL, status INTEGER NOT NULL, suffix INTEGER NOT NULL, more TEXT
) WITHOUT ROWID;
CREATE TABLE columns (name TEXT PRIMARY KEY NOT NULL, public INTEGER NOT NULL);
CREATE TABLE naans (naan TEXT PRIMARY KEY NOT NULL, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE changes (  -- of a row: its last one, the last one by a command (0: none), and whether no import agreed
    ark TEXT PRIMARY KEY NOT NULL, change INTEGER NOT NULL, edited INTEGER NOT NULL, open INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE history (
    number INTEGER PRIMARY KEY, change INTEGER NOT NULL, at INTEGER NOT NULL, who TEXT NOT NULL, action TEXT NOT NULL,
    ark TEXT NOT NULL, old TEXT NOT NULL, new TEXT NOT NULL, note TEXT NOT NULL
);
CREATE INDEX history_ark ON history (ark);
CREATE TABLE meta (name TEXT PRIMARY KEY NOT NULL, value NOT NULL) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""
ANOTHER = "another command writes it: try again"
_DAMAGED = (ValueError, OverflowError, RecursionError)  # what a row changed by another program may raise


class NotAStoreError(ConfigError):
    """A database is not a store of this version of maptr."""


def check_is_store(connection: sqlite3.Connection, path: Path) -> None:
    """Raise ConfigError for any other database. Raises sqlite3.Error."""
    application, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if application == APPLICATION and version > VERSION:
        reason = f"is a store of a newer maptr: its version is {version}, and this maptr knows {VERSION}"
        raise NotAStoreError(reason, filename=str(path))
    if (application, version) != (APPLICATION, VERSION):
        reason = f"is not a store of this maptr: maptr redirects import {printable(path.name)} -o NEW makes one of it"
        raise NotAStoreError(reason, filename=str(path))
    check_tables(connection, _TABLES, path)


def facts_of(connection: sqlite3.Connection) -> dict[str, int | str]:
    """Return a store's facts by name. Raises sqlite3.Error."""
    return dict(connection.execute("SELECT name, value FROM meta"))


class ObjectStore(OwnObjects):
    """The own objects in a store. Thread-safe. A row that cannot be served raises Unreadable, is logged, and is added
    to ``broken``.

    The event loop never waits for it (``within(0)``): Busy is raised, and a thread that may wait looks the ARK up, if
    another thread uses the connection, if the file is locked, if a look-up took long, as on a slow disk, or after
    ``quiet_after`` seconds without a look-up.

    ``public`` are the extra columns that are shown, by default those that the store declares public. If
    they differ (``is_overruled``), its index is not used. ``searching`` is a second connection to the same file.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        filename: str = "",
        *,
        searching: sqlite3.Connection,
        allow_private: bool = False,
        public: Collection[str] | None = None,
    ) -> None:
        self._connection = connection
        self._searching = searching  # so that no look-up waits for a search
        self._turn = threading.Lock()  # for searches
        self._until = StatementLimit(searching)
        self.filename = filename
        self._allow_private = allow_private
        self._public = public
        self._columns: Mapping[str, bool] = {}
        self._logged = Repetitions()
        self._lock = threading.Lock()  # for the connection: SQLite's own lock would make the event loop wait
        self._deadline = StatementLimit(connection)
        self._slow = 0  # fast look-ups by threads still needed before the event loop looks up again
        self.quiet_after = math.inf
        self._fast_at = time.monotonic()  # of the last fast look-up
        self._failing_since: float | None = None
        self.broken: Mapping[str, str] = {}
        self.facts: Mapping[str, int | str] = {}
        self.is_overruled = False

    def prepare(self) -> None:
        """Read what is needed about all objects; to be repeated after a change. Raises sqlite3.Error."""
        with self._lock:
            self._connection.execute(f"PRAGMA busy_timeout = {round(LOCKED * 1000)}")
            try:
                naans = dict(self._connection.execute("SELECT naan, count FROM naans WHERE count > 0"))
                columns = self._connection.execute(
                    "SELECT name, public FROM columns LIMIT ?", (MAX_COLUMNS,)
                ).fetchall()
                samples = {naan: self._some_of(naan) for naan in naans}
                self.facts = facts_of(self._connection)
                unindexed = words.trouble_of(self._connection, self.facts)
            finally:
                self._connection.execute("PRAGMA busy_timeout = 0")  # look-ups have their own waiting
        self.naans, self.samples = naans, samples
        shown, kept = self._public, {name: bool(public) for name, public in columns}
        self._columns = kept if shown is None else {name: name in shown for name in kept}
        self.is_overruled = self._columns != kept
        self.unindexed = unindexed or (OTHER_COLUMNS if self.is_overruled else "")
        before, self.broken = self.broken, {}
        for ark in before:
            with suppress(Unreadable):
                self.get(ark)

    def _some_of(self, naan: str) -> Sequence[str]:
        """Return a NAAN's first and last ARKs."""
        some = "SELECT ark FROM redirects WHERE ark BETWEEN ? AND ? ORDER BY ark"
        ends = f"ark:{naan}/", f"ark:{naan}0"  # the character after the slash
        rows = (self._connection.execute(f"{some} {order} LIMIT {SAMPLES}", ends) for order in ("ASC", "DESC"))
        return [str(ark) for (ark,) in chain.from_iterable(rows)]

    def other_columns(self) -> Mapping[str, bool]:
        return {name: public for name, public in self._columns.items() if name and name not in COLUMNS}

    def comes_after(self, other: ObjectStore) -> bool:
        """Return whether commands have made this store from the other one."""
        is_same = self.facts.get("id") == other.facts.get("id")
        return is_same and int(other.facts.get("change", 0)) <= int(self.facts.get("change", 0))

    def columns(self) -> list[str]:
        """Return the columns of the file that it was made from."""
        return list(self._columns)

    def get(self, ark: str) -> OwnObject | None:
        """Return the object of an ARK in normal form. Waits at most LOCKED seconds. Raises Unreadable."""
        return self.look_up(ark, LOCKED)

    def within(self, seconds: float) -> OwnObjects:
        return _Within(self, seconds)

    def look_up(self, ark: str, seconds: float) -> OwnObject | None:
        """Do ``get``, but wait at most that many seconds. With 0, raise Busy instead of waiting."""
        until = time.monotonic() + seconds
        if seconds <= 0:
            is_quiet = time.monotonic() - self._fast_at > self.quiet_after
            if self._slow or is_quiet or not self._lock.acquire(blocking=False):
                raise Busy(UNREADABLE)
            try:
                return self._look_up(ark, time.monotonic() + AT_ONCE)
            finally:
                self._lock.release()
        while True:
            if not self._lock.acquire(timeout=max(0.0, until - time.monotonic())):
                raise Unreadable(UNREADABLE)
            try:
                return self._look_up(ark, until)
            except Busy as error:
                if time.monotonic() + LOCKED_STEP >= until:
                    if self._logged.is_new("", str(error.__cause__)):
                        log.error("%s: %s: %s", self.filename, ark, error.__cause__)
                    raise Unreadable(UNREADABLE) from None
            finally:
                self._lock.release()
            time.sleep(LOCKED_STEP)

    def _look_up(self, ark: str, until: float) -> OwnObject | None:
        """Look up while holding the connection's lock. Raises Busy if the file is locked or it takes too long."""
        began = time.monotonic()
        self._deadline.at = until
        try:
            select = f"SELECT {FIELDS}, more FROM redirects WHERE ark = ?"  # noqa: S608 - constants
            found = self._connection.execute(select, (ark,)).fetchone()
            self._logged.forget("")
            return None if found is None else self._served(object_of(found))
        except (*_DAMAGED, sqlite3.DataError) as error:
            if len(self.broken) < NAMED:
                self.broken = {**self.broken, ark: printable(str(error))}
            if self._logged.is_new(ark, str(error)):
                log.error("%s: %s: %s", self.filename, ark, error)
            raise Unreadable(UNREADABLE) from None
        except sqlite3.Error as error:
            if is_busy(error) or is_interrupted(error):
                raise Busy(UNREADABLE) from error
            if self._logged.is_new("", str(error)):
                log.error("%s: %s: %s", self.filename, ark, error)
            raise Unreadable(UNREADABLE) from None
        finally:
            self._deadline.at = math.inf
            now = time.monotonic()
            if now - began >= AT_ONCE:
                self._slow = CALM
            else:
                self._slow, self._fast_at = max(0, self._slow - 1), now

    def search(self, text: str) -> FoundObjects:
        if not self._turn.acquire(timeout=LOCKED):
            return FoundObjects(is_whole=False)
        found: dict[str, OwnObject] = {}
        try:
            self._until.at = time.monotonic() + SEARCH
            has_index, most = not self.unindexed, MAX_FOUND + 1
            for values in words.find(self._searching, text, self.naans, has_index=has_index, most=most):
                with suppress(*_DAMAGED):
                    one = self._served(object_of(values))
                    found[str(Ark.parse(one.ark))] = one
                if len(found) == most:
                    break
            return FoundObjects([*found.values()][:MAX_FOUND], is_whole=len(found) < most)
        except sqlite3.Error as error:
            if not is_busy(error) and self._logged.is_new("search", str(error)):
                log.error("%s: a search failed: %s", self.filename, error)
            return FoundObjects([*found.values()], is_whole=False)
        finally:
            self._until.at = math.inf
            self._turn.release()

    def _served(self, one: OwnObject) -> OwnObject:
        """Return the object as a request gets it. Raises ValueError for a bad row, changed by another program."""
        if one.status not in (*REDIRECTING, GONE):
            raise ValueError(f"the status {one.status} is not that of a redirect")
        if not one.is_gone:
            url.parse_allowed(one.url, allow_private=self._allow_private)
        if not one.more:
            return one
        return one._replace(more={name: text for name, text in one.more.items() if self._columns.get(name)})

    def trouble(self) -> str:
        if reason := self._fault():
            now = time.monotonic()
            self._failing_since = since = now if self._failing_since is None else self._failing_since
            if now - since < LOCKED_LONG:
                return ""
        else:
            self._failing_since = None
        if self._logged.is_new("trouble", reason):
            log.error("%s: %s; ARKs that may be own objects get 503", self.filename, reason)
        return reason

    def _fault(self) -> str:
        """Return why the file cannot be read right now."""
        if not self._lock.acquire(timeout=LOCKED):
            return "does not answer: the disk is slow, or gone"
        try:
            self._connection.execute("SELECT 1 FROM redirects LIMIT 1").fetchone()
        except sqlite3.Error as error:
            if is_busy(error):
                return "locked by another program, which fuser -v FILE names: end it"
            if not is_interrupted(error):
                return str(error)
            with suppress(sqlite3.Error):
                roll_back(Path(self.filename))
                return ""
            return INTERRUPTED
        finally:
            self._lock.release()
        return ""

    def every(self) -> Iterator[OwnObject]:
        """Yield all objects in the order of their ARKs, with all columns. Raises ValueError for a damaged row."""
        yield from map(object_of, self._rows())

    def _rows(self) -> Iterator[tuple[object, ...]]:
        yield from self._connection.execute(f"SELECT {FIELDS}, more FROM redirects ORDER BY ark")  # noqa: S608

    def every_change(self) -> Iterator[tuple[OwnObject, int]]:
        """Yield all objects, each with the number of its last change."""
        fields = ", ".join(f'r."{name}"' for name in COLUMNS)
        select = f"SELECT {fields}, more, change FROM redirects AS r LEFT JOIN changes USING (ark) ORDER BY ark"  # noqa: S608
        first = int(self.facts.get("first", 0))
        for *values, change in self._connection.execute(select):
            yield object_of(tuple(values)), first if change is None else int(change)

    def faults(self) -> Iterator[tuple[int, str]]:
        """Yield the faults of rows that another program changed, with their numbers."""
        counted: Counter[str] = Counter()
        is_whole = True
        for number, values in enumerate(self._rows(), 1):
            try:
                one = object_of(values)
                read = read_row(to_row(one), allow_private=self._allow_private)
                if read.ark != one.ark:
                    raise ValueError(f"{one.ark}: is not in the normal form {read.ark}, so it is never found")
                counted[one.naan] += 1
            except _DAMAGED as error:
                is_whole = False
                yield number, str(error)
        if is_whole and counted != self.naans:
            yield 0, "its counts of objects are wrong: another program wrote it"

    def urls(self) -> Iterator[str]:
        yield from (str(where) for (where,) in self._connection.execute("SELECT url FROM redirects"))

    def targets(self, after: str, size: int) -> list[tuple[str, str]]:
        """Return the next ARKs after one, in order, each with its URL; "" for one that is gone. Raises
        sqlite3.Error."""
        is_later = "ark > CAST(? AS TEXT) AND typeof(ark) = 'text'"  # an edited row may have other values
        select = f"SELECT ark, url FROM redirects WHERE {is_later} ORDER BY ark LIMIT ?"  # noqa: S608 - constants
        with self._lock:
            rows = self._connection.execute(select, (after.encode("utf-8", "surrogateescape"), size))
            return [(str(ark), str(where or "")) for ark, where in rows]

    def sample(self, size: int) -> list[str]:
        """Return about that many random ARKs; all, if there are no more. Other threads may look up meanwhile."""
        select, found = "SELECT ark FROM redirects WHERE random() % ? = 0", list[str]()
        rows = self._connection.cursor()
        is_begun = False
        while True:
            with self._lock:
                until = time.monotonic() + SLICE
                if not is_begun:
                    rows.execute(select, (max(1, len(self) // size),))
                    is_begun = True
                while time.monotonic() < until:
                    if (row := rows.fetchone()) is None:
                        return found
                    found.append(str(row[0]))
            time.sleep(SLICE / 4)  # otherwise a waiting thread would not get the lock

    def __contains__(self, ark: str) -> bool:
        with self._lock, suppress(UnicodeEncodeError):
            return self._connection.execute("SELECT 1 FROM redirects WHERE ark = ?", (ark,)).fetchone() is not None
        return False

    def __del__(self) -> None:
        self._connection.close()  # no request uses it any longer
        self._searching.close()


class _Within(OwnObjects):
    """A store's objects for one request, which limits the total time that it waits for them."""

    def __init__(self, store: ObjectStore, seconds: float) -> None:
        self.naans, self.samples = store.naans, store.samples
        self.unindexed = store.unindexed
        self._store = store
        self._left = seconds
        self._may_wait = seconds > 0

    def get(self, ark: str) -> OwnObject | None:
        if not self._may_wait:
            return self._store.look_up(ark, 0)
        began = time.monotonic()
        try:
            return self._store.look_up(ark, max(self._left, LOCKED_STEP))
        finally:
            self._left -= time.monotonic() - began

    def urls(self) -> Iterator[str]:
        return self._store.urls()

    def search(self, text: str) -> FoundObjects:
        return self._store.search(text)

    def other_columns(self) -> Mapping[str, bool]:
        return self._store.other_columns()


def object_of(values: tuple[object, ...]) -> OwnObject:
    """Return the object of a store's row. Raises ValueError, OverflowError or RecursionError for a damaged one."""
    *texts, more = ["" if value is None else str(value) for value in values]
    if fault := fault_of("".join(texts)):
        raise ValueError(fault)
    ark, target, status, reason, who, what, when, suffix, by, authority, withdrawn = texts
    leads_on = suffix != "0"
    kept = more_columns(more) if more else NO_MORE
    return OwnObject(ark, target, int(status or 0), reason, who, what, when, leads_on, by, authority, withdrawn, kept)


def values_of(one: OwnObject) -> tuple[object, ...]:
    """Return an object's row in a store."""
    return (*one[:-1], json.dumps(one.more, ensure_ascii=False) if one.more else None)


def open_store(path: Path, *, allow_private: bool = False, public: Collection[str] | None = None) -> ObjectStore:
    """Return a store's objects. Raises ConfigError."""
    try:
        if not is_database(path):
            raise NotAStoreError("is not a store of maptr redirects", filename=str(path))
        connection = to_read(path)
        try:
            with sqlite_errors():
                check_is_store(connection, path)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_LINE)
            searching = to_read(path)
            searching.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_LINE)
            store = ObjectStore(connection, str(path), searching=searching, allow_private=allow_private, public=public)
        except BaseException:
            connection.close()
            raise
        store.prepare()
        return store
    except (OSError, sqlite3.Error) as error:
        raise unreadable(path, error) from None


def to_read(path: Path) -> sqlite3.Connection:
    """Return a read-only connection, after rolling back what a killed writer left. Raises sqlite3.Error."""
    connection = connected(path)
    try:
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.Error as error:
        connection.close()
        if not is_interrupted(error):
            raise
        roll_back(path)
        return connected(path)
    return connection


def roll_back(path: Path) -> None:
    """Roll back a killed writer's change. Raises sqlite3.Error if this process may not write the file, or if a writer
    is at work."""
    try:
        with locked_store(path, 0.0), closing(connected(path, "rw")) as writer:
            writer.execute("PRAGMA schema_version").fetchone()
    except OSError as error:
        raise sqlite3.OperationalError(str(error)) from None


@contextmanager
def locked_store(path: Path, seconds: float) -> Iterator[int]:
    """Exclude other writers of a store, before SQLite opens it, and yield a descriptor of the file.

    A journal is named after its file, so a connection to a file that an import has replaced would take the new file's
    journal for its own. Raises OSError, and BlockingIOError after that many seconds.
    """
    until = time.monotonic() + seconds
    while True:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "Is not a regular file")
            _flock(handle, until)
            if os.path.samestat(os.fstat(handle), path.stat()):
                yield handle
                return
        finally:
            os.close(handle)


def _flock(handle: int, until: float) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise BlockingIOError(errno.EAGAIN, ANOTHER) from None
        time.sleep(LOCKED_STEP)
