"""EDNS(0) as a server meets it (RFC 6891): the OPT of a query, checked, and the OPT of its reply.

How octets lie is ``packet.py``'s; whether a cookie is one of ours, ``cookies.py``'s.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from maptr.context import COOKIE, KEEPALIVE, MIN_PAYLOAD, NSID, OPTION_HEADER, PADDING, Context
from maptr.cookies import is_well_formed
from maptr.packet import Record, find_opt_record
from maptr.protocol import DO, EDE, OPT

EDE_NOT_READY = 14  # RFC 8914 4.15
EDE_PROHIBITED = 18  # RFC 8914 4.19
EDE_NOT_AUTHORITATIVE = 20  # RFC 8914 4.21
EDE_NOT_SUPPORTED = 21  # RFC 8914 4.22

PADDING_BLOCK = 468  # RFC 8467 4.1: padded replies are multiples of this
KEEPALIVE_UNITS = 10  # a second, RFC 7828 3.1

_OPTION = struct.Struct("!HH")  # code and length, RFC 6891 6.1.2
_OPT = struct.Struct("!xHHIH")  # at the root: type, payload, extended rcode with version and flags, length

Option = tuple[int, bytes]


class Opt(NamedTuple):
    """The OPT of a query."""

    payload: int
    version: int
    do: bool
    options: list[Option]


class Asked(NamedTuple):
    """Which options a query has that we answer. Of one that comes twice the first counts."""

    nsid: bool = False
    cookie: bytes | None = None
    keepalive: bool = False
    padding: bool = False


NOTHING_ASKED = Asked()


def find_opt(sections: list[list[Record]]) -> Opt | None:
    """The OPT of a query, or None. Raises ValueError as ``find_opt_record`` does, and for an option cut short."""
    record = find_opt_record(sections)
    if record is None:
        return None
    _, _, payload, ttl, data = record
    return Opt(payload, ttl >> 16 & 0xFF, bool(ttl & DO), _split(data))


def _split(data: bytes) -> list[Option]:
    options: list[Option] = []
    at, size = 0, len(data)
    while at < size:
        if at + OPTION_HEADER > size:
            raise ValueError("an option without a length")
        code, length = _OPTION.unpack_from(data, at)
        at += OPTION_HEADER + length
        if at > size:
            raise ValueError("an option cut short")
        options.append((code, data[at - length : at]))
    return options


def read_options(opt: Opt) -> Asked:
    """ValueError for a cookie of a wrong length (RFC 7873 5.2.2); unknown options pass (RFC 6891 6.1.2)."""
    if not opt.options:
        return NOTHING_ASKED
    options: dict[int, bytes] = {}
    for code, data in opt.options:
        if code == COOKIE and not is_well_formed(data):
            raise ValueError("a cookie of a wrong length")
        options.setdefault(code, data)
    # What comes with NSID, keepalive and padding is nothing to us, as in all four servers: none has a meaning.
    return Asked(NSID in options, options.get(COOKIE), KEEPALIVE in options, PADDING in options)


def udp_limit(opt: Opt | None, payload: int) -> int:
    """How large a UDP reply may be (RFC 6891 6.2.5), where we send no more than the payload."""
    return MIN_PAYLOAD if opt is None else min(max(opt.payload, MIN_PAYLOAD), payload)


def reply_options(
    asked: Asked, context: Context, *, cookie: bytes | None, ede: int | None, stream: bool
) -> list[Option]:
    """The options of a reply but for padding: only what was asked for, and EDE.

    The cookie is the last, so that what stands before it is the same whoever asks (``ready.py``).
    """
    options = []
    if asked.nsid and context.identity.nsid:
        options.append((NSID, context.identity.nsid.encode()))
    if asked.keepalive and stream and context.idle_timeout is not None:
        units = min(int(context.idle_timeout * KEEPALIVE_UNITS), 0xFFFF)
        options.append((KEEPALIVE, units.to_bytes(2, "big")))
    if ede is not None:
        options.append((EDE, ede.to_bytes(2, "big")))
    if cookie is not None:
        options.append((COOKIE, cookie))
    return options


def padding_to_block(size: int, limit: int) -> Option | None:
    """The last option of a reply that has so many octets without it; None where it would not fit."""
    size += OPTION_HEADER
    return (PADDING, bytes(min(-size % PADDING_BLOCK, limit - size))) if size <= limit else None


def write_opt(query_opt: Opt, payload: int, options: list[Option], *, rcode: int = 0) -> bytes:
    """The OPT of a reply: version 0, DO copied (RFC 3225 3), nothing else of the query's echoed."""
    data = b"".join([_OPTION.pack(code, len(value)) + value for code, value in options])
    return _OPT.pack(OPT, payload, (rcode >> 4) << 24 | (DO if query_opt.do else 0), len(data)) + data
