"""Examples of the public API for type checkers: mypy and pyright read this file, and nothing runs it."""

from __future__ import annotations

import random
import time
from contextlib import aclosing, closing

import dns.asyncresolver
import dns.name
import dns.rdata
import dns.resolver

from maptr import (
    Ark,
    Cache,
    Candidate,
    Discovery,
    DiscoveryFailed,
    NoMappingAuthority,
    Own,
    Reachable,
    Settings,
    Stub,
    Validator,
    at_random,
    discover,
    discover_async,
    discover_at,
    discover_at_async,
    discover_many,
    discover_many_async,
    sticky,
    weighted,
)
from maptr.cache.disk import Disk
from maptr.cache.probe_log import ProbeLog
from maptr.choose import first
from maptr.discovery import Step
from maptr.nma.describe import Description, Segment, describe


def one() -> str:
    found: Discovery = discover("ark:12345/x1")
    best: Candidate = found[0]
    port: int | None = best.port
    several: tuple[Candidate, ...] = found.best
    discover(Ark.parse(b"ark:12345/x1"), nameservers=["192.0.2.1", "::1#5300"], lifetime=2.0, trust_ad=True)
    discover("ark:12345/x1", nameservers="https://dns.example/dns-query", resolver=Stub(["192.0.2.1"]))
    return found.url() + str(port) + str(len(several))


def with_every_option(key: dns.rdata.Rdata) -> list[Discovery]:
    """Use each option once, with a type that differs from that of its default."""

    def last(discovery: Discovery) -> Candidate:
        return discovery[-1]

    def on_step(step: Step) -> None:
        pass

    settings, origin = Settings(allow_private=True), dns.name.from_text("ark.example.")
    anchors = {"ark.example.": [key]}
    rng, own_ark = random.Random(1), Ark("1", "x")
    found = [
        discover(
            b"ark:/12345/x1",
            nameservers=("192.0.2.1",),
            origin=origin,
            lifetime=2,
            raise_on_none=False,
            chooser=chooser,
            on_step=on_step,
            settings=settings,
            trust_anchors=anchors,
            require="secure",
            profile="2019",
        )
        for chooser in (first, sticky, at_random(rng), weighted(rng), Reachable(), last)
    ]
    found.append(discover_at("ns.example", "ark:12345/x1", port=5300, origin="ark.example", trust_ad=True))
    found += discover_many(
        iter(["ark:12345/x1"]),
        resolver=dns.resolver.Resolver(),
        origin=origin,
        lifetime=2,
        settings=settings,
        trust_anchors=anchors,
        profile="2019",
        ordered=False,
    )
    found += discover_many([b"ark:1/x", own_ark], nameservers=["192.0.2.1"], concurrency=10, rate=100, trust_ad=True)
    cache = Cache(natab="naans", lifetime=2, settings=settings, trust_anchors=anchors, patience=1, size=10, rate=10.0)
    found.append(cache.discover("ark:12345/x1", resolver=Stub("192.0.2.1"), origin=origin, lifetime=2, trust_ad=False))
    found.append(cache.judge(found[0], nameservers=["192.0.2.1"], require="secure"))
    own = Own(found_only=True, schemes=("https",), seconds=1, allow_private=True)
    found.append(cache.unasked("ark:12345/x1", origin="ark.example", profile="2002") or found[0].preferring(own))
    return found


def wrong() -> None:
    discover_at("192.0.2.1", "ark:12345/x1", lifetme=2.0)  # type: ignore[call-arg]
    discover("ark:12345/x1", require="insecure")  # type: ignore[arg-type]
    discover("ark:12345/x1", profile="2018")  # type: ignore[arg-type]
    discover("ark:12345/x1", lifetime="2")  # type: ignore[arg-type]
    discover("ark:12345/x1", clock=time.monotonic)  # type: ignore[call-arg]
    discover_many(["ark:12345/x1"], concurrency=1.5)  # type: ignore[arg-type]
    discover_many(["ark:12345/x1"], require="secure")  # type: ignore[call-arg]
    Cache("naans").discover("ark:12345/x1", lifetme=1.0)  # type: ignore[call-arg]
    Stub(["192.0.2.1"], randomness=bytes)  # type: ignore[call-arg]


async def remembered() -> list[Discovery]:
    with Cache("naans", "cache.sqlite", policy="natab-first", nameservers=["192.0.2.1"], rate=100.0) as cache:
        found = cache.discover("ark:12345/x1", nameservers=["::1#5300"], trust_ad=True, require="secure", chooser=first)
        disk = Disk("probes.sqlite", wall=time.time)
        chooser = Reachable(suspects=ProbeLog(disk, wall=time.time).is_suspect)
        return [found, await cache.discover_async(found.ark, lifetime=1.0, raise_on_none=False, chooser=chooser)]


def validating(key: dns.rdata.Rdata) -> tuple[str, ...]:
    validator = Validator({"ark.arpa.": [key], dns.name.root: [key]})
    found = discover("ark:12345/x1", trust_anchors=validator, require="secure")
    discover("ark:12345/x1", trust_anchors="root.key")
    by_name: dict[dns.name.Name, tuple[dns.rdata.Rdata, ...]] = {dns.name.root: (key,)}
    discover_many(["ark:12345/x1"], trust_anchors=by_name)
    Stub.system(trust_anchors=Validator("root.key")).trusting(validator)
    return tuple(link.security for step in found.trace for link in step.links)


def failing() -> Discovery | None:
    try:
        return discover("ark:12345/x1")
    except NoMappingAuthority as none:
        return none.discovery
    except DiscoveryFailed as failed:
        return failed.discovery


async def awaited() -> Discovery:
    await discover_at_async("192.0.2.1", "ark:12345/x1")
    await discover_async("ark:12345/x1", nameservers=["192.0.2.1"], trust_anchors="root.key", raise_on_none=False)
    await discover_async("ark:12345/x1", raise_on_non=False)  # type: ignore[call-arg]
    return await discover_async("ark:12345/x1", resolver=dns.asyncresolver.Resolver())


async def some() -> Discovery | None:
    resolver = dns.asyncresolver.Resolver()
    stream = discover_many_async(["ark:12345/x1"], resolver=resolver, ordered=False, rate=9.0)
    async with aclosing(stream):
        async for found in stream:
            return found
    rest = discover_many(["ark:12345/x1"], nameservers="tls://192.0.2.1")
    with closing(rest):
        return next(rest, None)


def described() -> str | None:
    description: Description = describe("ark:12345/x1", nameservers=["192.0.2.1"])
    record: Segment | None = description.segment()
    return record.get("who") if record else None
