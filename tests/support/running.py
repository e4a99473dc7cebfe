"""A daemon in its own thread's event loop, so that tests can use blocking sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from maptr.config import Config, ServeConfig, ZoneConfig
from maptr.protocol.address import Address
from maptr.server.daemon import Daemon
from maptr.server.state import Served, ZoneState
from maptr.transfer.acl import AccessRule
from maptr.zone.snapshot import Snapshot
from tests.support.waiting import PATIENCE


class Running:
    """An event loop that runs in a thread until ``close``."""

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
    """A snapshot's zones as a server holds them, without files."""
    nowhere = Path(os.devnull)
    return {origin: ZoneState(ZoneConfig(origin, nowhere), view) for origin, view in snapshot.zones.items()}


def daemon_of(
    snapshot: Snapshot,
    *addresses: Address,
    transfer: tuple[AccessRule, ...] = (),
    **serve: Any,
) -> Daemon:
    """A daemon that answers from a snapshot on these addresses, with settings of ``[serve]``."""
    states = served(snapshot)
    zones = tuple(replace(state.zone, transfer=transfer) for state in states.values())
    return Daemon(Config(ServeConfig(listen=addresses, **serve), zones=zones), states)


@contextlib.contextmanager
def answering(daemon: Daemon) -> Iterator[Running]:
    """Bind and run the daemon; stop it at the end."""
    running = Running()
    daemon.bind()
    future = asyncio.run_coroutine_threadsafe(daemon.run(), running.loop)
    try:
        yield running
    finally:
        running.call(daemon.stop)
        future.result(PATIENCE)
        running.close()


def converse(sock: socket.socket, content: bytes, *, shut: bool = False) -> bytes:
    """Send some bytes, shut down the sending side if ``shut``, and return all bytes until the server closes."""
    with sock:
        sock.sendall(content)
        if shut:
            sock.shutdown(socket.SHUT_WR)
        received = b""
        while part := sock.recv(65536):
            received += part
    return received
