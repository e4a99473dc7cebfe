"""What the daemon is to its secondaries: keeps the journals in step with the zones, and says what is new."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from maptr.errors import ConfigError
from maptr.protocol.names import Labels, to_text
from maptr.protocol.serial import is_newer
from maptr.server.journal_file import journal_path, read_journal, write_journal
from maptr.server.notify import News, Notifier
from maptr.server.observer import Observed, Observer
from maptr.server.state import ZoneSource
from maptr.transfer.acl import Key, NotifyTarget, Secondaries, keyring
from maptr.transfer.catalog import catalog_zone
from maptr.transfer.journal import Journal
from maptr.transfer.session import NOBODY, Access, Catalog
from maptr.zone.difference import difference
from maptr.zone.snapshot import Snapshot, ZoneView

log = logging.getLogger("maptr.serve")


@dataclass(frozen=True, slots=True)
class PrimarySettings:
    """Keys, and the secondaries of each zone by folded origin; ``catalog`` is an origin and who may have that zone.

    Journals are kept only of zones that someone may have: beside their files, or in ``state``. Raises ConfigError for
    a key given twice or named and not there.
    """

    keys: tuple[Key, ...] = ()
    secondaries: Mapping[Labels, Secondaries] = field(default_factory=lambda: MappingProxyType({}))
    catalog: tuple[Labels, Secondaries] | None = None
    state: Path | None = None

    def __post_init__(self) -> None:
        try:
            ring = keyring(self.keys)
            for each in (*self.secondaries.values(), *([self.catalog[1]] if self.catalog else [])):
                each.check(ring)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def journal(self, source: ZoneSource) -> Path | None:
        """Where a zone's journal is; None for a zone that has none."""
        if not self.secondaries.get(source.origin, NOBODY).transfer.rules:
            return None
        return journal_path(source.path, source.origin, self.state)


NO_SECONDARIES = PrimarySettings()


class Primary:
    """Makes the ``Access`` that goes with each snapshot. ``settings`` may be replaced; ``follow`` then goes by them."""

    def __init__(self, settings: PrimarySettings = NO_SECONDARIES, *, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self._clock = clock
        self._notifier: Notifier | None = None
        self._observer: Observer | None = None

    def access(self, snapshot: Snapshot) -> Access:
        """What goes with a snapshot where no file is touched: no journals, so IXFR gets all of a zone."""
        keys = MappingProxyType(dict(keyring(self.settings.keys)))
        return self._with_catalog(Access(keys, self.settings.secondaries), snapshot)

    def start(self, sources: Sequence[ZoneSource], snapshot: Snapshot) -> Access:
        """What goes with the first snapshot; reads the journals, and sets aside those that do not fit."""
        journals = {
            source.origin: read_journal(path, snapshot.zones[source.origin])
            for source in sources
            if (path := self.settings.journal(source)) is not None and source.origin in snapshot.zones
        }
        return replace(self.access(snapshot), journals=MappingProxyType(journals))

    def follow(self, access: Access, sources: Sequence[ZoneSource], old: Snapshot, new: Snapshot) -> Access:
        """What goes with the next snapshot. Compares zones and writes files, so it belongs in a thread."""
        journals: dict[Labels, Journal] = {}
        for source in sources:
            origin, path = source.origin, self.settings.journal(source)
            view, before = new.zones.get(origin), old.zones.get(origin)
            if view is None:
                continue
            if before is not None and before is not view:
                _warn(before, view)
            if path is not None:
                journals[origin] = _next(path, access.journals.get(origin), before, view)
        following = replace(self.access(new), journals=MappingProxyType(journals))
        if access.catalog is not None and following.catalog is not None:
            same = following.catalog.view.nodes.keys() == access.catalog.view.nodes.keys()
            if same and following.catalog.secondaries == access.catalog.secondaries:
                return replace(following, catalog=access.catalog)
            return self._with_catalog(following, new, after=access.catalog.view.serial)
        return following

    def _with_catalog(self, access: Access, snapshot: Snapshot, *, after: int | None = None) -> Access:
        if self.settings.catalog is None:
            return access
        origin, secondaries = self.settings.catalog
        # The time makes a serial that goes forward over restarts without a file to remember it.
        serial = int(self._clock()) & 0xFFFF_FFFF
        if after is not None and not is_newer(serial, after):
            serial = (after + 1) & 0xFFFF_FFFF
        return replace(access, catalog=Catalog(catalog_zone(origin, snapshot.zones, serial), secondaries))

    def tell(self, access: Access, new: Snapshot, old: Snapshot | None = None, before: Access | None = None) -> None:
        """Send NOTIFY for zones that have another serial than before; without a before, for all, as at a start.

        From then on the targets are asked which serial they have.
        """
        if self._observer is None:
            self._observer = Observer(self._clock)
        if self._notifier is None:
            self._notifier = Notifier(self._clock, acknowledged=self._observer.acknowledged)
        self._observer.follow(
            {
                (origin, target): (view.serial, None if target.key is None else access.keys[target.key])
                for origin, view in new.zones.items()
                for target in access.secondaries.get(origin, NOBODY).notify
            }
        )
        for origin, view in new.zones.items():
            known = old.zones.get(origin) if old is not None else None
            if known is None or known.serial != view.serial:
                self._notifier.tell(view, access.secondaries.get(origin, NOBODY).notify, access.keys)
        catalog = access.catalog
        if catalog is not None and (before is None or before.catalog is not catalog):
            self._notifier.tell(catalog.view, catalog.secondaries.notify, access.keys)

    def news(self, origin: Labels) -> list[tuple[NotifyTarget, News | None]]:
        """How it stands with telling each secondary of a zone."""
        targets = self.settings.secondaries.get(origin, NOBODY).notify
        notifier = self._notifier
        return [(target, None if notifier is None else notifier.news(origin, target)) for target in targets]

    def observed(self, origin: Labels, target: NotifyTarget) -> Observed:
        """The serial that a secondary of a zone has, as far as that is known."""
        return Observed() if self._observer is None else self._observer.seen(origin, target)

    async def stop(self) -> None:
        if self._notifier is not None:
            await self._notifier.stop()
        if self._observer is not None:
            await self._observer.stop()


def _next(path: Path, journal: Journal | None, before: ZoneView | None, view: ZoneView) -> Journal:
    if before is None or (journal is None and before is view):
        return read_journal(path, view)
    if before is view and journal is not None:
        return journal
    longer = (journal or Journal.start(before)).extend(before, view)
    if longer is not journal:
        write_journal(path, longer)
    return longer


def _warn(before: ZoneView, view: ZoneView) -> None:
    if is_newer(view.serial, before.serial) or difference(before, view) is None:
        return
    log.warning(
        "zone %s CHANGED BUT ITS SERIAL DID NOT GO FORWARD (%d, was %d): no secondary will follow until it does",
        to_text(view.origin),
        view.serial,
        before.serial,
    )
