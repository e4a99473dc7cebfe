"""SIGHUP while a server starts: it would end the process, so it waits until somebody is there to hear it.

Held by the kernel, for Python's own handlers would run in the middle of anything and have nobody to tell.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

HANGUP = (signal.SIGHUP,)


@contextmanager
def held() -> Iterator[None]:
    """Hold SIGHUP until ``heard`` or the end of this; for the main thread. Threads begun meanwhile never get it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HANGUP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def heard() -> None:
    """Somebody hears SIGHUP now, one that was held among them."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANGUP)
