"""Every way to discover one ARK from a server, as a function of the ARK, the server and options.

After a failure, a driver returns the error's discovery instead of raising the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable
from functools import partial
from typing import Any, TypeVar

import dns.asyncresolver
import dns.resolver

from maptr import Ark, CallOptions, Client, Discovery, DiscoveryError
from maptr.resolver.call import Clock
from maptr.resolver.resolver import Resolver
from tests.support.hostile import Hostile
from tests.support.peers import Peer

Driver = Callable[..., Discovery]
Resolving = TypeVar("Resolving", dns.resolver.Resolver, dns.asyncresolver.Resolver)


def found_by(ask: Callable[[], Discovery]) -> Discovery:
    """The discovery, even after a failure."""
    try:
        return ask()
    except DiscoveryError as failed:
        return failed.discovery


def at(server: Hostile | Peer) -> str:
    return f"{server.host}#{server.port}"


def resolver_of(server: Hostile | Peer | int, kind: type[Resolving]) -> Resolving:
    """A dnspython resolver of this kind that asks the server, or the one at this port of 127.0.0.1."""
    made = kind(configure=False)
    host, port = ("127.0.0.1", server) if isinstance(server, int) else (server.host, server.port)
    made.nameservers, made.port = [host], port
    return made


async def collect(stream: AsyncIterable[Discovery]) -> list[Discovery]:
    """All discoveries of a stream."""
    return [discovery async for discovery in stream]


def split(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of a client, and those of a call."""
    own = {name: value for name, value in options.items() if name in CallOptions.__annotations__}
    return {name: value for name, value in options.items() if name not in own}, own


def by_one(nameservers: Any, ark: str, **options: Any) -> Discovery:
    given, own = split(options)
    return Client(nameservers, **given).discover(ark, **own)


def by_one_async(nameservers: Any, ark: str, **options: Any) -> Discovery:
    given, own = split(options)
    return asyncio.run(Client(nameservers, **given).discover_async(ark, **own))


def by_many(nameservers: Any, ark: str, **options: Any) -> Discovery:
    given, own = split(options)
    (found,) = Client(nameservers, **given).discover_many([ark], **own)
    return found


def by_many_async(nameservers: Any, ark: str, **options: Any) -> Discovery:
    given, own = split(options)
    (found,) = asyncio.run(collect(Client(nameservers, **given).discover_many_async([ark], **own)))
    return found


def _driver(name: str, ask: Callable[..., Discovery], servers: Callable[[Any], Any], **given: Any) -> Driver:
    """A driver that asks with these nameservers."""

    def run(ark: str, server: Hostile | Peer, **options: Any) -> Discovery:
        return found_by(lambda: ask(servers(server), ark, **given, **options))

    run.__name__ = name
    return run


def stub(server: Hostile | Peer) -> list[str]:
    return [at(server)]


sync_resolver = partial(resolver_of, kind=dns.resolver.Resolver)
async_resolver = partial(resolver_of, kind=dns.asyncresolver.Resolver)
by_discover = _driver("by_discover", by_one, stub)
by_async = _driver("by_async", by_one_async, stub)
by_bulk = _driver("by_bulk", by_many, stub)
by_async_bulk = _driver("by_async_bulk", by_many_async, stub)
by_resolver = _driver("by_resolver", by_one, sync_resolver)
by_async_resolver = _driver("by_async_resolver", by_one_async, async_resolver)
by_bulk_resolver = _driver("by_bulk_resolver", by_many, sync_resolver)
by_async_bulk_resolver = _driver("by_async_bulk_resolver", by_many_async, async_resolver)
by_memory = _driver("by_memory", by_one, stub, cache=":memory:")
by_async_memory = _driver("by_async_memory", by_one_async, stub, cache=":memory:")


# ---- the same on a clock of the test


def by_call(ark: str, server: Hostile | Peer, clock: Clock, lifetime: float) -> Discovery:
    return Resolver([at(server)], clock=clock).discover(Ark.parse(ark), lifetime)


def by_bulk_run(ark: str, server: Hostile | Peer, clock: Clock, lifetime: float) -> Discovery:
    ((_, found),) = Resolver([at(server)], clock=clock).discover_many([(None, Ark.parse(ark))], lifetime)
    return found


CLOCKED_DRIVERS = (by_call, by_bulk_run)
STUB_DRIVERS = (by_discover, by_async, by_bulk, by_async_bulk)
RESOLVER_DRIVERS = (by_resolver, by_async_resolver)
MEMORY_DRIVERS = (by_memory, by_async_memory)


def name_of(driver: Driver) -> str:
    """The title of a driver in a test."""
    return driver.__name__
