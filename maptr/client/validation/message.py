"""DNS messages for validation: RRsets with their signatures, and the proofs of denial in a response.

A response may be hostile, and dnspython takes seconds for one that is full of names of a hundred labels. Therefore it
parses only the types that validation needs, and the number of RRsets and the cost of names are limited.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

import dns.exception
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdatatype
import dns.rrset
from dns.rdataclass import IN
from dns.rdatatype import CNAME, DNAME, DNSKEY, DS, NAPTR, NSEC, NSEC3, OPT, RRSIG, SOA, RdataType

from maptr.client.message import Record, read_sections
from maptr.client.validation.denial import Nsec3Proofs, NsecProofs
from maptr.client.validation.signed import Bogus, Keys, Rdata, VerifiedRRset, WorkBudget, signers, verify
from maptr.protocol.names import Labels, fold, read_name
from maptr.protocol.numbers import HEADER_SIZE, RCODE_BITS

MAX_RRSETS = 256  # of one response; sixteen aliases by DNAME and wildcard, signed and proven, have about ninety
MAX_NAME_COST = 1_000_000  # sum of squares of the numbers of labels, dnspython's cost: 2048 names of 22 labels

TOO_MANY_RRSETS = f"more than {MAX_RRSETS} RRsets"

Section = Sequence[dns.rrset.RRset]
Proofs = NsecProofs | Nsec3Proofs

# The types that are parsed, and which of their fields are names.
_NAMES = {
    NAPTR: ("replacement",),
    CNAME: ("target",),
    DNAME: ("target",),
    DS: (),
    DNSKEY: (),
    RRSIG: ("signer",),
    SOA: ("mname", "rname"),
    NSEC: ("next",),
    NSEC3: (),
}
_HEADER = struct.Struct("!6H")


def parse(packet: bytes) -> dns.message.Message:
    """A message with one question, without the additional section and without other types.

    Raises ValueError for a malformed message, and for one above the limits.
    """
    try:
        ident, flags, questions, *counts = _HEADER.unpack_from(packet)
        if questions != 1:
            raise ValueError(f"{questions} questions")
        qname, at = read_name(packet, HEADER_SIZE)
        sections = read_sections(packet, at + 4, counts, qname)
        message = dns.message.QueryMessage(id=ident)
        message.flags = flags
        extended = next((record.ttl >> 24 << 4 for record in sections.additional if record.rdtype == OPT), 0)
        message.set_rcode(dns.rcode.Rcode(flags & RCODE_BITS | extended))  # RFC 6891 6.1.3
        reader = _Reader(packet)
        message.answer = reader.rrsets(sections.answer)
        message.authority = reader.rrsets(sections.authority)
    except (dns.exception.DNSException, ValueError, IndexError, struct.error) as error:
        raise ValueError(str(error) or type(error).__name__) from None
    return message


def is_honest(message: dns.message.Message) -> bool:
    """Whether a message that dnspython's resolver parsed is within MAX_RRSETS."""
    return len(message.answer) + len(message.authority) <= MAX_RRSETS


class _Reader:
    """Reads the RRsets of one message, within its limits."""

    def __init__(self, packet: bytes) -> None:
        self._packet = packet
        self._rrsets_left = MAX_RRSETS
        self._cost_left = MAX_NAME_COST

    def rrsets(self, records: Iterable[Record]) -> list[dns.rrset.RRset]:
        """The records of one section as RRsets, in order. Raises ValueError and dnspython's errors."""
        found: dict[tuple[Labels, int, int], dns.rrset.RRset] = {}
        for record in records:
            if record.rdtype not in _NAMES:
                continue
            rdtype = RdataType(record.rdtype)
            rdata = dns.rdata.from_wire(IN, rdtype, self._packet, record.start, record.end - record.start)
            self._pay(rdata)
            covers = rdata.covers()
            key = fold(record.owner), rdtype, covers
            rrset = found.get(key)
            if rrset is None:
                self._rrsets_left -= 1
                if self._rrsets_left < 0:
                    raise ValueError(TOO_MANY_RRSETS)
                rrset = found[key] = dns.rrset.RRset(dns.name.Name((*record.owner, b"")), IN, rdtype, covers)
            rrset.add(rdata, record.sane_ttl)
        return list(found.values())

    def _pay(self, rdata: Rdata) -> None:
        for field in _NAMES[rdata.rdtype]:
            self._cost_left -= len(getattr(rdata, field)) ** 2
        if self._cost_left < 0:
            raise ValueError("too many names with too many labels")


def rrset(section: Section, name: dns.name.Name, rdtype: RdataType) -> dns.rrset.RRset | None:
    """The RRset of a name and type."""
    return next((r for r in section if r.rdtype == rdtype and r.rdclass == IN and r.name == name), None)


def signatures(section: Section, covered: dns.rrset.RRset) -> dns.rrset.RRset | None:
    """The RRSIGs of an RRset."""
    for candidate in section:
        if candidate.rdtype == RRSIG and candidate.covers == covered.rdtype and candidate.name == covered.name:
            return candidate if candidate.rdclass == IN else None
    return None


def denials(message: dns.message.Message) -> Iterator[tuple[dns.rrset.RRset, dns.rrset.RRset | None]]:
    """The NSEC and NSEC3 RRsets of a response, with their signatures."""
    for candidate in message.authority:
        if candidate.rdtype in (NSEC, NSEC3) and candidate.rdclass == IN:
            yield candidate, signatures(message.authority, candidate)


def proofs(message: dns.message.Message, keys: Keys, now: float, budget: WorkBudget) -> tuple[Proofs, int]:
    """The proofs of one zone in a response, and the seconds for which they may be cached.

    Records of other zones are ignored. Raises Bogus for a record of this zone without valid signature, because the
    other records may then be only half of a proof (with opt-out, that a name with a wildcard has no data).
    """
    found: list[VerifiedRRset] = []
    for denial, signed in denials(message):
        named = signers(signed)
        if keys.zone in named or (not named and denial.name.is_subdomain(keys.zone)):
            found.append(verify(denial, signed, keys, now, budget))
    ttl = min((record.ttl for record in found), default=0)
    plain = [record for record in found if record.rrset.rdtype == NSEC]
    if plain:
        return NsecProofs.of(keys.zone, plain), ttl
    hashed = Nsec3Proofs.of(keys.zone, found, budget)
    if hashed is None:
        raise Bogus(f"no proof of {keys.zone} in the response")
    return hashed, ttl
