"""Publishing of zone files: a valid new version replaces the served one, an invalid version does not.

The functions make a new ``Served`` (``state.py``). They read files and take long: call them in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from maptr.config import ZoneConfig
from maptr.errors import ZoneError, reason_of
from maptr.protocol.names import Labels, to_text
from maptr.protocol.serial import is_newer
from maptr.server import signer, state_folder
from maptr.server.state import Clock, Served, SigningState, ZoneState
from maptr.server.status import ZoneResult
from maptr.server.table_zone import candidate
from maptr.zone.check import read_checked
from maptr.zone.diff import Published, choose_serial, decide, stripped
from maptr.zone.finding import text_of
from maptr.zone.snapshot import ZoneView

log = logging.getLogger("maptr.serve")


def start(zones: Iterable[ZoneConfig], *, clock: Clock) -> Served:
    """Load every zone. Queries for a zone that cannot be loaded get SERVFAIL."""
    return publish(zones, {}, clock=clock)[0]


def publish(
    zones: Iterable[ZoneConfig], current: Served, *, clock: Clock, only: Labels | None = None, force: bool = False
) -> tuple[Served, list[ZoneResult]]:
    """Read the zones again. Returns what to serve, and the result for each zone, including removed zones.

    ``only``: read only the file of this zone. ``force``: as in ``decide``. The server starts if ``current`` is empty.
    An invalid or unreadable file is a result, not an exception.
    """
    states: dict[Labels, ZoneState] = {}
    results: list[ZoneResult] = []
    for zone in zones:
        known = current.get(zone.name, ZoneState(zone))
        state = replace(known, zone=zone)
        if (zone.keys, zone.signing) != (known.zone.keys, known.zone.signing):
            # The signatures do not fit the new keys or policy.
            state = replace(state, signed=SigningState(known.signed.unsigned if zone.keys else None))
        if only is None or only == zone.name:
            state, result = _publish(state, clock(), force, starting=not current)
            results.append(result)
        states[zone.name] = state
    results += [ZoneResult(to_text(origin), "removed") for origin in current.keys() - states.keys()]
    return states, results


def sign_again(current: Served, *, clock: Clock, retry: bool = False) -> tuple[Served, list[ZoneResult]]:
    """Sign the zones whose keys have changed or whose signatures are due, without reading their files again.

    ``retry``: also those whose last signing failed, before their time. Returns what to serve, and the result for each
    zone that was to be signed.
    """
    states, results = dict(current), []
    for origin, state in current.items():
        if not (signer.is_due(state, clock()) or (retry and state.signed.error)):
            continue
        pending = state.signed.pending
        unsigned = pending or state.unsigned_view()
        if unsigned is not None:  # without it, no file has been valid yet, and the next reload signs the zone
            states[origin], result = _sign(state, unsigned, clock(), state.warnings, changed=pending is not None)
            results.append(result)
    return states, results


def log_results(results: Iterable[ZoneResult]) -> None:
    """Log what is served now. Refusals and signing are logged when they happen."""
    for result in results:
        match result.result:
            case "loaded":
                log.info("zone %s loaded, serial %d", result.zone, result.serial)
            case "reloaded":
                log.info("zone %s reloaded, serial %d (was %d)", result.zone, result.serial, result.was)
            case "unchanged":
                log.info("zone %s unchanged, serial %d", result.zone, result.serial)
            case "removed":
                log.info("zone %s removed", result.zone)


def _publish(state: ZoneState, now: float, force: bool, *, starting: bool) -> tuple[ZoneState, ZoneResult]:
    zone, served, old = state.zone, state.view, state.unsigned_view()
    name = to_text(zone.name)
    try:
        with candidate(zone, now, starting=starting) as (reading, left_out):
            checked = read_checked(reading.file, zone.name, lint=zone.lint)
            view = checked.view if zone.keys is None else stripped(checked.view)
            chosen = None if zone.style == "file" else zone.state  # the folder for a serial that the server chooses
            if chosen is not None:
                published = _last_published(chosen, zone, starting=starting) if old is None else Published.of(old)
                view = choose_serial(view, published, zone.style, now)
            if old is not None:
                view = decide(old, view, zone.max_shrink, force=force)
            if chosen is not None and state.stored != view.serial:
                state = replace(state, stored=_store(chosen, view, starting=starting))
    except (ZoneError, OSError) as error:
        reason = text_of(error)
        level = logging.INFO if reason == state.error else logging.ERROR  # each pull may find the same
        if served is None:
            log.log(level, "zone %s not loaded, queries get SERVFAIL: %s", name, reason)
        else:
            log.log(level, "zone %s not reloaded, serial %d stays: %s", name, served.serial, reason)
        state = replace(state, error=reason, failed_at=now)
        return state, state.refused()
    state = replace(state, error="", failed_at=None, left_out=left_out)
    warnings = checked.first_warnings()
    for warning in warnings if view is not old else ():
        if warning not in state.warnings:
            log.warning("zone %s: %s", name, warning)
    # The operator may have removed the cause of an earlier failure to sign.
    if zone.keys is not None and (view is not old or state.signed.error or signer.is_due(state, now)):
        return _sign(state, view, now, warnings, changed=view is not old)
    if view is old and served is not None:
        return state, ZoneResult(name, "unchanged", served.serial, served.serial)
    return _serve(state, view, now, warnings)


def _last_published(folder: Path, zone: ZoneConfig, *, starting: bool) -> Published | None:
    """Return the version that secondaries have of a zone: perhaps one that the server signed, if it no longer does.

    Raises OSError; at the start, it is logged.
    """
    try:
        found = state_folder.read_serial(folder, zone.name)
    except OSError as error:
        if not starting:
            raise
        log.warning("%s: %s; the serial of the zone may go back", error.filename, error.strerror)
        found = None
    signed = None if zone.keys is not None else state_folder.read_signed(folder, zone.name)
    if signed is None or (found is not None and is_newer(found.serial, signed[0].serial)):
        return found
    return Published.of(signed[0])


def _sign(
    state: ZoneState, unsigned: ZoneView, now: float, warnings: tuple[str, ...], *, changed: bool
) -> tuple[ZoneState, ZoneResult]:
    """Sign a version and serve it; if that fails, keep the served one."""
    name, old = to_text(state.zone.name), state.view
    view, signed = signer.sign(state.zone, unsigned, old, state.signed, now)
    state = replace(state, signed=signed if changed else replace(signed, pending=None))
    serial = None if view is None else view.serial
    if signed.error:
        if view is not None and view is not old:
            state = state.serving(view, now)  # the version that was stored before a restart
        return state, ZoneResult(name, "refused", serial, serial, f"not signed: {signed.error}")
    assert view is not None  # noqa: S101 - it was signed
    if view is old:
        return state, ZoneResult(name, "unchanged", serial, serial)
    if changed or old is None:
        return _serve(state, view, now, warnings)
    return state.serving(view, now), ZoneResult(name, "signed", serial, old.serial)


def _serve(state: ZoneState, view: ZoneView, now: float, warnings: tuple[str, ...]) -> tuple[ZoneState, ZoneResult]:
    name, old = to_text(state.zone.name), state.view
    result, was = ("loaded", None) if old is None else ("reloaded", old.serial)
    state = replace(state.serving(view, now), warnings=warnings)
    return state, ZoneResult(name, result, view.serial, was, "", warnings)


def _store(folder: Path, view: ZoneView, *, starting: bool) -> int | None:
    """Store and return a serial that the server chose. Raises OSError; at the start, it is logged, and gives None."""
    try:
        state_folder.write_serial(folder, view.origin, Published.of(view))
    except OSError as error:
        if not starting:
            raise
        log.error("zone %s: its serial cannot be kept for the next start: %s", to_text(view.origin), reason_of(error))
        return None
    return view.serial
