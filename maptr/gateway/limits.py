"""Limits on clients, by requests and their cost, and on NAANs, by the work that their rules are."""

from __future__ import annotations

from collections.abc import Callable

from maptr.protocol.address import client_of
from maptr.rate_limit import TokenBuckets

BURST = 2  # seconds of its rate that a client may use at once
COST = 0.001  # seconds of the event loop that one token buys; a redirect takes less
NAAN_WORK = 400_000  # steps a second that the rules of one NAAN may take, some 100 ms (see ``Discovery.work``)
FREE_WORK = 5_000  # steps of one ARK that are not counted; those of a record take some hundred


class Limits:
    """A token bucket for each client, an address or IPv6 network, with a token for each request of ordinary cost; and
    one for each of ``naans``."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._buckets = TokenBuckets(rate, rate * BURST, clock)
        self.naans = TokenBuckets(NAAN_WORK, NAAN_WORK * BURST, clock)

    def wait(self, client: str) -> float:
        """Take a token, and return 0; without one, return the seconds until there is one."""
        return self._buckets.wait(client_of(client))

    def charge(self, client: str, tokens: float) -> None:
        """Take tokens for a request that is answered in any case."""
        self._buckets.charge(client_of(client), tokens)

    def spend(self, client: str, seconds: float) -> None:
        """Charge a request for the time of the event loop that it took beyond that of its token."""
        if seconds > COST:
            self.charge(client, seconds / COST - 1)
