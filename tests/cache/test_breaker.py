"""The circuit in front of a server: when it opens, how long nobody asks, and who may try."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from maptr.cache.breaker import FIRST_PAUSE, LONGEST_PAUSE, OPEN_AFTER, CircuitBreakers
from tests.support.caching import Clock


@given(seed=st.integers())
def test_pauses_double_to_their_limit_and_are_jittered(seed: int) -> None:
    clock = Clock()
    circuits = CircuitBreakers(random.Random(seed), clock)
    for _ in range(OPEN_AFTER - 1):
        circuits.failed("server", "silent")
        assert circuits.admits("server")
    for doublings in range(12):
        circuits.failed("server", "silent")
        whole = min(LONGEST_PAUSE, FIRST_PAUSE * 2**doublings)
        assert not circuits.admits("server")
        clock.now += whole / 2 * 0.999
        assert not circuits.admits("server"), "never sooner than half of the pause"
        clock.now += whole / 2 * 1.001
        assert circuits.admits("server"), "never later than the whole"
        assert not circuits.admits("server"), "one at a time"
    circuits.succeeded("server")
    assert circuits.admits("server")
    assert not circuits.is_open("server")


def test_two_clients_do_not_come_back_as_one() -> None:
    back = set()
    for seed in range(20):
        clock = Clock(0.0)
        circuits = CircuitBreakers(random.Random(seed), clock)
        for _ in range(OPEN_AFTER):
            circuits.failed("server", "silent")
        while not circuits.admits("server"):
            clock.now += 0.01
        back.add(round(clock.now, 2))
    assert len(back) > 10


def test_those_of_least_use_are_forgotten() -> None:
    circuits = CircuitBreakers(random.Random(1), Clock(), threshold=1, size=2)
    for server in "abc":
        circuits.failed(server, f"{server} is silent")
    assert [circuits.why(server) for server in "abc"] == ["", "b is silent", "c is silent"]
    assert circuits.admits("a")
