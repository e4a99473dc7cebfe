"""PackedNodes: the names of a zone as plain octets, a fifth of the memory of RRset objects, read as ``ZoneView.nodes``.

``table`` has the folded uncompressed wire name of each name that exists, empty non-terminals too, and its RRsets
in order of type, each::

    type (2)  records (2)  octets that follow (4)   then each record as an answer to that very name has it:
    C0 0C  type (2)  IN (2)  TTL (4)  length (2)  uncompressed rdata

so most replies are a part of a value as it stands: ``fastpath.py`` points into it. Being bytes in a dict, a
table can be written to a file and read back at once. ``spelled`` has the owners whose case is not the folded one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from maptr.names import Labels, to_wire
from maptr.snapshot import Node, RRset, hosts_of

RRSET = struct.Struct("!HHI")  # type, records, octets
RECORD = struct.Struct("!2sHHIH")  # pointer to the question, type, class, TTL, length of the rdata
TO_QUESTION = b"\xc0\x0c"  # RFC 1035 4.1.4: the name at offset 12
IN = 1
EMPTY: Node = MappingProxyType({})


class PackedNodes(Mapping[Labels, Node]):
    """Names and RRsets over a packed table; each look-up makes new objects, which is for the general path."""

    def __init__(self, table: dict[bytes, bytes], spelled: Mapping[bytes, bytes]) -> None:
        self.table = table
        self.spelled = spelled

    @classmethod
    def pack(cls, nodes: Mapping[Labels, Node]) -> PackedNodes:
        """The packed form of any nodes, signatures aside: RRSIG is a type like others here."""
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

    def __getitem__(self, name: Labels) -> Node:
        key = to_wire(name)
        packed = self.table[key]
        if not packed:
            return EMPTY
        owner = read_labels(self.spelled[key]) if key in self.spelled else name
        return {rrset.rdtype: rrset for rrset in read_rrsets(owner, packed)}

    def __iter__(self) -> Iterator[Labels]:
        return map(read_labels, self.table)

    def __len__(self) -> int:
        return len(self.table)


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


def types_of(packed: bytes) -> list[int]:
    """The types at a name, in order."""
    at, types = 0, []
    while at < len(packed):
        rdtype, _, size = RRSET.unpack_from(packed, at)
        types.append(rdtype)
        at += RRSET.size + size
    return types


def read_labels(wire: bytes, at: int = 0) -> Labels:
    """Labels of the trusted uncompressed name there."""
    labels = []
    while length := wire[at]:
        labels.append(wire[at + 1 : at + 1 + length])
        at += length + 1
    return tuple(labels)
