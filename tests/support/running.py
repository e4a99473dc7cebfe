"""Something async in a thread of its own: the sockets are real and the tests stay plain."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from maptr.server.daemon import Daemon
from maptr.server.state import Served, ZoneSource, ZoneState
from maptr.zone.snapshot import Snapshot

# Seconds that any one step may take before the test fails: it takes milliseconds, on a machine that is busy a second.
# Less than the server's own timeouts (10), so that a shorter one that a test asks for is told from those.
PATIENCE = 8.0


class Running:
    """An event loop that turns in a thread until ``close``."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], object]) -> None:
        self.loop.call_soon_threadsafe(function)

    def close(self) -> None:
        self.call(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()


def served(snapshot: Snapshot) -> Served:
    """The zones of a snapshot as a server has them, though no file stands behind them."""
    nowhere = Path(os.devnull)
    return Served({origin: ZoneState(ZoneSource(origin, nowhere), view) for origin, view in snapshot.zones.items()})


@contextlib.contextmanager
def answering(daemon: Daemon) -> Iterator[Running]:
    """The daemon bound and running, and stopped in the end."""
    running = Running()
    daemon.bind()
    future = asyncio.run_coroutine_threadsafe(daemon.run(), running.loop)
    try:
        yield running
    finally:
        running.call(daemon.stop)
        future.result(PATIENCE)
        running.close()


def converse(sock: socket.socket, octets: bytes, *, shut: bool = False) -> bytes:
    """Send this, with ``shut`` as the last of it, and give all that comes until the other side closes."""
    with sock:
        sock.sendall(octets)
        if shut:
            sock.shutdown(socket.SHUT_WR)
        received = b""
        while part := sock.recv(65536):
            received += part
    return received
