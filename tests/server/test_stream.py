"""Streams over a transport of the test's own, and turns: what is sent together, in which order, and who waits."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from maptr.errors import ZoneError
from maptr.protocol.address import Address
from maptr.server import stream as module
from maptr.server.daemon import Daemon
from maptr.server.stream import HELD_BUFFER, MAX_TURN, TURN_SIZE, TURNS_TIME, RoundRobin, Stream, TcpLimits
from tests.server.test_listeners import FRAME, SNAPSHOT, receive_message
from tests.server.test_listeners import QUERY as QUESTION
from tests.support.running import PATIENCE, answering, served

QUERY = b"\0\x0cquery of 12."


class Transport(asyncio.Transport):
    """Keeps each write, and what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.said: list[str] = []
        self.gone = False  # the client, which is told a moment later

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.gone

    def close(self) -> None:
        self.said.append("close")

    def abort(self) -> None:
        self.said.append("abort")

    def pause_reading(self) -> None:
        self.said.append("pause")

    def resume_reading(self) -> None:
        self.said.append("resume")

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


def talking(
    answer: Callable[[bytes], Iterator[bytes]], talk: Callable[[Stream, Transport], object], **limits: float
) -> Transport:
    """The transport after a talk and what came of it within a few turns of the loop."""

    async def run() -> Transport:
        transport = Transport()
        stream = Stream(answer, limits=TcpLimits(**limits))  # type: ignore[arg-type]
        stream.connection_made(transport)
        talk(stream, transport)
        for _ in range(10):
            await asyncio.sleep(0)
        stream.connection_lost(None)
        return transport

    return asyncio.run(run())


def echo(query: bytes) -> Iterator[bytes]:
    yield query


def test_what_comes_together_is_sent_together() -> None:
    transport = talking(echo, lambda stream, _: stream.data_received(QUERY * 5 + QUERY[:3]))
    assert transport.writes == [QUERY * 5]


def test_a_long_pipeline_takes_turns_with_others() -> None:
    def talk(stream: Stream, transport: Transport) -> None:
        stream.data_received(QUERY * (2 * MAX_TURN + 1))
        assert transport.writes == [QUERY * MAX_TURN], "the others come first"

    transport = talking(echo, talk)
    assert transport.writes == [QUERY * MAX_TURN] * 2 + [QUERY]


def test_a_reply_is_taken_as_far_as_the_client_reads() -> None:
    taken = 0

    def many(query: bytes) -> Iterator[bytes]:
        nonlocal taken
        while taken < 100:
            taken += 1
            yield bytes(20_000)

    def stall(stream: Stream, transport: Transport) -> None:
        stream.data_received(QUERY)
        stream.pause_writing()

    def read_on(stream: Stream, transport: Transport) -> None:
        stall(stream, transport)
        stream.resume_writing()

    assert len(talking(many, stall).writes) == taken <= 2
    taken = 0
    assert len(talking(many, read_on).writes) == taken > 5


def test_nothing_more_is_made_for_a_client_that_is_gone() -> None:
    taken = 0

    def many(query: bytes) -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield bytes(20_000)

    def talk(stream: Stream, transport: Transport) -> None:
        stream.data_received(QUERY)
        transport.gone = True

    talking(many, talk)
    assert taken == 1


def test_queries_of_who_does_not_read_are_read_no_more() -> None:
    def talk(stream: Stream, transport: Transport) -> None:
        stream.pause_writing()
        stream.data_received(QUERY)
        stream.data_received(QUERY * (HELD_BUFFER // len(QUERY) + 1))
        assert transport.writes == [QUERY]
        assert transport.said[-1] == "pause"

    talking(echo, talk)


def test_a_transfer_cut_off_ends_the_connection_and_so_does_a_bug() -> None:
    def cut_off(query: bytes) -> Iterator[bytes]:
        yield b"a part"
        raise ZoneError("cut off")

    def wrong(query: bytes) -> Iterator[bytes]:
        raise ZeroDivisionError
        yield b""

    transport = talking(cut_off, lambda stream, _: stream.data_received(QUERY * 2))
    assert transport.writes == [b"\0\x06a part"]
    assert "abort" in transport.said

    def talk(stream: Stream, transport: Transport) -> None:
        with pytest.raises(ZeroDivisionError):
            stream.data_received(QUERY)

    assert "abort" in talking(wrong, talk).said


def test_an_end_asked_for_waits_for_what_has_come() -> None:
    def talk(stream: Stream, transport: Transport) -> None:
        stream.data_received(QUERY * (MAX_TURN + 1))
        stream.end()
        assert "close" not in transport.said

    transport = talking(echo, talk)
    assert b"".join(transport.writes) == QUERY * (MAX_TURN + 1)
    assert transport.said[-1] == "close"


class Loop:
    """An event loop whose time goes on where a turn takes some."""

    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list[object] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, call: object) -> None:
        self.soon.append(call)

    def once(self) -> None:
        """All that is ready, as the event loop calls it before it looks for more."""
        ready, self.soon = self.soon, []
        for call in ready:
            call()  # type: ignore[operator]


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def turns(loop: Loop) -> RoundRobin:
    return RoundRobin(cast(asyncio.AbstractEventLoop, loop))


def test_short_turns_are_taken_together_and_long_ones_one_by_one(loop: Loop, turns: RoundRobin) -> None:
    taken: list[str] = []

    def turn(name: str, seconds: float) -> None:
        taken.append(name)
        loop.now += seconds

    for number in range(3):
        turns.add(lambda number=number: turn(f"short {number}", TURNS_TIME / 10))  # type: ignore[misc]
    for number in range(3):
        turns.add(lambda number=number: turn(f"long {number}", 2 * TURNS_TIME))  # type: ignore[misc]
    expected = ["short 0", "short 1", "short 2", "long 0"], ["long 1"], ["long 2"]
    for some in expected:
        assert len(loop.soon) == 1
        loop.once()
        assert taken == some
        taken.clear()
    assert loop.soon == []


def test_who_wants_another_turn_waits_for_all_others(loop: Loop, turns: RoundRobin) -> None:
    taken: list[int] = []

    def turn(number: int) -> None:
        taken.append(number)
        if len(taken) < 6:
            turns.add(lambda: turn(number))

    turns.add(lambda: turn(1))
    turns.add(lambda: turn(2))
    loop.once()
    assert taken == [1, 2, 1, 2, 1, 2, 1][: len(taken)]
    assert len(taken) >= 6


def test_a_turn_that_fails_takes_no_other_along(loop: Loop, turns: RoundRobin) -> None:
    taken: list[int] = []
    turns.add(lambda: 1 / 0)
    turns.add(lambda: taken.append(1))
    with pytest.raises(ZeroDivisionError):
        loop.once()
    loop.once()
    assert taken == [1]
    assert loop.soon == []


def test_transfers_have_their_turns_one_by_one(loop: Loop, turns: RoundRobin, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many under way the event loop looks for new data after each message."""
    monkeypatch.setattr(module, "TURNS_TIME", 0.1)
    made = 0

    def transfer(query: bytes) -> Iterator[bytes]:
        nonlocal made
        while True:
            made += 1
            loop.now += 1  # longer than turns may take together
            yield bytes(TURN_SIZE)

    async def converse() -> None:
        nonlocal made
        streams = [Stream(transfer, schedule=turns.add) for _ in range(50)]
        for stream in streams:
            stream.connection_made(Transport())
            stream.data_received(QUERY)
        for _ in range(200):
            made = 0
            loop.once()
            assert made == 1
        for stream in streams:
            stream.connection_lost(None)

    asyncio.run(converse())


def test_the_listeners_of_a_server_share_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[RoundRobin] = set()
    add = RoundRobin.add

    def noted(turns: RoundRobin, turn: Callable[[], object]) -> None:
        used.add(turns)
        add(turns, turn)

    monkeypatch.setattr(RoundRobin, "add", noted)
    pipeline = 3 * MAX_TURN
    daemon = Daemon(served(SNAPSHOT), [Address("127.0.0.1", 0), Address("127.0.0.2", 0)])
    with answering(daemon):
        for address in daemon.bound:
            with socket.create_connection((address.host, address.port), PATIENCE) as sock:
                sock.sendall(FRAME * pipeline)
                for _ in range(pipeline):
                    assert receive_message(sock).id == QUESTION.id
    assert len(used) == 1
