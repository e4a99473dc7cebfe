"""Circuit breakers: after several failures in a row, a server or a name is not asked for a while.

The pauses grow and are jittered. After each pause one caller may try; the first success closes the breaker. The same
pauses serve a name whose lookup keeps failing (RFC 9520 section 3.2).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from maptr.files import ForkLock

OPEN_AFTER = 3  # failures in a row
FIRST_PAUSE = 1.0  # seconds; RFC 9520 section 3.2: a failure is kept for a second at least
LONGEST_PAUSE = 30.0  # seconds; RFC 8767 section 5: the failure recheck timer. RFC 9520 allows five minutes
MAX_BREAKERS = 10_000


@dataclass(slots=True)
class _Breaker:
    failures: int = 0
    retry_at: float = 0.0
    why: str = ""


class CircuitBreakers:
    """Circuit breakers by key; ``threshold`` failures in a row open one. Safe for threads.

    Beyond ``size``, the breakers whose last failure is oldest are dropped.
    """

    def __init__(
        self, rng: random.Random, clock: Callable[[], float], *, threshold: int = OPEN_AFTER, size: int = MAX_BREAKERS
    ) -> None:
        self._rng = rng
        self._clock = clock
        self._threshold = threshold
        self._size = size
        self._breakers: dict[Hashable, _Breaker] = {}  # in the order of their last failures
        self._lock = ForkLock()

    def admits(self, key: Hashable) -> bool:
        """True if the caller may try. While the breaker is open, one caller gets True after each pause."""
        with self._lock:
            breaker = self._breakers.get(key)
            if breaker is None or breaker.failures < self._threshold:
                return True
            now = self._clock()
            if now < breaker.retry_at:
                return False
            breaker.retry_at = now + self._pause(breaker)
            return True

    def is_open(self, key: Hashable) -> bool:
        """True if failures opened the breaker and no success has followed, whether or not a caller may try now."""
        breaker = self._breakers.get(key)
        return breaker is not None and breaker.failures >= self._threshold

    def why(self, key: Hashable) -> str:
        """The last failure."""
        breaker = self._breakers.get(key)
        return breaker.why if breaker is not None else ""

    def succeeded(self, key: Hashable) -> None:
        with self._lock:
            self._breakers.pop(key, None)

    def failed(self, key: Hashable, why: str) -> None:
        with self._lock:
            breaker = self._breakers[key] = self._breakers.pop(key, _Breaker())
            breaker.failures += 1
            breaker.why = why
            if breaker.failures >= self._threshold:
                breaker.retry_at = self._clock() + self._pause(breaker)
            while len(self._breakers) > self._size:
                del self._breakers[next(iter(self._breakers))]

    def _pause(self, breaker: _Breaker) -> float:
        """Doubles from FIRST_PAUSE to LONGEST_PAUSE. A random part of it, a half at least, so that clients spread."""
        doublings = min(max(breaker.failures - self._threshold, 0), 16)
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**doublings) * self._rng.uniform(0.5, 1.0)
