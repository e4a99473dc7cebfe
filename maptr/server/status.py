"""How the daemon is, as plain values for JSON: what ``maptr status`` shows. No secret is ever among them."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maptr import __version__
from maptr.protocol.names import to_text
from maptr.server.alarm import words
from maptr.server.counters import GROUPS, Counters

if TYPE_CHECKING:
    from maptr.server.daemon import Daemon
    from maptr.server.observer import Observed
    from maptr.server.reload import Reloader
    from maptr.server.state import ZoneState
    from maptr.zone.lint import LeftOut

MAX_FINDINGS = 100  # of what a zone lacks; ``maptr table check`` has them all


@dataclass(slots=True)
class Reloads:
    """How many reloads there were: done, with a zone refused, or failed before any zone was read; and the last."""

    done: int = 0
    refused: int = 0
    failed: int = 0
    last: float | None = None

    def count(self, reply: dict[str, Any], now: float) -> None:
        """Count one by what became of it."""
        if "zones" not in reply:
            self.failed += 1
        elif any(zone["result"] == "refused" for zone in reply["zones"]) or "error" in reply:
            self.refused += 1
        else:
            self.done += 1
        self.last = now

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"done": self.done, "refused": self.refused, "failed": self.failed, "last": _time(self.last)}


@dataclass(frozen=True, slots=True)
class Live:
    """What changes while the event loop turns, so is taken in its thread."""

    counted: Counters

    @classmethod
    def of(cls, daemon: Daemon) -> Live:
        return cls(daemon.counted())


def describe(daemon: Daemon, now: float, live: Live) -> dict[str, Any]:
    """Everything there is to say; ``now`` is in seconds since 1970, times are given in UTC as RFC 3339 writes them."""
    reloader = daemon.reloader
    config, states = reloader.config, reloader.served.states.values()
    named = live.counted.named()
    return {
        "version": __version__,
        "pid": os.getpid(),
        "config": config.filename if config is not None and config.filename else None,
        "started": _time(daemon.started_at),
        "uptime": round(max(0.0, now - daemon.started_at), 3),
        "listen": [str(address) for address in daemon.bound],
        "listen_tls": [str(address) for address in daemon.tls_bound],
        "metrics": None if daemon.metrics_bound is None else str(daemon.metrics_bound),
        "zones": [{**describe_zone(state, now), "secondaries": _secondaries(daemon, state, now)} for state in states],
        "reloads": reloader.reloads.to_dict(),
        "config_error": reloader.config_error,
        "certificate_error": reloader.certificate_error,
        "table": None if reloader.puller is None else reloader.puller.describe(_time),
        "queries": live.counted.to_dict(),
        **{group: {name: named[name] for name in names} for group, names in GROUPS.items()},
        "alarms": [*_alarms(reloader), *(alarm for state in states for alarm in zone_alarms(state, now))],
    }


def zone_alarms(state: ZoneState, now: float) -> Iterator[str]:
    """What somebody should see to, in one zone."""
    name = to_text(state.source.origin)
    signing_error = "" if state.signed is None else state.signed.error
    if state.view is None:
        yield f"zone {name} is not loaded, queries get SERVFAIL: {state.error or f'not signed: {signing_error}'}"
    elif state.error:
        yield f"zone {name} was not reloaded, serial {state.view.serial} stays: {state.error}"
    if state.view is not None and signing_error:
        yield f"zone {name} was not signed, serial {state.view.serial} stays: {signing_error}"
    found = state.signatures(now)
    if found.is_alarm:
        yield f"zone {name}: {words(found, now)}"
    if state.left_out and state.left_out.answered_by_others:
        yield f"zone {name}: of its table {state.left_out}"


def _alarms(reloader: Reloader) -> Iterator[str]:
    if reloader.config_error:
        yield f"the configuration was not reloaded: {reloader.config_error}"
    if reloader.certificate_error:
        yield f"the certificate was not reloaded: {reloader.certificate_error}"
    if reloader.puller is not None:
        yield from reloader.puller.alarms()


def describe_zone(state: ZoneState, now: float) -> dict[str, Any]:
    signatures = state.signatures(now)
    return {
        "zone": to_text(state.source.origin),
        "file": str(state.source.path),
        "serial": None if state.view is None else state.view.serial,
        "names": state.names,
        "loaded": _time(state.loaded_at),
        "error": state.error,
        "failed": _time(state.failed_at),
        "warnings": list(state.warnings),
        "left_out": None if state.left_out is None else describe_left_out(state.left_out),
        "signatures": None if state.view is None else str(signatures.state),
        "signatures_expire": _time(signatures.expires),
        "signing": _signing(state),
    }


def describe_left_out(left_out: LeftOut) -> dict[str, Any]:
    """How many records the zone lacks, and which; of many the first."""
    return {
        "records": len(left_out.records),
        "findings": [finding.to_dict() for finding in left_out[:MAX_FINDINGS]],
        "text": str(left_out),
    }


def _secondaries(daemon: Daemon, state: ZoneState, now: float) -> list[dict[str, Any]]:
    """Who is told of the zone's serials, how that stands, and which serial each has."""
    return [
        {
            "secondary": str(target),
            "notify": None if news is None else str(news.state),
            "since": _time(None if news is None else news.at),
            "age": _age(None if news is None else news.at, now),
            "serial": None if news is None else news.serial,
            **_observed(daemon.primary.observed(state.source.origin, target), state, now),
        }
        for target, news in daemon.primary.news(state.source.origin)
    ]


def _observed(observed: Observed, state: ZoneState, now: float) -> dict[str, Any]:
    """What a secondary said of its serial when it was asked."""
    serial = None if state.view is None else state.view.serial
    return {
        "observed_serial": observed.serial,
        "observed": _time(observed.at),
        "observed_age": _age(observed.at, now),
        "lags": None if observed.serial is None or serial is None else observed.serial != serial,
        "observed_error": observed.error,
    }


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else round(max(0.0, now - at), 3)


def _signing(state: ZoneState) -> dict[str, Any] | None:
    """What there is to say of a zone that the server signs."""
    signed = state.signed
    if state.source.signing is None or signed is None:
        return None
    return {
        "keys": str(state.source.signing.keys),
        "unsigned_serial": signed.unsigned,
        "due": _time(signed.due or None),
        "error": signed.error,
        "failed": _time(signed.failed_at if signed.error else None),
        "retry": _time(signed.retry_at),
    }


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
