"""The cache on disk: answers and the history of verdicts in one SQLite file, shared by the processes of a machine.

A disk that is full, busy or gone costs what would have been kept, never an answer: nothing but the constructor's
ConfigError is ever raised. A corrupt cache is renamed, reported and built anew; see ``sqlitefile``.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from maptr.cache.sqlitefile import BUSY_MS, Schema, SqliteFile
from maptr.discovery import SECURITY, Outcome
from maptr.naptr.record import Naptr
from maptr.protocol import names
from maptr.walk import Answer

if TYPE_CHECKING:
    from maptr.cache.drift import Drift, History

log = logging.getLogger("maptr.cache")

VERSION = 1  # of the schema, in user_version; another one belongs to another release and is left alone
BUSY_HISTORY_MS = 5_000  # verdicts are no cache: worth a wait
MAX_BYTES = 256 << 20  # of the file; past it the answers that expire first go
PRUNE_EVERY = 1_000  # writes
USELESS_AFTER = 259_200.0  # seconds past expiration; RFC 8767 section 5: stale for one to three days at most
MAX_STATES = 50  # of one record in the history

_SCHEMA = Schema(
    VERSION,
    """
CREATE TABLE answer (
    view TEXT, name BLOB, outcome TEXT, records BLOB, note TEXT, server TEXT, security TEXT, fetched REAL, expires REAL,
    PRIMARY KEY (view, name)
) WITHOUT ROWID;
CREATE INDEX answer_expires ON answer (expires);
CREATE TABLE verdict (
    id INTEGER PRIMARY KEY, view TEXT, record TEXT, at REAL, verdict TEXT, reason TEXT, in_table TEXT, in_dns TEXT
);
CREATE INDEX verdict_record ON verdict (view, record);
""",
)

T = TypeVar("T")


class Disk:
    """The cache in the file at ``path``, for threads and across a fork.

    Raises ConfigError for a path that cannot be used and for a file that is not a maptr cache; with ``own``, where the
    path is maptr's choice, only for a directory, and a damaged file is replaced. ``wall`` is the wall clock in seconds:
    nothing else lasts from one process to the next. ``clock`` is steady, and says when a file that could not be had is
    tried again.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        wall: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        max_bytes: int = MAX_BYTES,
        own: bool = False,
    ) -> None:
        self._file = SqliteFile(path, _SCHEMA, max_bytes=max_bytes, make_room=_drop_a_quarter, clock=clock, own=own)
        self.path: Path = self._file.path
        self._wall = wall
        self._writes = 0

    def __repr__(self) -> str:
        return f"<disk {str(self.path)!r}>"

    def can_write(self) -> bool:
        """Whether there is a file to write to now; if not, the log says why."""

        def touch(connection: sqlite3.Connection) -> bool:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
            return True

        return bool(self._file.run(touch))

    # ---- answers

    def get(self, view: str, name: names.Labels) -> tuple[Answer, float, float] | None:
        """What is kept for a name, fresh or not: the answer, when it was fetched, when it expires; None if nothing."""
        query = (
            "SELECT outcome, records, note, server, security, fetched, expires FROM answer WHERE view = ? AND name = ?"
        )
        key = (view, names.to_wire(name))
        row = self._file.run(lambda connection: connection.execute(query, key).fetchone())
        if row is None:
            return None
        try:
            outcome, records, note, server, security, fetched, expires = row
            if security not in SECURITY or not (isinstance(note, str) and isinstance(server, str)):
                raise ValueError("its text is damaged")
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

        self._file.run(write)

    def drop(self, view: str, name: names.Labels) -> None:
        key = (view, names.to_wire(name))
        self._file.run(lambda connection: connection.execute("DELETE FROM answer WHERE view = ? AND name = ?", key))

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

        return self._file.run(write) is True

    def histories(self, view: str) -> dict[str, History]:
        """The states of every record that has a history, the latest first."""
        from maptr.cache.drift import History  # here, for whoever wants answers alone

        query = "SELECT record, in_table, in_dns FROM verdict WHERE view = ? ORDER BY id DESC"
        states: dict[str, tuple[list[tuple[str, ...]], list[tuple[str, ...]]]] = {}
        for record, in_table, in_dns in self._file.run(lambda c: c.execute(query, (view,)).fetchall()) or ():
            table, dns = states.setdefault(record, ([], []))
            table.append(tuple(json.loads(in_table)))
            dns.append(tuple(json.loads(in_dns)))
        return {record: History(table, dns) for record, (table, dns) in states.items()}

    def verdicts(self, view: str, record: str) -> list[tuple[float, str, str]]:
        """When, verdict and reason, of each change in a record's verdict, the latest first."""
        query = "SELECT at, verdict, reason FROM verdict WHERE view = ? AND record = ? ORDER BY id DESC"
        return self._file.run(lambda connection: connection.execute(query, (view, record)).fetchall()) or []

    def history(self, view: str, record: str) -> History:
        from maptr.cache.drift import NO_HISTORY

        return self.histories(view).get(record, NO_HISTORY)

    def run(self, operation: Callable[[sqlite3.Connection], T]) -> T | None:
        """An operation on what else is kept in the file; None where the disk has nothing to give."""
        return self._file.run(operation)

    def close(self) -> None:
        self._file.close()


def _drop_a_quarter(connection: sqlite3.Connection) -> None:
    """Of the answers, those that expire first."""
    count = connection.execute("SELECT count(*) FROM answer").fetchone()[0]
    connection.execute(
        "DELETE FROM answer WHERE expires <= (SELECT expires FROM answer ORDER BY expires LIMIT 1 OFFSET ?)",
        (count // 4,),
    )


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
