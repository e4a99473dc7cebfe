"""ZONEMD: the digest of a whole zone (RFC 8976), computed from its packed table.

``dns.zone.Zone.compute_digest`` needs a zone of dnspython objects, which take more time and memory.
"""

from __future__ import annotations

import hashlib
import struct

from maptr.errors import ZoneError
from maptr.protocol.names import to_wire
from maptr.protocol.numbers import IN, RRSIG, ZONEMD
from maptr.zone.rrset import canonical_rdata, rdatas_of, records_of
from maptr.zone.snapshot import ZoneView

SIMPLE = 1  # the only scheme, a digest of all records (RFC 8976 5.2)
SHA384 = 1  # RFC 8976 5.3
HASHES = {SHA384: hashlib.sha384, 2: hashlib.sha512}
_HEAD = struct.Struct("!HHIH")  # type, class, TTL and length of the rdata (RFC 1035 4.1.3)
_ZONEMD_WIRE = ZONEMD.to_bytes(2, "big")


def check_digest(zone: ZoneView) -> None:
    """Verify the ZONEMD of a zone that has one (RFC 8976 4). Raises ZoneError.

    A ZONEMD with an unknown scheme or hash is ignored. Two for one hash do not verify: each is unique (RFC 8976 2).
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
        raise ZoneError(f"its ZONEMD is for serial {known[0][0]}, but the zone has serial {zone.serial}")
    kinds = [kind for kind, _ in current]
    if not any(kinds.count(kind) == 1 and zone_digest(zone, kind) == digest for kind, digest in current):
        raise ZoneError("its ZONEMD does not verify: records were lost, added or changed after it was made")


def zone_digest(zone: ZoneView, kind: int = SHA384) -> bytes:
    """Digest a zone by a hash of ``HASHES``, without its ZONEMD records and their signatures (RFC 8976 3.3)."""
    made = HASHES[kind]()
    apex = to_wire(zone.origin)
    for _, name in zone.nodes.in_order():
        forms = sorted(
            (rdtype, canonical_rdata(rdtype, rdata), ttl)
            for rdtype, ttl, rdata in records_of(zone.nodes.table[name])
            if not (name == apex and (rdtype == ZONEMD or (rdtype == RRSIG and rdata[:2] == _ZONEMD_WIRE)))
        )
        made.update(b"".join([name + _HEAD.pack(rdtype, IN, ttl, len(form)) + form for rdtype, form, ttl in forms]))
    return made.digest()


def canonical_rrset(owner: bytes, rdtype: int, records: bytes) -> bytes:
    """Return the records of a packed RRset in canonical form and order (RFC 4034 6.3)."""
    head = owner + records[2:10]  # type, class and TTL
    forms = sorted([canonical_rdata(rdtype, rdata) for rdata in rdatas_of(records)])
    return b"".join([head + len(form).to_bytes(2, "big") + form for form in forms])
