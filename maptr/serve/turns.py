"""Turns of those streams that have more to send, one after the other, and none so long that new queries wait for it.

The event loop calls all that is ready before it looks what has come: with a hundred zone transfers under way, a query
by TCP waited for a message of each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

AT_A_TIME = 0.005  # seconds of turns before the event loop looks what has come; a message of a transfer takes some


class Turns:
    """Those that wait for their turn, in the order in which they came. For the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], object]] = deque()
        self._coming = False

    def add(self, turn: Callable[[], object]) -> None:
        """Have this called soon."""
        self._waiting.append(turn)
        if not self._coming:
            self._coming = True
            self._loop.call_soon(self._take)

    def _take(self) -> None:
        end = self._loop.time() + AT_A_TIME
        try:
            while self._waiting:
                self._waiting.popleft()()
                if self._loop.time() >= end:
                    return
        finally:  # a turn that fails takes no other along
            self._coming = bool(self._waiting)
            if self._coming:
                self._loop.call_soon(self._take)
