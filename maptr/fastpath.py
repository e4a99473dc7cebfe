"""ReadyAnswers: replies as octets that lie ready, found by the question as it arrives, for what most clients send.

The general path (``answer.py``) is the truth, and this is a shortcut to it: ``find`` gives its octets or None, and
None sends the query there. Four ways lead to a ready reply, none of which parses a packet or makes a name object:

* an existing name and a type whose rdata stand alone: a part of the zone's packed table (``packed.py``);
* an absence, a referral, a refusal: one body for all questions of a kind, because names in it compress against the
  question only from the origin (or the delegation) on, and that lies at an offset they share;
* any other type at an existing name: one body a question, bounded in number;
* what is wrong, or beyond us, whatever the name: no body, and for a question that cannot be read no more than a header.

Bodies of the second and third kind, and errors, are *learned*: the general path is asked once, without EDNS, with it,
and with DO, and what its replies have in common is taken apart (``learned.py``). So no rule is written twice. What may
depend on more than the question stays general: names below a DNAME, replies too long whose additional records may go,
options that are answered, but a cookie.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from maptr import context
from maptr.context import MIN_PAYLOAD, is_amplifier
from maptr.cookies import CLIENT_COOKIE
from maptr.fellows import Fellows
from maptr.learned import General, Learned
from maptr.names import ROOT, Labels, from_wire, to_wire
from maptr.packet import COUNTS, RECORD, find_opt_record, may_be_signed, read_records
from maptr.protocol import ANY, AXFR, DS, IXFR
from maptr.ready import (
    CLASS_IN,
    COOKIE_SIZES,
    DO,
    EDNS,
    HEADER,
    MIN_QUESTION,
    NO_EDNS,
    NO_RECORDS,
    ONE,
    ONE_RECORD,
    OPCODE,
    OPT_SIZE,
    OPT_START,
    QR,
    UNREADABLE,
    Edns,
    Found,
    Ready,
    Shared,
    find_labels,
    read_options,
)
from maptr.readylookup import ReadyLookup
from maptr.readyzone import ReadyZone
from maptr.request import Request
from maptr.snapshot import Snapshot

# Types that ask for more than a type (RFC 6895 3.1). The others of that kind are types that no name has.
TRANSFERS = frozenset({IXFR, AXFR})
NONE = b"\0\0"  # of the questions
ADDITIONAL = slice(8, 10)  # their count in the head of a Ready


class ReadyAnswers:
    """The ready replies of one snapshot. ``general`` answers any query over a stream, as the general path does.

    ``elsewhere`` are folded origins that others answer for, a catalog for some clients say: nothing there is ready.
    ``edns`` is what the general path would be asked otherwise, and that takes longer to import than all of this.
    ``zones`` has them by origin as folded wire, False for others', and none has ``depth`` labels or more.
    """

    def __init__(
        self, snapshot: Snapshot, general: General, elsewhere: Iterable[Labels] = (), edns: Edns | None = None
    ) -> None:
        self.snapshot = snapshot
        views = {to_wire(origin): view for origin, view in snapshot.zones.items()}
        others = {to_wire(origin) for origin in (*snapshot.broken, *elsewhere)}
        self._learned = Learned(general)
        if edns is None:
            opts = self._learned.ask_opts(next((origin for origin in views if origin not in others), ROOT))
            self._cookies, nsid = self._learned.probe_edns()
        else:
            opts = b"", edns.opt(), edns.opt(do=True)
            self._cookies, nsid = edns.cookies, edns.nsid
        self._max_payload = int.from_bytes(opts[EDNS][3:5], "big")
        # Options that only the general path answers, over UDP and over a stream.
        self._options = frozenset({context.NSID} if nsid else ())
        self._stream_options = self._options | {context.KEEPALIVE, context.PADDING}
        self._zones: dict[bytes, ReadyLookup | Literal[False]] = {
            **{origin: ReadyLookup(ReadyZone(view), self._learned, opts) for origin, view in views.items()},
            **dict.fromkeys(others, False),
        }
        # By name, the labels next below that are origins.
        self._children: dict[bytes, frozenset[bytes]] = {}
        for origin in self._zones:
            label, above = origin[: origin[0] + 1], origin[origin[0] + 1 :]
            self._children[above] = self._children.get(above, frozenset()) | {label}
        self.zones: dict[bytes, ReadyZone | Literal[False]] = {
            origin: lookup.zone if lookup else False for origin, lookup in self._zones.items()
        }
        self.depth = 1 + max((len(from_wire(origin)) for origin in self._zones), default=0)

    def find(self, query: bytes, *, stream: bool = True) -> Found | None:
        """The ready reply; None for the general path.

        Without ``stream`` it is the one over UDP: whole, or cut where it does not fit. With it, what would be whole
        over UDP, too, and no ANY, which may have more there. Whoever sends it adds the answer to the cookie.
        """
        request = self.read(query, stream=stream)
        return self.answer(query, request, stream=stream) if isinstance(request, Request) else request

    def read(self, query: bytes, *, stream: bool = True) -> Request | Found | None:
        """What of a query its reply depends on; the reply itself where that is nothing; None for the general path."""
        if len(query) < HEADER or query[2] & (QR | OPCODE):
            return None
        records = query[6:HEADER]
        if query[4:6] != ONE:
            if query[4:6] == NONE and records != NO_RECORDS:
                return self._find_without_question(query)
            return None if may_be_signed(query) else UNREADABLE  # RFC 9619
        offsets = find_labels(query)
        if offsets is None:
            return UNREADABLE
        # Octets after all that is counted are nobody's.
        end = HEADER + offsets[-1] + MIN_QUESTION
        qtype = query[end - 4] << 8 | query[end - 3]
        if qtype in TRANSFERS and (stream or qtype != AXFR or query[end - 2 : end] != CLASS_IN):
            return None  # for who knows whom to give them
        if records == NO_RECORDS:
            return Request(offsets, end)
        octets, opt = query, end
        if records != ONE_RECORD or query[end : end + 3] != OPT_START:
            if may_be_signed(query):
                return None
            # Others than the OPT change no reply.
            try:
                record = find_opt_record(read_records(query, end, COUNTS.unpack_from(query, 4)[1:]))
            except ValueError:
                return self._find_faulty(query, end)
            if record is None:
                return Request(offsets, end)
            _, rdtype, payload, ttl, data = record
            octets, opt = b"\0" + RECORD.pack(rdtype, payload, ttl, len(data)) + data, 0
        options = opt + OPT_SIZE
        stop = options + int.from_bytes(octets[options - 2 : options], "big")
        if stop > len(octets):
            return self._find_faulty(query, end)  # cut short
        form = DO if octets[opt + 7] & 0x80 else EDNS
        cookie = None
        if stop > options:
            if octets[opt + 6]:  # another version than 0
                return None
            try:
                told = read_options(octets, options, stop)
            except ValueError:
                return self._find_faulty(query, end)
            if told is None:
                return self._find_faulty(query, end, form)
            if not (self._stream_options if stream else self._options).isdisjoint(told):
                return None
            cookie = told.get(context.COOKIE) if self._cookies else None
            if cookie is not None and len(cookie) not in COOKIE_SIZES:
                cookie = cookie[:CLIENT_COOKIE]  # the rest is no server's of ours
        return Request(offsets, end, form, octets[opt : options - 2], cookie)

    def answer(self, query: bytes, request: Request, *, stream: bool = True) -> Found | None:
        """``find`` for what was read of this query, or of one with the same question."""
        offsets, end, form, opt, cookie = request
        qtype = query[end - 4] << 8 | query[end - 3]
        if (opt and opt[6]) or query[end - 2 : end] != CLASS_IN or qtype in TRANSFERS:
            return self._find_settled(query, end)
        if qtype == ANY and stream:
            return None
        ready = self._look_up(query[HEADER : end - 4].lower(), offsets, qtype, form)
        if ready is None:
            return None
        found = Found(ready, end, cookie)
        if not stream and found.size() > MIN_PAYLOAD:
            apex, answered = query[HEADER : end - 4].lower() in self._zones, ready.head[4:6] != NONE
            if is_amplifier(qtype, apex=apex, answered=answered):
                return None  # how much of it a client gets depends on its cookie
        limit = min(max(opt[3] << 8 | opt[4], MIN_PAYLOAD), self._max_payload) if opt else MIN_PAYLOAD
        if found.size() <= limit:
            return found
        # A stream takes more, and additional records need not be there.
        return None if stream or ready.head[ADDITIONAL] != bytes((0, bool(ready.opt))) else found.cut(query)

    def _find_settled(self, query: bytes, end: int) -> Found | None:
        """The reply to what is wrong, or beyond us, whatever the name."""
        if len(query) not in (end, end + OPT_SIZE):
            return None  # more octets come in more ways than can be learned
        settled = self._learned.settled(query[6:HEADER] + query[end - 4 :], query)
        return settled and Found(settled, end, None)

    def _find_faulty(self, query: bytes, end: int, form: int = NO_EDNS) -> Found | None:
        """The reply to records that cannot be read, whichever they are; in that form, where only a cookie cannot be."""
        settled = self._learned.settled(("faulty", form), query)
        return settled and Found(settled, end, None)

    def _find_without_question(self, query: bytes) -> Found | None:
        """The reply to an OPT alone, without an option: one might be a cookie (RFC 7873 5.4)."""
        if query[6 : HEADER + 3] != ONE_RECORD + OPT_START or query[HEADER + 9 : HEADER + OPT_SIZE] != NONE:
            return None
        version, flags = query[HEADER + 6], query[HEADER + 7]
        settled = self._learned.settled(("no question", version, flags & 0x80), query)
        return settled and Found(settled, HEADER, None)

    def fellows(self, query: bytes, found: Found) -> Fellows | None:
        """Which questions have the same reply but for the first label; None where the reply is of this name alone."""
        name = query[HEADER : found.question_end - 4].lower()
        if name in self._zones or len(name) <= len(ROOT):
            return None
        if found.ready.shared is Shared.BY_ALL:
            return Fellows.everywhere()
        above = name[0] + 1
        offsets = find_labels(query) or []
        lookup = None
        for at in offsets[-self.depth :]:
            if at and (lookup := self._zones.get(name[at:])) is not None:
                break
        origins = self._children.get(name[above:], frozenset())
        return Fellows.within(lookup.zone, name, found.ready, origins) if lookup else Fellows.everywhere(origins)

    def _look_up(self, name: bytes, offsets: list[int], qtype: int, form: int) -> Ready | None:
        # The labels of the longest origin or fewer lead to the closest zone.
        for above in range(max(0, len(offsets) - self.depth), len(offsets)):
            at = offsets[above]
            if (lookup := self._zones.get(name[at:])) is not None:
                break
        else:
            return self._learned.ready(("refused", form), name, qtype, form, shared=Shared.BY_ORIGIN)
        if not lookup:
            return None
        if qtype == DS and not at:  # the parent's to answer, where that is here
            return self._learned.ready((name, DS, form), name, qtype, form) if all(self._zones.values()) else None
        del offsets[above:]
        return lookup.find(name, at, offsets, qtype, form)
