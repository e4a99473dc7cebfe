"""The half of the server that answers: from one ``State``, on the sockets of one process.

With one worker it runs beside the daemon, which gives it each next state; with several, each is a copy that was forked
with a state and keeps it (``worker.py``). What reads files and tells secondaries is ``daemon.py``.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from maptr.context import Context, Transport
from maptr.errors import ZoneError
from maptr.exchange import Access, exchange, is_plain
from maptr.fastpath import ReadyAnswers
from maptr.serve import batch, tcp, udp
from maptr.serve.background import in_thread
from maptr.serve.bind import Sockets
from maptr.serve.connections import Connections, TcpLimits
from maptr.serve.counters import Counters
from maptr.serve.early import Early
from maptr.serve.responder import Responder, make_ready
from maptr.serve.seldom import Seldom
from maptr.serve.tls import Certificate
from maptr.serve.turns import Turns
from maptr.serve.wholes import Wholes
from maptr.snapshot import Snapshot

log = logging.getLogger("maptr.serve")

MAX_BY_STREAM = 1 << 12  # whole replies to TCP and TLS, which few clients speak


@dataclass(frozen=True, slots=True)
class State:
    """Everything that replies are made of. A reload makes the next beside it, and swaps."""

    snapshot: Snapshot
    access: Access
    context: Context
    ready: ReadyAnswers

    @classmethod
    def of(cls, snapshot: Snapshot, access: Access, context: Context) -> State:
        """Takes a moment for a large zone."""
        elsewhere = [access.catalog.view.origin] if access.catalog else []
        return cls(snapshot, access, context, make_ready(snapshot, context, elsewhere))


class Front:
    """Listeners, and the answers that they give. ``counters`` are those of this process."""

    def __init__(
        self,
        responder: Responder,
        snapshot: Snapshot,
        access: Access,
        *,
        limits: TcpLimits,
        certificate: Certificate | None,
        clock: Callable[[], float],
    ) -> None:
        self.responder = responder
        self.snapshot = snapshot
        self.access = access
        self.counters: Sequence[Counters] = [Counters()]
        self.certificate = certificate
        self._limits = limits
        self._clock = clock
        self._refusals = Seldom()
        self._batched = False  # whether UDP is, and notes its queries itself
        self._wholes = Wholes(MAX_BY_STREAM)  # apart from those of UDP: other threads, other replies to ANY
        self._udp: list[udp.UdpListener | batch.BatchListener] = []
        self._tcp: list[tcp.TcpListener] = []

    @property
    def state(self) -> State | None:
        """What is answered from; None before the first ``swap``, when nothing lies ready."""
        ready = self.responder.ready
        return None if ready is None else State(self.snapshot, self.access, self.responder.context, ready)

    def swap(self, state: State) -> None:
        """Answer from this from now on."""
        self.snapshot, self.access = state.snapshot, state.access
        self.responder.context, self.responder.ready = state.context, state.ready

    def writers(self, sockets: Sockets) -> int:
        """How many ``Counters`` it takes to answer there: one for the event loop, one for each thread of UDP."""
        return 1 + len(sockets.udp)

    def start(self, sockets: Sockets, counters: Sequence[Counters], early: Early | None = None) -> None:
        """Answer on these sockets, which ``quiet`` then closes; by UDP somebody may do so already.

        For the event loop's thread.
        """
        loop = asyncio.get_running_loop()
        self.counters = counters
        main, *others = counters
        self.responder.limiter.tally = main
        self._batched = batched = batch.why_not() is None
        udp_listeners: list[udp.UdpListener | batch.BatchListener] = [
            batch.BatchListener(sock, self.responder, self._answer_for(counter), counter)
            if batched
            else udp.UdpListener(sock, self.answer)
            for sock, counter in zip(sockets.udp, others, strict=True)
            if early is None
        ]
        self._udp = udp_listeners if early is None else [*early.listeners]
        connections = Connections(
            max_connections=self._limits.max_connections,
            max_per_client=self._limits.max_per_client,
            counters=main,
        )
        plain = [(sock, None) for sock in sockets.tcp]
        secure = [(sock, self.certificate.context) for sock in sockets.tls if self.certificate]
        turns = Turns(loop)
        self._tcp = [
            tcp.TcpListener(sock, self.answers, connections, security=security, limits=self._limits, turns=turns)
            for sock, security in (*plain, *secure)
        ]
        for tcp_listener in self._tcp:
            tcp_listener.start()
        for udp_listener in udp_listeners:
            udp_listener.start(loop)
        if early is not None:
            early.open(self._answer_for)

    def _answer_for(self, counters: Counters) -> udp.Answer:
        return functools.partial(self.answer_rest, counters=counters)

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

    async def drain(self, pace: tcp.Pace) -> None:
        """After ``quiet``: end the connections that are open."""
        await asyncio.gather(*(listener.drain(pace) for listener in self._tcp))

    def answer(
        self, query: bytes, transport: Transport, client: str, *, counters: Counters | None = None
    ) -> bytes | None:
        """One reply from the snapshot of this moment. A bug in answering costs its query, not the server."""
        return next(iter(self.answers(query, transport, client, counters)), None)

    def answer_rest(self, query: bytes, transport: Transport, client: str, *, counters: Counters) -> bytes | None:
        """The same for a query for which nothing lies ready, by the shortest way. Raises whatever a bug raises."""
        if not is_plain(query, self.access):
            return self.answer(query, transport, client, counters=counters)
        reply = None
        try:
            reply = self.responder.answer(query, self.snapshot, transport=transport, client=client, counters=counters)
        finally:
            counters.count(transport, reply)
        return reply

    def answers(
        self, query: bytes, transport: Transport, client: str, counters: Counters | None = None
    ) -> Iterable[bytes]:
        """The messages of one reply, many for a transfer. Raises ZoneError, logged, where one cannot go on.

        Counted among ``counters``, by default those of the event loop.
        """
        counters = counters or self.counters[0]
        query_log = self.responder.query_log
        if query_log is not None and not (self._batched and transport is Transport.UDP):
            for _ in query_log.pick(1):
                query_log.note(query, transport, client)
        ready = self.responder.ready
        if transport is not Transport.UDP and ready is not None and ready.snapshot is self.snapshot:
            wholes = self._wholes
            if wholes.ready is not ready:
                wholes.turn_to(ready)
            octets = query[2:]
            rest = wholes.noerror.get(octets) or self._find_other(octets, client, counters)
            if rest is not None:
                reply = query[:2] + rest
                counters.count(transport, reply)
                return (reply,)
        return self._answers(query, transport, client, counters)

    def _find_other(self, octets: bytes, client: str, counters: Counters) -> bytes | None:
        """What else is known whole: in another case, with a cookie, denials. Query and reply are without ID."""
        known = self._wholes.find(octets)
        if known is None:
            return None
        rest, _, option = known
        if not option:
            return rest
        cookie = self.responder.answer_cookie(option, client)
        if cookie is None:
            return None
        counters.cookies[not cookie.verified] += 1
        return rest + cookie.option

    def _note_refused(self, line: Callable[[], str]) -> None:
        left_out = self._refusals.left_out()
        if left_out is not None:
            log.info("%s%s", line(), f", and {left_out} more before" if left_out else "")

    def _answers(self, query: bytes, transport: Transport, client: str, counters: Counters) -> Iterator[bytes]:
        snapshot = self.snapshot
        stream, begun = transport is not Transport.UDP, False
        try:
            if (found := self.responder.find(query, snapshot)) is not None:
                reply = self.responder.settle(found, query, snapshot, transport, client, counters)
                counters.count(transport, reply)
                if reply is not None:
                    begun = True
                    if stream:
                        self._wholes.learn_ready(query, found, reply)
                    yield reply
                return
            for message in exchange(
                query,
                snapshot,
                self.access,
                transport=transport,
                client=client,
                now=int(self._clock()),
                reply=functools.partial(self.responder.answer, counters=counters),
                note=log.info,
                note_refused=self._note_refused,
            ):
                if not begun:
                    counters.count(transport, message)
                begun = True
                yield message
        except ZoneError as error:
            log.error("a transfer to %s ends early: %s", client, error)
            raise
        except Exception:
            log.exception("internal error, query dropped: %s", query.hex())
            if begun:
                raise ZoneError("a transfer cut off") from None
        if not begun:
            counters.count(transport, None)
