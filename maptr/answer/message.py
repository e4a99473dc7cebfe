"""DNS messages on dnslib's classes, with the few subclasses that a server needs.

The subclasses differ from dnslib in four points. Names are 8-bit clean, with limits on their length and on compression
pointers. All rdata but that of OPT is opaque. Lists of options are read to their end. No compression pointer points
beyond offset 16383.

Names are compressed case-insensitively (RFC 4343), and in rdata only for the types of RFC 1035 (RFC 3597 4). In a
response without an answer, no compression pointer points to the first label of the question, unless the name is the
zone's origin or a delegation. So the response does not depend on this label, and ``ready.py`` can use it for others.

``respond.py`` decides what a response says; this module reads and lays out messages.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from dnslib import EDNS0, DNSError, DNSHeader, DNSQuestion, DNSRecord
from dnslib.buffer import Buffer, BufferError
from dnslib.dns import RD, RR, EDNSOption
from dnslib.label import DNSBuffer, DNSLabel

from maptr.answer.context import Context, Transport
from maptr.answer.edns import NOTHING_ASKED, OPT_SIZE, OPTION_HEADER, Asked, padding_to_block, reply_options, udp_limit
from maptr.answer.lookup import LookupResult
from maptr.protocol.names import Labels, fold, read_name, read_wire, to_wire, wire_length
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
    YXDOMAIN,
)
from maptr.protocol.numbers import RD as RECURSION_DESIRED
from maptr.zone.rrset import RDATA_NAMES, RRset

MAX_POINTER = 0x3FFF  # RFC 1035 4.1.4: fourteen bits
# A query has OPT and perhaps TSIG or SIG(0), an IXFR query one SOA record. More records only cost time.
MAX_QUERY_RECORDS = 16

NO_RECORDS = LookupResult(authoritative=False)  # never changed


class MessageBuffer(DNSBuffer):  # type: ignore[misc] # dnslib has no types
    """dnslib's buffer, which reads and writes names as a server needs them."""

    data: bytearray
    offset: int
    names: dict[Labels, int]  # folded labels -> their offset

    def __init__(self, data: bytes = b"") -> None:
        super().__init__(data)
        self._read = data
        self.pointers: list[int] = []  # offsets of the compression pointers

    def decode_name(self, last: int = -1) -> DNSLabel:
        """Raises dnslib's BufferError where ``read_name`` raises ValueError."""
        try:
            labels, self.offset = read_name(self._read, self.offset)
        except ValueError as error:
            raise BufferError(str(error)) from None
        return DNSLabel(labels)

    def encode_name(self, name: DNSLabel | Labels) -> None:
        """Append a name, compressed against earlier names."""
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
        """Append the question; later names are compressed against no more than its last ``shared`` labels."""
        question.pack(self)
        labels = fold(question.qname.label)
        for at in range(len(labels) - shared):
            self.names.pop(labels[at:], None)

    def put_record(self, owner: Labels, rdtype: int, rdclass: int, ttl: int, rdata: bytes) -> None:
        """Append a record with uncompressed rdata."""
        RR(DNSLabel(owner), rdtype, rdclass, ttl, OpaqueRD(rdata, rdtype)).pack(self)

    def put_rrset(self, rrset: RRset, limit: int, *, rdclass: int = IN, signed: bool = False) -> int:
        """Append a whole RRset, with its RRSIG records if ``signed``, unless the message would exceed the limit.

        Returns the number of records, 0 if nothing was appended.
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
        """Remove everything from an offset to the end."""
        del self.data[offset:]
        self.offset = offset
        self.names = {name: place for name, place in self.names.items() if place < offset}
        self.pointers = [place for place in self.pointers if place < offset]


class OpaqueRD(RD):  # type: ignore[misc]
    """Uncompressed rdata, whose names are compressed on packing if the type allows it."""

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
    """A dnslib message that reads no rdata but that of OPT. ``pack()`` returns the bytes that were read.

    ``end`` is the offset of the end of the question.
    """

    wire: bytes
    end: int

    @classmethod
    def parse(cls, packet: bytes, most: int = MAX_QUERY_RECORDS) -> Message:
        """Raises only DNSError, also for more than ``most`` records. Bytes after the last record are ignored."""
        message = cls.parse_header(packet)
        message.parse_question()
        message.parse_records(most)
        return message

    @classmethod
    def parse_header(cls, packet: bytes) -> Message:
        """A message with its header read, and nothing else. Raises DNSError."""
        message = cls(DNSHeader(0, 0))
        message.header = DNSHeader.parse(MessageBuffer(packet[:HEADER_SIZE]))
        message.wire, message.end = packet, HEADER_SIZE
        return message

    def parse_question(self) -> None:
        """Read the question, unless QDCOUNT is other than 1. Raises DNSError, also for a compressed name."""
        if self.header.q != 1:
            return
        buffer = MessageBuffer(self.wire)
        buffer.offset = HEADER_SIZE
        question = DNSQuestion.parse(buffer)
        if buffer.offset != HEADER_SIZE + wire_length(question.qname.label) + 4:
            raise DNSError("the name in the question is compressed")
        self.questions, self.end = [question], buffer.offset

    def parse_records(self, most: int = MAX_QUERY_RECORDS) -> None:
        """Read the records after the question. Raises DNSError."""
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
    """The record at the buffer's offset. Raises DNSError."""
    try:
        name = buffer.decode_name()
        rdtype, rdclass, ttl, length = buffer.unpack("!HHIH")
        data = buffer.get(length)
        return RR(name, rdtype, rdclass, ttl, _read_options(data) if rdtype == OPT else OpaqueRD(data, rdtype))
    except BufferError as error:
        raise DNSError(str(error)) from error


def _read_options(data: bytes) -> list[EDNSOption]:
    # dnslib's own loop ends four bytes early: it loses an empty last option (NSID) and accepts a truncated one.
    source = Buffer(data)
    options = []
    while source.remaining():
        code, length = source.unpack("!HH")
        options.append(EDNSOption(code, source.get(length)))
    return options


class Reply(NamedTuple):
    """A response, with what the rate limit and the shortcut need to know of it.

    ``kind`` is equal for responses that the rate limit counts together. ``verified``: the cookie of the query proved
    the client's address. ``cookie``: the response ends with a cookie. ``cut``: records were left out because they did
    not fit. ``for_one``: the response is for this client only. ``pointers``: offsets of the compression pointers.
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
        """The response with TC and no records but OPT, which makes a genuine client retry over TCP."""
        data = bytearray(self.wire[: self.question_end])
        data[2] |= TC >> 8
        data[6:12] = bytes((0, 0, 0, 0, 0, bool(self.opt_size)))
        return bytes(data) + self.wire[len(self.wire) - self.opt_size :]


@dataclass(slots=True)
class Query:
    """The parts of a query that were read so far, from which a response is laid out."""

    message: Message
    transport: Transport
    context: Context
    question: DNSQuestion | None = None
    opt: RR | None = None
    wanted: Asked = NOTHING_ASKED  # the options of its OPT
    cookie: bytes | None = None  # for the response
    verified: bool = False
    reserve: int = 0  # bytes to leave free for a signature
    limit: int = MAX_MESSAGE  # of the response in bytes, beside the limits of transport and client


def lay_out(query: Query, rcode: int, result: LookupResult = NO_RECORDS, *, ede: int | None = None) -> Reply:
    """Lay out a response within its limit, with whole RRsets only.

    If an RRset of the answer or authority section does not fit, the response has TC and no records but OPT (RFC 2181 9,
    RFC 6891 7). If glue does not fit, it has TC and the glue that fits (RFC 9471 3.1). Other addresses are left out
    without TC.
    """
    payload, udp = query.context.udp_payload, query.transport is Transport.UDP
    limit = min(udp_limit(query.opt, payload) if udp else MAX_MESSAGE, query.limit) - query.reserve
    options: list[EDNSOption] = []
    opt_size = 0
    if query.opt is not None:
        options = reply_options(query.wanted, query.context, cookie=query.cookie, ede=ede, stream=not udp)
        opt_size = OPT_SIZE + sum(OPTION_HEADER + len(option.data) for option in options)
    buffer = MessageBuffer(bytes(HEADER_SIZE))
    buffer.offset = HEADER_SIZE
    if query.question is not None:
        name = query.question.qname.label
        buffer.put_question(query.question, len(name) if result.answer else max(result.base, len(name) - 1))
    question_end = buffer.offset
    counts, truncated, cut = _put_sections(buffer, result, limit - opt_size, query.question)
    opt_start = buffer.offset
    if query.opt is not None:
        if query.wanted.padding and query.transport is Transport.TLS:  # RFC 7830 6: never in the clear
            options += padding_to_block(opt_start + opt_size + query.reserve, limit + query.reserve)
        do = "do" if query.opt.edns_do else ""
        EDNS0("", ext_rcode=rcode >> 4, flags=do, udp_len=payload, opts=options).pack(buffer)
    counts[2] += query.opt is not None
    flags = _flags(query, rcode, result, truncated)
    buffer.update(0, "!6H", query.message.header.id, flags, query.question is not None, *counts)
    return Reply(
        bytes(buffer.data),
        _kind(query, rcode, result),
        query.verified,
        question_end,
        buffer.offset - opt_start,
        query.cookie is not None,
        cut,
        pointers=tuple(buffer.pointers),
    )


def _put_sections(
    buffer: MessageBuffer, result: LookupResult, limit: int, question: DNSQuestion | None
) -> tuple[list[int], bool, bool]:
    """Append what fits. Returns the records of each section, whether to set TC, and whether any are left out."""
    counts, start = [0, 0, 0], buffer.offset
    rdclass = IN if question is None else question.qclass
    for section, rrsets in enumerate((result.answer, result.authority, result.glue, result.additional)):
        for rrset in rrsets:
            written = buffer.put_rrset(rrset, limit, rdclass=rdclass, signed=result.dnssec)
            if written:
                counts[min(section, 2)] += written
            elif rrsets is result.additional:
                return counts, False, True
            elif rrsets is result.glue:
                return counts, True, True
            else:
                buffer.cut(start)
                return [0, 0, 0], True, True
    return counts, False, False


def _flags(query: Query, rcode: int, result: LookupResult, truncated: bool) -> int:
    """The second word of the header (RFC 1035 4.1.1).

    Only RD is copied from the query; RA, AD, CD and Z are clear, as in NSD and Knot. With other opcodes these bits
    have other meanings (RFC 2136 2.2), so none is copied.
    """
    asked = query.message.header.bitmap
    flags: int = QR | asked & (OPCODE_BITS if asked & OPCODE_BITS else RECURSION_DESIRED) | rcode & RCODE_BITS
    return flags | (AA if result.authoritative else 0) | (TC if truncated else 0)


def _kind(query: Query, rcode: int, result: LookupResult) -> Hashable:
    """``Reply.kind``: errors by rcode, other responses by rcode, source and, if they have an answer, type."""
    if query.question is None or rcode not in (NOERROR, NXDOMAIN, YXDOMAIN):
        return rcode
    return rcode, to_wire(result.source), query.question.qtype if result.answer else 0
