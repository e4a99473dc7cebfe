"""Validation by maptr and by Unbound: the same trust anchor and servers, and hundreds of names with a fault each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator
from functools import partial
from pathlib import Path

import dns.asyncresolver
import dns.dnssec
import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.rdata
import dns.rdataset
import dns.resolver
import dns.zone
import pytest

from maptr import Discovery, Stub, discover, discover_async, discover_many, discover_many_async
from maptr.client.bulk import BulkOptions
from maptr.client.call import Call, CallOptions
from maptr.client.sync import StubLookups
from maptr.client.validation.validator import Validator
from maptr.discovery import DiscoveryFailed, Outcome
from maptr.protocol import names
from maptr.walk import Question
from tests.support.peers import Bind, Nsd, Peer, Unbound

pytest.importorskip("cryptography", reason="validation needs maptr[dnssec]")

from tests.support.drivers import found_by
from tests.support.tampered import NAANS, NAPTR_TEXT, NS_RECORDS, TOP, Tree, build, signed_zone

RCODES = {dns.rcode.NOERROR: (Outcome.ANSWER, Outcome.NODATA), dns.rcode.NXDOMAIN: (Outcome.NXDOMAIN,)}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return build(tmp_path_factory.mktemp("tampered"))


@pytest.fixture(scope="module")
def server(tree: Tree) -> Iterator[Bind]:
    with Bind(tree.zones) as running:
        yield running


@pytest.fixture(scope="module")
def resolver(tree: Tree, server: Bind) -> Iterator[Unbound]:
    with Unbound(dict.fromkeys(tree.zones, server), [tree.anchor]) as running:
        yield running


@pytest.fixture(scope="module")
def validator(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Validator:
    path = tmp_path_factory.mktemp("anchor") / "anchor"
    path.write_text(tree.anchor)
    return Validator(path)


def judged(resolver: Peer, name: str) -> tuple[str, tuple[Outcome, ...]]:
    """Unbound's verdict, and what it may be as an outcome."""
    query = dns.message.make_query(name, "NAPTR", want_dnssec=True)
    reply = dns.query.udp_with_fallback(query, resolver.host, port=resolver.port, timeout=20)[0]
    if reply.rcode() == dns.rcode.SERVFAIL:
        return "bogus", (Outcome.BOGUS,)
    return ("secure" if reply.flags & dns.flags.AD else "insecure"), RCODES[reply.rcode()]


def test_every_verdict_is_that_of_unbound(tree: Tree, server: Bind, resolver: Unbound, validator: Validator) -> None:
    differ = {}
    seen: Counter[str] = Counter()
    stub = Stub([f"{server.host}#{server.port}"], trust_anchors=validator)
    for name in tree.questions:
        answer = StubLookups(stub, Call("ark:1/x", lifetime=20.0)).ask([Question(names.parse(name))])[0]
        security, outcomes = judged(resolver, name)
        if answer.outcome is Outcome.SERVFAIL:  # BIND finds no proof itself: there is nothing to judge
            assert name.startswith("m."), answer
            assert security == "bogus"
            continue
        seen[security] += 1
        if answer.security != security or answer.outcome not in outcomes:
            differ[name] = (security, answer.security, answer.outcome.name, answer.note)
    assert not differ, "\n".join(f"{name}: {said}" for name, said in differ.items())
    assert min(seen["secure"], seen["insecure"], seen["bogus"]) > 40, seen


def test_every_driver_gives_the_same_result(tree: Tree, server: Bind, resolver: Unbound, validator: Validator) -> None:
    """Sync, async and bulk, our own stub and dnspython's resolvers, a server that has the zones and a resolver."""
    direct, through = f"{server.host}#{server.port}", f"{resolver.host}#{resolver.port}"
    asked, awaited = dns.resolver.Resolver(configure=False), dns.asyncresolver.Resolver(configure=False)
    for twin in (asked, awaited):
        twin.nameservers, twin.port = [resolver.host], resolver.port
    seen: Counter[str] = Counter()
    for origin in ("fine", "expired", "plain", "bind-nsec", "bind-nsec3-opt-out"):
        options: CallOptions = {"origin": f"{origin}.{TOP}", "trust_anchors": validator, "raise_on_none": False}
        bulk: BulkOptions = {"origin": f"{origin}.{TOP}", "trust_anchors": validator}
        naans = ("b0", *NAANS) if "bind" in origin else ("b0", "1")
        arks = [f"ark:{naan}/x" for naan in naans]
        first = [found_by(partial(discover, ark, nameservers=[direct], **options)) for ark in arks]
        seen.update(discovery.security for discovery in first)
        for other in (
            [found_by(partial(discover, ark, nameservers=[through], **options)) for ark in arks],
            [found_by(partial(discover, ark, resolver=asked, **options)) for ark in arks],
            [asyncio.run(found_async(discover_async(ark, nameservers=[direct], **options))) for ark in arks],
            [asyncio.run(found_async(discover_async(ark, resolver=awaited, **options))) for ark in arks],
            list(discover_many(arks, nameservers=[direct], **bulk)),
            list(discover_many(arks, resolver=asked, **bulk)),
            asyncio.run(collected(discover_many_async(arks, nameservers=[through], **bulk))),
        ):
            assert [essence(discovery) for discovery in other] == [essence(discovery) for discovery in first]
    assert seen.keys() == {"secure", "insecure", "bogus"}


def test_validation_down_a_tree_of_servers(tmp_path: Path) -> None:
    """Each zone on a server of its own, asked directly: DS above the cut, DNSKEY below it, one server without glue."""
    fine, key = signed_zone(f"fine.{TOP}", f"1 NAPTR {NAPTR_TEXT}\n")
    plain = dns.zone.from_text(f"$TTL 60\n{NS_RECORDS}1 NAPTR {NAPTR_TEXT}\n", f"plain.{TOP}", relativize=False)
    top, anchor = signed_zone(
        TOP,
        f"fine NS ns.fine\nns.fine A 127.0.0.2\nfine DS {dns.dnssec.make_ds(f'fine.{TOP}', key, 'SHA256')}\n"
        'plain NS ns.fine\n2 NAPTR 0 0 "" "ark" "" 1.fine\n3 NAPTR 0 0 "" "ark" "" 1.plain\n',
    )
    fine.replace_rdataset(f"ns.fine.{TOP}", dns.rdataset.from_text("IN", "A", 300, "127.0.0.2"))  # its word goes
    for name, zone in (("top", top), ("fine", fine), ("plain", plain)):
        zone.to_file(str(tmp_path / name), relativize=False)
    above = Bind({TOP: tmp_path / "top"})
    with above:
        below = Nsd({f"{name}.{TOP}": tmp_path / name for name in ("fine", "plain")}, port=above.port)
        below.host = "127.0.0.2"
        with below:
            _check_the_tree(above, anchor)


def _check_the_tree(above: Bind, anchor: dns.rdata.Rdata) -> None:
    options: CallOptions = {"origin": TOP, "trust_anchors": {TOP: [anchor]}}
    demanding: CallOptions = {**options, "require": "secure"}
    servers = [f"{above.host}#{above.port}"]
    secure = discover("ark:2/x", nameservers=servers, **demanding)
    assert (secure.url(), secure.trace[1].server) == ("https://h.example/ark:2/x", f"127.0.0.2#{above.port}")
    assert [(link.name, link.rdtype) for link in secure.trace[1].links][:2] == [
        (f"fine.{TOP}", "DS"),
        (f"fine.{TOP}", "DNSKEY"),
    ]
    insecure = discover("ark:3/x", nameservers=servers, **options)
    assert (insecure.url(), insecure.security) == ("https://h.example/ark:3/x", "insecure")
    assert [step.security for step in insecure.trace] == ["secure", "insecure"]
    with pytest.raises(DiscoveryFailed, match=r"insecure, not secure: 1\.plain\.maptr\.net\. NAPTR"):
        discover("ark:3/x", nameservers=servers, **demanding)


def essence(discovery: Discovery) -> tuple[object, ...]:
    """What does not depend on who asks whom: notes name servers."""
    steps = [(step.name, step.outcome, step.security, step.readings) for step in discovery.trace]
    return discovery.ark, discovery.candidates, discovery.complete, discovery.security, steps


async def found_async(asking: Awaitable[Discovery]) -> Discovery:
    try:
        return await asking
    except DiscoveryFailed as failed:
        assert failed.discovery is not None
        return failed.discovery


async def collected(stream: AsyncIterator[Discovery]) -> list[Discovery]:
    return [discovery async for discovery in stream]
