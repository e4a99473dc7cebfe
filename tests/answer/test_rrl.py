"""Response rate limiting with a test clock: rates, slip, debt, networks, memory."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from maptr.answer.rrl import Action, RateLimiter, RateLimits
from maptr.protocol.address import read_network
from tests.support.caching import Clock

SEND, TRUNCATE, DROP = Action.SEND, Action.TRUNCATE, Action.DROP


def limiter(clock: Clock | None = None, **settings: Any) -> RateLimiter:
    return RateLimiter(clock or Clock(), threading.Lock(), RateLimits(**settings))


HERE = "192.0.2.1"
ONE_KIND: list[tuple[str, object]] = [(HERE, "kind")]
KINDS: list[tuple[str, object]] = [(HERE, kind) for kind in range(1000)]
OTHERS = {"exempt": (read_network("198.51.100.0/24"),)}
NETWORKS = ("192.0.2.1", "192.0.2.255", "192.0.3.1", "2001:db8:0:1200::1", "2001:db8:0:12ff::2", "2001:db8:0:1300::1")
EXEMPT = ("127.0.0.1", "127.9.9.9", "::1", "", "no address")
# The rate, other settings, the client and kind of each response, and the expected actions.
CASES: dict[str, tuple[float, dict[str, Any], Sequence[tuple[str, object]], list[Action]]] = {
    "excess is dropped and truncated in turn": (5, {}, ONE_KIND * 11, [SEND] * 5 + [DROP, TRUNCATE] * 3),
    "all excess is dropped": (1, {"slip": 0}, ONE_KIND * 11, [SEND] + [DROP] * 10),
    "all excess is truncated": (1, {"slip": 1}, ONE_KIND * 11, [SEND] + [TRUNCATE] * 10),
    "a third is truncated": (1, {"slip": 3}, ONE_KIND * 10, [SEND] + [DROP, DROP, TRUNCATE] * 3),
    "a rate below 1": (0.25, {}, ONE_KIND * 2, [SEND, DROP]),
    "networks": (1, {}, [(client, "kind") for client in NETWORKS], [SEND, DROP, SEND] * 2),
    "kinds": (1, {}, [(HERE, kind) for kind in "abcab"], [SEND] * 3 + [DROP] * 2),
    # The limit for all kinds together is ten times the rate, for each network.
    "all kinds": (2, {}, [*KINDS[:30], ("192.0.3.1", 1)], [SEND] * 20 + [DROP, TRUNCATE] * 5 + [SEND]),
    # Responses over the limit of one kind do not count toward the limit of all kinds.
    "excess": (2, {}, ONE_KIND * 100 + KINDS[:19], [SEND] * 2 + [DROP, TRUNCATE] * 49 + [SEND] * 18 + [DROP]),
    # A full table keeps the account of a network that is over the limit of all kinds.
    "a full table": (1, {"table_size": 100}, KINDS, [SEND] * 10 + [DROP, TRUNCATE] * 495),
    "loopback is exempt": (1, {}, [(client, 1) for client in EXEMPT] * 99, [SEND] * 495),
    "loopback is exempt for all kinds": (1, {}, [(client, n) for client in EXEMPT for n in range(99)], [SEND] * 495),
    "exempt networks are a setting": (1, OTHERS, [("198.51.100.7", 1)] * 9 + [("::1", 1)] * 2, [SEND] * 10 + [DROP]),
    "no limit": (0, {}, ONE_KIND * 1000 + KINDS, [SEND] * 2000),
}


@pytest.mark.parametrize(("rate", "settings", "replies", "actions"), CASES.values(), ids=CASES)
def test_actions_for_each_sequence_of_responses(
    rate: float, settings: dict[str, Any], replies: Sequence[tuple[str, object]], actions: list[Action]
) -> None:
    limits = limiter(responses_per_second=rate, **settings)
    assert [limits.judge(client, kind) for client, kind in replies] == actions
    assert (limits.tally.dropped, limits.tally.truncated) == (actions.count(DROP), actions.count(TRUNCATE))


def test_excess_counts_for_the_window_and_no_longer() -> None:
    clock = Clock()
    limits = limiter(clock, responses_per_second=5, window=15)
    for _ in range(10_000):
        limits.judge("192.0.2.1", "kind")
    clock.now += 14.9
    assert limits.judge("192.0.2.1", "kind") is not SEND
    clock.now += 0.6
    assert limits.judge("192.0.2.1", "kind") is SEND


def test_no_limit_within_the_rate_and_one_second_of_credit_after_idling() -> None:
    clock = Clock()
    limits = limiter(clock, responses_per_second=5)
    for _ in range(1000):
        clock.now += 0.2001
        assert limits.judge("192.0.2.1", "kind") is SEND
    clock.now += 3600
    assert [limits.judge("192.0.2.1", "kind") for _ in range(6)] == [SEND] * 5 + [DROP]


def test_a_full_table_is_limited_and_keeps_the_accounts_over_their_limit() -> None:
    limits = limiter(responses_per_second=1, table_size=100)
    tracemalloc.start()
    try:
        for number in range(5000):
            limits.judge(f"10.{number >> 8}.{number & 255}.1", number)
            assert (limits.judge("192.0.2.1", "kind") is SEND) is (number == 0)
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()


def test_several_threads_can_share_a_limiter() -> None:
    limits = RateLimiter(Clock(), threading.Lock(), RateLimits(responses_per_second=1, table_size=10))

    def count(thread: int) -> int:
        return sum(limits.judge(f"10.{thread}.{number & 255}.1", number) is SEND for number in range(3000))

    with ThreadPoolExecutor(4) as pool:
        assert min(pool.map(count, range(4))) > 0
