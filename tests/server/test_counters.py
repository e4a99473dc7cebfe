"""Counters: the RCODE that a response is counted under, sums, and connections."""

from __future__ import annotations

import dns.edns
import dns.message
import dns.rcode
import pytest

from maptr.answer.context import Transport
from maptr.protocol.cookies import CookieSettings
from maptr.server.counters import Counters, total
from tests.support.streams import responding


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
        (query("ark.arpa.", options=[dns.edns.GenericOption(dns.edns.OptionType.COOKIE, b"12345678")]), "BADCOOKIE"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # a query has another number each time
)
def test_a_response_is_counted_under_the_rcode_that_a_client_reads(asked: bytes, result: str) -> None:
    responder = responding(context={"cookies": CookieSettings((b"0123456789abcdef",), required=True)})
    counters = Counters()
    for count in (1, 2):  # the second time it may be ready
        reply = responder.answer(asked, Transport.UDP, "192.0.2.1", counters)
        assert counters.to_dict() == {"udp": {result: count}}
    if reply is not None:
        assert dns.rcode.to_text(dns.message.from_wire(reply, ignore_trailing=True).rcode()).startswith(result[:7])


def test_rfc6891_badvers_without_a_question() -> None:
    reply = bytes.fromhex("0001 8000 0000 0000 0000 0001 00 0029 04d0 01000000 0000")
    counters = Counters()
    counters.count(Transport.TCP, reply)
    assert counters.to_dict() == {"tcp": {"BADVERS": 1}}


def test_the_sum_of_counters() -> None:
    first, second = Counters(), Counters()
    first.queries[Transport.UDP][0] += 5
    second.queries[Transport.UDP][0] += 1
    second.queries[Transport.TCP][3] += 2
    first.received, second.received = 7, 1
    both = total([first, second])
    assert both.to_dict() == {"udp": {"NOERROR": 6}, "tcp": {"NXDOMAIN": 2}}
    assert both.received == 8
    assert first.to_dict() == {"udp": {"NOERROR": 5}}
    assert total([]) == Counters()
