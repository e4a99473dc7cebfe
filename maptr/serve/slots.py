"""The memory of a batch of UDP messages: slots for queries, plans for replies, and the headers that the kernel reads.

Laid out once, for Linux on 64 bits; what is done with it is in ``batchreplies.py``.

* Slot ``i`` takes the start of query ``i``, which is all of most, and its length behind, so that the keys of a batch
  (``key_of``) are had by one unpacking and few lines of cache. What lies behind a shorter query is zero, by ``clear``.
  A query starts six octets after a multiple of eight, so that the ten octets of header that a reply changes lie as one
  aligned word (flags and three counts) and a half (the last count).
* Rest ``i`` takes what of a query has no room there, and if there is any, ``make_whole`` copies the start before it. It
  has room for any query; what none was as long as to touch costs no memory.
* Plan ``i`` (``plan.py``) has four ``iovec`` and those ten octets.
* Area ``i`` takes the records of a reply that was made for one query alone; cookie ``i`` the whole cookie of a reply,
  whose hash takes the place of the start of the client's address, which is hashed last.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import socket
import struct
from collections.abc import Callable, Hashable, Sequence

from maptr.serve.plan import HEAD, ID, PLAN

BATCH = 128  # messages a call; 64 cost 3 % more a query
SLOT = 80  # a query for a NAAN of five digits fits, a whole cookie included
ORIGIN = 6  # of a query in its slot, see above
LENGTH = 2  # octets of it at the end of a slot
START = SLOT - ORIGIN - LENGTH  # octets of a query that a slot takes
WHOLE = 65536  # the largest datagram has 65,507 octets (RFC 768, RFC 791)
AREA = 4096  # octets for the records of one reply (context.MAX_PAYLOAD)
COOKIE = 32  # a whole cookie has 24, and 16 before its hash
NAME = 32  # struct sockaddr_in6 is 28
CONTROL = 64  # one in6_pktinfo with its header is 40

_CONTROL_HEAD = struct.Struct("=Qii")  # struct cmsghdr: length with this, level, type (recvmsg(2), cmsg(3))
SIZES = range(BATCH + 1)  # of batches
_PLAN_WORDS, _SLOT_WORDS, _HEADER_WORDS = PLAN.size // 8, SLOT // 8, 8


@functools.cache
def _reader(count: int) -> Callable[[mmap.mmap, int], tuple[bytes, ...]]:
    """What reads the keys of so many slots. Made when it is needed: all together would delay the start."""
    return struct.Struct(f"{ORIGIN + ID}x{SLOT - ORIGIN - ID}s" * count).unpack_from


def key_of(query: bytes) -> bytes:
    """What a query without its ID is known by: as a slot has it, or longer, and no two have the same."""
    return query.ljust(START - ID, b"\0") + (ID + len(query)).to_bytes(LENGTH, "little")


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


class Slots:
    """The memory, and where things lie in it. ``anywhere``: with packet information, for sockets of any address."""

    def __init__(self, family: socket.AddressFamily, anywhere: bool) -> None:
        sizes = (SLOT, WHOLE, AREA, NAME, CONTROL, PLAN.size, COOKIE, 32, 64, 64)
        self.memory = mmap.mmap(-1, BATCH * sum(sizes))
        self._anchor = ctypes.c_char.from_buffer(self.memory)
        start = self.start = ctypes.addressof(self._anchor)
        places = [BATCH * sum(sizes[:i]) for i in range(len(sizes))]
        slots, wholes, self.areas, names, controls, self.plans, cookies, iovecs, received, sent = places
        self._name, self._control = names, controls
        self.area_addresses = [start + self.areas + AREA * i for i in range(BATCH)]
        self.bases = [slots + SLOT * i + ORIGIN for i in range(BATCH)]
        self._wholes = [wholes + WHOLE * i for i in range(BATCH)]
        # As ctypes passes them on.
        self.received = ctypes.c_void_p.from_param(start + received)
        self.sent = [ctypes.c_void_p.from_param(start + sent + 64 * i) for i in range(BATCH)]
        namelen = 28 if family == socket.AF_INET6 else 16
        for i in range(BATCH):
            parts = start + self.bases[i], START, start + self._wholes[i] + START, WHOLE - START
            struct.pack_into("=4Q", self.memory, iovecs + 32 * i, *parts)
            control = start + controls + CONTROL * i if anywhere else None
            size = CONTROL if anywhere else 0
            name = start + names + NAME * i
            head = _Message(name, namelen, start + iovecs + 32 * i, 2, control, size)
            reply = _Message(name, namelen, start + self.plans + PLAN.size * i, 4, control, size)
            self.memory[received + 64 * i : received + 64 * i + 64] = bytes(head)
            self.memory[sent + 64 * i : sent + 64 * i + 64] = bytes(reply)
        self.cookies = [slice(cookies + COOKIE * i, cookies + COOKIE * i + 24) for i in range(BATCH)]
        # struct sockaddr_in has the address at 4, sockaddr_in6 at 8.
        at, size = (8, 16) if family == socket.AF_INET6 else (4, 4)
        self.addresses = [slice(names + NAME * i + at, names + NAME * i + at + size) for i in range(BATCH)]
        # IP_PKTINFO has the interface first, IPV6_PKTINFO after the address (ip(7), RFC 3542 6). Sent as none:
        # the same address shall answer, but by the routes.
        interfaces = controls + 16 + (16 if family == socket.AF_INET6 else 0)
        self._slots = slots
        self._view_memory(received, sent, start, interfaces)
        words = memoryview(self.memory).cast("I")[(names + at) // 4 :]
        addresses = [words[part : part + NAME // 4 * BATCH : NAME // 4] for part in range(size // 4)]
        whole = memoryview(self.memory).cast("I")[cookies // 4 : cookies // 4 + BATCH * COOKIE // 4]
        # All addresses at once, each behind the first 16 octets of its cookie; between them and the client's cookie
        # what is new in all.
        self.copy_to_cookies = [(whole[4 + part :: COOKIE // 4], of) for part, of in enumerate(addresses)]
        self.fresh = memoryview(self.memory).cast("Q")[cookies // 8 + 1 : (cookies + BATCH * COOKIE) // 8 : COOKIE // 8]
        self._clients = [[words[part : part + NAME // 4 * n : NAME // 4] for part in range(size // 4)] for n in SIZES]

    def only_client(self, count: int) -> Hashable:
        """Who alone has sent the first messages, as ``clients`` has it; None where there are several."""
        parts = []
        for part in self._clients[count]:
            octets = part.tobytes()
            if octets != octets[:4] * count:
                return None
            parts.append(part[0])
        return tuple(parts) if len(parts) > 1 else parts[0]

    def clients(self, count: int) -> Sequence[Hashable]:
        """What tells the addresses of the first messages apart."""
        first, *others = self._clients[count]
        return [*zip(*(part.tolist() for part in (first, *others)), strict=True)] if others else first.tolist()

    def keys(self, count: int) -> list[bytes]:
        """Of the first messages, as ``key_of`` has them, but for what is longer than a slot."""
        to, of = self._copy_lengths[count]
        to[:] = of
        return [*_reader(count)(self.memory, self._slots)]

    def clear(self, count: int) -> None:
        """After each batch of so many, before the next one comes."""
        to, zeros = self._empty[count]
        to[:] = zeros

    def make_whole(self, i: int) -> None:
        """Have a reply, whose plan and header are in their places, take its question from where it lies as one."""
        base, place, memory = self.bases[i], self._wholes[i], self.memory
        memory[place : place + START] = memory[base : base + START]
        struct.pack_into("=Q", memory, self.plans + PLAN.size * i, self.start + place)

    def rest(self, i: int, size: int) -> bytes:
        """What of a message of this size stands behind the start that its slot took."""
        return self.memory[self._wholes[i] + START : self._wholes[i] + size]

    def put(self, query: bytes, name: bytes, control: Sequence[tuple[int, int, bytes]]) -> None:
        """As if the kernel had received this query first: ``name`` is its client's struct sockaddr."""
        start, rest = query[:START], query[START:]
        self.memory[self.bases[0] : self.bases[0] + len(start)] = start
        self.memory[self._wholes[0] + START : self._wholes[0] + START + len(rest)] = rest
        self.memory[self._name : self._name + len(name)] = name
        self.lengths[1][0] = len(query)
        for level, kind, data in control:  # one at most: struct cmsghdr, then packet information
            size = _CONTROL_HEAD.size + len(data)
            octets = _CONTROL_HEAD.pack(size, level, kind) + data
            self.memory[self._control : self._control + size] = octets
            self.copy_control[1][1][0] = -(-size // 8) * 8

    def _view_memory(self, received: int, sent: int, start: int, interfaces: int) -> None:
        """Strided views of the first n messages, made once: ``to[n][:] = of[n]`` moves a field of a batch."""
        words = memoryview(self.memory).cast("Q")
        halves = memoryview(self.memory).cast("H")
        quarters = memoryview(self.memory).cast("I")
        bases = memoryview(struct.pack(f"={BATCH}Q", *(start + base for base in self.bases))).cast("Q")
        cookies = struct.pack(f"={BATCH}Q", *(start + place.start for place in self.cookies))
        cookie_places = memoryview(cookies).cast("Q")
        plans = self.plans // 8

        def every(view: memoryview, first: int, step: int) -> list[memoryview]:
            return [view[first : first + n * step : step] for n in SIZES]

        octets, zeros = memoryview(self.memory), memoryview(bytes(SLOT * BATCH))
        self._empty = [(octets[self._slots :][: SLOT * n], zeros[: SLOT * n]) for n in SIZES]
        self.lengths = every(quarters, received // 4 + 14, 16)
        lengths_in_slots = every(halves, (self._slots + SLOT - LENGTH) // 2, SLOT // 2)
        lower_halves = every(halves, received // 2 + 28, 32)
        self._copy_lengths = [*zip(lengths_in_slots, lower_halves, strict=True)]
        control_of_received, control_of_sent = (
            every(words, place // 8 + 5, _HEADER_WORDS) for place in (received, sent)
        )
        none = memoryview(bytes(4 * BATCH)).cast("I")
        self.no_interface = every(quarters, interfaces // 4, CONTROL // 4)[BATCH], none
        full = memoryview(struct.pack(f"={BATCH}Q", *[CONTROL] * BATCH)).cast("Q")
        self.copy_control = [(control_of_sent[n], control_of_received[n]) for n in SIZES]
        self.reset_control = (control_of_received[BATCH], full)
        self.copy_cookie_places = [
            *zip(every(words, plans + 6, _PLAN_WORDS), [cookie_places[:n] for n in SIZES], strict=True)
        ]
        flags = every(words, self._slots // 8 + 1, _SLOT_WORDS), every(words, plans + HEAD // 8, _PLAN_WORDS)
        last = (
            every(halves, self._slots // 2 + 8, SLOT // 2),
            every(halves, (self.plans + HEAD) // 2 + 4, PLAN.size // 2),
        )
        question = every(words, plans, _PLAN_WORDS), [bases[:n] for n in SIZES]
        self.fields = [*zip(*(zip(*pair, strict=True) for pair in (question, flags, last)), strict=True)]
