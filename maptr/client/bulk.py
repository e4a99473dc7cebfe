"""discover_many(): a stream of ARKs, hundreds of questions outstanding, each name asked once. See ``bulkrun``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, TypedDict, Unpack

from maptr.ark import Ark, Profile
from maptr.client import call
from maptr.client.bulkrun import Bulk
from maptr.client.call import Clock
from maptr.client.stub import Stub, make_validator
from maptr.client.sync import discover
from maptr.discovery import Discovery, DiscoveryFailed
from maptr.errors import ConfigError
from maptr.walk import Settings

if TYPE_CHECKING:
    import dns.asyncresolver
    import dns.name
    import dns.resolver

    from maptr.client.trust import TrustAnchors

__all__ = ["Bulk", "BulkOptions", "discover_many", "discover_many_async"]


def discover_many(
    arks: Iterable[Ark | str | bytes],
    *,
    nameservers: Iterable[str] | None = None,
    resolver: Stub | dns.resolver.Resolver | None = None,
    ordered: bool = True,
    profile: Profile = "current",
    **options: Unpack[BulkOptions],
) -> Generator[Discovery, None, None]:
    """A discovery for each ARK; an empty one where there is no candidate, not ``complete`` where DNS did not say.

    Asks ``nameservers``, by default the system's, without dnspython; a dnspython ``resolver``, and ``nameservers`` by
    TLS or HTTPS, are asked one question at a time. Without ``ordered`` discoveries come as they are ready. Options:
    ``origin``, ``profile``, ``settings``, ``trust_ad`` and ``trust_anchors`` as for ``discover``; ``lifetime`` bounds
    each walk, in seconds from the first packet of its first question; ``concurrency`` questions are outstanding at most
    (default 256), ``rate`` packets a second go to each server.

    Raises ArkSyntaxError for what is no ARK, TypeError for one ARK, ConfigError, DiscoveryFailed for a server without
    address.

    >>> [found.url() for found in discover_many(["ark:12345/x1", "ark:12345/x2"], nameservers=[server])]
    ['https://ark.example.org/ark:12345/x1', 'https://ark.example.org/ark:12345/x2']
    """
    _refuse_one(arks)
    nameservers = None if nameservers is None else call.listed(nameservers)
    asked = resolver or _by_urls(nameservers)
    if asked is not None and not isinstance(asked, Stub):
        yield from _one_by_one(_parsed(arks, profile), asked, _each_options(options, resolver, nameservers))
        return
    bulk = Bulk(nameservers=nameservers, stub=asked, **options)
    for _, discovery in bulk.run(enumerate(_parsed(arks, profile)), ordered=ordered):
        yield discovery


async def discover_many_async(
    arks: Iterable[Ark | str | bytes] | AsyncIterable[Ark | str | bytes],
    *,
    nameservers: Iterable[str] | None = None,
    resolver: Stub | dns.asyncresolver.Resolver | None = None,
    ordered: bool = True,
    profile: Profile = "current",
    **options: Unpack[BulkOptions],
) -> AsyncGenerator[Discovery, None]:
    """``discover_many``, awaited: same options, same discoveries, same errors. ``arks`` may be an async iterable.
    Closing it (``contextlib.aclosing``) leaves every socket.

    >>> async def urls(arks):
    ...     return [found.url() async for found in discover_many_async(arks, nameservers=[server])]
    >>> asyncio.run(urls(["ark:12345/x1", "ark:12345/x2"]))
    ['https://ark.example.org/ark:12345/x1', 'https://ark.example.org/ark:12345/x2']
    """
    _refuse_one(arks)
    if nameservers is not None and resolver is None:
        from maptr.client.aio import addresses_of

        nameservers = await addresses_of(nameservers, call.seconds(options.get("lifetime")))
    nameservers = None if nameservers is None else call.listed(nameservers)
    asked: Stub | dns.asyncresolver.Resolver | dns.resolver.Resolver | None = resolver
    if asked is None and any("://" in text for text in nameservers or ()):
        import asyncio

        asked = await asyncio.to_thread(_by_urls, nameservers)
    if asked is not None and not isinstance(asked, Stub):
        asking = _one_by_one_async(_parsed_async(arks, profile), asked, _each_options(options, resolver, nameservers))
        async with aclosing(asking):
            async for discovery in asking:
                yield discovery
        return
    bulk = Bulk(nameservers=nameservers, stub=asked, **options)
    numbered = _numbered(arks, profile) if isinstance(arks, AsyncIterable) else enumerate(_parsed(arks, profile))
    async with aclosing(bulk.run_async(numbered, ordered=ordered)) as running:
        async for _, discovery in running:
            yield discovery


class BulkOptions(TypedDict, total=False):
    """What ``discover_many`` takes beside the ARKs, whom to ask, and the order."""

    origin: str | dns.name.Name
    lifetime: float | None
    settings: Settings | None
    concurrency: int
    rate: float | None
    trust_ad: bool
    trust_anchors: TrustAnchors | None
    clock: Clock


def _refuse_one(arks: object) -> None:
    """Text is an iterable of characters, for type checkers too. Raises TypeError."""
    if isinstance(arks, Ark | str | bytes):
        raise TypeError("one ARK was given and not several: discover() takes one, [ark] is a list of it")


def _parsed(arks: Iterable[Ark | str | bytes], profile: Profile) -> Iterator[Ark]:
    return (call.as_ark(ark, profile) for ark in arks)


async def _parsed_async(
    arks: Iterable[Ark | str | bytes] | AsyncIterable[Ark | str | bytes], profile: Profile
) -> AsyncIterator[Ark]:
    if isinstance(arks, AsyncIterable):
        async for ark in arks:
            yield call.as_ark(ark, profile)
        return
    for ark in _parsed(arks, profile):
        yield ark


async def _numbered(arks: AsyncIterable[Ark | str | bytes], profile: Profile) -> AsyncIterator[tuple[int, Ark]]:
    number = 0
    async for ark in _parsed_async(arks, profile):
        yield number, ark
        number += 1


def _by_urls(nameservers: list[str] | None) -> dns.resolver.Resolver | None:
    """Who asks servers of which some are URLs, each name once; None for plain ones."""
    if not any("://" in text for text in nameservers or ()):
        return None
    import dns.resolver

    from maptr.client.resolver import make_resolver

    made = make_resolver(nameservers or ())
    made.cache = dns.resolver.LRUCache()
    return made


def _one_by_one(arks: Iterable[Ark], resolver: dns.resolver.Resolver, options: call.Options) -> Iterator[Discovery]:
    for ark in arks:
        try:
            yield discover(ark, resolver=resolver, **options)
        except DiscoveryFailed as failed:
            if failed.discovery is None:
                raise
            yield failed.discovery


async def _one_by_one_async(
    arks: AsyncIterable[Ark],
    resolver: dns.asyncresolver.Resolver | dns.resolver.Resolver,
    options: call.Options,
) -> AsyncGenerator[Discovery, None]:
    import dns.asyncresolver

    from maptr.client.aio import discover_async
    from maptr.client.resolver import as_async

    asked = resolver if isinstance(resolver, dns.asyncresolver.Resolver) else as_async(resolver)
    async for ark in arks:
        try:
            yield await discover_async(ark, resolver=asked, **options)
        except DiscoveryFailed as failed:
            if failed.discovery is None:
                raise
            yield failed.discovery


def _each_options(options: BulkOptions, resolver: object, nameservers: list[str] | None) -> call.Options:
    """Those of a run that a dnspython resolver is asked in, for each of its discoveries. Raises ConfigError."""
    call.check_whom(resolver, nameservers)
    if {"concurrency", "rate"} & options.keys():
        raise ConfigError("a dnspython resolver is asked one question at a time: no concurrency, no rate")
    each: call.Options = {"raise_on_none": False, **options}  # type: ignore[typeddict-item]
    if (anchors := options.get("trust_anchors")) is not None:  # what is validated for one ARK serves the next
        each["trust_anchors"] = make_validator(anchors, options.get("trust_ad", False))
    return each
