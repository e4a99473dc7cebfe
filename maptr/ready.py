"""What a ready reply is, and how much of a query must be read to find one: octets and offsets, no zone.

Which reply a question has is for ``fastpath.py`` to say.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Hashable
from typing import NamedTuple

from maptr import context
from maptr.context import OPTION_HEADER
from maptr.cookies import CLIENT_COOKIE, WHOLE_COOKIE, is_well_formed
from maptr.names import MAX_LABEL, MAX_NAME
from maptr.protocol import FORMERR, HEADER_SIZE, NOERROR
from maptr.snapshot import RDATA_NAMES

HEADER = HEADER_SIZE  # for short, in all the slices
ONE = b"\0\1"  # question
NO_RECORDS, ONE_RECORD = bytes(6), bytes((0, 0, 0, 0, 0, 1))
OPT_START = b"\0\0\x29"  # the root and type 41 (RFC 6891 6.1.2)
OPT_SIZE = 11
# A client's cookie alone, and one with a server's of the usual size (RFC 9018 4); what stands before them as options.
COOKIE_SIZES = CLIENT_COOKIE, WHOLE_COOKIE
CLIENT_OPTION, WHOLE_OPTION = (struct.pack("!HH", context.COOKIE, size) for size in COOKIE_SIZES)
_BEFORE_CLIENT, _BEFORE_WHOLE = (slice(-OPTION_HEADER - size, -size) for size in COOKIE_SIZES)
COOKIE_REPLY = OPTION_HEADER + WHOLE_COOKIE
ANSWERED = frozenset({context.NSID, context.COOKIE, context.KEEPALIVE, context.PADDING})
CLASS_IN = b"\0\1"
QR, TC, OPCODE, RD = 0x80, 0x02, 0x78, 0x01  # in the first octet of the flags
MIN_QUESTION = 5  # the root, type and class

NO_EDNS, EDNS, DO = range(3)  # the three forms of a reply, apart from its size


class Edns(NamedTuple):
    """What is said by EDNS: ``payload`` octets fit, ``cookies`` are answered, and so is who asks for ``nsid``."""

    payload: int
    cookies: bool
    nsid: bool

    def opt(self, *, do: bool = False) -> bytes:
        """The OPT of a reply without an option, as ``edns.make_opt`` has it (RFC 6891 6.1.2)."""
        return OPT_START + self.payload.to_bytes(2, "big") + bytes((0, 0, 0x80 * do, 0, 0, 0))


class Shared(enum.Enum):
    """Who has the same reply, by the octets of the query that are not its first label."""

    BY_NAME = enum.auto()  # as the zone has it (``fellows.Fellows``)
    BY_ORIGIN = enum.auto()  # likewise, and all as long that the zone does not have, or that no zone has
    BY_ALL = enum.auto()
    BY_PROOF = enum.auto()  # those who are denied by the same records
    BY_NONE = enum.auto()  # those, or others, who are too few to look for


class Ready(NamedTuple):
    """A reply without ID and question: ``head`` is flags (RD clear) and counts, the records ``body[start:end]``.

    ``kind`` is what a rate limit counts it by (``answer.Reply``); None where that is the name asked. ``shared`` is who
    else has it.
    """

    head: bytes
    body: bytes
    start: int
    end: int
    opt: bytes
    kind: Hashable
    shared: Shared = Shared.BY_NAME


class Found(NamedTuple):
    """A ready reply to one query, whose question ends at ``question_end``, and the cookie that it sent."""

    ready: Ready
    question_end: int
    cookie: bytes | None

    def kind(self, query: bytes) -> Hashable:
        """What a rate limit counts the reply by, the same as ``answer.py`` says."""
        if self.ready.kind is not None:
            return self.ready.kind
        end = self.question_end
        answered = self.ready.head[4:6] != b"\0\0"
        qtype = query[end - 4] << 8 | query[end - 3] if answered else 0
        return NOERROR, query[HEADER : end - 4].lower(), qtype

    def size(self) -> int:
        """Octets of the reply, with its answer to the cookie."""
        ready = self.ready
        cookie = 0 if self.cookie is None else COOKIE_REPLY
        return self.question_end + ready.end - ready.start + len(ready.opt) + cookie

    def key_size(self, query: bytes) -> int:
        """How many octets of the query all have that differ in the cookie alone; 0 where others could.

        It must have nothing behind its question but an OPT with no option but the cookie.
        """
        cookie = 0 if self.cookie is None else len(self.cookie)
        size = len(query) - cookie
        opt = OPT_SIZE + OPTION_HEADER * bool(cookie) if self.ready.opt else 0
        return size if size == self.question_end + opt else 0

    def opt(self, cookie: bytes | None) -> bytes:
        """The OPT of the reply, with a cookie for the client where one is to go."""
        return self.ready.opt if cookie is None else with_cookie(self.ready.opt) + cookie

    def reply(self, query: bytes, cookie: bytes | None = None) -> bytes:
        """The whole reply: ID, RD and question are the query's own."""
        ready = self.ready
        flags = ready.head[0] | query[2] & RD
        return b"%b%c%b%b%b%b" % (
            query[:2],
            flags,
            ready.head[1:],
            query[HEADER : self.question_end],
            ready.body[ready.start : ready.end],
            self.opt(cookie),
        )

    def cut(self, query: bytes) -> Found:
        """With TC and no records but OPT, because the rest does not fit."""
        head, body, start, _, opt, kind, shared = self.ready
        if kind is None and head[4:6] != b"\0\0":
            kind = self.kind(query)  # there are answers, as nobody can see any more
        if shared is not Shared.BY_PROOF:
            shared = Shared.BY_NONE
        head = bytes((head[0] | TC, *head[1:4], 0, 0, 0, 0, 0, bool(opt)))
        # The records stay, of which there are none now: by their place the plans of two kinds differ.
        return self._replace(ready=Ready(head, body, start, start, opt, kind, shared))

    def truncated(self, query: bytes, cookie: bytes | None = None) -> bytes:
        """As ``rendering.Reply.truncated``: TC and no records but OPT."""
        return self.cut(query).reply(query, cookie)


class Mould(NamedTuple):
    """A reply of which others are made, whose question is longer or shorter by what stands before ``place`` in it.

    Nothing in its records may point to before that place but the whole name asked, as a wildcard's records do, so all
    other compression pointers move by as much.
    """

    ready: Ready
    place: int
    pointers: tuple[int, ...]  # where they stand in the body

    @classmethod
    def of(cls, ready: Ready, place: int) -> Mould:
        """Made of a whole body of trusted octets."""
        counts = ready.head[4:10]
        records = sum(int.from_bytes(counts[at : at + 2], "big") for at in (0, 2, 4)) - bool(ready.opt)
        body, at = ready.body, 0
        pointers: list[int] = []
        for _ in range(records):
            at = _skip_name(body, at, pointers)
            rdtype, size = int.from_bytes(body[at : at + 2], "big"), int.from_bytes(body[at + 8 : at + 10], "big")
            at += 10
            skip, names = RDATA_NAMES.get(rdtype, (0, 0))
            inside = at + skip
            for _ in range(names):
                inside = _skip_name(body, inside, pointers)
            at += size
        asked = _POINTER_TO_QUESTION if place else b""
        return cls(ready, place, tuple(pointer for pointer in pointers if body[pointer : pointer + 2] != asked))

    def at(self, place: int) -> Ready:
        """The reply to a question with the same name at another place."""
        body = bytearray(self.ready.body)
        for pointer in self.pointers:
            target = (body[pointer] << 8 | body[pointer + 1]) + place - self.place
            body[pointer : pointer + 2] = target.to_bytes(2, "big")
        return self.ready._replace(body=bytes(body))


def _skip_name(wire: bytes, at: int, pointers: list[int]) -> int:
    """Where a name ends; a compression pointer in it is added to those."""
    while length := wire[at]:
        if length > MAX_LABEL:
            pointers.append(at)
            return at + 2
        at += length + 1
    return at + 1


def find_labels(query: bytes, start: int = HEADER, end: int | None = None) -> list[int] | None:
    """Where in the question's name its labels start, the root last; the name starts and the query ends as told.

    None for a question that cannot be read: its name is no plain one, or too long, or it is cut (RFC 1035 4.1.2).
    """
    offsets = []
    at, last = start, min((len(query) if end is None else end) - MIN_QUESTION, start + MAX_NAME - 1)
    while at <= last:
        offsets.append(at - start)
        length = query[at]
        if not length:
            return offsets
        if length > MAX_LABEL:
            return None
        at += length + 1
    return None


def with_cookie(opt: bytes) -> bytes:
    """An OPT made longer by an option for a whole cookie at its end, up to where the cookie starts."""
    size = int.from_bytes(opt[9:OPT_SIZE], "big") + COOKIE_REPLY
    return opt[:9] + size.to_bytes(2, "big") + opt[OPT_SIZE:] + WHOLE_OPTION


def cookie_size(query: bytes) -> int:
    """How many octets at a query's end are a cookie, if what is before them is as it looks; 0 if none are.

    For who knows queries by those octets, as any with the same: where there is no cookie, nothing is known by them.
    """
    if query[_BEFORE_CLIENT] == CLIENT_OPTION:
        return CLIENT_COOKIE
    return WHOLE_COOKIE if query[_BEFORE_WHOLE] == WHOLE_OPTION else 0


def read_options(octets: bytes, at: int, end: int) -> dict[int, bytes] | None:
    """Those of the options between two places that are answered, of each the first.

    None where there is a cookie of a wrong length. Raises ValueError for an option that is cut short.
    """
    options: dict[int, bytes] = {}
    well_formed = True
    while at < end:
        data = at + OPTION_HEADER
        stop = data + int.from_bytes(octets[at + 2 : data], "big")
        if data > end or stop > end:
            raise ValueError("an option cut short")
        code = octets[at] << 8 | octets[at + 1]
        if code in ANSWERED:
            option = octets[data:stop]
            if code == context.COOKIE and not is_well_formed(option):
                well_formed = False
            options.setdefault(code, option)
        at = stop
    return options if well_formed else None


_POINTER_TO_QUESTION = (0xC000 | HEADER).to_bytes(2, "big")
# The reply to a query whose question nobody could read: FORMERR, and no more of it sent back than its ID.
UNREADABLE = Found(Ready(bytes((QR, FORMERR, 0, 0, 0, 0, 0, 0, 0, 0)), b"", 0, 0, b"", FORMERR), HEADER, None)
