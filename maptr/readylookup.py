"""ReadyLookup: the ready reply of one zone to a name and a type, by the algorithm of RFC 1034 4.3.2 over octets.

It is to ``fastpath.py``, which has read the query and found the zone, what ``lookup.py`` is to ``answer.py``. Nothing
is decided twice: records that stand alone are a part of the packed zone, and all else is learned from the general path.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Hashable

from maptr.learned import Learned
from maptr.names import ROOT, WILDCARD, next_closer
from maptr.packing import RRSET, types_of
from maptr.proofs import Asked
from maptr.protocol import ANY, CNAME, DNAME, DS, MX, NOERROR, NS, NSEC, NSEC3, NXDOMAIN, RRSIG, SOA, SRV
from maptr.ready import DO, NO_EDNS, Ready, Shared
from maptr.readyzone import ReadyZone
from maptr.snapshot import RRset

NODATA = 0  # in place of a type, all types that a name does not have: type 0 itself is reserved (RFC 6895 3.1)
# Rdata that name hosts whose addresses go along, compress (RFC 3597 4), redirect or sign: never a part of the table.
INVOLVED = frozenset({NS, 3, 4, CNAME, SOA, 7, 8, 9, 12, 14, MX, SRV, DNAME, DS, RRSIG, NSEC, NSEC3})
QR_AA = 0x8400
PLAIN_HEAD = struct.Struct("!5H")  # flags and the four counts


class ReadyLookup:
    """The replies of one zone, with the OPT for each form. None, wherever a reply may be, is for the general path.

    Names are folded wire. Of the name asked for, ``at`` is where the zone's origin starts, and ``offsets`` where the
    labels before it do.
    """

    def __init__(self, zone: ReadyZone, learned: Learned, opts: tuple[bytes, bytes, bytes]) -> None:
        self.zone = zone
        self._learned = learned
        self._opts = opts

    def find(self, name: bytes, at: int, offsets: list[int], qtype: int, form: int) -> Ready | None:
        """The reply to who asks for a name at or below the origin, and for no DS of the origin itself."""
        zone = self.zone
        source = name
        if name not in zone.table or zone.layered:
            # What floods ask, the short way: absent, where no wildcard or delegation can be met.
            ready = zone.absent.get(at << 2 | form)
            if ready is not None and name not in zone.table and name[offsets[-1] : at] not in zone.soa_labels:
                return ready
            reached = self._descend(name, at, offsets, qtype, form)
            if not isinstance(reached, bytes):
                return reached
            source = reached
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
            return self._negative(name, at, offsets, (qtype, form, NOERROR), source)
        if source is name:
            make = None if alias else functools.partial(self._lacking, name, offsets, qtype)
            return self._learned.ready((name, qtype if alias else NODATA, form), name, qtype, form, make)
        if not signed or (alias and (qtype in INVOLVED or qtype == ANY or CNAME in types_of(packed))):
            return None  # a wildcard has more names than could be learned
        return self._proved(name, source[len(WILDCARD) :], offsets, qtype, alias)

    def _descend(self, name: bytes, at: int, offsets: list[int], qtype: int, form: int) -> Ready | bytes | None:
        """From the origin down: the name of a node, or the reply where none is reached."""
        zone = self.zone
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
                return self._referral(name, offsets, offset, qtype, form)
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
            return self._denied(name, encloser, offsets, qtype)
        return self._negative(name, at, offsets, (qtype, form, NXDOMAIN))

    def _referral(self, name: bytes, offsets: list[int], offset: int, qtype: int, form: int) -> Ready | None:
        cut = name[offset:]
        above = offsets.index(offset) - 1
        if above >= 0 and name[offsets[above] : offset] in self.zone.cuts[cut]:
            return None
        return self._learned.moulded((cut, form, NS), offset, name, qtype, form)

    def _negative(
        self, name: bytes, at: int, offsets: list[int], asked: tuple[int, int, int], source: bytes = b""
    ) -> Ready | None:
        """NXDOMAIN, or NODATA from a name or wildcard."""
        zone = self.zone
        qtype, form, rcode = asked
        label = b""
        if offsets and name[offsets[-1] : at] in zone.soa_labels:
            # Names in the SOA compress as far as that.
            if len(offsets) > 1 and name[offsets[-2] : offsets[-1]] in zone.soa_words:
                return None
            label, at = name[offsets[-1] : at], offsets[-1]
        if source is name:
            return self._learned.moulded((zone.origin, label, form), at, name, qtype, form, by_name=True)
        shared = Shared.BY_ORIGIN if rcode == NXDOMAIN and not label else Shared.BY_NAME
        ready = self._learned.moulded((zone.origin, label, form, rcode, source), at, name, qtype, form, shared=shared)
        if ready is not None and shared is Shared.BY_ORIGIN and zone.flat:
            zone.absent[at << 2 | form] = ready
        return ready

    # ---- with proofs

    def _denied(self, name: bytes, encloser: bytes, offsets: list[int], qtype: int) -> Ready | None:
        """NXDOMAIN with its proof, the same for all names that the same records deny below the same encloser."""
        zone = self.zone
        closer = next_closer(name, encloser)
        if zone.denial is None or closer[: closer[0] + 1] in zone.soa_words:
            return None
        proof = zone.denial.name_error(name, encloser)
        return self._with_proof(NXDOMAIN, encloser, name, offsets, qtype, proof)

    def _lacking(self, name: bytes, offsets: list[int], qtype: int) -> Ready | None:
        """A name's lack of a type with its proof."""
        zone = self.zone
        if zone.denial is None or not offsets:
            return None
        proof = zone.denial.no_data(name)
        asked = self._asked(name, offsets)
        ready = zone.proofs.reply(NODATA, asked, qtype, proof, self._learned.ask, Shared.BY_NAME)
        return ready and ready._replace(kind=None)

    def _proved(self, name: bytes, encloser: bytes, offsets: list[int], qtype: int, found: bool) -> Ready | None:
        """The answer of a wildcard, or its lack of one, with the proof that nothing is closer to the name."""
        zone = self.zone
        closer = next_closer(name, encloser)
        if zone.denial is None or closer[: closer[0] + 1] in zone.soa_words:
            return None
        prove = zone.denial.wildcard if found else zone.denial.wildcard_no_data
        proof = prove(name, encloser)
        kind = encloser, qtype if found else NODATA
        return self._with_proof(kind, encloser, name, offsets, qtype, proof)

    def _with_proof(
        self, kind: Hashable, encloser: bytes, name: bytes, offsets: list[int], qtype: int, proof: list[RRset]
    ) -> Ready | None:
        """A reply of that kind with that proof: laid out, or else of a mould."""
        zone = self.zone
        gaps = next_closer(name, encloser) != name or zone.gap(encloser) is not None
        shared = Shared.BY_PROOF if gaps else Shared.BY_NONE
        ready = zone.proofs.reply(kind, self._asked(name, offsets), qtype, proof, self._learned.ask, shared)
        if ready is not None:
            return ready
        mould, place = (kind, encloser, shared, *map(id, proof)), len(name) - len(encloser)
        return self._learned.moulded(mould, place, name, qtype, DO, shared=shared)

    def _asked(self, name: bytes, offsets: list[int]) -> Asked:
        """A name below the origin, by the offsets of its labels there."""
        place = len(name) - len(self.zone.origin)
        return Asked(name, place, name[offsets[-1] : place])
