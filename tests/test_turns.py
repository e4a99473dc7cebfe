"""Turns of streams that have much to send: in order, each, and others of the event loop in between."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from maptr.address import Address
from maptr.serve import turns as module
from maptr.serve.daemon import Daemon
from maptr.serve.stream import MAX_TURN, TURN_OCTETS, Conversation
from maptr.serve.turns import AT_A_TIME, Turns
from tests.running import PATIENCE, answering, served
from tests.test_serve import FRAME, SNAPSHOT, receive_message
from tests.test_serve import QUERY as QUESTION
from tests.test_stream import QUERY, Transport


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
def turns(loop: Loop) -> Turns:
    return Turns(cast(asyncio.AbstractEventLoop, loop))


def test_short_turns_are_taken_together_and_long_ones_one_by_one(loop: Loop, turns: Turns) -> None:
    taken: list[str] = []

    def turn(name: str, seconds: float) -> None:
        taken.append(name)
        loop.now += seconds

    for number in range(3):
        turns.add(lambda number=number: turn(f"short {number}", AT_A_TIME / 10))  # type: ignore[misc]
    for number in range(3):
        turns.add(lambda number=number: turn(f"long {number}", 2 * AT_A_TIME))  # type: ignore[misc]
    expected = ["short 0", "short 1", "short 2", "long 0"], ["long 1"], ["long 2"]
    for some in expected:
        assert len(loop.soon) == 1
        loop.once()
        assert taken == some
        taken.clear()
    assert loop.soon == []


def test_who_wants_another_turn_waits_for_all_others(loop: Loop, turns: Turns) -> None:
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


def test_a_turn_that_fails_takes_no_other_along(loop: Loop, turns: Turns) -> None:
    taken: list[int] = []
    turns.add(lambda: 1 / 0)
    turns.add(lambda: taken.append(1))
    with pytest.raises(ZeroDivisionError):
        loop.once()
    loop.once()
    assert taken == [1]
    assert loop.soon == []


def test_transfers_have_their_turns_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many under way as there may be, the event loop looks what has come after each message."""
    monkeypatch.setattr(module, "AT_A_TIME", 0.0)
    made = 0

    def transfer(query: bytes) -> Iterator[bytes]:
        nonlocal made
        while True:
            made += 1
            yield bytes(TURN_OCTETS)

    async def converse() -> None:
        nonlocal made
        turns = Turns(asyncio.get_running_loop())
        conversations = [Conversation(transfer, later=turns.add) for _ in range(50)]
        for conversation in conversations:
            conversation.connection_made(Transport())
            conversation.data_received(QUERY)
        made = 0
        for looks in range(1, 200):
            await asyncio.sleep(0)
            assert made == looks
        for conversation in conversations:
            conversation.connection_lost(None)

    asyncio.run(converse())


def test_the_listeners_of_a_server_share_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[Turns] = set()
    add = Turns.add

    def noted(turns: Turns, turn: Callable[[], object]) -> None:
        used.add(turns)
        add(turns, turn)

    monkeypatch.setattr(Turns, "add", noted)
    pipeline = 3 * MAX_TURN
    daemon = Daemon(served(SNAPSHOT), [Address("127.0.0.1", 0), Address("127.0.0.2", 0)])
    with answering(daemon):
        for address in daemon.bound:
            with socket.create_connection((address.host, address.port), PATIENCE) as sock:
                sock.sendall(FRAME * pipeline)
                for _ in range(pipeline):
                    assert receive_message(sock).id == QUESTION.id
    assert len(used) == 1
