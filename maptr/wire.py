"""DNS messages as a stub resolver needs them: a question written, its reply checked and read, without any library.

Pure: octets in, values out. Replies that are not plain are read in ``reply``. When to ask whom is the business of
``asking``; sockets are those of ``stub`` and ``bulk``. The server's side of messages is ``packet``, and no code is
shared, so that each can hold the other to the truth in the tests.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from maptr import names
from maptr.discovery import Outcome
from maptr.names import Labels
from maptr.naptr import Fields, Naptr
from maptr.reply import (
    AAAA,
    AD,
    BADVERS,
    CD,
    DO,
    EDE_BOGUS,
    FORMERR,
    HEADER_SIZE,
    IN,
    MAX_MESSAGE,
    MAX_TTL,
    NAPTR,
    NOERROR,
    NOTIMP,
    OPCODE,
    OPT,
    QR,
    RD,
    REFUSED,
    SERVFAIL,
    TC,
    YXDOMAIN,
    A,
    Query,
    Referral,
    Reply,
    read_in_full,
    read_name,
)

# Those of ``reply`` too: who asks needs one module.
__all__ = [
    "AAAA",
    "BADVERS",
    "EDE_BOGUS",
    "EDNS_PAYLOAD",
    "FORMERR",
    "MAX_MESSAGE",
    "MAX_TTL",
    "NAPTR",
    "NOTIMP",
    "REFUSED",
    "YXDOMAIN",
    "A",
    "Query",
    "Referral",
    "Reply",
    "answers",
    "around_question",
    "make_query",
    "plain_records",
    "questions",
    "read",
    "read_name",
    "read_plain",
]

EDNS_PAYLOAD = 1232  # octets; DNS flag day 2020, RFC 9715: no path fragments it

_TELLING = QR | OPCODE | TC | 15  # bits of which the commonest reply has only the first; the last four are the rcode

# Rcodes with which a server may leave the question out of its reply.
_BARE = frozenset({FORMERR, SERVFAIL, NOTIMP, REFUSED})
_OPT_RECORD = struct.pack("!BHHIH", 0, OPT, EDNS_PAYLOAD, 0, 0)
_DO_RECORD = struct.pack("!BHHIH", 0, OPT, EDNS_PAYLOAD, DO, 0)
_HEADER = struct.Struct("!6H")
_FIXED = struct.Struct("!HHIH")
_PAIR = struct.Struct("!HH")
_LETTERS = bytes(0x20 if chr(octet).isascii() and chr(octet).isalpha() else 0 for octet in range(256))
_QNAME_POINTER = b"\xc0\x0c"
_NAPTR_IN = _PAIR.pack(NAPTR, IN)
_SAME_NAPTR = _QNAME_POINTER + _NAPTR_IN
_H_ARK = b"\1h\3ark\0"
_H_ARK_FIELDS = (b"h", b"ark", b"")
_PLAIN_FIXED = struct.Struct("!IHHHB")  # TTL, length of rdata; order, preference, length of flags
# What follows the ID in the header of a query: by whether it asks for AD, and has an OPT.
_HEADERS = {
    (ask_ad, edns): struct.pack("!5H", RD | AD if ask_ad else RD, 1, 0, 0, edns)
    for ask_ad in (False, True)
    for edns in (False, True)
}
_CD_HEADERS = {edns: struct.pack("!5H", RD | CD, 1, 0, 0, edns) for edns in (False, True)}


def make_query(
    name: Labels,
    randomness: bytes,
    *,
    rdtype: int = NAPTR,
    mix: bool = True,
    edns: bool = True,
    ask_ad: bool = False,
    dnssec: bool = False,
) -> Query:
    """A question with recursion desired. ``randomness`` is the ID in two octets, and with ``mix`` one more for each
    octet of the name: which letters are in capitals (0x20, draft-vixie-dnsext-dns0x20). ``dnssec`` is for whoever
    validates: DO and CD, so that signatures come along and a resolver leaves the judging to us (RFC 6840 5.9)."""
    wire = names.to_wire(name)
    if mix:
        wire = _mixed(wire, randomness[2:])
    question = wire + (_NAPTR_IN if rdtype == NAPTR else _PAIR.pack(rdtype, IN))
    header = _HEADERS[ask_ad, edns]
    opt = _OPT_RECORD if edns else b""
    if dnssec:
        header = _CD_HEADERS[edns]
        opt = _DO_RECORD if edns else b""
    return Query(name, randomness[:2] + header + question + opt, question, rdtype)


def _mixed(octets: bytes, randomness: bytes) -> bytes:
    """The octets with random letters in capitals, as many octets of randomness deciding which."""
    size = len(octets)
    flips = int.from_bytes(octets.translate(_LETTERS), "big") & int.from_bytes(randomness[:size], "big")
    return (int.from_bytes(octets, "big") ^ flips).to_bytes(size, "big")


def questions(asked: Sequence[Labels], randomness: Callable[[int], bytes]) -> list[bytes]:
    """The question sections of many queries for NAPTR, with random letters: mixed together, far faster than singly."""
    parts: list[bytes] = []
    ends: list[int] = []
    end = 0
    rest: Labels = ()
    rest_wire = b"\0"
    for name in asked:
        if name[1:] != rest or not name:  # names of one run mostly have one origin
            rest = name[1:]
            rest_wire = names.to_wire(rest)
        part = bytes((len(name[0]),)) + name[0] + rest_wire + _NAPTR_IN if name else rest_wire + _NAPTR_IN
        parts.append(part)
        end += len(part)
        ends.append(end)
    mixed = _mixed(b"".join(parts), randomness(end))
    return [mixed[start:stop] for start, stop in zip([0, *ends], ends, strict=False)]


def around_question(*, ask_ad: bool = False) -> tuple[bytes, bytes]:
    """What goes between a query's ID and its question, and after the question: EDNS."""
    return _HEADERS[ask_ad, True], _OPT_RECORD


def answers(query: Query, packet: bytes) -> bool:
    """True where the packet is a reply to the query: its ID, and its question in the letters that were sent."""
    if len(packet) < HEADER_SIZE or packet[:2] != query.packet[:2] or packet[2] & 0xF8 != 0x80:
        return False
    if packet[4:6] == b"\0\1":
        return packet.startswith(query.question, HEADER_SIZE)
    return packet[4:6] == b"\0\0" and packet[3] & 15 in _BARE


def read(query: Query, packet: bytes, *, shortcut: bool = True) -> Reply:
    """The reply to a query; ValueError, with the reason, for one that cannot be read. RFC 1034 5.3.3, without 4d."""
    if shortcut and query.rdtype == NAPTR and (reply := read_plain(query.name, query.question, packet)) is not None:
        return reply
    return read_in_full(query, packet)


def read_plain(name: Labels, question: bytes, packet: bytes) -> Reply | None:
    """The commonest reply to a question for NAPTR, read by the shortest way: records of the name that was asked, and
    behind them nothing odd. None for any other, and for any that is damaged: ``read`` then says what it is.

    """
    plain = plain_records(name, question, packet)
    if plain is None:
        return None
    records, ttl, authentic = plain
    return Reply(NOERROR, False, Outcome.ANSWER, tuple(map(Naptr._make, records)), (), ttl, "", authentic)


def plain_records(name: Labels, question: bytes, packet: bytes) -> tuple[list[Fields], int, bool] | None:
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
