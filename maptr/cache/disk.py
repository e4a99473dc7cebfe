"""The cache on disk: answers and the history of verdicts in one SQLite file, shared by the processes of a machine.

A disk that is full, busy or gone costs what would have been kept, never an answer: nothing but ``close`` and the
constructor's ConfigError is ever raised. A file that is corrupt is set aside beside its path, reported, and
built anew.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from maptr import names
from maptr.discovery import Outcome
from maptr.drift import NO_HISTORY, Drift, History
from maptr.errors import ConfigError
from maptr.naptr import Naptr
from maptr.walk import Answer

log = logging.getLogger("maptr.cache")

VERSION = 1  # of the schema, in user_version; another one belongs to another release and is left alone
BUSY_MS = 20  # what a caller may wait for another process's write; then it does without
BUSY_HISTORY_MS = 5_000  # verdicts are no cache: worth a wait
MAX_BYTES = 256 << 20  # of the file; past it the answers that expire first go
PAGE = 4096
PRUNE_EVERY = 1_000  # writes
USELESS_AFTER = 259_200.0  # seconds past expiration; RFC 8767 section 5: stale for one to three days at most
MAX_STATES = 50  # of one record in the history

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

_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FORMAT}

T = TypeVar("T")


class Disk:
    """The file at ``path``, opened when first used and again when it was replaced. For threads, and across a fork.

    ``wall`` is the wall clock in seconds: nothing else lasts from one process to the next.
    """

    def __init__(self, path: str | os.PathLike[str], *, wall: Callable[[], float], max_bytes: int = MAX_BYTES) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise ConfigError(f"{self.path} is a directory", key="cache.path")
        self._wall = wall
        self._max_pages = max(16, max_bytes // PAGE)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int, int] | None = None
        self._trouble = ""
        self._writes = 0
        self._inherited: list[sqlite3.Connection] = []

    # ---- answers

    def get(self, view: str, name: names.Labels) -> tuple[Answer, float, float] | None:
        """What is kept for a name, fresh or not: the answer, when it was fetched, when it expires; None if nothing."""
        query = (
            "SELECT outcome, records, note, server, security, fetched, expires FROM answer WHERE view = ? AND name = ?"
        )
        key = (view, names.to_wire(name))
        row = self._run(lambda connection: connection.execute(query, key).fetchone())
        if row is None:
            return None
        try:
            outcome, records, note, server, security, fetched, expires = row
            answer = Answer(Outcome[outcome], _unpack(records), None, note, server, security=security)
            return answer, float(fetched), float(expires)
        except (KeyError, TypeError, ValueError) as error:
            log.warning("%s: the answer kept for %s cannot be read: %s", self.path, names.to_text(name), error)
            self.drop(view, name)
            return None

    def put(self, view: str, name: names.Labels, answer: Answer, fetched: float, expires: float) -> None:
        row = (
            view,
            names.to_wire(name),
            answer.outcome.name,
            _pack(answer.records),
            answer.note,
            answer.server,
            answer.security,
            fetched,
            expires,
        )

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO answer VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            self._writes += 1
            if self._writes % PRUNE_EVERY == 0:
                connection.execute("DELETE FROM answer WHERE expires < ?", (self._wall() - USELESS_AFTER,))

        self._run(write)

    def drop(self, view: str, name: names.Labels) -> None:
        key = (view, names.to_wire(name))
        self._run(lambda connection: connection.execute("DELETE FROM answer WHERE view = ? AND name = ?", key))

    # ---- the history of verdicts

    def record(self, view: str, verdicts: Iterable[Drift]) -> bool:
        """Keep each verdict that differs from the last one of its record; False if that could not be done."""
        now = self._wall()
        verdicts = list(verdicts)

        def write(connection: sqlite3.Connection) -> bool:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_HISTORY_MS}")
            try:
                connection.execute("BEGIN IMMEDIATE")
                for drift in verdicts:
                    state = (str(drift.verdict), json.dumps(drift.table), json.dumps(drift.dns))
                    last = connection.execute(
                        "SELECT verdict, in_table, in_dns FROM verdict WHERE view = ? AND record = ?"
                        " ORDER BY id DESC LIMIT 1",
                        (view, drift.record),
                    ).fetchone()
                    if last != state:
                        connection.execute(
                            "INSERT INTO verdict (view, record, at, verdict, reason, in_table, in_dns)"
                            " VALUES (?, ?, ?, ?, ?, ?, ?)",
                            (view, drift.record, now, state[0], drift.reason, *state[1:]),
                        )
                        connection.execute(
                            "DELETE FROM verdict WHERE view = ?1 AND record = ?2 AND id NOT IN (SELECT id FROM verdict"
                            " WHERE view = ?1 AND record = ?2 ORDER BY id DESC LIMIT ?3)",
                            (view, drift.record, MAX_STATES),
                        )
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            return True

        return self._run(write) is True

    def histories(self, view: str) -> dict[str, History]:
        """The states of every record that has a history, the latest first."""
        query = "SELECT record, in_table, in_dns FROM verdict WHERE view = ? ORDER BY id DESC"
        states: dict[str, tuple[list[tuple[str, ...]], list[tuple[str, ...]]]] = {}
        for record, in_table, in_dns in self._run(lambda c: c.execute(query, (view,)).fetchall()) or ():
            table, dns = states.setdefault(record, ([], []))
            table.append(tuple(json.loads(in_table)))
            dns.append(tuple(json.loads(in_dns)))
        return {record: History(table, dns) for record, (table, dns) in states.items()}

    def verdicts(self, view: str, record: str) -> list[tuple[float, str, str]]:
        """When, verdict and reason, of each change in a record's verdict, the latest first."""
        query = "SELECT at, verdict, reason FROM verdict WHERE view = ? AND record = ? ORDER BY id DESC"
        return self._run(lambda connection: connection.execute(query, (view, record)).fetchall()) or []

    def history(self, view: str, record: str) -> History:
        return self.histories(view).get(record, NO_HISTORY)

    def run(self, operation: Callable[[sqlite3.Connection], T]) -> T | None:
        """An operation on what else is kept in the file; None where the disk has nothing to give."""
        return self._run(operation)

    def close(self) -> None:
        with self._lock:
            self._close()

    # ---- the file, and what can be wrong with it

    def _run(self, operation: Callable[[sqlite3.Connection], T]) -> T | None:
        """The operation's result, None where the disk has none to give. Heals a corrupt file, once a call."""
        with self._lock:
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
                    self._trouble = ""
                    return result
        return None

    def _recover(self, error: sqlite3.Error, attempt: int) -> bool:
        """Do what the error asks for; True if the operation is worth another try."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if attempt == 1 and code in _CORRUPT and not isinstance(error, _OtherVersionError):
            return self._set_aside(str(error))
        if attempt == 1 and code == sqlite3.SQLITE_FULL and self._shrink():
            return True
        if code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            self._report(str(error))
            self._close()
        return False

    def _shrink(self) -> bool:
        """Room in a file that has reached its limit; False where it is the disk that is full."""
        try:
            connection = self._open()
            if connection.execute("PRAGMA page_count").fetchone()[0] < self._max_pages * 0.9:
                return False
            count = connection.execute("SELECT count(*) FROM answer").fetchone()[0]
            connection.execute(
                "DELETE FROM answer WHERE expires <= (SELECT expires FROM answer ORDER BY expires LIMIT 1 OFFSET ?)",
                (count // 4,),
            )
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
            self.path, timeout=BUSY_HISTORY_MS / 1000, isolation_level=None, check_same_thread=False
        )
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, VERSION):
                raise _OtherVersionError(
                    f"schema version {version}, this release has {VERSION}: used without a disk cache"
                )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA max_page_count = {self._max_pages}")
            if version == 0:
                connection.execute("BEGIN IMMEDIATE")
                # Another process may have been first between the two looks.
                if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                    for statement in filter(str.strip, _SCHEMA.split(";")):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {VERSION}")
                connection.execute("COMMIT")
            connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        except BaseException:
            connection.close()
            raise
        self._connection, self._identity = connection, self._identify()
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
            with open(f"{self.path}.lock", "w") as guard:  # noqa: PTH123
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
        """Say what is wrong, once until it is something else."""
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("%s: %s; going on without the disk cache", self.path, trouble)

    def _close(self) -> None:
        connection, self._connection, self._identity = self._connection, None, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error as error:
                log.warning("%s: not closed cleanly: %s", self.path, error)


class _OtherVersionError(sqlite3.DatabaseError):
    """The file is another release's."""


def _pack(records: Iterable[Naptr]) -> bytes:
    wires = [record.to_wire() for record in records]
    return b"".join(len(wire).to_bytes(2, "big") + wire for wire in wires)


def _unpack(octets: bytes) -> tuple[Naptr, ...]:
    records = []
    at = 0
    while at < len(octets):
        length = int.from_bytes(octets[at : at + 2], "big")
        if at + 2 + length > len(octets):
            raise ValueError("records cut short")
        records.append(Naptr.from_wire(octets[at + 2 : at + 2 + length]))
        at += 2 + length
    return tuple(records)
