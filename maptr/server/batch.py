"""The memory of a batch of UDP messages, and the system calls that fill and send it, on 64-bit Linux.

``recvmmsg(2)`` receives each query into its slot. ``sendmmsg(2)`` sends a response from three places, given by its
record (``answer/arena.py``): ID, header and question from the query's slot; records and OPT from the arena, or, for a
response of the general path, from the slot's body; the cookie from the slot's cookie.

All of this is one block of memory with the structures below, none of which is accessed message by message. A *column*
is a view of one field in all messages of an array; ``to[:n] = of[:n]`` copies the field for n messages.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import socket
import struct
import sys
from collections.abc import Sequence
from typing import Any, Literal

from maptr.answer.arena import HEADER, ID, ReadyRecord, make_record
from maptr.answer.context import MAX_PAYLOAD, ReceivedQuery, Transport
from maptr.daemon.sockets import is_wildcard
from maptr.protocol.cookies import WHOLE_COOKIE
from maptr.server.counters import result

MSG_DONTWAIT, MSG_WAITFORONE = 0x40, 0x10000
_WORD, _HALF, _BYTE, _LONG = ctypes.c_uint32, ctypes.c_uint16, ctypes.c_ubyte, ctypes.c_uint64
_int, _unsigned, _pointer = ctypes.c_int.from_param, ctypes.c_uint.from_param, ctypes.c_void_p.from_param
_ITEM: dict[int, Literal["H", "I", "Q"]] = {2: "H", 4: "I", 8: "Q"}  # formats of memoryview by the size of a field


# ---- kernel structures, with addresses as numbers


class IoVec(ctypes.Structure):
    """struct iovec (readv(2))."""

    _fields_ = (("base", _LONG), ("size", _LONG))


class MessageHeader(ctypes.Structure):
    """struct msghdr (recvmsg(2))."""

    _fields_ = (
        ("name", _LONG), ("name_size", _WORD), ("iovecs", _LONG), ("iovec_count", _LONG),
        ("control", _LONG), ("control_size", _LONG), ("flags", _WORD),
    )  # fmt: skip


class BatchHeader(ctypes.Structure):
    """struct mmsghdr (recvmmsg(2))."""

    _anonymous_ = ("header",)
    _fields_ = (("header", MessageHeader), ("length", _WORD))


class Address4(ctypes.Structure):
    """struct sockaddr_in (ip(7))."""

    _fields_ = (("family4", _HALF), ("port4", _HALF), ("address4", _BYTE * 4), ("zero4", _BYTE * 8))


class Address6(ctypes.Structure):
    """struct sockaddr_in6 (ipv6(7))."""

    _fields_ = (
        ("family6", _HALF), ("port6", _HALF), ("flow6", _WORD), ("address6", _BYTE * 16), ("scope6", _WORD),
    )  # fmt: skip


class SocketAddress(ctypes.Union):
    _anonymous_ = ("v4", "v6")
    _fields_ = (("v4", Address4), ("v6", Address6))


class PacketInfo4(ctypes.Structure):
    """struct cmsghdr with struct in_pktinfo (cmsg(3), ip(7))."""

    _fields_ = (("header4", _BYTE * 16), ("interface4", _WORD), ("source4", _BYTE * 4), ("destination4", _BYTE * 4))


class PacketInfo6(ctypes.Structure):
    """struct cmsghdr with struct in6_pktinfo (RFC 3542 6)."""

    _fields_ = (("header6", _BYTE * 16), ("destination6", _BYTE * 16), ("interface6", _WORD))


class ControlData(ctypes.Union):
    _anonymous_ = ("v4", "v6")
    _fields_ = (("v4", PacketInfo4), ("v6", PacketInfo6), ("space", _LONG * 8))


# The fields with a client's address, and with the interface of packet information.
ADDRESS4 = SocketAddress.address4, ControlData.interface4
ADDRESS6 = SocketAddress.address6, ControlData.interface6


# ---- our own structures


class QuerySlot(ctypes.Structure):
    """A received query. A response changes one aligned word and one half-word of its header.

    The odd number of cache lines spreads the slots over the cache.
    """

    _fields_ = (
        ("unused", _BYTE * 6),
        ("id", _HALF),
        ("head", _LONG),  # flags, QDCOUNT, ANCOUNT and NSCOUNT
        ("arcount", _HALF),
        ("rest", _BYTE * (65536 - 6 - ID - HEADER)),
        ("gap", _BYTE * 192),
    )


# Bytes; a UDP message has at most 65507.
RECEIVED = QuerySlot.gap.offset - QuerySlot.id.offset


def layout(count: int) -> type[ctypes.Structure]:
    """Return the structure of a batch of at most ``count`` messages."""

    class Batch(ctypes.Structure):
        _fields_ = (
            ("queries", QuerySlot * count),
            ("bodies", _BYTE * MAX_PAYLOAD * count),
            ("addresses", SocketAddress * count),
            ("controls", ControlData * count),
            ("records", ReadyRecord * count),
            ("cookies", _BYTE * WHOLE_COOKIE * count),
            ("iovecs", IoVec * count),
            ("received", BatchHeader * count),
            ("sent", BatchHeader * count),
        )

    return Batch


class BatchMemory:
    """Memory for a batch of at most ``count`` messages. ``start`` is its address, ``batch`` its structure."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.batch = layout(count)
        self.memory = mmap.mmap(-1, ctypes.sizeof(self.batch), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def places(self, array: Any, field: Any = None) -> list[slice]:
        """Return the slice of ``memory`` for each element of an array, or for a field of each."""
        stride = array.size // self.count
        first, size = (array.offset, stride) if field is None else (array.offset + field.offset, field.size)
        return [slice(first + stride * i, first + stride * i + size) for i in range(self.count)]

    def addresses(self, array: Any, field: Any = None) -> list[int]:
        """Return the address of each element of an array, or of a field of each."""
        return [self.start + place.start for place in self.places(array, field)]

    def column(self, array: Any, field: Any) -> memoryview:
        """Return a view of a field in all elements of an array."""
        items = memoryview(self.memory).cast(_ITEM[field.size])
        first, step = (array.offset + field.offset) // field.size, array.size // self.count // field.size
        return items[first : first + step * self.count : step]

    def constants(self, values: list[int]) -> memoryview:
        """Return a column of eight bytes that never changes."""
        return memoryview(struct.pack(f"={self.count}Q", *values)).cast("Q")


class BatchCalls:
    """The system calls for the messages in a block. ``receive`` returns the number of queries, not positive if none."""

    def __init__(self, sock: socket.socket, block: BatchMemory) -> None:
        libc = ctypes.CDLL(None)
        descriptor, received = _int(sock.fileno()), _pointer(block.start + block.batch.received.offset)
        most, wait, no_timeout = _unsigned(block.count), _int(MSG_WAITFORONE), _pointer(None)
        self.receive = functools.partial(libc.recvmmsg, descriptor, received, most, wait, no_timeout)
        self._send = functools.partial(libc.sendmmsg, descriptor)
        # Every batch uses the same arguments.
        self._sent = list(map(_pointer, block.addresses(block.batch.sent)))
        self._counts = list(map(_unsigned, range(block.count + 1)))

    def send(self, first: int, end: int) -> int:
        """Send these slots' responses. Returns the number of responses that the kernel refused; they are lost."""
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


class Slots:
    """The queries and responses of a batch of at most ``count`` messages on one socket.

    ``addresses`` and ``cookies`` are the places of each message's client and cookie in ``memory``.
    """

    def __init__(self, sock: socket.socket, count: int) -> None:
        self.family = sock.family
        address, interface = ADDRESS6 if self.family == socket.AF_INET6 else ADDRESS4
        block = BatchMemory(count)
        batch = block.batch
        self.calls = BatchCalls(sock, block)
        self.memory = block.memory
        self.addresses = block.places(batch.addresses, address)
        self.cookies = block.places(batch.cookies)
        self._queries = [place.start for place in block.places(batch.queries, QuerySlot.id)]
        self._keys = [at + ID for at in self._queries]
        self._bodies = [(place.start, block.start + place.start) for place in block.places(batch.bodies)]
        self._records = batch.records.offset
        self._lengths = block.column(batch.received, BatchHeader.length)
        # For each batch of responses, the second column is copied to the first, up to the number of messages.
        self._copied = [
            (
                block.column(batch.records, ReadyRecord.question),
                block.constants(block.addresses(batch.queries, QuerySlot.id)),
            ),
            (block.column(batch.records, ReadyRecord.cookie), block.constants(block.addresses(batch.cookies))),
            (block.column(batch.queries, QuerySlot.head), block.column(batch.records, ReadyRecord.head)),
            (block.column(batch.queries, QuerySlot.arcount), block.column(batch.records, ReadyRecord.arcount)),
        ]
        # And then for all messages.
        self._reset: list[tuple[memoryview, memoryview]] = []
        has_packet_info = is_wildcard(sock)
        _fill_headers(block, self.family, with_control=has_packet_info)
        if has_packet_info:
            size = block.column(batch.received, BatchHeader.control_size)
            self._copied.append((block.column(batch.sent, BatchHeader.control_size), size))
            self._reset.append((size, block.constants([ctypes.sizeof(ControlData)] * count)))
            # A response has the query's destination as its source, but uses the routing table: no interface is set.
            no_interface = memoryview(bytes(interface.size * count)).cast("I")
            self._reset.append((block.column(batch.controls, interface), no_interface))

    def keys(self, count: int) -> list[bytes]:
        """Return the first ``count`` queries without their IDs."""
        memory = self.memory
        sizes = self._lengths[:count].tolist()
        places = zip(self._keys, self._queries, sizes, strict=False)
        return [memory[key : query + size] for key, query, size in places]

    def clients(self, count: int) -> list[bytes]:
        """Return the packed addresses of the first ``count`` clients."""
        memory = self.memory
        return [memory[place] for place in self.addresses[:count]]

    def client(self, i: int) -> str:
        return socket.inet_ntop(self.family, self.memory[self.addresses[i]])

    def received(self, i: int, key: bytes) -> ReceivedQuery:
        """Return the query in a slot; ``key`` is the query without its ID."""
        start = self._queries[i]
        return ReceivedQuery(self.memory[start : start + ID] + key, Transport.UDP, self.client(i))

    def lay_out(self, records: Sequence[bytes]) -> bytes:
        """Lay out the responses for ``send``. Returns the joined records."""
        joined = b"".join(records)
        self.memory[self._records : self._records + len(joined)] = joined
        count = len(records)
        for to, of in self._copied:
            to[:count] = of[:count]
        for to, of in self._reset:
            to[:] = of
        return joined

    def store_reply(self, i: int, reply: bytes) -> bytes:
        """Copy a response of the general path to the body of a slot, and return its record."""
        (place, address), body = self._bodies[i], reply[ID + HEADER :]
        self.memory[place : place + len(body)] = body
        return make_record(reply[ID : ID + HEADER], ID + HEADER, address, len(body), rcode=result(reply))


def _fill_headers(block: BatchMemory, family: int, *, with_control: bool) -> None:
    """Fill in what the headers of received and sent messages always have."""
    batch = block.batch.from_buffer(block.memory)
    queries = block.addresses(block.batch.queries, QuerySlot.id)
    for i in range(block.count):
        batch.iovecs[i].base = queries[i]
        batch.iovecs[i].size = RECEIVED
        for header in (batch.received[i], batch.sent[i]):
            header.name = ctypes.addressof(batch.addresses[i])
            header.name_size = ctypes.sizeof(Address6 if family == socket.AF_INET6 else Address4)
            if with_control:
                header.control = ctypes.addressof(batch.controls[i])
                header.control_size = ctypes.sizeof(ControlData)
        batch.received[i].iovecs = ctypes.addressof(batch.iovecs[i])
        batch.received[i].iovec_count = 1
        batch.sent[i].iovecs = ctypes.addressof(batch.records[i])  # a record begins with three iovecs
        batch.sent[i].iovec_count = 3


def why_not() -> str | None:
    """Return the reason why this system does not support batches, or None."""
    if not sys.platform.startswith("linux"):
        return "not on Linux"
    if ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return "not on 64 bits, little-endian"
    libc = ctypes.CDLL(None)
    return None if hasattr(libc, "recvmmsg") and hasattr(libc, "sendmmsg") else "no recvmmsg in the C library"
