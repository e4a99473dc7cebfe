"""When a zone is signed again, and under which serial: one rule for ``maptr zone sign`` and for the server.

How it is signed is in ``dnssec.py``, for how long in ``signing.py``. Reads no file and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.zone

from maptr.difference import records, soa_of
from maptr.dnssec import Policy, is_current, sign_zone
from maptr.errors import SigningError
from maptr.serial import following_serial, is_newer
from maptr.signatures import Signatures, signature_state
from maptr.snapshot import ZoneView, view_zone
from maptr.zonekeys import Key, check_keys


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
    check_keys(keys)
    wanted = int(zone.get_soa().serial)
    before = None if old is None else int(old.get_soa().serial)
    if (
        old is not None
        and not force
        and not is_newer(wanted, int(old.get_soa().serial))
        and is_current(old, zone, keys, policy)
    ):
        found = signature_state(view_zone(old), now, expiring=policy.refresh)
        if found.state is Signatures.OK:
            return old
    if before is None or is_newer(wanted, before):
        serial = wanted
    else:
        serial = following_serial(before, style, now)
    return sign_zone(zone, keys, now=int(now), serial=serial, policy=policy, old=None if force else old)


def _lasts(old: dns.zone.Zone, policy: Policy, now: float) -> bool:
    return signature_state(view_zone(old), now, expiring=policy.refresh).state is Signatures.OK


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
