"""ZONEMD: the digest of a whole zone (RFC 8976), made from packed tables.

``dns.zone.Zone.compute_digest`` gives the same digest, but needs a zone of dnspython objects: ten times the time and
memory of the packed table.

A record in a packed table is in canonical form (RFC 4034 6) except for its first two bytes, which stand for the owner,
and for capital letters in its names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from maptr.errors import ZoneError
from maptr.protocol.names import to_wire
from maptr.protocol.numbers import RRSIG, ZONEMD
from maptr.zone.rrset import RECORD, canonical_rdata, split_records, split_rrsets
from maptr.zone.snapshot import ZoneView

SIMPLE = 1  # the only scheme: all records of the zone (RFC 8976 5.2)
SHA384 = 1  # RFC 8976 5.3
HASHES = {SHA384: hashlib.sha384, 2: hashlib.sha512}


def check_digest(zone: ZoneView) -> None:
    """Verify the ZONEMD of a zone that has one (RFC 8976 4). Raises ZoneError.

    A ZONEMD with an unknown scheme or hash is ignored.
    """
    if ZONEMD not in zone.nodes[zone.origin]:
        return
    rdatas = zone.nodes[zone.origin][ZONEMD].rdatas
    found = [(int.from_bytes(rdata[:4], "big"), rdata[4], rdata[5], rdata[6:]) for rdata in rdatas]
    known = [(serial, kind, digest) for serial, scheme, kind, digest in found if scheme == SIMPLE and kind in HASHES]
    if not known:
        return
    current = [(kind, digest) for serial, kind, digest in known if serial == zone.serial]
    if not current:
        raise ZoneError(f"its ZONEMD is of serial {known[0][0]}, the zone's is {zone.serial}")
    if not any(zone_digest(zone, kind) == digest for kind, digest in current):
        raise ZoneError("its ZONEMD does not verify: records were lost, added or changed after it was made")


def zone_digest(zone: ZoneView, kind: int = SHA384) -> bytes:
    """The digest of a zone by a hash of ``HASHES`` (RFC 8976 3.3)."""
    made = HASHES[kind]()
    apex = to_wire(zone.origin)
    for _, name in zone.nodes.in_order():
        for part in _included(name, zone.nodes.read(name), is_apex=name == apex):
            made.update(part)
    return made.digest()


def _included(name: bytes, packed: bytes, *, is_apex: bool) -> Iterator[bytes]:
    """The RRsets of one name by type, without the ZONEMD of the apex and its signatures."""
    rrsets = list(split_rrsets(packed))
    for rdtype, records in rrsets:
        if rdtype == RRSIG:
            ttls = {covered.to_bytes(2, "big"): records[6:10] for covered, records in rrsets}
            yield _signatures(name, split_records(records), ttls, is_apex=is_apex)
        elif not (is_apex and rdtype == ZONEMD):
            yield canonical_rrset(name, rdtype, records)


def _signatures(owner: bytes, records: Iterable[bytes], ttls: dict[bytes, bytes], *, is_apex: bool) -> bytes:
    """Signatures with the TTL of what they cover (RFC 4034 3), as they are sent."""
    skipped = ZONEMD.to_bytes(2, "big") if is_apex else b""
    size = RECORD.size
    forms = sorted(
        (canonical_rdata(RRSIG, one[size:]), one[2:6] + ttls.get(one[size : size + 2], one[6:10]))
        for one in records
        if one[size : size + 2] != skipped
    )
    return _join(owner, forms)


def canonical_rrset(owner: bytes, rdtype: int, records: bytes) -> bytes:
    """The records of a packed RRset in canonical form and order (RFC 4034 6.3)."""
    size = RECORD.size
    if len(records) == size + int.from_bytes(records[size - 2 : size], "big"):
        return owner + records[2:size] + canonical_rdata(rdtype, records[size:])
    return _join(
        owner, sorted((canonical_rdata(rdtype, one[size:]), one[2 : size - 2]) for one in split_records(records))
    )


def _join(owner: bytes, forms: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Records from canonical rdatas, each with its type, class and TTL."""
    return b"".join([owner + head + len(form).to_bytes(2, "big") + form for form, head in forms])
