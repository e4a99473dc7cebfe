"""Each option of the public functions, with every driver: what it does, and what a wrong value raises."""

from __future__ import annotations

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
    Candidate,
    Client,
    ConfigError,
    Discovery,
    DiscoveryFailed,
    Own,
    Reachable,
    Settings,
    Validator,
    discover,
    sticky,
)
from maptr.answer.respond import respond
from maptr.errors import NmaError
from maptr.resolver.dnspython import make_resolver
from tests.support.drivers import (
    MEMORY_DRIVERS,
    RESOLVER_DRIVERS,
    Driver,
    at,
    by_async,
    by_async_bulk,
    by_async_bulk_resolver,
    by_bulk,
    by_bulk_resolver,
    by_discover,
    found_by,
    name_of,
    resolver_of,
    split,
)
from tests.support.hostile import Hostile, hostile
from tests.support.signers import signed_zone
from tests.support.zones import snapshot_of_zones

ARK = "ark:12345/x1"


def by_describe(ark: str, server: Hostile, **options: Any) -> Discovery:
    """The discovery that ``describe`` chooses from, without a request to the mapping authority."""
    chosen: list[Discovery] = []

    def choose(discovery: Discovery) -> Candidate:
        chosen.append(discovery)
        raise NmaError("no request")

    def discovered() -> Discovery:
        given, own = split(options)
        with suppress(NmaError):
            Client([at(server)], **given).describe(ark, chooser=choose, **own)
        return chosen[0]

    return found_by(discovered)


BULK: tuple[Driver, ...] = (by_bulk, by_async_bulk, by_bulk_resolver, by_async_bulk_resolver)
SINGLE: tuple[Driver, ...] = (by_discover, by_async, *MEMORY_DRIVERS, *RESOLVER_DRIVERS)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Hostile, dns.rdata.Rdata]]:
    """A server of two signed zones, and the key of the first."""
    zone, key = signed_zone(
        "ark.arpa.", '12345 NAPTR 0 0 "h" "ark" "" b.example.\n12345 NAPTR 0 1 "h" "ark" "" a.example.'
    )
    other, _ = signed_zone("ark.example.", '12345 NAPTR 0 0 "h" "ark" "" other.example.')
    snapshot = snapshot_of_zones(zone, other)

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
WRONG_FOR_A_CLIENT: list[tuple[str, object, type[Exception]]] = [
    ("require", "insecure", ConfigError),
    ("concurrency", 0, ConfigError),
    ("concurrency", 10_001, ConfigError),
    ("concurrency", 1.5, TypeError),
    ("max_connections", 0, ConfigError),
    ("max_connections", "8", TypeError),
    ("rate", 0, ConfigError),
    ("rate", "1", TypeError),
]


@pytest.mark.parametrize(("option", "value", "error"), [*WRONG, *WRONG_FOR_A_CLIENT])
def test_a_wrong_value_is_an_error_that_names_the_option(
    option: str, value: object, error: type[Exception], served: tuple[Hostile, dns.rdata.Rdata]
) -> None:
    for driver in (*SINGLE[:4], *BULK[:2], by_describe):
        with pytest.raises(error, match=f"^{option}: "):
            driver(ARK, served[0], **{option: value})


@pytest.mark.parametrize(
    ("servers", "error"),
    [
        *((servers, TypeError) for servers in (5, [5])),
        *(
            ([text], ConfigError)
            for text in ("", "192.0.2.1#x", "https://", "https://u:p@h/q", "https://h#443/q", "tls://", "tls://h#0")
        ),
        *((text, ConfigError) for text in ("http://h/q", "quic://h")),
    ],
)
def test_wrong_servers(servers: Any, error: type[Exception]) -> None:
    for make in (Client, lambda given: discover(ARK, nameservers=given)):
        with pytest.raises(error, match=r"^nameservers: "):
            make(servers)


def test_a_server_may_be_asked_by_tcp_alone(served: tuple[Hostile, dns.rdata.Rdata]) -> None:
    server, _ = served
    servers, asked = [f"tcp://{at(server)}"], len(server.queries)
    client = Client(servers)
    found = [client.discover(ARK), *client.discover_many([ARK]), Client(servers, cache=":memory:").discover(ARK)]
    found.append(Client(make_resolver(servers)).discover(ARK))  # beside https:// servers, dnspython asks
    assert [one.complete for one in found] == [True] * 4
    assert {transport for _, transport in server.queries[asked:]} == {"tcp"}


def test_the_port_is_that_of_plain_dns() -> None:
    with pytest.raises(DiscoveryFailed, match="853"):
        discover(ARK, nameservers="tls://127.0.0.1", lifetime=1)


@pytest.mark.parametrize(
    ("made", "option", "value", "error"),
    [
        *((Reachable, "schemes", value, ConfigError) for value in ("https", ("ftp",))),
        *((chooser, "lifetime", -1, ConfigError) for chooser in (Reachable, Own)),
        (Reachable, "lifetime", "1", TypeError),
    ],
)
def test_wrong_options_of_choosers(made: Any, option: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=option):
        made(**{option: value})


def test_keys_validated_for_one_ark_serve_the_next(served: tuple[Hostile, dns.rdata.Rdata]) -> None:
    server, key = served
    asked, resolver = len(server.queries), resolver_of(server, dns.resolver.Resolver)
    found = Client(resolver, trust_anchors={"ark.arpa.": [key]}).discover_many([ARK, "ark:12345/x2"])
    assert [one.security for one in found] == ["secure", "secure"]
    types = [dns.message.from_wire(query).question[0].rdtype for query, _ in server.queries[asked:]]
    assert types.count(dns.rdatatype.DNSKEY) == 1
