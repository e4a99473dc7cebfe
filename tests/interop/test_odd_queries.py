"""Unusual headers and OPTs: maptr responds as most of BIND, NSD, Knot and PowerDNS do.

Where they differ evenly, maptr responds as one of them. No response counts only if most send none. The exceptions
are in OURS, each with its reason; an exception that is not needed fails. Cookies are on in BIND, NSD and Knot,
as in maptr.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
import pytest

from maptr.answer.context import Context
from maptr.answer.respond import respond
from maptr.protocol.cookies import CookieSettings
from tests.interop.test_dns_tools import CookieBind, CookieKnot, CookieNsd
from tests.support.answers import ANSWER, PACKETS, SNAPSHOT
from tests.support.peers import Bind, Maptr, Nsd, Peer, PowerDns
from tests.support.waiting import PATIENCE

SERVERS: tuple[type[Peer], ...] = (CookieBind, CookieNsd, CookieKnot, PowerDns)
QUIET = 0.3  # seconds without any response, after which the missing ones count as none
CLIENT_COOKIE = "0102030405060708"


class Shape(NamedTuple):
    """The part of a response that must agree. The choice of additional records is up to each server."""

    rcode: str
    flags: str
    has_answer: bool
    edns: tuple[int, int, tuple[int, ...]] | None  # version, flags, codes of the options

    @classmethod
    def of(cls, wire: bytes | None) -> Shape:
        if wire is None:
            return cls("silence", "", False, None)
        try:
            reply = dns.message.from_wire(wire)
        except dns.exception.DNSException:  # some servers return an UPDATE with a malformed zone section
            return cls(dns.rcode.to_text(dns.rcode.Rcode(wire[3] & 15)), "", bool(wire[6] | wire[7]), None)
        # Each server has its own extended errors. PowerDNS sets AA on errors, where it has no meaning.
        codes = tuple(int(option.otype) for option in reply.options if int(option.otype) != 15)
        rcode = dns.rcode.to_text(reply.rcode())
        meaning = dns.flags.AA | dns.flags.TC | dns.flags.RA | dns.flags.AD
        flags = reply.flags & (meaning if rcode in ("NOERROR", "NXDOMAIN") else meaning & ~dns.flags.AA)
        edns = (reply.edns, reply.ednsflags & 0xFFFF, codes) if reply.edns >= 0 else None
        return cls(rcode, dns.flags.to_text(flags), bool(reply.answer), edns)


SILENCE = Shape.of(None)


def query(name: str = "www.example.", rdtype: str = "A", rdclass: str = "IN", *, flags: int = 0) -> bytes:
    message = dns.message.make_query(name, rdtype, rdclass)
    message.id, message.flags = 0x1234, dns.flags.Flag(0)
    wire = message.to_wire()
    return wire[:2] + flags.to_bytes(2, "big") + wire[4:]


def opt(*options: tuple[int, str], version: int = 0, flags: int = 0, size: int = 1232, rcode: int = 0) -> bytes:
    data = b"".join(struct.pack("!HH", code, len(text) // 2) + bytes.fromhex(text) for code, text in options)
    return b"\0" + struct.pack("!HHBBHH", 41, size, rcode, version, flags, len(data)) + data


def add(wire: bytes, *records: bytes) -> bytes:
    """The query with records in its additional section."""
    return wire[:10] + len(records).to_bytes(2, "big") + wire[12:] + b"".join(records)


def bare(count: int, body: bytes = b"", opcode: int = 0) -> bytes:
    """A header that announces this many questions, and the bytes after it."""
    return struct.pack("!6H", 0x1234, opcode << 11, count, 0, 0, 0) + body


A_RECORD = b"\0\0\1\0\1\0\0\0\0\0\4\1\2\3\4"
ZONE = b"\7example\0\0\6\0\1"

ODD: dict[str, bytes] = {
    **{f"type {kind}": add(query(rdtype=kind), opt()) for kind in ("OPT", "TSIG", "TKEY", "MAILA", "MAILB")},
    **{f"type {kind}": add(query(rdtype=f"TYPE{kind}"), opt()) for kind in (0, 128, 248, 250, 256, 65535)},
    **{f"type {kind}": add(query(rdtype=kind), opt()) for kind in ("RRSIG", "NSEC", "DNSKEY", "DS", "ANY")},
    **{f"opcode {code}": query("example.", "SOA", flags=code << 11) for code in (1, 2, 3, 6, 7, 15)},
    "opcode 6 without a question": bare(0, opcode=6),
    "class HS": add(query(rdclass="HS"), opt()),
    "class NONE": add(query(rdclass="NONE"), opt()),
    "class CHAOS, a name of IN": add(query(rdtype="TXT", rdclass="CH"), opt()),
    "flags AA": query(flags=0x0400),
    "flags TC": query(flags=0x0200),
    "flags RD": query(flags=0x0100),
    "flags AD, CD and Z": query(flags=0x0070),
    "an rcode in a query": query(flags=0x000F),
    "UPDATE": query("example.", "SOA", flags=0x2800),
    "UPDATE, with OPT": add(query("example.", "SOA", flags=0x2800), opt()),
    "UPDATE of a zone elsewhere": query("other.", "SOA", flags=0x2800),
    "UPDATE of a name in a zone": query("www.example.", "SOA", flags=0x2800),
    "UPDATE with type A": query("example.", "A", flags=0x2800),
    "UPDATE in class CHAOS": query("example.", "SOA", "CH", flags=0x2800),
    "UPDATE without a zone": bare(0, opcode=5),
    "UPDATE of two zones": bare(2, ZONE * 2, opcode=5),
    "UPDATE cut short": bare(1, ZONE[:5], opcode=5),
    "OPT": add(query(), opt()),
    "OPT, NXDOMAIN": add(query("nope.example."), opt()),
    "OPT, outside": add(query("other."), opt()),
    "DO": add(query(), opt(flags=0x8000)),
    "all Z bits": add(query(), opt(flags=0xFFFF)),
    "an extended rcode in a query": add(query(), opt(rcode=7)),
    "version 1": add(query(), opt(version=1)),
    "version 255 with an unknown option": add(query(), opt((65001, "01"), version=255)),
    "version 1 with a cookie": add(query(), opt((10, CLIENT_COOKIE), version=1)),
    "payload 0": add(query(), opt(size=0)),
    "payload 512, a big reply": add(query("big.example.", "TXT"), opt(size=512)),
    "payload 1233, a big reply": add(query("big.example.", "TXT"), opt(size=1233)),
    "payload 65535, a big reply": add(query("big.example.", "TXT"), opt(size=65535)),
    "no OPT, a big reply": query("big.example.", "TXT"),
    "unknown option": add(query(), opt((65001, "0102"))),
    "option 0": add(query(), opt((0, ""))),
    "option 65535": add(query(), opt((65535, "ff"))),
    "100 unknown options": add(query(), opt(*[(65001, "")] * 100)),
    "client subnet": add(query(), opt((8, "00011800c00002"))),
    "expire": add(query(), opt((9, ""))),
    "chain": add(query(), opt((13, "00"))),
    "keepalive over UDP": add(query(), opt((11, ""))),
    "keepalive with a timeout over UDP": add(query(), opt((11, "0064"))),
    "padding over UDP": add(query(), opt((12, "00" * 20))),
    "an extended error in a query": add(query(), opt((15, "0014"))),
    "algorithms understood": add(query(), opt((5, "08"))),
    "zone version": add(query(), opt((19, ""))),
    "OPT after a record": add(query(), A_RECORD, opt()),
    "OPT before a record": add(query(), opt(), A_RECORD),
    "OPT and bytes after it": add(query(), opt() + b"junk"),
    "OPT shorter than its length field": add(query(), opt()[:-2] + b"\0\5"),
    "OPT announced but missing": add(query(), b""),
    "a pointer to the root as OPT's name": add(query(), b"\xc0\x18" + opt()[1:]),
    "cookie": add(query(), opt((10, CLIENT_COOKIE))),
    "cookie, NXDOMAIN": add(query("nope.example."), opt((10, CLIENT_COOKIE))),
    "cookie, REFUSED": add(query("other."), opt((10, CLIENT_COOKIE))),
    "cookie, a server's of 8 bytes": add(query(), opt((10, CLIENT_COOKIE + "00" * 8))),
    "cookie, a wrong server's": add(query(), opt((10, CLIENT_COOKIE + "01000000" + "00" * 12))),
    "cookie, a server's of 32 bytes": add(query(), opt((10, CLIENT_COOKIE + "00" * 32))),
    "cookie twice": add(query(), opt((10, CLIENT_COOKIE), (10, "11" * 8))),
    **{f"cookie of {size} bytes": add(query(), opt((10, "00" * size))) for size in (0, 7, 9, 15, 41)},
    "cookie without a question": add(bare(0), opt((10, CLIENT_COOKIE))),
    "OPT without a question": add(bare(0), opt()),
}
# Transfers have tests of their own.
ODD |= {
    case["title"]: bytes.fromhex(case["packet"])
    for case in PACKETS["case"]
    if not case["title"].startswith(("RFC 5936", "RFC 1995"))
}

# Cases in which maptr differs from most of them, and the reason.
OURS = {
    "RFC 1035 3.2.4: class CHAOS": "maptr gives a version only if one is configured",
    "RFC 1035 3.2.5: class ANY": "a zone has one class only, so the query has no use; BIND responds with FORMERR",
    "RFC 1035 4.1.1: more records than any query has": "they are not read, to save work; NSD does the same",
    "RFC 2136 3.3: UPDATE that claims more records than a query has, and is not read further": "the same: an "
    "error in records that are not read is not found, and the response to a well-formed UPDATE is REFUSED",
}


def ask_all(server: Peer) -> dict[str, bytes | None]:
    """The responses to all packets, each sent from its own socket; None for no response."""
    replies: dict[str, bytes | None] = dict.fromkeys(ODD)
    waiting: dict[socket.socket, str] = {}
    with ExitStack() as stack:
        for title, packet in ODD.items():
            sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            waiting[sock] = title
            sock.connect((server.host, server.port))
            sock.send(packet)
            time.sleep(0.001)  # a burst would overflow a small receive buffer
        # All packets are processed when a query sent after them has its response, however busy the machine is.
        dns.query.udp(dns.message.make_query("example.", "SOA"), server.host, PATIENCE, server.port)
        while waiting and (ready := select.select(list(waiting), [], [], QUIET)[0]):
            for sock in ready:
                replies[waiting.pop(sock)] = sock.recv(65535)
    return replies


@pytest.fixture(scope="module")
def responses(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, Shape]]:
    """For each title, the response of each server by its name."""
    zone = tmp_path_factory.mktemp("zone") / "example.zone"
    zone.write_text("$ORIGIN example.\n" + ANSWER["zone"])
    answers: dict[str, dict[str, Shape]] = {title: {} for title in ODD}
    for server in SERVERS:
        with server({"example.": zone}) as running:
            for title, wire in ask_all(running).items():
                answers[title][server.name] = Shape.of(wire)
    return answers


CONTEXT = Context(cookies=CookieSettings((bytes(16),)))


@pytest.mark.parametrize("title", ODD)
def test_maptr_responds_as_most_servers_do(title: str, responses: Mapping[str, Mapping[str, Shape]]) -> None:
    ours = Shape.of(respond(ODD[title], SNAPSHOT, client="192.0.2.1", context=CONTEXT))
    theirs = responses[title]
    votes = [shape for shape in theirs.values() if shape != SILENCE]
    counts = Counter(votes if len(votes) > 1 else theirs.values())
    most = max(counts.values())
    as_most = ours in [shape for shape, count in counts.items() if count == most]
    assert as_most is (title not in OURS), f"maptr {ours}, {dict(theirs)}"


# ---- names with non-ASCII bytes


NON_ASCII = """\
$ORIGIN example.
$TTL 60
@ IN SOA ns1 host 1 7200 3600 1209600 300
@ IN NS ns1
ns1 IN A 192.0.2.1
café IN TXT "ü"
"""


@pytest.mark.parametrize("kind", [Bind, Nsd, Maptr], ids=lambda kind: kind.name)
def test_rfc1035_5_1_non_ascii_text_in_a_zone_file_is_read_as_bytes(kind: type[Peer], tmp_path: Path) -> None:
    """In names too. Knot and PowerDNS refuse such a zone."""
    (tmp_path / "zone").write_text(NON_ASCII, "utf-8")
    with kind({"example.": tmp_path / "zone"}) as server:
        for label, rcode in ("café".encode(), dns.rcode.NOERROR), (b"xn--caf-dma", dns.rcode.NXDOMAIN):
            query = dns.message.make_query(dns.name.Name((label, b"example", b"")), "TXT")
            reply = dns.query.udp(query, server.host, PATIENCE, server.port)
            assert (reply.rcode(), len(reply.answer)) == (rcode, 0 if rcode else 1)
            assert not reply.answer or reply.answer[0][0].strings == ("ü".encode(),)
