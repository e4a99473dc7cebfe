"""The client's messages compared with dnspython: both read the same, and nothing that dnspython rejects is accepted."""

from __future__ import annotations

import contextlib
import random
import struct
import time
from itertools import pairwise
from typing import Any

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.resolver
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.ark import Ark
from maptr.discovery import Outcome
from maptr.protocol.numbers import HEADER_SIZE
from maptr.resolver import message as wire
from maptr.resolver.exchange import Exchange, StubOptions
from maptr.resolver.message import SentQuery, read_response
from maptr.resolver.servers import CaseBlind, Server
from maptr.walk import Question, Walk
from tests.resolver.test_exchange import take
from tests.resolver.test_hostile import ARK
from tests.support.answers import load_vectors
from tests.support.hostile import AA, CNAME, NAPTR, TC, naptr, record, reply

NAME = (b"12345", b"ark", b"arpa")
QNAME = dns.name.Name((*NAME, b""))
LABEL = st.binary(min_size=1, max_size=12)
OWNERS = ("12345.ARK.arpa.", "a.example.", "b.a.example.", "ark.arpa.", ".")
RDATAS = {
    "NAPTR": (
        '0 0 "h" "ark" "" h.example.',
        '9 1 "u" "ark" "!^.*$!https://h.example/!" .',
        '0 0 "" "" "" 12345.ark.arpa.',
    ),
    "CNAME": ("a.example.", "b.a.example.", "12345.ark.arpa."),
    "SOA": ("a. b. 1 2 3 4 60",),
    "NS": ("ns.example.",),
    "A": ("192.0.2.1",),
    "TXT": ('"text"',),
}
RRSETS = st.lists(
    st.sampled_from(
        [(owner, kind, text) for owner in OWNERS for kind, texts in RDATAS.items() for text in texts]
    ).flatmap(lambda r: st.tuples(st.just(r), st.sampled_from([0, 1, 60, 86400]))),
    max_size=6,
)


def query(**options: Any) -> SentQuery:
    return wire.make_query(NAME, random.Random(1).randbytes, **options)


def test_dnspython_reads_the_query() -> None:
    message = dns.message.from_wire(query().packet)
    assert message.question[0].name == QNAME
    assert message.question[0].name.to_text() != QNAME.to_text()  # 0x20
    assert message.question[0].rdtype == dns.rdatatype.NAPTR
    assert (message.edns, message.payload, message.ednsflags) == (0, 1232, 0)
    assert message.flags == dns.flags.RD
    plain = dns.message.from_wire(query(mix=False, edns=False, ask_ad=True).packet)
    assert plain.question[0].name.to_text() == QNAME.to_text()
    assert (plain.edns, plain.flags) == (-1, dns.flags.RD | dns.flags.AD)


@given(
    answer=RRSETS,
    authority=RRSETS,
    additional=RRSETS,
    aa=st.booleans(),
    ra=st.booleans(),
    rcode=st.sampled_from([dns.rcode.NOERROR, dns.rcode.NOERROR, dns.rcode.NXDOMAIN, dns.rcode.SERVFAIL]),
)
def test_a_response_is_read_as_dnspython_reads_it(
    answer: list[tuple[tuple[str, str, str], int]],
    authority: list[tuple[tuple[str, str, str], int]],
    additional: list[tuple[tuple[str, str, str], int]],
    aa: bool,
    ra: bool,
    rcode: dns.rcode.Rcode,
) -> None:
    asked = query()
    message = dns.message.make_response(dns.message.from_wire(asked.packet))
    message.flags |= (dns.flags.AA if aa else 0) | (dns.flags.RA if ra else 0)
    message.set_rcode(rcode)
    for part, records in ((message.answer, answer), (message.authority, authority), (message.additional, additional)):
        for (owner, kind, text), ttl in records:
            part.append(dns.rrset.from_text(owner, ttl, "IN", kind, text))
    packet = message.to_wire()
    assert wire.is_response_to(asked, packet)
    parsed = dns.message.from_wire(packet)
    assert isinstance(parsed, dns.message.QueryMessage)
    try:
        reply = read_response(asked, packet)
    except ValueError:
        reply = None
    if rcode == dns.rcode.SERVFAIL:
        assert reply is not None
        assert reply.outcome is Outcome.MALFORMED
        assert reply.rcode == rcode
        return
    if rcode == dns.rcode.NXDOMAIN:
        assert reply is not None
        assert reply.outcome is Outcome.NXDOMAIN
        return
    try:
        theirs = dns.resolver.Answer(QNAME, dns.rdatatype.NAPTR, dns.rdataclass.IN, parsed)
    except dns.exception.DNSException:  # a chain too long, or of records that contradict each other
        return
    if reply is None:
        return
    assert {r.canonical() for r in reply.records} == {r.to_digestable() for r in theirs.rrset or ()}
    if theirs.rrset is not None:
        name = theirs.canonical_name
        assert reply.note.lower() == ("" if name == theirs.qname else f"through CNAME {name}".lower())
        assert (reply.outcome, reply.ttl) == (Outcome.ANSWER, theirs.chaining_result.minimum_ttl)
    elif reply.alias is not None:  # a resolver that has not followed a CNAME: its target is asked for
        assert (theirs.canonical_name != theirs.qname, reply.outcome) == (True, Outcome.REFERRAL)
    elif parsed.flags & dns.flags.RA or any(rrset.rdtype == dns.rdatatype.SOA for rrset in parsed.authority):
        assert reply.outcome is Outcome.NODATA
    else:
        assert reply.outcome in (Outcome.NODATA, Outcome.REFERRAL)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_a_value_error(tail: bytes) -> None:
    asked = query()
    for packet in (
        tail,
        asked.packet[:2] + b"\x85\0\0\1" + tail,
        asked.packet[:2] + b"\x85\0\0\1\0\1\0\1\0\1" + asked.question + tail,
    ):
        if wire.is_response_to(asked, packet):
            with contextlib.suppress(ValueError):
                read_response(asked, packet)


def cost(aliases: int) -> float:
    """Seconds of CPU to read a response with 4,000 records of long owner names and a chain of so many CNAMEs."""
    asked = wire.make_query(NAME, bytes, mix=False)
    pointer = struct.pack("!H", 0xC000 | HEADER_SIZE + len(asked.question))
    others = [b"\1a" * 110 + b"\0" + struct.pack("!HHIH", 65280, 1, 60, 0)]
    others += [pointer + struct.pack("!HHIH", 65280, 1, 60, 0)] * 4_000
    ends = [b"\xc0\x0c", *(b"\1" + bytes((97 + number,)) + b"\0" for number in range(aliases))]
    chain = [owner + struct.pack("!HHIH", CNAME, 1, 60, len(end)) + end for owner, end in pairwise(ends)]
    packet = reply(asked.packet, others + chain)
    started = time.process_time()
    read = read_response(asked, packet)
    assert read.note == f"through CNAME {chr(96 + aliases)}."
    return time.process_time() - started


def test_a_chain_of_aliases_costs_little_among_long_names() -> None:
    """Comparing every owner again for each of sixteen aliases took half a second."""
    assert min(cost(16) for _ in range(5)) < 4 * min(cost(1) for _ in range(5))


# ---- vectors of responses


VECTORS = load_vectors("replies")["reply"]
ID = b"\xab\xcd"

ASKED = b"\x0512345\3ark\4arpa\0\0\x23\0\1"
GOOD = [record(None, NAPTR, naptr("good.example."))]


def octets(case: dict[str, Any]) -> bytes:
    return bytes.fromhex(case["packet"])


def exchange() -> Exchange:
    """An exchange that sends the query of the vectors, with their ID and in lower case."""
    options = StubOptions((Server("192.0.2.1"),), CaseBlind(), random_bytes=lambda size: ID + bytes(size - 2))
    return Exchange(NAME, NAPTR, options)


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["title"])
def test_vector(case: dict[str, Any]) -> None:
    asking = exchange()
    attempt = take(asking)
    assert attempt.query.packet.startswith(ID)
    if case.get("by_tcp"):
        assert asking.receive(attempt, reply(attempt.query.packet, flags=AA | TC))
        attempt = take(asking)
    assert asking.receive(attempt, octets(case)) is case.get("heard", True)
    if not case.get("heard", True):
        return
    following = asking.next()
    if case.get("repeated"):
        assert following is not None
        assert asking.receive(following, octets(case))
        following = asking.next()
    assert (following is not None and following.tcp) is case.get("tcp", False)
    if case.get("respelled"):
        assert following is not None
        assert following.query.question == octets(case)[12 : 12 + len(ASKED)]
    if following is not None:
        return
    answer = asking.answer
    assert answer is not None
    assert answer.outcome is Outcome[case["outcome"]]
    assert case.get("note", "") in answer.note
    assert answer.ttl == case.get("ttl")
    walk = Walk(Ark.parse(ARK))
    (root,) = walk.next()
    assert root == Question(NAME)
    walk.tell(root, answer)
    assert [candidate.host for candidate in walk.result()] == case.get("hosts", [])
