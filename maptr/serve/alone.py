"""UDP one query at a time, while no two wait together: what ``batch.py`` does between its batches.

A server that sleeps between two queries finds the processor's caches cold, so what a query touches is what it costs.
Two plain calls and one lookup touch least: the whole reply lies behind the octets of its query, without IDs, in one
dict. Whatever is not known so, or whose client the rate limit counts, takes a longer way: letters in both cases and
cookies (``wholes.py``), then plans. What those do not know is handed back as a batch of one. So there is one truth, and
this is the short way to what was asked before.
"""

from __future__ import annotations

import errno
import logging
import mmap
import socket
from collections.abc import Callable, Hashable
from typing import Any

from maptr.context import Transport
from maptr.cookies import NO_COOKIE, CookieReply
from maptr.ready import NOERROR
from maptr.rrl import Verdict
from maptr.serve.clients import Clients
from maptr.serve.counters import SILENCE as UNANSWERED
from maptr.serve.counters import Counters
from maptr.serve.hashing import make_hash
from maptr.serve.plan import HEAD, truncated, whole
from maptr.serve.plans import Plans
from maptr.serve.responder import Responder
from maptr.serve.slots import CONTROL, WHOLE
from maptr.serve.udp import is_anywhere, reply_source
from maptr.serve.wholes import Wholes

log = logging.getLogger("maptr.serve")

TURN = 256  # queries from one look whether others wait to the next
# Of them that the plans do not know, or that have no answer and so may be a flood: beyond, batches are the shorter
# way; then more known ones in a row are wanted before the next try, each time twice as many.
MAX_OTHERS = TURN // 8
FEW, MANY = 8, 1 << 12
MAX_SOURCES = 10_000  # kinds of packet information remembered, one for each address that queries come to

UDP = Transport.UDP
NO_ANSWERS = b"\0\0"  # where a header counts them
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
        self._plans = plans
        self._rest = rest
        self._look = look
        self._buffer = mmap.mmap(-1, WHOLE)
        self._turn = [None] * TURN
        self._wholes = Wholes()
        self._answer_cookie, self._siphash = responder.answer_cookie, make_hash()
        self._clients: Clients[str] = Clients()
        self._sources: dict[bytes, Control] = {}  # packet information of replies by that of their queries
        self._others = 0
        self.wanted = FEW  # known queries in a row that come alone, before the next ``run``
        self._answer_turn = self._answer_turn_anywhere if is_anywhere(sock) else self._answer_turn_here

    def stop(self) -> None:
        """For another thread: leave ``run`` after the query at hand. There is no way back."""
        self._turn.clear()

    def run(self) -> None:
        """Until several wait together, or too few are known, or ``stop``."""
        while self._turn:
            self._others = 0
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
            if self._others > MAX_OTHERS:
                self.wanted = min(self.wanted * 2, MANY)
                return
            self.wanted = FEW
            if self._look():
                return

    def _answer_turn_here(self) -> None:
        """On a socket of one address. Raises OSError where receiving does.

        All of it is on the path of each query: nothing that is not needed.
        """
        responder, exempt, buffer, dont_wait = self._responder, self._clients.exempt, self._buffer, DONT_WAIT
        receive, send = self._sock.recvfrom_into, self._sock.sendto
        ready = self._forget_old()
        get, get_denied = self._wholes.noerror.get, self._wholes.denied.get
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
                    if responder.ready is not ready or self._others > MAX_OTHERS:
                        return
                    continue
                counter[reply[1]] += 1
            try:
                send(buffer[:2] + reply, dont_wait, client)
            except OSError:
                self._counters.lost += 1

    def _answer_turn_anywhere(self) -> None:
        """The same on a socket of any address: the kernel says where a query came in, and is told again."""
        responder, exempt, buffer, dont_wait = self._responder, self._clients.exempt, self._buffer, DONT_WAIT
        receive, send = self._sock.recvmsg_into, self._sock.sendmsg
        ready = self._forget_old()
        get, get_denied, get_source = self._wholes.noerror.get, self._wholes.denied.get, self._sources.get
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
                    if responder.ready is not ready or self._others > MAX_OTHERS:
                        return
                    continue
                counter[reply[1]] += 1
            try:
                send((buffer[:2], reply), source, dont_wait, client)
            except OSError:
                self._counters.lost += 1

    def _forget_old(self) -> object:
        """What replies are made of now; those made of something before are forgotten."""
        ready = self._responder.ready
        self._wholes.turn_to(ready)
        return ready

    def _answer_other(self, ident: bytes, octets: bytes, client: Client, control: Control | None = None) -> None:
        """What is not known whole, or whose client the rate limit counts; a bug in it costs its query."""
        try:
            reply = self._pass(octets, client[0]) or self._make(ident, octets, client, control)
        except Exception:
            log.exception("internal error, query dropped: %s", (ident + octets).hex())
            return
        if reply is None:
            return
        try:
            if control is None:
                self._sock.sendto(ident + reply, DONT_WAIT, client)
            else:
                self._sock.sendmsg((ident, reply), self._source(control), DONT_WAIT, client)
        except OSError:
            self._counters.lost += 1

    def _pass(self, octets: bytes, client: str) -> bytes | None:
        """A reply that is known whole and may go, counted."""
        wholes = self._wholes
        found = wholes.find(octets)
        if found is None:
            return None
        reply, key, option = found
        cookie = self._answer_cookie(option, client, self._siphash) if option else NO_COOKIE
        if cookie is None or self._responder.ready is not wholes.ready:
            return None
        if not cookie.verified and client not in self._clients.exempt:
            network, kind = self._clients.networks.get(client), wholes.kinds.get(key)
            if network is None or kind is None or not self._responder.limiter.passes(network, kind):
                return None
        self._count(reply[1], cookie)
        return reply + cookie.option

    def _make(self, ident: bytes, octets: bytes, client: Client, control: Control | None) -> bytes | None:
        """A reply by its plan, remembered; None where there is no reply, or somebody else has sent it."""
        known = self._plans()
        plan, option = (None, b"") if known is None else known.tables.find_alone(octets)
        cookie = self._answer_cookie(option, client[0], self._siphash) if option else NO_COOKIE
        if plan is None or known is None or cookie is None:
            self._others += 1
            self._rest(ident + octets, client, control)
            return None
        kind = known.kind(plan, octets)
        verdict = Verdict.SEND if cookie.verified else self._judge(client[0], kind)
        if verdict is Verdict.DROP:
            self._counters.count_batch(1)
            self._counters.silent += 1
            self._counters.count_one_ready(UDP, UNANSWERED)
            reply = None
        else:
            self._count(plan[HEAD + 1], cookie)
            if plan[HEAD + 4 : HEAD + 6] == NO_ANSWERS:
                self._others += 1
                reply = self._wholes.make_shared(plan, octets)
            else:
                reply = whole(plan, octets)
            if known.ready is self._wholes.ready:
                asked = octets[: len(octets) - len(option)]
                self._wholes.learn(asked, reply, kind, cookie=bool(option))
            if verdict is Verdict.TRUNCATE:
                reply = whole(truncated(plan), octets)
            reply += cookie.option
        return reply

    def _judge(self, client: str, kind: Hashable) -> Verdict:
        """What the rate limit makes of a reply."""
        clients, limiter = self._clients, self._responder.limiter
        if client in clients.exempt:
            return Verdict.SEND
        network = clients.networks.get(client) or clients.remember(client, limiter.network(client))
        over = [] if network is None else [*limiter.judge_each([(network, kind)])]
        if over:
            self._responder.report(client)
        return over[0][1] if over else Verdict.SEND

    def _count(self, rcode: int, cookie: CookieReply) -> None:
        self._counters.alone[rcode] += 1
        if cookie is not NO_COOKIE:
            self._counters.cookies[not cookie.verified] += 1

    def _source(self, control: Control) -> Control:
        """The packet information for the reply to a query that came with this, and remember it."""
        source = reply_source(control)
        if len(self._sources) >= MAX_SOURCES:
            self._sources.clear()
        self._sources[control[0][2]] = source
        return source
