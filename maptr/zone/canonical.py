"""Canonical form (RFC 4034 6): the octets that signatures and digests of zones are made over, from packed tables.

A record in a packed table is the canonical one but for its first two octets, which stand for the owner. So one record
whose names are in lower case, as nearly all are, is its owner and the rest as it stands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from maptr.protocol.names import Labels, from_wire, to_wire
from maptr.protocol.numbers import NAPTR, RRSIG, ZONEMD
from maptr.zone.denial import canonical
from maptr.zone.packed import PackedNodes
from maptr.zone.packing import RECORD, split_records, split_rrsets
from maptr.zone.snapshot import RDATA_NAMES, ZoneView

ZONEMD_SIMPLE = 1  # RFC 8976 5.2
ZONEMD_HASHES = {1: hashlib.sha384, 2: hashlib.sha512}  # RFC 8976 5.3

# Octets before the names in rdata that count in lower case (RFC 4034 6.2 without NSEC, RFC 6840 5.1), and how many
# names: beside the types whose names may be compressed RP, AFSDB, RT, SIG, PX, SRV, KX, DNAME and RRSIG.
_NAMES = {**RDATA_NAMES, 17: (0, 2), 18: (2, 1), 21: (2, 1), 24: (18, 1), 26: (2, 2)}
_NAMES |= {33: (6, 1), 36: (2, 1), 39: (0, 1), 46: (18, 1)}


def rdata(rdtype: int, octets: bytes) -> bytes:
    """Uncompressed rdata in canonical form: the names in it in lower case."""
    if rdtype == NAPTR:
        start, count = 4, 1
        for _ in range(3):
            start += 1 + octets[start]
    elif rdtype in _NAMES:
        start, count = _NAMES[rdtype]
    else:
        return octets
    names = octets[start:]
    lower = names.lower()  # no length of a label is a letter
    if names == lower:
        return octets
    end = 0
    for _ in range(count):
        while names[end]:
            end += 1 + names[end]
        end += 1
    return octets[:start] + lower[:end] + names[end:]


def rrset(owner: bytes, rdtype: int, records: bytes) -> bytes:
    """The records of an RRset as a packed table has them, in canonical form and order (RFC 4034 6.3)."""
    size = RECORD.size
    if len(records) == size + int.from_bytes(records[size - 2 : size], "big"):
        return owner + records[2:size] + rdata(rdtype, records[size:])
    forms = sorted((rdata(rdtype, one[size:]), one[2 : size - 2]) for one in split_records(records))
    return b"".join([owner + head + len(form).to_bytes(2, "big") + form for form, head in forms])


def in_order(names: Iterable[bytes]) -> list[tuple[Labels, bytes]]:
    """Folded names as wire in canonical order (RFC 4034 6.1), each with its labels from the root on."""
    return sorted((canonical(from_wire(name)), name) for name in names)


def zone_digest(zone: ZoneView, scheme_hash: int = 1) -> bytes:
    """The digest of a zone that its ZONEMD is to have, by a hash of ``ZONEMD_HASHES`` (RFC 8976 3.3).

    Signatures count with the TTL of what they cover (RFC 4034 3), as they are sent.
    """
    made = ZONEMD_HASHES[scheme_hash]()
    nodes = PackedNodes.pack(zone.nodes)
    apex = to_wire(zone.origin)
    for _, name in in_order(nodes.table):
        for part in _counted(name, nodes.read(name), apex=name == apex):
            made.update(part)
    return made.digest()


def _counted(name: bytes, packed: bytes, *, apex: bool) -> Iterator[bytes]:
    """What of one name is in the digest, by type: not the ZONEMD of the zone, nor its signatures."""
    rrsets = list(split_rrsets(packed))
    for rdtype, records in rrsets:
        if rdtype == RRSIG:
            ttls = {covered.to_bytes(2, "big"): octets[6:10] for covered, octets in rrsets}
            yield _signatures(name, split_records(records), ttls, apex=apex)
        elif not (apex and rdtype == ZONEMD):
            yield rrset(name, rdtype, records)


def _signatures(owner: bytes, records: Iterable[bytes], ttls: dict[bytes, bytes], *, apex: bool) -> bytes:
    skipped = ZONEMD.to_bytes(2, "big") if apex else b""
    size = RECORD.size
    forms = sorted(
        (rdata(RRSIG, one[size:]), one[2:6] + ttls.get(one[size : size + 2], one[6:10]))
        for one in records
        if one[size : size + 2] != skipped
    )
    return b"".join([owner + head + len(form).to_bytes(2, "big") + form for form, head in forms])
