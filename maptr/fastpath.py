"""ReadyAnswers: replies as octets that lie ready, found by the question as it arrives, for what most clients send.

The general path (``answer.py``) is the truth, and this is a shortcut to it: ``find`` gives its octets or None, and
None sends the query there. Three ways lead to a ready reply, none of which parses a packet or makes a name object:

* an existing name and a type whose rdata stand alone: a part of the zone's packed table (``packed.py``);
* an absence, a referral, a refusal: one body for all questions of a kind, because names in it compress against the
  question only from the origin (or the delegation) on, and that lies at an offset they share;
* any other type at an existing name: one body a question, bounded in number.

Bodies of the last two kinds are *learned*: the general path is asked once, without EDNS, with it, and with DO, and
what its replies have in common is taken apart. So no rule is written twice. What may depend on more than the
question stays general: names below a DNAME, ANY, replies near the size limit, options other than an ignored cookie.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable
from typing import Literal, NamedTuple

from maptr.answer import Reply
from maptr.names import MAX_LABEL, MAX_NAME, Labels, is_below, to_wire, wire_length
from maptr.packed import RRSET, WILDCARD, PackedNodes, read_labels, read_rrsets, types_of
from maptr.snapshot import CNAME, DNAME, MX, NS, RRSIG, SRV, Snapshot, ZoneView

HEADER = 12  # RFC 1035 4.1.1
MIN_PAYLOAD = 512  # RFC 1035 4.2.1, and RFC 6891 6.2.3
PLAIN_COUNTS = bytes((0, 1, 0, 0, 0, 0, 0, 0))  # one question and nothing else
EDNS_COUNTS = bytes((0, 1, 0, 0, 0, 0, 0, 1))
OPT_START = b"\0\0\x29"  # the root and type 41 (RFC 6891 6.1.2)
OPT_SIZE = 11
COOKIE = b"\0\x0a"  # RFC 7873 4
# Whole options: a client cookie alone, and one with a server cookie of the usual size (RFC 9018 4).
COOKIE_SIZES = (4 + 8, 4 + 24)
COOKIE_REPLY = 4 + 24
CLASS_IN = b"\0\1"

SOA, DS, NSEC, NSEC3 = 6, 43, 47, 50
NOERROR, NXDOMAIN = 0, 3
# OPT, and the types that ask for more than a type (RFC 6895 3.1): for the general path.
OPT, META_FIRST, META_LAST = 41, 128, 255
# Rdata that name hosts whose addresses go along, compress (RFC 3597 4), redirect or sign: never a part of the table.
INVOLVED = frozenset({NS, 3, 4, CNAME, SOA, 7, 8, 9, 12, 14, MX, SRV, DNAME, DS, RRSIG, NSEC, NSEC3})
# Learned replies, some hundred octets each. Past that all are forgotten, and the common ones are soon back.
MAX_LEARNED = 8192

TC = 0x02  # RFC 1035 4.1.1, in the first octet of the flags
QR_AA = 0x8400
PLAIN_HEAD = struct.Struct("!5H")  # flags and the four counts

NO_EDNS, EDNS, DO = range(3)  # the three forms of a reply, apart from its size
_QUERY_OPTS = (b"", OPT_START + b"\x04\xd0" + bytes(6), OPT_START + b"\x04\xd0\0\0\x80" + bytes(3))

General = Callable[[bytes], "Reply | None"]


class Ready(NamedTuple):
    """A reply without ID and question: ``head`` is flags (RD clear) and counts, the records ``body[start:end]``.

    ``kind`` is what a rate limit counts it by (``answer.Reply``); None where that is the name asked.
    """

    head: bytes
    body: bytes
    start: int
    end: int
    opt: bytes
    kind: Hashable


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
        name = read_labels(query[HEADER : end - 4].lower())
        return NOERROR, name, query[end - 4] << 8 | query[end - 3] if answered else 0

    def opt(self, cookie: bytes | None) -> bytes:
        """The OPT of the reply, with a cookie for the client where one is to go."""
        bare = self.ready.opt
        if cookie is None:
            return bare
        return b"%b%c%c%b%c%c%b" % (bare[:9], 0, len(cookie) + 4, COOKIE, 0, len(cookie), cookie)

    def reply(self, query: bytes, cookie: bytes | None = None) -> bytes:
        """The whole reply: ID, RD and question are the query's own."""
        ready = self.ready
        flags = ready.head[0] | query[2] & 1
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
        opt = self.opt(cookie)
        flags = bytes((self.ready.head[0] | query[2] & 1 | TC, self.ready.head[1], 0, 1, 0, 0, 0, 0, 0, bool(opt)))
        return query[:2] + flags + query[HEADER : self.question_end] + opt


class _Zone:
    """One zone as the shortcut needs it."""

    def __init__(self, view: ZoneView) -> None:
        nodes = PackedNodes.pack(view.nodes)
        self.table = nodes.table
        self.read = nodes.read
        self.origin = to_wire(view.origin)
        self.cuts: dict[bytes, frozenset[bytes]] = {}
        self.odd: set[bytes] = set()  # what lies there or below is for the general path
        self.signed = self.wild = False
        for name in nodes.special:
            self._note(name, self.table[name], view)
            if name[:2] == WILDCARD:
                self.wild = True
        self.layered = bool(self.cuts or self.odd)
        # NXDOMAIN by the place of the origin in the name and by form, in zones that are neither wild nor layered.
        self.absent: dict[int, Ready] = {}
        # Just above the origin these labels make names in the SOA compress further than its owner.
        rdata = view.soa.rdatas[0].lower()
        mname = read_labels(rdata)
        self.soa_labels = _labels_above(view.origin, (mname, read_labels(rdata, wire_length(mname))))

    def _note(self, name: bytes, packed: bytes, view: ZoneView) -> None:
        types = types_of(packed)
        if DNAME in types or NSEC3 in types:
            self.odd.add(name)
        if not {RRSIG, NSEC, NSEC3}.isdisjoint(types):
            self.signed = True
        if NS in types and name != self.origin:
            cut = read_labels(name)
            hosts = next(rrset.hosts for rrset in read_rrsets(cut, packed) if rrset.rdtype == NS)
            self.cuts[name] = _labels_above(cut, hosts)


class ReadyAnswers:
    """The ready replies of one snapshot. ``general`` answers any query over a stream, as the general path does.

    ``elsewhere`` are folded origins that others answer for, a catalog for some clients say: nothing there is ready.
    """

    def __init__(self, snapshot: Snapshot, general: General, elsewhere: Iterable[Labels] = ()) -> None:
        self.snapshot = snapshot
        self._general = general
        self._zones: dict[bytes, _Zone | Literal[False]] = {
            **{to_wire(origin): _Zone(view) for origin, view in snapshot.zones.items()},
            **{to_wire(origin): False for origin in elsewhere},
        }
        self._learned: dict[object, Ready | None] = {}
        self._opts = self._learn_opts()
        self._max_payload = int.from_bytes(self._opts[EDNS][3:5], "big")
        self._cookies = self._probe_cookies()

    def find(self, query: bytes) -> Found | None:
        """The ready reply; None for the general path.

        The reply is whole within what the query allows over UDP, so it is also the one over a stream. Whoever
        sends it adds the answer to the cookie.
        """
        counts = query[4:HEADER]
        cookie, size = None, 0
        if counts == PLAIN_COUNTS:
            end, form, limit = len(query), NO_EDNS, MIN_PAYLOAD
        elif counts == EDNS_COUNTS:
            end = len(query) - OPT_SIZE
            if query[end : end + 3] != OPT_START or query[-2:] != b"\0\0":
                end = _before_cookie(query)
                if self._cookies:
                    cookie, size = query[end + OPT_SIZE + 4 :], COOKIE_REPLY
            if end <= HEADER or query[end + 6]:  # no OPT known here, or another version than 0
                return None
            form = DO if query[end + 7] & 0x80 else EDNS
            limit = min(max(query[end + 3] << 8 | query[end + 4], MIN_PAYLOAD), self._max_payload)
        else:
            return None
        if query[2] & 0xF8 or end < HEADER + 5 or query[end - 2 : end] != CLASS_IN:
            return None
        name = query[HEADER : end - 4].lower()
        qtype = query[end - 4] << 8 | query[end - 3]
        if qtype == OPT or META_FIRST <= qtype <= META_LAST or len(name) > MAX_NAME:
            return None
        ready = self._look_up(name, qtype, form)
        if ready is None or end + ready.end - ready.start + len(ready.opt) + size > limit:
            return None
        if cookie is not None and len(ready.opt) != OPT_SIZE:
            return None  # with other options in a reply, which stands first is the general path's to say
        return Found(ready, end, cookie)

    def _look_up(self, name: bytes, qtype: int, form: int) -> Ready | None:
        zones = self._zones
        offsets = []
        at = 0
        while (zone := zones.get(name[at:])) is None:
            if at >= len(name):
                return None
            length = name[at]
            if length == 0:
                return self._learn(("refused", form), name, qtype, form) if at == len(name) - 1 else None
            if length > MAX_LABEL:
                return None
            offsets.append(at)
            at += length + 1
        if not zone or (qtype == DS and not offsets):
            return None  # the parent's to answer, where that is here
        source = name
        if name not in zone.table or zone.layered:
            # What floods ask, the short way: absent, where no wildcard or delegation can be met.
            ready = zone.absent.get(at << 2 | form)
            if ready is not None and name not in zone.table and name[offsets[-1] : at] not in zone.soa_labels:
                return ready
            reached = self._descend(zone, name, at, offsets, qtype, form)
            if not isinstance(reached, bytes):
                return reached
            source = reached
        return self._from_node(zone, name, at, offsets, source, qtype, form)

    def _descend(
        self, zone: _Zone, name: bytes, at: int, offsets: list[int], qtype: int, form: int
    ) -> Ready | bytes | None:
        """From the origin down, as RFC 1034 4.3.2 has it: the name of a node, or the reply where none is reached."""
        encloser = zone.origin
        if encloser in zone.odd:
            return None
        for offset in reversed(offsets):
            suffix = name[offset:]
            if suffix in zone.odd:
                return None
            if suffix in zone.cuts:
                return None if qtype == DS and not offset else self._referral(zone, name, offsets, offset, qtype, form)
            if suffix not in zone.table:
                break
            encloser = suffix
        if encloser == name:
            return name
        wildcard = WILDCARD + encloser
        if wildcard in zone.odd:
            return None
        if zone.wild and wildcard in zone.table:
            return wildcard
        return self._negative(zone, name, at, offsets, (qtype, form, NXDOMAIN))

    def _from_node(
        self, zone: _Zone, name: bytes, at: int, offsets: list[int], source: bytes, qtype: int, form: int
    ) -> Ready | None:
        packed = zone.read(source)
        signed = zone.signed and form == DO
        start, alias = 0, False
        while start < len(packed):
            rdtype, count, size = RRSET.unpack_from(packed, start)
            start += RRSET.size
            if rdtype == qtype and qtype not in INVOLVED and not signed:
                head = PLAIN_HEAD.pack(QR_AA, 1, count, 0, form != NO_EDNS)
                kind = None if source is name else (NOERROR, read_labels(source), qtype)
                return Ready(head, packed, start, start + size, self._opts[form], kind)
            if rdtype in (qtype, CNAME):
                alias = True
            start += size
        if not alias and not signed:
            return self._negative(zone, name, at, offsets, (qtype, form, NOERROR), source)
        if source is not name:
            return None  # a wildcard has more names than could be learned
        return self._learn((name, qtype, form), name, qtype, form)

    def _negative(
        self, zone: _Zone, name: bytes, at: int, offsets: list[int], asked: tuple[int, int, int], source: bytes = b""
    ) -> Ready | None:
        """NXDOMAIN, or NODATA from a name or wildcard."""
        qtype, form, rcode = asked
        if zone.signed and form == DO:
            return None  # each proof is of its own
        if offsets and name[offsets[-1] : at] in zone.soa_labels:
            return None
        if source is name:
            return self._learn((at, zone.origin, form), name, qtype, form, by_name=True)
        ready = self._learn((at, zone.origin, form, rcode, source), name, qtype, form)
        if ready is not None and rcode == NXDOMAIN and not zone.wild and not zone.layered:
            zone.absent[at << 2 | form] = ready
        return ready

    def _referral(
        self, zone: _Zone, name: bytes, offsets: list[int], offset: int, qtype: int, form: int
    ) -> Ready | None:
        cut = name[offset:]
        if zone.signed and form == DO:
            return None
        above = offsets.index(offset) - 1
        if above >= 0 and name[offsets[above] : offset] in zone.cuts[cut]:
            return None
        return self._learn((cut, offset, form), name, qtype, form)

    def _learn(self, key: object, name: bytes, qtype: int, form: int, by_name: bool = False) -> Ready | None:
        """What is known by that key, or else learned from this question; ``by_name`` is of ``Ready.kind``."""
        if key in self._learned:
            return self._learned[key]
        if len(self._learned) >= MAX_LEARNED:
            self._learned.clear()
        ready = self._learned[key] = self._ask(name + qtype.to_bytes(2, "big") + CLASS_IN, form)
        if ready is not None and by_name:
            ready = self._learned[key] = ready._replace(kind=None)
        return ready

    def _ask(self, question: bytes, form: int) -> Ready | None:
        """Take the general path's reply apart; None where it is no ready one for all who ask this."""
        end = HEADER + len(question)
        plain = self._general(b"\0\0\0\0" + PLAIN_COUNTS + question)
        reply = plain if form == NO_EDNS else self._general(b"\0\0\0\0" + EDNS_COUNTS + question + _QUERY_OPTS[form])
        if plain is None or reply is None:
            return None
        kind, wire, plain_size = reply.kind, reply.wire, len(plain.wire)
        if (wire[2] | plain.wire[2]) & TC:
            return None
        # With no records before it the OPT may have options (RFC 8914); after records we look for a bare one.
        opt_at = len(wire) if form == NO_EDNS else end if plain_size == end else len(wire) - OPT_SIZE
        opt = wire[opt_at:]
        if form != NO_EDNS and not opt.startswith(OPT_START):
            return None
        return Ready(wire[2:HEADER], wire[end:opt_at], 0, opt_at - end, opt, kind)

    def _learn_opts(self) -> tuple[bytes, bytes, bytes]:
        """The OPT of replies that are not errors, by form; all empty where there is no zone to ask about."""
        origin = next((origin for origin, zone in self._zones.items() if zone), None)
        if origin is None:
            return b"", b"", b""
        asked = (self._ask(origin + SOA.to_bytes(2, "big") + CLASS_IN, form) for form in (EDNS, DO))
        edns, do = (ready.opt if ready else b"" for ready in asked)
        return b"", edns, do

    def _probe_cookies(self) -> bool:
        """Whether the general path answers cookies; where it does not, they change nothing."""
        question = b"\0" + SOA.to_bytes(2, "big") + CLASS_IN
        opt = _QUERY_OPTS[EDNS][:-2] + b"\0\x0c" + COOKIE + b"\0\x08" + bytes(8)
        reply = self._general(b"\0\0\0\0" + EDNS_COUNTS + question + opt)
        return reply is not None and COOKIE + b"\0\x18" in reply.wire


def _before_cookie(query: bytes) -> int:
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


def _labels_above(base: Labels, names: Iterable[Labels]) -> frozenset[bytes]:
    """Of the folded names below a base, the label next to it, as wire."""
    below = (name for name in names if len(name) > len(base) and is_below(name, base))
    return frozenset(to_wire(name[-len(base) - 1 :])[: len(name[-len(base) - 1]) + 1] for name in below)
