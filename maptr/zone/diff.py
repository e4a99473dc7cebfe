"""Differences between versions of a zone, by RRset for people and by record for IXFR (RFC 1995), and the guards that
decide whether a version may replace another.

Records are compared as sets, because their order in a file has no meaning (RFC 2181 5).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from maptr.errors import ZoneError
from maptr.protocol.names import Labels, folded_from_wire, read_wire, to_text, to_wire
from maptr.protocol.numbers import DNSKEY, MADE_BY_SIGNERS, RRSIG, SOA, ZONEMD
from maptr.protocol.serial import choose, is_newer
from maptr.registry.plan import REMOVAL_LIMIT
from maptr.zone.rdata import type_text
from maptr.zone.rrset import Node, RRset, pack_record, pack_rrsets, records_of, split_records, split_rrsets
from maptr.zone.snapshot import PackedNodes, ZoneView, has_data, in_canonical_order
from maptr.zone.text import rdata_text

DIGEST_SIZE = 32  # bytes
_MODULUS = 1 << 8 * DIGEST_SIZE
SERIAL = slice(-20, -16)  # in the rdata of a SOA: it ends with five 32-bit numbers (RFC 1035 3.3.13)


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
        """The new RRset, or the old one if it was removed."""
        rrset = self.new or self.old
        assert rrset is not None  # noqa: S101 - a change has one of them
        return rrset

    def to_text(self) -> str:
        """Write ``+ owner ttl TYPE rdata | rdata``, or for a changed RRset only what differs, as ``old -> new``."""
        rrset = self.rrset
        owner, kind = to_text(rrset.owner), type_text(rrset.rdtype)
        if self.old is None or self.new is None:
            return f"{self.sign} {owner} {rrset.ttl} {kind} {_rdatas_text(set(rrset.rdatas), rrset.rdtype)}"
        return f"~ {owner} {kind} {'; '.join(self._differences(self.old, self.new))}"

    @staticmethod
    def _differences(old: RRset, new: RRset) -> Iterator[str]:
        removed, added = set(old.rdatas) - set(new.rdatas), set(new.rdatas) - set(old.rdatas)
        if removed or added:
            before, after = _rdatas_text(removed, old.rdtype), _rdatas_text(added, new.rdtype)
            yield f"{before or '(none)'} -> {after or '(none)'}"
        if old.ttl != new.ttl:
            yield f"ttl {old.ttl} -> {new.ttl}"
        if old.owner != new.owner:
            yield f"owner {to_text(old.owner)} -> {to_text(new.owner)}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "change": {"+": "added", "-": "removed", "~": "changed"}[self.sign],
            "owner": to_text(self.rrset.owner),
            "type": type_text(self.rrset.rdtype),
            "old": _rrset_dict(self.old),
            "new": _rrset_dict(self.new),
        }


@dataclass(frozen=True, slots=True)
class ZoneDiff:
    """The changes between two zones in canonical order (RFC 4034 6.1), by type within a name. Falsy if there are none.

    ``lost`` counts the names that had records and now have none, ``size`` the names of the old zone. ``names`` are
    those that differ, in folded wire format.
    """

    changes: tuple[Change, ...]
    lost: int
    size: int
    names: tuple[bytes, ...] = ()

    @classmethod
    def between(cls, old: ZoneView, new: ZoneView) -> ZoneDiff:
        changes: list[Change] = []
        lost, names = 0, _changed_names(old.nodes, new.nodes)
        for owner in map(folded_from_wire, names):
            before, after = old.nodes.get(owner, {}), new.nodes.get(owner, {})
            changes += _changes(before, after)
            lost += has_data(before) and not has_data(after)
        return cls(tuple(changes), lost, old.nodes.count(), tuple(names))

    def __bool__(self) -> bool:
        return bool(self.changes)

    @property
    def shrinkage(self) -> float:
        """The fraction of the old zone's names that is lost."""
        return self.lost / self.size  # the origin has records, so there is at least one name

    def to_dict(self) -> dict[str, Any]:
        return {"changes": [change.to_dict() for change in self.changes], "names": self.size, "names_lost": self.lost}


def _changed_names(old: PackedNodes, new: PackedNodes) -> list[bytes]:
    """Return the names at which two zones differ, in canonical order.

    The loops let other threads run, which an operation on the sets of all names does not.
    """
    before, after = old.table, new.table
    changed = {key for key, packed in before.items() if not _is_same(packed, after.get(key))}
    changed.update(key for key in after if key not in before)
    changed.update(
        key for key in old.spelled.keys() | new.spelled.keys() if old.spelled.get(key) != new.spelled.get(key)
    )
    return [key for _, key in in_canonical_order(changed)]


def _is_same(old: bytes, new: bytes | None) -> bool:
    return old == new or (new is not None and {*records_of(old)} == {*records_of(new)})


def _changes(old: Node, new: Node) -> Iterator[Change]:
    for rdtype in sorted(old.keys() | new.keys()):
        before, after = old.get(rdtype), new.get(rdtype)
        if before is None or after is None or _content(before) != _content(after):
            yield Change(before, after)


def _content(rrset: RRset) -> tuple[Labels, int, frozenset[bytes]]:
    return rrset.owner, rrset.ttl, frozenset(rrset.rdatas)


def _rdatas_text(rdatas: set[bytes], rdtype: int) -> str:
    return " | ".join(rdata_text(rdtype, rdata) for rdata in sorted(rdatas))


def _rrset_dict(rrset: RRset | None) -> dict[str, Any] | None:
    if rrset is None:
        return None
    return {"ttl": rrset.ttl, "rdata": [rdata_text(rrset.rdtype, rdata) for rdata in sorted(rrset.rdatas)]}


# ---- versions of one zone


def content_digest(zone: ZoneView) -> str:
    """Digest everything in a zone except its serial."""
    return _digest_with(zone, _packed_origin(zone, _soa_rdata(zone, 0))).to_bytes(DIGEST_SIZE, "big").hex()


def with_serial(zone: ZoneView, serial: int) -> ZoneView:
    rdata = _soa_rdata(zone, serial)
    packed = _packed_origin(zone, rdata)
    soa, negative_soa = (
        rrset._replace(records=pack_record(SOA, rrset.ttl, rdata)) for rrset in (zone.soa, zone.negative_soa)
    )
    known = zone.nodes
    nodes = PackedNodes({**known.table, to_wire(zone.origin): packed}, known.spelled, known.special)
    if known.digest is not None:
        nodes.digest = _digest_with(zone, packed)
    return zone._replace(serial=serial, soa=soa, negative_soa=negative_soa, nodes=nodes)


def _soa_rdata(zone: ZoneView, serial: int) -> bytes:
    old = zone.soa.rdatas[0]
    return old[: SERIAL.start] + serial.to_bytes(4, "big") + old[SERIAL.stop :]


def _packed_origin(zone: ZoneView, soa_rdata: bytes) -> bytes:
    """Pack the origin's records, with other rdata for its SOA."""
    rrsets = dict(split_rrsets(zone.nodes.table[to_wire(zone.origin)]))
    return pack_rrsets({**rrsets, SOA: pack_record(SOA, zone.soa.ttl, soa_rdata)})


def stripped(view: ZoneView, serial: int | None = None) -> ZoneView:
    """Remove the records that signing makes, and set the serial if one is given.

    A name without other records remains as an empty non-terminal if a name below it exists.
    """
    bare: dict[bytes, bytes] = {}
    for key in view.nodes.special:
        rrsets = dict(split_rrsets(view.nodes.table[key]))
        if not MADE_BY_SIGNERS.isdisjoint(rrsets):
            kept = rrsets.keys() - MADE_BY_SIGNERS
            bare[key] = pack_rrsets({rdtype: rrsets[rdtype] for rdtype in kept})
    found = ZoneView.of(view.origin, view.nodes.replaced(bare)) if bare else view
    return found if serial is None or serial == found.serial else with_serial(found, serial)


# ---- publication: whether a new version may replace the old one, and its serial. These guards catch what a reader
# cannot: a file that was cut at the end of a line is a valid zone.


class Published(NamedTuple):
    """The serial of the published version, and the digest of everything else in it."""

    serial: int
    digest: str

    @classmethod
    def of(cls, zone: ZoneView) -> Published:
        return cls(zone.serial, content_digest(zone))


def choose_serial(
    new: ZoneView,
    published: Published | None,
    style: str,
    now: float,
    others: Callable[[], Iterable[int]] = tuple,
    *,
    force: bool = False,
) -> ZoneView:
    """Return the new version with its serial.

    The serial is the published one if nothing else changed, and otherwise as ``protocol.serial.choose`` says: the
    file's own if that advanced. ``others`` returns the secondaries' serials, which a new one passes; it is called only
    if needed. ``force``: pass one that is ahead even if nothing changed. ``published`` is None if unknown. ``now`` is
    in seconds since 1970. Raises ZoneError if the serial must change and is signed.
    """
    if style == "file":
        return new
    last = None if published is None else published.serial
    has_advanced = last is None or is_newer(new.serial, last)
    if last is not None and not has_advanced and published and content_digest(new) == published.digest:
        is_behind = force and any(is_newer(other, last) for other in others())
        serial = choose(new.serial, last, style, now, others()) if is_behind else last
    else:
        serial = choose(new.serial, last, style, now, others())
    if serial == new.serial:
        return new
    if {RRSIG, DNSKEY, ZONEMD} & new.nodes[new.origin].keys():
        if has_advanced:
            return new  # its signer has chosen the serial
        raise ZoneError(f"serial {new.serial} did not advance, and is signed: the signer of the zone must raise it")
    return with_serial(new, serial)


class UnsafeChange(ZoneError):
    """A version that is not served after the old one, unless a person forces it."""


def decide(old: ZoneView, new: ZoneView, max_shrink: float = REMOVAL_LIMIT, *, force: bool = False) -> ZoneDiff:
    """Return what changes with the new version. If nothing does, the old one should still be served.

    Raises UnsafeChange if the new version lost too many names or its serial did not advance, unless ``force`` is set.
    """
    difference = ZoneDiff.between(old, new)
    if force or not difference:
        return difference
    if not is_newer(new.serial, old.serial):
        how = "did not advance" if new.serial == old.serial else f"went back from {old.serial}"
        count = len(difference.changes)
        raise UnsafeChange(
            f"serial {new.serial} {how} while the zone changed ({count} RRset{'' if count == 1 else 's'}):"
            " secondaries would not follow (RFC 1982)"
        )
    check_shrinkage(difference, max_shrink)
    return difference


def check_shrinkage(difference: ZoneDiff, max_shrink: float = REMOVAL_LIMIT) -> None:
    """Raise UnsafeChange if the new version lost too many names of the old one."""
    if difference.shrinkage > max_shrink:
        raise UnsafeChange(
            f"it lost {difference.lost} of {difference.size} names"
            f" ({difference.shrinkage:.0%}, max_shrink is {max_shrink:.0%})"
        )


# ---- record by record


class ZoneRecord(NamedTuple):
    """A record. ``rdata`` is in uncompressed wire format, and the owner keeps its case."""

    owner: Labels
    rdtype: int
    ttl: int
    rdata: bytes

    def pack(self) -> bytes:
        """Write the record as bytes, for a digest or a file."""
        head = struct.pack("!HIH", self.rdtype, self.ttl, len(self.rdata))
        return to_wire(self.owner) + head + self.rdata

    @classmethod
    def unpack(cls, data: bytes, offset: int) -> tuple[ZoneRecord, int]:
        """Read a record that ``pack`` wrote, and return its end. Raises ValueError, IndexError and struct.error."""
        owner, offset = read_wire(data, offset)
        rdtype, ttl, length = struct.unpack_from("!HIH", data, offset)
        end = offset + 8 + length
        if end > len(data):
            raise ValueError("a truncated record")
        return cls(owner, rdtype, ttl, data[offset + 8 : end]), end


@dataclass(frozen=True, slots=True)
class Difference:
    """The packed difference between one version of a zone and the next.

    It iterates over its records in the order of IXFR (RFC 1995 4): the old SOA, the removed records, the new SOA, the
    added records. Iterating raises ZoneError if ``data`` is damaged.
    """

    from_serial: int
    to_serial: int
    count: int
    data: bytes

    @classmethod
    def between(cls, old: ZoneView, new: ZoneView, changed: Sequence[bytes] | None = None) -> Difference | None:
        """Compare two versions, in canonical order of names. Returns None if nothing differs.

        A record whose TTL or owner's case changed is removed and added again. ``changed`` are the ``names`` of their
        ZoneDiff, None if there is none.
        """
        removed: list[ZoneRecord] = []
        added: list[ZoneRecord] = []
        for key in _changed_names(old.nodes, new.nodes) if changed is None else changed:
            before, after = ({*_records_at(view, key)} - {soa_of(view)} for view in (old, new))
            removed += sorted(before - after)
            added += sorted(after - before)
        if not removed and not added and soa_of(old) == soa_of(new):
            return None
        steps = [soa_of(old), *removed, soa_of(new), *added]
        return cls(old.serial, new.serial, len(steps), b"".join(map(ZoneRecord.pack, steps)))

    def __iter__(self) -> Iterator[ZoneRecord]:
        offset = 0
        for _ in range(self.count):
            try:
                record, offset = ZoneRecord.unpack(self.data, offset)
            except (struct.error, IndexError, ValueError) as error:
                raise ZoneError(f"the journal is damaged: {error}") from error
            yield record

    def __len__(self) -> int:
        """Return the number of records in an IXFR response."""
        return self.count


def records(view: ZoneView) -> Iterator[ZoneRecord]:
    """Yield every record of a zone except its SOA, in the zone's own order."""
    for key in view.nodes.table:
        yield from (record for record in _records_at(view, key) if record.rdtype != SOA)


def soa_of(view: ZoneView) -> ZoneRecord:
    return ZoneRecord(view.soa.owner, SOA, view.soa.ttl, view.soa.rdatas[0])


def digest(view: ZoneView) -> bytes:
    """Digest all records, so that equal zones have equal digests: the sum of the SHA-256 digests of its names.

    It does not depend on the order of names, so they need not be sorted, and a changed zone's digest follows from the
    old one's. It detects accidents, not changes by a person who may write the zone.
    """
    return _digest_number(view.nodes).to_bytes(DIGEST_SIZE, "big")


def _digest_number(nodes: PackedNodes) -> int:
    if nodes.digest is None:
        total = sum(_digest_of_name(nodes, key, packed) for key, packed in nodes.table.items())
        nodes.digest = total % _MODULUS
    return nodes.digest


def _digest_with(zone: ZoneView, packed: bytes) -> int:
    """Return the number of the zone's digest, were these its origin's packed records."""
    nodes, origin = zone.nodes, to_wire(zone.origin)
    before, after = (_digest_of_name(nodes, origin, value) for value in (nodes.table[origin], packed))
    return (_digest_number(nodes) - before + after) % _MODULUS


def _digest_of_name(nodes: PackedNodes, key: bytes, packed: bytes) -> int:
    """Return the number that a name with these packed records adds to the digest: 0 for an empty non-terminal."""
    if not packed:
        return 0
    rrsets = dict(split_rrsets(packed))
    if RRSIG in rrsets:  # its TTL is the covered RRset's
        records = sorted(ZoneRecord((), *record).pack() for record in records_of(packed))
    else:
        records = sorted(packed_record for some in rrsets.values() for packed_record in split_records(some))
    return int.from_bytes(hashlib.sha256(nodes.spelled.get(key, key) + b"".join(records)).digest(), "big")


def _records_at(view: ZoneView, key: bytes) -> Iterator[ZoneRecord]:
    owner = view.nodes.owner(key)
    return (ZoneRecord(owner, *record) for record in records_of(view.nodes.table.get(key) or b""))
