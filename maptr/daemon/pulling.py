"""A configuration's table, pulled from its sources at intervals. A failure leaves the table as it is."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from maptr.config import Config
from maptr.errors import MaptrError, MissingExtra, SignatureError, Time, reason_of
from maptr.files import read_whole
from maptr.protocol.names import ARK_ARPA
from maptr.registry.found import FoundTable
from maptr.registry.minisign import PublicKey
from maptr.registry.pull import (
    OFFICIAL,
    PullLine,
    PullResult,
    PullSources,
    Requirements,
    begin_with_built_in,
    jittered,
    pull_table,
)
from maptr.web import SECONDS

log = logging.getLogger("maptr.daemon")

MAX_NAMED = 5  # records named in the text about a drift
START_SECONDS = 10.0  # for each source at a first start: other zones wait, and systemd only for TimeoutStartSec
FIRST_RETRY = 30.0  # seconds after the first failed pull; doubled after each failure, up to the interval


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A record whose last good entry is kept, and the reason."""

    record: str
    reason: str


@dataclass(frozen=True, slots=True)
class ServerDrift:
    """The comparison of one server with the table. ``deviating`` has a text "RECORD VERDICT" for each difference."""

    server: str
    at: Time
    records: int = 0
    deviating: tuple[str, ...] = ()
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return f"not known: {self.error}"
        if not self.deviating:
            return f"none in {self.records} records"
        more = len(self.deviating) - MAX_NAMED
        named = ", ".join(self.deviating[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        return f"{len(self.deviating)} of {self.records} records: {named}"

    def text(self) -> str:
        """Return the line about it, for the log and the alarm."""
        return f"drift of {self.server} against the table: {self}"

    @property
    def is_bad(self) -> bool:
        """Whether an operator must act."""
        return bool(self.deviating or self.error)


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The pulled or compared table. ``error`` is why the last pull failed, "" after a success.

    ``date`` is the date in its metadata, from the last pull of a whole table.
    """

    file: str = ""
    source: str = ""
    checked: Time | None = None
    changed: Time | None = None
    error: str = ""
    failed: Time | None = None
    kept: tuple[KeptRecord, ...] = ()
    drift: tuple[ServerDrift, ...] = ()
    date: Time | None = None


class TablePulls:
    """Pulls a table repeatedly. ``state`` has the result, and ``failure`` the line about a failed pull.

    ``has_alarms``: the caller raises an alarm for each error, so errors are not logged here.
    """

    def __init__(self, *, clock: Callable[[], float], has_alarms: bool = False) -> None:
        self._clock = clock
        self._has_alarms = has_alarms
        self.forget()

    def forget(self) -> None:
        """Reset the state, for a configuration without a table."""
        self.state, self.failure, self._failures = TableStatus(), "", 0
        self._lines: tuple[PullLine, ...] = ()  # about the last pull

    def pause(self, every: float) -> float:
        """Return the seconds until the next pull, with a random variation; fewer after a failure."""
        if self._failures:
            every = min(every, FIRST_RETRY * 2.0 ** min(self._failures - 1, 16))
        return jittered(every, random.uniform)

    def pull(self, config: Config, file: Path, *, seconds: float = SECONDS) -> bool:
        """Pull the table into this file, with that many seconds for each source. Returns whether it has changed.

        This takes long: call it in a thread.
        """
        result = self._result(config, file, seconds)
        for line in result.lines:
            if self._has_alarms and line.level == logging.ERROR:
                continue
            is_change = result.changes and line == result.lines[-1]
            if is_change or line not in self._lines:  # a line about the last pull is not repeated
                log.log(line.level, "table %s: %s", file, line.text)
        self._lines = result.lines
        now, found = self._clock(), result.pull
        if found is None:
            self._failures += 1
            self.failure = f"table {file}: {result.lines[0].text}"
            self.state = replace(self.state, error=result.reason, failed=now)
            return False
        self.failure, self._failures = "", 0
        changed = now if found.changes else self.state.changed
        kept = tuple(KeptRecord(*each) for each in found.plan.kept)
        self.state = TableStatus(str(file), found.source, now, changed, kept=kept, date=found.date)
        return found.changes

    def _result(self, config: Config, file: Path, seconds: float) -> PullResult:
        origin, scheme = config.client.origin, config.client.scheme
        in_use = FoundTable(clock=time.monotonic, scheme=scheme, built_in=origin == ARK_ARPA)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            sources = sources_of(config, seconds)
        except (MaptrError, OSError) as error:
            return PullResult.failed(file, error)
        return pull_table(file, sources, in_use=in_use, wall=self._clock)


def begin(config: Config, *, clock: Callable[[], float]) -> None:
    """Make the table's file for a first start, so that the zones built from it can be served at once.

    If the public registry will be pulled, the file starts as the built-in registry, which needs no network; otherwise
    the first pull is made now, before anything is served, and retried while the server runs. Raises ConfigError for the
    file.
    """
    file, sources = config.table.file, config.table.sources
    if file is None or file.exists() or not sources:
        return
    if config.table.url != OFFICIAL:
        TablePulls(clock=clock).pull(config, file, seconds=START_SECONDS)
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        begin_with_built_in(file)
    except OSError as error:
        raise config.error("table.file", reason_of(error)) from error
    log.info("table %s starts as the built-in registry; pulling the public one now", file)


def sources_of(config: Config, seconds: float = SECONDS) -> PullSources:
    """Return the table's sources. Raises ConfigError for an unreadable key."""
    table = config.table
    try:
        path = table.public_key
        key = None if path is None else PublicKey.parse(read_whole(path).decode("utf-8", "replace"))
    except MissingExtra:
        raise
    except (OSError, SignatureError) as error:
        reason = getattr(error, "strerror", "") or error
        raise config.error("table.public_key", f"{table.public_key}: {reason}") from None
    return PullSources(table.sources, Requirements(table.sha256 or None, key), table.cafile, seconds)
