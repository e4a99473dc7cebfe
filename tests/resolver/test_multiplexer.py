"""The multiplexer's parts: the pool of UDP sockets, timeouts, and the limit on outstanding queries."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from maptr.discovery import Outcome
from maptr.resolver import multiplexer
from maptr.resolver.connections import Ready
from maptr.resolver.exchange import FIRST_SECONDS, Attempt
from maptr.resolver.multiplexer import (
    MAX_SOCKETS,
    SOCKETS,
    Multiplexer,
    Pending,
    SelectorWaiter,
    SocketPool,
)
from maptr.resolver.servers import Server
from maptr.resolver.stub import Stub
from maptr.walk import Answer
from tests.support.hostile import NAPTR, naptr, record, reply
from tests.support.waiting import PATIENCE

NAME = (b"12345", b"ark", b"arpa")


@pytest.fixture(autouse=True)
def real_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the product, as they were imported."""
    monkeypatch.setattr("maptr.resolver.exchange.FIRST_SECONDS", FIRST_SECONDS)


@pytest.fixture
def waiter() -> Iterator[SelectorWaiter]:
    with closing(SelectorWaiter()) as made:
        yield made


def outstanding() -> tuple[Pending, Attempt]:
    exchange = Stub(["192.0.2.1"]).exchange(NAME)
    attempt = exchange.next()
    assert attempt is not None
    return Pending(exchange, print, PATIENCE), attempt


class Watched:
    """A waiter that only records what it watches."""

    def __init__(self) -> None:
        self.socks: list[socket.socket] = []

    def watch(self, sock: socket.socket, ready: Ready, *, write: bool = False) -> None:
        self.socks.append(sock)

    def unwatch(self, sock: socket.socket) -> None:
        self.socks.remove(sock)

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_rfc5452_9_2_sockets_are_several_and_each_is_replaced_after_its_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiplexer, "REUSES", 3)
    watched = Watched()
    pool = SocketPool(watched, lambda one: False)
    server = Server("127.0.0.1", 9)
    first = [pool.next(server) for _ in range(SOCKETS)]
    assert len({one.sock.getsockname() for one in first}) == SOCKETS
    busy = first[0]
    busy.pending[b"id"] = *outstanding(), busy, b"id"
    for _ in range(2 * SOCKETS):
        pool.next(server)
    now = {pool.next(server) for _ in range(SOCKETS)}
    assert now & set(first) == {busy}
    assert all(one.sock.fileno() == -1 for one in first if one is not busy)
    busy.pending.clear()
    assert busy not in [pool.next(server) for _ in range(SOCKETS)]
    assert len(watched.socks) == SOCKETS
    pool.close()
    assert watched.socks == []


def test_unused_sockets_of_many_servers_are_closed() -> None:
    watched = Watched()
    pool = SocketPool(watched, lambda one: False)
    busy = pool.next(Server("127.0.0.1", 9))
    busy.pending[b"id"] = *outstanding(), busy, b"id"
    for port in range(1000, 1000 + 3 * MAX_SOCKETS):
        assert pool.next(Server("127.0.0.1", port)).sock in watched.socks
        assert len(watched.socks) <= MAX_SOCKETS
    assert busy.sock in watched.socks
    pool.close()
    assert watched.socks == []


@pytest.mark.parametrize(("rate", "second"), [(None, 1), (0.1, 0)])
def test_each_attempt_times_out_on_time_and_the_question_with_its_lifetime(
    waiter: SelectorWaiter, rate: float | None, second: int
) -> None:
    """Also if the rate allows no second packet."""
    now = 100.0
    answers: list[Answer] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(PATIENCE)
        stub = Stub([f"127.0.0.1#{server.getsockname()[1]}"])
        with closing(Multiplexer(stub, waiter, rate=rate, clock=lambda: now)) as asking:
            asking.ask(NAME, answers.append, seconds=2.5)
            for moment, pause, sent in (
                (0.0, 1.0, 1),
                (0.9, 0.1, 0),
                (1.0, 1.5, second),
                (2.4, 0.1, 0),
                (2.5, None, 0),
            ):
                now = 100.0 + moment
                assert asking.tick() == (pause and pytest.approx(pause))
                for _ in range(sent):
                    server.recv(2000)
                server.setblocking(False)
                with pytest.raises(BlockingIOError):
                    server.recv(2000)
                server.settimeout(PATIENCE)
    assert [answer.outcome for answer in answers] == [Outcome.TIMEOUT]


def test_a_late_response_is_heard_while_the_next_try_waits_for_the_rate(waiter: SelectorWaiter) -> None:
    now = 100.0
    answers: list[Answer] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(PATIENCE)
        stub = Stub([f"127.0.0.1#{server.getsockname()[1]}"])
        with closing(Multiplexer(stub, waiter, rate=0.1, clock=lambda: now)) as asking:
            asking.ask(NAME, answers.append)
            asking.tick()
            query, client = server.recvfrom(2000)
            now += 1.0
            assert asking.tick() == pytest.approx(9.0, abs=0.1)
            server.sendto(reply(query, [record(None, NAPTR, naptr("h.example."))]), client)
            waiter.wait(PATIENCE)
            assert [answer.outcome for answer in answers] == [Outcome.ANSWER]
            assert asking.tick() is None
