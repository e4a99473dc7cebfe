"""How the daemon is, as plain values for JSON: what ``maptr status`` shows. No secret is ever among them."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from maptr import __version__
from maptr.names import to_text
from maptr.serve.alarm import words
from maptr.serve.counters import GROUPS
from maptr.signatures import signature_state

if TYPE_CHECKING:
    from maptr.serve.daemon import Daemon
    from maptr.serve.publisher import ZoneState


def describe(daemon: Daemon, now: float) -> dict[str, Any]:
    """Everything there is to say; ``now`` is in seconds since 1970, times are given in UTC as RFC 3339 writes them.

    Looks at every signature, so it belongs in a thread.
    """
    states = daemon.served.states.values()
    counted = daemon.counted()
    named = counted.named()
    return {
        "version": __version__,
        "pid": os.getpid(),
        "config": daemon.config.filename if daemon.config is not None and daemon.config.filename else None,
        "started": _time(daemon.started_at),
        "uptime": round(max(0.0, now - daemon.started_at), 3),
        "listen": [str(address) for address in daemon.bound],
        "listen_tls": [str(address) for address in daemon.tls_bound],
        "zones": [_zone(state, now) for state in states],
        "workers": [] if daemon.workers is None else [_worker(worker) for worker in daemon.workers.describe()],
        "queries": counted.to_dict(),
        **{group: {name: named[name] for name in names} for group, names in GROUPS.items()},
        "alarms": [*_alarms(daemon), *(alarm for state in states for alarm in zone_alarms(state, now))],
    }


def zone_alarms(state: ZoneState, now: float) -> Iterator[str]:
    """What somebody should see to, in one zone."""
    name = to_text(state.source.origin)
    if state.view is None:
        yield f"zone {name} is not loaded, queries get SERVFAIL: {state.error}"
    elif state.error:
        yield f"zone {name} was not reloaded, serial {state.view.serial} stays: {state.error}"
    if state.view is not None:
        found = signature_state(state.view, now)
        if found.is_alarm:
            yield f"zone {name}: {words(found, now)}"


def _alarms(daemon: Daemon) -> Iterator[str]:
    if daemon.config_error:
        yield f"the configuration was not reloaded: {daemon.config_error}"
    if daemon.certificate_error:
        yield f"the certificate was not reloaded: {daemon.certificate_error}"
    if daemon.workers_error:
        yield f"not every worker answers from the last reload: {daemon.workers_error}"
    if daemon.workers is not None:
        yield from daemon.workers.alarms()


def _worker(worker: dict[str, Any]) -> dict[str, Any]:
    return worker if "since" not in worker else {**worker, "since": _time(worker["since"])}


def _zone(state: ZoneState, now: float) -> dict[str, Any]:
    signatures = None if state.view is None else signature_state(state.view, now)
    return {
        "zone": to_text(state.source.origin),
        "file": str(state.source.path),
        "serial": None if state.view is None else state.view.serial,
        "names": state.names,
        "loaded": _time(state.loaded_at),
        "error": state.error,
        "failed": _time(state.failed_at),
        "warnings": list(state.warnings),
        "signatures": None if signatures is None else str(signatures.state),
        "signatures_expire": None if signatures is None else _time(signatures.expires),
    }


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
