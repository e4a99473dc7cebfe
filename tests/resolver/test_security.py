"""The security of a discovery whose redirects lead into other zones: that of its weakest part.

A signed zone with a trust anchor redirects to another island, to an unsigned child, to a forged one, to a zone without
an anchor above, and to several of them. ``tests/interop/test_validation.py`` compares the verdicts on single answers
with Unbound's.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import dns.dnssec
import dns.rdata
import dns.zone
import pytest

from maptr import Client, Discovery, Validator
from maptr.answer.context import Transport
from maptr.answer.respond import respond
from maptr.discovery import Outcome
from tests.support.drivers import RESOLVER_DRIVERS, STUB_DRIVERS, Driver, found_by, name_of
from tests.support.hostile import AA, CNAME, NAPTR, NS, A, Hostile, hostile, naptr, question, record, reply
from tests.support.signers import NS_RECORDS, signed_zone
from tests.support.zones import snapshot_of_zones

ISLAND, PLAIN, FORGED, NOWHERE = "1.island.example.", "1.plain.ark.arpa.", "1.forged.ark.arpa.", "1.nowhere.example."


class Case(NamedTuple):
    """Where a NAAN redirects; what its discovery comes to, and who is a candidate."""

    targets: tuple[str, ...]
    security: str
    hosts: tuple[str, ...]
    complete: bool = True
    own: bool = False  # a host of the signed zone itself, too


CASES = {
    "1": Case((), "secure", ("own",), own=True),
    "2": Case((ISLAND,), "secure", ("island",)),
    "3": Case((PLAIN,), "insecure", ("plain",)),
    "4": Case((FORGED,), "bogus", (), complete=False),
    "5": Case((NOWHERE,), "indeterminate", ("nowhere",)),
    "6": Case((ISLAND, PLAIN), "insecure", ("island", "plain"), own=False),
    "7": Case((ISLAND, PLAIN, FORGED), "bogus", ("island", "own", "plain"), complete=False, own=True),
    "8": Case((PLAIN, NOWHERE), "indeterminate", ("nowhere", "plain")),
    "9": Case((FORGED, NOWHERE), "bogus", ("nowhere",), complete=False),
    "b1": Case(("none.island.example.",), "secure", ()),
    "b2": Case(("none.plain.ark.arpa.",), "insecure", ()),
    "b3": Case(("none.nowhere.example.",), "indeterminate", ()),
    "b4": Case(("none.forged.ark.arpa.",), "bogus", (), complete=False),
    "b5": Case(("tofar.island.example.",), "bogus", (), complete=False),  # through one that is secure
    "b6": Case(("toplain.island.example.",), "insecure", ("plain",)),
    "b7": Case(("alias.island.example.",), "insecure", ("plain",)),
    "b8": Case(("aliasfar.island.example.",), "bogus", (), complete=False),
    "b9": Case(("back.plain.ark.arpa.",), "insecure", ("island",)),  # never better again
}


class Tree(NamedTuple):
    server: Hostile
    anchors: dict[str, list[dns.rdata.Rdata]]


@pytest.fixture(scope="module")
def tree() -> Iterator[Tree]:
    def host(name: str) -> str:
        return f'1 NAPTR 0 0 "h" "ark" "" {name}.example.\n'

    def to(name: str, target: str) -> str:
        return f'{name} NAPTR 0 0 "" "ark" "" {target}\n'

    forged, key = signed_zone("forged.ark.arpa.", host("signed"))
    island, island_key = signed_zone(
        "island.example.",
        host("island") + to("tofar", FORGED) + to("toplain", PLAIN) + f"alias CNAME {PLAIN}\naliasfar CNAME {FORGED}\n",
    )
    rules = "".join(to(naan, target) for naan, case in CASES.items() for target in case.targets)
    rules += "".join(f'{naan} NAPTR 0 0 "h" "ark" "" own.example.\n' for naan, case in CASES.items() if case.own)
    top, top_key = signed_zone(
        "ark.arpa.",
        rules + f"plain NS ns\nforged NS ns\nforged DS {dns.dnssec.make_ds('forged.ark.arpa.', key, 'SHA256')}\n",
    )
    evil = dns.rdata.from_text("IN", "NAPTR", '0 0 "h" "ark" "" evil.example.')
    forged.find_rdataset("1.forged.ark.arpa.", "NAPTR").add(evil)
    forged.delete_rdataset("forged.ark.arpa.", "NSEC")

    def unsigned(origin: str, text: str) -> dns.zone.Zone:
        return dns.zone.from_text(f"$TTL 300\n{NS_RECORDS}{text}", origin, relativize=False)

    plain = unsigned("plain.ark.arpa.", host("plain") + to("back", ISLAND))
    nowhere = unsigned("nowhere.example.", host("nowhere"))
    snapshot = snapshot_of_zones(top, forged, island, plain, nowhere)

    def answer(query: bytes, transport: str) -> list[bytes]:
        made = respond(query, snapshot, transport=Transport.TCP)
        return [] if made is None else [made]

    with hostile(answer) as server:
        yield Tree(server, {"ark.arpa.": [top_key], "island.example.": [island_key]})


def by_memory(ark: str, server: Hostile, trust_anchors: Validator) -> Discovery:
    """Fresh and from memory; what has a bogus part is not kept, and has no candidate here."""
    client = Client(server.name, cache=":memory:", trust_anchors=trust_anchors)
    fresh, kept = (found_by(partial(client.discover, ark)) for _ in range(2))
    assert (fresh.source, kept.source) == ("dns", "memory")
    assert (kept.candidates, kept.complete) == (fresh.candidates, fresh.complete)
    assert kept.security == ("indeterminate" if fresh.security == "bogus" else fresh.security)  # not asked again yet
    return fresh


@pytest.mark.parametrize("driver", [*STUB_DRIVERS, *RESOLVER_DRIVERS, by_memory], ids=name_of)
def test_security_is_that_of_the_weakest_part(driver: Driver, tree: Tree) -> None:
    validator = Validator(tree.anchors)
    for naan, case in CASES.items():
        found = driver(f"ark:{naan}/x", tree.server, trust_anchors=validator)
        hosts = () if driver is by_memory and case.security == "bogus" else case.hosts
        assert (naan, found.security) == (naan, case.security)
        assert (naan, sorted(c.host for c in found)) == (naan, [f"{name}.example" for name in hosts])
        assert (naan, found.complete) == (naan, case.complete)
        assert not any("evil" in reading.naptr.to_text() for step in found.trace for reading in step.readings)


def test_keys_are_looked_up_once_in_a_run(tree: Tree) -> None:
    tree.server.queries.clear()
    arks = [f"ark:{naan}/x" for naan in CASES]
    found = list(Client([tree.server.name], trust_anchors=tree.anchors).discover_many(arks))
    assert [one.security for one in found] == [case.security for case in CASES.values()]
    keys = [name for name, asked in (question(query) for query, _ in tree.server.queries) if asked[-4:-2] == b"\0\x30"]
    assert keys.count((b"ark", b"arpa")) == 1


def test_every_lookup_of_keys_avoids_a_server_that_did_not_respond(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.resolver.exchange.FIRST_SECONDS", 0.3)
    with hostile(lambda query, transport: []) as silent:
        servers = [silent.name, tree.server.name]
        assert Client(servers, trust_anchors=tree.anchors).discover("ark:1/x").security == "secure"
        assert len(silent.queries) == 1


def test_the_trace_shows_the_weakest_part(tree: Tree) -> None:
    found = Client(tree.server.name, trust_anchors=tree.anchors).discover("ark:7/x")
    told = {step.name[1].decode(): (step.outcome, step.security) for step in found.trace}
    assert told == {
        "ark": (Outcome.ANSWER, "secure"),
        "island": (Outcome.ANSWER, "secure"),
        "plain": (Outcome.ANSWER, "insecure"),
        "forged": (Outcome.BOGUS, "bogus"),
    }
    top_only = {"ark.arpa.": tree.anchors["ark.arpa."]}
    without = Client(tree.server.name, trust_anchors=top_only).discover("ark:2/x")
    assert [step.security for step in without.trace] == ["secure", "indeterminate"]  # no anchor above the island
    assert without.security == "indeterminate"


# ---- the word of a resolver

AD = 0x20
RA = 0x80


def to_host(query: bytes, flags: int) -> bytes:
    return reply(query, [record(None, NAPTR, naptr("h.example."))], flags=flags)


def by_word(server: Hostile, drivers: tuple[Driver, ...] = STUB_DRIVERS, *, trust_ad: bool = True) -> list[Discovery]:
    return [driver("ark:12345/x", server, trust_ad=trust_ad) for driver in drivers]


@pytest.mark.parametrize(("word", "security"), [(AD, "secure"), (0, "insecure"), (None, "bogus")])
def test_security_by_ad_is_that_of_the_weakest_answer(word: int | None, security: str) -> None:
    bogus = b"\0" + bytes.fromhex("0029 04d0 00000000 0006 000f 0002 0006".replace(" ", ""))  # EDE 6 (RFC 8914)

    def answer(query: bytes, transport: str) -> list[bytes]:
        if question(query)[0][0] == b"12345":
            return [reply(query, [record(None, NAPTR, naptr("far.example.", flags=b""))], flags=RA | AD)]
        if word is None:
            return [reply(query, additional=[bogus], flags=RA, rcode=2)]
        return [to_host(query, RA | word)]

    with hostile(answer) as server:
        drivers = (*STUB_DRIVERS, *RESOLVER_DRIVERS)
        assert {found.security for found in by_word(server, drivers, trust_ad=False)} == {"indeterminate"}
        for found in by_word(server, drivers):
            assert (found.security, found.complete, bool(found)) == (security, word is not None, word is not None)
            assert [step.security for step in found.trace] == ["secure", security]


def test_the_ad_bit_of_a_referred_server_is_ignored() -> None:
    """AD set by whom a referral leads to, which may be anybody."""

    def refer(query: bytes, transport: str) -> list[bytes]:
        ns = record("12345.ark.arpa.", NS, b"\2ns\7example\0")
        return [reply(query, authority=[ns], additional=[record("ns.example.", A, bytes((127, 0, 0, 2)))], flags=AD)]

    with hostile(refer) as top, hostile(lambda query, _: [to_host(query, AA | AD)], "127.0.0.2", top.port) as below:
        for found in by_word(top):
            assert (found.trace[0].server, found.security, bool(found)) == (below.name, "insecure", True)


@pytest.mark.parametrize(("alias", "security"), [(AD, "secure"), (0, "insecure")])
def test_an_alias_without_ad_is_insecure(alias: int, security: str) -> None:
    def leave(query: bytes, transport: str) -> list[bytes]:
        if question(query)[0][0] == b"12345":
            return [reply(query, [record(None, CNAME, b"\1c\7example\0")], flags=AA | alias)]
        return [to_host(query, AA | AD)]

    with hostile(leave) as server:
        assert [found.security for found in by_word(server)] == [security] * 4
