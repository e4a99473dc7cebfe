"""Publishing of zone files: a valid new version replaces the served one; an invalid version does not.

The functions make a new ``Served`` (``state.py``). They read files and take long: call them in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from maptr.config import ZoneConfig
from maptr.daemon import kept
from maptr.daemon.kept import Kept
from maptr.errors import ZoneError, reason_of
from maptr.protocol.names import Folded, to_text
from maptr.protocol.serial import is_newer
from maptr.server import signer, state_folder
from maptr.server.freeze import Frozen
from maptr.server.state import Clock, Served, SigningState, ZoneState
from maptr.server.status import ZoneResult
from maptr.server.table_zone import candidate
from maptr.zone.check import read_checked
from maptr.zone.diff import Published, UnsafeChange, choose_serial, decide, stripped
from maptr.zone.finding import text_of
from maptr.zone.snapshot import ZoneView

log = logging.getLogger("maptr.serve")

NOTHING_FROZEN = Frozen()
Others = Callable[[Folded], Iterable[int]]  # the serials that a zone's secondaries have
Tell = Callable[[str], object]
Step = Callable[[ZoneState, float], tuple[ZoneState, ZoneResult]]


def none_known(origin: Folded) -> tuple[int, ...]:
    """Return the serials of secondaries where none are known."""
    return ()


def start(
    zones: Iterable[ZoneConfig],
    *,
    clock: Clock,
    frozen: Frozen = NOTHING_FROZEN,
    tell: Tell = lambda doing: None,
    others: Others = none_known,
) -> Served:
    """Load every zone, as a reload from the last good versions would. Queries for a zone with no version get SERVFAIL.

    ``tell`` gets the current step; ``others`` gives the secondaries' serials. Versions are not kept yet: call ``keep``
    when they are served.
    """
    return publish(zones, {}, clock=clock, frozen=frozen, tell=tell, others=others)[0]


def publish(
    zones: Iterable[ZoneConfig],
    current: Served,
    *,
    clock: Clock,
    only: Folded | None = None,
    force: bool = False,
    frozen: Frozen = NOTHING_FROZEN,
    tell: Tell = lambda doing: None,
    others: Others = none_known,
) -> tuple[Served, list[ZoneResult]]:
    """Reread the zones. Returns what to serve, and the result for each zone, including removed zones.

    ``only``: read only the file of this zone, even if it is frozen. ``force``: as in ``decide``. The server starts if
    ``current`` is empty. An invalid or unreadable file is a result, not an exception. A serial that the server chooses
    passes the serials that ``others`` gives.
    """
    zones, starting = tuple(zones), not current
    states: dict[Folded, ZoneState] = {}
    results: list[ZoneResult] = []
    for count, zone in enumerate(zones, 1):
        tell(f"loading zone {to_text(zone.name)}, {count} of {len(zones)}")
        if starting:
            state = _last_state(zone, clock(), frozen.since(zone.name))
        else:
            known = current.get(zone.name, ZoneState(zone))
            state = replace(known, zone=zone, frozen=frozen.since(zone.name))
            if (zone.keys, zone.signing) != (known.zone.keys, known.zone.signing):
                # The signatures do not match the new keys or policy.
                state = replace(state, signed=SigningState(known.signed.unsigned if zone.keys else None))
        if only is None or only == zone.name:
            is_held = state.frozen is not None and state.view is not None and only is None
            read = partial(_publish, force=force, starting=starting, others=partial(others, zone.name))
            state, result = _guarded(state, clock(), _hold if is_held else read)
            results.append(result)
        states[zone.name] = state
    results += [ZoneResult(to_text(origin), "removed") for origin in current.keys() - states.keys()]
    if starting:
        return states, results
    before = {origin: state.view for origin, state in current.items()}
    due = {name for name, state in states.items() if state.keep_error or state.view is not before.get(name)}
    return keep(states, due), results


def _last_state(zone: ZoneConfig, now: float, frozen: float | None) -> ZoneState:
    """Return a zone's state before a start: its last good version, if there is one."""
    damaged: list[str] = []
    try:
        version = state_folder.last_version(zone, damaged.append)
        if damaged and version is not None:
            state_folder.mend_signed(zone, version)
        if version is not None:
            return ZoneState.restored(zone, version, now, frozen=frozen, damaged=tuple(damaged))
        return ZoneState(zone, frozen=frozen, damaged=tuple(damaged))
    except Exception:
        log.exception("internal error, zone %s: its kept version is not used", to_text(zone.name))
        return ZoneState(zone, frozen=frozen)


def _guarded(state: ZoneState, now: float, step: Step) -> tuple[ZoneState, ZoneResult]:
    """Take a step with one zone. An unexpected exception is that zone's error, and the other zones go on."""
    try:
        return step(state, now)
    except Exception as error:
        name = to_text(state.zone.name)
        log.exception("internal error, zone %s is not changed", name)
        reason = f"{state.zone.table or state.zone.file}: internal error, see the log: {reason_of(error)}"
        state = replace(state, error=reason, failed_at=now, is_forcible=False)
        return state, state.refused()


def _hold(state: ZoneState, now: float) -> tuple[ZoneState, ZoneResult]:
    """Leave a frozen zone as it is."""
    serial = None if state.view is None else state.view.serial
    return state, ZoneResult(to_text(state.zone.name), "frozen", serial, serial)


def sign_again(
    current: Served, *, clock: Clock, retry: bool = False, others: Others = none_known
) -> tuple[Served, list[ZoneResult]]:
    """Sign the zones whose keys have changed or whose signatures are due, without rereading their files.

    ``retry``: retry failed signings at once. Returns what to serve, and the result for each zone that was due.
    """
    states, results = dict(current), []
    for origin, state in current.items():
        if not (signer.is_due(state, clock()) or (retry and state.signed.error)):
            continue
        pending = state.signed.pending
        unsigned = pending or state.unsigned_view()
        if unsigned is not None:  # without it, no file has been valid yet, and the next reload signs the zone
            states[origin], result = _sign(
                state, unsigned, clock(), state.warnings, changed=pending is not None, others=partial(others, origin)
            )
            results.append(result)
    return keep(states), results


def keep(current: Served, only: Container[Folded] | None = None) -> Served:
    """Write served versions that are not yet in the state folder, for the next start. Returns the new states.

    ``only``: only these zones.
    """
    return {origin: _kept(state) if only is None or origin in only else state for origin, state in current.items()}


def _kept(state: ZoneState) -> ZoneState:
    folder = state.zone.state
    if folder is None or state.view is None or state.is_kept:
        return state
    try:
        kept.write(folder, state.version(kept.signed_head(folder, state.zone.name)))
    except Exception as error:
        reason = reason_of(error)
        if not isinstance(error, OSError):
            log.exception("internal error, zone %s is not kept for the next start", to_text(state.zone.name))
        return replace(state, keep_error=reason)
    return replace(state, is_kept=True, keep_error="")


def log_results(results: Iterable[ZoneResult]) -> None:
    """Log the served versions. Signing is logged when it happens, a refusal as an alarm."""
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
    state: ZoneState, now: float, force: bool, *, starting: bool, others: Callable[[], Iterable[int]]
) -> tuple[ZoneState, ZoneResult]:
    """Read a zone, choose the version to serve, and serve it; if that is refused, keep the served version."""
    zone = state.zone
    if starting and state.view is not None and kept.fits(zone, state.settings, state.sources):
        return _unchanged(state, now, others)
    old = state.unsigned_view()
    to_pass = others if zone.keys is None else partial(none_known, zone.name)  # a zone with keys passes them on signing
    try:
        state, published = _published(state, old, starting=starting)
        with candidate(zone, now, starting=starting, others=to_pass) as (reading, left_out):
            checked = read_checked(reading.file, zone.name, lint=zone.lint, to_sign=zone.keys is not None)
            view = checked.view if zone.keys is None else stripped(checked.view)
            view = _with_serial(zone, old, view, published, now, to_pass, force)
            changes = None if old is None else decide(old, view, zone.max_shrink, force=force)
            if old is not None and not changes:
                view = old
            state = _with_stored_serial(state, view, starting=starting)
    except (ZoneError, OSError) as error:
        return _refuse(state, error, now)
    sources = tuple(one._replace(path=zone.file) if one.path == reading.file else one for one in checked.sources)
    is_known = left_out == state.left_out
    state = replace(state.accepted(sources), left_out=left_out)
    if left_out and left_out.records and not (is_known or left_out.answered_by_others):  # answered by others: an alarm
        log.warning("%s", state.left_out_text())
    warnings = checked.first_warnings()
    changed = None if changes is None else changes.names
    return _adopt(state, view, now, warnings, changed, is_new=view is not old, force=force, others=others)


def _published(state: ZoneState, old: ZoneView | None, *, starting: bool) -> tuple[ZoneState, Published | None]:
    """Return the version that secondaries have, if the server chooses the zone's serials; None if none is known."""
    published = None if old is None else Published.of(old)
    if _serial_folder(state.zone) is None or not (old is None or starting):
        return state, published
    damaged = list(state.damaged)
    published = _newer(published, _last_published(state.zone, damaged.append))
    return replace(state, damaged=tuple(damaged)), published


def _serial_folder(zone: ZoneConfig) -> Path | None:
    """Return the folder for the serial that the server chooses; None if it does not choose it."""
    return None if zone.style == "file" else zone.state


def _with_serial(
    zone: ZoneConfig,
    old: ZoneView | None,
    view: ZoneView,
    published: Published | None,
    now: float,
    others: Callable[[], Iterable[int]],
    force: bool,
) -> ZoneView:
    """Return the version with its serial."""
    if _serial_folder(zone) is None:
        return view
    view = choose_serial(view, published, zone.style, now, others, force=force)
    if old is None and published is not None and view.serial != published.serial:
        what = "its content may differ from the published one"
        log.info("zone %s: serial %d follows %d: %s", to_text(zone.name), view.serial, published.serial, what)
    return view


def _refuse(state: ZoneState, error: Exception, now: float) -> tuple[ZoneState, ZoneResult]:
    """Keep serving the old version, if there is one. A new reason is an alarm; a repeated one is only logged."""
    reason = text_of(error)
    is_known = reason == state.error
    state = replace(state, error=reason, failed_at=now, is_forcible=isinstance(error, UnsafeChange))
    if is_known:
        log.info("%s", state.refusal())
    return state, state.refused()


def _adopt(
    state: ZoneState,
    view: ZoneView,
    now: float,
    warnings: tuple[str, ...],
    changed: tuple[bytes, ...] | None,
    *,
    is_new: bool,
    force: bool,
    others: Callable[[], Iterable[int]],
) -> tuple[ZoneState, ZoneResult]:
    """Serve an accepted version, signed if the zone has keys. Unless ``is_new``, it is already served."""
    for warning in warnings if is_new else ():
        if warning not in state.warnings:
            log.warning("zone %s: %s", to_text(state.zone.name), warning)
    # The operator may have fixed what made signing fail.
    must_sign = force or is_new or bool(state.signed.error) or signer.is_due(state, now)
    if state.zone.keys is not None and must_sign:
        return _sign(state, view, now, warnings, changed=is_new, others=others, force=force)
    if not is_new and state.view is not None:
        return state, ZoneResult(to_text(state.zone.name), "unchanged", state.view.serial, state.view.serial)
    return _serve(state, view, now, warnings, changed)


def check_after(last: Kept, new: ZoneView, zone: ZoneConfig, now: float) -> None:
    """Raise ZoneError if a start would refuse this version of a zone after the last good version."""
    old = ZoneState.restored(zone, last, now).unsigned_view()
    if old is None or kept.fits(zone, last.settings, last.sources):
        return
    new = new if zone.keys is None else stripped(new)
    try:
        decide(old, choose_serial(new, Published.of(old), zone.style, now), zone.max_shrink)
    except ZoneError as error:
        raise ZoneError(error.reason, filename=str(zone.table or zone.file)) from None


def _unchanged(state: ZoneState, now: float, others: Callable[[], Iterable[int]]) -> tuple[ZoneState, ZoneResult]:
    """Go on with a zone's kept version if its files and settings have not changed."""
    unsigned = state.unsigned_view() if signer.is_due(state, now) else None
    if unsigned is not None:
        return _sign(state, unsigned, now, state.warnings, changed=False, others=others)
    serial = None if state.view is None else state.view.serial
    return state, ZoneResult(to_text(state.zone.name), "unchanged", serial, serial)


def _last_published(zone: ZoneConfig, tell: Tell) -> Published | None:
    """Return the version that secondaries have, by the state folder. The server may have signed it, even if it no
    longer signs the zone.

    ``tell`` gets any faults of the files.
    """
    folder = zone.state
    assert folder is not None  # noqa: S101 - the caller has checked it
    stored = state_folder.read_serial(folder, zone.name, tell)
    found = None if stored is None else stored.published
    if zone.keys is not None:
        return found
    if stored is not None and stored.signed is not None:
        found = _newer(found, stored.signed)
    signed = state_folder.read_signed(folder, zone.name, tell=tell)
    return found if signed is None else _newer(Published.of(signed[0]), found)


def _newer(one: Published | None, other: Published | None) -> Published | None:
    """Return the newer of two known versions; ``one`` if they have the same serial."""
    if one is None or (other is not None and is_newer(other.serial, one.serial)):
        return other
    return one


def _sign(
    state: ZoneState,
    unsigned: ZoneView,
    now: float,
    warnings: tuple[str, ...],
    *,
    changed: bool,
    others: Callable[[], Iterable[int]],
    force: bool = False,
) -> tuple[ZoneState, ZoneResult]:
    """Sign a version and serve it; if that fails, keep the served one."""
    name, old = to_text(state.zone.name), state.view
    view, signed = signer.sign(state.zone, unsigned, old, state.signed, now, others, force=force)
    state = replace(state, signed=signed if changed else replace(signed, pending=None))
    serial = None if view is None else view.serial
    if signed.error:
        # The pending version's files differ from those of the served version: a start rereads them.
        state = replace(state, sources=()) if changed else state
        return state, ZoneResult(name, "refused", serial, serial, f"not signed: {signed.error}")
    assert view is not None  # noqa: S101 - it was signed
    if view is old:
        return state, ZoneResult(name, "unchanged", serial, serial)
    if changed or old is None:
        return _serve(state, view, now, warnings)
    return state.serving(view, now), ZoneResult(name, "signed", serial, old.serial)


def _serve(
    state: ZoneState, view: ZoneView, now: float, warnings: tuple[str, ...], changed: tuple[bytes, ...] | None = None
) -> tuple[ZoneState, ZoneResult]:
    name, old = to_text(state.zone.name), state.view
    result, was = ("loaded", None) if old is None else ("reloaded", old.serial)
    state = replace(state.serving(view, now, changed), warnings=warnings)
    return state, ZoneResult(name, result, view.serial, was, "", warnings)


def _with_stored_serial(state: ZoneState, view: ZoneView, *, starting: bool) -> ZoneState:
    """Store the serial that the server chose, for the next start. Raises OSError; at a start it is logged."""
    folder = _serial_folder(state.zone)
    if folder is None or state.stored == view.serial:
        return state
    try:
        signed = None
        if state.zone.keys is not None:  # the old signed version counts until this one is signed
            stored = state_folder.read_serial(folder, view.origin)
            signed = Published.of(state.view) if state.view else stored and stored.signed
        state_folder.write_serial(folder, view.origin, Published.of(view), signed)
    except OSError as error:
        if not starting:
            raise
        log.error("zone %s: cannot save its serial for the next start: %s", to_text(view.origin), reason_of(error))
        return replace(state, stored=None)
    return replace(state, stored=view.serial)
