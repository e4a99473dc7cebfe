"""The one shortcut: responses learned from the general path, found again by one key and sent from one arena.

Nothing here decides what a response says. A query that has no ready response goes to ``answer.py``; ``learn`` then
keeps the response where it holds for other queries, too. There are three tables:

* ``known``: the query as it came, without its ID. Most queries need no more than this.
* ``_answers``: header, question in lower case and form of EDNS, for any spelling of the name and any cookie.
* ``_shapes``: the same without the first label, whose length stays. All names of a shape that do not exist have the
  same response (one for each gap of a signed chain), and so have those that have one RRset of another type. The only
  RRset of a name is answered from the zone's table once the general path gave those bytes for another name.

A response that another size limit would change is found with that limit only. All tables are bounded, and a name that
does not exist is never stored.

A ready response is one ``RECORD``: what ``batch.py`` hands to the kernel, with its address in the arena.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from maptr.answer.context import COOKIE, MIN_PAYLOAD
from maptr.answer.message import Reply
from maptr.protocol.cookies import CLIENT_COOKIE, WHOLE_COOKIE
from maptr.protocol.names import Labels, to_wire
from maptr.protocol.numbers import MAX_MESSAGE, NOERROR, NXDOMAIN, RCODE_BITS, REFUSED
from maptr.zone.packed import INERT, RRSET
from maptr.zone.snapshot import ZoneView

# Three iovec: the question, records with OPT, the cookie. The first and the third address are set when it is sent.
# Then the header without ID, bytes of OPT without the cookie, the rcode, and what the rate limit counts it by, or 0.
RECORD = struct.Struct("=6Q8s2sHB3xQ")
COOKIE_FIELD = 40  # the low byte of the size of the cookie in a record
RCODE_FIELD = 60
KIND_FIELD = 64
SILENCE = 16  # instead of an rcode: nothing is sent
NO_RESPONSE = RECORD.pack(0, 0, 0, 0, 0, 0, bytes(8), bytes(2), 0, SILENCE, 0)

ID = 2  # bytes
HEADER = 10  # bytes of the header without ID
MIN_KEY = HEADER + 5  # with a question for the root
OPT_START = b"\0\0\x29"  # the root and type 41 (RFC 6891 6.1.2)
OPT_SIZE = 11
CLASS_IN = b"\0\1"
# The flags, QDCOUNT, ANCOUNT and NSCOUNT of an ordinary query: RD, AD and CD may be set.
FLAGS = frozenset(bytes((rd, ad_cd)) for rd in (0, 1) for ad_cd in (0, 0x10, 0x20, 0x30))
ONE_QUESTION = b"\0\1\0\0\0\0"
CLIENT_OPTION, WHOLE_OPTION = (struct.pack("!HH", COOKIE, size) for size in (CLIENT_COOKIE, WHOLE_COOKIE))
TC = 0x02  # in the first byte of the flags
ANY_LIMIT = b"\0\0"  # in keys: as long as a limit, or a key could end in bytes of the question

ARENA_SIZE = 1 << 26  # bytes, of which only those written take memory
MAX_ANSWERS = 1 << 17  # responses by question, some 300 bytes each, and as many by query
MAX_SHAPES = 1 << 14
MAX_GAPS = 1 << 16
MAX_FORMS = 1 << 12

_INERT = frozenset(rdtype.to_bytes(2, "big") for rdtype in INERT)


class Arena:
    """Memory for responses, filled from the start and cleared as a whole."""

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._end = 0

    def put(self, data: bytes) -> int | None:
        """The address of a copy of the data; None where there is no room."""
        at, end = self._end, self._end + len(data)
        if end > len(self._memory):
            return None
        self._memory[at:end] = data
        self._end = end
        return self._start + at

    def get(self, address: int, size: int) -> bytes:
        """The bytes that were put there."""
        at = address - self._start
        return self._memory[at : at + size]

    def clear(self) -> None:
        self._end = 0


class Form(NamedTuple):
    """What a query's OPT asks for, as the end of a key: ``small`` for responses that any limit allows, else ``large``.

    ``opt`` and ``cookie`` are sizes in bytes, the one with the other.
    """

    small: bytes
    large: bytes
    opt: int = 0
    cookie: int = 0
    do: bool = False


class Frame(NamedTuple):
    """What a response has beside question and records: flags, OPT without a cookie, and the size of its cookie."""

    flags: bytes
    opt: bytes
    cookie: int

    def head(self, packed: bytes) -> bytes:
        """The header, without ID, of a response with the only RRset of a name."""
        return self.flags + b"\0\1" + packed[2:4] + bytes((0, 0, 0, bool(self.opt)))


@dataclass(slots=True)
class Shape:
    """The responses that the names of one shape share; None for those not learned yet.

    ``find`` gives the packed RRsets of a name, None where it does not exist. ``elsewhere`` are names that are another
    zone's. With ``gap``, the number of the gap a name lies in, ``gaps`` has the denials. ``frame`` is for responses
    from the table.
    """

    find: Callable[[bytes], bytes | None]
    elsewhere: frozenset[bytes]
    absent: bytes | None = None
    empty: bytes | None = None
    frame: Frame | None = None
    gap: Callable[[bytes], int] | None = None
    gaps: dict[int, bytes] = field(default_factory=dict)


class Zone(NamedTuple):
    """A zone by folded wire names: ``find`` as in Shape."""

    view: ZoneView
    origin: bytes
    find: Callable[[bytes], bytes | None]

    @classmethod
    def of(cls, view: ZoneView) -> Zone:
        nodes = view.nodes
        return cls(view, to_wire(view.origin), nodes.table.get if nodes.packer is None else nodes.find)


class Ready:
    """The ready responses from some zones, for one thread and one kind of transport.

    What is at or below ``others``, folded origins, is left to the general path. ``payload`` limits responses by UDP;
    without it they are for streams, which have no limit that matters.
    """

    def __init__(self, zones: Iterable[Zone], others: Iterable[Labels], payload: int | None) -> None:
        self.known: dict[bytes, bytes] = {}
        self._payload = payload
        self._arena = Arena(ARENA_SIZE)
        self._answers: dict[bytes, bytes] = {}
        self._shapes: dict[bytes, Shape] = {}
        self._forms: dict[bytes, Form] = {}
        self._gaps = 0
        self._full = False
        self._no_edns = Form(b"\0" + ANY_LIMIT, b"\0" + self._limit(MIN_PAYLOAD))
        self._zones = {zone.origin: zone for zone in zones}
        self._others = frozenset(map(to_wire, others))
        self._children: dict[bytes, frozenset[bytes]] = {}
        for origin in (*self._zones, *self._others):
            above = origin[1 + origin[0] :]
            self._children[above] = self._children.get(above, frozenset()) | {origin}

    def find(self, key: bytes) -> tuple[bytes, bytes] | None:
        """The record for a query without its ID, and the client's cookie, if any; None for the general path."""
        form = self._no_edns
        if key[8:HEADER] != b"\0\0":
            # One of the three sizes of an OPT, without or with a cookie. What only looks like one finds no key.
            found = self._forms.get(key[-11:]) or self._forms.get(key[-23:-8]) or self._forms.get(key[-39:-24])
            if found is None:
                return None
            form = found
        small, large, opt, cookie_size, _ = form
        end = len(key) - opt
        if end < MIN_KEY:
            return None
        cookie = key[len(key) - cookie_size :]
        folded = key[: end - 4].lower() + key[end - 4 : end]
        question = folded + small
        record = self._answers.get(question) or self._find_by_shape(question, end)
        if record is None:
            question = folded + large
            record = self._answers.get(question) or self._find_by_shape(question, end)
            if record is None:
                return None
        if not cookie and key not in self.known and question in self._answers and key.startswith(folded):
            self.known[key] = record
            self._full = self._full or len(self.known) >= MAX_ANSWERS
        return record, cookie

    def _find_by_shape(self, question: bytes, end: int) -> bytes | None:
        """The record for a question that ends there, by the shape of its name."""
        shape = self._shapes.get(question[: HEADER + 1] + question[HEADER + 1 + question[HEADER] :])
        if shape is None:
            return None
        name = question[HEADER : end - 4]
        if name in shape.elsewhere:
            return None
        packed = shape.find(name)
        if packed is None:
            return shape.absent if shape.gap is None else shape.gaps.get(shape.gap(name))
        if not _is_only_inert(packed):
            return None
        if packed[:2] != question[end - 4 : end - 2]:
            return shape.empty
        return None if shape.frame is None else self._answer(question, ID + end, shape.frame, packed)

    def _answer(self, question: bytes, end: int, frame: Frame, packed: bytes) -> bytes | None:
        """The record for the only RRset of the name asked; None where it does not fit any client."""
        body = packed[RRSET.size :] + frame.opt
        if end + len(body) + frame.cookie > MIN_PAYLOAD:
            return None
        kind = kind_number((NOERROR, question[HEADER : end - ID - 4], packed[0] << 8 | packed[1]))
        record = self._pack(end, frame.head(packed), body, len(frame.opt), frame.cookie, kind)
        self._keep(question, record)
        return record

    def learn(self, query: bytes, reply: Reply) -> None:
        """Keep a response of the general path, over this kind of transport, where it holds for other queries, too."""
        key, end = query[ID:], reply.question_end - ID
        form = self._read_form(key, end)
        if form is None or reply.for_one:
            return
        large = reply.cut or len(reply.wire) > MIN_PAYLOAD
        question = key[: end - 4].lower() + key[end - 4 : end] + (form.large if large else form.small)
        name = question[HEADER : end - 4]
        if self._is_left_out(name):
            return
        zone = self._closest(name)
        if zone is None:
            if reply.kind == REFUSED:
                self._learn_absent(question, name, _find_nothing, reply)
            return
        packed = zone.find(name)
        if not isinstance(reply.kind, tuple):
            return  # an error, which may depend on the client
        if packed is None:
            self._learn_denial(question, name, zone, reply, do=form.do)
        elif name == zone.origin or not _is_only_inert(packed) or (form.do and zone.view.denial is not None):
            self._keep(question, self._record(reply))  # the last: a denial of one name's types, though it has no RRSIG
        elif packed[:2] == key[end - 4 : end - 2]:
            self._keep(question, self._record(reply))
            if not large:
                self._learn_frame(question, name, zone, reply, packed)
        elif reply.kind == (NOERROR, name, 0):
            shape = self._shape(question, name, zone.find)
            shape.empty = shape.empty or self._record(reply, by_name=True)

    def tidy(self) -> None:
        """Forget everything if a table is full. Records found before are then no longer valid."""
        if self._full:
            for table in (self.known, self._answers, self._shapes, self._forms):
                table.clear()
            self._arena.clear()
            self._gaps, self._full = 0, False

    def response(self, query: bytes, record: bytes, cookie: bytes) -> bytes:
        """The whole response of a record to a query, with the cookie that goes to the client."""
        _, end, body, size, _, with_cookie, head, rest, _, _, _ = RECORD.unpack(record)
        parts = query[:ID], head, rest, query[ID + HEADER : end], self._arena.get(body, size)
        return b"".join(parts) + (cookie if with_cookie else b"")

    # ---- learning

    def _read_form(self, key: bytes, end: int) -> Form | None:
        """The form of EDNS of a query whose question ends there; None for one whose response is not kept."""
        if key[:2] not in FLAGS or key[2:8] != ONE_QUESTION or key[end - 2 : end] != CLASS_IN:
            return None
        opt = key[end:]
        if not opt:
            return self._no_edns if key[8:HEADER] == b"\0\0" else None
        cookie = {CLIENT_OPTION: CLIENT_COOKIE, WHOLE_OPTION: WHOLE_COOKIE}.get(opt[OPT_SIZE : OPT_SIZE + 4], 0)
        fixed = OPT_SIZE + (4 if cookie else 0)
        if key[8:HEADER] != b"\0\1" or opt[:3] != OPT_START or len(opt) != fixed + cookie:
            return None
        # Nothing but DO may be set beside the payload size.
        if opt[5:7] != b"\0\0" or opt[7] & 0x7F or opt[8] or int.from_bytes(opt[9:11], "big") + OPT_SIZE != len(opt):
            return None
        form = self._forms.get(opt[:fixed])
        if form is None:
            flags = bytes((1 | opt[7] >> 6 | (4 if cookie else 0),))
            large = flags + self._limit(int.from_bytes(opt[3:5], "big"))
            form = self._forms[opt[:fixed]] = Form(flags + ANY_LIMIT, large, len(opt), cookie, bool(opt[7]))
            self._full = self._full or len(self._forms) >= MAX_FORMS
        return form

    def _limit(self, payload: int) -> bytes:
        limit = MAX_MESSAGE if self._payload is None else min(max(payload, MIN_PAYLOAD), self._payload)
        return limit.to_bytes(2, "big")

    def _closest(self, name: bytes) -> Zone | None:
        """The zone that answers for a name."""
        return next((self._zones[above] for above in _names_above(name) if above in self._zones), None)

    def _is_left_out(self, name: bytes) -> bool:
        """Whether something else than the zones answers for a name, or no zone that did load."""
        return bool(self._others) and not self._others.isdisjoint(_names_above(name))

    def _learn_denial(self, question: bytes, name: bytes, zone: Zone, reply: Reply, *, do: bool) -> None:
        """Keep the response to a name that does not exist: a referral or a denial."""
        assert isinstance(reply.kind, tuple)  # noqa: S101 - the caller looked
        rest = name[1 + name[0] :]
        if reply.kind[2] or not rest.endswith(reply.kind[1]):
            return  # it has an answer, though that may have been cut; or it is a wildcard's
        rcode = reply.kind[0]
        if rcode == NOERROR:
            self._learn_absent(question, name, _find_nothing, reply)
        elif rcode == NXDOMAIN and zone.find(rest) is not None:
            if not do or zone.view.denial is None:
                self._learn_absent(question, name, zone.find, reply)
                return
            shape = self._shape(question, name, zone.find)
            shape.gap = shape.gap or zone.view.denial.gap(rest, apex=rest == zone.origin)
            record = None if shape.gap is None else self._record(reply)
            if shape.gap is not None and record is not None:
                shape.gaps[shape.gap(name)] = record
                self._gaps += 1
                self._full = self._full or self._gaps >= MAX_GAPS

    def _learn_absent(self, question: bytes, name: bytes, find: Callable[[bytes], bytes | None], reply: Reply) -> None:
        shape = self._shape(question, name, find)
        shape.absent = shape.absent or self._record(reply)

    def _learn_frame(self, question: bytes, name: bytes, zone: Zone, reply: Reply, packed: bytes) -> None:
        """Answer all names of a shape from the table, if that gives the bytes of this response."""
        cookie = WHOLE_COOKIE if reply.cookie else 0
        wire = reply.wire[: len(reply.wire) - cookie]
        frame = Frame(wire[ID : ID + 2], wire[len(wire) - reply.opt_size + cookie :] if reply.opt_size else b"", cookie)
        if frame.head(packed) + wire[12 : reply.question_end] + packed[RRSET.size :] + frame.opt == wire[ID:]:
            self._shape(question, name, zone.find).frame = frame

    def _shape(self, question: bytes, name: bytes, find: Callable[[bytes], bytes | None]) -> Shape:
        key = question[: HEADER + 1] + question[HEADER + 1 + question[HEADER] :]
        shape = self._shapes.get(key)
        if shape is None:
            elsewhere = self._children.get(name[1 + name[0] :], frozenset())
            shape = self._shapes[key] = Shape(find, elsewhere)
            self._full = self._full or len(self._shapes) >= MAX_SHAPES
        return shape

    def _keep(self, question: bytes, record: bytes | None) -> None:
        if record is not None:
            self._answers[question] = record
            self._full = self._full or len(self._answers) >= MAX_ANSWERS

    def _record(self, reply: Reply, *, by_name: bool = False) -> bytes | None:
        """The record of a response; ``by_name``: the rate limit counts it by the name asked."""
        cookie = WHOLE_COOKIE if reply.cookie else 0
        body = reply.wire[reply.question_end : len(reply.wire) - cookie]
        kind = 0 if by_name else kind_number(reply.kind)
        return self._pack(reply.question_end, reply.wire[ID:12], body, max(reply.opt_size - cookie, 0), cookie, kind)

    def _pack(self, end: int, head: bytes, body: bytes, opt_size: int, cookie: int, kind: int) -> bytes | None:
        address = self._arena.put(body)
        if address is None:
            self._full = True
            return None
        rcode = head[1] & RCODE_BITS
        return RECORD.pack(0, end, address, len(body), 0, cookie, head[:8], head[8:], opt_size, rcode, kind)


def truncated(record: bytes) -> bytes:
    """The record with TC and no resource record but OPT, so that a real client asks again over TCP."""
    _, end, body, size, _, cookie, head, _, opt_size, rcode, kind = RECORD.unpack(record)
    head = bytes((head[0] | TC,)) + head[1:4] + bytes(4)
    rest = bytes((0, bool(opt_size)))
    return RECORD.pack(0, end, body + size - opt_size, opt_size, 0, cookie, head, rest, opt_size, rcode, kind)


def kind_number(kind: Hashable) -> int:
    """What stands for a kind of response in a record; never 0."""
    return hash(kind) & 0xFFFFFFFFFFFFFFFF or 1


def kind_of(record: bytes, key: bytes) -> int:
    """The number of the kind of a record found for a query without its ID."""
    kind = int.from_bytes(record[KIND_FIELD : KIND_FIELD + 8], "little")
    if kind:
        return kind
    end = int.from_bytes(record[8:16], "little") - ID
    return kind_number((NOERROR, key[HEADER : end - 4].lower(), 0))


def _names_above(name: bytes) -> Iterator[bytes]:
    """A name on the wire and each above it, the root last."""
    yield name
    while name[0]:
        name = name[1 + name[0] :]
        yield name


def _is_only_inert(packed: bytes) -> bool:
    """Whether a name has one RRset, of a type on which no other response depends."""
    return packed[:2] in _INERT and len(packed) == RRSET.size + int.from_bytes(packed[4:8], "big")


def _find_nothing(name: bytes) -> bytes | None:
    return None
