"""What the daemon is to its secondaries: keeps the journals in step with the zones, and says what is new."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from maptr.acl import Key, Secondaries, keyring
from maptr.catalog import catalog_zone
from maptr.errors import ConfigError
from maptr.exchange import Access, Catalog
from maptr.journal import Journal, is_newer
from maptr.names import Labels, to_text
from maptr.serve.journal_file import journal_path, read_journal, write_journal
from maptr.serve.notify import Notifier
from maptr.serve.zones import ZoneSource
from maptr.snapshot import Snapshot, ZoneView

log = logging.getLogger("maptr.serve")


class Primary:
    """Keys and secondaries of all zones, by folded origin; ``catalog`` is an origin and who may have that zone.

    Journals are kept only of zones that someone may have: beside their files, or in ``state``. Raises ConfigError
    for a key given twice or named and not there, and for a catalog that is one of the zones.
    """

    def __init__(
        self,
        sources: Sequence[ZoneSource],
        *,
        keys: Iterable[Key] = (),
        secondaries: Mapping[Labels, Secondaries] | None = None,
        catalog: tuple[Labels, Secondaries] | None = None,
        state: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secondaries = dict(secondaries or {})
        self._catalog = catalog
        self._clock = clock
        try:
            self._keys = MappingProxyType(dict(keyring(keys)))
            for each in (*self._secondaries.values(), *([catalog[1]] if catalog else [])):
                each.check(self._keys)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self._paths = {
            source.origin: journal_path(source.path, source.origin, state)
            for source in sources
            if source.origin in self._secondaries and self._secondaries[source.origin].transfer.rules
        }
        if catalog is not None and any(source.origin == catalog[0] for source in sources):
            raise ConfigError(f"the catalog {to_text(catalog[0])} is one of the zones")
        self._notifier: Notifier | None = None

    def access(self, snapshot: Snapshot) -> Access:
        """What goes with a snapshot where no file is touched: no journals, so IXFR gets all of a zone."""
        return self._with_catalog(Access(self._keys, MappingProxyType(self._secondaries)), snapshot)

    def start(self, snapshot: Snapshot) -> Access:
        """What goes with the first snapshot; reads the journals, and sets aside those that do not fit."""
        journals = {
            origin: read_journal(path, snapshot.zones[origin])
            for origin, path in self._paths.items()
            if origin in snapshot.zones
        }
        return replace(self.access(snapshot), journals=MappingProxyType(journals))

    def follow(self, access: Access, old: Snapshot, new: Snapshot) -> Access:
        """What goes with the next snapshot. Compares zones and writes files, so it belongs in a thread."""
        journals = dict(access.journals)
        for origin, view in new.zones.items():
            before = old.zones.get(origin)
            if before is view:
                continue
            if before is not None:
                self._warn(before, view)
            if origin in self._paths:
                journals[origin] = self._next(journals.get(origin), before, view)
        for origin in journals.keys() - new.zones.keys():
            del journals[origin]
        access = replace(access, journals=MappingProxyType(journals))
        return access if old.zones.keys() == new.zones.keys() else self._with_catalog(access, new)

    def _next(self, journal: Journal | None, before: ZoneView | None, view: ZoneView) -> Journal:
        if before is None:
            return read_journal(self._paths[view.origin], view)
        longer = (journal or Journal.start(before)).extend(before, view)
        if longer is not journal:
            write_journal(self._paths[view.origin], longer)
        return longer

    def _warn(self, before: ZoneView, view: ZoneView) -> None:
        if is_newer(view.serial, before.serial) or not any(
            before.nodes.get(key) != view.nodes.get(key) for key in before.nodes.keys() | view.nodes.keys()
        ):
            return
        log.warning(
            "zone %s CHANGED BUT ITS SERIAL DID NOT GO FORWARD (%d, was %d): no secondary will follow until it does",
            to_text(view.origin),
            view.serial,
            before.serial,
        )

    def _with_catalog(self, access: Access, snapshot: Snapshot) -> Access:
        if self._catalog is None:
            return access
        origin, secondaries = self._catalog
        # The time makes a serial that goes forward over restarts without a file to remember it.
        serial = int(self._clock()) & 0xFFFF_FFFF
        earlier = access.catalog
        if earlier is not None and not is_newer(serial, earlier.view.serial):
            serial = (earlier.view.serial + 1) & 0xFFFF_FFFF
        try:
            view = catalog_zone(origin, snapshot.zones, serial)
        except ValueError as error:
            raise ConfigError(f"catalog {to_text(origin)}: {error}") from None
        return replace(access, catalog=Catalog(view, secondaries))

    def tell(self, access: Access, new: Snapshot, old: Snapshot | None = None, before: Access | None = None) -> None:
        """Send NOTIFY for zones that have another serial than before; without a before, for all, as at a start."""
        if self._notifier is None:
            self._notifier = Notifier(self._keys, self._clock)
        for origin, view in new.zones.items():
            known = old.zones.get(origin) if old is not None else None
            if known is None or known.serial != view.serial:
                self._notifier.tell(view, self._secondaries.get(origin, Secondaries()).notify)
        catalog = access.catalog
        if catalog is not None and (before is None or before.catalog is not catalog):
            self._notifier.tell(catalog.view, catalog.secondaries.notify)

    async def stop(self) -> None:
        if self._notifier is not None:
            await self._notifier.stop()
