"""UDP in batches: one ``recvmmsg`` and one ``sendmmsg`` for as many queries as wait, called through ctypes.

For Linux on 64 bits; elsewhere, or if anything of it is missing, ``udp.py`` serves with plain sockets. Memory is
laid out once, and nothing is allocated for a query whose answer is known by its octets:

* slot ``i`` takes query ``i`` six octets after a multiple of eight, so that the ten octets of header that a reply
  changes lie as one aligned word (flags and three counts) and a half (the last count);
* plan ``i`` is three ``iovec`` (header and question from the slot; the records; the OPT) and those ten octets. A
  known answer is a *plan* in one bytes object, so a batch of them is one join, one copy and three strided copies;
* area ``i`` takes the records of a reply that was made for one query alone.

What is known is found by the whole query but its ID, in lower case. It is learned from ``ReadyAnswers``; names that
do not exist and cookies are not, for those never come twice.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import mmap
import socket
import struct
import sys
import threading
from dataclasses import dataclass
from operator import add
from typing import Protocol

from maptr.answer import Transport
from maptr.fastpath import HEADER, OPT_SIZE, ReadyAnswers
from maptr.serve.udp import is_anywhere

log = logging.getLogger("maptr.serve")

BATCH = 64  # messages a call; the measured gain of more is lost in the cache
# Octets of a query. Larger ones are dropped: we advertise 1232, and no honest query of more is known.
SLOT = 4096
ORIGIN = 6  # of a query in its slot, see above
AREA = 4096  # octets for the records of one reply, at most 1232 (edns.UDP_PAYLOAD)
NAME = 32  # struct sockaddr_in6 is 28
CONTROL = 64  # one in6_pktinfo with its header is 40
MAX_KNOWN = 1 << 17  # known answers, 250 octets each with their keys: 100,000 names asked in one way
PATIENCE = 0.25  # seconds until a blocked thread looks whether it shall stop
# NODATA is learned for the types that resolvers ask unasked, not for all 65,536: A, TXT, AAAA, NAPTR.
COMMON_TYPES = frozenset({1, 16, 28, 35})

MSG_TRUNC = 0x20
MSG_DONTWAIT = 0x40
MSG_WAITFORONE = 0x10000
AA, RCODE = 0x04, 0x0F

PLAN = struct.Struct("=6Q8s2s6x")
PLAN_WORDS, SLOT_WORDS, HEADER_WORDS = PLAN.size // 8, SLOT // 8, 8


class _Message(ctypes.Structure):
    """struct mmsghdr of Linux on 64 bits (recvmmsg(2), recvmsg(2))."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("namelen", ctypes.c_uint64),  # 32 bits and padding, always within the lower half of a word we write
        ("iov", ctypes.c_void_p),
        ("iovlen", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("controllen", ctypes.c_size_t),
        ("flags", ctypes.c_uint32),
        ("_", ctypes.c_uint32),
        ("length", ctypes.c_uint32),
        ("__", ctypes.c_uint32),
    )


class Source(Protocol):
    """What the replies come from now: the daemon. Both may be replaced at any time."""

    @property
    def ready(self) -> ReadyAnswers: ...

    def general(self, query: bytes, transport: Transport, client: str) -> bytes | None: ...


@dataclass(slots=True)
class Counters:
    """Queries since the start, by how they were answered."""

    received: int = 0
    known: int = 0  # by all their octets
    ready: int = 0  # by the question
    general: int = 0  # by the general path
    silent: int = 0  # with nothing, as they deserve
    lost: int = 0  # not sent: the kernel did not take the reply
    calls: int = 0  # of recvmmsg: received / calls is the size of batches

    def __add__(self, other: Counters) -> Counters:
        return Counters(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


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

    def __init__(self, sock: socket.socket, source: Source) -> None:
        self.counters = Counters()
        self._sock = sock
        self._source = source
        self._anywhere = is_anywhere(sock)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="udp", daemon=True)
        libc = ctypes.CDLL(None, use_errno=True)
        self._recvmmsg, self._sendmmsg = libc.recvmmsg, libc.sendmmsg
        self._lay_out()
        self._ready: ReadyAnswers | None = None
        self._known: dict[bytes, bytes] = {}
        self._alive: list[bytes] = []  # what the plans of known answers point into

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

    def _lay_out(self) -> None:
        self._memory = mmap.mmap(-1, BATCH * (SLOT + AREA + NAME + CONTROL + PLAN.size + 16 + 2 * 64))
        self._anchor = ctypes.c_char.from_buffer(self._memory)
        start = ctypes.addressof(self._anchor)
        sizes = (SLOT, AREA, NAME, CONTROL, PLAN.size, 16, 64, 64)
        places = [BATCH * sum(sizes[:i]) for i in range(len(sizes))]
        slots, self._areas, names, controls, self._plans, iovecs, received, sent = places
        self._area_addresses = [start + self._areas + AREA * i for i in range(BATCH)]
        self._bases = [slots + SLOT * i + ORIGIN for i in range(BATCH)]
        self._starts = [base + 2 for base in self._bases]
        self._received, self._sent = start + received, start + sent
        namelen = 28 if self._sock.family == socket.AF_INET6 else 16
        for i in range(BATCH):
            struct.pack_into("=QQ", self._memory, iovecs + 16 * i, start + self._bases[i], SLOT - ORIGIN)
            control = start + controls + CONTROL * i if self._anywhere else None
            size = CONTROL if self._anywhere else 0
            name = start + names + NAME * i
            head = _Message(name, namelen, start + iovecs + 16 * i, 1, control, size)
            reply = _Message(name, namelen, start + self._plans + PLAN.size * i, 3, control, size)
            self._memory[received + 64 * i : received + 64 * i + 64] = bytes(head)
            self._memory[sent + 64 * i : sent + 64 * i + 64] = bytes(reply)
        self._names = names
        self._view_memory(received, sent, start)

    def _view_memory(self, received: int, sent: int, start: int) -> None:
        """Strided views of the first n messages, made once: ``to[n][:] = of[n]`` moves a field of a batch."""
        words = memoryview(self._memory).cast("Q")
        halves = memoryview(self._memory).cast("H")
        quarters = memoryview(self._memory).cast("I")
        bases = memoryview(struct.pack(f"={BATCH}Q", *(start + base for base in self._bases))).cast("Q")
        plans, sizes = self._plans // 8, range(BATCH + 1)

        def every(view: memoryview, first: int, step: int) -> list[memoryview]:
            return [view[first : first + n * step : step] for n in sizes]

        self._lengths = every(quarters, received // 4 + 14, 16)
        self._flags = every(quarters, received // 4 + 12, 16)
        control_of_received, control_of_sent = (every(words, place // 8 + 5, HEADER_WORDS) for place in (received, sent))
        full = memoryview(struct.pack(f"={BATCH}Q", *[CONTROL] * BATCH)).cast("Q")
        self._copy_control = [(control_of_sent[n], control_of_received[n]) for n in sizes]
        self._reset_control = (control_of_received[BATCH], full)
        self._fields = [
            *zip(
                zip(every(words, plans, PLAN_WORDS), [bases[:n] for n in sizes], strict=True),
                zip(every(words, 1, SLOT_WORDS), every(words, plans + 6, PLAN_WORDS), strict=True),
                zip(every(halves, 8, SLOT // 2), every(halves, self._plans // 2 + 28, PLAN.size // 2), strict=True),
                strict=True,
            )
        ]

    def _run(self) -> None:
        fd, receive, received = self._sock.fileno(), self._recvmmsg, ctypes.c_void_p(self._received)
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
                self._reset_control[0][:] = self._reset_control[1]

    def _answer(self, fd: int, count: int) -> None:
        if self._ready is not self._source.ready:
            self._ready = self._source.ready
            self._forget()
        memory = self._memory
        lengths = self._lengths[count].tolist()
        keys = [
            memory[start:end].lower()
            for start, end in zip(self._starts, map(add, self._bases, lengths), strict=False)
        ]
        plans = [*map(self._known.get, keys)]
        silent: list[int] = []
        if None in plans:
            for i, plan in enumerate(plans):
                if plan is None:
                    plans[i] = self._plan(i, lengths[i], keys[i])
                    if plans[i] is None:
                        plans[i] = _NOTHING
                        silent.append(i)
                else:
                    self.counters.known += 1
        else:
            self.counters.known += count
        memory[self._plans : self._plans + count * PLAN.size] = b"".join(plans)  # type: ignore[arg-type]
        for to, of in self._fields[count]:
            to[:] = of
        if self._anywhere:
            to, of = self._copy_control[count]
            to[:] = of
        first = 0
        for end in (*silent, count):
            self._send(fd, first, end)
            first = end + 1

    def _send(self, fd: int, first: int, end: int) -> None:
        """Send replies of a run of slots. One that the kernel refuses is lost, as on any network."""
        while first < end:
            sent = self._sendmmsg(fd, ctypes.c_void_p(self._sent + 64 * first), end - first, MSG_DONTWAIT)
            if sent == end - first:
                return
            first += max(sent, 0)
            if sent <= 0:
                self.counters.lost += 1
                first += 1

    def _plan(self, i: int, length: int, key: bytes) -> bytes | None:
        """The plan for a query that is not known by its octets; None for silence."""
        base = self._bases[i]
        if self._flags[BATCH][i] & MSG_TRUNC:
            self.counters.silent += 1
            return None
        query = self._memory[base : base + length]
        assert self._ready is not None
        found = self._ready.find(query)
        if found is not None:
            self.counters.ready += 1
            ready, end = found
            octets = ready.end - ready.start
            flags = ready.head[0] | query[2] & 1
            head = b"%c%b" % (flags, ready.head[1:8])
            if self._is_worth_knowing(query, end, ready.head):
                if len(self._known) >= MAX_KNOWN:
                    self._forget()
                self._alive += (ready.body, ready.opt)
                body, opt = _address(ready.body) + ready.start, _address(ready.opt)
                plan = PLAN.pack(0, end, body, octets, opt, len(ready.opt), head, ready.head[8:])
                self._known[key] = plan
                return plan
            return self._own(i, end, ready.body[ready.start : ready.end] + ready.opt, head, ready.head[8:])
        reply = self._source.general(query, Transport.UDP, self._client(i))
        if reply is None:
            self.counters.silent += 1
            return None
        self.counters.general += 1
        return self._own(i, HEADER, reply[HEADER:], reply[2:10], reply[10:HEADER])

    def _own(self, i: int, end: int, rest: bytes, head: bytes, last: bytes) -> bytes:
        """The plan of a reply that goes through the slot's area."""
        place = self._areas + AREA * i
        self._memory[place : place + len(rest)] = rest
        return PLAN.pack(0, end, self._area_addresses[i], len(rest), 0, 0, head, last)

    @staticmethod
    def _is_worth_knowing(query: bytes, end: int, head: bytes) -> bool:
        """Whether the same octets may come again, and only they can have this key."""
        if not head[0] & AA or head[1] & RCODE or len(query) > end + OPT_SIZE:
            return False
        if not (head[4] or head[5]) and (query[end - 4] << 8 | query[end - 3]) not in COMMON_TYPES:
            return False
        # Outside the name there is no case: two octets that differ by 32 are two things (types 65 and 97).
        exact = query[2:HEADER] + query[end - 4 :]
        return exact.lower() == exact == exact.upper()

    def _forget(self) -> None:
        self._known.clear()
        self._alive.clear()

    def _client(self, i: int) -> str:
        place = self._names + NAME * i
        if self._sock.family == socket.AF_INET6:
            return socket.inet_ntop(socket.AF_INET6, self._memory[place + 8 : place + 24])
        return socket.inet_ntoa(self._memory[place + 4 : place + 8])


def _address(octets: bytes) -> int:
    """Where they lie, as long as they live."""
    return ctypes.cast(octets, ctypes.c_void_p).value or 0


_NOTHING = PLAN.pack(0, 0, 0, 0, 0, 0, bytes(8), bytes(2))
