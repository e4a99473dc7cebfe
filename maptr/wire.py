"""DNS messages as a stub resolver needs them: a question written, its reply checked and read, without any library.

Pure: octets in, values out. Replies that are not plain are read in ``reply``. When to ask whom is the business of
``asking``; sockets are those of ``stub`` and ``bulk``. The server's side of messages is ``packet``, and no code is
shared (but numbers, those of ``protocol``), so that each can hold the other to the truth in the tests.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from maptr import names
from maptr.names import Labels
from maptr.naptr import Naptr
from maptr.plainwire import NAPTR_IN, OPT_RECORD, mix_case, plain_records
from maptr.protocol import (
    AD,
    CD,
    DO,
    FORMERR,
    HEADER_SIZE,
    IN,
    NAPTR,
    NOERROR,
    NOTIMP,
    OPT,
    RD,
    REFUSED,
    SERVFAIL,
    UDP_PAYLOAD,
)
from maptr.reply import Query, Reply, read_in_full
from maptr.trace import Outcome

# Rcodes with which a server may leave the question out of its reply.
_BARE = frozenset({FORMERR, SERVFAIL, NOTIMP, REFUSED})
_DO_RECORD = struct.pack("!BHHIH", 0, OPT, UDP_PAYLOAD, DO, 0)
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
        wire = mix_case(wire, randomness[2:])
    question = wire + (NAPTR_IN if rdtype == NAPTR else struct.pack("!HH", rdtype, IN))
    header = _HEADERS[ask_ad, edns]
    opt = OPT_RECORD if edns else b""
    if dnssec:
        header = _CD_HEADERS[edns]
        opt = _DO_RECORD if edns else b""
    return Query(name, randomness[:2] + header + question + opt, question, rdtype)


def questions(asked: Sequence[bytes], randomness: Callable[[int], bytes]) -> list[bytes]:
    """The question sections of many queries for NAPTR, with random letters: mixed together, far faster than singly.

    Names go in as in ``names.to_wire``.
    """
    plain = NAPTR_IN.join(asked) + NAPTR_IN
    mixed = mix_case(plain, randomness(len(plain)))
    made: list[bytes] = []
    start = 0
    for name in asked:
        stop = start + len(name) + len(NAPTR_IN)
        made.append(mixed[start:stop])
        start = stop
    return made


def around_question(*, ask_ad: bool = False) -> tuple[bytes, bytes]:
    """What goes between a query's ID and its question, and after the question: EDNS."""
    return _HEADERS[ask_ad, True], OPT_RECORD


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
