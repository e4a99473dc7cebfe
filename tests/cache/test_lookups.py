"""Pending look-ups: one per name, shared by threads and tasks; patience, cancellation, forks, circuit breakers."""

from __future__ import annotations

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.ark import Ark
from maptr.cache.lookups import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    LOST_AFTER,
    OPEN_AFTER,
    CircuitBreakers,
    PendingLookup,
    PendingLookups,
)
from maptr.discovery import Discovery, DiscoveryFailed, Outcome
from maptr.files import ForkLock
from tests.support.caching import ARK, HOME, ONE_HOST, ZONE, Clock, Rig, dns_answer, host, run_program, table
from tests.support.waiting import PATIENCE, until


async def test_tasks_and_threads_share_one_lookup_of_a_name() -> None:
    rig = Rig(ONE_HOST)
    rig.dns.gate = threading.Event()
    tasks = [asyncio.create_task(rig.sources.discover_async(f"ark:12345/x{number}")) for number in range(20)]
    threads = [asyncio.to_thread(rig.sources.discover, f"ark:12345/y{number}") for number in range(20)]
    gathered = asyncio.gather(*tasks, *threads)
    await asyncio.sleep(0.05)
    rig.dns.gate.set()
    assert {found[0].host for found in await gathered} == {"h.example"}
    assert rig.dns.asked == [HOME]


def test_an_answer_with_ttl_0_serves_all_callers_that_waited_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig({HOME: dns_answer(host("h.example."), ttl=0)})
    real, joined = PendingLookups.join, []

    def join(*given: Any) -> tuple[PendingLookup | None, bool]:
        joined.append(real(*given))
        return joined[-1]

    monkeypatch.setattr(PendingLookups, "join", join)
    rig.dns.gate = threading.Event()
    arks = [f"ark:12345/x{number}" for number in range(10)]
    with ThreadPoolExecutor(10) as pool:
        waiting = [pool.submit(rig.sources.discover, ark) for ark in arks]
        until(lambda: len(joined) == len(arks), "all wait")
        rig.dns.gate.set()
        assert [future.result().url() for future in waiting] == [f"https://h.example/{ark}" for ark in arks]
    assert rig.dns.asked == [HOME]


async def test_cancelling_a_task_does_not_cancel_the_lookup() -> None:
    rig = Rig(ONE_HOST)
    rig.dns.gate = threading.Event()
    first = asyncio.create_task(rig.sources.discover_async(ARK))
    await asyncio.sleep(0.02)
    second = asyncio.create_task(rig.sources.discover_async("ark:12345/x2"))
    await asyncio.sleep(0.02)
    first.cancel()
    await asyncio.sleep(0)
    rig.dns.gate.set()
    assert (await second)[0].host == "h.example"
    assert rig.dns.asked == [HOME]


def test_the_end_of_an_event_loop_ends_its_lookups() -> None:
    rig = Rig(ONE_HOST, table(("12345", "t.example")), patience=0.01)
    rig.dns.gate = threading.Event()
    assert asyncio.run(rig.sources.discover_async(ARK)).source == "natab"
    rig.dns.gate.set()
    until(lambda: rig.sources.discover("ark:12345/x2").source != "natab", "DNS is asked again")


def test_a_lookup_whose_event_loop_was_closed_is_not_waited_for() -> None:
    rig = Rig(ONE_HOST)
    rig.dns.gate = threading.Event()
    loop = asyncio.new_event_loop()
    asking = loop.create_task(rig.sources.discover_async(ARK))
    loop.run_until_complete(asyncio.sleep(0.05))
    assert not asking.done()
    loop.close()
    rig.dns.gate.set()
    assert rig.sources.discover("ark:12345/x2")[0].host == "h.example"


@pytest.mark.parametrize("is_task", [True, False])
def test_callers_ask_themselves_if_the_one_that_asked_for_them_stops(
    is_task: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of its event loop, as of each request of Django, or by Ctrl-C in its thread."""
    rig = Rig(ONE_HOST, lifetime=90.0)
    rig.dns.gate = gate = threading.Event()
    stopping, ask = threading.Event(), rig.dns.discover

    async def in_a_task() -> None:
        asking = asyncio.create_task(rig.sources.discover_async(ARK))
        await asyncio.to_thread(stopping.wait)
        assert not asking.done()

    def interrupted(*_: object) -> Discovery:
        monkeypatch.setattr(rig.dns, "discover", ask)
        rig.dns.calls += 1
        stopping.wait()
        raise KeyboardInterrupt

    def in_a_thread() -> None:
        with pytest.raises(KeyboardInterrupt):
            rig.sources.discover(ARK)

    if not is_task:
        monkeypatch.setattr(rig.dns, "discover", interrupted)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(lambda: asyncio.run(in_a_task()) if is_task else in_a_thread())
        until(lambda: rig.dns.calls, "a query is sent")
        others = [
            pool.submit(rig.sources.discover, "ark:12345/x2"),
            pool.submit(lambda: asyncio.run(rig.sources.discover_async("ark:12345/x3"))),
        ]
        assert not wait(others, 0.2).done
        stopping.set()
        first.result()
        gate.set()
        assert [other.result(30)[0].host for other in others] == ["h.example"] * 2, "at once"


def test_a_caller_waits_for_its_patience_and_the_next_one_finds_the_late_answer() -> None:
    rig = Rig(ONE_HOST, table(("12345", "t.example")), patience=0.02)
    rig.dns.gate = threading.Event()
    first = rig.sources.discover(ARK)
    assert (first.source, first[0].host, first.stale) == ("natab", "t.example", False)
    assert (first.trace[0].outcome, first.trace[0].note) == (Outcome.TIMEOUT, "still being asked")
    rig.dns.gate.set()
    until(lambda: rig.sources.discover(ARK).source == "memory", "the late answer is kept")
    assert rig.dns.calls == 1


def test_drift_waits_for_dns_whatever_the_patience() -> None:
    rig = Rig(ONE_HOST, table(("12345", "t.example")), patience=0.0)
    rig.dns.gate = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(rig.sources.from_dns, Ark.parse(ARK))
        until(lambda: rig.dns.calls, "a query is sent")
        rig.dns.gate.set()
        assert asking.result()[0].host == "h.example"


def test_an_answer_near_its_end_is_fetched_again_in_the_background() -> None:
    rig = Rig(ONE_HOST)
    rig.sources.discover(ARK)
    rig.pass_time(269)
    assert rig.sources.discover(ARK).ttl == 31
    assert rig.dns.calls == 1
    rig.pass_time(2)
    assert rig.sources.discover(ARK).ttl == 29
    until(lambda: rig.sources.discover("ark:12345/x2").ttl == 300, "the answer is refreshed")
    assert rig.dns.calls == 2


def test_lost_lookups_do_not_count_and_their_late_end_does_not_end_another(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("maptr.cache.lookups.MAX_PENDING", 2)
    pending = PendingLookups(clock)
    one, other, third = ((Ark.parse(ARK), (name, *ZONE), 1.0) for name in (b"1", b"2", b"3"))
    lost, is_new = pending.join(*one)
    assert lost is not None
    assert is_new
    assert pending.join(*one) == (lost, False)
    pending.join(*other)
    assert pending.join(*third) == (None, False)
    lost.is_lost = lambda: True  # its event loop was closed
    assert pending.join(*third)[1]
    assert pending.join(*one) == (None, False)
    clock.now += 1.0 + LOST_AFTER + 0.1
    second, is_new = pending.join(*one)
    assert is_new
    pending.finish(lost, DiscoveryFailed("late"))
    assert pending.join(*one) == (second, False)
    clock.now += 1.0 + LOST_AFTER + 0.1
    assert pending.join(*one)[1]


def test_after_a_fork_the_child_asks_again_and_finds_locks_free() -> None:
    program = """
import os, sys, threading
from maptr.files import ForkLock
from tests.support.caching import *
rig = Rig({HOME: dns_answer(host("h.example."))})
rig.dns.gate = threading.Event()
asking = threading.Thread(target=lambda: rig.sources.discover(ARK))
asking.start()
while not rig.dns.calls:
    pass
lock = ForkLock()
with lock:
    child = os.fork()
    if not child:
        rig.dns.gate.set()
        with lock:
            os._exit(0 if rig.sources.discover(ARK).source == "dns" else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
rig.dns.gate.set()
asking.join()
sys.exit(code)
"""
    run_program(program)


def test_a_fork_lock_excludes_other_threads_of_the_same_process() -> None:
    lock = ForkLock()
    with ThreadPoolExecutor(1) as pool:
        with lock:
            assert lock.locked()
            waiting = pool.submit(lock.__enter__)
            assert not wait([waiting], 0.05).done
        waiting.result(PATIENCE)
        lock.__exit__()
    assert not lock.locked()


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


def test_beyond_the_size_the_oldest_failures_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.cache.lookups.MAX_BREAKERS", 2)
    circuits = CircuitBreakers(random.Random(1), Clock(), threshold=1)
    for server in "abc":
        circuits.failed(server, f"{server} is silent")
    assert [circuits.why(server) for server in "abc"] == ["", "b is silent", "c is silent"]
    assert circuits.admits("a")
