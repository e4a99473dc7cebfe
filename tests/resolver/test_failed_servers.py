"""RFC 9520: a client without a cache does not ask a server again for five seconds after it failed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator

import pytest

from maptr import Client, DiscoveryFailed
from maptr.discovery import Discovery, DiscoveryTimeout, Outcome
from maptr.resolver.exchange import ROUNDS
from maptr.resolver.servers import FAILED_SECONDS, MAX_FAILED, FailedServers, Server
from tests.support.drivers import found_by
from tests.support.hostile import NAPTR, TC, Hostile, hostile, hosts, naptr, record, reply
from tests.support.peers import HOST, free_port

ZONE = {f"{naan}.ark.arpa.": [naptr("h.example.")] for naan in ("12345", "67890")}
AGAIN = "a moment ago, so not asked again yet"


class Clocked:
    """A client whose memory of failures has a clock of the test."""

    def __init__(self, *servers: str) -> None:
        self.now = 100.0
        self.client = Client(servers)
        self.client.resolver.failed = FailedServers(lambda: self.now)

    def discover(self, ark: str = "ark:12345/x", **options: float) -> Discovery:
        return found_by(lambda: self.client.discover(ark, **options))  # type: ignore[arg-type]

    def discover_async(self, ark: str = "ark:12345/x") -> Discovery:
        return found_by(lambda: asyncio.run(self.client.discover_async(ark)))


@pytest.fixture(autouse=True)
def short_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.resolver.exchange.FIRST_SECONDS", 0.05)


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((HOST, 0))
        sock.setblocking(False)
        yield sock


def packets(silent: socket.socket) -> int:
    """The number of queries since the last call."""
    count = 0
    while True:
        try:
            silent.recv(2000)
        except BlockingIOError:
            return count
        count += 1


def test_rfc9520_a_silent_server_is_not_asked_for_any_name_for_five_seconds(silent: socket.socket) -> None:
    clocked = Clocked(f"{HOST}#{silent.getsockname()[1]}")
    assert clocked.discover().trace[0].note.endswith(": no reply")
    assert packets(silent) == ROUNDS
    for discover in (clocked.discover, clocked.discover_async):
        for ark in ("ark:12345/x", "ark:67890/x"):
            found = discover(ark)
            assert found.trace[0].note.endswith(f": no reply {AGAIN}")
            with pytest.raises(DiscoveryTimeout, match=AGAIN):
                found.raise_for_none()
    clocked.now += FAILED_SECONDS - 0.1
    clocked.discover()
    assert packets(silent) == 0
    clocked.now += 0.2
    clocked.discover_async()
    assert packets(silent) == ROUNDS


@pytest.mark.parametrize("naan", [None, "12345"])
def test_forget_and_close_drop_what_is_remembered(naan: str | None, silent: socket.socket) -> None:
    server = Server(HOST, silent.getsockname()[1])
    clocked = Clocked(str(server))
    clocked.discover()
    clocked.client.forget(naan)
    clocked.discover()
    assert packets(silent) == 2 * ROUNDS
    memory = clocked.client.resolver.failed
    assert memory is not None
    assert memory.get(server)
    clocked.client.close()
    assert not memory.get(server)


def test_a_server_that_refuses_packets_is_skipped_and_the_next_one_asked(silent: socket.socket) -> None:
    closed = free_port()
    with hostile(hosts(ZONE)) as good:
        clocked = Clocked(f"{HOST}#{closed}", good.name)
        assert clocked.discover()
        with hostile(hosts(ZONE), port=closed) as back:
            for _ in range(4):
                assert clocked.discover()
            assert back.queries == []
            clocked.now += FAILED_SECONDS
            clocked.client.resolver.opened(1.0).demote(Server(HOST, good.port))  # type: ignore[union-attr]
            assert clocked.discover()
            assert len(back.queries) == 1
    with pytest.raises(DiscoveryFailed, match="refused"):
        Clocked(f"{HOST}#{closed}").discover().raise_for_none()


@pytest.mark.parametrize("rcode", [2, 5])
def test_a_failure_that_the_server_reports_may_be_that_of_one_name(rcode: int) -> None:
    with hostile(lambda query, transport: [reply(query, rcode=rcode)]) as server:
        clocked = Clocked(server.name)
        clocked.discover()
        before = len(server.queries)
        clocked.discover("ark:67890/x")
        assert len(server.queries) > before


def test_a_lost_packet_is_no_failure() -> None:
    honest, asked = hosts(ZONE), 0

    def lossy(query: bytes, transport: str) -> list[bytes]:
        nonlocal asked
        asked += 1
        return honest(query, transport) if asked % 2 == 0 else []

    with hostile(lossy) as server:
        clocked = Clocked(server.name)
        for _ in range(3):
            assert clocked.discover()
    assert asked == 6


def test_too_short_a_lifetime_is_no_failure_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.resolver.exchange.FIRST_SECONDS", 10.0)
    silent = True
    honest = hosts(ZONE)
    with hostile(lambda query, transport: [] if silent else honest(query, transport)) as server:
        clocked = Clocked(server.name)
        assert not clocked.discover(lifetime=0.05)
        silent = False
        assert clocked.discover()


def test_a_server_that_lacks_tcp_still_answers_by_udp(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((HOST, free_port()))
        server = Hostile(hosts(ZONE), *sock.getsockname())
        clocked = Clocked(server.name)

        def answer(script: Callable[[bytes], bytes]) -> Discovery:
            async def run() -> Discovery:
                loop = asyncio.get_running_loop()
                sock.setblocking(False)

                async def serve() -> None:
                    while True:
                        query, client = await loop.sock_recvfrom(sock, 2000)
                        await loop.sock_sendto(sock, script(query), client)

                task = asyncio.create_task(serve())
                try:
                    return await clocked.client.discover_async("ark:12345/x")
                except DiscoveryFailed as failed:
                    return failed.discovery
                finally:
                    task.cancel()

            return asyncio.run(run())

        assert not answer(lambda query: reply(query, flags=TC))
        assert answer(lambda query: reply(query, [record(None, NAPTR, naptr("h.example."))]))


def test_bulk_and_clients_with_a_cache_do_not_use_it(silent: socket.socket) -> None:
    where = f"{HOST}#{silent.getsockname()[1]}"
    clocked = Clocked(where)
    clocked.discover()
    packets(silent)
    assert not any(clocked.client.discover_many(["ark:12345/x"]))
    assert packets(silent) == ROUNDS
    assert Client([where], cache=":memory:").resolver.failed is None


def test_the_memory_is_limited() -> None:
    memory = FailedServers(lambda: 0.0)
    for port in range(1, 3 * MAX_FAILED):
        memory.add(Server(HOST, port), Outcome.TIMEOUT, "no reply")
    assert sum(memory.get(Server(HOST, port)) is not None for port in range(1, 3 * MAX_FAILED)) <= MAX_FAILED
