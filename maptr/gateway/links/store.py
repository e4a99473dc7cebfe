"""The results of link checks, in a SQLite file beside the cache.

They are not in the store of own objects, which an import replaces and a gateway may only read. ``follow`` brings the
file up to date with that store, and keeps a link's results as long as an object leads to it. Threads may share a file;
only one process checks its links at a time (``alone``).
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from maptr import url
from maptr.errors import ConfigError
from maptr.gateway.links.check import (
    MAX_REST,
    CheckedLink,
    CheckResult,
    LinkCounts,
    LinkRow,
    LinkState,
    host_of,
    link_of,
)

log = logging.getLogger("maptr.gateway")

APPLICATION, VERSION = 0x6D61706C, 1  # application_id ("mapl") and user_version
MAX_LATER = 500  # hosts that are asked later; one host's pause is too short for more
BUSY = 5.0  # seconds to wait for another connection that writes
AHEAD = 60.0  # seconds a check's time may be in the future before its clock counts as wrong
_SCHEMA = f"""
CREATE TABLE host (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, rest REAL NOT NULL);
CREATE TABLE link (  -- its id is a digest of the URL, and ``objects`` counts those that lead to it
    id INTEGER PRIMARY KEY, url TEXT NOT NULL, host INTEGER NOT NULL, objects INTEGER NOT NULL, checked REAL NOT NULL,
    since REAL NOT NULL, failures INTEGER NOT NULL, status INTEGER NOT NULL, fault TEXT NOT NULL,
    state INTEGER NOT NULL, fails INTEGER NOT NULL  -- 1: failing, and not dead yet
);
CREATE INDEX link_turn ON link (host, fails, checked, state, objects);
CREATE INDEX link_failed ON link (state) WHERE failures > 0;
CREATE TABLE object (ark TEXT PRIMARY KEY NOT NULL, link INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE round (start REAL NOT NULL);  -- of a command that was ended before its last link
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""
_RESULT = "checked, since, failures, status, fault"
# For each host that may be asked, the link unchecked for longest, or, before that, a failed one.
_NEXT = """
SELECT link.id, link.url FROM host JOIN link ON link.id = coalesce(
    (SELECT id FROM link WHERE host = host.id AND fails = 1 AND checked < :again ORDER BY checked LIMIT 1),
    (SELECT id FROM link WHERE host = host.id AND fails = 0 AND checked < :others ORDER BY checked LIMIT 1)
) WHERE host.rest <= :now AND host.name NOT IN ({})
ORDER BY host.name IN ({}), link.fails DESC, link.checked LIMIT :most
"""


class Due(NamedTuple):
    """Which links to check: failed ones, and others, that have not been checked since these times."""

    again: float
    others: float


class LinkStore:
    """The results in one file, which is created if there is none, and rebuilt if it is damaged. Raises sqlite3.Error
    and OSError; ConfigError for any other file."""

    def __init__(self, path: Path, now: float) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            self._connection = _connected(path)
        except sqlite3.DatabaseError as error:
            if (getattr(error, "sqlite_errorcode", 0) & 0xFF) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise
            log.error("%s: %s: the results of checks are lost, and it is built anew", path, error)
            for suffix in ("-wal", "-shm", ""):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
            self._connection = _connected(path)
        if self._connection.execute("SELECT 1 FROM link WHERE checked > ? LIMIT 1", (now + AHEAD,)).fetchone():
            # A clock ran ahead: these would not be checked until then, and their failure times would be wrong.
            self._write(
                "UPDATE link SET checked = 0, since = 0, failures = 0, state = 0, fails = 0 WHERE checked > ?", now
            )
        self._write("UPDATE host SET rest = 0 WHERE rest > ?", now + MAX_REST)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _write(self, statement: str, *values: object) -> None:
        with self._lock:
            self._connection.execute(statement, values)

    # ---- the objects

    def follow(self, after: str, last: str, targets: Mapping[str, str], *, allow_private: bool = False) -> None:
        """Take over the complete URLs of the objects after one ARK, up to another ("" for the end)."""
        # Bytes, because another program may have written ARKs that are not UTF-8.
        ends = [ark.encode("utf-8", "surrogateescape") for ark in ((after, last) if last else (after,))]
        within = "ark > CAST(? AS TEXT)" + " AND ark <= CAST(? AS TEXT)" * (len(ends) > 1)
        links = {ark: digest_of(link_of(where)) for ark, where in targets.items() if where}
        with self._transaction() as connection:
            known = dict(connection.execute(f"SELECT ark, link FROM object WHERE {within}", ends))  # noqa: S608
            changed = [ark for ark, link in links.items() if known.get(ark) != link]
            left = [ark for ark in known if known[ark] != links.get(ark)]
            connection.executemany("DELETE FROM object WHERE ark = ?", ((ark,) for ark in left))
            for ark in changed:
                self._enter(connection, ark, links[ark], link_of(targets[ark]), allow_private=allow_private)
            of_left = [(known[ark],) for ark in left]  # afterwards: an object may have taken another's URL
            connection.executemany("UPDATE link SET objects = objects - 1 WHERE id = ?", of_left)
            connection.executemany("DELETE FROM link WHERE id = ? AND objects <= 0", of_left)

    def _enter(self, connection: sqlite3.Connection, ark: str, link: int, where: str, *, allow_private: bool) -> None:
        try:
            name = host_of(url.parse_allowed(where, allow_private=allow_private))
            ark.encode()
        except ValueError:  # a row written by another program; maptr redirects check names it
            return
        if not connection.execute("UPDATE link SET objects = objects + 1 WHERE id = ?", (link,)).rowcount:
            connection.execute("INSERT OR IGNORE INTO host (name, rest) VALUES (?, 0)", (name,))
            connection.execute(
                "INSERT INTO link SELECT ?, ?, id, 1, 0, 0, 0, 0, '', 0, 0 FROM host WHERE name = ?",
                (link, where, name),
            )
        connection.execute("INSERT INTO object VALUES (?, ?)", (ark, link))

    def forget_hosts(self) -> None:
        """Forget hosts without links."""
        self._write("DELETE FROM host WHERE NOT EXISTS (SELECT 1 FROM link WHERE link.host = host.id)")

    # ---- checks

    def next(
        self, due: Due, now: float, most: int, *, without: Sequence[str] = (), later: Sequence[str] = ()
    ) -> list[tuple[int, str]]:
        """Return the links to check next, with their URLs, one per host: none of the hosts ``without``, and those of
        the hosts ``later`` only if there are no others."""
        names = [*without, *later[:MAX_LATER]]
        marks = [f":h{index}" for index in range(len(names))]
        statement = _NEXT.format(*(", ".join(each) for each in (marks[: len(without)], marks[len(without) :])))
        values = {**due._asdict(), "now": now, "most": most}
        return self._rows(statement, values | {mark[1:]: name for mark, name in zip(marks, names, strict=True)})

    def record(self, link: int, found: CheckResult, now: float) -> None:
        """Store the result of a check."""
        with self._transaction() as connection:
            row = connection.execute(f"SELECT {_RESULT} FROM link WHERE id = ?", (link,)).fetchone()  # noqa: S608
            if row is None:  # its last object is gone meanwhile
                return
            made = CheckedLink(*row).after(found, now)
            values = (made.checked, made.since, made.failures, made.status, made.fault, made.state)
            connection.execute(
                "UPDATE link SET checked = ?, since = ?, failures = ?, status = ?, fault = ?, state = ?, fails = ?"
                " WHERE id = ?",
                (*values, made.state is LinkState.FAILING, link),
            )

    def rest(self, host: str, until: float) -> None:
        """Leave a host alone until then."""
        self._write("UPDATE host SET rest = ? WHERE name = ?", until, host)

    def resting(self, due: Due, now: float) -> tuple[int, float]:
        """Return how many links are due whose hosts want to be left alone, and when the first host may be asked."""
        which = "(fails = 1 AND checked < :again OR fails = 0 AND checked < :others)"
        select = (
            "SELECT count(*), coalesce(min(rest), 0) FROM host JOIN link ON link.host = host.id"  # noqa: S608 - constants
            f" WHERE rest > :now AND {which}"
        )
        ((links, until),) = self._rows(select, {**due._asdict(), "now": now})
        return int(links), float(until)

    def begin_round(self, now: float, *, anew: bool = False) -> float:
        """Return when a command's round began: now, or earlier if an unfinished one continues."""
        with self._transaction() as connection:
            known = connection.execute("SELECT start FROM round").fetchone()
            if known is not None and not anew and known[0] <= now:
                return float(known[0])
            connection.execute("DELETE FROM round")
            connection.execute("INSERT INTO round VALUES (?)", (now,))
        return now

    def end_round(self) -> None:
        self._write("DELETE FROM round")

    # ---- results

    def counts(self) -> LinkCounts:
        found = dict(self._rows("SELECT state, sum(objects) FROM link GROUP BY state"))
        return LinkCounts(*(int(found.get(state, 0)) for state in LinkState))

    def checked_since(self, start: float) -> tuple[int, int]:
        """Return the number of links, and how many of them were checked since a time."""
        ((links, checked),) = self._rows("SELECT count(*), coalesce(sum(checked >= ?), 0) FROM link", (start,))
        return int(links), int(checked)

    def failed(self, states: Iterable[LinkState], after: str = "", most: int = -1) -> list[LinkRow]:
        """Return the objects after an ARK, in order, whose links are in one of these states, failing or dead."""
        which = ", ".join(str(int(state)) for state in states)
        select = (
            f"SELECT ark, url, {_RESULT} FROM object JOIN link ON object.link = link.id WHERE ark > ?"  # noqa: S608
            f" AND object.link IN (SELECT id FROM link WHERE failures > 0 AND state IN ({which})) ORDER BY ark LIMIT ?"
        )
        return [LinkRow(ark, where, CheckedLink(*result)) for ark, where, *result in self._rows(select, (after, most))]

    def _rows(self, statement: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            with self._connection:
                yield self._connection


def digest_of(link: str) -> int:
    """Return a link's number: among two million, two are equal with a probability of one in ten million."""
    return int.from_bytes(blake2b(link.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big", signed=True)


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Exclude other processes from checking a file's links; yield False if one is doing so. Raises OSError."""
    handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        is_alone = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_alone = False
        yield is_alone
    finally:
        os.close(handle)


def _connected(path: Path) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(path.absolute()))}"
    made = sqlite3.connect(uri, uri=True, timeout=BUSY, check_same_thread=False, isolation_level=None)
    try:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("PRAGMA synchronous = NORMAL")
        made.execute("BEGIN IMMEDIATE")
        with made:
            application, version, tables = made.execute(
                "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
                " FROM pragma_application_id, pragma_user_version"
            ).fetchone()
            if (application, version) != (APPLICATION, VERSION):
                if tables:
                    raise ConfigError("is not a file with results of checks", filename=str(path))
                for statement in _SCHEMA.split(";"):
                    made.execute(statement)
    except BaseException:
        made.close()
        raise
    return made
