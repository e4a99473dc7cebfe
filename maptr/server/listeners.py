"""The listeners of a server, from start to drain: UDP in batches or one by one, TCP and TLS."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Sequence

from maptr.answer.context import Transport
from maptr.server import batch
from maptr.server.background import in_thread
from maptr.server.batch import BatchListener
from maptr.server.connections import Certificate, Connections, TcpListener
from maptr.server.counters import Counters
from maptr.server.responder import Responder
from maptr.server.sockets import Sockets, is_wildcard
from maptr.server.stream import RoundRobin, TcpLimits
from maptr.server.udp import UdpListener


class Listeners:
    """Answers on sockets with a responder. The first of ``counters`` is the event loop's, each other a UDP socket's."""

    def __init__(self, responder: Responder, *, limits: TcpLimits, certificate: Certificate | None) -> None:
        self.responder = responder
        self.counters: Sequence[Counters] = [Counters()]
        self._limits = limits
        self._certificate = certificate
        self._udp: list[UdpListener | BatchListener] = []
        self._tcp: list[TcpListener] = []

    def start(self, sockets: Sockets) -> None:
        """Answer on these sockets, which ``stop`` closes. For the event loop's thread."""
        loop = asyncio.get_running_loop()
        self.counters = [Counters() for _ in range(1 + len(sockets.udp))]
        main, *others = self.counters
        self.responder.limiter.tally = main
        batched = batch.why_not() is None
        self._udp = [
            BatchListener(sock, self.responder, counters, wildcard=is_wildcard(sock))
            if batched
            else UdpListener(sock, functools.partial(self.responder.answer, counters=counters))
            for sock, counters in zip(sockets.udp, others, strict=True)
        ]
        connections = Connections(self._limits, main)
        plain = [(sock, None) for sock in sockets.tcp]
        secure = [(sock, self._certificate.context) for sock in sockets.tls if self._certificate]
        scheduler = RoundRobin(loop)
        self._tcp = [
            TcpListener(sock, self._answers, connections, security=security, limits=self._limits, scheduler=scheduler)
            for sock, security in (*plain, *secure)
        ]
        for tcp_listener in self._tcp:
            tcp_listener.start()
        for udp_listener in self._udp:
            udp_listener.start(loop)

    async def stop(self) -> None:
        """Take no more UDP queries and no more connections. Queries taken before are answered."""
        loop = asyncio.get_running_loop()
        for tcp_listener in self._tcp:
            tcp_listener.stop()
        # Beside each other and in threads: each may take a moment to notice.
        await asyncio.gather(
            *(in_thread(functools.partial(o.stop, loop)) for o in self._udp if isinstance(o, BatchListener))
        )
        for udp_listener in self._udp:
            if isinstance(udp_listener, UdpListener):
                udp_listener.stop(loop)
        self._udp = []

    async def drain(self) -> None:
        """After ``stop``: close the open connections."""
        await asyncio.gather(*(listener.drain() for listener in self._tcp))

    def _answers(self, query: bytes, transport: Transport, client: str) -> Iterable[bytes]:
        return self.responder.answers(query, transport, client, self.counters[0])
