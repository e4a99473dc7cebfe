"""What a ready reply is, and how much of a query must be read to find one: octets and offsets, no zone.

Which reply a question has is for ``fastpath.py`` to say.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from maptr import context
from maptr.context import OPTION_HEADER
from maptr.cookies import is_well_formed
from maptr.names import MAX_LABEL, MAX_NAME
from maptr.snapshot import RDATA_NAMES

HEADER = 12  # RFC 1035 4.1.1
MIN_PAYLOAD = 512  # RFC 1035 4.2.1, and RFC 6891 6.2.3
PLAIN_COUNTS = bytes((0, 1, 0, 0, 0, 0, 0, 0))  # one question and nothing else
EDNS_COUNTS = bytes((0, 1, 0, 0, 0, 0, 0, 1))
OPT_START = b"\0\0\x29"  # the root and type 41 (RFC 6891 6.1.2)
OPT_SIZE = 11
COOKIE = context.COOKIE.to_bytes(2, "big")
# Whole options: a client cookie alone, and one with a server cookie of the usual size (RFC 9018 4).
COOKIE_SIZES = (4 + 8, 4 + 24)
COOKIE_REPLY = 4 + 24
ANSWERED = frozenset({context.NSID, context.COOKIE, context.KEEPALIVE, context.PADDING})
CLASS_IN = b"\0\1"
NOERROR, FORMERR, NXDOMAIN = 0, 1, 3  # RFC 1035 4.1.1
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


class Ready(NamedTuple):
    """A reply without ID and question: ``head`` is flags (RD clear) and counts, the records ``body[start:end]``.

    ``kind`` is what a rate limit counts it by (``answer.Reply``); None where that is the name asked. ``proved``: it has
    the proof that this very name does not exist, which other names share by their place in the zone alone.
    """

    head: bytes
    body: bytes
    start: int
    end: int
    opt: bytes
    kind: Hashable
    proved: bool = False


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

    def truncated(self, query: bytes, cookie: bytes | None = None) -> bytes:
        """As ``answer.Reply.truncated``: TC and no records but OPT."""
        opt, head = self.opt(cookie), self.ready.head
        flags = bytes((head[0] | query[2] & RD | TC, head[1], head[2], head[3], 0, 0, 0, 0, 0, bool(opt)))
        return query[:2] + flags + query[HEADER : self.question_end] + opt


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


def find_labels(name: bytes) -> list[int] | None:
    """Where the labels of a name start, the root last; None for what is no plain name and nothing else."""
    offsets = []
    at, last = 0, len(name) - 1
    while at < last and 0 < (length := name[at]) <= MAX_LABEL:
        offsets.append(at)
        at += length + 1
    if at != last or name[last]:
        return None
    offsets.append(last)
    return offsets


def with_cookie(opt: bytes) -> bytes:
    """An OPT made longer by an option for a whole cookie at its end, up to where the cookie starts."""
    size = int.from_bytes(opt[9:OPT_SIZE], "big") + COOKIE_REPLY
    return opt[:9] + size.to_bytes(2, "big") + opt[OPT_SIZE:] + COOKIE + bytes((0, COOKIE_REPLY - 4))


def before_cookie(query: bytes) -> int:
    """Where the OPT starts whose one option is a cookie; 0 if there is none."""
    for size in COOKIE_SIZES:
        start = len(query) - OPT_SIZE - size
        if (
            start > HEADER
            and query[start : start + 3] == OPT_START
            and query[start + 9 : start + 13] == bytes((0, size)) + COOKIE
            and query[start + 13 : start + 15] == bytes((0, size - 4))
        ):
            return start
    return 0


def find_options(query: bytes) -> tuple[int, dict[int, bytes]] | None:
    """Where the OPT starts that follows the question and ends the query, and those of its options that are answered.

    Of each code the first. None where there is none, or one to find fault with: an option cut short, a cookie of a
    wrong length.
    """
    at, size = HEADER, len(query)
    while at < size and (length := query[at]):
        if length > MAX_LABEL:
            return None
        at += length + 1
    start = at + MIN_QUESTION
    at = start + OPT_SIZE
    if query[start : start + 3] != OPT_START or int.from_bytes(query[at - 2 : at], "big") != size - at:
        return None
    options: dict[int, bytes] = {}
    while at < size:
        data = at + OPTION_HEADER
        if data > size:
            return None
        end = data + (query[at + 2] << 8 | query[at + 3])
        if end > size:
            return None
        code = query[at] << 8 | query[at + 1]
        if code in ANSWERED:
            option = query[data:end]
            if code == context.COOKIE and not is_well_formed(option):
                return None
            options.setdefault(code, option)
        at = end
    return start, options


def find_malformed(query: bytes) -> Found | None:
    """The reply to a query whose question nobody could read: FORMERR, and no more of it sent back than its ID.

    None for what may be answered otherwise. What is wrong with records is for the general path to see.
    """
    if len(query) < HEADER or query[2] & (QR | OPCODE):
        return None
    questions = query[4] << 8 | query[5]
    if questions == 1:
        return None if _reads(query) else _UNREADABLE
    if questions and not any(query[6:HEADER]):
        return _UNREADABLE  # RFC 9619; with records, a signature might be among them
    return None


def _reads(query: bytes) -> bool:
    """Whether a question stands there: a name of labels, never a pointer, and type and class (RFC 1035 4.1.2)."""
    at, last = HEADER, min(len(query), HEADER + MAX_NAME)
    while at < last and (length := query[at]):
        if length > MAX_LABEL:
            return False
        at += length + 1
    return at < last and at + MIN_QUESTION <= len(query)


_POINTER_TO_QUESTION = (0xC000 | HEADER).to_bytes(2, "big")
_UNREADABLE = Found(Ready(bytes((QR, FORMERR, 0, 0, 0, 0, 0, 0, 0, 0)), b"", 0, 0, b"", FORMERR), HEADER, None)
