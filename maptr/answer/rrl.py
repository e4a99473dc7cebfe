"""Response rate limiting (RRL) for UDP responses, against floods with a forged client address.

It follows the description by Vixie and Schryver, as BIND, NSD and Knot do. Each client network has one account for each
kind of response (``Reply.kind``), and one for all kinds together, which limits clients that ask for many different
names (BIND's ``all-per-second``). An account is a token bucket as in ``maptr.rate_limit``, with debt: responses over
the limit count as well, up to a maximum. The clock is an argument.
"""

from __future__ import annotations

import enum
import functools
import heapq
import ipaddress
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from maptr.protocol.address import Network, read_network
from maptr.rate_limit import ROUNDING

# Responses of one kind per second to one network. Resolvers cache responses, so they need few of one kind. The 5 of
# BIND's example would limit the resolvers of a campus; NSD's 200 lets large floods pass.
RESPONSES_PER_SECOND = 20.0
ALL_KINDS = 10  # factor for all kinds together: a resolver with an empty cache asks for many names, once each
SLIP = 2  # every second response over the limit is truncated instead of dropped, as in BIND, NSD and Knot
WINDOW = 15.0  # seconds for which excess counts: BIND's default
IPV4_PREFIX = 24  # bits; BIND, NSD and Knot have the same defaults
IPV6_PREFIX = 56
# Accounts of about 300 bytes; BIND has the same default maximum. Accounts over their limit are removed last.
TABLE_SIZE = 20_000
EXEMPT = (read_network("127.0.0.0/8"), read_network("::1/128"))


class Action(enum.Enum):
    SEND = "send"
    TRUNCATE = "truncate"  # a genuine client retries over TCP
    DROP = "drop"


@dataclass(slots=True)
class Tally:
    """Counters of the responses that were not sent in full."""

    dropped: int = 0
    truncated: int = 0


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits. ``responses_per_second`` 0 turns the limit off, ``slip`` 0 drops all excess."""

    responses_per_second: float = RESPONSES_PER_SECOND
    slip: int = SLIP
    window: float = WINDOW
    ipv4_prefix: int = IPV4_PREFIX
    ipv6_prefix: int = IPV6_PREFIX
    exempt: tuple[Network, ...] = EXEMPT
    table_size: int = TABLE_SIZE


class RateLimiter:
    """Counts responses and decides which are sent. ``clock`` is monotonic, in seconds.

    ``tally`` counts the responses that are not sent in full. Several threads may use one limiter; only rare paths take
    the ``lock``.
    """

    def __init__(
        self, clock: Callable[[], float], lock: AbstractContextManager[object], limits: RateLimits = RateLimits()
    ) -> None:
        self.tally = Tally()
        self._clock = clock
        self._limits = limits
        rate = limits.responses_per_second
        # An account's value is the time when its debt ends; each response moves this time by the price.
        self._price = 1 / rate if rate else 0.0
        # The largest debt with which responses are still sent: at least one response, however low the rate.
        self._credit = max(1.0, rate) * self._price + ROUNDING
        self._network_price = self._price / ALL_KINDS
        self._network_credit = max(1.0, rate * ALL_KINDS) * self._network_price + ROUNDING
        # The keys are (network, kind), and the network for all kinds.
        self._accounts: dict[Hashable, float] = {}
        self._excess: dict[Hashable, int] = {}  # responses over the limit
        self._lock = lock
        self.network = functools.lru_cache(limits.table_size)(self._find_network)

    def judge(self, client: str, kind: Hashable) -> Action:
        """Count one response of a kind to a client's address. Returns what to do with it."""
        network = self.network(client)
        limited = () if network is None else self.judge_each([(network, kind)])
        return next((action for _, action in limited), Action.SEND)

    def judge_each(self, replies: Sequence[tuple[str, Hashable]]) -> Iterator[tuple[int, Action]]:
        """Count responses, given by network and kind. Yields the index and action of those not to be sent in full.

        A response over the limit of its kind does not count toward the limit of all kinds.
        """
        now, accounts = self._clock(), self._accounts
        price, allowed = self._price, now + self._credit
        most = allowed + self._limits.window
        network_price, network_allowed = self._network_price, now + self._network_credit
        over: list[tuple[int, Hashable]] = []
        for place, reply in enumerate(replies):
            free = accounts.get(reply, now)
            free = (now if free < now else free) + price
            if free > allowed:
                over.append((place, reply))
                free = min(free, most)
            else:
                network = reply[0]
                free_network = accounts.get(network, now)
                free_network = (now if free_network < now else free_network) + network_price
                if free_network > network_allowed:
                    over.append((place, network))
                    free_network = min(free_network, most)
                accounts[network] = free_network
            accounts[reply] = free
        if len(accounts) > self._limits.table_size:
            with self._lock:
                self._forget(now)
        return ((place, self._withhold(account)) for place, account in over)

    def _withhold(self, account: Hashable) -> Action:
        with self._lock:
            excess = self._excess[account] = self._excess.get(account, 0) + 1
            slip = self._limits.slip
            if slip and excess % slip == 0:
                self.tally.truncated += 1
                return Action.TRUNCATE
            self.tally.dropped += 1
            return Action.DROP

    def _forget(self, now: float) -> None:
        """Remove the accounts without debt and, if more than half the table is left, those with the least debt."""
        # Copying is atomic, but other threads may count responses during the rest.
        left = {reply: free for reply, free in self._accounts.copy().items() if free > now}
        size = self._limits.table_size // 2
        if len(left) > size:
            left = dict(heapq.nlargest(size, left.items(), key=lambda account: account[1]))
        self._accounts = left
        self._excess = {reply: excess for reply, excess in self._excess.items() if reply in left}

    def _find_network(self, client: str) -> str | None:
        """Return the network of an address as text; None for an exempt or invalid address."""
        if not self._price:
            return None
        try:
            address = ipaddress.ip_address(client.partition("%")[0])
        except ValueError:
            return None
        if any(address in network for network in self._limits.exempt):
            return None
        prefix = self._limits.ipv4_prefix if address.version == 4 else self._limits.ipv6_prefix
        return str(ipaddress.ip_network((address, prefix), strict=False))
