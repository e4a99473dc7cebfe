"""The zones of a configuration for DNS over HTTPS, read from their files and again when these change.

The gateway writes and signs no zone. Where ``maptr serve`` does, this reads the version that it published last.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from maptr.config import ZoneConfig
from maptr.gateway.redirects import status_of
from maptr.protocol.names import Labels, to_text
from maptr.server import publisher
from maptr.server.state import Served
from maptr.server.state_folder import signed_path
from maptr.zone.snapshot import Snapshot


class ZoneFiles:
    """``snapshot`` has the zones as they were read last; None without zones.

    If a file cannot be used, the version read before stays; without one, queries get SERVFAIL. Safe for threads.
    """

    def __init__(self, zones: Sequence[ZoneConfig] = ()) -> None:
        self.snapshot: Snapshot | None = None
        self._served = Served(MappingProxyType({}))
        self._lock = threading.Lock()
        self.follow(zones)

    @property
    def troubles(self) -> list[str]:
        """Why the file of a zone is not used, for each such zone."""
        states = self._served.states.items()
        return [f"zone {to_text(origin)}: {state.error}" for origin, state in states if state.error]

    def follow(self, zones: Sequence[ZoneConfig]) -> None:
        """Read the files of these zones, now and when they change. Reading takes long: for a thread."""
        with self._lock:
            self._zones = tuple(map(_published, zones))
            # Where a server made the file, it has checked the zone's serial and size.
            self._made = {zone.name for zone in zones if zone.keys or zone.table or zone.serial != "file"}
            self._stamps: dict[Labels, tuple[int, ...] | None] = {}
        self.refresh()

    def refresh(self) -> Snapshot | None:
        """Return the zones now. Reading takes long: for a thread."""
        with self._lock:
            if not self._zones:
                self.snapshot, self._served = None, Served(MappingProxyType({}))
            for zone in self._zones:
                if (now := status_of(zone.file)) != self._stamps.get(zone.name):
                    self._stamps[zone.name] = now
                    self._read(zone)
            return self.snapshot

    def _read(self, zone: ZoneConfig) -> None:
        force = zone.name in self._made
        self._served, results = publisher.publish(
            self._zones, self._served, clock=time.time, only=zone.name, force=force
        )
        publisher.log_results(results)
        self.snapshot = self._served.snapshot()


def _published(zone: ZoneConfig) -> ZoneConfig:
    """Return the same zone, with the file in which a server publishes it."""
    file = signed_path(zone.state, zone.name) if zone.keys is not None and zone.state is not None else zone.file
    return replace(zone, file=file, keys=None, table=None, state=None)
