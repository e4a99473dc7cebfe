"""Background work: reloads on request, and retries after failures."""

from __future__ import annotations

import asyncio

import pytest

from maptr.daemon.background import Background, Repetitions


async def test_a_request_during_a_reload_causes_another_one() -> None:
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
    assert count == 2


async def test_work_is_repeated_after_an_exception_which_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    errors = iter([ValueError("a"), ValueError("a"), KeyError("b"), None, KeyError("b")])
    done = asyncio.Event()

    async def work() -> None:
        for error in errors:
            if error is not None:
                raise error
            return
        done.set()

    background = Background(work)
    background.repeat(0.0, work, "nothing done")
    await done.wait()
    await background.stop()
    assert [record.exc_text and record.exc_text.splitlines()[-1] for record in caplog.records] == [
        "ValueError: a",
        "KeyError: 'b'",
        "KeyError: 'b'",
    ]
    assert {record.getMessage() for record in caplog.records} == {"internal error, nothing done"}


async def test_a_pause_ends_when_the_work_is_wanted() -> None:
    wanted, count = asyncio.Event(), 0

    async def work() -> None:
        nonlocal count
        count += 1
        if count == 1:
            wanted.set()  # during the work: it is done once more

    background = Background(work)
    background.repeat(lambda: 3600.0, work, "nothing done", wanted=wanted)
    for expected in (2, 3):
        for _ in range(50):  # turns of the event loop, more than all work takes
            await asyncio.sleep(0)
        assert count == expected
        wanted.set()
    await background.stop()


def test_a_warning_is_logged_once_and_again_when_it_changes_or_comes_back() -> None:
    logged = Repetitions()
    found = ["a", "a", "b", "b", "", "b"]
    assert [logged.is_new("zone", each) for each in found] == [True, False, True, False, False, True]
    assert logged.is_new("other zone", "b")
    logged.forget("zone")
    assert logged.is_new("zone", "b")
