"""Overdue: attempts are given up once and in time, and those that something came of never."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from maptr.client.exchange import Attempt, Exchange, Server
from maptr.client.multiplexer import Flight, Overdue
from maptr.protocol.names import Labels
from maptr.walk import Answer

NAME = (b"12345", b"ark", b"arpa")


def sent(overdue: Overdue, now: float, seconds: float) -> tuple[Flight, Attempt]:
    """A question whose first message is sent now and waited for so long."""
    exchange = Exchange(NAME, (Server("192.0.2.1"),), lambda size: bytes(size))
    ignored: Callable[[Labels, Answer], Any] = max
    flight = Flight(NAME, exchange, ignored, 10.0)
    attempt = flight.attempt = exchange.next()
    assert attempt is not None
    overdue.set(flight, attempt, now, now + seconds)
    return flight, attempt


def test_each_is_given_up_once_and_when_its_time_is_over() -> None:
    overdue = Overdue()
    assert overdue.next == inf
    slow, quick, later = sent(overdue, 0.0, 4.0), sent(overdue, 0.0, 1.0), sent(overdue, 0.5, 1.0)
    assert overdue.next == 1.0
    assert list(overdue.take(0.9)) == []
    assert list(overdue.take(1.0)) == [quick]
    assert overdue.next == 1.5
    assert {flight for flight, _ in overdue.take(9.0)} == {later[0], slow[0]}
    assert list(overdue.take(9.0)) == []
    assert overdue.next == inf


def test_what_was_answered_or_sent_again_is_forgotten() -> None:
    overdue = Overdue()
    answered, again, waiting = (sent(overdue, 0.0, 1.0) for _ in range(3))
    answered[0].attempt = None
    again[0].attempt = again[1]._replace(tcp=True)
    assert waiting[0] in overdue.flights()
    assert list(overdue.take(0.5)) == []
    assert list(overdue.flights()) == [waiting[0]]
    assert list(overdue.take(1.0)) == [waiting]
