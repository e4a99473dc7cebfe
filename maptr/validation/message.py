"""A DNS message as validation reads it: RRsets with their signatures, and the proofs that go along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dns.exception
import dns.message
import dns.name
import dns.rdatatype
import dns.rrset
from dns.rdataclass import IN
from dns.rdatatype import NSEC, NSEC3, RRSIG, SOA, RdataType

from maptr.validation import nsec, nsec3
from maptr.validation.signed import Bogus, Budget, Keys, Signed, signers, verify

Section = Sequence[dns.rrset.RRset]
Proofs = nsec.NsecProofs | nsec3.Nsec3Proofs


def parse(packet: bytes) -> dns.message.Message:
    """A message from its octets. Raises ValueError for what is none."""
    try:
        return dns.message.from_wire(packet)
    except (dns.exception.DNSException, ValueError) as error:
        raise ValueError(str(error) or type(error).__name__) from None


def rrset(section: Section, name: dns.name.Name, rdtype: RdataType) -> dns.rrset.RRset | None:
    """The RRset of a name and type, if it is there."""
    return next((r for r in section if r.rdtype == rdtype and r.rdclass == IN and r.name == name), None)


def signatures(section: Section, covered: dns.rrset.RRset) -> dns.rrset.RRset | None:
    """The RRSIGs of an RRset."""
    for candidate in section:
        if candidate.rdtype == RRSIG and candidate.covers == covered.rdtype and candidate.name == covered.name:
            return candidate if candidate.rdclass == IN else None
    return None


def denials(message: dns.message.Message) -> Iterator[tuple[dns.rrset.RRset, dns.rrset.RRset | None]]:
    """The NSEC and NSEC3 RRsets of a reply, with their signatures."""
    for candidate in message.authority:
        if candidate.rdtype in (NSEC, NSEC3) and candidate.rdclass == IN:
            yield candidate, signatures(message.authority, candidate)


def deniers(message: dns.message.Message) -> Iterator[dns.name.Name]:
    """The zones whose NSEC or NSEC3 records came along."""
    for _, signed in denials(message):
        yield from signers(signed)


def proofs(message: dns.message.Message, keys: Keys, now: float, budget: Budget) -> tuple[Proofs, int]:
    """What one zone proves in a reply, and the seconds for which that may be kept.

    Records of other zones are left out. Raises Bogus for one of this zone that it did not sign: what the others seem
    to prove may be only half of it (with opt-out, that a name which a wildcard answers has no data).
    """
    found: list[Signed] = []
    for denial, signed in denials(message):
        named = list(signers(signed))
        if keys.zone in named or (not named and denial.name.is_subdomain(keys.zone)):
            found.append(verify(denial, signed, keys, now, budget))
    ttl = min((record.ttl for record in found), default=0)
    plain = [record for record in found if record.rrset.rdtype == NSEC]
    if plain:
        return nsec.proofs(keys.zone, plain), ttl
    hashed = nsec3.proofs(keys.zone, found, budget)
    if hashed is None:
        raise Bogus(f"no proof of {keys.zone} is there")
    return hashed, ttl


def negative_ttl(message: dns.message.Message) -> int | None:
    """Seconds that a negative answer may be kept (RFC 2308 5); None where it has no SOA."""
    for candidate in message.authority:
        if candidate.rdtype == SOA:
            return min(int(candidate.ttl), int(candidate[0].minimum))
    return None
