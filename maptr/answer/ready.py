"""The response cache, called the shortcut: ready responses, cached from the general path.

This module does not decide the content of a response. ``Ready.find`` looks for a ready one. If there is none, the
caller asks the general path (``respond.py``), and ``Ready.learn`` caches its response if other queries share it.

**The key** of a query has two parts: the name in lower case, and the *form*, which is everything else except the ID and
the cookie: header, type, class and EDNS. The spelling of the name and the cookie do not matter, because the caller
sends the query's question and appends a new cookie. Forms with the same responses share their ``Tables``.

**A look-up** tries three things, in this order:

1. ``Ready.known`` has the whole query without its ID. The caller looks here for most queries.
2. ``Tables.answers`` has the name: the response of one existing name.
3. ``Tables.enclosers`` has an encloser of the name (RFC 4592 3.3.1): the ``Encloser`` has the responses that names
   below it share. Nonexistent names are never stored.

Shared responses differ only in the question's length, which moves compression pointers (``SharedResponse``), and for
names with one RRset in this RRset, which is in the zone's table (``Template``).

A ready response is a record that points into an arena (``arena.py``). It is valid as long as the zones are: a reload
makes new zones, for which the server makes a new ``Ready``. When a table or the arena is full, the next ``tidy`` clears
all tables and the arena.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from maptr.answer.arena import HEADER, ID, Arena, has_cookie, kind_number, make_record, of_kind
from maptr.answer.context import MIN_PAYLOAD
from maptr.answer.message import OPT_SIZE, OPTION_HEADER, Reply
from maptr.protocol.cookies import CLIENT_COOKIE, WHOLE_COOKIE
from maptr.protocol.names import MAX_LABEL, ROOT, Labels, fold, is_below, next_closer, parent, read_wire, to_wire
from maptr.protocol.numbers import COOKIE, HEADER_SIZE, MAX_MESSAGE, NOERROR, NXDOMAIN, RCODE_BITS, REFUSED
from maptr.zone.rrset import RRSET
from maptr.zone.snapshot import INERT, Snapshot, ZoneView

TYPE_AND_CLASS = 4  # bytes
COOKIE_START = TYPE_AND_CLASS + OPT_SIZE + OPTION_HEADER  # the offset from the end of the name
OPT_START = b"\0\0\x29"  # the root as owner name, and type 41 (RFC 6891 6.1.2)
NO_FLAGS, DO = b"\0\0", b"\x80\0"  # the flags of an OPT
CLASS_IN = b"\0\1"
# The flags, QDCOUNT, ANCOUNT and NSCOUNT of an ordinary query: RD, AD and CD may be set.
FLAGS = frozenset(bytes((rd, ad_cd)) for rd in (0, 1) for ad_cd in (0, 0x10, 0x20, 0x30))
ONE_QUESTION = b"\0\1\0\0\0\0"
CLIENT_OPTION, WHOLE_OPTION = (struct.pack("!HH", COOKIE, size) for size in (CLIENT_COOKIE, WHOLE_COOKIE))
COOKIES = {CLIENT_OPTION: CLIENT_COOKIE, WHOLE_OPTION: WHOLE_COOKIE}

ARENA_SIZE = 1 << 26  # bytes; unwritten pages take no memory
MAX_RECORDS = 1 << 17  # answers and denials, of about 300 bytes each, and as many whole queries
MAX_TABLES = 1 << 14  # forms and enclosers

Find = Callable[[bytes], bytes | None]
Gap = Callable[[bytes], int]
_INERT = frozenset(rdtype.to_bytes(2, "big") for rdtype in INERT)


class Template(NamedTuple):
    """The response for a name's only RRset, without this RRset: flags, OPT before the cookie, size of the cookie."""

    flags: bytes
    opt: bytes
    cookie: int

    def head(self, packed: bytes) -> bytes:
        """Return the header, without the ID, for a packed RRset."""
        return self.flags + b"\0\1" + packed[2:4] + bytes((0, 0, 0, bool(self.opt)))


@dataclass(slots=True)
class SharedResponse:
    """A response that many names share, and its records by the offset of the question's end."""

    reply: Reply
    records: dict[int, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Encloser:
    """The responses that the names below one encloser share, by what ``find`` returns for a name.

    * None: the name does not exist, and ``absent`` has its response: NXDOMAIN, REFUSED outside all zones, or a
      referral. In a signed zone, with DO, there is one for each gap of the chain, and ``gap`` returns the number of
      the gap that a name is in; otherwise there is one, under 0.
    * one RRset of the query type: ``answer`` and this RRset are the response.
    * one RRset of another type: ``no_data`` is the response.

    The last two are for names one label below. ``absent`` is for names at any depth, with ``only_direct`` for those one
    label below. ``others`` are the names one label below that are, or have below them, other zones.
    """

    find: Find
    others: AbstractSet[bytes]
    only_direct: bool = False
    gap: Gap | None = None
    absent: dict[int, SharedResponse] = field(default_factory=dict)
    answer: Template | None = None
    no_data: SharedResponse | None = None


@dataclass(slots=True)
class Tables:
    """The responses to queries that differ only in the name and in fields that do not affect a response.

    ``rdtype`` is the query type, ``limit`` the maximum size of a response in bytes. ``do``: the client set DO.
    ``answers`` has records by name, ``enclosers`` shared responses by encloser.
    """

    rdtype: bytes
    limit: int
    do: bool = False
    answers: dict[bytes, bytes] = field(default_factory=dict)
    enclosers: dict[bytes, Encloser] = field(default_factory=dict)

    def closest(self, name: bytes) -> tuple[Encloser, bytes] | None:
        """Return the closest encloser with responses, and the next closer name (RFC 5155 1.3)."""
        at, root = 0, len(name) - 1
        while at < root:
            above = at + 1 + name[at]
            if name[at] > MAX_LABEL or above > root:
                return None  # not a name
            encloser = self.enclosers.get(name[above:])
            if encloser is not None:
                return encloser, name[at:]
            at = above
        return None


class ZoneNames(NamedTuple):
    """What ready responses need from a snapshot, in wire format. It takes long to make with thousands of zones.

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

    ``payload`` is the maximum size of a UDP response in bytes, None for streams. ``known`` has the records of whole
    queries without their IDs.
    """

    def __init__(self, names: ZoneNames, payload: int | None) -> None:
        self.known: dict[bytes, bytes] = {}
        self._names = names
        self._payload = payload
        self._arena = Arena(ARENA_SIZE)
        # By form: the number of bytes after the name in a query, and the tables.
        self._forms: dict[bytes, tuple[int, Tables]] = {}
        self._tables: dict[Hashable, Tables] = {}  # by what affects a response
        self._gaps: dict[bytes, Gap | None] = {}  # of each encloser whose denials need a proof
        self._records = self._enclosers = 0  # in all tables

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
        return self._arena.response(query, record, cookie)

    # ---- finding

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
            record = self._find_shared(tables, name, ID + end + TYPE_AND_CLASS)
            if record is None:
                return None
        elif name == spelled and size < COOKIE_START:
            self.known[key] = record
        return record, key[cookie_start:] if has_cookie(record) else b""

    def _find_shared(self, tables: Tables, name: bytes, end: int) -> bytes | None:
        """Return the record that a name shares with others. ``end`` is the offset of the question's end."""
        found = tables.closest(name)
        if found is None:
            return None
        encloser, closer = found
        if closer in encloser.others:
            return None
        is_direct = len(closer) == len(name)
        if not is_direct and (encloser.only_direct or closer in self._names.soa):
            return None
        packed = encloser.find(closer)
        if packed is None:
            gap = 0 if encloser.gap is None else encloser.gap(closer)
            return self._moved(encloser.absent.get(gap), tables, end)
        if not is_direct or not _is_only_inert(packed):
            return None
        if packed[:2] == tables.rdtype:
            return self._fill_in(encloser.answer, tables, name, end, packed)
        record = self._moved(encloser.no_data, tables, end)
        if record is None:
            return None
        return self._keep(tables, name, of_kind(record, (NOERROR, name, None)))

    def _moved(self, shared: SharedResponse | None, tables: Tables, end: int) -> bytes | None:
        """Return the record of a shared response for a question that ends at ``end``."""
        if shared is None:
            return None
        record = shared.records.get(end)
        if record is None:
            reply = shared.reply.moved(end, tables.limit)
            record = None if reply is None else self._share(shared, reply)
        return record

    def _fill_in(self, template: Template | None, tables: Tables, name: bytes, end: int, packed: bytes) -> bytes | None:
        """Return the record of the response for a name's only RRset; None if it would exceed the limit."""
        if template is None:
            return None
        body = packed[RRSET.size :] + template.opt
        if end + len(body) + template.cookie > tables.limit:
            return None
        kind = NOERROR, name, packed[0] << 8 | packed[1]
        record = self._pack(template.head(packed), end, body, len(template.opt), template.cookie, kind)
        return self._keep(tables, name, record)

    # ---- learning

    def learn(self, query: bytes, reply: Reply) -> None:
        """Cache a response from the general path over this transport if it also fits other queries."""
        tables = None if reply.for_one else self._tables_of(query[ID:], reply.question_end - ID - TYPE_AND_CLASS)
        if tables is None:
            return
        names = self._names
        name = query[HEADER_SIZE : reply.question_end - TYPE_AND_CLASS].lower()
        if not names.others.isdisjoint(_upwards(name)):
            return
        zone = next((names.zones[above] for above in _upwards(name) if above in names.zones), None)
        is_error = not isinstance(reply.kind, tuple)
        if is_error and (zone is not None or reply.kind != REFUSED):
            return  # it may depend on the client
        if name in names.above:
            self._keep(tables, name, self._record(reply))
        elif zone is None:
            above = next(above for above in _upwards(name) if above in names.above)
            self._learn_absent(self._encloser(tables, above, _nothing), 0, reply)
        elif zone.nodes.table.get(name) is None:
            self._learn_missing(tables, name, zone, reply)
        else:
            self._learn_existing(tables, name, zone, reply)

    def _learn_existing(self, tables: Tables, name: bytes, zone: ZoneView, reply: Reply) -> None:
        """Cache the response for an existing name, and what other names with one RRset share with it."""
        packed = zone.nodes.table[name]
        has_proof = tables.do and zone.denial is not None  # a proof is for one name
        if name in self._names.zones or not _is_only_inert(packed) or has_proof:
            self._keep(tables, name, self._record(reply))
        elif packed[:2] == tables.rdtype:
            self._keep(tables, name, self._record(reply))
            template = _template(reply, packed)
            if template is not None:
                self._encloser(tables, parent(name), zone.nodes.table.get).answer = template
        elif reply.kind == (NOERROR, name, None):
            encloser = self._encloser(tables, parent(name), zone.nodes.table.get)
            encloser.no_data = encloser.no_data or SharedResponse(reply)
            self._share(encloser.no_data, reply)

    def _learn_missing(self, tables: Tables, name: bytes, zone: ZoneView, reply: Reply) -> None:
        """Cache the response for a name that does not exist: a referral or NXDOMAIN."""
        assert isinstance(reply.kind, tuple)  # noqa: S101 - the caller has checked this
        rcode, source, rdtype = reply.kind
        if rdtype is not None:
            return  # the response has an answer, or had one that was truncated
        if rcode == NOERROR and source in _upwards(parent(name)):  # a referral; otherwise from a wildcard
            encloser = self._encloser(tables, parent(name), _nothing)
            encloser.only_direct = True
            self._learn_absent(encloser, 0, reply)
        elif rcode == NXDOMAIN:
            self._learn_nxdomain(tables, name, zone, reply)

    def _learn_nxdomain(self, tables: Tables, name: bytes, zone: ZoneView, reply: Reply) -> None:
        above = next(above for above in _upwards(parent(name)) if zone.nodes.table.get(above) is not None)
        closer = next_closer(name, above)
        if closer != name and closer in self._names.soa:
            return
        encloser = self._encloser(tables, above, zone.nodes.table.get)
        if not tables.do or zone.denial is None:
            self._learn_absent(encloser, 0, reply)
            return
        if above not in self._gaps:
            self._gaps[above] = zone.denial.gap(above, apex=above in self._names.zones)
        encloser.gap = self._gaps[above]
        if encloser.gap is not None:
            self._learn_absent(encloser, encloser.gap(closer), reply)

    def _tables_of(self, key: bytes, end: int) -> Tables | None:
        """Return the tables for a query without its ID, whose name ends at ``end``; None if it is not ordinary."""
        header, rest, opt = key[:HEADER], key[end:], key[end + TYPE_AND_CLASS :]
        if header[:2] not in FLAGS or header[2:8] != ONE_QUESTION or rest[2:TYPE_AND_CLASS] != CLASS_IN:
            return None
        if header[8:] != bytes((0, bool(opt))):
            return None
        cookie = COOKIES.get(opt[OPT_SIZE : OPT_SIZE + OPTION_HEADER], 0)
        if opt:
            options = OPTION_HEADER + cookie if cookie else 0
            # The extended rcode, the version and all flags but DO must be 0.
            if opt[:3] != OPT_START or opt[5:7] != b"\0\0" or opt[7:9] not in (NO_FLAGS, DO):
                return None
            if len(opt) != OPT_SIZE + options or opt[9:OPT_SIZE] != options.to_bytes(2, "big"):
                return None
        form = header + rest[:COOKIE_START]
        if form not in self._forms:
            limit = MAX_MESSAGE
            if self._payload is not None:
                limit = min(max(int.from_bytes(opt[3:5], "big"), MIN_PAYLOAD), self._payload)
            do, rdtype = opt[7:9] == DO, rest[:2]
            shared = header, rdtype, limit, do, bool(cookie)
            self._forms[form] = len(rest), self._tables.setdefault(shared, Tables(rdtype, limit, do))
        return self._forms[form][1]

    def _encloser(self, tables: Tables, name: bytes, find: Find) -> Encloser:
        encloser = tables.enclosers.get(name)
        if encloser is None:
            encloser = tables.enclosers[name] = Encloser(find, self._names.above.get(name, frozenset()))
            self._enclosers += 1
        return encloser

    # ---- storing

    def _learn_absent(self, encloser: Encloser, gap: int, reply: Reply) -> None:
        self._share(encloser.absent.setdefault(gap, SharedResponse(reply)), reply)

    def _share(self, shared: SharedResponse, reply: Reply) -> bytes | None:
        """Store a shared response for the length of its question, and return its record; None if the arena is full."""
        record = self._record(reply)
        if record is not None:
            shared.records[reply.question_end] = record
            self._records += 1
        return record

    def _keep(self, tables: Tables, name: bytes, record: bytes | None) -> bytes | None:
        """Store the record of one name, and return it; None if the arena is full."""
        if record is not None:
            tables.answers[name] = record
            self._records += 1
        return record

    def _record(self, reply: Reply) -> bytes | None:
        cookie = WHOLE_COOKIE if reply.cookie else 0
        body = reply.wire[reply.question_end : len(reply.wire) - cookie]
        opt_size = max(reply.opt_size - cookie, 0)
        return self._pack(reply.wire[ID:HEADER_SIZE], reply.question_end, body, opt_size, cookie, reply.kind)

    def _pack(self, header: bytes, end: int, body: bytes, opt_size: int, cookie: int, kind: Hashable) -> bytes | None:
        address = self._arena.put(body)
        if address is None:
            return None
        return make_record(
            header,
            end,
            address,
            len(body),
            rcode=header[1] & RCODE_BITS,
            cookie_size=cookie,
            opt_size=opt_size,
            kind=kind_number(kind),
        )


def _nothing(name: bytes) -> None:
    """``Encloser.find`` where no name exists for us: outside all zones, and below a delegation."""


def _template(reply: Reply, packed: bytes) -> Template | None:
    """Return the template of a response for a name's only RRset; None if it does not give the same bytes."""
    cookie = WHOLE_COOKIE if reply.cookie else 0
    wire = reply.wire[: len(reply.wire) - cookie]
    opt = wire[len(reply.wire) - reply.opt_size :] if reply.opt_size else b""
    template = Template(wire[ID : ID + 2], opt, cookie)
    made = template.head(packed) + wire[HEADER_SIZE : reply.question_end] + packed[RRSET.size :] + opt
    return template if made == wire[ID:] else None


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
