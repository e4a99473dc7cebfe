"""``Resolver``: what a client asks of DNS, for one ARK or for many, by plain servers or by a dnspython resolver.

``walk`` decides what to ask and what an answer means; ``sync``, ``aio`` and ``bulk`` run walks and differ only in how
they wait; ``multiplexer`` asks plain servers, and ``dnspython`` its resolvers.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable
from typing import TYPE_CHECKING

from maptr.ark import Ark
from maptr.discovery import Discovery
from maptr.resolver import sync
from maptr.resolver.call import StepHook, TimedWalk
from maptr.resolver.servers import system_servers
from maptr.resolver.upstream import Upstream

if TYPE_CHECKING:
    from maptr.resolver.bulk import Item, Token


class Resolver(Upstream):
    """Runs walks over DNS. The methods return an incomplete discovery if DNS does not answer.

    They raise NoServer, a DiscoveryFailed, if no server can be asked.
    """

    def discover(self, ark: Ark, lifetime: float, on_step: StepHook | None = None) -> Discovery:
        return sync.discover(self, TimedWalk(ark, self.settings, lifetime, on_step, clock=self.clock))

    async def discover_async(self, ark: Ark, lifetime: float, on_step: StepHook | None = None) -> Discovery:
        """``discover``, awaited. Cancelling it cancels its queries."""
        from maptr.resolver.aio import discover_async  # asyncio doubles the start time of a program

        return await discover_async(self, TimedWalk(ark, self.settings, lifetime, on_step, clock=self.clock))

    def discover_many(
        self, pairs: Iterable[tuple[Token, Item]], lifetime: float, *, ordered: bool = True
    ) -> Generator[tuple[Token, Discovery], None, None]:
        """Yield each token with the discovery of its ARK. Closing the generator closes every socket."""
        from maptr.resolver.bulk import discover_many  # a command that looks up one ARK starts without it

        return discover_many(self, pairs, lifetime, ordered=ordered)

    def discover_many_async(
        self, pairs: AsyncIterator[tuple[Token, Item]], lifetime: float, *, ordered: bool = True
    ) -> AsyncGenerator[tuple[Token, Discovery], None]:
        """``discover_many`` on the running event loop."""
        from maptr.resolver.bulk import discover_many_async  # as above

        return discover_many_async(self, pairs, lifetime, ordered=ordered)

    def serial(self) -> int | None:
        """Return the serial of the zone at the origin, asked now; None if DNS does not say."""
        import dns.exception  # late: dns.resolver doubles the start time of a command
        import dns.name

        from maptr.resolver.dnspython import as_sync, make_resolver

        try:
            asked = as_sync(self.given) if self.is_dnspython else make_resolver(self.given or system_servers())
            origin = dns.name.Name((*self.settings.origin, b""))
            answer = asked.resolve(origin, "SOA", lifetime=self.lifetime, search=False)
        except (dns.exception.DNSException, OSError):
            return None
        serial: int = answer[0].serial
        return serial
