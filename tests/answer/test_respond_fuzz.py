"""``respond`` for arbitrary bytes: never an exception, and each response is a DNS message."""

from __future__ import annotations

import struct

import dns.message
import dns.rdatatype
from hypothesis import given, settings
from hypothesis import strategies as st

from maptr.answer.context import Context, Transport
from tests.answer.test_edns import make_query as make_options_query
from tests.fuzz.targets import CONTEXTS, SIGNED, check_respond, check_signed
from tests.support.answers import ANSWER, EDNS, PACKETS

SEEDS = [bytes.fromhex(case["packet"]) for case in PACKETS["case"]] + [
    dns.message.make_query(case["name"], case["type"], use_edns=0, payload=1232).to_wire() for case in ANSWER["case"]
]
SEEDS += [make_options_query(case).to_wire() for case in EDNS["case"]]
LABELS = sorted({label for one in ANSWER["case"] for label in one["name"].removesuffix("example.").split(".") if label})
LABELS += ["*", "nope", "zzz", "a" * 63]
transports = st.sampled_from(Transport)
contexts = st.sampled_from(CONTEXTS)
octets = st.integers(0, 255)


def with_header(counts: list[int], flags: int, body: bytes) -> bytes:
    return struct.pack("!6H", 7, flags & 0x7F00, *counts) + body


headed = st.builds(with_header, st.lists(st.integers(0, 3), min_size=4, max_size=4), octets, st.binary(max_size=300))


@given(st.binary(max_size=600) | headed, transports)
def test_random_bytes(packet: bytes, transport: Transport) -> None:
    check_respond(packet, transport)


@settings(max_examples=400)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 200), octets), max_size=6),
    st.integers(0, 200),
    st.binary(max_size=12),
    transports,
    contexts,
)
def test_changed_truncated_and_extended_queries(
    seed: bytes, changes: list[tuple[int, int]], cut: int, tail: bytes, transport: Transport, context: Context
) -> None:
    packet = bytearray(seed)
    for place, value in changes:
        packet[place % len(packet)] = value
    check_respond(bytes(packet[: len(packet) - cut] if cut < 20 else packet) + tail, transport, context)


@settings(max_examples=400)
@given(
    # RFC 1035 2.3.4: no more than 255 bytes
    st.lists(st.sampled_from(LABELS), max_size=4).filter(lambda labels: len(".".join([*labels, "example."])) < 255),
    st.one_of(st.sampled_from([1, 2, 6, 16, 39, 43, 46, 47, 48, 50, 51, 255]), st.integers(0, 65535)),
    st.booleans(),
    st.integers(0, len(SIGNED) - 1),
    transports,
    contexts,
)
def test_names_of_signed_zones(
    labels: list[str], rdtype: int, do: bool, place: int, transport: Transport, context: Context
) -> None:
    """The zones are signed with NSEC or NSEC3; some of the names exist, others do not."""
    name = ".".join([*labels, "example."])
    query = dns.message.make_query(name, dns.rdatatype.RdataType.make(rdtype), use_edns=0, want_dnssec=do)
    check_signed(query.to_wire(), transport, context, SIGNED[place])


def test_packets_full_of_compression_pointers_raise_nothing() -> None:
    # The names are chains of compression pointers, each to the previous one: the worst case for 64 KB.
    chain = b"\0" + b"".join((0xC000 | max(12, 11 + 2 * i)).to_bytes(2, "big") for i in range(8000))
    packet = struct.pack("!6H", 1, 0, 1, 5000, 5000, 5000) + chain[:60000]
    check_respond(packet, Transport.TCP)
    question = b"\0\0\1\0\1"
    record = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 0)
    check_respond(struct.pack("!6H", 1, 0, 1, 5000, 0, 0) + question + record * 5000, Transport.TCP)
