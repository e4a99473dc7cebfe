"""EDNS options from the vectors, response sizes, truncation, and the kinds of responses for the rate limit."""

from __future__ import annotations

from typing import Any

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import dns.rdataclass
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.answer.context import Context, Identity, ReceivedQuery, Transport
from maptr.answer.message import PADDING_BLOCK, Reply, padding_to_block
from maptr.answer.respond import make_reply, respond
from maptr.protocol.cookies import CookieSettings
from tests.support.answers import EDNS, SNAPSHOT

CLIENT = "198.51.100.100"
SECRET = bytes.fromhex("e5e973e5a6b2a43f48e7dc849e37bfcf")


def make_query(case: dict[str, Any]) -> dns.message.Message:
    options: list[dns.edns.Option] = [dns.edns.GenericOption(code, bytes.fromhex(raw)) for code, raw in case["options"]]
    question = case.get("name", "www.example."), case.get("type", "A"), case.get("class", "IN")
    query = dns.message.make_query(*question, use_edns=case.get("version", 0), payload=1232, options=options)
    if not case.get("question", True):
        query.question = []
    return query


def make_context(case: dict[str, Any]) -> Context:
    return Context(
        identity=Identity(case.get("nsid", ""), case.get("version_text", ""), case.get("hostname", "")),
        cookies=CookieSettings((SECRET,) if case.get("cookies", True) else (), case.get("required", False)),
        clock=lambda: 1559731985.5,
        idle_timeout=10.0,
    )


@pytest.mark.parametrize("case", EDNS["case"], ids=lambda case: case["title"])
def test_response_to_each_option_vector(case: dict[str, Any]) -> None:
    query = make_query(case)
    transport = Transport(case.get("transport", "udp"))
    wire = respond(query.to_wire(), SNAPSHOT, transport=transport, client=CLIENT, context=make_context(case))
    assert wire is not None
    reply = dns.message.from_wire(wire)
    assert dns.rcode.to_text(reply.rcode()) == case["rcode"]
    assert reply.question == query.question
    assert reply.edns == 0
    options = [[int(option.otype), option.to_wire().hex()] for option in reply.options]
    for option in options:
        if option[0] == dns.edns.OptionType.PADDING:
            assert not int(option[1] or "0", 16), "zeros (RFC 7830 3)"
            option[1] = "00*"
    assert options == case["reply"]
    if "size" in case:
        assert len(wire) == case["size"]
    if "text" in case:
        (rrset,) = reply.answer
        assert (rrset.name, rrset.rdclass, rrset.ttl) == (query.question[0].name, dns.rdataclass.CH, 0)
        assert [rdata.strings for rdata in rrset] == [(case["text"].encode(),)]
        assert not reply.flags & dns.flags.AA


@given(st.integers(0, 70_000), st.sampled_from([512, 1232, 65535]))
def test_rfc8467_padded_responses_are_whole_blocks_or_reach_the_limit(size: int, limit: int) -> None:
    options = padding_to_block(size, limit)
    if not options:
        assert size + 4 > limit
        return
    (padding,) = options
    total = size + 4 + len(padding.data)
    assert total <= limit
    assert total % PADDING_BLOCK == 0 or total == limit


def test_udp_payload_setting() -> None:
    query = dns.message.make_query("big.example.", "TXT", use_edns=0, payload=4096).to_wire()
    for payload, truncated in ((512, True), (1232, True), (4096, False)):
        wire = respond(query, SNAPSHOT, context=Context(udp_payload=payload))
        assert wire is not None
        assert len(wire) <= payload
        reply = dns.message.from_wire(wire)
        assert reply.payload == payload
        assert bool(reply.flags & dns.flags.TC) is truncated


def reply_to(name: str, rdtype: str = "A", **options: Any) -> Reply:
    query = dns.message.make_query(name, rdtype, **{"use_edns": 0, "payload": 1232, **options})
    reply = make_reply(ReceivedQuery(query.to_wire(), client=CLIENT), SNAPSHOT, make_context({}))
    assert reply is not None
    return reply


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("www.example.", "A"), ("WWW.example.", "A"), True),
        (("www.example.", "A"), ("www.example.", "TXT"), False),
        (("www.example.", "A"), ("ns1.example.", "A"), False),
        (("www.example.", "TXT"), ("www.example.", "MX"), True),  # both NODATA
        (("www.example.", "TXT"), ("ns1.example.", "TXT"), False),
        (("a.nope.example.", "A"), ("b.example.", "MX"), True),  # both NXDOMAIN
        (("a.sub.example.", "A"), ("b.c.sub.example.", "MX"), True),  # one delegation
        (("a.sub.example.", "A"), ("a.glue.example.", "A"), False),
        (("a.wild.example.", "A"), ("b.c.wild.example.", "A"), True),  # one wildcard
        (("a.d.example.", "A"), ("b.d.example.", "A"), True),  # one DNAME
        (("a.dd.example.", "A"), ("b.dd.example.", "A"), True),  # a DNAME out of the zone
        (("www.other.", "A"), ("www.else.", "MX"), True),  # both REFUSED
    ],
)
def test_responses_of_one_kind_for_the_rate_limit(one: tuple[str, str], other: tuple[str, str], same: bool) -> None:
    assert (reply_to(*one).kind == reply_to(*other).kind) is same


def test_a_truncated_response_has_only_question_and_opt() -> None:
    cookie = dns.edns.GenericOption(dns.edns.OptionType.COOKIE, bytes(8))
    for name in ("www.example.", "nope.example.", "sub.example."):
        reply = reply_to(name, options=[cookie])
        whole, short = dns.message.from_wire(reply.wire), dns.message.from_wire(reply.truncated())
        assert short.flags == whole.flags | dns.flags.TC
        assert (short.question, short.options, short.rcode()) == (whole.question, whole.options, whole.rcode())
        assert not [*short.answer, *short.authority, *short.additional]
    assert dns.message.from_wire(reply_to("www.example.", use_edns=False).truncated()).edns == -1


def test_rfc9619_qdcount_2_without_questions_is_formerr() -> None:
    query = make_query({"options": [[10, "2464c4abcf10c957"]], "question": False}).to_wire()
    for count, rcode in ((0, dns.rcode.NOERROR), (2, dns.rcode.FORMERR)):
        wire = query[:4] + count.to_bytes(2, "big") + query[6:]
        reply = respond(wire, SNAPSHOT, client=CLIENT, context=make_context({}))
        assert reply is not None
        assert dns.message.from_wire(reply).rcode() == rcode
