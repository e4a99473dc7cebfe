"""The signatures over RRsets of a zone: made with keys, or kept from an earlier version of it.

Which RRsets there are to sign is ``dnssec.py``'s business, and the octets that count ``canonical.py``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils

from maptr.dnssec.expiry import unwrap
from maptr.dnssec.keys import Key, KeySet
from maptr.dnssec.policy import Policy
from maptr.protocol.names import to_wire
from maptr.protocol.numbers import CDNSKEY, CDS, DNSKEY, RRSIG
from maptr.zone.packed import RECORD, PackedNodes, split_records, split_rrsets
from maptr.zone.rrset import RRSIG_HEAD
from maptr.zone.snapshot import ZoneView
from maptr.zone.zonemd import canonical_rrset

SIGNATURE_SIZE = 64  # octets: RFC 6605 4, RFC 8080 4
_COORDINATE = SIGNATURE_SIZE // 2
_TTL = slice(6, 10)  # of a packed record

Known = Mapping[tuple[int, int, int], bytes]
"""Signatures of one name that are still good, by type covered, algorithm and key tag."""


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs the RRsets of a zone with the keys that each is for, from one moment on (Unix time, see ``Policy``)."""

    keys: KeySet
    apex: bytes  # folded, as wire
    policy: Policy
    now: int
    _keys: tuple[_Made, ...] = field(init=False)
    _zone: tuple[_Made, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_keys", tuple(map(_Made.of, self.keys.dnskey_signers)))
        object.__setattr__(self, "_zone", tuple(map(_Made.of, self.keys.zone_signers)))

    def sign(self, owner: bytes, rdtype: int, records: bytes, known: Known) -> list[bytes]:
        """The RRSIG rdatas over the records of a packed RRset, taken from ``known`` where they are there."""
        octets = b""
        made = []
        for key in self._keys if rdtype in (DNSKEY, CDS, CDNSKEY) else self._zone:
            rdata = known.get((rdtype, key.algorithm, key.tag))
            if rdata is None:
                octets = octets or canonical_rrset(owner, rdtype, records)
                head = RRSIG_HEAD.pack(
                    *(rdtype, key.algorithm, count_labels(owner), int.from_bytes(records[_TTL], "big")),
                    # 32 bits that wrap in 2106 (RFC 4034 3.1.5).
                    *((self.now + self.policy.lifetime) % 2**32, (self.now - self.policy.inception_offset) % 2**32),
                    key.tag,
                )
                rdata = head + self.apex
                rdata += key.sign(rdata + octets)
            made.append(rdata)
        return made


@dataclass(frozen=True, slots=True)
class _Made:
    """A key, and what of it goes into each signature."""

    algorithm: int
    tag: int
    sign: Callable[[bytes], bytes]

    @classmethod
    def of(cls, key: Key) -> _Made:
        private = key.private
        if isinstance(private, ed25519.Ed25519PrivateKey):
            return cls(key.algorithm.number, key.tag, private.sign)
        # The same every time (RFC 6979), so that no signature depends on how good the random numbers are.
        how = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)

        def sign(octets: bytes) -> bytes:
            r, s = utils.decode_dss_signature(private.sign(octets, how))
            return r.to_bytes(_COORDINATE, "big") + s.to_bytes(_COORDINATE, "big")

        return cls(key.algorithm.number, key.tag, sign)


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier version of the zone. Its signatures are not checked: whoever has one that may be damaged does it."""

    nodes: PackedNodes
    apex: bytes
    keys: frozenset[tuple[int, int]]  # algorithm and key tag
    now: int
    policy: Policy
    _lasting: dict[tuple[int, int], bool] = field(default_factory=dict)

    @classmethod
    def of(cls, zone: ZoneView | None, keys: KeySet, now: int, policy: Policy) -> Earlier | None:
        """None where no signature of it can be kept."""
        there = zone.nodes[zone.origin].get(DNSKEY) if zone is not None else None
        # A tag may come again with another key (RFC 4034 appendix B), so it counts where the key itself was there.
        same = frozenset((key.algorithm.number, key.tag) for key in keys.keys if there and key.rdata in there.rdatas)
        if zone is None or not same:
            return None
        return cls(zone.nodes, to_wire(zone.origin), same, now, policy)

    def known(self, owner: bytes, rrsets: Mapping[int, bytes]) -> Known:
        """The signatures over these records of packed RRsets, the very same, that last long enough."""
        before = dict(split_rrsets(self.nodes.find(owner) or b""))
        found: dict[tuple[int, int, int], bytes] = {}
        labels = count_labels(owner)
        for record in split_records(before.get(RRSIG, b"")):
            rdata = record[RECORD.size :]
            covered, algorithm, there, ttl, *times, tag = RRSIG_HEAD.unpack_from(rdata)
            if (
                (algorithm, tag) in self.keys
                and rdata[RRSIG_HEAD.size : -SIGNATURE_SIZE] == self.apex
                and covered in rrsets
                and there == labels
                and ttl == int.from_bytes(rrsets[covered][_TTL], "big")
                and self._lasts(*times)
                and _are_same(before.get(covered, b""), rrsets[covered])
            ):
                found[covered, algorithm, tag] = rdata
        return found

    def _lasts(self, expiration: int, inception: int) -> bool:
        """Whether a signature holds already, and will for long enough; nearly all of a zone have the same times."""
        lasting = self._lasting.get((expiration, inception))
        if lasting is None:
            left = unwrap(expiration, self.now) - self.now
            begun = unwrap(inception, self.now) <= self.now
            lasting = begun and self.policy.keep < left <= self.policy.lifetime
            self._lasting[expiration, inception] = lasting
        return lasting


def _are_same(one: bytes, other: bytes) -> bool:
    return one == other or sorted(split_records(one)) == sorted(split_records(other))


def count_labels(owner: bytes) -> int:
    """The labels that a signature counts: neither the root nor a wildcard's (RFC 4034 3.1.3)."""
    count = at = 0
    while owner[at]:
        count += 1
        at += 1 + owner[at]
    return count - (owner[:2] == b"\1*")
