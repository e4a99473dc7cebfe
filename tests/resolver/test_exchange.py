"""Exchanges without sockets: rounds, failover, EDNS, TCP, referrals and their limits."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from maptr.discovery import Outcome, Step
from maptr.protocol import names
from maptr.protocol.numbers import DS, EDE, NSEC, NSEC3, OPT
from maptr.resolver.exchange import (
    FIRST_SECONDS,
    MAX_REFERRALS,
    MAX_TRIES,
    ROUNDS,
    Attempt,
    Exchange,
    StubOptions,
)
from maptr.resolver.servers import CASE_BLIND_SECONDS, MAX_CASE_BLIND, CaseBlind, ResolverOptions, Server
from maptr.resolver.stub import Stub
from maptr.walk import Answer
from tests.support.hostile import AA, CNAME, NAPTR, NS, SOA, TC, A, naptr, record, reply

NAME = (b"12345", b"ark", b"arpa")
ONE, TWO = Server("192.0.2.1"), Server("2001:4860::1", 5300)
PUBLIC = Server("8.8.8.8")
BOGUS = b"\0" + struct.pack("!HHIHHHH", OPT, 1232, 0, 6, EDE, 2, 6)  # RFC 8914: DNSSEC bogus
GOOD = [record(None, NAPTR, naptr("h.example."))]


def asking_of(*servers: Server, name: names.Labels = NAME, rdtype: int = NAPTR, **fields: Any) -> Exchange:
    options = StubOptions(servers, CaseBlind(), random_bytes=random.Random(1).randbytes)
    return Exchange(name, rdtype, options._replace(**fields))


@pytest.fixture(autouse=True)
def real_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the product, as they were imported."""
    monkeypatch.setattr("maptr.resolver.exchange.FIRST_SECONDS", FIRST_SECONDS)


def exchange(*servers: Server, name: names.Labels = NAME, trust_ad: bool = False) -> Exchange:
    return asking_of(*servers, name=name, trust_ad=trust_ad)


def take(asking: Exchange) -> Attempt:
    attempt = asking.next()
    assert attempt is not None
    return attempt


def settled(asking: Exchange) -> Answer:
    """The answer of a question that is over."""
    assert asking.next() is None
    assert asking.answer is not None
    return asking.answer


def answer(attempt: Attempt, *sections: list[bytes], **fields: Any) -> bool:
    return attempt.exchange.receive(attempt, reply(attempt.query.packet, *sections, **fields))


def refer(attempt: Attempt, cut: str, *glue: tuple[int, int, int, int], server: str = "ns.example.") -> None:
    extra = [record(server, A, bytes(address)) for address in glue]
    authority = [record(cut, NS, names.to_wire(names.parse(server)))]
    assert answer(attempt, authority=authority, additional=extra, flags=0)


def lose(attempt: Attempt) -> None:
    attempt.exchange.timed_out(attempt)


def drive(asking: Exchange, say: Callable[[Attempt], object]) -> list[Attempt]:
    """All attempts of an exchange. ``say`` reports the result of each."""
    attempts = []
    while (attempt := asking.next()) is not None:
        attempts.append(attempt)
        say(attempt)
    return attempts


def test_silent_servers_are_asked_again_with_longer_timeouts() -> None:
    asking = exchange(ONE, TWO)
    attempts = drive(asking, lose)
    assert [attempt.server for attempt in attempts] == [ONE, TWO] * ROUNDS
    assert [attempt.seconds for attempt in attempts] == [FIRST_SECONDS * 2**n for n in range(ROUNDS) for _ in range(2)]
    found = settled(asking)
    assert found.outcome is Outcome.TIMEOUT
    assert found.note == "192.0.2.1#53: no reply; 2001:4860::1#5300: no reply"  # each once
    spellings = [attempt.query.question for attempt in attempts]
    assert len(set(spellings[:4])) == 4  # 0x20


@pytest.mark.parametrize(("attempts", "mixed"), [(None, [True, True, False]), (1, [True]), (2, [True, False])])
def test_the_last_of_several_rounds_is_in_lower_case(attempts: int | None, mixed: list[bool]) -> None:
    """For a network that drops queries in mixed case."""
    asking = asking_of(ONE, options=ResolverOptions(attempts=attempts))
    sent = [attempt.query.question for attempt in drive(asking, lose)]
    assert [question != names.to_wire(NAME) + b"\0\x23\0\1" for question in sent] == mixed


def test_a_server_that_fails_is_not_asked_again() -> None:
    asking = exchange(ONE, TWO)
    first = take(asking)
    assert answer(first, rcode=5)
    second = take(asking)
    assert second.server == TWO
    second.exchange.unreachable(second, "no route")
    found = settled(asking)
    assert found.outcome is Outcome.UNREACHABLE
    assert found.note == "192.0.2.1#53: rcode 5; 2001:4860::1#5300: no route"


def test_a_failure_of_the_only_server_is_tried_once_more() -> None:
    asking = exchange(ONE)
    assert answer(take(asking), rcode=2)
    assert answer(take(asking), GOOD)
    assert settled(asking).outcome is Outcome.ANSWER

    failing = exchange(ONE)
    attempts = drive(failing, lambda attempt: answer(attempt, rcode=2))
    assert len({attempt.query.packet for attempt in attempts}) == 2
    assert (settled(failing).outcome, settled(failing).note) == (Outcome.SERVFAIL, "192.0.2.1#53: rcode 2")

    referred = exchange(PUBLIC)
    refer(take(referred), "12345.ark.arpa.", (9, 9, 9, 9))
    assert len(drive(referred, lambda attempt: answer(attempt, rcode=2))) == 2


@pytest.mark.parametrize(
    ("fields", "tries"),
    [({"rcode": 2}, 2), ({"rcode": 5}, 1), ({"rcode": 2, "additional": [BOGUS]}, 1)],
    ids=["SERVFAIL", "REFUSED", "bogus"],
)
def test_a_failure_that_will_not_pass_is_not_tried_again(fields: dict[str, Any], tries: int) -> None:
    assert len(drive(exchange(ONE), lambda attempt: answer(attempt, **fields))) == tries
    assert len(drive(exchange(ONE, TWO), lambda attempt: answer(attempt, **fields))) == 2


@pytest.mark.parametrize("rdtype", [NSEC, NSEC3])
def test_rfc4035_3_1_4_1_a_referral_that_denies_the_ds_at_its_cut_is_an_answer(rdtype: int) -> None:
    proof = record("x.example.", rdtype, b"")

    def ask(cut: str, authority: list[bytes], *, asked: int = DS) -> Exchange:
        asking = asking_of(PUBLIC, rdtype=asked, dnssec=True)
        attempt = take(asking)
        authority = [record(cut, NS, b"\2ns\7example\0"), *authority]
        assert answer(attempt, authority=authority, additional=[record("ns.example.", A, bytes((9, 9, 9, 9)))], flags=0)
        return asking

    asking = ask("12345.ARK.arpa.", [proof])
    assert settled(asking).outcome is Outcome.NODATA
    assert asking.packet
    for followed in (
        ask("12345.ark.arpa.", []),
        ask("ark.arpa.", [proof]),
        ask("12345.ark.arpa.", [proof], asked=NAPTR),
    ):
        assert take(followed).server == Server("9.9.9.9")


def test_without_edns_then_by_tcp_at_the_same_server() -> None:
    asking = exchange(ONE, TWO)
    first = take(asking)
    assert first.query.packet[11] == 1
    assert answer(first, rcode=1)
    plain = take(asking)
    assert (plain.server, plain.query.packet[11], plain.tcp) == (ONE, 0, False)
    assert answer(plain, flags=AA | TC)
    stream = take(asking)
    assert (stream.server, stream.tcp) == (ONE, True)
    assert not answer(stream, GOOD, ident=b"xx")
    assert answer(stream, GOOD)
    found = settled(asking)
    assert found.outcome is Outcome.ANSWER
    assert found.server == "192.0.2.1#53"


# ---- late responses, which come after the next try was sent


@pytest.mark.parametrize(
    ("fields", "next_of"),
    [
        ({"answer": GOOD}, None),
        ({"rcode": 3}, None),
        ({"flags": AA | TC}, (ONE, True, 1)),
        ({"rcode": 1}, (ONE, False, 0)),
        ({"asked": names.to_wire(NAME).upper() + b"\0\x23\0\1"}, (ONE, False, 1)),
    ],
    ids=["answer", "NXDOMAIN", "truncated", "without EDNS", "in upper case"],
)
@pytest.mark.parametrize("servers", [(ONE,), (ONE, TWO), (TWO, ONE)], ids=["alone", "first", "second"])
def test_a_late_response_that_leads_on_counts(
    fields: dict[str, Any], next_of: tuple[Server, bool, int] | None, servers: tuple[Server, ...]
) -> None:
    asking = exchange(*servers)
    attempts = [take(asking)]
    while len(attempts) < 3:
        lose(attempts[-1])
        attempts.append(take(asking))
    late = next(attempt for attempt in attempts if attempt.server == ONE)
    assert answer(late, **fields)
    if next_of is None:
        assert settled(asking).server == str(ONE)
    else:
        after = take(asking)
        assert (after.server, after.tcp, after.query.packet[11]) == next_of
        assert not answer(late, **fields)
        assert answer(after, GOOD)
        assert settled(asking).outcome is Outcome.ANSWER
    assert not answer(attempts[-1], GOOD)  # the question is over


@pytest.mark.parametrize("fields", [{"rcode": 2}, {"rcode": 5}, {"answer": [b"no record"]}], ids=str)
def test_a_late_failure_does_not_count_because_the_server_is_asked_again(fields: dict[str, Any]) -> None:
    asking = exchange(ONE)
    first = take(asking)
    lose(first)
    second = take(asking)
    assert not answer(first, **fields)
    assert answer(second, GOOD)
    assert settled(asking).outcome is Outcome.ANSWER


def test_a_late_referral_that_is_lame_strikes_its_server_off() -> None:
    asking = exchange(ONE, TWO)
    first = take(asking)
    lose(first)
    lose(take(asking))
    assert take(asking).server == ONE
    refer(first, ".", (9, 9, 9, 9))
    assert [attempt.server for attempt in drive(asking, lose)] == [TWO] * 2
    assert "lame" in settled(asking).note

    asking = exchange(ONE, TWO, PUBLIC)
    first = take(asking)
    lose(first)
    assert take(asking).server == TWO
    refer(first, ".", (9, 9, 9, 9))
    assert take(asking).server == TWO


def test_a_late_response_from_above_a_referral_does_not_count() -> None:
    asking = exchange(PUBLIC)
    first = take(asking)
    lose(first)
    refer(take(asking), "12345.ark.arpa.", (9, 9, 9, 9))
    assert take(asking).server == Server("9.9.9.9")
    assert not answer(first, GOOD)


def test_a_response_by_tcp_has_the_time_of_its_round_trips() -> None:
    for server, trips in ((ONE, 1), (ONE._replace(tcp=True), 2), (ONE._replace(tcp=True, tls="ns.example"), 3)):
        assert take(exchange(server)).seconds == FIRST_SECONDS * trips


# ---- letter case (draft-vixie-dnsext-dns0x20)


def lowered(attempt: Attempt) -> bytes:
    """The question of an attempt, as a server that does not keep the case writes it."""
    return attempt.query.question.lower()


def respelled(question: bytes, wanted: Callable[[bytes], bytes]) -> bytes:
    return wanted(question[:-4]) + question[-4:]


@pytest.mark.parametrize("spell", [bytes.lower, bytes.upper], ids=["lower", "upper"])
@pytest.mark.parametrize("fields", [{}, {"flags": AA | TC}, {"rcode": 3}, {"rcode": 5}], ids=str)
def test_a_server_that_does_not_echo_the_case_is_asked_at_once_in_its_case(
    spell: Callable[[bytes], bytes], fields: dict[str, Any]
) -> None:
    asking = exchange(ONE, TWO)
    first = take(asking)
    assert answer(first, **fields, asked=respelled(first.query.question, spell))
    again = take(asking)
    assert (again.server, again.tcp, again.seconds) == (ONE, False, FIRST_SECONDS)
    assert again.query.question == respelled(first.query.question, spell)
    assert not answer(again, GOOD, asked=respelled(first.query.question, bytes.swapcase))
    assert answer(again, GOOD)
    assert settled(asking).outcome is Outcome.ANSWER


def test_a_server_that_does_not_echo_the_case_is_remembered_for_a_while() -> None:
    now = 0.0
    kept = CaseBlind(lambda: now)

    def ask() -> Attempt:
        return take(asking_of(ONE, case_blind=kept))

    first = ask()
    assert answer(first, GOOD, asked=lowered(first))
    assert ask().query.question == lowered(first)
    now = CASE_BLIND_SECONDS
    assert ask().query.question == first.query.question
    for number in range(2 * MAX_CASE_BLIND):
        kept.add(Server("192.0.2.7", number))
    assert sum(Server("192.0.2.7", number) in kept for number in range(2 * MAX_CASE_BLIND)) <= MAX_CASE_BLIND


def test_a_server_that_never_echoes_what_was_sent_is_asked_once_more_only() -> None:
    asking = exchange(ONE)

    def swap(attempt: Attempt) -> None:
        if not answer(attempt, GOOD, asked=respelled(attempt.query.question, bytes.swapcase)):
            lose(attempt)

    assert len(drive(asking, swap)) == ROUNDS + 1
    assert settled(asking).outcome is Outcome.TIMEOUT


def test_by_tcp_the_case_is_neither_mixed_nor_compared() -> None:
    asking = exchange(ONE._replace(tcp=True))
    attempt = take(asking)
    assert attempt.query.question == names.to_wire(NAME) + b"\0\x23\0\1"
    assert answer(attempt, GOOD, asked=respelled(attempt.query.question, bytes.upper))
    assert settled(asking).outcome is Outcome.ANSWER


def test_the_case_of_a_query_is_in_no_note_zone_or_target() -> None:
    """Names that are compressed against the question, and those that a server makes from it without compression."""
    name = (b"abcdefghijkl", b"mnopqrstuvwxyz")

    def ask(trust_ad: bool = False) -> tuple[Exchange, Attempt, bytes]:
        asking = exchange(PUBLIC, name=name, trust_ad=trust_ad)
        attempt = take(asking)
        assert attempt.query.question[:-4] != names.to_wire(name)
        return asking, attempt, attempt.query.question[:-4]

    inner = b"\xc0\x19"  # to the second label of the question
    soa = b"\0\0" + bytes(20)
    asking, attempt, sent = ask()
    negative = sent[13:] + record(None, SOA, soa)[2:]
    assert answer(attempt, authority=[negative], rcode=3)
    assert settled(asking).zone == name[1:]

    asking, attempt, sent = ask()
    assert answer(attempt, [record(None, NAPTR, b"\0\0\0\0\1h\3ark\0" + b"\1x" + inner)])
    assert settled(asking).records[0].replacement == (b"x", name[1])

    asking, attempt, sent = ask()
    assert answer(attempt, [record(None, CNAME, sent[:13] + b"\3new\0")], authority=[record("new.", SOA, soa)])
    assert settled(asking).note == "through CNAME abcdefghijkl.new."

    asking, attempt, sent = ask()
    assert answer(attempt, authority=[sent + record(None, NS, b"\1a\xc0\x0c")[2:]], flags=0)
    assert (
        "referred to abcdefghijkl.mnopqrstuvwxyz.: no usable address of a.abcdefghijkl.mnopqrstuvwxyz."
        in settled(asking).note
    )


# ---- failures


@pytest.mark.parametrize("fail", [lose, lambda attempt: answer(attempt, rcode=5)], ids=["silence", "REFUSED"])
def test_a_failed_tcp_exchange_goes_to_the_next_server_by_udp(fail: Callable[[Attempt], object]) -> None:
    asking = exchange(ONE, TWO)
    answer(take(asking), flags=AA | TC)
    fail(take(asking))
    after = take(asking)
    assert (after.server, after.tcp) == (TWO, False)


def test_a_referral_keeps_the_port_and_never_leads_to_private_addresses() -> None:
    asking = exchange(Server("8.8.8.8", 5300))
    inside = [(127, 0, 0, 1), (10, 0, 0, 1), (169, 254, 169, 254)]
    refer(take(asking), "12345.ark.arpa.", *inside, (9, 9, 9, 9))
    below = take(asking)
    assert below.server == Server("9.9.9.9", 5300)
    lose(below)
    assert take(asking).server == below.server
    nowhere = exchange(PUBLIC)
    refer(take(nowhere), "12345.ark.arpa.", *inside)
    found = settled(nowhere)
    assert found.outcome is Outcome.REFERRAL
    assert "no usable address of ns.example." in found.note


def test_referrals_must_lead_down_and_end() -> None:
    deep = tuple(b"%d" % n for n in range(20))
    asking = exchange(PUBLIC, name=deep)
    for level in range(1, MAX_REFERRALS + 1):
        refer(take(asking), names.to_text(deep[-level:]), (9, 9, 9, level))
    refer(take(asking), names.to_text(deep[-15:]), (9, 9, 9, 99))
    assert "more than 8 referrals" in settled(asking).note
    for cut in ("ark.arpa.", "arpa.", ".", "other.arpa."):
        again = exchange(PUBLIC)
        refer(take(again), "ark.arpa.", (9, 9, 9, 9))
        refer(take(again), cut, (9, 9, 9, 8))
        assert "lame" in settled(again).note


def test_the_number_of_packets_is_bounded() -> None:
    """Those of address lookups count, too."""
    many = [Server(f"8.8.8.{n}") for n in range(1, 60)]
    assert len(drive(exchange(*many), lose)) == MAX_TRIES
    looking_up = exchange(*many)
    refer(take(looking_up), "12345.ark.arpa.", server="ns.nma.example.")
    assert len(drive(looking_up, lose)) == MAX_TRIES - 1


def test_rfc6672_2_2_a_name_that_a_dname_makes_too_long_does_not_exist() -> None:
    asking = exchange(ONE)
    assert answer(take(asking), rcode=6)
    assert (settled(asking).outcome, settled(asking).zone) == (Outcome.NXDOMAIN, NAME)


def test_without_a_server_the_outcome_is_unreachable() -> None:
    assert settled(exchange()).outcome is Outcome.UNREACHABLE


def test_a_stub_shows_its_servers() -> None:
    assert repr(Stub(["192.0.2.1", "::1#5300"])) == "<Stub of 192.0.2.1#53, ::1#5300>"


def test_the_end_of_aliases_denies_the_name_that_was_asked() -> None:
    asking = exchange(ONE)
    for target in ("a.example.", "b.example."):
        assert answer(take(asking), [record(None, CNAME, names.to_wire(names.parse(target)))], flags=AA)
    soa = b"\0\0" + struct.pack("!5I", 1, 2, 3, 4, 60)
    assert answer(take(asking), authority=[record("example.", SOA, soa)])
    found = settled(asking)
    assert (found.outcome, found.zone) == (Outcome.NODATA, NAME)


RA = 0x80


def test_an_alias_that_a_resolver_left_to_its_client_is_followed() -> None:
    asking = exchange(ONE)
    assert answer(take(asking), [record(None, CNAME, names.to_wire(names.parse("a.example.")))], flags=RA)
    attempt = take(asking)
    assert attempt.query.name == (b"a", b"example")
    assert answer(attempt, GOOD, flags=RA)
    found = settled(asking)
    assert (found.outcome, len(found.records), found.note) == (Outcome.ANSWER, 1, "through CNAME a.example.")


def test_an_alias_whose_target_has_no_data_is_not_asked_again() -> None:
    """RFC 2308 2.2: the SOA says so."""
    asking = exchange(ONE)
    soa = record("example.", SOA, b"\0\0" + struct.pack("!5I", 1, 2, 3, 4, 60))
    alias = record(None, CNAME, names.to_wire(names.parse("a.example.")))
    assert answer(take(asking), [alias], authority=[soa], flags=RA)
    assert settled(asking).outcome is Outcome.NODATA


def test_aliases_of_a_resolver_end() -> None:
    def on(attempt: Attempt) -> None:
        number = len(attempt.query.name[0])
        answer(attempt, [record(None, CNAME, names.to_wire((b"x" * (number + 1), b"example")))], flags=RA)

    asking = exchange(ONE)
    assert len(drive(asking, on)) <= MAX_TRIES
    assert asking.answer is not None
    assert not asking.answer.outcome.answered


@pytest.mark.parametrize("rcode", [0, 2, 3])
def test_a_truncated_response_without_a_question_leads_to_tcp(rcode: int) -> None:
    asking = exchange(ONE)
    first, rest = take(asking), struct.pack("!5H", 0x8000 | TC | rcode, 0, 0, 0, 0)
    ident = first.query.packet[:2]
    assert not asking.receive(first, bytes((ident[0] ^ 1, ident[1])) + rest)  # of another query
    assert not asking.receive(first, ident + struct.pack("!5H", 0x8000, 0, 0, 0, 0))  # not truncated
    assert asking.receive(first, ident + rest)
    second = take(asking)
    assert (second.tcp, second.server) == (True, ONE)
    assert asking.receive(second, second.query.packet[:2] + rest)
    found = settled(asking)
    assert (found.outcome, found.note) == (Outcome.MALFORMED, "192.0.2.1#53: the response is truncated over TCP")


def extended(code: int, text: bytes = b"") -> bytes:
    data = struct.pack("!H", code) + text
    return b"\0" + struct.pack("!HHIHHH", OPT, 1232, 0, 4 + len(data), EDE, len(data)) + data


def test_the_extended_errors_of_servers_that_failed_are_in_the_reason() -> None:
    asking = exchange(ONE, TWO)
    text = b"no answer\x1b[31m\r\nfrom \xe2\x80\xaens1\xff\0"
    assert answer(take(asking), additional=[extended(22, text)], rcode=2)
    assert answer(take(asking), additional=[extended(65000)], rcode=5)
    found = settled(asking)
    assert [(error.code, error.name) for error in found.extended] == [(22, "No Reachable Authority"), (65000, "")]
    assert found.extended[0].text == "no answer\x1b[31m\r\nfrom \u202ens1\ufffd"
    assert found.note == (
        "192.0.2.1#53: rcode 2, EDE 22 (No Reachable Authority): no answer?[31m??from ?ns1\ufffd; "
        "2001:4860::1#5300: rcode 5, EDE 65000"
    )
    assert found.note.isprintable()
    step = Step(NAME, 0, found.outcome, note=found.note, extended=found.extended)
    assert step.to_dict()["extended_errors"][1] == {"code": 65000, "name": "", "text": ""}
    assert "EDE 22 (No Reachable Authority)" in str(step)


def test_a_long_or_repeated_extended_error_is_cut() -> None:
    asking = exchange(ONE)
    for _ in range(2):
        answer(take(asking), additional=[extended(0, b"x" * 60_000)], rcode=2)
    found = settled(asking)
    assert len(found.extended) == 1
    assert len(found.extended[0].text) == 200
    assert len(found.note) < 300
