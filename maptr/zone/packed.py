"""The names of a zone as plain bytes: a fifth of the memory of RRset objects, and ready to be copied into responses.

A packed table has the folded, uncompressed wire name of each name that exists, empty non-terminals included. Its value
is the RRsets of the name in order of type, each::

    type (2)  number of records (2)  bytes that follow (4)     then each record, as a response for that name has it:
    C0 0C  type (2)  IN (2)  TTL (4)  length (2)  uncompressed rdata

In the table of a large plain file, the value of a name is at first its lines of the file, which were found correct
(``reader.py``). They are packed when the name is read, so use ``read``, ``find`` or ``pack_all``, not ``table``.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from maptr.protocol.names import WILDCARD, Labels, from_wire, to_wire
from maptr.protocol.numbers import AAAA, IN, NAPTR, NSEC, NSEC3, RRSIG, TXT, A
from maptr.zone.rrset import Node, RRset, hosts_of

RRSET = struct.Struct("!HHI")  # type, records, bytes
RECORD = struct.Struct("!2sHHIH")  # pointer to the question, type, class, TTL, length of the rdata
TO_QUESTION = b"\xc0\x0c"  # RFC 1035 4.1.4: the name at offset 12

INERT = frozenset({A, TXT, AAAA, NAPTR})  # records that do not change what other names are answered
SIGNING = frozenset({RRSIG, NSEC, NSEC3})  # signing gives these to names, and NSEC3 makes names of its own
_EMPTY: Node = MappingProxyType({})
_INERT_WIRE = frozenset(rdtype.to_bytes(2, "big") for rdtype in INERT)


class PackedNodes(Mapping[Labels, Node]):
    """Names and RRsets over a packed table. Each look-up makes new RRset objects.

    ``spelled`` has the owners that are not in lower case. ``special`` are the names that have more than inert types,
    and wildcards: all delegations, aliases and signatures are there. ``packer`` packs lines, whose TTL is ``ttl``;
    it is None if there are no lines. Several threads may read at once.
    """

    def __init__(
        self,
        table: dict[bytes, bytes],
        spelled: Mapping[bytes, bytes],
        special: Iterable[bytes] | None = None,
        packer: Callable[[bytes], bytes] | None = None,
        ttl: int | None = None,
    ) -> None:
        self.table = table
        self.spelled = spelled
        self.special = tuple(special_names(table) if special is None else special)
        self.packer = packer
        self.ttl = ttl

    @classmethod
    def pack(cls, nodes: Mapping[Labels, Node]) -> PackedNodes:
        """The packed form of any nodes, with the names above them, up to the shortest, as empty non-terminals."""
        table: dict[bytes, bytes] = {}
        spelled: dict[bytes, bytes] = {}
        for name, node in nodes.items():
            key = to_wire(name)
            table[key] = b"".join(map(pack_rrset, node.values()))
            owner = next((to_wire(rrset.owner) for rrset in node.values()), key)
            if owner != key:
                spelled[key] = owner
        add_empty_names(table, min(table, key=len, default=b""))
        return cls(table, spelled)

    def read(self, key: bytes) -> bytes:
        """The packed RRsets of a name. Raises KeyError."""
        packer = self.packer  # read before the value: another thread sets it to None after the last value is packed
        value = self.table[key]
        if packer is None or not is_text(value):
            return value
        packed = self.table[key] = packer(value)
        return packed

    def find(self, key: bytes) -> bytes | None:
        """The packed RRsets of a name; None if it does not exist."""
        return self.read(key) if key in self.table else None

    def pack_all(self) -> dict[bytes, bytes]:
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
            return _EMPTY
        node = {rrset.rdtype: rrset for rrset in read_rrsets(self.owner(key), packed)}
        if RRSIG in node:
            for rdtype, rrset in node.items():
                covering = tuple(rdata for rdata in node[RRSIG].rdatas if rdata[:2] == rdtype.to_bytes(2, "big"))
                if covering:
                    node[rdtype] = rrset.signed(covering)
        return node

    def __iter__(self) -> Iterator[Labels]:
        return map(from_wire, self.table)

    def __len__(self) -> int:
        return len(self.table)

    def owner(self, key: bytes) -> Labels:
        """A name as it is spelled."""
        return from_wire(self.spelled.get(key, key))

    def in_order(self) -> list[tuple[Labels, bytes]]:
        """The names in canonical order (RFC 4034 6.1), each with its labels from the root down."""
        return sorted((from_wire(key)[::-1], key) for key in self.table)

    def replaced(self, values: Mapping[bytes, bytes]) -> PackedNodes:
        """The same with other values for some names. A name whose value is empty stays if a name below it exists."""
        packer = self.packer  # as in ``read``
        table = {**self.table, **values}
        if not all(values.values()):
            apex = min(table, key=len)
            table = {name: value for name, value in table.items() if value}
            add_empty_names(table, apex)
        spelled = {name: owner for name, owner in self.spelled.items() if table.get(name)}
        return PackedNodes(table, spelled, None, packer, self.ttl)

    def count(self) -> int:
        """The number of names that have records, not counting those that only signing gave records."""
        empty = sum(1 for packed in self.table.values() if not packed)
        signing = sum(1 for key in self.special if (types := types_of(self.table[key])) and SIGNING.issuperset(types))
        return len(self.table) - empty - signing


def add_empty_names(table: dict[bytes, bytes], apex: bytes) -> None:
    """Add the empty non-terminals between the apex and the names of a table (RFC 4592 2.2.2)."""
    for name in list(table):
        at = 1 + name[0]
        while len(name) - at > len(apex):
            table.setdefault(name[at:], b"")
            at += 1 + name[at]


def is_text(value: bytes) -> bool:
    """Whether a value is lines of a plain file: they begin with a NAAN, and the types in tables have lower numbers."""
    return value[:1] >= b"0"


def has_data(node: Node) -> bool:
    """Whether a name has records besides those that signing makes."""
    return not node.keys() <= SIGNING


def special_names(table: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """The names of a table that are ``special``. Lines are inert."""
    for name, packed in table.items():
        is_inert = is_text(packed) or (packed[:2] in _INERT_WIRE and _is_one_rrset(packed))
        if name[:2] == WILDCARD or not (is_inert or INERT.issuperset(types_of(packed))):
            yield name


def _is_one_rrset(packed: bytes) -> bool:
    return len(packed) == RRSET.size + int.from_bytes(packed[4:8], "big")


# ---- the value of one name


def split_rrsets(packed: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and records of each RRset."""
    at = 0
    while at < len(packed):
        rdtype, _, size = RRSET.unpack_from(packed, at)
        at += RRSET.size
        yield rdtype, packed[at : at + size]
        at += size


def split_records(records: bytes) -> list[bytes]:
    """The records of one RRset, each with the pointer that stands for its owner."""
    found, at = [], 0
    while at < len(records):
        end = at + RECORD.size + (records[at + 10] << 8 | records[at + 11])
        if end == len(records) and not at:
            return [records]
        found.append(records[at:end])
        at = end
    return found


def rdatas_of(records: bytes) -> list[bytes]:
    """The rdatas of the records of one RRset."""
    return [record[RECORD.size :] for record in split_records(records)]


def ttl_of(records: bytes) -> int:
    """The TTL of the records of one RRset, in seconds."""
    return int.from_bytes(records[6:10], "big")


def types_of(packed: bytes) -> list[int]:
    """The types of a name, in order."""
    at, types = 0, []
    while at < len(packed):
        rdtype, _, size = RRSET.unpack_from(packed, at)
        types.append(rdtype)
        at += RRSET.size + size
    return types


def read_rrsets(owner: Labels, packed: bytes) -> Iterator[RRset]:
    """The RRsets of a name as objects, without their signatures."""
    for rdtype, records in split_rrsets(packed):
        rdatas = rdatas_of(records)
        yield RRset(owner, rdtype, ttl_of(records), tuple(rdatas), hosts_of(rdtype, rdatas))


def pack_record(rdtype: int, ttl: int, rdata: bytes) -> bytes:
    """One record."""
    return RECORD.pack(TO_QUESTION, rdtype, IN, ttl, len(rdata)) + rdata


def pack_rrset(rrset: RRset) -> bytes:
    """One RRset, as the value of a name has it."""
    return with_head(rrset.rdtype, b"".join([pack_record(rrset.rdtype, rrset.ttl, rdata) for rdata in rrset.rdatas]))


def with_head(rdtype: int, records: bytes) -> bytes:
    """The RRset of these records, as the value of a name has it."""
    return RRSET.pack(rdtype, len(split_records(records)), len(records)) + records


def pack_records(records: Iterable[bytes]) -> bytes:
    """The value of a name, from its records in any order of types."""
    groups: dict[bytes, list[bytes]] = {}
    for record in records:
        groups.setdefault(record[2:4], []).append(record)
    return b"".join([with_head(int.from_bytes(rdtype, "big"), b"".join(groups[rdtype])) for rdtype in sorted(groups)])


def have_same_records(one: bytes, other: bytes) -> bool:
    """Whether two values have the same records: their order has no meaning (RFC 2181 5)."""
    if one == other:
        return True
    if len(one) != len(other):
        return False
    pairs = itertools.zip_longest(split_rrsets(one), split_rrsets(other), fillvalue=(0, b""))
    return all(a == b or sorted(split_records(a[1])) == sorted(split_records(b[1])) for a, b in pairs)
