"""A table that follows its file: read when the content changes, and kept when the new content is worse.

Change is told by the content's hash; the file's dates are only a hint that saves reading it. Whatever is wrong
with a file (gone, unreadable, a web page, cut short, a third of it missing), the last good table stays in use and
``trouble`` says why.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from maptr.errors import ConfigError, LocatedError, MaptrError, TableError
from maptr.files import ForkLock
from maptr.registry.plan import Plan
from maptr.registry.table import MAX_TABLE, Table

log = logging.getLogger("maptr.cache")

LOOK_EVERY = 1.0  # seconds between looks at the file's status
READ_EVERY = 60.0  # seconds between readings whatever the status says: dates can be set, and stand still


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as it is now. ``table`` is None where there never was a good one; ``trouble`` says what is wrong with
    the file since. ``fetched`` is when its source was last known to say so, by the wall clock."""

    table: Table | None = None
    trouble: str = ""
    fetched: float | None = None
    digest: str = ""


class TableSource(Protocol):
    """Where a cache finds its table."""

    def current(self) -> TableState:
        """The state now."""
        ...


class FixedTable:
    """A table that is given, and follows nothing."""

    def __init__(self, table: Table | None) -> None:
        self._state = TableState(table)

    def __repr__(self) -> str:
        return "no table" if self._state.table is None else repr(self._state.table)

    def current(self) -> TableState:
        return self._state


class WatchedTable:
    """The table in a file of any registry format. Looking costs one ``stat`` a second; reading is done aside.

    ``clock`` is steady and says when to look; it decides nothing else. ``scheme`` is that of the hosts of a natab.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float], scheme: str = "https") -> None:
        self.path = Path(path)
        self._clock = clock
        self._scheme = scheme
        self._state = TableState()
        self._status: tuple[int, ...] = ()
        self._look_at = self._read_at = float("-inf")
        self._marked_end = False
        self._lock = ForkLock()

    def __repr__(self) -> str:
        return f"<table {str(self.path)!r}>"

    def current(self) -> TableState:
        """The state now. The first call reads the file; later ones never wait for it."""
        now = self._clock()
        if now < self._look_at:
            return self._state
        if not self.is_read:
            self.reload()
        else:
            self._look_at = now + LOOK_EVERY
            if (now >= self._read_at or self._look() != self._status) and not self._lock.locked():
                threading.Thread(target=self.reload, name="maptr-table", daemon=True).start()
        return self._state

    @property
    def is_read(self) -> bool:
        """True once the file was looked into, well or ill."""
        return self._read_at > float("-inf")

    def reload(self, *, force: bool = False) -> TableState:
        """Read the file now. ``force`` takes a table that lost more than a plan may remove."""
        with self._lock:
            now = self._clock()
            self._look_at, self._read_at = now + LOOK_EVERY, now + READ_EVERY
            before = self._state
            try:
                self._state = self._read(force)
            except FileNotFoundError:
                self._keep("the file is not there")
            except OSError as error:
                self._keep(error.strerror or str(error))
            except LocatedError as error:
                self._keep(f"line {error.line}: {error.reason}" if error.line > 1 else error.reason)
            except (MaptrError, ChangedError) as error:
                self._keep(str(error))
                if isinstance(error, ChangedError):
                    self._look_at, self._status = now, ()
            if self._state.trouble and self._state.trouble != before.trouble:
                if self._state.table is not None:
                    log.warning("%s: %s; the last good table stays in use", self.path, self._state.trouble)
                else:
                    log.warning("%s: %s; there is no table", self.path, self._state.trouble)
            return self._state

    def _keep(self, trouble: str) -> None:
        state = self._state
        self._state = TableState(state.table, trouble, state.fetched, state.digest)

    def _look(self) -> tuple[int, ...]:
        try:
            return _status(os.stat(self.path))  # noqa: PTH116 - once a second on the way of an answer
        except OSError:
            return ()

    def _read(self, force: bool) -> TableState:
        content, status = read_once(self.path)
        self._status = status
        digest = digest_of(content)
        fetched = confirmed(self.path, digest) or status[3] / 1e9
        from maptr import registry  # here, for a process that reads none

        old = self._state.table
        if digest == self._state.digest:
            return TableState(old, "", fetched, digest)
        bad: list[TableError] = []
        table = registry.read(content, filename=str(self.path), on_bad=bad.append, scheme=self._scheme)
        marked_end = _has_end(content)
        if old is not None and not force:
            if self._marked_end and not marked_end and content.lstrip()[:1] not in b"{[":  # JSON ends by itself
                raise TableError("cut short: its end-of-data line is gone", filename=str(self.path))
            table = _with_bad(table, old, bad)
            gone = old.keys() - table.keys()
            Plan(removed=tuple(old[key] for key in sorted(gone)), size=len(old)).check()
        if bad:
            log.warning("%s: %d bad records, the first: %s", self.path, len(bad), bad[0])
        self._marked_end = marked_end
        return TableState(table, "", fetched, digest)


class ChangedError(Exception):
    """The file is being written: to be read again."""


def read_once(path: Path) -> tuple[bytes, tuple[int, ...]]:
    """The content of a table's file, and its status. Raises OSError, TableError, and ChangedError."""
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):  # a pipe without a writer would hang us
            raise TableError("is no regular file", filename=str(path))
        status = _status(found)
        if status[2] > MAX_TABLE:
            raise TableError(f"more than {MAX_TABLE} octets", filename=str(path))
        content = file.read(MAX_TABLE + 1)
        if _status(os.fstat(file.fileno())) != status or len(content) != status[2]:
            raise ChangedError("the file changed while it was read")
    return content, status


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _with_bad(table: Table, old: Table, bad: list[TableError]) -> Table:
    """The table; where something of it cannot be read, with what it lacks of the old one: a damaged line does not say
    whose it was, so a record that went and one that was damaged look alike."""
    if not bad:
        return table
    entries = [*table.values(), *(entry for key, entry in old.items() if key not in table)]
    return Table(entries, metadata=table.metadata, unread=table.unread)


def _has_end(content: bytes) -> bool:
    """True for a natab that says where it ends."""
    from maptr.registry import natab

    tail = content[-4096:].decode("utf-8", "replace")
    return any(natab.END.match(line) for line in tail.splitlines() if line.strip())


def _status(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def pull_file(path: Path) -> Path:
    """Where ``maptr table pull`` notes where a table came from and when it was last known to be so."""
    return path.with_name(f"{path.name}.pull")


def read_pull_file(path: Path) -> dict[str, Any]:
    """The note beside a table; empty where there is none that can be read."""
    try:
        note = json.loads(pull_file(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def confirmed(path: Path, digest: str) -> float | None:
    """When the source last said that this is the content, by the note; None if the note is of another content."""
    note = read_pull_file(path)
    checked = note.get("checked")
    return float(checked) if note.get("sha256") == digest and isinstance(checked, int | float) else None


def table_source(
    natab: str | os.PathLike[str] | Table | TableSource | None, clock: Callable[[], float], scheme: str = "https"
) -> TableSource:
    """What a cache was given as its table, as something to ask.

    Raises ConfigError for a file that is not there or cannot be read. A ``WatchedTable`` is taken as it is: its file
    may come later.
    """
    if natab is None or isinstance(natab, Table):
        return FixedTable(natab)
    if not isinstance(natab, str | os.PathLike):
        return natab
    if os.path.isdir(natab):  # noqa: PTH112 - False where nobody lets us look
        raise ConfigError("is a directory", filename=str(natab))
    try:
        os.close(os.open(natab, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        raise ConfigError(error.strerror or str(error), filename=str(natab)) from None
    return WatchedTable(natab, clock=clock, scheme=scheme)
