"""What changes from one version of a zone to the next, RRset by RRset: to be looked at, and to be decided by.

Records are compared as sets: their order in a file says nothing (RFC 2181 section 5). Reading files is elsewhere.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from maptr.protocol.names import Labels, to_text, to_wire
from maptr.protocol.numbers import MADE_BY_SIGNERS, NAPTR, SOA
from maptr.zone.difference import SERIAL
from maptr.zone.packed import PackedNodes, changed_names, count_names, has_data, pack_rrset
from maptr.zone.packing import headed, split_rrsets, types_of
from maptr.zone.snapshot import Node, RRset, ZoneView, make_view


@dataclass(frozen=True, slots=True)
class Change:
    """One RRset added (``old`` is None), removed (``new`` is None) or changed."""

    old: RRset | None
    new: RRset | None

    @property
    def sign(self) -> str:
        return "+" if self.old is None else "-" if self.new is None else "~"

    @property
    def rrset(self) -> RRset:
        """The newer of the two there is."""
        rrset = self.new or self.old
        assert rrset is not None  # noqa: S101 - a change has one of them
        return rrset

    def to_text(self) -> str:
        """``+ owner ttl TYPE rdata | rdata``; for a change only what differs, as ``old -> new``."""
        rrset = self.rrset
        owner, kind = to_text(rrset.owner), _type_text(rrset.rdtype)
        if self.old is None or self.new is None:
            return f"{self.sign} {owner} {rrset.ttl} {kind} {_shown(set(rrset.rdatas), rrset.rdtype)}"
        return f"~ {owner} {kind} {'; '.join(self._differences(self.old, self.new))}"

    @staticmethod
    def _differences(old: RRset, new: RRset) -> Iterator[str]:
        gone, come = set(old.rdatas) - set(new.rdatas), set(new.rdatas) - set(old.rdatas)
        if gone or come:
            yield f"{_shown(gone, old.rdtype) or '(none)'} -> {_shown(come, new.rdtype) or '(none)'}"
        if old.ttl != new.ttl:
            yield f"ttl {old.ttl} -> {new.ttl}"
        if old.owner != new.owner:
            yield f"owner {to_text(old.owner)} -> {to_text(new.owner)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "change": {"+": "added", "-": "removed", "~": "changed"}[self.sign],
            "owner": to_text(self.rrset.owner),
            "type": _type_text(self.rrset.rdtype),
            "old": _plain(self.old),
            "new": _plain(self.new),
        }


@dataclass(frozen=True, slots=True)
class ZoneDiff:
    """The changes in canonical order (RFC 4034 6.1), by type within a name. False when there are none.

    ``lost`` is how many names that had records have none now, ``size`` how many names the old zone had.
    """

    changes: tuple[Change, ...]
    lost: int
    size: int

    @classmethod
    def between(cls, old: ZoneView, new: ZoneView) -> ZoneDiff:
        """The difference of two versions of one zone."""
        changes: list[Change] = []
        lost = 0
        for owner in sorted(changed_names(old.nodes, new.nodes), key=lambda labels: labels[::-1]):
            before, after = old.nodes.get(owner, {}), new.nodes.get(owner, {})
            changes += _changes(before, after)
            lost += has_data(before) and not has_data(after)
        return cls(tuple(changes), lost, count_names(old))

    def __bool__(self) -> bool:
        return bool(self.changes)

    @property
    def shrinkage(self) -> float:
        """The part of the old zone's names that is gone, 0.0 to 1.0."""
        return self.lost / self.size if self.size else 0.0

    def to_text(self) -> str:
        """One line for each RRset; "" where nothing differs."""
        return "".join(f"{change.to_text()}\n" for change in self.changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"changes": [change.to_dict() for change in self.changes], "names": self.size, "names_lost": self.lost}


def _changes(old: Node, new: Node) -> Iterator[Change]:
    if old == new:
        return
    for rdtype in sorted(old.keys() | new.keys()):
        before, after = old.get(rdtype), new.get(rdtype)
        if before is None or after is None or _content(before) != _content(after):
            yield Change(before, after)


def _content(rrset: RRset) -> tuple[Labels, int, frozenset[bytes]]:
    return rrset.owner, rrset.ttl, frozenset(rrset.rdatas)


def content_digest(zone: ZoneView) -> str:
    """A fingerprint of all that the zone says but for its serial: equal exactly where nothing else differs."""
    digest = hashlib.sha256()
    for owner, node in sorted(zone.nodes.items()):
        for rdtype, rrset in node.items():
            rdatas = [_without_serial(rdata) for rdata in rrset.rdatas] if rdtype == SOA else sorted(rrset.rdatas)
            head = struct.pack("!HIH", rdtype, rrset.ttl, len(rdatas)) + to_text(rrset.owner).encode()
            for part in (to_text(owner).encode(), head, *rdatas):
                digest.update(struct.pack("!I", len(part)) + part)
    return digest.hexdigest()


def _without_serial(soa: bytes) -> bytes:
    return soa[: SERIAL.start] + bytes(4) + soa[SERIAL.stop :]


def with_serial(zone: ZoneView, serial: int) -> ZoneView:
    """The same zone under another serial."""
    rdata = zone.soa.rdatas[0]
    rdatas = (rdata[: SERIAL.start] + serial.to_bytes(4, "big") + rdata[SERIAL.stop :],)
    soa = zone.soa._replace(rdatas=rdatas)
    apex = {**zone.nodes[zone.origin], SOA: soa}
    nodes: Mapping[Labels, Node]
    if isinstance(zone.nodes, PackedNodes):
        nodes = zone.nodes.replaced({to_wire(zone.origin): b"".join(map(pack_rrset, apex.values()))})
    else:
        nodes = {**zone.nodes, zone.origin: apex}
    return zone._replace(serial=serial, soa=soa, negative_soa=zone.negative_soa._replace(rdatas=rdatas), nodes=nodes)


def _type_text(rdtype: int) -> str:
    import dns.rdatatype  # here, as below: a server that starts compares nothing

    return dns.rdatatype.to_text(dns.rdatatype.RdataType.make(rdtype))


def stripped(view: ZoneView, serial: int | None = None) -> ZoneView:
    """The zone without what signing makes, and under the serial if one is given: what was signed, told from its result.

    Names that have nothing else stay as empty non-terminals where something is below them, and go where not.
    """
    nodes = PackedNodes.pack(view.nodes)
    made = {key: nodes.read(key) for key in nodes.special}
    bare = {key: _bare(packed) for key, packed in made.items() if not MADE_BY_SIGNERS.isdisjoint(types_of(packed))}
    if bare:
        nodes = nodes.replaced(bare)
    found = make_view(view.origin, nodes, view.cuts)
    return found if serial is None or serial == found.serial else with_serial(found, serial)


def _bare(packed: bytes) -> bytes:
    """One value of a table without what signing makes."""
    return b"".join(
        [headed(rdtype, records) for rdtype, records in split_rrsets(packed) if rdtype not in MADE_BY_SIGNERS]
    )


def _shown(rdatas: set[bytes], rdtype: int) -> str:
    return " | ".join(_rdata_text(rdata, rdtype) for rdata in sorted(rdatas))


def _rdata_text(wire: bytes, rdtype: int) -> str:
    """Presentation format; NAPTR by our own writer, for dnspython's leaves ports unescaped."""
    import dns.exception
    import dns.rdata
    import dns.rdataclass
    import dns.rdatatype

    from maptr.naptr.record import Naptr

    try:
        if rdtype == NAPTR:
            return Naptr.from_wire(wire).to_text()
        return str(
            dns.rdata.from_wire(dns.rdataclass.IN, dns.rdatatype.RdataType.make(rdtype), wire, 0, len(wire)).to_text()
        )
    except (ValueError, dns.exception.DNSException):
        return f"\\# {len(wire)} {wire.hex()}"  # RFC 3597 section 5


def _plain(rrset: RRset | None) -> dict[str, Any] | None:
    if rrset is None:
        return None
    return {"ttl": rrset.ttl, "rdata": [_rdata_text(rdata, rrset.rdtype) for rdata in sorted(rrset.rdatas)]}
