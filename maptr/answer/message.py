"""DNS messages on dnslib's classes, with the few subclasses that make them right for a server.

What differs from dnslib: names are 8-bit clean and bounded in length and compression pointers; rdata other than that of
OPT is opaque wire; option lists are read to their end; and no compression pointer points beyond offset 16383.

Names are compressed case-insensitively (RFC 4343), inside rdata only for the types of RFC 1035 (RFC 3597 4). In a
response without an answer no name points to the first label of the question, unless that is the zone's origin or a
delegation. So denials and referrals do not depend on that label, and ``ready.py`` can use them for other names.

What a response says is decided in ``answer.py``; here is only how messages are read and laid out.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from dnslib import EDNS0, DNSError, DNSHeader, DNSQuestion, DNSRecord
from dnslib.buffer import Buffer, BufferError
from dnslib.dns import RD, RR, EDNSOption
from dnslib.label import DNSBuffer, DNSLabel

from maptr.answer.context import OPTION_HEADER, Context, Transport
from maptr.answer.edns import NOTHING_ASKED, OPT_SIZE, Asked, padding_to_block, reply_options, udp_limit
from maptr.answer.lookup import Outcome
from maptr.protocol.names import MAX_JUMPS, MAX_LABEL, MAX_NAME, Labels, fold, read_wire, to_wire, wire_length
from maptr.protocol.numbers import (
    AA,
    HEADER_SIZE,
    IN,
    MAX_MESSAGE,
    NOERROR,
    NXDOMAIN,
    OPCODE_BITS,
    OPT,
    QR,
    RCODE_BITS,
    RRSIG,
    TC,
    TSIG,
    YXDOMAIN,
)
from maptr.protocol.numbers import RD as RECURSION_DESIRED
from maptr.zone.rrset import RDATA_NAMES, RRset

MAX_POINTER = 0x3FFF  # RFC 1035 4.1.4: fourteen bits
# A query carries OPT, perhaps TSIG or SIG(0), and an IXFR query one SOA. More records are only work for the server.
MAX_QUERY_RECORDS = 16

_TSIG = TSIG.to_bytes(2, "big")
_NOTHING = Outcome(authoritative=False)  # never changed


class MessageBuffer(DNSBuffer):  # type: ignore[misc] # dnslib has no types
    """dnslib's buffer, with names read and written as a server needs them."""

    data: bytearray
    offset: int
    names: dict[Labels, int]  # folded labels -> where they were written

    def __init__(self, data: bytes = b"") -> None:
        super().__init__(data)
        self.pointers: list[int] = []  # where compression pointers were written

    def decode_name(self, last: int = -1) -> DNSLabel:
        """Raises dnslib's BufferError for a pointer that does not lead back, too many of them, or a name too long."""
        labels: list[bytes] = []
        size, jumps, resume = 1, 0, None
        while True:
            (length,) = self.get(1)
            if length >= 0xC0:
                target = (length & 0x3F) << 8 | self.get(1)[0]
                jumps += 1
                if target >= self.offset - 2 or jumps > MAX_JUMPS:
                    raise BufferError("a compression pointer does not lead back")
                resume = self.offset if resume is None else resume
                self.offset = target
            elif length > MAX_LABEL:
                raise BufferError("a label of an unknown kind")
            elif length:
                size += length + 1
                if size > MAX_NAME:
                    raise BufferError("a name too long")
                labels.append(self.get(length))
            else:
                break
        if resume is not None:
            self.offset = resume
        return DNSLabel(labels)

    def encode_name(self, name: DNSLabel | Labels) -> None:
        """Append a name, compressed against the names before it."""
        labels: Labels = name.label if isinstance(name, DNSLabel) else name
        keys = fold(labels)
        for at, label in enumerate(labels):
            known = self.names.get(keys[at:])
            if known is not None:
                self.pointers.append(self.offset)
                self.append((0xC000 | known).to_bytes(2, "big"))
                return
            if self.offset <= MAX_POINTER:
                self.names[keys[at:]] = self.offset
            self.append(bytes((len(label),)) + label)
        self.append(b"\0")

    def put_question(self, question: DNSQuestion, shared: int) -> None:
        """Append the question; names may point to no more than the last ``shared`` labels of it."""
        question.pack(self)
        labels = fold(question.qname.label)
        for at in range(len(labels) - shared):
            self.names.pop(labels[at:], None)

    def put_record(self, owner: Labels, rdtype: int, rdclass: int, ttl: int, rdata: bytes) -> None:
        """Append a record of uncompressed rdata."""
        RR(DNSLabel(owner), rdtype, rdclass, ttl, OpaqueRD(rdata, rdtype)).pack(self)

    def put_rrset(self, rrset: RRset, limit: int, *, rdclass: int = IN, signed: bool = False) -> int:
        """Append a whole RRset, ``signed`` with its RRSIGs, if the buffer then ends by the limit.

        Gives the number of records; 0, and no trace of them, where they do not fit.
        """
        mark = self.offset
        records = [(rrset.rdtype, rdata) for rdata in rrset.rdatas]
        records += [(RRSIG, rdata) for rdata in rrset.signatures if signed]
        for rdtype, rdata in records:
            self.put_record(rrset.owner, rdtype, rdclass, rrset.ttl, rdata)
            if self.offset > limit:
                self.cut(mark)
                return 0
        return len(records)

    def cut(self, offset: int) -> None:
        """Remove everything from the offset on."""
        del self.data[offset:]
        self.offset = offset
        self.names = {name: place for name, place in self.names.items() if place < offset}
        self.pointers = [place for place in self.pointers if place < offset]


class OpaqueRD(RD):  # type: ignore[misc]
    """Rdata as uncompressed wire, whose names are compressed where the type allows it."""

    def __init__(self, data: bytes, rdtype: int) -> None:
        super().__init__(data)
        self.rdtype = rdtype

    def pack(self, buffer: MessageBuffer) -> None:
        at, names = RDATA_NAMES.get(self.rdtype, (0, 0))
        buffer.append(self.data[:at])
        for _ in range(names):
            labels, at = read_wire(self.data, at)
            buffer.encode_name(labels)
        buffer.append(self.data[at:])


class Message(DNSRecord):  # type: ignore[misc]
    """A dnslib record read without knowing any type but OPT; ``pack()`` gives the bytes it was read from.

    ``end`` is where its question ends.
    """

    wire: bytes
    end: int

    @classmethod
    def parse(cls, packet: bytes, most: int = MAX_QUERY_RECORDS) -> Message:
        """Raises DNSError and nothing else, for more than ``most`` records too. Bytes after the last are not read."""
        message = cls.parse_header(packet)
        message.parse_question()
        message.parse_records(most)
        return message

    @classmethod
    def parse_header(cls, packet: bytes) -> Message:
        """The header alone; the rest can be read from there. Raises DNSError."""
        message = cls(DNSHeader(0, 0))
        message.header = DNSHeader.parse(MessageBuffer(packet[:HEADER_SIZE]))  # with the counts that it has
        message.wire, message.end = packet, HEADER_SIZE
        return message

    def parse_question(self) -> None:
        """Read the question; there is none afterwards where there is not just one. Raises DNSError.

        A compressed name is refused: nothing stands before it that it could point to.
        """
        if self.header.q != 1:
            return
        buffer = MessageBuffer(self.wire)
        buffer.offset = HEADER_SIZE
        question = DNSQuestion.parse(buffer)
        if buffer.offset != HEADER_SIZE + wire_length(question.qname.label) + 4:
            raise DNSError("a question name is compressed")
        self.questions, self.end = [question], buffer.offset

    def parse_records(self, most: int = MAX_QUERY_RECORDS) -> None:
        """Read the record sections, which start behind the question. Raises DNSError."""
        header = self.header
        counts = header.a, header.auth, header.ar
        if sum(counts) > most:
            raise DNSError(f"more than {most} records")
        buffer = MessageBuffer(self.wire)
        buffer.offset = self.end
        self.rr, self.auth, self.ar = ([read_record(buffer) for _ in range(count)] for count in counts)

    def pack(self) -> bytes:
        return self.wire


def read_record(buffer: MessageBuffer) -> RR:
    """The record that stands there. Raises DNSError."""
    try:
        name = buffer.decode_name()
        rdtype, rdclass, ttl, length = buffer.unpack("!HHIH")
        data = buffer.get(length)
        return RR(name, rdtype, rdclass, ttl, _read_options(data) if rdtype == OPT else OpaqueRD(data, rdtype))
    except BufferError as error:
        raise DNSError(str(error)) from error


def _read_options(data: bytes) -> list[EDNSOption]:
    # dnslib's own loop ends four bytes early: it loses an empty last option (NSID) and takes a cut one.
    source = Buffer(data)
    options = []
    while source.remaining():
        code, length = source.unpack("!HH")
        options.append(EDNSOption(code, source.get(length)))
    return options


def may_be_signed(query: bytes) -> bool:
    """False where there is certainly no TSIG record: nearly every query is spared the reading."""
    return _TSIG in query and any(query[6:HEADER_SIZE])


class Reply(NamedTuple):
    """A response, and what the rate limit and the shortcut need to know of it.

    ``kind`` is equal for responses that tell the same (``Outcome.source``), whatever was asked to get them.
    ``verified``: the client showed by its cookie that its address is not forged; ``cookie``: the response ends in one.
    ``cut``: something was left out because it does not fit. ``for_one``: it is for this client alone.
    """

    wire: bytes
    kind: Hashable
    verified: bool
    question_end: int
    opt_size: int
    cookie: bool = False
    cut: bool = False
    for_one: bool = False
    pointers: tuple[int, ...] = ()

    def truncated(self) -> bytes:
        """The response with TC and no records but OPT, so that a real client asks again over TCP."""
        data = bytearray(self.wire[: self.question_end])
        data[2] |= TC >> 8
        data[6:12] = bytes((0, 0, 0, 0, 0, bool(self.opt_size)))
        return bytes(data) + self.wire[len(self.wire) - self.opt_size :]


@dataclass(slots=True)
class Query:
    """As much of a query as has been read; a response is made from whatever is here."""

    message: Message
    transport: Transport
    context: Context
    question: DNSQuestion | None = None
    opt: RR | None = None
    wanted: Asked = NOTHING_ASKED  # by the options of its OPT
    cookie: bytes | None = None  # to send back
    verified: bool = False
    reserve: int = 0  # bytes to leave free for a signature
    limit: int = MAX_MESSAGE  # bytes of the response, where that is less than its transport and the client allow


def lay_out(query: Query, rcode: int, outcome: Outcome | None = None, *, ede: int | None = None) -> Reply:
    """Lay out a response within the limit: whole RRsets only, TC where one that has to be there does not fit.

    Then there is nothing but OPT (RFC 6891 7), because nobody may believe a part of an answer (RFC 2181 9); only of a
    referral's glue stays what fits (RFC 9471 3.1). Addresses that only help go before anything is truncated.
    """
    payload, udp = query.context.udp_payload, query.transport is Transport.UDP
    outcome = _NOTHING if outcome is None else outcome
    limit = min(udp_limit(query.opt, payload) if udp else MAX_MESSAGE, query.limit) - query.reserve
    options = (
        []
        if query.opt is None
        else reply_options(query.wanted, query.context, cookie=query.cookie, ede=ede, stream=not udp)
    )
    opt_size = 0 if query.opt is None else OPT_SIZE + sum(OPTION_HEADER + len(option.data) for option in options)
    buffer = MessageBuffer(bytes(HEADER_SIZE))
    buffer.offset = HEADER_SIZE
    if query.question is not None:
        name = query.question.qname.label
        buffer.put_question(query.question, len(name) if outcome.answer else max(outcome.base, len(name) - 1))
    question_end = buffer.offset
    counts, truncated, cut = _put_sections(buffer, outcome, limit - opt_size, query.question)
    opt_start = buffer.offset
    if query.opt is not None:
        if query.wanted.padding and query.transport is Transport.TLS:  # RFC 7830 6: never in the clear
            options += padding_to_block(opt_start + opt_size + query.reserve, limit + query.reserve)
        flags = "do" if query.opt.edns_do else ""
        EDNS0("", ext_rcode=rcode >> 4, flags=flags, udp_len=payload, opts=options).pack(buffer)
    header = DNSHeader(
        query.message.header.id,
        _flags(query, rcode, outcome, truncated),
        int(query.question is not None),
        *counts[:2],
        counts[2] + int(query.opt is not None),
    )
    head = MessageBuffer()
    header.pack(head)
    buffer.update(0, f"{HEADER_SIZE}s", bytes(head.data))
    return Reply(
        bytes(buffer.data),
        _kind(query, rcode, outcome),
        query.verified,
        question_end,
        buffer.offset - opt_start,
        query.cookie is not None,
        cut,
        pointers=tuple(buffer.pointers),
    )


def _put_sections(
    buffer: MessageBuffer, outcome: Outcome, limit: int, question: DNSQuestion | None
) -> tuple[list[int], bool, bool]:
    """Append what fits; the records of each section, whether TC must be set, and whether anything was left out."""
    counts, start = [0, 0, 0], buffer.offset
    rdclass = IN if question is None else question.qclass
    for section, rrsets in enumerate((outcome.answer, outcome.authority, outcome.glue, outcome.additional)):
        for rrset in rrsets:
            written = buffer.put_rrset(rrset, limit, rdclass=rdclass, signed=outcome.dnssec)
            if written:
                counts[min(section, 2)] += written
            elif rrsets is outcome.additional:
                return counts, False, True
            elif rrsets is outcome.glue:
                return counts, True, True
            else:
                buffer.cut(start)
                return [0, 0, 0], True, True
    return counts, False, False


def _flags(query: Query, rcode: int, outcome: Outcome, truncated: bool) -> int:
    """The second word of the header (RFC 1035 4.1.1).

    Of the query's flags RD alone is copied; RA, AD, CD and Z are clear, as NSD and Knot answer. Other opcodes give
    these bits other meanings (RFC 2136 2.2), so none is copied there.
    """
    asked = query.message.header.bitmap
    flags: int = QR | asked & (OPCODE_BITS if asked & OPCODE_BITS else RECURSION_DESIRED) | rcode & RCODE_BITS
    return flags | (AA if outcome.authoritative else 0) | (TC if truncated else 0)


def _kind(query: Query, rcode: int, outcome: Outcome) -> Hashable:
    """What all responses that tell the same have in common: errors by rcode, the rest by what they speak of."""
    if query.question is None or rcode not in (NOERROR, NXDOMAIN, YXDOMAIN):
        return rcode
    # One name has as many empty answers as there are types, and a referral is the same for all of them.
    return rcode, to_wire(outcome.source), query.question.qtype if outcome.answer else 0
