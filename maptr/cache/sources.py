"""``Sources``: ARKs discovered from memory, disk, DNS and a table. Each discovery names its source, age and reason.

``engine`` decides which source answers. A caller waits for DNS up to its patience if another source can answer; the
lookup continues, and the next caller finds its answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from maptr.ark import Ark
from maptr.cache.engine import Engine
from maptr.cache.lookups import Driver
from maptr.cache.store import LruDict
from maptr.discovery import Discovery, NoServer
from maptr.registry.followed_file import TableSource
from maptr.resolver.call import NO_OPTIONS, Call, Deadline, Options, complete, log_discovery

if TYPE_CHECKING:
    from maptr.cache.aio import TaskDriver
    from maptr.resolver.bulk import Item, Token
    from maptr.resolver.resolver import Resolver
    from maptr.resolver.validation.validator import Validator

MAX_RECENT = 10_000  # discoveries that are handed out unchanged for a second


class Sources:
    """Threads and tasks may share one. ``require`` is the DNSSEC state that every discovery must have."""

    def __init__(self, resolver: Resolver, engine: Engine, *, require: str | None = None) -> None:
        self.engine = engine
        self.view = engine.store.view
        self._resolver = resolver
        self._require = require
        self._clock = engine.store.clock
        self._threads = Driver(resolver, self.engine.finish)
        self._tasks: TaskDriver | None = None
        # Discoveries by the text of their ARK, with the time until which they may be handed out unchanged. Making one
        # from cached answers takes too long for a hit in memory (scripts/bench cache).
        self._recent: LruDict[str, tuple[float, Discovery]] = LruDict(MAX_RECENT)

    def discover(self, ark: Ark | str | bytes, options: Options = NO_OPTIONS) -> Discovery:
        text = _text(ark) if options == NO_OPTIONS else None
        if text is not None and (recent := self._recent.get(text)) and recent[0] > self._clock():
            log_discovery(recent[1])
            return recent[1]
        return complete(self._look_up(text, self._call(ark, options), self._threads))

    async def discover_async(self, ark: Ark | str | bytes, options: Options = NO_OPTIONS) -> Discovery:
        """``discover``, awaited. Cancelling it does not cancel the DNS lookup, which other callers may wait for."""
        text = _text(ark) if options == NO_OPTIONS else None
        if text is not None and (recent := self._recent.get(text)) and recent[0] > self._clock():
            log_discovery(recent[1])
            return recent[1]
        return await self._look_up(text, self._call(ark, options), await self._ready_to_await())

    def _call(self, ark: Ark | str | bytes, options: Options) -> Call:
        return Call(ark, options, self._resolver.lifetime, self._resolver.clock)

    async def _look_up(self, text: str | None, call: Call, driver: Driver) -> Discovery:
        """Call the hook, raise what ``discover`` raises, and keep the discovery by the text of its ARK, if given."""
        found, until = await driver.run(self.engine.discover(call.ark, call.deadline))
        if call.on_step is not None:
            for step in found.trace:
                call.on_step(step)
        call.raise_for(found, self._require)
        if text is not None and found.candidates and until > self._clock():
            self._recent.put(text, (until, found if found.source != "dns" else found.replace(source="memory")))
        return found if call.chooser is None else await driver.prefer(found, call.chooser)

    def _deadline(self, seconds: float) -> Deadline:
        return Deadline(seconds, self._resolver.clock)

    async def _ready_to_await(self) -> TaskDriver:
        """Return the driver of lookups, after reading the table in a thread if that was not done yet."""
        if self._tasks is None:
            # Imported late: asyncio doubles the start time of a program that does not await.
            from maptr.cache.aio import TaskDriver
            from maptr.resolver.aio import need_asyncio

            need_asyncio()
            self._tasks = TaskDriver(self._resolver, self.engine.finish)
        if not self.engine.table.is_read:
            import asyncio

            await asyncio.to_thread(self.engine.table.current)
        return self._tasks

    def discover_many(
        self, pairs: Iterable[tuple[Token, Item]], lifetime: float, *, ordered: bool = True
    ) -> Generator[tuple[Token, Discovery], None, None]:
        """Yield each token with its discovery. DNS is queried where no cached answer is fresh and the policy needs it.

        If no server can be queried, the table and older answers are used.
        """

        def prepare() -> Iterator[tuple[tuple[Token, bool], Item]]:
            for token, item in pairs:
                found = self._at_once(item)
                if isinstance(found, Ark) and self.engine.is_impatient(found):
                    found, _ = complete(self._threads.run(self.engine.discover(found, self._deadline(lifetime))))
                yield (token, isinstance(found, Ark)), found

        asked = prepare()
        try:
            with closing(self._resolver.discover_many(asked, lifetime, ordered=ordered)) as stream:
                for (token, is_asked), found in stream:
                    yield token, self.engine.choose(found) if is_asked else found
        except NoServer as error:  # before any ARK was taken
            for (token, _), item in asked:
                yield token, self._without_dns(item, error)

    async def discover_many_async(
        self, pairs: AsyncIterator[tuple[Token, Item]], lifetime: float, *, ordered: bool = True
    ) -> AsyncGenerator[tuple[Token, Discovery], None]:
        """``discover_many``, awaited."""
        from contextlib import aclosing  # imported with asyncio

        tasks = await self._ready_to_await()

        async def prepare() -> AsyncIterator[tuple[tuple[Token, bool], Item]]:
            async for token, item in pairs:
                found = self._at_once(item)
                if isinstance(found, Ark) and self.engine.is_impatient(found):
                    found, _ = await tasks.run(self.engine.discover(found, self._deadline(lifetime)))
                yield (token, isinstance(found, Ark)), found

        asked = prepare()
        try:
            async with aclosing(self._resolver.discover_many_async(asked, lifetime, ordered=ordered)) as stream:
                async for (token, is_asked), found in stream:
                    yield token, self.engine.choose(found) if is_asked else found
        except NoServer as error:  # before any ARK was taken
            async for (token, _), item in asked:
                yield token, self._without_dns(item, error)

    def _at_once(self, item: Item) -> Item:
        """Return the discovery of an item that needs no query now; the ARK if DNS must be queried."""
        found = item if isinstance(item, Discovery) else self.engine.at_once(item)
        return item if found is None else found

    def _without_dns(self, item: Item, error: NoServer) -> Discovery:
        return item if isinstance(item, Discovery) else self.engine.choose(self.engine.not_asked(item, str(error)))

    def from_table(self, ark: Ark) -> Discovery | None:
        """Return the discovery that the table makes without DNS and without waiting; None if ``discover`` is needed."""
        found = self.engine.from_table(ark) if self.engine.table.is_read else None
        if found is not None:
            log_discovery(found)
        return found

    def from_dns(self, ark: Ark) -> Discovery:
        """Return what DNS says about an ARK, from cached answers or queried now, without the table. Raises nothing.

        A stale answer is incomplete.
        """
        _, found, _ = complete(self._threads.run(self.engine.from_dns(ark, self._deadline(self._resolver.lifetime))))
        return found.replace(complete=False) if found.stale else found

    def fetch(self, arks: Iterable[Ark]) -> Generator[Discovery | None, None, None]:
        """Yield the discovery of each ARK that DNS gives now, in order, or None if fresh answers for it are cached."""
        pairs = ((self.engine.store.fresh(ark).found is not None, ark) for ark in arks)
        skipped = ((is_kept, Discovery(ark) if is_kept else ark) for is_kept, ark in pairs)
        for is_kept, found in self._resolver.discover_many(skipped, self._resolver.lifetime, ordered=True):
            if not is_kept:
                self.engine.learn(found)
            yield None if is_kept else found

    def follow(self, table: TableSource) -> None:
        """Use another table from now on. Cached DNS answers are kept."""
        self.engine.table = table
        self._recent.clear()

    def forget(self, naan: str | None = None) -> None:
        """``Client.forget``, for a NAAN in lower case."""
        self.engine.forget(naan)
        self._recent.clear()

    @property
    def is_awaited(self) -> bool:
        """Whether a lookup was awaited."""
        return self._tasks is not None

    async def stop(self) -> None:
        """Cancel the lookups in flight in the current event loop."""
        if self._tasks is not None:
            await self._tasks.stop()


def _text(ark: Ark | str | bytes) -> str | None:
    if isinstance(ark, str):
        return ark
    return ark.resolution if isinstance(ark, Ark) and not (ark.tail or ark.nma or ark.notes or ark.hyphenated) else None


def view_of(resolver: Resolver) -> str:
    """Return servers and trust as text: answers of one set of servers are never given out as another's."""
    trust = " ad" if resolver.trust_ad else ""
    if resolver.validator is not None:
        trust = f" from {_fingerprint(resolver.validator)}"
    given = resolver.given
    if given is None:
        return trust
    if isinstance(given, tuple):
        return ",".join(text if "#" in text else f"{text}#53" for text in given) + trust
    servers = ",".join(map(str, given.nameservers or ()))
    return (f"{servers}#{given.port}" if servers else repr(given)) + trust


def _fingerprint(validator: Validator) -> str:
    """Return a hash of the trust anchors, the same in every process."""
    anchors = sorted((str(zone), sorted(map(str, rdatas))) for zone, rdatas in validator.trust.anchors.items())
    return hashlib.sha256(repr(anchors).encode()).hexdigest()[:16]
