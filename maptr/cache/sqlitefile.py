"""A SQLite file shared by processes: opened when first used, and again when replaced. No fault of it costs an answer.

A file that is full, busy or gone gives nothing, and the log says so. A corrupt file is renamed, reported and built
anew, but only if it is a cache (it has our tables) or its path is maptr's own choice. ``disk`` defines the tables.

Before a fork every file of the process is locked and closed; parent and child open it again when they need it. SQLite
requires that (https://sqlite.org/howtocorrupt.html 2.6): a child inherits SQLite's mutexes as they are, and takes the
parent's file locks for its own, so that writes are lost when the parent closes the file.
"""

from __future__ import annotations

import fcntl
import logging
import os
import random
import sqlite3
import stat
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from maptr.errors import ConfigError
from maptr.files import ForkGuard

log = logging.getLogger("maptr.cache")

PAGE = 4096
BUSY_MS = 20  # what a caller may wait for another process's write; then it does without
OPENING = 1.0  # seconds that the first opening waits for other processes that open the file, or make its tables
OPENING_AGAIN = 0.2  # seconds for the later ones, of a file that was busy for all that time
OPENING_STEP = 0.02  # seconds between tries, at most
FIRST_PAUSE = 1.0  # seconds until a file that was busy then is opened again; doubled each time
LONGEST_PAUSE = 60.0
REPORT_EVERY = 60.0  # seconds in which the same trouble is told once

_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FORMAT}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}

_MAGIC = b"SQLite format 3\0"  # https://sqlite.org/fileformat.html 1.3
_COLUMNS = (
    "SELECT t.name, c.name FROM sqlite_master AS t, pragma_table_info(t.name) AS c"
    " WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'"
)
# The tables of every release, by columns that no release goes without.
_OURS = {"answer": {"view", "name", "outcome"}, "verdict": {"view", "record", "verdict"}, "probe": {"place", "at"}}
NOT_OURS = "holds something other than a maptr cache: left alone"

T = TypeVar("T")

_forks: ForkGuard[SqliteFile] = ForkGuard()


@dataclass(frozen=True, slots=True)
class Schema:
    """Tables, and their number in ``user_version``: another one belongs to another release and is left alone."""

    version: int
    statements: str


class SqliteFile:
    """The file at ``path``, for threads and across a fork.

    ``own``: the path is maptr's choice, so a damaged file there is replaced. Otherwise ConfigError is raised for a path
    that cannot be used and for a file that is not a maptr cache. ConfigError is raised for a directory in any case, and
    nothing else is ever raised. ``make_room`` deletes what can be missed from a file that has reached ``max_bytes``.
    ``clock`` is steady.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        *,
        max_bytes: int,
        make_room: Callable[[sqlite3.Connection], object],
        clock: Callable[[], float],
        own: bool = False,
    ) -> None:
        self.path: Path = Path(path)
        if os.path.isdir(path):  # noqa: PTH112 - False where nobody lets us look
            raise ConfigError("is a directory", filename=str(self.path))
        self._own = own
        self._known: tuple[int, int] | None = None if own else _check(self.path)
        self._schema = schema
        self._make_room = make_room
        self._max_pages = max(16, max_bytes // PAGE)
        self._lock = threading.RLock()  # reentrant, for a thread may fork in a signal handler
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._clock = clock
        self._pause = 0.0
        self._open_at = float("-inf")
        self._told: dict[str, float] = {}
        _forks.add(self)

    def run(self, operation: Callable[[sqlite3.Connection], T]) -> T | None:
        """The operation's result, None where the disk has none to give. Heals a corrupt file, once a call."""
        with self._lock:
            if self._connection is None and self._clock() < self._open_at:
                return None
            for attempt in (1, 2):
                try:
                    result = operation(self._open())
                except sqlite3.Error as error:
                    if not self._recover(error, attempt):
                        return None
                except OSError as error:
                    self._report(f"{error.strerror or error}")
                    return None
                else:
                    return result
        return None

    def close(self) -> None:
        with self._lock:
            self._close()

    def suspend(self) -> None:
        """Close the file, and let no thread but the caller's open it until ``resume``."""
        self._lock.acquire()
        self._close()

    def resume(self) -> None:
        self._lock.release()

    def __del__(self) -> None:
        # Nothing is lost in a file that was dropped, so nobody needs the warning that SQLite has from Python 3.13 on.
        connection: sqlite3.Connection | None = getattr(self, "_connection", None)
        if connection is not None:
            with _forks.lock:
                connection.close()

    def _recover(self, error: sqlite3.Error, attempt: int) -> bool:
        """Do what the error asks for; True if the operation is worth another try."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if attempt == 1 and code in _CORRUPT and not isinstance(error, _NotOursError):
            if self._own or (self._known is not None and self._known == _identify(self.path)):
                return self._set_aside(str(error))
            error = _NotOursError(NOT_OURS)
        if attempt == 1 and code == sqlite3.SQLITE_FULL and self._shrink():
            return True
        if code not in _BUSY:
            folder = self.path.parent
            lost = code == sqlite3.SQLITE_CANTOPEN and not os.path.lexists(folder)
            self._report(f"there is no folder {folder}" if lost else str(error))
            self._close()
        elif self._connection is None:  # held for longer than making the tables takes
            self._report(str(error))
            self._pause = min(LONGEST_PAUSE, 2 * self._pause or FIRST_PAUSE)
            self._open_at = self._clock() + self._pause
        return False

    def _shrink(self) -> bool:
        """Room in a file that has reached its limit; False where it is the disk that is full."""
        try:
            connection = self._open()
            if connection.execute("PRAGMA page_count").fetchone()[0] < self._max_pages * 0.9:
                return False
            self._make_room(connection)
        except (sqlite3.Error, OSError):
            return False
        return True

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            if self._identity == _identify(self.path):
                return self._connection
            self._close()
        patience = OPENING_AGAIN if self._pause else OPENING
        give_up = time.monotonic() + patience  # as SQLite's own waiting, by the real clock
        while True:
            try:
                connection = self._connect(patience)
                break
            except sqlite3.OperationalError as error:
                # SQLite does not wait for the lock that turns WAL on: two processes there would wait for each other.
                if error.sqlite_errorcode & 0xFF not in _BUSY or time.monotonic() >= give_up:
                    raise
            time.sleep(OPENING_STEP * random.random())
        self._connection = connection
        self._known = self._identity = _identify(self.path)
        self._pause = 0.0
        return connection

    def _connect(self, patience: float) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=patience, isolation_level=None, check_same_thread=False)
        try:
            version = _version(connection)
            if version not in (0, self._schema.version):
                raise _NotOursError(f"schema version {version}, this release has {self._schema.version}: left alone")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA max_page_count = {self._max_pages}")
            if version == 0:
                connection.execute("BEGIN IMMEDIATE")
                # Another process may have been first between the two looks.
                if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                    for statement in filter(str.strip, self._schema.statements.split(";")):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {self._schema.version}")
                connection.execute("COMMIT")
            connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_aside(self, why: str) -> bool:
        """Move a corrupt file out of the way, unless another process has done so already."""
        identity = self._identity
        self._close()
        try:
            with open(f"{self.path}.lock", "a") as guard:  # noqa: PTH123 - a link may lead to what is not ours to cut
                fcntl.flock(guard, fcntl.LOCK_EX)
                if identity is not None and identity != _identify(self.path):
                    return True
                aside = next(
                    candidate
                    for number in range(1, 1_000_000)
                    if not (candidate := Path(f"{self.path}.corrupt-{number}")).exists()
                )
                for suffix in ("-wal", "-shm", ""):
                    part = Path(f"{self.path}{suffix}")
                    if part.exists():
                        part.replace(f"{aside}{suffix}")
        except OSError as error:
            self._report(f"{why}; and it cannot be set aside: {error.strerror or error}")
            return False
        log.warning("%s: %s; set aside as %s and built anew", self.path, why, aside.name)
        return True

    def _report(self, trouble: str) -> None:
        """Say what is wrong, once in a while: a disk that is full still reads, and each write of it fails."""
        now = self._clock()
        if now >= self._told.get(trouble, float("-inf")) + REPORT_EVERY:
            self._told[trouble] = now
            log.warning("%s: %s; going on without the disk cache", self.path, trouble)

    def _close(self) -> None:
        connection, self._connection, self._identity = self._connection, None, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error as error:
                log.warning("%s: not closed cleanly: %s", self.path, error)


class _NotOursError(sqlite3.DatabaseError):
    """The file is another release's, or another program's."""


def _version(connection: sqlite3.Connection) -> int:
    """The version of the schema, 0 for a database without tables. Raises _NotOursError for one that is not a cache."""
    tables: dict[str, set[str]] = {}
    connection.execute("BEGIN")  # another process may be making the tables
    try:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        for table, column in connection.execute(_COLUMNS):
            tables.setdefault(table, set()).add(column)
    finally:
        connection.execute("ROLLBACK")
    ours = any(_OURS[name] <= columns for name, columns in tables.items() if name in _OURS)
    if ours is not bool(version) or bool(tables) is not bool(version):
        raise _NotOursError(NOT_OURS)
    return version


def _identify(path: Path) -> tuple[int, int] | None:
    """Which file is at the path; None where there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - on the way of every answer, and Path takes twice as long
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _check(path: Path) -> tuple[int, int] | None:
    """Which file is at the path, if it has our tables. Raises ConfigError where no cache can be. Changes nothing."""

    def refused(reason: str) -> ConfigError:
        return ConfigError(reason, filename=str(path))

    try:
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            if not path.parent.is_dir():
                raise refused(f"there is no folder {path.parent}") from None
            if not os.access(path.parent, os.W_OK | os.X_OK):
                raise refused(f"no file can be made in {path.parent}") from None
            return None
        if not stat.S_ISREG(mode):
            raise refused("is not a regular file")
        with path.open("r+b") as file:
            head = file.read(len(_MAGIC))
        if not head:
            return None
        if head != _MAGIC:
            raise refused(NOT_OURS)
        return _identify(path) if _look(path) else None
    except _NotOursError as error:
        raise refused(str(error)) from None
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in _BUSY:
            return None  # it is looked at again when it is opened
        raise refused(str(error)) from None
    except sqlite3.Error as error:
        raise refused(f"{NOT_OURS} ({error})") from None
    except OSError as error:
        raise refused(error.strerror or str(error)) from None


def _look(path: Path) -> int:
    """``_version`` of a file that may be another program's, without a change to it."""
    uri = f"file:{quote(os.fspath(path))}"
    with _forks.lock:
        try:
            with closing(sqlite3.connect(f"{uri}?immutable=1", uri=True)) as connection:
                return _version(connection)  # no journal is rolled back, and none is made
        except _NotOursError:
            raise
        except sqlite3.Error:  # another process may be writing, and such a reader takes no lock
            with closing(sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=OPENING)) as connection:
                return _version(connection)
