"""The sections of a reply, record by record, and the rdata of the types that a stub resolver needs to read.

What they say together is ``reply.py``'s. Whatever cannot be read is a ValueError with the reason, or, where the octets
end too soon, an IndexError or a struct.error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from maptr.names import Labels, read_name
from maptr.naptr import Naptr
from maptr.protocol import EDE, HEADER_SIZE, IN, MAX_TTL, OPT, SOA, A

MAX_GLUE = 8  # addresses taken from one referral

_FIXED = struct.Struct("!HHIH")
_PAIR = struct.Struct("!HH")
_NAPTR_FIXED = struct.Struct("!HHB")
_QNAME_POINTER = HEADER_SIZE  # where the question's name is
_new = tuple.__new__  # half the time of a NamedTuple's own


class Record(NamedTuple):
    """One record, its rdata where they stand in the packet. ``ttl`` is as it was sent, also beyond MAX_TTL."""

    owner: Labels
    rdtype: int
    ttl: int
    start: int
    end: int

    @property
    def sane_ttl(self) -> int:
        """Seconds (RFC 2181 8)."""
        return self.ttl if self.ttl <= MAX_TTL else 0


class Sections(NamedTuple):
    """The three sections of records, and the packet that they stand in."""

    packet: bytes
    answer: list[Record]
    authority: list[Record]
    additional: list[Record]


def read_sections(packet: bytes, at: int, counts: Iterable[int], qname: Labels) -> Sections:
    """All records, which start there, as many as the header counts. Owners that point to the question are ``qname``."""
    sections: list[list[Record]] = []
    pointed = {_QNAME_POINTER: qname}  # names that owners point to, each read once
    end = len(packet)
    for count in counts:
        records: list[Record] = []
        for _ in range(count):
            first = packet[at]
            if first >= 0xC0:
                place = (first & 0x3F) << 8 | packet[at + 1]
                if place not in pointed:
                    pointed[place] = read_name(packet, at)[0]
                owner = pointed[place]
                at += 2
            elif first:
                owner, at = read_name(packet, at)
            else:
                owner, at = (), at + 1
            rdtype, rdclass, ttl, length = _FIXED.unpack_from(packet, at)
            start = at + 10
            at = start + length
            if at > end:
                raise ValueError("rdata cut short")
            if rdclass == IN or rdtype == OPT:
                records.append(_new(Record, (owner, rdtype, ttl, start, at)))
        sections.append(records)
    if at != end:
        raise ValueError("octets after the last record")
    return Sections(packet, *sections)


def name_of(packet: bytes, record: Record) -> Labels:
    """The name that is the rdata of a CNAME or NS."""
    return _whole_name(packet, record.start, record.end)


def _whole_name(packet: bytes, start: int, end: int) -> Labels:
    name, at = read_name(packet, start)
    if at != end:
        raise ValueError("rdata longer or shorter than its name")
    return name


def naptr_of(packet: bytes, record: Record) -> Naptr:
    """NAPTR rdata, its name compressed or not (RFC 3597 4)."""
    start, end = record.start, record.end
    order, preference, size = _NAPTR_FIXED.unpack_from(packet, start)
    service_at = start + 5 + size
    regexp_at = service_at + 1 + packet[service_at]
    name_at = regexp_at + 1 + packet[regexp_at]
    if name_at >= end:
        raise ValueError("NAPTR rdata cut short")
    flags = packet[start + 5 : service_at]
    service = packet[service_at + 1 : regexp_at]
    regexp = packet[regexp_at + 1 : name_at]
    return _new(Naptr, (order, preference, flags, service, regexp, _whole_name(packet, name_at, end)))


def addresses_of(packet: bytes, records: list[Record]) -> tuple[str, ...]:
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


def negative_ttl(packet: bytes, authority: list[Record]) -> int | None:
    """Seconds that a negative answer may be kept (RFC 2308 5); None where it has no SOA."""
    for record in authority:
        if record.rdtype == SOA:
            if record.end - record.start < 22:
                raise ValueError("SOA rdata cut short")
            return min(record.sane_ttl, int.from_bytes(packet[record.end - 4 : record.end], "big"))
    return None


def error_codes(packet: bytes, at: int, end: int) -> Iterator[int]:
    """The extended error codes in an OPT whose rdata stand there (RFC 8914)."""
    while at < end:
        code, length = _PAIR.unpack_from(packet, at)
        if at + 4 + length > end:
            raise ValueError("an EDNS option cut short")
        if code == EDE and length >= 2:
            yield int.from_bytes(packet[at + 4 : at + 6], "big")
        at += 4 + length
