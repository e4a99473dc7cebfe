"""Alarms: the conditions that an operator must solve, as values for the status, the metrics and the log."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class AlarmKind(enum.StrEnum):
    """The condition. The value is the label ``kind`` of the metric ``maptr_alarms``."""

    CONFIG_REFUSED = "config-refused"
    CERTIFICATE_REFUSED = "certificate-refused"
    TABLE_NOT_PULLED = "table-not-pulled"
    RECORDS_KEPT = "records-kept"  # the source has unreadable data, so the last good entries stay
    DRIFT = "drift"
    ZONE_NOT_LOADED = "zone-not-loaded"
    ZONE_REFUSED = "zone-refused"
    ZONE_NOT_SIGNED = "zone-not-signed"
    SIGNATURES = "signatures"  # expiring, expired, or not yet valid
    RECORDS_LEFT_OUT = "records-left-out"  # ARKs of records that are not in the zone get the answer of another record
    NOTIFY_GIVEN_UP = "notify-given-up"
    SECONDARY_UNKNOWN = "secondary-unknown"  # a secondary has an unknown serial
    SECONDARY_BEHIND = "secondary-behind"  # a secondary has another serial


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm. ``zone`` and ``secondary`` name what it is about; "" where it is about neither."""

    kind: AlarmKind
    text: str
    zone: str = ""
    secondary: str = ""
