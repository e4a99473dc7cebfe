"""Lines of the log that anybody on the network can cause, and so must not come as often as packets do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

INTERVAL = 60.0  # seconds
MAX_LINES = 30  # in one interval


class Seldom:
    """Which lines are said: the first ``most`` of an interval. For any thread.

    ``clock`` is in seconds, and never goes back.
    """

    def __init__(
        self, most: int = MAX_LINES, clock: Callable[[], float] = time.monotonic, *, interval: float = INTERVAL
    ) -> None:
        self._most = most
        self._interval = interval
        self._clock = clock
        self._lock = threading.Lock()
        self._since = -interval
        self._said = self._left_out = 0

    def left_out(self) -> int | None:
        """How many lines are to be told of beside this one, as left out before it; None where this is left out too."""
        now = self._clock()
        with self._lock:
            left_out = 0
            if now - self._since >= self._interval:
                left_out = self._left_out
                self._since, self._said, self._left_out = now, 0, 0
            if self._said >= self._most:
                self._left_out += 1
                return None
            self._said += 1
            return left_out
