"""UDP in batches: one ``recvmmsg`` and one ``sendmmsg`` for as many queries as wait, called through ctypes.

For Linux on 64 bits; elsewhere, or if anything of it is missing, ``udp.py`` serves with plain sockets. The memory of a
batch is laid out once (``slots.py``), and nothing is allocated for a query whose answer is known by its octets: such
an answer is a *plan* in one bytes object, so a batch of them is one join, one copy and three strided copies.

What is known is found by the whole query but its ID, in lower case. It is learned from ``ReadyAnswers``; names that
do not exist and cookies are not, for those never come twice.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import socket
import struct
import sys
import threading
from collections import Counter
from collections.abc import Hashable
from operator import add

from maptr.answer import Transport
from maptr.cookies import answer_cookies
from maptr.fastpath import HEADER, OPT_SIZE, Found, ReadyAnswers
from maptr.rrl import Verdict
from maptr.serve.counters import SILENCE as UNANSWERED
from maptr.serve.counters import Counters
from maptr.serve.responder import Responder
from maptr.serve.slots import AREA, BATCH, FULL, PLAN, Slots
from maptr.serve.udp import Answer, is_anywhere

log = logging.getLogger("maptr.serve")

MAX_KNOWN = 1 << 17  # known answers, 250 octets each with their keys: 100,000 names asked in one way
MAX_SHARED = 1 << 14  # plans of replies that many questions share
PATIENCE = 0.25  # seconds until a blocked thread looks whether it shall stop
MAX_EXEMPT = 10_000  # addresses remembered as free of the rate limit
# NODATA is learned for the types that resolvers ask unasked, not for all 65,536: A, TXT, AAAA, NAPTR.
COMMON_TYPES = frozenset({1, 16, 28, 35})

UDP = Transport.UDP
MSG_DONTWAIT = 0x40
MSG_WAITFORONE = 0x10000
AA, RCODE = 0x04, 0x0F
RCODE_AT = 49  # in a plan: the second octet of flags, after six words


def why_not() -> str | None:
    """The reason why batches cannot be had here; None where they can."""
    if not sys.platform.startswith("linux"):
        return "not on Linux"
    if ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return "not on 64 bits, little-endian"
    libc = ctypes.CDLL(None)
    return None if hasattr(libc, "recvmmsg") and hasattr(libc, "sendmmsg") else "no recvmmsg in the C library"


class BatchListener:
    """Answers what arrives on one socket, in a thread of its own that mostly waits in the kernel."""

    def __init__(
        self, sock: socket.socket, responder: Responder, general: Answer, counters: Counters | None = None
    ) -> None:
        self.counters = counters or Counters()  # written by the listener's thread alone
        self._counted: Counter[int] = Counter()
        self._sock = sock
        self._responder = responder
        self._general = general
        self._anywhere = is_anywhere(sock)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="udp", daemon=True)
        libc = ctypes.CDLL(None, use_errno=True)
        self._recvmmsg, self._sendmmsg = libc.recvmmsg, libc.sendmmsg
        self._slots = Slots(sock.family, self._anywhere)
        self._ready: ReadyAnswers | None = None
        self._known: dict[bytes, bytes] = {}
        self._shared: dict[tuple[int, int, int], bytes] = {}
        self._alive: list[object] = []  # what the plans of known answers point into
        self._kinds: dict[bytes, Hashable] = {}  # of known answers, for clients that the rate limit counts
        self._exempt: set[bytes] = set()  # addresses that it does not, as octets

    def start(self, loop: object = None) -> None:
        # A blocking socket with a timeout of the kernel's: Python's own would cost a poll a call.
        self._sock.setblocking(True)
        wait = struct.pack("@ll", 0, int(PATIENCE * 1e6))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
        self._thread.start()

    def stop(self, loop: object = None) -> None:
        self._stopping = True
        self._thread.join()
        self._sock.close()

    def _run(self) -> None:
        fd, receive, received = self._sock.fileno(), self._recvmmsg, ctypes.c_void_p(self._slots.received)
        counters = self.counters
        while not self._stopping:
            count = receive(fd, received, BATCH, MSG_WAITFORONE, None)
            if count <= 0:
                # Nothing came for a while, or an ICMP error that an earlier reply met.
                if count < 0 and ctypes.get_errno() == errno.EBADF:
                    return
                continue
            counters.received += count
            counters.calls += 1
            try:
                self._answer(fd, count)
            except Exception:
                log.exception("internal error, %d queries dropped", count)
            if self._anywhere:
                self._slots.reset_control[0][:] = self._slots.reset_control[1]

    def _answer(self, fd: int, count: int) -> None:
        ready = self._responder.ready
        if ready is None:
            return  # no zones yet
        if self._ready is not ready:
            self._ready = ready
            self._forget()
        memory = self._slots.memory
        lengths = self._slots.lengths[count].tolist()
        ends = map(add, self._slots.bases, lengths)
        keys = [memory[start:end].lower() for start, end in zip(self._slots.starts, ends, strict=False)]
        plans = [*map(self._known.get, keys)]
        made: set[int] = set()  # slots whose replies were made, and limited, one by one
        if None in plans:
            self._fill(ready, plans, lengths, keys, made)
        self.counters.ready += count - len(made)
        clients = [memory[start:end] for start, end in self._slots.clients[:count]]
        if not self._exempt.issuperset(clients):
            self._limit(ready, plans, clients, lengths, keys, made)
        joined = b"".join(plans)  # type: ignore[arg-type]
        memory[self._slots.plans : self._slots.plans + len(joined)] = joined
        for to, of in self._slots.fields[count]:
            to[:] = of
        if self._anywhere:
            to, of = self._slots.copy_control[count]
            to[:] = of
            self._slots.no_interface[0][:] = self._slots.no_interface[1]
        first = 0
        silent = sorted(i for i in made if plans[i] is SILENCE) if made else []
        self._count(joined, len(silent))
        for end in (*silent, count):
            self._send(fd, first, end)
            first = end + 1

    def _count(self, joined: bytes, silent: int) -> None:
        """Count the replies of a batch but those of the general path, which counts for itself."""
        codes = Counter(code & RCODE for code in joined[RCODE_AT :: PLAN.size])
        codes[0] -= silent  # the plan of silence reads as NOERROR
        codes[UNANSWERED] += silent
        codes.subtract(self._counted)
        self._counted.clear()
        self.counters.count_codes(UDP, codes)

    def _limit(
        self,
        ready: ReadyAnswers,
        plans: list[bytes | None],
        clients: list[bytes],
        lengths: list[int],
        keys: list[bytes],
        made: set[int],
    ) -> None:
        """Hold the known answers of a batch to the rate limit; those that go too far are made, or silent."""
        for i, octets in enumerate(clients):
            if octets in self._exempt or i in made:
                continue
            client = self._client(octets)
            if self._responder.limiter.is_exempt(client):
                if len(self._exempt) < MAX_EXEMPT:
                    self._exempt.add(octets)
                continue
            query = self._query(i, lengths[i])
            kind = self._kinds.get(keys[i])
            if kind is None:
                found = ready.find(query)
                kind = found and found.kind(query)
                if keys[i] in self._known:  # and so bounded: absent names never are
                    self._kinds[keys[i]] = kind
            verdict = self._responder.limiter.judge(client, kind)
            if verdict is not Verdict.SEND:
                self._responder.report(client)
                made.add(i)
                found = ready.find(query) if verdict is Verdict.TRUNCATE else None
                plans[i] = SILENCE if found is None else self._own(i, found.truncated(query))

    def _send(self, fd: int, first: int, end: int) -> None:
        """Send replies of a run of slots. One that the kernel refuses is lost, as on any network."""
        while first < end:
            sent = self._sendmmsg(fd, ctypes.c_void_p(self._slots.sent + 64 * first), end - first, MSG_DONTWAIT)
            if sent == end - first:
                return
            first += max(sent, 0)
            if sent <= 0:
                self.counters.lost += 1
                first += 1

    def _fill(
        self, ready: ReadyAnswers, plans: list[bytes | None], lengths: list[int], keys: list[bytes], made: set[int]
    ) -> None:
        """Plans for the queries of a batch that are not known by their octets."""
        cookies: list[tuple[int, bytes, Found]] = []
        for i, known in enumerate(plans):
            if known is not None:
                continue
            query = self._query(i, lengths[i])
            try:
                found = ready.find(query) if lengths[i] < FULL else None
                if found is not None and found.cookie is not None:
                    cookies.append((i, query, found))
                elif found is not None and not found.ready.head[1] & RCODE and _is_worth_knowing(query, found):
                    plans[i] = self._known[keys[i]] = self._pack(query, found)
                elif found is not None and not found.ready.start:
                    key = id(found.ready), found.question_end, query[2] & 1
                    plans[i] = self._shared.get(key) or self._share(key, query, found)
                else:
                    made.add(i)
                    plans[i] = self._own(i, self._reply(ready, query, i, found))
            except Exception:  # a bug in answering costs its query, not the batch
                log.exception("internal error, query dropped: %s", query.hex())
                made.add(i)
                plans[i] = SILENCE
        if cookies:
            self._fill_with_cookies(ready, cookies, plans, made)

    def _reply(self, ready: ReadyAnswers, query: bytes, i: int, found: Found | None) -> bytes | None:
        """A reply made for this query alone, the rate limit among it."""
        client = self._client_of(i)
        if found is not None:
            return self._responder.finish(found, None, query, ready.snapshot, UDP, client)
        if len(query) >= FULL:
            return None
        self.counters.general += 1
        reply = self._general(query, UDP, client)
        self._counted[UNANSWERED if reply is None else reply[3] & RCODE] += 1
        return reply

    def _fill_with_cookies(
        self, ready: ReadyAnswers, asked: list[tuple[int, bytes, Found]], plans: list[bytes | None], made: set[int]
    ) -> None:
        """The same for all queries of a batch with cookies, which are hashed together."""
        addresses = [self._slots.memory[slice(*self._slots.clients[i])] for i, _, _ in asked]
        options = [found.cookie or b"" for _, _, found in asked]
        context = self._responder.context
        cookies = answer_cookies(
            [*zip(options, addresses, strict=True)], secrets=context.cookies.secrets, now=context.clock()
        )
        for (i, query, found), address, cookie in zip(asked, addresses, cookies, strict=True):
            made.add(i)
            if cookie.verified or (address in self._exempt and not context.cookies.required):
                plans[i] = self._own_part(i, query, found, cookie.option)
                continue
            client = self._client(address)
            plans[i] = self._own(i, self._responder.finish(found, cookie, query, ready.snapshot, UDP, client))

    def _share(self, key: tuple[int, int, int], query: bytes, found: Found) -> bytes:
        """The plan of a learned reply, one for all queries whose questions are as long."""
        plan = self._pack(query, found)
        self._shared[key] = plan
        return plan

    def _pack(self, query: bytes, found: Found) -> bytes:
        """The plan of a ready reply, which points into the reply itself."""
        if len(self._known) >= MAX_KNOWN or len(self._shared) >= MAX_SHARED:
            self._forget()
        ready = found.ready
        self._alive += (ready.body, ready.opt) if ready.start else (ready,)  # the latter for its id as well
        return PLAN.pack(
            *(0, found.question_end),
            *(_address(ready.body) + ready.start, ready.end - ready.start),
            *(_address(ready.opt), len(ready.opt)),
            bytes((ready.head[0] | query[2] & 1,)) + ready.head[1:8],
            ready.head[8:],
        )

    def _own(self, i: int, reply: bytes | None) -> bytes:
        """The plan of a reply that goes through the slot's area, or of silence."""
        if reply is None:
            self.counters.silent += 1
            return SILENCE
        place = self._slots.areas + AREA * i
        self._slots.memory[place : place + len(reply) - HEADER] = reply[HEADER:]
        return PLAN.pack(
            0, HEADER, self._slots.area_addresses[i], len(reply) - HEADER, 0, 0, reply[2:10], reply[10:HEADER]
        )

    def _own_part(self, i: int, query: bytes, found: Found, cookie: bytes) -> bytes:
        """The plan of a ready reply with a cookie, for a client without limit: records and OPT through the area."""
        ready = found.ready
        rest = ready.body[ready.start : ready.end] + found.opt(cookie)
        place = self._slots.areas + AREA * i
        self._slots.memory[place : place + len(rest)] = rest
        head = bytes((ready.head[0] | query[2] & 1,)) + ready.head[1:8]
        return PLAN.pack(0, found.question_end, self._slots.area_addresses[i], len(rest), 0, 0, head, ready.head[8:])

    def _forget(self) -> None:
        self._known.clear()
        self._shared.clear()
        self._alive.clear()
        self._kinds.clear()

    def _query(self, i: int, length: int) -> bytes:
        return self._slots.memory[self._slots.bases[i] : self._slots.bases[i] + length]

    def _client_of(self, i: int) -> str:
        start, end = self._slots.clients[i]
        return self._client(self._slots.memory[start:end])

    def _client(self, octets: bytes) -> str:
        return socket.inet_ntop(self._sock.family, octets)


def _is_worth_knowing(query: bytes, found: Found) -> bool:
    """Whether the same octets may come again, and only they can have this key."""
    end, head = found.question_end, found.ready.head
    if not head[0] & AA or head[1] & RCODE or found.cookie is not None or len(query) > end + OPT_SIZE:
        return False
    if not (head[4] or head[5]) and (query[end - 4] << 8 | query[end - 3]) not in COMMON_TYPES:
        return False
    # Outside the name there is no case: two octets that differ by 32 are two things (types 65 and 97).
    exact = query[2:HEADER] + query[end - 4 :]
    return exact.lower() == exact == exact.upper()


def _address(octets: bytes) -> int:
    """Where they lie, as long as they live."""
    return ctypes.cast(ctypes.c_char_p(octets), ctypes.c_void_p).value or 0


# The plan of what is not sent.
SILENCE = PLAN.pack(0, 0, 0, 0, 0, 0, bytes(8), bytes(2))
