"""Link checks in a running gateway, and the report for its pages, alarms and metrics.

It checks only if ``gateway.check_every`` is set. It also reports results of ``maptr redirects probe``.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from maptr.config.model import GatewayConfig
from maptr.daemon.background import Repetitions
from maptr.errors import ConfigError, reason_of
from maptr.gateway.links.check import AGAIN, LinkReport, LinkRow, LinkRows, LinkState
from maptr.gateway.links.checker import LinkChecker
from maptr.gateway.links.store import Due, LinkStore, alone
from maptr.gateway.message import Unreadable
from maptr.gateway.objects import Redirects
from maptr.gateway.redirects.following import KeptStores
from maptr.gateway.redirects.store import ObjectStore

log = logging.getLogger("maptr.gateway")

SUFFIX = ".links.sqlite"
TURN = 2.0  # seconds of checks before the settings are read again
IDLE = 5.0  # seconds until the next turn if there is nothing to do
COUNT_EVERY = 60.0  # seconds between two counts of all links
STOPPING = 1.0  # seconds that a stop waits for the checking thread


class LinkMonitor:
    """A gateway's link checks, across configuration changes. One thread at a time calls ``work``."""

    def __init__(self, files: KeptStores, *, allow_private: bool = False) -> None:
        self._files = files
        self._allow_private = allow_private
        self._logged = Repetitions()
        self._working = threading.Lock()
        self._is_stopped = False
        self._opened: tuple[Path, LinkStore] | None = None
        self._checker: LinkChecker | None = None
        self._alone = ExitStack()  # while this process checks
        self._count_at = 0.0
        self._report: LinkReport | None = None
        self.is_idle = True

    def work(self, settings: GatewayConfig, redirects: Redirects) -> LinkReport | None:
        """Check for one turn, and return the report; None without results. Errors of the files are logged."""
        with self._working:
            self.is_idle = True
            try:
                return None if self._is_stopped else self._work(settings, redirects)
            except (ConfigError, OSError, sqlite3.Error) as error:
                self._close()
                if self._logged.is_new("", reason_of(error)):
                    log.error("links not checked: %s", reason_of(error))
                return self._report

    def _work(self, settings: GatewayConfig, redirects: Redirects) -> LinkReport | None:
        objects, every = redirects.objects, settings.check_every
        if settings.redirects is None or not isinstance(objects, ObjectStore):
            self._close()
            self._report = None
            return None
        path = self._files.path(settings.redirects, SUFFIX)
        if self._opened is not None and self._opened[0] != path:
            self._close()
        if self._opened is None:
            if not every and not path.exists():
                self._report = None
                return None
            self._opened = path, LinkStore(path, time.time())
            self._count_at = 0.0
        kept = self._opened[1]
        checker = None
        if every:
            checker = self._checker_of(Path(objects.filename), kept, settings.asks_as)
        else:
            self._end_checks()
        if checker is not None:
            self.is_idle = not checker.work(TURN, lambda wall: Due(wall - min(every, AGAIN), wall - every))
        lacks_network = checker is not None and checker.lacks_network
        is_changed = self._report is None or self._report.lacks_network is not lacks_network
        if is_changed or time.monotonic() >= self._count_at:
            self._count_at = time.monotonic() + COUNT_EVERY
            self._report = LinkReport(kept.counts(), lacks_network, _rows_of(kept, objects))
        self._logged.forget("")
        self._tell(self._report)
        return self._report

    def _tell(self, report: LinkReport | None) -> None:
        alarm = "" if report is None else report.alarm
        if self._logged.is_new("alarm", alarm):
            log.warning("%s", alarm)

    def _checker_of(self, objects: Path, kept: LinkStore, contact: str) -> LinkChecker | None:
        """Return the checker of a store's links; None while another process checks them."""
        if self._checker is not None and (self._checker.objects, self._checker.contact) == (objects, contact):
            return self._checker
        self._end_checks()
        if not self._alone.enter_context(alone(kept.path)):
            self._alone.close()
            if self._logged.is_new("alone", kept.path):
                log.warning("links not checked: another process checks those of %s", kept.path)
            return None
        self._logged.forget("alone")
        self._checker = LinkChecker(objects, kept, contact=contact, allow_private=self._allow_private)
        return self._checker

    def _end_checks(self) -> None:
        if self._checker is not None:
            self._checker.stop()
            self._checker = None
        self._alone.close()

    def _close(self) -> None:
        self._end_checks()
        if self._opened is not None:
            with suppress(sqlite3.Error):
                self._opened[1].close()
            self._opened = None

    def stop(self) -> None:
        """End the turn at once. The event loop may call it."""
        self._is_stopped = True
        if (checker := self._checker) is not None:
            checker.stop()

    def close(self) -> None:
        """Close the files after ``stop``. Pending requests end with their threads."""
        if self._working.acquire(timeout=STOPPING):
            try:
                self._close()
            finally:
                self._working.release()


def _rows_of(kept: LinkStore, objects: ObjectStore) -> LinkRows:
    """Return a function that reads the failed links of objects that still have them."""

    def rows(states: Iterable[LinkState], after: str, most: int) -> Sequence[LinkRow]:
        shown: list[LinkRow] = []
        while len(shown) < most:
            try:
                found = kept.failed(states, after, most)
            except sqlite3.Error as error:
                raise Unreadable("the results of checks cannot be read now") from error
            shown += [row for row in found if row.is_of(objects.get(row.ark))]
            if len(found) < most:
                break
            after = found[-1].ark
        return shown[:most]

    return rows
