"""Fuzz targets: functions of bytes that raise AssertionError if a property does not hold.

Most check that there is a response or none, never an exception, and that each response is a DNS message within its
limit. ``zone`` checks that both ways of reading give the same zone, or a ZoneError. Hypothesis
(``tests/answer/test_respond_fuzz.py``), the fuzzer (``scripts/fuzz``) and the replay of its corpus call these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import dns.flags
import dns.message
import dns.rdataclass
import dns.zone
from dns.rcode import NOERROR, NXDOMAIN
from dns.rdatatype import ANY, CNAME, DNAME, NSEC, NSEC3, RRSIG, SOA

from maptr.answer.context import PLAIN, Context, Identity, ReceivedQuery, Transport
from maptr.answer.message import Message
from maptr.answer.respond import make_reply
from maptr.config.model import ConnectionLimits
from maptr.errors import ZoneError
from maptr.protocol.cookies import CookieSettings
from maptr.protocol.names import Folded
from maptr.server.stream import Connections, Stream
from maptr.transfer.acl import TsigKey
from maptr.transfer.session import Access
from maptr.zone.check import check_hostnames, check_integrity, check_rules, read_zone
from maptr.zone.diff import content_digest
from maptr.zone.masterfile import read_master_file
from maptr.zone.snapshot import Snapshot
from maptr.zone.text import to_text
from tests.support.answers import SNAPSHOT
from tests.support.odd_zones import HEAD, ORIGIN, assert_read_alike
from tests.support.transfers import allowing, answered
from tests.support.zones import snapshot_of_zones

CORPUS = Path(__file__).parent / "corpus"

# The same zone signed by BIND with keys that were thrown away: NSEC, NSEC3, and NSEC3 with opt-out and a salt.
SIGNED = tuple(
    snapshot_of_zones(dns.zone.from_file(str(path), "example.", relativize=False))
    for path in sorted((CORPUS.parent / "zones").glob("*.zone"))
)
PROOFS = frozenset({NSEC, NSEC3, RRSIG})

_FULL = {
    "identity": Identity(nsid="ns1", version="maptr", hostname="ns1.example"),
    "clock": lambda: 1559731985.0,
    "idle_timeout": 10.0,
}
CONTEXTS = (
    PLAIN,
    Context(cookies=CookieSettings((bytes(16),)), **_FULL),  # type: ignore[arg-type]
    Context(cookies=CookieSettings((bytes(16), bytes(range(16))), required=True), **_FULL),  # type: ignore[arg-type]
)
TRANSPORTS = tuple(Transport)


def check_respond(
    packet: bytes, transport: Transport, context: Context = PLAIN, snapshot: Snapshot = SNAPSHOT
) -> bytes | None:
    """Check the response to a packet, and its truncated form; returns the response."""
    reply = make_reply(ReceivedQuery(packet, transport, "192.0.2.1"), snapshot, context)
    if reply is None:
        assert len(packet) < 12 or packet[2] & 0x80
        return None
    hash(reply.kind)
    limit = 1232 if transport is Transport.UDP else 65535
    _check_reply(packet, reply.wire, limit)
    short = reply.truncated()
    _check_reply(packet, short, min(limit, len(reply.wire)))
    assert short[2] & 0x02
    return reply.wire


def check_signed(packet: bytes, transport: Transport, context: Context, snapshot: Snapshot) -> None:
    """The same for a signed zone: proofs only for queries with DO (RFC 4035 3.1)."""
    wire = check_respond(packet, transport, context, snapshot)
    reply = None if wire is None else dns.message.from_wire(wire)
    if reply is None or not reply.question or reply.rcode() not in (NOERROR, NXDOMAIN):
        return
    asked = reply.question[0].rdtype
    wanted = bool(reply.ednsflags & dns.flags.DO)
    answer, authority = ({rrset.rdtype for rrset in section} for section in (reply.answer, reply.authority))
    if not wanted:
        assert not PROOFS & authority
        assert asked in (ANY, *PROOFS) or not PROOFS & answer
        return
    if reply.flags & dns.flags.TC or reply.question[0].rdclass != dns.rdataclass.IN:
        return
    if answer - {RRSIG}:
        assert RRSIG in answer or CNAME in answer or DNAME in answer  # the CNAME made from a DNAME is not signed
    if reply.rcode() == NXDOMAIN or SOA in authority:
        assert {NSEC, NSEC3} & authority, "a denial without a proof"
        assert RRSIG in authority


def _check_reply(packet: bytes, reply: bytes, limit: int) -> None:
    assert reply[:2] == packet[:2]
    assert reply[2] & 0x80
    assert len(reply) <= limit
    message = dns.message.from_wire(reply)  # raises for malformed messages and trailing bytes
    ours = Message.parse(reply, 65535)
    assert len(ours.rr) == sum(map(len, message.answer))
    assert len(ours.auth) == sum(map(len, message.authority))
    assert len(ours.ar) == sum(map(len, message.additional)) + (message.edns >= 0)
    if message.question:
        end = 12 + sum(len(label) + 1 for label in message.question[0].name.labels) + 4
        assert reply[12:end] == packet[12:end], "the question is copied with its case"


class Sink(asyncio.Transport):
    """A transport that stores what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def converse_over(pieces: list[bytes], answer: Callable[[bytes], bytes | None]) -> bytes:
    """The bytes sent in response to a stream in these pieces."""

    def replies(query: bytes) -> list[bytes]:
        reply = answer(query)
        return [] if reply is None else [reply]

    async def run() -> bytes:
        sink, conversation = Sink(), Stream(replies, Connections(ConnectionLimits()))
        conversation.connection_made(sink)
        for piece in pieces:
            conversation.data_received(piece)
            await asyncio.sleep(0)
        conversation.eof_received()
        while not sink.closed:
            await asyncio.sleep(0)
        conversation.connection_lost(None)
        return sink.data

    return asyncio.run(run())


def fuzz_respond(data: bytes) -> None:
    """The first byte chooses transport and context, the rest is the packet."""
    choice = data[0] if data else 0
    context = CONTEXTS[choice // len(TRANSPORTS) % len(CONTEXTS)]
    check_respond(data[1:], TRANSPORTS[choice % len(TRANSPORTS)], context)


def fuzz_signed(data: bytes) -> None:
    """The first byte chooses zone, transport and context, the rest is the packet."""
    choice, place = divmod(data[0] if data else 0, len(SIGNED))
    context = CONTEXTS[choice // len(TRANSPORTS) % len(CONTEXTS)]
    check_signed(data[1:], TRANSPORTS[choice % len(TRANSPORTS)], context, SIGNED[place])


def fuzz_stream(data: bytes) -> None:
    """The first byte is the size of the pieces, the rest the stream; the responses are whole messages."""
    size = (data[0] if data else 0) + 1
    pieces = [data[start : start + size] for start in range(1, len(data), size)]

    def answer(query: bytes) -> bytes | None:
        reply = make_reply(ReceivedQuery(query, Transport.TLS, "192.0.2.1"), SNAPSHOT, CONTEXTS[1])
        return None if reply is None else reply.wire

    replies = converse_over(pieces, answer)
    while replies:
        length = int.from_bytes(replies[:2], "big")
        assert 12 <= length <= len(replies) - 2
        dns.message.from_wire(replies[2 : 2 + length])
        replies = replies[2 + length :]


KEY = TsigKey((b"xfr",), "hmac-sha256", bytes(range(32)))
ACCESS = Access(keys={KEY.name: KEY}, secondaries={Folded((b"example",)): allowing("192.0.2.1", "key:xfr")})
SIGNED_AT = 1559731985  # when the signatures in the corpus are valid


def fuzz_exchange(data: bytes) -> None:
    """The first byte chooses transport and client, one of which may transfer; the rest is the packet."""
    choice = data[0] if data else 0
    transport = TRANSPORTS[choice % len(TRANSPORTS)]
    client = ("192.0.2.1", "198.51.100.1")[choice // len(TRANSPORTS) % 2]
    packet = data[1:]
    count = 0
    for message in answered(packet, SNAPSHOT, ACCESS, transport=transport, client=client, now=SIGNED_AT):
        count += 1
        assert message[:2] == packet[:2]
        assert message[2] & 0x80
        assert len(message) <= (1232 if transport is Transport.UDP else 65535)
        dns.message.from_wire(message, keyring=False, ignore_trailing=False)
    assert count <= (1 if transport is Transport.UDP else 100)


def fuzz_zone(data: bytes) -> None:
    """The lines of a zone file behind a head. They are read or refused with their line, and alike in both ways."""
    assert_read_alike(HEAD.encode() + data)
    try:
        found = read_zone(HEAD.encode() + data, ORIGIN, Path("zone"))
    except ZoneError as error:
        assert error.filename
        assert error.reason
        return
    view = found.view
    assert check_rules(view, names=found.doubtful) == check_rules(view)
    assert all(map(str, [*check_integrity(view), *check_hostnames(view)]))
    text = to_text(view).encode()
    assert content_digest(read_master_file("zone", text, ORIGIN)) == content_digest(view)


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "respond": fuzz_respond,
    "signed": fuzz_signed,
    "stream": fuzz_stream,
    "exchange": fuzz_exchange,
    "zone": fuzz_zone,
}


def read_corpus(target: str) -> list[bytes]:
    """The inputs stored for a target, one line of hexadecimal digits each."""
    return [bytes.fromhex(line) for line in (CORPUS / f"{target}.hex").read_text(encoding="ascii").splitlines()]
