"""Examples of the public API for type checkers: mypy and pyright read this file, and nothing runs it."""

from __future__ import annotations

import random
import time
from contextlib import aclosing, closing

import dns.asyncresolver
import dns.name
import dns.rdata
import dns.resolver

import maptr
from maptr import (
    Ark,
    Candidate,
    Client,
    Discovery,
    DiscoveryFailed,
    NoMappingAuthority,
    Own,
    Reachable,
    Settings,
    Table,
    Validator,
    at_random,
    discover,
    discover_async,
    discover_many,
    discover_many_async,
    sticky,
    weighted,
)
from maptr.cache.disk import Disk
from maptr.choose import first
from maptr.discovery import Step
from maptr.nma.describe import Description, Segment
from maptr.reconcile.probes import ProbeLog


def one() -> str:
    found: Discovery = discover("ark:12345/x1")
    best: Candidate = found[0]
    port: int | None = best.port
    several: tuple[Candidate, ...] = found.best
    discover(Ark.parse(b"ark:12345/x1"), nameservers=["192.0.2.1", "::1#5300"], lifetime=2.0)
    discover("ark:12345/x1", nameservers="https://dns.example/dns-query", table=Table())
    discover("ark:12345/x1", nameservers=dns.resolver.Resolver(), origin="ark.example")
    return found.url() + str(port) + str(len(several))


def with_every_option(key: dns.rdata.Rdata) -> list[Discovery]:
    """Use each option once, with a type that differs from that of its default."""

    def last(discovery: Discovery) -> Candidate:
        return discovery[-1]

    def on_step(step: Step) -> bool:
        return step.outcome.answered

    settings, origin = Settings(allow_private=True), dns.name.from_text("ark.example.")
    anchors = {"ark.example.": [key]}
    rng, own_ark = random.Random(1), Ark("1", "x")
    client = Client(
        ("192.0.2.1",),
        origin=origin,
        lifetime=2,
        settings=settings,
        trust_anchors=anchors,
        require="secure",
        table="naans",
        cache="cache.sqlite",
        policy="natab-first",
        patience=1,
        stale_limit=3600,
        table_limit=86400,
        history="history.sqlite",
        size=10,
        concurrency=10,
        rate=100,
        max_connections=4,
    )
    found = [
        client.discover(
            b"ark:/12345/x1", lifetime=2, raise_on_none=False, chooser=chooser, on_step=on_step, profile="2019"
        )
        for chooser in (first, sticky, at_random(rng), weighted(rng), Reachable(), last)
    ]
    found.append(discover("ark:12345/x1", nameservers="ns.example#5300", origin="ark.example", lifetime=1))
    found += client.discover_many(iter(["ark:12345/x1"]), lifetime=2, profile="2019", ordered=False)
    found += discover_many([b"ark:1/x", own_ark], nameservers=["192.0.2.1"])
    found += (one for number, one in client.discover_pairs([(1, "ark:12345/x1")], ordered=False) if number > 0)
    own = Own(found_only=True, schemes=("https",), lifetime=1, allow_private=True)
    found.append(found[0].preferring(own))
    return found


def wrong() -> None:
    maptr.discver("ark:12345/x1")  # type: ignore[attr-defined]
    discover("ark:12345/x1", nameservers="192.0.2.1", lifetme=2.0)  # type: ignore[call-arg]
    Client(require="insecure")  # type: ignore[arg-type]
    Client(clock=time.monotonic)  # type: ignore[call-arg]
    Client(concurrency=1.5)  # type: ignore[arg-type]
    discover("ark:12345/x1", profile="2018")  # type: ignore[arg-type]
    discover("ark:12345/x1", lifetime="2")  # type: ignore[arg-type]
    discover_many(["ark:12345/x1"], chooser=first)  # type: ignore[call-arg]
    Client(table="naans").discover("ark:12345/x1", lifetme=1.0)  # type: ignore[call-arg]


async def remembered() -> list[Discovery]:
    with Client(["192.0.2.1"], table="naans", cache="cache.sqlite", policy="natab-first", rate=100.0) as client:
        found = client.discover("ark:12345/x1", chooser=first)
        disk = Disk("probes.sqlite", wall=time.time)
        chooser = Reachable(suspects=ProbeLog(disk).is_suspect)
        return [found, await client.discover_async(found.ark, lifetime=1.0, raise_on_none=False, chooser=chooser)]


def validating(key: dns.rdata.Rdata) -> tuple[str, ...]:
    validator = Validator({"ark.arpa.": [key], dns.name.root: [key]})
    found = Client(trust_anchors=validator, require="secure").discover("ark:12345/x1")
    Client(trust_anchors="root.key")
    by_name: dict[dns.name.Name, tuple[dns.rdata.Rdata, ...]] = {dns.name.root: (key,)}
    Client(trust_anchors=by_name)
    return tuple(link.security for step in found.trace for link in step.links)


def failing() -> Discovery | None:
    try:
        return discover("ark:12345/x1")
    except NoMappingAuthority as none:
        return none.discovery
    except DiscoveryFailed as failed:
        return failed.discovery


async def awaited() -> Discovery:
    await discover_async("ark:12345/x1", nameservers=["192.0.2.1"], raise_on_none=False)
    await discover_async("ark:12345/x1", raise_on_non=False)  # type: ignore[call-arg]
    async with Client(dns.asyncresolver.Resolver()) as client:
        return await client.discover_async("ark:12345/x1")


async def some() -> Discovery | None:
    stream = discover_many_async(["ark:12345/x1"], nameservers=dns.asyncresolver.Resolver(), ordered=False)
    async with aclosing(stream):
        async for found in stream:
            return found
    rest = discover_many(["ark:12345/x1"], nameservers="tls://192.0.2.1")
    with closing(rest):
        return next(rest, None)


def described() -> str | None:
    description: Description = Client(["192.0.2.1"]).describe("ark:12345/x1", inflections=["?"], lifetime=1)
    record: Segment | None = description.segment()
    return record.get("who") if record else None
