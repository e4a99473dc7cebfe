"""DNS messages: subclasses of dnslib's classes that read queries and lay out responses.

The subclasses differ from dnslib in four ways. Names are 8-bit clean, with limits on their length and on compression
pointers. All rdata except OPT's is opaque. Option lists are read to their end. No compression pointer points beyond
offset 16383. This module also reads and writes the EDNS(0) options (RFC 6891) that the server supports.

Names are compressed case-insensitively (RFC 4343), and in rdata only for the types of RFC 1035 (RFC 3597 4). In a
response without an answer, no compression pointer points to the first label of the question, unless the name is the
zone's origin or a delegation. So the response does not depend on this label, and ``ready.py`` can reuse it.

``respond.py`` decides the content of a response.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from dnslib import EDNS0, DNSError, DNSHeader, DNSQuestion, DNSRecord
from dnslib.buffer import Buffer, BufferError
from dnslib.dns import RD, RR, EDNSOption
from dnslib.label import DNSBuffer, DNSLabel

from maptr.answer.context import MIN_PAYLOAD, Context, Transport
from maptr.answer.lookup import LookupResult
from maptr.protocol import numbers
from maptr.protocol.cookies import is_well_formed
from maptr.protocol.names import MAX_NAME, Folded, Labels, fold, read_name, read_wire, to_wire, wire_length
from maptr.zone.rrset import RDATA_NAMES, RECORD, RRset, split_records

MAX_POINTER = 0x3FFF  # RFC 1035 4.1.4: fourteen bits
# A query has OPT and perhaps TSIG or SIG(0), an IXFR query also an SOA record. No valid query needs more records.
MAX_QUERY_RECORDS = 16

PADDING_BLOCK = 468  # bytes; the size of a padded response is a multiple (RFC 8467 4.1)
KEEPALIVE_UNITS = 10  # units of the timeout in a second, RFC 7828 3.1
# Bytes of an OPT without options, and of an option's code and length (RFC 6891 6.1.2).
OPT_SIZE, OPTION_HEADER = 11, 4

NO_RECORDS = LookupResult(authoritative=False)  # never changed


class MessageBuffer(DNSBuffer):  # type: ignore[misc] # dnslib has no types
    """A dnslib buffer whose names are 8-bit clean and within the limits of the protocol."""

    data: bytearray
    offset: int
    names: dict[Folded, int]  # the offset of each name

    def __init__(self, data: bytes = b"") -> None:
        super().__init__(data)
        self._read = data
        self.pointers: list[int] = []  # offsets of the compression pointers, except those to the whole question

    def decode_name(self, last: int = -1) -> DNSLabel:
        """Read a name with ``read_name``. Raises dnslib's BufferError instead of ValueError."""
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
            known = self.names.get(Folded(keys[at:]))
            if known is not None:
                if known != numbers.HEADER_SIZE:
                    self.pointers.append(self.offset)
                self.append((0xC000 | known).to_bytes(2, "big"))
                return
            if self.offset <= MAX_POINTER:
                self.names[Folded(keys[at:])] = self.offset
            self.append(bytes((len(label),)) + label)
        self.append(b"\0")

    def put_question(self, question: DNSQuestion, shared: int) -> None:
        """Append the question. Later names are compressed against at most its last ``shared`` labels."""
        question.pack(self)
        labels = fold(question.qname.label)
        for at in range(len(labels) - shared):
            self.names.pop(Folded(labels[at:]), None)

    def put_record(self, owner: Labels, rdtype: int, rdclass: int, ttl: int, rdata: bytes) -> None:
        """Append a record with uncompressed rdata."""
        RR(DNSLabel(owner), rdtype, rdclass, ttl, OpaqueRD(rdata, rdtype)).pack(self)

    def put_rrset(self, rrset: RRset, limit: int, *, rdclass: int = numbers.IN, signed: bool = False) -> int:
        """Append a whole RRset, with its RRSIG records if ``signed``, unless the message would exceed the limit.

        Returns the number of records, 0 if nothing was appended.
        """
        packed = rrset.records + rrset.signatures if signed else rrset.records
        records = split_records(packed)
        is_of_question = self.names.get(fold(rrset.owner)) == numbers.HEADER_SIZE
        if is_of_question and rdclass == numbers.IN and rrset.rdtype not in RDATA_NAMES:
            if self.offset + len(packed) > limit:
                return 0
            self.append(packed)  # already packed as in a response to a question for its owner
            return len(records)
        mark = self.offset
        for record in records:
            _, rdtype, _, ttl, _ = RECORD.unpack_from(record)
            self.put_record(rrset.owner, rdtype, rdclass, ttl, record[RECORD.size :])
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
    """Uncompressed rdata. Packing compresses the names in it if the type allows this."""

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
    """A dnslib message that parses no rdata except OPT's. ``pack()`` returns the bytes that were read.

    ``end`` is the offset of the end of the question.
    """

    wire: bytes
    end: int
    _buffer: MessageBuffer

    @classmethod
    def parse(cls, packet: bytes, most: int = MAX_QUERY_RECORDS) -> Message:
        """Read a message, ignoring bytes after the last record. Raises only DNSError, also for over ``most``
        records."""
        message = cls.parse_header(packet)
        message.parse_question()
        message.parse_records(most)
        return message

    @classmethod
    def parse_header(cls, packet: bytes) -> Message:
        """Return a message, reading only its header. Raises DNSError."""
        message = cls(DNSHeader(0, 0))
        message.wire, message.end = packet, numbers.HEADER_SIZE
        message._buffer = MessageBuffer(packet)
        message.header = DNSHeader.parse(message._buffer)
        return message

    def parse_question(self) -> None:
        """Read the question if QDCOUNT is 1. Raises DNSError, also for a compressed name."""
        if self.header.q != 1:
            return
        question = DNSQuestion.parse(self._buffer)
        end = self._buffer.offset
        if end != numbers.HEADER_SIZE + wire_length(question.qname.label) + 4:
            raise DNSError("the name in the question is compressed")
        self.questions, self.end = [question], end

    def parse_records(self, most: int = MAX_QUERY_RECORDS) -> None:
        """Read the records after the question. Raises DNSError."""
        header = self.header
        counts = header.a, header.auth, header.ar
        if sum(counts) > most:
            raise DNSError(f"more than {most} records")
        self._buffer.offset = self.end
        self.rr, self.auth, self.ar = ([read_record(self._buffer) for _ in range(count)] for count in counts)

    def find_opt(self) -> RR | None:
        """Return the OPT record or None. Raises DNSError for two, or for one in another section (RFC 6891 6.1.1)."""
        if any(record.rtype == numbers.OPT for record in (*self.rr, *self.auth)):
            raise DNSError("OPT outside the additional section")
        found = [record for record in self.ar if record.rtype == numbers.OPT]
        if len(found) > 1:
            raise DNSError("more than one OPT")
        if found and found[0].rname.label:
            raise DNSError("OPT is not at the root")
        return found[0] if found else None

    def pack(self) -> bytes:
        return self.wire


def read_record(buffer: MessageBuffer) -> RR:
    """Return the record at the buffer's offset. Raises DNSError."""
    try:
        name = buffer.decode_name()
        rdtype, rdclass, ttl, length = buffer.unpack("!HHIH")
        data = buffer.get(length)
        return RR(name, rdtype, rdclass, ttl, _read_options(data) if rdtype == numbers.OPT else OpaqueRD(data, rdtype))
    except BufferError as error:
        raise DNSError(str(error)) from error


def _read_options(data: bytes) -> list[EDNSOption]:
    # dnslib's own loop ends four bytes early, so it misses an empty last option (NSID) and accepts a truncated one.
    source = Buffer(data)
    options = []
    while source.remaining():
        code, length = source.unpack("!HH")
        options.append(EDNSOption(code, source.get(length)))
    return options


def first_options(opt: RR) -> dict[int, bytes]:
    """Return the first option of each code. Raises DNSError for a malformed cookie."""
    if not all(is_well_formed(option.data) for option in opt.rdata if option.code == numbers.COOKIE):
        raise DNSError("cookie of a wrong length")
    return {option.code: option.data for option in reversed(opt.rdata)}


class Reply(NamedTuple):
    """A response, with the information that the rate limit and the shortcut need.

    ``kind`` is equal for responses that the rate limit counts together. ``verified``: the query's cookie proved the
    client's address. ``cookie``: the response ends with a cookie. ``cut``: records were left out because they did not
    fit. ``for_one``: the response is for this client only. ``pointers``: the buffer's.
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

    def moved(self, end: int, limit: int) -> Reply | None:
        """Return the response to another question that ends at ``end``; None if its records might differ."""
        distance = end - self.question_end
        size = len(self.wire) + distance
        name_size = end - numbers.HEADER_SIZE - 4
        if self.cut or size > limit or max(size, len(self.wire)) > MAX_POINTER or name_size > MAX_NAME:
            return None
        wire = bytearray(self.wire)
        for at in self.pointers:
            wire[at : at + 2] = (int.from_bytes(wire[at : at + 2], "big") + distance).to_bytes(2, "big")
        wire[numbers.HEADER_SIZE : self.question_end] = bytes(end - numbers.HEADER_SIZE)
        return self._replace(wire=bytes(wire), question_end=end)

    def truncated(self) -> bytes:
        """Return the response with TC and without records except OPT, so that a genuine client retries over TCP."""
        data = bytearray(self.wire[: self.question_end])
        data[2] |= numbers.TC >> 8
        data[6:12] = bytes((0, 0, 0, 0, 0, bool(self.opt_size)))
        return bytes(data) + self.wire[len(self.wire) - self.opt_size :]


@dataclass(slots=True)
class Query:
    """The parts of a query read so far, and the limits of its response."""

    message: Message
    transport: Transport
    context: Context
    question: DNSQuestion | None = None
    opt: RR | None = None
    wanted: dict[int, bytes] = field(default_factory=dict)  # the query's options; the first of each code counts
    cookie: bytes | None = None  # the response's option
    verified: bool = False
    reserve: int = 0  # bytes to leave free for a signature
    limit: int = numbers.MAX_MESSAGE  # bytes of the response; the transport and the client may set lower limits


def lay_out(query: Query, rcode: int, result: LookupResult = NO_RECORDS, *, ede: int | None = None) -> Reply:
    """Lay out a response within its limit, with whole RRsets only.

    If the answer or authority section does not fit, the response has TC and no records except OPT (RFC 2181 9, RFC 6891
    7); if glue does not, TC and the glue that fits (RFC 9471 3.1). Other addresses are left out without TC.
    """
    payload, limit = query.context.udp_payload, query.limit
    if query.transport is Transport.UDP:  # RFC 6891 6.2.5
        limit = min(limit, MIN_PAYLOAD if query.opt is None else min(max(query.opt.edns_len, MIN_PAYLOAD), payload))
    limit -= query.reserve
    options: list[EDNSOption] = []
    opt_size = 0
    if query.opt is not None:
        options = _reply_options(query, ede)
        opt_size = OPT_SIZE + sum(OPTION_HEADER + len(option.data) for option in options)
    buffer = MessageBuffer(bytes(numbers.HEADER_SIZE))
    buffer.offset = numbers.HEADER_SIZE
    if query.question is not None:
        name = query.question.qname.label
        buffer.put_question(query.question, len(name) if result.answer else max(result.base, len(name) - 1))
    question_end = buffer.offset
    counts, truncated, cut = _put_sections(buffer, result, limit - opt_size, query.question)
    opt_start = buffer.offset
    if query.opt is not None:
        if numbers.PADDING in query.wanted and query.transport is Transport.TLS:  # RFC 7830 6: never in the clear
            options += padding_to_block(opt_start + opt_size + query.reserve, limit + query.reserve)
        do = "do" if query.opt.edns_do else ""
        EDNS0("", ext_rcode=rcode >> 4, flags=do, udp_len=payload, opts=options).pack(buffer)
    counts[2] += query.opt is not None
    flags = _flags(query, rcode, result, truncated)
    buffer.update(0, "!6H", query.message.header.id, flags, query.question is not None, *counts)
    wire, pointers, has_cookie = bytes(buffer.data), tuple(buffer.pointers), query.cookie is not None
    kind, opt_size = _kind(query, rcode, result), buffer.offset - opt_start
    return Reply(wire, kind, query.verified, question_end, opt_size, has_cookie, cut, pointers=pointers)


def _reply_options(query: Query, ede: int | None) -> list[EDNSOption]:
    """Return the options of a response except padding: those that the query asks for, and EDE.

    The cookie comes last, so that the bytes before it are the same for all clients (``ready.py``).
    """
    wanted, nsid, idle = query.wanted, query.context.identity.nsid, query.context.idle_timeout
    options = []
    if numbers.NSID in wanted and nsid:
        options.append(EDNSOption(numbers.NSID, nsid.encode()))
    if numbers.KEEPALIVE in wanted and idle is not None and query.transport is not Transport.UDP:
        options.append(EDNSOption(numbers.KEEPALIVE, min(int(idle * KEEPALIVE_UNITS), 0xFFFF).to_bytes(2, "big")))
    if ede is not None:
        options.append(EDNSOption(numbers.EDE, ede.to_bytes(2, "big")))
    if query.cookie is not None:
        options.append(EDNSOption(numbers.COOKIE, query.cookie))
    return options


def padding_to_block(size: int, limit: int) -> list[EDNSOption]:
    """Return the padding option for a response of ``size`` bytes; none if it would exceed the limit."""
    size += OPTION_HEADER
    return [EDNSOption(numbers.PADDING, bytes(min(-size % PADDING_BLOCK, limit - size)))] if size <= limit else []


def _put_sections(
    buffer: MessageBuffer, result: LookupResult, limit: int, question: DNSQuestion | None
) -> tuple[list[int], bool, bool]:
    """Append the RRsets that fit. Returns the record counts, whether to set TC, and whether any are left out."""
    counts, start = [0, 0, 0], buffer.offset
    rdclass = numbers.IN if question is None else question.qclass
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
    """Return the second word of the header (RFC 1035 4.1.1).

    Only RD is copied from the query; RA, AD, CD and Z are clear, as in NSD and Knot. With opcodes other than QUERY
    these bits have other meanings (RFC 2136 2.2), so none is copied.
    """
    bits = query.message.header.bitmap
    opcode = bits & numbers.OPCODE_BITS
    flags: int = numbers.QR | (opcode or bits & numbers.RD) | rcode & numbers.RCODE_BITS
    return flags | (numbers.AA if result.authoritative else 0) | (numbers.TC if truncated else 0)


def _kind(query: Query, rcode: int, result: LookupResult) -> Hashable:
    """Return ``Reply.kind``: the rcode of an error; else rcode, source and, if there is an answer, the type."""
    if query.question is None or rcode not in (numbers.NOERROR, numbers.NXDOMAIN, numbers.YXDOMAIN):
        return rcode
    return rcode, to_wire(result.source), query.question.qtype if result.answer else None
