"""Many DNS queries over few sockets: the I/O of all drivers that query plain servers.

Drives exchanges (``exchange``) on sockets that a ``Waiter`` (``selectors`` or an event loop) watches. Queries to one
server share a few connected UDP sockets, with random source ports; each outstanding query has a unique random ID on its
socket, and letters in random case. A packet that does not match all three, or is from another address, is ignored. A
query remains outstanding until its question is settled, even after another try was sent (usually at most three).
Queries over TCP and TLS share ``connections``.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections import defaultdict, deque
from collections.abc import Callable
from functools import cached_property, partial
from math import inf

from maptr.discovery import Outcome
from maptr.protocol.names import Labels
from maptr.protocol.numbers import MAX_MESSAGE, NAPTR, UDP_PAYLOAD
from maptr.rate_limit import TokenBuckets
from maptr.resolver.connections import (
    CLOSED,
    MAX_CONNECTIONS,
    OTHER_QUESTION,
    TOO_MANY_FILES,
    Ready,
    TcpConnection,
    TcpPool,
    UnansweredError,
    Waiter,
    family,
)
from maptr.resolver.exchange import Attempt
from maptr.resolver.servers import FailedServers, Server
from maptr.resolver.stub import AnyExchange, Stub
from maptr.walk import Answer

CONCURRENCY = 256  # questions outstanding
MAX_CONCURRENCY = 10_000  # all may be on one socket, which has 65,536 IDs
SOCKETS = 4  # for each server: source ports that a forger must guess, besides ID and letters (RFC 5452 9.2)
MAX_SOCKETS = 128  # of all servers; above it those without an outstanding query are closed
REUSES = 10_000  # queries after which a socket is replaced by one with a new port
MAX_BURSTS = 64  # read from one socket before queries are given up
BURST = 64  # packets read from one socket before the others are read
RATE_BURST = 0.01  # seconds' worth of the rate that may be sent at once, plus one packet

Done = Callable[[Answer], None]


class SelectorWaiter:
    def __init__(self) -> None:
        # For a few sockets, poll() is faster than epoll; Windows does not have it.
        self._selector = getattr(selectors, "PollSelector", selectors.DefaultSelector)()

    def watch(self, sock: socket.socket, ready: Ready, *, write: bool = False) -> None:
        self._selector.register(sock, selectors.EVENT_WRITE if write else selectors.EVENT_READ, ready)

    def unwatch(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)

    def wait(self, seconds: float | None) -> None:
        for key, _ in self._selector.select(seconds):
            key.data()

    async def pause(self, seconds: float | None) -> None:
        """``wait`` in a coroutine that has no event loop."""
        self.wait(seconds)

    def wake(self) -> None:
        """Do nothing: the sockets themselves end a wait."""

    def close(self) -> None:
        self._selector.close()


class Pending:
    """One question. It is queued until an attempt is sent, and again after each attempt until the next one is sent, so
    it is *outstanding* from its first turn in the queue until its answer is passed to ``done``.

    ``deadline`` bounds it, and ``seconds`` do from its first packet on.
    """

    attempt: Attempt | None = None  # the one that was sent, or that is to be sent next
    until = inf  # when the attempt that was sent times out; inf while the question is queued
    deadline = inf
    started: float | None = None  # when its first packet was sent
    tcp: tuple[TcpConnection, bytes] | None = None  # and the ID there
    sent: tuple[SentByUdp, ...] = ()
    silent: frozenset[Server] = frozenset()  # servers that gave no response for the whole time of an attempt

    def __init__(self, exchange: AnyExchange, done: Done, seconds: float) -> None:
        self.exchange = exchange
        self.done = done
        self.seconds = seconds

    @property
    def is_queued(self) -> bool:
        return self.until == inf

    def start(self, now: float) -> None:
        """Count the time of the question from its first packet."""
        if self.started is None:
            self.started = now
            self.deadline = min(self.deadline, now + self.seconds)


SentByUdp = tuple[Pending, Attempt, "UdpSocket", bytes]
"""An outstanding query, its socket and its ID there."""


class UdpSocket:
    """One connected UDP socket to one server, with the queries outstanding on it by ID. Raises OSError.

    The operating system picks a random source port, and drops packets of other addresses.
    """

    def __init__(self, server: Server) -> None:
        self.sock = socket.socket(family(server), socket.SOCK_DGRAM)
        try:
            self.sock.connect(server.socket_address)
        except BaseException:
            self.sock.close()
            raise
        self.sock.setblocking(False)
        self.pending: dict[bytes, SentByUdp] = {}
        self.uses = 1


class SocketPool:
    """The UDP sockets to each server, used in turn.

    ``read`` is called with a socket that can be read, and returns whether there may be more.
    """

    def __init__(self, waiter: Waiter, read: Callable[[UdpSocket], bool]) -> None:
        self._waiter = waiter
        self._read = read
        self._sockets: defaultdict[Server, list[UdpSocket]] = defaultdict(list)
        self._turn = 0

    def next(self, server: Server) -> UdpSocket:
        """Return the socket for the next query to this server. Raises OSError."""
        sockets = self._sockets[server]
        if len(sockets) < SOCKETS:
            try:
                sockets.append(self._open(server))
                return sockets[-1]
            except OSError as error:
                if not sockets or error.errno not in TOO_MANY_FILES:
                    raise
        self._turn = index = (self._turn + 1) % len(sockets)
        chosen = sockets[index]
        chosen.uses += 1
        if chosen.uses > REUSES and not chosen.pending:
            self._retire(chosen)
            chosen = sockets[index] = self._open(server)
        return chosen

    def read_all(self) -> None:
        for one in [one for sockets in self._sockets.values() for one in sockets]:
            for _ in range(MAX_BURSTS):
                if not one.pending or not self._read(one):
                    break

    def close(self) -> None:
        for sockets in self._sockets.values():
            for one in sockets:
                self._retire(one)
        self._sockets.clear()

    def _open(self, server: Server) -> UdpSocket:
        if sum(map(len, self._sockets.values())) >= MAX_SOCKETS:
            self._close_unused(server)
        made = UdpSocket(server)
        self._waiter.watch(made.sock, partial(self._read, made))
        return made

    def _close_unused(self, but: Server) -> None:
        """Close sockets of other servers: referrals may lead to a server for each NAAN."""
        for server in [server for server in self._sockets if server != but]:
            for one in [one for one in self._sockets[server] if not one.pending]:
                self._retire(one)
                self._sockets[server].remove(one)
            if not self._sockets[server]:
                del self._sockets[server]

    def _retire(self, one: UdpSocket) -> None:
        self._waiter.unwatch(one.sock)
        one.sock.close()


class _Queues:
    """The questions that wait: those of the next attempt, those that a walk waits for, and the others."""

    def __init__(self) -> None:
        self.again: deque[Pending] = deque()
        self.first: deque[Pending] = deque()
        self.others: deque[Pending] = deque()

    def next(self, *, new: bool) -> Pending | None:
        """Return the next question to send; a ``new`` one only on request."""
        if self.again:
            return self.again.popleft()
        queue = self.first or self.others
        return queue.popleft() if new and queue else None


class Multiplexer:
    """Sends the questions given to ``ask``, within limits. Call ``tick()`` after every wait, and when the delay that it
    returns is over.

    ``rate`` is the number of packets per second to each server, None for no limit; ``max_connections`` limits TCP.
    ``tcp`` are connections shared with other multiplexers, by default its own.
    ``failed`` has the servers that are not queried for a while; those that fail are added.
    """

    def __init__(
        self,
        stub: Stub,
        waiter: Waiter,
        *,
        concurrency: int = CONCURRENCY,
        rate: float | None = None,
        max_connections: int = MAX_CONNECTIONS,
        tcp: TcpPool | None = None,
        failed: FailedServers | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stub = stub
        self._failed = failed
        self._waiter = waiter
        self.concurrency = concurrency
        # The first question alone looks up the keys that validate the others.
        self._concurrency = concurrency if stub.validator is None else 1
        self._packets = TokenBuckets(rate or 0.0, 1 + (rate or 0.0) * RATE_BURST, clock)  # to each server
        self._clock = clock
        self._queues = _Queues()
        self._outstanding: dict[Pending, None] = {}  # in order of their first packets
        self._next_timeout = inf  # no attempt times out before this
        self._shared_tcp = tcp
        self._max_connections = max_connections
        self._sockets = SocketPool(waiter, self._read)

    def ask(
        self, name: Labels, done: Done, rdtype: int = NAPTR, *, seconds: float = inf, deadline: float | None = None
    ) -> None:
        """Queue a question; before all others if it has a ``deadline``, because a walk waits for it.

        ``done`` receives the answer, from within ``tick()`` or a callback of the waiter. ``seconds`` bounds the
        question from its first packet on.
        """
        pending = Pending(self._stub.exchange(name, rdtype), done, seconds)
        if deadline is None:
            self._queues.others.append(pending)
        else:
            pending.deadline = deadline
            self._queues.first.append(pending)

    @cached_property
    def _tcp(self) -> TcpPool:
        if self._shared_tcp is not None:
            return self._shared_tcp
        return TcpPool(self._waiter, self._max_connections, lambda: self._stub.tls_context)

    @property
    def waiting(self) -> int:
        return len(self._queues.others) + len(self._queues.first)

    def tick(self) -> float | None:
        """Send queued queries within the limits, and end attempts that have timed out.

        Returns the seconds until the next call is due, None for never.
        """
        self.expire()
        return self.send()

    def expire(self) -> None:
        """End attempts that have timed out."""
        now = self._clock()
        if self._next_timeout <= now:
            self._sockets.read_all()  # a response that has come is not late
            now = self._clock()
            self._next_timeout = inf
            for pending in list(self._outstanding):
                if pending.until <= now and pending.attempt is not None:
                    self._time_out(pending, pending.attempt)
                self._next_timeout = min(self._next_timeout, pending.until)

    def send(self) -> float | None:
        """Send queued queries within the limits. Returns what ``tick`` returns."""
        now = self._clock()
        held = self._send(now)
        wait = min(self._next_timeout - now, held or inf)
        return None if wait == inf else max(0.0, wait)

    def close(self) -> None:
        """Close every socket, and the waiter. Outstanding questions are not answered."""
        self._sockets.close()
        for pending in self._outstanding:
            self._withdraw(pending)
        if self._shared_tcp is None and "_tcp" in vars(self):
            self._tcp.close()
        self._waiter.close()

    # ---- sending

    def _send(self, now: float) -> float:
        """Send until the queues are empty or a limit is reached. Returns the seconds to wait for the rate, or 0."""
        pause = 0.0
        held: list[Pending] = []  # by a limit, in their order
        while not pause:
            pending = self._queues.next(new=len(self._outstanding) < self._concurrency)
            if pending is None:
                break
            self._outstanding[pending] = None
            pending.attempt = attempt = pending.attempt or self._next_attempt(pending)
            if attempt is None or pending.deadline <= now or pending.seconds <= 0:
                self._finish(pending, now)
                continue
            pause = self._packets.wait(attempt.server)
            if pause or (attempt.tcp and not self._has_room(attempt.server)):
                held.append(pending)
                continue
            pending.start(now)
            if not self._start(pending, attempt, now):
                held.append(pending)
        for pending in reversed(held):
            self._queues.again.appendleft(pending)
            self._next_timeout = min(self._next_timeout, pending.deadline)
        return pause

    def _has_room(self, server: Server) -> bool:
        """Return whether a TCP connection can take an attempt; if none can, have the waiter woken when one can."""
        if self._tcp.has_room(server):
            return True
        self._tcp.wake_later(self._waiter)
        return False

    def _next_attempt(self, pending: Pending) -> Attempt | None:
        """Return the next attempt at a server that may be queried; None if the question is settled."""
        attempt = pending.exchange.next()
        if self._failed is not None:
            while attempt is not None and (failure := self._failed.get(attempt.server)) is not None:
                attempt.exchange.skipped(attempt, failure)
                attempt = pending.exchange.next()
        return attempt

    def _start(self, pending: Pending, attempt: Attempt, now: float) -> bool:
        """Send an attempt. Returns False if the process may not open a connection until another is closed."""
        pending.until = min(pending.deadline, now + attempt.seconds)
        try:
            if attempt.tcp:
                connection = self._tcp.connection(attempt.server)
                if connection is None:
                    pending.until = inf  # still queued
                    return False
                self._send_tcp(pending, attempt, connection)
            else:
                self._send_udp(pending, attempt)
        except BlockingIOError:
            pass  # no socket for it now, or a full send buffer: the packet is lost, as in the network
        except OSError as error:
            self._fail(pending, attempt, error)
            return True
        self._next_timeout = min(self._next_timeout, pending.until)
        return True

    def _send_udp(self, pending: Pending, attempt: Attempt) -> None:
        """Send over UDP, with another ID if the attempt's is in use on the socket. Raises OSError."""
        used = self._sockets.next(attempt.server)
        ident = attempt.query.packet[:2]
        while ident in used.pending:
            ident = os.urandom(2)
        attempt = self._with_id(pending, attempt, ident)
        used.pending[ident] = sent = pending, attempt, used, ident
        pending.sent += (sent,)
        used.sock.send(attempt.query.packet)

    def _send_tcp(self, pending: Pending, attempt: Attempt, connection: TcpConnection) -> None:
        """Send on a connection, with another ID if the attempt's is in use there."""
        ident = attempt.query.packet[:2]
        while not connection.is_free(ident):
            ident = os.urandom(2)
        attempt = self._with_id(pending, attempt, ident)
        pending.tcp = connection, ident
        connection.ask(ident, attempt.query.packet, partial(self._received_by_tcp, pending, attempt))

    def _with_id(self, pending: Pending, attempt: Attempt, ident: bytes) -> Attempt:
        """Return the attempt of a question with this ID."""
        packet = attempt.query.packet
        if ident != packet[:2]:
            query = attempt.query._replace(packet=ident + packet[2:])
            pending.attempt = attempt = attempt._replace(query=query)
        return attempt

    # ---- receiving

    def _read(self, one: UdpSocket) -> bool:
        """Read one burst of packets; False if none is left."""
        receive, pending_of = one.sock.recv, one.pending.get
        for _ in range(BURST):
            try:
                packet = receive(MAX_MESSAGE)
            except BlockingIOError:
                return False
            except OSError as error:  # an ICMP error does not say which query it is for: it counts for all
                for pending, attempt, *_ in list(one.pending.values()):
                    if attempt is pending.attempt:
                        self._fail(pending, attempt, error)
                return True
            found = pending_of(packet[:2])
            if found is None:
                continue
            pending, attempt, _, _ = found
            if (
                len(packet) <= UDP_PAYLOAD or self._clock() < pending.deadline  # reading a large one takes time
            ) and attempt.exchange.receive(attempt, packet):
                self._responded(pending, attempt.server)
                del one.pending[packet[:2]]  # a copy of the packet says nothing new
                self._ended(pending)
                if not one.pending:
                    return False
        return True

    def _received_by_tcp(self, pending: Pending, attempt: Attempt, came: bytes | OSError) -> None:
        pending.tcp = None
        self._waiter.wake()  # the connection may be watched by another waiter
        if isinstance(came, UnansweredError):
            self._ended(pending)
        elif isinstance(came, CLOSED):
            attempt.exchange.closed_early(attempt)
            self._ended(pending)
        elif isinstance(came, OSError):
            self._fail(pending, attempt, came)
        elif self._clock() >= pending.deadline:
            self._time_out(pending, attempt)
        elif attempt.exchange.receive(attempt, came):
            self._responded(pending, attempt.server)
            self._ended(pending)
        else:
            self._fail(pending, attempt, OSError(OTHER_QUESTION))

    def _fail(self, pending: Pending, attempt: Attempt, error: OSError) -> None:
        attempt.exchange.unreachable(attempt, error.strerror or error)
        self._stub.demote(attempt.server)
        if self._failed is not None and _is_of_server(attempt) and error.errno not in TOO_MANY_FILES:
            self._failed.add(attempt.server, Outcome.UNREACHABLE, str(error.strerror or error))
        self._ended(pending)

    def _time_out(self, pending: Pending, attempt: Attempt) -> None:
        attempt.exchange.timed_out(attempt)
        if pending.until < pending.deadline and _is_of_server(attempt):
            pending.silent |= {attempt.server}
        self._concurrency = self.concurrency
        self._stub.demote(attempt.server)
        self._ended(pending)

    def _ended(self, pending: Pending) -> None:
        """After an attempt: finish a question that is settled or whose time is over, else queue the next attempt."""
        self._withdraw(pending)
        was_queued = pending.is_queued  # and a late response came
        pending.until = inf
        pending.attempt = None if pending.exchange.answer else self._next_attempt(pending)
        now = self._clock()
        if pending.attempt is not None and now < pending.deadline:
            if not was_queued:
                self._queues.again.append(pending)
            return
        if was_queued:
            self._queues.again.remove(pending)
        self._finish(pending, now)

    def _finish(self, pending: Pending, now: float) -> None:
        del self._outstanding[pending]
        for _, _, used, ident in pending.sent:
            used.pending.pop(ident, None)
        pending.sent = ()  # they refer to it
        self._concurrency = self.concurrency
        answer = pending.exchange.answer or pending.exchange.unanswered()
        if self._failed is not None and answer.outcome is Outcome.TIMEOUT:
            for server in pending.silent:
                self._failed.add(server, Outcome.TIMEOUT, "no reply")
        pending.done(answer.after(0.0 if pending.started is None else now - pending.started))

    def _responded(self, pending: Pending, server: Server) -> None:
        if self._failed is not None:
            pending.silent -= {server}
            self._failed.discard(server)

    def _withdraw(self, pending: Pending) -> None:
        """Give up the query that is outstanding over TCP."""
        if pending.tcp is not None:
            connection, ident = pending.tcp
            pending.tcp = None
            connection.withdraw(ident)


def _is_of_server(attempt: Attempt) -> bool:
    """Return whether a failure is the server's, and not only TCP's at a server that is queried over UDP first."""
    return attempt.tcp == attempt.server.tcp
