"""Many questions outstanding over few sockets: the I/O of ``bulk`` and of the async client.

A driver of ``asking``, told by whoever waits (``selectors`` or an event loop) which socket is ready. Questions to one
server share SOCKETS connected sockets; each outstanding message has an ID of its own on its socket, and random
letters. TCP, after a truncated reply, is a connection for each question.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable
from math import inf

from maptr.asking import Attempt, Server
from maptr.flight import Connection, Done, Flight, Port
from maptr.names import Labels
from maptr.protocol import MAX_MESSAGE
from maptr.stub import Stub
from maptr.waiters import Waiter
from maptr.walk import Answer
from maptr.wire import Query

SOCKETS = 4  # for each server: source ports a forger must guess among, on top of ID and letters
REUSES = 10_000  # questions after which a socket gives way to one with a new port
BURST = 64  # packets read from one socket before the others get their turn
MAX_TCP = 64  # connections at a time
CONCURRENCY = 256  # questions outstanding


class Mux:
    """Asks what ``ask`` is given, within limits. Call ``tick()`` after every wait, and at least as often as it says.

    ``rate`` is packets a second to each server, without limit where it is None. ``seconds`` bounds each
    question from its first packet on, but for those whose end ``drop`` is.
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
    ) -> None:
        self._stub = stub
        self._waiter = waiter
        self._seconds = seconds
        self.concurrency = concurrency
        self._rate = rate
        self._clock = clock
        self.elsewhere = 0  # questions outstanding that count as ours, too
        self._queue: deque[Flight] = deque()
        self._onward: deque[Flight] = deque()
        self._again: deque[Flight] = deque()
        self._flying = 0
        self._connections = 0
        self._ports: dict[Server, list[Port]] = {}
        self._turn = 0
        self._due: dict[float, deque[tuple[float, Flight, Attempt]]] = {}
        self._free_at: dict[Server, float] = {}

    def ask(self, name: Labels, done: Done) -> None:
        """Queue a question; ``done`` gets its answer, from within ``tick()`` or a callback of the waiter."""
        self._queue.append(Flight(self._stub.exchange(name), done, self._seconds))

    def ask_onward(self, name: Labels, done: Done) -> Flight:
        """A question before all that wait, for a walk whose time runs: until it is answered, or until ``drop``."""
        flight = Flight(self._stub.exchange(name), done, inf)
        self._onward.append(flight)
        return flight

    def unanswered(self, flight: Flight) -> Answer:
        """What an onward question comes to for a walk that leaves now."""
        attempt = flight.attempt if flight.key or flight.tcp else None  # one that was sent
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

    def take_over(self, query: Query, server: Server, started: float, done: Done, came: bytes | OSError | None) -> None:
        """Go on with a question that ``volley`` has put to a server once: what came was no plain reply, or nothing."""
        flight = Flight(self._stub.exchange(query.name), done, self._seconds)
        flight.start(started)
        flight.attempt = flight.exchange.next()
        if flight.attempt is None or flight.attempt.server != server:  # the order has changed: the first of it
            self._queue.append(flight)
            return
        attempt = flight.attempt = flight.attempt._replace(query=query)
        self._flying += 1
        if isinstance(came, bytes):
            flight.exchange.hear(attempt, came)
            self._next(flight)
        elif came is None:
            self._overdue(flight, attempt, self._clock())
        else:
            self._fail(flight, attempt, came, self._clock())

    @property
    def claimed(self) -> int:
        """Questions outstanding, and those that wait for their turn."""
        return self._flying + len(self._queue) + len(self._onward)

    @property
    def waiting(self) -> int:
        """Questions not sent yet."""
        return len(self._queue) + len(self._onward)

    def tick(self) -> float | None:
        """Send what may be sent, give up what is overdue; seconds until it must be called again, None for never."""
        now = self._clock()
        for due in self._due.values():
            while due and (due[0][1].attempt is not due[0][2] or due[0][0] <= now):
                until, flight, attempt = due.popleft()
                if flight.attempt is attempt and until <= now:
                    self._overdue(flight, attempt, now)
        held = self._send(now)
        waits = [due[0][0] - now for due in self._due.values() if due] + ([held] if held else [])
        return max(0.0, min(waits)) if waits else None

    def close(self) -> None:
        """Leave every socket; what is outstanding is never answered."""
        for ports in self._ports.values():
            for port in ports:
                self._retire(port)
        self._ports.clear()
        for due in self._due.values():
            for _, flight, _ in due:
                self._hang_up(flight)

    # ---- sending

    def _send(self, now: float) -> float:
        """Until the queues are empty or a limit holds; seconds until the rate allows more, or 0."""
        held = 0.0
        waiting: list[Flight] = []
        while self._again or (self.waiting and self._flying + self.elsewhere < self.concurrency):
            fresh = not self._again
            flight = (self._again or self._onward or self._queue).popleft()
            self._flying += fresh
            if flight.attempt is None:
                flight.attempt = flight.exchange.next()
            if flight.attempt is None:
                self._finish(flight, now)
                continue
            if flight.deadline <= now or flight.seconds <= 0:
                flight.exchange.expire()
                self._finish(flight, now)
                continue
            pause = self._pause(flight.attempt.server, now)
            if pause or (flight.attempt.tcp and self._connections >= MAX_TCP):
                held = max(held, pause)
                waiting.append(flight)
                if pause:
                    break
                continue
            if flight.started is None:
                flight.start(now)
            self._launch(flight, flight.attempt, now)
        self._again.extendleft(reversed(waiting))
        return held

    def _pause(self, server: Server, now: float) -> float:
        """Seconds to hold back from this server; 0 takes a place in its rate."""
        if self._rate is None:
            return 0.0
        free_at = self._free_at.get(server, now)
        if free_at > now:
            return free_at - now
        self._free_at[server] = max(free_at, now - 0.01) + 1 / self._rate
        return 0.0

    def _launch(self, flight: Flight, attempt: Attempt, now: float) -> None:
        until = min(flight.deadline, now + attempt.seconds)
        # One queue for each length of wait keeps each queue in order of time, to a tenth of a second.
        due = self._due.setdefault(round(until - now, 1), deque())
        due.append((until, flight, attempt))
        try:
            if attempt.tcp:
                connection = Connection(attempt.server, attempt.query.packet)
                flight.tcp = connection
                self._connections += 1
                self._waiter.watch(connection.sock, lambda: self._write(flight, attempt, connection), write=True)
                return
            port = self._port(attempt.server)
            ident = attempt.query.packet[:2]
            packet = attempt.query.packet
            while ident in port.flights:  # an ID still outstanding here; the rest of the message is as random as before
                ident = self._stub.randomness(2)
            if ident != packet[:2]:
                query = attempt.query._replace(packet=ident + packet[2:])
                attempt = attempt._replace(query=query)
                due[-1] = (until, flight, attempt)
                flight.attempt = attempt
            port.flights[ident] = flight
            flight.key = (port, ident)
            port.sock.send(attempt.query.packet)
        except BlockingIOError:
            pass  # a full send buffer loses the packet, as the network may
        except OSError as error:
            self._fail(flight, attempt, error, now)

    def _port(self, server: Server) -> Port:
        ports = self._ports.setdefault(server, [])
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

    def _open(self, server: Server) -> Port:
        port = Port(server)
        self._waiter.watch(port.sock, lambda: self._read(port))
        return port

    def _retire(self, port: Port) -> None:
        self._waiter.unwatch(port.sock)
        port.sock.close()

    # ---- hearing

    def _read(self, port: Port) -> None:
        for _ in range(BURST):
            try:
                packet = port.sock.recv(MAX_MESSAGE)
            except BlockingIOError:
                return
            except OSError as error:  # an ICMP error says nothing of which message: it is for all of them
                now = self._clock()
                for flight in list(port.flights.values()):
                    if flight.attempt is not None:
                        self._fail(flight, flight.attempt, error, now)
                return
            heard = port.flights.get(packet[:2])
            if heard is not None and heard.attempt is not None and heard.exchange.hear(heard.attempt, packet):
                self._next(heard)

    def _write(self, flight: Flight, attempt: Attempt, connection: Connection) -> None:
        try:
            code = connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, "cannot connect")
            connection.left = connection.left[connection.sock.send(connection.left) :]
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(flight, attempt, error, self._clock())
            return
        if not connection.left:
            self._waiter.unwatch(connection.sock)
            self._waiter.watch(connection.sock, lambda: self._collect(flight, attempt, connection))

    def _collect(self, flight: Flight, attempt: Attempt, connection: Connection) -> None:
        try:
            part = connection.sock.recv(MAX_MESSAGE)
            if not part:
                raise OSError("the server closes the TCP connection early")
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(flight, attempt, error, self._clock())
            return
        connection.got += part
        size = int.from_bytes(connection.got[:2], "big")
        if len(connection.got) < 2 or len(connection.got) < size + 2:
            return
        if flight.exchange.hear(attempt, connection.got[2 : size + 2]):
            self._next(flight)
        else:
            self._fail(flight, attempt, OSError("a TCP reply to another question"), self._clock())

    def _fail(self, flight: Flight, attempt: Attempt, error: OSError, now: float) -> None:
        flight.exchange.unreachable(attempt, error.strerror or error)
        self._stub.demote(attempt.server)
        self._next(flight)

    def _overdue(self, flight: Flight, attempt: Attempt, now: float) -> None:
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
        flight.done(answer.after(flight.elapsed(now)))

    def _hang_up(self, flight: Flight) -> None:
        if flight.key is not None:
            port, ident = flight.key
            port.flights.pop(ident, None)
            flight.key = None
        if flight.tcp is not None:
            self._waiter.unwatch(flight.tcp.sock)
            flight.tcp.sock.close()
            flight.tcp = None
            self._connections -= 1
