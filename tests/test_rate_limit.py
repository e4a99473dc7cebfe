"""Token buckets: no period has more events than its rate and one burst."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from maptr.rate_limit import MAX_KEYS, TokenBuckets
from tests.support.caching import Clock


@given(st.floats(0.1, 1000), st.integers(1, 50), st.lists(st.floats(0, 5), max_size=100))
def test_no_more_events_than_the_burst_and_the_rate(rate: float, burst: int, pauses: list[float]) -> None:
    clock = Clock()
    buckets = TokenBuckets(rate, burst, clock)
    taken = []
    for pause in pauses:
        clock.now += pause
        if seconds := buckets.wait("key"):
            clock.now += seconds
            assert buckets.wait("key") == 0, "the seconds to wait are enough"
        taken.append(clock.now)
    for (first, since), (last, until) in itertools.combinations(enumerate(taken), 2):
        assert last - first + 1 <= burst + rate * (until - since + 0.001)


def test_a_burst_is_taken_at_once_and_then_waited_for() -> None:
    clock = Clock()
    buckets = TokenBuckets(2, 4, clock)
    assert [buckets.wait("one") for _ in range(6)] == [0, 0, 0, 0, 0.5, 0.5]
    assert buckets.wait("other") == 0
    clock.now += 0.5
    assert [buckets.wait("one") for _ in range(2)] == [0, 0.5]
    clock.now += 3600
    assert [buckets.wait("one") for _ in range(5)] == [0, 0, 0, 0, 0.5]


def test_the_key_whose_last_event_is_oldest_is_forgotten_first() -> None:
    buckets = TokenBuckets(1, 2, Clock())
    for key in range(MAX_KEYS):
        buckets.charge(key, 2)
    assert buckets.wait(0) > 0  # now the newest
    assert buckets.wait("another") == 0
    assert buckets.wait(0) > 0
    assert buckets.wait(1) == 0
