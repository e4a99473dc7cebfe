"""Our validation beside Unbound's: the same trust anchor, the same servers, hundreds of names with a fault each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial

import dns.asyncresolver
import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.resolver
import pytest

from maptr import Discovery, Stub, discover, discover_async, discover_many, discover_many_async, names
from maptr.bulk import BulkOptions
from maptr.call import Options
from maptr.discovery import Outcome
from maptr.errors import DiscoveryFailed
from maptr.trust import Validator
from tests.peers import Bind, Peer, Unbound, require
from tests.signers import COMMANDS, KNOT_COMMANDS

pytest.importorskip("cryptography", reason="validation needs maptr[dnssec]")

from tests.tampered import NAANS, TOP, Tree, build

RCODES = {dns.rcode.NOERROR: (Outcome.ANSWER, Outcome.NODATA), dns.rcode.NXDOMAIN: (Outcome.NXDOMAIN,)}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    require("unbound", *Bind.commands, *COMMANDS, *KNOT_COMMANDS)
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


def test_every_verdict_is_unbounds(tree: Tree, server: Bind, resolver: Unbound, validator: Validator) -> None:
    differ = {}
    seen: Counter[str] = Counter()
    stub = Stub([f"{server.host}#{server.port}"], trust_anchors=validator)
    for name in tree.questions:
        answer = stub.ask(names.parse(name), 20.0)
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


def test_every_driver_says_the_same(tree: Tree, server: Bind, resolver: Unbound, validator: Validator) -> None:
    """Sync, async and bulk, our own stub and dnspython's resolvers, a server that has the zones and a resolver."""
    direct, through = f"{server.host}#{server.port}", f"{resolver.host}#{resolver.port}"
    asked, awaited = dns.resolver.Resolver(configure=False), dns.asyncresolver.Resolver(configure=False)
    for twin in (asked, awaited):
        twin.nameservers, twin.port = [resolver.host], resolver.port
    seen: Counter[str] = Counter()
    for origin in ("fine", "expired", "plain", "bind-nsec", "bind-nsec3-opt-out"):
        options: Options = {"origin": f"{origin}.{TOP}", "trust_anchors": validator, "raise_on_none": False}
        bulk: BulkOptions = {"origin": f"{origin}.{TOP}", "trust_anchors": validator}
        naans = ("b0", *NAANS) if "bind" in origin else ("b0", "1")
        arks = [f"ark:{naan}/x" for naan in naans]
        first = [found(partial(discover, ark, nameservers=[direct], **options)) for ark in arks]
        seen.update(discovery.security for discovery in first)
        for other in (
            [found(partial(discover, ark, nameservers=[through], **options)) for ark in arks],
            [found(partial(discover, ark, resolver=asked, **options)) for ark in arks],
            [asyncio.run(found_async(discover_async(ark, nameservers=[direct], **options))) for ark in arks],
            [asyncio.run(found_async(discover_async(ark, resolver=awaited, **options))) for ark in arks],
            list(discover_many(arks, nameservers=[direct], **bulk)),
            list(discover_many(arks, resolver=asked, **bulk)),
            asyncio.run(collected(discover_many_async(arks, nameservers=[through], **bulk))),
        ):
            assert [essence(discovery) for discovery in other] == [essence(discovery) for discovery in first]
    assert seen.keys() == {"secure", "insecure", "bogus"}


def essence(discovery: Discovery) -> tuple[object, ...]:
    """What does not depend on who asks whom: notes name servers."""
    steps = [(step.name, step.outcome, step.security, step.readings) for step in discovery.trace]
    return discovery.ark, discovery.candidates, discovery.complete, discovery.security, steps


def found(ask: Callable[[], Discovery]) -> Discovery:
    try:
        return ask()
    except DiscoveryFailed as failed:
        assert failed.discovery is not None
        return failed.discovery


async def found_async(asking: Awaitable[Discovery]) -> Discovery:
    try:
        return await asking
    except DiscoveryFailed as failed:
        assert failed.discovery is not None
        return failed.discovery


async def collected(stream: AsyncIterator[Discovery]) -> list[Discovery]:
    return [discovery async for discovery in stream]
