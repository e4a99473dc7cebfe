"""NXDOMAIN means that there is no mapping authority only if the origin exists; otherwise the result is unknown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import dns.asyncresolver
import dns.resolver
import pytest
from click.testing import CliRunner

from maptr import (
    Cache,
    Discovery,
    DiscoveryError,
    NoMappingAuthority,
    Stub,
    discover,
    discover_async,
    discover_many,
    discover_many_async,
)
from maptr.cli.group import main
from maptr.discovery import DiscoveryFailed, Outcome
from maptr.protocol import names
from tests.support.hostile import CNAME, SOA, SOA_RDATA, Hostile, hostile, question, record, reply

ARK = "ark:12345/x1"
ROOT = (b"12345", b"ark", b"arpa")


def soa(owner: str) -> bytes:
    return record(owner, SOA, SOA_RDATA)


def of_stub(server: Hostile) -> Discovery:
    return discover(ARK, nameservers=[server.name], raise_on_none=False)


def of_async(server: Hostile) -> Discovery:
    return asyncio.run(discover_async(ARK, nameservers=[server.name], raise_on_none=False))


Resolving = TypeVar("Resolving", dns.resolver.Resolver, dns.asyncresolver.Resolver)


def resolver_of(server: Hostile, kind: type[Resolving]) -> Resolving:
    made = kind(configure=False)
    made.nameservers, made.port = [server.host], server.port
    return made


def of_resolver(server: Hostile) -> Discovery:
    return discover(ARK, resolver=resolver_of(server, dns.resolver.Resolver), raise_on_none=False)


def of_async_resolver(server: Hostile) -> Discovery:
    resolver = resolver_of(server, dns.asyncresolver.Resolver)
    return asyncio.run(discover_async(ARK, resolver=resolver, raise_on_none=False))


def of_bulk(server: Hostile) -> Discovery:
    (found,) = discover_many([ARK], nameservers=[server.name])
    found.raise_for_none() if not found.complete else None
    return found


async def collect(running: AsyncIterable[Discovery]) -> list[Discovery]:
    return [found async for found in running]


def of_async_bulk(server: Hostile) -> Discovery:
    (found,) = asyncio.run(collect(discover_many_async([ARK], nameservers=[server.name])))
    found.raise_for_none() if not found.complete else None
    return found


def of_cache(server: Hostile) -> Discovery:
    with Cache(nameservers=[server.name]) as cache:
        for _ in range(2):  # asked, and from memory
            try:
                found = cache.discover(ARK)
            except NoMappingAuthority as error:
                assert error.discovery is not None
                found = error.discovery
    return found


DRIVERS = (of_stub, of_async, of_resolver, of_async_resolver, of_bulk, of_async_bulk, of_cache)
Answers = Callable[[bytes], bytes]


def serving(root: Answers, origin: Answers) -> Callable[[bytes, str], list[bytes]]:
    """Answers for NAANs, and for the origin's SOA."""

    def answer(query: bytes, transport: str) -> list[bytes]:
        name, asked = question(query)
        is_origin = names.fold(name) == ROOT[1:] and asked[-4:-2] == SOA.to_bytes(2, "big")
        return [(origin if is_origin else root)(query)]

    return answer


def nxdomain(*authority: bytes) -> Answers:
    return lambda query: reply(query, rcode=3, authority=list(authority))


def nodata(query: bytes) -> bytes:
    return reply(query, authority=[soa("arpa.")])


def is_wanted(query: bytes) -> bool:
    return question(query)[1][-4:-2] == SOA.to_bytes(2, "big")


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with hostile(lambda query, transport: []) as running:
        yield running


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)
def test_nxdomain_of_the_origin_or_of_a_zone_below_it_is_no_mapping_authority(
    driver: Callable[[Hostile], Discovery], server: Hostile
) -> None:
    for owner in ("ark.arpa.", "ARK.arpa.", "12345.ark.arpa."):
        server.script = serving(nxdomain(soa(owner)), lambda query: b"")
        server.queries.clear()
        found = driver(server)
        assert (found.complete, len(found)) == (True, 0)
        assert not any(is_wanted(query) for query, _ in server.queries)


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)
@pytest.mark.parametrize("authority", [(soa("arpa."),), (soa("."),), ()], ids=["arpa", "root", "no SOA"])
def test_nxdomain_from_above_asks_for_the_origin_which_does_not_exist(
    authority: tuple[bytes, ...], driver: Callable[[Hostile], Discovery], server: Hostile
) -> None:
    server.script = serving(nxdomain(*authority), nxdomain(soa(".")))
    with pytest.raises(
        DiscoveryFailed, match=r"ark\.arpa\. SOA: the origin does not exist|origin does not exist"
    ) as caught:
        driver(server)
    found = caught.value.discovery
    assert found is not None
    assert not found.complete
    assert any(step.outcome is Outcome.NO_ORIGIN for step in found.trace)
    assert "delegated" not in str(caught.value)


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)
def test_an_origin_that_is_an_empty_non_terminal_of_a_larger_zone_exists(
    driver: Callable[[Hostile], Discovery], server: Hostile
) -> None:
    data = lambda query: reply(query, [record("ark.arpa.", SOA, SOA_RDATA)])  # noqa: E731
    for said in (nodata, data):
        server.script = serving(nxdomain(soa("arpa.")), said)
        found = driver(server)
        assert (found.complete, len(found)) == (True, 0)


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)
def test_an_alias_that_leads_to_no_name_stands_below_the_origin(
    driver: Callable[[Hostile], Discovery], server: Hostile
) -> None:
    alias = record(None, CNAME, names.to_wire((b"gone", b"example")))
    server.script = serving(
        lambda query: reply(query, [alias], rcode=3, authority=[soa("example.")]), nxdomain(soa("."))
    )
    assert driver(server).complete


def test_without_an_answer_for_the_origin_the_result_is_unknown(server: Hostile) -> None:
    server.script = serving(nxdomain(soa("arpa.")), lambda query: reply(query, rcode=2))
    with pytest.raises(DiscoveryFailed, match="SOA: server failure"):
        of_stub(server)


ARKS = [f"ark:{number}/x" for number in range(10, 30)]


def many_of_stub(server: Hostile) -> list[Discovery]:
    return list(discover_many(ARKS, nameservers=[server.name]))


def many_of_async_stub(server: Hostile) -> list[Discovery]:
    return asyncio.run(collect(discover_many_async(ARKS, nameservers=[server.name])))


def many_of_resolver(server: Hostile) -> list[Discovery]:
    return list(discover_many(ARKS, resolver=resolver_of(server, dns.resolver.Resolver)))


def many_of_async_resolver(server: Hostile) -> list[Discovery]:
    return asyncio.run(collect(discover_many_async(ARKS, resolver=resolver_of(server, dns.asyncresolver.Resolver))))


def many_of_sync_resolver_awaited(server: Hostile) -> list[Discovery]:
    resolver: Any = resolver_of(server, dns.resolver.Resolver)
    return asyncio.run(collect(discover_many_async(ARKS, resolver=resolver)))


def threads_of_resolver(server: Hostile) -> list[Discovery]:
    return in_threads(partial(discover, resolver=resolver_of(server, dns.resolver.Resolver)))


def threads_of_stub(server: Hostile) -> list[Discovery]:
    return in_threads(partial(discover, resolver=Stub([server.name])))


def in_threads(ask: Callable[..., Discovery]) -> list[Discovery]:
    def one(ark: str) -> Discovery:
        try:
            return ask(ark, raise_on_none=False)
        except DiscoveryFailed as failed:
            assert failed.discovery is not None
            return failed.discovery

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(one, ARKS))


def gathered(resolver: Any) -> list[Discovery]:
    async def run() -> list[Discovery]:
        asked = [discover_async(ark, resolver=resolver, raise_on_none=False) for ark in ARKS]
        found = await asyncio.gather(*asked, return_exceptions=True)
        return [one.discovery if isinstance(one, DiscoveryError) else one for one in found]  # type: ignore[misc]

    return asyncio.run(run())


def gathered_of_stub(server: Hostile) -> list[Discovery]:
    return gathered(Stub([server.name]))


def gathered_of_resolver(server: Hostile) -> list[Discovery]:
    return gathered(resolver_of(server, dns.resolver.Resolver))


def gathered_of_async_resolver(server: Hostile) -> list[Discovery]:
    return gathered(resolver_of(server, dns.asyncresolver.Resolver))


def many_of_cache(server: Hostile) -> list[Discovery]:
    with Cache(nameservers=[server.name]) as cache:
        return in_threads(cache.discover)


@pytest.mark.parametrize(
    "run",
    [
        *(many_of_stub, many_of_async_stub, many_of_resolver, many_of_async_resolver),
        *(many_of_sync_resolver_awaited, threads_of_resolver, threads_of_stub, many_of_cache),
        *(gathered_of_stub, gathered_of_resolver, gathered_of_async_resolver),
    ],
    ids=lambda run: run.__name__,
)
def test_the_origin_is_asked_once_in_a_run(run: Callable[[Hostile], list[Discovery]], server: Hostile) -> None:
    for origin, complete in ((nxdomain(soa(".")), False), (nodata, True)):
        server.script = serving(nxdomain(soa("arpa.")), origin)
        server.queries.clear()
        found = run(server)
        assert {one.complete for one in found} == {complete}
        assert len(found) == len(ARKS)
        assert sum(is_wanted(query) for query, _ in server.queries) == 1


def test_a_cancelled_call_leaves_its_question_to_the_others(server: Hostile) -> None:
    async def run() -> list[Discovery]:
        stub = Stub([server.name])
        first, *others = [
            asyncio.create_task(discover_async(ark, resolver=stub, raise_on_none=False)) for ark in ARKS[:3]
        ]
        async with asyncio.timeout(20):
            while not any(is_wanted(query) for query, _ in server.queries):
                await asyncio.sleep(0.001)
            first.cancel()
            return await asyncio.gather(*others)

    server.script = serving(nxdomain(soa("arpa.")), nodata)
    server.queries.clear()
    assert [one.complete for one in asyncio.run(run())] == [True, True]


def test_cached_origins_are_kept_apart_by_trust(server: Hostile) -> None:
    server.script = serving(nxdomain(soa("arpa.")), nodata)
    server.queries.clear()
    resolver = resolver_of(server, dns.resolver.Resolver)
    for trust_ad, security in ((False, "indeterminate"), (True, "insecure"), (False, "indeterminate")):
        found = discover(ARK, resolver=resolver, trust_ad=trust_ad, raise_on_none=False)
        assert [step.security for step in found.trace] == [security] * 2
    assert sum(is_wanted(query) for query, _ in server.queries) == 2


@pytest.mark.parametrize("command", ["url", "discover"])
def test_the_command_prints_its_advice_once(command: str, server: Hostile) -> None:
    server.script = serving(nxdomain(soa("arpa.")), nxdomain(soa(".")))
    server.queries.clear()
    done = CliRunner().invoke(main, [command, "ark:12345/x", "ark:12346/x", "ark:12347/x", f"@{server.name}"])
    assert done.exit_code == 9
    assert done.stderr.count("not delegated on the public Internet") == 1
    assert done.stderr.count("the origin does not exist") == 3
    assert sum(is_wanted(query) for query, _ in server.queries) == 1


def test_the_advice_names_the_configured_origin(server: Hostile) -> None:
    server.script = lambda query, transport: [reply(query, rcode=3, authority=[soa(".")])]
    done = CliRunner().invoke(main, ["url", "--origin", "naans.example", "ark:12345/x", f"@{server.name}"])
    assert done.exit_code == 9
    assert "naans.example. does not exist" in done.stderr
    assert "ark.arpa" not in done.stderr


def test_bulk_prints_its_advice_once_and_not_in_rows(server: Hostile) -> None:
    server.script = serving(nxdomain(soa("arpa.")), nxdomain(soa(".")))
    done = CliRunner().invoke(main, ["bulk", f"@{server.name}"], input="ark:12345/x\nark:12346/x\n")
    assert done.exit_code == 9
    assert done.stderr.count("not delegated on the public Internet") == 1
    assert "delegated" not in done.stdout
    assert done.stdout.count("unknown") == 2


def test_errors_carry_the_discovery(server: Hostile) -> None:
    server.script = serving(nxdomain(soa("arpa.")), nxdomain(soa(".")))
    with pytest.raises(DiscoveryError) as caught:
        of_stub(server)
    assert caught.value.discovery is not None
    first, second = caught.value.discovery.to_dict()["trace"]
    assert (first["type"], second["type"], second["outcome"]) == ("NAPTR", "SOA", "no_origin")
