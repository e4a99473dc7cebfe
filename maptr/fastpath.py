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

import functools
import struct
from collections.abc import Callable, Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from maptr import context
from maptr.cookies import CLIENT_COOKIE
from maptr.learned import General, Learned
from maptr.names import ROOT, WILDCARD, Labels, from_wire, next_closer, to_wire
from maptr.packet import COUNTS, RECORD, may_be_signed, read_records
from maptr.packing import RRSET, types_of
from maptr.proofs import Asked
from maptr.protocol import (
    ANY,
    AXFR,
    CNAME,
    DNAME,
    DS,
    IXFR,
    MX,
    NOERROR,
    NS,
    NSEC,
    NSEC3,
    NXDOMAIN,
    OPT,
    RRSIG,
    SOA,
    SRV,
)
from maptr.ready import (
    CLASS_IN,
    COOKIE_REPLY,
    COOKIE_SIZES,
    DO,
    EDNS,
    HEADER,
    MIN_PAYLOAD,
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
from maptr.readyzone import ReadyZone, is_alone
from maptr.snapshot import RRset, Snapshot

NODATA = 0  # in place of a type, all types that a name does not have: type 0 itself is reserved (RFC 6895 3.1)
# Types that ask for more than a type (RFC 6895 3.1). The others of that kind are types that no name has.
TRANSFERS = frozenset({IXFR, AXFR})
# Rdata that name hosts whose addresses go along, compress (RFC 3597 4), redirect or sign: never a part of the table.
INVOLVED = frozenset({NS, 3, 4, CNAME, SOA, 7, 8, 9, 12, 14, MX, SRV, DNAME, DS, RRSIG, NSEC, NSEC3})
QR_AA = 0x8400
NONE = b"\0\0"  # of the questions
ADDITIONAL = slice(8, 10)  # their count in the head of a Ready
PLAIN_HEAD = struct.Struct("!5H")  # flags and the four counts

_NOWHERE: Mapping[bytes, bytes] = MappingProxyType({})


class Fellows(NamedTuple):
    """Who has the same reply as a question: all that differ from it in the octets of the first label, but as long.

    Not ``labels``, each after its length. If ``absent``, it is for the names of which ``find`` has no value; otherwise
    for those of which ``read`` has one packed RRset, of another type and no alias. ``find`` may give lines instead.
    Where there is ``gap``, it is for those names alone that lie in the same gap of a chain.
    """

    find: Callable[[bytes], bytes | None]
    read: Callable[[bytes], bytes]
    labels: frozenset[bytes]
    absent: bool
    gap: Callable[[bytes], int] | None = None


class ReadyAnswers:
    """The ready replies of one snapshot. ``general`` answers any query over a stream, as the general path does.

    ``elsewhere`` are folded origins that others answer for, a catalog for some clients say: nothing there is ready.
    ``edns`` is what the general path would be asked otherwise, and that takes longer to import than all of this.
    """

    def __init__(
        self, snapshot: Snapshot, general: General, elsewhere: Iterable[Labels] = (), edns: Edns | None = None
    ) -> None:
        self.snapshot = snapshot
        self._zones: dict[bytes, ReadyZone | Literal[False]] = {
            **{to_wire(origin): ReadyZone(view) for origin, view in snapshot.zones.items()},
            **{to_wire(origin): False for origin in (*snapshot.broken, *elsewhere)},
        }
        # By name, the labels next below that are origins.
        self._children: dict[bytes, frozenset[bytes]] = {}
        for origin in self._zones:
            label, above = origin[: origin[0] + 1], origin[origin[0] + 1 :]
            self._children[above] = self._children.get(above, frozenset()) | {label}
        self._depth = 1 + max((len(from_wire(origin)) for origin in self._zones), default=0)
        self._learned = Learned(general)
        self._opts = self._find_opts(edns)
        self._max_payload = int.from_bytes(self._opts[EDNS][3:5], "big")
        self._cookies, nsid = self._learned.probe_edns() if edns is None else (edns.cookies, edns.nsid)
        # Options that only the general path answers, over UDP and over a stream.
        self._options = frozenset({context.NSID} if nsid else ())
        self._stream_options = self._options | {context.KEEPALIVE, context.PADDING}

    def find(self, query: bytes, *, stream: bool = True) -> Found | None:
        """The ready reply; None for the general path.

        Without ``stream`` it is the one over UDP: whole, or cut where it does not fit. With it, what would be whole
        over UDP, too, and no ANY, which may have more there. Whoever sends it adds the answer to the cookie.
        """
        if len(query) < HEADER or query[2] & (QR | OPCODE):
            return None
        records = query[6:HEADER]
        if query[4:6] != ONE:
            # RFC 9619; with records, a signature might be among them.
            return None if query[4:6] == NONE or records != NO_RECORDS else UNREADABLE
        offsets = find_labels(query)
        if offsets is None:
            return UNREADABLE
        # Octets after all that is counted are nobody's.
        end = HEADER + offsets[-1] + MIN_QUESTION
        qtype = query[end - 4] << 8 | query[end - 3]
        if qtype in TRANSFERS and (stream or qtype != AXFR):
            return None  # for who knows whom to give them
        if records != NO_RECORDS and (records != ONE_RECORD or query[end : end + 3] != OPT_START):
            plain = _without_records(query, end)
            return None if plain is None else self.find(plain, stream=stream)
        form, limit, cookie, size = NO_EDNS, MIN_PAYLOAD, None, 0
        odd = query[end - 2 : end] != CLASS_IN or qtype in TRANSFERS
        if records == ONE_RECORD:
            options = end + OPT_SIZE
            if len(query) < options:
                return None  # cut short
            stop = options + (query[options - 2] << 8 | query[options - 1])
            if stop > len(query) or query[end + 6]:  # or of another version than 0
                odd = True
            elif stop > options:
                told = read_options(query, options, stop)
                if told is None or not (self._stream_options if stream else self._options).isdisjoint(told):
                    return None
                cookie = told.get(context.COOKIE) if self._cookies else None
                if cookie is not None:
                    size = COOKIE_REPLY
                    if len(cookie) not in COOKIE_SIZES:
                        cookie = cookie[:CLIENT_COOKIE]  # the rest is no server's of ours
            form = DO if query[end + 7] & 0x80 else EDNS
            limit = min(max(query[end + 3] << 8 | query[end + 4], MIN_PAYLOAD), self._max_payload)
        if odd:
            return self._find_settled(query, end)
        if qtype == ANY and stream:
            return None
        ready = self._look_up(query[HEADER : end - 4].lower(), offsets, qtype, form)
        if ready is None:
            return None
        found = Found(ready, end, cookie)
        if end + ready.end - ready.start + len(ready.opt) + size <= limit:
            return found
        # A stream takes more, and additional records need not be there.
        return None if stream or ready.head[ADDITIONAL] != bytes((0, bool(ready.opt))) else found.cut(query)

    def _find_settled(self, query: bytes, end: int) -> Found | None:
        """The reply to what is wrong, or beyond us, whatever the name."""
        if len(query) not in (end, end + OPT_SIZE):
            return None  # more octets come in more ways than can be learned
        settled = self._learned.settled(query[6:HEADER] + query[end - 4 :], query)
        return settled and Found(settled, end, None)

    def fellows(self, query: bytes, found: Found) -> Fellows | None:
        """Which questions have the same reply but for the first label; None where the reply is of this name alone."""
        name = query[HEADER : found.question_end - 4].lower()
        first = name[0] + 1 if name else 0
        if first <= 1 or name in self._zones:
            return None
        if found.ready.shared is Shared.BY_ALL:
            return Fellows(_NOWHERE.get, _NOWHERE.__getitem__, frozenset(), True)
        rest = name[first:]
        at = first
        while (zone := self._zones.get(name[at:])) is None and at < len(name):
            at += name[at] + 1
        labels = self._children.get(rest, frozenset())
        if not zone:
            return Fellows(_NOWHERE.get, _NOWHERE.__getitem__, labels, True)
        labels |= zone.soa_words | zone.cuts.get(rest, frozenset())
        if name[:first] in labels:
            return None  # none of the others' plans is for it, nor its own for them
        packed = zone.find(name)
        if packed is None:
            gap = None
            if found.ready.shared is Shared.BY_PROOF:
                gap = zone.gap(rest) if rest in zone.table else _one_gap
            return Fellows(zone.table.get, zone.read, labels, True, gap)
        empty = found.ready.kind is None and found.ready.head[4:6] == b"\0\0"
        if empty and not zone.layered and not zone.signed and is_alone(packed):
            return Fellows(zone.table.get, zone.read, labels, False)
        return None

    def _look_up(self, name: bytes, offsets: list[int], qtype: int, form: int) -> Ready | None:
        # The labels of the longest origin or fewer lead to the closest zone.
        for above in range(max(0, len(offsets) - self._depth), len(offsets)):
            at = offsets[above]
            if (zone := self._zones.get(name[at:])) is not None:
                break
        else:
            zone = None
        if zone is None:
            return self._learned.ready(("refused", form), name, qtype, form)
        if not zone:
            return None
        if qtype == DS and not at:  # the parent's to answer, where that is here
            return self._learned.ready((name, DS, form), name, qtype, form) if all(self._zones.values()) else None
        del offsets[above:]
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
        self, zone: ReadyZone, name: bytes, at: int, offsets: list[int], qtype: int, form: int
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
                if qtype == DS and not offset:
                    return self._learned.ready((name, DS, form), name, qtype, form)
                return self._referral(zone, name, offsets, offset, qtype, form)
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
        if zone.signed and form == DO:
            return self._denied(zone, name, encloser, offsets, qtype)
        return self._negative(zone, name, at, offsets, (qtype, form, NXDOMAIN))

    def _denied(self, zone: ReadyZone, name: bytes, encloser: bytes, offsets: list[int], qtype: int) -> Ready | None:
        """NXDOMAIN with its proof, the same for all names that the same records deny below the same encloser."""
        closer = next_closer(name, encloser)
        if zone.denial is None or closer[: closer[0] + 1] in zone.soa_words:
            return None
        proof = zone.denial.name_error(name, encloser)
        return self._with_proof(zone, NXDOMAIN, encloser, name, offsets, qtype, proof)

    def _from_node(
        self, zone: ReadyZone, name: bytes, at: int, offsets: list[int], source: bytes, qtype: int, form: int
    ) -> Ready | None:
        packed = zone.read(source)
        signed = zone.signed and form == DO
        start, alias = 0, False
        while start < len(packed):
            rdtype, count, size = RRSET.unpack_from(packed, start)
            start += RRSET.size
            # The root is shorter than a pointer to it.
            if rdtype == qtype and qtype not in INVOLVED and not signed and source != ROOT:
                head = PLAIN_HEAD.pack(QR_AA, 1, count, 0, form != NO_EDNS)
                kind = None if source is name else (NOERROR, source, qtype)
                return Ready(head, packed, start, start + size, self._opts[form], kind)
            if rdtype in (qtype, CNAME) or qtype == ANY:
                alias = True
            start += size
        if not alias and not signed:
            return self._negative(zone, name, at, offsets, (qtype, form, NOERROR), source)
        if source is name:
            make = None if alias else functools.partial(self._lacking, zone, name, offsets, qtype)
            return self._learned.ready((name, qtype if alias else NODATA, form), name, qtype, form, make)
        if not signed or (alias and (qtype in INVOLVED or qtype == ANY or CNAME in types_of(packed))):
            return None  # a wildcard has more names than could be learned
        return self._proved(zone, name, source[len(WILDCARD) :], offsets, qtype, alias)

    def _lacking(self, zone: ReadyZone, name: bytes, offsets: list[int], qtype: int) -> Ready | None:
        """A name's lack of a type with its proof."""
        if zone.denial is None or not offsets:
            return None
        proof = zone.denial.no_data(name)
        asked = _asked(zone, name, offsets)
        ready = zone.proofs.reply(NODATA, asked, qtype, proof, self._learned.ask, Shared.BY_NAME)
        return ready and ready._replace(kind=None)

    def _proved(
        self, zone: ReadyZone, name: bytes, encloser: bytes, offsets: list[int], qtype: int, found: bool
    ) -> Ready | None:
        """The answer of a wildcard, or its lack of one, with the proof that nothing is closer to the name."""
        closer = next_closer(name, encloser)
        if zone.denial is None or closer[: closer[0] + 1] in zone.soa_words:
            return None
        prove = zone.denial.wildcard if found else zone.denial.wildcard_no_data
        proof = prove(name, encloser)
        kind = encloser, qtype if found else NODATA
        return self._with_proof(zone, kind, encloser, name, offsets, qtype, proof)

    def _with_proof(
        self,
        zone: ReadyZone,
        kind: Hashable,
        encloser: bytes,
        name: bytes,
        offsets: list[int],
        qtype: int,
        proof: list[RRset],
    ) -> Ready | None:
        """A reply of that kind with that proof: laid out, or else of a mould."""
        gaps = next_closer(name, encloser) != name or zone.gap(encloser) is not None
        shared = Shared.BY_PROOF if gaps else Shared.BY_NONE
        ready = zone.proofs.reply(kind, _asked(zone, name, offsets), qtype, proof, self._learned.ask, shared)
        if ready is not None:
            return ready
        mould, place = (kind, encloser, shared, *map(id, proof)), len(name) - len(encloser)
        return self._learned.moulded(mould, place, name, qtype, DO, shared=shared)

    def _negative(
        self,
        zone: ReadyZone,
        name: bytes,
        at: int,
        offsets: list[int],
        asked: tuple[int, int, int],
        source: bytes = b"",
    ) -> Ready | None:
        """NXDOMAIN, or NODATA from a name or wildcard."""
        qtype, form, rcode = asked
        label = b""
        if offsets and name[offsets[-1] : at] in zone.soa_labels:
            # Names in the SOA compress as far as that.
            if len(offsets) > 1 and name[offsets[-2] : offsets[-1]] in zone.soa_words:
                return None
            label, at = name[offsets[-1] : at], offsets[-1]
        if source is name:
            return self._learned.moulded((zone.origin, label, form), at, name, qtype, form, by_name=True)
        ready = self._learned.moulded((zone.origin, label, form, rcode, source), at, name, qtype, form)
        if ready is not None and rcode == NXDOMAIN and not (label or zone.wild or zone.layered):
            zone.absent[at << 2 | form] = ready
        return ready

    def _referral(
        self, zone: ReadyZone, name: bytes, offsets: list[int], offset: int, qtype: int, form: int
    ) -> Ready | None:
        cut = name[offset:]
        above = offsets.index(offset) - 1
        if above >= 0 and name[offsets[above] : offset] in zone.cuts[cut]:
            return None
        return self._learned.moulded((cut, form, NS), offset, name, qtype, form)

    def _find_opts(self, edns: Edns | None) -> tuple[bytes, bytes, bytes]:
        """The OPT of replies that are not errors, by form; all empty where there is no zone to ask about."""
        origin = next((origin for origin, zone in self._zones.items() if zone), None)
        if origin is None:
            return b"", b"", b""
        return self._learned.ask_opts(origin) if edns is None else (b"", edns.opt(), edns.opt(do=True))


def _one_gap(name: bytes) -> int:
    """Below what does not exist, all names lie in the same."""
    return 0


def _without_records(query: bytes, end: int) -> bytes | None:
    """The query without all records but its OPT, which change no reply; None where they do, or may."""
    if may_be_signed(query):
        return None
    try:
        *others, additional = read_records(query, end, COUNTS.unpack_from(query, 4)[1:])
    except ValueError:
        return None
    opts = [record for record in additional if record.rdtype == OPT]
    if len(opts) > 1 or any(record.rdtype == OPT for section in others for record in section):
        return None
    head, question = query[:4] + ONE, query[HEADER:end]
    if not opts:
        return head + NO_RECORDS + question
    name, rdtype, payload, ttl, options = opts[0]
    if name:
        return None
    return head + ONE_RECORD + question + b"\0" + RECORD.pack(rdtype, payload, ttl, len(options)) + options


def _asked(zone: ReadyZone, name: bytes, offsets: list[int]) -> Asked:
    """A name below the origin, by the offsets of its labels there."""
    place = len(name) - len(zone.origin)
    return Asked(name, place, name[offsets[-1] : place])
