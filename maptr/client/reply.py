"""What a reply says: records, an alias, a referral, none. How names and records lie in it is read in ``sections``."""

from __future__ import annotations

import struct
from typing import NamedTuple

from maptr.client.sections import (
    Record,
    Sections,
    addresses_of,
    error_codes,
    name_of,
    naptr_of,
    negative_ttl,
    read_sections,
)
from maptr.discovery import Outcome
from maptr.naptr.record import Naptr
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.protocol.numbers import (
    AA,
    AAAA,
    AD,
    CNAME,
    HEADER_SIZE,
    MAX_TTL,
    NAPTR,
    NOERROR,
    NS,
    NXDOMAIN,
    OPT,
    RA,
    RCODE_BITS,
    SOA,
    TC,
    A,
)

MAX_CHAIN = 16  # CNAMEs followed in one reply; dnspython's limit too
EDE_BOGUS = range(5, 13)  # RFC 8914 4.6 to 4.13: what validation found wrong, from "DNSSEC indeterminate" on

_unpack_header = struct.Struct("!6H").unpack_from
_new = tuple.__new__  # half the time of a NamedTuple's own


class Query(NamedTuple):
    """A question as it is sent; ``question`` is name, type and class, which a reply must echo octet for octet."""

    name: Labels
    packet: bytes
    question: bytes
    rdtype: int


class Referral(NamedTuple):
    """Where a server sends us: the zone cut, its servers by name, and the addresses told with them."""

    cut: Labels
    servers: tuple[Labels, ...]
    addresses: tuple[str, ...]


class Reply(NamedTuple):
    """What a reply says. ``rcode`` is the extended one; ``records`` are set for NAPTR, ``addresses`` for A and AAAA.
    ``zone`` is that of ``Answer``."""

    rcode: int
    truncated: bool = False
    outcome: Outcome = Outcome.MALFORMED
    records: tuple[Naptr, ...] = ()
    addresses: tuple[str, ...] = ()
    ttl: int | None = None
    note: str = ""
    authentic: bool = False
    bogus: bool = False
    referral: Referral | None = None
    alias: Labels | None = None
    zone: Labels | None = None


def read_reply(query: Query, packet: bytes) -> Reply:
    """The reply to a query; ValueError, with the reason, for one that cannot be read. RFC 1034 5.3.3, without 4d."""
    _, flags, questions, *counts = _unpack_header(packet)
    rcode = flags & RCODE_BITS
    if flags & TC:
        return Reply(rcode, truncated=True)
    at = HEADER_SIZE + (len(query.question) if questions else 0)
    try:
        sections = read_sections(packet, at, counts, query.name)
        bogus = False
        for _, rdtype, ttl, start, end in sections.additional:
            if rdtype == OPT and (ttl >> 24 or start != end):
                rcode |= (ttl >> 24) << 4
                bogus = any(code in EDE_BOGUS for code in error_codes(packet, start, end))
        authentic = bool(flags & AD)
        if rcode == NXDOMAIN:
            least = negative_ttl(packet, sections.authority)
            zone = next((record.owner for record in sections.authority if record.rdtype == SOA), None)
            if any(record.rdtype == CNAME for record in sections.answer):
                zone = query.name  # where an alias stands; what it leads to does not exist
            return Reply(rcode, False, Outcome.NXDOMAIN, (), (), least, "", authentic, bogus, zone=zone)
        if rcode != NOERROR:
            return Reply(rcode, bogus=bogus)
        return _noerror(query, flags, sections, authentic)
    except (struct.error, IndexError):
        raise ValueError("cut short") from None


def _noerror(query: Query, flags: int, sections: Sections, authentic: bool) -> Reply:
    packet = sections.packet
    found, name, chain, ttl = _follow_chain(query, sections)
    note = f"through CNAME {names.to_text(name)}" if chain else ""
    if found:
        for record in found:
            if record.ttl < ttl or record.ttl > MAX_TTL:
                ttl = min(ttl, record.sane_ttl)
        records = tuple([naptr_of(packet, record) for record in found]) if query.rdtype == NAPTR else ()
        addresses = addresses_of(packet, found) if query.rdtype in (A, AAAA) else ()
        # All fields, in their order.
        return _new(
            Reply, (NOERROR, False, Outcome.ANSWER, records, addresses, ttl, note, authentic, False, None, None, None)
        )
    if not flags & RA:
        soa = any(record.rdtype == SOA for record in sections.authority)
        cut = next((record.owner for record in sections.authority if record.rdtype == NS), None)
        if chain and not soa:
            return Reply(NOERROR, False, Outcome.REFERRAL, (), (), ttl, note, authentic, alias=name)
        if cut is not None and not soa and not flags & AA:
            referral = _referral(cut, sections)
            return Reply(NOERROR, False, Outcome.REFERRAL, (), (), None, note, authentic, referral=referral)
    return Reply(NOERROR, False, Outcome.NODATA, (), (), negative_ttl(packet, sections.authority), note, authentic)


def _follow_chain(query: Query, sections: Sections) -> tuple[list[Record], Labels, int, int]:
    """What the answer section has at the end of its CNAMEs, that end, how many they are, and their least TTL."""
    name, wanted_type, chain, ttl = query.name, query.rdtype, 0, MAX_TTL
    for owner, rdtype, *_ in sections.answer:
        if owner is not name or rdtype != wanted_type:
            break
    else:
        return sections.answer, name, chain, ttl
    # Each owner is folded once: five thousand of a hundred labels, for each alias, are a second.
    owners = [names.fold(record.owner) for record in sections.answer]
    wanted = names.fold(name)
    while True:
        here = [record for record, owner in zip(sections.answer, owners, strict=True) if owner == wanted]
        found = [record for record in here if record.rdtype == query.rdtype]
        aliases = [record for record in here if record.rdtype == CNAME]
        if found or not aliases:
            return found, name, chain, ttl
        chain += 1
        if chain > MAX_CHAIN:
            raise ValueError(f"more than {MAX_CHAIN} CNAMEs")
        ttl = min(ttl, *(alias.sane_ttl for alias in aliases))
        name = name_of(sections.packet, aliases[0])
        wanted = names.fold(name)
        if any(names.fold(name_of(sections.packet, other)) != wanted for other in aliases[1:]):
            raise ValueError("several CNAMEs at one name")  # RFC 2181 10.1


def _referral(cut: Labels, sections: Sections) -> Referral:
    """The servers of the zone below the cut, and their addresses as far as they are told (RFC 1034 4.2.1)."""
    servers = tuple(
        name_of(sections.packet, record)
        for record in sections.authority
        if record.rdtype == NS and names.fold(record.owner) == names.fold(cut)
    )
    listed = {names.fold(server) for server in servers}
    glue = [r for r in sections.additional if r.rdtype in (A, AAAA) and names.fold(r.owner) in listed]
    return Referral(cut, servers, addresses_of(sections.packet, glue))
