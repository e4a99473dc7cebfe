"""First questions, many at a time: the fair-weather path of ``bulk``, a shortcut of ``mux``.

Nearly every question of a bulk run is settled by the first reply of the first server, and that reply is plain. Here
such a question is a few octets in a table and no object: messages are written for a batch together, and a plain
reply is read at once. Whatever is not that smooth (silence, an error, any other reply) goes on in ``mux``, with what
came, as if it had sent the message itself; a test holds the two to the same answers.

The protections are the same: random IDs and letters, SOCKETS random ports for each server, each for REUSES questions,
and only a reply that echoes the question counts.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial

from maptr import names, wire
from maptr.asking import FIRST_SECONDS
from maptr.attempt import Server
from maptr.mux import Mux
from maptr.plainreply import PlainReply, Reader
from maptr.ports import BURST, REUSES, SOCKETS, Port
from maptr.protocol import MAX_MESSAGE, NAPTR
from maptr.question import Answer
from maptr.reply import Query
from maptr.stub import Stub
from maptr.waiters import Waiter

Tell = Callable[[bytes, Answer | PlainReply], None]
Sent = tuple[bytes, bytes, float]  # the name, the question in the letters it was sent, when

BATCH = 64  # messages written together, to one socket


class Volley:
    """Asks what ``ask`` is given, names in wire format, and tells their answers.

    Like a Mux it is driven by ``tick()``; it wants no rate and no validation.
    """

    def __init__(
        self,
        stub: Stub,
        mux: Mux,
        waiter: Waiter,
        tell: Tell,
        reader: Reader,
        *,
        seconds: float,
        concurrency: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stub = stub
        self._mux = mux
        self._waiter = waiter
        self._tell = tell
        self._reader = reader
        self._patience = min(seconds, FIRST_SECONDS)
        self._concurrency = concurrency
        self._enough = min(BATCH, concurrency // 4) // 2
        self._clock = clock
        self._queue: deque[bytes] = deque()
        self._flying = 0
        self._sources: dict[Server, list[_Source]] = {}
        self._all: list[_Source] = []
        self._turn = 0
        self._head, self._tail = wire.around_question(ask_ad=stub.trust_ad)

    def ask(self, asked: list[bytes]) -> None:
        """Queue questions for NAPTR."""
        self._queue.extend(asked)

    @property
    def waiting(self) -> int:
        """Questions not sent yet."""
        return len(self._queue)

    @property
    def room(self) -> int:
        """How many of the questions that wait are to be sent now: none while there is room for a few only, and more
        will come, for a turn costs as much as several questions."""
        free = self._concurrency - self._flying - self._mux.claimed
        return 0 if free < self._enough and self._flying else min(free, len(self._queue))

    def tick(self) -> float | None:
        """Send what may be sent, give up what is overdue; seconds until it must be called again, None for never."""
        now = self._clock()
        pause: float | None = None
        for source in self._all:
            while source.sent:
                # The first that is outstanding is the oldest: a dict keeps the order in which they were sent.
                ident, sent = next(iter(source.sent.items()))
                left = sent[2] + self._patience - now
                if left > 0:
                    pause = left if pause is None else min(pause, left)
                    break
                self._hand_over(source, ident, sent, None)
        while (room := self.room) > 0:
            self._send(min(room, BATCH), now)
            pause = self._patience if pause is None else pause
        self._mux.elsewhere = self._flying
        return pause

    def close(self) -> None:
        """Leave every socket; what is outstanding is never answered."""
        for source in self._all:
            self._leave(source)
        self._all.clear()

    # ---- sending

    def _send(self, count: int, now: float) -> None:
        """One batch, by one socket."""
        asked = [self._queue.popleft() for _ in range(count)]
        try:
            source = self._source(self._stub.servers[0])
        except OSError:  # no way to this server: mux finds the words for it
            for name in asked:
                self._mux.ask(names.from_wire(name), partial(self._tell, name))
            return
        questions = wire.questions(asked, self._stub.randomness)
        idents = self._stub.randomness(2 * count)
        outstanding, send, head, tail = source.sent, source.port.sock.send, self._head, self._tail
        self._flying += count
        source.port.reuses += count
        for at, name, question in zip(range(0, 2 * count, 2), asked, questions, strict=True):
            ident = idents[at : at + 2]
            while ident in outstanding:  # still in use here; the rest of the message is as random as before
                ident = self._stub.randomness(2)
            sent = outstanding[ident] = name, question, now
            try:
                send(ident + head + question + tail)
            except BlockingIOError:
                pass  # a full send buffer loses the packet, as the network may
            except OSError as error:
                self._hand_over(source, ident, sent, error)

    def _source(self, server: Server) -> _Source:
        """A socket for the next batch, each in turn; one that was used enough gives way to one with a new port."""
        fresh = self._sources.setdefault(server, [])
        for source in [source for source in fresh if source.port.reuses >= REUSES]:
            fresh.remove(source)
        for source in [source for source in self._all if source.port.reuses >= REUSES and not source.sent]:
            self._all.remove(source)
            self._leave(source)
        self._turn += 1
        if len(fresh) >= SOCKETS:
            return fresh[self._turn % SOCKETS]
        source = _Source(Port(server))
        self._waiter.watch(source.port.sock, partial(self._read, source))
        fresh.append(source)
        self._all.append(source)
        return source

    def _leave(self, source: _Source) -> None:
        self._waiter.unwatch(source.port.sock)
        source.port.sock.close()

    # ---- hearing

    def _read(self, source: _Source) -> None:
        now = self._clock()
        receive, outstanding, server = source.port.sock.recv, source.sent, source.shown
        read, tell = self._reader, self._tell
        for _ in range(BURST):
            try:
                packet = receive(MAX_MESSAGE)
            except BlockingIOError:
                return
            except OSError as error:  # an ICMP error says nothing of which message: it is for all of them
                for ident, sent in list(outstanding.items()):
                    self._hand_over(source, ident, sent, error)
                return
            ident = packet[:2]
            heard = outstanding.get(ident)
            if heard is None:
                continue
            name, question, started = heard
            reply = read(name, question, packet, server, now - started)
            if reply is None:
                if wire.answers(Query(names.from_wire(name), ident, question, NAPTR), packet):
                    self._hand_over(source, ident, heard, packet)
                continue
            del outstanding[ident]
            self._flying -= 1
            tell(name, reply)

    def _hand_over(self, source: _Source, ident: bytes, sent: Sent, came: bytes | OSError | None) -> None:
        """The rest is for ``mux``."""
        del source.sent[ident]
        self._flying -= 1
        name, question, started = sent
        query = Query(names.from_wire(name), ident + self._head + question + self._tail, question, NAPTR)
        self._mux.take_over(query, source.port.server, started, partial(self._tell, name), came)


class _Source:
    """One socket, and what is outstanding on it by ID."""

    __slots__ = ("port", "sent", "shown")

    def __init__(self, port: Port) -> None:
        self.port = port
        self.sent: dict[bytes, Sent] = {}
        self.shown = str(port.server)
