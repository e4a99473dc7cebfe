"""RRsets, as objects and packed into bytes.

Rdata is in uncompressed wire format and served as it is. Only types with names in their rdata, and those that signing
makes, are interpreted. The packed value of a name has its RRsets in the order of their types, each as::

    type (2)  number of records (2)  bytes that follow (4)

and then its records, as a response for the name has them::

    C0 0C  type (2)  IN (2)  TTL (4)  length (2)  uncompressed rdata
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from maptr.protocol.names import Folded, Labels, fold, from_wire, read_wire
from maptr.protocol.numbers import HTTPS, IN, MX, NAPTR, NS, RRSIG, SRV, SVCB

RRSET = struct.Struct("!HHI")  # type, records, bytes
RECORD = struct.Struct("!2sHHIH")  # pointer to the question, type, class, TTL, length of the rdata
TO_QUESTION = b"\xc0\x0c"  # RFC 1035 4.1.4: the name at offset 12

# The offset in the rdata of a host whose addresses are additional data (RFC 1034 4.3.2 step 6, RFC 2782, RFC 9460 4.1).
_HOST_OFFSET = {NS: 0, MX: 2, SRV: 6, SVCB: 2, HTTPS: 2}

# The number of bytes before the names, and of names. Only these types may have compressed rdata (RFC 3597 4).
RDATA_NAMES = {2: (0, 1), 3: (0, 1), 4: (0, 1), 5: (0, 1), 6: (0, 2), 7: (0, 1), 8: (0, 1), 9: (0, 1)}
RDATA_NAMES |= {12: (0, 1), 14: (0, 2), 15: (2, 1)}

# The same for all types whose names are in lower case in canonical form (RFC 4034 6.2, as RFC 6840 5.1 corrects it):
# also RP, AFSDB, RT, SIG, PX, NXT, SRV, KX, DNAME and RRSIG. The names of NAPTR and A6 have no fixed place.
_LOWERED = RDATA_NAMES | {17: (0, 2), 18: (2, 1), 21: (2, 1), 24: (18, 1), 26: (2, 2), 30: (0, 1), 33: (6, 1)}
_LOWERED |= {36: (2, 1), 39: (0, 1), RRSIG: (18, 1)}
_A6 = 38

# Type covered, algorithm, labels, TTL, expiration, inception, key tag (RFC 4034 3.1); signer and signature follow.
RRSIG_HEAD = struct.Struct("!HBBIIIH")
DELETE_CDS, DELETE_CDNSKEY = b"\0\0\0\0\0", b"\0\0\3\0\0"  # rdata that asks the parent to remove the DS (RFC 8078 4)


class RRset(NamedTuple):
    """Records of one owner and type, packed.

    ``signatures`` has the RRSIG records that cover it, packed, with its TTL (RFC 4034 3). They are sent with it if the
    query has DO.
    """

    owner: Labels
    rdtype: int
    records: bytes
    signatures: bytes = b""

    @property
    def ttl(self) -> int:
        return ttl_of(self.records)

    @property
    def rdatas(self) -> tuple[bytes, ...]:
        return tuple(rdatas_of(self.records))

    @property
    def hosts(self) -> tuple[Folded, ...]:
        """The folded names of the hosts whose addresses are additional data."""
        offset = _HOST_OFFSET.get(self.rdtype)
        return () if offset is None else tuple(fold(from_wire(rdata, offset)) for rdata in self.rdatas)

    def at(self, owner: Labels) -> RRset:
        """Return the same records with another owner, as a wildcard does (RFC 4592 3.3)."""
        return self._replace(owner=owner)

    def with_ttl(self, ttl: int) -> RRset:
        """Return the same records and signatures with another TTL."""
        return self._replace(records=_with_ttl(self.records, ttl), signatures=_with_ttl(self.signatures, ttl))


Node = Mapping[int, RRset]
"""The RRsets of one name, by type."""


def rdata_name(rrset: RRset) -> Labels:
    """Return the name that is the rdata of a CNAME or DNAME."""
    return from_wire(rrset.records, RECORD.size)


def canonical_rdata(rdtype: int, wire: bytes) -> bytes:
    """Return rdata in canonical form, with names in lower case (RFC 4034 6.2)."""
    if wire == wire.lower():
        return wire
    start, count = _LOWERED.get(rdtype, (0, 0))
    if rdtype == NAPTR:
        start, count = 4, 1
        for _ in range(3):  # flags, service and regexp
            start += 1 + wire[start]
    elif rdtype == _A6 and wire[0]:  # RFC 2874 3.1: the length of the prefix, the rest of the address, a name
        start, count = 1 + (128 - wire[0] + 7) // 8, 1
    end = start
    for _ in range(count):
        end = read_wire(wire, end)[1]
    return wire[:start] + wire[start:end].lower() + wire[end:]


def bitmap(types: Iterable[int]) -> bytes:
    """Make the type bitmap of an NSEC record (RFC 4034 4.1.2)."""
    windows: dict[int, bytearray] = {}
    for rdtype in types:
        window = windows.setdefault(rdtype >> 8, bytearray(32))
        window[(rdtype & 0xFF) >> 3] |= 0x80 >> (rdtype & 7)
    parts = ((number, bytes(bits).rstrip(b"\0")) for number, bits in sorted(windows.items()))
    return b"".join([bytes((number, len(bits))) + bits for number, bits in parts])


# ---- the packed value of a name


def split_rrsets(packed: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the records of each RRset."""
    at = 0
    while at < len(packed):
        rdtype, _, size = RRSET.unpack_from(packed, at)
        at += RRSET.size
        yield rdtype, packed[at : at + size]
        at += size


def split_records(records: bytes) -> list[bytes]:
    """Split the records of one RRset. Each begins with the pointer to its owner."""
    found, at = [], 0
    while at < len(records):
        end = at + RECORD.size + (records[at + 10] << 8 | records[at + 11])
        found.append(records[at:end])
        at = end
    return found


def rdatas_of(records: bytes) -> list[bytes]:
    return [record[RECORD.size :] for record in split_records(records)]


def ttl_of(records: bytes) -> int:
    """Return the TTL of the records of one RRset, in seconds."""
    return int.from_bytes(records[6:10], "big")


def types_of(packed: bytes) -> list[int]:
    """Return the types of a name, in order."""
    return [rdtype for rdtype, _ in split_rrsets(packed)]


def records_of(packed: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield type, TTL and rdata of each record of a name.

    A signature has the TTL of the RRset that it covers (RFC 4034 3), which may differ from that of its own RRset.
    """
    rrsets = dict(split_rrsets(packed))
    for rdtype, records in rrsets.items():
        for rdata in rdatas_of(records):
            covered = rrsets.get(int.from_bytes(rdata[:2], "big")) if rdtype == RRSIG else None
            yield rdtype, ttl_of(covered or records), rdata


def read_node(owner: Labels, packed: bytes, types: Container[int] | None = None) -> Node:
    """Return the RRsets of a name as objects: those of some types, or all."""
    rrsets = dict(split_rrsets(packed))
    node = {
        rdtype: RRset(owner, rdtype, records) for rdtype, records in rrsets.items() if types is None or rdtype in types
    }
    for record in split_records(rrsets.get(RRSIG, b"")):
        covered = node.get(type_covered(record))
        if covered is not None:
            signature = _with_ttl(record, covered.ttl)
            node[covered.rdtype] = covered._replace(signatures=covered.signatures + signature)
    return node


def type_covered(record: bytes) -> int:
    """Return the type that an RRSIG record covers (RFC 4034 3.1.1)."""
    return record[RECORD.size] << 8 | record[RECORD.size + 1]


def _with_ttl(records: bytes, ttl: int) -> bytes:
    return b"".join([record[:6] + ttl.to_bytes(4, "big") + record[10:] for record in split_records(records)])


def pack_record(rdtype: int, ttl: int, rdata: bytes) -> bytes:
    return RECORD.pack(TO_QUESTION, rdtype, IN, ttl, len(rdata)) + rdata


def pack_records(records: Iterable[bytes]) -> bytes:
    """Pack the records of a name, which may be in any order of types."""
    groups: dict[int, list[bytes]] = {}
    for record in records:
        groups.setdefault(record[2] << 8 | record[3], []).append(record)
    return pack_rrsets({rdtype: b"".join(group) for rdtype, group in groups.items()})


def pack_rrsets(rrsets: Mapping[int, bytes]) -> bytes:
    """Pack the records of each RRset of a name."""
    in_order = sorted(rrsets.items())
    return b"".join([RRSET.pack(rdtype, len(split_records(some)), len(some)) + some for rdtype, some in in_order])
