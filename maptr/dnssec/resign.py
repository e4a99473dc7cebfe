"""When a zone is signed again, and under which serial: one rule for ``maptr zone sign`` and for the server.

How it is signed is in ``dnssec.py``, for how long in ``signing.py``. Reads no file and no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from maptr.dnssec.expiry import Signatures, signature_state
from maptr.dnssec.keys import Key, KeySet
from maptr.dnssec.policy import Policy
from maptr.dnssec.sign import Progress, apex_records, sign_zone
from maptr.errors import SigningError
from maptr.protocol.names import to_wire
from maptr.protocol.numbers import DNSKEY, MADE_BY_SIGNERS, NSEC, RRSIG, SOA, ZONEMD
from maptr.protocol.serial import following_serial, is_newer
from maptr.zone.diff import ZoneDiff, stripped
from maptr.zone.packed import RECORD, split_records, split_rrsets
from maptr.zone.rrset import RRSIG_HEAD, Node
from maptr.zone.snapshot import ZoneView


@dataclass(frozen=True, slots=True)
class Renewal:
    """How a zone is signed now: with which keys, by which policy, and at what time (Unix time).

    A new version has the serial of the zone where that is beyond the old one's, else the next of the style
    ("increment", "date", "unix"). Signatures that last long enough are kept; none with ``force``.
    """

    keys: KeySet
    policy: Policy
    now: float
    style: str = "increment"
    force: bool = False

    def renew(self, zone: ZoneView, old: ZoneView | None, progress: Progress = lambda done, total: None) -> ZoneView:
        """The zone, signed; ``old``, the version signed before, where that is good."""
        if old is not None and self.is_good(old, zone):
            return old
        return self.sign(zone, old, progress)

    def is_good(self, old: ZoneView, zone: ZoneView) -> bool:
        """Whether ``old`` has the same records by the same keys, its signatures are not due, and the zone's serial is
        not beyond its own. A look at both, no signature is checked. Never with ``force``."""
        return (
            not self.force
            and not is_newer(zone.serial, old.serial)
            and is_current(old, zone, self.keys, self.policy)
            and signature_state(old, self.now, expiring=self.policy.refresh).state is Signatures.OK
        )

    def sign(self, zone: ZoneView, old: ZoneView | None, progress: Progress = lambda done, total: None) -> ZoneView:
        """``renew``, where ``old`` is known not to be good."""
        serial = zone.serial
        if old is not None and not is_newer(serial, old.serial):
            serial = following_serial(old.serial, self.style, self.now)
        return sign_zone(
            zone,
            self.keys,
            now=int(self.now),
            serial=serial,
            policy=self.policy,
            old=None if self.force else old,
            progress=progress,
        )


def is_current(old: ZoneView, zone: ZoneView, keys: KeySet, policy: Policy) -> bool:
    """Whether ``old`` is this zone, but for its serial, signed by these keys. Its times are not looked at."""
    if old.origin != zone.origin or ZoneDiff.between(stripped(old, zone.serial), stripped(zone)):
        return False
    origin = to_wire(zone.origin)
    ttl = zone.soa.ttl if policy.dnskey_ttl is None else policy.dnskey_ttl
    wanted = {
        (origin, rdtype): (ttl, frozenset(rdatas))
        for rdtype, rdatas in apex_records(zone.origin, keys, policy.cds).items()
    }
    apex = old.nodes[old.origin]
    return (
        _made(old) == wanted
        and (ZONEMD in apex) is policy.zonemd
        and _signers(apex, SOA) == _named(keys.zone_signers)
        and _signers(apex, DNSKEY) == _named(keys.dnskey_signers)
    )


def _made(view: ZoneView) -> dict[tuple[bytes, int], tuple[int, frozenset[bytes]]]:
    """What signing made of the keys, by owner and type: TTL and rdatas."""
    nodes = view.nodes
    found = {}
    for name in nodes.special:
        for rdtype, packed in split_rrsets(nodes.read(name)):
            if rdtype in MADE_BY_SIGNERS and rdtype not in (RRSIG, NSEC, ZONEMD):
                records = split_records(packed)
                ttl = int.from_bytes(packed[6:10], "big")
                found[name, rdtype] = ttl, frozenset(record[RECORD.size :] for record in records)
    return found


def _signers(node: Node, covered: int) -> set[tuple[int, int]]:
    """The algorithm and key tag of each signature over one type (RFC 4034 3.1)."""
    rdatas = node[RRSIG].rdatas if RRSIG in node else ()
    heads = map(RRSIG_HEAD.unpack_from, rdatas)
    return {(algorithm, tag) for rdtype, algorithm, *_, tag in heads if rdtype == covered}


def _named(keys: Iterable[Key]) -> set[tuple[int, int]]:
    return {(key.algorithm.number, key.tag) for key in keys}


def due(view: ZoneView, policy: Policy, now: float) -> int:
    """When the zone is to be signed again for its signatures' sake, Unix time. Raises SigningError without any."""
    found = signature_state(view, now)
    if found.expires is None:
        raise SigningError("no signatures")
    return found.expires - policy.refresh
