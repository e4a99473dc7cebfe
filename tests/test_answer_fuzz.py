"""respond() on arbitrary octets: a reply or silence, never an exception, and every reply is a DNS message."""

from __future__ import annotations

import struct
import tomllib
from pathlib import Path

import dns.message
import dns.zone
from dnslib import DNSError
from hypothesis import given, settings
from hypothesis import strategies as st

from maptr.answer import Transport, respond
from maptr.packet import Message
from maptr.snapshot import Snapshot

VECTORS = Path(__file__).parent / "vectors"
ANSWER = tomllib.loads((VECTORS / "answer.toml").read_text(encoding="utf-8"))
PACKETS = tomllib.loads((VECTORS / "packets.toml").read_text(encoding="utf-8"))
SNAPSHOT = Snapshot.from_zones([dns.zone.from_text(ANSWER["zone"], "example.", relativize=False)])

SEEDS = [bytes.fromhex(case["packet"]) for case in PACKETS["case"]] + [
    dns.message.make_query(case["name"], case["type"], use_edns=0, payload=1232).to_wire() for case in ANSWER["case"]
]
transports = st.sampled_from(Transport)
octets = st.integers(0, 255)


def check(packet: bytes, transport: Transport) -> None:
    reply = respond(packet, SNAPSHOT, transport=transport)
    if reply is None:
        assert len(packet) < 12 or packet[2] & 0x80
        return
    assert reply[:2] == packet[:2]
    assert reply[2] & 0x80
    assert len(reply) <= (1232 if transport is Transport.UDP else 65535)
    message = dns.message.from_wire(reply)  # raises on anything malformed, trailing octets among it
    ours = Message.parse(reply)
    assert len(ours.rr) == sum(map(len, message.answer))
    assert len(ours.auth) == sum(map(len, message.authority))
    assert len(ours.ar) == sum(map(len, message.additional)) + (message.edns >= 0)
    if message.question:
        end = 12 + sum(len(label) + 1 for label in message.question[0].name.labels) + 4
        assert reply[12:end] == packet[12:end], "the question comes back as it was, case and all"


@given(st.binary(max_size=600), transports)
def test_any_octets(packet: bytes, transport: Transport) -> None:
    check(packet, transport)


@given(st.lists(st.integers(0, 3), min_size=4, max_size=4), st.binary(max_size=300), octets, transports)
def test_any_octets_after_a_header_of_small_counts(
    counts: list[int], body: bytes, flags: int, transport: Transport
) -> None:
    check(struct.pack("!6H", 7, flags & 0x7F00, *counts) + body, transport)


@settings(max_examples=400)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 200), octets), max_size=6),
    st.integers(0, 200),
    st.binary(max_size=12),
    transports,
)
def test_real_queries_changed_cut_and_lengthened(
    seed: bytes, changes: list[tuple[int, int]], cut: int, tail: bytes, transport: Transport
) -> None:
    packet = bytearray(seed)
    for place, value in changes:
        packet[place % len(packet)] = value
    check(bytes(packet[: len(packet) - cut] if cut < 20 else packet) + tail, transport)


@given(st.binary(max_size=600))
def test_reading_a_message_raises_dnslibs_error_alone(packet: bytes) -> None:
    try:
        Message.parse(packet)
    except DNSError:
        return


def test_a_packet_made_of_pointers_costs_little() -> None:
    # Records whose names are chains of pointers, each one step back: the worst that 64 kB can do.
    chain = b"\0" + b"".join((0xC000 | max(12, 11 + 2 * i)).to_bytes(2, "big") for i in range(8000))
    packet = struct.pack("!6H", 1, 0, 1, 5000, 5000, 5000) + chain[:60000]
    check(packet, Transport.TCP)
    question = b"\0\0\1\0\1"
    record = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 0)
    check(struct.pack("!6H", 1, 0, 1, 5000, 0, 0) + question + record * 5000, Transport.TCP)
