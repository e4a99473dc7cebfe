"""Zone signing: NSEC, ZONEMD, DNSKEY, CDS and RRSIG records, and the rule for when a zone is signed again.

Pure functions over values. dnspython's private keys (``dns.dnssecalgs``) make the signature over an RRset. The rest
works on packed tables (``zone/rrset.py``), because ``dns.dnssec.sign`` and ``dns.dnssec.sign_zone``

* need a dnspython object for each name, record and RRset, which takes longer,
* renew every signature: a change of one name would be an IXFR of the whole zone,
* list glue among the types of the NSEC at a delegation, and support neither CDS nor ZONEMD.

Signing needs the package cryptography (``pip install 'maptr[dnssec]'``).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from maptr.dnssec.expiry import Signatures, signature_state, unwrap
from maptr.dnssec.keys import KeySet, ZoneKey, ds_rdata
from maptr.dnssec.policy import Children, SigningPolicy
from maptr.errors import SigningError
from maptr.protocol.names import Labels, to_wire
from maptr.protocol.numbers import CDNSKEY, CDS, DNAME, DNSKEY, DS, NS, NSEC, RRSIG, SOA, ZONEMD
from maptr.protocol.serial import choose, is_newer
from maptr.zone import rrset
from maptr.zone.diff import ZoneDiff, stripped
from maptr.zone.snapshot import PackedNodes, ZoneView
from maptr.zone.zonemd import SHA384, SIMPLE, canonical_rrset, zone_digest

SIGNATURE_SIZE = 64  # bytes, for both algorithms (RFC 6605 4, RFC 8080 4)
PROGRESS_STEP = 100  # names between two progress reports

Progress = Callable[[int, int], None]
"""A callback that gets the number of names signed so far and the number of all names."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """The parameters for signing a zone at the time ``now`` (Unix time), by ``maptr zone sign`` or by the server.

    A new version has the serial of the unsigned zone if that is newer than the old version's, otherwise the next serial
    in the style ("increment", "date", "unix"). Signatures that last long enough are kept, unless ``force`` is set.
    ``last`` is the last serial known to be published, in case the old version is older. ``others`` returns the
    secondaries' serials, which a new serial passes.
    """

    keys: KeySet
    policy: SigningPolicy
    now: float
    style: str = "increment"
    force: bool = False
    last: int | None = None
    others: Callable[[], Iterable[int]] = tuple

    def renew(self, zone: ZoneView, old: ZoneView | None, progress: Progress = lambda done, total: None) -> ZoneView:
        """Return the signed zone, or ``old``, the version signed before, if nothing has to change."""
        if old is not None and self.is_good(old, zone):
            return old
        return self.sign(zone, old, progress)

    def is_good(self, old: ZoneView, zone: ZoneView) -> bool:
        """Return whether ``old`` has the same records and keys, signatures that are not due, and no older serial.

        Signatures are not verified. With ``force`` the result is always False.
        """
        return (
            not self.force
            and not is_newer(zone.serial, old.serial)
            and is_current(old, zone, self.keys, self.policy)
            and signature_state(old, self.now, expiring=self.policy.refresh).state is Signatures.OK
        )

    def sign(self, zone: ZoneView, old: ZoneView | None, progress: Progress = lambda done, total: None) -> ZoneView:
        """Return the signed zone, even if no signature is due. The same arguments give the same zone.

        Signatures of ``old`` by the same keys over the same records are kept if they last long enough, so that an IXFR
        to secondaries has only the changes.
        """
        policy, now = self.policy, int(self.now)
        last = self.last if old is None or (self.last is not None and is_newer(self.last, old.serial)) else old.serial
        serial = choose(zone.serial, last, self.style, self.now, self.others())
        bare = stripped(zone, serial)
        table = dict(bare.nodes.table)
        owners = _owners(bare)
        apex = owners[0]
        key_ttl = bare.soa.ttl if policy.dnskey_ttl is None else policy.dnskey_ttl
        for rdtype, rdatas in apex_records(zone.origin, self.keys, policy.cds).items():
            apex.rrsets[rdtype] = _records(rdtype, key_ttl, rdatas)
        signer = _Signer(self.keys, apex.name, policy, now, None if self.force else old)
        bitmap_of = functools.cache(rrset.bitmap)  # most names have the same types
        for count, owner in enumerate(owners):
            to_come = (ZONEMD,) if policy.zonemd and owner is apex else ()  # the digest is computed last
            types = frozenset((*owner.rrsets, RRSIG, NSEC, *to_come))
            rdata = owners[(count + 1) % len(owners)].name + bitmap_of(types)
            owner.rrsets[NSEC] = _records(NSEC, bare.negative_soa.ttl, [rdata])  # RFC 9077 3
            owner.sign(signer, owner.rrsets, signer.known(owner))
            table[owner.name] = owner.packed()
            if count % PROGRESS_STEP == 0:
                progress(count, len(owners))
        progress(len(owners), len(owners))
        if policy.zonemd:
            signed = bare._replace(nodes=PackedNodes(table, bare.nodes.spelled, ()))
            rdata = struct.pack("!IBB", serial, SIMPLE, SHA384) + zone_digest(signed, SHA384)
            apex.rrsets[ZONEMD] = _records(ZONEMD, bare.soa.ttl, [rdata])
            apex.sign(signer, (ZONEMD,), {})
            table[apex.name] = apex.packed()
        return ZoneView.of(zone.origin, PackedNodes(table, bare.nodes.spelled))


def is_current(old: ZoneView, zone: ZoneView, keys: KeySet, policy: SigningPolicy) -> bool:
    """Return whether ``old`` is this zone, signed by these keys. Ignores the serial and signature times."""
    if old.origin != zone.origin or ZoneDiff.between(stripped(old, zone.serial), stripped(zone)):
        return False
    ttl = zone.soa.ttl if policy.dnskey_ttl is None else policy.dnskey_ttl
    apex = old.nodes[old.origin]
    wanted = {rdtype: (ttl, {*rdatas}) for rdtype, rdatas in apex_records(zone.origin, keys, policy.cds).items()}
    found = {rdtype: (apex[rdtype].ttl, {*apex[rdtype].rdatas}) for rdtype in (DNSKEY, CDS, CDNSKEY) if rdtype in apex}
    heads = map(rrset.RRSIG_HEAD.unpack_from, apex[RRSIG].rdatas if RRSIG in apex else ())
    signed = {(rdtype, algorithm, tag) for rdtype, algorithm, *_, tag in heads if rdtype in (SOA, DNSKEY)}
    signers = {SOA: keys.zone_signers, DNSKEY: keys.dnskey_signers}
    return (
        found == wanted
        and (ZONEMD in apex) is policy.zonemd
        and signed == {(rdtype, key.algorithm.number, key.tag) for rdtype in signers for key in signers[rdtype]}
    )


def due(view: ZoneView, policy: SigningPolicy, now: float) -> int:
    """Return the Unix time at which signatures must be renewed. Raises SigningError for a zone without signatures."""
    found = signature_state(view, now)
    if found.expires is None:
        raise SigningError("no signatures")
    return found.expires - policy.refresh


def apex_records(origin: Labels, keys: KeySet, cds: Children) -> dict[int, list[bytes]]:
    """Return the rdatas of DNSKEY, CDS and CDNSKEY for these keys."""
    found = {DNSKEY: [key.rdata for key in keys.keys]}
    if cds is Children.PUBLISH:
        found[CDS] = [ds_rdata(origin, key) for key in keys.entries]
        found[CDNSKEY] = [key.rdata for key in keys.entries]
    elif cds is Children.DELETE:
        found[CDS], found[CDNSKEY] = [rrset.DELETE_CDS], [rrset.DELETE_CDNSKEY]
    return found


@dataclass(frozen=True, slots=True)
class _Owner:
    """An authoritative name, with the packed records of its RRsets.

    The RRsets in ``glue`` are not authoritative. The NS RRset of a delegation is not signed (RFC 4035 2.2).
    """

    name: bytes
    labels: int  # of an RRSIG, which does not count the root and a wildcard (RFC 4034 3.1.3)
    rrsets: dict[int, bytes]
    glue: Mapping[int, bytes]
    is_cut: bool
    signatures: dict[int, list[bytes]] = field(default_factory=dict)

    def sign(self, signer: _Signer, types: Iterable[int], known: _Known) -> None:
        for rdtype in types:
            if not (self.is_cut and rdtype == NS):
                self.signatures[rdtype] = signer.signatures(self, rdtype, known)

    def packed(self) -> bytes:
        """Return all RRsets by type. Signatures are in order of the type covered, with the lowest TTL of all."""
        ttl = min(rrset.ttl_of(self.rrsets[rdtype]) for rdtype in self.signatures)
        rdatas = [rdata for _, made in sorted(self.signatures.items()) for rdata in made]
        rrsets = {**self.rrsets, **self.glue, RRSIG: _records(RRSIG, ttl, rdatas)}
        return rrset.pack_rrsets(rrsets)


def _owners(zone: ZoneView) -> list[_Owner]:
    """Return the names that get an NSEC record, in canonical order: all but those below a delegation or a DNAME."""
    owners: list[_Owner] = []
    apex = to_wire(zone.origin)
    top: Labels | None = None
    for labels, name in zone.nodes.in_order():
        packed = zone.nodes.table[name]
        if not packed or (top is not None and labels[: len(top)] == top):
            continue
        rrsets = dict(rrset.split_rrsets(packed))
        is_cut = name != apex and NS in rrsets
        glue = {rdtype: rrsets.pop(rdtype) for rdtype in list(rrsets) if is_cut and rdtype not in (NS, DS)}
        owners.append(_Owner(name, len(labels) - (labels[-1:] == (b"*",)), rrsets, glue, is_cut))
        top = labels if is_cut or DNAME in rrsets else None
    return owners


def _records(rdtype: int, ttl: int, rdatas: Iterable[bytes]) -> bytes:
    return b"".join([rrset.pack_record(rdtype, ttl, rdata) for rdata in rdatas])


# ---- signatures

_Known = Mapping[tuple[int, int, int], bytes]
"""The signatures of one name that can be kept, by type covered, algorithm and key tag."""


class _Signer:
    """Signs the RRsets of a zone, or keeps signatures of ``old``, an earlier version, without verifying them."""

    def __init__(self, keys: KeySet, apex: bytes, policy: SigningPolicy, now: int, old: ZoneView | None) -> None:
        self._apex = apex
        self._policy, self._now = policy, now
        # The times have 32 bits, which wrap around in 2106 (RFC 4034 3.1.5).
        self._times = (now + policy.lifetime) % 2**32, (now - policy.inception) % 2**32
        self._dnskey_signers = [(key, key.tag) for key in keys.dnskey_signers]
        self._zone_signers = [(key, key.tag) for key in keys.zone_signers]
        self._old = None if old is None else old.nodes
        dnskey = None if old is None else old.nodes[old.origin].get(DNSKEY)
        # Two keys can have the same tag (RFC 4034 appendix B), so the DNSKEY records are compared.
        same = [key for key in keys.keys if dnskey and key.rdata in dnskey.rdatas]
        self._same_keys = {(key.algorithm.number, key.tag) for key in same}

    def signatures(self, owner: _Owner, rdtype: int, known: _Known) -> list[bytes]:
        """Return the RRSIG rdatas over an RRset, taken from ``known`` where possible."""
        records = owner.rrsets[rdtype]
        keys: list[tuple[ZoneKey, int]]
        keys = self._dnskey_signers if rdtype in (DNSKEY, CDS, CDNSKEY) else self._zone_signers
        made = []
        data = b""
        for key, tag in keys:
            rdata = known.get((rdtype, key.algorithm.number, tag))
            if rdata is None:
                data = data or canonical_rrset(owner.name, rdtype, records)
                head = rdtype, key.algorithm.number, owner.labels, rrset.ttl_of(records), *self._times, tag
                rdata = rrset.RRSIG_HEAD.pack(*head) + self._apex
                # Deterministic signatures (RFC 6979) do not depend on the quality of random numbers.
                rdata += key.private.sign(rdata + data, deterministic=True)
            made.append(rdata)
        return made

    def known(self, owner: _Owner) -> _Known:
        """Return the old signatures that cover exactly a name's records and last long enough."""
        rrsets = owner.rrsets
        before = {} if self._old is None else dict(rrset.split_rrsets(self._old.table.get(owner.name) or b""))
        found: dict[tuple[int, int, int], bytes] = {}
        for rdata in rrset.rdatas_of(before.get(RRSIG, b"")):
            covered, algorithm, labels, ttl, *times, tag = rrset.RRSIG_HEAD.unpack_from(rdata)
            if (
                (algorithm, tag) in self._same_keys
                and rdata[rrset.RRSIG_HEAD.size : -SIGNATURE_SIZE] == self._apex
                and covered in rrsets
                and labels == owner.labels
                and ttl == rrset.ttl_of(rrsets[covered])
                and self._lasts(*times)
                and covered in before
                and sorted(rrset.split_records(before[covered])) == sorted(rrset.split_records(rrsets[covered]))
            ):
                found[covered, algorithm, tag] = rdata
        return found

    def _lasts(self, expiration: int, inception: int) -> bool:
        """Return whether a signature is valid now and lasts long enough to be kept."""
        left = unwrap(expiration, self._now) - self._now
        return unwrap(inception, self._now) <= self._now and self._policy.keep < left <= self._policy.lifetime
