"""A table that follows its file: the file is reread when it changes, and a damaged version is ignored.

A hash of the content shows a change; the file's status only avoids needless reading. If the file is missing,
unreadable, not a registry, cut short, or lacks a third of its records, the last good table is kept and ``trouble`` has
the reason.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from maptr import paths, registry
from maptr.discovery import BUILT_IN, GIVEN
from maptr.errors import ConfigError, LocatedError, MaptrError, TableError
from maptr.files import AT_ONCE, Followed, read_whole
from maptr.registry import builtin, dates
from maptr.registry.natab import END
from maptr.registry.plan import Plan
from maptr.registry.table import MAX_TABLE, Table
from maptr.registry.table_state import TableSource as TableSource
from maptr.registry.table_state import TableState as TableState

log = logging.getLogger("maptr.cache")

OFFICIAL = "https://cdluc3.github.io/naan_reg_priv/naan_records.json"
"""The public NAAN registry, as the central resolver (n2t.net) loads it (according to its public code, 2026)."""


class WatchedTable(Followed[TableState]):
    """The table in a file of any registry format. A thread reads a changed file, so only the first look-up waits.

    ``scheme`` applies to a natab's hosts.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float],
        scheme: str = "https",
        kind: str = GIVEN,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(Path(path), TableState(kind=kind), self._read_table, self._keep, clock=clock, always=True)
        self._kind = kind
        self._wall = wall
        self._scheme = scheme
        self._marked_end = False
        self._bad_records: set[tuple[str, str]] = set()  # already logged, by record and reason

    def __repr__(self) -> str:
        return f"<table {str(self.path)!r}>"

    def current(self) -> TableState:
        """Return the state now. The first call reads the file; later calls never wait."""
        if not self.is_read:
            self.refresh()
        elif self.is_due():
            threading.Thread(target=self.refresh, name="maptr-table", daemon=True).start()
        return self.value

    def _keep(self, last: TableState, error: MaptrError | OSError) -> TableState:
        trouble = _trouble(error)
        if trouble != last.trouble:
            effect = "there is no table" if last.table is None else "keeping the last good table"
            log.warning("%s: %s; %s", self.path, trouble, effect)
        return replace(last, trouble=trouble)

    def _read_table(self, last: TableState) -> TableState:
        content = read_whole(self.path, MAX_TABLE)
        digest = hashlib.sha256(content).hexdigest()
        confirmed, origin = _confirmed(self.path, digest)
        fetched = confirmed or self.path.stat().st_mtime_ns / 1e9
        old = last.table
        if digest == last.digest:
            return replace(last, trouble="", fetched=fetched, origin=origin, date=self._date(old, confirmed))
        bad: list[TableError] = []
        table = registry.read(content, filename=str(self.path), on_bad=bad.append, scheme=self._scheme)
        marked_end = _has_end(content)
        if old is not None:
            if self._marked_end and not marked_end and content.lstrip()[:1] not in b"{[":  # JSON needs no end mark
                raise TableError("cut short: the end-of-data line is missing", filename=str(self.path))
            gone = [entry for key, entry in old.items() if key not in table]
            if bad:  # a damaged line may belong to any record, so any missing record may be a damaged one
                table = Table([*table.values(), *gone], metadata=table.metadata, unread=table.unread)
            else:
                Plan(removed=tuple(gone), size=len(old)).check()
        bad_records = {(error.record, error.reason) for error in bad}
        if bad_records - self._bad_records:
            log.warning("%s: %d bad records, the first: %s", self.path, len(bad), bad[0])
        self._bad_records = bad_records
        self._marked_end = marked_end
        kind = BUILT_IN if origin == BUILT_IN else self._kind
        return TableState(table, "", fetched, digest, origin, kind, self._date(table, confirmed))

    def _date(self, table: Table | None, confirmed: float | None) -> float | None:
        """Return the date of the data: from the metadata, else the newest record, else the file."""
        until = builtin.latest(self._wall(), confirmed)
        found = None
        if table is not None:
            found = dates.of_metadata(table.metadata, until) or dates.newest(table.dates(), until)
        written = self.path.stat().st_mtime_ns / 1e9
        return found or (written if written <= until else None)


def _trouble(error: MaptrError | OSError) -> str:
    """Return the reason of an error about the file, without the file's name."""
    match error:
        case FileNotFoundError():
            return "the file does not exist"
        case OSError():
            return error.strerror or str(error)
        case LocatedError():
            return f"line {error.line}: {error.reason}" if error.line > 1 else error.reason
    return str(error)


def _has_end(content: bytes) -> bool:
    """Return whether a natab has an end-of-data line."""
    tail = content[-4096:].decode("utf-8", "replace")
    return any(END.match(line) for line in tail.splitlines() if line.strip())


def pull_file(path: Path) -> Path:
    """Return the path of the note that ``maptr table pull`` writes beside a table: its source, and the last pull."""
    return path.with_name(f"{path.name}.pull")


def read_pull_file(path: Path) -> dict[str, Any]:
    """Read the note beside a table; empty if none can be read."""
    with suppress(OSError, ValueError, RecursionError):
        note = json.loads(read_whole(pull_file(path)))
        return note if isinstance(note, dict) else {}
    return {}


def _confirmed(path: Path, digest: str) -> tuple[float | None, str]:
    """Return the time at which a source last confirmed this content, and the source; None and "" if the note
    describes other content."""
    note = read_pull_file(path)
    if note.get("sha256") != digest:
        return None, ""
    checked, origin = note.get("checked"), note.get("source")
    fetched = float(checked) if isinstance(checked, int | float) and 0 <= checked <= dates.LATEST else None
    return fetched, origin if isinstance(origin, str) else ""


def table_source(
    table: str | os.PathLike[str] | Table | TableSource | None, clock: Callable[[], float], scheme: str = "https"
) -> TableSource:
    """Return the source for a caller's ``table``: a file, a table, a source or None; "builtin" is the built-in table,
    and "./builtin" a file.

    Raises ConfigError if a file does not exist or cannot be read. The file of a ``WatchedTable`` may appear later.
    """
    if isinstance(table, str) and table == paths.BUILT_IN:
        return builtin.state()
    if table is None or isinstance(table, Table):
        return TableState(table)
    if not isinstance(table, str | os.PathLike):
        if not hasattr(table, "current"):
            raise TypeError(f"table: {table!r} is neither a Table nor a path")
        return table
    if os.path.isdir(table):  # noqa: PTH112 - False if the path may not be read
        raise ConfigError("is a directory", filename=str(table))
    try:
        os.close(os.open(table, os.O_RDONLY | AT_ONCE))
    except OSError as error:
        raise ConfigError(error.strerror or str(error), filename=str(table)) from None
    return WatchedTable(table, clock=clock, scheme=scheme)
