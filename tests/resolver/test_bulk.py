"""Bulk look-ups over real sockets: one query per name, order, limits, lost and forged packets."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from typing import Any

import dns.message
import dns.resolver
import pytest

from maptr import Client, discover_many, discover_many_async
from maptr.ark import NO_ARK, Ark
from maptr.errors import ArkSyntaxError
from maptr.resolver.bulk import SLICE
from maptr.resolver.call import as_item
from maptr.resolver.exchange import MAX_CLOSED
from maptr.resolver.resolver import Resolver
from tests.support.bulk import server as server
from tests.support.drivers import RESOLVER_DRIVERS, by_async, by_discover, collect, resolver_of
from tests.support.hostile import Hostile, hostile, hosts, naptr, question
from tests.support.ports import free_port
from tests.support.scripted import serving, zone
from tests.support.waiting import PATIENCE, until

ARKS = ["ark:1/x1", "ark:2/x2?info", "ark:3/x", "ark:4/none", "ark:1/x1/c.pdf"]


def test_every_driver_finds_the_same(server: Hostile) -> None:
    bulk = list(discover_many(ARKS, nameservers=[server.name]))
    assert [bool(found) for found in bulk] == [True, True, True, False, True]
    assert bulk[0].urls() == ["https://u.example/x1", "https://h.example/ark:1/x1"]
    assert asyncio.run(collect(discover_many_async(ARKS, nameservers=[server.name]))) == bulk
    assert list(discover_many(ARKS, nameservers=resolver_of(server, dns.resolver.Resolver))) == bulk
    for driver in (by_discover, by_async, *RESOLVER_DRIVERS):
        assert [driver(ark, server) for ark in ARKS] == bulk


def test_an_unreachable_server_is_followed_by_the_next(server: Hostile) -> None:
    gone = f"127.0.0.1#{free_port()}"
    arks = [f"ark:{i % 3 + 1}/x{i}" for i in range(30)]
    expected = list(discover_many(arks, nameservers=[server.name]))
    found = list(discover_many(arks, nameservers=[gone, server.name]))
    assert found == expected


def test_order_is_kept_only_if_requested() -> None:
    """The first name is answered after the others: when they have been asked for, or taken from the stream."""
    honest = zone({f"{i}.ark.arpa.": ['0 0 "h" "ark" "" h.example.'] for i in range(9)})
    others: list[object] = []

    def slow_first(query: dns.message.Message) -> dns.message.Message | None:
        if query.question[0].name[0] == b"0":
            until(lambda: len(others) == 8, "the others")
        elif is_kept:
            others.append(query)
        return honest(query)

    arks = [f"ark:{i}/x" for i in range(9)]
    with serving(slow_first) as port:
        is_kept = True
        kept = list(discover_many(arks, nameservers=[f"127.0.0.1#{port}"]))
        is_kept = False
        others.clear()
        for found in discover_many(arks, nameservers=[f"127.0.0.1#{port}"], ordered=False):
            others.append(found)
    assert all(kept)
    assert [str(found.ark) for found in kept] == arks
    assert str(found.ark) == "ark:0/x"


def test_an_ark_without_an_answer_does_not_hold_up_the_question_of_one_far_behind() -> None:
    asked = set()
    given_up = time.monotonic() + 60

    def silent(query: bytes, transport: str) -> list[bytes]:
        asked.add(question(query)[0][0])
        return []

    def clock() -> float:
        """Time stands still until the second question has come."""
        return 100.0 if len(asked) == 2 or time.monotonic() > given_up else 0.0

    texts = ["ark:1/x", *["not an ARK"] * 5000, "ark:2/x"]
    pairs = ((text, as_item(text, position, "current")) for position, text in enumerate(texts))
    with hostile(silent) as server, closing(Resolver([server.name], clock=clock).discover_many(pairs, 5.0)) as stream:
        assert not next(stream)[1].complete
    assert asked == {b"1", b"2"}


def test_the_rate_limits_packets(server: Hostile) -> None:
    started = time.monotonic()
    found = list(Client([server.name], rate=100.0).discover_many(f"ark:{i}/x" for i in range(10, 40)))
    assert len(found) == 30
    assert all(d.complete for d in found)
    assert time.monotonic() - started >= 0.25  # thirty packets at a hundred a second


def test_the_number_of_started_walks_is_bounded(server: Hostile) -> None:
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield f"ark:{taken}/x"

    stream = Client([server.name], concurrency=8).discover_many(endless())
    with closing(stream):
        for _ in range(100):
            next(stream)
    assert taken < 100 + 200


ITEMS: list[Any] = [
    "ark:1/x1",
    "nonsense",
    None,
    float("nan"),
    7,
    b"\xff",
    "ark:1/x1 ark:1/x2",
    "",
    "ark:2/x2",
    object(),
    NO_ARK,
]


@pytest.mark.parametrize("kind", [None, dns.resolver.Resolver])
def test_an_item_that_is_not_an_ark_has_its_error_and_does_not_end_the_stream(kind: Any, server: Hostile) -> None:
    nameservers = [server.name] if kind is None else resolver_of(server, kind)
    for ordered in (True, False):
        found = list(discover_many(ITEMS, nameservers=nameservers, ordered=ordered))
        awaited = asyncio.run(collect(discover_many_async(ITEMS, nameservers=nameservers, ordered=ordered)))
        assert sorted(str(one.position) for one in awaited) == sorted(str(one.position) for one in found)
        bad = [one for one in found if one.error is not None]
        assert [one.position for one in bad] == [1, 2, 3, 4, 5, 6, 7, 9, 10]
        assert sorted(str(one.ark) for one in found if one.error is None) == ["ark:1/x1", "ark:2/x2"]
        if ordered:
            assert [one.error is None for one in found] == [n in (0, 8) for n in range(len(ITEMS))]
    for one in bad:
        assert (len(one), one.complete, one.to_dict()["ark"]) == (0, False, None)
        with pytest.raises(ArkSyntaxError, match=re.escape(str(one.error))):
            one.url()
        assert str(one.error) in repr(one)
        assert str(one) == str(one.error) == one.incomplete_reason()


@pytest.mark.parametrize("one", ["ark:1/x", b"ark:1/x", Ark.parse("ark:1/x")])
async def test_a_single_ark_is_a_type_error(one: Ark | str | bytes, server: Hostile) -> None:
    """Text is an iterable of text to Python and to type checkers, and its letters are no ARKs."""
    with pytest.raises(TypeError, match=r"expected several ARKs"):
        list(discover_many(one, nameservers=[server.name]))  # type: ignore[arg-type,unused-ignore]
    with pytest.raises(TypeError, match=r"expected several ARKs"):
        await anext(discover_many_async(one, nameservers=[server.name]))  # type: ignore[arg-type,unused-ignore]


def test_a_fast_stream_is_taken_to_its_end(server: Hostile) -> None:
    client = Client([server.name], concurrency=1)
    for count in (1, 63, 64, 65, 500):
        arks = [f"ark:{number % 3 + 1}/x{number}" for number in range(count)]
        assert asyncio.run(collect(client.discover_many_async(arks))) == list(client.discover_many(arks))


def test_a_slow_stream_delays_no_query(server: Hostile) -> None:
    asked = len(server.queries)

    def sent() -> set[str]:
        return {question(query)[0][0].decode() for query, _ in server.queries[asked:]}

    def arks() -> Iterator[str]:
        for naan in "123":
            time.sleep(2 * SLICE)
            yield f"ark:{naan}/x"
            until(lambda: naan in sent(), "its query")  # noqa: B023 - called at once

    assert len(list(discover_many(arks(), nameservers=[server.name]))) == 3


async def test_a_slow_stream_delays_no_discovery_and_its_error_ends_the_run(server: Hostile) -> None:
    found: list[str] = []
    came = asyncio.Event()

    async def arks() -> AsyncIterator[str]:
        for ark in ARKS[:3]:
            yield ark
            await asyncio.wait_for(came.wait(), PATIENCE)
            came.clear()
        raise LookupError("no more")

    async def take() -> None:
        async for one in discover_many_async(arks(), nameservers=[server.name]):
            found.append(str(one.ark))
            came.set()

    with pytest.raises(LookupError, match="no more"):
        await take()
    assert found == ["ark:1/x1", "ark:2/x2", "ark:3/x"]


def test_each_candidate_of_a_naan_has_the_url_of_its_own_ark() -> None:
    """Also of the ARKs for which no walk runs, because those before have shown that it would find the same."""
    with hostile(hosts({"1.ark.arpa.": [naptr("h.example.")]})) as server:
        found = list(discover_many([f"ark:1/x{number}" for number in range(300)], nameservers=[server.name]))
    assert [[one.url() for one in each] for each in found] == [[f"https://h.example/ark:1/x{n}"] for n in range(300)]


# ---- connections


@pytest.fixture
def one_query_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that there are many connections."""
    monkeypatch.setattr("maptr.resolver.connections.MAX_OUTSTANDING", 1)


class Crowded:
    """A TCP server that closes connections above ``limit`` without a response, as servers with limits do."""

    def __init__(self, limit: int, *, close_first: int = 0) -> None:
        self.limit, self.close_first = limit, close_first
        self.open = self.most = self.refused = 0
        self.answer = hosts({f"{number}.ark.arpa.": [naptr("h.example.")] for number in range(200)})

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            if self.open > self.limit or self.close_first:
                self.close_first = max(0, self.close_first - 1)
                self.refused += 1
                return
            while True:
                query = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
                await asyncio.sleep(0.005)
                [packet] = self.answer(query, "tcp")
                writer.write(len(packet).to_bytes(2, "big") + packet)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()

    def found(self, count: int, **options: Any) -> list[bool]:
        async def run() -> list[bool]:
            async with await asyncio.start_server(self.serve, "127.0.0.1", 0) as server:
                name = f"tcp://127.0.0.1#{server.sockets[0].getsockname()[1]}"
                arks = [f"ark:{number}/x" for number in range(count)]
                client = Client(name, **options)
                if count == 1:
                    return [bool(await client.discover_async(arks[0]))]
                return [bool(found) for found in await collect(client.discover_many_async(arks))]

        return asyncio.run(run())


@pytest.mark.usefixtures("one_query_each")
@pytest.mark.parametrize(("options", "most"), [({}, 8), ({"max_connections": 2}, 2), ({"max_connections": 30}, 30)])
def test_tcp_connections_at_a_time(options: dict[str, int], most: int) -> None:
    server = Crowded(1000)
    assert server.found(150, **options) == [True] * 150
    assert server.refused == 0
    assert server.most <= most + 2  # the server learns later that a connection is closed


@pytest.mark.usefixtures("one_query_each")
def test_tcp_connections_of_one_ark_at_a_time() -> None:
    server = Crowded(1000)
    redirects = [naptr(f"{number}.ark.arpa.", flags=b"", preference=number) for number in range(1, 20)]
    server.answer = hosts({"0.ark.arpa.": redirects, **{f"{n}.ark.arpa.": [naptr("h.example.")] for n in range(1, 20)}})
    assert server.found(1, max_connections=1) == [True]
    assert server.most <= 1 + 2


@pytest.mark.usefixtures("one_query_each")
@pytest.mark.parametrize("limit", [1, 3, 20])
def test_a_server_with_fewer_connections_answers_all(limit: int) -> None:
    server = Crowded(limit)
    assert server.found(150, max_connections=60) == [True] * 150
    assert server.refused > 0
    assert server.refused < 2 * 150  # one a query, where the server learns late that a connection is closed


@pytest.mark.usefixtures("one_query_each")
def test_a_connection_that_is_always_closed_is_given_up() -> None:
    server = Crowded(0)
    assert server.found(2) == [False, False]
    assert server.refused == 2 * (MAX_CLOSED + 1)
    assert Crowded(8, close_first=MAX_CLOSED).found(1) == [True]


FEW_FILES = """
import os, resource, sys
import maptr.resolver.connections
from maptr import Client
maptr.resolver.connections.MAX_OUTSTANDING = 1
arks = [f"ark:{number}/x" for number in range(100)]
stream = Client(sys.argv[1:], max_connections=50).discover_many(arks, lifetime=60)
used = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 10
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 4, used + 4))
found = [bool(found) for found in stream]
assert found == [True] * 100, found
"""


async def test_a_process_with_few_files_asks_by_fewer_connections() -> None:
    async with await asyncio.start_server(Crowded(1000).serve, "127.0.0.1", 0) as listening:
        where = f"tcp://127.0.0.1#{listening.sockets[0].getsockname()[1]}"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", FEW_FILES, where)
        assert await process.wait() == 0


def test_a_process_with_few_files_asks_by_fewer_udp_sockets() -> None:
    with hostile(hosts({f"{number}.ark.arpa.": [naptr("h.example.")] for number in range(100)})) as server:
        program = FEW_FILES.replace("used + 4", "used + 2")
        subprocess.run([sys.executable, "-c", program, server.name], check=True, timeout=600)
