"""Many questions over few sockets: the I/O of bulk lookups and of the async client.

Drives exchanges (``exchange``) on sockets that a ``Waiter`` (``selectors`` or an event loop) watches. Queries to one
server share a few connected UDP sockets; each outstanding query has an ID of its own on its socket, and letters in
random case. A query over TCP has a connection of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Protocol

from maptr.client.exchange import Asked, Attempt, Server
from maptr.client.stub import Stub, family, framed, open_udp
from maptr.protocol.names import Labels
from maptr.protocol.numbers import MAX_MESSAGE, NAPTR, UDP_PAYLOAD
from maptr.walk import Answer

if TYPE_CHECKING:
    pass

Ready = Callable[[], None]


class Waiter(Protocol):
    """Who calls back when a socket can be read, or written."""

    def watch(self, sock: socket.socket, ready: Ready, *, write: bool = False) -> None: ...
    def unwatch(self, sock: socket.socket) -> None: ...


class SelectorWaiter:
    """Waits on ``selectors``."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, sock: socket.socket, ready: Ready, *, write: bool = False) -> None:
        self._selector.register(sock, selectors.EVENT_WRITE if write else selectors.EVENT_READ, ready)

    def unwatch(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)

    def wait(self, seconds: float | None) -> None:
        for key, _ in self._selector.select(seconds):
            key.data()

    def close(self) -> None:
        self._selector.close()


class LoopWaiter:
    """Waits on the running event loop (one with ``add_reader``, as everywhere but on Windows)."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def watch(self, sock: socket.socket, ready: Ready, *, write: bool = False) -> None:
        (self._loop.add_writer if write else self._loop.add_reader)(sock, self._call, ready)

    def unwatch(self, sock: socket.socket) -> None:
        self._loop.remove_reader(sock)
        self._loop.remove_writer(sock)

    def _call(self, ready: Ready) -> None:
        ready()
        self._event.set()

    async def wait(self, seconds: float | None) -> None:
        if seconds == 0:
            await asyncio.sleep(0)
            return
        timer = None if seconds is None else self._loop.call_later(seconds, self._event.set)
        try:
            await self._event.wait()
        finally:
            self._event.clear()
            if timer is not None:
                timer.cancel()


SOCKETS = 4  # for each server: source ports a forger must guess among, on top of ID and letters
REUSES = 10_000  # questions after which a socket gives way to one with a new port
MAX_BURSTS = 64  # read from one socket before questions are given up
BURST = 64  # packets read from one socket before the others get their turn
RECEIVE_BUFFER = 1 << 20  # octets; the kernel cuts it to net.core.rmem_max


class Port:
    """One UDP socket to one server, and what is outstanding on it by ID. Raises OSError."""

    __slots__ = ("flights", "reuses", "server", "sock")

    def __init__(self, server: Server) -> None:
        self.server = server
        self.sock = open_udp(server)
        self.sock.setblocking(False)
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self.flights: dict[bytes, Flight] = {}
        self.reuses = 0


class Ports:
    """The ports to each server, used in turn; ``read`` is called with one where something has come by it, and gives
    whether there may be more."""

    def __init__(self, waiter: Waiter, read: Callable[[Port], bool]) -> None:
        self._waiter = waiter
        self._read = read
        self._ports: dict[Server, list[Port]] = {}
        self._turn = 0

    def next(self, server: Server) -> Port:
        """The port for the next question to this server. Raises OSError."""
        ports = self._ports.get(server)
        if ports is None:
            ports = self._ports[server] = []
        self._turn += 1
        if len(ports) < SOCKETS:
            ports.append(self._open(server))
            return ports[-1]
        index = self._turn % SOCKETS
        port = ports[index]
        port.reuses += 1
        if port.reuses > REUSES and not port.flights:
            self._retire(port)
            port = ports[index] = self._open(server)
        return port

    def read_all(self) -> None:
        """Read what has come by any of them and was not read yet."""
        for ports in list(self._ports.values()):
            for port in list(ports):
                for _ in range(MAX_BURSTS):
                    if not port.flights or not self._read(port):
                        break

    def close(self) -> None:
        for ports in self._ports.values():
            for port in ports:
                self._retire(port)
        self._ports.clear()

    def _open(self, server: Server) -> Port:
        port = Port(server)
        self._waiter.watch(port.sock, partial(self._ready, port))
        return port

    def _ready(self, port: Port) -> None:
        self._read(port)

    def _retire(self, port: Port) -> None:
        self._waiter.unwatch(port.sock)
        port.sock.close()


Done = Callable[[Labels, Answer], None]


class Flight:
    """One question on its way; ``seconds`` bound it from its first packet. ``done`` gets its name and its answer."""

    __slots__ = ("attempt", "deadline", "done", "exchange", "ident", "name", "port", "seconds", "started", "tcp")

    def __init__(self, name: Labels, exchange: Asked, done: Done, seconds: float) -> None:
        self.name = name
        self.exchange = exchange
        self.done = done
        self.seconds = seconds
        self.attempt: Attempt | None = None
        self.started: float | None = None  # when its first packet was sent
        self.deadline = inf
        self.port: Port | None = None  # where its message is outstanding, by this ID
        self.ident = b""
        self.tcp: Connection | None = None

    def start(self, now: float) -> None:
        """Its first packet is sent now."""
        self.started, self.deadline = now, now + self.seconds

    def elapsed(self, now: float) -> float:
        """Seconds since its first packet."""
        return 0.0 if self.started is None else now - self.started


class Overdue:
    """When the attempts under way are given up.

    One queue for each length of wait keeps each queue in order of time, to a tenth of a second.
    """

    def __init__(self) -> None:
        self._queues: dict[float, deque[tuple[float, Flight, Attempt]]] = {}

    def set(self, flight: Flight, attempt: Attempt, now: float, until: float) -> None:
        """The attempt was just sent, and is waited for so long."""
        wait = round(until - now, 1)
        queue = self._queues.get(wait)
        if queue is None:
            queue = self._queues[wait] = deque()
        queue.append((until, flight, attempt))

    def take(self, now: float) -> Iterator[tuple[Flight, Attempt]]:
        """Those to give up now; those that something came of are forgotten on the way."""
        for queue in self._queues.values():
            while queue:
                until, flight, attempt = queue[0]
                under_way = flight.attempt is attempt
                if under_way and until > now:
                    break
                queue.popleft()
                if under_way:
                    yield flight, attempt

    @property
    def next(self) -> float:
        """When the next may be overdue; never is inf."""
        return min((queue[0][0] for queue in self._queues.values() if queue), default=inf)

    def flights(self) -> Iterator[Flight]:
        """All that are waited for, and some that are not any more."""
        return (flight for queue in self._queues.values() for _, flight, _ in queue)


class Connection:
    """One TCP exchange, without waiting: what is still to be sent, and what has come (RFC 1035 4.2.2).

    ``begin`` has it done by a waiter. ``write`` and ``read`` go as far as the socket lets them. Both, and making one,
    raise OSError.
    """

    __slots__ = ("_done", "_got", "_left", "_waiter", "sock")

    def __init__(self, server: Server, packet: bytes) -> None:
        self._left = framed(packet)
        self._got = b""
        self.sock = socket.socket(family(server), socket.SOCK_STREAM)
        self.sock.setblocking(False)
        code = self.sock.connect_ex(server)
        if code not in (0, errno.EINPROGRESS):
            self.sock.close()
            raise OSError(code, "cannot connect")

    def begin(self, waiter: Waiter, done: Callable[[bytes | OSError], None]) -> None:
        """Have ``done`` called with the reply, or with what went wrong, once; until ``end``."""
        self._waiter, self._done = waiter, done
        waiter.watch(self.sock, self._send, write=True)

    def end(self) -> None:
        """After ``begin``: leave the socket."""
        self._waiter.unwatch(self.sock)
        self.sock.close()

    def _send(self) -> None:
        try:
            sent = self.write()
        except OSError as error:
            self._done(error)
            return
        if sent:
            self._waiter.unwatch(self.sock)
            self._waiter.watch(self.sock, self._receive)

    def _receive(self) -> None:
        try:
            reply = self.read()
        except OSError as error:
            self._done(error)
            return
        if reply is not None:
            self._done(reply)

    def write(self) -> bool:
        """Send; True when all is sent."""
        try:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, "cannot connect")
            self._left = self._left[self.sock.send(self._left) :]
        except BlockingIOError:
            return False
        return not self._left

    def read(self) -> bytes | None:
        """The reply; None until it is whole."""
        try:
            part = self.sock.recv(MAX_MESSAGE)
        except BlockingIOError:
            return None
        if not part:
            raise OSError("the server closes the TCP connection early")
        self._got += part
        size = int.from_bytes(self._got[:2], "big")
        return self._got[2 : size + 2] if len(self._got) >= max(2, size + 2) else None


MAX_TCP = 64  # connections at a time
CONCURRENCY = 256  # questions outstanding


class Mux:
    """Asks what ``ask`` is given, within limits. Call ``tick()`` after every wait, and at least as often as it says.

    ``rate`` is packets a second to each server, without limit where it is None. ``seconds`` bounds each question from
    its first packet on, but for those whose end ``drop`` is. ``leave_out`` is told how many seconds the reading of a
    large reply took.
    """

    def __init__(
        self,
        stub: Stub,
        waiter: Waiter,
        *,
        seconds: float,
        concurrency: int = CONCURRENCY,
        rate: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        leave_out: Callable[[float], None] | None = None,
    ) -> None:
        self._stub = stub
        self._waiter = waiter
        self._seconds = seconds
        self.concurrency = concurrency
        self._rate = rate
        self._clock = clock
        self._leave_out = leave_out
        self._queue: deque[Flight] = deque()
        self._onward: deque[Flight] = deque()
        self._again: deque[Flight] = deque()
        self._flying = 0
        self._connections = 0
        self._ports = Ports(waiter, self._read)
        self._overdue = Overdue()
        self._free_at: dict[Server, float] = {}

    def ask(self, name: Labels, done: Done, rdtype: int = NAPTR) -> None:
        """Queue a question; ``done`` gets name and answer, from within ``tick()`` or a callback of the waiter."""
        self._queue.append(Flight(name, self._stub.exchange(name, rdtype), done, self._seconds))

    def ask_onward(self, name: Labels, done: Done, rdtype: int = NAPTR) -> Flight:
        """A question before all that wait, for a walk whose time runs: until it is answered, or until ``drop``."""
        flight = Flight(name, self._stub.exchange(name, rdtype), done, inf)
        self._onward.append(flight)
        return flight

    def unanswered(self, flight: Flight) -> Answer:
        """What an onward question comes to for a walk that leaves now."""
        attempt = flight.attempt if flight.port or flight.tcp else None  # one that was sent
        return flight.exchange.unanswered(attempt).after(flight.elapsed(self._clock()))

    def drop(self, flight: Flight) -> None:
        """Give an onward question up, from outside ``tick()`` and callbacks. Nobody is told."""
        if flight in self._onward:
            self._onward.remove(flight)
            return
        if flight in self._again:
            self._again.remove(flight)
        self._hang_up(flight)
        flight.attempt = None
        self._flying -= 1

    @property
    def waiting(self) -> int:
        """Questions not sent yet."""
        return len(self._queue) + len(self._onward)

    def tick(self) -> float | None:
        """Send what may be sent, give up what is overdue; seconds until it must be called again, None for never."""
        now = self._clock()
        if self._overdue.next <= now:  # by the clock; what has come meanwhile is not overdue
            self._ports.read_all()
            now = self._clock()
        for flight, attempt in self._overdue.take(now):
            self._give_up(flight, attempt, now)
        held = self._send(now)
        wait = min(self._overdue.next - now, held or inf)
        return None if wait == inf else max(0.0, wait)

    def close(self) -> None:
        """Leave every socket; what is outstanding is never answered."""
        self._ports.close()
        for flight in self._overdue.flights():
            self._hang_up(flight)

    # ---- sending

    def _send(self, now: float) -> float:
        """Until the queues are empty or a limit holds; seconds until the rate allows more, or 0."""
        held = 0.0
        waiting: list[Flight] = []
        again, onward, queue = self._again, self._onward, self._queue
        while again or ((onward or queue) and self._flying < self.concurrency):
            if again:
                flight = again.popleft()
            else:
                flight = (onward or queue).popleft()
                self._flying += 1
            attempt = flight.attempt
            if attempt is None:
                attempt = flight.attempt = flight.exchange.next()
            if attempt is None:
                self._finish(flight, now)
                continue
            if flight.deadline <= now or flight.seconds <= 0:
                flight.exchange.expire()
                self._finish(flight, now)
                continue
            pause = 0.0 if self._rate is None else self._pause(attempt.server, self._rate, now)
            if pause or (attempt.tcp and self._connections >= MAX_TCP):
                held = max(held, pause)
                waiting.append(flight)
                if pause:
                    break
                continue
            if flight.started is None:
                flight.start(now)
            self._launch(flight, attempt, now)
        self._again.extendleft(reversed(waiting))
        return held

    def _pause(self, server: Server, rate: float, now: float) -> float:
        """Seconds to hold back from this server; 0 takes a place in its rate."""
        free_at = self._free_at.get(server, now)
        if free_at > now:
            return free_at - now
        self._free_at[server] = max(free_at, now - 0.01) + 1 / rate
        return 0.0

    def _launch(self, flight: Flight, attempt: Attempt, now: float) -> None:
        try:
            if attempt.tcp:
                self._connect(flight, attempt)
            else:
                attempt = self._post(flight, attempt)
        except BlockingIOError:
            pass  # the system has no socket for it just now: as if the packet were lost
        except OSError as error:
            self._fail(flight, attempt, error, now)
            return
        self._overdue.set(flight, attempt, now, min(flight.deadline, now + attempt.seconds))

    def _connect(self, flight: Flight, attempt: Attempt) -> None:
        """Begin with TCP. Raises OSError."""
        flight.tcp = Connection(attempt.server, attempt.query.packet)
        self._connections += 1
        flight.tcp.begin(self._waiter, partial(self._came_by_tcp, flight, attempt))

    def _post(self, flight: Flight, attempt: Attempt) -> Attempt:
        """Send by UDP; the attempt as it was sent, for its ID may be in use at that port. Raises OSError."""
        port = self._ports.next(attempt.server)
        packet = attempt.query.packet
        ident = packet[:2]
        while ident in port.flights:  # the rest of the message is as random as before
            ident = self._stub.randomness(2)
        if ident != packet[:2]:
            packet = ident + packet[2:]
            attempt = flight.attempt = attempt._replace(query=attempt.query._replace(packet=packet))
        port.flights[ident] = flight
        flight.port, flight.ident = port, ident
        try:  # noqa: SIM105 - suppress() takes longer, and every question comes by here
            port.sock.send(packet)
        except BlockingIOError:
            pass  # a full send buffer loses the packet, as the network may
        return attempt

    # ---- hearing

    def _read(self, port: Port) -> bool:
        """Read what has come, a burst of it; False where nothing is left."""
        for _ in range(BURST):
            try:
                packet = port.sock.recv(MAX_MESSAGE)
            except BlockingIOError:
                return False
            except OSError as error:  # an ICMP error says nothing of which message: it is for all of them
                now = self._clock()
                for flight in list(port.flights.values()):
                    if flight.attempt is not None:
                        self._fail(flight, flight.attempt, error, now)
                return True
            heard = port.flights.get(packet[:2])
            if heard is not None and (attempt := heard.attempt) is not None and self._hear(heard, attempt, packet):
                self._next(heard)
        return True

    def _hear(self, flight: Flight, attempt: Attempt, packet: bytes) -> bool:
        """Read a reply; a large one, which takes its time, only where the question has some left."""
        if len(packet) <= UDP_PAYLOAD:
            return flight.exchange.hear(attempt, packet)
        now = self._clock()
        if now >= flight.deadline:
            return False
        heard = flight.exchange.hear(attempt, packet)
        if self._leave_out is not None:
            self._leave_out(self._clock() - now)
        return heard

    def _came_by_tcp(self, flight: Flight, attempt: Attempt, came: bytes | OSError) -> None:
        if isinstance(came, OSError):
            self._fail(flight, attempt, came, self._clock())
        elif len(came) > UDP_PAYLOAD and self._clock() >= flight.deadline:
            self._give_up(flight, attempt, self._clock())
        elif self._hear(flight, attempt, came):
            self._next(flight)
        else:
            self._fail(flight, attempt, OSError("a TCP reply to another question"), self._clock())

    def _fail(self, flight: Flight, attempt: Attempt, error: OSError, now: float) -> None:
        flight.exchange.unreachable(attempt, error.strerror or error)
        self._stub.demote(attempt.server)
        self._next(flight)

    def _give_up(self, flight: Flight, attempt: Attempt, now: float) -> None:
        flight.exchange.silent(attempt)
        self._stub.demote(attempt.server)
        if now >= flight.deadline:
            flight.exchange.expire()
        self._next(flight)

    def _next(self, flight: Flight) -> None:
        """After an attempt: the answer, or a place at the head of the queue for the next one."""
        self._hang_up(flight)
        flight.attempt = flight.exchange.next()
        if flight.attempt is None:
            self._finish(flight, self._clock())
        else:
            self._again.append(flight)

    def _finish(self, flight: Flight, now: float) -> None:
        self._flying -= 1
        answer = flight.exchange.answer
        assert answer is not None  # noqa: S101 - next() gives None only then
        flight.done(flight.name, answer.after(flight.elapsed(now)))

    def _hang_up(self, flight: Flight) -> None:
        if flight.port is not None:
            flight.port.flights.pop(flight.ident, None)
            flight.port = None
        if flight.tcp is not None:
            flight.tcp.end()
            flight.tcp = None
            self._connections -= 1
