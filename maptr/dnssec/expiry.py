"""The validity of a zone's signatures, read from the zone as it is served.

Nothing here needs the package cryptography.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

from maptr.errors import time_text
from maptr.protocol.names import to_wire
from maptr.protocol.numbers import RRSIG
from maptr.zone.rrset import rdatas_of, split_rrsets, types_of
from maptr.zone.snapshot import ZoneView

# Seconds. BIND, Knot and `maptr zone sign` renew signatures earlier than that: Knot, with its defaults and a TTL of a
# day, 58 hours before they expire.
EXPIRING = 2 * 86400
_TIMES = struct.Struct("!2I")  # expiration and inception, at byte 8 of an RRSIG (RFC 4034 3.1)


class Signatures(enum.StrEnum):
    """The state of a zone's signatures. All states except OK and UNSIGNED need an operator."""

    UNSIGNED = "unsigned"
    OK = "ok"
    EXPIRING = "expiring"
    EXPIRED = "expired"
    NOT_YET = "not yet valid"


@dataclass(frozen=True, slots=True)
class SignatureState:
    """``expires`` is the earliest expiration of any signature, Unix time; None for an unsigned zone."""

    state: Signatures
    expires: int | None = None

    @property
    def is_alarm(self) -> bool:
        return self.state not in (Signatures.UNSIGNED, Signatures.OK)

    def text(self, now: float) -> str:
        """Return what is wrong with the signatures, and what the operator must do. Only for an alarm."""
        end = time_text(self.expires or 0)
        if self.state is Signatures.NOT_YET:
            return "signatures are not valid yet: validators answer SERVFAIL; is a clock wrong?"
        if self.state is Signatures.EXPIRED:
            return f"signatures expired at {end}: validators answer SERVFAIL; sign the zone again"
        return f"signatures expire at {end}, in {((self.expires or 0) - now) / 3600:.0f} hours; sign the zone again"


@dataclass(frozen=True, slots=True)
class Validity:
    """The period in which all signatures of a zone are valid, in Unix time: last inception to first expiration."""

    begins: int
    expires: int

    @classmethod
    def of(cls, zone: ZoneView, now: float) -> Validity | None:
        """Return the period, or None for a zone whose apex is not signed (RFC 4035 2.2). Reads every signature."""
        if RRSIG not in types_of(zone.nodes.table[to_wire(zone.origin)]):
            return None
        packed = (zone.nodes.table[name] for name in zone.nodes.special)
        signatures = (records for each in packed for rdtype, records in split_rrsets(each) if rdtype == RRSIG)
        found = {rdata[8:16] for records in signatures for rdata in rdatas_of(records)}
        times = [_TIMES.unpack(stamp) for stamp in found]
        begins = max(unwrap(inception, int(now)) for _, inception in times)
        return cls(begins, min(unwrap(expiration, int(now)) for expiration, _ in times))

    def state(self, now: float, *, expiring: int = EXPIRING) -> SignatureState:
        """Return the state at the time ``now``. EXPIRING begins ``expiring`` seconds before the expiration."""
        if self.expires <= now:
            return SignatureState(Signatures.EXPIRED, self.expires)
        if self.begins > now:
            return SignatureState(Signatures.NOT_YET, self.expires)
        return SignatureState(Signatures.EXPIRING if self.expires - now < expiring else Signatures.OK, self.expires)


def signature_state(zone: ZoneView, now: float, *, expiring: int = EXPIRING) -> SignatureState:
    """Return the state of a zone's signatures. Reads every signature."""
    validity = Validity.of(zone, now)
    return SignatureState(Signatures.UNSIGNED) if validity is None else validity.state(now, expiring=expiring)


def unwrap(stamp: int, now: int) -> int:
    """Return the time nearest to ``now`` whose lower 32 bits are ``stamp`` (RFC 4034 3.1.5)."""
    return now + ((stamp - now + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000
