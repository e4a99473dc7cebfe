"""Snapshots: immutable views of one or more zones, from which ``answer/lookup.py`` answers.

A zone has a *packed table*. Its keys are the names that exist, empty non-terminals included, in folded, uncompressed
wire format. Its values are the packed RRsets of each name (``rrset.py``), ready to be copied into responses, in less
memory than RRset objects.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from maptr.errors import ZoneError
from maptr.protocol.names import WILDCARD, Folded, Labels, fold, folded_from_wire, from_wire, to_text, to_wire
from maptr.protocol.numbers import AAAA, NAPTR, NS, NSEC, NSEC3, NSEC3PARAM, RRSIG, SOA, TXT, A
from maptr.zone.denial import Denial, chain_of
from maptr.zone.rrset import Node, RRset, pack_record, pack_records, read_node, split_rrsets, ttl_of, types_of

INERT = frozenset({A, TXT, AAAA, NAPTR})  # types that do not affect the responses for other names
SIGNING = frozenset({RRSIG, NSEC, NSEC3})  # types that signing adds to names; NSEC3 also adds names
RUN = 16_384  # names that are sorted at once, in some 10 ms
_EMPTY: Node = MappingProxyType({})
_PROOFS = frozenset({NSEC, NSEC3, NSEC3PARAM})
_HASHED = frozenset({NSEC3, RRSIG})


class PackedNodes(Mapping[Folded, Node]):
    """A mapping of names to RRsets over a packed table. Each look-up makes new RRset objects.

    ``spelled`` has the owners that are not in lower case. ``special`` has the wildcards and the names with a type that
    is not inert, such as delegations, aliases and signed names. ``digest`` caches the number that ``diff.digest``
    computes from all names, once it is known.
    """

    def __init__(
        self,
        table: dict[bytes, bytes],
        spelled: Mapping[bytes, bytes],
        special: Iterable[bytes] | None = None,
    ) -> None:
        self.table = table
        self.spelled = spelled
        self.special = tuple(special_names(table) if special is None else special)
        self.digest: int | None = None

    @classmethod
    def pack(cls, records: Iterable[tuple[Labels, int, int, bytes]]) -> PackedNodes:
        """Pack records: owner, type, TTL and rdata. The shortest owner is the apex."""
        found: dict[bytes, list[bytes]] = {}
        spelled: dict[bytes, bytes] = {}
        for owner, some in groupby(records, itemgetter(0)):  # records of one name are usually adjacent
            key, name = to_wire(fold(owner)), to_wire(owner)
            found.setdefault(key, []).extend(pack_record(*record[1:]) for record in some)
            if name != key:
                spelled[key] = name
        table = {key: pack_records(some) for key, some in found.items()}
        add_empty_names(table, min(table, key=len, default=b""))
        return cls(table, spelled)

    def __getitem__(self, name: Folded) -> Node:
        key = to_wire(name)
        packed = self.table[key]
        spelled = self.spelled.get(key)
        return read_node(name if spelled is None else from_wire(spelled), packed) if packed else _EMPTY

    def __iter__(self) -> Iterator[Folded]:
        return map(folded_from_wire, self.table)

    def __len__(self) -> int:
        return len(self.table)

    def owner(self, key: bytes) -> Labels:
        """Return a name in the case of its file."""
        return from_wire(self.spelled.get(key, key))

    def in_order(self) -> list[tuple[Labels, bytes]]:
        """Return the names in canonical order (RFC 4034 6.1), each after its labels from the root down."""
        return in_canonical_order(self.table)

    def replaced(self, values: Mapping[bytes, bytes]) -> PackedNodes:
        """Return a copy with other values for some names. A name with an empty value is kept if one below it exists."""
        table = {**self.table, **values}
        if not all(values.values()):
            apex = min(table, key=len)
            table = {name: value for name, value in table.items() if value}
            add_empty_names(table, apex)
        spelled = {name: owner for name, owner in self.spelled.items() if table.get(name)}
        return PackedNodes(table, spelled)

    def count(self) -> int:
        """Count the names that have records besides those that signing makes."""
        empty = list(self.table.values()).count(b"")
        signing = sum(1 for key in self.special if (types := types_of(self.table[key])) and SIGNING.issuperset(types))
        return len(self.table) - empty - signing


def in_canonical_order(keys: Iterable[bytes]) -> list[tuple[Labels, bytes]]:
    """Return names in canonical order (RFC 4034 6.1), each after its labels from the root down.

    They are sorted in runs, which are then merged, because no other thread can run during a sort.
    """
    names, runs = iter(keys), []
    while run := [(from_wire(key)[::-1], key) for key in islice(names, RUN)]:
        runs.append(sorted(run))
    return list(merge(*runs)) if len(runs) > 1 else [name for run in runs for name in run]


def add_empty_names(table: dict[bytes, bytes], apex: bytes) -> None:
    """Add the empty non-terminals between the apex and the names of a table (RFC 4592 2.2.2)."""
    size = len(apex) + 1  # most names are directly below the apex, and have none above
    for name in [name for name in table if len(name) - name[0] > size]:
        at = 1 + name[0]
        while len(name) - at > len(apex):
            table.setdefault(name[at:], b"")
            at += 1 + name[at]


def has_data(node: Node) -> bool:
    """Return whether a name has records besides those that signing makes."""
    return not node.keys() <= SIGNING


def special_names(table: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Yield the names of a table that are ``special``."""
    for name, packed in table.items():
        if name[:2] == WILDCARD or not INERT.issuperset(types_of(packed)):
            yield name


class ZoneView(NamedTuple):
    """One zone. ``nodes`` has every owner, types in order; an empty non-terminal has none.

    ``cuts`` are the delegation points. ``negative_soa`` has the TTL of a negative response (RFC 2308 3). ``hashed`` are
    the owners of NSEC3 alone. ``denial`` proves that names and types do not exist; it is None for an unsigned zone.
    """

    origin: Folded
    serial: int
    soa: RRset
    negative_soa: RRset
    nodes: PackedNodes
    cuts: frozenset[Folded]
    hashed: frozenset[Folded] = frozenset()
    denial: Denial | None = None

    @classmethod
    def of(cls, origin: Folded, nodes: PackedNodes) -> ZoneView:
        """Make the view of nodes with a SOA at the origin. Raises ZoneError if the chain cannot be used."""
        apex = to_wire(origin)
        soa = read_node(nodes.owner(apex), nodes.table[apex], (SOA,))[SOA]
        serial, _, _, _, minimum = struct.unpack("!5I", soa.rdatas[0][-20:])
        cuts: list[Folded] = []
        hashed: list[Folded] = []
        proofs: dict[Folded, Node] = {}
        for key in nodes.special:
            packed = nodes.table[key]
            types = types_of(packed)
            name = folded_from_wire(key)
            if NS in types and key != apex:
                cuts.append(name)
            if not _PROOFS.isdisjoint(types):
                proofs[name] = read_node(nodes.owner(key), packed, _PROOFS)
            if NSEC3 in types and _HASHED.issuperset(types):
                hashed.append(name)
        denial = chain_of(proofs, origin) if proofs else None
        negative_soa = soa.with_ttl(min(soa.ttl, minimum))
        return cls(origin, serial, soa, negative_soa, nodes, frozenset(cuts), frozenset(hashed), denial)

    def find(self, name: Folded) -> Node | None:
        """Find the node for a query of a folded name. Hashed owner names do not match (RFC 5155 7.2.8)."""
        return None if name in self.hashed else self.nodes.get(name)

    def longest_ttl(self) -> int:
        packed = self.nodes.table.values()
        return max(ttl_of(records) for value in packed for _, records in split_rrsets(value))


class Snapshot(NamedTuple):
    """All zones of a server, by folded origin. It never changes: a reload makes another one.

    ``is_starting``: the zones are not loaded yet, so that nothing is known about any name.
    """

    zones: Mapping[Folded, ZoneView]
    depth: int  # labels of the longest origin
    broken: frozenset[Folded] = frozenset()  # origins of configured zones that could not be loaded
    is_starting: bool = False

    @classmethod
    def of(cls, zones: Iterable[ZoneView], *, broken: Iterable[Folded] = ()) -> Snapshot:
        """Make a snapshot of views. Raises ZoneError for two with the same origin."""
        views: dict[Folded, ZoneView] = {}
        for view in zones:
            if view.origin in views:
                raise ZoneError(f"zone {to_text(view.origin)} is given twice")
            views[view.origin] = view
        return cls(MappingProxyType(views), max(map(len, views), default=0), frozenset(broken))

    @classmethod
    def starting(cls) -> Snapshot:
        """Return the snapshot of a server that has not loaded its zones yet."""
        return cls(MappingProxyType({}), 0, is_starting=True)

    def closest(self, name: Folded) -> ZoneView | None:
        """Return the zone with the longest origin at or above a folded name."""
        for start in range(max(0, len(name) - self.depth), len(name) + 1):
            view = self.zones.get(Folded(name[start:]))
            if view is not None:
                return view
        return None
