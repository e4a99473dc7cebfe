"""Lines of the log that any stranger can bring about: a few a minute, and how many there were besides.

A flood of queries must become no flood of lines: they fill disks, and hide what else is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable

MAX_LINES = 10  # in each
WINDOW = 60.0  # seconds


class Seldom:
    """Passes lines on to whoever says them. Threads may share one: at worst a line more is said."""

    def __init__(self, say: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._begun = -WINDOW
        self._said = 0
        self._unsaid = 0

    def __call__(self, line: str) -> None:
        now = self._clock()
        if now - self._begun >= WINDOW:
            self._begun, self._said = now, 0
        if self._said >= MAX_LINES:
            self._unsaid += 1
            return
        self._said += 1
        unsaid, self._unsaid = self._unsaid, 0
        self._say(f"{line}; {unsaid} more before it were not told" if unsaid else line)
