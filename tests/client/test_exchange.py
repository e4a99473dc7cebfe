"""One question put to servers, without sockets: rounds, failover, EDNS, TCP, referrals and their limits."""

from __future__ import annotations

import random

from maptr import Stub
from maptr.client.exchange import (
    FIRST_SECONDS,
    MAX_ADDRESS_LOOKUPS,
    MAX_LOOKUP_DEPTH,
    MAX_REFERRALS,
    MAX_TRIES,
    ROUNDS,
    Attempt,
    Exchange,
    address_questions,
    usable_servers,
)
from maptr.client.message import Referral
from maptr.client.servers import Server
from maptr.discovery import Outcome
from maptr.protocol import names
from maptr.protocol.numbers import AAAA
from maptr.walk import Answer
from tests.support.hostile import AA, NAPTR, NS, TC, A, naptr, record, reply

NAME = (b"12345", b"ark", b"arpa")
ONE, TWO = Server("192.0.2.1"), Server("2001:4860::1", 5300)
PUBLIC = Server("8.8.8.8")
GOOD = [record(None, NAPTR, naptr("h.example."))]


def exchange(*servers: Server, name: names.Labels = NAME, trust_ad: bool = False) -> Exchange:
    return Exchange(name, servers, random.Random(1).randbytes, trust_ad=trust_ad)


def take(asking: Exchange) -> Attempt:
    attempt = asking.next()
    assert attempt is not None
    return attempt


def settled(asking: Exchange) -> Answer:
    """The answer of a question that is over."""
    assert asking.next() is None
    assert asking.answer is not None
    return asking.answer


def referral(query: bytes, cut: str, *glue: tuple[int, int, int, int]) -> bytes:
    extra = [record("ns.example.", A, bytes(address)) for address in glue]
    return reply(query, authority=[record(cut, NS, b"\2ns\7example\0")], additional=extra, flags=0)


def test_silent_servers_are_asked_again_with_longer_timeouts() -> None:
    asking = exchange(ONE, TWO)
    attempts = []
    while (attempt := asking.next()) is not None:
        attempts.append(attempt)
        asking.timed_out(attempt)
    assert [attempt.server for attempt in attempts] == [ONE, TWO] * ROUNDS
    assert [attempt.seconds for attempt in attempts] == [FIRST_SECONDS * 2**n for n in range(ROUNDS) for _ in range(2)]
    answer = settled(asking)
    assert answer.outcome is Outcome.TIMEOUT
    assert "2001:4860::1#5300: no reply" in answer.note
    spellings = [attempt.query.question for attempt in attempts]
    assert len(set(spellings[:4])) == 4  # 0x20
    assert spellings[-1] == names.to_wire(NAME) + b"\0\x23\0\1"  # for a server that does not echo the case


def test_a_server_that_fails_is_not_asked_again() -> None:
    asking = exchange(ONE, TWO)
    first = take(asking)
    assert asking.receive(first, reply(first.query.packet, rcode=5))
    second = take(asking)
    assert second.server == TWO
    asking.unreachable(second, "no route")
    answer = settled(asking)
    assert answer.outcome is Outcome.UNREACHABLE
    assert answer.note == "192.0.2.1#53: rcode 5; 2001:4860::1#5300: no route"


def test_without_edns_then_by_tcp_at_the_same_server() -> None:
    asking = exchange(ONE, TWO)
    first = take(asking)
    assert first.query.packet[11] == 1
    assert asking.receive(first, reply(first.query.packet, rcode=1))
    plain = take(asking)
    assert (plain.server, plain.query.packet[11], plain.tcp) == (ONE, 0, False)
    assert asking.receive(plain, reply(plain.query.packet, flags=AA | TC))
    stream = take(asking)
    assert (stream.server, stream.tcp) == (ONE, True)
    assert not asking.receive(stream, reply(stream.query.packet, GOOD, ident=b"xx"))
    assert asking.receive(stream, reply(stream.query.packet, GOOD))
    answer = settled(asking)
    assert answer.outcome is Outcome.ANSWER
    assert answer.server == "192.0.2.1#53"


def test_a_lost_tcp_exchange_goes_to_the_next_server_by_udp() -> None:
    asking = exchange(ONE, TWO)
    first = take(asking)
    asking.receive(first, reply(first.query.packet, flags=AA | TC))
    asking.timed_out(take(asking))
    after = take(asking)
    assert (after.server, after.tcp) == (TWO, False)


def test_a_referral_keeps_the_port_and_never_leads_to_private_addresses() -> None:
    asking = exchange(Server("8.8.8.8", 5300))
    first = take(asking)
    inside = [(127, 0, 0, 1), (10, 0, 0, 1), (169, 254, 169, 254)]
    asking.receive(first, referral(first.query.packet, "12345.ark.arpa.", *inside, (9, 9, 9, 9)))
    below = take(asking)
    assert below.server == Server("9.9.9.9", 5300)
    asking.timed_out(below)
    assert take(asking).server == below.server
    nowhere = exchange(PUBLIC)
    first = take(nowhere)
    nowhere.receive(first, referral(first.query.packet, "12345.ark.arpa.", *inside))
    answer = settled(nowhere)
    assert answer.outcome is Outcome.REFERRAL
    assert "no usable address of ns.example." in answer.note


def test_referrals_must_lead_down_and_end() -> None:
    deep = tuple(b"%d" % n for n in range(20))
    asking = exchange(PUBLIC, name=deep)
    for level in range(1, MAX_REFERRALS + 1):
        attempt = take(asking)
        asking.receive(attempt, referral(attempt.query.packet, names.to_text(deep[-level:]), (9, 9, 9, level)))
    attempt = take(asking)
    asking.receive(attempt, referral(attempt.query.packet, names.to_text(deep[-15:]), (9, 9, 9, 99)))
    assert "more than 8 referrals" in settled(asking).note
    for cut in ("ark.arpa.", "arpa.", ".", "other.arpa."):
        again = exchange(PUBLIC)
        first = take(again)
        again.receive(first, referral(first.query.packet, "ark.arpa.", (9, 9, 9, 9)))
        second = take(again)
        again.receive(second, referral(second.query.packet, cut, (9, 9, 9, 8)))
        assert "lame" in settled(again).note


def refer(attempt: Attempt, cut: str, server: str) -> bytes:
    authority = [record(cut, NS, names.to_wire(names.parse(server)))]
    return reply(attempt.query.packet, authority=authority, flags=0)


def test_a_referral_without_glue_is_looked_up_at_the_first_servers() -> None:
    asking = exchange(PUBLIC, TWO)
    first = take(asking)
    asking.receive(first, refer(first, "12345.ark.arpa.", "ns.nma.example."))
    sought = take(asking)
    assert (sought.server, sought.query.name, sought.query.rdtype) == (PUBLIC, (b"ns", b"nma", b"example"), A)
    asking.timed_out(sought)
    again = take(asking)
    assert again.server == TWO
    assert asking.receive(again, reply(again.query.packet, flags=AA))  # no A record, so its AAAA is asked for
    second = take(asking)
    assert (second.server, second.query.rdtype) == (PUBLIC, AAAA)
    asking.unreachable(second, "no route")
    third = take(asking)
    local = [record(None, AAAA, bytes(15) + b"\1"), record(None, AAAA, bytes.fromhex("20014860") + bytes(11) + b"\7")]
    assert not asking.receive(third, b"nonsense")
    assert asking.receive(third, reply(third.query.packet, local))
    below = take(asking)  # on the port of the server that referred us, and never to an address that is local
    assert (below.server, below.query.name) == (Server("2001:4860:0:0:0:0:0:7"), NAME)
    asking.receive(below, reply(below.query.packet, GOOD))
    assert settled(asking).outcome is Outcome.ANSWER


def test_a_search_that_finds_nothing_ends_and_says_so() -> None:
    asking = exchange(PUBLIC)
    count = 0
    while (attempt := asking.next()) is not None:
        count += 1
        if attempt.query.name == NAME:
            asking.receive(attempt, refer(attempt, "12345.ark.arpa.", "ns.nma.example."))
        else:
            asking.receive(attempt, reply(attempt.query.packet, rcode=5))
    assert count == 3  # the question, A, AAAA
    answer = settled(asking)
    assert answer.outcome is Outcome.REFERRAL
    assert "referred to 12345.ark.arpa.: no address of its servers" in answer.note


def test_searches_in_a_circle_and_ever_deeper_end() -> None:
    """RFC 1034 5.3.3: each server's name is in a zone of the other; or in a zone of yet another, without end."""
    for endless in (False, True):
        asking = exchange(PUBLIC)
        count = 0
        while (attempt := asking.next()) is not None:
            count += 1
            first = attempt.query.name[-2]
            zones = {b"ark": ("12345.ark.arpa.", "ns.x0.example."), b"x0": ("x0.example.", "ns.x1.example.")}
            cut, server = zones.get(first, ("x1.example.", "ns.x0.example."))
            if endless and first.startswith(b"x"):
                number = int(first[1:])
                cut, server = f"x{number}.example.", f"ns.x{number + 1}.example."
            asking.receive(attempt, refer(attempt, cut, server))
        assert count <= MAX_TRIES
        assert settled(asking).outcome is Outcome.REFERRAL


def test_the_address_of_a_server_below_its_own_cut_is_not_looked_up() -> None:
    asking = exchange(PUBLIC)
    first = take(asking)
    asking.receive(first, refer(first, "12345.ark.arpa.", "ns.12345.ark.arpa."))
    assert "no usable address of ns.12345.ark.arpa." in settled(asking).note


def test_an_address_lookup_ends_with_its_question() -> None:
    asking = exchange(PUBLIC)
    first = take(asking)
    asking.receive(first, refer(first, "12345.ark.arpa.", "ns.nma.example."))
    take(asking)
    asking.expire()
    assert settled(asking).outcome is Outcome.TIMEOUT


def test_the_number_of_packets_is_bounded() -> None:
    asking = exchange(*(Server(f"192.0.2.{n}") for n in range(1, 60)))
    count = 0
    while (attempt := asking.next()) is not None:
        count += 1
        asking.timed_out(attempt)
    assert count == MAX_TRIES


def test_no_server_and_no_time() -> None:
    empty = exchange()
    assert settled(empty).outcome is Outcome.UNREACHABLE
    late = exchange(ONE)
    take(late)
    late.expire()
    assert settled(late).outcome is Outcome.TIMEOUT


def test_the_ad_bit_is_requested_only_with_trust_ad() -> None:
    for trust_ad in (False, True):
        asking = exchange(ONE, trust_ad=trust_ad)
        attempt = take(asking)
        assert bool(attempt.query.packet[3] & 0x20) == trust_ad
        asking.receive(attempt, reply(attempt.query.packet, GOOD, flags=AA | 0x20))
        assert settled(asking).security == ("secure" if trust_ad else "indeterminate")


def test_a_stub_shows_its_servers() -> None:
    assert repr(Stub(["192.0.2.1", "::1#5300"])) == "<Stub of 192.0.2.1#53, ::1#5300>"


# ---- referrals

CUT = names.parse("12345.ark.arpa.")


def without_glue(*servers: str, addresses: tuple[str, ...] = ()) -> Referral:
    return Referral(CUT, tuple(map(names.parse, servers)), addresses)


def test_local_addresses_in_referrals_of_public_servers_are_ignored() -> None:
    told = ("127.0.0.1", "192.0.2.9", "10.0.0.1", "fe80::1", "8.8.4.4", "2001:4860:0:0:0:0:0:7")
    public = usable_servers(Server("8.8.8.8", 5300), told)
    assert [server.address for server in public] == ["8.8.4.4", "2001:4860:0:0:0:0:0:7"]
    assert {server.port for server in public} == {5300}
    assert [server.address for server in usable_servers(Server("127.0.0.1"), told)] == list(told)


def test_addresses_are_looked_up_for_a_referral_without_glue() -> None:
    found = address_questions(without_glue("ns.nma.example.", "ns.12345.ark.arpa."), frozenset())
    assert found == [(names.parse("ns.nma.example."), A), (names.parse("ns.nma.example."), AAAA)]
    assert address_questions(without_glue("ns.nma.example.", addresses=("8.8.4.4",)), frozenset()) == []


def test_an_address_lookup_does_not_need_itself() -> None:
    seeking = frozenset({names.parse("ns.nma.example.")})
    assert address_questions(without_glue("NS.nma.Example."), seeking) == []
    assert {name for name, _ in address_questions(without_glue("NS.nma.Example.", "ns.example."), seeking)} == {
        names.parse("ns.example.")
    }


def test_address_lookups_are_bounded_in_number_and_depth() -> None:
    many = without_glue(*(f"ns{number}.example." for number in range(9)))
    assert len({name for name, _ in address_questions(many, frozenset())}) == MAX_ADDRESS_LOOKUPS
    deep = frozenset(names.parse(f"x{number}.example.") for number in range(MAX_LOOKUP_DEPTH))
    assert address_questions(many, deep) == []
