"""PackedNodes: the names of a zone as plain octets, a fifth of the memory of RRset objects, read as ``ZoneView.nodes``.

``table`` has the folded uncompressed wire name of each name that exists, empty non-terminals too, and its RRsets as
``packing.py`` lays them out, so most replies are a part of a value as it stands: ``fastpath.py`` points into it. Being
bytes in a dict, a table can be written to a file and read back at once. ``spelled`` has the owners whose case is not
the folded one.

In the table of a large plain file a name has first its lines of the file as its value, which were found right. They
are packed when somebody asks for them: so whoever wants values asks ``read``, or for all of them ``settle``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

from maptr.protocol.names import WILDCARD, Labels, from_wire, to_wire
from maptr.protocol.numbers import AAAA, IN, NAPTR, NSEC, NSEC3, NSEC3PARAM, RRSIG, TXT, A
from maptr.zone.packing import RECORD, RRSET, TO_QUESTION, have_same_records, split_records, split_rrsets, types_of
from maptr.zone.snapshot import Node, RRset, ZoneView, hosts_of, make_view

EMPTY: Node = MappingProxyType({})
INERT = frozenset({A, TXT, AAAA, NAPTR})  # what other names are answered does not depend on them
# A value of one RRset of these needs no second look.
_INERT_ALONE = frozenset(rdtype.to_bytes(2, "big") for rdtype in INERT)
# What signing makes, and gives names to that nobody asked for.
_SIGNING = frozenset({RRSIG, NSEC, NSEC3})
_PROVING = frozenset({NSEC, NSEC3, NSEC3PARAM})


class Packer(Protocol):
    """Packs the lines of one name, whose TTL is ``ttl`` and whose names are below the origin of the zone."""

    ttl: int

    def __call__(self, lines: bytes, /) -> bytes: ...


class PackedNodes(Mapping[Labels, Node]):
    """Names and RRsets over a packed table; each look-up makes new objects, which is for the general path.

    ``special`` are the names that have more than inert types, and wildcards: whoever looks for delegations, aliases
    or signatures finds them there, without a look at all names. ``packer`` packs lines; None where all are packed.
    Several threads may read at once.
    """

    def __init__(
        self,
        table: dict[bytes, bytes],
        spelled: Mapping[bytes, bytes],
        special: Iterable[bytes] | None = None,
        packer: Packer | None = None,
    ) -> None:
        self.table = table
        self.spelled = spelled
        self.special = tuple(special_names(table) if special is None else special)
        self.packer = packer

    @classmethod
    def pack(cls, nodes: Mapping[Labels, Node]) -> PackedNodes:
        """The packed form of any nodes. Signatures are found again by the types they cover."""
        if isinstance(nodes, cls):
            return nodes
        table: dict[bytes, bytes] = {}
        spelled: dict[bytes, bytes] = {}
        for name, node in nodes.items():
            key = to_wire(name)
            table[key] = b"".join(map(pack_rrset, node.values()))
            owner = next((to_wire(rrset.owner) for rrset in node.values()), key)
            if owner != key:
                spelled[key] = owner
        return cls(table, spelled)

    def read(self, key: bytes) -> bytes:
        """The packed RRsets of a name. Raises KeyError."""
        packer = self.packer  # first: once there is none, every value is packed
        value = self.table[key]
        if packer is None or not is_text(value):
            return value
        packed = self.table[key] = packer(value)
        return packed

    def find(self, key: bytes) -> bytes | None:
        """The packed RRsets of a name, None where it does not exist."""
        return self.read(key) if key in self.table else None

    def settle(self) -> dict[bytes, bytes]:
        """The table with every name packed."""
        if self.packer is not None:
            for key in self.table:
                self.read(key)
            self.packer = None
        return self.table

    def __getitem__(self, name: Labels) -> Node:
        key = to_wire(name)
        packed = self.read(key)
        if not packed:
            return EMPTY
        owner = from_wire(self.spelled[key]) if key in self.spelled else name
        return _signed({rrset.rdtype: rrset for rrset in read_rrsets(owner, packed)})

    def __iter__(self) -> Iterator[Labels]:
        return map(from_wire, self.table)

    def __len__(self) -> int:
        return len(self.table)

    def replaced(self, values: Mapping[bytes, bytes]) -> PackedNodes:
        """The same with other values at some names. A name whose value is empty stays where something is below it."""
        packer = self.packer  # first, as above
        table = {**self.table, **values}
        if not all(values.values()):
            apex = min(table, key=len)
            filled = {name: value for name, value in table.items() if value}
            table = dict(filled)
            for name in filled:
                at = 1 + name[0]
                while len(name) - at > len(apex):
                    table.setdefault(name[at:], b"")
                    at += 1 + name[at]
        spelled = {name: owner for name, owner in self.spelled.items() if table.get(name)}
        return PackedNodes(table, spelled, None, packer)

    def with_data(self) -> int:
        """How many names somebody gave records, as ``has_data`` says."""
        empty = sum(1 for packed in self.table.values() if not packed)
        signing = sum(1 for key in self.special if (types := types_of(self.table[key])) and _SIGNING.issuperset(types))
        return len(self.table) - empty - signing


def special_nodes(nodes: Mapping[Labels, Node]) -> Iterable[tuple[Labels, Node]]:
    """The nodes of a zone but for those that are known to have inert types alone."""
    if isinstance(nodes, PackedNodes):
        return ((name, nodes[name]) for name in map(from_wire, nodes.special))
    return nodes.items()


def is_text(value: bytes) -> bool:
    """Whether a value is lines of a plain file, which begin with a NAAN; no type there has so high a number."""
    return value[:1] >= b"0"


def has_data(node: Node) -> bool:
    """True for a name that somebody gave records, beside those that signing makes: NSEC3 has names of its own."""
    return not node.keys() <= _SIGNING


def count_names(zone: ZoneView) -> int:
    """How many names have data."""
    if isinstance(zone.nodes, PackedNodes):
        return zone.nodes.with_data()
    return sum(map(has_data, zone.nodes.values()))


def special_names(table: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Of a table, the names that are ``special``; lines are inert."""
    for name, packed in table.items():
        is_inert = is_text(packed) or (packed[:2] in _INERT_ALONE and _is_alone(packed))
        if name[:2] == WILDCARD or not (is_inert or INERT.issuperset(types_of(packed))):
            yield name


def _is_alone(packed: bytes) -> bool:
    return len(packed) == RRSET.size + int.from_bytes(packed[4:8], "big")


def longest_ttl(zone: ZoneView) -> int:
    """Of any record, in seconds."""
    nodes = PackedNodes.pack(zone.nodes)
    records = (found for packed in nodes.settle().values() for _, found in split_rrsets(packed))
    return max(int.from_bytes(found[6:10], "big") for found in records)


def view_packed(origin: Labels, nodes: PackedNodes, cuts: Iterable[Labels]) -> ZoneView:
    """A view of them, with the proofs of a zone that is signed. Raises ZoneError as ``chain_of`` does."""
    if not any(_PROVING.intersection(types_of(nodes.table[key])) for key in nodes.special):
        return make_view(origin, nodes, cuts)
    from maptr.zone.denial import chain_of, is_hashed_owner  # here, for most zones are not signed

    proving = dict(_proving_nodes(nodes))
    hashed = frozenset(key for key, node in proving.items() if is_hashed_owner(node))
    return make_view(origin, nodes, cuts, hashed, chain_of(proving, origin))


def _proving_nodes(nodes: PackedNodes) -> Iterator[tuple[Labels, Node]]:
    """The nodes of proofs, with those and their signatures alone; but NSEC3 only where nothing else is."""
    for key in nodes.special:
        rrsets = dict(split_rrsets(nodes.read(key)))
        proofs = _PROVING.intersection(rrsets)
        if NSEC3 in proofs and not _SIGNING.issuperset(rrsets):
            yield from_wire(key), nodes[from_wire(key)]
        elif proofs:
            signatures = [record[RECORD.size :] for record in split_records(rrsets.get(RRSIG, b""))]
            name = from_wire(key)
            owner = from_wire(nodes.spelled[key]) if key in nodes.spelled else name
            yield name, {rdtype: _proof(owner, rdtype, rrsets[rdtype], signatures) for rdtype in proofs}


def _proof(owner: Labels, rdtype: int, packed: bytes, signatures: list[bytes]) -> RRset:
    covered = rdtype.to_bytes(2, "big")
    rdatas = tuple([record[RECORD.size :] for record in split_records(packed)])
    covering = tuple([rdata for rdata in signatures if rdata[:2] == covered])
    return RRset(owner, rdtype, int.from_bytes(packed[6:10], "big"), rdatas, (), covering)


def _signed(node: dict[int, RRset]) -> Node:
    """The node with its signatures at what they cover."""
    if RRSIG in node:
        for rdtype, rrset in node.items():
            covering = tuple(rdata for rdata in node[RRSIG].rdatas if rdata[:2] == rdtype.to_bytes(2, "big"))
            if covering:
                node[rdtype] = rrset.signed(covering)
    return node


def changed_names(old: Mapping[Labels, Node], new: Mapping[Labels, Node]) -> Iterable[Labels]:
    """The names at which two zones may differ: all of both, but for those known to be the same without a closer look.

    Most names of two versions of a packed zone are: their values are equal, be they octets or lines.
    """
    if not (isinstance(old, PackedNodes) and isinstance(new, PackedNodes)):
        return old.keys() | new.keys()
    alike = _lines_mean(old.packer) == _lines_mean(new.packer)
    names = [
        key
        for key, value in new.table.items()
        if key not in old.table
        or old.spelled.get(key) != new.spelled.get(key)
        or not ((alike and old.table[key] == value) or have_same_records(old.read(key), new.read(key)))
    ]
    names += [key for key in old.table if key not in new.table]
    return map(from_wire, names)


def _lines_mean(packer: Packer | None) -> int | None:
    """What two equal values of tables may differ in: the TTL of lines."""
    return None if packer is None else packer.ttl


def pack_rrset(rrset: RRset) -> bytes:
    """One RRset as the table has it."""
    records = b"".join(
        RECORD.pack(TO_QUESTION, rrset.rdtype, IN, rrset.ttl, len(rdata)) + rdata for rdata in rrset.rdatas
    )
    return RRSET.pack(rrset.rdtype, len(rrset.rdatas), len(records)) + records


def read_rrsets(owner: Labels, packed: bytes) -> Iterator[RRset]:
    """The RRsets of one value of a table."""
    at = 0
    while at < len(packed):
        rdtype, count, _ = RRSET.unpack_from(packed, at)
        at += RRSET.size
        ttl, rdatas = 0, []
        for _ in range(count):
            _, _, _, ttl, length = RECORD.unpack_from(packed, at)
            at += RECORD.size
            rdatas.append(packed[at : at + length])
            at += length
        yield RRset(owner, rdtype, ttl, tuple(rdatas), hosts_of(rdtype, rdatas))
