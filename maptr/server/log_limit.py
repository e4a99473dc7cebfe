"""Rate-limited logging for events that remote clients can trigger."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

INTERVAL = 60.0  # seconds
MAX_LINES = 30  # in one interval


class LogLimit:
    """Allows the first ``most`` lines of each interval. For any thread. ``clock`` is monotonic, in seconds."""

    def __init__(
        self, most: int = MAX_LINES, clock: Callable[[], float] = time.monotonic, *, interval: float = INTERVAL
    ) -> None:
        self._most = most
        self._interval = interval
        self._clock = clock
        self._lock = threading.Lock()
        self._since = -interval
        self._logged = self._left_out = 0

    def left_out(self) -> int | None:
        """None if this line has to be left out; otherwise the number of lines left out before it, to be named in it."""
        now = self._clock()
        with self._lock:
            left_out = 0
            if now - self._since >= self._interval:
                left_out = self._left_out
                self._since, self._logged, self._left_out = now, 0, 0
            if self._logged >= self._most:
                self._left_out += 1
                return None
            self._logged += 1
            return left_out
