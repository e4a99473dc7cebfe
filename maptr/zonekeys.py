"""A zone's keys: what each is for, where it is in its life, and whether together they make a chain.

The files they lie in are ``keyfolder.py``'s business, signing with them is ``dnssec.py``'s.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dns.dnssec
import dns.dnssectypes
import dns.name
import dns.rdata

from maptr.errors import SigningError
from maptr.protocol import DNSSEC_PROTOCOL, SECURE_ENTRY_POINT, ZONE_KEY

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    PrivateKey = EllipticCurvePrivateKey | Ed25519PrivateKey


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
    def number(self) -> dns.dnssectypes.Algorithm:
        return dns.dnssectypes.Algorithm[self.name]


@dataclass(frozen=True, slots=True)
class Key:
    """A key pair; the private half is in no text that this class makes."""

    role: Role
    state: State
    algorithm: Algorithm
    private: PrivateKey = field(repr=False)

    @property
    def dnskey(self) -> dns.rdata.Rdata:
        flags = ZONE_KEY if self.role is Role.ZSK else ZONE_KEY | SECURE_ENTRY_POINT
        public = self.private.public_key()
        made: dns.rdata.Rdata = dns.dnssec.make_dnskey(
            public,  # type: ignore[arg-type,unused-ignore]
            self.algorithm.number,
            flags,
            DNSSEC_PROTOCOL,
        )
        return made

    @property
    def tag(self) -> int:
        """RFC 4034 appendix B."""
        return dns.dnssec.key_id(self.dnskey)  # type: ignore[arg-type]

    @property
    def is_entry(self) -> bool:
        """True where a DS points, or is to point."""
        return self.role is not Role.ZSK and self.state is State.ACTIVE

    def __str__(self) -> str:
        return f"{self.role.upper()} {self.tag} ({self.algorithm}, {self.state})"


def zone_signers(keys: Iterable[Key]) -> list[Key]:
    return [key for key in keys if key.role is Role.CSK or (key.role is Role.ZSK and key.state is State.ACTIVE)]


def dnskey_signers(keys: Iterable[Key]) -> list[Key]:
    return [key for key in keys if key.role is not Role.ZSK]


def check_keys(keys: Sequence[Key]) -> None:
    """Raises SigningError unless a validator that trusts an active key finds a whole chain (RFC 4035 2.2)."""
    if not any(key.is_entry for key in keys):
        raise SigningError("no active KSK or CSK: the parent's DS would lead nowhere")
    if not zone_signers(keys):
        raise SigningError("no active ZSK and no CSK: nothing would sign the zone")
    signing = {key.algorithm for key in zone_signers(keys)} & {key.algorithm for key in dnskey_signers(keys)}
    for key in keys:
        if key.algorithm not in signing:
            reason = "every algorithm in use must sign both the DNSKEY RRset and the zone (RFC 4035 2.2)"
            raise SigningError(f"{key}: {reason}; add a CSK, or a KSK and an active ZSK, of this algorithm")


def ds_records(origin: dns.name.Name, keys: Iterable[Key]) -> list[dns.rdata.Rdata]:
    """What the parent should hold: SHA-256 (RFC 8624 3.3) of each active KSK or CSK."""
    return [dns.dnssec.make_ds(origin, key.dnskey, "SHA256") for key in keys if key.is_entry]
