"""The rate limit, cookies and counters in the responder."""

from __future__ import annotations

from typing import Any

import dns.edns
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.tsig
import pytest

from maptr.answer.context import ReceivedQuery, Transport
from maptr.config.model import RrlConfig
from maptr.daemon.log_limit import MAX_LINES
from maptr.protocol.cookies import CookieSettings, packed_address, sign, timestamp
from maptr.server.counters import Counters, total
from maptr.server.responder import Responder, ServerState
from maptr.transfer.acl import TsigKey
from maptr.transfer.session import Access
from tests.support.answers import snapshot_of
from tests.support.caching import Clock
from tests.support.streams import responding

SNAPSHOT = snapshot_of("@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n*.w 60 TXT x")
CLIENT = "198.51.100.1"


def limited(rate: int = 1, **context: Any) -> Responder:
    return responding(SNAPSHOT, context=context, rrl=RrlConfig(responses_per_second=rate), clock=Clock())


def answers(
    responder: Responder, count: int, name: str = "ns.example.", transport: Transport = Transport.UDP
) -> list[bytes | None]:
    wires = [dns.message.make_query(name.replace("#", str(number)), "A").to_wire() for number in range(count)]
    return [responder.answer(ReceivedQuery(wire, transport, CLIENT), Counters()) for wire in wires]


@pytest.mark.parametrize("name", ["ns.example.", "#.example.", "#.w.example.", "#.other."])
def test_a_flood_is_limited_for_names_of_every_kind(name: str, caplog: pytest.LogCaptureFixture) -> None:
    responder = limited(5)
    given_replies = [reply for reply in answers(responder, 105, name) if reply is not None]
    truncated = [reply for reply in given_replies if dns.message.from_wire(reply).flags & dns.flags.TC]
    assert (len(given_replies), len(truncated)) == (55, 50)
    assert caplog.text.count("response rate limit reached (client 198.51.100.1 among others)") == 1


def test_internal_errors_do_not_fill_the_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr("maptr.server.responder.answer", broken)
    assert set(answers(limited(1000), MAX_LINES + 20, "#.no.example.")) == {None}
    assert len(caplog.records) == MAX_LINES
    assert "internal error, query dropped: " in caplog.text


def test_tcp_is_not_limited() -> None:
    responder = limited()
    assert None not in answers(responder, 50, transport=Transport.TCP)
    assert responder.answer(ReceivedQuery(b"", Transport.UDP, CLIENT), Counters()) is None
    assert responder.limiter.tally.dropped == 0


def test_a_client_with_a_valid_cookie_is_not_limited() -> None:
    responder = limited(cookies=CookieSettings((bytes(16),)))
    query = dns.message.make_query("ns.example.", "A", options=[dns.edns.CookieOption(bytes(8), b"")])
    reply = responder.answer(ReceivedQuery(query.to_wire(), Transport.UDP, CLIENT), Counters())
    assert reply is not None
    query.use_edns(options=list(dns.message.from_wire(reply).options))
    wire = query.to_wire()
    assert all(responder.answer(ReceivedQuery(wire, Transport.UDP, CLIENT), Counters()) for _ in range(50))


def test_a_client_with_a_valid_tsig_is_not_limited() -> None:
    key = TsigKey((b"k",), "hmac-sha256", bytes(32))
    responder = limited()
    responder.swap(ServerState(SNAPSHOT, Access(keys={key.name: key}), responder.state.context))
    for _ in range(50):
        query = dns.message.make_query("ns.example.", "A")
        query.use_tsig({dns.name.from_text("k."): dns.tsig.Key("k.", bytes(32), "hmac-sha256.")})
        assert responder.answer(ReceivedQuery(query.to_wire(), Transport.UDP, CLIENT), Counters())
    assert responder.limiter.tally.dropped == 0
    assert None in [
        responder.answer(ReceivedQuery(query.to_wire()[:-1], Transport.UDP, CLIENT), Counters()) for _ in range(3)
    ]


def test_limits_and_cookies_are_on_by_default() -> None:
    responder = responding(SNAPSHOT)
    assert responder.state.context.cookies.secrets != responding().state.context.cookies.secrets
    assert None in answers(responder, 200)


@pytest.mark.parametrize("required", [False, True])
def test_rfc7873_5_2_cookie_of_general_and_ready_responses(required: bool) -> None:
    now = 1_800_000_000
    context: dict[str, Any] = {"cookies": CookieSettings((bytes(16),), required), "clock": lambda: now}
    responder = limited(1000, **context)
    good = sign(b"clientck" + timestamp(now), packed_address(CLIENT), bytes(16))
    for option, verified in ((good, True), (good[:8], False), (good[:-1] + bytes((good[-1] ^ 1,)), False)):
        cookie = dns.edns.GenericOption(dns.edns.OptionType.COOKIE, option)
        for _ in range(3):
            counters = Counters()
            wire = responder.answer(
                ReceivedQuery(query("ns.example.", "A", options=[cookie]), Transport.UDP, CLIENT), counters
            )
            assert wire is not None
            reply = dns.message.from_wire(wire)
            assert reply.rcode() == (dns.rcode.BADCOOKIE if required and not verified else dns.rcode.NOERROR)
            assert [option.to_wire() for option in reply.options] == [good]
            assert (counters.verified, counters.unverified) == (verified, not verified)


def query(name: str, rdtype: str = "NAPTR", edns: int = 0, **options: object) -> bytes:
    return dns.message.make_query(name, rdtype, use_edns=edns, **options).to_wire()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "result"),
    [
        (query("12345.ark.arpa."), "NOERROR"),
        (query("12345.ark.arpa.", "A"), "NOERROR"),
        (query("12345.ark.arpa.", "A", edns=-1), "NOERROR"),
        (query("ark.arpa.", "SOA", edns=1), "BADVERS"),
        (query(".", "SOA", edns=7), "BADVERS"),
        (query("none.ark.arpa."), "NXDOMAIN"),
        (query("elsewhere."), "REFUSED"),
        (query("ark.arpa.")[:11], "dropped"),
        (query("ark.arpa.")[:-3], "FORMERR"),
        # A truncated UPDATE, whose ID is the number of the type TSIG.
        (bytes.fromhex("00fa28000001000004000000") + b"\3ark\4arpa\0\0\6\0\1", "REFUSED"),
        (query("ark.arpa.", options=[dns.edns.GenericOption(dns.edns.OptionType.COOKIE, b"12345678")]), "BADCOOKIE"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # the IDs of queries are random
)
def test_a_response_is_counted_under_its_full_rcode(asked: bytes, result: str) -> None:
    responder = responding(context={"cookies": CookieSettings((b"0123456789abcdef",), required=True)})
    counters = Counters()
    for count in (1, 2):  # the second time it may be ready
        reply = responder.answer(ReceivedQuery(asked, Transport.UDP, "192.0.2.1"), counters)
        assert counters.to_dict() == {"udp": {result: count}}
    if reply is not None:
        assert dns.rcode.to_text(dns.message.from_wire(reply, ignore_trailing=True).rcode()).startswith(result[:7])


def test_rfc6891_badvers_is_counted_without_a_question() -> None:
    reply = bytes.fromhex("0001 8000 0000 0000 0000 0001 00 0029 04d0 01000000 0000")
    counters = Counters()
    counters.count(Transport.TCP, reply)
    assert counters.to_dict() == {"tcp": {"BADVERS": 1}}


def test_the_sum_of_counters() -> None:
    first, second = Counters(received=7), Counters(received=1)
    first.queries[Transport.UDP][0] += 5
    second.queries[Transport.UDP][0] += 1
    second.queries[Transport.TCP][3] += 2
    both = total([first, second])
    assert both.to_dict() == {"udp": {"NOERROR": 6}, "tcp": {"NXDOMAIN": 2}}
    assert both.received == 8
    assert first.to_dict() == {"udp": {"NOERROR": 5}}
    assert total([]) == Counters()
