"""NOTIFY (RFC 1996), which tells a secondary of a new serial, and the SOA query that asks which one it has.

When they are sent, and how often, is in ``serve/notify.py`` and ``serve/observer.py``.
"""

from __future__ import annotations

import dns.rcode
from dnslib import DNSError, DNSHeader, DNSQuestion
from dnslib.label import DNSLabel

from maptr.answer.message import Message, MessageBuffer
from maptr.protocol.names import Labels
from maptr.protocol.numbers import AA, HEADER_SIZE, IN, MAX_MESSAGE, NOTIFY, QUERY, RCODE_BITS, SOA, TC
from maptr.zone.snapshot import ZoneView

MAX_SOA_RECORDS = 100  # with NS, their addresses and signatures


def make_notify(view: ZoneView, message_id: int) -> bytes:
    """The request: AA set, the SOA asked for and given as a hint (RFC 1996 3.7)."""
    buffer = MessageBuffer()
    DNSHeader(message_id, NOTIFY << 11 | AA, 1, 1).pack(buffer)
    buffer.put_question(DNSQuestion(DNSLabel(view.origin), SOA, IN), len(view.origin))
    buffer.put_rrset(view.soa, MAX_MESSAGE)
    return bytes(buffer.data)


def read_response(request: bytes, packet: bytes) -> int | None:
    """The rcode with which a secondary answered a request; None for a packet that answers something else."""
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
    # An error may leave the question out (BIND's FORMERR does).
    if response.questions and response.questions[0].qname != asked.questions[0].qname:
        return None
    rcode: int = response.header.rcode
    return rcode


def make_soa_query(origin: Labels, message_id: int) -> bytes:
    """The query for a zone's SOA, without recursion."""
    buffer = MessageBuffer()
    DNSHeader(message_id, QUERY << 11, 1).pack(buffer)
    buffer.put_question(DNSQuestion(DNSLabel(origin), SOA, IN), len(origin))
    return bytes(buffer.data)


def is_truncated(reply: bytes) -> bool:
    return bool(int.from_bytes(reply[2:4], "big") & TC)


def read_serial(reply: bytes) -> int | str:
    """The serial of the zone in the reply to ``make_soa_query``, or why there is none."""
    try:
        message = Message.parse(reply, MAX_SOA_RECORDS)
    except DNSError as error:
        return f"a malformed reply: {error}"
    rcode = int.from_bytes(reply[2:4], "big") & RCODE_BITS
    if rcode:
        return dns.rcode.to_text(dns.rcode.Rcode.make(rcode))
    if not message.header.aa:
        return "an answer without authority"
    serials = [bytes(record.rdata.data[-20:-16]) for record in message.rr if record.rtype == SOA]
    if len(serials) != 1 or len(serials[0]) != 4:
        return "an answer without SOA"
    return int.from_bytes(serials[0], "big")
