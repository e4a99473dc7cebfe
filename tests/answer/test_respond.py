"""Tests of ``respond``: conformance vectors by RFC section, case, compression and limits."""

from __future__ import annotations

from typing import Any

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from maptr.answer.context import Context, Transport
from maptr.answer.lookup import MAX_CHAIN
from maptr.answer.message import Message, MessageBuffer
from maptr.answer.respond import respond
from maptr.protocol.cookies import CookieSettings
from maptr.protocol.names import Folded
from maptr.zone.snapshot import Snapshot
from tests.support.answers import ANSWER, PACKETS, SNAPSHOT, snapshot_of

APEX = "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n"


def make_query(name: str, rdtype: str, case: dict[str, Any] | None = None) -> dns.message.Message:
    case = case or {}
    size, edns = case.get("payload", 512), 0 if "payload" in case else False
    query = dns.message.make_query(name, rdtype, use_edns=edns, payload=size, want_dnssec=case.get("do", False))
    query.flags = dns.flags.RD if case.get("rd") else dns.flags.Flag(0)
    return query


def wire_of(
    name: str, rdtype: str, snapshot: Snapshot = SNAPSHOT, *, transport: Transport = Transport.UDP, **case: Any
) -> bytes:
    wire = respond(make_query(name, rdtype, case).to_wire(), snapshot, transport=transport)
    assert wire is not None
    return wire


def ask(name: str, rdtype: str, snapshot: Snapshot = SNAPSHOT, **options: Any) -> dns.message.Message:
    return dns.message.from_wire(wire_of(name, rdtype, snapshot, **options))


def records(section: list[dns.rrset.RRset]) -> list[str]:
    return sorted(
        f"{rrset.name} {rrset.ttl} IN {dns.rdatatype.to_text(rrset.rdtype)} {rdata.to_text()}"
        for rrset in section
        for rdata in rrset
    )


def flags_of(reply: dns.message.Message) -> str:
    return " ".join(sorted(flag for flag in dns.flags.to_text(reply.flags).split() if flag != "QR"))


@pytest.mark.parametrize("case", ANSWER["case"], ids=lambda case: case["title"])
def test_response_to_each_vector(case: dict[str, Any]) -> None:
    query = make_query(case["name"], case["type"], case)
    transport = Transport.TCP if case.get("tcp") else Transport.UDP
    own = snapshot_of((APEX + case["records"], case.get("origin", "example."))) if "records" in case else SNAPSHOT
    wire = respond(query.to_wire(), own, transport=transport)
    assert wire is not None
    assert len(wire) <= (65535 if case.get("tcp") else min(max(512, case.get("payload", 512)), 1232))
    reply = dns.message.from_wire(wire)
    assert reply.id == query.id
    assert reply.question == query.question
    assert reply.opcode() == query.opcode()
    assert dns.rcode.to_text(reply.rcode()) == case["rcode"]
    assert flags_of(reply) == case["flags"]
    assert records(reply.answer) == case.get("answer", [])
    assert records(reply.authority) == case.get("authority", [])
    assert records(reply.additional) == case.get("additional", [])
    assert (reply.edns == 0) is ("payload" in case)
    if "payload" in case:
        assert reply.payload == 1232
        assert reply.ednsflags == (dns.flags.DO if case.get("do") else 0)
        assert not reply.options
    ours = Message.parse(wire, 65535)  # dnslib's classes read the same records as dnspython
    assert ours.pack() == wire
    for mine, other in ((ours.rr, reply.answer), (ours.auth, reply.authority)):
        assert [(r.rname.label, r.rtype, r.ttl) for r in mine] == [
            (rrset.name.labels[:-1], rrset.rdtype, rrset.ttl) for rrset in other for _ in rrset
        ]


@pytest.mark.parametrize("case", PACKETS["case"], ids=lambda case: case["title"])
def test_response_to_each_raw_packet(case: dict[str, str]) -> None:
    packet = bytes.fromhex(case["packet"])
    wire = respond(packet, SNAPSHOT)
    if case["expect"] == "silence":
        assert wire is None
        return
    assert wire is not None
    reply = dns.message.from_wire(wire)
    assert dns.rcode.to_text(reply.rcode()) == case["expect"]
    assert reply.id == 0x1234
    assert wire[2] >> 3 & 15 == packet[2] >> 3 & 15, "the opcode is that of the query"
    assert wire[3] & 0xF0 == 0, "RA, Z, AD and CD are clear"
    is_query = packet[2] >> 3 & 15 == 0
    assert wire[2] & 1 == (packet[2] & 1 if is_query else 0), "RD is copied only for QUERY"
    if case["expect"] not in ("NOERROR", "NXDOMAIN"):
        assert not any((reply.answer, reply.authority, reply.additional))
        assert not reply.flags & (dns.flags.AA | dns.flags.TC)
    if reply.edns >= 0:
        assert reply.edns == 0
        assert reply.ednsflags & 0xFFFF == 0


@pytest.mark.parametrize("transport", [Transport.TCP, Transport.TLS])
def test_rfc8482_any_over_a_stream_returns_all_rrsets(transport: Transport) -> None:
    assert len(ask("multi.example.", "ANY", transport=transport).answer) == 2


def test_responses_keep_the_case_of_the_question_and_compress_against_it() -> None:
    query = make_query("wWw.ExAmPlE.", "A").to_wire()
    wire = wire_of("wWw.ExAmPlE.", "A")
    assert wire[12 : len(query)] == query[12:]
    assert wire[len(query) : len(query) + 2] == b"\xc0\x0c"
    assert b"example" not in wire_of("NOPE.EXAMPLE.", "A"), "the SOA's names point into the question"
    assert wire_of("sub.example.", "A").count(b"\x07example") == 1, "so do those of name servers"


def test_rfc3597_naptr_and_srv_names_are_not_compressed() -> None:
    for name, rdtype in (("12345", "NAPTR"), ("_s._tcp", "SRV"), ("red", "NAPTR"), ("d", "DNAME")):
        wire = wire_of(f"{name}.example.", rdtype)
        node = SNAPSHOT.zones[Folded((b"example",))].nodes[Folded((*map(str.encode, name.split(".")), b"example"))]
        for rdata in node[dns.rdatatype.from_text(rdtype)].rdatas:
            assert len(rdata).to_bytes(2, "big") + rdata in wire


def test_rfc1035_no_compression_pointer_beyond_16383() -> None:
    hosts = "\n".join(f"many MX 10 host-with-a-long-name-{i:04d}.sub{i}" for i in range(500))
    extra = "\n".join(f"host-with-a-long-name-{i:04d}.sub{i} A 192.0.2.1" for i in range(500))
    snapshot = snapshot_of(f"{APEX}{hosts}\n{extra}")
    reply = ask("many.example.", "MX", snapshot, transport=Transport.TCP)
    assert len(reply.answer[0]) == 500
    assert len(reply.additional) == 500
    assert {str(rrset.name) for rrset in reply.additional} == {str(rdata.exchange) for rdata in reply.answer[0]}


def test_no_compression_pointer_points_to_removed_bytes() -> None:
    buffer = MessageBuffer()
    buffer.encode_name((b"a",))
    buffer.encode_name((b"b", b"a"))
    buffer.cut(3)
    buffer.encode_name((b"b", b"A"))
    assert bytes(buffer.data) == b"\1a\0\1b\xc0\0"


@pytest.mark.parametrize("size", range(1160, 1240))
def test_rfc6891_7_opt_counts_toward_the_size_limit(size: int) -> None:
    strings = " ".join(f'"{"x" * min(255, size - at)}"' for at in range(0, size, 255))
    wire = wire_of("t.example.", "TXT", snapshot_of(f"{APEX}t TXT {strings}"), payload=1232)
    whole = 12 + 15 + 12 + size + (size + 254) // 255 + 11  # header, question, record, strings, OPT
    assert len(wire) == (whole if whole <= 1232 else 12 + 15 + 11)
    assert bool(wire[2] & 0x02) is (whole > 1232)


def test_rfc1035_an_rrset_over_65535_bytes_is_truncated_over_tcp() -> None:
    text = "\n".join(f'huge TXT "{i:0250d}"' for i in range(300))
    reply = ask("huge.example.", "TXT", snapshot_of(APEX + text), transport=Transport.TCP, payload=1232)
    assert reply.flags & dns.flags.TC
    assert not reply.answer
    assert reply.edns == 0


@pytest.mark.parametrize(
    ("name", "owner", "place", "cut"),
    [
        ("example.", "@", "addresses", False),
        ("x.sub.example.", "sub", "addresses", False),
        ("x.sub.example.", "sub", "a.sub", True),
    ],
    ids=["rfc2181 additional addresses", "rfc9471 sibling glue", "rfc9471 required glue"],
)
def test_only_required_glue_that_does_not_fit_sets_tc(name: str, owner: str, place: str, cut: bool) -> None:
    hosts = "\n".join(f"{owner} NS ns{i}.{place}\nns{i}.{place} AAAA 2001:db8::{i}" for i in range(13))
    reply = ask(name, "NS", snapshot_of(f"{APEX}{hosts}"))
    assert bool(reply.flags & dns.flags.TC) is cut
    assert len((reply.answer or reply.authority)[0]) == 13 + (owner == "@")
    assert 0 < len(reply.additional) < 13


def test_rfc1034_the_closest_zone_answers_and_the_parent_has_ds() -> None:
    child = "@ 60 SOA ns h 9 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.99"
    both = snapshot_of((child, "sub.example."), ANSWER["zone"])
    assert records(ask("ns.sub.example.", "A", both).answer) == ["ns.sub.example. 60 IN A 192.0.2.99"]
    reply = ask("sub.example.", "DS", both)
    assert [rrset.rdtype for rrset in reply.answer] == [dns.rdatatype.DS]
    assert reply.flags & dns.flags.AA


@pytest.mark.parametrize(
    ("name", "rdtype", "rcode"),
    [
        ("sub.example.", "A", "SERVFAIL"),
        ("www.SUB.example.", "A", "SERVFAIL"),
        ("www.sub.example.", "DS", "SERVFAIL"),
        ("sub.example.", "DS", "NOERROR"),  # RFC 4035 3.1.4.1: the parent zone answers
        ("www.example.", "A", "NOERROR"),
        ("nope.example.", "A", "NXDOMAIN"),
        ("other.test.", "A", "SERVFAIL"),
        ("other.test.", "DS", "SERVFAIL"),
        ("a.child.other.test.", "A", "NXDOMAIN"),
        ("b.other.test.", "A", "SERVFAIL"),
        ("test.", "A", "REFUSED"),
    ],
)
def test_rfc8914_4_25_invalid_data_for_a_zone_that_could_not_be_loaded(name: str, rdtype: str, rcode: str) -> None:
    loaded = snapshot_of(ANSWER["zone"], (APEX, "child.other.test."))
    snapshot = loaded._replace(broken=frozenset({Folded((b"sub", b"example")), Folded((b"other", b"test"))}))
    reply = ask(name, rdtype, snapshot, payload=1232)
    assert dns.rcode.to_text(reply.rcode()) == rcode
    reasons = [option.code for option in reply.options if isinstance(option, dns.edns.EDEOption)]
    assert (dns.edns.EDECode.INVALID_DATA in reasons) is (rcode == "SERVFAIL")


def test_a_long_chain_of_aliases_is_followed_to_the_limit() -> None:
    """The client asks again at the last target (RFC 1034 5.3.3)."""
    chain = "".join(f"c{number} CNAME c{number + 1}\n" for number in range(MAX_CHAIN + 5))
    reply = ask("c0.example.", "A", snapshot_of(APEX + chain), transport=Transport.TCP)
    assert (reply.rcode(), len(reply.answer), reply.authority) == (dns.rcode.NOERROR, MAX_CHAIN, [])


# --- amplification


SIGNATURES = "\n".join(
    f"{name} RRSIG {covered} 13 1 60 20300101000000 20200101000000 1 example. {'A' * 88}"
    for name in ("@", "www")
    for covered in ("A", "TXT", "NS", "SOA", "MX", "AAAA", "DNSKEY", "NSEC")
)
LARGE = snapshot_of(
    APEX
    + "www A 192.0.2.2\n"
    + "".join(f'{name} TXT "{"x" * 200}{number}"\n' for name in ("@", "www") for number in range(4))
    + SIGNATURES
)
COOKIES = Context(cookies=CookieSettings((bytes(16),)))


def ask_with_cookie(name: str, rdtype: str, cookie: bytes) -> dns.message.Message:
    option = dns.edns.GenericOption(dns.edns.OptionType.COOKIE, cookie)
    query = dns.message.make_query(name, rdtype, use_edns=0, payload=1232, options=[option])
    query.flags = dns.flags.Flag(0)
    wire = respond(query.to_wire(), LARGE, client="192.0.2.1", context=COOKIES)
    assert wire is not None
    return dns.message.from_wire(wire)


@pytest.mark.parametrize(("name", "rdtype"), [("example.", "TXT"), ("example.", "RRSIG"), ("www.example.", "RRSIG")])
def test_large_answers_at_the_apex_and_to_rrsig_need_a_cookie_or_tcp(name: str, rdtype: str) -> None:
    reply = ask(name, rdtype, LARGE, payload=1232)
    assert (flags_of(reply), reply.answer) == ("AA TC", [])
    whole = ask(name, rdtype, LARGE, payload=1232, transport=Transport.TCP)
    assert len(whole.to_wire()) > 512
    first = ask_with_cookie(name, rdtype, bytes(8))
    assert flags_of(first) == "AA TC", "a cookie without a server part proves nothing"
    second = ask_with_cookie(name, rdtype, bytes(first.options[0].to_wire()))
    assert (flags_of(second), second.answer) == ("AA", whole.answer)


@pytest.mark.parametrize(("name", "rdtype"), [("www.example.", "TXT"), ("example.", "SOA"), ("ns.example.", "RRSIG")])
def test_other_answers_need_no_cookie(name: str, rdtype: str) -> None:
    assert flags_of(ask(name, rdtype, LARGE, payload=1232)) == "AA"


def test_rfc8914_4_15_not_ready_while_the_zones_are_loaded() -> None:
    for name, rdtype in (("www.example.", "A"), ("example.", "AXFR"), (".", "NS")):
        reply = ask(name, rdtype, Snapshot.starting(), payload=1232)
        assert [option.code for option in reply.options if isinstance(option, dns.edns.EDEOption)] in ([14], [18])
        assert dns.rcode.to_text(reply.rcode()) == ("REFUSED" if rdtype == "AXFR" else "SERVFAIL")
    assert ask("www.example.", "A", Snapshot.starting()).options == ()


@pytest.mark.parametrize("rdtype", ["AXFR", "IXFR"])
def test_rfc8914_4_19_prohibited_where_no_transfer_is_configured(rdtype: str) -> None:
    reply = ask("example.", rdtype, snapshot_of(ANSWER["zone"]), payload=1232)
    assert [option.code for option in reply.options if isinstance(option, dns.edns.EDEOption)] == [18]
    assert ask("example.", rdtype, snapshot_of(ANSWER["zone"])).options == ()
