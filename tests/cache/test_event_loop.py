"""A cache's file in an event loop, which never waits for it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

from maptr.cache.disk import Disk
from maptr.protocol.names import parse
from tests.support.caching import Clock, dns_answer, host
from tests.support.waiting import PATIENCE, until

NAME = parse("12345.ark.arpa.")
ANSWER = dns_answer(host("h.example."))


def kept(disk: Disk) -> bool:
    return disk.get("view", NAME) is not None


async def test_a_write_is_made_by_a_thread(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "cache", wall=Clock(0.0))
    disk.put("view", NAME, ANSWER, 0.0, 100.0)
    while not kept(disk):
        await asyncio.sleep(0.01)
    disk.clear("view")
    assert not kept(disk), "at once, although a thread removes it"
    disk.close()


async def test_what_waits_to_be_written_is_written_before_the_end(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "cache", wall=Clock(0.0))
    for number in range(100):
        disk.put("view", parse(f"{number}.ark.arpa."), ANSWER, 0.0, 100.0)
    disk.close()
    with closing(sqlite3.connect(tmp_path / "cache")) as file:
        assert file.execute("SELECT count(*) FROM answer").fetchone() == (100,)


def test_a_locked_file_and_one_in_use_hold_no_loop(tmp_path: Path) -> None:
    """Another process holds the file for as long as the test takes, and then a thread of this one."""
    path = tmp_path / "cache"
    disk = Disk(path, wall=Clock(0.0))
    disk.put("view", NAME, ANSWER, 0.0, 100.0)
    assert kept(disk)

    async def many() -> int:
        """Count the look-ups that give the answer."""
        began, found = time.monotonic(), 0
        for _ in range(100):
            found += kept(disk)
            disk.put("view", NAME, ANSWER, 0.0, 100.0)
            await asyncio.sleep(0)
        assert time.monotonic() - began < PATIENCE
        return found

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        asyncio.run(many())
    release = threading.Event()
    user = threading.Thread(target=disk.run, args=(lambda _: release.wait(3 * PATIENCE),))
    user.start()
    until(lambda: asyncio.run(many()) == 0, "the file is in use")
    release.set()
    user.join()
    until(lambda: kept(disk), "it is free again")
    disk.close()
