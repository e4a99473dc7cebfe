"""The file of own objects: a CSV, or a SQLite database, which is read again when it changes.

Both have the columns ``ark`` and ``url``, and may have others (``objects.COLUMNS``). ``maptr redirects import`` makes a
database that needs no reading at a start: the gateway looks up each ARK in it, so that a million of them take little
memory. Any other file is first read into such a database of its own. A bad row is left out and named; a file that
cannot be read, or that lost too many rows, leaves the last good one in use.
"""

from __future__ import annotations

import csv
import json
import logging
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from maptr import url
from maptr.ark import check_naan
from maptr.daemon.background import Repetitions
from maptr.errors import NOT_UTF8, ArkSyntaxError, ConfigError, MaptrError, printable, text_of_cell
from maptr.files import Followed, opened, sqlite_errors
from maptr.gateway.message import Busy, Unreadable, published
from maptr.gateway.objects import (
    COLUMNS,
    GONE,
    REDIRECTING,
    UNREAD,
    UNREADABLE,
    OwnObject,
    OwnObjects,
    Redirects,
    RowError,
    UnreadObjects,
    read_row,
    to_row,
)
from maptr.registry.plan import REMOVAL_LIMIT

log = logging.getLogger("maptr.gateway")

MAX_REDIRECTS = 5_000_000
MAX_COLUMNS = 100
SEPARATORS = ",;\t"
MAX_LINE = 65_536  # characters of a line of CSV, bytes of a value of SQLite
MAX_ROW = 16_000_000  # bytes of a row of SQLite that is left out; a longer one makes its file unreadable
SAMPLED = 2_000  # ARKs of a long file that are looked for in its successor: the share is then right to about 1 %
LOCKED = 0.5  # seconds to wait for a writer of SQLite; then the file is read again later, or a request gets 503
LOCKED_STEP = 0.01  # seconds between two tries
AT_ONCE = 0.005  # seconds that a look-up in the event loop may take; after a longer one, threads do it
CALM = 20  # look-ups of threads in a row that took less, before the event loop looks up again
QUIET = 1.0  # seconds after which a thread does the next look-up: the disk may have become slow, or fallen asleep
LOCKED_LONG = 5.0  # seconds without one that succeeds, until that is an alarm
STEPS = 1_000  # of SQLite, between two looks at the clock; a look-up has some thirty
SLICE = 0.002  # seconds that a scan of all rows keeps others waiting
NAMED = 10  # bad rows that the log and the status name one by one

_SQLITE = b"SQLite format 3\0"
APPLICATION, VERSION = 0x6D61706F, 1  # application_id ("mapo", as a cache has "mapt") and user_version
_FIELDS = ", ".join(f'"{name}"' for name in COLUMNS)
_AS_STORED = "CAST(? AS TEXT)"
_INSERT = f"INSERT OR IGNORE INTO redirects ({_FIELDS}, more) VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"  # noqa: S608
_SCHEMA = f"""
CREATE TABLE redirects (
    {", ".join(f'"{name}"' for name in COLUMNS if name not in ("ark", "status", "suffix"))},
    ark TEXT PRIMARY KEY NOT NULL, status INTEGER NOT NULL, suffix INTEGER NOT NULL, more TEXT
) WITHOUT ROWID;
CREATE TABLE columns (name TEXT NOT NULL);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""


class Row(NamedTuple):
    """A row and the number of its line, or of the row of a database; ``fault`` says why it cannot be read."""

    number: int
    cells: Mapping[str, str]
    fault: str = ""


OnBad = Callable[[RowError], None]

_DAMAGED = (ValueError, OverflowError, RecursionError)  # what a row of ours that was edited raises
_WAIT = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT}  # errors that may pass


# ---- reading


def _is_database(path: Path) -> bool:
    """Raises OSError, also for a pipe or a device."""
    with opened(path) as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _is_busy(error: BaseException | None) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _WAIT


class LockedFileError(ConfigError):
    """Another program has locked a database: it may be free a moment later."""


def _unreadable(path: Path, error: Exception) -> ConfigError:
    kind = LockedFileError if _is_busy(error) else ConfigError
    return kind(getattr(error, "strerror", None) or str(error), filename=str(path))


def _rows(path: Path) -> Iterator[Row]:
    """Yield the columns as a row, then the rows."""
    try:
        yield from _sqlite_rows(path) if _is_database(path) else _csv_rows(path)
    except (OSError, sqlite3.Error, *_DAMAGED) as error:  # a row of ours that was edited
        raise _unreadable(path, error) from None


def _csv_rows(path: Path) -> Iterator[Row]:
    """Yield the columns as a row, then the rows of a CSV, each with the number of its last line.

    Rows without any value, which spreadsheets leave at the end, are left out.
    The first line shows what separates the columns: Excel takes semicolons in countries with a decimal comma.
    """
    lines = _lines(path)
    first = next(lines, "")
    if "\r" in first.rstrip("\r\n"):
        raise ConfigError("its lines end with CR alone: save it with LF or CR LF", filename=str(path), line=1)
    separator = max(SEPARATORS, key=first.count)
    reader = csv.reader(chain([first], lines), strict=True, delimiter=separator)
    begun = 0
    try:
        header = [_column(name) for name in next(reader, [])]
        _check_columns(len(header), path, 1)
        if missing := {"ark", "url"} - set(header):
            reason = f"the first line has no column {min(missing)}, but {printable(', '.join(header))[:80]!r}"
            raise ConfigError(reason, filename=str(path), line=1)
        if twice := [name for name in header if name and header.count(name) > 1]:
            raise ConfigError(f"the first line has two columns {twice[0]}", filename=str(path), line=1)
        yield Row(1, dict.fromkeys(header, ""))
        begun = reader.line_num
        for cells in reader:
            begun = reader.line_num
            _check_columns(len(cells), path, reader.line_num)
            if any(cells):
                fault = ""
                if any(cells[len(header) :]):
                    counts = f"{len(cells)} values for {len(header)} columns"
                    fault = f"{counts}: put a text with {separator!r} in quotation marks"
                yield Row(reader.line_num, dict(zip(header, map(text_of_cell, cells), strict=False)), fault)
    except csv.Error as error:
        reason = f"{error}: a quotation mark in this row may have no second one"
        raise ConfigError(reason, filename=str(path), line=begun + 1) from None


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a CSV. Raises ConfigError for one that is too long or not UTF-8."""
    with opened(path) as file:
        number = 0
        while raw := file.readline(4 * MAX_LINE + 1):
            number += 1
            try:
                if number == 1 and b"\0" in raw:  # UTF-16 without a byte order mark, or a workbook
                    raise ValueError
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except ValueError:
                raise ConfigError(NOT_UTF8, filename=str(path), line=number) from None
            if len(line) > MAX_LINE:
                raise ConfigError(f"a line of more than {MAX_LINE} characters", filename=str(path), line=number)
            yield line


def _column(name: str) -> str:
    """Return the name of a column; those that have a meaning may be written in capitals, and with spaces around."""
    known = name.strip().lower()
    return known if known in COLUMNS else name


def _check_columns(count: int, path: Path, line: int) -> None:
    if count > MAX_COLUMNS:
        raise ConfigError(f"{count} columns, {MAX_COLUMNS} at most", filename=str(path), line=line)


def _opened(path: Path) -> sqlite3.Connection:
    """Open a database to read. The schema of the file is not trusted to run functions."""
    uri = f"file:{quote(os.fsencode(path))}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=LOCKED, check_same_thread=False, isolation_level=None)
    connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_LINE)
        connection.execute("PRAGMA trusted_schema = OFF")
        # SQLite 3.37 says itself what it will read; an earlier one only shows that a view or virtual table has no page.
        stored = "SELECT type, rootpage FROM sqlite_master WHERE name = ? COLLATE NOCASE"
        for name in ("redirects", "columns"):
            with sqlite_errors():
                listed = {kind for _, _, kind, *_ in connection.execute(f"PRAGMA table_list({name})")}
                found = connection.execute(stored, (name,)).fetchall()
            if any(kind != "table" or not page for kind, page in found) or listed - {"table"}:
                raise ConfigError(f"{name} is not a table", filename=str(path))
    except BaseException:
        connection.close()
        raise
    return connection


def _sqlite_rows(path: Path) -> Iterator[Row]:
    """Yield the columns as a row, then the rows of the table, each with its number."""
    with closing(_opened(path)) as connection:
        store = ObjectStore(connection)
        if store.is_own:
            yield Row(0, dict.fromkeys(store.columns(), ""))
            for number, values in enumerate(store.rows(), 1):
                try:
                    yield Row(number, to_row(_object(values)))
                except _DAMAGED as error:
                    yield Row(number, {}, str(error))
            return
        columns = [_column(name) for (name,) in connection.execute("SELECT name FROM pragma_table_info('redirects')")]
        _check_columns(len(columns), path, 0)
        if missing := {"ark", "url"} - set(columns):
            raise ConfigError(f"no such column: {min(missing)}", filename=str(path))
        yield Row(0, dict.fromkeys(columns, ""))
        number = 1
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ROW)
        try:
            for number, values in enumerate(connection.execute("SELECT * FROM redirects"), 1):
                cells = dict(zip(columns, ("" if value is None else str(value) for value in values), strict=True))
                is_long = any(len(cell) > MAX_LINE for cell in cells.values())
                fault = f"a value of more than {MAX_LINE} characters" if is_long else _fault("".join(cells.values()))
                yield Row(number, cells, fault)
        except sqlite3.DataError as error:  # a value that is too long
            raise ConfigError(str(error), filename=str(path), line=number + 1) from None


def _stored(text: str) -> bytes:
    """Return the parameter ``_AS_STORED`` of a text of a database, which may be no UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _fault(text: str) -> str:
    """Return why a text of a database cannot be used; "" if it can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "a text is not UTF-8"
    return ""


# ---- the database of own objects


class _Deadline:
    """Ends statements of SQLite that take too long, whatever a file makes them do. It belongs to one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.at = math.inf
        connection.set_progress_handler(self.is_over, STEPS)

    def is_over(self) -> bool:
        return time.monotonic() > self.at


class ObjectStore(OwnObjects):
    """Own objects in a database of ours. Any thread may use it. A row that cannot be used is as if it were not there,
    and is logged.

    The event loop never waits for it (``within(0)``): if another thread uses the connection, if the file is locked, if
    a look-up took long, as on a slow disk, or after ``quiet_after`` seconds without one, that raises Busy, and a thread
    that may wait looks the ARK up.
    """

    def __init__(self, connection: sqlite3.Connection, filename: str = "", *, allow_private: bool = False) -> None:
        self._connection = connection
        self._filename = filename
        self._allow_private = allow_private
        self._logged = Repetitions()
        self._lock = threading.Lock()  # of the connection: SQLite's own would let the event loop wait
        self._deadline = _Deadline(connection)
        self._slow = 0  # look-ups of threads that must be fast before the event loop looks up again
        self.quiet_after = math.inf
        self._fast_at = time.monotonic()  # of the last fast look-up
        self._failing_since: float | None = None
        self._columns: list[str] = []
        self.is_file = False  # whether it is the database in a file, and not made of one

    @property
    def is_own(self) -> bool:
        """Whether ``stored`` made the database."""
        names = ("application_id", "user_version")
        return [self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names] == [APPLICATION, VERSION]

    def columns(self) -> list[str]:
        """Return the columns of the file that it was made from."""
        if not self._columns:
            found = self._connection.execute("SELECT name FROM columns LIMIT ?", (MAX_COLUMNS,))
            self._columns = [str(name) for (name,) in found]
        return self._columns

    def unused_columns(self) -> list[str]:
        return [name for name in self.columns() if name and name not in COLUMNS]

    def prepare(self) -> None:
        """Read what is needed of all objects. From now on, statements do not wait for a lock. Raises sqlite3.Error."""
        self.columns()
        self.count()
        self._connection.execute("PRAGMA busy_timeout = 0")

    def count(self) -> None:
        """Count the objects of each NAAN, by ranges of the key, because a scan of a million rows takes a second."""
        first = f"SELECT min(ark) FROM redirects WHERE ark >= {_AS_STORED}"  # noqa: S608 - constants
        between = f"SELECT count(*) FROM redirects WHERE ark >= {_AS_STORED} AND ark < {_AS_STORED}"  # noqa: S608
        some = f"SELECT ark FROM redirects WHERE ark >= {_AS_STORED} AND ark < {_AS_STORED} ORDER BY ark"  # noqa: S608
        counted: dict[str, int] = {}
        samples: dict[str, list[str]] = {}
        after = ""
        while isinstance(ark := self._connection.execute(first, (_stored(after),)).fetchone()[0], str):
            start = ark.partition("/")[0]
            after = f"{start}0"  # the character after the slash
            ends = _stored(ark), _stored(after)
            with suppress(ArkSyntaxError):  # of a row that was edited, which no ARK finds
                naan = check_naan(start.removeprefix("ark:"))
                counted[naan] = self._connection.execute(between, ends).fetchone()[0]
                rows = (self._connection.execute(f"{some} {order} LIMIT 10", ends) for order in ("ASC", "DESC"))
                samples[naan] = [str(found) for (found,) in chain.from_iterable(rows)]
        self.naans, self.samples = counted, samples

    def get(self, ark: str) -> OwnObject | None:
        """Return the object of an ARK in normal form, None if its row cannot be used. Raises Unreadable; waits LOCKED
        seconds at most."""
        return self.look_up(ark, LOCKED)

    def within(self, seconds: float) -> OwnObjects:
        return _Within(self, seconds)

    def look_up(self, ark: str, seconds: float) -> OwnObject | None:
        """``get``, which waits at most so many seconds. With 0 it raises Busy where it would have to wait."""
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
                        log.error("%s: %s: %s", self._filename, ark, error.__cause__)
                    raise Unreadable(UNREADABLE) from None
            finally:
                self._lock.release()
            time.sleep(LOCKED_STEP)

    def _look_up(self, ark: str, until: float) -> OwnObject | None:
        """Look up while the connection is locked for others. Raises Busy if the file is locked or it takes too long."""
        began = time.monotonic()
        self._deadline.at = until
        try:
            select = f"SELECT {_FIELDS}, more FROM redirects WHERE ark = ?"  # noqa: S608 - constants
            found = self._connection.execute(select, (ark,)).fetchone()
            self._logged.forget("")
            return None if found is None else self._checked(_object(found))
        except _DAMAGED as error:
            if self._logged.is_new(ark, str(error)):
                log.error("%s: %s: %s", self._filename, ark, error)
            return None
        except sqlite3.Error as error:
            if _is_busy(error):
                raise Busy(UNREADABLE) from error
            if self._logged.is_new("", str(error)):
                log.error("%s: %s: %s", self._filename, ark, error)
            raise Unreadable(UNREADABLE) from None
        finally:
            self._deadline.at = math.inf
            now = time.monotonic()
            if now - began >= AT_ONCE:
                self._slow = CALM
            else:
                self._slow, self._fast_at = max(0, self._slow - 1), now

    def trouble(self) -> str:
        if reason := self._fault():
            now = time.monotonic()
            self._failing_since = since = now if self._failing_since is None else self._failing_since
            if now - since < LOCKED_LONG:
                return ""
        else:
            self._failing_since = None
        if not reason and self._logged.forget("trouble"):
            log.info("%s can be read again", self._filename)
        if self._logged.is_new("trouble", reason):
            log.error("%s: %s; ARKs that may be own objects get 503", self._filename, reason)
        return reason

    def _fault(self) -> str:
        """Return why the file cannot be read at this moment."""
        if not self._lock.acquire(timeout=LOCKED):
            return "does not answer: the disk is slow, or gone"
        try:
            self._connection.execute("SELECT 1 FROM redirects LIMIT 1").fetchone()
        except sqlite3.Error as error:
            if _is_busy(error):
                return "locked by another program, which fuser -v FILE names: end it"
            return str(error)
        finally:
            self._lock.release()
        return ""

    def _checked(self, one: OwnObject) -> OwnObject:
        """Return the object if a request may lead there: the file may have been edited. Raises ValueError."""
        if one.status not in (*REDIRECTING, GONE):
            raise ValueError(f"the status {one.status} is none of a redirect")
        if not one.is_gone:
            url.parse_allowed(one.url, allow_private=self._allow_private)
        return one

    def every(self) -> Iterator[OwnObject]:
        """Yield all objects in the order of their ARKs."""
        yield from map(_object, self.rows())

    def rows(self) -> Iterator[tuple[object, ...]]:
        """Yield the row of each object, which may be damaged."""
        yield from self._connection.execute(f"SELECT {_FIELDS}, more FROM redirects ORDER BY ark")  # noqa: S608

    def urls(self) -> Iterator[str]:
        yield from (str(where) for (where,) in self._connection.execute("SELECT url FROM redirects"))

    def sample(self, size: int) -> list[str]:
        """Return about so many ARKs, taken at random; all of a file that has no more. Others may look up meanwhile."""
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
                    found.append(row[0])
            time.sleep(SLICE / 4)  # a waiting thread would not get the lock otherwise

    def changes(self, old: Path) -> tuple[int, int, int]:
        """Count the ARKs that an older database of ours has not, those that only it has, and those whose rows differ.
        Raises ConfigError."""
        fields = ", ".join(f'{{0}}."{name}"' for name in (*COLUMNS, "more"))
        differ = f"({fields.format('new')}) IS NOT ({fields.format('old')})"
        both = f"SELECT count(*), sum({differ}) FROM main.redirects AS new JOIN old.redirects AS old USING (ark)"  # noqa: S608
        try:
            self._connection.execute("ATTACH ? AS old", (str(old),))
            shared, changed = self._connection.execute(both).fetchone()
            (before,) = self._connection.execute("SELECT count(*) FROM old.redirects").fetchone()
        except sqlite3.Error as error:
            raise _unreadable(old, error) from None
        return len(self) - shared, before - shared, changed or 0

    def __contains__(self, ark: str) -> bool:
        with self._lock:
            select = f"SELECT 1 FROM redirects WHERE ark = {_AS_STORED}"  # noqa: S608 - constants
            return self._connection.execute(select, (_stored(ark),)).fetchone() is not None

    def __del__(self) -> None:
        self._connection.close()  # the last request that uses it is over


class _Within(OwnObjects):
    """The objects of a store for one request, which waits for them for a limited time altogether."""

    def __init__(self, store: ObjectStore, seconds: float) -> None:
        self.naans, self.samples = store.naans, store.samples
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

    def unused_columns(self) -> list[str]:
        return self._store.unused_columns()


def _object(values: tuple[object, ...]) -> OwnObject:
    """Raises one of _DAMAGED."""
    *fields, suffix, more = values
    texts = ["" if value is None else str(value) for value in fields]
    ark, target, status, reason, who, what, when = texts
    try:
        kept = json.loads(str(more)) if more else {}
    except RecursionError:
        raise ValueError("its other columns nest too deeply") from None
    if not isinstance(kept, dict) or not all(isinstance(value, str) for value in kept.values()):
        raise ValueError("its other columns are damaged")
    if fault := _fault("".join(texts)):
        raise ValueError(fault)
    return OwnObject(ark, target, int(status or 0), reason, who, what, when, bool(suffix), more=kept)


def stored(path: Path, on_bad: OnBad, database: str = "", *, allow_private: bool = False) -> ObjectStore:
    """Return the objects of a file in a new database, by default a temporary one of SQLite. Raises ConfigError.

    A bad row, or a second one of an ARK, is passed to ``on_bad`` and left out.
    """
    rows = _rows(path)
    columns = next(rows).cells
    try:
        connection = sqlite3.connect(database, check_same_thread=False, isolation_level=None)
        store = ObjectStore(connection, str(path), allow_private=allow_private)
        connection.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {_SCHEMA}")
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO columns VALUES (?)", ((name,) for name in columns))
        count = 0
        for row in rows:
            try:
                _insert(connection, row, allow_private=allow_private)
            except ValueError as error:
                on_bad(RowError(str(error), filename=str(path), line=row.number))
                continue
            count += 1
            if count > MAX_REDIRECTS:
                raise ConfigError(f"more than {MAX_REDIRECTS} redirects", filename=str(path))
        connection.execute("COMMIT")
        store.prepare()
        return store
    except sqlite3.Error as error:
        where = database or "a temporary file ($SQLITE_TMPDIR, or else /var/tmp)"
        raise ConfigError(f"its rows cannot be stored in {where}: {error}", filename=str(path)) from None


def _insert(connection: sqlite3.Connection, row: Row, *, allow_private: bool) -> None:
    if row.fault:
        raise ValueError(row.fault)
    one = read_row(row.cells, allow_private=allow_private)
    more = json.dumps(one.more, ensure_ascii=False) if one.more else None
    if connection.execute(_INSERT, (*one[: len(COLUMNS)], more)).rowcount == 0:
        (first,) = connection.execute("SELECT url FROM redirects WHERE ark = ?", (one.ark,)).fetchone()
        raise ValueError(f"a second redirect of {one.ark}: the first one {f'leads to {first}' if first else 'is gone'}")


# ---- following the file


def follow(
    path: Path, *, allow_private: bool, clock: Callable[[], float], is_required: bool = True
) -> Followed[Redirects]:
    """Read the own objects of a file, which is read again when it changes. Raises ConfigError for the first reading;
    without ``is_required``, the objects are UnreadObjects until the file can be read."""

    logged = Repetitions()

    def load(last: Redirects) -> Redirects:
        is_first = last is UNREAD or not last.objects.is_read
        if is_first:
            log.info("reading %s", path)  # a start waits for it
        made = read(path, allow_private=allow_private)
        if logged.is_new(path, made.bad and (*map(str, made.bad), made.left_out)):
            for each in made.bad:
                log.error("%s; this row is left out", each)
            if made.left_out > NAMED:
                log.error("%s: %d rows are left out; maptr redirects check names all", path, made.left_out)
        if isinstance(made.objects, ObjectStore):
            made.objects.quiet_after = QUIET
        if not is_first:
            check_loss(last.objects, made.objects, path)
            log.info("%s read: %d redirects", path, len(made.objects))
        return made

    def keep(last: Redirects, error: MaptrError | OSError) -> Redirects:
        located = error if isinstance(error, ConfigError) else _unreadable(path, error)
        if last is UNREAD and is_required:
            raise located
        trouble = published(located)
        if last is UNREAD:
            last = Redirects(path.name, UnreadObjects())
        if trouble != last.trouble:
            stays = "the last good redirects stay" if last.objects.is_read else "ARKs that may be own objects get 503"
            log.error("%s; %s", located, stays)
        return replace(last, trouble=trouble)

    file = Followed(path, UNREAD, load, keep, clock=clock, passing=lambda error: isinstance(error, LockedFileError))
    file.refresh()
    return file


def read(path: Path, *, allow_private: bool = False) -> Redirects:
    """Return the own objects of a file, without its bad rows. Raises ConfigError."""
    bad: list[RowError] = []
    try:
        written = path.stat().st_mtime
        if _is_database(path):
            store = ObjectStore(_opened(path), str(path), allow_private=allow_private)
            if store.is_own:
                store.is_file = True
                store.prepare()
                return Redirects(path.name, store, written)
        store = stored(path, bad.append, allow_private=allow_private)
    except (OSError, sqlite3.Error) as error:
        raise _unreadable(path, error) from None
    return Redirects(path.name, store, written, len(bad), tuple(bad[:NAMED]))


def check_loss(old: OwnObjects, new: OwnObjects, path: Path) -> None:
    """Raise ConfigError if a file has lost more than REMOVAL_LIMIT of the ARKs that it had.

    Of a long file, only a sample is looked for, because a change shall be in use within a second. An old database that
    was damaged meanwhile cannot be compared, and the new one replaces it.
    """
    if not (isinstance(old, ObjectStore) and isinstance(new, ObjectStore)):
        return
    try:
        looked_for = old.sample(SAMPLED)
    except sqlite3.Error as error:
        log.warning("%s: the redirects until now cannot be compared with the new ones: %s", path, error)
        return
    try:
        lost = sum(ark not in new for ark in looked_for)
    except sqlite3.Error as error:
        raise _unreadable(path, error) from None
    if lost > len(looked_for) * REMOVAL_LIMIT:
        share = f"more than {REMOVAL_LIMIT:.0%} of {len(old)} redirects would be lost"
        raise ConfigError(share, filename=str(path))
