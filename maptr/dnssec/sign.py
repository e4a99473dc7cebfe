"""Signing a zone: NSEC, ZONEMD, CDS and the signatures, as functions over values.

Works on packed tables (``packed.py``), where most of the work is to put octets together. Which key signs what is said
in ``zonekeys.py``, the signatures are made in ``rrsigs.py``; how long they last is ``signatures.py``'s business, proofs
in answers are ``denial.py``'s. Signing needs the package cryptography (``pip install 'maptr[dnssec]'``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from maptr.dnssec.keys import KeySet, ds_rdata
from maptr.dnssec.policy import Children, Policy
from maptr.dnssec.rrsigs import Earlier, Known, Signer
from maptr.protocol.names import Labels, to_wire
from maptr.protocol.numbers import CDNSKEY, CDS, DNAME, DNSKEY, DS, IN, NS, NSEC, RRSIG, ZONEMD
from maptr.zone.diff import stripped
from maptr.zone.packed import RECORD, TO_QUESTION, PackedNodes, split_rrsets, with_head
from maptr.zone.rrset import DELETE_CDNSKEY, DELETE_CDS, bitmap
from maptr.zone.snapshot import ZoneView
from maptr.zone.zonemd import SHA384, SIMPLE, zone_digest

PROGRESS_STEP = 100  # names

Progress = Callable[[int, int], None]
"""Told now and then how many names are signed, of how many."""


def sign_zone(
    zone: ZoneView,
    keys: KeySet,
    *,
    now: int,
    serial: int,
    policy: Policy | None = None,
    old: ZoneView | None = None,
    progress: Progress = lambda done, total: None,
) -> ZoneView:
    """The zone, signed, with the serial. The same arguments give the same zone.

    ``now`` is Unix time. Of ``old``, an earlier version that we signed, signatures are taken over that cover the same
    records by the same keys and last long enough, so that secondaries get by IXFR what changed and no more.
    """
    policy = policy or Policy()
    bare = stripped(zone, serial)
    nodes = bare.nodes
    table = dict(nodes.pack_all())
    owners = _authoritative(bare)
    apex = owners[0]
    key_ttl = bare.soa.ttl if policy.dnskey_ttl is None else policy.dnskey_ttl
    for rdtype, rdatas in apex_records(zone.origin, keys, policy.cds).items():
        apex.rrsets[rdtype] = _records(rdtype, key_ttl, rdatas)
    # What is made at the end is among the types of the apex from the beginning.
    to_come = (ZONEMD,) if policy.zonemd else ()
    signer = Signer(keys, apex.name, policy, now)
    earlier = Earlier.of(old, keys, now, policy)
    bitmaps: dict[frozenset[int], bytes] = {}  # few, for most names have the same types
    for count, owner in enumerate(owners):
        types = frozenset((*owner.rrsets, RRSIG, NSEC, *(to_come if owner is apex else ())))
        if types not in bitmaps:
            bitmaps[types] = bitmap(types)
        rdata = owners[(count + 1) % len(owners)].name + bitmaps[types]
        owner.rrsets[NSEC] = _records(NSEC, bare.negative_soa.ttl, [rdata])  # RFC 9077 3
        known = {} if earlier is None else earlier.known(owner.name, owner.rrsets)
        owner.sign(signer, owner.rrsets, known)
        table[owner.name] = owner.packed()
        if count % PROGRESS_STEP == 0:
            progress(count, len(owners))
    progress(len(owners), len(owners))
    if policy.zonemd:
        signed = bare._replace(nodes=PackedNodes(table, nodes.spelled, ()))
        rdata = struct.pack("!IBB", serial, SIMPLE, SHA384)
        rdata += zone_digest(signed, SHA384)
        apex.rrsets[ZONEMD] = _records(ZONEMD, bare.soa.ttl, [rdata])
        apex.sign(signer, (ZONEMD,), {})
        table[apex.name] = apex.packed()
    return ZoneView.of(zone.origin, PackedNodes(table, nodes.spelled))


def apex_records(origin: Labels, keys: KeySet, cds: Children) -> dict[int, list[bytes]]:
    """The rdatas of DNSKEY, CDS and CDNSKEY for these keys."""
    found = {DNSKEY: [key.rdata for key in keys.keys]}
    if cds is Children.PUBLISH:
        found[CDS] = [ds_rdata(origin, key) for key in keys.entries]
        found[CDNSKEY] = [key.rdata for key in keys.entries]
    elif cds is Children.DELETE:
        found[CDS], found[CDNSKEY] = [DELETE_CDS], [DELETE_CDNSKEY]
    return found


@dataclass(frozen=True, slots=True)
class _Owner:
    """A name that proves and is proved, with the records of its RRsets as a packed table has them.

    Of what is in ``glue`` it has no authority, and NS at a cut is not signed (RFC 4035 2.2).
    """

    name: bytes
    rrsets: dict[int, bytes]
    glue: Mapping[int, bytes]
    is_cut: bool
    signatures: dict[int, list[bytes]] = field(default_factory=dict)

    def sign(self, signer: Signer, types: Iterable[int], known: Known) -> None:
        for rdtype in types:
            if not (self.is_cut and rdtype == NS):
                self.signatures[rdtype] = signer.sign(self.name, rdtype, self.rrsets[rdtype], known)

    def packed(self) -> bytes:
        """Types in order, and the signatures in the order of what they cover; all have the least TTL of that."""
        ttl = min([int.from_bytes(self.rrsets[rdtype][6:10], "big") for rdtype in self.signatures])
        rdatas = [rdata for _, made in sorted(self.signatures.items()) for rdata in made]
        rrsets = {**self.rrsets, **self.glue, RRSIG: _records(RRSIG, ttl, rdatas)}
        return b"".join([with_head(rdtype, rrsets[rdtype]) for rdtype in sorted(rrsets)])


def _authoritative(zone: ZoneView) -> list[_Owner]:
    """The names that get NSEC, in canonical order, the apex first: not what is below a cut or a DNAME."""
    owners: list[_Owner] = []
    table, apex = zone.nodes.table, to_wire(zone.origin)
    top: Labels | None = None
    for labels, name in zone.nodes.in_order():
        if not table[name] or (top is not None and labels[: len(top)] == top):
            continue
        rrsets = dict(split_rrsets(table[name]))
        is_cut = name != apex and NS in rrsets
        # dnspython would count glue at a cut among the types of its NSEC.
        glue = {rdtype: rrsets.pop(rdtype) for rdtype in list(rrsets) if is_cut and rdtype not in (NS, DS)}
        owners.append(_Owner(name, rrsets, glue, is_cut))
        top = labels if is_cut or DNAME in rrsets else None
    return owners


def _records(rdtype: int, ttl: int, rdatas: Iterable[bytes]) -> bytes:
    """Records as a packed table has them."""
    return b"".join([RECORD.pack(TO_QUESTION, rdtype, IN, ttl, len(rdata)) + rdata for rdata in rdatas])
