"""DNS messages for validation: read within limits, with the signatures of each RRset.

A response may be hostile, and dnspython takes seconds for one that is full of names of a hundred labels. Therefore it
parses only the types that validation needs, and the number of RRsets and the cost of names are limited.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import dns.exception
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdatatype
import dns.rrset
from dns.rdataclass import IN
from dns.rdatatype import CNAME, DNAME, DNSKEY, DS, NAPTR, NONE, NSEC, NSEC3, OPT, RRSIG, SOA, RdataType

from maptr.client.message import Record, read_sections
from maptr.protocol.names import Labels, fold, read_name
from maptr.protocol.numbers import HEADER_SIZE, RCODE_BITS

MAX_RRSETS = 256  # of one response; sixteen aliases by DNAME and wildcard, signed and proven, have about ninety
MAX_NAME_COST = 1_000_000  # sum of squares of the numbers of labels, dnspython's cost: 2048 names of 22 labels

TOO_MANY_RRSETS = f"more than {MAX_RRSETS} RRsets"

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
        message.answer, message.authority = _read_rrsets(packet, sections.answer, sections.authority)
    except (dns.exception.DNSException, ValueError, IndexError, struct.error) as error:
        raise ValueError(str(error) or type(error).__name__) from None
    return message


def _read_rrsets(packet: bytes, *sections: Sequence[Record]) -> Iterator[list[dns.rrset.RRset]]:
    """The records of each section as RRsets, in order. Raises ValueError above the limits, and dnspython's errors."""
    count = cost = 0
    for records in sections:
        found: dict[tuple[Labels, int, int], dns.rrset.RRset] = {}
        for record in records:
            if record.rdtype not in _NAMES:
                continue
            rdtype = RdataType(record.rdtype)
            rdata = dns.rdata.from_wire(IN, rdtype, packet, record.start, record.end - record.start)
            cost += sum(len(getattr(rdata, field)) ** 2 for field in _NAMES[rdtype])
            if cost > MAX_NAME_COST:
                raise ValueError("too many names with too many labels")
            key = fold(record.owner), rdtype, rdata.covers()
            if key not in found:
                count += 1
                if count > MAX_RRSETS:
                    raise ValueError(TOO_MANY_RRSETS)
                found[key] = dns.rrset.RRset(dns.name.Name((*record.owner, b"")), IN, rdtype, rdata.covers())
            found[key].add(rdata, record.ttl)
        yield list(found.values())


def rrset(
    section: Sequence[dns.rrset.RRset], name: dns.name.Name, rdtype: RdataType, covers: RdataType = NONE
) -> dns.rrset.RRset | None:
    """The RRset of a name and type; with ``covers``, the RRSIGs of that type."""
    return next((found for found in section if found.full_match(name, IN, rdtype, covers)), None)


def signatures(section: Sequence[dns.rrset.RRset], covered: dns.rrset.RRset) -> dns.rrset.RRset | None:
    return rrset(section, covered.name, RRSIG, covered.rdtype)
