"""Writer of zone files: master file text that all name servers read alike, even with unusual bytes in names.

dnspython's own writer does not escape a colon in a name, so that Knot rejects the zone.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype

from maptr.naptr.record import Naptr
from maptr.protocol import names
from maptr.protocol.numbers import NAPTR, RRSIG, SOA
from maptr.zone.rdata import type_text
from maptr.zone.rrset import RRSIG_HEAD, canonical_rdata, records_of
from maptr.zone.snapshot import ZoneView


def to_text(zone: ZoneView) -> str:
    """Write one record per line, with absolute names, the SOA first and the rest in canonical order (RFC 4034 6).

    Signatures follow the records they cover. The order of records in the zone does not affect the text.
    """
    nodes = zone.nodes
    in_order = sorted(nodes.in_order(), key=lambda found: len(found[0]) != len(zone.origin))
    lines = [line for _, name in in_order for line in _lines(names.to_text(nodes.owner(name)), nodes.table[name])]
    return "\n".join(lines) + "\n"


def rdata_text(rdtype: int, octets: bytes) -> str:
    """Write uncompressed rdata in presentation format.

    Invalid rdata, or a name that name servers would read differently, is written in the generic form of RFC 3597.
    """
    try:
        if rdtype == NAPTR:
            return Naptr.from_wire(octets).to_text()
        rdata = dns.rdata.from_wire(dns.rdataclass.IN, dns.rdatatype.RdataType.make(rdtype), octets, 0, len(octets))
    except (ValueError, dns.exception.DNSException):
        return f"\\# {len(octets)} {octets.hex()}"
    # All servers read an escaped dot alike, which a SOA's mailbox may have (RFC 1035 8).
    if any(names.to_text(name.labels[:-1]).replace("\\046", "\\.") != name.to_text() for name in _names(rdata)):
        return str(rdata.to_generic().to_text())
    return str(rdata.to_text(chunksize=0))  # a key or signature in one word


def _lines(owner: str, packed: bytes) -> list[str]:
    found = []
    for rdtype, ttl, rdata in records_of(packed):
        of = int.from_bytes(rdata[:2], "big") if rdtype == RRSIG else rdtype
        order = of != SOA, of, rdtype == RRSIG, canonical_rdata(rdtype, rdata)
        text = _signature_text(rdata) if rdtype == RRSIG else rdata_text(rdtype, rdata)
        found.append((order, f"{owner} {ttl} IN {type_text(rdtype)} {text}"))
    return [line for _, line in sorted(found)]


def _signature_text(rdata: bytes) -> str:
    end = names.read_wire(rdata, RRSIG_HEAD.size)[1]
    fields = _fields_text(rdata[:end])
    if fields.startswith("\\#"):
        return rdata_text(RRSIG, rdata)
    return fields + binascii.b2a_base64(rdata[end:], newline=False).decode("ascii")


@lru_cache  # most signatures of a zone have the same fields
def _fields_text(rdata: bytes) -> str:
    return rdata_text(RRSIG, rdata)


def _names(rdata: dns.rdata.Rdata) -> Iterator[dns.name.Name]:
    for field in chain.from_iterable(getattr(kind, "__slots__", ()) for kind in type(rdata).__mro__):
        value = getattr(rdata, field, None)
        if isinstance(value, dns.name.Name):
            yield value
