"""Alarms: conditions that need an operator. Status, metrics and log show the same values."""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from maptr.errors import Time, nearest
from maptr.protocol.names import fold, parse, to_text
from maptr.transfer.acl import NotifyTarget

log = logging.getLogger("maptr.serve")


class AlarmKind(enum.StrEnum):
    """The condition. The value is the label ``kind`` of the metric ``maptr_alarms``."""

    CONFIG_REFUSED = "config-refused"
    CERTIFICATE_REFUSED = "certificate-refused"
    CERTIFICATE = "certificate"  # it expires soon, has expired, or is not valid yet
    COOKIES_OFF = "cookies-off"  # the configuration asks for cookies, and their package is not installed
    STATE_FOLDER = "state-folder"  # nothing can be kept there for the next start
    TABLE_NOT_PULLED = "table-not-pulled"
    RECORDS_KEPT = "records-kept"  # the source has unreadable data, so the last good entries are kept
    DRIFT = "drift"
    ZONE_NOT_LOADED = "zone-not-loaded"
    ZONE_REFUSED = "zone-refused"
    ZONE_NOT_SIGNED = "zone-not-signed"
    ZONE_NOT_KEPT = "zone-not-kept"  # its version cannot be written to the state folder
    FROZEN = "frozen"  # an operator has frozen zones and not yet thawed them
    FREEZE_NOT_STORED = "freeze-not-stored"  # a restart will forget what an operator froze or thawed
    SIGNATURES = "signatures"  # expiring, expired, or not yet valid
    RECORDS_LEFT_OUT = "records-left-out"  # records are not in the zone, so their ARKs get another record's answer
    NOTIFY_GIVEN_UP = "notify-given-up"
    SECONDARY_UNKNOWN = "secondary-unknown"  # a secondary has an unknown serial
    SECONDARY_BEHIND = "secondary-behind"  # a secondary has another serial
    MEMBERS_KEPT = "members-kept"  # members of the catalog are no longer configured
    STATE_DAMAGED = "state-damaged"  # a file in the state folder could not be used
    SOURCE_MISSING = "source-missing"  # an address of serve.secondaries.source is not on this machine


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm about a ``zone`` or a ``secondary``, which may also be a server of ``table.drift``; "" if neither.

    It is logged at ``level`` when it begins and whenever ``version``, by default the text, changes.
    """

    kind: AlarmKind
    text: str
    zone: str = ""
    secondary: str = ""
    since: Time | None = None
    level: int = field(default=logging.ERROR, repr=False, compare=False)
    version: object = field(default=None, repr=False, compare=False)


class AlarmLog:
    """Dates alarms, and logs their beginning and end. Each gets the time since when it has been raised without a break,
    unless it brings an earlier one.

    ``now`` is in seconds since 1970. Thread-safe: status, metrics and a periodic check date alarms concurrently, and an
    older set of alarms must not replace a newer one.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[AlarmKind, str, str], Alarm] = {}
        self._lock = threading.Lock()

    def dated(self, alarms: Iterable[Alarm], now: float, again: Container[AlarmKind] = ()) -> tuple[Alarm, ...]:
        """Return the present alarms, each once, with their times. Alarms of the kinds ``again`` are logged even if they
        are known."""
        with self._lock:  # even while ``alarms`` is read
            known, present = self._known, {(alarm.kind, alarm.zone, alarm.secondary): alarm for alarm in alarms}
            self._known = {}
            for subject, alarm in known.items():
                if subject not in present:
                    lasted = max(0.0, now - (alarm.since or now))
                    log.info("alarm ended after %.0f s: %s", lasted, " ".join(filter(None, subject)))
            for subject, alarm in present.items():
                before = known.get(subject)
                since = alarm.since or (now if before is None or before.since is None else before.since)
                self._known[subject] = replace(alarm, since=since)
                is_new = before is None or (before.version or before.text) != (alarm.version or alarm.text)
                if is_new or alarm.kind in again:
                    log.log(alarm.level, "%s", alarm.text)
            return tuple(self._known.values())


def not_served(zone: str, served: Iterable[str]) -> str:
    """Return the message for a zone that is not one of the served ones."""
    return f"no zone {zone} is served; the nearest is {nearest(zone, served) or 'none'}"


class Silence(NamedTuple):
    """Alarms that someone else deals with: all of a kind, or only those of a zone or of some of its secondaries."""

    kind: str
    zone: str = ""  # "" is any
    secondaries: tuple[str, ...] = ()  # empty is any

    @classmethod
    def parse(cls, text: str, served: Mapping[str, Iterable[NotifyTarget]]) -> Silence:
        """Read ``KIND [ZONE [SECONDARY]]``. The secondary is written as in ``zone.notify``; its key may be omitted.

        ``served`` has each zone's secondaries. Raises ValueError, even if only because no such alarm can be raised.
        """
        kind, *more = text.split(maxsplit=2) or [""]
        if kind not in tuple(AlarmKind):
            raise ValueError(f"{text!r} is not KIND [ZONE [SECONDARY]]; the kinds are {', '.join(AlarmKind)}")
        if not more:
            return cls(kind)
        zone = to_text(fold(parse(more[0])))
        if zone not in served:
            raise ValueError(not_served(zone, served))
        if len(more) == 1:
            return cls(kind, zone)
        wanted, targets = NotifyTarget.from_text(more[1]), tuple(served[zone])
        same = [each for each in targets if each.address == wanted.address and wanted.key in (None, each.key)]
        if not same:
            known = ", ".join(map(str, targets)) or "none"
            raise ValueError(f"{wanted} is not in the notify of zone {zone}, which has {known}")
        return cls(kind, zone, tuple(map(str, same)))

    def covers(self, alarm: Alarm) -> bool:
        return (
            alarm.kind == self.kind
            and self.zone in ("", alarm.zone.lower())
            and (not self.secondaries or alarm.secondary in self.secondaries)
        )
