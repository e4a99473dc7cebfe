"""The drivers over real sockets: how a server behaves, and the result or error for the caller."""

from __future__ import annotations

import asyncio
import copy
import pickle
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing, closing
from functools import partial
from pathlib import Path
from typing import Any

import dns.asyncresolver
import dns.edns
import dns.flags
import dns.message
import dns.rcode
import dns.resolver
import dns.rrset
import pytest

from maptr import Client, Discovery, discover, discover_async, discover_many, discover_many_async, url
from maptr.ark import Ark
from maptr.discovery import (
    Candidate,
    DiscoveryError,
    DiscoveryFailed,
    DiscoveryTimeout,
    NoMappingAuthority,
    Outcome,
    Step,
)
from maptr.errors import ConfigError, ConfigErrors, MaptrError, NmaError, NoEventLoop
from maptr.naptr.regexp import Substitution
from maptr.nma.reachable import Reachable
from tests.support.drivers import RESOLVER_DRIVERS, Driver, collect, name_of, resolver_of
from tests.support.scripted import Script, serving, zone
from tests.support.waiting import PATIENCE

ARK = "ark:12345/x1"
ZONES = Path(__file__).resolve().parents[2] / "zones"
HOST = {"12345.ark.arpa.": ['0 0 "h" "ark" "" h.example.']}


@pytest.mark.parametrize(
    ("answer", "error", "outcome"),
    [
        (zone({}, dns.rcode.SERVFAIL), DiscoveryFailed, Outcome.SERVFAIL),
        (zone({}, dns.rcode.REFUSED), DiscoveryFailed, Outcome.REFUSED),
        (lambda query: None, DiscoveryTimeout, Outcome.TIMEOUT),
    ],
)
@pytest.mark.parametrize("raise_on_none", [True, False])
def test_no_answer_is_an_error_whether_or_not_none_is(
    answer: Script, error: type[DiscoveryFailed], outcome: Outcome, raise_on_none: bool
) -> None:
    lifetime = 0.3 if outcome is Outcome.TIMEOUT else PATIENCE
    options: dict[str, Any] = {"lifetime": lifetime, "raise_on_none": raise_on_none}
    with serving(answer) as port:
        for find in (discover, lambda *args, **given: asyncio.run(discover_async(*args, **given))):
            with pytest.raises(error) as caught:
                find(ARK, nameservers=f"127.0.0.1#{port}", **options)
            assert isinstance(caught.value, MaptrError)
            assert isinstance(caught.value, dns.exception.Timeout) is (outcome is Outcome.TIMEOUT)
            assert caught.value.discovery is not None
            assert caught.value.discovery.trace[0].outcome is outcome


def test_a_cname_out_of_the_servers_zones_is_a_failure() -> None:
    def alias(query: dns.message.Message, flags: int = dns.flags.AA) -> dns.message.Message:
        reply = dns.message.make_response(query)
        reply.flags |= flags
        if query.question[0].name.canonicalize().to_text() == "c.example.":
            reply.set_rcode(dns.rcode.REFUSED)
        else:
            reply.answer.append(dns.rrset.from_text("12345.ark.arpa.", 60, "IN", "CNAME", "c.example."))
        return reply

    with serving(alias) as port, pytest.raises(DiscoveryFailed, match=r"through CNAME c\.example\., without recursion"):
        discover(ARK, nameservers=f"127.0.0.1#{port}")
    with serving(partial(alias, flags=dns.flags.RA)) as port, pytest.raises(DiscoveryFailed, match="rcode 5"):
        discover(ARK, nameservers=f"127.0.0.1#{port}")


@pytest.mark.parametrize("flags", [dns.flags.AA, dns.flags.RA], ids=["authoritative", "resolver"])
@pytest.mark.parametrize("kind", ["own", "dnspython"])
def test_the_target_of_an_alias_that_was_not_followed_is_asked_for(flags: int, kind: str) -> None:
    asked = []

    def alias(query: dns.message.Message) -> dns.message.Message:
        reply = dns.message.make_response(query)
        reply.flags |= flags
        name = query.question[0].name.canonicalize().to_text()
        asked.append(name)
        if name == "b.example.":
            reply.answer.append(dns.rrset.from_text(name, 60, "IN", "NAPTR", '0 0 "h" "ark" "" h.example.'))
        else:
            target = "a.example." if name != "a.example." else "b.example."
            reply.answer.append(dns.rrset.from_text(name, 30, "IN", "CNAME", target))
        return reply

    with serving(alias) as port:
        resolver = dns.resolver.Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], port
        where: Any = f"127.0.0.1#{port}" if kind == "own" else resolver
        found = discover(ARK, nameservers=where)
    assert found.url() == "https://h.example/ark:12345/x1"
    assert (found.trace[0].note, found.trace[0].ttl) == ("through CNAME b.example.", 30)
    assert asked == ["12345.ark.arpa.", "a.example.", "b.example."]


def test_a_chooser_that_waits_does_not_block_the_event_loop() -> None:
    """``discover_async`` calls the chooser in a thread, with memory or without."""
    asked = threading.Event()

    def probe(where: url.Url, seconds: float) -> None:
        assert asked.wait(PATIENCE), "the event loop waits for the chooser"
        if where.host.text == "a.example":
            raise NmaError("down")

    async def both_at_once(find: Callable[[], Awaitable[Discovery]]) -> Discovery:
        asked.clear()
        asyncio.get_running_loop().call_later(0.05, asked.set)
        return await find()

    records = {"12345.ark.arpa.": ['0 0 "h" "ark" "" a.example.', '0 0 "h" "ark" "" b.example.']}
    with serving(zone(records)) as port:
        for cache in (None, ":memory:"):
            client = Client(f"127.0.0.1#{port}", cache=cache)
            find = partial(client.discover_async, ARK, chooser=Reachable(probe=probe))
            assert asyncio.run(both_at_once(find))[0].host == "b.example"


def test_on_step_is_called_for_each_step_and_search_lists_are_not_used() -> None:
    steps: list[Step] = []
    records = {"12345.ark.arpa.": ['0 0 "" "ark" "" a.example.'], "a.example.": ['0 0 "h" "ark" "" h.example.']}
    with serving(zone(records)) as port:
        resolver = resolver_of(port, dns.resolver.Resolver)
        resolver.search = [dns.name.from_text("search.example.")]
        resolver.use_search_by_default = True
        discovery = discover(ARK, nameservers=resolver, on_step=steps.append)
    assert tuple(steps) == discovery.trace
    assert len(steps) == 2


@pytest.mark.parametrize("driver", RESOLVER_DRIVERS, ids=name_of)
def test_an_error_that_is_not_about_dns_is_the_same_for_every_driver(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LookupError("a defect of the resolver")

    for kind in (dns.resolver.Resolver, dns.asyncresolver.Resolver):
        monkeypatch.setattr(kind, "resolve", fail)
    with serving(zone({})) as port, pytest.raises(LookupError, match="a defect"):
        driver(ARK, port)


def test_an_origin_may_be_a_dnspython_name() -> None:
    with serving(zone({"12345.ark.example.": ['0 0 "h" "ark" "" h.example.']})) as port:
        assert discover(ARK, nameservers=f"127.0.0.1#{port}", origin=dns.name.from_text("ark.example.")).best
    with pytest.raises(ConfigError, match=r"origin: .* is too long for a NAAN"):
        discover(f"ark:{'b' * 63}/x", nameservers="127.0.0.1", origin=".".join(["a" * 62] * 4))


def test_cancelling_closes_sockets_and_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []

    class Recorded(socket.socket):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            made.append(self)

    def open_sockets() -> int:
        return sum(each.fileno() >= 0 for each in made)

    async def many(server: str) -> list[Discovery]:
        arks = (f"ark:{i}/x" for i in range(1000))
        return await collect(discover_many_async(arks, nameservers=[server], lifetime=30))

    async def cancelled(port: int) -> None:
        resolver = resolver_of(port, dns.asyncresolver.Resolver)
        monkeypatch.setattr(socket, "socket", Recorded)  # after the event loop has made its own
        for asking in (
            lambda: discover_async(ARK, nameservers=f"127.0.0.1#{port}", lifetime=30),
            lambda: discover_async(ARK, nameservers=resolver, lifetime=30),
            lambda: many(f"127.0.0.1#{port}"),
        ):
            task = asyncio.ensure_future(asking())
            await asyncio.sleep(0.1)
            assert open_sockets()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert asyncio.all_tasks() == {asyncio.current_task()}
            await asyncio.sleep(0)  # a transport closes its socket in the next turn of the loop
            assert not open_sockets()

    async def closed(port: int) -> None:
        made.clear()  # those of this event loop and of the server
        arks = (f"ark:{i}/x" for i in range(1000))
        async with aclosing(discover_many_async(arks, nameservers=[f"127.0.0.1#{port}"])) as stream:
            await anext(stream)
            assert open_sockets()
        assert not open_sockets()  # at once
        with closing(discover_many(arks, nameservers=[f"127.0.0.1#{port}"])) as generator:
            next(generator)
            assert open_sockets()
        assert not open_sockets()

    with serving(lambda query: None) as port:
        asyncio.run(cancelled(port))
    with serving(zone({})) as port:
        asyncio.run(closed(port))


def test_a_system_without_resolver_is_discovery_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.resolver.servers.RESOLV_CONF", str(tmp_path))  # a folder
    with pytest.raises(DiscoveryFailed, match="no resolver is configured"):
        discover(ARK, table=None)
    with pytest.raises(DiscoveryFailed, match="no resolver is configured"):
        asyncio.run(discover_async(ARK, table=None))


def test_a_discovery_is_immutable() -> None:
    found = Discovery(Ark.parse(ARK))
    for name in (*vars(found), "other"):
        with pytest.raises(AttributeError):
            setattr(found, name, ())
        with pytest.raises(AttributeError):
            delattr(found, name)
    assert found.replace(stale=True) != found
    assert pickle.loads(pickle.dumps(found)) == copy.deepcopy(found) == found
    mistakes = ConfigErrors([ConfigError("one", key="a"), ConfigError("two", filename="f", line=3)])
    for error in (NoMappingAuthority("none", found), mistakes):
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert (type(twin), str(twin), repr(vars(twin))) == (type(error), str(error), repr(vars(error)))


def test_looking_up_a_server_name_is_bounded_and_does_not_block_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def slow(host: str, port: int, **_: object) -> list[Any]:
        go.wait(PATIENCE)
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("127.0.0.1", port))]

    async def found_while_the_loop_runs(server: str) -> list[Discovery]:
        async def first() -> Discovery:
            return await discover_async(ARK, nameservers=[server])

        found = []
        for find in (first, lambda: anext(discover_many_async([ARK], nameservers=[server]))):
            go.clear()
            asyncio.get_running_loop().call_later(0.05, go.set)
            found.append(await find())
        return found

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    late: dict[str, Any] = {"nameservers": ["slow.example"], "lifetime": 0.1}
    ways: list[Callable[[], object]] = [
        lambda: discover(ARK, **late),
        lambda: list(discover_many([ARK], **late)),
        lambda: discover(ARK, nameservers=["tls://slow.example"], lifetime=0.1),
        lambda: discover(ARK, nameservers="slow.example", lifetime=0.1),
        lambda: asyncio.run(discover_async(ARK, **late)),
        lambda: asyncio.run(collect(discover_many_async([ARK], **late))),
    ]
    try:
        for way in ways:
            with pytest.raises(DiscoveryTimeout, match=r"no address for the server slow\.example in time"):
                way()
    finally:
        go.set()
    with serving(zone(HOST)) as port:
        for found in asyncio.run(found_while_the_loop_runs(f"here.example#{port}")):
            assert found[0].host == "h.example"


WITHOUT_A_SERVER: dict[str, Callable[[], object]] = {
    "a name": lambda: discover("ark:12345/x1", nameservers=["nowhere.invalid"]),
    "a name, awaited": lambda: asyncio.run(discover_async("ark:12345/x1", nameservers=["nowhere.invalid"])),
    "a name, by TLS": lambda: discover("ark:12345/x1", nameservers=["tls://nowhere.invalid"]),
    "an interface": lambda: discover("ark:12345/x1", nameservers="fe80::1%none"),
}


@pytest.mark.parametrize("case", WITHOUT_A_SERVER)
def test_an_error_before_the_walk_has_a_discovery_of_the_ark(case: str) -> None:
    with pytest.raises(DiscoveryFailed) as raised:
        WITHOUT_A_SERVER[case]()
    found = raised.value.discovery
    assert (str(found.ark), found.complete, found.trace, len(found)) == ("ark:12345/x1", False, (), 0)
    assert found.reason == str(raised.value)


def test_the_error_of_a_rule_has_a_discovery_of_the_ark() -> None:
    rule = Candidate("a.example", None, 0, 0, "x.", substitution=Substitution.parse(b"!^ark:1/a$!https://a.example/!"))
    with pytest.raises(DiscoveryError) as raised:
        rule.url(Ark.parse("ark:12345/x1"))
    assert str(raised.value.discovery.ark) == "ark:12345/x1"


AWAITED: dict[str, Callable[[], Awaitable[object]]] = {
    "discover_async": lambda: discover_async("ark:12345/x1", nameservers=["127.0.0.1#9"]),
    "the system's resolver": lambda: discover_async("ark:12345/x1"),
    "discover_many_async": lambda: anext(discover_many_async(["ark:12345/x1"], nameservers=["127.0.0.1#9"])),
    "a table": lambda: _with_table("ark:12345/x1"),
}


async def _with_table(ark: str) -> object:
    async with Client(table=ZONES / "sample.natab") as client:
        return await client.discover_async(ark)


@pytest.mark.parametrize("name", AWAITED)
def test_under_trio_the_error_says_what_to_do(name: str) -> None:
    trio = pytest.importorskip("trio", reason="trio is not installed: scripts/bootstrap dev")

    async def main() -> object:
        return await AWAITED[name]()

    with pytest.raises(NoEventLoop, match=r"under trio, await trio\.to_thread\.run_sync"):
        trio.run(main)
