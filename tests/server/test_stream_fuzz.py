"""Fuzzing of streams: any bytes in any pieces; whole messages are answered in order, and no exception escapes."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from maptr.answer.context import Transport
from maptr.answer.respond import respond
from tests.fuzz.targets import converse_over
from tests.support.answers import SNAPSHOT
from tests.support.streams import messages

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
PACKETS = tomllib.loads((VECTORS / "packets.toml").read_text(encoding="utf-8"))

packets = st.binary(max_size=40) | st.sampled_from([bytes.fromhex(case["packet"]) for case in PACKETS["case"]])


def answer(query: bytes) -> bytes | None:
    return respond(query, SNAPSHOT, transport=Transport.TCP)


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(2, "big") + message


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


@given(st.lists(packets, max_size=6), st.lists(st.integers(0, 2000), max_size=8), st.binary(max_size=1))
def test_rfc7766_8_messages_in_any_pieces_are_answered_in_order(
    queries: list[bytes], places: list[int], rest: bytes
) -> None:
    expected = b"".join(framed(reply) for reply in map(answer, queries) if reply is not None)
    assert converse_over(cut(b"".join(map(framed, queries)) + rest, places), answer) == expected


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_any_stream_ends_and_gets_whole_messages(pieces: list[bytes]) -> None:
    list(messages(converse_over(pieces, answer)))
