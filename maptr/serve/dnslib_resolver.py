"""MaptrResolver: the same answers under dnslib's stock ``DNSServer``.

For tests and for those who run such a server already. The stock server has limits that no resolver can lift:
a thread a packet, one message a TCP connection, no answer to names that are not UTF-8.
"""

from __future__ import annotations

from typing import Any

from dnslib import DNSError, DNSHeader, DNSQuestion, DNSRecord
from dnslib.buffer import BufferError
from dnslib.dns import RD, RR
from dnslib.label import DNSBuffer, DNSLabel
from dnslib.server import BaseResolver

from maptr.answer import respond
from maptr.context import Transport
from maptr.names import read_name
from maptr.packet import COUNTS, read_record
from maptr.protocol import HEADER_SIZE
from maptr.snapshot import Snapshot


class MaptrResolver(BaseResolver):  # type: ignore[misc] # dnslib has no types
    """Answers from ``snapshot``, which may be replaced at any time."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def resolve(self, request: DNSRecord, handler: Any) -> DNSRecord:
        """The reply, as ``respond`` laid it out. Raises DNSError, which the server takes as silence."""
        transport = Transport.TCP if handler.protocol == "tcp" else Transport.UDP
        # UDP hands over the datagram; of TCP only what dnslib understood of the message is left.
        query = handler.request[0] if transport is Transport.UDP else bytes(request.pack())
        reply = respond(query, self.snapshot, transport=transport, client=handler.client_address[0])
        if reply is None:
            raise DNSError("a packet that gets no answer")
        return Message.parse(reply)


class Message(DNSRecord):  # type: ignore[misc] # dnslib has no types
    """A dnslib record read without knowing any type; ``pack()`` gives the octets it was read from.

    dnslib's own reading stops at names that are not UTF-8.
    """

    wire: bytes

    @classmethod
    def parse(cls, packet: bytes) -> Message:
        """Raises dnslib.DNSError and nothing else. Octets after the last record are left unread."""
        try:
            header = DNSHeader.parse(DNSBuffer(packet[:HEADER_SIZE]))
            asked, *counts = COUNTS.unpack_from(packet, 4)
            at = HEADER_SIZE
            questions = []
            for _ in range(asked):
                name, at = read_name(packet, at)
                questions.append(DNSQuestion(DNSLabel(name), *DNSBuffer(packet[at : at + 4]).unpack("!HH")))
                at += 4
            sections: list[list[RR]] = [[], [], []]
            for section, count in zip(sections, counts, strict=True):
                for _ in range(count):
                    (name, rdtype, rdclass, ttl, rdata), at = read_record(packet, at)
                    record = RR(DNSLabel(name), 0, rdclass, ttl, RD(rdata))
                    record.rtype = rdtype  # of OPT dnslib would have its options
                    section.append(record)
        except (BufferError, ValueError) as error:
            raise DNSError(str(error)) from error
        message = cls(header, questions, rr=sections[0], auth=sections[1], ar=sections[2])
        message.wire = bytes(packet)
        return message

    def pack(self) -> bytes:
        return self.wire
