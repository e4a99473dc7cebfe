"""Ready responses in memory: records of fixed size, and the arena that they point into.

A response is sent from three places: the query that it answers (ID and question), the arena (records and OPT), and the
cookie that was made for the client. A record has an iovec for each, and the values that counters and the rate limit
need. ``server/batch.py`` copies records side by side for the kernel; ``Arena.response`` joins the bytes otherwise.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Hashable

from maptr.protocol.numbers import HEADER_SIZE

ID = 2  # bytes
HEADER = HEADER_SIZE - ID  # bytes of the header without the ID
TC = 0x02  # in the first byte of the flags
SILENCE = 16  # in place of an rcode: no response is sent


class ReadyRecord(ctypes.Structure):
    """The layout of a record. The addresses of question and cookie are set on sending."""

    _fields_ = (
        ("question", ctypes.c_uint64),
        ("question_end", ctypes.c_uint64),  # the size of ID, header and question
        ("body", ctypes.c_uint64),
        ("body_size", ctypes.c_uint64),
        ("cookie", ctypes.c_uint64),
        ("cookie_size", ctypes.c_uint64),
        ("head", ctypes.c_uint64),  # flags, QDCOUNT, ANCOUNT and NSCOUNT, as bytes of the message
        ("arcount", ctypes.c_uint16),  # as bytes of the message
        ("opt_size", ctypes.c_uint16),  # without the cookie
        ("rcode", ctypes.c_uint8),
        ("kind", ctypes.c_uint64),  # the number of the kind of response, for the rate limit
    )


RECORD = struct.Struct("=6Q8s2sHB3xQ")  # the same layout: ``struct`` packs and unpacks faster than ctypes
HEAD = 8  # bytes

_RCODE = ReadyRecord.rcode.offset
_COOKIE_SIZE = ReadyRecord.cookie_size.offset
_KIND = ReadyRecord.kind.offset
_NUMBER = struct.Struct("=Q")


def make_record(
    header: bytes,
    question_end: int,
    body: int,
    body_size: int,
    *,
    rcode: int,
    cookie_size: int = 0,
    opt_size: int = 0,
    kind: int = 0,
) -> bytes:
    """Return a record. ``header`` is the response's without the ID, ``body`` an address."""
    iovecs = 0, question_end, body, body_size, 0, cookie_size
    return RECORD.pack(*iovecs, header[:HEAD], header[HEAD:], opt_size, rcode, kind)


NO_RESPONSE = make_record(bytes(HEADER), 0, 0, 0, rcode=SILENCE)


def truncated(record: bytes) -> bytes:
    """Return the record of the response with TC and only OPT, so that a genuine client retries over TCP."""
    _, end, body, size, _, cookie_size, head, _, opt_size, rcode, kind = RECORD.unpack(record)
    header = bytes((head[0] | TC, *head[1:4], 0, 0, 0, 0, 0, bool(opt_size)))
    opt, more = body + size - opt_size, {"cookie_size": cookie_size, "opt_size": opt_size, "kind": kind}
    return make_record(header, end, opt, opt_size, rcode=rcode, **more)


def has_cookie(record: bytes) -> bool:
    """Return whether the response ends with a cookie."""
    return record[_COOKIE_SIZE] != 0


def rcodes(records: bytes) -> bytes:
    """Return the rcode of each of several joined records; SILENCE if there is no response."""
    return records[_RCODE :: RECORD.size]


def kind_number(kind: Hashable) -> int:
    """Return the number that stands for a kind of response in a record."""
    return hash(kind) & 0xFFFFFFFFFFFFFFFF


def kind_of(record: bytes) -> int:
    """Return the number that stands for the record's kind of response."""
    return int(_NUMBER.unpack_from(record, _KIND)[0])


def of_kind(record: bytes, kind: Hashable) -> bytes:
    """Return a record of the same response that the rate limit counts under another kind."""
    return record[:_KIND] + _NUMBER.pack(kind_number(kind))


class Arena:
    """Memory for responses, filled from the start and cleared as a whole."""

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._end = 0
        self.is_full = False

    def put(self, data: bytes) -> int | None:
        """Return the address of a copy of the data; None if the arena is full."""
        at, end = self._end, self._end + len(data)
        if end > len(self._memory):
            self.is_full = True
            return None
        self._memory[at:end] = data
        self._end = end
        return self._start + at

    def response(self, query: bytes, record: bytes, cookie: bytes) -> bytes:
        """Return the bytes of a record's response to a query, with the cookie for the client."""
        _, end, body, size, _, cookie_size, head, arcount, _, _, _ = RECORD.unpack(record)
        at = body - self._start
        parts = query[:ID], head, arcount, query[HEADER_SIZE:end], self._memory[at : at + size]
        return b"".join(parts) + (cookie if cookie_size else b"")

    def clear(self) -> None:
        """Remove everything. Records that point into the arena are then invalid."""
        self._end = 0
        self.is_full = False
