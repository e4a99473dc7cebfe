"""The table of a configuration, pulled from its sources at intervals. A failure leaves the table as it is."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from maptr.config import Config
from maptr.daemon.background import Repetitions
from maptr.errors import MaptrError, MissingExtra, SignatureError, Time, UnsafePlan, reason_of
from maptr.files import read_whole
from maptr.protocol.names import ARK_ARPA
from maptr.registry.found import FoundTable
from maptr.registry.minisign import PublicKey
from maptr.registry.plan import Plan
from maptr.registry.pull import OFFICIAL, Requirements, apply_pull, begin_with_built_in, jittered, plan_pull
from maptr.web import SECONDS

log = logging.getLogger("maptr.serve")

MAX_NAMED = 5  # records named in the text of a drift
START_SECONDS = 10.0  # for each source of a first start: other zones wait, and systemd for TimeoutStartSec
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

    @property
    def is_bad(self) -> bool:
        """Whether an operator must act."""
        return bool(self.deviating or self.error)


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The table that is pulled or compared with servers. ``error`` is why the last pull failed, "" after a success.

    ``date`` is that of its data by their metadata, when it was last pulled whole.
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
    """Pulls a table, again and again. ``state`` has the result."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Begin again, for a configuration without a table."""
        self.state, self._failures, self._logged = TableStatus(), 0, Repetitions()

    def pause(self, every: float) -> float:
        """Return the seconds until the next pull, with a random variation; fewer after a failure."""
        if self._failures:
            every = min(every, FIRST_RETRY * 2.0 ** min(self._failures - 1, 16))
        return jittered(every, random.uniform)

    def pull(self, config: Config, file: Path, *, seconds: float = SECONDS) -> bool:
        """Pull the table into this file, with so many seconds for each source. Returns whether it has changed.

        It takes long: call it in a thread.
        """
        table = config.table
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            found = plan_pull(
                file,
                table.sources,
                requirements=requirements_of(config),
                cafile=table.cafile,
                seconds=seconds,
                in_use=FoundTable(
                    clock=time.monotonic, scheme=config.client.scheme, built_in=config.client.origin == ARK_ARPA
                ),
                wall=self._clock,
            )
            apply_pull(found, wall=self._clock)
        except (MaptrError, OSError) as error:
            reason = reason_of(error)
            if isinstance(error, UnsafePlan):
                reason += "; if this is intended, run maptr table pull --force --apply"
            if self._logged.is_new("error", reason):
                log.error("table %s not pulled, the old one stays: %s", file, reason)
            self._failures += 1
            self.state = replace(self.state, error=reason, failed=self._clock())
            return False
        self._logged.forget("error")
        if self._logged.is_new("skipped", found.skipped):
            for reason in found.skipped:
                log.warning("table %s: source skipped: %s", file, reason)
        kept = tuple(KeptRecord(*each) for each in found.plan.kept)
        if self._logged.is_new("kept", kept):
            log.error("table %s: %s", file, kept_text(kept))
        if found.first is not None:
            log.info("table %s: %s", file, found.first)
        if found.plan:
            log.info("table %s pulled from %s: %s", file, found.source, _counted(found.plan))
        elif self.state.error or not self.state.checked:
            log.info("table %s up to date with %s", file, found.source)
        now = self._clock()
        self._failures = 0
        changed = now if found.changes else self.state.changed
        self.state = TableStatus(str(file), found.source, now, changed, kept=kept, date=found.date)
        return found.changes


def begin(config: Config, *, clock: Callable[[], float]) -> None:
    """Make the table's file for a first start, so that the zones that are built from it can be served at once.

    If the public registry will be pulled, that is the built-in one, which needs no network; else the first pull is made
    now, before anything is served, and tried again while the server runs. Raises ConfigError for the file.
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


def requirements_of(config: Config) -> Requirements:
    """Return the requirements for a pulled table. Raises ConfigError for an unreadable key."""
    table = config.table
    try:
        path = table.public_key
        key = None if path is None else PublicKey.parse(read_whole(path).decode("utf-8", "replace"))
    except MissingExtra:
        raise
    except (OSError, SignatureError) as error:
        reason = getattr(error, "strerror", "") or error
        raise config.error("table.public_key", f"{table.public_key}: {reason}") from None
    return Requirements(table.sha256 or None, key)


def kept_text(kept: Sequence[KeptRecord]) -> str:
    count = f"{len(kept)} record{' keeps its' if len(kept) == 1 else 's keep their'} last good entry"
    first, more = kept[0], len(kept) - 1
    others = f" and {more} more" if more else ""
    return f"{count}, as the source has unreadable data: {first.record}: {first.reason}{others}"


def _counted(plan: Plan) -> str:
    counts = {"added": len(plan.added), "changed": len(plan.changed), "removed": len(plan.removed)}
    return ", ".join(f"{count} {what}" for what, count in counts.items())
