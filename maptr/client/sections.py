"""The sections of a reply, record by record, and the rdata of the types that a stub resolver needs to read.

What they say together is ``reply.py``'s. Whatever cannot be read is a ValueError with the reason, or, where the octets
end too soon, an IndexError or a struct.error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from maptr.naptr.record import Naptr
from maptr.protocol.names import Labels, read_name
from maptr.protocol.numbers import EDE, HEADER_SIZE, IN, MAX_TTL, OPT, SOA, A

MAX_GLUE = 8  # addresses taken from one referral

_unpack_fixed = struct.Struct("!HHIH").unpack_from
_unpack_pointed = struct.Struct("!HHHIH").unpack_from  # the same behind a pointer to the owner
_PAIR = struct.Struct("!HH")
_unpack_naptr = struct.Struct("!HHB").unpack_from
_QNAME_POINTER = 0xC000 | HEADER_SIZE  # to the question's name
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
        sections.append(records)
        while count:
            count -= 1
            first = packet[at]
            if first >= 0xC0:
                place, rdtype, rdclass, ttl, length = _unpack_pointed(packet, at)
                owner = pointed.get(place)
                if owner is None:
                    owner = pointed[place] = read_name(packet, at)[0]
                start = at + 12
            else:
                owner, at = read_name(packet, at) if first else ((), at + 1)
                rdtype, rdclass, ttl, length = _unpack_fixed(packet, at)
                start = at + 10
            at = start + length
            if at > end:
                raise ValueError("rdata cut short")
            if rdclass == IN or rdtype == OPT:
                records.append(_new(Record, (owner, rdtype, ttl, start, at)))
    if at != end:
        raise ValueError("octets after the last record")
    return _new(Sections, (packet, *sections))


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
    _, _, _, start, end = record
    order, preference, size = _unpack_naptr(packet, start)
    service_at = start + 5 + size
    regexp_at = service_at + 1 + packet[service_at]
    name_at = regexp_at + 1 + packet[regexp_at]
    if name_at >= end:
        raise ValueError("NAPTR rdata cut short")
    flags = packet[start + 5 : service_at]
    service = packet[service_at + 1 : regexp_at]
    regexp = packet[regexp_at + 1 : name_at]
    replacement = _whole_name(packet, name_at, end) if packet[name_at] or name_at + 1 != end else ()
    return _new(Naptr, (order, preference, flags, service, regexp, replacement))


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
