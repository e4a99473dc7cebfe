"""Unusual and hostile queries of each kind in ``scripts/benchmark/odd.py``: the responder returns the bytes of the
general path, with or without the shortcut, even with TSIG and transfers configured."""

from __future__ import annotations

import itertools
import random

import dns.message
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maptr.answer.context import Context, Identity, ReceivedQuery, Transport
from maptr.answer.ready import CLIENT_OPTION, WHOLE_OPTION
from maptr.config.model import RrlConfig
from maptr.protocol.cookies import CookieSettings
from maptr.server.counters import Counters
from maptr.server.responder import Responder, ServerState
from maptr.transfer.session import Access
from maptr.zone.snapshot import Snapshot
from scripts.benchmark.loads import ark_zone
from scripts.benchmark.odd import DO, ERRORS, ODD, QUESTIONS, ask, opt, option, tsig
from tests.answer.test_ready import CLIENT, CONTEXT, NOW, SECRETS, Server
from tests.support.answers import PACKETS, SNAPSHOT, snapshot_of
from tests.support.transfers import answered

ZONE = snapshot_of((ark_zone(50), "ark.arpa."), ("@ 60 SOA ns1 h 1 2 3 4 5\n@ 60 NS ns1\n", "arpa."))
# Wildcards, aliases, a delegation, and names of several labels in the SOA record.
MIXED_TEXT = (
    "@ 60 SOA a.ns1 x.hostmaster 1 2 3 4 5\n@ 60 NS a.ns1\na.ns1 60 A 192.0.2.1\n*.wild 60 A 192.0.2.1\n"
    "*.wild 60 MX 1 some.wild\n*.alias 60 CNAME b.wild\ncut 60 NS ns.cut\nns.cut 60 A 192.0.2.2\n"
)
MIXED = snapshot_of((MIXED_TEXT, "ark.arpa."))
IDENTITIES = Identity("here", "1", "host")
CONTEXTS = CONTEXT, Context(identity=IDENTITIES, cookies=CookieSettings(SECRETS), clock=lambda: NOW)
ORDINARY = ("types", "DS of the origin", "DO", "random sizes")


def whole(query: bytes, snapshot: Snapshot, context: Context, transport: Transport = Transport.UDP) -> list[bytes]:
    """Return all messages of the response without the shortcut."""
    return [*answered(query, snapshot, Access(), now=int(NOW), context=context, transport=transport, client=CLIENT)]


class PathsCompared:
    """A responder with the shortcut, and the general path to compare it with."""

    def __init__(self, snapshot: Snapshot, context: Context) -> None:
        self.responder = Responder(context, rrl=RrlConfig(responses_per_second=0))
        self.responder.swap(ServerState(snapshot, Access(), context))
        self.snapshot, self.context = snapshot, context
        self.counters = Counters()

    def check(self, query: bytes, transport: Transport = Transport.UDP) -> None:
        """Check twice that both give the same response; the second time it may come from the shortcut."""
        expected = whole(query, self.snapshot, self.context, transport=transport)
        for _ in range(2):
            assert [*self.responder.answers(ReceivedQuery(query, transport, CLIENT), self.counters)] == expected, (
                query.hex()
            )


def damaged(query: bytes, rng: random.Random) -> bytes:
    """Return the query with some bytes changed, removed or inserted."""
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


@pytest.mark.parametrize("kind", [*ODD, "the vectors"])
def test_shortcut_and_general_path_give_the_same_response(kind: str) -> None:
    """The queries of each kind are sent intact and damaged."""
    rng = random.Random(kind)
    snapshots, rounds = ((ZONE, MIXED), 20) if kind in ODD else ((SNAPSHOT,), 250)
    servers = [PathsCompared(snapshot, context) for snapshot in snapshots for context in CONTEXTS]
    for _ in range(rounds):
        undamaged = ODD[kind](rng) if kind in ODD else bytes.fromhex(rng.choice(PACKETS["case"])["packet"])
        query = damaged(undamaged, rng)
        for server in servers:
            for transport in Transport:
                server.check(undamaged, transport)
                server.check(query, transport)


@pytest.mark.parametrize("kind", ORDINARY)
def test_rare_but_ordinary_queries_get_a_ready_response(kind: str) -> None:
    """For example NODATA for any type, DS at an apex, missing names with DO, any payload size."""
    rng = random.Random(kind)
    server = Server(ZONE)
    query = ODD[kind](rng)
    if kind == "random sizes":
        query = ask((b"10001", b"ark", b"arpa"), 35, opt(size=4321))
    assert not server.ask(query)
    assert server.ask(query)


@pytest.mark.parametrize("kind", [*ERRORS, "opcodes", "NOTIFY", "UPDATE", "an unknown key", "no question, a cookie"])
def test_unusual_queries_always_take_the_general_path(kind: str) -> None:
    rng = random.Random(kind)
    server = Server(ZONE)
    for query in [ODD[kind](rng) for _ in range(20)]:
        assert not server.ask(query)
        assert not server.ask(query)


def test_ready_responses_of_class_chaos_match_their_names() -> None:
    server = PathsCompared(ZONE, CONTEXTS[1])
    for name in ("other.bind.", "version.bind.", "other.bind.", "id.server.", "version.bind."):
        server.check(dns.message.make_query(name, "TXT", "CH").to_wire())


@pytest.mark.parametrize("learned", ["q.ns1", "q.hostmaster", "q.x", "qq"])
def test_questions_for_names_in_the_soa_record_get_correct_compression(learned: str) -> None:
    """The questions include names of the same length as those in the SOA record, and names below them."""
    names = ("ns1", "x.ns1", "a.ns1", "x.a.ns1", "ns1.ns1", "hostmaster", "y.hostmaster", "x.hostmaster", "x.x", "z.x")
    for name in names:
        server, labels = Server(MIXED), (learned, learned, learned.replace("q", "r"), name, name)
        for label, rdtype in itertools.product(labels, ("TXT", "A")):
            server.ask(dns.message.make_query(f"{label}.ark.arpa.", rdtype).to_wire())


def test_tsig_is_checked_before_other_errors() -> None:
    query = ask((b"x",), 16, b"\0" + b"\0\xfa\0\xff" + bytes(6), rdclass=3)
    PathsCompared(ZONE, CONTEXT).check(query)
    assert whole(query, ZONE, CONTEXT)[0][3] & 15 == 1  # FORMERR because of the malformed TSIG
    query = b"\0\1\1\0\0\2\0\0\0\0\0\1" + ask((b"x",))[12:] * 2 + tsig(random.Random(0), b"a-key")
    PathsCompared(ZONE, CONTEXT).check(query)
    assert whole(query, ZONE, CONTEXT)[0][10:12] == b"\0\1"  # the TSIG record with the error


@given(st.sampled_from([*QUESTIONS]), st.binary(max_size=14), st.randoms(use_true_random=False))
def test_bytes_after_the_last_record_do_not_change_the_response(kind: str, tail: bytes, rng: random.Random) -> None:
    query, server = QUESTIONS[kind](rng), PathsCompared(MIXED, CONTEXT)
    server.check(query)
    server.check(query + tail)


PIECES = (
    *(b"", b"\0", CLIENT_OPTION, WHOLE_OPTION, CLIENT_OPTION[:3], opt()[:-2], opt(), opt(option(10, bytes(8)))),
    *(opt(option(10, bytes(size)))[:-size] for size in (8, 24, 16, 40)),
    *(opt(option(65001, b"x"), option(10, bytes(size)))[:-size] for size in (8, 24)),
)
COOKIES = st.sampled_from((8, 24)).flatmap(lambda size: st.binary(min_size=size, max_size=size))
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
@example(b"10001", opt(option(10, bytes(13) + opt())))
@example(b"10001", opt(option(10, bytes(1) + opt(option(10, bytes(8))))))
def test_shortcut_finds_the_same_cookie_as_the_general_path(label: bytes, tail: bytes) -> None:
    """The shortcut finds the cookie by its offset, and a cookie may look like an OPT."""
    LEARNED.check(ask((label, b"ark", b"arpa"), 35, tail))


# It has learned responses for some names, with each kind of cookie and without a cookie.
LEARNED = PathsCompared(ZONE, CONTEXT)
for known in (b"10001", b"10002", b"absent"):
    for options in ((), (option(10, bytes(8)),), (option(10, bytes(24)),)):
        LEARNED.check(ask((known, b"ark", b"arpa"), 35, opt(*options)))
