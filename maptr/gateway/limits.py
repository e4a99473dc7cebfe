"""Limits on clients, by requests and their cost, and on NAANs, by the work that their rules are: token buckets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from maptr.protocol.address import client_of

MAX_KEYS = 20_000  # remembered; the one whose last request is oldest is forgotten first
BURST = 2  # seconds of its rate that a client may use at once
COST = 0.001  # seconds of the event loop that one token buys; a redirect takes less
NAAN_WORK = 400_000  # steps a second that the rules of one NAAN may take, some 100 ms (see ``Discovery.work``)
FREE_WORK = 5_000  # steps of one ARK that are not counted; those of a record take some hundred


class Buckets:
    """Token buckets by key. ``rate``: tokens a second of each; 0 for no limit."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        # By key: tokens, and the time at which they were counted.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, key: str) -> float:
        """Take a token, and return 0; without one, return the seconds until there is one."""
        if not self._rate:
            return 0.0
        tokens = self._tokens(key)
        enough = tokens >= 1
        self._keep(key, tokens - enough)
        return 0.0 if enough else (1 - tokens) / self._rate

    def charge(self, key: str, tokens: float) -> None:
        """Take tokens for a request that is answered in any case. The number of tokens may become negative."""
        if self._rate and tokens > 0:
            self._keep(key, self._tokens(key) - tokens)

    def _tokens(self, key: str) -> float:
        full = self._rate * BURST
        tokens, at = self._left.pop(key, (full, self._clock()))
        return min(full, tokens + (self._clock() - at) * self._rate)

    def _keep(self, key: str, tokens: float) -> None:
        self._left[key] = (tokens, self._clock())
        if len(self._left) > MAX_KEYS:
            self._left.popitem(last=False)


class Clients(Buckets):
    """A bucket for each address or IPv6 network, with a token for each request of ordinary cost."""

    def wait(self, client: str) -> float:
        return super().wait(client_of(client))

    def charge(self, client: str, tokens: float) -> None:
        super().charge(client_of(client), tokens)

    def spend(self, client: str, seconds: float) -> None:
        """Charge a request for the time of the event loop that it took beyond that of its token."""
        self.charge(client, seconds / COST - 1)
