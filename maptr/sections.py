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
from maptr.protocol import EDE, IN, MAX_TTL, OPT, SOA, A

MAX_GLUE = 8  # addresses taken from one referral

_FIXED = struct.Struct("!HHIH")
_PAIR = struct.Struct("!HH")
_QNAME_POINTER = b"\xc0\x0c"


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
    for count in counts:
        records, at = _section(packet, at, count, qname)
        sections.append(records)
    if at != len(packet):
        raise ValueError("octets after the last record")
    return Sections(packet, *sections)


def _section(packet: bytes, at: int, count: int, qname: Labels) -> tuple[list[Record], int]:
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
            records.append(Record(owner, rdtype, ttl, start, at))
    return records, at


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


def error_codes(packet: bytes, opt: Record) -> Iterator[int]:
    """The extended error codes in an OPT (RFC 8914)."""
    at = opt.start
    while at < opt.end:
        code, length = _PAIR.unpack_from(packet, at)
        if at + 4 + length > opt.end:
            raise ValueError("an EDNS option cut short")
        if code == EDE and length >= 2:
            yield int.from_bytes(packet[at + 4 : at + 6], "big")
        at += 4 + length
