"""The history of verdicts in an SQLite file, which distinguishes a side that lags behind from two that disagree."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from maptr.cache.disk import BUSY_MS, Disk
from maptr.reconcile.verdict import Drift, Urls, Verdict

MAX_STATES = 50  # of one record
BUSY_HISTORY_MS = 5_000  # to wait for another process: unlike an answer, a verdict cannot be fetched again


def open_history(path: Path, *, wall: Callable[[], float]) -> Disk:
    """Open the file of a server, which does not know the cache. A damaged one is replaced."""
    return Disk(path, wall=wall, own=True)


def transaction(disk: Disk, write: Callable[[sqlite3.Connection], None]) -> bool:
    """Call ``write`` in one transaction, after that of another process. False if the file cannot be written."""

    def run(connection: sqlite3.Connection) -> bool:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_HISTORY_MS}")
        try:
            connection.execute("BEGIN IMMEDIATE")
            with connection:  # ends the transaction
                write(connection)
        finally:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        return True

    return disk.run(run) is True


class PastVerdict(NamedTuple):
    """An earlier verdict on a record, from its first run at ``at`` (wall-clock time) until the next one, with the URLs
    that each side gave."""

    at: float
    verdict: Verdict
    reason: str = ""
    table: Urls = ()
    dns: Urls = ()


@dataclass(frozen=True, slots=True)
class VerdictLog:
    """The verdicts of earlier runs in the cache's SQLite file, which also has the time and reason of each."""

    disk: Disk

    def record(self, view: str, verdicts: list[Drift]) -> bool:
        """Keep each verdict that differs from the last one of its record. False if the file cannot be written."""

        def write(connection: sqlite3.Connection) -> None:
            for drift in verdicts:
                self._write(connection, view, drift)

        return transaction(self.disk, write)

    def _write(self, connection: sqlite3.Connection, view: str, drift: Drift) -> None:
        state = (str(drift.verdict), json.dumps(drift.table), json.dumps(drift.dns))
        last = connection.execute(
            "SELECT verdict, in_table, in_dns FROM verdict WHERE view = ? AND record = ? ORDER BY id DESC LIMIT 1",
            (view, drift.record),
        ).fetchone()
        if last == state:
            return
        connection.execute(
            "INSERT INTO verdict (view, record, at, verdict, reason, in_table, in_dns) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (view, drift.record, self.disk.wall(), state[0], drift.reason, *state[1:]),
        )
        connection.execute(
            "DELETE FROM verdict WHERE view = ? AND record = ? AND id NOT IN"
            " (SELECT id FROM verdict WHERE view = ? AND record = ? ORDER BY id DESC LIMIT ?)",
            (view, drift.record, view, drift.record, MAX_STATES),
        )

    def changes(self, view: str) -> dict[str, list[PastVerdict]]:
        """Return the verdicts on each record that has any, the latest first; each as long as it did not change."""
        query = "SELECT record, at, verdict, reason, in_table, in_dns FROM verdict WHERE view = ? ORDER BY id DESC"
        found: dict[str, list[PastVerdict]] = {}
        for record, at, verdict, reason, *urls in self.disk.run(lambda c: c.execute(query, (view,)).fetchall()) or ():
            if verdict in frozenset(Verdict):  # another release may have others
                table, dns = (tuple(json.loads(side)) for side in urls)
                found.setdefault(record, []).append(PastVerdict(at, Verdict(verdict), reason, table, dns))
        return found
