"""A zone as master file text that every reader takes, whatever stands in its names.

dnspython's own writer leaves a colon in a name as it is, and Knot then refuses the zone. Reading a zone is not here.
"""

from __future__ import annotations

from collections.abc import Iterator

import dns.name
import dns.rdata
import dns.rdataset
import dns.rdatatype
import dns.zone

from maptr import names
from maptr.naptr import Naptr


def to_text(zone: dns.zone.Zone) -> str:
    """One record a line, absolute names, the SOA first and the rest in canonical order (RFC 4034 6).

    For a zone that is not relativized. The same records give the same text, in whatever order they were added.
    """
    lines: list[str] = []
    for name in sorted(zone.nodes, key=lambda name: (name != zone.origin, name)):
        owner = names.to_text(name.labels[:-1])
        for rdataset in sorted(zone.nodes[name], key=_place):
            kind = dns.rdatatype.to_text(rdataset.rdtype)
            lines += [f"{owner} {rdataset.ttl} IN {kind} {rdata_text(rdata)}" for rdata in _canonical(rdataset)]
    return "\n".join(lines) + "\n"


def _place(rdataset: dns.rdataset.Rdataset) -> tuple[bool, int, bool]:
    """SOA first, types by number, each followed by the signatures that cover it."""
    is_signature = rdataset.rdtype == dns.rdatatype.RRSIG
    covered = rdataset.covers if is_signature else rdataset.rdtype
    return covered != dns.rdatatype.SOA, int(covered), is_signature


def _canonical(rdataset: dns.rdataset.Rdataset) -> Iterator[dns.rdata.Rdata]:
    yield from sorted(rdataset, key=lambda rdata: rdata.to_digestable())


def rdata_text(rdata: dns.rdata.Rdata) -> str:
    """Presentation format; RFC 3597's, of which no reader can mistake an octet, where a name needs care."""
    if rdata.rdtype == dns.rdatatype.NAPTR:
        return Naptr.from_wire(rdata.to_wire() or b"").to_text()
    if any(names.to_text(name.labels[:-1]) != name.to_text() for name in _names(rdata)):
        return rdata.to_generic().to_text()
    return rdata.to_text()


def _names(rdata: dns.rdata.Rdata) -> Iterator[dns.name.Name]:
    for slot in rdata._get_all_slots():  # type: ignore[no-untyped-call]
        value = getattr(rdata, slot, None)
        if isinstance(value, dns.name.Name):
            yield value
