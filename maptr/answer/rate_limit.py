"""Response rate limiting (RRL) for UDP replies, so that a forged address gets few.

After the description by Vixie and Schryver, as in BIND, NSD and Knot. A network has one account for each kind of reply,
and one for all kinds together, which a client that asks for another name each time meets (BIND's ``all-per-second``).
Pure: the clock is an argument. What makes two replies alike is decided in ``rendering.py``; who is asked before a reply
is sent, in ``serve/responder.py``.
"""

from __future__ import annotations

import enum
import heapq
import ipaddress
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol, Self

from maptr.protocol.address import Network, read_network

# Replies of one kind a second to one network. A resolver keeps what it was told, so it does not ask the same
# again and again; with BIND's example (5) the resolvers of a campus already meet the limit, NSD's 200 lets much by.
RESPONSES_PER_SECOND = 20.0
ALL_KINDS = 10  # times that rate for all kinds together: a resolver that starts cold asks for many names, once each
SLIP = 2  # every second reply over the limit goes out truncated, as in BIND, NSD and Knot
WINDOW = 15.0  # seconds over which excess is remembered: BIND's default
IPV4_PREFIX = 24  # the networks that BIND, NSD and Knot count by
IPV6_PREFIX = 56
# Accounts, some 300 octets each. BIND's default maximum is 20,000; those in debt are forgotten last.
TABLE_SIZE = 20_000
ROUNDING = 1e-6  # seconds: what adding up prices may be wrong by
NO_LOCK = nullcontext()  # for one thread
EXEMPT = (read_network("127.0.0.0/8"), read_network("::1/128"))


class _Settings(NamedTuple):
    responses_per_second: float = RESPONSES_PER_SECOND
    slip: int = SLIP
    window: float = WINDOW
    ipv4_prefix: int = IPV4_PREFIX
    ipv6_prefix: int = IPV6_PREFIX
    table_size: int = TABLE_SIZE
    exempt: tuple[Network, ...] = EXEMPT


class RrlSettings(_Settings):
    """``responses_per_second`` 0 turns limiting off, ``slip`` 0 drops all excess. Raises ValueError."""

    __slots__ = ()

    def __new__(
        cls,
        responses_per_second: float = RESPONSES_PER_SECOND,
        slip: int = SLIP,
        window: float = WINDOW,
        ipv4_prefix: int = IPV4_PREFIX,
        ipv6_prefix: int = IPV6_PREFIX,
        table_size: int = TABLE_SIZE,
        exempt: tuple[Network, ...] = EXEMPT,
    ) -> Self:
        if responses_per_second < 0 or slip < 0:
            raise ValueError("a rate or slip below 0")
        if window < 1 or table_size < 1:
            raise ValueError("a window or table size below 1")
        if not (0 <= ipv4_prefix <= 32 and 0 <= ipv6_prefix <= 128):
            raise ValueError("a prefix longer than an address")
        return super().__new__(cls, responses_per_second, slip, window, ipv4_prefix, ipv6_prefix, table_size, exempt)


class Verdict(enum.Enum):
    """What becomes of a reply."""

    SEND = "send"
    TRUNCATE = "truncate"  # a client that is real asks again over TCP
    DROP = "drop"


class Withheld(Protocol):
    """Where replies that did not go out whole are counted."""

    dropped: int
    truncated: int


class Tally:
    """The same in two numbers."""

    def __init__(self) -> None:
        self.dropped = 0
        self.truncated = 0


class RateLimiter:
    """Counts replies and says which may go. ``clock`` gives seconds that never go back.

    ``tally`` counts what was withheld since the start, and may be replaced before the first reply is judged. Several
    threads may ask where ``lock`` is one; only what is rare takes it.
    """

    def __init__(
        self, settings: RrlSettings, clock: Callable[[], float], lock: AbstractContextManager[object] = NO_LOCK
    ) -> None:
        self.tally: Withheld = Tally()
        self._settings = settings
        self._clock = clock
        # An account is the moment when nothing will be owed for it any more: each reply puts that off by so long.
        self._price = 1 / settings.responses_per_second if settings.responses_per_second else 0.0
        # What may be owed. One reply a kind must be able to pass, however small the rate.
        self._credit = max(1.0, settings.responses_per_second) * self._price + ROUNDING
        self._most = self._credit + settings.window
        self._network_price = self._price / ALL_KINDS
        self._network_credit = max(1.0, settings.responses_per_second * ALL_KINDS) * self._network_price + ROUNDING
        # By network and kind, and by network alone.
        self._accounts: dict[Hashable, float] = {}
        self._excess: dict[Hashable, int] = {}  # replies that went too far, of some of the accounts
        self._networks: dict[str, str | None] = {}
        self._lock = lock

    def is_exempt(self, client: str) -> bool:
        """Whether any number of replies may go there."""
        return self.network(client) is None

    def judge(self, client: str, kind: Hashable) -> Verdict:
        """Count one reply of a kind to a client's address, and say what becomes of it."""
        network = self.network(client)
        if network is None:
            return Verdict.SEND
        return next((verdict for _, verdict in self.judge_each([(network, kind)])), Verdict.SEND)

    def passes(self, network: str, kind: Hashable) -> bool:
        """Count one reply by its network and kind where it may go; else nothing, and ``judge_each`` shall say."""
        now, reply = self._clock(), (network, kind)
        accounts = self._accounts
        free = max(now, accounts.get(reply, now)) + self._price
        free_network = max(now, accounts.get(network, now)) + self._network_price
        if (
            free > now + self._credit
            or free_network > now + self._network_credit
            or len(accounts) >= self._settings.table_size
        ):
            return False
        accounts[reply], accounts[network] = free, free_network
        return True

    def judge_each(self, replies: Sequence[tuple[str, Hashable]]) -> Iterator[tuple[int, Verdict]]:
        """The same for replies of one moment, by network and kind; says the places of those that are not to go.

        What one kind has too many of does not count against the others.
        """
        now, accounts = self._clock(), self._accounts
        price, allowed, most = self._price, now + self._credit, now + self._most
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
        if len(accounts) > self._settings.table_size:
            with self._lock:
                self._forget(now)
        return ((place, self._withhold(account)) for place, account in over)

    def _withhold(self, account: Hashable) -> Verdict:
        with self._lock:
            excess = self._excess[account] = self._excess.get(account, 0) + 1
            if self._settings.slip and excess % self._settings.slip == 0:
                self.tally.truncated += 1
                return Verdict.TRUNCATE
            self.tally.dropped += 1
            return Verdict.DROP

    def _forget(self, now: float) -> None:
        """Accounts that owe nothing, and of the others the half that owes least, if they are still too many."""
        # Of a copy, made at once, for others go on counting.
        left = {reply: free for reply, free in self._accounts.copy().items() if free > now}
        if len(left) > self._settings.table_size // 2:
            most = heapq.nlargest(self._settings.table_size // 2, left.items(), key=lambda account: account[1])
            left = dict(most)
        self._accounts = left
        self._excess = {reply: excess for reply, excess in self._excess.items() if reply in left}

    def network(self, client: str) -> str | None:
        """The network of an address, as text; None for one to which any number of replies may go, or no address."""
        if client in self._networks:
            return self._networks[client]
        if len(self._networks) >= self._settings.table_size:
            self._networks.clear()
        network = self._networks[client] = self._find_network(client)
        return network

    def _find_network(self, client: str) -> str | None:
        if not self._settings.responses_per_second:
            return None
        try:
            address = ipaddress.ip_address(client.partition("%")[0])
        except ValueError:
            return None
        if any(address in network for network in self._settings.exempt):
            return None
        prefix = self._settings.ipv4_prefix if address.version == 4 else self._settings.ipv6_prefix
        return str(ipaddress.ip_network((address, prefix), strict=False))
