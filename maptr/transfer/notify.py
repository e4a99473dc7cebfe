"""NOTIFY (RFC 1996): the message that tells a secondary of a new serial, and what its answer means.

When it is sent, and how often, is ``serve/notify.py``'s.
"""

from __future__ import annotations

from dnslib import DNSError, DNSHeader, DNSQuestion
from dnslib.label import DNSLabel

from maptr.answer.message import Message, MessageBuffer
from maptr.protocol.numbers import AA, HEADER_SIZE, IN, MAX_MESSAGE, NOTIFY, SOA
from maptr.zone.snapshot import ZoneView


def make_notify(view: ZoneView, message_id: int) -> bytes:
    """The request: AA set, the SOA asked for and given as a hint (RFC 1996 3.7)."""
    buffer = MessageBuffer()
    DNSHeader(message_id, NOTIFY << 11 | AA, 1, 1).pack(buffer)
    buffer.put_question(DNSQuestion(DNSLabel(view.origin), SOA, IN), len(view.origin))
    buffer.put_rrset(view.soa, MAX_MESSAGE)
    return bytes(buffer.data)


def read_response(request: bytes, packet: bytes) -> int | None:
    """The rcode with which a secondary answered; None for a packet that answers something else."""
    if len(packet) < HEADER_SIZE or packet[:2] != request[:2]:
        return None
    response, asked = Message.parse_header(packet), Message.parse_header(request)
    if not response.header.qr or response.header.opcode != NOTIFY:
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
