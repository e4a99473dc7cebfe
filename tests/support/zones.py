"""Small zones for tests: an apex with a server, and records below it."""

from __future__ import annotations

import dns.rdataset
import dns.zone
from dns.zonetypes import DigestHashAlgorithm

from maptr.zone.snapshot import ZoneView, view_zone

HEAD = "$TTL 60\n@ SOA ns host {serial} 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n"


def zone_of(text: str = "", serial: int = 1, origin: str = "ark.arpa.") -> dns.zone.Zone:
    return dns.zone.from_text(HEAD.format(serial=serial) + text, origin, relativize=False)


def view_of(text: str = "", serial: int = 1, origin: str = "ark.arpa.") -> ZoneView:
    return view_zone(zone_of(text, serial, origin))


def zonemd_of(zone: dns.zone.Zone) -> dns.rdataset.Rdataset:
    """The ZONEMD of a zone, as dnspython makes it."""
    return dns.rdataset.from_rdata(60, zone.compute_digest(DigestHashAlgorithm.SHA384))
