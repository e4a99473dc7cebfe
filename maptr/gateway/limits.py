"""The address of a client, and the limit on its requests: a token bucket for each address or IPv6 network."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Sequence

from maptr.protocol.address import Network, client_of

MAX_CLIENTS = 20_000  # remembered; the one whose last request is oldest is forgotten first
BURST = 2  # seconds of its rate that a client may use at once
MAX_HOPS = 32  # addresses of an X-Forwarded-For that are read, from its end


class Clients:
    """``rate``: requests a second of one client; 0 for no limit. ``proxies``: the networks of proxies, whose header
    ``X-Forwarded-For`` names the client, and which have no limit of their own."""

    def __init__(self, rate: float, proxies: Sequence[Network], clock: Callable[[], float]) -> None:
        self._rate = rate
        self._proxies = tuple(proxies)
        self._clock = clock
        # By client: tokens, and the time at which they were counted.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def trusts(self, address: str) -> bool:
        """Return True for the address of a proxy."""
        ip = _parsed(address)
        return ip is not None and any(ip in network for network in self._proxies)

    def address(self, peer: str, forwarded: str) -> str:
        """Return the address of the client of a proxy: the last one in ``forwarded`` that is not a proxy's.

        ``forwarded`` is the value of X-Forwarded-For; several headers are one list (RFC 9110 5.3). The search ends
        at any text that is not an address, because nothing before it can be trusted.
        """
        for hop in reversed(forwarded.split(",")[-MAX_HOPS:]):
            ip = _parsed(hop.strip())
            if ip is None:
                return peer
            peer = str(ip)
            if not self.trusts(peer):
                return peer
        return peer

    def wait(self, client: str) -> float:
        """Take a token, and return 0; without one, return the seconds until there is one."""
        if not self._rate or self.trusts(client):
            return 0.0
        tokens = self._tokens(key := client_of(client))
        enough = tokens >= 1
        self._keep(key, tokens - enough)
        return 0.0 if enough else (1 - tokens) / self._rate

    def charge(self, client: str, tokens: int) -> None:
        """Take tokens for a request that is answered in any case. The number of tokens may become negative."""
        if self._rate and tokens and not self.trusts(client):
            self._keep(key := client_of(client), self._tokens(key) - tokens)

    def _tokens(self, key: str) -> float:
        full = self._rate * BURST
        tokens, at = self._left.pop(key, (full, self._clock()))
        return min(full, tokens + (self._clock() - at) * self._rate)

    def _keep(self, key: str, tokens: float) -> None:
        self._left[key] = (tokens, self._clock())
        if len(self._left) > MAX_CLIENTS:
            self._left.popitem(last=False)


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address; an IPv4-mapped IPv6 address as IPv4 (RFC 4291 2.5.5.2)."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
