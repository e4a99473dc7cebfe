"""Askers: how a cache asks DNS where nobody said how: for one ARK, for one awaited, for many.

What few calls need is imported by those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from maptr.ark import Ark
from maptr.cache.request import Defaults
from maptr.client import sync
from maptr.discovery import Discovery, DiscoveryError

THREADS = 16  # questions at a time over TLS and HTTPS, each a connection


class Askers:
    """The ways of one cache. ``rate`` is packets a second to a server where many are asked, None for no limit.

    The options of one are those of ``Request.ask``. All raise what the forms of ``discover`` do that they go by.
    """

    def __init__(self, defaults: Defaults, rate: float | None) -> None:
        self._defaults = defaults
        self._rate = rate

    def one(self, ark: Ark, **options: Any) -> Discovery:
        return sync.discover(ark, **self._defaults.own_resolver(options))

    async def one_async(self, ark: Ark, **options: Any) -> Discovery:
        import asyncio

        from maptr.client.aio import discover_async

        if self._defaults.has_resolver:
            return await discover_async(ark, **self._defaults.own_resolver(options))
        return await discover_async(ark, **await asyncio.to_thread(self._defaults.own_resolver, options))

    def many(self, arks: list[Ark]) -> Iterator[Discovery]:
        """The discovery of each, in order."""
        made = self._defaults
        if any("://" in server for server in made.nameservers or ()):  # with which ``bulk`` does not speak
            for ark in arks[:1]:
                made.own_resolver(made.request(ark, {}).ask)  # one for all threads
            return _in_threads(lambda ark: self.one(ark, **made.request(ark, {}).ask), arks)
        from maptr.client.bulk import discover_many

        return discover_many(
            arks,
            nameservers=made.nameservers,
            origin=made.origin,
            settings=made.settings,
            lifetime=made.lifetime,
            trust_ad=made.trust.ad,
            trust_anchors=made.trust.validator,
            rate=self._rate,
        )


def _in_threads(ask: Callable[[Ark], Discovery], arks: list[Ark]) -> Iterator[Discovery]:
    """As ``ask`` does it, and raises, but where DNS did not say."""
    from concurrent.futures import ThreadPoolExecutor

    def one(ark: Ark) -> Discovery:
        try:
            return ask(ark)
        except DiscoveryError as error:
            if error.discovery is None:
                raise
            return error.discovery

    with ThreadPoolExecutor(THREADS) as pool:
        yield from pool.map(one, arks)
