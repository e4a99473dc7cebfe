"""ReadyAnswers against the general path: the same octets or none, whatever the zone and whatever the packet."""

from __future__ import annotations

import functools
import random
import tomllib
from pathlib import Path

import dns.edns
import dns.message
import dns.zone
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maptr import learned
from maptr.answer import make_reply
from maptr.context import PLAIN, Context, Identity, Transport
from maptr.cookies import CookieSettings
from maptr.fastpath import ReadyAnswers
from maptr.names import Labels
from maptr.packed import PackedNodes
from maptr.serve.responder import make_ready
from maptr.snapshot import Snapshot, view_zone
from tests import peers, signers
from tests.test_answer_oracle import ORIGIN, QUERY_TYPES, questions, random_zone, zone_text

VECTORS = Path(__file__).parent / "vectors"
ANSWER = tomllib.loads((VECTORS / "answer.toml").read_text(encoding="utf-8"))
PACKETS = tomllib.loads((VECTORS / "packets.toml").read_text(encoding="utf-8"))
COOKIE = bytes((0, 10, 0, 8)) + b"clientck"
ECS = bytes.fromhex("0008000700011800c00002")
# Cookies right and wrong, what we answer, what we do not, and what is none: cut short, or two octets of nothing.
OPTIONS = (
    *(COOKIE, COOKIE + b"x", COOKIE[:-1], COOKIE[:3] + b"\x10" + COOKIE[4:] + b"anothers", COOKIE[:3] + b"\3abc"),
    *(b"\0\3\0\0", b"\0\3\0\1x", b"\0\x0b\0\0", b"\0\x0c\0\5" + bytes(5), b"\xfd\xe9\0\0", ECS, b"\0\0"),
    b"\xfd\xe9\0\x0b" + bytes.fromhex("00002904d0000000000000"),  # an OPT within an option
)
SHAPES = (
    "",
    "000029020000000000",
    "00002904d000000000",
    "0000290fa000008000",
    "000029004100008000",
    "00002902ff00000000",
)


def ready_of(snapshot: Snapshot) -> ReadyAnswers:
    return ReadyAnswers(snapshot, functools.partial(make_reply, snapshot=snapshot))


def snapshot_of(*texts: tuple[str, str]) -> Snapshot:
    return Snapshot.from_zones(dns.zone.from_text(text, origin, relativize=False) for text, origin in texts)


def hold(ready: ReadyAnswers, snapshot: Snapshot, query: bytes) -> bool:
    """Both paths give the same octets over both transports; whether there was a ready answer."""
    found = None
    for transport in Transport:
        found = ready.find(query, stream=transport is not Transport.UDP)
        if found is None:
            continue
        reply = make_reply(query, snapshot, transport=transport)
        assert reply is not None
        assert found.reply(query) == reply.wire, query.hex()
        assert found.truncated(query) == reply.truncated()
        assert found.kind(query) == reply.kind
    return ready.find(query, stream=False) is not None


def wire(name: str, rdtype: str, rng: random.Random) -> bytes:
    """A question as some client sends it: any of the usual EDNS shapes, some with a cookie, in random case."""
    query = dns.message.make_query(name, rdtype, use_edns=False).to_wire()
    flags = bytes((rng.choice((0, 1, 1)), rng.choice((0, 0x10, 0x20))))
    body = bytes(rng.choice((octet, octet ^ 0x20)) if chr(octet).isalpha() else octet for octet in query[12:-4])
    shape = bytes.fromhex(rng.choice(SHAPES))
    options = b"".join(rng.choices(OPTIONS, k=rng.choice((0, 0, 1, 1, 2, 3)))) if shape else b""
    opt = shape + len(options).to_bytes(2, "big") + options if shape else b""
    counts = b"\0\1\0\0\0\0\0" + bytes((bool(opt),))
    return rng.randbytes(2) + flags + counts + body + query[-4:] + opt


SNAPSHOT = snapshot_of((ANSWER["zone"], "example."))
READY = ready_of(SNAPSHOT)
SEEDS = [bytes.fromhex(case["packet"]) for case in PACKETS["case"]] + [
    wire(case["name"], case["type"], random.Random(number)) for number, case in enumerate(ANSWER["case"])
]


@pytest.mark.parametrize("seed", range(40))
def test_random_zones(seed: int) -> None:
    rng = random.Random(seed)
    zones = [(zone_text(random_zone(rng)), ORIGIN)]
    if seed % 4 == 0:  # a zone of our own below, with or without a delegation to it
        child = zone_text(random_zone(rng)).replace(ORIGIN, f"a.{ORIGIN}")
        zones.append((child, f"a.{ORIGIN}"))
    snapshot = snapshot_of(*zones)
    ready = ready_of(snapshot)
    asked = questions(rng, random_zone(rng)) + [
        (f"{label}.{name.to_text()}", rdtype)
        for view in snapshot.zones.values()
        for name in (dns.name.Name((*key, b"")) for key in view.nodes)
        for label in ("x", "ns")
        for rdtype in QUERY_TYPES
    ]
    found = sum(hold(ready, snapshot, wire(name, rdtype, rng)) for name, rdtype in rng.sample(asked, 500))
    assert found > 50, "a zone of aliases and redirections has few, but never so few"
    for key in snapshot.zones[(b"example",)].nodes:
        for rdtype in (*QUERY_TYPES, "HTTPS", "TYPE97"):
            hold(ready, snapshot, wire(dns.name.Name((*key, b"")).to_text(), rdtype, rng))


def test_the_answer_vectors_are_ready_but_for_the_unusual() -> None:
    rng = random.Random(0)
    ready = [hold(READY, SNAPSHOT, wire(case["name"], case["type"], rng)) for case in ANSWER["case"] for _ in range(12)]
    assert sum(ready) > len(ready) * 0.3


@pytest.mark.parametrize("case", PACKETS["case"], ids=lambda case: case["title"])
def test_packets_of_every_kind(case: dict[str, str]) -> None:
    hold(READY, SNAPSHOT, bytes.fromhex(case["packet"]))


@given(st.binary(max_size=300))
def test_any_octets(packet: bytes) -> None:
    hold(READY, SNAPSHOT, packet)


@settings(max_examples=1500)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), max_size=4),
    st.integers(0, 60),
    st.binary(max_size=16),
)
def test_real_queries_changed_cut_and_lengthened(
    seed: bytes, changes: list[tuple[int, int]], cut: int, tail: bytes
) -> None:
    packet = bytearray(seed)
    for place, value in changes:
        packet[place % len(packet)] = value
    hold(READY, SNAPSHOT, bytes(packet[: len(packet) - cut] if cut < 20 else packet) + tail)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("name", "rdtype"),
    [
        ("12345.example.", "NAPTR"),
        ("12345.example.", "A"),
        ("example.", "SOA"),
        ("example.", "NS"),
        ("example.", "A"),
        ("nowhere.example.", "NAPTR"),
        ("several.labels.of.nowhere.example.", "A"),
        ("below.sub.example.", "A"),
        ("elsewhere.test.", "A"),
        (".", "NS"),
    ],
)
def test_what_floods_ask_is_ready(name: str, rdtype: str, shape: str) -> None:
    opt = bytes.fromhex(shape) + b"\0\0" if shape else b""
    query = dns.message.make_query(name, rdtype, use_edns=False).to_wire()
    query = query[:11] + bytes((bool(opt),)) + query[12:] + opt
    assert hold(READY, SNAPSHOT, query)


@pytest.mark.parametrize(
    "option", ["0003 0000", "0008 0007 00011800c00002", "000b 0000", "000c 0003 000000", "fde9 0001 78"]
)
def test_options_that_change_nothing_are_ready(option: str) -> None:
    """Without them an attacker could have everything made anew, and clients with ECS would wait for it."""
    options = bytes.fromhex(option)
    plain = dns.message.make_query("12345.example.", "NAPTR", use_edns=False).to_wire()
    for extra in (options, options + COOKIE, COOKIE + options, options * 3):
        opt = bytes.fromhex(SHAPES[2]) + len(extra).to_bytes(2, "big") + extra
        assert hold(READY, SNAPSHOT, plain[:11] + b"\1" + plain[12:] + opt)


def test_who_asks_for_nsid_gets_it_from_the_general_path() -> None:
    context = Context(identity=Identity("here"))
    ready = make_ready(SNAPSHOT, context)
    query = dns.message.make_query("12345.example.", "NAPTR", options=[dns.edns.NSIDOption(b"")]).to_wire()
    assert ready.find(query, stream=False) is None
    reply = make_reply(query, SNAPSHOT, transport=Transport.UDP, context=context)
    assert reply is not None
    assert b"here" in reply.wire


def test_types_that_differ_by_32_are_not_one() -> None:
    # As octets 65 (HTTPS) and 97 are "A" and "a": only the name may be folded.
    snapshot = snapshot_of(("@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\nx 60 TYPE97 \\# 1 00\ny 60 HTTPS 1 .", "example."))
    ready = ready_of(snapshot)
    for name in ("x", "y"):
        for rdtype in ("TYPE65", "TYPE97"):
            assert hold(ready, snapshot, dns.message.make_query(f"{name}.example.", rdtype).to_wire())


def test_names_in_the_soa_compress_further_than_its_owner() -> None:
    snapshot = snapshot_of(("@ 60 SOA a.ns b.h 1 2 3 4 5\n@ 60 NS a.ns\na.ns 60 A 192.0.2.1", "example."))
    ready = ready_of(snapshot)
    for name in ("x", "ns", "h", "x.ns", "a.ns", "x.a.ns", "b.h", "x.b.h", "ns.x", "xx"):
        hold(ready, snapshot, dns.message.make_query(f"{name}.example.", "TXT").to_wire())


def test_what_others_answer_for_is_not_ready() -> None:
    general = functools.partial(make_reply, snapshot=SNAPSHOT)
    ready = ReadyAnswers(SNAPSHOT, general, [(b"catalog",), (b"sub", b"example")])
    for name, expected in (("x.catalog.", False), ("catalog.", False), ("a.sub.example.", False), ("x.other.", True)):
        assert (ready.find(dns.message.make_query(name, "SOA").to_wire()) is not None) is expected


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("broken", [(), ((b"example",),)], ids=["none", "broken"])
def test_a_server_that_has_no_zone_refuses_whole(broken: tuple[Labels, ...], shape: str) -> None:
    snapshot = Snapshot.of([], broken=broken)
    opt = bytes.fromhex(shape + "0000") if shape else b""
    query = b"id\1\0\0\1\0\0\0\0\0%c\4test\0\0\1\0\1%b" % (bool(opt), opt)
    for ready in (ready_of(snapshot), make_ready(snapshot, PLAIN)):
        assert hold(ready, snapshot, query)


def test_learned_replies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "MAX_LEARNED", 5)
    ready = ready_of(SNAPSHOT)
    for length in range(1, 40):
        query = dns.message.make_query("x" * length + ".example.", "A").to_wire()
        assert hold(ready, SNAPSHOT, query)
        assert len(ready._learned._ready) <= 5


@pytest.mark.interop
@pytest.mark.parametrize("way", signers.WAYS)
@pytest.mark.parametrize("seed", range(3))
def test_signed_zones(way: str, seed: int, tmp_path: Path) -> None:
    peers.require(*signers.COMMANDS)
    rng = random.Random(seed)
    records = [record for record in random_zone(rng) if record.rdtype not in ("DS", "DNAME")]
    path = signers.sign(zone_text(records), ORIGIN, tmp_path, way)
    snapshot = snapshot_of((path.read_text(), ORIGIN))
    ready = ready_of(snapshot)
    names = [dns.name.Name((*key, b"")).to_text() for key in snapshot.zones[(b"example",)].nodes]
    found = 0
    for name in names:
        for rdtype in rng.sample((*QUERY_TYPES, "RRSIG", "NSEC", "NSEC3", "DNSKEY", "NSEC3PARAM"), 8):
            found += hold(ready, snapshot, wire(name, rdtype, rng))
            for below in ("x", "y.x", "".join(rng.choices("abnsz019-", k=rng.randint(1, 3)))):
                hold(ready, snapshot, wire(f"{below}.{name}", rdtype, rng))
    assert found > len(names)


@pytest.mark.interop
@pytest.mark.parametrize("way", signers.WAYS)
def test_absent_names_of_a_signed_zone_share_the_proofs_of_a_gap(way: str, tmp_path: Path) -> None:
    peers.require(*signers.COMMANDS)
    rng = random.Random(way)
    text = "@ 60 SOA ns.b h.c.b 1 2 3 4 5\n@ 60 NS ns.b\nns.b 60 A 192.0.2.1\nd 60 NS ns.d\nns.d 60 A 192.0.2.2\n"
    text += "".join(f"{number} 60 TXT x\n" for number in range(100, 130)) + "x.y.z 60 TXT x\n"
    path = signers.sign(f"$ORIGIN {ORIGIN}\n{text}", ORIGIN, tmp_path, way)
    snapshot = snapshot_of((path.read_text(), ORIGIN))
    asked = [
        ("".join(rng.choices("abcdhnsyz19", k=rng.randint(1, 3))) + above + ORIGIN, rdtype)
        for above in (".", ".b.", ".c.b.", ".z.", ".y.z.", ".d.", ".100.")
        for rdtype in ("A", "DS", "TXT", "ANY")
        for _ in range(40)
    ]
    hashed = [dns.name.Name((*key, b"")).to_text() for key in snapshot.zones[(b"example",)].hashed]
    asked += [(below + name, rdtype) for name in hashed for below in ("", "x.") for rdtype in ("A", "NSEC3")]
    rng.shuffle(asked)
    general = []

    def counting(query: bytes, /, *, transport: Transport) -> object:
        general.append(query)
        return make_reply(query, snapshot, transport=transport)

    ready = ReadyAnswers(snapshot, counting)  # type: ignore[arg-type]
    found = 0
    for name, rdtype in asked:
        query = dns.message.make_query(name, rdtype, want_dnssec=True).to_wire()
        found += hold(ready, snapshot, query)
    assert found > len(asked) * 0.5
    assert len(general) < found


@pytest.mark.parametrize("seed", range(10))
def test_packed_nodes_read_as_they_were(seed: int) -> None:
    text = (
        zone_text(random_zone(random.Random(seed))) + "UPPER.example. 60 IN TXT x\nUPPER.example. 60 IN MX 1 Y.test.\n"
    )
    view = view_zone(dns.zone.from_text(text, ORIGIN, relativize=False))
    packed = PackedNodes.pack(view.nodes)
    assert len(packed) == len(view.nodes)
    assert {name: dict(node) for name, node in packed.items()} == {
        name: dict(node) for name, node in view.nodes.items()
    }


@pytest.mark.parametrize(
    "context",
    [
        PLAIN,
        Context(udp_payload=512),
        Context(udp_payload=4096, idle_timeout=10.0),
        Context(identity=Identity("here", "1", "host"), cookies=CookieSettings((bytes(16),), required=True)),
    ],
)
def test_what_the_server_says_by_edns_is_what_the_general_path_would_say(context: Context) -> None:
    asked = ReadyAnswers(SNAPSHOT, functools.partial(make_reply, snapshot=SNAPSHOT, context=context))
    told = make_ready(SNAPSHOT, context)
    for do in (False, True):
        query = dns.message.make_query("www.example.", "A", use_edns=0, want_dnssec=do).to_wire()
        found = told.find(query)
        assert found is not None
        assert found == asked.find(query)
    assert (told._cookies, told._options) == (asked._cookies, asked._options)
    assert told._max_payload == asked._max_payload
