"""Many questions outstanding over few sockets: the I/O of ``bulk`` and of the async client.

A driver of ``asking``, told by whoever waits (``selectors`` or an event loop) which socket is ready. Questions to one
server share a few connected sockets (``ports``); each outstanding message has an ID of its own on its socket, and
random letters. TCP, after a truncated reply, is a connection for each question.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf

from maptr.client.attempt import Attempt, Server
from maptr.client.flight import Connection, Done, Flight, Overdue
from maptr.client.ports import BURST, Port, Ports
from maptr.client.stub import Stub
from maptr.client.waiters import Waiter
from maptr.protocol.names import Labels
from maptr.protocol.numbers import MAX_MESSAGE, NAPTR, UDP_PAYLOAD
from maptr.walk import Answer

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
