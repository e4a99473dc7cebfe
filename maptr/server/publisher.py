"""From zone files to what is served: each zone anew where it is good, as it was where it is not, and why.

Everything is a value (``served.py``): a reload makes a new ``Served`` beside the old one, and the daemon swaps them.
Reads files and takes long, so it belongs in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from maptr.errors import ZoneError, reason_of
from maptr.protocol.names import Labels, to_text
from maptr.server import serials
from maptr.server.state import Outcome, Served, ZoneState
from maptr.server.zones import ZoneSource, read_checked
from maptr.zone.finding import text_of
from maptr.zone.publish import Published, choose_serial, decide
from maptr.zone.snapshot import ZoneView

if TYPE_CHECKING:  # signed zones import what they need: a start answers sooner
    from maptr.server.signer import Signed
    from maptr.zone.lint import LeftOut

log = logging.getLogger("maptr.serve")

Clock = Callable[[], float]  # seconds since 1970

MAX_WARNINGS = 10  # lines of a zone's findings in the log and the status; ``maptr zone check`` has them all


def start(sources: Iterable[ZoneSource], *, clock: Clock) -> Served:
    """Every zone that can be loaded, and the others as broken. Raises ZoneError for an origin given twice."""
    served = Served(MappingProxyType({}))
    sources = tuple(sources)
    twice = next((s.origin for at, s in enumerate(sources) if s.origin in {o.origin for o in sources[:at]}), None)
    if twice is not None:
        raise ZoneError(f"zone {to_text(twice)} is given twice")
    return publish(sources, served, clock=clock, starting=True)[0]


def publish(
    sources: Sequence[ZoneSource],
    current: Served,
    *,
    clock: Clock,
    only: Labels | None = None,
    force: bool = False,
    starting: bool = False,
) -> tuple[Served, list[Outcome]]:
    """The zones of the sources, new, changed and gone ones among them, and what became of each.

    ``only`` one zone's file is read; ``force`` as in ``decide``; ``starting``: nothing is served yet.
    Raises nothing that a file could cause.
    """
    states: dict[Labels, ZoneState] = {}
    outcomes: list[Outcome] = []
    for source in sources:
        known = current.states.get(source.origin, ZoneState(source))
        state = known._replace(source=source)
        if source.signing is None or source.signing != known.source.signing:
            state = state._replace(signed=None if source.signing is None else _to_sign(known.signed))
        if only is None or only == source.origin:
            state, outcome = _publish(source, state, clock(), force, starting)
            outcomes.append(outcome)
        states[source.origin] = state
    for origin in current.states.keys() - states.keys():
        outcomes.append(Outcome(to_text(origin), "removed"))
    return Served(MappingProxyType(states)), outcomes


def to_sign(current: Served, now: float) -> frozenset[Labels]:
    """The zones that it is time to sign again. Looks at key folders, so it belongs in a thread."""
    states = current.states.items()
    return frozenset(origin for origin, state in states if state.source.signing and _is_due(state, now))


def sign_again(current: Served, origins: Iterable[Labels], *, clock: Clock) -> tuple[Served, list[Outcome]]:
    """These zones signed again as their files were when they were last read, and what became of each."""
    states, outcomes = dict(current.states), []
    for origin in origins:
        state = states[origin]
        pending = state.signed.pending if state.signed is not None else None
        plain = pending or state.plain()
        if plain is not None:  # else its file has never been good: the next reload will sign it
            states[origin], outcome = _sign(state, plain, clock(), state.warnings, changed=pending is not None)
            outcomes.append(outcome)
    return Served(MappingProxyType(states)), outcomes


def _is_due(state: ZoneState, now: float) -> bool:
    if state.view is None and (state.signed is None or state.signed.pending is None):
        return False
    from maptr.server import signer

    return (state.signed or signer.UNTRIED).is_due(state.source, now)


def _to_sign(signed: Signed | None) -> Signed:
    """What stays known of a zone that is to be signed in another way."""
    from maptr.server import signer

    return signer.UNTRIED if signed is None else signer.UNTRIED._replace(unsigned=signed.unsigned)


def tell(outcomes: Iterable[Outcome]) -> None:
    """Say in the log what is served now; refusals were said when they were found, signing when it was done."""
    for outcome in outcomes:
        match outcome.result:
            case "loaded":
                log.info("zone %s loaded, serial %d", outcome.zone, outcome.serial)
            case "reloaded":
                log.info("zone %s reloaded, serial %d (was %d)", outcome.zone, outcome.serial, outcome.was)
            case "unchanged":
                log.info("zone %s unchanged, serial %d", outcome.zone, outcome.serial)
            case "removed":
                log.info("zone %s removed", outcome.zone)


def _publish(
    source: ZoneSource, state: ZoneState, now: float, force: bool, starting: bool
) -> tuple[ZoneState, Outcome]:
    name, old, plain = to_text(source.origin), state.view, state.plain()
    reading = source
    try:
        reading, left_out = _prepared(source, now, starting)
        checked = read_checked(reading)
        read = checked.view if source.signing is None else _stripped(checked.view)
        view = _numbered(source, read, plain, now)
        if plain is not None:
            view = decide(plain, view, source.guards, force=force)
        if view is not plain:
            _record(source, view, starting=starting)
        _settle(source, reading, published=True)
    except (ZoneError, OSError) as error:
        _settle(source, reading, published=False)
        reason = text_of(error)
        if old is None:
            log.error("zone %s not loaded, queries get SERVFAIL: %s", name, reason)
        else:
            log.error("zone %s not reloaded, serial %d stays: %s", name, old.serial, reason)
        serial = None if old is None else old.serial
        failed = state._replace(error=reason, failed_at=now)
        return failed, Outcome(name, "refused", serial, serial, reason)
    state = state._replace(error="", failed_at=None, left_out=left_out)
    warnings = _few(checked.warnings)
    for warning in warnings if view is not plain else ():
        log.warning("zone %s: %s", name, warning)
    failed_to_sign = state.signed is not None and bool(state.signed.error)  # who reloads may have mended why
    if source.signing is not None and (view is not plain or failed_to_sign or _is_due(state, now)):
        return _sign(state, view, now, warnings, changed=view is not plain)
    if view is plain and old is not None:
        return state, Outcome(name, "unchanged", old.serial, old.serial)
    return _now_served(state, view, now, warnings)


def _stripped(view: ZoneView) -> ZoneView:
    from maptr.zone.diff import stripped

    return stripped(view)


def _sign(
    state: ZoneState, plain: ZoneView, now: float, warnings: tuple[str, ...], *, changed: bool
) -> tuple[ZoneState, Outcome]:
    """What the file says, signed and served; where it cannot be signed, what there was."""
    from maptr.server import signer

    name, old = to_text(state.source.origin), state.view
    view, signed = signer.sign(state.source, plain, old, state.signed, now)
    state = state._replace(signed=signed if changed else signed._replace(pending=None))
    serial = None if view is None else view.serial
    if signed.error:
        if view is not None and view is not old:
            state = state.serving(view, now)  # what was kept from before a restart
        return state, Outcome(name, "refused", serial, serial, f"not signed: {signed.error}")
    assert view is not None  # noqa: S101 - it was signed
    if view is old:
        return state, Outcome(name, "unchanged", serial, serial)
    if changed or old is None:
        return _now_served(state, view, now, warnings)
    return state.serving(view, now), Outcome(name, "signed", serial, old.serial)


def _now_served(state: ZoneState, view: ZoneView, now: float, warnings: tuple[str, ...]) -> tuple[ZoneState, Outcome]:
    name, old = to_text(state.source.origin), state.view
    result, was = ("loaded", None) if old is None else ("reloaded", old.serial)
    state = state.serving(view, now)._replace(warnings=warnings)
    return state, Outcome(name, result, view.serial, was, "", warnings)


def _prepared(source: ZoneSource, now: float, starting: bool) -> tuple[ZoneSource, LeftOut | None]:
    """The file to read: the zone's own, or what its table makes now, and what that leaves out. Raises ZoneError and
    OSError."""
    if source.table is None:
        return source, None
    from maptr.server import tables  # and with it every reader of registries, of which most servers need none

    return tables.prepared(source, now, starting=starting)


def _settle(source: ZoneSource, reading: ZoneSource, *, published: bool) -> None:
    if reading is not source:
        from maptr.server import tables

        tables.settle(source, reading, published=published)


def _numbered(source: ZoneSource, new: ZoneView, old: ZoneView | None, now: float) -> ZoneView:
    """The new version with the serial it is published under. Raises ZoneError and OSError."""
    if source.guards.serial == "file" or source.state is None:
        return new
    published = Published.of(old) if old is not None else serials.read(source.state, source.origin)
    return choose_serial(new, published, source.guards.serial, now)


def _record(source: ZoneSource, view: ZoneView, *, starting: bool) -> None:
    """Put a serial that was made on record. Raises OSError; at a start it is only logged, for to serve is better."""
    if source.guards.serial == "file" or source.state is None:
        return
    try:
        serials.write(source.state, source.origin, Published.of(view))
    except OSError as error:
        if not starting:
            raise
        log.error("zone %s: its serial cannot be kept for the next start: %s", to_text(source.origin), reason_of(error))


def _few(warnings: tuple[str, ...]) -> tuple[str, ...]:
    more = len(warnings) - MAX_WARNINGS
    return warnings if more <= 0 else (*warnings[:MAX_WARNINGS], f"and {more} more findings")
