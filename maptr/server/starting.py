"""Responses over UDP during a long start: SERVFAIL, with the extended error "not ready" (RFC 8914 4.15).

After a short start, the server answers the queries that wait in the kernel. In a long one, resolvers would wait until
their timeout before they ask another server; after an error they ask it at once.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
from collections.abc import Sequence

from maptr.server.counters import Counters
from maptr.server.responder import Responder
from maptr.server.udp import answer_waiting

log = logging.getLogger("maptr.serve")

SHORT_START = 2.0  # seconds: about as long as resolvers wait before they ask another server
WAIT = 0.25  # seconds between two checks whether the server is ready


class NotReady:
    """Answers on UDP sockets from a ``responder`` that has no zones yet, in its own thread, until ``stop``."""

    def __init__(self, sockets: Sequence[socket.socket], responder: Responder, counters: Counters) -> None:
        self._sockets = sockets
        self._responder = responder
        self._counters = counters
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="not ready", daemon=True)

    def start(self) -> None:
        with contextlib.suppress(RuntimeError):  # if the system allows no thread, the queries wait
            self._thread.start()

    def stop(self) -> None:
        """Stop, so that the responder and the sockets may be used elsewhere. A second call does nothing."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        if self._stopping.wait(SHORT_START):
            return
        log.info("not ready yet: queries over UDP get SERVFAIL until the zones are loaded")
        with selectors.DefaultSelector() as selector:
            for sock in self._sockets:
                selector.register(sock, selectors.EVENT_READ, sock)
            while not self._stopping.is_set():
                for key, _ in selector.select(WAIT):
                    answer_waiting(key.data, self._responder, self._counters)
