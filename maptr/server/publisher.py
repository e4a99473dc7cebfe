"""From zone files to the zones that are served: a good new version replaces the old one, a bad one does not.

Everything is a value (``state.py``): a reload makes a new ``Served`` beside the old one. Reads files and takes long:
call it in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import MappingProxyType

from maptr.errors import ZoneError, reason_of
from maptr.protocol.names import Labels, to_text
from maptr.server import signer, state_folder
from maptr.server.state import NEVER_SIGNED, Clock, Served, ZoneResult, ZoneSource, ZoneState
from maptr.server.zone_file import candidate, read_checked
from maptr.zone.diff import stripped
from maptr.zone.finding import text_of
from maptr.zone.publish import Published, choose_serial, decide
from maptr.zone.snapshot import ZoneView

log = logging.getLogger("maptr.serve")

MAX_WARNINGS = 10  # findings of a zone in the log and the status; ``maptr zone check`` shows all


def start(sources: Iterable[ZoneSource], *, clock: Clock) -> Served:
    """Every zone that can be loaded, and the others as broken."""
    return publish(sources, Served(MappingProxyType({})), clock=clock, starting=True)[0]


def publish(
    sources: Iterable[ZoneSource],
    current: Served,
    *,
    clock: Clock,
    only: Labels | None = None,
    force: bool = False,
    starting: bool = False,
) -> tuple[Served, list[ZoneResult]]:
    """The zones of these sources, and the result for each zone, new, changed and removed ones among them.

    ``only``: read the file of this zone alone. ``force``: as in ``decide``. ``starting``: nothing is served yet.
    Raises nothing that a file could cause.
    """
    states: dict[Labels, ZoneState] = {}
    results: list[ZoneResult] = []
    for source in sources:
        known = current.states.get(source.origin, ZoneState(source))
        state = known._replace(source=source)
        if source.signing is None:
            state = state._replace(signed=None)
        elif source.signing != known.source.signing:  # the signatures are not of the new policy or keys
            unsigned = None if known.signed is None else known.signed.unsigned
            state = state._replace(signed=NEVER_SIGNED._replace(unsigned=unsigned))
        if only is None or only == source.origin:
            state, result = _publish(source, state, clock(), force, starting)
            results.append(result)
        states[source.origin] = state
    results += [ZoneResult(to_text(origin), "removed") for origin in current.states.keys() - states.keys()]
    return Served(MappingProxyType(states)), results


def sign_again(current: Served, *, clock: Clock) -> tuple[Served, list[ZoneResult]]:
    """Sign the zones whose keys have changed or whose signatures are due, as their files were when last read; and the
    result for each of them."""
    states, results = dict(current.states), []
    for origin, state in current.states.items():
        if not signer.is_due(state, clock()):
            continue
        pending = state.signed.pending if state.signed is not None else None
        unsigned = pending or state.unsigned_view()
        if unsigned is not None:  # otherwise no file was ever good: the next reload signs it
            states[origin], result = _sign(state, unsigned, clock(), state.warnings, changed=pending is not None)
            results.append(result)
    return Served(MappingProxyType(states)), results


def log_results(results: Iterable[ZoneResult]) -> None:
    """Log what is served now. Refusals and signing were logged when they happened."""
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


def _publish(
    source: ZoneSource, state: ZoneState, now: float, force: bool, starting: bool
) -> tuple[ZoneState, ZoneResult]:
    name, served, old = to_text(source.origin), state.view, state.unsigned_view()
    try:
        with candidate(source, now, starting=starting) as (reading, left_out):
            checked = read_checked(reading)
            view = checked.view if source.signing is None else stripped(checked.view)
            view = _numbered(source, view, old, now)
            if old is not None:
                view = decide(old, view, source.guards, force=force)
            if view is not old:
                _record(source, view, starting=starting)
    except (ZoneError, OSError) as error:
        reason = text_of(error)
        if served is None:
            log.error("zone %s not loaded, queries get SERVFAIL: %s", name, reason)
        else:
            log.error("zone %s not reloaded, serial %d stays: %s", name, served.serial, reason)
        serial = None if served is None else served.serial
        return state._replace(error=reason, failed_at=now), ZoneResult(name, "refused", serial, serial, reason)
    state = state._replace(error="", failed_at=None, left_out=left_out)
    more = len(checked.warnings) - MAX_WARNINGS
    warnings = checked.warnings[:MAX_WARNINGS] + ((f"and {more} more findings",) if more > 0 else ())
    for warning in warnings if view is not old else ():
        log.warning("zone %s: %s", name, warning)
    failed_to_sign = state.signed is not None and bool(state.signed.error)  # the operator may have removed the cause
    if source.signing is not None and (view is not old or failed_to_sign or signer.is_due(state, now)):
        return _sign(state, view, now, warnings, changed=view is not old)
    if view is old and served is not None:
        return state, ZoneResult(name, "unchanged", served.serial, served.serial)
    return _serve(state, view, now, warnings)


def _sign(
    state: ZoneState, unsigned: ZoneView, now: float, warnings: tuple[str, ...], *, changed: bool
) -> tuple[ZoneState, ZoneResult]:
    """Sign a version and serve it; if that fails, keep the served one."""
    name, old = to_text(state.source.origin), state.view
    view, signed = signer.sign(state.source, unsigned, old, state.signed, now)
    state = state._replace(signed=signed if changed else signed._replace(pending=None))
    serial = None if view is None else view.serial
    if signed.error:
        if view is not None and view is not old:
            state = state.serving(view, now)  # the version stored before a restart
        return state, ZoneResult(name, "refused", serial, serial, f"not signed: {signed.error}")
    assert view is not None  # noqa: S101 - it was signed
    if view is old:
        return state, ZoneResult(name, "unchanged", serial, serial)
    if changed or old is None:
        return _serve(state, view, now, warnings)
    return state.serving(view, now), ZoneResult(name, "signed", serial, old.serial)


def _serve(state: ZoneState, view: ZoneView, now: float, warnings: tuple[str, ...]) -> tuple[ZoneState, ZoneResult]:
    name, old = to_text(state.source.origin), state.view
    result, was = ("loaded", None) if old is None else ("reloaded", old.serial)
    state = state.serving(view, now)._replace(warnings=warnings)
    return state, ZoneResult(name, result, view.serial, was, "", warnings)


def _numbered(source: ZoneSource, new: ZoneView, old: ZoneView | None, now: float) -> ZoneView:
    """The new version with the serial to publish it under. Raises ZoneError and OSError."""
    if source.guards.serial == "file" or source.state is None:
        return new
    published = Published.of(old) if old is not None else state_folder.read_serial(source.state, source.origin)
    return choose_serial(new, published, source.guards.serial, now)


def _record(source: ZoneSource, view: ZoneView, *, starting: bool) -> None:
    """Store a serial that the server chose. Raises OSError; a start logs it instead, and serves the zone."""
    if source.guards.serial == "file" or source.state is None:
        return
    try:
        state_folder.write_serial(source.state, source.origin, Published.of(view))
    except OSError as error:
        if not starting:
            raise
        log.error("zone %s: its serial cannot be kept for the next start: %s", to_text(source.origin), reason_of(error))
