"""A SQLite file that processes share and that costs no answer: opened when first used, again when it was replaced.

A file that is full, busy or gone gives nothing, and that is reported to the log; one that is corrupt is set aside
beside its path, reported, and built anew. What its tables hold is the business of ``disk``.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from maptr.cache.forklock import ForkLock
from maptr.errors import ConfigError

log = logging.getLogger("maptr.cache")

PAGE = 4096
BUSY_MS = 20  # what a caller may wait for another process's write; then it does without
BUSY_OPENING_MS = 500  # the same for the making of the tables
FIRST_PAUSE = 1.0  # seconds until a file that was busy then is opened again; doubled each time
LONGEST_PAUSE = 60.0
REPORT_EVERY = 60.0  # seconds in which the same trouble is told once

_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FORMAT}

# Of a schema that holds something, and nothing that any release makes.
_STRANGE = (
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM sqlite_master)"
    " AND NOT EXISTS (SELECT 1 FROM sqlite_master WHERE name IN ('answer', 'verdict', 'probe'))"
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Schema:
    """Tables, and their number in ``user_version``: another one belongs to another release and is left alone."""

    version: int
    statements: str


class SqliteFile:
    """The file at ``path``. For threads, and across a fork. Raises ConfigError for a directory, and nothing else.

    ``make_room`` deletes what can be missed from a file that has reached ``max_bytes``. ``clock`` is steady.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        *,
        max_bytes: int,
        make_room: Callable[[sqlite3.Connection], object],
        clock: Callable[[], float],
    ) -> None:
        self.path: Path = Path(path)
        if os.path.isdir(path):  # noqa: PTH112 - False where nobody lets us look
            raise ConfigError(f"{self.path} is a directory", key="cache.path")
        self._schema = schema
        self._make_room = make_room
        self._max_pages = max(16, max_bytes // PAGE)
        self._lock = ForkLock()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int, int] | None = None
        self._clock = clock
        self._pause = 0.0
        self._open_at = float("-inf")
        self._told: dict[str, float] = {}
        self._inherited: list[sqlite3.Connection] = []

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

    def __del__(self) -> None:
        # Nothing is lost in a file that was dropped, so nobody needs the warning that SQLite has from Python 3.13 on.
        connection: sqlite3.Connection | None = getattr(self, "_connection", None)
        if connection is not None:
            connection.close()

    def _recover(self, error: sqlite3.Error, attempt: int) -> bool:
        """Do what the error asks for; True if the operation is worth another try."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if attempt == 1 and code in _CORRUPT and not isinstance(error, _NotOursError):
            return self._set_aside(str(error))
        if attempt == 1 and code == sqlite3.SQLITE_FULL and self._shrink():
            return True
        if code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            folder = self.path.parent
            lost = code == sqlite3.SQLITE_CANTOPEN and not os.path.lexists(folder)
            self._report(f"there is no folder {folder}" if lost else str(error))
            self._close()
        elif self._connection is None:  # whoever holds it holds it for longer than the making of tables takes
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
            if self._identity == self._identify():
                return self._connection
            if self._identity is not None and self._identity[0] != os.getpid():
                # Closing here what the parent opened would drop the parent's locks (SQLite's "How To Corrupt", 2.6).
                self._inherited.append(self._connection)
                self._connection = None
            self._close()
        connection = sqlite3.connect(
            self.path, timeout=BUSY_OPENING_MS / 1000, isolation_level=None, check_same_thread=False
        )
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, self._schema.version):
                raise _NotOursError(
                    f"schema version {version}, this release has {self._schema.version}: used without a disk cache"
                )
            if connection.execute(_STRANGE).fetchone() is not None:
                raise _NotOursError("a database of something else: left alone, and used without a disk cache")
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
        self._connection, self._identity = connection, self._identify()
        self._pause = 0.0
        return connection

    def _identify(self) -> tuple[int, int, int] | None:
        """Which file is at the path, and whose connection this is; None where there is no file."""
        try:
            status = os.stat(self.path)  # noqa: PTH116 - on the way of every answer, and Path takes twice as long
        except OSError:
            return None
        return os.getpid(), status.st_dev, status.st_ino

    def _set_aside(self, why: str) -> bool:
        """Move a corrupt file out of the way, unless another process has done so already."""
        identity = self._identity
        self._close()
        try:
            with open(f"{self.path}.lock", "a") as guard:  # noqa: PTH123 - a link may lead to what is not ours to cut
                fcntl.flock(guard, fcntl.LOCK_EX)
                if identity is not None and identity != self._identify():
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
