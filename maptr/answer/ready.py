"""The response cache, called the shortcut: ready responses that were learned from the general path.

This module does not decide the content of a response. ``Ready.find`` looks for a ready one. If there is none, the
caller asks the general path (``respond.py``), and ``Ready.learn`` keeps its response if other queries have the same.

**The key** of a query has two parts: the name in lower case, and the *form*, which is everything else except the ID and
the cookie: header, type, class and EDNS. The spelling of the name and the cookie do not matter, because the caller
sends the question of the query and appends a new cookie.

**The tables**, each with its key:

* ``known``: the whole query without its ID. Most queries are found here.
* ``_forms``: the form. Forms with the same responses share their ``Tables``.
* ``Tables.answers``: the name, for the response of one existing name.
* ``Tables.enclosers``: an encloser of the name (RFC 4592 3.3.1), for responses that the names below this encloser
  share. These are the denials: NXDOMAIN for names without an existing name between them and the encloser (in a
  signed zone, with DO, one response for each gap of the NSEC chain), NODATA for names with one RRset of another type,
  REFUSED for names outside all zones, and referrals. Once the general path has answered for one of these names with
  its only RRset, the zone's table gives the answers for the others in the same way.

The denials of two names differ only in the length of the question, by which compression pointers move. Nonexistent
names are never stored.

**The arena** holds the part of a response between the question and the cookie: records and OPT. A ready response is one
``RECORD``: three iovecs for the kernel (the question, a part of the arena, the cookie), the header, and values for the
counters and the rate limit. ``udp.py`` copies such records side by side; ``Ready.response`` joins the bytes for others.

**Expiry:** a response is valid as long as the zones are. A reload makes new zones, for which the server makes a new
``Ready``. When a table or the arena is full, the next ``tidy`` clears all tables and the arena.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from maptr.answer.context import MIN_PAYLOAD
from maptr.answer.message import OPT_SIZE, OPTION_HEADER, Reply
from maptr.protocol.cookies import CLIENT_COOKIE, WHOLE_COOKIE
from maptr.protocol.names import MAX_LABEL, ROOT, Labels, fold, is_below, next_closer, parent, read_wire, to_wire
from maptr.protocol.numbers import COOKIE, HEADER_SIZE, MAX_MESSAGE, NOERROR, NXDOMAIN, RCODE_BITS, REFUSED
from maptr.zone.rrset import RRSET
from maptr.zone.snapshot import INERT, Snapshot, ZoneView

# Three iovecs (address and size): the question, the part of the arena, the cookie. The first and the third address are
# set on sending. Then the header without the ID (8 and 2 bytes), the size of OPT without the cookie, the rcode,
# and the number of the kind of response for the rate limit.
RECORD = struct.Struct("=6Q8s2sHB3xQ")
COOKIE_FIELD = 40  # the offset of the low byte of the cookie's size
RCODE_FIELD = 60
KIND = struct.Struct("=Q")
KIND_FIELD = 64
SILENCE = 16  # in place of an rcode: no response is sent
NO_RESPONSE = RECORD.pack(0, 0, 0, 0, 0, 0, bytes(8), bytes(2), 0, SILENCE, 0)

ID = 2  # bytes
HEADER = HEADER_SIZE - ID  # bytes of the header without the ID
TYPE_AND_CLASS = 4
COOKIE_START = TYPE_AND_CLASS + OPT_SIZE + OPTION_HEADER  # the offset from the end of the name
OPT_START = b"\0\0\x29"  # the root as owner name, and type 41 (RFC 6891 6.1.2)
CLASS_IN = b"\0\1"
# The flags, QDCOUNT, ANCOUNT and NSCOUNT of an ordinary query: RD, AD and CD may be set.
FLAGS = frozenset(bytes((rd, ad_cd)) for rd in (0, 1) for ad_cd in (0, 0x10, 0x20, 0x30))
ONE_QUESTION = b"\0\1\0\0\0\0"
CLIENT_OPTION, WHOLE_OPTION = (struct.pack("!HH", COOKIE, size) for size in (CLIENT_COOKIE, WHOLE_COOKIE))
TC = 0x02  # in the first byte of the flags
# Keys in place of the number of a gap, for denials that need no proof.
ABSENT, NO_DATA = -1, -2

ARENA_SIZE = 1 << 26  # bytes; unwritten pages take no memory
MAX_RECORDS = 1 << 17  # answers and denials, of about 300 bytes each, and as many whole queries
MAX_TABLES = 1 << 14  # forms and enclosers

Find = Callable[[bytes], bytes | None]
_INERT = frozenset(rdtype.to_bytes(2, "big") for rdtype in INERT)


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

    def get(self, address: int, size: int) -> bytes:
        at = address - self._start
        return self._memory[at : at + size]

    def clear(self) -> None:
        self._end = 0
        self.is_full = False


class Template(NamedTuple):
    """The response with a name's only RRset, without this RRset: flags, OPT before the cookie, size of the cookie."""

    flags: bytes
    opt: bytes
    cookie: int

    def head(self, packed: bytes) -> bytes:
        """Return the header, without the ID, for a packed RRset."""
        return self.flags + b"\0\1" + packed[2:4] + bytes((0, 0, 0, bool(self.opt)))


@dataclass(slots=True)
class Denial:
    """A response that many names share, and its records by the offset of the end of the question."""

    reply: Reply
    records: dict[int, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Encloser:
    """The responses that the names below one encloser share.

    ``find`` returns the packed RRsets of a name, None if it does not exist. ``others`` are the names one label below
    the encloser that are, or have below them, other zones. ``gap`` returns the number of the gap that a name is in, if
    its denial needs a proof. ``denials`` has the denial of each gap. The denial under ABSENT is for names at any depth;
    with ``only_direct`` it is a referral for names one label below.
    """

    find: Find
    others: AbstractSet[bytes]
    only_direct: bool = False
    answer: Template | None = None
    gap: Callable[[bytes], int] | None = None
    denials: dict[int, Denial] = field(default_factory=dict)


@dataclass(slots=True)
class Tables:
    """The responses to queries that differ only in the name and in fields that do not affect a response.

    ``rdtype`` is the query type, ``limit`` the maximum size of a response in bytes. ``do``: the client set DO.
    """

    rdtype: bytes
    limit: int
    do: bool = False
    answers: dict[bytes, bytes] = field(default_factory=dict)
    enclosers: dict[bytes, Encloser] = field(default_factory=dict)


class ZoneNames(NamedTuple):
    """What ready responses need of a snapshot, in wire format. Making it takes long with thousands of zones.

    ``others`` are the origins of zones without ready responses. ``above`` has each name above an origin, with the names
    one label below it that lead to an origin. ``soa`` has the names in SOA records, and those between them and their
    origin: the general path may compress names in the SOA record against a question below them.
    """

    zones: Mapping[bytes, ZoneView]
    others: frozenset[bytes]
    above: Mapping[bytes, AbstractSet[bytes]]
    soa: frozenset[bytes]

    @classmethod
    def of(cls, snapshot: Snapshot, others: Iterable[Labels]) -> ZoneNames:
        """``others`` are the folded origins of zones that are not in the snapshot."""
        zones = {to_wire(origin): zone for origin, zone in snapshot.zones.items()}
        without = frozenset(map(to_wire, (*snapshot.broken, *others)))
        above: dict[bytes, set[bytes]] = {ROOT: set()}
        for origin in (*zones, *without):
            for name in _upwards(origin):
                if name != ROOT:
                    above.setdefault(parent(name), set()).add(name)
        soa = frozenset(name for zone in snapshot.zones.values() for name in _soa_names(zone))
        return cls(zones, without, above, soa)


class Ready:
    """The ready responses for zones, for one thread and one kind of transport.

    ``payload`` is the maximum size of a UDP response in bytes, None for streams.
    """

    def __init__(self, names: ZoneNames, payload: int | None) -> None:
        self.known: dict[bytes, bytes] = {}
        self._payload = payload
        self._arena = Arena(ARENA_SIZE)
        # The value is the number of bytes after the name in a query, and the tables.
        self._forms: dict[bytes, tuple[int, Tables]] = {}
        self._tables: dict[Hashable, Tables] = {}
        self._gaps: dict[bytes, Callable[[bytes], int] | None] = {}
        self._records = self._enclosers = 0
        self._zones, self._others, self._above, self._soa_names = names

    def find(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the record for a query without its ID, and the client's cookie or ``b""``; None if not ready."""
        # A label may contain a zero byte; the part before it is then taken for the name, but is not in any table.
        end = key.find(b"\0", HEADER) + 1
        cookie_start = end + COOKIE_START
        form = self._forms.get(key[:HEADER] + key[end:cookie_start])
        if form is None:
            return None
        size, tables = form
        if end + size != len(key):
            return None
        spelled = key[HEADER:end]
        name = spelled.lower()
        record = tables.answers.get(name)
        if record is None:
            record = self._find_denial(tables, name, ID + end + TYPE_AND_CLASS)
            if record is None:
                return None
        elif name == spelled and size < COOKIE_START:
            self.known[key] = record
        return record, key[cookie_start:] if record[COOKIE_FIELD] else b""

    def _find_denial(self, tables: Tables, name: bytes, end: int) -> bytes | None:
        """Return the record for a question that ends at an offset, from the closest encloser with responses."""
        at, last, get = 0, len(name) - 1, tables.enclosers.get
        while 0 < (size := name[at]) <= MAX_LABEL and (above := at + 1 + size) <= last:
            shared = get(name[above:])
            if shared is not None:
                break
            at = above
        else:
            return None
        closer = name[at:]  # the next closer name (RFC 5155 1.3)
        if closer in shared.others or (at and (shared.only_direct or closer in self._soa_names)):
            return None
        packed = shared.find(closer)
        gap = NO_DATA
        if packed is None:
            gap = ABSENT if shared.gap is None else shared.gap(closer)
        elif at or not _is_only_inert(packed):
            return None
        elif packed[:2] == tables.rdtype:
            return None if shared.answer is None else self._answer(tables, name, end, shared.answer, packed)
        denial = shared.denials.get(gap)
        if denial is None:
            return None
        record = denial.records.get(end)
        if record is None:
            reply = denial.reply.moved(end, tables.limit)
            record = None if reply is None else self._share(shared, gap, reply)
        if record is not None and packed is not None:
            return self._keep(tables, name, record[:KIND_FIELD] + KIND.pack(kind_number((NOERROR, name, None))))
        return record

    def _answer(self, tables: Tables, name: bytes, end: int, template: Template, packed: bytes) -> bytes | None:
        """Return the record of the response with a name's only RRset; None if it would exceed the limit."""
        body = packed[RRSET.size :] + template.opt
        if end + len(body) + template.cookie > tables.limit:
            return None
        kind = NOERROR, name, packed[0] << 8 | packed[1]
        record = self._pack(end, template.head(packed), body, len(template.opt), template.cookie, kind)
        return self._keep(tables, name, record)

    def tidy(self) -> None:
        """Clear everything if a table or the arena is full. Records found before are then invalid."""
        if (
            self._arena.is_full
            or max(len(self.known), self._records) >= MAX_RECORDS
            or max(len(self._forms), self._enclosers) >= MAX_TABLES
        ):
            for table in (self.known, self._forms, self._tables, self._gaps):
                table.clear()
            self._arena.clear()
            self._records = self._enclosers = 0

    def response(self, query: bytes, record: bytes, cookie: bytes) -> bytes:
        """Return the bytes of a record's response to a query, with the cookie for the client."""
        _, end, body, size, _, with_cookie, head, rest, _, _, _ = RECORD.unpack(record)
        parts = query[:ID], head, rest, query[HEADER_SIZE:end], self._arena.get(body, size)
        return b"".join(parts) + (cookie if with_cookie else b"")

    # ---- learning

    def learn(self, query: bytes, reply: Reply) -> None:
        """Keep a response of the general path over this transport if it also fits other queries."""
        tables = None if reply.for_one else self._tables_of(query[ID:], reply.question_end - ID - TYPE_AND_CLASS)
        if tables is None:
            return
        name = query[HEADER_SIZE : reply.question_end - TYPE_AND_CLASS].lower()
        if not self._others.isdisjoint(_upwards(name)):
            return
        zone = next((self._zones[above] for above in _upwards(name) if above in self._zones), None)
        if not isinstance(reply.kind, tuple) and (zone is not None or reply.kind != REFUSED):
            return  # an error may depend on the client
        packed = None if zone is None else zone.nodes.table.get(name)
        if name in self._above:
            self._keep(tables, name, self._record(reply))
        elif zone is None:
            encloser = next(above for above in _upwards(name) if above in self._above)
            self._share(self._encloser(tables, encloser, lambda _: None), ABSENT, reply)
        elif packed is None:
            self._learn_absent(tables, name, zone, reply)
        elif name in self._zones or not _is_only_inert(packed) or (tables.do and zone.denial is not None):
            self._keep(tables, name, self._record(reply))  # with DO, a NODATA response with its proof is for one name
        elif packed[:2] == tables.rdtype:
            self._keep(tables, name, self._record(reply))
            self._learn_template(tables, name, zone, reply, packed)
        elif reply.kind == (NOERROR, name, None):
            self._share(self._encloser(tables, parent(name), zone.nodes.table.get), NO_DATA, reply)

    def _tables_of(self, key: bytes, end: int) -> Tables | None:
        """Return the tables for a query without its ID, whose name ends at ``end``; None if it is not ordinary."""
        header, rest, opt = key[:HEADER], key[end:], key[end + TYPE_AND_CLASS :]
        if header[:2] not in FLAGS or header[2:8] != ONE_QUESTION or rest[2:TYPE_AND_CLASS] != CLASS_IN:
            return None
        if header[8:] != bytes((0, bool(opt))):
            return None
        cookie = {CLIENT_OPTION: CLIENT_COOKIE, WHOLE_OPTION: WHOLE_COOKIE}.get(opt[OPT_SIZE : OPT_SIZE + 4], 0)
        if opt:
            options = OPTION_HEADER + cookie if cookie else 0
            # The extended rcode, the version and all flags but DO must be 0.
            if opt[:3] != OPT_START or opt[5:7] != b"\0\0" or opt[7:9] not in (b"\0\0", b"\x80\0"):
                return None
            if len(opt) != OPT_SIZE + options or opt[9:OPT_SIZE] != options.to_bytes(2, "big"):
                return None
        form = header + rest[:COOKIE_START]
        if form not in self._forms:
            limit = MAX_MESSAGE
            if self._payload is not None:
                limit = min(max(int.from_bytes(opt[3:5], "big"), MIN_PAYLOAD), self._payload)
            do, rdtype = opt[7:9] == b"\x80\0", rest[:2]
            shared = header, rdtype, limit, do, bool(cookie)
            self._forms[form] = len(rest), self._tables.setdefault(shared, Tables(rdtype, limit, do))
        return self._forms[form][1]

    def _learn_absent(self, tables: Tables, name: bytes, zone: ZoneView, reply: Reply) -> None:
        """Keep the response for a name that does not exist: a referral or NXDOMAIN."""
        assert isinstance(reply.kind, tuple)  # noqa: S101 - the caller has checked this
        rcode, source, rdtype = reply.kind
        if rdtype is not None:
            return  # the response has an answer, or had one that was truncated
        if rcode == NOERROR and source in _upwards(parent(name)):  # a referral; otherwise from a wildcard
            shared = self._encloser(tables, parent(name), lambda _: None)
            shared.only_direct = True
            self._share(shared, ABSENT, reply)
        elif rcode == NXDOMAIN:
            encloser = next(above for above in _upwards(parent(name)) if zone.nodes.table.get(above) is not None)
            closer = next_closer(name, encloser)
            if closer != name and closer in self._soa_names:
                return
            shared = self._encloser(tables, encloser, zone.nodes.table.get)
            if not tables.do or zone.denial is None:
                self._share(shared, ABSENT, reply)
                return
            if encloser not in self._gaps:
                self._gaps[encloser] = zone.denial.gap(encloser, apex=encloser in self._zones)
            shared.gap = self._gaps[encloser]
            if shared.gap is not None:
                self._share(shared, shared.gap(closer), reply)

    def _encloser(self, tables: Tables, encloser: bytes, find: Find) -> Encloser:
        shared = tables.enclosers.get(encloser)
        if shared is None:
            shared = tables.enclosers[encloser] = Encloser(find, self._above.get(encloser, frozenset()))
            self._enclosers += 1
        return shared

    def _share(self, shared: Encloser, gap: int, reply: Reply) -> bytes | None:
        denial = shared.denials.setdefault(gap, Denial(reply))
        record = self._record(reply)
        if record is not None:
            denial.records[reply.question_end] = record
            self._records += 1
        return record

    def _learn_template(self, tables: Tables, name: bytes, zone: ZoneView, reply: Reply, packed: bytes) -> None:
        """Answer names below the encloser from the zone's table, if this gives the same bytes for this response."""
        cookie = WHOLE_COOKIE if reply.cookie else 0
        wire = reply.wire[: len(reply.wire) - cookie]
        opt = wire[len(reply.wire) - reply.opt_size :] if reply.opt_size else b""
        template = Template(wire[ID : ID + 2], opt, cookie)
        start = template.head(packed) + wire[HEADER_SIZE : reply.question_end]
        if start + packed[RRSET.size :] + opt == wire[ID:]:
            self._encloser(tables, parent(name), zone.nodes.table.get).answer = template

    def _keep(self, tables: Tables, name: bytes, record: bytes | None) -> bytes | None:
        if record is not None:
            tables.answers[name] = record
            self._records += 1
        return record

    def _record(self, reply: Reply) -> bytes | None:
        cookie = WHOLE_COOKIE if reply.cookie else 0
        body = reply.wire[reply.question_end : len(reply.wire) - cookie]
        opt_size = max(reply.opt_size - cookie, 0)
        return self._pack(reply.question_end, reply.wire[ID:HEADER_SIZE], body, opt_size, cookie, reply.kind)

    def _pack(self, end: int, head: bytes, body: bytes, opt_size: int, cookie: int, kind: Hashable) -> bytes | None:
        address = self._arena.put(body)
        if address is None:
            return None
        rcode, number = head[1] & RCODE_BITS, kind_number(kind)
        return RECORD.pack(0, end, address, len(body), 0, cookie, head[:8], head[8:], opt_size, rcode, number)


def truncated(record: bytes) -> bytes:
    """Return the record of the response with TC and only OPT, so that a genuine client retries over TCP."""
    _, end, body, size, _, cookie, head, _, opt_size, rcode, kind = RECORD.unpack(record)
    head = bytes((head[0] | TC,)) + head[1:4] + bytes(4)
    rest = bytes((0, bool(opt_size)))
    return RECORD.pack(0, end, body + size - opt_size, opt_size, 0, cookie, head, rest, opt_size, rcode, kind)


def kind_number(kind: Hashable) -> int:
    """Return the number that a record has for a kind of response."""
    return hash(kind) & 0xFFFFFFFFFFFFFFFF


def kind_of(record: bytes) -> int:
    """Return the number of the kind of response from a record."""
    return int(KIND.unpack_from(record, KIND_FIELD)[0])


def _upwards(name: bytes) -> Iterator[bytes]:
    """Yield a name in wire format and each of its ancestors, up to the root."""
    yield name
    while name[0]:
        name = parent(name)
        yield name


def _is_only_inert(packed: bytes) -> bool:
    """Return whether a name has only one RRset, of a type that affects no response for another type."""
    return packed[:2] in _INERT and len(packed) == RRSET.size + int.from_bytes(packed[4:8], "big")


def _soa_names(zone: ZoneView) -> Iterator[bytes]:
    """Yield the names in the SOA record and their ancestors below the origin."""
    soa = zone.soa.rdatas[0]
    primary, end = read_wire(soa, 0)
    for labels in (primary, read_wire(soa, end)[0]):
        name = fold(labels)
        if is_below(name, zone.origin):
            yield from (to_wire(name[at:]) for at in range(len(name) - len(zone.origin)))
