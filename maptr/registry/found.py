"""Finds the table, in one order for every command, the library, the gateway and the server.

1. the caller's table: ``--table``, or ``table=`` of a client
2. the configured table, ``cache.natab`` or ``table.file``
3. the table that ``maptr table pull`` wrote for this user
4. the system's table, ``/etc/natab`` (the place in the drafts), then ``/etc/maptr/naans``
5. the built-in registry

The first that exists is used. But if it was pulled from the official registry, or came with an older version of maptr,
and the built-in one has newer data, that one is used. ``FoundTable`` is the table source in this order; it looks again
while it is in use.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from maptr import paths
from maptr.discovery import BUILT_IN, CONFIGURED, GIVEN, PULLED, SYSTEM
from maptr.errors import ConfigError
from maptr.registry import builtin
from maptr.registry.followed_file import OFFICIAL, TableSource, TableState, WatchedTable

log = logging.getLogger("maptr.cache")

SYSTEM_TABLES = ("/etc/natab", "/etc/maptr/naans")
NAMES = {GIVEN: "given", CONFIGURED: "configured", PULLED: "pulled", SYSTEM: "system", BUILT_IN: "built-in", "": "no"}
LOOK_AGAIN = 1.0  # seconds between two checks of which files exist


class TableLocation(NamedTuple):
    """A file in which a table may be."""

    kind: str
    path: str

    @property
    def kind_text(self) -> str:
        return NAMES[self.kind]

    @property
    def exists(self) -> bool:
        return self.kind == BUILT_IN or paths.exists(self.path)


NOWHERE = TableLocation("", "")


class FoundTable:
    """The table at the first place that has one; none if ``built_in`` is False and there is no file.

    ``configured`` may be the file of the built-in table, which is then used under any origin.

    If its file cannot be read, the built-in table is used, as a stale one. So is the next table if the configured file
    does not exist: a NAAN that it lacks may be in that file.
    """

    def __init__(
        self,
        configured: str | None = None,
        *,
        clock: Callable[[], float],
        scheme: str = "https",
        built_in: bool = True,
        environment: Mapping[str, str] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        environment = os.environ if environment is None else environment
        carried = [TableLocation(BUILT_IN, str(builtin.FILE))]
        self.locations = [
            *([TableLocation(CONFIGURED, configured)] if configured else []),
            TableLocation(PULLED, paths.table_file(environment)),
            *(TableLocation(SYSTEM, path) for path in SYSTEM_TABLES),
            *(carried if built_in else []),
        ]
        if configured == str(builtin.FILE):
            self.locations = carried
        self._clock, self._wall = clock, wall
        self._scheme = scheme
        self._next_look = 0.0
        self._used = NOWHERE
        self._missing = ""  # the configured file, if it did not exist at the last look
        self._marked: tuple[TableState, TableState] | None = None  # of ``current``, with and without that trouble
        self._source: TableSource = TableState()

    def __repr__(self) -> str:
        used = self.location if self.is_read else self._first()
        return f"<table {used.path!r}, {used.kind}>"

    @property
    def location(self) -> TableLocation:
        """The file whose table is used. After its removal, its last good table is used.

        It is read, to compare its data with the built-in table's.
        """
        self._look()
        return self.locations[-1] if self._is_outdated(self._source.current()) else self._used

    def _first(self) -> TableLocation:
        return next((each for each in self.locations if each.exists or each == self._used), NOWHERE)

    @property
    def missing(self) -> str:
        """The configured file if it does not exist, else ""."""
        first = self.locations[0]
        return "" if first.kind != CONFIGURED or first == self._used or first.exists else first.path

    @property
    def is_read(self) -> bool:
        return self._next_look > 0 and self._source.is_read

    def current(self) -> TableState:
        """Return the state now. The first call reads the file; later calls never wait."""
        if (now := self._clock()) >= self._next_look:
            self._look()
            self._next_look = now + LOOK_AGAIN
        state = self._readable(self._source.current())
        if not self._missing or state.table is None:
            return state
        if self._marked is None or self._marked[0] is not state:
            name = os.path.basename(self._missing)  # noqa: PTH119 - a string, as in ``paths``
            trouble = f"{name} does not exist: restore it, or write it with maptr table pull --apply"
            self._marked = state, replace(state, trouble=state.trouble or trouble)
        return self._marked[1]

    def _readable(self, state: TableState) -> TableState:
        """Return the state of the first table that can be read."""
        if self._is_outdated(state):
            return builtin.state()
        if state.table is not None or not self._has_built_in:
            return state
        trouble = f"{self._used.path}: {state.trouble}"
        try:
            return replace(builtin.state(), trouble=trouble)
        except ConfigError as error:
            return replace(state, trouble=f"{trouble}; {error}")

    @property
    def _has_built_in(self) -> bool:
        return self.locations[-1].kind == BUILT_IN

    def _is_outdated(self, state: TableState) -> bool:
        """Return whether a table is from the built-in table's registry, and the built-in table has newer data."""
        if not self._has_built_in or state.table is None or state.origin not in (OFFICIAL, BUILT_IN):
            return False
        try:
            return (state.date or 0.0) < builtin.date()
        except ConfigError:
            return False

    def _look(self) -> None:
        location, missing = self._first(), self.missing
        if missing and not self._missing:
            log.warning("%s does not exist; the %s table is used until it does", missing, NAMES[location.kind])
        self._missing = missing
        if location == self._used:
            return
        if location.kind == BUILT_IN:
            self._source = builtin.state()
        elif location.kind:
            self._source = WatchedTable(
                location.path, clock=self._clock, scheme=self._scheme, kind=location.kind, wall=self._wall
            )
        self._used = location
