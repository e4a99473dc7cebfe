"""A server's catalog zone (RFC 9432): its members, which follow the configuration, and its serial.

A secondary purges a zone that the catalog no longer lists. So every configured zone is a member, whether or not it
could be loaded, and a configuration that has lost many zones does not remove them by itself.

The serial, the members and a digest of the content are kept in the state folder. The serial changes only when the
content does.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from maptr.config import Config, ZoneConfig
from maptr.daemon import kept
from maptr.errors import json_text, reason_of
from maptr.files import name_for, read_whole, write_private
from maptr.protocol.names import Folded, Labels, fold, parse, to_text
from maptr.protocol.serial import choose, is_newer
from maptr.registry.plan import REMOVAL_LIMIT
from maptr.server import state_folder
from maptr.server.alarm import Alarm, AlarmKind
from maptr.server.publisher import Others, none_known
from maptr.server.settings import catalog_origin
from maptr.server.state import Served, SigningState, ZoneState
from maptr.server.status import ZoneResult
from maptr.transfer.catalog import catalog_zone
from maptr.zone.diff import Published, content_digest, with_serial
from maptr.zone.snapshot import ZoneView

SUFFIX = ".catalog"
NAMES = 10  # of members in an alarm


@dataclass(frozen=True, slots=True)
class KeptCatalog:
    """The last published version of a catalog. ``held``: its members that were not configured then."""

    published: Published
    members: tuple[Folded, ...]
    held: tuple[Folded, ...] = ()


class Catalog:
    """A server's catalog, across reloads. ``error`` is why it cannot be kept for the next start, ``damaged`` what was
    wrong with the kept version. ``held``: the members that are not configured."""

    def __init__(self) -> None:
        self.error = ""
        self.damaged = ""
        self.held: tuple[Folded, ...] = ()
        self._stored: tuple[Path, Folded, int, tuple[Folded, ...]] | None = None

    def following(
        self,
        config: Config,
        before: ZoneView | None,
        now: float,
        others: Others = none_known,
        *,
        passing: bool = False,
    ) -> ZoneView | None:
        """Return a configuration's catalog, which is ``before`` if nothing has changed; None if it has none.

        A new version is first stored. ``others`` gives its secondaries' serials, which a new serial passes; with
        ``passing``, a secondary that is ahead is passed even if nothing has changed.
        """
        origin, folder = catalog_origin(config), config.serve.state
        if origin is None:
            return None
        last = before if before is not None and before.origin == origin else None
        published = None if last is None else Published.of(last)
        if last is None and folder is not None and (found := self.read(folder, origin)) is not None:
            published = found.published
        view = catalog_zone(origin, [zone.name for zone in config.zones], int(now) & 0xFFFF_FFFF)
        if published is None:
            serial = choose(view.serial, None, "increment", now, others(origin))
        elif content_digest(view) != published.digest or (passing and _is_passed(published.serial, others(origin))):
            serial = choose(None, published.serial, "increment", now, others(origin))
        else:
            serial = published.serial
        view = last if last is not None and last.serial == serial else with_serial(view, serial)
        if folder is not None and self._stored != (folder, origin, serial, self.held):
            self._store(folder, view, [zone.name for zone in config.zones])
        return view

    def read(self, folder: Path, origin: Folded) -> KeptCatalog | None:
        """Return the kept version of a catalog; None if there is none, or if it is damaged, which raises an alarm."""
        path = path_of(folder, origin)
        try:
            digest, _, text = read_whole(path).partition(b"\n")
            if digest != _digest(text):
                raise ValueError("it is damaged: its checksum is wrong")
            record = json.loads(text)
            members, held = (
                tuple(fold(parse(member)) for member in record.get(key, ())) for key in ("members", "held")
            )
            return KeptCatalog(state_folder.published(record), members, held)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self.damaged = f"{path} is not used: {reason_of(error)}; the catalog's serial may go backwards"
        return None

    def _store(self, folder: Path, view: ZoneView, members: Iterable[Folded]) -> None:
        record = {
            **Published.of(view)._asdict(),
            "members": [*map(to_text, members)],
            "held": [*map(to_text, self.held)],
        }
        text = json_text(record).encode()
        path = path_of(folder, view.origin)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(path, _digest(text), b"\n", text)
        except OSError as error:
            self.error = reason_of(error)
        else:
            self.error, self._stored = "", (folder, view.origin, view.serial, self.held)

    def alarms(self, config: Config, served: Served) -> Iterator[Alarm]:
        """Yield the catalog's alarms."""
        if config.serve.catalog.name is None:
            return
        name = to_text(config.serve.catalog.name)
        if held := held_in(config, served):
            yield Alarm(AlarmKind.MEMBERS_KEPT, f"catalog {name}: {held_text(held, served)}", name, version=held)
        if self.error:
            text = f"catalog {name} is not kept for the next start: {self.error}; make room, then maptr reload"
            yield Alarm(AlarmKind.ZONE_NOT_KEPT, text, name)
        if self.damaged:
            text = f"catalog {name}: {self.damaged}; compare its secondaries, then maptr reload"
            yield Alarm(AlarmKind.STATE_DAMAGED, text, name, level=logging.WARNING)


def path_of(folder: Path, origin: Labels) -> Path:
    return folder / (name_for(origin) + SUFFIX)


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


def _is_passed(serial: int, others: Iterable[int]) -> bool:
    return any(is_newer(other, serial) for other in others)


# ---- members that are no longer configured


def lost_members(
    members: Collection[Folded], configured: Collection[Folded], held: Collection[Folded] = ()
) -> tuple[Folded, ...]:
    """Return the members that are no longer configured, if there are too many to remove without an operator.

    ``held`` were too many at an earlier reload: they remain, even if some are configured again or other zones are new.
    """
    lost = tuple(member for member in members if member not in configured)
    is_held = any(member in held for member in lost)
    return lost if is_held or (len(members) > 1 and len(lost) > REMOVAL_LIMIT * len(members)) else ()


def held_in(config: Config, served: Served) -> list[Folded]:
    """Return the zones that are served without being configured."""
    configured = {zone.name for zone in config.zones}
    return [origin for origin in served if origin not in configured]


def in_effect(config: Config, served: Served) -> Config:
    """Return the configuration with the zones that are served without being configured."""
    held = tuple(served[origin].zone for origin in held_in(config, served))
    return replace(config, zones=(*config.zones, *held)) if held else config


def held_text(held: Collection[Folded], served: Served) -> str:
    names = [*map(to_text, held)]
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return (
        f"{len(names)} of {len(served)} members are no longer configured: {', '.join(names[:NAMES])}{more}; they are"
        " still listed and served: configure them again, or remove them with maptr reload --force"
    )


def held_state(state: ZoneState, config: Config) -> ZoneState:
    """Return the state of a served zone that is no longer configured. Clients that may transfer the catalog may
    transfer it."""
    return replace(state, zone=_held_zone(state.zone, config))


def kept_state(origin: Folded, folder: Path, config: Config, now: float) -> ZoneState:
    """Return the state of a zone that is not configured at a start: its last good version."""
    zone = _held_zone(ZoneConfig(origin, kept.path_of(folder, origin), state=folder), config)
    version = state_folder.last_version(zone, is_signed=True)
    if version is None:
        return ZoneState(zone, error="it is no longer configured, and no version of it is kept", failed_at=now)
    return replace(ZoneState.restored(zone, version, now), signed=SigningState(version.unsigned))


def _held_zone(zone: ZoneConfig, config: Config) -> ZoneConfig:
    catalog, keys = config.serve.catalog, {None, *(key.name for key in config.keys)}
    rules = (*(rule for rule in zone.transfer if rule.key in keys), *catalog.transfer)
    addresses = {target.address for target in catalog.notify}
    targets = (target for target in zone.notify if target.key in keys and target.address not in addresses)
    return replace(zone, transfer=tuple(dict.fromkeys(rules)), notify=(*targets, *catalog.notify))


def held_result(state: ZoneState) -> ZoneResult:
    """Return the result of a reload for a member that remains."""
    serial = None if state.view is None else state.view.serial
    reason = "it is no longer configured, like too many other members; maptr reload --force removes it"
    return ZoneResult(to_text(state.zone.name), "refused", serial, serial, reason)
