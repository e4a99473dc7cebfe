"""Messages for validation: read as dnspython reads them, and within limits for hostile ones."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import dns.dnssec
import dns.message
import dns.name
import dns.rdata
import dns.rdatatype
import dns.rrset
import pytest

from maptr.discovery import Outcome
from maptr.protocol import names
from maptr.protocol.numbers import HEADER_SIZE, MAX_MESSAGE
from maptr.resolver import message as wire
from maptr.resolver.validation import signed
from tests.support.hostile import CNAME, NAPTR, NS, SOA, naptr, record, reply

pytest.importorskip("cryptography", reason="validation needs maptr[dnssec]")
from maptr.resolver.validation.chain import DnssecQuestion, Resolved
from tests.resolver.validation.test_chain import NOW, honest, packet, settle

QUERY = wire.make_query(names.parse("12345.ark.arpa."), bytes, mix=False)
BEHIND_QUESTION = HEADER_SIZE + len(QUERY.question)
DNAME, NSEC, RRSIG = 39, 47, 46
LONG = b"\1a" * 110 + b"\0"  # a name of as many labels as there is room for below
POINTER = struct.pack("!H", 0xC000 | BEHIND_QUESTION)


def long_name_first() -> bytes:
    """A record of an unknown type, whose owner other records may point to."""
    return LONG + struct.pack("!HHIH", 65280, 1, 60, 0)


def below(number: int) -> bytes:
    return b"\2" + struct.pack("!H", number) + POINTER


def fields(owner: bytes, rdtype: int, rdata: bytes) -> bytes:
    return owner + struct.pack("!HHIH", rdtype, 1, 60, len(rdata)) + rdata


def rrsig(covered: int) -> bytes:
    return struct.pack("!HBBIIIH", covered, 13, 3, 60, NOW + 9, NOW - 9, 1) + b"\0" + b"signature"


def full(records: Iterator[bytes]) -> list[bytes]:
    """As many of the records as one message has room for, behind one with a long name."""
    found = [long_name_first()]
    size = BEHIND_QUESTION + len(found[0])
    for octets in records:
        size += len(octets)
        if size > MAX_MESSAGE:
            break
        found.append(octets)
    return found


def denials() -> Iterator[bytes]:
    """Signatures first, so that a search for the signature of each NSEC passes all of them."""
    yield from (fields(below(number), RRSIG, rrsig(NSEC)) for number in range(1000))
    yield from (fields(below(number), NSEC, b"\0") for number in range(1500))


HOSTILE: dict[str, Callable[[], Iterator[bytes]]] = {
    "NSEC and RRSIG of a thousand names": denials,
    "DNAME at thousands of names": lambda: (fields(below(i), DNAME, b"\0") for i in range(6000)),
    "SOA records with long names": lambda: (
        fields(POINTER, SOA, POINTER * 2 + struct.pack("!5I", i, 0, 0, 0, 0)) for i in range(6000)
    ),
    "CNAME records with long names": lambda: (fields(POINTER, CNAME, below(i)) for i in range(6000)),
    "NAPTR records with long names": lambda: (
        fields(b"\xc0\x0c", NAPTR, struct.pack("!HH", i, 0) + b"\1h\3ark\0" + POINTER) for i in range(6000)
    ),
}


@pytest.mark.parametrize("title", HOSTILE)
def test_a_message_above_the_limits_is_refused(title: str) -> None:
    """Some took sixteen seconds, because the time of dnspython grows with the square of the labels."""
    with pytest.raises(ValueError, match=r"more than 256 RRsets|too many names"):
        signed.parse(reply(QUERY.packet, authority=full(HOSTILE[title]())))


def test_a_message_of_a_resolver_is_limited_too() -> None:
    """With its proofs each compared with each, a thousand NSEC records of long names took sixteen seconds."""

    def ask(lookup: DnssecQuestion) -> Resolved:
        if lookup.rdtype != NAPTR:
            return honest(lookup)
        heavy = dns.message.make_response(dns.message.make_query(lookup.name, lookup.rdtype))
        heavy.authority = [dns.rrset.from_text(f"n{nth}.ark.arpa.", 60, "IN", "NSEC", ". A") for nth in range(300)]
        return Resolved(Outcome.NODATA, heavy)

    answer = settle("1.ark.arpa.", ask)
    assert (answer.outcome, answer.security) == (Outcome.MALFORMED, "indeterminate")
    assert answer.note == "more than 256 RRsets"


def test_types_that_validation_does_not_need_are_not_parsed() -> None:
    records = full(fields(POINTER, NS, below(number)) for number in range(6000))
    read = signed.parse(reply(QUERY.packet, [], authority=records))
    assert read.authority == []
    assert signed.parse(reply(QUERY.packet, [], additional=records)).additional == []


def test_a_thousand_rules_are_within_the_limits() -> None:
    deep = "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.ark.arpa."
    rules = [record(None, NAPTR, naptr(deep, preference=number)) for number in range(1000)]
    assert len(signed.parse(reply(QUERY.packet, rules)).answer[0]) == 1000


@pytest.mark.parametrize(
    "question",
    [
        *(f"{name}.ark.arpa. NAPTR" for name in ("1", "3", "a.b.w", "q.y", "4")),
        *("ark.arpa. DS", "ark.arpa. DNSKEY", "plain.arpa. DS"),
    ],
)
def test_messages_are_read_as_dnspython_reads_them(question: str) -> None:
    name, rdtype = question.split()
    octets = packet(DnssecQuestion(dns.name.from_text(name), dns.rdatatype.from_text(rdtype)))
    ours, theirs = signed.parse(octets), dns.message.from_wire(octets)
    assert (ours.flags, ours.rcode(), ours.id) == (theirs.flags, theirs.rcode(), theirs.id)
    assert ours.answer == theirs.answer
    wanted = [rrset for rrset in theirs.authority if rrset.rdtype != NS and rrset.covers != NS]
    got = [rrset for rrset in ours.authority if rrset.covers != NS]
    assert got == wanted
    assert [rrset.ttl for rrset in (*ours.answer, *got)] == [rrset.ttl for rrset in (*theirs.answer, *wanted)]


def test_the_extended_rcode_is_read() -> None:
    opt = b"\0" + struct.pack("!HHIH", 41, 1232, 1 << 24, 0)
    assert signed.parse(reply(QUERY.packet, [], additional=[opt])).rcode() == 16


@pytest.mark.parametrize("cut", [0, 11, HEADER_SIZE + 3, -1])
def test_a_message_cut_short_or_with_two_questions_is_refused(cut: int) -> None:
    octets = reply(QUERY.packet, [record(None, NAPTR, naptr("h.example."))])
    with pytest.raises(ValueError, match=r"."):
        signed.parse(octets[:cut])
    with pytest.raises(ValueError, match="2 questions"):
        signed.parse(octets[:5] + b"\2" + octets[6:])
