"""DNS messages on dnslib's classes, put right where dnslib is wrong for a server.

Names are 8-bit clean and bounded in length and pointers; every record but OPT is opaque wire; names compress
case-insensitively, never by a pointer beyond 16383, and inside rdata only for the types of RFC 1035.
What a reply says is decided in ``answer.py``; here is only how messages are read and laid out.
"""

from __future__ import annotations

from collections.abc import Iterable

from dnslib import DNSError, DNSHeader, DNSQuestion, DNSRecord
from dnslib.buffer import Buffer, BufferError
from dnslib.dns import RD, RR, EDNSOption
from dnslib.label import DNSBuffer, DNSLabel

from maptr.names import MAX_LABEL, MAX_NAME, Labels, fold
from maptr.snapshot import RDATA_NAMES, RRSIG, RRset

HEADER_SIZE = 12  # RFC 1035 4.1.1
MAX_POINTER = 0x3FFF  # RFC 1035 4.1.4: fourteen bits
MAX_JUMPS = 126  # a name of 255 octets has no more labels, so no honest one needs more pointers
# A query carries OPT, perhaps TSIG or SIG(0), and an IXFR one SOA. More is only work for us.
MAX_QUERY_RECORDS = 16
IN = 1
OPT = 41  # RFC 6891 6.1.1


class WireBuffer(DNSBuffer):  # type: ignore[misc] # dnslib has no types
    """dnslib's buffer with names read and written as this server needs them."""

    data: bytearray
    offset: int
    names: dict[Labels, int]  # folded labels -> where they were written

    def decode_name(self, last: int = -1) -> DNSLabel:
        """Raises dnslib's BufferError for a pointer that does not go back, too many, or a name too long."""
        labels: list[bytes] = []
        size, jumps, resume = 1, 0, None
        while True:
            (length,) = self.unpack("!B")
            if length >= 0xC0:
                target = (length & 0x3F) << 8 | self.get(1)[0]
                jumps += 1
                if target >= self.offset - 2 or jumps > MAX_JUMPS:
                    raise BufferError("compression pointer does not lead back")
                resume = self.offset if resume is None else resume
                self.offset = target
            elif length > MAX_LABEL:
                raise BufferError("label of an unknown kind")
            elif length:
                size += length + 1
                if size > MAX_NAME:
                    raise BufferError("name too long")
                labels.append(self.get(length))
            else:
                break
        if resume is not None:
            self.offset = resume
        return DNSLabel(labels)

    def encode_name(self, name: DNSLabel | Labels) -> None:
        """Write a name, compressed against all that stand before it, whatever their case (RFC 4343)."""
        labels: Labels = name.label if isinstance(name, DNSLabel) else name
        keys = fold(labels)
        for start, label in enumerate(labels):
            known = self.names.get(keys[start:])
            if known is not None:
                self.pack("!H", 0xC000 | known)
                return
            if self.offset <= MAX_POINTER:
                self.names[keys[start:]] = self.offset
            self.append(bytes((len(label),)) + label)
        self.append(b"\0")

    def cut(self, offset: int) -> None:
        """Forget everything written from the offset on."""
        del self.data[offset:]
        self.offset = offset
        self.names = {name: place for name, place in self.names.items() if place < offset}


class WireRD(RD):  # type: ignore[misc] # dnslib has no types
    """Rdata as uncompressed wire that compresses its names when its type allows it."""

    def __init__(self, data: bytes, rdtype: int) -> None:
        super().__init__(data)
        self.rdtype = rdtype

    def pack(self, buffer: WireBuffer) -> None:
        skip, names = RDATA_NAMES.get(self.rdtype, (0, 0))
        source = WireBuffer(self.data)
        buffer.append(source.get(skip))
        for _ in range(names):
            buffer.encode_name(source.decode_name())
        buffer.append(source.get(source.remaining()))


class Message(DNSRecord):  # type: ignore[misc] # dnslib has no types
    """A dnslib record read without knowing any type; ``pack()`` gives the octets it was read from."""

    wire: bytes

    @classmethod
    def parse(cls, packet: bytes) -> Message:
        """Raises dnslib.DNSError and nothing else. Octets after the last record are left unread."""
        buffer = WireBuffer(packet)
        try:
            header = DNSHeader.parse(buffer)
            questions = [DNSQuestion.parse(buffer) for _ in range(header.q)]
            sections = [[_read_record(buffer) for _ in range(n)] for n in (header.a, header.auth, header.ar)]
        except (BufferError, ValueError) as error:
            raise DNSError(str(error)) from error
        message = cls(header, questions, rr=sections[0], auth=sections[1], ar=sections[2])
        message.wire = bytes(packet)
        return message

    def pack(self) -> bytes:
        return self.wire


def read_question(packet: bytes) -> tuple[DNSHeader, DNSQuestion | None, WireBuffer]:
    """Header and question of a query, and the buffer after them; None where there is not just one question.

    Raises dnslib.DNSError, for a compressed name too: nothing stands before it that it could point to.
    """
    buffer = WireBuffer(packet)
    header = DNSHeader.parse(buffer)
    if header.q != 1:
        return header, None, buffer
    question = DNSQuestion.parse(buffer)
    written = sum(len(label) + 1 for label in question.qname.label) + 1
    if buffer.offset != HEADER_SIZE + written + 4:
        raise DNSError("a question name is compressed")
    return header, question, buffer


def read_records(buffer: WireBuffer, counts: Iterable[int]) -> list[list[RR]]:
    """The record sections of a query. Raises dnslib.DNSError, for more than MAX_QUERY_RECORDS too."""
    wanted = list(counts)
    if sum(wanted) > MAX_QUERY_RECORDS:
        raise DNSError("more records than a query has")
    try:
        return [[_read_record(buffer) for _ in range(count)] for count in wanted]
    except (BufferError, ValueError) as error:
        raise DNSError(str(error)) from error


def _read_record(buffer: WireBuffer) -> RR:
    name = buffer.decode_name()
    rdtype, rdclass, ttl, length = buffer.unpack("!HHIH")
    data = buffer.get(length)
    return RR(name, rdtype, rdclass, ttl, _read_options(data) if rdtype == OPT else WireRD(data, rdtype))


def _read_options(data: bytes) -> list[EDNSOption]:
    # dnslib's own loop ends four octets early: it loses an empty last option (NSID) and takes a cut one.
    source = Buffer(data)
    options = []
    while source.remaining():
        code, length = source.unpack("!HH")
        options.append(EDNSOption(code, source.get(length)))
    return options


def write_rrset(buffer: WireBuffer, rrset: RRset, limit: int, rdclass: int = IN, *, signed: bool = False) -> int:
    """Append a whole RRset, ``signed`` with its RRSIGs, if the buffer then ends by the limit.

    How many records that were; 0, and no trace of them, where they do not fit.
    """
    mark = buffer.offset
    owner = DNSLabel(rrset.owner)
    records = [(rrset.rdtype, rdata) for rdata in rrset.rdatas]
    records += [(RRSIG, rdata) for rdata in rrset.signatures if signed]
    for rdtype, rdata in records:
        RR(owner, rdtype, rdclass, rrset.ttl, WireRD(rdata, rdtype)).pack(buffer)
        if buffer.offset > limit:
            buffer.cut(mark)
            return 0
    return len(records)
