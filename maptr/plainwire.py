"""The commonest replies to a question for NAPTR, read by the shortest way: the half of ``wire`` for what is plain.

None here is no verdict: ``reply`` then says what the packet is. Property tests hold the two to the same reading. The ID
is not looked at, the question is: it must come back octet for octet.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from maptr import names
from maptr.discovery import Outcome
from maptr.naptr import Fields, Naptr
from maptr.reply import AD, HEADER_SIZE, IN, MAX_TTL, NAPTR, NOERROR, OPCODE, OPT, QR, TC, Reply

EDNS_PAYLOAD = 1232  # octets; DNS flag day 2020, RFC 9715: no path fragments it

_TELLING = QR | OPCODE | TC | 15  # bits of which the commonest reply has only the first; the last four are the rcode
_HEADER = struct.Struct("!6H")
_FIXED = struct.Struct("!HHIH")
_QNAME_POINTER = b"\xc0\x0c"
_SAME_NAPTR = _QNAME_POINTER + struct.pack("!HH", NAPTR, IN)
_H_ARK = b"\1h\3ark\0"
_H_ARK_FIELDS = (b"h", b"ark", b"")
_PLAIN_FIXED = struct.Struct("!IHHHB")  # TTL, length of rdata; order, preference, length of flags

_ONE, _ONE_AND_OPT = 1 << 48 | 1 << 32, 1 << 48 | 1 << 32 | 1  # the four counts of a header as one number
_OPT = struct.Struct("!BHHBBHH")  # with a payload size, extended rcode, version, flags and length of options
_RECORD_FIXED = 12  # octets of a record before its rdata, where the owner is a pointer
_LONE_LEAST = 12  # octets of rdata that is "h" "ark" "" and the root


class LoneReader:
    """Reads replies that are one ``h`` record and nothing else, by far the commonest: one unpacking, five comparisons.

    It remembers where things are, by the length of the question, and the OPT that it saw last.
    """

    def __init__(self) -> None:
        self._unpack: dict[int, Callable[[bytes], tuple[Any, ...]]] = {}
        self._bare_opt = b""

    def __call__(self, question: bytes, packet: bytes) -> tuple[int, int, bytes, int, bool] | None:
        """Order, preference, replacement (in wire format, not looked at), TTL, and whether AD is set."""
        size = len(question)
        unpack = self._unpack.get(size)
        if unpack is None:
            unpack = self._unpack[size] = struct.Struct(f"!2xHQ{size}s6sIHHH7s").unpack_from
        try:
            bits, counts, echoed, owner, ttl, length, order, preference, fields = unpack(packet)
        except struct.error:  # shorter
            return None
        rdata = HEADER_SIZE + _RECORD_FIXED + size
        end = rdata + length
        if (
            echoed != question
            or fields != _H_ARK
            or owner != _SAME_NAPTR
            or bits & _TELLING != QR
            or length < _LONE_LEAST
            or ttl > MAX_TTL
        ):
            return None
        if counts == _ONE_AND_OPT:
            if packet[end:] != self._bare_opt and not self._is_bare_opt(packet[end:]):
                return None
        elif counts != _ONE or len(packet) != end:
            return None
        return order, preference, packet[rdata + _LONE_LEAST - 1 : end], ttl, bits & AD != 0

    def _is_bare_opt(self, octets: bytes) -> bool:
        """True where they are an OPT without options or extended rcode, of any payload size and flags."""
        if len(octets) != _OPT.size:
            return False
        name, rdtype, _, rcode, _, _, length = _OPT.unpack(octets)
        if name or rdtype != OPT or rcode or length:
            return False
        self._bare_opt = octets
        return True


def read_plain(question: bytes, packet: bytes) -> Reply | None:
    """The commonest reply to a question for NAPTR, read by the shortest way: records of the name that was asked, and
    behind them nothing odd."""
    plain = plain_records(question, packet)
    if plain is None:
        return None
    records, ttl, authentic = plain
    return Reply(NOERROR, False, Outcome.ANSWER, tuple(map(Naptr._make, records)), (), ttl, "", authentic)


def plain_records(question: bytes, packet: bytes) -> tuple[list[Fields], int, bool] | None:
    """The same as fields, with the TTL and whether AD is set."""
    end = len(packet)
    if end < HEADER_SIZE or not packet.startswith(question, HEADER_SIZE):
        return None
    _, bits, questions, answers, authority, additional = _HEADER.unpack_from(packet)
    if bits & _TELLING != QR or questions != 1 or not answers:
        return None
    at = HEADER_SIZE + len(question)
    least = MAX_TTL
    records: list[Fields] = []
    try:
        for _ in range(answers):
            if packet[at : at + 6] == _SAME_NAPTR:
                at += 6
            else:
                size = len(question)  # BIND writes the name out; no length octet is a letter
                if packet[at : at + size].lower() != question.lower():
                    return None
                at += size
            ttl, length, order, preference, size = _PLAIN_FIXED.unpack_from(packet, at)
            stop = at + 6 + length
            if packet.startswith(_H_ARK, at + 10):
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
            elif packet[at] == 0xC0 and _is_label(question, packet[at + 1]):
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


def _is_label(question: bytes, offset: int) -> bool:
    """True where a label of the question's name starts at the offset, the root among them."""
    at = 0
    while at + HEADER_SIZE < offset and question[at]:
        at += question[at] + 1
    return at + HEADER_SIZE == offset
