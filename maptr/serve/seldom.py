"""Lines of the log that anybody on the network can cause, and so must not come as often as packets do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

INTERVAL = 60.0  # seconds
MAX_LINES = 30  # in one interval


class Seldom:
    """Says the first lines of an interval, and with the first one of the next, how many were left out.

    For any thread. ``clock`` is in seconds, and never goes back.
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._lock = threading.Lock()
        self._since = -INTERVAL
        self._said = self._left_out = 0

    def __call__(self, line: str) -> None:
        now = self._clock()
        with self._lock:
            left_out = 0
            if now - self._since >= INTERVAL:
                left_out = self._left_out
                self._since, self._said, self._left_out = now, 0, 0
            if self._said >= MAX_LINES:
                self._left_out += 1
                return
            self._said += 1
        self._say(f"{line}, and {left_out} more before" if left_out else line)
