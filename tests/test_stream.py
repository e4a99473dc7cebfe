"""A conversation over a transport of the test's own: what is sent together, whose turn it is, and who is held up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from maptr.errors import ZoneError
from maptr.serve.connections import TcpLimits
from maptr.serve.stream import HELD_BUFFER, MAX_TURN, Conversation

QUERY = b"\0\x0cquery of 12."


class Transport(asyncio.Transport):
    """Keeps each write, and what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.said: list[str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

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
    answer: Callable[[bytes], Iterator[bytes]], talk: Callable[[Conversation, Transport], object], **limits: float
) -> Transport:
    """The transport after a talk and what came of it within a few turns of the loop."""

    async def run() -> Transport:
        transport = Transport()
        conversation = Conversation(answer, limits=TcpLimits(**limits))  # type: ignore[arg-type]
        conversation.connection_made(transport)
        talk(conversation, transport)
        for _ in range(10):
            await asyncio.sleep(0)
        conversation.connection_lost(None)
        return transport

    return asyncio.run(run())


def echo(query: bytes) -> Iterator[bytes]:
    yield query


def test_what_comes_together_is_sent_together() -> None:
    transport = talking(echo, lambda conversation, _: conversation.data_received(QUERY * 5 + QUERY[:3]))
    assert transport.writes == [QUERY * 5]


def test_a_long_pipeline_takes_turns_with_others() -> None:
    def talk(conversation: Conversation, transport: Transport) -> None:
        conversation.data_received(QUERY * (2 * MAX_TURN + 1))
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

    def stall(conversation: Conversation, transport: Transport) -> None:
        conversation.data_received(QUERY)
        conversation.pause_writing()

    def read_on(conversation: Conversation, transport: Transport) -> None:
        stall(conversation, transport)
        conversation.resume_writing()

    assert len(talking(many, stall).writes) == taken <= 2
    taken = 0
    assert len(talking(many, read_on).writes) == taken > 5


def test_queries_of_who_does_not_read_are_read_no_more() -> None:
    def talk(conversation: Conversation, transport: Transport) -> None:
        conversation.pause_writing()
        conversation.data_received(QUERY)
        conversation.data_received(QUERY * (HELD_BUFFER // len(QUERY) + 1))
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

    transport = talking(cut_off, lambda conversation, _: conversation.data_received(QUERY * 2))
    assert transport.writes == [b"\0\x06a part"]
    assert "abort" in transport.said

    def talk(conversation: Conversation, transport: Transport) -> None:
        with pytest.raises(ZeroDivisionError):
            conversation.data_received(QUERY)

    assert "abort" in talking(wrong, talk).said


def test_an_end_asked_for_waits_for_what_has_come() -> None:
    def talk(conversation: Conversation, transport: Transport) -> None:
        conversation.data_received(QUERY * (MAX_TURN + 1))
        conversation.end()
        assert "close" not in transport.said

    transport = talking(echo, talk)
    assert b"".join(transport.writes) == QUERY * (MAX_TURN + 1)
    assert transport.said[-1] == "close"
