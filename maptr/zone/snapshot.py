"""Snapshot: an immutable, ready-to-answer view of one or more zones.

Rdata is held as uncompressed wire, so whatever answers from it need not know any record type.
Owner names are keyed by their folded labels; what is asked with them is in ``lookup.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from maptr.errors import ZoneError
from maptr.protocol.names import Labels, fold, from_wire, is_below, to_text
from maptr.protocol.numbers import MX, NS, RRSIG, SOA, SRV

if TYPE_CHECKING:  # dnspython takes 40 ms to import, and a plain zone file needs none of it
    import dns.name
    import dns.node
    import dns.rdata
    import dns.zone

    from maptr.zone.denial import Denial

# Where in its rdata each type names a host whose addresses go along (RFC 1034 4.3.2 step 6, RFC 2782).
_HOST_OFFSET = {NS: 0, MX: 2, SRV: 6}

# Fixed octets before the names, and how many: the only types whose rdata may be compressed (RFC 3597 4).
RDATA_NAMES = {2: (0, 1), 3: (0, 1), 4: (0, 1), 5: (0, 1), 6: (0, 2), 7: (0, 1), 8: (0, 1), 9: (0, 1)}
RDATA_NAMES |= {12: (0, 1), 14: (0, 2), 15: (2, 1)}


class RRset(NamedTuple):
    """Records of one owner and type: ``rdatas`` uncompressed wire, ``hosts`` the folded names they point to.

    ``signatures`` are the RRSIG rdatas that cover it, which go along where DO is set.
    """

    owner: Labels
    rdtype: int
    ttl: int
    rdatas: tuple[bytes, ...]
    hosts: tuple[Labels, ...] = ()
    signatures: tuple[bytes, ...] = ()

    def at(self, owner: Labels) -> RRset:
        """The same records under another owner, as a wildcard gives them (RFC 4592 3.3)."""
        return self._replace(owner=owner)

    def signed(self, signatures: tuple[bytes, ...]) -> RRset:
        """The same records with the signatures that cover them."""
        return self._replace(signatures=signatures)


Node = Mapping[int, RRset]


class ZoneView(NamedTuple):
    """One zone. ``nodes`` has every owner, types in order; an empty non-terminal has none.

    ``cuts`` are the delegation points. ``negative_soa`` has the TTL of a negative answer (RFC 2308 3).
    ``hashed`` are the owners of NSEC3 alone. ``denial`` proves what is not there; None for an unsigned zone.
    """

    origin: Labels
    serial: int
    soa: RRset
    negative_soa: RRset
    nodes: Mapping[Labels, Node]
    cuts: frozenset[Labels]
    hashed: frozenset[Labels] = frozenset()
    denial: Denial | None = None

    def find(self, name: Labels) -> Node | None:
        """What a question for the folded name finds; the names of hashes are not there (RFC 5155 7.2.8)."""
        return None if name in self.hashed else self.nodes.get(name)


class Snapshot(NamedTuple):
    """All the zones of a server at one moment, by folded origin. Never changed: a reload makes another."""

    zones: Mapping[Labels, ZoneView]
    depth: int  # labels of the longest origin
    broken: frozenset[Labels] = frozenset()  # origins of zones that are ours and could not be loaded

    @classmethod
    def from_zones(cls, zones: Iterable[dns.zone.Zone]) -> Snapshot:
        """Raises ZoneError for a zone without an origin or SOA, data outside its zone, one origin twice."""
        return cls.of(map(view_zone, zones))

    @classmethod
    def of(cls, zones: Iterable[ZoneView], *, broken: Iterable[Labels] = ()) -> Snapshot:
        """A snapshot of views that are ready, old and new: what a reload swaps in. Raises ZoneError."""
        views: dict[Labels, ZoneView] = {}
        for view in zones:
            if view.origin in views:
                raise ZoneError(f"zone {to_text(view.origin)} is given twice")
            views[view.origin] = view
        return cls(MappingProxyType(views), max(map(len, views), default=0), frozenset(broken))

    def closest(self, name: Labels) -> ZoneView | None:
        """The zone with the longest origin at or above a folded name."""
        for start in range(max(0, len(name) - self.depth), len(name) + 1):
            view = self.zones.get(name[start:])
            if view is not None:
                return view
        return None


def view_zone(zone: dns.zone.Zone) -> ZoneView:
    """One dnspython zone, relativized or not, made ready. Raises ZoneError."""
    from maptr.zone.denial import chain_of, is_hashed_owner

    if zone.origin is None:
        raise ZoneError("a zone without an origin")
    origin = fold(_labels(zone.origin))
    nodes: dict[Labels, Node] = {}
    cuts: set[Labels] = set()
    for name, node in zone.nodes.items():
        owner = _labels(name.derelativize(zone.origin))
        key = fold(owner)
        if not is_below(key, origin):
            raise ZoneError(f"{to_text(owner)} is outside the zone {to_text(origin)}")
        rrsets = _rrsets(owner, node, zone.origin)
        if not rrsets:
            continue
        nodes[key] = MappingProxyType(rrsets)
        if NS in rrsets and key != origin:
            cuts.add(key)
    if SOA not in nodes.get(origin, {}):
        raise ZoneError(f"zone {to_text(origin)} has no SOA")
    for key in list(nodes):
        for start in range(1, len(key) - len(origin)):
            nodes.setdefault(key[start:], MappingProxyType({}))
    hashed = frozenset(key for key, node in nodes.items() if is_hashed_owner(node))
    return make_view(origin, MappingProxyType(nodes), cuts, hashed, chain_of(nodes, origin))


def make_view(
    origin: Labels,
    nodes: Mapping[Labels, Node],
    cuts: Iterable[Labels],
    hashed: frozenset[Labels] = frozenset(),
    denial: Denial | None = None,
) -> ZoneView:
    """A view of nodes that are checked and whole, with a SOA at the origin."""
    soa = nodes[origin][SOA]
    serial, _, _, _, minimum = struct.unpack("!5I", soa.rdatas[0][-20:])
    negative = soa._replace(ttl=min(soa.ttl, minimum))
    return ZoneView(origin, serial, soa, negative, nodes, frozenset(cuts), hashed, denial)


def _rrsets(owner: Labels, node: dns.node.Node, origin: dns.name.Name) -> dict[int, RRset]:
    rrsets: dict[int, RRset] = {}
    signatures: dict[int, tuple[bytes, ...]] = {}
    for rdataset in node:
        rdtype = int(rdataset.rdtype)
        rdatas = tuple(_wire(rdata, origin) for rdata in rdataset)
        if not rdatas:
            continue
        if rdtype == RRSIG:
            signatures[int(rdataset.covers)] = rdatas
            earlier = rrsets.get(RRSIG)
            ttl = min(rdataset.ttl, earlier.ttl) if earlier else rdataset.ttl
            rrsets[RRSIG] = RRset(owner, RRSIG, ttl, (earlier.rdatas if earlier else ()) + rdatas)
            continue
        rrsets[rdtype] = RRset(owner, rdtype, rdataset.ttl, rdatas, hosts_of(rdtype, rdatas))
    for covered, wires in signatures.items():
        if covered in rrsets:
            rrsets[covered] = rrsets[covered].signed(wires)
    return dict(sorted(rrsets.items()))


def hosts_of(rdtype: int, rdatas: Iterable[bytes]) -> tuple[Labels, ...]:
    """The folded names of hosts in rdata whose addresses go along with it."""
    offset = _HOST_OFFSET.get(rdtype)
    return () if offset is None else tuple(fold(from_wire(wire, offset)) for wire in rdatas)


def _wire(rdata: dns.rdata.Rdata, origin: dns.name.Name) -> bytes:
    wire = rdata.to_wire(origin=origin)
    assert wire is not None  # noqa: S101 - None only where a file was passed
    return wire


def _labels(name: dns.name.Name) -> Labels:
    return name.labels[:-1]


def rdata_name(rrset: RRset) -> Labels:
    """The one name that is the rdata of a CNAME or DNAME."""
    return from_wire(rrset.rdatas[0])
