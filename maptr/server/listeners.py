"""The listeners of a server: UDP in batches or one by one, TCP and TLS, from start to drain."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Sequence

from maptr.answer.context import Transport
from maptr.server import batch, tcp, udp
from maptr.server.background import in_thread
from maptr.server.bind import Sockets
from maptr.server.connections import Connections, TcpLimits
from maptr.server.counters import Counters
from maptr.server.responder import Responder
from maptr.server.stream import Turns
from maptr.server.tls import Certificate


class Listeners:
    """Answers on sockets by a responder. The first of ``counters`` is the event loop's, the others are UDP threads'."""

    def __init__(self, responder: Responder, *, limits: TcpLimits, certificate: Certificate | None) -> None:
        self.responder = responder
        self.counters: Sequence[Counters] = [Counters()]
        self._limits = limits
        self._certificate = certificate
        self._udp: list[udp.UdpListener | batch.BatchListener] = []
        self._tcp: list[tcp.TcpListener] = []

    def start(self, sockets: Sockets) -> None:
        """Answer on these sockets, which ``quiet`` closes. For the event loop's thread."""
        loop = asyncio.get_running_loop()
        self.counters = [Counters() for _ in range(1 + len(sockets.udp))]
        main, *others = self.counters
        self.responder.limiter.tally = main
        batched = batch.why_not() is None
        self._udp = [
            batch.BatchListener(sock, self.responder, counters, anywhere=udp.is_anywhere(sock))
            if batched
            else udp.UdpListener(sock, functools.partial(self.responder.answer, counters=counters))
            for sock, counters in zip(sockets.udp, others, strict=True)
        ]
        connections = Connections(
            max_connections=self._limits.max_connections,
            max_per_client=self._limits.max_per_client,
            counters=main,
        )
        plain = [(sock, None) for sock in sockets.tcp]
        secure = [(sock, self._certificate.context) for sock in sockets.tls if self._certificate]
        turns = Turns(loop)
        self._tcp = [
            tcp.TcpListener(sock, self._answers, connections, security=security, limits=self._limits, turns=turns)
            for sock, security in (*plain, *secure)
        ]
        for tcp_listener in self._tcp:
            tcp_listener.start()
        for udp_listener in self._udp:
            udp_listener.start(loop)

    async def quiet(self) -> None:
        """Take no more queries by UDP and no more connections; what was taken is answered."""
        loop = asyncio.get_running_loop()
        for tcp_listener in self._tcp:
            tcp_listener.quiet()
        # Each may take a moment to notice, and connections shall not wait for that.
        await asyncio.gather(
            *(in_thread(functools.partial(o.stop, loop)) for o in self._udp if isinstance(o, batch.BatchListener))
        )
        for udp_listener in self._udp:
            if isinstance(udp_listener, udp.UdpListener):
                udp_listener.stop(loop)
        self._udp = []

    async def drain(self) -> None:
        """After ``quiet``: end the connections that are open."""
        await asyncio.gather(*(listener.drain() for listener in self._tcp))

    def _answers(self, query: bytes, transport: Transport, client: str) -> Iterable[bytes]:
        return self.responder.answers(query, transport, client, self.counters[0])
