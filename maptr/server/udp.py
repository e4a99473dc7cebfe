"""The UDP listeners: one that receives queries in batches, on 64-bit Linux, and one that receives them singly.

``BatchListener`` calls recvmmsg(2) and sendmmsg(2) once for all waiting queries, through ctypes. The queries of a batch
are received into slots. A response is sent from three places: ID and question from the slot, records and OPT from the
arena of ``ready.py`` or from the slot's area, the cookie from the slot's place for it. A ready response is a record of
fixed size with these addresses, so laying out a batch takes one join, one copy and a few strided copies. Queries
without a ready response take the general path.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import mmap
import socket
import struct
import sys
import threading
from collections.abc import Sequence
from typing import cast

from maptr.answer.context import MAX_PAYLOAD, ReceivedQuery, Transport
from maptr.answer.ready import HEADER, ID, NO_RESPONSE, RCODE_FIELD, RECORD, Ready, kind_of, truncated
from maptr.answer.rrl import Action
from maptr.daemon.process import in_thread
from maptr.daemon.sockets import IP_PKTINFO, is_wildcard
from maptr.protocol.cookies import WHOLE_COOKIE, timestamp
from maptr.protocol.numbers import MAX_MESSAGE
from maptr.server.counters import SILENCE, Counters, result
from maptr.server.responder import Responder

BATCH = 128  # messages in one system call
WAIT = 0.25  # seconds after which a waiting thread checks whether to stop
MAX_CLIENTS = 10_000  # clients in the cache of networks

# The overload limit. The general path takes about fifty times as long as a ready response. After MAX_FULL consecutive
# full batches, more queries arrive than can be answered: then at most MAX_GENERAL of a batch take that path, so that
# ordinary queries are still answered.
MAX_FULL = 8
MAX_GENERAL = 4

# Sizes in bytes. A query starts at ORIGIN in its slot, so that the ten header bytes that a response changes are one
# aligned word of eight bytes and one of two. The uneven size of a slot spreads the slots over the cache lines.
ORIGIN = 6
SLOT = 65536 + 192
AREA = MAX_PAYLOAD
NAME = 32  # struct sockaddr_in6 has 28
CONTROL = 64  # an in6_pktinfo with its header has 40
COOKIE = 32
# struct mmsghdr of 64-bit Linux (recvmmsg(2)): the name and its size, the iovecs and their number, control data and its
# size, flags, and the length of the message. 32-bit sizes are padded to 64 bits.
MMSGHDR = struct.Struct("=8Q")
MESSAGE = MMSGHDR.size

# Without batches: queries answered before the event loop continues. Enough to avoid most wake-ups, few enough for TCP.
BURST = 64

MSG_DONTWAIT, MSG_WAITFORONE = 0x40, 0x10000
_int, _unsigned, _pointer = ctypes.c_int.from_param, ctypes.c_uint.from_param, ctypes.c_void_p.from_param


def why_not() -> str | None:
    """Return the reason why this system does not support batches, or None."""
    if not sys.platform.startswith("linux"):
        return "not on Linux"
    if ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return "not on 64 bits, little-endian"
    libc = ctypes.CDLL(None)
    return None if hasattr(libc, "recvmmsg") and hasattr(libc, "sendmmsg") else "no recvmmsg in the C library"


class Slots:
    """The memory of a batch, and the system calls that fill and send it.

    Many attributes: one for each area and each view of a field, computed once because every batch uses them.
    """

    def __init__(self, sock: socket.socket) -> None:
        wildcard = is_wildcard(sock)
        sizes = (SLOT, AREA, NAME, CONTROL, RECORD.size, COOKIE, 16, MESSAGE, MESSAGE)
        memory = self.memory = mmap.mmap(-1, BATCH * sum(sizes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        slots, areas, names, controls, records, cookies, iovecs, received, sent = (
            BATCH * sum(sizes[:i]) for i in range(len(sizes))
        )
        self.records = records
        self.queries = [(slots + SLOT * i + ORIGIN + ID, slots + SLOT * i + ORIGIN) for i in range(BATCH)]
        self.areas = [areas + AREA * i for i in range(BATCH)]
        self.area_addresses = [start + area for area in self.areas]
        self.cookies = [slice(cookies + COOKIE * i, cookies + COOKIE * i + WHOLE_COOKIE) for i in range(BATCH)]
        self.family = sock.family
        v6 = self.family == socket.AF_INET6
        at, size = (8, 16) if v6 else (4, 4)  # offset and size of the address in struct sockaddr_in6 or sockaddr_in
        self.addresses = [slice(names + NAME * i + at, names + NAME * i + at + size) for i in range(BATCH)]
        for i in range(BATCH):
            struct.pack_into("=2Q", memory, iovecs + 16 * i, start + self.queries[i][1], SLOT - ORIGIN - 192)
            control, control_size = (start + controls + CONTROL * i, CONTROL) if wildcard else (0, 0)
            name, name_size = start + names + NAME * i, 28 if v6 else 16
            reply = start + records + RECORD.size * i
            for place, iov, iovlen in ((received, start + iovecs + 16 * i, 1), (sent, reply, 3)):
                header = name, name_size, iov, iovlen, control, control_size, 0, 0
                MMSGHDR.pack_into(memory, place + MESSAGE * i, *header)
        libc = ctypes.CDLL(None)
        descriptor = _int(sock.fileno())
        receive, wait = _pointer(start + received), _int(MSG_WAITFORONE)
        self.receive = functools.partial(libc.recvmmsg, descriptor, receive, _unsigned(BATCH), wait, _pointer(None))
        self._send = functools.partial(libc.sendmmsg, descriptor)
        self._sent = [_pointer(start + sent + MESSAGE * i) for i in range(BATCH)]
        self._counts = [_unsigned(count) for count in range(BATCH + 1)]
        # Strided views of one field of all messages: ``to[:n] = of[:n]`` copies the field for a batch.
        whole = memoryview(memory)
        words, halves, quarters = whole.cast("Q"), whole.cast("H"), whole.cast("I")
        self.lengths = _every(quarters, received + 56, MESSAGE)
        self.fields = [
            (_every(words, records, RECORD.size), _constants([start + base for _, base in self.queries])),
            (_every(words, records + 32, RECORD.size), _constants([start + place.start for place in self.cookies])),
            (_every(words, slots + ORIGIN + ID, SLOT), _every(words, records + 48, RECORD.size)),
            (_every(halves, slots + ORIGIN + HEADER, SLOT), _every(halves, records + 56, RECORD.size)),
        ]
        self._wildcard = wildcard
        if wildcard:
            self._control_sizes = _every(words, received + 40, MESSAGE)
            self.fields.append((_every(words, sent + 40, MESSAGE), self._control_sizes))
            # The interface is before the address in IP_PKTINFO and after it in IPV6_PKTINFO (ip(7), RFC 3542 6). It is
            # set to 0: a response has the query's destination as its source, but uses the routing table.
            self._interface = _every(quarters, controls + 16 + (16 if v6 else 0), CONTROL)
            self._none = memoryview(bytes(4 * BATCH)).cast("I")
            self._full = _constants([CONTROL] * BATCH)

    def keys(self, count: int) -> list[bytes]:
        """Return the first ``count`` queries without their IDs."""
        memory = self.memory
        sizes = self.lengths[:count].tolist()
        return [memory[start : base + size] for (start, base), size in zip(self.queries, sizes, strict=False)]

    def clients(self, count: int) -> list[bytes]:
        """Return the packed addresses of the first ``count`` clients."""
        memory = self.memory
        return [memory[place] for place in self.addresses[:count]]

    def client(self, i: int) -> str:
        return socket.inet_ntop(self.family, self.memory[self.addresses[i]])

    def received(self, i: int, key: bytes) -> ReceivedQuery:
        """Return the query in a slot; ``key`` is the query without its ID."""
        base = self.queries[i][1]
        return ReceivedQuery(self.memory[base : base + ID] + key, Transport.UDP, self.client(i))

    def lay_out(self, records: Sequence[bytes]) -> bytes:
        """Lay out the responses for ``send``. Returns the joined records."""
        joined = b"".join(records)
        self.memory[self.records : self.records + len(joined)] = joined
        count = len(records)
        for to, of in self.fields:
            to[:count] = of[:count]
        if self._wildcard:
            self._interface[:] = self._none
            self._control_sizes[:] = self._full
        return joined

    def store_reply(self, i: int, reply: bytes) -> bytes:
        """Copy a response of the general path to the area of a slot, and return its record."""
        place, size = self.areas[i], len(reply) - HEADER - ID
        self.memory[place : place + size] = reply[HEADER + ID :]
        fields = 0, HEADER + ID, self.area_addresses[i], size, 0, 0, reply[2:10], reply[10:12], 0, result(reply), 0
        return RECORD.pack(*fields)

    def send(self, first: int, end: int) -> int:
        """Send the responses of these slots. Returns the number of responses that the kernel refused; they are lost."""
        lost = 0
        while first < end:
            sent = self._send(self._sent[first], self._counts[end - first], _int(MSG_DONTWAIT))
            if sent == end - first:
                break
            first += max(sent, 0)
            if sent <= 0:
                lost += 1
                first += 1
        return lost


def _every(view: memoryview, at: int, stride: int) -> memoryview:
    """Return a view of the items of a batch, which start at ``at`` and are ``stride`` apart, both in bytes."""
    first, step = at // view.itemsize, stride // view.itemsize
    return view[first : first + BATCH * step : step]


def _constants(values: list[int]) -> memoryview:
    return memoryview(struct.pack(f"={BATCH}Q", *values)).cast("Q")


class BatchListener:
    """Answers the queries on one socket in its own thread."""

    def __init__(self, sock: socket.socket, responder: Responder, counters: Counters) -> None:
        self._sock = sock
        self._responder = responder
        self._counters = counters
        self._slots = Slots(sock)
        self._state = responder.state
        self._ready = self._state.ready(Transport.UDP)
        self._network = functools.lru_cache(MAX_CLIENTS)(self._network_of)
        self._results = counters.queries[Transport.UDP]
        self._full = 0  # consecutive full batches
        self._general_left = 0  # queries of this batch that may still take the general path
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="udp", daemon=True)

    def start(self) -> None:
        # The kernel applies the timeout of the blocking socket; Python's timeout would need a poll(2) for each call.
        self._sock.setblocking(True)
        wait = struct.pack("@ll", 0, int(WAIT * 1e6))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
        self._thread.start()

    async def stop(self) -> None:
        self._stopping = True
        await in_thread(self._thread.join)  # the thread ends within WAIT seconds
        self._sock.close()

    def _run(self) -> None:
        receive = self._slots.receive
        while not self._stopping:
            count = receive()
            if count > 0:
                try:
                    self._take(count)
                except Exception:
                    self._responder.log_internal_error(f"{count} queries dropped")
            elif self._sock.fileno() < 0:
                return  # the socket is closed; other reasons are a timeout and an ICMP error for an earlier response

    def _take(self, count: int) -> None:
        """Answer the queries in the first ``count`` slots."""
        state = self._responder.state
        if state is not self._state:
            with contextlib.suppress(OSError):  # no memory: the old ones stay, and the next batch tries again
                self._state, self._ready = state, state.ready(Transport.UDP)
        ready = self._ready
        ready.tidy()
        counters, slots = self._counters, self._slots
        counters.received += count
        counters.calls += 1
        self._full = self._full + 1 if count == BATCH else 0
        self._general_left = count if self._full <= MAX_FULL else MAX_GENERAL
        keys = slots.keys(count)
        found = [*map(ready.known.get, keys)]
        settled: set[int] = set()
        if None in found:
            self._find(ready, found, keys, settled)
        records = cast(list[bytes], found)
        networks = [*map(self._network, slots.clients(count))]
        if any(networks):
            self._limit(records, networks, settled)
        joined = slots.lay_out(records)
        codes = joined[RCODE_FIELD :: RECORD.size]
        counters.ready += count
        for code in {*codes}:
            self._results[code] += codes.count(code)  # before sending, so that every received response is counted
        query_log = self._responder.query_log
        if query_log is not None:
            for i in query_log.pick(count):
                query_log.write(slots.received(i, keys[i]), codes[i])
        first = 0
        if SILENCE in codes:
            counters.silent += codes.count(SILENCE)
            for i in [i for i, code in enumerate(codes) if code == SILENCE]:
                counters.lost += slots.send(first, i)
                first = i + 1
        counters.lost += slots.send(first, count)

    def _find(self, ready: Ready, records: list[bytes | None], keys: list[bytes], settled: set[int]) -> None:
        """Find the missing records of a batch. Adds to ``settled`` those that need no check of the rate limit."""
        memory, addresses, cookies = self._slots.memory, self._slots.addresses, self._slots.cookies
        stamp = timestamp(self._state.context.clock())
        for i, record in enumerate(records):
            if record is not None:
                continue
            try:
                found = ready.find(keys[i])
                if found is not None:
                    records[i], cookie = found
                    if not cookie:
                        continue
                    checked = self._state.answer_cookie(cookie, memory[addresses[i]], stamp, self._counters)
                    if checked is not None:
                        memory[cookies[i]], verified = checked
                        if verified:
                            settled.add(i)
                        continue
                records[i] = self._ask_general(ready, i, keys[i], settled)
            except Exception:
                self._responder.log_internal_error(f"query dropped: {keys[i].hex()}")
                settled.add(i)
                records[i] = NO_RESPONSE

    def _ask_general(self, ready: Ready, i: int, key: bytes, settled: set[int]) -> bytes:
        """Return the record of the general path's response, or, under overload, of no response."""
        settled.add(i)
        self._counters.ready -= 1
        if not self._general_left:
            self._counters.overload += 1
            return NO_RESPONSE
        self._general_left -= 1
        self._counters.general += 1
        query = self._slots.received(i, key)
        reply = next(self._responder.general(self._state, query, self._counters, ready.learn), None)
        return NO_RESPONSE if reply is None else self._slots.store_reply(i, reply)

    def _limit(self, records: list[bytes], networks: Sequence[str | None], settled: set[int]) -> None:
        """Apply the rate limit to a batch: truncate or drop the responses that exceed it."""
        limiter = self._responder.limiter
        places, replies = [], []
        for i, network in enumerate(networks):
            if network is not None and i not in settled:
                places.append(i)
                replies.append((network, kind_of(records[i])))
        for place, action in limiter.judge_each(replies):
            i = places[place]
            self._responder.report(self._slots.client(i))
            records[i] = truncated(records[i]) if action is Action.TRUNCATE else NO_RESPONSE

    def _network_of(self, client: bytes) -> str | None:
        """Return the network under which a client is counted; None for an exempt client."""
        return self._responder.limiter.network(socket.inet_ntop(self._slots.family, client))


class UdpListener:
    """Answers on one socket in the event loop. A response is lost if the kernel cannot send it at once."""

    def __init__(self, sock: socket.socket, responder: Responder, counters: Counters) -> None:
        self._sock = sock
        self._responder = responder
        self._counters = counters

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._sock, self._answer_waiting)

    async def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._sock)
        self._sock.close()

    def _answer_waiting(self) -> None:
        answer_waiting(self._sock, self._responder, self._counters)


def answer_waiting(sock: socket.socket, responder: Responder, counters: Counters) -> None:
    """Answer queries that wait in the kernel, BURST at most."""
    for _ in range(BURST):
        try:
            query, control, _flags, client = sock.recvmsg(MAX_MESSAGE, CONTROL)
        except OSError:  # no more queries, or an ICMP error for an earlier response
            return
        reply = responder.answer(ReceivedQuery(query, Transport.UDP, client[0]), counters)
        if reply is not None:
            with contextlib.suppress(OSError):
                sock.sendmsg([reply], reply_source(control), 0, client)


def reply_source(control: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """Return the packet information for a response: the query's destination, without the interface."""
    sources = []
    for level, kind, data in control:
        if (level, kind) == (socket.IPPROTO_IP, IP_PKTINFO):  # ip(7): interface, local address, destination
            sources.append((level, kind, bytes(4) + data[4:]))
        elif (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):  # RFC 3542 6: address, interface
            sources.append((level, kind, data[:16] + bytes(4)))
    return sources
