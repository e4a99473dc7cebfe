"""DNS messages of a stub resolver: writes queries, matches responses to them, and reads what a response says.

Pure: bytes in, values out. Independent of the server's reader (``answer.message``), so that tests can compare the two.
A response that cannot be read is a ValueError with the reason.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from maptr.discovery import Outcome
from maptr.naptr.record import Naptr
from maptr.protocol import names, numbers
from maptr.protocol.extended_error import ExtendedError
from maptr.protocol.names import Labels, read_name

MAX_CHAIN = 16  # CNAMEs followed for one question; dnspython's limit too
MAX_GLUE = 8  # addresses taken from one referral
EDE_BOGUS = range(5, 13)  # RFC 8914 4.6 to 4.13: validation failures, from "DNSSEC indeterminate" on

_new = tuple.__new__  # faster than the class itself: scripts/bench client

# ---- queries

# The rcodes of responses that may lack the question.
_WITHOUT_QUESTION = frozenset({numbers.FORMERR, numbers.SERVFAIL, numbers.NOTIMP, numbers.REFUSED})
_TRUNCATED = numbers.TC >> 8
_pack_header = struct.Struct("!2s5H").pack
_pack_question = struct.Struct("!HH").pack
_OPT = [struct.pack("!BHHIH", 0, numbers.OPT, numbers.UDP_PAYLOAD, flags, 0) for flags in (0, numbers.DO)]
_LETTERS = bytes(65) + b"\x20" * 26 + bytes(6) + b"\x20" * 26 + bytes(133)  # by byte: the bit of its case


class SentQuery(NamedTuple):
    """A query as it is sent. ``question`` is name, type and class as sent, which a response must echo byte for byte.

    ``original`` is the same in the letter case of ``name``; empty if it was sent that way.
    """

    name: Labels
    packet: bytes
    question: bytes
    rdtype: int
    original: bytes = b""


def make_query(
    name: Labels,
    random_bytes: Callable[[int], bytes],
    *,
    rdtype: int = numbers.NAPTR,
    mix: bool = True,
    spelling: bytes = b"",
    edns: bool = True,
    ask_ad: bool = False,
    dnssec: bool = False,
) -> SentQuery:
    """Return a query with recursion desired and a random ID.

    ``mix`` gives the letters of the name random case (0x20, draft-vixie-dnsext-dns0x20); ``spelling`` is instead the
    name in wire format, spelled as it is sent. ``dnssec`` sets DO and CD, so that a resolver sends signatures and
    leaves validation to the client (RFC 6840 5.9).
    """
    plain = wire = names.to_wire(name)
    size = len(wire)
    mix = mix and not spelling
    randomness = random_bytes(2 + size if mix else 2)
    if mix:
        flips = int.from_bytes(wire.translate(_LETTERS), "big") & int.from_bytes(randomness[2:], "big")
        wire = (int.from_bytes(wire, "big") ^ flips).to_bytes(size, "big")
    elif spelling:
        wire = spelling
    ending = _pack_question(rdtype, numbers.IN)
    question = wire + ending
    flags = numbers.RD | (numbers.CD if dnssec else numbers.AD if ask_ad else 0)
    header = _pack_header(randomness[:2], flags, 1, 0, 0, edns)
    opt = _OPT[dnssec] if edns else b""
    original = b"" if wire == plain else plain + ending
    return _new(SentQuery, (name, header + question + opt, question, rdtype, original))


def is_response_to(query: SentQuery, packet: bytes, *, any_case: bool = False) -> bool:
    """Return whether a packet responds to the query: the same ID and question, in the case sent or in ``any_case``."""
    if len(packet) < numbers.HEADER_SIZE or packet[:2] != query.packet[:2] or packet[2] & 0xF8 != 0x80:
        return False
    if packet.startswith(b"\0\1", 4):
        if packet.startswith(query.question, numbers.HEADER_SIZE):
            return True
        end = numbers.HEADER_SIZE + len(query.question)
        same_type = packet[end - 4 : end] == query.question[-4:]
        return any_case and same_type and spelled_name(query, packet).lower() == query.question[:-4].lower()
    # A truncated response leads to a query over TCP, whatever it lacks.
    return packet[4:6] == b"\0\0" and (packet[3] & 15 in _WITHOUT_QUESTION or bool(packet[2] & _TRUNCATED))


def spelled_name(query: SentQuery, packet: bytes) -> bytes:
    """Return the name in the question of a response, in wire format."""
    return packet[numbers.HEADER_SIZE : numbers.HEADER_SIZE + len(query.question) - 4]


def restore_case(query: SentQuery, packet: bytes) -> bytes:
    """Return a response with the question in the original letter case, and so every name compressed to it."""
    original = query.original or query.question
    end = numbers.HEADER_SIZE + len(original)
    if not packet.startswith(b"\0\1", 4) or packet.startswith(original, numbers.HEADER_SIZE):
        return packet
    return packet[: numbers.HEADER_SIZE] + original + packet[end:]


# ---- sections and records

_unpack_header = struct.Struct("!6H").unpack_from
_unpack_fixed = struct.Struct("!HHIH").unpack_from
_QNAME_POINTER = struct.pack("!H", 0xC000 | numbers.HEADER_SIZE)  # to the question's name


class WireRecord(NamedTuple):
    """One record, with the offsets of its rdata. A ``ttl`` above MAX_TTL is 0 (RFC 2181 8), except for OPT."""

    owner: Labels
    rdtype: int
    ttl: int
    start: int
    end: int


class Sections(NamedTuple):
    packet: bytes
    answer: list[WireRecord]
    authority: list[WireRecord]
    additional: list[WireRecord]
    trailing: bool  # there are bytes after the last record


def read_sections(packet: bytes, at: int, counts: Iterable[int], qname: Labels) -> Sections:
    """Return all records from ``at`` on, as many as the header counts. Owners that point to the question are ``qname``.

    Raises ValueError; IndexError or struct.error for a packet that ends too soon.
    """
    sections: list[list[WireRecord]] = []
    # By the first two bytes of an owner, the name and its size: a pointer, or the root before a type below 256.
    known = {_QNAME_POINTER: (qname, 2), b"\0\0": ((), 1)}
    end = len(packet)
    for count in counts:
        records: list[WireRecord] = []
        sections.append(records)
        for _ in range(count):
            pointer = packet[at : at + 2]
            if pointer in known:
                owner, size = known[pointer]
                at += size
            else:
                owner, at = read_name(packet, at)
                if pointer[0] >= 0xC0:
                    known[pointer] = owner, 2
            rdtype, rdclass, ttl, length = _unpack_fixed(packet, at)
            start = at + 10
            at = start + length
            if at > end:
                raise ValueError("rdata cut short")
            if rdtype != numbers.OPT:
                if rdclass != numbers.IN:
                    continue
                if ttl > numbers.MAX_TTL:
                    ttl = 0
            records.append(_new(WireRecord, (owner, rdtype, ttl, start, at)))
    return _new(Sections, (packet, *sections, at != end))


def _whole_name(packet: bytes, start: int, end: int) -> Labels:
    """Return the name between two offsets: the rdata of a CNAME or NS."""
    name, at = read_name(packet, start)
    if at != end:
        raise ValueError("rdata longer or shorter than its name")
    return name


def _read_negative(packet: bytes, authority: list[WireRecord]) -> tuple[int | None, Labels | None]:
    """Return the seconds to cache a negative answer (RFC 2308 5), and its zone; None without SOA."""
    soa = next((record for record in authority if record.rdtype == numbers.SOA), None)
    if soa is None:
        return None, None
    if soa.end - soa.start < 22:
        raise ValueError("SOA rdata cut short")
    return min(soa.ttl, int.from_bytes(packet[soa.end - 4 : soa.end], "big")), names.fold(soa.owner)


def _extended_errors(packet: bytes, at: int, end: int) -> Iterator[ExtendedError]:
    """Yield the extended DNS errors (RFC 8914) in the rdata of an OPT record."""
    while at < end:
        code, length = struct.unpack_from("!HH", packet, at)
        if at + 4 + length > end:
            raise ValueError("an EDNS option cut short")
        if code == numbers.EDE and length >= 2:
            yield ExtendedError.read(packet[at + 4 : at + 4 + length])
        at += 4 + length


# ---- responses


class Referral(NamedTuple):
    """The zone cut that a server refers to, the names of that zone's servers, and their addresses (glue)."""

    cut: Labels
    servers: tuple[Labels, ...]
    addresses: tuple[str, ...]


class DnsResponse(NamedTuple):
    """A response read. ``rcode`` is the extended one; ``records`` are set for NAPTR; ``zone`` is as in ``Answer``.

    ``extended`` is set for an error.
    """

    rcode: int
    outcome: Outcome = Outcome.MALFORMED
    records: tuple[Naptr, ...] = ()
    ttl: int | None = None
    note: str = ""
    authentic: bool = False
    bogus: bool = False
    referral: Referral | None = None
    alias: Labels | None = None
    zone: Labels | None = None
    trailing: bool = False  # bytes after the last record were ignored
    extended: tuple[ExtendedError, ...] = ()


class Truncated(ValueError):
    """The response has TC: the query must be sent over TCP (RFC 2181 9)."""


def read_response(query: SentQuery, packet: bytes) -> DnsResponse:
    """Return the response to a query (RFC 1034 5.3.3, without 4d). Raises Truncated, and ValueError otherwise."""
    _, flags, questions, *counts = _unpack_header(packet)
    if flags & numbers.TC:
        raise Truncated("the response is truncated")
    at = numbers.HEADER_SIZE + (len(query.question) if questions else 0)
    try:
        sections = read_sections(packet, at, counts, query.name)
        response = _read_sections(query, flags, sections)
    except (struct.error, IndexError):
        raise ValueError("cut short") from None
    return response._replace(trailing=True) if sections.trailing else response


def _read_sections(query: SentQuery, flags: int, sections: Sections) -> DnsResponse:
    packet, rcode = sections.packet, flags & numbers.RCODE_BITS
    extended: tuple[ExtendedError, ...] = ()
    for _, rdtype, ttl, start, end in sections.additional:
        if rdtype == numbers.OPT and (ttl >> 24 or start != end):
            rcode |= (ttl >> 24) << 4
            extended = tuple(_extended_errors(packet, start, end))
    bogus = any(error.code in EDE_BOGUS for error in extended)
    authentic = bool(flags & numbers.AD)
    if rcode == numbers.NXDOMAIN:
        least, zone = _read_negative(packet, sections.authority)
        if any(record.rdtype == numbers.CNAME for record in sections.answer):
            zone = query.name  # there is an alias, and its target does not exist
        return DnsResponse(rcode, Outcome.NXDOMAIN, (), least, "", authentic, bogus, zone=zone)
    if rcode == numbers.YXDOMAIN:  # RFC 6672 2.2: the name does not exist, but the DNAME does
        note = "a DNAME makes the name too long"
        return DnsResponse(rcode, Outcome.NXDOMAIN, note=note, authentic=authentic, zone=query.name)
    if rcode != numbers.NOERROR:
        return DnsResponse(rcode, bogus=bogus, extended=extended)
    return _read_noerror(query, flags, sections, authentic)


def _read_noerror(query: SentQuery, flags: int, sections: Sections, authentic: bool) -> DnsResponse:
    packet = sections.packet
    found, name, chain, ttl = _follow_chain(query, sections)
    note = f"through CNAME {names.to_text(name)}" if chain else ""
    if found:
        ttl = min(ttl, *[record.ttl for record in found])
        records: tuple[Naptr, ...] = ()
        if query.rdtype == numbers.NAPTR:
            records = tuple([Naptr.read(packet, start, end) for _, _, _, start, end in found])
        return _new(DnsResponse, (0, Outcome.ANSWER, records, ttl, note, authentic, False, None, None, None, False, ()))
    soa = any(record.rdtype == numbers.SOA for record in sections.authority)
    if chain and not soa:  # even a resolver may leave the target to its client
        return DnsResponse(0, Outcome.REFERRAL, (), ttl, note, authentic, alias=name)
    if not flags & numbers.RA:
        cut = next((record.owner for record in sections.authority if record.rdtype == numbers.NS), None)
        if cut is not None and not soa and not flags & numbers.AA and not _denies_ds(query, cut, sections.authority):
            referral = _read_referral(cut, sections)
            return DnsResponse(0, Outcome.REFERRAL, note=note, authentic=authentic, referral=referral)
    least, zone = _read_negative(packet, sections.authority)
    if chain or (zone is None and flags & numbers.AA):
        zone = query.name
    return DnsResponse(0, Outcome.NODATA, (), least, note, authentic, zone=zone)


def _denies_ds(query: SentQuery, cut: Labels, authority: list[WireRecord]) -> bool:
    """Return whether a referral answers the question for the DS at its cut, with NSEC or NSEC3 records that say that
    there is none (RFC 4035 3.1.4.1, RFC 5155 7.2.7)."""
    return (
        query.rdtype == numbers.DS
        and names.fold(cut) == names.fold(query.name)
        and any(record.rdtype in (numbers.NSEC, numbers.NSEC3) for record in authority)
    )


def _follow_chain(query: SentQuery, sections: Sections) -> tuple[list[WireRecord], Labels, int, int]:
    """Return the records at the end of the answer's CNAMEs, the name there, the number of CNAMEs, the lowest TTL."""
    name, wanted_type, chain, ttl = query.name, query.rdtype, 0, numbers.MAX_TTL
    for owner, rdtype, *_ in sections.answer:
        if owner is not name or rdtype != wanted_type:
            break
    else:
        return sections.answer, name, chain, ttl
    # Each owner is folded once: for 5,000 owners of a hundred labels, once per alias would take a second.
    owners = [names.fold(record.owner) for record in sections.answer]
    wanted = names.fold(name)
    while True:
        here = [record for record, owner in zip(sections.answer, owners, strict=True) if owner == wanted]
        found = [record for record in here if record.rdtype == query.rdtype]
        aliases = [record for record in here if record.rdtype == numbers.CNAME]
        if found or not aliases:
            return found, name, chain, ttl
        chain += 1
        if chain > MAX_CHAIN:
            raise ValueError(f"more than {MAX_CHAIN} CNAMEs")
        ttl = min(ttl, *(alias.ttl for alias in aliases))
        # Folded: labels that a DNAME kept have the case of the query.
        name, *others = (names.fold(_whole_name(sections.packet, alias.start, alias.end)) for alias in aliases)
        wanted = name
        if any(other != wanted for other in others):
            raise ValueError("several CNAMEs at one name")  # RFC 2181 10.1


def _read_referral(cut: Labels, sections: Sections) -> Referral:
    """Return the servers of the zone below the cut, and the addresses in the referral (RFC 1034 4.2.1)."""
    servers = tuple(
        _whole_name(sections.packet, record.start, record.end)
        for record in sections.authority
        if record.rdtype == numbers.NS and names.fold(record.owner) == names.fold(cut)
    )
    listed = {names.fold(server) for server in servers}
    families = {numbers.A: socket.AF_INET, numbers.AAAA: socket.AF_INET6}
    glue = [r for r in sections.additional if r.rdtype in families and names.fold(r.owner) in listed][:MAX_GLUE]
    addresses = [socket.inet_ntop(families[r.rdtype], sections.packet[r.start : r.end]) for r in glue]
    return Referral(names.fold(cut), servers, tuple(dict.fromkeys(addresses)))
