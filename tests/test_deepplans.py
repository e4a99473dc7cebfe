"""Plans for names that do not exist at any depth: the general path's octets, and no look at a zone's tree."""

from __future__ import annotations

import random

import dns.message
import pytest

from maptr.serve import deepplans
from maptr.serve.slots import key_of
from scripts.benchmark.loads import ark_zone
from scripts.benchmark.odd import ODD, ask, opt
from tests import test_proofs
from tests.test_fastpath import snapshot_of
from tests.test_plans import Server

HEAD = "@ 3600 SOA {} 1 7200 900 1209600 300\n@ 3600 NS ns.elsewhere.example.\n"
# Names of the SOA below the origin, whose labels change how it compresses; names deep down, an alias, other zones below
# and beside, and what plans must keep away from: wildcards, delegations, DNAME.
FLAT = HEAD.format("ns a.b.ns") + "a 60 TXT x\nb.a.b 60 TXT y\nc 60 CNAME a\n"
BELOW = HEAD.format("ns.elsewhere.example. hostmaster.elsewhere.example.") + "a 60 TXT z\n"
AT = (b"10001", b"ark", b"arpa")
LONG = ".".join((*("x" * 62,) * 3, "x" * 40))
ZONES = {
    "a long SOA": [(HEAD.format(f"a.{LONG}.test. b.{LONG.replace('x', 'y')}.test.") + "a 60 TXT x\n", "ark.")],
    "flat": [(FLAT, "ark.")],
    "a zone in a zone": [(FLAT, "ark."), (BELOW, "a.ark."), (BELOW, "b.a.a.ark."), (BELOW, "other.")],
    "the root": [(FLAT, ".")],
    "the root and a zone": [(FLAT, "."), (BELOW, "b.ark.")],
    "wild": [(FLAT + "* 60 TXT w\n", "ark.")],
    "wild below": [(FLAT + "*.a 60 TXT w\n", "ark.")],
    "delegations": [(FLAT + "d 60 NS ns.d\nns.d 60 A 192.0.2.1\n", "ark.")],
    "other names": [(FLAT + "d 60 DNAME a\n", "ark.")],
}


@pytest.mark.parametrize("zones", ZONES.values(), ids=ZONES)
def test_the_same_octets_as_the_general_path(zones: list[tuple[str, str]]) -> None:
    rng = random.Random(1)
    server = Server(snapshot_of(*zones))
    labels = ["a", "b", "c", "d", "ns", "ark", "*", "other", "A", "nS", "x" * 40]
    for _ in range(200):
        names = [
            ".".join((*rng.choices(labels, k=rng.randrange(6)), rng.choice(("ark", "ARK", "b.ark", "other", "")), ""))
            for _ in range(16)
        ]
        queries = []
        for name in names:
            name = name.replace("..", ".").lstrip(".") or "."
            asked = dns.message.make_query(name, rng.choice(("TXT", "A", "DS")))
            if rng.random() < 0.7:
                asked.use_edns(0, payload=rng.choice((512, 1232, 4096)))
            queries.append(asked.to_wire())
        server.hold(queries)


# Flat, with a chain as a signer makes it; with what the SOA names in the zone; with a delegation; with wildcards.
CHAINED = (
    HEAD.format("ns.test. bugs.test.") + "@ 60 NSEC b NS SOA RRSIG NSEC\nb 60 A 192.0.2.1\nb 60 NSEC m A RRSIG NSEC\n"
)
CHAINS = {
    "flat": CHAINED + "m 60 TXT x\nm 60 NSEC @ TXT RRSIG NSEC\n",
    "SOA within": CHAINED.replace("ns.test. bugs.test.", "c a.b.c") + "m 60 TXT x\nm 60 NSEC @ TXT RRSIG NSEC\n",
    "a delegation": CHAINED + "m 60 NS ns.m\nns.m 60 A 192.0.2.1\nm 60 NSEC @ NS RRSIG NSEC\n",
    "a wildcard below": CHAINED
    + "m 60 TXT x\nm 60 NSEC *.m TXT RRSIG NSEC\n*.m 60 TXT x\n*.m 60 NSEC @ TXT RRSIG NSEC\n",
    "a wildcard": CHAINED.replace("NSEC b NS", "NSEC * NS")
    + "* 60 TXT x\n* 60 NSEC b TXT RRSIG NSEC\nm 60 NSEC @ RRSIG NSEC\n",
    "other names": CHAINED.replace("NS SOA RRSIG", "NS SOA DNAME RRSIG")
    + "@ 60 DNAME elsewhere.test.\nm 60 NSEC @ RRSIG NSEC\n",
}
SIGNED = {**{kind: snapshot_of((text, "example.")) for kind, text in CHAINS.items()}, **test_proofs.ZONES}


def test_names_below_one_that_exists_have_plans_where_there_are_enough_patterns() -> None:
    server = Server(snapshot_of((ark_zone(5), "ark.arpa.")))
    deep = server.plans.tables.deep
    below, beside, there = (ask(name, 35, opt())[2:] for name in ((b"x", *AT), (b"y", b"zzzzz", *AT[1:]), AT))
    deep.put(beside, b"some plan", proved=False)
    sizes = [len(below) + 2, len(there) + 2]
    for _ in range(deepplans.OFTEN + 1):
        plans: list[bytes | None] = [None, None]
        missed = deep.fill([0, 1], plans, [key_of(below), key_of(there)], sizes, enough=True)
        assert (missed, plans) == ([1], [b"some plan", None])
    assert deep.fill([0], [None], [key_of(below)], sizes, enough=False) == [0]


@pytest.mark.parametrize("kind", SIGNED)
def test_the_same_octets_with_proofs(kind: str) -> None:
    rng = random.Random(kind)
    server = Server(SIGNED[kind])
    labels = [b"a", b"b", b"c", b"m", b"w", b"x", b"y", b"*", b"ns", b"ns1", b"ai", b"B", b"o" * 40, b"zz"]
    labels.append(b"35mthgpgcu1qg68fab165klnsnk3dpvl")
    for _ in range(150):
        queries = []
        for _ in range(16):
            name = (*rng.choices(labels, k=rng.randrange(1, 5)), b"example")
            payload, flags = rng.choice((512, 1232, 4096)), rng.choice((0x8000, 0x8000, 0))
            queries.append(ask(name, rng.choice((1, 2, 43, 16)), opt(size=payload, flags=flags)))
        server.hold(queries)


@pytest.mark.parametrize("kind", ["flat", "SOA within", "a delegation", "a wildcard below"])
def test_gaps_have_plans_at_any_depth(kind: str) -> None:
    rng = random.Random(kind)
    server = Server(SIGNED[kind])
    for _ in range(30):
        tops = [rng.choice((b"d", b"f", b"q")) + bytes(rng.choices(b"xyz", k=5)) for _ in range(30)]
        server.hold([ask((b"a", b"%d" % rng.randrange(10**9), top, b"example"), 1, opt(flags=0x8000)) for top in tops])
    assert server.found > 500
    assert len(server.plans.tables.deep._proved) <= 2 * 10


def test_right_below_the_origin_there_are_patterns_alone() -> None:
    """Plans with proofs are large: what is in two tables is forgotten twice as soon."""
    rng = random.Random(0)
    server = Server(SIGNED["flat"])
    for _ in range(20):
        labels = [rng.choice((b"c", b"p")) + rng.randbytes(4).hex().encode() for _ in range(16)]
        server.hold([ask((label, b"example"), 1, opt(flags=0x8000)) for label in labels])
    assert not server.plans.tables.deep._proved
    assert len(server.plans._alive_proved) == 2


def test_proofs_are_forgotten_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.serve.plans.MAX_PROVED", 3)
    server = Server(SIGNED["flat"])
    for size in range(1, 20):
        server.hold([ask((b"a", b"d" * size, b"example"), 1, opt(flags=0x8000))])
        assert len(server.plans.tables.deep._proved) <= 3


@pytest.mark.parametrize("kind", ["ten labels", "as many labels as go", "four labels elsewhere", "the longest names"])
def test_no_name_need_come_twice(kind: str) -> None:
    rng = random.Random(kind)
    server = Server(snapshot_of((ark_zone(50), "ark.arpa.")))
    for _ in range(30):
        server.hold([ODD[kind](rng) for _ in range(30)])
    assert server.found > 600


def test_what_comes_often_is_a_pattern() -> None:
    server = Server(snapshot_of((ark_zone(50), "ark.arpa.")))
    for first in range(deepplans.OFTEN + 3):
        assert not server.plans.tables.patterns or first > deepplans.OFTEN
        server.hold([ask((b"%d" % first, b"x", b"y", b"ark", b"arpa"), 35, opt())])
    assert len(server.plans.tables.patterns) == 1
    assert server.found == deepplans.OFTEN + 1


PLAIN, WITH_OPT = b"\0\0\0\1\0\0\0\0\0\0", b"\0\0\0\1\0\0\0\0\0\1"
REST = b"\0\0\x23\0\1"  # the root, type and class


@pytest.mark.parametrize(
    ("learned", "query"),
    [
        (PLAIN + b"\1x" * 40 + REST, PLAIN + b"\x3f" + b"x" * 20),
        (PLAIN + b"\1x" * 40 + REST, PLAIN + b"\x4e" + b"x" * 78 + b"\0" + REST),
        (PLAIN + b"\1x" * 100 + REST, PLAIN + b"\xc0" + b"x" * 192 + b"\6" + b"x" * 6 + REST),
        (PLAIN + b"\1x" * 40 + REST, PLAIN + b"\1x" * 40),
        (PLAIN + b"\1x" * 40 + REST, PLAIN + b"\1x" * 140 + REST),
        (PLAIN + b"\1x" * 40 + REST, PLAIN + b"\1x" * 40 + REST + b"\0"),
        (WITH_OPT + b"\1x" * 40 + REST + opt(), WITH_OPT + b"\1x" * 40 + REST + opt()[:-2] + b"\0\1"),
        (WITH_OPT + b"\1x" * 40 + REST + opt(), WITH_OPT + b"\1x" * 40 + REST),
        (WITH_OPT + b"\1x" * 40 + REST + opt(), WITH_OPT + b"\1x" * 40 + REST + b"\0\0\1" + opt()[3:]),
        (PLAIN + b"\1x" * 40 + REST, PLAIN + REST),
        (PLAIN + b"\1x" * 40 + REST, b""),
    ],
)
def test_what_is_no_plain_question_has_none(learned: bytes, query: bytes) -> None:
    server = Server(snapshot_of((ark_zone(5), "ark.arpa.")))
    deep = server.plans.tables.deep
    deep.put(learned, b"some plan", proved=False)
    plans: list[bytes | None] = [None, None]
    other = learned.replace(b"x", b"y", 1)
    queries = [key_of(query), key_of(other)]
    assert deep.fill([0, 1], plans, queries, [len(query) + 2, len(other) + 2], enough=False) == [0]
    assert plans == [None, b"some plan"]


def test_a_name_in_the_zone_has_no_such_plan() -> None:
    server = Server(snapshot_of((ark_zone(5) + "x.10001 60 TXT x\n", "ark.arpa.")))
    deep = server.plans.tables.deep
    absent, present = (ask((b"x", label, b"ark", b"arpa"), 35, opt())[2:] for label in (b"99999", b"10001"))
    deep.put(absent, b"some plan", proved=False)
    plans: list[bytes | None] = [None, None]
    queries = [key_of(absent), key_of(present)]
    assert deep.fill([0, 1], plans, queries, [len(absent) + 2, len(present) + 2], enough=False) == [1]
    assert plans == [b"some plan", None]
    deep.forget()
    assert deep.fill([0], [None], queries[:1], [len(absent) + 2], enough=False) == [0]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepplans, "MAX_DEEP", 5)
    rng = random.Random(1)
    server = Server(snapshot_of((ark_zone(5), "ark.arpa.")))
    for rdtype in range(1, 30):
        server.hold([ask((bytes(rng.choices(b"abc", k=9)), b"x", b"ark", b"arpa"), rdtype, opt())])
        assert server.plans.tables.deep._plans
        assert len(server.plans.tables.deep._plans) <= 5
