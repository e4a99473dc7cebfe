"""Plans learned from some queries and used for others: the octets, kinds and cut forms of the general path."""

from __future__ import annotations

import ctypes
import functools
import random
from collections.abc import Sequence
from pathlib import Path

import dns.edns
import dns.message
import dns.name
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maptr.answer import make_reply
from maptr.context import Context, Transport
from maptr.cookies import CookieSettings, answer_cookie, make_cookie
from maptr.fastpath import ReadyAnswers
from maptr.ready import HEADER, TC
from maptr.serve import deepplans, plans, plantables
from maptr.serve.plan import HEAD, PLAN, SILENCE, own, truncated
from maptr.serve.plans import Plans
from maptr.serve.slots import LENGTH, key_of
from maptr.serve.slots import START as IN_SLOT
from maptr.snapshot import Snapshot
from tests import peers, signers
from tests.test_answer_oracle import ORIGIN, QUERY_TYPES, random_zone, zone_text
from tests.test_fastpath import OPTIONS, PACKETS, SEEDS, SNAPSHOT, snapshot_of

NOW = 1_700_000_000
CLIENT = "192.0.2.1"
ADDRESS = bytes((192, 0, 2, 1))
SECRETS = (bytes(range(16)), bytes(16))
CONTEXT = Context(cookies=CookieSettings(SECRETS), clock=lambda: NOW)
# Payload sizes with letters among their octets: 0x0558 and 0x0578 differ by case alone.
SHAPES = ("", "", "04d0 0000 0000", "04d0 0000 8000", "0558 0000 0000", "0578 0000 0000", "0200 0000 0000")
TYPES = (*QUERY_TYPES, "HTTPS", "TYPE97", "TYPE99", "TYPE67", "ANY", "TYPE0")


class Server:
    """What a listener does with a batch of queries, without a socket."""

    def __init__(self, snapshot: Snapshot, context: Context = CONTEXT) -> None:
        self.snapshot = snapshot
        self.context = context
        self.ready = ReadyAnswers(snapshot, functools.partial(make_reply, snapshot=snapshot, context=context))
        self.plans = Plans(self.ready)
        self.found = 0  # replies by plans that were known

    def hold(self, queries: list[bytes]) -> None:
        """Every reply is the general path's."""
        keys = [key_of(query[2:]) for query in queries]
        plans = [*map(self.plans.tables.known.get, keys)]
        which = [i for i, plan in enumerate(plans) if plan is None]
        missed, asked = self.plans.tables.fill(which, plans, keys, [*map(len, queries)])
        self.found += len(queries) - len(missed)
        given = dict(asked)
        assert given.keys().isdisjoint(missed)
        for i in missed:
            if (found := self.plans.look_up(queries[i])) is not None:
                plans[i], cookie = found
                if cookie is not None:
                    given[i] = cookie
        for i, plan in enumerate(plans):
            if plan is not None:
                self.check(queries[i], plan, given.get(i))
        self.plans.sent()

    def check(self, query: bytes, plan: bytes, cookie: bytes | None) -> None:
        reply = make_reply(query, self.snapshot, transport=Transport.UDP, client=CLIENT, context=self.context)
        assert reply is not None
        answer = b""
        if cookie is not None:
            answer, verified = answer_cookie(cookie, CLIENT, secrets=SECRETS, now=NOW)
            assert verified is reply.verified
        assert octets(plan, query, answer) == reply.wire, query.hex()
        assert octets(truncated(plan), query, answer) == reply.truncated()
        assert self.plans.kind(plan, query[2:]) == reply.kind


def octets(plan: bytes, query: bytes, cookie: bytes) -> bytes:
    """What the kernel would send."""
    _, question_end, records, size, opt, opt_size, _, cookie_size, head, rest, _ = PLAN.unpack(plan)
    assert head + rest == plan[HEAD : HEAD + 10]
    assert cookie_size in (0, len(cookie))
    tail = bytes(ctypes.string_at(records, size)) + bytes(ctypes.string_at(opt, opt_size)) + cookie[:cookie_size]
    return query[:2] + bytes(head + rest) + query[HEADER:question_end] + tail


def wire(name: str, rdtype: str, rng: random.Random, shapes: Sequence[str] = SHAPES, flags: bytes = b"\1\0") -> bytes:
    """A question in small letters or mixed ones, some with a cookie, old or new, right or wrong."""
    query = dns.message.make_query(name, rdtype, use_edns=False).to_wire()
    mixed = rng.random() < 0.3
    body = bytes(octet ^ (rng.choice((0, 0x20)) if mixed and chr(octet).isalpha() else 0) for octet in query[12:-4])
    shape = bytes.fromhex(rng.choice(shapes))
    opt = b""
    if shape:
        client = rng.randbytes(8)
        aged = make_cookie(client, ADDRESS, rng.choice(SECRETS), NOW - rng.choice((0, 60, 2000, 4000, -900)))
        option = rng.choice((None, None, None, client, client, aged, aged, aged[:-1] + b"x", client[:-1]))
        options = b"" if option is None else b"\0\x0a" + len(option).to_bytes(2, "big") + option
        if rng.random() < 0.1:
            options = b"".join(rng.sample((options, rng.choice(OPTIONS)), k=2))
        opt = b"\0\0\x29" + shape + len(options).to_bytes(2, "big") + options
    return rng.randbytes(2) + flags + b"\0\1\0\0\0\0\0" + bytes((bool(opt),)) + body + query[-4:] + opt


def names_around(snapshot: Snapshot, rng: random.Random) -> list[str]:
    """Names that are there, others beside and below them that differ in one label, and others elsewhere."""
    there = [dns.name.Name((*key, b"")).to_text() for view in snapshot.zones.values() for key in view.nodes]
    contact = [f"host.{ORIGIN}", f"else.{ORIGIN}"]  # in the SOA, and a name as long
    above = [*there, *contact, *(name.partition(".")[2] or "." for name in there), "test.", "broken.", "a.broken."]
    below = ["".join(rng.choices("abns*w", k=rng.randint(1, 2))) + "." + name.lstrip(".") for name in above * 2]
    return there + contact * 3 + below


@pytest.mark.parametrize("seed", range(25))
def test_what_is_learned_from_some_holds_for_all(seed: int) -> None:
    rng = random.Random(seed)
    zones = [(zone_text(random_zone(rng)), ORIGIN)]
    if seed % 3 == 0:  # a zone of our own below, with or without a delegation to it
        zones.append((zone_text(random_zone(rng)).replace(ORIGIN, f"a.{ORIGIN}"), f"a.{ORIGIN}"))
    snapshot = snapshot_of(*zones)
    if seed % 2:
        snapshot = snapshot._replace(broken=frozenset({(b"broken",), (b"b", b"example")}))
    server = Server(snapshot)
    ask_around(server, TYPES, rng)
    assert server.found > 50, "zones of aliases and redirections leave little, but never so little"


def ask_around(server: Server, types: Sequence[str], rng: random.Random) -> None:
    """Again and again about few names at a time, so that something is learned and something found."""
    names = names_around(server.snapshot, rng)
    for _ in range(12):
        few, kinds, shapes = rng.sample(names, 6), rng.sample(types, 2), [rng.choice(SHAPES)]
        flags = bytes((rng.choice((0, 1)), rng.choice((0, 0x10))))
        for _ in range(4):
            server.hold([wire(rng.choice(few), rng.choice(kinds), rng, shapes, flags) for _ in range(24)])


@pytest.mark.interop
@pytest.mark.parametrize("way", ["bind-nsec", "ldns-nsec3-opt-out"])
def test_signed_zones(way: str, tmp_path: Path) -> None:
    peers.require(*signers.COMMANDS)
    rng = random.Random(way)
    records = [record for record in random_zone(rng) if record.rdtype not in ("DS", "DNAME")]
    path = signers.sign(zone_text(records), ORIGIN, tmp_path, way)
    server = Server(snapshot_of((path.read_text(), ORIGIN)))
    ask_around(server, (*TYPES, "RRSIG", "NSEC"), rng)
    for label in rng.sample([f"{one}{two}q" for one in "abnsmz0" for two in "abnsmz0"], 30):  # denied by many records
        server.hold([dns.message.make_query(f"{label}.{ORIGIN}", "A", want_dnssec=True).to_wire()])
    names = [*[ORIGIN] * 20, *names_around(server.snapshot, rng)]
    for _ in range(20):  # and floods below some names
        above, rdtype, size = rng.choice(names).lstrip("."), rng.choice(TYPES), rng.randint(1, 3)
        labels = ["".join(rng.choices("abnsmz0*w-", k=size)) for _ in range(24)]
        sizes = [rng.choice(("04d0 0000 8000", "0200 0000 8000", "0300 0000 8000"))]
        for _ in range(4):
            server.hold([wire(f"{rng.choice(labels)}.{above}", rdtype, rng, sizes) for _ in range(24)])
    assert server.found > 300


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(SEEDS),
            st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), max_size=2),
            st.integers(0, 40),
            st.binary(max_size=8),
        ),
        max_size=8,
    )
)
def test_real_queries_changed_cut_and_lengthened(cases: list[tuple[bytes, list[tuple[int, int]], int, bytes]]) -> None:
    queries = []
    for seed, changes, cut, tail in cases:
        packet = bytearray(seed)
        for place, value in changes:
            packet[place % len(packet)] = value
        queries.append(bytes(packet[: len(packet) - cut] if cut < 20 else packet) + tail)
    for _ in range(3):
        VETERAN.hold(queries)


@given(st.binary(max_size=2 * IN_SLOT), st.binary(max_size=2 * IN_SLOT), st.integers(0, IN_SLOT))
def test_no_two_queries_have_one_key(first: bytes, second: bytes, zeros: int) -> None:
    for other in (second, first + bytes(zeros), key_of(first), key_of(first)[:-LENGTH], first[:-1]):
        assert (key_of(first) == key_of(other)) is (first == other)


def test_a_query_that_looks_like_the_slot_of_another_is_not_taken_for_it() -> None:
    known = Server(SNAPSHOT)
    query = dns.message.make_query("b.example.", "A", use_edns=True).to_wire()
    known.hold([query] * 2)
    known.found = 0
    known.hold([query[:2] + key_of(query[2:]), query + bytes(IN_SLOT - len(query)), query])
    assert known.found == 1


def test_names_of_any_length_are_found_in_letters_of_both_cases() -> None:
    labels = ["k" * size for size in range(1, 64)] + [f"{'k' * 63}.{'k' * size}" for size in range(1, 64, 9)]
    zone = "@ SOA ns host 1 2 3 4 5\n@ NS ns\n" + "".join(f"{label} TXT {label[:5]}\n" for label in labels)
    server = Server(snapshot_of((zone, "example.")))
    for form in ({"use_edns": False}, {"use_edns": True, "payload": 1232}):
        for rdtype in ("TXT", "LOC"):  # what is there, and what is not by a pattern
            queries = [dns.message.make_query(f"{label}.example.", rdtype, **form).to_wire() for label in labels]
            others = [dns.message.make_query(f"{label.upper()}.example.", rdtype, **form).to_wire() for label in labels]
            for _ in range(3 if rdtype == "LOC" else 1):
                server.hold(queries)
            server.found = 0
            server.hold(queries + others)
            assert server.found == len(queries) + len(others)


VETERAN = Server(SNAPSHOT)  # who has seen much


@pytest.mark.parametrize(
    ("name", "rdtype", "other"),
    [
        ("nowhere.example.", "A", "neither.example."),
        ("below.sub.example.", "A", "under.sub.example."),
        ("a.elsewhere.test.", "A", "b.elsewhere.test."),
        ("12345.example.", "TYPE99", "99999.example."),
        ("12345.example.", "HTTPS", "12345.example."),
        ("example.", "ANY", "EXAMPLE."),
        ("12345.example.", "ANY", "12345.example."),
    ],
)
@pytest.mark.parametrize("cookie", [b"", b"\0\x0a\0\x08clientck"])
def test_what_floods_ask_needs_no_look_at_a_zone(name: str, rdtype: str, other: str, cookie: bytes) -> None:
    zone = '@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n@ 60 TXT x\n12345 60 NAPTR 1 1 h ark "" x.\n'
    zone += "99999 60 TXT y\nsub 60 NS ns.sub\nns.sub 60 A 192.0.2.2\n"
    server = Server(
        snapshot_of((zone, "example.")) if "sub" in name else snapshot_of((zone.partition("sub")[0], "example."))
    )
    for asked in (name, name, other):
        query = dns.message.make_query(asked, rdtype, use_edns=False).to_wire()
        opt = bytes.fromhex("00002904d000000000") + len(cookie).to_bytes(2, "big") + cookie
        before = server.found
        server.hold([query[:11] + b"\1" + query[12:] + opt])
    assert server.found == before + 1


START = "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n"


@pytest.mark.parametrize(
    ("zone", "rdtype", "learned", "other"),
    [
        # A name of the same pattern has the type, has an alias, has more than one type, is a delegation, is the origin.
        ("y 60 A 192.0.2.1\nx 60 HINFO a b", "HINFO", "y.example.", "x.example."),
        ("y 60 A 192.0.2.1\nx 60 CNAME y", "HINFO", "y.example.", "x.example."),
        ("y 60 A 192.0.2.1\nx 60 A 192.0.2.1\nx 60 HINFO a b", "HINFO", "y.example.", "x.example."),
        ("y 60 A 192.0.2.1\nx 60 NS ns", "HINFO", "y.example.", "x.example."),
        ("", "HINFO", "another.", "example."),
        # Its label compresses names in the reply further.
        ("", "HINFO", "no.example.", "ns.example."),
        ("", "HINFO", "n.example.", "h.example."),
        ("d 60 NS ns.d\nns.d 60 A 192.0.2.1", "HINFO", "xy.d.example.", "ns.d.example."),
        ("d 60 NS un.d", "HINFO", "xy.d.example.", "un.d.example."),
    ],
)
def test_a_pattern_is_not_for_all_that_have_it(zone: str, rdtype: str, learned: str, other: str) -> None:
    server = Server(snapshot_of((START + zone, "example.")))
    often, once = (dns.message.make_query(name, rdtype).to_wire() for name in (learned, other))
    for _ in range(deepplans.OFTEN + 2):
        server.hold([often])
    known = server.found
    assert (known > 0) is ("x 60 NS" not in zone), "nothing where a name may be a delegation"
    server.hold([once])
    assert server.found == known


@pytest.mark.parametrize("rdtype", ["HINFO", "NAPTR"])
def test_what_compresses_further_is_no_pattern_for_others(rdtype: str) -> None:
    """Else the SOA in their replies would have their own names in it."""
    server = Server(snapshot_of((START, "example.")))
    for name in ("h.example.", "h.example.", "h.example.", *(f"{label}.example." for label in "abcabc"), "h.example."):
        server.hold([dns.message.make_query(name, rdtype).to_wire()])
    assert server.found > 0


@pytest.mark.parametrize("origin", [").abc.", ")abc.", "a)xyz."])
def test_a_name_that_looks_like_the_start_of_an_opt_is_one(origin: str) -> None:
    """By an octet in the place of an OPT's type, where those behind it stand in the place of its size."""
    server = Server(snapshot_of((f"{START}x 60 TXT y\n", origin)))
    label, _, above = origin.partition(".")
    for _ in range(3):
        for name in (f"{'q' * len(label)}.{above}", f"x.{origin}", origin):
            for rdtype in ("TXT", "SOA", "HINFO"):
                server.hold([dns.message.make_query(name, rdtype, use_edns=False).to_wire()])
    assert server.found > 0


def test_the_root_zone() -> None:
    """Whose own name nobody points to, for it is shorter."""
    server = Server(snapshot_of((f"{START}@ 60 TXT x\n* 60 TXT y\n", ".")))
    for _ in range(3):
        for name in (".", "a.", "b.a.", "ns."):
            server.hold([dns.message.make_query(name, rdtype).to_wire() for rdtype in ("TXT", "A", "SOA", "HINFO")])
    assert server.found > 0


def test_sizes_that_differ_by_a_letters_case_are_two() -> None:
    server = Server(snapshot_of((f"{START}* 60 TXT {'x' * 250} {'x' * 250} {'x' * 29}\n", "example.")))
    for payload in (0x0261, 0x0261, 0x0261, 0x0241, 0x0261):
        server.hold([dns.message.make_query("some.example.", "TXT", payload=payload).to_wire()])
    assert server.found == 2


def test_one_plan_is_for_all_sizes_where_it_fits_the_least() -> None:
    server = Server(
        snapshot_of(
            (f"{START}* 60 TXT {'x' * 250} {'x' * 250}\nx 60 TXT y\nbig 60 TXT {'x' * 250} {'x' * 250}\n", "example.")
        )
    )
    sizes, cookie = (0, 512, 513, 1232, 4096, 65535), b"\0\x0a\0\x08clientck"
    names = [cased for name in ("x", "large", "big") for cased in (name, name, name.upper())]
    for name in [f"{name}.example." for name in names]:
        before = server.found
        for options in (b"", cookie):
            for size in sizes:
                query = dns.message.make_query(name, "TXT", use_edns=False).to_wire()
                opt = bytes.fromhex("000029") + size.to_bytes(2, "big") + bytes(4) + len(options).to_bytes(2, "big")
                server.hold([query[:11] + b"\1" + query[12:] + opt + options])
        if name[1] == ".":
            assert server.found - before == 12 - 2 * (not before), "one is learned without a cookie, and one with it"
    assert server.found < 60, "not what is too large for some"


@pytest.mark.parametrize("size", range(30))
def test_queries_cut_short_get_a_header_alone(size: int) -> None:
    query = dns.message.make_query("12345.example.", "NAPTR", use_edns=0).to_wire()[:size]
    found = SERVER.ready.find(query)
    reply = make_reply(query, SNAPSHOT, transport=Transport.UDP, context=CONTEXT)
    assert (found is None) is (reply is None)
    if found is not None and reply is not None:
        assert found.reply(query) == reply.wire
        assert len(reply.wire) == HEADER


SERVER = Server(SNAPSHOT)


@pytest.mark.parametrize(("label", "count"), [(1, 126), (1, 127), (1, 128), (63, 3), (63, 4), (64, 1), (1, 20_000)])
def test_names_as_long_as_they_may_be_and_longer(label: int, count: int) -> None:
    name = (bytes((label,)) + b"x" * label) * count + b"\0"
    for packet in (bytes(5) + b"\1" + bytes(6) + name + b"\0\1\0\1", bytes(5) + b"\1" + bytes(6) + name):
        reply = make_reply(packet, SNAPSHOT, transport=Transport.UDP, context=CONTEXT)
        found = SERVER.ready.find(packet)
        assert found is not None
        assert reply is not None
        assert found.reply(packet) == reply.wire


def test_packets_of_every_kind() -> None:
    packets = [bytes.fromhex(case["packet"]) for case in PACKETS["case"]]
    for _ in range(3):
        SERVER.hold(packets)


def limit(monkeypatch: pytest.MonkeyPatch, most: int, *, names: bool = True) -> None:
    """No more patterns and shared plans than so many; with ``names``, nor whole keys."""
    for module in (plans, plantables):
        monkeypatch.setattr(module, "MAX_SHARED", most)
    for name in ("MAX_DEEP", "MAX_SEEN"):
        monkeypatch.setattr(deepplans, name, most)
    if names:
        monkeypatch.setattr(plantables, "MAX_KNOWN", most)


def test_memory_is_bounded_and_forgotten_plans_live_until_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 5)
    monkeypatch.setattr("maptr.learned.MAX_LEARNED", 5)
    rng = random.Random(1)
    server = Server(SNAPSHOT)
    names = names_around(SNAPSHOT, rng)
    for _ in range(40):
        server.hold([wire(rng.choice(names), rng.choice(TYPES), rng) for _ in range(64)])
        learned, tables = server.plans, server.plans.tables
        assert len(tables.known) + len(tables.with_cookie) <= 5
        assert len(tables.patterns) + len(tables.patterns_with_cookie) <= 5
        sets = (
            tables.types,
            tables.lettered,
            tables.large,
            tables.large_patterns,
            tables.deep.tails._times,
            learned._shared,
        )
        kinds, alive = (learned._kinds, learned._kinds_by_name), (learned._alive, learned._alive_now)
        assert max(map(len, (*sets, *kinds, *alive, learned._alive_shared))) <= 6


def test_floods_push_out_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 5, names=False)
    cut = "sub 60 NS ns.sub\nns.sub 60 A 192.0.2.2\n"
    zone = START + cut + "".join(f"n{i} 60 TXT x\n" for i in range(20))
    server = Server(snapshot_of((zone, "example.")))
    names = [dns.message.make_query(f"n{i}.example.", "TXT").to_wire() for i in range(20)]
    server.hold(names)
    for round_ in range(30):
        label = "x" * (round_ + 1)
        for name in (f"{label}.example.", f"{label}.sub.example.", f"{label}.test.", "n1.example."):
            for rdtype in ("A", f"TYPE{300 + round_}", "TXT"):
                server.hold([dns.message.make_query(name, rdtype).to_wire()] * 3)
    before = server.found
    server.hold(names)
    assert server.found == before + 20


def test_what_plans_point_into_lives_though_a_zone_lets_it_go() -> None:
    server = Server(snapshot_of((f"{START}x 60 TXT {'y' * 200}", "example.")))
    query = dns.message.make_query("x.example.", "TXT").to_wire()
    server.hold([query])
    (zone,) = (lookup.zone for lookup in server.ready._zones.values() if lookup)
    assert zone
    name = b"\1x\7example\0"
    zone.table[name] = bytes(bytearray(zone.table[name]))
    others = [bytes(bytearray(b"z" * len(zone.table[name]))) for _ in range(1000)]
    server.hold([query])
    assert server.found == 1
    assert len(others) == 1000


def test_a_reply_of_its_own_and_silence() -> None:
    query = dns.message.make_query("12345.example.", "NAPTR").to_wire()
    reply = make_reply(query, SNAPSHOT, transport=Transport.UDP)
    assert reply is not None
    rest = ctypes.create_string_buffer(reply.wire[HEADER:])
    assert octets(own(reply.wire, ctypes.addressof(rest)), query, b"") == reply.wire
    assert PLAN.unpack(SILENCE)[1::2][:4] == (0, 0, 0, 0)


def test_a_reply_that_only_its_cookie_makes_too_long_is_cut() -> None:
    """As the general path cuts it, for each length around what everybody takes, and for who takes more."""
    sizes = range(150, 230)
    records = "".join(f"t{size} 60 TXT {'x' * 255} {'y' * size}\n" for size in sizes)
    server = Server(snapshot_of((START + records, "example.")))
    cut = 0
    for payload in (512, 1232, 513):
        for size in sizes:
            for options in ((), (dns.edns.GenericOption(dns.edns.OptionType.COOKIE, b"clientck"),)):
                query = dns.message.make_query(f"t{size}.example.", "TXT", payload=payload, options=[*options])
                server.hold([query.to_wire()] * 2)
                reply = make_reply(query.to_wire(), server.snapshot, transport=Transport.UDP, context=server.context)
                cut += reply is not None and bool(reply.wire[2] & TC)
    assert cut > len(sizes)
