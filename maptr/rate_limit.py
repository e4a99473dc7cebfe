"""Rate limits by token buckets, in the form of the generic cell rate algorithm (ITU-T I.371).

Pure: the clock is an argument. Response rate limiting (``answer.rrl``) has the same algorithm for batches, with debt.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

MAX_KEYS = 20_000  # remembered; the one whose last event is oldest is forgotten first
ROUNDING = 1e-6  # seconds: the largest rounding error of a sum of prices


class TokenBuckets:
    """A token bucket for each key, which gains ``rate`` tokens per second and holds ``burst``; rate 0: no limit.

    ``clock`` is monotonic, in seconds. One thread uses it.
    """

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._price = 1 / rate if rate else 0.0  # seconds for one token
        self._capacity = burst * self._price  # seconds to fill a bucket
        self._clock = clock
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()  # when the bucket of a key is full again

    def wait(self, key: Hashable) -> float:
        """Take a token, and return 0; without one, return the seconds until there is one."""
        if not self._price:
            return 0.0
        now = self._clock()
        full_at = max(now, self._full_at.get(key, now))
        seconds = full_at + self._price - now - self._capacity
        if seconds > ROUNDING:
            self._keep(key, full_at)
            return seconds
        self._keep(key, full_at + self._price)
        return 0.0

    def charge(self, key: Hashable, tokens: float) -> None:
        """Take tokens for an event that is not limited. Their number may become negative."""
        if self._price and tokens > 0:
            now = self._clock()
            self._keep(key, max(now, self._full_at.get(key, now)) + tokens * self._price)

    def _keep(self, key: Hashable, full_at: float) -> None:
        self._full_at[key] = full_at
        self._full_at.move_to_end(key)
        if len(self._full_at) > MAX_KEYS:
            self._full_at.popitem(last=False)
