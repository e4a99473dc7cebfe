"""Small zones for tests: an apex with a server, and records below."""

from __future__ import annotations

from collections.abc import Iterator

import dns.name
import dns.rdataset
import dns.zone
from dns.zonetypes import DigestHashAlgorithm

from maptr.protocol.names import Labels, fold
from maptr.protocol.numbers import RRSIG
from maptr.zone.snapshot import PackedNodes, Snapshot, ZoneView

HEAD = "$TTL 60\n@ SOA ns host {serial} 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n"


def zone_of(text: str = "", serial: int = 1, origin: str = "ark.arpa.") -> dns.zone.Zone:
    return dns.zone.from_text(HEAD.format(serial=serial) + text, origin, relativize=False)


def view_of(text: str = "", serial: int = 1, origin: str = "ark.arpa.") -> ZoneView:
    return view_zone(zone_of(text, serial, origin))


def zonemd_of(zone: dns.zone.Zone) -> dns.rdataset.Rdataset:
    """The ZONEMD of a zone, as dnspython makes it."""
    return dns.rdataset.from_rdata(60, zone.compute_digest(DigestHashAlgorithm.SHA384))


def view_zone(zone: dns.zone.Zone) -> ZoneView:
    """The view of a dnspython zone, relativized or not."""
    assert zone.origin is not None
    return ZoneView.of(fold(zone.origin.labels[:-1]), PackedNodes.pack(_records(zone, zone.origin)))


def snapshot_of_zones(*zones: dns.zone.Zone) -> Snapshot:
    return Snapshot.of(map(view_zone, zones))


def _records(zone: dns.zone.Zone, origin: dns.name.Name) -> Iterator[tuple[Labels, int, int, bytes]]:
    """Owner, type, TTL and rdata of each record. A name's signatures have the lowest of their TTLs."""
    for name, node in zone.nodes.items():
        owner = name.derelativize(origin).labels[:-1]
        least = min((rdataset.ttl for rdataset in node if rdataset.rdtype == RRSIG), default=0)
        for rdataset in node:
            ttl = least if rdataset.rdtype == RRSIG else rdataset.ttl
            for rdata in rdataset:
                yield owner, int(rdataset.rdtype), ttl, rdata.to_wire(origin=origin) or b""
