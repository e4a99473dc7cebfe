"""Background work: reloads on request, and work that is repeated after a failure."""

from __future__ import annotations

import asyncio

import pytest

from maptr.daemon.background import Background, Repetitions


def test_a_request_during_a_reload_causes_another_one() -> None:
    async def run() -> int:
        count = 0
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def reload() -> None:
            nonlocal count
            count += 1
            begun.set()
            await go_on.wait()

        background = Background(reload)
        background.start()
        background.request_reload()
        await begun.wait()
        for _ in range(3):
            background.request_reload()
        go_on.set()
        for _ in range(20):
            await asyncio.sleep(0)
        await background.stop()
        return count

    assert asyncio.run(run()) == 2


def test_work_is_repeated_after_an_exception(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> int:
        count = 0
        done = asyncio.Event()

        async def work() -> None:
            nonlocal count
            count += 1
            if count < 3:
                raise ValueError
            done.set()

        background = Background(work)
        background.repeat(0.0, work, "nothing done")
        await done.wait()
        await background.stop()
        return count

    assert asyncio.run(run()) == 3
    assert [record.getMessage() for record in caplog.records] == ["internal error, nothing done"] * 2


def test_a_warning_is_logged_once_and_again_when_it_changes_or_comes_back() -> None:
    logged = Repetitions()
    found = ["a", "a", "b", "b", "", "b"]
    assert [logged.is_new("zone", each) for each in found] == [True, False, True, False, False, True]
    assert logged.is_new("other zone", "b")
    assert [logged.forget("zone") for _ in "twice"] == [True, False, False, False, False]
    assert logged.is_new("zone", "b")
