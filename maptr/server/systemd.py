"""Telling systemd how we are (sd_notify(3)): one datagram to the socket it names. Elsewhere nothing happens."""

from __future__ import annotations

import contextlib
import os
import socket
import time

READY = "READY=1"
STOPPING = "STOPPING=1"


def reloading() -> str:
    """What a reload begins with; READY ends it."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"


def notify(state: str, *, path: str | None = None) -> bool:
    """Send a state; False where nobody asked for it or nobody listens. Raises nothing.

    ``path`` is the socket, by default that of NOTIFY_SOCKET; ``@`` begins an abstract one.
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
