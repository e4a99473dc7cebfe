"""Each option of the public functions, by every driver: what it does, and what a wrong value raises."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import dns.asyncresolver
import dns.message
import dns.rdata
import dns.rdatatype
import dns.resolver
import pytest

from maptr import (
    Ark,
    Cache,
    Candidate,
    ConfigError,
    Discovery,
    DiscoveryFailed,
    Entry,
    Nma,
    Own,
    Reachable,
    Settings,
    Stub,
    Table,
    Validator,
    discover,
    discover_at,
    discover_at_async,
    discover_many,
    discover_many_async,
    sticky,
)
from maptr.answer.respond import respond
from maptr.errors import NmaError
from maptr.nma.describe import describe
from maptr.zone.snapshot import Snapshot
from tests.support.drivers import (
    RESOLVER_DRIVERS,
    STUB_DRIVERS,
    Driver,
    at,
    by_async,
    by_async_bulk,
    by_bulk,
    by_cache,
    by_discover,
    collect,
    found_by,
    name_of,
    resolver_of,
)
from tests.support.hostile import Hostile, hostile
from tests.support.signers import signed_zone

ARK = "ark:12345/x1"


def by_stub(ark: str, server: Hostile, **options: Any) -> Discovery:
    return found_by(lambda: discover(ark, resolver=Stub([at(server)]), **options))


def by_place(ark: str, server: Hostile, **options: Any) -> Discovery:
    return found_by(lambda: discover_at(server.host, ark, port=server.port, **options))


def by_async_place(ark: str, server: Hostile, **options: Any) -> Discovery:
    return found_by(lambda: asyncio.run(discover_at_async(server.host, ark, port=server.port, **options)))


def by_bulk_resolver(ark: str, server: Hostile, **options: Any) -> Discovery:
    (found,) = discover_many([ark], resolver=resolver_of(server, dns.resolver.Resolver), **options)
    return found


def by_async_bulk_resolver(ark: str, server: Hostile, **options: Any) -> Discovery:
    resolver = resolver_of(server, dns.asyncresolver.Resolver)
    (found,) = asyncio.run(collect(discover_many_async([ark], resolver=resolver, **options)))
    return found


def by_async_cache(ark: str, server: Hostile, **options: Any) -> Discovery:
    with Cache(nameservers=[at(server)]) as cache:
        return found_by(lambda: asyncio.run(cache.discover_async(ark, **options)))


def by_describe(ark: str, server: Hostile, **options: Any) -> Discovery:
    """The discovery that ``describe`` chooses from, without a request to the mapping authority."""
    chosen: list[Discovery] = []

    def choose(discovery: Discovery) -> Candidate:
        chosen.append(discovery)
        return discovery[0]

    def discovered() -> Discovery:
        with suppress(NmaError):
            describe(ark, nameservers=[at(server)], seconds=0, chooser=choose, **options)
        return chosen[0]

    return found_by(discovered)


BULK: tuple[Driver, ...] = (by_bulk, by_async_bulk, by_bulk_resolver, by_async_bulk_resolver)
SINGLE: tuple[Driver, ...] = (
    *(by_discover, by_async, by_stub, by_place, by_async_place, by_cache, by_async_cache),
    *RESOLVER_DRIVERS,
)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Hostile, dns.rdata.Rdata]]:
    """A server of two signed zones, and the key of the first."""
    zone, key = signed_zone(
        "ark.arpa.", '12345 NAPTR 0 0 "h" "ark" "" b.example.\n12345 NAPTR 0 1 "h" "ark" "" a.example.'
    )
    other, _ = signed_zone("ark.example.", '12345 NAPTR 0 0 "h" "ark" "" other.example.')
    snapshot = Snapshot.from_zones([zone, other])

    def answer(query: bytes, transport: str) -> list[bytes]:
        reply = respond(query, snapshot)
        return [reply] if reply is not None else []

    with hostile(answer) as server:
        yield server, key


@pytest.mark.parametrize("driver", [*SINGLE, *BULK, by_describe], ids=name_of)
def test_options_of_a_walk(driver: Driver, served: tuple[Hostile, dns.rdata.Rdata]) -> None:
    server, key = served
    assert driver(ARK, server).urls() == ["https://b.example/ark:12345/x1", "https://a.example/ark:12345/x1"]
    assert driver(ARK, server, origin="ark.example")[0].host == "other.example"
    assert driver(ARK, server, origin="ark.example", settings=Settings(scheme="http")).url().startswith("http://other.")
    assert driver(ARK, server, trust_ad=True).security == "insecure"
    assert driver(ARK, server, trust_anchors={"ark.arpa.": [key]}).security == "secure"
    assert str(driver("ark:12345/x1.b.a", server, profile="2019").ark) == "ark:12345/x1.a.b"
    asked = len(server.queries)
    assert not driver("ark:12345/x7", server, lifetime=0).complete
    assert len(server.queries) <= asked + 1


@pytest.mark.parametrize("driver", SINGLE, ids=name_of)
def test_options_of_one_call(driver: Driver, served: tuple[Hostile, dns.rdata.Rdata]) -> None:
    server, key = served
    steps: list[object] = []
    found = driver(ARK, server, chooser=lambda discovery: discovery[-1], on_step=steps.append)
    assert (found[0].host, steps) == ("a.example", list(found.trace))
    assert driver(ARK, server, trust_anchors=Validator({"ark.arpa.": [key]}), require="secure", chooser=sticky)
    assert driver("ark:99999/x1", server, raise_on_none=False) == driver("ark:99999/x1", server)
    with pytest.raises(DiscoveryFailed, match="not secure"):
        driver(ARK, server, require="secure").raise_for_security("secure")


WRONG: list[tuple[str, object, type[Exception]]] = [
    ("origin", 5, TypeError),
    ("origin", b"ark.arpa", TypeError),
    ("origin", "a..b", ConfigError),
    ("lifetime", "2", TypeError),
    ("lifetime", -1, ConfigError),
    ("lifetime", float("nan"), ConfigError),
    ("settings", {"scheme": "http"}, TypeError),
    ("trust_anchors", {"ark.arpa.": [5]}, TypeError),
    ("trust_anchors", {"a..b": []}, ConfigError),
    ("trust_anchors", "no/such/file", ConfigError),
    ("profile", "2018", ConfigError),
]
WRONG_FOR_ONE: list[tuple[str, object, type[Exception]]] = [("require", "insecure", ConfigError)]
WRONG_FOR_MANY: list[tuple[str, object, type[Exception]]] = [
    ("concurrency", 0, ConfigError),
    ("concurrency", 1.5, TypeError),
    ("max_connections", 0, ConfigError),
    ("max_connections", "8", TypeError),
    ("rate", 0, ConfigError),
    ("rate", "1", TypeError),
]


@pytest.mark.parametrize(("option", "value", "error"), [*WRONG, *WRONG_FOR_ONE, *WRONG_FOR_MANY])
def test_a_wrong_value_is_an_error_that_names_the_option(
    option: str, value: object, error: type[Exception], served: tuple[Hostile, dns.rdata.Rdata]
) -> None:
    wrong = option, value, error
    drivers = [
        *((*SINGLE, by_describe) if wrong not in WRONG_FOR_MANY else ()),
        *(STUB_DRIVERS[2:] if wrong not in WRONG_FOR_ONE else ()),
    ]
    for driver in drivers:
        with pytest.raises(error, match=f"^{option}: "):
            driver(ARK, served[0], **{option: value})


@pytest.mark.parametrize(
    ("servers", "error"), [(5, TypeError), ([5], TypeError), ([""], ConfigError), (["192.0.2.1#x"], ConfigError)]
)
def test_wrong_servers(servers: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^nameservers: "):
        discover(ARK, nameservers=servers)
    with pytest.raises(error, match=r"^nameservers: "):
        next(discover_many([ARK], nameservers=servers))
    with pytest.raises(error, match=r"^nameservers: "):
        Cache(nameservers=servers)
    with pytest.raises(error, match=r"^nameservers: "):
        Cache().discover(ARK, nameservers=servers)


def test_a_server_may_be_asked_by_tcp_alone(served: tuple[Hostile, dns.rdata.Rdata]) -> None:
    server, _ = served
    servers, asked = [f"tcp://{at(server)}"], len(server.queries)
    with Cache(nameservers=servers) as cache:
        found = [discover(ARK, nameservers=servers), *discover_many([ARK], nameservers=servers), cache.discover(ARK)]
    assert [one.complete for one in found] == [True, True, True]
    assert {transport for _, transport in server.queries[asked:]} == {"tcp"}


def test_the_port_is_that_of_plain_dns() -> None:
    with pytest.raises(DiscoveryFailed, match="853"):
        discover_at("tls://127.0.0.1", ARK, lifetime=1)


@pytest.mark.parametrize(
    ("made", "option", "value", "error"),
    [
        (Cache, "policy", 5, TypeError),
        (Cache, "policy", "dns-last", ConfigError),
        (Cache, "natab", 5, TypeError),
        (Cache, "patience", "1", TypeError),
        *((Cache, key, -1, ConfigError) for key in ("patience", "stale_limit", "table_limit", "size")),
        (Cache, "rate", 0, ConfigError),
        *((Reachable, "schemes", value, ConfigError) for value in ("https", ("ftp",))),
        *((chooser, "seconds", -1, ConfigError) for chooser in (Reachable, Own)),
        (Reachable, "seconds", "1", TypeError),
    ],
)
def test_wrong_options_of_a_cache_and_of_choosers(made: Any, option: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=option):
        made(**{option: value})


def test_a_stub_that_trusts_nothing_takes_the_trust_of_a_call(served: tuple[Hostile, dns.rdata.Rdata]) -> None:
    server, key = served
    stub = Stub([at(server)], trust_anchors={"ark.arpa.": [key]})
    assert discover(ARK, resolver=stub).security == "secure"
    with pytest.raises(ConfigError, match="not both"):
        discover(ARK, resolver=stub, trust_ad=True)
    with pytest.raises(ConfigError, match="not both"):
        discover(ARK, resolver=Stub([at(server)], trust_ad=True), trust_anchors={"ark.arpa.": [key]})
    (found,) = discover_many([ARK], resolver=Stub([at(server)]), trust_ad=True)
    assert found.security == "insecure"


def test_keys_validated_for_one_ark_serve_the_next(served: tuple[Hostile, dns.rdata.Rdata]) -> None:
    server, key = served
    asked, resolver = len(server.queries), resolver_of(server, dns.resolver.Resolver)
    found = discover_many([ARK, "ark:12345/x2"], resolver=resolver, trust_anchors={"ark.arpa.": [key]})
    assert [one.security for one in found] == ["secure", "secure"]
    types = [dns.message.from_wire(query).question[0].rdtype for query, _ in server.queries[asked:]]
    assert types.count(dns.rdatatype.DNSKEY) == 1


def test_tables_and_drift_use_the_options_of_their_call() -> None:
    cache = Cache(Table([Entry("12345", nmas=(Nma("https://h.example"),))]), policy="natab-first")
    table = cache.unasked("ark:12345/x1.b.a", profile="2019")
    assert table is not None
    assert (str(table.ark), table.source) == ("ark:12345/x1.a.b", "natab")
    assert cache.unasked(ARK, require="secure") is None
    failed = Discovery(Ark.parse(ARK), complete=False)
    assert cache.judge(failed)
    assert not cache.judge(failed, require="secure")
