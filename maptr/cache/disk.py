"""The SQLite file of a cache, shared by the processes of a machine: cached answers, drift verdicts and probes.

A fault of the file never costs an answer. A file that is full, busy, read-only or gone gives nothing, which is logged.
A corrupt file is renamed, reported and rebuilt, but only if it is a cache (``_is_ours``) or at maptr's default path.

Before a fork every file of the process is locked and closed; parent and child open it again when they need it. SQLite
requires that (https://sqlite.org/howtocorrupt.html 2.6): a child inherits SQLite's mutexes as they are, and takes the
parent's file locks for its own, so that writes are lost when the parent closes the file.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import sqlite3
import stat
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from maptr.discovery import SECURITY, Outcome
from maptr.errors import ConfigError
from maptr.files import ForkLock, sqlite_errors
from maptr.naptr.record import Naptr
from maptr.protocol import names
from maptr.walk import Answer

log = logging.getLogger("maptr.cache")

VERSION = 1  # of the schema, in user_version; a file with another version belongs to another release
MAX_BYTES = 256 << 20  # of the file; beyond that, the answers that expire first are deleted
PRUNE_EVERY = 1_000  # writes
USELESS_AFTER = 259_200.0  # seconds past expiration; RFC 8767 section 5: stale for one to three days at most

PAGE = 4096
BUSY_MS = 20  # to wait for another process's write; then the caller goes without the file
BUSY_HISTORY_MS = 5_000  # the same for a verdict or a probe, which unlike an answer cannot be fetched again
AT_ONCE = 0.005  # seconds that an operation may take in an event loop; after a longer one the file is not used for REST
REST = 1.0
MAX_PENDING = 1_000  # writes that wait for their thread; more are left out
OPENING = 1.0  # seconds that opening waits for other processes that open the file or make its tables
OPENING_STEP = 0.02  # seconds between tries, at most
PAUSE = 30.0  # seconds until a file that was busy for all of that time is opened again
REPORT_EVERY = 60.0  # seconds in which the same trouble is logged once

APPLICATION_ID = 0x6D617074  # "mapt": what file(1), ``_version`` and ``_is_ours`` read in the header of the file
NOT_OURS = "holds something other than a maptr cache: left alone"

_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FORMAT}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_SCHEMA = """
CREATE TABLE answer (
    view TEXT, name BLOB, outcome TEXT, records BLOB, note TEXT, server TEXT, security TEXT, fetched REAL, expires REAL,
    PRIMARY KEY (view, name)
) WITHOUT ROWID;
CREATE INDEX answer_expires ON answer (expires);
CREATE TABLE verdict (
    id INTEGER PRIMARY KEY, view TEXT, record TEXT, at REAL, verdict TEXT, reason TEXT, in_table TEXT, in_dns TEXT
);
CREATE INDEX verdict_record ON verdict (view, record);
"""
_STATEMENTS = [statement.strip() for statement in _SCHEMA.split(";") if statement.strip()]

# The header of a database (https://sqlite.org/fileformat2.html 1.3). The schema follows in the same page, as text.
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_NOT_TEXT = frozenset({*range(9), 0xFF})  # bytes that no text has

T = TypeVar("T")
Write = Callable[[sqlite3.Connection], object]


class _ForeignError(sqlite3.DatabaseError):
    """A database whose tables are not a cache's."""


class _ForkGuard:
    """Suspends the open files before the process forks, and resumes them afterwards in parent and child.

    A fork also waits for ``lock``. A thread that holds it must not wait for anything else.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()  # reentrant like ``_fork``, because a thread may fork in a signal handler
        self._fork = threading.RLock()  # one fork at a time
        self._all: weakref.WeakSet[Disk] = weakref.WeakSet()
        self._suspended: list[Disk] = []
        if hasattr(os, "register_at_fork"):  # Windows has no fork
            os.register_at_fork(before=self._before, after_in_parent=self._after, after_in_child=self._after)

    def add(self, one: Disk) -> None:
        with self.lock:
            self._all.add(one)

    def _before(self) -> None:
        self._fork.acquire()
        while True:
            self.lock.acquire()
            waiting = [one for one in self._all if one not in self._suspended]
            if not waiting:
                return
            self.lock.release()  # a thread that uses one of the objects may need it
            for one in waiting:
                one.suspend()
                self._suspended.append(one)

    def _after(self) -> None:
        while self._suspended:
            self._suspended.pop().resume()
        self.lock.release()
        self._fork.release()


_forks = _ForkGuard()


class Disk:
    """The cache file at ``path``. Thread-safe, and safe across a fork.

    ``own``: the path is maptr's default, so any damaged file there is replaced. Otherwise a path that the user may not
    use or a file that is certainly not a maptr cache raises ConfigError; a damaged cache is replaced, and read-only
    media or a file that cannot be identified only cause a warning. A directory raises ConfigError in any case. The
    methods do not raise. In a thread with a running event loop they never wait: they return nothing while the file is
    busy or slow, and a thread writes.
    ``wall`` is the wall clock, which dates the entries; ``clock`` is monotonic.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        wall: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        own: bool = False,
    ) -> None:
        self.path: Path = Path(path)
        if os.path.isdir(path):  # noqa: PTH112 - False if permissions are missing
            raise ConfigError("is a directory", filename=str(self.path))
        self._own = own
        self._known: tuple[int, int] | None = None  # the file that was last opened
        self._lock = threading.RLock()  # reentrant, because a thread may fork in a signal handler
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self.wall = wall
        self._clock = clock
        self._open_at = float("-inf")
        self._reported: dict[str, float] = {}
        self._writes = 0
        self._busy_ms = BUSY_MS  # of the connection
        self._rest_until = float("-inf")
        self._pending: deque[Write] = deque()
        self._pending_lock = ForkLock()
        self._writer: threading.Thread | None = None
        _forks.add(self)
        if not own:
            self._check()

    def __repr__(self) -> str:
        return f"<disk {str(self.path)!r}>"

    def run(self, operation: Callable[[sqlite3.Connection], T]) -> T | None:
        """Return an operation's result; None if the file cannot be used. Rebuilds a corrupt file, once per call."""
        if not _is_event_loop():
            return self.run_waiting(operation)
        if self._clock() < self._rest_until or self._writer is not None:  # what is to be dropped must not be found
            return None
        began = time.monotonic()
        try:
            if not self._lock.acquire(timeout=AT_ONCE):
                return None
            try:
                return self._run(operation, 0)
            finally:
                self._lock.release()
        finally:
            if time.monotonic() - began >= AT_ONCE:
                self._rest_until = self._clock() + REST

    def run_waiting(self, operation: Callable[[sqlite3.Connection], T]) -> T | None:
        """``run``, but waiting even in a thread with an event loop: the caller has chosen to wait."""
        with self._lock:
            return self._run(operation, BUSY_MS)

    def _run(self, operation: Callable[[sqlite3.Connection], T], busy_ms: int) -> T | None:
        """``run``, which waits ``busy_ms`` milliseconds for another process."""
        if self._connection is None and self._clock() < self._open_at:
            return None
        for attempt in (1, 2):
            try:
                with sqlite_errors():
                    connection = self._open(may_wait=busy_ms > 0)
                    self._set_busy(connection, busy_ms)
                    return operation(connection)
            except sqlite3.Error as error:
                if not self._recover(error, attempt, may_wait=busy_ms > 0):
                    return None
            except OSError as error:
                self._report(f"{error.strerror or error}")
                return None
        return None

    def _set_busy(self, connection: sqlite3.Connection, milliseconds: int) -> None:
        if self._busy_ms != milliseconds:
            connection.execute(f"PRAGMA busy_timeout = {milliseconds}")
            self._busy_ms = milliseconds

    def _write(self, write: Write) -> None:
        """Run an operation that changes the file; from an event loop in a thread, because the disk may be slow."""
        if not _is_event_loop():
            self.run(write)
            return
        with self._pending_lock:
            if len(self._pending) < MAX_PENDING:
                self._pending.append(write)
            if self._writer is None or not self._writer.is_alive():
                self._writer = threading.Thread(target=self._write_pending, name="maptr-cache", daemon=True)
                try:
                    self._writer.start()
                except RuntimeError:  # no thread can start now; the next write tries again
                    self._writer = None

    def _write_pending(self) -> None:
        while True:
            with self._lock:  # so that ``close`` finds each write either pending or made
                with self._pending_lock:
                    if not self._pending:
                        self._writer = None
                        return
                    write = self._pending.popleft()
                self._run(write, BUSY_MS)

    def transaction(self, write: Callable[[sqlite3.Connection], None]) -> bool:
        """Call ``write`` in one transaction, after that of another process. False if the file cannot be written."""

        def operation(connection: sqlite3.Connection) -> bool:
            self._set_busy(connection, BUSY_HISTORY_MS)
            connection.execute("BEGIN IMMEDIATE")
            with connection:  # ends the transaction
                write(connection)
            return True

        return self.run_waiting(operation) is True

    def close(self) -> None:
        """Write what a thread has not written yet, and close the file."""
        with self._lock:
            while self._pending:
                with self._pending_lock:
                    write = self._pending.popleft() if self._pending else None
                if write is not None:
                    self._run(write, BUSY_MS)
            self._close()

    def suspend(self) -> None:
        """Close the file, and keep other threads from opening it until ``resume``."""
        self._lock.acquire()
        self._close()

    def resume(self) -> None:
        self._lock.release()

    def __del__(self) -> None:
        # Python 3.13 warns of a connection that was not closed.
        connection: sqlite3.Connection | None = getattr(self, "_connection", None)
        if connection is not None:
            with _forks.lock:
                connection.close()

    def can_write(self) -> bool:
        """Return whether the file can be written now; if not, the log says why."""
        return self.transaction(lambda connection: None)

    def get(self, view: str, name: names.Labels) -> tuple[Answer, float, float] | None:
        """Return the cached answer for a name, when it was fetched, and when it expires; None if there is none."""
        query = "SELECT * FROM answer WHERE view = ? AND name = ?"
        key = (view, names.to_wire(name))
        row = self.run(lambda connection: connection.execute(query, key).fetchone())
        if row is None:
            return None
        try:
            _, _, outcome, records, note, server, security, fetched, expires = row
            if security not in SECURITY or not (isinstance(note, str) and isinstance(server, str)):
                raise ValueError("its text is damaged")
            answer = Answer(Outcome[outcome], _unpack(records), None, note, server, security=security)
            return answer, float(fetched), float(expires)
        except (KeyError, TypeError, ValueError) as error:
            log.warning("%s: cannot read the cached answer for %s: %s", self.path, names.to_text(name), error)
            self.drop(view, name)
            return None

    def put(self, view: str, name: names.Labels, answer: Answer, fetched: float, expires: float) -> None:
        """Store an answer. The times are wall-clock times."""
        records = _pack(answer.records)
        said = (answer.outcome.name, records, answer.note, answer.server, answer.security)
        row = (view, names.to_wire(name), *said, fetched, expires)

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO answer VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            self._writes += 1
            if self._writes % PRUNE_EVERY == 0:
                connection.execute("DELETE FROM answer WHERE expires < ?", (self.wall() - USELESS_AFTER,))

        self._write(write)

    def drop(self, view: str, name: names.Labels) -> None:
        key = (view, names.to_wire(name))
        self._write(lambda connection: connection.execute("DELETE FROM answer WHERE view = ? AND name = ?", key))

    def clear(self, view: str) -> None:
        self._write(lambda connection: connection.execute("DELETE FROM answer WHERE view = ?", (view,)))

    def _recover(self, error: sqlite3.Error, attempt: int, *, may_wait: bool) -> bool:
        """Handle an error. True if the operation is worth another try."""
        code = _code(error)
        if attempt == 1 and (code in _CORRUPT or isinstance(error, _ForeignError)):
            known = self._own or (self._known is not None and self._known == _identify(self.path))
            if (known and code in _CORRUPT) or _is_ours(self.path):
                return self._set_aside(str(error))
            error = _ForeignError(NOT_OURS)
        if attempt == 1 and code == sqlite3.SQLITE_FULL and self._make_room():
            return True
        if code not in _BUSY:
            folder = self.path.parent
            lost = code == sqlite3.SQLITE_CANTOPEN and not os.path.lexists(folder)
            self._report(f"there is no folder {folder}" if lost else str(error))
            self._close()
        elif (
            self._connection is None and may_wait
        ):  # another process holds the file for longer than it takes to make the tables
            self._report(str(error))
            self._open_at = self._clock() + PAUSE
        return False

    def _check(self) -> None:
        """Raise ConfigError if the path cannot be used, or if there is a file that is not a cache."""
        folder, reason = self.path.parent, ""
        try:
            status = self.path.stat()
            if not stat.S_ISREG(status.st_mode):
                reason = "is not a regular file"
            elif not (os.access(self.path, os.R_OK) and _may_write(self.path, os.W_OK)):
                reason = os.strerror(errno.EACCES)
            elif (ours := _is_ours(self.path)) is False or (not ours and self._is_foreign()):
                reason = NOT_OURS
        except FileNotFoundError:
            if not folder.is_dir():
                reason = f"there is no folder {folder}"
            elif not _may_write(folder, os.W_OK | os.X_OK):
                reason = f"no file can be made in {folder}"
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            raise ConfigError(reason, filename=str(self.path))

    def _is_foreign(self) -> bool:
        """Return whether the file is a database that can be read and is not a cache."""
        with self._lock:
            try:
                with sqlite_errors():
                    self._open()
            except sqlite3.Error as error:
                return isinstance(error, _ForeignError)
        return False

    def _make_room(self) -> bool:
        """Delete the quarter of the answers that expires first. False if the disk is full, not the file."""
        try:
            connection = self._open()
            if connection.execute("PRAGMA page_count").fetchone()[0] < MAX_BYTES // PAGE * 0.9:
                return False
            count = connection.execute("SELECT count(*) FROM answer").fetchone()[0]
            connection.execute(
                "DELETE FROM answer WHERE expires <= (SELECT expires FROM answer ORDER BY expires LIMIT 1 OFFSET ?)",
                (count // 4,),
            )
        except (sqlite3.Error, OSError):
            return False
        return True

    def _open(self, *, may_wait: bool = True) -> sqlite3.Connection:
        if self._connection is not None:
            if self._identity == _identify(self.path):
                return self._connection
            self._close()
        self._identity = _identify(self.path)
        deadline = time.monotonic() + OPENING  # by the real clock, like SQLite's own waiting
        while True:
            try:
                connection = self._connect(BUSY_MS if may_wait else 0)
                break
            except sqlite3.OperationalError as error:
                # SQLite does not wait for the lock that turns WAL on, because two processes would wait for each other.
                if not may_wait or _code(error) not in _BUSY or time.monotonic() >= deadline:
                    raise
            time.sleep(OPENING_STEP * random.random())
        self._connection = connection
        self._known = self._identity = _identify(self.path)
        return connection

    def _connect(self, busy_ms: int) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=busy_ms / 1000, isolation_level=None, check_same_thread=False)
        self._busy_ms = busy_ms
        try:
            version = _version(connection)
            if version not in (0, VERSION):
                raise sqlite3.NotSupportedError(f"schema version {version}, this release has {VERSION}: left alone")
            connection.execute("PRAGMA synchronous = NORMAL")
            if version == 0:  # before WAL, so that the file itself has it from the start
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA max_page_count = {MAX_BYTES // PAGE}")
            if version == 0:
                connection.execute("BEGIN IMMEDIATE")
                # Another process may have made the tables since ``_version`` looked.
                if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                    for statement in _STATEMENTS:
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {VERSION}")
                connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_aside(self, why: str) -> bool:
        """Rename a corrupt file, unless another process has done so already. An earlier corrupt file is replaced."""
        identity, aside = self._identity, Path(f"{self.path}.corrupt")
        self._close()
        try:
            if identity is not None and identity != _identify(self.path):
                return True
            for suffix in ("-wal", "-shm", ""):
                part = Path(f"{self.path}{suffix}")
                if part.exists():
                    part.replace(f"{aside}{suffix}")
        except OSError as error:
            self._report(f"{why}; it cannot be set aside: {error.strerror or error}")
            return False
        log.warning("%s: %s; set aside as %s and rebuilt", self.path, why, aside.name)
        return True

    def _report(self, trouble: str) -> None:
        """Log a problem, the same one once per REPORT_EVERY: while the disk is full, every write fails."""
        now = self._clock()
        if now >= self._reported.get(trouble, float("-inf")) + REPORT_EVERY:
            self._reported[trouble] = now
            log.warning("%s: %s; going on without the disk cache", self.path, trouble)

    def _close(self) -> None:
        connection, self._connection, self._identity = self._connection, None, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error as error:
                log.warning("%s: not closed cleanly: %s", self.path, error)


def _is_event_loop() -> bool:
    """Return whether an event loop of asyncio runs in this thread, which must not be held up."""
    asyncio = sys.modules.get("asyncio")  # not imported, which would double a program's start time
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _version(connection: sqlite3.Connection) -> int:
    """Return the version of the schema, 0 for a new database. Raises _ForeignError if it is not a cache."""
    connection.execute("BEGIN")  # another process may be making the tables
    try:
        ident, version, tables = connection.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
            " FROM pragma_application_id, pragma_user_version"
        ).fetchone()
    finally:
        connection.execute("ROLLBACK")
    if ident != APPLICATION_ID and (ident or version or tables):
        raise _ForeignError(NOT_OURS)
    return int(version)


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; 0 for errors of ours, CORRUPT for Python's about text that is not UTF-8."""
    damaged = isinstance(error, sqlite3.OperationalError)
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT if damaged else 0)
    return code & 0xFF


def _is_ours(path: Path) -> bool | None:
    """Return whether the file is a cache, whole or damaged; None if its content does not tell, False if it is text.

    A file of zeros or a part of a database's header holds nothing of any program, and counts as ours.
    """
    try:
        with path.open("rb") as file:
            start = file.read(PAGE)
            if not start.strip(b"\0"):
                rest = iter(lambda: file.read(1 << 20), b"")
                return None if any(block.strip(b"\0") for block in rest) else True
    except OSError:
        return None
    is_database = start.startswith(_MAGIC[: len(start)])
    if is_database and (len(start) < _HEADER_BYTES or start[68:72] == APPLICATION_ID.to_bytes(4, "big")):
        return True
    if not set(start) & _NOT_TEXT:
        return False
    return True if any(statement.encode() in start for statement in _STATEMENTS) else None


def _may_write(path: Path, mode: int) -> bool:
    """Return whether the user's permissions allow writing; read-only media do not count against it."""
    return os.access(path, mode) or (hasattr(os, "statvfs") and bool(os.statvfs(path).f_flag & os.ST_RDONLY))


def _identify(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file; None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - for every answer from disk, and Path is slower
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _pack(records: Iterable[Naptr]) -> bytes:
    return b"".join(len(wire := record.to_wire()).to_bytes(2, "big") + wire for record in records)


def _unpack(packed: bytes) -> tuple[Naptr, ...]:
    records = []
    at = 0
    while at < len(packed):
        start = at + 2
        at = start + int.from_bytes(packed[at:start], "big")
        if at > len(packed):
            raise ValueError("records cut short")
        records.append(Naptr.from_wire(packed[start:at]))
    return tuple(records)
