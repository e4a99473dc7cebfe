"""What is served at one moment, as values: each zone's state, all of them together, and what became of one.

How one moment follows another is ``publisher.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from maptr.protocol.names import Labels
from maptr.protocol.numbers import RRSIG
from maptr.server.zones import ZoneSource
from maptr.zone.packed import count_names
from maptr.zone.snapshot import Snapshot, ZoneView

if TYPE_CHECKING:  # signed zones import what they need: a start answers sooner
    from maptr.dnssec.expiry import SignatureState, Validity
    from maptr.server.signer import Signed
    from maptr.zone.lint import LeftOut


class ZoneState(NamedTuple):
    """One zone now. Without a ``view`` it never loaded and answers SERVFAIL; ``error`` is the last refusal, "" when
    the last file was good; times are seconds since 1970. ``validity`` is that of the view's signatures; ``signed`` is
    for zones that the server signs, ``left_out`` for those built from a table: None where that was not looked at."""

    source: ZoneSource
    view: ZoneView | None = None
    names: int = 0  # that have records
    loaded_at: float | None = None
    error: str = ""
    failed_at: float | None = None
    warnings: tuple[str, ...] = ()
    validity: Validity | None = None
    signed: Signed | None = None
    left_out: LeftOut | None = None

    def serving(self, view: ZoneView, now: float) -> ZoneState:
        """The zone from the moment on in which it is served as this."""
        names = count_names(view)
        return self._replace(view=view, names=names, loaded_at=now, validity=_validity(view, now))

    @property
    def expiring(self) -> int:
        """Seconds before the end of its signatures from which they are an alarm: where the server is to have made new
        ones by then, no sooner than it was to begin."""
        from maptr.dnssec.expiry import EXPIRING

        signing = self.source.signing
        return EXPIRING if signing is None else min(EXPIRING, signing.policy.refresh)

    def signatures(self, now: float) -> SignatureState:
        """How its signatures are."""
        from maptr.dnssec.expiry import Signatures, SignatureState

        if self.validity is None:
            return SignatureState(Signatures.UNSIGNED)
        return self.validity.state(now, expiring=self.expiring)

    def plain(self) -> ZoneView | None:
        """What its file said of what is served: without the signatures, and under the serial of the file."""
        if self.view is None or self.source.signing is None:
            return self.view
        from maptr.zone.diff import stripped

        return stripped(self.view, None if self.signed is None else self.signed.unsigned)


class Outcome(NamedTuple):
    """What became of one zone: loaded, reloaded, signed (again, by the same file), unchanged, refused or removed."""

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


class Served(NamedTuple):
    """All zones at one moment."""

    states: Mapping[Labels, ZoneState]

    @property
    def sources(self) -> tuple[ZoneSource, ...]:
        """Where they come from."""
        return tuple(state.source for state in self.states.values())

    def answers_as(self, other: Served) -> bool:
        """Whether queries get the same from both: the very same views of the same zones."""
        mine, others = self.states, other.states
        return mine.keys() == others.keys() and all(mine[origin].view is others[origin].view for origin in mine)

    def snapshot(self) -> Snapshot:
        """What is answered from; raises nothing, for origins are keys."""
        views = [state.view for state in self.states.values() if state.view is not None]
        broken = [origin for origin, state in self.states.items() if state.view is None]
        return Snapshot.of(views, broken=broken)


def _validity(view: ZoneView, now: float) -> Validity | None:
    if RRSIG not in view.nodes[view.origin]:
        return None  # not signed, and so need not import what says more
    from maptr.dnssec.expiry import Validity

    return Validity.of(view, now)
