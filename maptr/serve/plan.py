"""A plan: what one reply is made of, as one bytes object that ``slots.py`` lays out for the kernel.

Four ``iovec``, that is addresses and lengths: header and question (in the slot of its query, whose address is put in
when it is sent), the records, the OPT, and a cookie (likewise). Then ten octets of header, without ID, and whether the
rcode is BADVERS, for a header has only its lower half. What it points to must live as long as it is used.
"""

from __future__ import annotations

import ctypes
import struct

from maptr.protocol import BADVERS
from maptr.ready import HEADER, RD, TC, Ready

PLAN = struct.Struct("=8Q8s2s?5x")
HEAD = 64  # in a plan: the ten octets of header
BAD_VERSION = HEAD + 10
ID = 2
FIRST = HEADER - ID  # octets of a query without ID before its first label
USUAL_SIZE = (1232).to_bytes(2, "big")  # what most resolvers say since 2020; none of its octets is a letter
_DATA = bytes.__basicsize__ - 1  # its last octet is the zero after all others


def pack(ready: Ready, opt: bytes, *, question_end: int, flags: int, cookie: int) -> bytes:
    """The plan of a ready reply with that OPT. ``flags`` are the first octet of the query's, ``cookie`` is a size."""
    return PLAN.pack(
        *(0, question_end),
        *(address(ready.body) + ready.start, ready.end - ready.start),
        *(address(opt), len(opt)),
        *(0, cookie),
        bytes((ready.head[0] | flags & RD,)) + ready.head[1:8],
        ready.head[8:],
        ready.kind == BADVERS,
    )


def own(reply: bytes, place: int) -> bytes:
    """The plan of a reply made for one query, whose octets after the header lie at an address."""
    return PLAN.pack(0, HEADER, place, len(reply) - HEADER, 0, 0, 0, 0, reply[2:10], reply[10:HEADER], False)


def truncated(plan: bytes) -> bytes:
    """As ``Found.truncated``: TC and no records but OPT."""
    slot, question_end, records, _, *opt, head, _, bad_version = PLAN.unpack(plan)
    flags = bytes((head[0] | TC,)) + head[1:4] + bytes(4)
    return PLAN.pack(slot, question_end, records, 0, *opt, flags, bytes((0, bool(opt[1]))), bad_version)


def parts(plan: bytes) -> tuple[bytes, int, bytes]:
    """Of the reply by a plan, without ID and cookie: its header, where its question ends, what follows that."""
    _, question_end, records, size, opt, opt_size, _, _, head, last, _ = PLAN.unpack(plan)
    return head + last, question_end - ID, ctypes.string_at(records, size) + ctypes.string_at(opt, opt_size)


def whole(plan: bytes, query: bytes) -> bytes:
    """The reply without its ID and cookie to a query without its ID, by its plan."""
    head, end, rest = parts(plan)
    return head + query[FIRST:end] + rest


def address(octets: bytes) -> int:
    """Where they lie, as long as they live: after the head of their object, in CPython (``batch.why_not``)."""
    return id(octets) + _DATA


def read_address(octets: bytes) -> int:
    """The same by ctypes, thirty times as slow and sure."""
    return ctypes.cast(ctypes.c_char_p(octets), ctypes.c_void_p).value or 0


# The plan of what is not sent.
SILENCE = PLAN.pack(0, 0, 0, 0, 0, 0, 0, 0, bytes(8), bytes(2), False)
