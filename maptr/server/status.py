"""A running server's status, and the result of a reload, as values for ``maptr status``, metrics and health.

Times are in seconds since 1970, ages in seconds. Secrets are left out. The control socket sends what ``to_json``
returns, with times in RFC 3339 format; ``maptr status --json`` prints it, and ``maptr status`` a text made from it.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, get_args, get_type_hints

from maptr.daemon.pulling import TableStatus
from maptr.dnssec.keys import KeyStep
from maptr.errors import Time, time_text
from maptr.protocol.serial import is_newer
from maptr.server.alarm import Alarm

Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SigningStatus:
    """The signing of a zone by the server. ``unsigned_serial`` is the zone file's, ``due`` the next signing, ``error``
    the reason for the last failure, "" after a success, ``key_states`` its keys."""

    keys: str
    unsigned_serial: int | None
    due: Time | None = None
    error: str = ""
    failed: Time | None = None
    retry: Time | None = None
    key_states: tuple[KeyStep, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOutStatus:
    """The table records that are not in the zone: their number, the first findings, and a summary in one line."""

    records: int
    findings: tuple[Mapping[str, Any], ...]
    text: str


class Progress(enum.StrEnum):
    """A secondary's progress towards the zone's current serial."""

    NOTIFYING = "notifying"  # it has not acknowledged NOTIFY yet
    TOLD = "told"  # it has just acknowledged NOTIFY, and may be transferring the zone
    IN_STEP = "in step"  # it has the serial
    BEHIND = "behind"  # it has another serial, and has had time for a transfer
    AHEAD = "ahead"  # it has a greater serial
    SILENT = "silent"  # it gives no serial
    UNTOLD = "does not tell"  # a secondary of the catalog that refuses the query (RFC 9432 7)


@dataclass(frozen=True, slots=True)
class SecondaryStatus:
    """A secondary of a zone.

    ``progress``: a value of ``Progress``; None before the first NOTIFY.
    ``notify``: the state of the last NOTIFY, and ``since`` when; None before the first.
    ``notify_error``: why NOTIFY was given up.
    ``serial``: the last serial that the secondary acknowledged; ``observed_serial``: the last that it reported.
    ``observed_error``: why the last query failed, "" after a success.
    ``behind_since``: since when it has not been known to have the zone's serial, None if it has, or does not tell.

    ``at`` computes the ages; ``lags``, whether it has another serial; ``is_ahead``, whether that is greater; and
    ``lag``, which is 0 while it has the zone's serial.
    """

    secondary: str
    progress: str | None = None
    notify: str | None = None
    since: Time | None = None
    age: float | None = None
    notify_error: str = ""
    serial: int | None = None
    observed_serial: int | None = None
    observed: Time | None = None
    observed_age: float | None = None
    lags: bool | None = None
    is_ahead: bool | None = None
    observed_error: str = ""
    behind_since: Time | None = None
    lag: float | None = None

    def at(self, now: float, serial: int | None) -> SecondaryStatus:
        """Return the status with its ages. ``serial`` is the zone's, None if it is not loaded."""
        known = self.observed_serial
        return replace(
            self,
            age=age(self.since, now),
            observed_age=age(self.observed, now),
            lags=None if known is None or serial is None else known != serial,
            is_ahead=None if known is None or serial is None else is_newer(known, serial),
            lag=0.0 if self.behind_since is None and known is not None else age(self.behind_since, now),
        )


@dataclass(frozen=True, slots=True)
class ZoneStatus:
    """A zone. ``serial`` is None if it was never loaded; ``error`` is why its last file was refused, else "".

    The version has been served since ``published``, across restarts, and by this process since ``loaded``.
    ``keep_error`` is why it is not kept for the next start, else "". ``frozen`` is since when the zone has been frozen,
    None if it is not.
    """

    zone: str
    file: str
    serial: int | None = None
    names: int = 0
    loaded: Time | None = None
    published: Time | None = None
    frozen: Time | None = None
    keep_error: str = ""
    error: str = ""
    failed: Time | None = None
    warnings: tuple[str, ...] = ()
    left_out: LeftOutStatus | None = None
    signatures: str | None = None  # of ``Signatures``
    signatures_expire: Time | None = None
    signing: SigningStatus | None = None
    secondaries: tuple[SecondaryStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class CatalogStatus:
    """The catalog. Its secondaries may refuse queries for their serials (RFC 9432 7)."""

    zone: str
    serial: int
    secondaries: tuple[SecondaryStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class ZoneResult:
    """A zone after a reload: loaded, reloaded, signed (same file, new signatures), unchanged, refused,
    removed, or frozen (not read)."""

    zone: str
    result: str
    serial: int | None = None
    was: int | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        return self.result == "refused"


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """The result of a reload. ``zones`` is None if it failed; ``error`` is why, or why the certificate was refused."""

    zones: tuple[ZoneResult, ...] | None = None
    error: str = ""

    @property
    def is_refused(self) -> bool:
        return bool(self.error) or any(zone.is_refused for zone in self.zones or ())


@dataclass(frozen=True, slots=True)
class Reloads:
    """The number of reloads: done, with a refused zone, or failed (bad configuration); and when the last one ended."""

    done: int = 0
    refused: int = 0
    failed: int = 0
    last: Time | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The document of ``maptr status --json``, which is why it is flat.

    ``queries`` are counts by transport and RCODE; ``batches`` and ``cookies`` are as in ``Counters``.
    """

    version: str
    pid: int
    config: str | None = None
    started: Time = 0.0
    uptime: float = 0.0
    listen: tuple[str, ...] = ()
    listen_tls: tuple[str, ...] = ()
    metrics: str | None = None
    zones: tuple[ZoneStatus, ...] = ()
    catalog: CatalogStatus | None = None
    reloads: Reloads = Reloads()
    config_error: str = ""
    certificate_error: str = ""
    certificate_expires: Time | None = None
    table: TableStatus | None = None
    queries: Mapping[str, Counts] = field(default_factory=dict)
    batches: Counts = field(default_factory=dict)
    rate_limit: Counts = field(default_factory=dict)
    cookies: Counts = field(default_factory=dict)
    connections: Counts = field(default_factory=dict)
    silenced: tuple[Alarm, ...] = ()
    alarms: tuple[Alarm, ...] = ()


def age(at: float | None, now: float) -> float | None:
    return None if at is None else round(max(0.0, now - at), 3)


@cache
def _times(kind: Hashable) -> frozenset[str]:
    """Return the fields of a dataclass that have the type ``Time``."""
    hints = get_type_hints(kind, include_extras=True)
    return frozenset(name for name, hint in hints.items() if Time in (hint, *get_args(hint)))


def to_json(value: Any) -> Any:
    """Return a status, or part of one, for JSON, with its times as text. Fields without ``repr`` are left out."""
    if is_dataclass(value):
        times = _times(value.__class__)
        document = {each.name: getattr(value, each.name) for each in fields(value) if each.repr}
        return {
            name: time_text(found) if name in times and found is not None else to_json(found)
            for name, found in document.items()
        }
    return [*map(to_json, value)] if isinstance(value, tuple) else value
