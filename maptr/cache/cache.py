"""Cache: discover() answered from memory, disk, DNS and a table, and from which it was, and how old, always told.

What to do next is decided in ``answering``; here are the doors. A caller waits for DNS as long as its patience goes
where something else can answer, the question goes on without him, and the next caller finds its answer.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from maptr import places
from maptr.ark import Ark
from maptr.cache import DNS_FIRST, PATIENCE, STALE_LIMIT
from maptr.cache import policy as policies
from maptr.cache.askers import Askers
from maptr.cache.drivers import Ask, Driver
from maptr.cache.engine import Answering
from maptr.cache.memory import MAX_NAMES, Memory
from maptr.cache.policy import Policy
from maptr.cache.ready import Ready
from maptr.cache.request import Defaults, Options, Request, Trust
from maptr.cache.store import Store
from maptr.client import call
from maptr.discovery import Discovery
from maptr.protocol.names import fold
from maptr.registry.followed_file import TableSource, WatchedTable, table_source
from maptr.registry.table import Table
from maptr.walk import Settings

if TYPE_CHECKING:
    import dns.name

    from maptr.cache.disk import Disk
    from maptr.cache.drift import Drift
    from maptr.cache.driving_async import AskAsync, AsyncDriver
    from maptr.client.validation.validator import TrustAnchors


class Cache:
    """A discover() that remembers. One for many threads and tasks; its disk file may be shared by processes.

    ``natab`` is a Table, or a file of any registry format, followed as it changes. ``path`` is the SQLite file, None or
    "" for no disk. ``policy`` says who is believed: see ``policy``. ``nameservers`` are plain servers to ask, by
    default the system's resolver; ``trust_ad``, ``trust_anchors`` and ``require`` are those of ``discover``.
    ``patience``: seconds to wait for DNS where a stale answer or the table has one. ``stale_limit``: seconds past its
    TTL that an answer may still be given where DNS is silent (RFC 8767). ``table_limit``: seconds after which a table
    that its source has not confirmed is stale, None for never. ``history``: the SQLite file of verdicts, by default
    ``path``. ``size``: names kept in memory. ``rate``: packets a second to a server while ``drift_many`` asks it, None
    for as many as it bears. Raises ConfigError.

    >>> with Cache(nameservers=[server]) as cache:
    ...     [cache.discover(f"ark:12345/x{i}").source for i in range(3)]
    ['dns', 'memory', 'memory']

    ``async with`` closes one whose ``discover_async`` is awaited.
    """

    def __init__(
        self,
        natab: str | os.PathLike[str] | Table | TableSource | None = None,
        path: str | os.PathLike[str] | None = None,
        policy: str | Policy = DNS_FIRST,
        *,
        nameservers: Iterable[str] | None = None,
        origin: str | dns.name.Name = "ark.arpa.",
        lifetime: float | None = None,
        settings: Settings | None = None,
        trust_ad: bool = False,
        trust_anchors: TrustAnchors | None = None,
        require: Literal["secure"] | None = None,
        patience: float = PATIENCE,
        stale_limit: float = STALE_LIMIT,
        table_limit: float | None = None,
        history: str | os.PathLike[str] | Disk | None = None,
        size: int = MAX_NAMES,
        rate: float | None = None,
        ask: Ask | None = None,
        ask_async: AskAsync | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self.policy: Policy = policies.named(policy)
        self._defaults = Defaults(
            nameservers, origin, lifetime, settings, trust=Trust(trust_ad, trust_anchors), require=require
        )
        self.table: TableSource = table_source(natab, clock, self._defaults.settings.scheme)
        self._clock = clock
        self.disk: Disk | None = _disk(path, wall)
        self.history: Disk | None = _disk(history, wall) or self.disk
        store = Store(Memory(size), self.disk, clock=clock, wall=wall, stale_limit=stale_limit)
        self._answering = Answering(
            store, patience=patience, table_limit=table_limit, clock=clock, wall=wall, rng=rng or random.Random()
        )
        askers = Askers(self._defaults, rate)
        self._driver = Driver(self._answering, ask or askers.one)
        self._ask_async = ask_async or askers.one_async
        self._ask_many = askers.many if ask is None else None
        self._async_driver: AsyncDriver | None = None
        self._ready = Ready(clock)

    def discover(self, ark: Ark | str | bytes, **options: Unpack[Options]) -> Discovery:
        """``maptr.discover``, from wherever the answer is to be had; its options default to the cache's own.

        The discovery says its ``source`` (dns, memory, disk, natab), its ``age``, whether it is ``stale``, and the
        ``reason``. Raises as ``maptr.discover`` does: NoMappingAuthority only where a side that may say none did.
        With ``require="secure"`` the table is not asked, for nothing vouches for it.
        """
        if not options and type(ark) is str and (ready := self._ready.get(ark)) is not None:
            return ready
        request = self._defaults.request(ark, options)
        steps = self._answering.steps(request, self._policy(request), self.table.current)
        found = self._finish(ark if not options else b"", request, *self._driver.drive(steps))
        return call.prefer(found, request.chooser)

    async def discover_async(self, ark: Ark | str | bytes, **options: Unpack[Options]) -> Discovery:
        """``discover``, awaited. Cancelling it leaves the question under way for whoever else waits for it."""
        if not options and type(ark) is str and (ready := self._ready.get(ark)) is not None:
            return ready
        request = self._defaults.request(ark, options)
        if isinstance(self.table, WatchedTable) and not self.table.is_read:
            await _in_thread(self.table.current)
        steps = self._answering.steps(request, self._policy(request), self.table.current)
        found = self._finish(ark if not options else b"", request, *await self._awaiting().drive(steps))
        if request.chooser is None:
            return found
        from maptr.client.aio import prefer_async

        return await prefer_async(found, request.chooser)

    def unasked(self, ark: Ark | str | bytes, **options: Unpack[Options]) -> Discovery | None:
        """What the table says, where the policy has nobody asked for it; None where DNS has to be. Raises for no ARK,
        and never for want of a candidate."""
        request = self._defaults.request(ark, options)
        return self._answering.unasked(request, self._policy(request), self.table.current)

    def judge(self, found: Discovery, **options: Unpack[Options]) -> Discovery:
        """What the policy makes of a discovery that was just made without the cache, as by ``discover_many``.

        What DNS said stands, or the table, or an older answer, as ``discover`` would have it. Nothing is asked, kept
        or raised. The ``options`` are those it was made with.
        """
        request = self._defaults.request(found.ark, options)
        return self._answering.judge(request, self._policy(request), self.table.current, found)

    def drift(self, naan: str) -> list[Drift]:
        """The verdicts on a NAAN and its shoulders: the table against what DNS says, asked only where it is not kept.

        Verdicts are added to the history on disk, which is what tells a stale side from one that differs.
        """
        return next(self.drift_many([naan]))

    def drift_many(self, naans: Iterable[str] | None = None) -> Iterator[list[Drift]]:
        """``drift`` for many NAANs, in order, hundreds of questions under way at a time.

        None stands for every NAAN of the table, and every one in the history, so that what the table has lost is
        looked at too. Raises DiscoveryFailed for a server without address.
        """
        from maptr.cache.reconcile import Reconciling

        reconciling = Reconciling(self._answering, self._driver, self._defaults, self.history, self._ask_many)
        return reconciling.verdicts(self.table.current().table or Table(), naans)

    async def drift_async(self, naan: str) -> list[Drift]:
        """``drift``, awaited, in a thread."""
        found: list[Drift] = await _in_thread(lambda: self.drift(naan))
        return found

    def follow(self, natab: str | os.PathLike[str] | Table | TableSource | None) -> None:
        """Take another table from now on; what DNS said is kept. Raises ConfigError."""
        self.table = table_source(natab, self._clock, self._defaults.settings.scheme)
        self._ready.clear()

    def forget(self, naan: str) -> None:
        """Ask DNS again for a NAAN when it is next wanted: for whoever knows that it was just changed."""
        root = fold((naan.lower().encode(), *self._defaults.settings.origin))
        self._answering.store.forget(self._defaults.view, root)
        self._ready.clear()

    def close(self) -> None:
        """Close the files. Questions under way end by themselves."""
        for disk in (self.disk, self.history):
            if disk is not None:
                disk.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def aclose(self) -> None:
        """``close`` for tasks: the questions under way in this loop, for which nobody waits any more, are given up."""
        if self._async_driver is not None:
            await self._async_driver.stop()
        await _in_thread(self.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        policy = getattr(self.policy, "name", self.policy)
        return f"<Cache {policy}, {self.table}, {self.disk or 'no disk'}>"

    # ---- handing out

    def _awaiting(self) -> AsyncDriver:
        if self._async_driver is None:
            from maptr.cache.driving_async import AsyncDriver

            self._async_driver = AsyncDriver(self._answering, self._ask_async)
        return self._async_driver

    def _policy(self, request: Request) -> Policy:
        return self.policy if request.require is None else policies.DnsOnly()

    def _finish(self, text: Ark | str | bytes, request: Request, found: Discovery, until: float) -> Discovery:
        """What the caller gets; kept ready where the call had no options, whose ARK is then ``text``."""
        if request.on_step is not None:
            for step in found.trace:
                request.on_step(step)
        found.raise_for_security(request.require)
        if request.raise_on_none or not found.complete:
            found.raise_for_none()
        if type(text) is str and found.candidates:
            self._ready.put(text, found, until)
        return found


def _disk(path: str | os.PathLike[str] | Disk | None, wall: Callable[[], float]) -> Disk | None:
    if path is None or path == "":
        return None
    from maptr.cache.disk import Disk  # a cache without one starts without SQLite

    if isinstance(path, Disk):
        return path
    return Disk(path, wall=wall, own=os.fspath(path) == places.cache_file(os.environ))


async def _in_thread(function: Callable[[], Any]) -> Any:
    import asyncio

    return await asyncio.to_thread(function)
