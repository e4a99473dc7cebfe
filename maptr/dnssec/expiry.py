"""How long a zone's signatures last, read from the zone as it is served: the alarm before they end.

Making signatures is ``dnssec.py``'s business. Nothing here needs the package cryptography.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from maptr.protocol.numbers import RRSIG
from maptr.zone.packed import rdatas_of, split_rrsets
from maptr.zone.snapshot import ZoneView

# An alarm a day or two before the end: BIND, Knot and `maptr zone sign` have signed again by then (Knot, with
# its defaults and a TTL of a day, 58 hours before).
EXPIRING = 2 * 86400


class Signatures(enum.StrEnum):
    """Only OK and UNSIGNED need nobody's attention."""

    UNSIGNED = "unsigned"
    OK = "ok"
    EXPIRING = "expiring"
    EXPIRED = "expired"
    NOT_YET = "not yet valid"


@dataclass(frozen=True, slots=True)
class SignatureState:
    """``expires`` is the earliest end of any signature, Unix time; None for a zone without one."""

    state: Signatures
    expires: int | None = None

    @property
    def is_alarm(self) -> bool:
        return self.state not in (Signatures.UNSIGNED, Signatures.OK)


@dataclass(frozen=True, slots=True)
class Validity:
    """The time in which every signature of a zone holds, Unix time: from the last begin to the first end."""

    begins: int
    expires: int

    @classmethod
    def of(cls, zone: ZoneView, now: float) -> Validity | None:
        """None for a zone whose apex is not signed (RFC 4035 2.2). A look at every signature: worth to be kept."""
        if RRSIG not in zone.nodes[zone.origin]:
            return None
        times = list(_times(zone, int(now)))
        return cls(max(begin for begin, _ in times), min(end for _, end in times)) if times else None

    def state(self, now: float, *, expiring: int = EXPIRING) -> SignatureState:
        """How it is at a time; EXPIRING from so many seconds before the end on."""
        if self.expires <= now:
            return SignatureState(Signatures.EXPIRED, self.expires)
        if self.begins > now:
            return SignatureState(Signatures.NOT_YET, self.expires)
        return SignatureState(Signatures.EXPIRING if self.expires - now < expiring else Signatures.OK, self.expires)


def signature_state(zone: ZoneView, now: float, *, expiring: int = EXPIRING) -> SignatureState:
    """Whether any signature of the zone has ended, or ends within ``expiring`` seconds; a look at every one."""
    validity = Validity.of(zone, now)
    return SignatureState(Signatures.UNSIGNED) if validity is None else validity.state(now, expiring=expiring)


def _times(zone: ZoneView, now: int) -> Iterator[tuple[int, int]]:
    """(inception, expiration) of the signatures. On the wire they have 32 bits and wrap (RFC 4034 3.1.5)."""
    found = {
        rdata[8:16]
        for name in zone.nodes.special
        for rdtype, records in split_rrsets(zone.nodes.read(name))
        if rdtype == RRSIG
        for rdata in rdatas_of(records)
    }
    for expiration, inception in map(struct.Struct("!2I").unpack, found):
        yield unwrap(inception, now), unwrap(expiration, now)


def unwrap(stamp: int, now: int) -> int:
    """The time nearest to now that has these 32 bits (RFC 4034 3.1.5)."""
    return now + ((stamp - now + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000
