"""The configured zones for DNS over HTTPS, read from their files, and reread when these change.

The gateway writes and signs no zone. If ``maptr serve`` has a state folder, the gateway reads the last published
version there, and the zone's own file only until there is one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from maptr.config import ZoneConfig
from maptr.daemon import kept
from maptr.errors import MaptrError
from maptr.files import Followed
from maptr.gateway.message import published
from maptr.protocol.names import Folded, to_text
from maptr.zone.check import read_checked
from maptr.zone.diff import decide
from maptr.zone.finding import text_of
from maptr.zone.snapshot import Snapshot, ZoneView

log = logging.getLogger("maptr.gateway")


@dataclass(frozen=True, slots=True, eq=False)
class FollowedZone:
    """The last good version of a zone, None before the first, and its warnings. ``trouble`` is why the current file is
    not used, safe to show to clients: it does not name the folder."""

    view: ZoneView | None = None
    warnings: tuple[str, ...] = ()
    trouble: str = ""


class ZoneFiles:
    """``snapshot`` has the zones as last read; None without zones.

    If a file cannot be used, the version read before remains in use; without one, queries get SERVFAIL. Thread-safe.
    """

    def __init__(self, zones: Sequence[ZoneConfig] = (), *, clock: Callable[[], float] = time.monotonic) -> None:
        self.snapshot: Snapshot | None = None
        self._files: dict[Folded, Followed[FollowedZone]] = {}
        self._read: list[FollowedZone] = []
        self._clock = clock
        self._lock = threading.Lock()
        self.follow(zones)

    @property
    def troubles(self) -> list[str]:
        """Why a zone's file is not used, for each such zone."""
        return [
            f"zone {to_text(name)}: {file.value.trouble}" for name, file in self._files.items() if file.value.trouble
        ]

    def follow(self, zones: Sequence[ZoneConfig]) -> None:
        """Read these zones' files, now and when they change. Reading takes long: call it in a thread."""
        with self._lock:
            files: dict[Folded, Followed[FollowedZone]] = {}
            for zone in zones:
                known = self._files.get(zone.name)
                first = FollowedZone() if known is None else known.value
                files[zone.name] = file = _followed(zone, first, self._clock)
                file.refresh()  # before other threads see it, so that they see its troubles
            self._files = files  # assigned once: ``troubles`` reads it without the lock
        self.refresh()

    def refresh(self) -> Snapshot | None:
        """Return the current zones. Reading takes long: call it in a thread."""
        with self._lock:
            read = [file.current() for file in self._files.values()]
            if read != self._read:
                views = [zone.view for zone in read if zone.view is not None]
                broken = [name for name, file in self._files.items() if file.value.view is None]
                self.snapshot = Snapshot.of(views, broken=broken) if read else None
                self._read = read
            return self.snapshot


def _followed(zone: ZoneConfig, first: FollowedZone, clock: Callable[[], float]) -> Followed[FollowedZone]:
    path, name = zone.published, to_text(zone.name)

    def read(last: FollowedZone) -> FollowedZone:
        view, warnings, is_made = _published(zone)
        if last.view is not None and not decide(last.view, view, zone.max_shrink, force=is_made):
            view = last.view
        if view is not last.view:
            for warning in warnings:
                if warning not in last.warnings:
                    log.warning("zone %s: %s", name, warning)
            if last.view is None:
                log.info("zone %s loaded, serial %d", name, view.serial)
            else:
                log.info("zone %s reloaded, serial %d (was %d)", name, view.serial, last.view.serial)
        return FollowedZone(view, warnings)

    def keep(last: FollowedZone, error: MaptrError | OSError) -> FollowedZone:
        trouble, reason = published(error), text_of(error)
        if trouble != last.trouble:
            if last.view is None:
                log.error("zone %s not loaded, queries get SERVFAIL: %s", name, reason)
            else:
                log.error("zone %s not reloaded, still serving serial %d: %s", name, last.view.serial, reason)
        return replace(last, trouble=trouble)

    beside = None if zone.state is None else kept.path_of(zone.state, zone.name)
    return Followed(path, first, read, keep, clock=clock, beside=beside)


def _published(zone: ZoneConfig) -> tuple[ZoneView, tuple[str, ...], bool]:
    """Return a zone as published, its warnings, and whether a server has decided to publish it.

    Raises ZoneError and OSError.
    """
    version = None if zone.state is None else kept.read(zone.state, zone.name)
    if version is not None and zone.state is not None:
        if zone.keys is None and version.unsigned is not None:
            version = None  # the keys were removed
        elif zone.keys is None or version.signed == kept.signed_head(zone.state, zone.name):
            return version.view, version.warnings, True
    try:
        checked = read_checked(zone.published, zone.name, lint=zone.lint)
    except (MaptrError, OSError):
        if version is None:
            raise
        return version.view, version.warnings, True
    # If a server made the file, it has checked the zone's serial and size.
    return checked.view, checked.first_warnings(), zone.keys is not None or zone.style != "file"
