"""Denial of existence by NSEC and NSEC3 records, as validated. ``zone.denial`` makes them.

NSEC is in RFC 4035 5.4 and RFC 6840 4, NSEC3 in RFC 5155 8 and RFC 9276. With opt-out, a gap of NSEC3 may hide unsigned
delegations, so a proof by such a gap is insecure (RFC 5155 9.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import dns.message
import dns.name
import dns.rdatatype
import dns.rrset
from dns.rdataclass import IN
from dns.rdatatype import CNAME, DNAME, DS, NS, NSEC, NSEC3, SOA, RdataType

from maptr.protocol.names import to_wire
from maptr.resolver.validation.signed import Bogus, Rdata, VerifiedRRset, WorkBudget, Zone, signatures, signers, verify
from maptr.zone.denial import SHA1, hash_of, nsec3_hash

INSECURE_ITERATIONS = 150  # more make a zone insecure (RFC 9276 3.2), as in BIND, Unbound and Knot Resolver
BOGUS_ITERATIONS = 500  # more are bogus (RFC 9276 3.2 leaves the number open)
OPT_OUT = 1  # RFC 5155 3.1.2.1; records with other flags are ignored (8.2)

WILDCARD = dns.name.from_text("*", None)

SECURE, INSECURE = "secure", "insecure"


# ---- type bitmaps


def has(rdata: Rdata, rdtype: RdataType) -> bool:
    """Return whether a type bitmap (RFC 4034 4.1.2) contains a type."""
    window, bit = divmod(int(rdtype), 256)
    for number, octets in rdata.windows:
        if number == window and bit // 8 < len(octets):
            return bool(octets[bit // 8] & 0x80 >> bit % 8)
    return False


def is_delegation(rdata: Rdata) -> bool:
    """Return whether it is the parent's side of a cut, which proves nothing at or below it but DS (RFC 6840 4.1)."""
    return has(rdata, NS) and not has(rdata, SOA)


def lacks(rdata: Rdata, rdtype: RdataType) -> bool:
    """Return whether this zone is authoritative for the name, which has neither the type nor an alias."""
    if has(rdata, rdtype) or has(rdata, CNAME):
        return False
    return not has(rdata, SOA) if rdtype == DS else not is_delegation(rdata)


# ---- NSEC


class _Gap(NamedTuple):
    """One record of the chain: no names exist between its owner and the next one."""

    owner: dns.name.Name
    rdata: Rdata


@dataclass(frozen=True, slots=True)
class NsecProofs:
    """The validated NSEC records of one reply and zone. Each method gives ``secure``, or raises Bogus."""

    zone: dns.name.Name
    records: tuple[_Gap, ...]

    @classmethod
    def of(cls, zone: dns.name.Name, records: Iterable[VerifiedRRset]) -> NsecProofs:
        """Return the proofs of one zone, without records whose next name is outside of it."""
        gaps = (_Gap(record.rrset.name, record.rrset[0]) for record in records if len(record.rrset) == 1)
        return cls(zone, tuple(gap for gap in gaps if gap.rdata.next.is_subdomain(zone)))

    def name_error(self, name: dns.name.Name) -> str:
        """Proves that the name does not exist, nor a wildcard for it (RFC 4035 5.4)."""
        wildcard = WILDCARD.concatenate(_closest_encloser(name, self._gap(name)))
        self._gap(wildcard)
        return SECURE

    def no_data(self, name: dns.name.Name, rdtype: RdataType) -> str:
        """Proves that the name, an empty non-terminal or its wildcard lacks the type (RFC 4035 3.1.3.4)."""
        shown = dns.rdatatype.to_text(rdtype)
        match = self._matching(name)
        if match is not None:
            if not lacks(match, rdtype):
                raise Bogus(f"the NSEC of {name} does not say that there is no {shown}")
            return SECURE
        gap = self._covering(name)
        if gap.rdata.next.is_subdomain(name):
            return SECURE
        match = self._matching(WILDCARD.concatenate(_closest_encloser(name, gap)))
        if match is None or not lacks(match, rdtype):
            raise Bogus(f"no NSEC says that {name} has no {shown}")
        return SECURE

    def wildcard(self, name: dns.name.Name, encloser: dns.name.Name) -> str:
        """Proves that nothing is closer to the name than the wildcard below the encloser (RFC 4035 5.3.4)."""
        if _closest_encloser(name, self._covering(name)) != encloser:
            raise Bogus(f"{name} has something closer than {WILDCARD.concatenate(encloser)}")
        return SECURE

    def cut(self, name: dns.name.Name) -> bool:
        """Return whether the name, which has no DS, is a delegation (RFC 4035 5.2)."""
        match = self._matching(name)
        return match is not None and has(match, NS)

    # ---- single records

    def _matching(self, name: dns.name.Name) -> Rdata | None:
        return next((gap.rdata for gap in self.records if gap.owner == name), None)

    def _covering(self, name: dns.name.Name) -> _Gap:
        for gap in self.records:
            owner, rdata = gap
            inside = owner < name and (name < rdata.next or rdata.next == self.zone)  # the last one leads to the apex
            # An ancestor that is delegated or has a DNAME proves nothing (RFC 6840 4.1).
            silent = name.is_subdomain(owner) and (is_delegation(rdata) or has(rdata, DNAME))
            if inside and name.is_subdomain(self.zone) and not silent:
                return gap
        raise Bogus(f"no NSEC says that {name} does not exist")

    def _gap(self, name: dns.name.Name) -> _Gap:
        """Return the record that covers a name which is not an empty non-terminal either."""
        gap = self._covering(name)
        if gap.rdata.next.is_subdomain(name):
            raise Bogus(f"{name} exists, because there are names below it")
        return gap


def _closest_encloser(name: dns.name.Name, gap: _Gap) -> dns.name.Name:
    """Return the closest ancestor of a name that exists: the longest that the name shares with an end of the gap."""
    return name.split(max(name.fullcompare(end)[2] for end in (gap.owner, gap.rdata.next)))[1]


# ---- NSEC3


@dataclass(frozen=True, slots=True)
class _Link:
    """One record of the chain: from the hash of its owner to the next one."""

    hash: bytes
    rdata: Rdata

    def covers(self, digest: bytes) -> bool:
        after: bytes = self.rdata.next
        if self.hash < after:
            return self.hash < digest < after
        return digest > self.hash or digest < after  # the last one leads to the first

    @property
    def security(self) -> str:
        return INSECURE if self.rdata.flags & OPT_OUT else SECURE


@dataclass(frozen=True, slots=True)
class Nsec3Proofs:
    """The validated NSEC3 records of one reply, zone and set of parameters.

    Each method gives ``secure`` or ``insecure``, or raises Bogus.
    """

    zone: dns.name.Name
    links: tuple[_Link, ...]
    budget: WorkBudget
    known: dict[dns.name.Name, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, zone: dns.name.Name, records: Iterable[VerifiedRRset], budget: WorkBudget) -> Nsec3Proofs | None:
        """Return the proofs of one zone, from the records with the first known parameters (RFC 5155 8.2), or None.

        Raises Bogus for more than BOGUS_ITERATIONS.
        """
        links: list[_Link] = []
        for record in records:
            owner = record.rrset.name
            is_in_chain = len(owner) == len(zone) + 1 and owner.is_subdomain(zone)
            digest = hash_of(owner.labels[0]) if is_in_chain else b""
            for rdata in record.rrset:
                known = rdata.algorithm == SHA1 and not rdata.flags & ~OPT_OUT
                if not digest or not known or len(rdata.next) != len(digest):
                    continue
                first = links[0].rdata if links else rdata
                if (rdata.salt, rdata.iterations) == (first.salt, first.iterations):
                    links.append(_Link(digest, rdata))
        if not links:
            return None
        if links[0].rdata.iterations > BOGUS_ITERATIONS:
            raise Bogus(f"NSEC3 with {links[0].rdata.iterations} iterations, {BOGUS_ITERATIONS} at most")
        return cls(zone, tuple(links), budget)

    @property
    def too_costly(self) -> bool:
        """Whether the zone has too many iterations, so that it counts as unsigned (RFC 9276 3.2)."""
        return bool(self.links[0].rdata.iterations > INSECURE_ITERATIONS)

    def name_error(self, name: dns.name.Name) -> str:
        """Proves that the name does not exist, nor a wildcard for it (RFC 5155 8.4)."""
        if self.too_costly:
            return INSECURE
        encloser, gap = self._closest(name)
        self._gap(WILDCARD.concatenate(encloser))
        return gap.security

    def no_data(self, name: dns.name.Name, rdtype: RdataType) -> str:
        """Proves that the name or its wildcard lacks the type (RFC 5155 8.5 to 8.7)."""
        if self.too_costly:
            return INSECURE
        shown = dns.rdatatype.to_text(rdtype)
        match = self._matching(name)
        if match is not None:
            if not lacks(match.rdata, rdtype):
                raise Bogus(f"the NSEC3 of {name} does not say that there is no {shown}")
            return SECURE
        encloser, gap = self._closest(name)
        wildcard = self._matching(WILDCARD.concatenate(encloser))
        if wildcard is not None and lacks(wildcard.rdata, rdtype):
            return gap.security
        # An insecure delegation, or an empty non-terminal above insecure ones only (RFC 5155 8.6, 7.2.4, errata 3441).
        if gap.security == INSECURE and wildcard is None:
            return INSECURE
        raise Bogus(f"no NSEC3 says that {name} has no {shown}")

    def wildcard(self, name: dns.name.Name, encloser: dns.name.Name) -> str:
        """Proves that nothing is closer to the name than the wildcard below the encloser (RFC 5155 8.8)."""
        if self.too_costly:
            return INSECURE
        return self._gap(name.split(len(encloser) + 1)[1]).security

    def cut(self, name: dns.name.Name) -> bool:
        """Return whether the name, which has no DS, is a delegation, or may be one (RFC 5155 8.9)."""
        if self.too_costly:
            return True
        match = self._matching(name)
        return has(match.rdata, NS) if match is not None else self._closest(name)[1].security == INSECURE

    # ---- single records

    def _closest(self, name: dns.name.Name) -> tuple[dns.name.Name, _Link]:
        """Return the closest encloser, and the gap that covers the name one label longer (RFC 5155 8.3)."""
        closer = name
        while closer != self.zone and closer.is_subdomain(self.zone):
            encloser = closer.parent()
            match = self._matching(encloser)
            if match is not None:
                if is_delegation(match.rdata) or has(match.rdata, DNAME):
                    raise Bogus(f"{encloser} is a delegation or has a DNAME, so its zone proves nothing about {name}")
                gap = self._covering(closer)
                if gap is None:
                    break
                return encloser, gap
            closer = encloser
        raise Bogus(f"no NSEC3 says that {name} does not exist")

    def _matching(self, name: dns.name.Name) -> _Link | None:
        digest = self._hash(name)
        return next((link for link in self.links if link.hash == digest), None)

    def _covering(self, name: dns.name.Name) -> _Link | None:
        digest = self._hash(name)
        return next((link for link in self.links if link.covers(digest)), None)

    def _gap(self, name: dns.name.Name) -> _Link:
        gap = self._covering(name)
        if gap is None:
            raise Bogus(f"no NSEC3 says that {name} does not exist")
        return gap

    def _hash(self, name: dns.name.Name) -> bytes:
        if name not in self.known:
            rdata = self.links[0].rdata
            self.budget.hash(1 + rdata.iterations)
            self.known[name] = nsec3_hash(to_wire(name.canonicalize().labels[:-1]), rdata.salt, rdata.iterations)
        return self.known[name]


# ---- the proofs in a response

Proofs = NsecProofs | Nsec3Proofs


def denials(message: dns.message.Message) -> Iterator[tuple[dns.rrset.RRset, dns.rrset.RRset | None]]:
    """Yield the NSEC and NSEC3 RRsets of a response, with their signatures."""
    for candidate in message.authority:
        if candidate.rdtype in (NSEC, NSEC3) and candidate.rdclass == IN:
            yield candidate, signatures(message.authority, candidate)


def proofs(message: dns.message.Message, zone: Zone, now: float, budget: WorkBudget) -> tuple[Proofs, int]:
    """Return the proofs of one zone in a response, and the seconds for which they may be cached.

    Records of other zones are ignored. Raises Bogus for a record of this zone without valid signature, because the
    other records may then be only half of a proof (with opt-out, that a name with a wildcard has no data).
    """
    found: list[VerifiedRRset] = []
    for denial, signed in denials(message):
        named = signers(signed)
        if zone.name in named or (not named and denial.name.is_subdomain(zone.name)):
            found.append(verify(denial, signed, zone, now, budget))
    ttl = min((record.ttl for record in found), default=0)
    plain = [record for record in found if record.rrset.rdtype == NSEC]
    if plain:
        return NsecProofs.of(zone.name, plain), ttl
    hashed = Nsec3Proofs.of(zone.name, found, budget)
    if hashed is None:
        raise Bogus(f"no proof of {zone.name} in the response")
    return hashed, ttl
