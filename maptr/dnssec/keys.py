"""A zone's keys: what each is for, where it is in its life, and whether together they make a chain.

The files they lie in are ``keyfolder.py``'s business, signing with them is ``dnssec.py``'s.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from maptr.errors import SigningError
from maptr.protocol.names import Labels, fold, to_wire
from maptr.protocol.numbers import DNSSEC_PROTOCOL, SECURE_ENTRY_POINT, ZONE_KEY

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    PrivateKey = EllipticCurvePrivateKey | Ed25519PrivateKey

DS_SHA256 = 2  # RFC 4509 5


class Role(enum.StrEnum):
    """What a key is for: the DNSKEY RRset (KSK), the rest (ZSK), or both in one (CSK)."""

    KSK = "ksk"
    ZSK = "zsk"
    CSK = "csk"


class State(enum.StrEnum):
    """Where a key is in its life. All three are in the DNSKEY RRset.

    A ZSK signs only while active (pre-publication, RFC 7583 2.1). A KSK or CSK signs in every state, and CDS
    and DS speak of the active ones (double signature, RFC 7583 2.2).
    """

    PUBLISHED = "published"
    ACTIVE = "active"
    RETIRED = "retired"


class Algorithm(enum.StrEnum):
    """The algorithms to sign with that RFC 8624 3.1 recommends, by mnemonic."""

    ECDSAP256SHA256 = "ecdsap256sha256"
    ED25519 = "ed25519"

    @property
    def number(self) -> int:
        """RFC 6605 8, RFC 8080 6."""
        return {Algorithm.ECDSAP256SHA256: 13, Algorithm.ED25519: 15}[self]


@dataclass(frozen=True, slots=True)
class Key:
    """A key pair; the private half is in no text that this class makes."""

    role: Role
    state: State
    algorithm: Algorithm
    private: PrivateKey = field(repr=False)

    @property
    def rdata(self) -> bytes:
        """The DNSKEY record (RFC 4034 2.1, RFC 6605 4, RFC 8080 3)."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        flags = ZONE_KEY if self.role is Role.ZSK else ZONE_KEY | SECURE_ENTRY_POINT
        public = self.private.public_key()
        if self.algorithm is Algorithm.ED25519:
            octets = public.public_bytes(Encoding.Raw, PublicFormat.Raw)
        else:
            octets = public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)[1:]
        return struct.pack("!HBB", flags, DNSSEC_PROTOCOL, self.algorithm.number) + octets

    @property
    def tag(self) -> int:
        """RFC 4034 appendix B."""
        rdata = self.rdata
        total = sum(rdata[0::2]) * 256 + sum(rdata[1::2])
        return (total + (total >> 16)) & 0xFFFF

    @property
    def is_entry(self) -> bool:
        """True where a DS points, or is to point."""
        return self.role is not Role.ZSK and self.state is State.ACTIVE

    def __str__(self) -> str:
        return f"{self.role.upper()} {self.tag} ({self.algorithm}, {self.state})"


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of one zone, of which a validator that trusts an active one finds a whole chain (RFC 4035 2.2).

    Raises SigningError for others: so whoever has one need not look again.
    """

    keys: tuple[Key, ...]

    def __post_init__(self) -> None:
        if not any(key.is_entry for key in self.keys):
            raise SigningError("no active KSK or CSK: the parent's DS would lead nowhere")
        if not self.zone_signers:
            raise SigningError("no active ZSK and no CSK: nothing would sign the zone")
        signing = {key.algorithm for key in self.zone_signers} & {key.algorithm for key in self.dnskey_signers}
        for key in self.keys:
            if key.algorithm not in signing:
                reason = "every algorithm in use must sign both the DNSKEY RRset and the zone (RFC 4035 2.2)"
                raise SigningError(f"{key}: {reason}; add a CSK, or a KSK and an active ZSK, of this algorithm")

    @property
    def zone_signers(self) -> tuple[Key, ...]:
        """Those that sign what is no key."""
        return tuple(
            key for key in self.keys if key.role is Role.CSK or (key.role is Role.ZSK and key.state is State.ACTIVE)
        )

    @property
    def dnskey_signers(self) -> tuple[Key, ...]:
        """Those that sign DNSKEY, and CDS and CDNSKEY (RFC 7344 4.1)."""
        return tuple(key for key in self.keys if key.role is not Role.ZSK)

    @property
    def entries(self) -> tuple[Key, ...]:
        """Those that the parent's DS names, or is to name."""
        return tuple(key for key in self.keys if key.is_entry)


def ds_rdata(origin: Labels, key: Key) -> bytes:
    """The DS record of a key, or the CDS: SHA-256 of its folded owner and the DNSKEY (RFC 4509, RFC 8624 3.3)."""
    digest = hashlib.sha256(to_wire(fold(origin)) + key.rdata).digest()
    return struct.pack("!HBB", key.tag, key.algorithm.number, DS_SHA256) + digest
