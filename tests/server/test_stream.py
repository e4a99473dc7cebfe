"""Streams over a simulated transport, with random bytes in random pieces, and the scheduling of turns."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.answer.context import Transport
from maptr.answer.respond import respond
from maptr.config.model import ConnectionLimits
from maptr.errors import ZoneError
from maptr.server.stream import HELD_BUFFER, MAX_TURN, Connections, RoundRobin, Stream
from tests.fuzz.targets import converse_over
from tests.support.answers import PACKETS, SNAPSHOT
from tests.support.streams import messages
from tests.support.waiting import PATIENCE

QUERY = b"\0\x0cquery of 12."


def transport_of_test() -> Mock:
    transport = Mock(spec=asyncio.Transport)
    transport.is_closing.return_value = False
    return transport


def writes(transport: Mock) -> list[bytes]:
    return [call.args[0] for call in transport.write.call_args_list]


def talking(answer: Callable[[bytes], Iterator[bytes]], talk: Callable[[Stream, Mock], object]) -> Mock:
    """Run ``talk`` with a stream and a few turns of the event loop, and return the transport."""

    async def run() -> Mock:
        transport = transport_of_test()
        stream = Stream(answer, Connections(ConnectionLimits()))
        stream.connection_made(transport)
        talk(stream, transport)
        for _ in range(10):
            await asyncio.sleep(0)
        stream.connection_lost(None)
        return transport

    return asyncio.run(run())


def echo(query: bytes) -> Iterator[bytes]:
    yield query


class Messages:
    """A long response, which counts the messages that the stream has taken."""

    def __init__(self) -> None:
        self.taken = 0

    def __call__(self, query: bytes) -> Iterator[bytes]:
        while self.taken < 100:
            self.taken += 1
            yield bytes(20_000)


def test_a_long_pipeline_is_answered_in_several_turns() -> None:
    def talk(stream: Stream, transport: Mock) -> None:
        stream.data_received(QUERY * (2 * MAX_TURN + 1))
        assert writes(transport) == [QUERY * MAX_TURN], "the others come first"

    transport = talking(echo, talk)
    assert writes(transport) == [QUERY * MAX_TURN] * 2 + [QUERY]


def test_messages_are_made_only_as_the_client_reads() -> None:
    def stall(stream: Stream, transport: Mock) -> None:
        stream.data_received(QUERY)
        stream.pause_writing()

    def read_on(stream: Stream, transport: Mock) -> None:
        stall(stream, transport)
        stream.resume_writing()

    for talk, least, most in ((stall, 1, 2), (read_on, 6, 100)):
        made = Messages()
        assert least <= len(writes(talking(made, talk))) == made.taken <= most


async def test_the_responses_of_all_connections_progress_evenly() -> None:
    responses = [Messages() for _ in range(6)]
    connections = Connections(ConnectionLimits())
    streams = [Stream(each, connections) for each in responses]
    for stream in streams:
        stream.connection_made(transport_of_test())
        stream.data_received(QUERY)
    while responses[0].taken < 20:
        await asyncio.sleep(0)
    assert max(each.taken for each in responses) - min(each.taken for each in responses) <= 1


def test_no_more_messages_are_made_for_a_closed_connection() -> None:
    def talk(stream: Stream, transport: Mock) -> None:
        stream.data_received(QUERY)
        transport.is_closing.return_value = True

    made = Messages()
    talking(made, talk)
    assert made.taken == 1


def test_reading_pauses_while_a_client_does_not_read() -> None:
    def talk(stream: Stream, transport: Mock) -> None:
        stream.pause_writing()
        stream.data_received(QUERY)
        stream.data_received(QUERY * (HELD_BUFFER // len(QUERY) + 1))
        assert writes(transport) == [QUERY]
        assert transport.pause_reading.called
        transport.resume_reading.reset_mock()
        stream.resume_writing()

    assert talking(echo, talk).resume_reading.called


def test_a_failed_transfer_and_an_internal_error_end_the_connection() -> None:
    def cut_off(query: bytes) -> Iterator[bytes]:
        yield b"a part"
        raise ZoneError("cut off")

    def wrong(query: bytes) -> Iterator[bytes]:
        raise ZeroDivisionError
        yield b""

    transport = talking(cut_off, lambda stream, _: stream.data_received(QUERY * 2))
    assert writes(transport) == [b"\0\x06a part"]
    assert transport.abort.called

    def talk(stream: Stream, transport: Mock) -> None:
        with pytest.raises(ZeroDivisionError):
            stream.data_received(QUERY)

    assert talking(wrong, talk).abort.called


def test_end_answers_the_received_queries_first() -> None:
    def talk(stream: Stream, transport: Mock) -> None:
        stream.data_received(QUERY * (MAX_TURN + 1))
        stream.end()
        assert not transport.close.called

    transport = talking(echo, talk)
    assert b"".join(writes(transport)) == QUERY * (MAX_TURN + 1)
    assert transport.close.called


async def test_a_turn_that_raises_does_not_stop_the_others() -> None:
    raised: list[object] = []
    taken = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: raised.append(context["exception"]))
    scheduler = RoundRobin()
    scheduler.add(lambda: 1 / 0)
    scheduler.add(taken.set)
    await asyncio.wait_for(taken.wait(), PATIENCE)
    assert [type(error) for error in raised] == [ZeroDivisionError]


packets = st.binary(max_size=40) | st.sampled_from([bytes.fromhex(case["packet"]) for case in PACKETS["case"]])


def answer(query: bytes) -> bytes | None:
    return respond(query, SNAPSHOT, transport=Transport.TCP)


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(2, "big") + message


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


@given(st.lists(packets, max_size=6), st.lists(st.integers(0, 2000), max_size=8), st.binary(max_size=1))
def test_rfc7766_8_answers_in_order_for_random_pieces(queries: list[bytes], places: list[int], rest: bytes) -> None:
    expected = b"".join(framed(reply) for reply in map(answer, queries) if reply is not None)
    assert converse_over(cut(b"".join(map(framed, queries)) + rest, places), answer) == expected


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_random_streams_end_and_get_complete_messages(pieces: list[bytes]) -> None:
    list(messages(converse_over(pieces, answer)))
