"""Responses from random zones, compared with an oracle that scans all records for each question.

The generator uses few labels, so that wildcards, delegations, aliases and DNAMEs often collide.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import pytest

from maptr.answer.context import Transport
from maptr.answer.lookup import MAX_CHAIN
from maptr.answer.message import Message
from maptr.answer.respond import respond
from tests.support.answers import snapshot_of

ORIGIN = "example."
LABELS = ("a", "b", "c", "*", "ns")
QUERY_TYPES = ("A", "AAAA", "TXT", "NS", "CNAME", "DNAME", "MX", "DS", "SOA", "NAPTR", "ANY")


class Record(NamedTuple):
    owner: str
    rdtype: str
    rdata: str


def random_name(rng: random.Random, depth: int = 3) -> str:
    return ".".join(rng.choice(LABELS) for _ in range(rng.randint(1, depth))) + "." + ORIGIN


def random_zone(rng: random.Random) -> list[Record]:
    """Return the records of a valid zone: no other data at a CNAME, and only glue below a delegation or DNAME."""
    records = [
        Record(ORIGIN, "SOA", f"ns.{ORIGIN} host.{ORIGIN} 1 7200 3600 1209600 300"),
        Record(ORIGIN, "NS", f"ns.{ORIGIN}"),
    ]
    kinds = ["A", "A", "TXT", "MX", "NAPTR", "CNAME", "CNAME", "NS", "DNAME", "AAAA"]
    for _ in range(rng.randint(3, 16)):
        owner, kind = random_name(rng), rng.choice(kinds)
        target = random_name(rng) if rng.random() < 0.85 else "out.test."
        rdata = {
            "A": f"192.0.2.{rng.randint(1, 250)}",
            "AAAA": f"2001:db8::{rng.randint(1, 250)}",
            "TXT": f'"{rng.randint(1, 9)}"',
            "MX": f"10 {target}",
            "NAPTR": f'0 0 "" "ark" "" {target}',
        }.get(kind, target)
        if kind in ("NS", "DNAME") and owner.startswith("*."):
            continue  # RFC 4592 4.2 and RFC 6672 3.3 leave these undefined
        records.append(Record(owner, kind, rdata))
        if kind == "NS" and rng.random() < 0.5:
            records.append(Record(owner, "DS", "1 13 2 " + "00" * 32))
    return tidy(list(dict.fromkeys(records)))


def tidy(records: list[Record]) -> list[Record]:
    """Remove records that contradict an earlier one."""
    kept: list[Record] = []
    for record in records:
        there = {other.rdtype for other in kept if other.owner == record.owner}
        types = there | {record.rdtype}
        if not (
            (there and "CNAME" in types)
            or types >= {"DNAME", "NS"}
            or (record.rdtype == "DNAME" and "DNAME" in there)
            or (record.owner != ORIGIN and "NS" in types and types - {"NS", "DS"})  # a cut holds NS and DS
        ):
            kept.append(record)
    cuts = {record.owner for record in kept if record.rdtype == "NS" and record.owner != ORIGIN}
    dnames = {record.owner for record in kept if record.rdtype == "DNAME"}
    return [
        record
        for record in kept
        if not any(below(record.owner, top) for top in dnames)
        and not (record.rdtype not in ("A", "AAAA") and any(below(record.owner, cut) for cut in cuts))
        and not (record.rdtype == "DS" and record.owner not in cuts)
    ]


def zone_text(records: list[Record]) -> str:
    return "".join(f"{owner} 3600 IN {rdtype} {rdata}\n" for owner, rdtype, rdata in records)


def below(name: str, top: str) -> bool:
    """Return whether the name is strictly below ``top``."""
    return name.endswith("." + top)


@dataclass
class Expected:
    rcode: str = "NOERROR"
    aa: bool = True
    answer: set[Record] = field(default_factory=set)
    authority: set[str] = field(default_factory=set)  # "SOA", or the owner of the referral


def decide(records: list[Record], name: str, rdtype: str) -> Expected:
    """Return the expected response, by RFC 1034 4.3.2, RFC 4592 and RFC 6672."""
    expected = Expected()
    asked: set[str] = set()
    used_dnames: set[str] = set()
    while True:
        if name in asked or len(asked) == MAX_CHAIN or not (name == ORIGIN or below(name, ORIGIN)):
            return expected
        asked.add(name)
        tops = [name.split(".", n)[-1] for n in range(name.count("."))]  # the name and its ancestors, longest first
        tops = [top for top in tops if top == ORIGIN or below(top, ORIGIN)]
        cuts = [t for t in tops if t != ORIGIN and any(r.owner == t and r.rdtype == "NS" for r in records)]
        dnames = [t for t in tops if t != name and any(r.owner == t and r.rdtype == "DNAME" for r in records)]
        barriers = sorted([*cuts, *dnames], key=len)
        if barriers and barriers[0] in cuts and not (barriers[0] == name and rdtype == "DS"):
            expected.aa = bool(expected.answer)
            expected.authority.add(barriers[0])
            return expected
        if barriers and barriers[0] in dnames:
            (dname,) = (r for r in records if r.owner == barriers[0] and r.rdtype == "DNAME")
            if dname.owner in used_dnames and ("." + dname.rdata).endswith("." + dname.owner):
                return expected
            used_dnames.add(dname.owner)
            target = name.removesuffix(dname.owner) + dname.rdata
            expected.answer |= {dname, Record(name, "CNAME", target)}
            if rdtype == "CNAME":
                return expected
            name = target
            continue
        exists = [top for top in tops if any(r.owner == top or below(r.owner, top) for r in records)]
        source = name if exists[0] == name else "*." + exists[0]
        found = [r for r in records if r.owner == source]
        if not found and not any(below(r.owner, source) for r in records):
            expected.rcode = "NXDOMAIN"
            expected.authority.add("SOA")
            return expected
        matching = [r for r in found if rdtype in (r.rdtype, "ANY")]
        aliases = [r for r in found if r.rdtype == "CNAME"]
        expected.answer |= {r._replace(owner=name) for r in matching or aliases}
        if matching:
            return expected
        if not aliases:
            expected.authority.add("SOA")
            return expected
        name = aliases[0].rdata


def questions(rng: random.Random, records: list[Record]) -> list[tuple[str, str]]:
    """Return questions for every owner name, names below them, and random names, each with some types."""
    names = {record.owner for record in records} | {random_name(rng, 4) for _ in range(20)} | {ORIGIN, "test."}
    names |= {f"{rng.choice(LABELS)}.{name}" for name in names}
    return [(name, rdtype) for name in sorted(names) for rdtype in QUERY_TYPES]


@pytest.mark.parametrize("seed", range(20))
def test_responses_agree_with_the_oracle(seed: int) -> None:
    rng = random.Random(seed)
    records = random_zone(rng)
    snapshot = snapshot_of(zone_text(records))
    for name, rdtype in questions(rng, records):
        wire = respond(dns.message.make_query(name, rdtype).to_wire(), snapshot, transport=Transport.TCP)
        assert wire is not None
        reply = dns.message.from_wire(wire)
        context = f"seed {seed}: {name} {rdtype}\n{zone_text(records)}\n{reply}"
        if name.endswith("test."):
            assert reply.rcode() == dns.rcode.REFUSED
            continue
        expected = decide(records, name, rdtype)
        answer = {
            Record(str(rrset.name), dns.rdatatype.to_text(rrset.rdtype), rdata.to_text())
            for rrset in reply.answer
            for rdata in rrset
        }
        authority = {"SOA" if rrset.rdtype == dns.rdatatype.SOA else str(rrset.name) for rrset in reply.authority}
        assert dns.rcode.to_text(reply.rcode()) == expected.rcode, context
        assert bool(reply.flags & dns.flags.AA) is expected.aa, context
        assert answer == expected.answer, context
        assert authority == expected.authority, context
        assert not reply.flags & dns.flags.TC, context
        for rrset in reply.additional:
            for rdata in rrset:
                kind, text = dns.rdatatype.to_text(rrset.rdtype), rdata.to_text()
                owners = {r.owner for r in records if (r.rdtype, r.rdata) == (kind, text)}
                assert any(o == str(rrset.name) or o.startswith("*.") for o in owners), context
        # dnslib's classes and dnspython read the same number of records.
        ours = Message.parse(wire, 65535)
        counts = [sum(map(len, section)) for section in (reply.answer, reply.authority, reply.additional)]
        assert [len(ours.rr), len(ours.auth), len(ours.ar)] == counts, context
