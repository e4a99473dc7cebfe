"""Single changes to a store of own objects: each is one short SQLite transaction that includes its trace."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from maptr.ark import Ark
from maptr.errors import ConfigError, MaptrError
from maptr.gateway.objects import COLUMNS, GONE, WITHDRAWAL, OwnObject, read_row, successor, to_row
from maptr.gateway.redirects import words
from maptr.gateway.redirects.rows import MAX_LINE, connected, has_header, is_busy, is_database, more_columns, unreadable
from maptr.gateway.redirects.store import (
    FIELDS,
    check_is_store,
    facts_of,
    locked_store,
    object_of,
    to_read,
    values_of,
)

PATIENCE = 10.0  # seconds that a writer waits for another
NO_STORE = "is not a store, and only read here: maptr redirects import {} -o NEW makes a store of a CSV"

ROW = f"{FIELDS}, more"
INSERT = f"INSERT OR IGNORE INTO redirects ({ROW}) VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"  # noqa: S608


class RefusedError(MaptrError):
    """A change is refused."""


class TraceEntry(NamedTuple):
    """One entry of the trace: what was done to an ARK, by whom, and its row before and after ("" for none)."""

    change: int
    at: int
    who: str
    action: str
    ark: str
    old: Mapping[str, str]
    new: Mapping[str, str]
    note: str


@dataclass(frozen=True, slots=True)
class Changed:
    """A single change: its number, and the object before and after."""

    number: int
    old: OwnObject | None
    new: OwnObject


# ---- the lock and the transaction of a writer


@contextmanager
def alone(path: Path) -> Iterator[sqlite3.Connection]:
    """Begin writing to a store; without a COMMIT, nothing changes. Raises ConfigError, sqlite3.Error and OSError."""
    with locked_store(path, PATIENCE) as handle:
        if not has_header(os.pread(handle, 100, 0)):
            raise ConfigError(NO_STORE.format(path.name), filename=str(path))
        with closing(connected(path, "rw")) as connection:
            connection.execute(f"PRAGMA busy_timeout = {round(PATIENCE * 1000)}")  # for programs other than maptr
            check_is_store(connection, path)
            connection.execute("PRAGMA secure_delete = ON")  # deleted personal data is overwritten
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("BEGIN IMMEDIATE")
            yield connection


@contextmanager
def writing(path: Path, by: str = "", now: float | None = None) -> Iterator[StoreChange]:
    """Change a store in one transaction, which an exception undoes. Raises ConfigError and RefusedError."""
    try:
        with alone(path) as connection:
            facts = facts_of(connection)
            if follows := facts.get("follows"):
                raise RefusedError(f"{path} follows {follows}, and only has what is in it: change that file")
            change = StoreChange(connection, int(facts.get("change", 0)) + 1, by, time.time() if now is None else now)
            yield change
            connection.execute("COMMIT")
    except (OSError, sqlite3.Error) as error:
        raise not_written(path, error) from None


def not_written(path: Path, error: Exception) -> ConfigError:
    """Return the error for a store that cannot be written, with what may help."""
    if isinstance(error, OSError):
        return unreadable(path, error)
    reason = str(error)
    if is_busy(error):
        reason = "another program writes it, or has locked it (fuser -v names it): try again"
    elif getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        reason += ": this user must be able to write the file and its folder"
    return ConfigError(reason, filename=str(path))


class StoreChange:
    """A change to a store, in progress."""

    def __init__(self, connection: sqlite3.Connection, number: int, by: str, now: float) -> None:
        self.connection = connection
        self.number = number
        self._by = by
        self.now = now

    def get(self, ark: str) -> OwnObject | None:
        select = f"SELECT {ROW} FROM redirects WHERE ark = ?"  # noqa: S608 - constants
        found = self.connection.execute(select, (ark,)).fetchone()
        if found is None:
            return None
        try:
            return object_of(found)
        except (ValueError, OverflowError) as error:
            raise RefusedError(f"{ark}: {error}: another program wrote its row") from None

    def put(self, action: str, old: OwnObject | None, new: OwnObject) -> Changed:
        """Store an ARK's new row, with its trace. An equal row changes nothing."""
        if old == new:
            return Changed(self.number_of(new.ark), old, new)
        check_size(new)
        is_indexed = not words.trouble_of(self.connection, facts_of(self.connection))
        if is_indexed:
            words.take_out(self.connection, new.ark)
        self.connection.execute(INSERT.replace("IGNORE", "REPLACE", 1), values_of(new))
        if is_indexed:
            words.put_in(self.connection, new.ark)
            set_fact(self.connection, "words", self.number)
        edited = "INSERT OR REPLACE INTO changes VALUES (?, ?, ?, 1)"
        self.connection.execute(edited, (new.ark, self.number, self.number))
        if old is None:
            count = "INSERT INTO naans VALUES (?, 1) ON CONFLICT (naan) DO UPDATE SET count = count + 1"
            self.connection.execute(count, (new.naan,))
        self.trace(action, new.ark, old, new)
        set_fact(self.connection, "change", self.number)
        return Changed(self.number, old, new)

    def trace(self, action: str, ark: str, old: OwnObject | None, new: OwnObject | None, note: str = "") -> None:
        insert = "INSERT INTO history (change, at, who, action, ark, old, new, note) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        rows = (json.dumps(_told(one), ensure_ascii=False) for one in (old, new))
        self.connection.execute(insert, (self.number, int(self.now), self._by, action, ark, *rows, note))

    def number_of(self, ark: str) -> int:
        """Return the number of the last change to an ARK's row."""
        found = self.connection.execute("SELECT change FROM changes WHERE ark = ?", (ark,)).fetchone()
        return int(facts_of(self.connection).get("first", 0) if found is None else found[0])

    def last_target(self, ark: str) -> Mapping[str, str]:
        """Return the row that an ARK had before it was withdrawn; empty if the trace does not have it."""
        select = "SELECT old FROM history WHERE ark = ? AND action = 'withdraw' ORDER BY number DESC"
        for (old,) in self.connection.execute(select, (ark,)):
            if (row := _row_of(old)).get("url"):
                return row
        return {}


def _told(one: OwnObject | None) -> dict[str, str]:
    return {} if one is None else {name: text for name, text in to_row(one).items() if text}


def _row_of(text: str) -> Mapping[str, str]:
    try:
        return more_columns(text)
    except ValueError:
        return {}


def set_fact(connection: sqlite3.Connection, name: str, value: int | str) -> None:
    """Write one of a store's facts."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def check_size(one: OwnObject) -> None:
    """Raise ValueError for a row that would be too long to read."""
    if len(json.dumps(to_row(one), ensure_ascii=False).encode()) > MAX_LINE - 1024:
        raise ValueError(f"{one.ark}: a row of more than {MAX_LINE - 1024} bytes")


# ---- single changes


def _normal(text: str) -> str:
    ark = Ark.parse(text)
    if ark.tail or not ark.name:
        raise ValueError(f"{text} is not the ARK of one object")
    return str(ark)


def set_object(
    path: Path,
    named: str,
    given: Mapping[str, str],
    *,
    by: str = "",
    allow_private: bool = False,
    now: float | None = None,
) -> Changed:
    """Register an ARK, or change the ``given`` cells of its row. Raises ValueError, RefusedError and ConfigError."""
    ark = _normal(named)
    with writing(path, by, now) as change:
        old = change.get(ark)
        if old is not None and old.is_gone:
            raise RefusedError(f"{ark} is withdrawn: maptr redirects restore makes it lead somewhere again")
        known = {name for (name,) in change.connection.execute("SELECT name FROM columns")}
        if unknown := given.keys() - {*COLUMNS, *known}:
            raise RefusedError(f"{path} has no column {min(unknown)}: an import of a file with it adds it")
        row = ({} if old is None else to_row(old)) | {**given, "ark": ark}
        return change.put("set", old, read_row(row, allow_private=allow_private))


def withdraw(
    path: Path,
    named: str,
    *,
    reason: str,
    replaced_by: str = "",
    authority: str = "",
    by: str = "",
    allow_private: bool = False,
    now: float | None = None,
) -> Changed:
    """Mark an object as gone (410). Raises as ``set_object``."""
    ark, now = _normal(named), time.time() if now is None else now
    if not reason.strip():
        raise ValueError("the reason is missing")
    by_which = successor(replaced_by, allow_private=allow_private)
    if by_which == ark:
        raise ValueError(f"{ark} cannot replace itself")
    with writing(path, by, now) as change:
        old = _registered(change, ark, path)
        day = old.withdrawn if old.is_gone and old.withdrawn else time.strftime("%Y-%m-%d", time.gmtime(now))
        new = old._replace(url="", status=GONE, reason=reason, replaced_by=by_which, authority=authority, withdrawn=day)
        return change.put("withdraw", old, new)


def restore(
    path: Path, named: str, *, where: str = "", by: str = "", allow_private: bool = False, now: float | None = None
) -> Changed:
    """Let an object that is gone lead to its last URL again, or to ``where``. Raises as ``set_object``."""
    ark = _normal(named)
    with writing(path, by, now) as change:
        old = _registered(change, ark, path)
        if not old.is_gone:
            raise RefusedError(f"{ark} is not withdrawn: it leads to {old.url}")
        last = change.last_target(ark)
        target = where or last.get("url", "")
        if not target:
            raise RefusedError(f"the trace does not say where {ark} led: give --url URL")
        empty = dict.fromkeys(("reason", *WITHDRAWAL), "")
        row = {
            **to_row(old),
            **empty,
            "reason": last.get("reason", ""),
            "url": target,
            "status": last.get("status", ""),
        }
        return change.put("restore", old, read_row(row, allow_private=allow_private))


def _registered(change: StoreChange, ark: str, path: Path) -> OwnObject:
    if (found := change.get(ark)) is None:
        raise RefusedError(f"{ark} is not in {path}")
    return found


def shown(path: Path, named: str) -> tuple[OwnObject, int] | None:
    """Return an ARK's object and the number of its last change; None if it has no object. Raises ValueError,
    RefusedError and ConfigError."""
    ark = _normal(named)
    with _reading(path) as connection:
        change = StoreChange(connection, 0, "", 0.0)
        one = change.get(ark)
        return None if one is None else (one, change.number_of(ark))


def history(path: Path, named: str = "") -> Iterator[TraceEntry]:
    """Yield the trace of an ARK, or of the whole store, oldest first. Raises ValueError and ConfigError."""
    ark = _normal(named) if named else ""
    select = "SELECT change, at, who, action, ark, old, new, note FROM history"
    which, values = ("WHERE ark = ?", (ark,)) if ark else ("", ())
    with _reading(path) as connection:
        for change, at, who, action, of, old, new, note in connection.execute(
            f"{select} {which} ORDER BY number", values
        ):
            yield TraceEntry(change, at, who, action, of, _row_of(old), _row_of(new), note)


def forget(path: Path, before: float) -> int:
    """Delete the trace of changes before a time, and words of earlier rows from the index. Return how many entries were
    deleted. Raises ConfigError."""
    with writing(path) as change:
        count = change.connection.execute("DELETE FROM history WHERE at < ?", (int(before),)).rowcount
    is_merged = False
    while not is_merged:  # in short transactions, because readers wait for each
        with writing(path) as change:
            facts = facts_of(change.connection)
            is_merged = bool(words.trouble_of(change.connection, facts)) or not words.merge(change.connection)
    return count


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        if not is_database(path):
            raise ConfigError(NO_STORE.format(path.name), filename=str(path))
        with closing(to_read(path)) as connection:
            connection.execute(f"PRAGMA busy_timeout = {round(PATIENCE * 1000)}")
            check_is_store(connection, path)
            yield connection
    except (OSError, sqlite3.Error) as error:
        raise unreadable(path, error) from None
