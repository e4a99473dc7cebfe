"""Response rate limiting with a test clock: rates, slip, debt, networks, memory."""

from __future__ import annotations

import threading
import tracemalloc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.answer.rate_limit import Action, RateLimiter, RrlSettings
from maptr.protocol.address import read_network
from tests.support.caching import Clock

SEND, TRUNCATE, DROP = Action.SEND, Action.TRUNCATE, Action.DROP


def limiter(clock: Clock | None = None, **settings: float) -> RateLimiter:
    return RateLimiter(RrlSettings(**settings), clock or Clock())  # type: ignore[arg-type]


def test_responses_within_the_rate_are_sent_and_every_second_other_is_truncated() -> None:
    limits = limiter(responses_per_second=5)
    actions = [limits.judge("192.0.2.1", "kind") for _ in range(11)]
    assert actions == [SEND] * 5 + [DROP, TRUNCATE] * 3
    assert (limits.tally.dropped, limits.tally.truncated) == (3, 3)


@pytest.mark.parametrize(("slip", "counts"), [(0, (0, 10)), (1, (10, 0)), (2, (5, 5)), (3, (3, 7))])
def test_slip(slip: int, counts: tuple[int, int]) -> None:
    limits = limiter(responses_per_second=1, slip=slip)
    actions = Counter(limits.judge("192.0.2.1", "kind") for _ in range(11))
    assert (actions[TRUNCATE], actions[DROP]) == counts


def test_a_client_within_the_rate_is_never_limited() -> None:
    clock = Clock()
    limits = limiter(clock, responses_per_second=5)
    for _ in range(1000):
        clock.now += 0.2001
        assert limits.judge("192.0.2.1", "kind") is SEND


def test_excess_is_remembered_for_the_window_and_no_longer() -> None:
    clock = Clock()
    limits = limiter(clock, responses_per_second=5, window=15)
    for _ in range(10_000):
        limits.judge("192.0.2.1", "kind")
    clock.now += 14.9
    assert limits.judge("192.0.2.1", "kind") is not SEND
    clock.now += 0.6
    assert limits.judge("192.0.2.1", "kind") is SEND


def test_an_idle_client_has_credit_for_one_second() -> None:
    clock = Clock()
    limits = limiter(clock, responses_per_second=5)
    limits.judge("192.0.2.1", "kind")
    clock.now += 3600
    assert [limits.judge("192.0.2.1", "kind") for _ in range(6)] == [SEND] * 5 + [DROP]


def test_addresses_of_a_network_share_an_account() -> None:
    limits = limiter(responses_per_second=1)
    assert limits.judge("192.0.2.1", "kind") is SEND
    assert limits.judge("192.0.2.255", "kind") is not SEND
    assert limits.judge("192.0.3.1", "kind") is SEND
    assert limits.judge("2001:db8:0:1200::1", "kind") is SEND
    assert limits.judge("2001:db8:0:12ff::2", "kind") is not SEND
    assert limits.judge("2001:db8:0:1300::1", "kind") is SEND


def test_each_kind_has_an_account() -> None:
    limits = limiter(responses_per_second=1)
    assert [limits.judge("192.0.2.1", kind) for kind in "abcab"] == [SEND] * 3 + [DROP] * 2


def test_all_kinds_together_have_ten_times_the_rate() -> None:
    limits = limiter(responses_per_second=2)
    actions = [limits.judge("192.0.2.1", kind) for kind in range(30)]
    assert actions == [SEND] * 20 + [DROP, TRUNCATE] * 5
    assert (limits.tally.dropped, limits.tally.truncated) == (5, 5)
    assert limits.judge("192.0.3.1", "kind") is SEND, "another network has its own"


def test_excess_of_one_kind_does_not_count_for_the_others() -> None:
    limits = limiter(responses_per_second=2)
    for _ in range(1000):
        limits.judge("192.0.2.1", "flood")
    assert [limits.judge("192.0.2.1", kind) for kind in range(18)] == [SEND] * 18
    assert limits.judge("192.0.2.1", "one more") is DROP


def test_a_network_over_the_limit_of_all_kinds_is_kept_when_the_table_is_full() -> None:
    limits = limiter(responses_per_second=1, table_size=100)
    actions = Counter(limits.judge("192.0.2.1", number) for number in range(5000))
    assert actions[SEND] == 10
    assert actions[TRUNCATE] == actions[DROP] == 2495


@pytest.mark.parametrize("client", ["127.0.0.1", "127.9.9.9", "::1", "", "no address"])
def test_loopback_is_exempt(client: str) -> None:
    limits = limiter(responses_per_second=1)
    assert {limits.judge(client, "kind") for _ in range(100)} == {SEND}
    assert {limits.judge(client, kind) for kind in range(100)} == {SEND}


def test_the_exempt_networks_are_a_setting() -> None:
    settings = RrlSettings(responses_per_second=1, exempt=(read_network("198.51.100.0/24"),))
    limits = RateLimiter(settings, Clock())
    assert {limits.judge("198.51.100.7", "kind") for _ in range(9)} == {SEND}
    assert {limits.judge("127.0.0.1", "kind") for _ in range(9)} != {SEND}


def test_a_rate_of_0_turns_the_limit_off() -> None:
    limits = limiter(responses_per_second=0)
    assert {limits.judge("192.0.2.1", "kind") for _ in range(1000)} == {SEND}
    assert {limits.judge("192.0.2.1", kind) for kind in range(1000)} == {SEND}


def test_one_reply_of_a_kind_passes_however_small_the_rate() -> None:
    tiny = RateLimiter(RrlSettings(responses_per_second=0.25), Clock())
    assert [tiny.judge("192.0.2.1", "kind") for _ in range(2)] == [SEND, DROP]


def test_clients_over_their_limit_are_kept_when_the_table_is_full() -> None:
    limits = limiter(responses_per_second=1, table_size=100)
    for number in range(5000):
        limits.judge(f"10.{number >> 8}.{number & 255}.1", number)
        assert (limits.judge("192.0.2.1", "kind") is SEND) is (number == 0)


def test_the_table_is_bounded() -> None:
    limits = limiter(responses_per_second=1, table_size=100)
    tracemalloc.start()
    try:
        for number in range(20_000):
            limits.judge(f"10.{number >> 8}.{number & 255}.1", number)
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()


def test_several_threads_may_use_one_limiter() -> None:
    limits = RateLimiter(RrlSettings(responses_per_second=1, table_size=10), Clock(), threading.Lock())

    def count(thread: int) -> int:
        return sum(limits.judge(f"10.{thread}.{number & 255}.1", number) is SEND for number in range(3000))

    with ThreadPoolExecutor(4) as pool:
        assert min(pool.map(count, range(4))) > 0


@given(
    st.lists(st.tuples(st.floats(0, 2), st.integers(0, 2)), max_size=200),
    st.integers(1, 10),
    st.integers(0, 3),
)
def test_no_second_has_more_than_twice_the_rate(steps: list[tuple[float, int]], rate: int, slip: int) -> None:
    clock = Clock()
    limits = limiter(clock, responses_per_second=rate, slip=slip)
    sent: list[float] = []
    for pause, _ in steps:
        clock.now += pause / 10
        if limits.judge("192.0.2.1", "kind") is SEND:
            sent.append(clock.now)
    for start in sent:
        assert sum(start <= moment < start + 1 for moment in sent) <= 2 * rate


@pytest.mark.parametrize(
    "settings",
    [
        {"responses_per_second": -1},
        {"slip": -1},
        {"window": 0},
        {"table_size": 0},
        {"ipv4_prefix": 33},
        {"ipv6_prefix": -1},
    ],
)
def test_invalid_settings(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"below|longer"):
        RrlSettings(**settings)  # type: ignore[arg-type]
