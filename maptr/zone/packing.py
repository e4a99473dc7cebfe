"""The octets of one name in a packed table (``packed.py``): its RRsets in order of type, each::

type (2)  records (2)  octets that follow (4)   then each record as an answer to that very name has it:
C0 0C  type (2)  IN (2)  TTL (4)  length (2)  uncompressed rdata
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator

RRSET = struct.Struct("!HHI")  # type, records, octets
RECORD = struct.Struct("!2sHHIH")  # pointer to the question, type, class, TTL, length of the rdata
TO_QUESTION = b"\xc0\x0c"  # RFC 1035 4.1.4: the name at offset 12


def split_rrsets(packed: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and records of each RRset of one value of a table."""
    at = 0
    while at < len(packed):
        rdtype, _, size = RRSET.unpack_from(packed, at)
        at += RRSET.size
        yield rdtype, packed[at : at + size]
        at += size


def split_records(records: bytes) -> list[bytes]:
    """The records of one RRset of a table, each with the place of its owner."""
    found, at = [], 0
    while at < len(records):
        end = at + RECORD.size + (records[at + 10] << 8 | records[at + 11])
        if end == len(records) and not at:
            return [records]  # the commonest by far
        found.append(records[at:end])
        at = end
    return found


def headed(rdtype: int, records: bytes) -> bytes:
    """The RRset of these records, as the table has it."""
    return RRSET.pack(rdtype, len(split_records(records)), len(records)) + records


def pack_records(records: Iterable[bytes]) -> bytes:
    """One value of a table, of its records in any order of types."""
    groups: dict[bytes, list[bytes]] = {}
    for record in records:
        groups.setdefault(record[2:4], []).append(record)
    return b"".join(
        rdtype + len(group).to_bytes(2, "big") + sum(map(len, group)).to_bytes(4, "big") + b"".join(group)
        for rdtype, group in sorted(groups.items())
    )


def types_of(packed: bytes) -> list[int]:
    """The types at a name, in order."""
    at, types = 0, []
    while at < len(packed):
        rdtype, _, size = RRSET.unpack_from(packed, at)
        types.append(rdtype)
        at += RRSET.size + size
    return types


def have_same_records(one: bytes, other: bytes) -> bool:
    """Whether two values of tables say the same: the order of records says nothing (RFC 2181 5)."""
    if one == other:
        return True
    if len(one) != len(other):
        return False
    pairs = itertools.zip_longest(split_rrsets(one), split_rrsets(other), fillvalue=(0, b""))
    return all(a == b or sorted(split_records(a[1])) == sorted(split_records(b[1])) for a, b in pairs)
