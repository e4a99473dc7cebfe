"""UDP one query at a time, while no two wait together: what ``batch.py`` does between its batches.

A server that sleeps between two queries finds the processor's caches cold, so what a query touches is what it costs.
Two plain calls and one lookup touch least: the whole reply lies behind the octets of its query, without IDs, in one
dict. Whatever is not known so, or whose client the rate limit counts, takes a longer way (``lonereplies.py``). What
that does not know is handed back as a batch of one. So there is one truth, and this is the short way to what was asked
before.
"""

from __future__ import annotations

import errno
import logging
import mmap
import socket
from collections.abc import Callable
from typing import Any

from maptr.protocol import NOERROR
from maptr.serve.counters import Counters
from maptr.serve.lonereplies import LoneReplies
from maptr.serve.plans import Plans
from maptr.serve.responder import Responder
from maptr.serve.slots import CONTROL, WHOLE
from maptr.serve.udp import is_anywhere, reply_source

log = logging.getLogger("maptr.serve")

TURN = 256  # queries from one look whether others wait to the next
# Of them that the plans do not know, or that have no answer and so may be a flood: beyond, batches are the shorter
# way; then more known ones in a row are wanted before the next try, each time twice as many.
MAX_OTHERS = TURN // 8
FEW, MANY = 8, 1 << 12
MAX_SOURCES = 10_000  # kinds of packet information remembered, one for each address that queries come to

DONT_WAIT = int(socket.MSG_DONTWAIT)

Client = tuple[Any, ...]  # an address as Python's sockets have it
Control = list[tuple[int, int, bytes]]  # ancillary data likewise


class Alone:
    """Answers on one socket, in its listener's thread. ``plans`` gives those of this moment.

    ``rest`` answers what the plans do not know, ``look`` what waits; the latter says whether that was a queue.
    """

    def __init__(
        self,
        sock: socket.socket,
        responder: Responder,
        counters: Counters,
        *,
        plans: Callable[[], Plans | None],
        rest: Callable[[bytes, Client, Control | None], None],
        look: Callable[[], bool],
    ) -> None:
        self._sock = sock
        self._responder = responder
        self._counters = counters
        self._rest = rest
        self._look = look
        self._buffer = mmap.mmap(-1, WHOLE)
        self._turn = [None] * TURN
        self._replies = LoneReplies(responder, counters, plans)
        self._sources: dict[bytes, Control] = {}  # packet information of replies by that of their queries
        self.wanted = FEW  # known queries in a row that come alone, before the next ``run``
        self._answer_turn = self._answer_turn_anywhere if is_anywhere(sock) else self._answer_turn_here

    def stop(self) -> None:
        """For another thread: leave ``run`` after the query at hand. There is no way back."""
        self._turn.clear()

    def run(self) -> None:
        """Until several wait together, or too few are known, or ``stop``."""
        while self._turn:
            self._replies.others = 0
            try:
                self._answer_turn()
            except BlockingIOError:
                continue  # nothing came for a while
            except OSError as error:
                if error.errno == errno.EBADF:
                    return
                continue  # an ICMP error that an earlier reply met
            except Exception:
                log.exception("internal error, %d queries dropped", 1)
            if self._replies.others > MAX_OTHERS:
                self.wanted = min(self.wanted * 2, MANY)
                return
            self.wanted = FEW
            if self._look():
                return

    def _answer_turn_here(self) -> None:
        """On a socket of one address. Raises OSError where receiving does.

        All of it is on the path of each query: nothing that is not needed.
        """
        replies, responder, buffer, dont_wait = self._replies, self._responder, self._buffer, DONT_WAIT
        receive, send = self._sock.recvfrom_into, self._sock.sendto
        ready, exempt = replies.turn_to_now(), replies.clients.exempt
        get, get_denied = replies.wholes.noerror.get, replies.wholes.denied.get
        counter = self._counters.alone
        count = counter[NOERROR]
        for _ in self._turn:
            size, client = receive(buffer)
            octets = buffer[2:size]
            reply = get(octets)
            # Counted before it is sent: whoever has a reply finds it counted.
            if reply is not None and client[0] in exempt and responder.ready is ready:
                count += 1
                counter[0] = count
            else:
                reply = get_denied(octets)
                if reply is None or client[0] not in exempt or responder.ready is not ready:
                    self._answer_other(buffer[:2], octets, client)
                    count = counter[NOERROR]  # it counts there, too
                    if responder.ready is not ready or replies.others > MAX_OTHERS:
                        return
                    continue
                counter[reply[1]] += 1
            try:
                send(buffer[:2] + reply, dont_wait, client)
            except OSError:
                self._counters.lost += 1

    def _answer_turn_anywhere(self) -> None:
        """The same on a socket of any address: the kernel says where a query came in, and is told again."""
        replies, responder, buffer, dont_wait = self._replies, self._responder, self._buffer, DONT_WAIT
        receive, send = self._sock.recvmsg_into, self._sock.sendmsg
        ready, exempt = replies.turn_to_now(), replies.clients.exempt
        get, get_denied, get_source = replies.wholes.noerror.get, replies.wholes.denied.get, self._sources.get
        counter = self._counters.alone
        count = counter[NOERROR]
        into = (buffer,)
        for _ in self._turn:
            size, control, _flags, client = receive(into, CONTROL)
            octets = buffer[2:size]
            reply, source = get(octets), get_source(control[0][2])
            if reply is not None and source is not None and client[0] in exempt and responder.ready is ready:
                count += 1
                counter[0] = count
            else:
                reply = get_denied(octets)
                if reply is None or source is None or client[0] not in exempt or responder.ready is not ready:
                    self._answer_other(buffer[:2], octets, client, control)
                    count = counter[NOERROR]  # it counts there, too
                    if responder.ready is not ready or replies.others > MAX_OTHERS:
                        return
                    continue
                counter[reply[1]] += 1
            try:
                send((buffer[:2], reply), source, dont_wait, client)
            except OSError:
                self._counters.lost += 1

    def _answer_other(self, ident: bytes, octets: bytes, client: Client, control: Control | None = None) -> None:
        """What is not known whole, or whose client the rate limit counts; a bug in it costs its query."""
        try:
            reply = self._replies.find(octets, client[0]) or self._replies.make(octets, client[0])
            if reply is None:
                self._rest(ident + octets, client, control)
        except Exception:
            log.exception("internal error, query dropped: %s", (ident + octets).hex())
            return
        if not reply:
            return
        try:
            if control is None:
                self._sock.sendto(ident + reply, DONT_WAIT, client)
            else:
                self._sock.sendmsg((ident, reply), self._source(control), DONT_WAIT, client)
        except OSError:
            self._counters.lost += 1

    def _source(self, control: Control) -> Control:
        """The packet information for the reply to a query that came with this, and remember it."""
        source = reply_source(control)
        if len(self._sources) >= MAX_SOURCES:
            self._sources.clear()
        self._sources[control[0][2]] = source
        return source
