"""Zones and keys for tests of signing, and signed zones as dnspython zones."""

from __future__ import annotations

import random
from collections.abc import Sequence

import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.zone
import pytest

from maptr.dnssec.keys import Algorithm, KeySet, KeyState, Role, ZoneKey
from maptr.dnssec.policy import SigningPolicy
from maptr.dnssec.sign import Renewal
from maptr.zone.diff import records, soa_of, with_serial
from maptr.zone.snapshot import ZoneView
from tests.support.answers import VECTORS
from tests.support.random_zones import random_zone, zone_text
from tests.support.zones import view_zone


def sign_zone(
    zone: dns.zone.Zone,
    keys: Sequence[ZoneKey],
    *,
    now: int,
    serial: int,
    policy: SigningPolicy | None = None,
    old: dns.zone.Zone | None = None,
) -> dns.zone.Zone:
    """Signs a dnspython zone, with the serial."""
    renewal = Renewal(KeySet(tuple(keys)), policy or SigningPolicy(), now)
    return to_zone(renewal.sign(with_serial(view_zone(zone), serial), None if old is None else view_zone(old)))


def to_zone(view: ZoneView) -> dns.zone.Zone:
    """A view as a dnspython zone, not relativized."""
    zone = dns.zone.Zone(dns.name.Name((*view.soa.owner, b"")), relativize=False)
    for record in (soa_of(view), *records(view)):
        rdtype = dns.rdatatype.RdataType.make(record.rdtype)
        rdata = dns.rdata.from_wire(dns.rdataclass.IN, rdtype, record.rdata, 0, len(record.rdata))
        owner = dns.name.Name((*record.owner, b""))
        zone.find_rdataset(owner, rdtype, rdata.covers(), create=True).add(rdata, record.ttl)
    return zone


NOW = 1_800_000_000
ORIGIN = dns.name.from_text("example.")
TEXT = (VECTORS / "example.zone").read_text()


def example_zone() -> dns.zone.Zone:
    """A zone with a delegation, glue, a DNAME, a wildcard and names with special characters."""
    return dns.zone.from_text(TEXT, relativize=False)


def sign_example(*keys: ZoneKey, policy: SigningPolicy | None = None, serial: int = 7) -> dns.zone.Zone:
    return sign_zone(example_zone(), keys, now=NOW, serial=serial, policy=policy)


def random_view(seed: int) -> ZoneView:
    """A zone of random records below ``example.``."""
    return view_zone(dns.zone.from_text(zone_text(random_zone(random.Random(seed))), "example.", relativize=False))


def one_key() -> KeySet:
    """A CSK of Ed25519, the same every time."""
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    private = Algorithm.ED25519.private_class(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32)))
    return KeySet((ZoneKey(Role.CSK, KeyState.ACTIVE, Algorithm.ED25519, private),))
