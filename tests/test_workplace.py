"""Places and the workers at them, as values: who is lacking, what is paused for how long, and what is an alarm."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from maptr.serve.worker import GIVE_WAY, HELLO, MAX_MESSAGE, Forked
from maptr.serve.workplace import FIRST_PAUSE, MAX_PAUSE, MAX_UNHEARD, STEADY, Place, Worker

Make = Callable[[int, float], Worker]


@pytest.fixture
def make() -> Iterator[Make]:
    with socket.socket() as channel:
        yield lambda generation, began: Worker(Forked(7, channel, ()), generation, began)


def test_one_that_lived_long_is_replaced_at_once_and_others_ever_later(make: Make) -> None:
    place = Place(1)
    pauses = []
    for _ in range(10):
        place.answering = make(1, 100.0)
        pauses.append(place.lose(place.answering, "ended with 1", 100.0 + STEADY / 2))
        assert place.pausing
        assert place.describe()["state"] == "absent"
    assert pauses[:4] == [0.0, FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pauses[-1] == MAX_PAUSE
    assert pauses == sorted(pauses)
    place.answering = make(1, 100.0)
    assert place.lose(place.answering, "ended with 1", 100.0 + STEADY) == 0.0
    place.starting = make(1, 200.0)
    assert place.lose(place.starting, "ended with 1", 200.0) == 0.0, "the first in a row again"
    assert place.ends == 12
    assert place.describe()["state"] == "absent"


def test_a_place_lacks_somebody_of_the_generation_unless_one_comes(make: Make) -> None:
    place = Place(1)
    assert place.lacks(1)
    place.starting = make(1, 0.0)
    assert not place.lacks(1)
    place.answering, place.starting = place.starting, None
    assert (place.lacks(1), place.lacks(2)) == (False, True)
    place.pausing = True
    assert not place.lacks(2)


def test_what_is_told_of_a_place(make: Make) -> None:
    place = Place(2)
    assert (place.describe()["state"], place.alarm(1)) == ("absent", ""), "nothing ended: it has yet to begin"
    place.starting = make(1, 0.0)
    assert (place.describe()["state"], place.describe()["pid"]) == ("starting", 7)
    place.answering, place.starting, place.since = place.starting, None, 5.0
    assert place.describe() == {
        "worker": 2,
        "pid": 7,
        "state": "answering",
        "since": 5.0,
        "ends": 0,
        "last_end": "",
    }
    assert place.alarm(1) == ""
    assert place.alarm(2) == "worker 2 answers from before the last reload"
    place.lose(place.answering, "was killed by SIGKILL", 9.0)
    assert place.alarm(2) == "worker 2 does not answer, the last one was killed by SIGKILL"
    assert place.describe()["since"] is None


def test_who_says_nothing_for_long_is_not_there_and_is_asked_once(make: Make) -> None:
    worker = make(1, 0.0)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        worker.forked = Forked(7, ours, ())
        assert all(worker.is_there() for _ in range(MAX_UNHEARD))
        assert theirs.recv(MAX_MESSAGE) == HELLO
        worker.heard()
        assert all(worker.is_there() for _ in range(MAX_UNHEARD))
        assert not worker.is_there()
        worker.tell(GIVE_WAY)
        assert [theirs.recv(MAX_MESSAGE) for _ in range(2)] == [HELLO, GIVE_WAY]
        assert worker.told
    worker.tell(GIVE_WAY)  # whose end has not been heard yet


def test_who_was_starting_is_seated_and_who_was_there_lingers(make: Make) -> None:
    place, first, second = Place(1), make(1, 0.0), make(2, 0.0)
    place.send(first, 3.0)
    assert (first.place, first.began, place.starting) == (place, 3.0, first)
    assert place.seat(10.0) is None
    place.send(second, 4.0)
    assert place.seat(20.0) is first
    assert (place.answering, place.starting, place.since, place.generation) == (second, None, 20.0, 2)
    first.tell(GIVE_WAY)
    assert (first.lingers(2), second.lingers(2)) == (True, False)
    first.quiet = True
    assert not first.lingers(2)
