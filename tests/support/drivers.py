"""Every way to discover one ARK at a server, as a function of the ARK, the server and options.

A driver returns the discovery of a failure instead of raising it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable
from functools import wraps
from typing import Any, TypeVar

import dns.asyncresolver
import dns.resolver

from maptr import Ark, Cache, Discovery, DiscoveryError, discover, discover_async, discover_many, discover_many_async
from maptr.resolver.bulk import Bulk
from maptr.resolver.call import Call, Clock
from maptr.resolver.sync import discover_with
from tests.support.hostile import Hostile
from tests.support.peers import Peer

Driver = Callable[..., Discovery]
Resolving = TypeVar("Resolving", dns.resolver.Resolver, dns.asyncresolver.Resolver)


def found_by(ask: Callable[[], Discovery]) -> Discovery:
    """The discovery, also of a failure."""
    try:
        return ask()
    except DiscoveryError as failed:
        return failed.discovery


def at(server: Hostile | Peer) -> str:
    return f"{server.host}#{server.port}"


def _found(driver: Driver) -> Driver:
    @wraps(driver)
    def run(ark: str, server: Hostile | Peer, **options: Any) -> Discovery:
        return found_by(lambda: driver(ark, server, **options))

    return run


def resolver_of(server: Hostile | Peer | int, kind: type[Resolving]) -> Resolving:
    """A dnspython resolver of this kind that asks the server, or the one at this port of 127.0.0.1."""
    made = kind(configure=False)
    host, port = ("127.0.0.1", server) if isinstance(server, int) else (server.host, server.port)
    made.nameservers, made.port = [host], port
    return made


async def collect(stream: AsyncIterable[Discovery]) -> list[Discovery]:
    """All discoveries of a stream."""
    return [discovery async for discovery in stream]


@_found
def by_discover(ark: str, server: Hostile | Peer, **options: Any) -> Discovery:
    return discover(ark, nameservers=[at(server)], **options)


@_found
def by_async(ark: str, server: Hostile | Peer, **options: Any) -> Discovery:
    return asyncio.run(discover_async(ark, nameservers=[at(server)], **options))


@_found
def by_bulk(ark: str, server: Hostile | Peer, **options: Any) -> Discovery:
    (found,) = discover_many([ark], nameservers=[at(server)], **options)
    return found


@_found
def by_async_bulk(ark: str, server: Hostile | Peer, **options: Any) -> Discovery:
    (found,) = asyncio.run(collect(discover_many_async([ark], nameservers=[at(server)], **options)))
    return found


@_found
def by_resolver(ark: str, server: Hostile | Peer, **options: Any) -> Discovery:
    return discover(ark, resolver=resolver_of(server, dns.resolver.Resolver), **options)


@_found
def by_async_resolver(ark: str, server: Hostile | Peer, **options: Any) -> Discovery:
    return asyncio.run(discover_async(ark, resolver=resolver_of(server, dns.asyncresolver.Resolver), **options))


@_found
def by_cache(ark: str, server: Hostile | Peer, **options: Any) -> Discovery:
    with Cache(nameservers=[at(server)]) as cache:
        return cache.discover(ark, **options)


# ---- the same on a clock of the test


@_found
def by_call(ark: str, server: Hostile | Peer, clock: Clock, **options: Any) -> Discovery:
    return discover_with(Call(ark, clock=clock, **options), None, [at(server)])


def by_bulk_run(ark: str, server: Hostile | Peer, clock: Clock, **options: Any) -> Discovery:
    bulk = Bulk(nameservers=[at(server)], clock=clock, **options)
    ((_, found),) = bulk.run([(None, Ark.parse(ark))])
    return found


CLOCKED_DRIVERS = (by_call, by_bulk_run)
STUB_DRIVERS = (by_discover, by_async, by_bulk, by_async_bulk)
RESOLVER_DRIVERS = (by_resolver, by_async_resolver)


def name_of(driver: Driver) -> str:
    """The title of a driver in a test."""
    return driver.__name__
