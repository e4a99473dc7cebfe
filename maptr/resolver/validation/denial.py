"""Validation of denial of existence by NSEC and NSEC3 records, which ``zone.denial`` makes.

NSEC is in RFC 4035 5.4 and RFC 6840 4, NSEC3 in RFC 5155 8 and RFC 9276. With opt-out, a gap of NSEC3 may hide unsigned
delegations, so a proof by such a gap is insecure (RFC 5155 9.2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
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

Bitmap = tuple[tuple[int, bytes], ...]
"""The windows of a type bitmap (RFC 4034 4.1.2)."""


def has(types: Bitmap, rdtype: RdataType) -> bool:
    window, bit = divmod(int(rdtype), 256)
    for number, octets in types:
        if number == window and bit // 8 < len(octets):
            return bool(octets[bit // 8] & 0x80 >> bit % 8)
    return False


def is_delegation(types: Bitmap) -> bool:
    """Return whether it is the parent's side of a cut, which proves nothing at or below it but DS (RFC 6840 4.1)."""
    return has(types, NS) and not has(types, SOA)


def lacks(types: Bitmap, rdtype: RdataType) -> bool:
    """Return whether this zone is authoritative for the name, which has neither the type nor an alias."""
    if has(types, rdtype) or has(types, CNAME):
        return False
    return not has(types, SOA) if rdtype == DS else not is_delegation(types)


# ---- what the records of either kind prove


class Proofs(ABC):
    """The validated NSEC or NSEC3 records of one response and zone.

    A proof is ``secure``, or ``insecure`` if it may hide an unsigned delegation. The methods raise Bogus without one.
    """

    @abstractmethod
    def types(self, name: dns.name.Name) -> Bitmap | None:
        """Return the types of a name, none for an empty non-terminal; None if no record has this name."""

    @abstractmethod
    def closest(self, name: dns.name.Name) -> tuple[dns.name.Name, str]:
        """Return the closest encloser of a name that does not exist, and the security of this."""

    @abstractmethod
    def absent(self, name: dns.name.Name) -> str:
        """Prove that a name does not exist."""

    def name_error(self, name: dns.name.Name) -> str:
        """Prove that the name does not exist, nor a wildcard for it (RFC 4035 5.4, RFC 5155 8.4)."""
        encloser, security = self.closest(name)
        self.absent(WILDCARD.concatenate(encloser))
        return security

    def no_data(self, name: dns.name.Name, rdtype: RdataType) -> str:
        """Prove that the name or its wildcard lacks the type (RFC 4035 3.1.3.4, RFC 5155 8.5 to 8.7)."""
        found, security = self.types(name), SECURE
        if found is None:
            encloser, security = self.closest(name)
            found = self.types(WILDCARD.concatenate(encloser))
        # An insecure delegation, or an empty non-terminal above insecure ones only (RFC 5155 8.6, 7.2.4, errata 3441).
        is_hidden = found is None and security == INSECURE
        if not is_hidden and (found is None or not lacks(found, rdtype)):
            raise Bogus(f"nothing proves that {name} has no {dns.rdatatype.to_text(rdtype)}")
        return security

    def wildcard(self, name: dns.name.Name, encloser: dns.name.Name) -> str:
        """Prove that nothing is closer to the name than the wildcard below the encloser (RFC 4035 5.3.4, RFC 5155
        8.8)."""
        return self.absent(name.split(len(encloser) + 1)[1])

    def cut(self, name: dns.name.Name) -> bool:
        """Return whether the name, which has no DS, is a delegation, or may be one (RFC 4035 5.2, RFC 5155 8.9)."""
        found = self.types(name)
        return self.closest(name)[1] == INSECURE if found is None else has(found, NS)


class NsecProofs(Proofs):
    def __init__(self, zone: dns.name.Name, records: Iterable[VerifiedRRset]) -> None:
        self._zone = zone
        self._gaps = [(record.rrset.name, record.rrset[0]) for record in records if len(record.rrset) == 1]

    def types(self, name: dns.name.Name) -> Bitmap | None:
        match: Rdata = next((rdata for owner, rdata in self._gaps if owner == name), None)
        if match is not None:
            return tuple(match.windows)
        return () if any(rdata.next.is_subdomain(name) for _, rdata in self._covering(name)) else None

    def closest(self, name: dns.name.Name) -> tuple[dns.name.Name, str]:
        # The longest name that the name shares with an end of the gap.
        owner, rdata = self._gap(name)
        return name.split(max(name.fullcompare(end)[2] for end in (owner, rdata.next)))[1], SECURE

    def absent(self, name: dns.name.Name) -> str:
        self._gap(name)
        return SECURE

    def _covering(self, name: dns.name.Name) -> Iterator[tuple[dns.name.Name, Rdata]]:
        for owner, rdata in self._gaps:
            inside = owner < name and (name < rdata.next or rdata.next == self._zone)  # the last one leads to the apex
            # An ancestor that is delegated or has a DNAME proves nothing (RFC 6840 4.1).
            silent = name.is_subdomain(owner) and (is_delegation(rdata.windows) or has(rdata.windows, DNAME))
            if inside and name.is_subdomain(self._zone) and not silent:
                yield owner, rdata

    def _gap(self, name: dns.name.Name) -> tuple[dns.name.Name, Rdata]:
        """Return the record that covers a name, which must not be an empty non-terminal."""
        for owner, rdata in self._covering(name):
            if not rdata.next.is_subdomain(name):
                return owner, rdata
        raise Bogus(f"no NSEC says that {name} does not exist")


class _Link(NamedTuple):
    """One NSEC3 record: from the hash of its owner to the next one."""

    hash: bytes
    rdata: Rdata

    def covers(self, digest: bytes) -> bool:
        after: bytes = self.rdata.next
        if self.hash < after:
            return self.hash < digest < after
        return digest > self.hash or digest < after  # the last one leads to the first


class Nsec3Proofs(Proofs):
    """NSEC3 records with the first known parameters (RFC 5155 8.2).

    A zone with more than INSECURE_ITERATIONS counts as unsigned (RFC 9276 3.2). Raises Bogus for more than
    BOGUS_ITERATIONS, and without such a record.
    """

    def __init__(self, zone: dns.name.Name, records: Iterable[VerifiedRRset], budget: WorkBudget) -> None:
        self.links: list[_Link] = []
        for record in records:
            owner = record.rrset.name
            is_in_chain = len(owner) == len(zone) + 1 and owner.is_subdomain(zone)
            digest = hash_of(owner.labels[0]) if is_in_chain else b""
            for rdata in record.rrset:
                known = rdata.algorithm == SHA1 and not rdata.flags & ~OPT_OUT
                if not digest or not known or len(rdata.next) != len(digest):
                    continue
                first = self.links[0].rdata if self.links else rdata
                if (rdata.salt, rdata.iterations) == (first.salt, first.iterations):
                    self.links.append(_Link(digest, rdata))
        if not self.links:
            raise Bogus(f"no proof of {zone} in the response")
        self._zone, self._budget = zone, budget
        self._salt, self._iterations = self.links[0].rdata.salt, int(self.links[0].rdata.iterations)
        self._known: dict[dns.name.Name, bytes] = {}
        if self._iterations > BOGUS_ITERATIONS:
            raise Bogus(f"NSEC3 with {self._iterations} iterations, {BOGUS_ITERATIONS} at most")
        self._is_unsigned = self._iterations > INSECURE_ITERATIONS

    def types(self, name: dns.name.Name) -> Bitmap | None:
        if self._is_unsigned:
            return None
        digest = self._hash(name)
        return next((tuple(link.rdata.windows) for link in self.links if link.hash == digest), None)

    def closest(self, name: dns.name.Name) -> tuple[dns.name.Name, str]:
        """Find the encloser, and the gap that covers the name one label longer (RFC 5155 8.3)."""
        if self._is_unsigned:
            return name, INSECURE
        closer = name
        while closer != self._zone and closer.is_subdomain(self._zone):
            encloser = closer.parent()
            found = self.types(encloser)
            if found is not None:
                if is_delegation(found) or has(found, DNAME):
                    raise Bogus(f"{encloser} is a delegation or has a DNAME, so its zone proves nothing about {name}")
                return encloser, self.absent(closer)
            closer = encloser
        raise Bogus(f"no NSEC3 says that {name} does not exist")

    def absent(self, name: dns.name.Name) -> str:
        if self._is_unsigned:
            return INSECURE
        digest = self._hash(name)
        for link in self.links:
            if link.covers(digest):
                return INSECURE if link.rdata.flags & OPT_OUT else SECURE
        raise Bogus(f"no NSEC3 says that {name} does not exist")

    def _hash(self, name: dns.name.Name) -> bytes:
        if name not in self._known:
            self._budget.hash(1 + self._iterations)
            self._known[name] = nsec3_hash(to_wire(name.canonicalize().labels[:-1]), self._salt, self._iterations)
        return self._known[name]


# ---- the proofs in a response


def denials(message: dns.message.Message) -> Iterator[tuple[dns.rrset.RRset, dns.rrset.RRset | None]]:
    """Yield the NSEC and NSEC3 RRsets of a response, with their signatures."""
    for candidate in message.authority:
        if candidate.rdtype in (NSEC, NSEC3) and candidate.rdclass == IN:
            yield candidate, signatures(message.authority, candidate)


def proofs(message: dns.message.Message, zone: Zone, now: float, budget: WorkBudget) -> tuple[Proofs, int]:
    """Return the proofs of one zone in a response, and the seconds for which they may be cached.

    Records of other zones are ignored. Raises Bogus for a record of this zone without a valid signature, because the
    other records may then be only half of a proof (with opt-out, that a name with a wildcard has no data).
    """
    found: list[VerifiedRRset] = []
    for denial, signed in denials(message):
        named = signers(signed)
        if zone.name in named or (not named and denial.name.is_subdomain(zone.name)):
            found.append(verify(denial, signed, zone, now, budget))
    ttl = min((record.ttl for record in found), default=0)
    plain = [record for record in found if record.rrset.rdtype == NSEC]
    return (NsecProofs(zone.name, plain) if plain else Nsec3Proofs(zone.name, found, budget)), ttl
