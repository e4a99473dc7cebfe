"""Signing of dnspython zones, so that dnspython can check the result."""

from __future__ import annotations

from collections.abc import Sequence

import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.zone

from maptr.dnssec import sign as dnssec
from maptr.dnssec.keys import Key, KeySet
from maptr.dnssec.policy import Policy
from maptr.zone.diff import records, soa_of
from maptr.zone.snapshot import ZoneView, view_zone


def sign_zone(
    zone: dns.zone.Zone,
    keys: Sequence[Key],
    *,
    now: int,
    serial: int,
    policy: Policy | None = None,
    old: dns.zone.Zone | None = None,
) -> dns.zone.Zone:
    """``dnssec.sign_zone`` for dnspython zones."""
    earlier = None if old is None else view_zone(old)
    signed = dnssec.sign_zone(view_zone(zone), KeySet(tuple(keys)), now=now, serial=serial, policy=policy, old=earlier)
    return to_zone(signed)


def to_zone(view: ZoneView) -> dns.zone.Zone:
    """A view as a dnspython zone, not relativized."""
    zone = dns.zone.Zone(dns.name.Name((*view.soa.owner, b"")), relativize=False)
    for record in (soa_of(view), *records(view)):
        rdtype = dns.rdatatype.RdataType.make(record.rdtype)
        rdata = dns.rdata.from_wire(dns.rdataclass.IN, rdtype, record.rdata, 0, len(record.rdata))
        owner = dns.name.Name((*record.owner, b""))
        zone.find_rdataset(owner, rdtype, rdata.covers(), create=True).add(rdata, record.ttl)
    return zone
