"""The primary's side of zone transfers: journals that keep step with the zones, and messages to secondaries.

A zone's journal is one file, written atomically. The zone file is authoritative: if its journal is damaged or does not
lead to it, secondaries get one AXFR.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from maptr.errors import ConfigError, JournalError
from maptr.files import keep, name_for
from maptr.protocol.names import Labels, to_text
from maptr.protocol.serial import is_newer
from maptr.server.secondaries import Notified, Notifier, Observed, Observer
from maptr.server.state import ZoneSource
from maptr.transfer.acl import NotifyTarget, Secondaries, TsigKey, keyring
from maptr.transfer.catalog import catalog_zone
from maptr.transfer.journal import MAX_BYTES, Journal, decode, describe, encode
from maptr.transfer.session import Access, Catalog
from maptr.zone.diff import difference
from maptr.zone.snapshot import Snapshot, ZoneView

log = logging.getLogger("maptr.serve")

JOURNAL_SUFFIX = ".journal"
BAD_SUFFIX = ".bad"  # of the last journal that could not be used
MAX_JOURNAL_FILE = 2 * MAX_BYTES  # bytes; a larger file is not a journal of maptr


@dataclass(frozen=True, slots=True)
class PrimarySettings:
    """TSIG keys, and the secondaries of each zone by folded origin; ``catalog`` is the catalog zone's origin and
    secondaries.

    Zones that may be transferred have journals, beside their files or in the folder ``state``. Raises ConfigError for
    a key given twice, and for one that is named but not given.
    """

    keys: tuple[TsigKey, ...] = ()
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

    def of(self, origin: Labels) -> Secondaries:
        """The secondaries of a zone."""
        return self.secondaries.get(origin, Secondaries())

    def journal(self, source: ZoneSource) -> Path | None:
        """The path of a zone's journal; None for a zone without one."""
        if not self.of(source.origin).transfer.rules:
            return None
        return journal_path(source.path, source.origin, self.state)


NO_SECONDARIES = PrimarySettings()


class Primary:
    """Makes the ``Access`` of each snapshot. ``settings`` may be replaced; ``follow`` uses them from then on."""

    def __init__(self, settings: PrimarySettings = NO_SECONDARIES, *, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self._clock = clock
        self._notifier: Notifier | None = None
        self._observer: Observer | None = None

    def access(self, snapshot: Snapshot) -> Access:
        """The access to a snapshot without journals, so that an IXFR gets the whole zone. Reads no file."""
        keys = MappingProxyType(dict(keyring(self.settings.keys)))
        return self._with_catalog(Access(keys, self.settings.secondaries), snapshot)

    def start(self, sources: Sequence[ZoneSource], snapshot: Snapshot) -> Access:
        """The access to the first snapshot. Reads the journals, and sets aside those that cannot be used."""
        journals = {
            source.origin: read_journal(path, snapshot.zones[source.origin])
            for source in sources
            if (path := self.settings.journal(source)) is not None and source.origin in snapshot.zones
        }
        return replace(self.access(snapshot), journals=MappingProxyType(journals))

    def follow(self, access: Access, sources: Sequence[ZoneSource], old: Snapshot, new: Snapshot) -> Access:
        """The access to the next snapshot. Compares zones and writes files: call it in a thread."""
        journals: dict[Labels, Journal] = {}
        for source in sources:
            origin, path = source.origin, self.settings.journal(source)
            view, before = new.zones.get(origin), old.zones.get(origin)
            if view is None:
                continue
            if before is not None and before is not view:
                _warn_of_serial(before, view)
            if path is not None:
                journals[origin] = _extended(path, access.journals.get(origin), before, view)
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
        # A serial from the time rises over restarts, without a file to store it.
        serial = int(self._clock()) & 0xFFFF_FFFF
        if after is not None and not is_newer(serial, after):
            serial = (after + 1) & 0xFFFF_FFFF
        return replace(access, catalog=Catalog(catalog_zone(origin, snapshot.zones, serial), secondaries))

    def notify(self, access: Access, new: Snapshot, old: Snapshot | None = None, before: Access | None = None) -> None:
        """Send NOTIFY for zones whose serial differs from the old snapshot's; for all zones without an old one.

        From then on the secondaries get SOA queries for the serial that they have.
        """
        if self._observer is None or self._notifier is None:
            self._observer = Observer(self._clock)
            self._notifier = Notifier(self._clock, acknowledged=self._observer.acknowledged)
        self._observer.follow(
            {
                (origin, target): (view.serial, None if target.key is None else access.keys[target.key])
                for origin, view in new.zones.items()
                for target in access.secondaries.get(origin, Secondaries()).notify
            }
        )
        for origin, view in new.zones.items():
            known = old.zones.get(origin) if old is not None else None
            if known is None or known.serial != view.serial:
                self._notifier.notify(view, access.secondaries.get(origin, Secondaries()).notify, access.keys)
        catalog = access.catalog
        if catalog is not None and (before is None or before.catalog is not catalog):
            self._notifier.notify(catalog.view, catalog.secondaries.notify, access.keys)

    def secondaries(self, origin: Labels) -> list[tuple[NotifyTarget, Notified | None, Observed]]:
        """Each secondary of a zone, with the state of its last NOTIFY and the serial that it reported."""
        return [
            (
                target,
                None if self._notifier is None else self._notifier.notified(origin, target),
                Observed() if self._observer is None else self._observer.observed(origin, target),
            )
            for target in self.settings.of(origin).notify
        ]

    async def stop(self) -> None:
        if self._notifier is not None:
            await self._notifier.stop()
        if self._observer is not None:
            await self._observer.stop()


def _extended(path: Path, journal: Journal | None, before: ZoneView | None, view: ZoneView) -> Journal:
    """The journal with the changes from ``before`` to ``view``; written if it has new ones."""
    if before is None or (journal is None and before is view):
        return read_journal(path, view)
    if before is view and journal is not None:
        return journal
    longer = (journal or Journal.start(before)).extend(before, view)
    if longer is not journal:
        write_journal(path, longer)
    return longer


def _warn_of_serial(before: ZoneView, view: ZoneView) -> None:
    if is_newer(view.serial, before.serial) or difference(before, view) is None:
        return
    log.warning(
        "zone %s CHANGED BUT ITS SERIAL DID NOT GO FORWARD (%d, was %d): no secondary will follow until it does",
        to_text(view.origin),
        view.serial,
        before.serial,
    )


def journal_path(zone_file: Path, origin: Labels, state: Path | None) -> Path:
    """Beside the zone file, or in the state folder under the zone's name."""
    if state is None:
        return zone_file.with_name(zone_file.name + JOURNAL_SUFFIX)
    return state / (name_for(origin) + JOURNAL_SUFFIX)


def read_journal(path: Path, view: ZoneView) -> Journal:
    """The journal of a zone that was just loaded; an empty one, with the reason in the log, if the file is unusable."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_JOURNAL_FILE + 1)
        journal = decode(data)
        if not journal.fits(view):
            raise JournalError(f"it leads to serial {journal.serial}, not to this zone of serial {view.serial}")
    except FileNotFoundError:
        return Journal.start(view)
    except OSError as error:
        log.warning("journal %s cannot be read, secondaries will get AXFR: %s", path, error.strerror)
        return Journal.start(view)
    except JournalError as error:
        aside = path.with_name(path.name + BAD_SUFFIX)
        log.warning("journal %s set aside as %s, secondaries will get AXFR: %s", path, aside.name, error)
        with contextlib.suppress(OSError):
            path.replace(aside)
        return Journal.start(view)
    log.info("journal %s: %s", path, describe(journal))
    return journal


def write_journal(path: Path, journal: Journal) -> None:
    """Replace the file atomically. An OSError is logged."""
    try:
        keep(path, encode(journal))
    except OSError as error:
        log.error("journal %s not written, after a restart secondaries will get AXFR: %s", path, error.strerror)
