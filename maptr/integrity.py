"""What any DNS server would find wrong with a zone that reads well: whole zones by their view, no Maptr in it.

SOA, apex NS and CNAME beside other data are errors of reading already; Maptr's own findings are in ``zonecheck``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from maptr import names
from maptr.errors import ZoneError
from maptr.names import Labels
from maptr.packed import special_nodes
from maptr.protocol import AAAA, CNAME, DNAME, NS, A
from maptr.snapshot import ZoneView

if TYPE_CHECKING:
    import dns.zone

    from maptr.finding import Finding

ZONEMD_SIMPLE = 1  # RFC 8976 5.2
ZONEMD_HASHES = (1, 2)  # SHA-384 and SHA-512 (RFC 8976 5.3)


def check(zone: ZoneView) -> Iterator[Finding]:
    """Errors, each of which kzonecheck, nsd-checkzone or named-checkzone calls an error too."""
    special = list(special_nodes(zone.nodes))
    if any(DNAME in node for _, node in special):
        for owner in zone.nodes:
            if above := _below_dname(zone, owner):
                reason = f"stands below the DNAME at {names.to_text(above)} (RFC 6672 section 2.4)"
                yield _error("below-dname", names.to_text(owner), reason)
    for owner, node in special:
        shown = names.to_text(owner)
        for host in node[NS].hosts if NS in node else ():
            if not names.is_below(host, zone.origin):
                continue
            cut = _cut_above(zone, host)
            if cut and cut != owner:
                continue  # the address is for the zone below that cut to give
            target = zone.nodes.get(host) or _wildcard(zone, host)
            server = names.to_text(host)
            if CNAME in target:
                reason = f"its server {server} is an alias (RFC 2181 section 10.3)"
                yield _error("server-alias", shown, reason)
            elif not {A, AAAA} & target.keys():
                reason = f"its server {server} is in the zone and has no address"
                yield _error("no-address", shown, reason)


def _error(code: str, owner: str, reason: str) -> Finding:
    from maptr.finding import Finding, Severity  # here, for a good zone has none

    return Finding(Severity.ERROR, code, owner, reason)


def _below_dname(zone: ZoneView, owner: Labels) -> Labels:
    above = (owner[start:] for start in range(1, len(owner) - len(zone.origin) + 1))
    return next((name for name in above if DNAME in zone.nodes.get(name, {})), ())


def _cut_above(zone: ZoneView, name: Labels) -> Labels:
    """The topmost delegation at or above a name, empty where there is none."""
    above = (name[start:] for start in range(len(name) - len(zone.origin) - 1, -1, -1))
    return next((cut for cut in above if cut in zone.cuts), ())


def _wildcard(zone: ZoneView, name: Labels) -> dict[int, object]:
    """What a wildcard gives a name that does not exist (RFC 4592 3.3): NSD and Knot take addresses from there."""
    if name in zone.nodes:
        return {}
    encloser = next(name[start:] for start in range(1, len(name) + 1) if name[start:] in zone.nodes)
    return dict(zone.nodes.get((b"*", *encloser), {}))


def check_digest(zone: dns.zone.Zone) -> None:
    """Verify the ZONEMD of a zone that has one (RFC 8976 section 4); ZoneError if it does not hold.

    One by schemes or hashes that nobody here knows says nothing, and passes.
    """
    import dns.rdatatype
    import dns.zone

    origin = zone.origin
    assert origin is not None  # noqa: S101 - whoever reads a zone names it
    digests = zone.get_rdataset(origin, dns.rdatatype.ZONEMD) or ()
    known = [rd for rd in digests if rd.scheme == ZONEMD_SIMPLE and rd.hash_algorithm in ZONEMD_HASHES]
    if not known:
        return
    serial = zone.get_soa().serial
    if all(rd.serial != serial for rd in known):
        raise ZoneError(f"its ZONEMD is of serial {known[0].serial}, the zone's is {serial}")
    try:
        zone.verify_digest()
    except dns.zone.DigestVerificationFailure:
        raise ZoneError("its ZONEMD does not verify: records were lost, added or changed after it was made") from None
