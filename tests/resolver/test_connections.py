"""RFC 7766: TCP and TLS connections with many queries each, and servers that close, stall, lie or mix up answers."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from maptr import Client, Discovery, DiscoveryFailed
from maptr.resolver.connections import MAX_CONNECTIONS, MAX_OUTSTANDING, TcpConnection, TcpPool, TlsConnection
from maptr.resolver.multiplexer import SelectorWaiter
from maptr.resolver.servers import Server
from tests.support.hostile import NAPTR, naptr, question, record, reply
from tests.support.peers import HOST, TlsMaptr
from tests.support.waiting import PATIENCE

NAANS = range(10000, 10040)


def answer(query: bytes) -> bytes:
    """A host for each name, so that a mixed up answer shows."""
    name = question(query)[0][0].decode()
    return reply(query, [record(None, NAPTR, naptr(f"h{name}.example."))])


def framed(packet: bytes) -> bytes:
    return len(packet).to_bytes(2, "big") + packet


class Stream:
    """What a server by TCP has seen, and what its scripts need."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def query(self) -> bytes:
        return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(2), "big"))

    def send(self, packet: bytes) -> None:
        self.writer.write(framed(packet))


Script = Callable[[Stream], Awaitable[None]]


class Listening:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.opened = self.open = self.most = 0
        self.name = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self.open += 1
        self.most = max(self.most, self.open)
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await self.script(Stream(reader, writer))
        self.open -= 1
        writer.close()


@asynccontextmanager
async def listening(script: Script) -> AsyncIterator[Listening]:
    found = Listening(script)
    async with await asyncio.start_server(found.serve, HOST, 0) as server:
        found.name = f"tcp://{HOST}#{server.sockets[0].getsockname()[1]}"
        yield found


async def honest(stream: Stream) -> None:
    while True:
        stream.send(answer(await stream.query()))


async def ask(client: Client, naan: int) -> Discovery:
    try:
        return await client.discover_async(f"ark:{naan}/x")
    except DiscoveryFailed as failed:
        return failed.discovery


async def ask_all(client: Client) -> list[Discovery]:
    """Ask for all at once. A discovery has the host of its own NAAN, or none."""
    found = await asyncio.wait_for(asyncio.gather(*(ask(client, naan) for naan in NAANS)), 2 * PATIENCE)
    for naan, one in zip(NAANS, found, strict=True):
        assert [candidate.host for candidate in one] in ([], [f"h{naan}.example"])
    return found


async def test_rfc7766_6_2_1_awaited_look_ups_share_connections_and_use_them_again() -> None:
    async with listening(honest) as server, Client(server.name) as client:
        assert all(await ask_all(client))
        assert server.opened == -(-len(NAANS) // MAX_OUTSTANDING)
        for naan in NAANS:
            assert await ask(client, naan)
        assert server.opened == 2
        assert all([found async for found in client.discover_many_async([f"ark:{naan}/x" for naan in NAANS])])
        assert server.opened <= 4


async def test_rfc7766_7_responses_may_come_in_any_order() -> None:
    async def reversed_(stream: Stream) -> None:
        while True:
            queries = [await stream.query() for _ in range(8)]
            for query in reversed(queries):
                stream.send(answer(query))

    async with listening(reversed_) as server, Client(server.name) as client:
        assert all(await ask_all(client))


async def test_responses_arrive_in_pieces() -> None:
    async def dripping(stream: Stream) -> None:
        while True:
            for byte in framed(answer(await stream.query())):
                stream.writer.write(bytes([byte]))
                await stream.writer.drain()

    async with listening(dripping) as server, Client(server.name) as client:
        assert all(await ask_all(client))


@pytest.mark.parametrize("each", [1, 3])
async def test_a_server_that_closes_after_some_responses_answers_all(each: int) -> None:
    async def short(stream: Stream) -> None:
        for _ in range(each):
            stream.send(answer(await stream.query()))

    async with listening(short) as server, Client(server.name) as client:
        assert all(await ask_all(client))
        assert server.most <= MAX_CONNECTIONS + 2  # the server learns later that a connection is closed
        assert await ask(client, 10000)


async def test_a_server_that_closes_idle_connections_is_connected_to_again() -> None:
    async def hasty(stream: Stream) -> None:
        with suppress(TimeoutError):
            while True:
                stream.send(answer(await asyncio.wait_for(stream.query(), 0.05)))

    async with listening(hasty) as server, Client(server.name) as client:
        for _ in range(4):
            assert await ask(client, 10000)
            while server.open:
                await asyncio.sleep(0.01)
        assert server.opened == 4


async def test_a_server_that_answers_the_first_query_of_a_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.resolver.exchange.FIRST_SECONDS", 0.3)

    async def once(stream: Stream) -> None:
        stream.send(answer(await stream.query()))
        while True:
            await stream.query()

    async with listening(once) as server, Client(server.name) as client:
        assert await ask(client, 10000)
        for naan in NAANS[:8]:
            assert await ask(client, naan)


async def wrong_id(stream: Stream) -> None:
    while True:
        query = await stream.query()
        stream.send(reply(query, ident=bytes([query[0] ^ 1, query[1]])))


async def other_question(stream: Stream) -> None:
    """The ID of each query, with the question and the answer of the one before."""
    before = await stream.query()
    while True:
        query = await stream.query()
        stream.send(query[:2] + answer(before)[2:])
        before = query


async def half(stream: Stream) -> None:
    stream.writer.write(framed(answer(await stream.query()))[:20])
    await stream.reader.read()


async def close_in_mid_answer(stream: Stream) -> None:
    stream.send(answer(await stream.query()))
    stream.writer.write(framed(answer(await stream.query()))[:20])


async def empty(stream: Stream) -> None:
    await stream.query()
    stream.writer.write(bytes(100_000))


async def twice(stream: Stream) -> None:
    while True:
        query = await stream.query()
        stream.send(answer(query))
        stream.send(answer(query))


async def never(stream: Stream) -> None:
    await asyncio.sleep(PATIENCE)


async def close_at_once(stream: Stream) -> None:
    pass


async def close_after_a_query(stream: Stream) -> None:
    await stream.query()


async def garbage(stream: Stream) -> None:
    await stream.query()
    with suppress(ConnectionError):
        while True:
            stream.writer.write(bytes(range(256)) * 100)
            await stream.writer.drain()


HOSTILE = (
    wrong_id,
    other_question,
    half,
    close_in_mid_answer,
    empty,
    twice,
    never,
    close_at_once,
    close_after_a_query,
    garbage,
)


@pytest.mark.parametrize("script", HOSTILE, ids=lambda script: script.__name__)
async def test_a_hostile_server_neither_hangs_nor_mixes_up_answers(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maptr.resolver.exchange.FIRST_SECONDS", 0.1)
    async with listening(script) as server, Client(server.name, lifetime=1.5) as client:
        started = time.monotonic()
        await ask_all(client)
        await ask_all(client)
        assert time.monotonic() - started < PATIENCE
        if script is not never:  # which does not see the end of a connection
            assert server.most <= 2 * MAX_CONNECTIONS  # the server learns later that they are closed
    async with listening(script) as server:
        many = Client(server.name, lifetime=1.5).discover_many([f"ark:{naan}/x" for naan in NAANS])
        found = await asyncio.wait_for(asyncio.to_thread(list, many), 2 * PATIENCE)
        for naan, one in zip(NAANS, found, strict=True):
            assert [candidate.host for candidate in one] in ([], [f"h{naan}.example"])


async def test_the_queries_in_flight_are_limited_and_all_look_ups_end_in_time() -> None:
    held: list[int] = []

    async def silent(stream: Stream) -> None:
        at = len(held)
        held.append(0)
        while True:
            await stream.query()
            held[at] += 1

    async with listening(silent) as server, Client(server.name, lifetime=1.0) as client:
        asked = [client.discover_async(f"ark:{naan}/x") for naan in range(10000, 10400)]
        found = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), PATIENCE)
        assert {type(one).__name__ for one in found} == {"DiscoveryTimeout"}
        assert server.most <= 2 * MAX_CONNECTIONS  # those of look-ups whose time is over are replaced
        assert max(held) <= MAX_OUTSTANDING


async def test_a_dead_connection_is_not_used_again_by_look_ups_that_the_program_gives_up() -> None:
    dead = True

    async def dying(stream: Stream) -> None:
        while True:
            query = await stream.query()
            if not dead:
                stream.send(answer(query))

    async with listening(dying) as server, Client(server.name) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.discover_async("ark:10000/x"), 0.2)
        dead = False
        assert await ask(client, 10000)
        assert server.opened == 2


async def test_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.resolver.connections.IDLE_SECONDS", 0.1)
    async with listening(honest) as server:
        client = Client(server.name)
        assert await ask(client, 10000)
        started = time.monotonic()
        while server.open:
            assert time.monotonic() - started < PATIENCE
            await asyncio.sleep(0.02)
        assert await ask(client, 10000)
        assert server.opened == 2
        await client.aclose()


@pytest.mark.parametrize("cache", [None, ":memory:"])
async def test_aclose_closes_connections_and_ends_look_ups(cache: str | None) -> None:
    async with listening(honest) as server:
        client = Client(server.name, cache=cache)
        assert await ask(client, 10000)
        assert server.open == 1
        await client.aclose()
        started = time.monotonic()
        while server.open:
            assert time.monotonic() - started < PATIENCE
            await asyncio.sleep(0.01)
    async with listening(never) as server:
        client = Client(server.name)
        waiting = asyncio.create_task(ask(client, 10000))
        while not server.open:
            await asyncio.sleep(0.01)
        await client.aclose()
        assert not await asyncio.wait_for(waiting, PATIENCE)


def test_a_client_without_aclose_leaves_no_socket_to_the_collector() -> None:
    """A ResourceWarning is an error here. Each event loop has connections of its own."""

    async def run(client: Client | None = None) -> None:
        async with listening(honest) as server:
            client = client or Client(server.name)
            assert await ask(client, 10000)
            assert await ask(client, 10001)

    asyncio.run(run())
    gc.collect()
    port = 0

    async def again(client: Client) -> None:
        async with await asyncio.start_server(Listening(honest).serve, HOST, port, reuse_address=True):
            assert await ask(client, 10000)

    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    kept = Client(f"tcp://{HOST}#{port}")
    for _ in range(3):
        asyncio.run(again(kept))
    kept.close()
    gc.collect()


async def test_awaited_look_ups_share_connections_by_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = tmp_path / "zone"
    rules = "".join(f'{naan} NAPTR 0 0 "h" "ark" "" h{naan}.example.\n' for naan in NAANS)
    zone.write_text(f"$TTL 60\n@ SOA ns host 1 7200 3600 1209600 300\n@ NS ns.example.\n{rules}")
    made: list[TlsConnection] = []

    class Noted(TlsConnection):
        def __init__(self, *given: object) -> None:
            made.append(self)
            super().__init__(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("maptr.resolver.connections.TlsConnection", Noted)
    with TlsMaptr({"ark.arpa.": zone}) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.directory / "tls.crt"))
        async with Client(f"tls://{HOST}#{server.tls_port}") as client:
            assert all(await ask_all(client))
            assert all([await ask(client, naan) for naan in NAANS])
        assert len(made) == 2
        server.stop()
        async with Client(f"tls://{HOST}#{server.tls_port}", lifetime=2.0) as client:
            assert not any(await ask_all(client))


# ---- one connection


def connected(listener: socket.socket, waiter: SelectorWaiter) -> tuple[TcpConnection, TcpPool]:
    pool = TcpPool(waiter, 8, lambda: None)  # type: ignore[arg-type, return-value]
    one = pool.connection(Server(HOST, listener.getsockname()[1]))
    assert one is not None
    return one, pool


def test_rfc1035_4_2_2_a_response_ends_at_its_length() -> None:
    came: list[bytes | OSError] = []
    with socket.create_server((HOST, 0)) as listener, closing(SelectorWaiter()) as waiter:
        one, pool = connected(listener, waiter)
        one.ask(b"qu", b"query", came.append)
        peer, _ = listener.accept()
        with peer, closing(pool):
            waiter.wait(PATIENCE)
            peer.settimeout(PATIENCE)
            assert peer.recv(100) == b"\0\5query"
            for piece in (b"\0", b"\5q", b"uie"):
                peer.sendall(piece)
                waiter.wait(PATIENCE)
                assert came == []
            peer.sendall(b"t and more")
            waiter.wait(PATIENCE)
    assert came == [b"quiet"]


def test_a_connection_that_is_closed_by_another_event_of_a_wait_says_nothing() -> None:
    came: list[bytes | OSError] = []
    first, other = socket.socketpair()
    with socket.create_server((HOST, 0)) as listener, closing(SelectorWaiter()) as waiter, first, other:
        one, pool = connected(listener, waiter)
        waiter.watch(first, lambda: one.close())
        one.ask(b"qu", b"query", came.append)
        with closing(pool):
            other.send(b"x")
            waiter.wait(PATIENCE)
            waiter.wait(0.1)
        waiter.unwatch(first)
    assert came == []


def test_a_server_that_does_not_listen_is_an_error_of_all_queries() -> None:
    came: list[bytes | OSError] = []
    with closing(SelectorWaiter()) as waiter:
        with socket.create_server((HOST, 0)) as listener:
            where = listener.getsockname()[1]
        pool = TcpPool(waiter, 8, lambda: None)  # type: ignore[arg-type, return-value]
        with closing(pool):
            try:  # the operating system may report it at once, or on the first write
                one = pool.connection(Server(HOST, where))
                assert one is not None
                one.ask(b"aa", b"aa", came.append)
                one.ask(b"bb", b"bb", came.append)
                waiter.wait(PATIENCE)
            except OSError as error:
                came += [error, error]
    assert [type(each) for each in came] == [ConnectionRefusedError] * 2
