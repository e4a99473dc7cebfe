"""Replies read in full, every section of them: the half of ``wire`` for whatever is not plain."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from maptr import names
from maptr.discovery import Outcome
from maptr.names import Labels
from maptr.naptr import Naptr
from maptr.protocol import (
    AA,
    AAAA,
    AD,
    CNAME,
    EDE,
    HEADER_SIZE,
    IN,
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
MAX_JUMPS = 126  # pointers in one name: no name has more labels
MAX_GLUE = 8  # addresses taken from one referral

EDE_BOGUS = range(5, 13)  # RFC 8914 4.6 to 4.13: what validation found wrong, from "DNSSEC indeterminate" on

_HEADER = struct.Struct("!6H")
_FIXED = struct.Struct("!HHIH")
_PAIR = struct.Struct("!HH")
_QNAME_POINTER = b"\xc0\x0c"


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
    """What a reply says. ``rcode`` is the extended one; ``records`` are set for NAPTR, ``addresses`` for A and AAAA."""

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


class _Record(NamedTuple):
    owner: Labels
    rdtype: int
    ttl: int
    start: int
    end: int


def read_in_full(query: Query, packet: bytes) -> Reply:
    """The reply to a query; ValueError, with the reason, for one that cannot be read. RFC 1034 5.3.3, without 4d."""
    _, flags, questions, *counts = _HEADER.unpack_from(packet)
    rcode = flags & RCODE_BITS
    if flags & TC:
        return Reply(rcode, truncated=True)
    at = HEADER_SIZE + (len(query.question) if questions else 0)
    try:
        sections: list[list[_Record]] = []
        for count in counts:
            records, at = _section(packet, at, count, query.name)
            sections.append(records)
        if at != len(packet):
            raise ValueError("octets after the last record")
        answer, authority, additional = sections
        bogus = False
        for record in additional:
            if record.rdtype == OPT:
                rcode |= (record.ttl >> 24) << 4
                bogus = any(code in EDE_BOGUS for code in _errors(packet, record))
        authentic = bool(flags & AD)
        if rcode == NXDOMAIN:
            return Reply(
                rcode, False, Outcome.NXDOMAIN, ttl=_negative_ttl(packet, authority), authentic=authentic, bogus=bogus
            )
        if rcode != NOERROR:
            return Reply(rcode, bogus=bogus)
        return _noerror(query, packet, flags, answer, authority, additional)._replace(authentic=authentic)
    except (struct.error, IndexError):
        raise ValueError("cut short") from None


def _noerror(
    query: Query,
    packet: bytes,
    flags: int,
    answer: list[_Record],
    authority: list[_Record],
    additional: list[_Record],
) -> Reply:
    wanted = names.fold(query.name)
    shown = query.name
    ttl = MAX_TTL
    chain = 0
    while True:
        here = [r for r in answer if (not chain and r.owner is query.name) or names.fold(r.owner) == wanted]
        found = [record for record in here if record.rdtype == query.rdtype]
        aliases = [record for record in here if record.rdtype == CNAME]
        alias = aliases[0] if aliases else None
        if found or alias is None:
            break
        chain += 1
        if chain > MAX_CHAIN:
            raise ValueError(f"more than {MAX_CHAIN} CNAMEs")
        ttl = min(ttl, *map(_ttl, aliases))
        shown = _whole_name(packet, alias.start, alias.end)
        wanted = names.fold(shown)
        if any(names.fold(_whole_name(packet, other.start, other.end)) != wanted for other in aliases[1:]):
            raise ValueError("several CNAMEs at one name")  # RFC 2181 10.1
    note = f"through CNAME {names.to_text(shown)}" if chain else ""
    if found:
        ttl = min(ttl, *map(_ttl, found))
        if query.rdtype == NAPTR:
            records = tuple(_naptr(packet, record.start, record.end) for record in found)
            return Reply(NOERROR, False, Outcome.ANSWER, records, ttl=ttl, note=note)
        addresses = _addresses(packet, found) if query.rdtype in (A, AAAA) else ()
        return Reply(NOERROR, False, Outcome.ANSWER, addresses=addresses, ttl=ttl, note=note)
    if not flags & RA:
        soa = any(record.rdtype == SOA for record in authority)
        cut = next((record.owner for record in authority if record.rdtype == NS), None)
        if chain and not soa:
            return Reply(NOERROR, False, Outcome.REFERRAL, ttl=ttl, note=note, alias=shown)
        if cut is not None and not soa and not flags & AA:
            return Reply(
                NOERROR, False, Outcome.REFERRAL, referral=_referral(packet, cut, authority, additional), note=note
            )
    return Reply(NOERROR, False, Outcome.NODATA, ttl=_negative_ttl(packet, authority), note=note)


def _referral(packet: bytes, cut: Labels, authority: list[_Record], additional: list[_Record]) -> Referral:
    servers = tuple(
        _whole_name(packet, record.start, record.end)
        for record in authority
        if record.rdtype == NS and names.fold(record.owner) == names.fold(cut)
    )
    listed = {names.fold(server) for server in servers}
    glue = [record for record in additional if record.rdtype in (A, AAAA) and names.fold(record.owner) in listed]
    return Referral(cut, servers, _addresses(packet, glue))


def _addresses(packet: bytes, records: list[_Record]) -> tuple[str, ...]:
    """Address texts, at most MAX_GLUE; ValueError for an rdata of a wrong length."""
    texts = []
    for record in records[:MAX_GLUE]:
        octets = packet[record.start : record.end]
        if len(octets) != (4 if record.rdtype == A else 16):
            raise ValueError("an address of a wrong length")
        if record.rdtype == A:
            texts.append(".".join(map(str, octets)))
        else:
            texts.append(":".join(f"{high << 8 | low:x}" for high, low in zip(octets[::2], octets[1::2], strict=True)))
    return tuple(dict.fromkeys(texts))


def _section(packet: bytes, at: int, count: int, qname: Labels) -> tuple[list[_Record], int]:
    """The records of a section, those of other classes left out, and where it ends."""
    records = []
    for _ in range(count):
        if packet[at : at + 2] == _QNAME_POINTER:
            owner, at = qname, at + 2
        else:
            owner, at = read_name(packet, at)
        rdtype, rdclass, ttl, length = _FIXED.unpack_from(packet, at)
        start = at + 10
        at = start + length
        if at > len(packet):
            raise ValueError("rdata cut short")
        if rdclass == IN or rdtype == OPT:
            records.append(_Record(owner, rdtype, ttl, start, at))
    return records, at


def read_name(packet: bytes, at: int) -> tuple[Labels, int]:
    """A name and where it ends; pointers lead backwards only. ValueError or IndexError where it cannot be read."""
    labels: list[bytes] = []
    size, jumps, resume = 1, 0, -1
    while length := packet[at]:
        if length >= 0xC0:
            target = (length & 0x3F) << 8 | packet[at + 1]
            jumps += 1
            if target >= at or jumps > MAX_JUMPS:
                raise ValueError("a compression pointer that does not lead back")
            resume = at + 2 if resume < 0 else resume
            at = target
            continue
        if length > names.MAX_LABEL:
            raise ValueError("a label of an unknown kind")
        size += length + 1
        if size > names.MAX_NAME:
            raise ValueError("a name too long")
        labels.append(packet[at + 1 : at + 1 + length])
        at += length + 1
    return tuple(labels), at + 1 if resume < 0 else resume


def _whole_name(packet: bytes, start: int, end: int) -> Labels:
    name, at = read_name(packet, start)
    if at != end:
        raise ValueError("rdata longer or shorter than its name")
    return name


def _naptr(packet: bytes, start: int, end: int) -> Naptr:
    """NAPTR rdata, its name compressed or not (RFC 3597 4)."""
    order, preference = _PAIR.unpack_from(packet, start)
    service_at = start + 5 + packet[start + 4]
    regexp_at = service_at + 1 + packet[service_at]
    name_at = regexp_at + 1 + packet[regexp_at]
    if name_at >= end:
        raise ValueError("NAPTR rdata cut short")
    return Naptr(
        order,
        preference,
        packet[start + 5 : service_at],
        packet[service_at + 1 : regexp_at],
        packet[regexp_at + 1 : name_at],
        _whole_name(packet, name_at, end),
    )


def _negative_ttl(packet: bytes, authority: list[_Record]) -> int | None:
    """Seconds that a negative answer may be kept (RFC 2308 5); None where it has no SOA."""
    for record in authority:
        if record.rdtype == SOA:
            if record.end - record.start < 22:
                raise ValueError("SOA rdata cut short")
            return min(_ttl(record), int.from_bytes(packet[record.end - 4 : record.end], "big"))
    return None


def _errors(packet: bytes, opt: _Record) -> Iterator[int]:
    """The extended error codes in an OPT (RFC 8914)."""
    at = opt.start
    while at < opt.end:
        code, length = _PAIR.unpack_from(packet, at)
        if at + 4 + length > opt.end:
            raise ValueError("an EDNS option cut short")
        if code == EDE and length >= 2:
            yield int.from_bytes(packet[at + 4 : at + 6], "big")
        at += 4 + length


def _ttl(record: _Record) -> int:
    return record.ttl if record.ttl <= MAX_TTL else 0
