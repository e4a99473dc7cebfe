"""The commonest question and its commonest reply, octets in and plain values out: what ``wire`` and ``oneshot`` share.

Light to import, for a process that asks once and ends: no types of ours, nothing of ``typing``, only ``struct``.
"""

from __future__ import annotations

import struct

from maptr import names
from maptr.protocol import AD, HEADER_SIZE, IN, MAX_TTL, NAPTR, OPCODE_BITS, OPT, QR, RCODE_BITS, RD, TC, UDP_PAYLOAD

TYPE_CHECKING = False  # typing's own takes milliseconds to import
if TYPE_CHECKING:
    from maptr.names import Labels
    from maptr.naptr import Fields

_HEADER = struct.Struct("!6H")
_FIXED = struct.Struct("!HHIH")
_PLAIN_FIXED = struct.Struct("!IHHHB")  # TTL, length of rdata; order, preference, length of flags
_LETTERS = bytes(65) + b"\x20" * 26 + bytes(6) + b"\x20" * 26 + bytes(133)  # by octet: the bit that makes it a capital
_H_ARK_FIELDS = (b"h", b"ark", b"")

NAPTR_IN = struct.pack("!HH", NAPTR, IN)
TELLING = QR | OPCODE_BITS | TC | RCODE_BITS  # bits of which the commonest reply has only the first
SAME_NAPTR = b"\xc0\x0c" + NAPTR_IN  # its record, up to the TTL: the owner is a pointer to the question
H_ARK = b"\1h\3ark\0"  # flags, service and an empty regexp
OPT_RECORD = struct.pack("!BHHIH", 0, OPT, UDP_PAYLOAD, 0, 0)
_HEADER_REST = struct.pack("!5H", RD, 1, 0, 0, 1)  # after the ID: one question, one record of EDNS


def make_question(name: Labels, randomness: bytes) -> tuple[bytes, bytes]:
    """A query for NAPTR, and its question section, which the reply must echo octet for octet.

    ``randomness``: two octets for the ID, and one more for each octet of the name (see ``mix_case``).
    """
    question = mix_case(names.to_wire(name), randomness[2:]) + NAPTR_IN
    return randomness[:2] + _HEADER_REST + question + OPT_RECORD, question


def mix_case(octets: bytes, randomness: bytes) -> bytes:
    """The octets with random letters in capitals, as many octets of randomness deciding which (0x20,
    draft-vixie-dnsext-dns0x20)."""
    size = len(octets)
    flips = int.from_bytes(octets.translate(_LETTERS), "big") & int.from_bytes(randomness[:size], "big")
    return (int.from_bytes(octets, "big") ^ flips).to_bytes(size, "big")


def plain_records(name: Labels, question: bytes, packet: bytes) -> tuple[list[Fields], int, bool] | None:
    """The records of the commonest reply to a question for NAPTR, as fields, with their TTL and whether AD is set.

    That is records of the name that was asked, and behind them nothing odd. None for any other reply, and for one that
    is damaged: ``wire.read`` then says what it is.
    """
    end = len(packet)
    if end < HEADER_SIZE or not packet.startswith(question, HEADER_SIZE):
        return None
    _, bits, questions, answers, authority, additional = _HEADER.unpack_from(packet)
    if bits & TELLING != QR or questions != 1 or not answers:
        return None
    at = HEADER_SIZE + len(question)
    least = MAX_TTL
    records: list[Fields] = []
    try:
        for _ in range(answers):
            if packet[at : at + 6] == SAME_NAPTR:
                at += 6
            else:
                size = len(question)  # BIND writes the name out; no length octet is a letter
                if packet[at : at + size].lower() != question.lower():
                    return None
                at += size
            ttl, length, order, preference, size = _PLAIN_FIXED.unpack_from(packet, at)
            stop = at + 6 + length
            if packet.startswith(H_ARK, at + 10):
                flags, service, regexp = _H_ARK_FIELDS
                name_at = at + 17
            else:
                service_at = at + 11 + size
                regexp_at = service_at + 1 + packet[service_at]
                name_at = regexp_at + 1 + packet[regexp_at]
                flags = packet[at + 11 : service_at]
                service = packet[service_at + 1 : regexp_at]
                regexp = packet[regexp_at + 1 : name_at]
            labels: list[bytes] = []
            here = name_at
            while size := packet[here]:
                if size > names.MAX_LABEL:
                    return None
                labels.append(packet[here + 1 : here + 1 + size])
                here += size + 1
            if here + 1 != stop or here - name_at >= names.MAX_NAME:
                return None
            if ttl < least or ttl > MAX_TTL:
                least = ttl if ttl <= MAX_TTL else 0
            records.append((order, preference, flags, service, regexp, tuple(labels)))
            at = stop
        for _ in range(authority + additional):
            if packet[at] == 0:
                at += 1
            elif packet[at] == 0xC0 and _is_label(name, packet[at + 1]):
                at += 2
            else:
                return None
            rdtype, _, ttl, length = _FIXED.unpack_from(packet, at)
            at += 10 + length
            if rdtype == OPT and (length or ttl >> 24):  # an option or an extended rcode
                return None
    except (struct.error, IndexError):
        return None
    return (records, least, bool(bits & AD)) if at == end else None


def _is_label(name: Labels, offset: int) -> bool:
    """True where a label of the question's name starts at the offset, the root among them."""
    at = HEADER_SIZE
    for label in name:
        if at >= offset:
            break
        at += len(label) + 1
    return at == offset
