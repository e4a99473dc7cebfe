"""Snapshot: an immutable view of one or more zones, ready to answer from.

How a query is looked up in it is ``answer/lookup.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import dns.name
import dns.node
import dns.zone

from maptr.errors import ZoneError
from maptr.protocol.names import Labels, fold, from_wire, is_below, to_text, to_wire
from maptr.protocol.numbers import NS, NSEC, NSEC3, NSEC3PARAM, RRSIG, SOA
from maptr.zone.denial import Denial, chain_of
from maptr.zone.packed import PackedNodes, rdatas_of, read_rrsets, split_rrsets, ttl_of, types_of
from maptr.zone.rrset import Node, RRset, hosts_of

_PROOFS = frozenset({NSEC, NSEC3, NSEC3PARAM})
_HASHED = frozenset({NSEC3, RRSIG})


class ZoneView(NamedTuple):
    """One zone. ``nodes`` has every owner, types in order; an empty non-terminal has none.

    ``cuts`` are the delegation points. ``negative_soa`` has the TTL of a negative response (RFC 2308 3).
    ``hashed`` are the owners of NSEC3 alone. ``denial`` proves what does not exist; None for an unsigned zone.
    """

    origin: Labels
    serial: int
    soa: RRset
    negative_soa: RRset
    nodes: PackedNodes
    cuts: frozenset[Labels]
    hashed: frozenset[Labels] = frozenset()
    denial: Denial | None = None

    @classmethod
    def of(cls, origin: Labels, nodes: Mapping[Labels, Node]) -> ZoneView:
        """The view of checked nodes with a SOA at the origin. Raises ZoneError as ``chain_of`` does."""
        packed = nodes if isinstance(nodes, PackedNodes) else PackedNodes.pack(nodes)
        soa = packed[origin][SOA]
        serial, _, _, _, minimum = struct.unpack("!5I", soa.rdatas[0][-20:])
        cuts: list[Labels] = []
        hashed: list[Labels] = []
        proofs: dict[Labels, Node] = {}
        apex = to_wire(origin)
        for key in packed.special:
            types = types_of(packed.read(key))
            if NS in types and key != apex:
                cuts.append(from_wire(key))
            if not _PROOFS.isdisjoint(types):
                proofs[from_wire(key)] = {rrset.rdtype: rrset for rrset in _proofs(packed, key)}
            if NSEC3 in types and _HASHED.issuperset(types):
                hashed.append(from_wire(key))
        denial = chain_of(proofs, origin) if proofs else None
        negative_soa = soa._replace(ttl=min(soa.ttl, minimum))
        return cls(origin, serial, soa, negative_soa, packed, frozenset(cuts), frozenset(hashed), denial)

    def find(self, name: Labels) -> Node | None:
        """The node that a query for the folded name finds; hashed owner names are not found (RFC 5155 7.2.8)."""
        return None if name in self.hashed else self.nodes.get(name)

    def longest_ttl(self) -> int:
        """The longest TTL of any record, in seconds."""
        packed = self.nodes.pack_all().values()
        return max(ttl_of(records) for value in packed for _, records in split_rrsets(value))


def _proofs(nodes: PackedNodes, key: bytes) -> Iterator[RRset]:
    """The NSEC, NSEC3 and NSEC3PARAM of a name with their signatures."""
    packed = nodes.read(key)
    signatures = rdatas_of(dict(split_rrsets(packed)).get(RRSIG, b""))
    for rrset in read_rrsets(nodes.owner(key), packed):
        if rrset.rdtype in _PROOFS:
            covered = rrset.rdtype.to_bytes(2, "big")
            yield rrset.signed(tuple([rdata for rdata in signatures if rdata[:2] == covered]))


class Snapshot(NamedTuple):
    """All zones of a server at one moment, by folded origin. It never changes: a reload makes another one."""

    zones: Mapping[Labels, ZoneView]
    depth: int  # labels of the longest origin
    broken: frozenset[Labels] = frozenset()  # origins of configured zones that could not be loaded

    @classmethod
    def from_zones(cls, zones: Iterable[dns.zone.Zone]) -> Snapshot:
        """Raises ZoneError for a zone without an origin or SOA, data outside its zone, one origin twice."""
        return cls.of(map(view_zone, zones))

    @classmethod
    def of(cls, zones: Iterable[ZoneView], *, broken: Iterable[Labels] = ()) -> Snapshot:
        """A snapshot of these views. Raises ZoneError for two of one origin."""
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
    """The view of a dnspython zone, relativized or not. Raises ZoneError."""
    if zone.origin is None:
        raise ZoneError("the zone has no origin")
    origin = fold(zone.origin.labels[:-1])
    nodes: dict[Labels, Node] = {}
    for name, node in zone.nodes.items():
        owner = name.derelativize(zone.origin).labels[:-1]
        key = fold(owner)
        if not is_below(key, origin):
            raise ZoneError(f"{to_text(owner)} is outside the zone {to_text(origin)}")
        if rrsets := _rrsets(owner, node, zone.origin):
            nodes[key] = rrsets
    if SOA not in nodes.get(origin, {}):
        raise ZoneError(f"zone {to_text(origin)} has no SOA")
    return ZoneView.of(origin, nodes)


def _rrsets(owner: Labels, node: dns.node.Node, origin: dns.name.Name) -> dict[int, RRset]:
    """By type; all signatures are one RRset with the least of their TTLs."""
    rrsets: dict[int, RRset] = {}
    for rdataset in node:
        rdtype = int(rdataset.rdtype)
        rdatas = tuple(rdata.to_wire(origin=origin) or b"" for rdata in rdataset)
        if not rdatas:
            continue
        if rdtype in rrsets:
            earlier = rrsets[rdtype]
            rrsets[rdtype] = RRset(owner, rdtype, min(rdataset.ttl, earlier.ttl), earlier.rdatas + rdatas)
        else:
            rrsets[rdtype] = RRset(owner, rdtype, rdataset.ttl, rdatas, hosts_of(rdtype, rdatas))
    return dict(sorted(rrsets.items()))
