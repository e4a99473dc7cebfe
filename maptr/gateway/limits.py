"""Who a client is, and how many requests it may send: one token bucket for each address or IPv6 network."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from maptr.protocol.address import Network

IPV6_PREFIX = 64  # bits: a client with one address of a link has all of them (RFC 4291 2.5.1)
MAX_CLIENTS = 20_000  # remembered; the one whose last request is oldest is forgotten first
BURST = 2  # seconds of its rate that a client may use at once


class Clients:
    """``rate``: requests a second of one client; 0 for no limit. ``proxies``: the networks of proxies, whose header
    ``X-Forwarded-For`` names the client, and which have no limit of their own."""

    def __init__(self, rate: float, proxies: Sequence[Network], clock: Callable[[], float]) -> None:
        self._rate = rate
        self._proxies = tuple(proxies)
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when there were so many
        self._known: OrderedDict[str, bool] = OrderedDict()

    def address(self, peer: str, headers: Mapping[str, str]) -> str:
        """The address of the client: the last one in the way of the request that is not a proxy's."""
        if not self._is_proxy(peer):
            return peer
        for hop in reversed(headers.get("x-forwarded-for", "").split(",")):
            found = hop.strip()
            if not _is_address(found):
                return peer
            if not self._is_proxy(found):
                return found
        return peer

    def wait(self, client: str) -> float:
        """Take a token; the seconds until there is one, 0 if there was."""
        if not self._rate or self._is_proxy(client):
            return 0.0
        key, now = _network(client), self._clock()
        tokens, at = self._left.pop(key, (self._rate * BURST, now))
        tokens = min(self._rate * BURST, tokens + (now - at) * self._rate)
        taken = 1.0 if tokens >= 1 else 0.0
        self._left[key] = (tokens - taken, now)
        if len(self._left) > MAX_CLIENTS:
            self._left.popitem(last=False)
        return 0.0 if taken else (1 - tokens) / self._rate

    def _is_proxy(self, address: str) -> bool:
        known = self._known.get(address)
        if known is None:
            ip = ipaddress.ip_address(address) if _is_address(address) else None
            known = ip is not None and any(ip in network for network in self._proxies)
            self._known[address] = known
            if len(self._known) > MAX_CLIENTS:
                self._known.popitem(last=False)
        return known


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _network(address: str) -> str:
    if ":" not in address:
        return address
    return str(ipaddress.IPv6Network((address.partition("%")[0], IPV6_PREFIX), strict=False))
