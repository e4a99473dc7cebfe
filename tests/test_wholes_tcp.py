"""Replies by TCP and TLS that are known whole: the same octets as without, and never those of before."""

from __future__ import annotations

import dns.edns
import dns.message
import dns.zone
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.context import Transport
from maptr.cookies import answer_cookie
from maptr.serve.daemon import Daemon
from maptr.serve.front import Front, State
from maptr.serve.hashing import make_hash, make_shared_hash
from maptr.serve.wholes import Wholes
from maptr.snapshot import Snapshot
from tests.running import served

NAPTR = '12345 60 NAPTR 100 10 "h" "ark" "" {}.'
ZONE = "@ 60 SOA ns host 1 7200 3600 1209600 300\n@ 60 NS ns\nns 60 A 192.0.2.1\n" + NAPTR
HASHES = [make_hash(), make_shared_hash()]
TCP, TLS, UDP = Transport.TCP, Transport.TLS, Transport.UDP


def snapshot(host: str = "h.example") -> Snapshot:
    return Snapshot.from_zones([dns.zone.from_text(ZONE.format(host), "ark.arpa.", relativize=False)])


def wire(name: str = "12345.ark.arpa.", ident: int = 7, *options: dns.edns.Option) -> bytes:
    return dns.message.make_query(name, "NAPTR", use_edns=0, options=list(options), id=ident).to_wire()


@pytest.fixture
def front() -> Front:
    front = Daemon(served(snapshot()), []).front
    front.swap(State.of(front.snapshot, front.access, front.responder.context))
    return front


def ask(front: Front, query: bytes, transport: Transport = TCP, client: str = "192.0.2.7") -> bytes:
    (reply,) = front.answers(query, transport, client)
    return reply


@pytest.mark.parametrize("name", ["12345.ark.arpa.", "99999.ark.arpa.", "ns.ark.arpa.", "ark.arpa.", "other.example."])
def test_the_second_time_is_as_the_first_and_as_the_general_path(front: Front, name: str) -> None:
    first, second = ask(front, wire(name)), ask(front, wire(name, 8), TLS)
    assert first[:2] == (7).to_bytes(2, "big")
    assert second[:2] == (8).to_bytes(2, "big")
    assert first[2:] == second[2:]
    general = front.responder.answer(wire(name), front.snapshot, transport=TCP, client="192.0.2.7")
    assert general == first


def test_each_is_counted(front: Front) -> None:
    for ident in range(3):
        ask(front, wire(ident=ident))
    ask(front, wire("99999.ark.arpa."), TLS)
    ask(front, wire("99999.ark.arpa."), TLS)
    assert front.counters[0].to_dict() == {"tcp": {"NOERROR": 3}, "tls": {"NXDOMAIN": 2}}


def test_they_are_made_once(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask(front, wire())
    monkeypatch.setattr(front.responder, "find", lambda *_: pytest.fail("made again"))
    assert ask(front, wire()) == first


def test_udp_neither_learns_nor_asks(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads are others, and its replies have a rate limit."""
    for method in ("find", "learn", "learn_ready"):
        monkeypatch.setattr(Wholes, method, lambda *_, **__: pytest.fail("asked"))
    assert ask(front, wire(), UDP)


def test_whatever_the_cookie_they_are_made_once(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("12345.ark.arpa.", "12345.ARK.arpa.", "ns.ark.arpa.")
    for name in names:
        for octets in (bytes(8), bytes(24)):
            ask(front, with_cookie(name, octets))
    monkeypatch.setattr(front.responder, "find", lambda *_: pytest.fail("made again"))
    for name in names:
        for octets in (b"another.", b"another." * 3):
            query = with_cookie(name, octets)
            general = front.responder.answer(query, front.snapshot, transport=TCP, client="192.0.2.7")
            first, second = (dns.message.from_wire(reply or b"") for reply in (ask(front, query), general))
            assert first == second
            assert cookie_of(first)[:8] == cookie_of(second)[:8] == b"another."
            verified = dns.message.from_wire(ask(front, with_cookie(name, cookie_of(first))))
            assert cookie_of(verified) == cookie_of(first)
    assert front.counters[0].verified == 6
    assert front.counters[0].unverified == 12


def cookie_of(message: dns.message.Message) -> bytes:
    (cookie,) = (option for option in message.options if option.otype == dns.edns.OptionType.COOKIE)
    return cookie.to_wire() or b""


def with_cookie(name: str, octets: bytes) -> bytes:
    return wire(name, 7, dns.edns.GenericOption(dns.edns.OptionType.COOKIE, octets))


def test_new_zones_have_new_replies(front: Front) -> None:
    before = ask(front, wire())
    ask(front, with_cookie("12345.ark.arpa.", bytes(8)))
    front.swap(State.of(snapshot("new.example"), front.access, front.responder.context))
    assert b"\3new\7example" in ask(front, wire())
    assert b"\3new\7example" in ask(front, with_cookie("12345.ark.arpa.", bytes(8)))
    front.snapshot = snapshot("newer.example")  # for which nothing lies ready
    assert b"\5newer\7example" in ask(front, wire())
    assert b"\5newer\7example" in ask(front, with_cookie("12345.ark.arpa.", bytes(8)))
    assert b"\3new\7example" not in before


def test_what_a_client_alone_gets_is_not_kept(front: Front) -> None:
    """A cookie is of its client, padding is for TLS, and what keepalive says changes when a worker gives way."""
    cookie, padding, keepalive = (
        dns.edns.GenericOption(dns.edns.OptionType.make(code), octets)
        for code, octets in ((10, bytes(8)), (12, b""), (11, b""))
    )
    one, other = (ask(front, wire("12345.ark.arpa.", 7, cookie), TCP, f"192.0.2.{host}") for host in (7, 8))
    assert one[:-16] == other[:-16]
    assert one[-16:] != other[-16:]
    assert ask(front, wire("12345.ark.arpa.", 7, cookie)) == one
    plain, padded = (ask(front, wire("12345.ark.arpa.", 7, padding), transport) for transport in (TCP, TLS))
    assert len(plain) < len(padded) == 468
    before = ask(front, wire("12345.ark.arpa.", 7, keepalive))
    front.responder.context = front.responder.context._replace(idle_timeout=0)
    assert before[:-2] + b"\0\0" == ask(front, wire("12345.ark.arpa.", 7, keepalive)) != before


def test_their_number_is_bounded_and_each_is_known_in_any_case(front: Front) -> None:
    front._wholes._most, cookie = 5, dns.edns.GenericOption(dns.edns.OptionType.COOKIE, bytes(8))
    for number in range(17):
        for name in (f"{number}.ark.arpa.", f"{number}.Ark.arpa.", f"ns.{number}.ark.arpa."):
            ask(front, wire(name))
            ask(front, with_cookie(name, bytes(8)))
    assert len(front._wholes.denied) == 2 * 17
    for number in range(17):
        option = dns.edns.GenericOption(dns.edns.OptionType.make(65001), bytes(number))
        for options in ((option,), (option, cookie)):
            ask(front, wire("12345.ark.arpa.", number, *options))
        assert len(front._wholes.noerror) + len(front._wholes._with_cookie) <= 5
    assert not front._wholes.kinds, "there is no rate limit"
    assert b"Ark" in ask(front, wire("0.Ark.arpa."))
    assert b"Ark" not in ask(front, wire("0.ark.arpa."))


@pytest.mark.parametrize("size", range(12, 30))
def test_what_cannot_be_read_is_not_kept(front: Front, size: int) -> None:
    cut = wire()[:size]
    for octets in (cut, cut[:2] + cut[2:].upper(), cut):
        assert ask(front, octets) == front.responder.answer(octets, front.snapshot, transport=TCP, client="192.0.2.7")
    assert not front._wholes.noerror
    assert not front._wholes.denied


@given(
    st.sampled_from(["192.0.2.7", "2001:db8::7", "fe80::1%lo", ""]),
    st.binary(min_size=8, max_size=8),
    st.integers(-400, 4000),
    st.sampled_from(["client", "ours", "before", "other", "junk"]),
)
def test_cookies_are_judged_as_always(client: str, part: bytes, age: int, kind: str) -> None:
    secrets, now = (bytes(16), bytes(range(16))), 1_800_000_000.0
    made = {
        "client": part,
        **{
            name: answer_cookie(part, client, secrets=(secret,), now=now - age).option
            for name, secret in (("ours", secrets[0]), ("before", secrets[1]), ("other", b"another secret.."))
        },
        "junk": part * 3,
    }[kind]
    expected = answer_cookie(made, client, secrets=secrets, now=now)
    for siphash in HASHES:
        assert answer_cookie(made, client, secrets=secrets, now=now, siphash=siphash) == expected
