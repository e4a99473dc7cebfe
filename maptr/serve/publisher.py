"""From zone files to what is served: each zone anew where it is good, as it was where it is not, and why.

Everything is a value: a reload makes a new ``Served`` beside the old one, and the daemon swaps them.
Reads files and takes long, so it belongs in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from maptr.errors import ZoneError
from maptr.names import Labels, to_text
from maptr.packed import count_names
from maptr.publish import Published, choose_serial, decide
from maptr.serve import serials
from maptr.serve.zones import ZoneSource, read_checked
from maptr.snapshot import Snapshot, ZoneView

log = logging.getLogger("maptr.serve")

Clock = Callable[[], float]  # seconds since 1970

MAX_WARNINGS = 10  # lines of a zone's findings in the log and the status; ``maptr zone check`` has them all


@dataclass(frozen=True, slots=True)
class ZoneState:
    """One zone now. Without a ``view`` it never loaded and answers SERVFAIL; ``error`` is the last refusal, "" when
    the last file was good; times are seconds since 1970."""

    source: ZoneSource
    view: ZoneView | None = None
    names: int = 0  # that have records
    loaded_at: float | None = None
    error: str = ""
    failed_at: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a reload did to one zone: loaded, reloaded, unchanged, refused or removed."""

    zone: str
    result: str
    serial: int | None = None
    was: int | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "zone": self.zone,
            "result": self.result,
            "serial": self.serial,
            "was": self.was,
            "reason": self.reason,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class Served:
    """All zones at one moment."""

    states: Mapping[Labels, ZoneState]

    @classmethod
    def of(cls, sources: Iterable[ZoneSource], snapshot: Snapshot) -> Served:
        """Zones that are loaded already."""
        return cls({source.origin: ZoneState(source, snapshot.zones[source.origin]) for source in sources})

    def snapshot(self) -> Snapshot:
        """What is answered from; raises nothing, for origins are keys."""
        views = [state.view for state in self.states.values() if state.view is not None]
        broken = [origin for origin, state in self.states.items() if state.view is None]
        return Snapshot.of(views, broken=broken)


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
        state = replace(current.states.get(source.origin, ZoneState(source)), source=source)
        if only is None or only == source.origin:
            state, outcome = _publish(source, state, clock(), force, starting)
            outcomes.append(outcome)
        states[source.origin] = state
    for origin in current.states.keys() - states.keys():
        outcomes.append(Outcome(to_text(origin), "removed"))
    return Served(MappingProxyType(states)), outcomes


def tell(outcomes: Iterable[Outcome]) -> None:
    """Say in the log what is served now; refusals were said when they were found."""
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
    name, old = to_text(source.origin), state.view
    try:
        checked = read_checked(source)
        view = _numbered(source, checked.view, old, now)
        if old is not None:
            view = decide(old, view, source.guards, force=force)
        if view is not old:
            _record(source, view, starting=starting)
    except (ZoneError, OSError) as error:
        if old is None:
            log.error("zone %s not loaded, queries get SERVFAIL: %s", name, error)
        else:
            log.error("zone %s not reloaded, serial %d stays: %s", name, old.serial, error)
        serial = None if old is None else old.serial
        failed = replace(state, error=str(error), failed_at=now)
        return failed, Outcome(name, "refused", serial, serial, str(error))
    warnings = _few(checked.warnings)
    for warning in warnings if view is not old else ():
        log.warning("zone %s: %s", name, warning)
    if view is old:
        return replace(state, error="", failed_at=None), Outcome(name, "unchanged", view.serial, view.serial)
    result, was = ("loaded", None) if old is None else ("reloaded", old.serial)
    names = count_names(view)
    return ZoneState(source, view, names, now, warnings=warnings), Outcome(name, result, view.serial, was, "", warnings)


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
        log.error("zone %s: its serial cannot be kept for the next start: %s", to_text(source.origin), error)


def _few(warnings: tuple[str, ...]) -> tuple[str, ...]:
    more = len(warnings) - MAX_WARNINGS
    return warnings if more <= 0 else (*warnings[:MAX_WARNINGS], f"and {more} more findings")
