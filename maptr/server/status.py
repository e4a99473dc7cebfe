"""The status of zones and secondaries as plain values for JSON, and their alarms. ``maptr status`` shows both.

Times are in UTC, in the format of RFC 3339. Secrets are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from maptr.dnssec.expiry import Signatures
from maptr.errors import time_text
from maptr.protocol.names import to_text
from maptr.server.alarm import Alarm, AlarmKind
from maptr.server.secondaries import SecondaryState
from maptr.server.state import Served, ZoneState
from maptr.transfer.acl import NotifyTarget
from maptr.zone.lint import LeftOut

log = logging.getLogger("maptr.serve")

MAX_FINDINGS = 100  # findings of records left out of a zone; ``maptr table check`` shows all
ALARM_INTERVAL = 86400.0  # seconds between two log lines about an alarm


def zone_alarms(state: ZoneState, now: float) -> Iterator[Alarm]:
    """Yield the alarms of one zone, without those of its secondaries."""
    name, signing_error = to_text(state.zone.name), state.signed.error
    if state.view is None:
        reason = state.error or f"not signed: {signing_error}"
        yield Alarm(AlarmKind.ZONE_NOT_LOADED, f"zone {name} is not loaded, queries get SERVFAIL: {reason}", name)
    elif state.error:
        text = f"zone {name} was not reloaded, serial {state.view.serial} stays: {state.error}"
        yield Alarm(AlarmKind.ZONE_REFUSED, text, name)
    if state.view is not None and signing_error:
        text = f"zone {name} was not signed, serial {state.view.serial} stays: {signing_error}"
        yield Alarm(AlarmKind.ZONE_NOT_SIGNED, text, name)
    found = state.signatures(now)
    if found.is_alarm:
        yield Alarm(AlarmKind.SIGNATURES, f"zone {name}: {found.text(now)}", name)
    if state.left_out and state.left_out.answered_by_others:
        yield Alarm(AlarmKind.RECORDS_LEFT_OUT, f"zone {name}: {state.left_out}", name)


def describe_zone(state: ZoneState, now: float) -> dict[str, Any]:
    signatures = state.signatures(now)
    return {
        "zone": to_text(state.zone.name),
        "file": str(state.zone.file),
        "serial": None if state.view is None else state.view.serial,
        "names": state.names,
        "loaded": moment(state.loaded_at),
        "error": state.error,
        "failed": moment(state.failed_at),
        "warnings": list(state.warnings),
        "left_out": None if state.left_out is None else describe_left_out(state.left_out),
        "signatures": None if state.view is None else str(signatures.state),
        "signatures_expire": moment(signatures.expires),
        "signing": _signing(state),
    }


def describe_left_out(left_out: LeftOut) -> dict[str, Any]:
    """Return the number of records left out of the zone, and the first of their findings."""
    findings = [finding.to_dict() for finding in left_out[:MAX_FINDINGS]]
    return {"records": len(left_out.records), "findings": findings, "text": str(left_out)}


def describe_secondary(state: ZoneState, now: float, target: NotifyTarget, known: SecondaryState) -> dict[str, Any]:
    """Return the state of a secondary. ``lag`` is the time in seconds since which it is not known to have the serial.

    It is 0 while the secondary is in step.
    """
    serial = None if state.view is None else state.view.serial
    return {
        "secondary": str(target),
        "notify": known.notify and str(known.notify),
        "since": moment(known.since),
        "age": age(known.since, now),
        "notify_error": known.notify_error,
        "serial": known.acknowledged,
        "observed_serial": known.serial,
        "observed": moment(known.at),
        "observed_age": age(known.at, now),
        "lags": None if known.serial is None or serial is None else known.serial != serial,
        "observed_error": known.error,
        "behind_since": moment(known.behind_since),
        "lag": 0.0 if known.behind_since is None and known.serial is not None else age(known.behind_since, now),
    }


def _signing(state: ZoneState) -> dict[str, Any] | None:
    signed = state.signed
    if state.zone.keys is None:
        return None
    return {
        "keys": str(state.zone.keys),
        "unsigned_serial": signed.unsigned,
        "due": moment(signed.due or None),
        "error": signed.error,
        "failed": moment(signed.failed_at if signed.error else None),
        "retry": moment(signed.retry_at),
    }


def moment(seconds: float | None) -> str | None:
    return None if seconds is None else time_text(seconds)


def age(at: float | None, now: float) -> float | None:
    return None if at is None else round(max(0.0, now - at), 3)


# ---- alarms in the log


def log_alarms(served: Served, now: float) -> None:
    """Log each zone whose signatures need attention, and each zone that lacks records of its table."""
    for origin, state in served.states.items():
        found = state.signatures(now)
        if found.is_alarm:
            level = logging.WARNING if found.state is Signatures.EXPIRING else logging.ERROR
            log.log(level, "zone %s: %s", to_text(origin), found.text(now))
        if state.left_out and state.left_out.records:
            level = logging.ERROR if state.left_out.answered_by_others else logging.WARNING
            log.log(level, "zone %s: %s", to_text(origin), state.left_out)
