"""DNS queries as a stub resolver needs them: a question written, and a reply recognised as one to it.

Pure: bytes in, values out. What a reply says is read in ``reply``. When to ask whom is decided in ``asking``; sockets
are those of ``stub`` and ``mux``. The server's side of messages is ``packet``, and no code is shared (but numbers,
those of ``protocol``), so that each can hold the other to the truth in the tests.
"""

from __future__ import annotations

import struct

from maptr.client.reply import Query
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.protocol.numbers import (
    AD,
    CD,
    DO,
    FORMERR,
    HEADER_SIZE,
    IN,
    NAPTR,
    NOTIMP,
    OPT,
    RD,
    REFUSED,
    SERVFAIL,
    UDP_PAYLOAD,
)

_new = tuple.__new__  # half the time of a NamedTuple's own
# Rcodes with which a server may leave the question out of its reply.
_BARE = frozenset({FORMERR, SERVFAIL, NOTIMP, REFUSED})
_NAPTR_IN = struct.pack("!HH", NAPTR, IN)
_LETTERS = bytes(65) + b"\x20" * 26 + bytes(6) + b"\x20" * 26 + bytes(133)  # by octet: the bit that makes it a capital
_OPT_RECORD = struct.pack("!BHHIH", 0, OPT, UDP_PAYLOAD, 0, 0)
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
    question = wire + (_NAPTR_IN if rdtype == NAPTR else struct.pack("!HH", rdtype, IN))
    if dnssec:
        header, opt = _CD_HEADERS[edns], _DO_RECORD
    else:
        header, opt = _HEADERS[ask_ad, edns], _OPT_RECORD
    packet = b"%b%b%b%b" % (randomness[:2], header, question, opt if edns else b"")
    return _new(Query, (name, packet, question, rdtype))


def mix_case(octets: bytes, randomness: bytes) -> bytes:
    """The octets with random letters in capitals, as many octets of randomness deciding which (0x20,
    draft-vixie-dnsext-dns0x20)."""
    size = len(octets)
    flips = int.from_bytes(octets.translate(_LETTERS), "big") & int.from_bytes(randomness[:size], "big")
    return (int.from_bytes(octets, "big") ^ flips).to_bytes(size, "big")


def answers(query: Query, packet: bytes) -> bool:
    """True where the packet is a reply to the query: its ID, and its question in the letters that were sent."""
    if len(packet) < HEADER_SIZE or packet[:2] != query.packet[:2] or packet[2] & 0xF8 != 0x80:
        return False
    if packet.startswith(b"\0\1", 4):
        return packet.startswith(query.question, HEADER_SIZE)
    return packet[4:6] == b"\0\0" and packet[3] & 15 in _BARE
