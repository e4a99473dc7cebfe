"""What an attacker would ask: every kind of ``scripts/benchmark/odd.py`` is answered alike by what lies ready, by the
plans of a listener, and by all that stands behind both; and most of it is ready."""

from __future__ import annotations

import random

import dns.message
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maptr.answer import make_reply
from maptr.context import Context, Identity, Transport
from maptr.cookies import CookieSettings
from maptr.exchange import NOBODY, Access, Catalog, exchange
from maptr.ready import CLIENT_OPTION, COOKIE_SIZES, OPT_START, WHOLE_OPTION, cookie_size
from maptr.serve.hashing import make_shared_hash
from maptr.serve.plan import USUAL_SIZE
from maptr.serve.responder import make_ready
from maptr.serve.slots import key_of
from maptr.serve.wholes import Wholes
from maptr.siphash import siphash24
from maptr.snapshot import Snapshot
from scripts.benchmark.loads import ark_zone
from scripts.benchmark.odd import DO, ERRORS, ODD, QUESTIONS, ask, opt, option, tsig
from tests.test_fastpath import hold, ready_of, snapshot_of
from tests.test_plans import CLIENT, CONTEXT, NOW, SECRETS, Server

ZONE = snapshot_of((ark_zone(50), "ark.arpa."), ("@ 60 SOA ns1 h 1 2 3 4 5\n@ 60 NS ns1\n", "arpa."))
# Wildcards, aliases, a delegation, and names in the SOA of several labels.
MIXED = snapshot_of(
    (
        "@ 60 SOA a.ns1 x.hostmaster 1 2 3 4 5\n@ 60 NS a.ns1\na.ns1 60 A 192.0.2.1\n*.wild 60 A 192.0.2.1\n"
        "*.wild 60 MX 1 some.wild\n*.alias 60 CNAME b.wild\ncut 60 NS ns.cut\nns.cut 60 A 192.0.2.2\n",
        "ark.arpa.",
    )
)
CONTEXTS = (
    CONTEXT,
    Context(identity=Identity("here", "1", "host"), cookies=CookieSettings(SECRETS), clock=lambda: NOW),
)
# Nothing of these lies ready: others have a say in them, or they come in more ways than can be learned.
GENERAL = {
    *("opcodes", "NOTIFY", "UPDATE", "UPDATE of no zone", "no question, a cookie", "an unknown key", "IXFR"),
}


def whole(
    query: bytes,
    snapshot: Snapshot,
    context: Context,
    access: Access = Access(),  # noqa: B008
    transport: Transport = Transport.UDP,
) -> list[bytes]:
    """All that the server sends back, by the way of signatures and transfers."""

    def reply(query: bytes, snapshot: Snapshot, *, verified: bool, **others: object) -> bytes | None:
        made = make_reply(query, snapshot, context=context, **others)  # type: ignore[arg-type]
        return None if made is None else made.wire

    return [*exchange(query, snapshot, access, transport=transport, client=CLIENT, now=int(NOW), reply=reply)]


def damaged(query: bytes, rng: random.Random) -> bytes:
    """The query with some octets changed, left out or put in, where that changes what it means."""
    octets = bytearray(query)
    for _ in range(rng.randint(1, 5)):
        place = rng.randrange(len(octets) + 1)
        match rng.randrange(4):
            case 0:
                octets[place : place + 1] = bytes((rng.choice((0, 1, 2, 0x29, 0x80, 0xC0, 0xFA, 0xFB, 0xFC)),))
            case 1:
                octets[10 + place % 2 : 11 + place % 2] = bytes((rng.randrange(3),))
            case 2:
                octets[place:place] = rng.choice((b"\0", b"\0\x29", opt(), opt(option(10, bytes(8)))[3:], b"\xc0\x0c"))
            case _:
                del octets[max(place, 12) :]
    return bytes(octets)


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("context", CONTEXTS, ids=["nobody", "somebody"])
@pytest.mark.parametrize("snapshot", [ZONE, MIXED], ids=["plain", "mixed"])
def test_all_ways_give_the_same(kind: str, context: Context, snapshot: Snapshot) -> None:
    rng = random.Random(kind)
    queries = [rng.randbytes(2) + ODD[kind](rng)[2:] for _ in range(40)]
    server = Server(snapshot, context)
    for query in queries:
        found = server.ready.find(query, stream=False)
        assert found is None or found.cookie is None or len(found.cookie) in COOKIE_SIZES
        if found is not None and found.cookie is None:
            assert [found.reply(query)] == whole(query, snapshot, context), query.hex()
    for _ in range(3):
        server.hold(queries)


@pytest.mark.parametrize("kind", ODD)
def test_what_is_damaged_gets_the_same(kind: str) -> None:
    rng = random.Random(kind)
    answers = [(context, make_ready(MIXED, context)) for context in CONTEXTS]
    for _ in range(150):
        query = damaged(ODD[kind](rng), rng)
        for context, ready in answers:
            for transport in (Transport.UDP, Transport.TLS):
                found = ready.find(query, stream=transport is not Transport.UDP)
                if found is not None and found.cookie is None:
                    assert [found.reply(query)] == whole(query, MIXED, context, transport=transport), query.hex()


@pytest.mark.parametrize("rdclass", [3, 255])
def test_a_transfer_in_another_class_is_nobodys_else(rdclass: int) -> None:
    query = ask((b"x", b"ark", b"arpa"), 252, opt(), rdclass=rdclass)
    assert ready_of(ZONE).find(query, stream=False) is None


@pytest.mark.parametrize("kind", sorted(ODD.keys() - {"random octets"}))
def test_what_is_ready(kind: str) -> None:
    rng = random.Random(kind)
    ready = make_ready(ZONE, CONTEXT)
    found = [ready.find(ODD[kind](rng), stream=False) is not None for _ in range(100)]
    assert sum(found) > 60 if kind not in GENERAL else sum(found) < 40


def test_what_comes_but_once_is_known_by_what_all_have_in_common() -> None:
    rng = random.Random(0)
    server = Server(snapshot_of((ark_zone(2000), "ark.arpa.")))
    for rdtype in (16, 35):
        server.hold([ask((b"%d" % naan, b"ark", b"arpa"), rdtype, opt()) for naan in range(10_000, 12_000)])
    before = len(server.plans.tables.known)
    assert before > 1000
    for kind in ("octets after it", "padding", "a hundred options", "a subnet", "a record", "two OPTs"):
        server.hold([ODD[kind](rng) for _ in range(300)])
    assert len(server.plans.tables.known) == before


def test_flags_that_nobody_has_make_no_more_plans() -> None:
    rng = random.Random(0)
    server = Server(snapshot_of((ark_zone(2000), "ark.arpa.")))
    for kind in ("random flags", "random flags of EDNS"):
        server.hold([ODD[kind](rng) for _ in range(1000)])
    known = server.plans.tables.known
    assert len(known) > 1000
    for key in known:
        end = int.from_bytes(key[-2:], "little") - 2
        assert (key[0] & ~1, key[1] & ~0x30, key[end - 4] & ~0xC0, key[end - 3]) == (0, 0, 0, 0)


def test_a_name_of_class_chaos_that_says_something_is_none_that_does_not() -> None:
    server = Server(ZONE, CONTEXTS[1])
    for name in ("other.bind.", "version.bind.", "other.bind.", "id.server.", "version.bind."):
        server.hold([dns.message.make_query(name, "TXT", "CH").to_wire()] * 2)


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_that_no_name_changes_are_known_by_their_pattern(kind: str) -> None:
    rng = random.Random(kind)
    server = Server(ZONE)
    server.hold([ERRORS[kind](rng) for _ in range(300)])
    server.found = 0
    server.hold([ERRORS[kind](rng) for _ in range(300)])
    assert server.found > 250


@pytest.mark.parametrize(
    "name", ["ns1", "x.ns1", "a.ns1", "x.a.ns1", "ns1.ns1", "hostmaster", "y.hostmaster", "x.hostmaster", "x.x", "z.x"]
)
@pytest.mark.parametrize("learned", ["q.ns1", "q.hostmaster", "q.x", "qq"])
def test_labels_of_the_soa_compress_further(name: str, learned: str) -> None:
    server = Server(MIXED)
    for label in (learned, learned, learned.replace("q", "r"), name, name):
        for rdtype in ("TXT", "A"):
            server.hold([dns.message.make_query(f"{label}.ark.arpa.", rdtype).to_wire()])


def test_transfers_by_a_stream_are_nobodys_else() -> None:
    ready = ready_of(ZONE)
    for rdtype in ("AXFR", "IXFR"):
        query = dns.message.make_query("ark.arpa.", rdtype).to_wire()
        assert ready.find(query, stream=True) is None
        assert (ready.find(query, stream=False) is not None) is (rdtype == "AXFR")


def test_a_signature_is_looked_at_before_any_error() -> None:
    query = ask((b"x",), 16, b"\0" + b"\0\xfa\0\xff" + bytes(6), rdclass=3)
    assert ready_of(ZONE).find(query, stream=False) is None
    assert whole(query, ZONE, CONTEXT)[0][3] & 15 == 1  # FORMERR, of the signature
    rng = random.Random(0)
    twice = ask((b"x",))[12:] * 2 + tsig(rng, b"a-key")
    query = b"\0\1\1\0\0\2\0\0\0\0\0\1" + twice
    assert ready_of(ZONE).find(query, stream=False) is None
    assert whole(query, ZONE, CONTEXT)[0][10:12] == b"\0\1"  # the error of its signature goes along


def test_what_is_plain_goes_the_same_way_as_all() -> None:
    """A catalog for nobody changes no reply, but sends every query the long way."""
    view = next(iter(snapshot_of(("@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS invalid.\n", "catalog.test.")).zones.values()))
    access = Access(catalog=Catalog(view, NOBODY))
    rng = random.Random(0)
    for make in ODD.values():
        query = make(rng)
        assert whole(query, ZONE, CONTEXT) == whole(query, ZONE, CONTEXT, access)


@given(st.sampled_from([*QUESTIONS]), st.binary(max_size=14), st.randoms(use_true_random=False))
def test_octets_after_all_that_is_counted_change_nothing(kind: str, tail: bytes, rng: random.Random) -> None:
    query = QUESTIONS[kind](rng) + tail
    hold(READY, MIXED, query)
    VETERAN.hold([query, query])


READY, VETERAN = ready_of(MIXED), Server(MIXED)


def test_the_library_hashes_as_python_does() -> None:
    siphash = make_shared_hash()
    rng = random.Random(0)
    for size in (0, 16, 20, 32, 20):
        key, data = rng.randbytes(16), rng.randbytes(size)
        assert siphash(key, data) == siphash24(key, data)


def test_the_general_path_is_not_asked_for_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def general(query: bytes, /, *, transport: Transport) -> object:
        asked.append(query)
        return make_reply(query, ZONE, transport=transport)

    monkeypatch.setattr("maptr.learned.MAX_LEARNED", 5)
    ready = ready_of(ZONE)
    ready._learned._general = general  # type: ignore[assignment]
    for _ in range(20):
        assert ready.find(ask((b"x",), 16, opt(), rdclass=255), stream=False) is not None
    assert len(asked) == 1
    for rdclass in range(10, 30):
        ready.find(ask((b"x",), 16, opt(), rdclass=rdclass), stream=False)
        assert len(ready._learned._settled) <= 5


def test_a_cookie_behind_all_that_is_counted_is_nobodys() -> None:
    ready, known = make_ready(ZONE, CONTEXT), Wholes()
    query = ask((b"10001", b"ark", b"arpa"), 35, *(opt(option(10, client * 8)) for client in (b"a", b"b")))
    found = ready.find(query)
    assert found is not None
    assert found.cookie == b"a" * 8
    known.learn_ready(query, found, found.reply(query, bytes(24)))
    assert known.find(query[2:]) is None


PIECES = (
    *(b"", b"\0", CLIENT_OPTION, WHOLE_OPTION, CLIENT_OPTION[:3], opt()[:-2], opt(), opt(option(10, bytes(8)))),
    *(opt(option(10, bytes(size)))[:-size] for size in (8, 24, 16, 40)),
    *(opt(option(65001, b"x"), option(10, bytes(size)))[:-size] for size in (8, 24)),
)
COOKIES = st.sampled_from(COOKIE_SIZES).flatmap(lambda size: st.binary(min_size=size, max_size=size))
ODD_TAILS = st.tuples(st.sampled_from(PIECES), st.sampled_from(PIECES), COOKIES | st.binary(max_size=41)).map(b"".join)
TAILS = st.builds(
    lambda cookie, size, flags: opt(option(10, cookie), size=size, flags=flags),
    COOKIES,
    st.sampled_from([1232, 512, 0x4144]),
    st.sampled_from([0, 0, DO, 1]),
)


@given(st.sampled_from([b"10001", b"10002", b"absent", b"Absent"]), TAILS | ODD_TAILS)
@example(b"10001", opt(option(10, CLIENT_OPTION * 6)))
@example(b"10001", opt(option(10, bytes(15) + b"\x08" + bytes(8))))
@example(b"10001", opt(option(10, bytes(15) + b"\x29" + bytes(8))))
def test_all_who_read_a_cookie_at_the_end_read_the_same(label: bytes, tail: bytes) -> None:
    """That which reading the whole query finds, alone in its OPT; those that go by octets know no other."""
    query = ask((label, b"ark", b"arpa"), 35, tail)
    found = TAUGHT.ready.find(query)
    cookie = found.cookie if found is not None and found.key_size(query) else None
    whole = WHOLES.find(query[2:])
    _, by_plans = TAUGHT.plans.tables.fill([0], [None], [key_of(query[2:])], [len(query)])
    if cookie is None:
        assert whole is None or not whole[2]
        assert not by_plans
        return
    taught = not any(tail[5:9])  # flags; plans are for all payload sizes, whole replies for the one that was asked with
    # A cookie in which an option or its length seems to begin is left to those who read all.
    alike = cookie[-12:-8] == CLIENT_OPTION, len(cookie) == 24 and cookie[15] in (CLIENT_OPTION[-1], OPT_START[-1])
    assert alike[0] or cookie_size(query) == len(cookie)
    exists = taught and tail[3:5] == USUAL_SIZE and label.isdigit()  # who does not is not kept whole
    assert (whole and whole[2]) == (cookie if exists and not alike[0] else None)
    assert by_plans == ([(0, cookie)] if taught and not alike[1] else [])


def taught() -> tuple[Server, Wholes]:
    """What knows replies to some names, with each kind of cookie."""
    server, whole = Server(ZONE), Wholes()
    for label in (b"10001", b"10002", b"absent", b"absent"):
        for size in COOKIE_SIZES:
            query = ask((label, b"ark", b"arpa"), 35, opt(option(10, bytes(size))))
            server.hold([query])
            found = server.ready.find(query)
            assert found is not None
            whole.learn_ready(query, found, found.reply(query, bytes(24)))
    return server, whole


TAUGHT, WHOLES = taught()
