"""Circuit breakers: when they open, how long the pauses are, and who may try."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from maptr.cache.breaker import FIRST_PAUSE, LONGEST_PAUSE, OPEN_AFTER, CircuitBreakers
from tests.support.caching import Clock


@given(seed=st.integers())
def test_rfc9520_3_2_pauses_double_to_a_limit_and_are_jittered(seed: int) -> None:
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
        assert not circuits.admits("server"), "at least half of the pause"
        clock.now += whole / 2 * 1.001
        assert circuits.admits("server"), "at most the whole pause"
        assert not circuits.admits("server"), "one caller at a time"
    circuits.succeeded("server")
    assert circuits.admits("server")
    assert not circuits.is_open("server")


def test_clients_retry_at_different_times() -> None:
    retries = set()
    for seed in range(20):
        clock = Clock(0.0)
        circuits = CircuitBreakers(random.Random(seed), clock)
        for _ in range(OPEN_AFTER):
            circuits.failed("server", "silent")
        while not circuits.admits("server"):
            clock.now += 0.01
        retries.add(round(clock.now, 2))
    assert len(retries) > 10


def test_beyond_the_size_the_oldest_failures_are_dropped() -> None:
    circuits = CircuitBreakers(random.Random(1), Clock(), threshold=1, size=2)
    for server in "abc":
        circuits.failed(server, f"{server} is silent")
    assert [circuits.why(server) for server in "abc"] == ["", "b is silent", "c is silent"]
    assert circuits.admits("a")
