"""The listeners of a server, from start to drain: UDP in batches or one by one, TCP and TLS."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence

from maptr.server import udp
from maptr.server.connections import Certificate, Connections, TcpListener
from maptr.server.counters import Counters
from maptr.server.responder import Responder
from maptr.server.sockets import Sockets
from maptr.server.stream import TcpLimits
from maptr.server.udp import BatchListener, UdpListener


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
        self.counters = [Counters() for _ in range(1 + len(sockets.udp))]
        main, *others = self.counters
        self.responder.limiter.tally = main
        listen = UdpListener if udp.why_not() else BatchListener
        self._udp = [listen(sock, self.responder, own) for sock, own in zip(sockets.udp, others, strict=True)]
        connections = self._connections = Connections(self._limits, main)
        answer, tls = functools.partial(self.responder.answers, counters=main), self._certificate
        self._tcp = [TcpListener(sock, answer, connections) for sock in sockets.tcp]
        self._tcp += [TcpListener(sock, answer, connections, tls) for sock in sockets.tls if tls]
        for tcp_listener in self._tcp:
            tcp_listener.start()
        for udp_listener in self._udp:
            udp_listener.start()

    async def stop(self) -> None:
        """Take no more UDP queries and no more connections. Queries taken before are answered."""
        for tcp_listener in self._tcp:
            tcp_listener.stop()
        await asyncio.gather(*(udp_listener.stop() for udp_listener in self._udp))

    async def drain(self) -> None:
        """After ``stop``: close the open connections."""
        await self._connections.drain()
