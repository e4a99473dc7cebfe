"""``Cache``: discover ARKs from memory, disk, DNS and a table. Each discovery names its source, its age and the reason.

``engine`` decides which source answers. A caller waits for DNS up to its patience if another source can answer; the
lookup continues, and the next caller finds its answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, Self

from maptr import places
from maptr.ark import Ark, Profile
from maptr.cache import DNS_FIRST, PATIENCE, STALE_LIMIT
from maptr.cache import policy as policies
from maptr.cache.engine import Engine, not_asked
from maptr.cache.lookups import Dependencies, ThreadDriver
from maptr.cache.options import NO_OPTIONS, ArkLookup, CallOptions, DnsClient, TrustSettings
from maptr.cache.policy import Policy
from maptr.cache.store import MAX_NAMES, LruDict, Store
from maptr.discovery import Discovery, DiscoveryError
from maptr.protocol.names import fold
from maptr.registry.followed_file import TableSource, WatchedTable, table_source
from maptr.registry.table import Table
from maptr.resolver import call
from maptr.resolver.call import StepHook
from maptr.walk import Settings

if TYPE_CHECKING:
    import dns.asyncresolver
    import dns.name
    import dns.resolver

    from maptr.cache.aio import TaskDriver
    from maptr.cache.disk import Disk
    from maptr.cache.drift import Drift, PastVerdict
    from maptr.choose import Chooser
    from maptr.resolver.stub import Stub
    from maptr.resolver.validation.validator import TrustAnchors

MAX_RECENT = 10_000  # discoveries that are handed out unchanged for a second


class Cache:
    """A ``discover`` with memory. Threads and tasks may share one, and processes its disk file.

    ``natab``: a Table, or a file of any registry format, which is read again when it changes. ``path``: the SQLite
    file; None or "" for none. ``policy``: which source answers: "dns-first", "natab-first", "dns-only" or "natab-only".
    ``nameservers``: the servers to ask, by default the system's resolver. ``origin``, ``lifetime``, ``settings``,
    ``trust_ad``, ``trust_anchors`` and ``require``: as in ``discover``.
    ``patience``: seconds to wait for DNS if a stale answer or the table has one. ``stale_limit``: seconds past its TTL
    for which an answer may be given while DNS does not answer (RFC 8767). ``table_limit``: seconds after which a table
    that its source has not confirmed is stale; None for never. ``history``: the SQLite file of drift verdicts, by
    default ``path``. ``size``: names kept in memory. ``rate``: packets a second to one server in ``drift_many``; None
    for no limit. Raises ConfigError.

    >>> with Cache(nameservers=[server]) as cache:
    ...     [cache.discover(f"ark:12345/x{i}").source for i in range(3)]
    ['dns', 'memory', 'memory']

    Use ``async with`` if ``discover_async`` is used.
    """

    _dependencies = Dependencies()

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
    ) -> None:
        patience, stale_limit = call.checked(patience, "patience"), call.checked(stale_limit, "stale_limit")
        if table_limit is not None:
            call.checked(table_limit, "table_limit")
        call.checked_count(size, "size")
        ask, self._ask_async, clock, wall, rng = self._dependencies
        self.policy: Policy = policies.named(policy)
        trust = TrustSettings(trust_ad, trust_anchors)
        self._client = DnsClient(nameservers, origin, lifetime, settings, trust=trust, require=require, rate=rate)
        self.table: TableSource = table_source(natab, clock, self._client.settings.scheme)
        self._clock = clock
        self.disk: Disk | None = _disk(path, wall)
        self.history: Disk | None = _disk(history, wall) or self.disk
        store = Store(size, self.disk, clock=clock, wall=wall, stale_limit=stale_limit)
        self._engine = Engine(store, patience=patience, table_limit=table_limit, clock=clock, wall=wall, rng=rng)
        self._ask_many = self._client.discover_many if ask is None else None
        self._threads = ThreadDriver(ask or self._client.discover, self._engine.finish)
        self._tasks: TaskDriver | None = None
        # Discoveries by the text of their ARK, with the time until which they may be handed out unchanged. A discovery
        # made of kept answers takes ten times as long as the budget of a hit in memory.
        self._recent: LruDict[str, tuple[float, Discovery]] = LruDict(MAX_RECENT)

    def discover(
        self,
        ark: Ark | str | bytes,
        *,
        resolver: Stub | dns.resolver.Resolver | None = None,
        nameservers: Iterable[str] | None = None,
        origin: str | dns.name.Name | None = None,
        lifetime: float | None = None,
        raise_on_none: bool = True,
        chooser: Chooser | None = None,
        on_step: StepHook | None = None,
        settings: Settings | None = None,
        trust_ad: bool | None = None,
        trust_anchors: TrustAnchors | None = None,
        require: Literal["secure"] | None = None,
        profile: Profile = "current",
    ) -> Discovery:
        """``maptr.discover`` from the source that the policy chooses. An option that is None is the cache's own.

        ``trust_ad`` and ``trust_anchors`` replace the cache's own trust together.

        The discovery has its ``source`` (dns, memory, disk, natab), its ``age``, ``stale`` and ``reason``. Raises what
        ``maptr.discover`` raises; NoMappingAuthority only if a source that may deny an ARK did so. With
        ``require="secure"`` the table is not used, because it has no signatures.
        """
        walk = origin, lifetime, raise_on_none, chooser, on_step, settings, trust_ad, trust_anchors, require, profile
        options = resolver, nameservers, *walk
        text = _text(ark) if options == NO_OPTIONS else None
        if text is not None and (recent := self._recent.get(text)) and recent[0] > self._clock():
            return recent[1]
        lookup = self._client.lookup(ark, CallOptions(*options))
        found, until = self._threads.run(self._engine.discover(lookup, self._policy(lookup), self.table))
        return call.prefer(self._finish(text, lookup, found, until), lookup.chooser)

    async def discover_async(
        self,
        ark: Ark | str | bytes,
        *,
        resolver: Stub | dns.asyncresolver.Resolver | None = None,
        nameservers: Iterable[str] | None = None,
        origin: str | dns.name.Name | None = None,
        lifetime: float | None = None,
        raise_on_none: bool = True,
        chooser: Chooser | None = None,
        on_step: StepHook | None = None,
        settings: Settings | None = None,
        trust_ad: bool | None = None,
        trust_anchors: TrustAnchors | None = None,
        require: Literal["secure"] | None = None,
        profile: Profile = "current",
    ) -> Discovery:
        """``discover``, awaited. Cancelling it does not cancel the DNS lookup, which other callers may wait for."""
        walk = origin, lifetime, raise_on_none, chooser, on_step, settings, trust_ad, trust_anchors, require, profile
        options = resolver, nameservers, *walk
        text = _text(ark) if options == NO_OPTIONS else None
        if text is not None and (recent := self._recent.get(text)) and recent[0] > self._clock():
            return recent[1]
        lookup = self._client.lookup(ark, CallOptions(*options))
        call.need_asyncio()
        if self._tasks is None:
            from maptr.cache.aio import TaskDriver  # asyncio doubles the start time of a program that does not await

            self._tasks = TaskDriver(self._ask_async or self._client.discover_async, self._engine.finish)
        if isinstance(self.table, WatchedTable) and not self.table.is_read:
            import asyncio

            await asyncio.to_thread(self.table.current)
        found, until = await self._tasks.run(self._engine.discover(lookup, self._policy(lookup), self.table))
        found = self._finish(text, lookup, found, until)
        if chooser is None:
            return found
        from maptr.resolver.aio import prefer_async

        return await prefer_async(found, chooser)

    async def ask_async(self, ark: Ark | str | bytes) -> Discovery:
        """Return the discovery that DNS gives now, without kept answers and the table. Nothing is kept or raised."""
        lookup = self._client.lookup(ark)
        try:
            return await (self._ask_async or self._client.discover_async)(lookup.ark, **lookup.ask)
        except DiscoveryError as error:
            return error.discovery

    def unanswered(self, ark: Ark, why: str) -> Discovery:
        """Return a discovery that knows nothing: no source is used, and ``why`` is the note of its only step."""
        return not_asked(self._client.lookup(ark), why)

    def unasked(
        self,
        ark: Ark | str | bytes,
        *,
        origin: str | dns.name.Name | None = None,
        settings: Settings | None = None,
        require: Literal["secure"] | None = None,
        profile: Profile = "current",
    ) -> Discovery | None:
        """Return the discovery from the table if the policy does not need DNS for it, else None.

        Raises ArkSyntaxError and ConfigError. A discovery without candidates is returned, not raised.
        """
        options = CallOptions(origin=origin, settings=settings, require=require, profile=profile)
        lookup = self._client.lookup(ark, options)
        return self._engine.without_dns(lookup, self._policy(lookup), self.table)

    def judge(
        self,
        found: Discovery,
        *,
        resolver: Stub | dns.asyncresolver.Resolver | dns.resolver.Resolver | None = None,
        nameservers: Iterable[str] | None = None,
        origin: str | dns.name.Name | None = None,
        settings: Settings | None = None,
        trust_ad: bool | None = None,
        trust_anchors: TrustAnchors | None = None,
        require: Literal["secure"] | None = None,
    ) -> Discovery:
        """Return the discovery that the policy chooses, given one that was made without the cache (``discover_many``).

        The result is that discovery, the table's, or one from older answers, as ``discover`` would choose. Sends no
        query, and keeps nothing. The options are those with which the discovery was made. Raises ConfigError for these.
        """
        options = CallOptions(
            resolver,
            nameservers,
            origin,
            settings=settings,
            trust_ad=trust_ad,
            trust_anchors=trust_anchors,
            require=require,
        )
        lookup = self._client.lookup(found.ark, options)
        return self._engine.judge(lookup, self._policy(lookup), self.table, found)

    def drift(self, naan: str) -> list[Drift]:
        """Compare the table with DNS for a NAAN and its shoulders. DNS is asked only for answers that are not kept.

        The verdicts are added to the history, which distinguishes a stale side from one that differs.
        """
        return next(self.drift_many([naan]))

    def drift_many(self, naans: Iterable[str] | None = None) -> Iterator[list[Drift]]:
        """``drift`` for many NAANs, in order, with hundreds of queries in flight.

        None: every NAAN of the table and of the history, so that records which the table has lost are compared too.
        Raises DiscoveryFailed if a server's name has no address.
        """
        from maptr.cache.drift import Reconciler, VerdictLog  # discover starts without it

        log = None if self.history is None else VerdictLog(self.history)
        reconciler = Reconciler(self._engine, self._threads, self._client, log, self._ask_many)
        return reconciler.verdicts(self.table.current().table or Table(), naans)

    def serial(self) -> int | None:
        """Return the serial of the zone at the origin, asked from DNS now; None if DNS does not say."""
        return None if self._ask_many is None else self._client.serial()

    def drift_history(self) -> dict[str, list[PastVerdict]]:
        """Return the verdicts of earlier comparisons by record, the latest first."""
        from maptr.cache.drift import VerdictLog

        return {} if self.history is None else VerdictLog(self.history).changes(self._client.view)

    async def drift_async(self, naan: str) -> list[Drift]:
        """``drift`` in a thread, awaited."""
        call.need_asyncio()
        import asyncio

        return await asyncio.to_thread(self.drift, naan)

    def follow(self, natab: str | os.PathLike[str] | Table | TableSource | None) -> None:
        """Use another table from now on. Kept answers of DNS stay. Raises ConfigError."""
        self.table = table_source(natab, self._clock, self._client.settings.scheme)
        self._recent.clear()

    def forget(self, naan: str | None = None) -> None:
        """Drop the kept answer of DNS for a NAAN, for example because its record has changed; None: all answers."""
        if naan is None:
            self._engine.store.clear(self._client.view)
        else:
            name = fold((naan.lower().encode(), *self._client.settings.origin))
            self._engine.store.forget((self._client.view, name))
        self._recent.clear()

    def close(self) -> None:
        """Close the files. Lookups in flight end by themselves."""
        for disk in (self.disk, self.history):
            if disk is not None:
                disk.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def aclose(self) -> None:
        """``close``, awaited; it also cancels the lookups in flight in the current event loop."""
        if self._tasks is None:  # nothing was awaited, perhaps because asyncio does not run
            self.close()
            return
        import asyncio

        await self._tasks.stop()
        await asyncio.to_thread(self.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        policy = getattr(self.policy, "name", self.policy)
        return f"<Cache {policy}, {self.table}, {self.disk or 'no disk'}>"

    def _policy(self, lookup: ArkLookup) -> Policy:
        return self.policy if lookup.require is None else policies.DnsOnly()

    def _finish(self, text: str | None, lookup: ArkLookup, found: Discovery, until: float) -> Discovery:
        """Call the hook, raise what ``discover`` raises, and keep the discovery by the text of its ARK, if given."""
        if lookup.on_step is not None:
            for step in found.trace:
                lookup.on_step(step)
        found.raise_for_security(lookup.require)
        if lookup.raise_on_none or not found.complete:
            found.raise_for_none()
        if text is not None and found.candidates and until > self._clock():
            self._recent.put(text, (until, found if found.source != "dns" else found.replace(source="memory")))
        return found


def cache_with(dependencies: Dependencies) -> Callable[..., Cache]:
    """``Cache`` with other clocks or another DNS client, for tests and for programs that must not ask DNS."""

    def make(*arguments: Any, **options: Any) -> Cache:
        made = Cache.__new__(Cache)
        made._dependencies = dependencies
        Cache.__init__(made, *arguments, **options)
        return made

    return make


def _text(ark: Ark | str | bytes) -> str | None:
    """Return the text by which the discovery of an ARK is kept."""
    if isinstance(ark, str):
        return ark
    return ark.resolution if isinstance(ark, Ark) and not (ark.tail or ark.nma or ark.notes or ark.hyphenated) else None


def _disk(path: str | os.PathLike[str] | Disk | None, wall: Callable[[], float]) -> Disk | None:
    if path is None or path == "":
        return None
    from maptr.cache.disk import Disk  # a cache without a file starts without SQLite

    if isinstance(path, Disk):
        return path
    return Disk(path, wall=wall, own=os.fspath(path) == places.cache_file(os.environ))
