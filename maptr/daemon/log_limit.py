"""Rate-limited logging for events that remote clients can trigger."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from maptr.rate_limit import TokenBuckets

INTERVAL = 60.0  # seconds
MAX_LINES = 30  # per interval


class LogLimit:
    """Allows ``most`` lines at once and in each interval. Thread-safe. ``clock`` is monotonic, in seconds."""

    def __init__(
        self, most: int = MAX_LINES, clock: Callable[[], float] = time.monotonic, *, interval: float = INTERVAL
    ) -> None:
        self._bucket = TokenBuckets(most / interval, most, clock)
        self._lock = threading.Lock()
        self._left_out = 0

    def suffix(self) -> str | None:
        """Return a line's suffix, with the number of suppressed lines before it; None if no line is allowed."""
        with self._lock:
            if self._bucket.wait(None):
                self._left_out += 1
                return None
            before, self._left_out = self._left_out, 0
            return f", and {before} more before" if before else ""
