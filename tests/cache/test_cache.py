"""Closing a cache, and its repr."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import closing
from pathlib import Path

import pytest

from maptr import Cache
from maptr.cache.disk import Disk
from tests.support.caching import ARK, HOME, Rig, host, said, table


def is_open(path: Path) -> bool:
    """True if this process has the file open."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("needs /proc")
    return any(os.path.realpath(one) == str(path) for one in descriptors.iterdir())


def test_with_closes_a_disk_and_a_cache(tmp_path: Path) -> None:
    path = tmp_path / "c"

    async def main() -> None:
        async with Rig({HOME: said(host("h.example"))}, path=path).cache as cache:
            assert (await cache.discover_async(ARK)).source == "dns"
            assert is_open(path)
        assert not is_open(path)

    asyncio.run(main())
    with closing(Disk(path, wall=lambda: 0.0)) as disk:
        assert disk.can_write()
        assert is_open(path)
    assert not is_open(path)


def test_closing_an_async_cache_ends_its_queries() -> None:
    async def main() -> tuple[str, int]:
        rig = Rig({HOME: said(host("h.example"))}, table(("12345", "t.example")), patience=0.01)
        rig.dns.gate = threading.Event()  # DNS never answers
        async with rig.cache as cache:
            source = (await cache.discover_async(ARK)).source
            assert len(asyncio.all_tasks()) == 2
        return source, len(asyncio.all_tasks())

    assert asyncio.run(main()) == ("natab", 1)


def test_a_cache_shows_its_policy_table_and_disk(tmp_path: Path) -> None:
    natab, kept = tmp_path / "natab", tmp_path / "c"
    natab.touch()
    assert repr(Cache()) == "<Cache dns-first, no table, no disk>"
    assert repr(Cache(natab, kept)) == f"<Cache dns-first, <table {str(natab)!r}>, <disk {str(kept)!r}>>"
    assert repr(Cache(table(("12345", "t.example")))) == "<Cache dns-first, <Table of 1 NAANs, 0 shoulders>, no disk>"
