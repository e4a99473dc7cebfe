"""Streams over a transport of the test, and the scheduling of their turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from maptr.errors import ZoneError
from maptr.server.stream import HELD_BUFFER, MAX_TURN, TURN_SIZE, RoundRobin, Stream, TcpLimits
from tests.support.running import PATIENCE

QUERY = b"\0\x0cquery of 12."


class Transport(asyncio.Transport):
    """Keeps each write, and what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.said: list[str] = []
        self.gone = False  # the client has closed; the stream learns it later

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


def test_queries_that_arrive_together_are_answered_together() -> None:
    transport = talking(echo, lambda stream, _: stream.data_received(QUERY * 5 + QUERY[:3]))
    assert transport.writes == [QUERY * 5]


def test_a_long_pipeline_is_answered_in_several_turns() -> None:
    def talk(stream: Stream, transport: Transport) -> None:
        stream.data_received(QUERY * (2 * MAX_TURN + 1))
        assert transport.writes == [QUERY * MAX_TURN], "the others come first"

    transport = talking(echo, talk)
    assert transport.writes == [QUERY * MAX_TURN] * 2 + [QUERY]


def test_a_response_is_made_as_far_as_the_client_reads() -> None:
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


def test_no_more_messages_are_made_for_a_closed_connection() -> None:
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


def test_reading_pauses_for_a_client_that_does_not_read() -> None:
    def talk(stream: Stream, transport: Transport) -> None:
        stream.pause_writing()
        stream.data_received(QUERY)
        stream.data_received(QUERY * (HELD_BUFFER // len(QUERY) + 1))
        assert transport.writes == [QUERY]
        assert transport.said[-1] == "pause"

    talking(echo, talk)


def test_a_failed_transfer_and_an_internal_error_end_the_connection() -> None:
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


def test_end_waits_for_the_received_queries() -> None:
    def talk(stream: Stream, transport: Transport) -> None:
        stream.data_received(QUERY * (MAX_TURN + 1))
        stream.end()
        assert "close" not in transport.said

    transport = talking(echo, talk)
    assert b"".join(transport.writes) == QUERY * (MAX_TURN + 1)
    assert transport.said[-1] == "close"


def test_transfers_progress_evenly_and_other_work_goes_on() -> None:
    made = dict.fromkeys(range(20), 0)

    def transfer(number: int) -> Iterator[bytes]:
        while True:
            made[number] += 1
            yield bytes(TURN_SIZE)

    async def run() -> None:
        scheduler = RoundRobin()
        streams = [
            Stream(lambda _, number=number: transfer(number), schedule=scheduler.add)  # type: ignore[misc]
            for number in made
        ]
        for stream in streams:
            stream.connection_made(Transport())
            stream.data_received(QUERY)
        while min(made.values()) < 5:
            await asyncio.wait_for(asyncio.sleep(0.001), PATIENCE)
            assert max(made.values()) - min(made.values()) <= 1
        for stream in streams:
            stream.connection_lost(None)

    asyncio.run(run())


def test_a_turn_that_raises_does_not_stop_the_others() -> None:
    async def run() -> None:
        taken = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: raised.append(context["exception"]))
        scheduler = RoundRobin()
        scheduler.add(lambda: 1 / 0)
        scheduler.add(taken.set)
        await asyncio.wait_for(taken.wait(), PATIENCE)

    raised: list[object] = []
    asyncio.run(run())
    assert [type(error) for error in raised] == [ZeroDivisionError]
