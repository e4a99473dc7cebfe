"""The service manager's side of a server: readiness for systemd (sd_notify(3)), and signals."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

READY = "READY=1"
STOPPING = "STOPPING=1"

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
RELOAD_SIGNAL = signal.SIGHUP
# Ignored with a log line: NSD logs statistics at the first, Knot reloads zones, BIND reopens its log.
USER_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
BLOCKED_AT_START = (RELOAD_SIGNAL, *USER_SIGNALS)


def reloading() -> str:
    """The state at the start of a reload; READY ends it."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"


def notify(state: str, *, path: str | None = None) -> bool:
    """Send a state to systemd; False if there is no systemd to receive it. Raises nothing.

    ``path`` is the socket, by default that of NOTIFY_SOCKET; an initial ``@`` means an abstract one.
    """
    path = os.environ.get("NOTIFY_SOCKET", "") if path is None else path
    if not path.startswith(("/", "@")):
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.setblocking(False)
        sock.connect("\0" + path[1:] if path.startswith("@") else path)
        sock.send(state.encode())
        return True
    return False


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block the signals that must not end a starting server until ``unblock_signals`` or the end of the context.

    The kernel keeps them until then. For the main thread; threads that it starts meanwhile never get these signals.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_AT_START)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock_signals() -> None:
    """Receive the signals, those that the kernel has kept included: their handlers are in place."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, BLOCKED_AT_START)
