"""DNS messages as a server reads and writes them: octets and offsets, and no more objects than it takes.

Names are 8-bit clean and bounded in length and pointers; every record is opaque wire; names compress
case-insensitively, never by a pointer beyond 16383, and inside rdata only for the types of RFC 1035. Only the
owner of an answer may point to the whole name of a question below the zone's origin or a delegation, other names to
what follows its first label. So the other records do not depend on that label, and ``ready.py`` can use them again.
What a reply says is decided in ``answer.py``; here is only how messages are read and laid out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from maptr.names import Labels, read_name, to_wire, wire_length
from maptr.protocol import HEADER_SIZE, IN, OPT, RRSIG, TSIG
from maptr.packing import TO_QUESTION
from maptr.snapshot import RDATA_NAMES, RRset

MAX_POINTER = 0x3FFF  # RFC 1035 4.1.4: fourteen bits
# A query carries OPT, perhaps TSIG or SIG(0), and an IXFR one SOA. More is only work for us.
MAX_QUERY_RECORDS = 16

COUNTS = struct.Struct("!4H")  # of the four sections, RFC 1035 4.1.1
RECORD = struct.Struct("!HHIH")  # type, class, TTL and length of rdata, RFC 1035 4.1.3
_TSIG = TSIG.to_bytes(2, "big")
_TYPE_AND_CLASS = struct.Struct("!HH")


class Question(NamedTuple):
    """The question of a query, in the case it came in; ``wire`` is all of it."""

    name: Labels
    qtype: int
    qclass: int
    wire: bytes


class Record(NamedTuple):
    """One record of a message. Names in ``rdata`` may be compressed."""

    name: Labels
    rdtype: int
    rdclass: int
    ttl: int
    rdata: bytes


def read_question(packet: bytes) -> tuple[Question | None, int]:
    """The question of a whole header's message, and where it ends; None where there is not just one.

    Raises ValueError, for a compressed name too: nothing stands before it that it could point to.
    """
    if packet[4:6] != b"\0\1":
        return None, HEADER_SIZE
    name, at = read_name(packet, HEADER_SIZE)
    end = at + _TYPE_AND_CLASS.size
    if end > len(packet):
        raise ValueError("question cut short")
    if at - HEADER_SIZE != wire_length(name):
        raise ValueError("a question name is compressed")
    qtype, qclass = _TYPE_AND_CLASS.unpack_from(packet, at)
    return Question(name, qtype, qclass, packet[HEADER_SIZE:end]), end


def read_records(packet: bytes, at: int, counts: Iterable[int]) -> list[list[Record]]:
    """The record sections of a query, which start there. Raises ValueError, for more than MAX_QUERY_RECORDS too."""
    wanted = list(counts)
    if sum(wanted) > MAX_QUERY_RECORDS:
        raise ValueError("more records than a query has")
    sections: list[list[Record]] = []
    for count in wanted:
        records: list[Record] = []
        for _ in range(count):
            record, at = read_record(packet, at)
            records.append(record)
        sections.append(records)
    return sections


def read_record(packet: bytes, at: int) -> tuple[Record, int]:
    """The record that stands there, and where it ends. Raises ValueError."""
    name, at = ((), at + 1) if packet[at : at + 1] == b"\0" else read_name(packet, at)  # mostly the root, of an OPT
    start = at + RECORD.size
    if start > len(packet):
        raise ValueError("record cut short")
    rdtype, rdclass, ttl, size = RECORD.unpack_from(packet, at)
    end = start + size
    if end > len(packet):
        raise ValueError("rdata cut short")
    return Record(name, rdtype, rdclass, ttl, packet[start:end]), end


def find_opt_record(sections: list[list[Record]]) -> Record | None:
    """The OPT among the records of a query, or None. Raises ValueError for two, or one in a wrong place.

    RFC 6891 6.1.1.
    """
    answer, authority, additional = sections
    if any(record.rdtype == OPT for section in (answer, authority) for record in section):
        raise ValueError("OPT outside the additional section")
    found = [record for record in additional if record.rdtype == OPT]
    if not found:
        return None
    if len(found) > 1:
        raise ValueError("more than one OPT")
    if found[0].name:
        raise ValueError("OPT is not at the root")
    return found[0]


def may_be_signed(query: bytes) -> bool:
    """False where there is surely no TSIG: what nearly every query is spared the reading by."""
    return _TSIG in query and any(query[6:HEADER_SIZE])


class Writer:
    """A message as far as it is written: ``data``. Names are given as uncompressed wire."""

    __slots__ = ("_names", "_question", "data")

    def __init__(self, header: bytes, question: bytes, base: int) -> None:
        """``question`` is empty, or one whole question of trusted bytes; the zone or delegation has ``base`` bytes."""
        self.data = bytearray(header)
        self._names: dict[bytes, int] = {}  # in lower case -> where they were written
        self._question = question[:-4].lower()
        if question:
            self.write_name(question[:-4])
            self.data += question[-4:]
            if len(self._question) > base:
                self._names.pop(self._question, None)

    def write_name(self, name: bytes) -> None:
        """Write a name, compressed against all that stand before it, whatever their case (RFC 4343)."""
        data, names = self.data, self._names
        folded = name.lower()  # lengths are no letters
        at = 0
        while length := name[at]:
            key = folded[at:]
            known = names.get(key)
            if known is not None:
                data += (0xC000 | known).to_bytes(2, "big")
                return
            if len(data) <= MAX_POINTER:
                names[key] = len(data)
            start, at = at, at + 1 + length
            data += name[start:at]
        data.append(0)

    def write_record(
        self, owner: bytes, rdtype: int, rdclass: int, ttl: int, rdata: bytes, *, answer: bool = False
    ) -> None:
        """Write a record whose rdata are uncompressed wire; their names compress where the type allows it.

        ``answer``: its owner may point to the whole question.
        """
        data = self.data
        if answer and len(owner) > 1 and owner.lower() == self._question:
            data += TO_QUESTION
        else:
            self.write_name(owner)
        data += RECORD.pack(rdtype, rdclass, ttl, len(rdata))
        fixed, names = RDATA_NAMES.get(rdtype, (0, 0))
        if not names:
            data += rdata
            return
        start, at = len(data), fixed
        data += rdata[:fixed]
        for _ in range(names):
            name = at
            while rdata[at]:
                at += 1 + rdata[at]
            at += 1
            self.write_name(rdata[name:at])
        data += rdata[at:]
        data[start - 2 : start] = (len(data) - start).to_bytes(2, "big")

    def cut(self, size: int) -> None:
        """Forget everything written beyond so many octets."""
        del self.data[size:]
        self._names = {name: place for name, place in self._names.items() if place < size}


def write_rrset(
    writer: Writer, rrset: RRset, limit: int, rdclass: int = IN, *, signed: bool = False, answer: bool = False
) -> int:
    """Append a whole RRset, ``signed`` with its RRSIGs, if the message then ends by the limit.

    How many records that were; 0, and no trace of them, where they do not fit.
    """
    mark = len(writer.data)
    owner = to_wire(rrset.owner)
    records = [(rrset.rdtype, rdata) for rdata in rrset.rdatas]
    if signed:
        records += [(RRSIG, rdata) for rdata in rrset.signatures]
    for rdtype, rdata in records:
        writer.write_record(owner, rdtype, rdclass, rrset.ttl, rdata, answer=answer)
        if len(writer.data) > limit:
            writer.cut(mark)
            return 0
    return len(records)
