"""The first answers of a start: UDP is answered in batches as soon as there are zones, while the rest is imported.

asyncio, TLS, transfers and all else that a query by UDP seldom needs take as long to import as everything before. The
listeners are threads, so they begin without it; a query that has no ready answer waits until the daemon takes them
over. With several workers nothing begins early: whoever forks must be alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from maptr.config import Config
from maptr.context import Transport
from maptr.serve import batch, settings
from maptr.serve.bind import Sockets, bind
from maptr.serve.counters import Counters
from maptr.serve.responder import Responder
from maptr.serve.udp import Answer
from maptr.snapshot import Snapshot


class Early:
    """Sockets that are bound, and who answers on them. ``start`` makes one; then ``open`` or ``stop`` it."""

    def __init__(self, sockets: Sockets, responder: Responder) -> None:
        self.sockets = sockets
        self.responder = responder
        self.counters = Counters.shared(1 + len(sockets.udp))
        responder.limiter.tally = self.counters[0]
        self._gates = [_Gate() for _ in sockets.udp]
        self.listeners = [
            batch.BatchListener(sock, responder, gate, counters)
            for sock, gate, counters in zip(sockets.udp, self._gates, self.counters[1:], strict=True)
        ]
        for listener in self.listeners:
            listener.start()

    def open(self, answer: Callable[[Counters], Answer]) -> None:
        """Have all other queries answered, too, by what this gives for the counters of each listener."""
        for gate, counters in zip(self._gates, self.counters[1:], strict=True):
            gate.open(answer(counters))

    def stop(self) -> None:
        """For a start that failed: close everything."""
        self.open(lambda _: _no_answer)
        for listener in self.listeners:
            listener.stop()
        self.sockets.close()


def start(config: Config, snapshot: Snapshot, sockets: Sockets | None = None) -> Early | None:
    """Bind where there are no sockets, and answer from the snapshot; None where that must wait for the daemon.

    Raises ConfigError.
    """
    if config.serve.workers > 1 or batch.why_not() is not None:
        return None
    responder = settings.responder_of(config)
    catalog = config.serve.catalog.name
    responder.prepare(snapshot, () if catalog is None else (catalog,))
    if sockets is None:
        (sockets,) = bind(config.serve.listen, config.serve.tls.listen)
    return Early(sockets, responder)


class _Gate:
    """Answers once it is open; until then whoever asks waits."""

    def __init__(self) -> None:
        self._answer: Answer | None = None
        self._opened = threading.Event()

    def open(self, answer: Answer) -> None:
        self._answer = answer
        self._opened.set()

    def __call__(self, query: bytes, transport: Transport, client: str) -> bytes | None:
        if self._answer is None:
            self._opened.wait()
        return None if self._answer is None else self._answer(query, transport, client)


def _no_answer(query: bytes, transport: Transport, client: str) -> bytes | None:
    return None
