"""When a zone is signed again, and under which serial: one rule for ``maptr zone sign`` and for the server.

How it is signed is in ``dnssec.py``, for how long in ``signing.py``. Reads no file and no clock.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.zone

from maptr.difference import records, soa_of
from maptr.dnssec import Policy, apex_records, sign_zone
from maptr.errors import SigningError
from maptr.names import Labels
from maptr.protocol import DNSKEY, NSEC, RRSIG, SOA, ZONEMD
from maptr.serial import following_serial, is_newer
from maptr.signatures import Signatures, signature_state
from maptr.signing import MADE
from maptr.snapshot import Node, ZoneView, view_zone
from maptr.zonediff import ZoneDiff, stripped
from maptr.zonekeys import Key, check_keys, dnskey_signers, zone_signers


def renew(
    zone: dns.zone.Zone,
    old: dns.zone.Zone | None,
    keys: Sequence[Key],
    *,
    now: float,
    policy: Policy,
    style: str = "increment",
    force: bool = False,
) -> dns.zone.Zone:
    """The zone, signed; ``old``, the version signed before, where that has the same records by the same keys, its
    signatures are not due, and the zone's serial is not beyond its own.

    The serial is the zone's where that is beyond the old one's, else the next of the style ("increment", "date",
    "unix"). Signatures that last long enough are kept; none with ``force``, and then old is never good.
    Raises SigningError for keys that make no chain.
    """
    if old is not None and not force and is_good(view_zone(old), view_zone(zone), keys, now=now, policy=policy):
        return old
    return sign_again(zone, old, keys, now=now, policy=policy, style=style, force=force)


def is_good(old: ZoneView, zone: ZoneView, keys: Sequence[Key], *, now: float, policy: Policy) -> bool:
    """Whether ``renew`` gives ``old``. A look at both, no signature is checked. Raises SigningError as it does."""
    check_keys(keys)
    return (
        not is_newer(zone.serial, old.serial)
        and is_current(old, zone, keys, policy)
        and signature_state(old, now, expiring=policy.refresh).state is Signatures.OK
    )


def is_current(old: ZoneView, zone: ZoneView, keys: Sequence[Key], policy: Policy) -> bool:
    """Whether ``old`` is this zone, but for its serial, signed by these keys. Its times are not looked at."""
    if old.origin != zone.origin or ZoneDiff.between(stripped(old, zone.serial), stripped(zone)):
        return False
    apex = old.nodes[old.origin]
    made = {
        (owner, rdtype): (rrset.ttl, frozenset(rrset.rdatas))
        for owner, node in old.nodes.items()
        for rdtype, rrset in node.items()
        if rdtype in MADE - {RRSIG, NSEC, ZONEMD}
    }
    wanted: dict[tuple[Labels, int], tuple[int, frozenset[bytes]]] = {}
    ttl = zone.soa.ttl if policy.dnskey_ttl is None else policy.dnskey_ttl
    for rdata in apex_records(dns.name.Name((*zone.soa.owner, b"")), keys, policy.cds):
        at = zone.origin, int(rdata.rdtype)
        wanted[at] = ttl, wanted.get(at, (ttl, frozenset[bytes]()))[1] | {rdata.to_wire() or b""}
    if made != wanted or (ZONEMD in apex) is not policy.zonemd:
        return False
    return _signers(apex, SOA) == _named(zone_signers(keys)) and _signers(apex, DNSKEY) == _named(dnskey_signers(keys))


def _signers(node: Node, covered: int) -> set[tuple[int, int]]:
    """The algorithm and key tag of each signature over one type (RFC 4034 3.1)."""
    rdatas = node[RRSIG].rdatas if RRSIG in node else ()
    heads = (struct.unpack_from("!HBBIIIH", rdata) for rdata in rdatas)
    return {(algorithm, tag) for rdtype, algorithm, *_, tag in heads if rdtype == covered}


def _named(keys: Iterable[Key]) -> set[tuple[int, int]]:
    return {(int(key.algorithm.number), key.tag) for key in keys}


def sign_again(
    zone: dns.zone.Zone,
    old: dns.zone.Zone | None,
    keys: Sequence[Key],
    *,
    now: float,
    policy: Policy,
    style: str = "increment",
    force: bool = False,
) -> dns.zone.Zone:
    """``renew``, where ``old`` is known not to be good."""
    check_keys(keys)
    wanted = int(zone.get_soa().serial)
    before = None if old is None else int(old.get_soa().serial)
    if before is None or is_newer(wanted, before):
        serial = wanted
    else:
        serial = following_serial(before, style, now)
    return sign_zone(zone, keys, now=int(now), serial=serial, policy=policy, old=None if force else old)


def due(view: ZoneView, policy: Policy, now: float) -> int:
    """When the zone is to be signed again for its signatures' sake, Unix time. Raises SigningError without any."""
    found = signature_state(view, now)
    if found.expires is None:
        raise SigningError("no signatures")
    return found.expires - policy.refresh


def to_zone(view: ZoneView) -> dns.zone.Zone:
    """A view as dnspython's zone, not relativized, which is what is signed."""
    zone = dns.zone.Zone(dns.name.Name((*view.soa.owner, b"")), relativize=False)
    for record in (soa_of(view), *records(view)):
        rdtype = dns.rdatatype.RdataType.make(record.rdtype)
        rdata = dns.rdata.from_wire(dns.rdataclass.IN, rdtype, record.rdata, 0, len(record.rdata))
        owner = dns.name.Name((*record.owner, b""))
        zone.find_rdataset(owner, rdtype, rdata.covers(), create=True).add(rdata, record.ttl)
    return zone
