"""What any DNS server would find wrong with a zone that reads well: whole zones by their view, no Maptr in it.

SOA, apex NS and CNAME beside other data are errors of reading already; Maptr's own findings are in ``zonecheck``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from maptr.errors import ZoneError
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.protocol.numbers import AAAA, CNAME, DNAME, NS, ZONEMD, A
from maptr.zone.packed import special_nodes
from maptr.zone.snapshot import ZoneView

if TYPE_CHECKING:
    from maptr.zone.finding import Finding


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
            cut = cut_above(zone, host)
            if cut and cut != owner:
                continue  # the address is for the zone below that cut to give
            target = zone.nodes.get(host) or _wildcard(zone, host)
            server = names.to_text(host)
            if CNAME in target:
                reason = f"its server {server} is an alias (RFC 2181 section 10.3)"
                yield _error("server-alias", shown, reason, server)
            elif not {A, AAAA} & target.keys():
                reason = f"its server {server} is in the zone and has no address"
                yield _error("no-address", shown, reason, server)


def _error(code: str, owner: str, reason: str, server: str = "") -> Finding:
    from maptr.zone.finding import Finding, Severity  # here, for a good zone has none

    return Finding(Severity.ERROR, code, owner, reason, server)


def _below_dname(zone: ZoneView, owner: Labels) -> Labels:
    above = (owner[start:] for start in range(1, len(owner) - len(zone.origin) + 1))
    return next((name for name in above if DNAME in zone.nodes.get(name, {})), ())


def cut_above(zone: ZoneView, name: Labels) -> Labels:
    """The topmost delegation at or above a name, empty where there is none."""
    above = (name[start:] for start in range(len(name) - len(zone.origin) - 1, -1, -1))
    return next((cut for cut in above if cut in zone.cuts), ())


def _wildcard(zone: ZoneView, name: Labels) -> dict[int, object]:
    """What a wildcard gives a name that does not exist (RFC 4592 3.3): NSD and Knot take addresses from there."""
    if name in zone.nodes:
        return {}
    encloser = next(name[start:] for start in range(1, len(name) + 1) if name[start:] in zone.nodes)
    return dict(zone.nodes.get((b"*", *encloser), {}))


def check_digest(zone: ZoneView) -> None:
    """Verify the ZONEMD of a zone that has one (RFC 8976 section 4); ZoneError if it does not hold.

    One by schemes or hashes that nobody here knows says nothing, and passes.
    """
    if ZONEMD not in zone.nodes[zone.origin]:
        return
    from maptr.zone.canonical import ZONEMD_HASHES, ZONEMD_SIMPLE, zone_digest  # here, for most zones have none

    rdatas = zone.nodes[zone.origin][ZONEMD].rdatas
    found = [(int.from_bytes(rdata[:4], "big"), rdata[4], rdata[5], rdata[6:]) for rdata in rdatas]
    known = [
        (serial, kind, digest)
        for serial, scheme, kind, digest in found
        if scheme == ZONEMD_SIMPLE and kind in ZONEMD_HASHES
    ]
    if not known:
        return
    fresh = [(kind, digest) for serial, kind, digest in known if serial == zone.serial]
    if not fresh:
        raise ZoneError(f"its ZONEMD is of serial {known[0][0]}, the zone's is {zone.serial}")
    if not any(zone_digest(zone, kind) == digest for kind, digest in fresh):
        raise ZoneError("its ZONEMD does not verify: records were lost, added or changed after it was made")
