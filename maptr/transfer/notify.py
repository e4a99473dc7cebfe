"""NOTIFY (RFC 1996), which tells a secondary about a new serial, and the SOA query for the serial that it has."""

from __future__ import annotations

import dns.rcode
from dnslib import DNSError, DNSHeader, DNSQuestion
from dnslib.label import DNSLabel

from maptr.answer.message import Message, MessageBuffer
from maptr.protocol.names import Labels
from maptr.protocol.numbers import AA, HEADER_SIZE, IN, MAX_MESSAGE, NOTIFY, QUERY, RCODE_BITS, SOA, TC
from maptr.zone.snapshot import ZoneView

MAX_SOA_RECORDS = 100  # with NS records, their addresses and signatures


def make_notify(view: ZoneView, message_id: int) -> bytes:
    """A NOTIFY with AA set and the SOA record as a hint (RFC 1996 3.7)."""
    buffer = MessageBuffer()
    DNSHeader(message_id, NOTIFY << 11 | AA, 1, 1).pack(buffer)
    buffer.put_question(DNSQuestion(DNSLabel(view.origin), SOA, IN), len(view.origin))
    buffer.put_rrset(view.soa, MAX_MESSAGE)
    return bytes(buffer.data)


def read_response(request: bytes, packet: bytes) -> int | None:
    """The rcode of the response to a request; None for any other packet."""
    if len(packet) < HEADER_SIZE or packet[:2] != request[:2]:
        return None
    response, asked = Message.parse_header(packet), Message.parse_header(request)
    if not response.header.qr or response.header.opcode != asked.header.opcode:
        return None
    try:
        response.parse_question()
        asked.parse_question()
    except DNSError:
        return None
    # An error may have no question, such as BIND's FORMERR.
    if response.questions and response.questions[0].qname != asked.questions[0].qname:
        return None
    rcode: int = response.header.rcode
    return rcode


def make_soa_query(origin: Labels, message_id: int) -> bytes:
    """A query for a zone's SOA record, without recursion."""
    buffer = MessageBuffer()
    DNSHeader(message_id, QUERY << 11, 1).pack(buffer)
    buffer.put_question(DNSQuestion(DNSLabel(origin), SOA, IN), len(origin))
    return bytes(buffer.data)


def is_truncated(response: bytes) -> bool:
    return bool(int.from_bytes(response[2:4], "big") & TC)


def read_serial(response: bytes) -> int | str:
    """The serial in the response to ``make_soa_query``, or the reason why there is none."""
    try:
        message = Message.parse(response, MAX_SOA_RECORDS)
    except DNSError as error:
        return f"a malformed response: {error}"
    rcode = int.from_bytes(response[2:4], "big") & RCODE_BITS
    if rcode:
        return dns.rcode.to_text(dns.rcode.Rcode.make(rcode))
    if not message.header.aa:
        return "a response without AA"
    serials = [bytes(record.rdata.data[-20:-16]) for record in message.rr if record.rtype == SOA]
    if len(serials) != 1 or len(serials[0]) != 4:
        return "a response without SOA"
    return int.from_bytes(serials[0], "big")
