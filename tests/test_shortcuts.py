"""Each short way of the client gives what the long way gives: ARK text, replies, walks, and walks that are shared."""

from __future__ import annotations

import pickle
import random
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maptr import names, wire
from maptr.ark import Ark
from maptr.discovery import Discovery
from maptr.errors import ArkSyntaxError
from maptr.lonehost import LoneReader, host_in_wire
from maptr.many import Many
from maptr.names import Labels
from maptr.naptr import Naptr
from maptr.plain import Rankings, make_ranking
from maptr.plainreply import Reader
from maptr.protocol import MAX_TTL, NAPTR
from maptr.question import DEFAULTS, Answer, Settings
from maptr.replay import walk_again
from maptr.reply import Query, Reply
from maptr.trace import Outcome
from maptr.walk import Walk
from tests.hostile import NS, SOA, SOA_RDATA, record

NAME = (b"12345", b"ark", b"arpa")
ARK = Ark.parse("ark:12345/x1")
BLANKS = " " * 300  # no part of any ARK, and too long for the short way

# ---- ARK text

PIECES = (
    *("ark:", "ARK:", "/", "12345", "a", "B", "x6", ".", "..", "-", "%2f", "%"),
    *("?", "??", "?info", "é", "#", ":", " "),
)
ark_texts = st.lists(st.sampled_from(PIECES), max_size=9).map("".join)
likely_texts = st.builds(
    "{}{}/{}".format, st.sampled_from(["ark:", "ark:/"]), st.sampled_from(["12345", "b2"]), ark_texts
)


def parsed(text: str | bytes) -> tuple[str, ...] | None:
    try:
        return tuple(Ark.parse(text))
    except ArkSyntaxError:
        return None


@given(ark_texts | likely_texts | st.text(max_size=20).map("ark:12345/{}".format))
@example("ark:/12345/x5/c2.fr.odf?info")
@example("ark:12345/x/ark:/12345/y\n")
@example("ark:12345/x.a/b")
@example("ark:12345/x?a-b")
def test_ark_text_is_read_alike(text: str) -> None:
    long_way = parsed(text + BLANKS)
    assert parsed(text) == long_way
    assert parsed(text.encode()) == long_way


# ---- replies

LABELS = (b"h", b"A-b", b"-x", b"1", b"0x7f", b"a.b", b"localhost", b"ark", b"arpa", b"example", b"c:80", b"\xc3")
replacements = st.lists(st.sampled_from(LABELS), max_size=4).map(tuple)
hosts = st.builds(
    lambda order, name: Naptr(order, 0, b"h", b"ark", b"", name),
    st.integers(0, 1),
    replacements | st.sampled_from([(label,) for label in LABELS] + [(b"h", label) for label in LABELS]),
)
plain_records = st.builds(
    Naptr,
    st.integers(0, 2),
    st.integers(0, 1),
    st.just(b"h"),
    st.just(b"ark"),
    st.just(b""),
    st.sampled_from([(b"h%d" % i, b"Example" if i % 2 else b"example") for i in range(6)]),
)
odd_records = st.builds(
    Naptr,
    st.integers(0, 2),
    st.integers(0, 1),
    st.sampled_from([b"h", b"H", b"u", b"", b"s"]),
    st.sampled_from([b"ark", b"ARK", b"E2U"]),
    st.sampled_from([b"", rb"!^ark:/?12345/(.*)$!https://u.example/\1!", b"USLC"]),
    replacements,
)
rrsets = st.one_of(
    st.lists(plain_records, min_size=1, max_size=5),
    st.lists(hosts, min_size=1, max_size=2),
    st.lists(plain_records | odd_records, max_size=5),
)
ttls = st.sampled_from([0, 60, 300, MAX_TTL, MAX_TTL + 1, 2**32 - 1])
OPT = b"\0" + struct.pack("!HHIH", 41, 1232, 0, 0)
BEHIND = (
    OPT,
    b"\0" + struct.pack("!HHIH", 41, 1232, 1 << 24, 0),  # an extended rcode
    b"\0" + struct.pack("!HHIH", 41, 1232, 0, 6) + b"\0\x0f\0\2\0\6",  # an extended error
    b"\0" + struct.pack("!HHIH", 41, 1232, 0, 3) + b"\0\x0f\0",  # an option cut short
    record("ark.arpa.", NS, names.to_wire((b"ns",))),
    b"\xc0\x12" + struct.pack("!HHIH", NS, 1, 60, 1) + b"\0",
    b"\xc0\x0d" + struct.pack("!HHIH", NS, 1, 60, 1) + b"\0",  # into the middle of a label
    b"\xc0\xff" + struct.pack("!HHIH", NS, 1, 60, 1) + b"\0",
    record("a.example.", SOA, SOA_RDATA),
)
behind = st.lists(st.sampled_from(BEHIND), max_size=3)


def packets(
    records: list[Naptr],
    ttl: int,
    owner: str | None,
    flags: int,
    authority: list[bytes],
    additional: list[bytes],
    cut: int,
) -> tuple[Query, bytes]:
    query = wire.make_query(NAME, random.Random(1).randbytes(80))
    answer = [record(owner, NAPTR, naptr.to_wire(), ttl=ttl) for naptr in records]
    head = query.packet[:2] + struct.pack("!5H", 0x8000 | flags, 1, len(answer), len(authority), len(additional))
    packet = head + query.question + b"".join([*answer, *authority, *additional])
    return query, packet[:-cut] if cut else packet


replies = st.one_of(
    st.builds(packets, rrsets, ttls, st.none(), st.just(0x0400), st.just([]), st.just([OPT]), st.just(0)),
    st.builds(packets, rrsets, st.just(60), st.none(), st.just(0x0400), behind, behind, st.sampled_from([0, 0, 1, 5])),
    st.builds(
        packets,
        rrsets,
        ttls,
        st.sampled_from([None, "12345.ARK.arpa.", "other.example."]),
        st.sampled_from([0x0400, 0x0420, 0x0080, 0, 0x0403, 0x0600]),
        behind,
        behind,
        st.sampled_from([0, 1, 20]),
    ),
)


def damaged(reply: tuple[Query, bytes], damage: list[tuple[int, int]]) -> tuple[Query, bytes]:
    """With other octets at some places, but the query's ID, by which a reply is found."""
    query, packet = reply
    octets = bytearray(packet)
    for at, value in damage:
        octets[at % len(octets)] = value
    return query, query.packet[:2] + bytes(octets[2:])


def long_way(query: Query, packet: bytes) -> Reply | None:
    try:
        return wire.read(query, packet, shortcut=False)
    except ValueError:
        return None


@given(replies, st.lists(st.tuples(st.integers(12, 200), st.integers(0, 255)), max_size=2))
def test_replies_are_read_alike(reply: tuple[Query, bytes], damage: list[tuple[int, int]]) -> None:
    query, packet = damaged(reply, damage)
    short = wire.read_plain(query.name, query.question, packet)
    if short is not None:
        assert wire.answers(query, packet)
        assert short == long_way(query, packet)


@given(replies, st.lists(st.tuples(st.integers(2, 200), st.integers(0, 255)), max_size=2))
def test_a_lone_host_is_read_alike(reply: tuple[Query, bytes], damage: list[tuple[int, int]]) -> None:
    query, packet = damaged(reply, damage)
    lone = LoneReader()
    for before in (reply[1], packet[:-11] + OPT):  # what it remembers changes nothing
        lone(query.question, before)
    short = lone(query.question, packet)
    if short is None:
        return
    order, preference, target, ttl, authentic = short
    whole = long_way(query, packet)
    if host_in_wire(target, None) is None:
        return
    replacement = names.from_wire(target)
    assert whole == Reply(
        0, False, Outcome.ANSWER, (Naptr(order, preference, b"h", b"ark", b"", replacement),), (), ttl, "", authentic
    )


def test_the_commonest_reply_of_all_takes_the_shortest_way() -> None:
    host = Naptr(7, 8, b"h", b"ark", b"", (b"h", b"example"))
    for flags, additional in ((0x0400, [OPT]), (0x0420, []), (0x0580, [OPT[:3] + b"\x10\0" + OPT[5:]])):
        query, packet = packets([host], 60, None, flags, [], additional, 0)
        assert LoneReader()(query.question, packet) == (7, 8, b"\1h\7example\0", 60, flags == 0x0420)
        assert LoneReader()(query.question.swapcase(), packet) is None
        for cut in range(len(packet)):
            assert LoneReader()(query.question, packet[:cut]) is None
        assert LoneReader()(query.question, packet + b"\0") is None


def test_what_stands_behind_the_answer_may_be_known_but_must_be_there() -> None:
    """Name servers and OPT, as NSD sends them, are looked through once, whatever the first label."""
    servers = b"\xc0\x12" + struct.pack("!HHIH", 2, 1, 60, 5) + b"\2ns\xc0\x12"
    host = Naptr(7, 8, b"h", b"ark", b"", (b"h", b"example"))
    for authority, additional in (([servers], [OPT]), ([servers], []), ([], [OPT]), ([], [])):
        lone = LoneReader()
        for _ in range(2):
            query, packet = packets([host], 60, None, 0x0400, authority, additional, 0)
            assert lone(query.question, packet) == (7, 8, b"\1h\7example\0", 60, False)
            for cut in range(1, len(packet)):
                assert lone(query.question, packet[:-cut]) is None
            for odd in (packet + b"\0", packet.replace(b"\0\2\0\1", b"\0\x29\0\1") + b"\0"):
                assert lone(query.question, odd) is None


@pytest.mark.parametrize("last", BEHIND)
def test_whatever_is_behind_the_answer_is_read_alike(last: bytes) -> None:
    query, packet = packets([Naptr(0, 0, b"h", b"ark", b"", (b"h", b"example"))], 60, None, 0x0400, [], [last], 0)
    short = wire.read_plain(query.name, query.question, packet)
    assert short is None or short == long_way(query, packet)


def test_the_commonest_reply_takes_the_short_way() -> None:
    host = Naptr(0, 0, b"h", b"ark", b"", (b"h", b"example"))
    for authority in ([], [b"\xc0\x12" + struct.pack("!HHIH", NS, 1, 60, 1) + b"\0"]):
        for owner in (None, "12345.ark.ARPA."):
            query, packet = packets([host], 60, owner, 0x0400, authority, [OPT], 0)
            assert wire.read_plain(query.name, query.question, packet) is not None


def same(one: Discovery, other: Discovery) -> None:
    assert one == other
    assert repr(one.__reduce__()) == repr(other.__reduce__())  # what is not compared as well
    assert one.to_dict() == other.to_dict()


settings = st.builds(
    Settings,
    origin=st.sampled_from([(b"ark", b"arpa"), (b"ARK", b"arpa"), (b"example",), ()]),
    allow_private=st.booleans(),
    undotted=st.sampled_from([None, (b"example",), (b"ark", b"arpa")]),
    scheme=st.sampled_from(["https", "http"]),
    max_candidates=st.sampled_from([64, 2]),
    max_records=st.sampled_from([2048, 3]),
)


@given(replies, settings, st.booleans())
def test_a_plain_reply_is_discovered_alike(reply: tuple[Query, bytes], how: Settings, trust_ad: bool) -> None:
    query, packet = reply
    how = how._replace(origin=NAME[1:])
    short = Reader(how, trust_ad=trust_ad)(names.to_wire(query.name), query.question, packet, "server", 0.5)
    if short is None:
        return
    whole = long_way(query, packet)
    assert whole is not None
    security = ("secure" if whole.authentic else "insecure") if trust_ad else "indeterminate"
    walk = Walk(ARK, how, shortcut=False)
    walk.tell(
        walk.next()[0], Answer(whole.outcome, whole.records, whole.ttl, whole.note, "server", 0.5, security=security)
    )
    same(short.discovery(ARK, 1000.0 + short.ttl), walk.result(1000.0))


def test_a_packet_larger_than_was_asked_for_is_not_kept_whole() -> None:
    stuffing = [b"\0" + struct.pack("!HHIH", 65280, 1, 60, 1200) + bytes(1200)]
    query, packet = packets([Naptr(0, 0, b"h", b"ark", b"", (b"h", b"example"))], 60, None, 0x0400, stuffing, [OPT], 0)
    assert wire.read_plain(query.name, query.question, packet) is not None
    assert Reader(DEFAULTS)(names.to_wire(query.name), query.question, packet, "server", 0.5) is None


# ---- walks

REGEXPS = (
    rb"!^ark:/?[0-9]+/(x.*)$!https://u.example/\1!",
    rb"!^ark:/?1/(x.*)$!https://u.example:8443/\1!",
    rb"!^ark:/?[01]/(.*)$!http://v.example/\1\1!",
    rb"!^ark:.*$!https://U.example/all!",
    rb"!^ark:/?1/x(.*)$!https://127.0.0.1/\1!",
    rb"!^ark:/?1/x(.*)$!ftp://h.example/\1!",
    rb"!^ark:/?1/x(.*)$!https://h.example\1/!",
    rb"!^ark:/?1/(.*)$!\1!",
    rb"!^ark:/?1/(.*)$!https://h.example/<\1>!",
    rb"!^ark:/?1/(.*)$!https://a@h.example/\1!",
    rb"!^ark:/?1/(.*)$!x!i",
)

answers = st.builds(
    Answer,
    st.sampled_from([Outcome.ANSWER, Outcome.ANSWER, Outcome.NXDOMAIN, Outcome.NODATA, Outcome.SERVFAIL]),
    rrsets.map(tuple),
    st.none() | ttls | st.just(-1),
    st.sampled_from(["", "through CNAME x."]),
    st.just("server"),
    st.just(0.5),
    st.sampled_from(["indeterminate", "secure", "bogus"]),
)


@given(answers, settings)
def test_a_walk_over_what_was_planned_before_is_the_same(answer: Answer, how: Settings) -> None:
    rankings = Rankings()
    for ark in (ARK, ARK, Ark.parse("ark:1/y?info"), ARK):
        remembered = walk_again(ark, how, lambda name: answer, None, rankings)
        made = walk_again(ark, how, lambda name: answer, None, make_ranking)
        assert remembered is not None
        assert made is not None
        same(remembered, made)


@given(answers, settings)
def test_walks_end_alike(answer: Answer, how: Settings) -> None:
    found = []
    for shortcut in (True, False):
        walk = Walk(ARK, how, shortcut=shortcut)
        (question,) = walk.next()
        walk.tell(question, answer)
        found.append((walk.over, walk.steps, walk.next(), walk.result(1000.0)))
    assert found[0][:3] == found[1][:3]
    same(found[0][3], found[1][3])
    assert pickle.loads(pickle.dumps(found[0][3])) == found[1][3]


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("undotted", [None, (b"example",)])
def test_every_host_is_judged_alike(label: bytes, undotted: Labels | None) -> None:
    how = Settings(undotted=undotted)
    for replacement in ((label,), (b"h", label), (label, b"h"), (b"h", b"org", label), (label, b"arpa")):
        found = []
        for shortcut in (True, False):
            walk = Walk(ARK, how, shortcut=shortcut)
            records = (Naptr(0, 0, b"h", b"ark", b"", replacement),)
            walk.tell(walk.next()[0], Answer(Outcome.ANSWER, records, 60))
            found.append(walk.result(1000.0))
        same(*found)


@pytest.mark.parametrize("regexp", REGEXPS)
@pytest.mark.parametrize(
    "ark",
    [
        *map(Ark.parse, ("ark:1/x1", "ark:/1/x1?info", "ark:1/y", "ark:1/x" + "y" * 4090, "ark:2/x")),
        Ark("1", "x", resolution="ark:1/x<é>"),  # as nobody received it
    ],
)
@pytest.mark.parametrize("how", [Settings(), Settings(allow_private=True), Settings(regexp_steps=10)])
def test_every_rule_is_judged_alike(regexp: bytes, ark: Ark, how: Settings) -> None:
    for further in ((), (Naptr(0, 0, b"h", b"ark", b"", (b"h", b"example")),)):
        found = []
        for shortcut in (True, False):
            walk = Walk(ark, how, shortcut=shortcut)
            records = (Naptr(0, 0, b"u", b"ark", regexp, ()), *further)
            walk.tell(walk.next()[0], Answer(Outcome.ANSWER, records, 60))
            found.append(walk.result(1000.0))
        same(*found)


def test_the_commonest_walk_writes_no_trace_until_it_is_looked_at() -> None:
    walk = Walk(ARK)
    walk.tell(walk.next()[0], Answer(Outcome.ANSWER, [Naptr(0, 0, b"h", b"ark", b"", (b"h", b"example"))], 60))
    found = walk.result()
    assert callable(found._trace)
    assert [step.outcome for step in found.trace] == [Outcome.ANSWER]
    assert not callable(found._trace)


# ---- many walks that share

ROOTS: list[Labels] = [(naan, b"ark", b"arpa") for naan in (b"0", b"1", b"2", b"3", b"b")]
ELSEWHERE: list[Labels] = [(b"n%d" % i, b"example") for i in range(3)]
HOST = Naptr(0, 0, b"h", b"ark", b"", (b"h", b"example"))
graph_records = st.one_of(
    plain_records,
    st.builds(
        lambda order, to: Naptr(order, 0, b"", b"ark", b"", to), st.integers(0, 1), st.sampled_from(ROOTS + ELSEWHERE)
    ),
    st.builds(
        lambda order, regexp: Naptr(order, 0, b"u", b"ark", regexp, ()), st.integers(0, 1), st.sampled_from(REGEXPS)
    ),
    st.just(Naptr(0, 0, b"", b"ark", rb"!^.*/(x|y).*$!\1.example!", ())),
)
graphs = st.dictionaries(st.sampled_from(ROOTS + ELSEWHERE), st.lists(graph_records, max_size=3))
texts = st.builds("ark:{}/{}".format, st.integers(0, 3), st.sampled_from(["x1", "y1", "x2/c.pdf", "x1?info"]))
arks = texts.map(Ark.parse) | st.sampled_from([Ark("b", "x1"), Ark("B", "x1"), Ark("b", "y1")])


@given(graphs, st.lists(arks, max_size=12), st.integers(1, 12), st.sampled_from([100_000, 3]), st.randoms())
def test_shared_walks_are_those_of_each_alone(
    zone: dict[Labels, list[Naptr]], asked: list[Ark], at_once: int, max_kept: int, rng: random.Random
) -> None:
    check_shared(zone, asked, at_once, max_kept, rng)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("at_once", [1, 2])
def test_shared_walks_by_hand(seed: int, at_once: int) -> None:
    rule = Naptr(0, 0, b"u", b"ark", REGEXPS[1], ())
    zone = {ROOTS[4]: [HOST], ROOTS[1]: [rule, HOST]}
    asked = [Ark("b", "x1"), Ark("B", "x1"), Ark("1", "x1"), Ark("1", "x2"), Ark("1", "y1")]
    check_shared(zone, asked, at_once, 100_000, random.Random(seed))
    check_shared(zone, asked[2:], at_once, 100_000, random.Random(seed))


def check_shared(
    zone: dict[Labels, list[Naptr]], asked: list[Ark], at_once: int, max_kept: int, rng: random.Random
) -> None:
    def answer(name: Labels) -> Answer:
        records = zone.get(names.fold(name))
        return Answer(Outcome.NXDOMAIN, ttl=60) if records is None else Answer(Outcome.ANSWER, tuple(records), 60)

    def packet(name: Labels) -> tuple[bytes, bytes]:
        query = wire.make_query(name, rng.randbytes(80))
        parts = [record(None, NAPTR, naptr.to_wire(), ttl=60) for naptr in zone.get(names.fold(name), [])]
        head = query.packet[:2] + struct.pack("!5H", 0x8400, 1, len(parts), 0, 1)
        return query.question, head + query.question + b"".join(parts) + OPT

    reader = Reader(DEFAULTS)
    asked = asked + asked[::2]  # further ARKs of the same NAANs, when their roots are known
    many: Many[int] = Many(
        DEFAULTS, lifetime=5.0, clock=lambda: 0.0, reader=reader, max_kept=max_kept, now=lambda: 1000.0
    )
    names_asked: list[bytes] = []
    left = list(enumerate(asked))
    while left or many.open:
        for number, ark in left[:at_once]:
            many.start(number, ark)
        del left[:at_once]
        new = many.take() + [onward.name for onward in many.take_onward()]
        names_asked += new
        for wanted in rng.sample(new, len(new)):
            name = names.from_wire(wanted)
            short = zone.get(names.fold(name)) and rng.random() < 0.7
            many.tell(wanted, (reader(wanted, *packet(name), "server", 0.5) if short else None) or answer(name))
    assert max_kept == 3 or len(set(names_asked)) == len(names_asked)
    assert len(many.done) == len(asked)
    for number, found in many.done:
        walk = Walk(asked[number], shortcut=False)
        while questions := walk.next():
            for question in questions:
                walk.tell(question, answer(question.name))
        alone = walk.result(1000.0)
        assert found == alone
        assert (found.ttl, found.expiration, found.urls()) == (alone.ttl, alone.expiration, alone.urls())


@given(st.lists(st.sampled_from([*ROOTS, *ELSEWHERE, (), (b"a",), (b"a" * 63, b"b" * 63)]), min_size=1, max_size=9))
def test_questions_written_together_are_questions(asked: list[Labels]) -> None:
    rng = random.Random(1)
    for name, question in zip(asked, wire.questions([*map(names.to_wire, asked)], rng.randbytes), strict=True):
        assert names.from_wire(question[:-4].lower()) == names.fold(name)
        assert question.lower() == wire.make_query(name, b"\0\0", mix=False).question.lower()
    letters = wire.questions([names.to_wire((b"abcdefghijklmnopqrstuvwxyz",))] * 50, rng.randbytes)
    assert len(set(letters)) == 50
