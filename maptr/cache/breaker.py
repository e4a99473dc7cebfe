"""A circuit in front of a server: after some failures in a row it is open, and callers fail at once.

Now and then, with growing and jittered pauses, one caller may try; the first success closes it. The same
pauses serve a single name whose answer keeps failing (RFC 9520 section 3.2).
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Hashable

from maptr.files import ForkLock

OPEN_AFTER = 3  # failures in a row
FIRST_PAUSE = 1.0  # seconds; RFC 9520 section 3.2: failures are kept for a second at least
LONGEST_PAUSE = 30.0  # seconds; RFC 8767 section 5's failure recheck timer. RFC 9520 allows five minutes
MAX_CIRCUITS = 10_000


class Circuit:
    """One server's, or one name's, state. Not locked: ``Circuits`` does that."""

    __slots__ = ("failures", "retry_at", "why")

    def __init__(self) -> None:
        self.failures = 0
        self.retry_at = 0.0
        self.why = ""


class Circuits:
    """Circuits by key, those of least use forgotten first. ``threshold`` failures in a row open one. For threads."""

    def __init__(
        self, rng: random.Random, clock: Callable[[], float], *, threshold: int = OPEN_AFTER, size: int = MAX_CIRCUITS
    ) -> None:
        self._rng = rng
        self._clock = clock
        self._threshold = threshold
        self._size = size
        self._circuits: OrderedDict[Hashable, Circuit] = OrderedDict()
        self._lock = ForkLock()

    def admits(self, key: Hashable) -> bool:
        """True where a caller may try. With an open circuit only one may after each pause, and claims it here."""
        with self._lock:
            circuit = self._circuits.get(key)
            if circuit is None or circuit.failures < self._threshold:
                return True
            now = self._clock()
            if now < circuit.retry_at:
                return False
            circuit.retry_at = now + self._pause(circuit)
            return True

    def is_open(self, key: Hashable) -> bool:
        """True while failures in a row have not been followed by a success, whether or not one may try again now."""
        circuit = self._circuits.get(key)
        return circuit is not None and circuit.failures >= self._threshold

    def why(self, key: Hashable) -> str:
        """What went wrong last."""
        circuit = self._circuits.get(key)
        return circuit.why if circuit is not None else ""

    def succeeded(self, key: Hashable) -> None:
        with self._lock:
            self._circuits.pop(key, None)

    def failed(self, key: Hashable, why: str) -> None:
        with self._lock:
            circuit = self._circuits.setdefault(key, Circuit())
            self._circuits.move_to_end(key)
            circuit.failures += 1
            circuit.why = why
            if circuit.failures >= self._threshold:
                circuit.retry_at = self._clock() + self._pause(circuit)
            while len(self._circuits) > self._size:
                self._circuits.popitem(last=False)

    def _pause(self, circuit: Circuit) -> float:
        """Doubling from FIRST_PAUSE to LONGEST_PAUSE, and between a half and the whole of that, so that many
        clients do not come back as one."""
        doublings = min(max(circuit.failures - self._threshold, 0), 16)
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**doublings) * self._rng.uniform(0.5, 1.0)
