"""Signing a zone: NSEC, ZONEMD, CDS and the signatures, as functions over values.

Which key signs what is said in ``zonekeys.py``; how long signatures last is ``signatures.py``'s business, proofs in
answers are ``denial.py``'s. Signing needs the package cryptography (``pip install 'maptr[dnssec]'``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import dns.dnssec
import dns.name
import dns.rdata
import dns.rdataset
import dns.rdatatype
import dns.rrset
import dns.transaction
import dns.zone
import dns.zonetypes
from dns.rdatatype import CDNSKEY, CDS, DNAME, DNSKEY, NS, NSEC, RRSIG, SOA, ZONEMD

from maptr.errors import SigningError
from maptr.signatures import unwrap
from maptr.signing import MADE
from maptr.signing import Children as Children  # who signs has a policy
from maptr.signing import Policy as Policy
from maptr.zonekeys import Key, check_keys, dnskey_signers, zone_signers


def sign_zone(
    zone: dns.zone.Zone,
    keys: Sequence[Key],
    *,
    now: int,
    serial: int,
    policy: Policy | None = None,
    old: dns.zone.Zone | None = None,
) -> dns.zone.Zone:
    """A signed copy of a zone that is not relativized, with the serial. The same arguments give the same zone.

    ``now`` is Unix time. Of ``old``, an earlier version that we signed, signatures are taken over that cover the same
    records by the same keys and last long enough, so that secondaries get by IXFR what changed and no more.
    Raises SigningError for keys that make no chain, and ValueError or KeyError as dnspython does for a zone without
    SOA.
    """
    check_keys(keys)
    policy = policy or Policy()
    signed = prepare(zone, keys, serial, policy)
    origin = _origin(signed)
    # 32 bits that wrap in 2106 (RFC 4034 3.1.5).
    inception, expiration = (now - policy.inception_offset) % 2**32, (now + policy.lifetime) % 2**32
    signer = _Signer(origin, keys, inception, expiration, _Earlier.of(old, keys, now, policy))
    # Only what the zone has authority over: dnspython would count glue at a cut among the types of its NSEC.
    unsigned = _take_occluded(signed)
    if policy.zonemd:
        empty = dns.rdata.from_text("IN", "ZONEMD", f"{serial} 1 1 {'00' * 48}")
        signed.find_rdataset(origin, ZONEMD, create=True).add(empty, _soa(signed).ttl)
    with signed.writer() as transaction:
        dns.dnssec.sign_zone(signed, transaction, add_dnskey=False, rrset_signer=signer)
    for name, rdataset in unsigned:
        signed.find_node(name, create=True).replace_rdataset(rdataset)
    if policy.zonemd:
        _digest(signed, origin, signer)
    return signed


def prepare(zone: dns.zone.Zone, keys: Sequence[Key], serial: int, policy: Policy) -> dns.zone.Zone:
    """The copy that is about to be signed: with the serial, the keys and what they tell the parent."""
    origin = _origin(zone)
    made = dns.zone.Zone(origin, zone.rdclass, relativize=False)
    for name, rdataset in zone.iterate_rdatasets():
        if rdataset.rdtype not in MADE:
            made.find_node(name, create=True).replace_rdataset(rdataset)
    soa = _soa(made)
    made.find_node(origin).replace_rdataset(dns.rdataset.from_rdata(soa.ttl, soa[0].replace(serial=serial)))
    ttl = soa.ttl if policy.dnskey_ttl is None else policy.dnskey_ttl
    for rdata in apex_records(origin, keys, policy.cds):
        made.find_rdataset(origin, rdata.rdtype, create=True).add(rdata, ttl)
    return made


def apex_records(origin: dns.name.Name, keys: Iterable[Key], cds: Children) -> Iterator[dns.rdata.Rdata]:
    """DNSKEY, CDS and CDNSKEY of these keys."""
    for key in keys:
        yield key.dnskey
        if key.is_entry and cds is Children.PUBLISH:
            yield dns.dnssec.make_cds(origin, key.dnskey, "SHA256")
            yield dns.rdata.from_wire("IN", "CDNSKEY", wire := key.dnskey.to_wire() or b"", 0, len(wire))
    if cds is Children.DELETE:  # RFC 8078 4
        yield dns.rdata.from_text("IN", "CDS", "0 0 0 00")
        yield dns.rdata.from_text("IN", "CDNSKEY", "0 3 0 AA==")


@dataclass(frozen=True, slots=True)
class _Earlier:
    """Signatures of an earlier version that are still good: by its ``keys``, the (algorithm, tag) of each."""

    zone: dns.zone.Zone | None
    keys: frozenset[tuple[int, int]]
    now: int
    policy: Policy

    @classmethod
    def of(cls, zone: dns.zone.Zone | None, keys: Iterable[Key], now: int, policy: Policy) -> _Earlier:
        there = zone.get_rdataset(_origin(zone), DNSKEY) if zone is not None else None
        # A tag may come again with another key (RFC 4034 appendix B), so it counts where the key itself was there.
        same = frozenset((int(key.algorithm.number), key.tag) for key in keys if there and key.dnskey in there)
        return cls(zone if same else None, same, now, policy)

    def find(self, rrset: dns.rrset.RRset, key: Key) -> dns.rdata.Rdata | None:
        """The signature by a key over these very records, if it may be kept."""
        wanted = (int(key.algorithm.number), key.tag)
        if self.zone is None or wanted not in self.keys:
            return None
        covered = self.zone.get_rdataset(rrset.name, rrset.rdtype)
        if covered is None or covered.ttl != rrset.ttl or set(covered) != set(rrset):
            return None
        for signature in self.zone.get_rdataset(rrset.name, RRSIG, rrset.rdtype) or ():
            left = unwrap(signature.expiration, self.now) - self.now
            begun = unwrap(signature.inception, self.now) <= self.now
            is_ours = (int(signature.algorithm), signature.key_tag) == wanted and signature.original_ttl == rrset.ttl
            if is_ours and begun and self.policy.keep < left <= self.policy.lifetime:
                kept: dns.rdata.Rdata = signature
                return kept
        return None


@dataclass(frozen=True, slots=True)
class _Signer:
    """Signs one RRset with the keys it is for; what ``dns.dnssec.sign_zone`` calls."""

    origin: dns.name.Name
    keys: Sequence[Key]
    inception: int
    expiration: int
    earlier: _Earlier

    def __call__(self, transaction: dns.transaction.Transaction, rrset: dns.rrset.RRset) -> None:
        if rrset.rdtype == NSEC:
            soa = transaction.get(self.origin, SOA)
            rrset.ttl = min(rrset.ttl, soa.ttl if soa else rrset.ttl)  # RFC 9077 3
            transaction.replace(rrset)
        for signature in self.sign(rrset):
            transaction.add(rrset.name, rrset.ttl, signature)

    def sign(self, rrset: dns.rrset.RRset) -> Iterator[dns.rdata.Rdata]:
        for_keys = rrset.rdtype in (DNSKEY, CDS, CDNSKEY)  # RFC 7344 4.1: by a key that the parent's DS names
        for key in dnskey_signers(self.keys) if for_keys else zone_signers(self.keys):
            yield self.earlier.find(rrset, key) or dns.dnssec.sign(
                rrset,
                key.private,  # type: ignore[arg-type,unused-ignore]
                self.origin,
                key.dnskey,  # type: ignore[arg-type]
                inception=self.inception,
                expiration=self.expiration,
            )


def _take_occluded(zone: dns.zone.Zone) -> list[tuple[dns.name.Name, dns.rdataset.Rdataset]]:
    """Take out what is not signed: glue, and whatever else is at or below a cut, or below a DNAME."""
    taken: list[tuple[dns.name.Name, dns.rdataset.Rdataset]] = []
    cut: dns.name.Name | None = None
    for name in sorted(zone.nodes):
        node = zone.nodes[name]
        below = cut is not None and name != cut and name.is_subdomain(cut)
        at_cut = name != zone.origin and node.get_rdataset(zone.rdclass, NS) is not None
        if not below:
            cut = name if at_cut or node.get_rdataset(zone.rdclass, DNAME) else None
        for rdataset in list(node):
            if below or (at_cut and rdataset.rdtype not in (NS, dns.rdatatype.DS)):
                taken.append((name, rdataset))
                node.delete_rdataset(zone.rdclass, rdataset.rdtype, rdataset.covers)
        if not node:
            zone.delete_node(name)
    return taken


def _digest(zone: dns.zone.Zone, origin: dns.name.Name, signer: _Signer) -> None:
    """Put the digest where its placeholder is, and sign it again (RFC 8976 3.1)."""
    soa = _soa(zone)
    node = zone.find_node(origin)
    digest = zone.compute_digest(dns.zonetypes.DigestHashAlgorithm.SHA384)
    node.replace_rdataset(dns.rdataset.from_rdata(soa.ttl, digest))
    signatures = signer.sign(dns.rrset.from_rdata(origin, soa.ttl, digest))
    node.replace_rdataset(dns.rdataset.from_rdata_list(soa.ttl, list(signatures)))


def _soa(zone: dns.zone.Zone) -> dns.rdataset.Rdataset:
    return zone.find_rdataset(_origin(zone), SOA)


def _origin(zone: dns.zone.Zone) -> dns.name.Name:
    if zone.origin is None:
        raise SigningError("a zone without an origin")
    return zone.origin
