"""NXDOMAIN means that there is no mapping authority only if the origin exists; otherwise the result is unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dns.asyncresolver
import dns.resolver
import pytest

from maptr import Client, Discovery, discover
from maptr.discovery import DiscoveryFailed
from maptr.protocol import names
from tests.support.command_line import run
from tests.support.drivers import RESOLVER_DRIVERS, STUB_DRIVERS, Driver, collect, found_by, name_of, resolver_of
from tests.support.hostile import CNAME, SOA, SOA_RDATA, Hostile, hostile, question, record, reply

ARK = "ark:12345/x1"
ROOT = (b"12345", b"ark", b"arpa")


def soa(owner: str) -> bytes:
    return record(owner, SOA, SOA_RDATA)


def by_memory(ark: str, server: Hostile) -> Discovery:
    """Asked, and then from memory."""
    client = Client(server.name, cache=":memory:")
    found_by(partial(client.discover, ark))
    return found_by(partial(client.discover, ark))


each_driver = pytest.mark.parametrize("driver", [*STUB_DRIVERS, *RESOLVER_DRIVERS, by_memory], ids=name_of)
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


RA = 0x0080


def is_wanted(query: bytes) -> bool:
    return question(query)[1][-4:-2] == SOA.to_bytes(2, "big")


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with hostile(lambda query, transport: []) as running:
        yield running


@each_driver
def test_nxdomain_of_the_origin_or_of_a_zone_below_it_is_no_mapping_authority(driver: Driver, server: Hostile) -> None:
    for owner in ("ark.arpa.", "ARK.arpa.", "12345.ark.arpa."):
        server.script = serving(nxdomain(soa(owner)), lambda query: b"")
        server.queries.clear()
        found = driver(ARK, server)
        assert (found.complete, len(found)) == (True, 0)
        assert not any(is_wanted(query) for query, _ in server.queries)


@each_driver
@pytest.mark.parametrize("authority", [(soa("arpa."),), (soa("."),), ()], ids=["arpa", "root", "no SOA"])
def test_nxdomain_from_above_asks_for_the_origin(authority: tuple[bytes, ...], driver: Driver, server: Hostile) -> None:
    server.script = serving(nxdomain(*authority), nxdomain(soa(".")))
    found = driver(ARK, server)
    assert not found.complete
    with pytest.raises(DiscoveryFailed, match="the origin does not exist") as caught:
        found.raise_for_none()
    assert any(step["outcome"] == "no_origin" for step in found.to_dict()["trace"])
    assert "delegated" not in str(caught.value)


def empty(query: bytes) -> bytes:
    """The response of a recursive server that filters the name, or does not know the type."""
    return reply(query, flags=RA)


@each_driver
@pytest.mark.parametrize(
    ("root", "origin", "complete"),
    [
        (empty, empty, False),
        (empty, nxdomain(), False),
        (nxdomain(), empty, False),
        (empty, nodata, True),
        (empty, lambda query: reply(query, [record("ark.arpa.", SOA, SOA_RDATA)], flags=RA), True),
        (reply, empty, True),  # with AA
        (nodata, empty, True),
    ],
)
def test_rfc2308_2_2_an_empty_response_without_soa_denies_nothing(
    root: Answers, origin: Answers, complete: bool, driver: Driver, server: Hostile
) -> None:
    server.script = serving(root, origin)
    found = driver(ARK, server)
    assert (found.complete, found.may_pass, len(found)) == (complete, False, 0)


@each_driver
def test_an_origin_that_is_an_empty_non_terminal_of_a_larger_zone_exists(driver: Driver, server: Hostile) -> None:
    data = lambda query: reply(query, [record("ark.arpa.", SOA, SOA_RDATA)])  # noqa: E731
    for said in (nodata, data):
        server.script = serving(nxdomain(soa("arpa.")), said)
        found = driver(ARK, server)
        assert (found.complete, len(found)) == (True, 0)


@each_driver
def test_an_alias_whose_target_does_not_exist_proves_the_origin(driver: Driver, server: Hostile) -> None:
    alias = record(None, CNAME, names.to_wire((b"gone", b"example")))
    server.script = serving(
        lambda query: reply(query, [alias], rcode=3, authority=[soa("example.")]), nxdomain(soa("."))
    )
    assert driver(ARK, server).complete


def test_without_an_answer_for_the_origin_the_result_is_unknown(server: Hostile) -> None:
    server.script = serving(nxdomain(soa("arpa.")), lambda query: reply(query, rcode=2))
    with pytest.raises(DiscoveryFailed, match="SOA: server failure") as caught:
        discover(ARK, nameservers=[server.name])
    assert caught.value.discovery is not None
    assert [step["type"] for step in caught.value.discovery.to_dict()["trace"]] == ["NAPTR", "SOA"]


ARKS = [f"ark:{number}/x" for number in range(10, 30)]


@pytest.mark.parametrize("kind", [None, dns.resolver.Resolver, dns.asyncresolver.Resolver], ids=str)
def test_the_origin_is_asked_once_in_a_run(kind: Any, server: Hostile) -> None:
    for origin, complete in ((nxdomain(soa(".")), False), (nodata, True)):
        server.script = serving(nxdomain(soa("arpa.")), origin)
        server.queries.clear()
        client = Client(server.name if kind is None else resolver_of(server, kind))
        found = asyncio.run(collect(client.discover_many_async(ARKS)))
        found += client.discover_many(ARKS)
        assert {one.complete for one in found} == {complete}
        asked = sum(is_wanted(query) for query, _ in server.queries)
        assert asked == (2 if kind is None else 1), "a run of plain servers keeps its own answers"


def test_a_client_asks_for_its_origin_once_a_minute(server: Hostile) -> None:
    server.script = serving(nxdomain(soa("arpa.")), nodata)
    for nameservers in (server.name, resolver_of(server, dns.resolver.Resolver)):
        server.queries.clear()
        for trust_ad, security in ((False, "indeterminate"), (True, "insecure")):
            client = Client(nameservers, trust_ad=trust_ad)
            for _ in range(2):
                found = client.discover(ARK, raise_on_none=False)
                assert [step.security for step in found.trace] == [security] * 2
        assert sum(is_wanted(query) for query, _ in server.queries) == 2, "two clients share nothing"
        assert getattr(nameservers, "flags", None) is None


@pytest.mark.parametrize("command", ["url", "discover", "bulk"])
def test_the_command_prints_its_advice_once(command: str, server: Hostile) -> None:
    words = ["ark:12345/x", "ark:12346/x", "ark:12347/x"]
    server.script = serving(nxdomain(soa("arpa.")), nxdomain(soa(".")))
    server.queries.clear()
    given = [f"@{server.name}"] if command == "bulk" else [f"@{server.name}", *words]
    done = run(command, *given, text="\n".join(words))
    assert done.exit_code == 9
    assert done.stderr.count("not delegated on the public Internet") == 1
    assert "delegated" not in done.stdout
    reason = "unknown" if command == "bulk" else "the origin does not exist"
    assert (done.stdout if command == "bulk" else done.stderr).count(reason) == 3
    assert sum(is_wanted(query) for query, _ in server.queries) == 1


def test_the_advice_names_the_configured_origin(server: Hostile) -> None:
    server.script = lambda query, transport: [reply(query, rcode=3, authority=[soa(".")])]
    done = run("url", "--origin", "naans.example", "ark:12345/x", f"@{server.name}")
    assert done.exit_code == 9
    assert "do not have naans.example.: name one that does" in done.stderr
    assert "ark.arpa" not in done.stderr
