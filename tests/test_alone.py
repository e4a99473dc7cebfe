"""Queries that come one by one: the octets of the general path, counted and limited as in a batch."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator
from unittest import mock

import dns.edns
import dns.message
import dns.rcode
import dns.zone
import pytest

from maptr.address import read_network
from maptr.answer import make_reply, respond
from maptr.context import Transport
from maptr.cookies import CookieSettings
from maptr.rrl import RateLimiter, RrlSettings
from maptr.serve import alone, batch, wholes
from maptr.serve import clients as clients_module
from maptr.serve.counters import Counters, total
from maptr.serve.responder import Responder
from maptr.snapshot import Snapshot
from tests.test_batch import NO_EXEMPTION, PATIENCE, SNAPSHOT, ask, listening, numbered
from tests.test_fastpath import ANSWER, wire

pytestmark = pytest.mark.skipif(batch.why_not() is not None, reason=f"no batches: {batch.why_not()}")

KNOWN = dns.message.make_query("12345.example.", "NAPTR", use_edns=0).to_wire()
ABSENT = dns.message.make_query("nowhere.example.", "NAPTR", use_edns=0).to_wire()
COOKIE = dns.message.make_query(
    "12345.example.", "NAPTR", use_edns=0, options=[dns.edns.CookieOption(b"clientck", b"")]
).to_wire()
HOSTS = ["127.0.0.1", "::1", "0.0.0.0", "::"]


class Client:
    """Asks one question after another."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.settimeout(PATIENCE)
        self._sock.connect(address)

    def ask(self, query: bytes) -> bytes:
        self._sock.send(query)
        return self._sock.recv(65535)

    def warm(self, listener: batch.BatchListener) -> None:
        """Until a query is taken alone and known whole."""
        deadline = time.monotonic() + PATIENCE
        before = listener.counters.alone[0]
        while listener.counters.alone[0] == before:
            self.ask(KNOWN)
            assert time.monotonic() < deadline

    def close(self) -> None:
        self._sock.close()


def client_from(clients: list[Client], host: str, port: int) -> Client:
    """One of another address of this machine, which asks 127.0.0.1."""
    client = client_of(clients, ("127.0.0.1", port))
    client._sock.close()
    client._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client._sock.bind((host, 0))
    client._sock.connect(("127.0.0.1", port))
    client._sock.settimeout(PATIENCE)
    return client


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    made: list[Client] = []
    yield made
    for client in made:
        client.close()


def client_of(clients: list[Client], address: tuple[str, int]) -> Client:
    clients.append(Client(address))
    return clients[-1]


@pytest.mark.parametrize("rrl", [RrlSettings(), RrlSettings(responses_per_second=1e6, exempt=())])
@pytest.mark.parametrize("host", HOSTS)
def test_the_octets_are_those_of_the_general_path(host: str, rrl: RrlSettings, clients: list[Client]) -> None:
    rng = random.Random(host)
    queries = [wire(case["name"], case["type"], rng) for case in ANSWER["case"]] + [KNOWN, ABSENT, COOKIE]
    responder = Responder(rrl=rrl)
    with listening(responder, host) as (listener, address):
        client = client_of(clients, address)
        for _ in range(6):
            client.warm(listener)
            rng.shuffle(queries)
            for query in queries:
                query = rng.randbytes(2) + query[2:]
                expected = make_reply(
                    query, SNAPSHOT, transport=Transport.UDP, client=address[0], context=responder.context
                )
                assert expected is not None
                got = client.ask(query)
                assert len(got) == len(expected.wire)
                if b"\0\x0a\0\x18" not in got:  # a cookie, in which the second may have passed
                    assert got == expected.wire, query.hex()
                counters = listener.counters
                counted = sum(counters.to_dict()["udp"].values()) + counters.general
                assert counted == counters.received == counters.calls
        assert listener.counters.alone[0] > 3, "known names"
        assert listener.counters.alone[3] > 0, "and names that are not there"
        assert counters.ready + counters.general == counters.received


def test_replies_come_from_where_the_query_went(clients: list[Client]) -> None:
    """On connected sockets, so that a reply from elsewhere would not be heard."""
    with listening(Responder(), "0.0.0.0") as (listener, (_, port)):
        clients += [Client((f"127.0.0.{number}", port)) for number in range(1, 6)]
        clients[0].warm(listener)
        for _ in range(3):
            for client in clients:
                for query in (KNOWN, ABSENT, COOKIE):
                    assert client.ask(query)[:2] == query[:2]


def test_a_reload_forgets_what_was_known_whole(clients: list[Client]) -> None:
    with listening(Responder()) as (listener, address):
        client = client_of(clients, address)
        client.warm(listener)
        assert client.ask(ABSENT) == client.ask(ABSENT) == respond(ABSENT, SNAPSHOT)
        text = "@ 60 SOA ns h 2 2 3 4 5\n@ 60 NS ns\n12345 60 TXT new\nnowhere 60 TXT there"
        new = Snapshot.from_zones([dns.zone.from_text(text, "example.", relativize=False)])
        listener._replies._responder.prepare(new)
        for _ in range(2):
            assert client.ask(KNOWN) == respond(KNOWN, new)
            assert client.ask(ABSENT) == respond(ABSENT, new)
        client.warm(listener)


@pytest.mark.parametrize("query", [KNOWN, ABSENT], ids=["known", "absent"])
def test_the_rate_limit_holds(query: bytes, clients: list[Client]) -> None:
    """The first within the limit, of the others every second truncated; who is exempt has none."""
    settings = NO_EXEMPTION._replace(exempt=(read_network("127.0.0.1/32"),))
    responder = Responder(rrl=settings, clock=lambda: 1000.0)
    cut = make_reply(query, SNAPSHOT, transport=Transport.UDP)
    assert cut is not None
    with listening(responder) as (listener, address):
        exempt = client_of(clients, address)
        limited = client_from(clients, "127.0.0.2", address[1])
        exempt.warm(listener)
        for _ in range(5):
            exempt.ask(query)
        before = listener.counters.received
        for number in range(1, 101):
            limited._sock.send(query)
            deadline = time.monotonic() + PATIENCE
            while listener.counters.received < before + number:
                assert time.monotonic() < deadline
        exempt.ask(KNOWN)  # so all before is done
        tally = responder.limiter.tally
        assert (tally.dropped, tally.truncated) == (48, 47)
        replies = [limited._sock.recv(65535) for _ in range(52)]
        assert replies == [respond(query, SNAPSHOT)] * 5 + [cut.truncated()] * 47
        assert listener.counters.silent == 48


def test_clients_with_a_limit_and_without_are_counted_together(clients: list[Client]) -> None:
    settings = RrlSettings(responses_per_second=1e6, exempt=(read_network("127.0.0.1/32"),))
    with listening(Responder(rrl=settings), "0.0.0.0") as (listener, (_, port)):
        client_of(clients, ("127.0.0.1", port))
        client_from(clients, "127.0.0.2", port)
        asked = 100
        for number in range(asked):
            clients[number % 2].ask(KNOWN)
        assert listener._alone._replies.clients.networks
        assert listener._alone._replies.clients.exempt
        assert listener.counters.to_dict() == {"udp": {"NOERROR": asked}}
        assert listener.counters.received == asked


def test_a_socket_that_is_gone_ends_its_listener() -> None:
    with listening(Responder()) as (listener, _):
        listener._sock.close()
        listener._thread.join(PATIENCE)
        assert not listener._thread.is_alive()


def test_a_queue_is_answered_in_batches_and_who_comes_alone_then_alone_again(clients: list[Client]) -> None:
    queries = numbered([KNOWN, ABSENT, COOKIE] * 300)
    with listening(Responder()) as (listener, address):
        look = listener._alone._look

        def look_late() -> bool:
            """Python's threads take turns, and so would the two here; now some are waiting."""
            time.sleep(0.05)
            return look()

        listener._alone._look = look_late
        client = client_of(clients, address)
        for _ in range(3):
            client.warm(listener)
            before, calls = listener.counters.received, listener.counters.calls
            assert len(ask(address, queries)) == len(queries)
            assert listener.counters.received == before + len(queries) + 1
            assert listener.counters.calls < calls + len(queries)


UNUSUAL = dns.message.make_query(
    "12345.example.", "NAPTR", use_edns=0, options=[dns.edns.GenericOption(dns.edns.OptionType.make(65001), b"x")]
).to_wire()


def test_strangers_go_back_to_batches(clients: list[Client]) -> None:
    """Who asks what no plan knows shall not be received twice."""
    with listening(Responder()) as (listener, address):
        client = client_of(clients, address)
        client.warm(listener)
        put = mock.Mock(wraps=listener._slots.put)
        listener._slots.put = put  # type: ignore[method-assign]
        for _ in range(3 * alone.TURN):
            client.ask(UNUSUAL)
        assert 0 < put.call_count <= 2 * alone.MAX_OTHERS


def test_a_flood_of_absent_names_goes_back_to_batches(clients: list[Client]) -> None:
    with listening(Responder()) as (listener, address):
        client = client_of(clients, address)
        client.warm(listener)
        make = mock.Mock(wraps=listener._alone._replies.make)
        listener._alone._replies.make = make  # type: ignore[method-assign]
        for number in range(3 * alone.TURN):
            absent = dns.message.make_query(f"no{number}.example.", "A", use_edns=0).to_wire()
            assert client.ask(absent)[3] == dns.rcode.NXDOMAIN
        # Each time it takes twice as many in a row to come alone again.
        assert 0 < make.call_count <= 3 * alone.TURN // 2


@pytest.mark.parametrize("host", HOSTS)
def test_cookies_and_any_case_are_known_whole(host: str, clients: list[Client]) -> None:
    """And counted, each as one reply; whose cookie is good has no limit."""
    rng = random.Random(host)
    responder = Responder(rrl=RrlSettings(responses_per_second=1e6, exempt=()), clock=lambda: 1000.0)
    # Cookies of two seconds in 256 look otherwise (``plantables.py``), and are not known whole.
    responder.context = responder.context._replace(clock=lambda: 1000.0)
    with listening(responder, host) as (listener, address):
        client = client_of(clients, address)
        client.warm(listener)
        made = client.ask(COOKIE)[-24:]
        good = dns.message.make_query(
            "12345.example.", "NAPTR", use_edns=0, options=[dns.edns.CookieOption(made[:8], made[8:])]
        ).to_wire()
        asked = [*[COOKIE] * 20, *[good] * 20, *[KNOWN] * 20]
        for query in asked:  # with plans for all
            client.ask(query)
        responder.limiter = RateLimiter(NO_EXEMPTION, lambda: 1000.0)
        counters = listener.counters
        make = mock.Mock(wraps=listener._alone._replies.make)
        listener._alone._replies.make = make  # type: ignore[method-assign]
        before = counters.verified, counters.alone[0]
        for number in range(50):
            name = "".join(rng.choice((c, c.upper())) for c in "example").encode()
            query = number.to_bytes(2, "big") + good[2:].replace(b"example", name)
            reply = client.ask(query)
            plain = make_reply(query, SNAPSHOT, transport=Transport.UDP, client=address[0], context=responder.context)
            assert plain is not None
            assert reply == plain.wire
        assert (counters.verified, counters.alone[0]) == (before[0] + 50, before[1] + 50)
        assert not make.called
        unverified = counters.unverified
        query = COOKIE.replace(b"example", b"eXaMpLe")
        assert client.ask(query)[:-24] == client.ask(COOKIE)[:-24].replace(b"example", b"eXaMpLe", 1)
        assert counters.unverified == unverified + 2
        tally = responder.limiter.tally
        for _ in range(20):
            client._sock.send(COOKIE)
        deadline = time.monotonic() + PATIENCE
        while counters.silent + tally.truncated < 20 - 3:  # two have gone above, of five
            assert time.monotonic() < deadline
        assert (counters.silent, tally.truncated) == (9, 8)


def test_cookies_that_are_wanted_are_asked_for(clients: list[Client]) -> None:
    settings = CookieSettings((bytes(range(16)),), required=True)
    with listening(Responder(cookies=settings)) as (listener, address):
        client = client_of(clients, address)
        client.warm(listener)
        for _ in range(3):
            refused = dns.message.from_wire(client.ask(COOKIE))
            assert refused.rcode() == dns.rcode.BADCOOKIE
            (option,) = refused.options
            good = dns.message.make_query("12345.example.", "NAPTR", use_edns=0, options=[option]).to_wire()
            for _ in range(3):
                assert dns.message.from_wire(client.ask(good)).rcode() == dns.rcode.NOERROR
        listener._replies._responder.context = listener._replies._responder.context._replace(cookies=CookieSettings())
        assert client.ask(COOKIE) == respond(COOKIE, SNAPSHOT)


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch, clients: list[Client]) -> None:
    monkeypatch.setattr(wholes, "MAX_DENIED", 3)
    monkeypatch.setattr(clients_module, "MAX_CLIENTS", 3)
    absent = [dns.message.make_query(f"no{number}.example.", "A").to_wire() for number in range(9)]
    with listening(Responder()) as (listener, (_, port)):
        one = listener._alone._replies
        one.wholes._most = 3
        client_of(clients, ("127.0.0.1", port)).warm(listener)
        learned = 0
        for number in range(1, 8):
            client = client_from(clients, f"127.0.0.{number}", port)
            for query in absent:
                client.ask(query)
                client.ask(KNOWN)
                client.ask(COOKIE)
                known = one.wholes
                learned += len(known.denied) + len(known._with_cookie)
                assert len(known.noerror) + len(known._with_cookie) <= 3 >= len(known.denied)
                assert known.kinds.keys() == {*known.noerror, *known.denied, *known._with_cookie}
                assert len(one.clients.exempt) + len(one.clients.networks) <= 3
        assert learned > 1


def test_replies_that_the_kernel_refuses_are_lost_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, clients: list[Client]
) -> None:
    class Refusing:
        """The socket of the listener, whose every second reply is refused."""

        sends = 0

        def __init__(self, sock: socket.socket) -> None:
            self.sock = sock
            self.recvfrom_into = sock.recvfrom_into

        def sendto(self, reply: bytes, flags: int, client: tuple[str, int]) -> int:
            self.sends += 1
            if self.sends % 2:
                raise PermissionError(1, "as a firewall does")
            return self.sock.sendto(reply, flags, client)

    with listening(Responder()) as (listener, address):
        client = client_of(clients, address)
        client.warm(listener)
        monkeypatch.setattr(listener._alone, "_sock", Refusing(listener._alone._sock))
        deadline = time.monotonic() + PATIENCE
        while listener.counters.lost < 100:
            client._sock.send(ABSENT)
            time.sleep(0.0001)
            assert time.monotonic() < deadline


def test_a_bug_costs_its_query_alone(monkeypatch: pytest.MonkeyPatch, clients: list[Client]) -> None:
    with listening(Responder()) as (listener, address):
        client = client_of(clients, address)
        client.warm(listener)
        monkeypatch.setattr(listener._alone._replies, "make", lambda *_: 1 // 0)
        client._sock.send(ABSENT)
        assert client.ask(KNOWN) == respond(KNOWN, SNAPSHOT)


def test_counters_have_those_that_came_alone_among_all() -> None:
    counters = Counters()
    counters.count_batch(5)
    counters.count_ready(5)
    counters.results(Transport.UDP)[0] += 4
    counters.results(Transport.UDP)[3] += 1
    counters.alone[0] = 3
    counters.alone[3] += 2
    both = total([counters, counters])
    for each, times in ((counters, 1), (both, 2)):
        assert each.to_dict() == {"udp": {"NOERROR": 7 * times, "NXDOMAIN": 3 * times}}
        assert (each.received, each.ready, each.calls) == (10 * times, 10 * times, 6 * times)
    counters.received += 1
    assert counters.received == 11


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_addresses_are_as_the_kernel_has_them(family: socket.AddressFamily) -> None:
    if family == socket.AF_INET:
        octets = batch.to_sockaddr(family, ("192.0.2.1", 5300))
        assert octets == struct.pack("=H", family) + bytes.fromhex("14b4 c0000201")
    else:
        octets = batch.to_sockaddr(family, ("2001:db8::1", 53, 0x12345, 7))
        assert len(octets) == 28
        assert octets[2:4] == b"\0\x35"
        assert octets[4:8] == bytes.fromhex("00012345")
        assert octets[8:24] == bytes.fromhex("20010db8000000000000000000000001")
        assert struct.unpack("=I", octets[24:]) == (7,)
