"""NOTIFY (RFC 1996): the message that tells a secondary of a new serial, and what its answer means.

When it is sent, and how often, is ``serve/notify.py``'s.
"""

from __future__ import annotations

import struct

from maptr.names import fold, to_wire
from maptr.packet import read_question
from maptr.protocol import AA, HEADER_SIZE, IN, NOTIFY, QR, SOA
from maptr.snapshot import ZoneView


def make_notify(view: ZoneView, message_id: int) -> bytes:
    """The request: AA set, the SOA asked for and given as a hint (RFC 1996 3.7)."""
    header = struct.pack("!6H", message_id, NOTIFY << 11 | AA, 1, 1, 0, 0)
    question = to_wire(view.origin) + struct.pack("!HH", SOA, IN)
    rdata = view.soa.rdatas[0]
    pointer = 0xC000 | HEADER_SIZE
    return header + question + struct.pack("!HHHIH", pointer, SOA, IN, view.soa.ttl, len(rdata)) + rdata


def read_response(request: bytes, packet: bytes) -> int | None:
    """The rcode with which a secondary answered; None for a packet that answers something else."""
    if len(packet) < HEADER_SIZE or packet[:2] != request[:2]:
        return None
    flags = int.from_bytes(packet[2:4], "big")
    if not flags & QR or flags >> 11 & 15 != NOTIFY:
        return None
    try:
        question, _ = read_question(packet)
        asked, _ = read_question(request)
    except ValueError:
        return None
    # An error may leave the question out (BIND's FORMERR does).
    if question is not None and fold(question.name) != fold(asked.name):  # type: ignore[union-attr]
        return None
    return flags & 15
