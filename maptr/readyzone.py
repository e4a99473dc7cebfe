"""ReadyZone: a zone as the ready answers need it: its packed table, and where in it they must not go the short way."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from maptr.names import WILDCARD, Labels, from_wire, is_below, to_wire, wire_length
from maptr.packed import PackedNodes, read_rrsets
from maptr.packing import RRSET, types_of
from maptr.proofs import Proofs
from maptr.protocol import CNAME, DNAME, NS, NSEC, NSEC3, RRSIG
from maptr.ready import Ready
from maptr.snapshot import ZoneView

MAX_ENCLOSERS = 8192  # whose gaps are known, 200 octets each and 8 for each label below them

_CNAME = CNAME.to_bytes(2, "big")


class ReadyZone:
    """``table`` has packed RRsets by name, or lines that ``read`` packs; ``find`` has them packed, or None."""

    def __init__(self, view: ZoneView) -> None:
        nodes = PackedNodes.pack(view.nodes)
        self.table = nodes.table
        self.read = nodes.read
        self.find = nodes.table.get if nodes.packer is None else nodes.find
        self.origin = to_wire(view.origin)
        self.cuts: dict[bytes, frozenset[bytes]] = {}
        self.odd: set[bytes] = set()  # what lies there or below is for the general path
        self.signed = self.wild = False
        for name in nodes.special:
            self._note(name, self.table[name], view)
            if name[:2] == WILDCARD:
                self.wild = True
        self.layered = bool(self.cuts or self.odd)
        self.flat = not (self.wild or self.layered)  # to be absent is not to be in the table
        # NXDOMAIN by the place of the origin in the name and by form, in flat zones.
        self.absent: dict[int, Ready] = {}
        # Just above the origin these labels make names in the SOA compress further than its owner.
        rdata = view.soa.rdatas[0].lower()
        mname = from_wire(rdata)
        names = mname, from_wire(rdata, wire_length(mname))
        self.soa_labels = _labels_above(view.origin, names)
        self.soa_words = frozenset(bytes((len(label),)) + label for labels in names for label in labels)
        self.denial = view.denial
        self._gaps: dict[bytes, Callable[[bytes], int] | None] = {}
        self.proofs = Proofs(self.origin, self.soa_labels)

    def gap(self, encloser: bytes) -> Callable[[bytes], int] | None:
        """``Denial.gap``, for an encloser as folded wire."""
        try:
            return self._gaps[encloser]
        except KeyError:  # looked at once, as in ``learned.py``
            if len(self._gaps) >= MAX_ENCLOSERS:
                self._gaps.clear()
        apex = encloser == self.origin
        gap = None if self.denial is None else self.denial.gap(encloser, apex=apex)
        self._gaps[encloser] = gap
        return gap

    def _note(self, name: bytes, packed: bytes, view: ZoneView) -> None:
        types = types_of(packed)
        if DNAME in types or NSEC3 in types:
            self.odd.add(name)
        if not {RRSIG, NSEC, NSEC3}.isdisjoint(types):
            self.signed = True
        if NS in types and name != self.origin:
            cut = from_wire(name)
            hosts = next(rrset.hosts for rrset in read_rrsets(cut, packed) if rrset.rdtype == NS)
            self.cuts[name] = _labels_above(cut, hosts)


def is_alone(packed: bytes) -> bool:
    """Whether a name has one RRset, and so nothing to say of any other type; an alias has."""
    return len(packed) - RRSET.size == int.from_bytes(packed[4:8], "big") and packed[:2] != _CNAME


def _labels_above(base: Labels, names: Iterable[Labels]) -> frozenset[bytes]:
    """Of the folded names below a base, the label next to it, as wire."""
    below = (name for name in names if len(name) > len(base) and is_below(name, base))
    return frozenset(to_wire(name[-len(base) - 1 :])[: len(name[-len(base) - 1]) + 1] for name in below)
