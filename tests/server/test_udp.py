"""UDP on real sockets, with and without batches: the responses have the same bytes as on the general path.

``tests/answer/test_respond.py`` checks the general path, and ``scripts/differential`` compares it with NSD and Knot.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import random
import select
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dns.edns
import dns.message
import dns.opcode
import dns.rcode
import dns.zone
import pytest

from maptr.answer import ready as shortcut
from maptr.answer.context import ReceivedQuery
from maptr.answer.respond import make_reply, respond
from maptr.config.model import RrlConfig
from maptr.daemon import sockets
from maptr.protocol.address import read_network
from maptr.protocol.cookies import CookieSettings
from maptr.server import batch, udp
from maptr.server.counters import Counters
from maptr.server.responder import Responder, ServerState
from maptr.transfer.session import Access
from maptr.zone.snapshot import Snapshot
from tests.answer.test_ready import NOW, SECRETS, make_query
from tests.support.answers import ANSWER, PACKETS
from tests.support.streams import responding, wait_for
from tests.support.waiting import PATIENCE
from tests.support.zones import snapshot_of_zones

SNAPSHOT = snapshot_of_zones(dns.zone.from_text(ANSWER["zone"], "example.", relativize=False))
HOSTS = ["127.0.0.1", "::1", "0.0.0.0", "::"]
LIMIT = RrlConfig(responses_per_second=5, exempt=())
NO_LIMIT = RrlConfig(responses_per_second=1_000_000, exempt=())  # no response is limited, but each is counted
OPT_COOKIE = bytes.fromhex("00002904d0000000000000")  # an OPT record

KNOWN = dns.message.make_query("12345.example.", "NAPTR", use_edns=0).to_wire()
ABSENT = dns.message.make_query("nowhere.example.", "NAPTR", use_edns=0).to_wire()
UPDATE = dns.message.make_query("example.", "SOA")
UPDATE.set_opcode(dns.opcode.UPDATE)

needs_batches = pytest.mark.skipif(batch.why_not() is not None, reason=f"no batches: {batch.why_not()}")


def make_responder(**settings: Any) -> Responder:
    """Return a responder that makes all cookies at the same time."""
    cookies = CookieSettings(SECRETS, required=settings.pop("cookies_required", False))
    return responding(SNAPSHOT, context={"cookies": cookies, "clock": lambda: NOW}, **settings)


def swap(responder: Responder, snapshot: Snapshot, **context: Any) -> None:
    responder.swap(ServerState(snapshot, Access(), replace(responder.state.context, **context)))


@contextlib.contextmanager
def listening(responder: Responder, host: str = "127.0.0.1") -> Iterator[tuple[Counters, tuple[str, int]]]:
    """Run a batch listener. Yields its counters and its address. Skips the test if batches are not supported."""
    if reason := batch.why_not():
        pytest.skip(f"no batches: {reason}")
    sock = sockets.open_udp(host, 0)
    port = sock.getsockname()[1]
    counters = Counters()
    listener = udp.BatchListener(sock, responder, counters)
    listener.start()
    try:
        yield counters, ("::1" if ":" in host else "127.0.0.1", port)
    finally:
        asyncio.run(listener.stop())


@contextlib.contextmanager
def client(address: tuple[str, int], source: str = "") -> Iterator[socket.socket]:
    """Yield a socket that sends from ``source``, and receives only from this address."""
    with socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.settimeout(PATIENCE)
        if source:
            sock.bind((source, 0))
        sock.connect(address)
        yield sock


def ask(address: tuple[str, int], queries: list[bytes], source: str = "") -> dict[bytes, bytes]:
    """Send queries at once, and a last one from 127.0.0.1. Returns the responses until its response, by ID."""
    replies: dict[bytes, bytes] = {}
    last = b"\xff\xff" + dns.message.make_query("example.", "SOA").to_wire()[2:]

    def take(sock: socket.socket) -> None:
        reply = sock.recv(65535)
        assert reply[:2] not in replies, "two replies to one query"
        replies[reply[:2]] = reply

    def take_all(sock: socket.socket) -> None:
        while select.select([sock], [], [], 0)[0]:
            take(sock)

    with client(address, source) as sock, client(address) as other:
        for query in queries:
            sock.send(query)
            take_all(sock)
        patient = other if source else sock
        patient.send(last)
        while last[:2] not in replies:
            take(patient)
        take_all(sock)
    del replies[last[:2]]
    return replies


def ask_one(address: tuple[str, int], query: bytes) -> bytes:
    return ask(address, [query])[query[:2]]


def expect(query: bytes, responder: Responder, client: str) -> bytes | None:
    """Return the response of the general path."""
    return respond(query, SNAPSHOT, client=client, context=responder.state.context)


def check(address: tuple[str, int], queries: list[bytes], responder: Responder) -> None:
    """Send numbered queries at once, and check that each gets the response of the general path, or no response."""
    replies = ask(address, queries)
    for query in queries:
        assert replies.get(query[:2]) == expect(query, responder, address[0]), query.hex()


def numbered(queries: list[bytes]) -> list[bytes]:
    return [number.to_bytes(2, "big") + query[2:] for number, query in enumerate(queries)]


def with_cookie(*options: dns.edns.Option) -> bytes:
    return dns.message.make_query("12345.example.", "NAPTR", use_edns=0, options=[*options]).to_wire()


def total(counters: Counters) -> int:
    return sum(counters.to_dict().get("udp", {}).values())


COOKIE = with_cookie(dns.edns.CookieOption(b"clientck", b""))


# --- the responses of the general path


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("seed", range(3))
def test_a_batch_of_random_queries_gets_the_responses_of_the_general_path(host: str, seed: int) -> None:
    rng = random.Random(seed)
    queries = [make_query(case["name"], case["type"], rng) for case in ANSWER["case"]] + [KNOWN, ABSENT, COOKIE]
    queries += [bytes.fromhex(case["packet"]) for case in PACKETS["case"]] * 2
    queries += [rng.randbytes(rng.randint(0, 60)) for _ in range(20)] + [bytes(size) for size in range(16)]
    rng.shuffle(queries)
    queries = numbered(queries * 2)
    responder = make_responder(rrl=NO_LIMIT)
    with listening(responder, host) as (counters, address):
        for _ in range(2):  # the second time from learned responses
            check(address, [b"", b"x", *queries, b""], responder)
    assert total(counters) == counters.received == 2 * (len(queries) + 4)
    assert counters.received == counters.ready + counters.general
    assert min(counters.ready, counters.general, counters.silent) > 0
    assert counters.calls < counters.received


def test_queries_of_any_size_are_answered() -> None:
    query = dns.message.make_query("example.", "NS").to_wire()
    padded = query[:11] + b"\1" + query[12:] + OPT_COOKIE[:-2]
    sizes = (5000, 20_000, 60_000)
    queries = [padded + (n + 4).to_bytes(2, "big") + b"\0\x0c" + n.to_bytes(2, "big") + bytes(n) for n in sizes]
    queries = numbered([*queries, query + bytes(65_507 - len(query)), query])
    responder = make_responder()
    with listening(responder) as (_, address):
        for _ in range(2):
            check(address, queries, responder)


@pytest.mark.parametrize("limit", ["MAX_RECORDS", "MAX_TABLES", "ARENA_SIZE"])
def test_a_table_that_is_full_during_a_batch_changes_no_response(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The responses found for the first queries of a batch do not change until they are sent."""
    monkeypatch.setattr(shortcut, limit, 4096 if limit == "ARENA_SIZE" else 3)
    rng = random.Random(limit)
    responder = make_responder()
    with listening(responder) as (counters, address):
        for _ in range(5):
            few = rng.sample(ANSWER["case"], 8)
            queries = numbered([make_query(case["name"], case["type"], rng) for case in few * 40])
            check(address, queries, responder)
    assert counters.ready > 0


# --- the rate limit


def test_the_rate_limit_applies_to_the_shortcut_and_the_general_path() -> None:
    """Over the limit, every second response is truncated, and the others are dropped."""
    for query in (KNOWN, ABSENT, UPDATE.to_wire()):
        responder = make_responder(rrl=LIMIT, clock=lambda: 1000.0)
        with listening(responder) as (counters, address):
            replies = ask(address, numbered([query] * 300))
        reply = make_reply(ReceivedQuery(query), SNAPSHOT)
        assert reply is not None
        whole = [one for one in replies.values() if one[2:] == reply.wire[2:]]
        cut = [one for one in replies.values() if one[2:] == reply.truncated()[2:]]
        assert (len(whole), len(cut), len(replies)) == (5, 147, 152) if reply.wire != reply.truncated() else True
        tally = responder.limiter.tally
        assert (tally.dropped, tally.truncated) == (148, 147)
        assert counters.silent == 148
        assert total(counters) == counters.received == 301


def test_limited_and_exempt_clients_in_one_batch() -> None:
    rrl = replace(LIMIT, exempt=(read_network("127.0.0.1/32"),))
    responder = make_responder(rrl=rrl, clock=lambda: 1000.0)
    with listening(responder) as (counters, address):
        for _ in range(2):
            assert len(ask(address, numbered([KNOWN] * 100))) == 100
        assert len(ask(address, numbered([KNOWN] * 100), source="127.0.0.2")) == 5 + 47
        assert len(ask(address, numbered([KNOWN] * 100))) == 100
        assert counters.silent == 48
        with client(address) as one, client(address, "127.0.0.2") as other:
            for number in range(50):
                (one, other)[number % 2].send(KNOWN)
            assert [one.recv(65535)[2:] for _ in range(25)] == [expect(KNOWN, responder, "")[2:]] * 25  # type: ignore[index]


# --- cookies


def test_cookies_are_given_and_checked() -> None:
    responder = make_responder(rrl=RrlConfig(responses_per_second=20, exempt=()), clock=lambda: 1000.0)
    with listening(responder) as (counters, address):
        for _ in range(3):  # from the general path, then from the shortcut
            reply = ask_one(address, COOKIE)
            assert reply == expect(COOKIE, responder, "127.0.0.1")
            (given,) = dns.message.from_wire(reply).options
        again = with_cookie(given)
        replies = ask(address, numbered([again] * 100))
        assert len(replies) == 100, "no limit for a client with a cookie of ours"
        assert all(dns.message.from_wire(reply).options == (given,) for reply in replies.values())
        assert (counters.verified, counters.unverified) == (100, 3)
        forged = again[:-1] + bytes((again[-1] ^ 1,))
        assert len(ask(address, numbered([forged] * 100))) < 100
        assert (counters.verified, counters.unverified) == (100, 103)


def test_each_client_of_a_batch_gets_its_own_cookie() -> None:
    """The cookie is the last option, or it precedes a client subnet option, which has eight bytes too."""
    subnet = dns.edns.ECSOption("192.0.2.0", 32)
    queries = []
    for number in range(100):
        cookie = dns.edns.CookieOption(number.to_bytes(8, "big"), b"")
        orders: list[list[dns.edns.Option]] = [[cookie], [cookie, subnet], [subnet, cookie], [subnet]]
        queries.append(with_cookie(*orders[number % 4]))
    responder = make_responder()
    with listening(responder) as (_, address):
        for _ in range(3):
            check(address, numbered(queries), responder)


def test_cookies_can_be_required() -> None:
    responder = make_responder(cookies_required=True)
    with listening(responder) as (counters, address):
        for _ in range(3):
            refused = dns.message.from_wire(ask_one(address, COOKIE))
            assert refused.rcode() == dns.rcode.BADCOOKIE
            for _ in range(3):
                good = with_cookie(*refused.options)
                assert dns.message.from_wire(ask_one(address, good)).rcode() == dns.rcode.NOERROR
        assert dns.message.from_wire(ask_one(address, KNOWN)).rcode() == dns.rcode.NOERROR
    assert (counters.verified, counters.unverified) == (9, 3)


# --- reloads


def test_a_reload_clears_the_ready_responses() -> None:
    text = "@ 60 SOA ns h 2 2 3 4 5\n@ 60 NS ns\n12345 60 TXT new\nnowhere 60 TXT there"
    new = snapshot_of_zones(dns.zone.from_text(text, "example.", relativize=False))
    responder = make_responder()
    with listening(responder) as (_, address):
        for query in (KNOWN, ABSENT) * 2:
            assert ask_one(address, query) == respond(query, SNAPSHOT)
        for cookies in (SECRETS, SECRETS[1:], ()):
            swap(responder, new, cookies=CookieSettings(cookies))
            for query in (KNOWN, ABSENT, COOKIE) * 2:
                context = responder.state.context
                assert ask_one(address, query) == respond(query, new, client=address[0], context=context)


def test_without_memory_the_old_zones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    new, responder = snapshot_of_zones(), make_responder()
    with listening(responder) as (_, address):
        old = ask_one(address, KNOWN)
        with monkeypatch.context() as patch:
            patch.setattr(shortcut, "Arena", no_memory)
            with pytest.raises(OSError, match="memory"):
                swap(responder, new)
            assert ask_one(address, KNOWN) == old
        swap(responder, new)
        with monkeypatch.context() as patch:
            patch.setattr(shortcut, "Arena", no_memory)
            assert ask_one(address, KNOWN) == old
        assert ask_one(address, KNOWN) == respond(KNOWN, new)


def test_without_memory_no_response_is_mixed_of_old_and_new_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that keeps the old ready responses also asks the general path of the old zones."""
    text = "@ 60 SOA ns h 2 2 3 4 5\n@ 60 NS ns\n12345 60 TXT new\n"
    new = snapshot_of_zones(dns.zone.from_text(text, "example.", relativize=False))
    responder = make_responder()
    with listening(responder) as (_, address):
        old = ask_one(address, KNOWN)
        swap(responder, new)
        with monkeypatch.context() as patch:
            patch.setattr(shortcut, "Arena", no_memory)
            assert ask_one(address, KNOWN) == old
            for query in (ABSENT, COOKIE, ABSENT, COOKIE):  # some of them were never asked
                context = responder.state.context
                assert ask_one(address, query) == respond(query, SNAPSHOT, client=address[0], context=context)
        assert ask_one(address, KNOWN) == respond(KNOWN, new)


def no_memory(size: int) -> None:
    raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


# --- errors and overload


def test_an_internal_error_in_the_shortcut_drops_only_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    find = shortcut.Ready.find

    def failing(ready: shortcut.Ready, key: bytes) -> tuple[bytes, bytes] | None:
        assert b"nowhere" not in key
        return find(ready, key)

    monkeypatch.setattr(shortcut.Ready, "find", failing)
    responder = make_responder()
    with listening(responder) as (counters, address):
        assert set(ask(address, numbered([KNOWN, ABSENT, KNOWN]))) == {b"\0\0", b"\0\2"}
    assert counters.to_dict()["udp"]["dropped"] == 1


@needs_batches
def test_ready_responses_are_sent_under_overload(monkeypatch: pytest.MonkeyPatch) -> None:
    """After eight consecutive full batches, only a few queries of each batch take the general path."""
    monkeypatch.setattr(udp, "BATCH", 32)
    responder = make_responder()
    update = UPDATE.to_wire()
    sock = sockets.open_udp("127.0.0.1", 0)
    counters = Counters()
    listener = udp.BatchListener(sock, responder, counters)
    with client(sock.getsockname()) as flood, client(sock.getsockname()) as other:
        for number in range(10 * 32):  # all wait before the first is answered; one of four has a ready response
            (flood if number % 4 else other).send(update if number % 4 else KNOWN)
        listener.start()
        try:
            assert [other.recv(65535) for _ in range(80)] == [respond(KNOWN, SNAPSHOT)] * 80
            wait_for(lambda: total(counters) == 320)
            left_out = 2 * (24 - udp.MAX_GENERAL)
            assert counters.overload == counters.silent == left_out
            assert counters.ready + counters.general + counters.overload == counters.received == 320
            assert counters.to_dict()["udp"]["dropped"] == counters.overload
            for _ in range(240 - counters.overload):
                assert flood.recv(65535) == respond(update, SNAPSHOT)
            for _ in range(30):  # the overload ends when queries are answered as fast as they arrive
                flood.send(update)
                assert flood.recv(65535) == respond(update, SNAPSHOT)
        finally:
            asyncio.run(listener.stop())
    assert counters.overload == left_out


def test_only_responses_refused_by_the_kernel_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    libc = ctypes.CDLL(None)

    class Refusing:
        """A C library in which every second call to sendmmsg fails, and each other call sends one message."""

        recvmmsg = libc.recvmmsg
        calls = 0

        def sendmmsg(self, descriptor: object, messages: object, count: object, flags: object) -> int:
            self.calls += 1
            return -1 if self.calls % 2 else int(libc.sendmmsg(descriptor, messages, ctypes.c_uint(1), flags))

    refusing = Refusing()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: refusing)
    queries = numbered([KNOWN, ABSENT, COOKIE, UPDATE.to_wire()] * 25)
    responder = make_responder()
    replies: dict[bytes, bytes] = {}
    with listening(responder) as (counters, address), client(address) as sock:
        for query in queries:
            sock.send(query)
        wait_for(lambda: counters.lost >= 50)
        while len(replies) < 50:
            reply = sock.recv(65535)
            replies[reply[:2]] = reply
    assert (counters.lost, len(replies), counters.silent) == (50, 50, 0)
    expected = {query[:2]: expect(query, responder, "127.0.0.1") for query in queries}
    assert replies.items() <= expected.items()


# --- without batches


@pytest.mark.parametrize(
    ("level", "kind", "arrived", "leaves"),
    [
        (socket.IPPROTO_IP, sockets.IP_PKTINFO, "07000000 c0000201 c0000201", "00000000 c0000201 c0000201"),
        (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, f"{'20010db8' * 4} 07000000", f"{'20010db8' * 4} 00000000"),
        (socket.SOL_SOCKET, 29, "00000000", None),
    ],
)
def test_rfc3542_reply_source_drops_the_interface(level: int, kind: int, arrived: str, leaves: str | None) -> None:
    expected = [] if leaves is None else [(level, kind, bytes.fromhex(leaves))]
    assert udp.reply_source([(level, kind, bytes.fromhex(arrived))]) == expected
