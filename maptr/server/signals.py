"""Signals to a server: which of them stop it, and which must not end it.

While it starts the latter wait until somebody is there to hear them, held by the kernel, for Python's own handlers
would run in the middle of anything and have nobody to tell.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

STOP = (signal.SIGTERM, signal.SIGINT)
RELOAD = signal.SIGHUP
# NSD logs statistics at the first, Knot reloads zones, BIND opens its log again: whoever expects that loses no server.
USER = (signal.SIGUSR1, signal.SIGUSR2)
HELD = (RELOAD, *USER)


@contextmanager
def held() -> Iterator[None]:
    """Hold what must not end it until ``heard`` or the end of this; for the main thread.

    Threads begun meanwhile never get these signals.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def heard() -> None:
    """Somebody hears them now, those that were held among them."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
