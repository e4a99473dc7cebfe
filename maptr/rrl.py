"""Response rate limiting: how many replies of one kind go to one network, so that a forged address gets few.

After the description by Vixie and Schryver, as in BIND, NSD and Knot. Pure: the clock is an argument. What makes
two replies alike is decided in ``answer.py``; who is asked before a reply is sent, in ``serve/responder.py``.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Protocol

from maptr.address import Network, read_network

# Replies of one kind a second to one network. A resolver keeps what it was told, so it does not ask the same
# again and again; with BIND's example (5) the resolvers of a campus already meet the limit, NSD's 200 lets much by.
RESPONSES_PER_SECOND = 20.0
SLIP = 2  # every second reply over the limit goes out truncated, as in BIND, NSD and Knot
WINDOW = 15.0  # seconds over which excess is remembered: BIND's default
IPV4_PREFIX = 24  # the networks that BIND, NSD and Knot count by
IPV6_PREFIX = 56
# Accounts, some 300 octets each. BIND's default maximum is 20,000; a flood makes others forget only its own.
TABLE_SIZE = 20_000
EXEMPT = (read_network("127.0.0.0/8"), read_network("::1/128"))


@dataclass(frozen=True, slots=True)
class RrlSettings:
    """``responses_per_second`` 0 turns limiting off, ``slip`` 0 drops all excess. Raises ValueError."""

    responses_per_second: float = RESPONSES_PER_SECOND
    slip: int = SLIP
    window: float = WINDOW
    ipv4_prefix: int = IPV4_PREFIX
    ipv6_prefix: int = IPV6_PREFIX
    table_size: int = TABLE_SIZE
    exempt: tuple[Network, ...] = EXEMPT

    def __post_init__(self) -> None:
        if self.responses_per_second < 0 or self.slip < 0:
            raise ValueError("a rate or slip below 0")
        if self.window < 1 or self.table_size < 1:
            raise ValueError("a window or table size below 1")
        if not (0 <= self.ipv4_prefix <= 32 and 0 <= self.ipv6_prefix <= 128):
            raise ValueError("a prefix longer than an address")

    def shared(self, workers: int) -> RrlSettings:
        """The settings of each of so many workers: the kernel spreads the queries, so the rate is divided."""
        return replace(self, responses_per_second=self.responses_per_second / workers)


class Verdict(enum.Enum):
    """What becomes of a reply."""

    SEND = "send"
    TRUNCATE = "truncate"  # a client that is real asks again over TCP
    DROP = "drop"


class Withheld(Protocol):
    """Where replies that did not go out whole are counted."""

    dropped: int
    truncated: int


@dataclass(slots=True)
class Tally:
    """The same in two numbers."""

    dropped: int = 0
    truncated: int = 0


@dataclass(slots=True)
class _Account:
    """Replies that may still go; below 0, how many went too far."""

    balance: float
    time: float
    excess: int = 0


class RateLimiter:
    """Counts replies and says which may go. ``clock`` gives seconds that never go back.

    ``tally`` counts what was withheld since the start, and may be replaced before the first reply is judged.
    """

    def __init__(self, settings: RrlSettings, clock: Callable[[], float]) -> None:
        self.tally: Withheld = Tally()
        self._settings = settings
        self._clock = clock
        # One reply a kind must be able to pass, however small a worker's share of the rate.
        self._burst = max(1.0, settings.responses_per_second)
        self._floor = -settings.window * settings.responses_per_second
        self._accounts: dict[Hashable, _Account] = {}  # longest untouched first
        self._networks: dict[str, str | None] = {}

    def is_exempt(self, client: str) -> bool:
        """Whether any number of replies may go there."""
        return not self._settings.responses_per_second or self._network(client) is None

    def judge(self, client: str, kind: Hashable) -> Verdict:
        """Count one reply of a kind to a client's address, and say what becomes of it."""
        if not self._settings.responses_per_second:
            return Verdict.SEND
        network = self._network(client)
        if network is None:
            return Verdict.SEND
        account = self._account((network, kind))
        account.balance = max(account.balance - 1, self._floor)
        if account.balance >= 0:
            return Verdict.SEND
        account.excess += 1
        if self._settings.slip and account.excess % self._settings.slip == 0:
            self.tally.truncated += 1
            return Verdict.TRUNCATE
        self.tally.dropped += 1
        return Verdict.DROP

    def _account(self, key: Hashable) -> _Account:
        """The account, brought up to this moment and now the last to be forgotten."""
        now = self._clock()
        account = self._accounts.pop(key, None)
        if account is None:
            account = _Account(self._burst, now)
            if len(self._accounts) >= self._settings.table_size:
                del self._accounts[next(iter(self._accounts))]
        self._accounts[key] = account
        earned = (now - account.time) * self._settings.responses_per_second
        account.balance = min(account.balance + earned, self._burst)
        account.time = now
        return account

    def _network(self, client: str) -> str | None:
        """The network of an address, as text; None for one that is exempt or no address."""
        if client in self._networks:
            return self._networks[client]
        if len(self._networks) >= self._settings.table_size:
            self._networks.clear()
        network = self._networks[client] = self._find_network(client)
        return network

    def _find_network(self, client: str) -> str | None:
        try:
            address = ipaddress.ip_address(client.partition("%")[0])
        except ValueError:
            return None
        if any(address in network for network in self._settings.exempt):
            return None
        prefix = self._settings.ipv4_prefix if address.version == 4 else self._settings.ipv6_prefix
        return str(ipaddress.ip_network((address, prefix), strict=False))
