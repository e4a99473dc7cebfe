"""The journal of a zone: what changed from serial to serial, from which IXFR is answered (RFC 1995).

Differences between two ZoneViews, chains of them, and their octets in a file. Reading and writing files is in
``serve/journal_file.py``, messages are in ``transfer.py``.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from maptr.errors import JournalError
from maptr.names import Labels, fold, to_text, to_wire
from maptr.protocol import RRSIG, SOA
from maptr.serial import is_newer
from maptr.snapshot import Node, ZoneView

# A secondary that is further behind takes the whole zone. A hundred is a hundred reloads; Knot keeps 20 and up.
MAX_DIFFERENCES = 100
# Octets of a journal, in memory and in its file: many times what changes in a year of the real registry.
MAX_OCTETS = 16 * 1024 * 1024

_MAGIC = b"maptr journal 1\n"
_CHECKSUM = 32  # octets of SHA-256


class Record(NamedTuple):
    """One record: ``rdata`` uncompressed wire, the owner's case kept."""

    owner: Labels
    rdtype: int
    ttl: int
    rdata: bytes


@dataclass(frozen=True, slots=True)
class Difference:
    """What leads from one version of a zone to the next; the SOA records of both, and in neither list."""

    old: Record
    new: Record
    removed: tuple[Record, ...]
    added: tuple[Record, ...]

    @property
    def from_serial(self) -> int:
        return serial_of(self.old)

    @property
    def to_serial(self) -> int:
        return serial_of(self.new)

    def __len__(self) -> int:
        """Records, as IXFR sends them."""
        return 2 + len(self.removed) + len(self.added)

    def size(self) -> int:
        """Octets in a journal."""
        return len(_pack_difference(self))


@dataclass(frozen=True, slots=True)
class Journal:
    """An unbroken chain of differences that ends at the zone with this serial and ``digest``."""

    origin: Labels
    serial: int
    digest: bytes
    differences: tuple[Difference, ...] = ()

    @classmethod
    def start(cls, view: ZoneView) -> Journal:
        """The journal of a zone of which no earlier version is known."""
        return cls(view.origin, view.serial, digest(view))

    def fits(self, view: ZoneView) -> bool:
        """True where the chain ends at this very zone: same content, not only the same serial."""
        return (self.origin, self.serial) == (view.origin, view.serial) and self.digest == digest(view)

    def since(self, serial: int) -> tuple[Difference, ...] | None:
        """The differences from a serial to the zone's own, or None where it is not in the journal."""
        for number in range(len(self.differences) - 1, -1, -1):
            if self.differences[number].from_serial == serial:
                return self.differences[number:]
        return None

    def extend(
        self, old: ZoneView, new: ZoneView, *, max_differences: int = MAX_DIFFERENCES, max_octets: int = MAX_OCTETS
    ) -> Journal:
        """The journal after a reload, the oldest differences dropped to keep its bounds.

        It starts anew where the serial did not go forward: a secondary cannot follow there (RFC 1982).
        """
        change = difference(old, new)
        if change is None:
            return self
        after = digest(new)
        if self.serial != old.serial or not is_newer(new.serial, old.serial):
            return Journal(new.origin, new.serial, after)
        kept: list[Difference] = []
        octets = 0
        for each in reversed((*self.differences, change)):
            octets += each.size()
            if octets > max_octets or len(kept) == max_differences:
                break
            kept.append(each)
        return Journal(new.origin, new.serial, after, tuple(reversed(kept)))


def serial_of(soa: Record) -> int:
    """The serial in the rdata of an SOA, whose names may be compressed: it stands at a fixed place from the end."""
    return int.from_bytes(soa.rdata[-20:-16], "big")


def difference(old: ZoneView, new: ZoneView) -> Difference | None:
    """What changed between two versions of a zone, in canonical order of names; None where nothing did.

    Owners count with their case, so that a name written otherwise is sent anew; so does a record whose TTL changed.
    """
    removed: list[Record] = []
    added: list[Record] = []
    for key in old.nodes.keys() | new.nodes.keys():
        before, after = old.nodes.get(key, {}), new.nodes.get(key, {})
        if before == after:
            continue
        gone, come = set(_node_records(before)), set(_node_records(after))
        removed += gone - come
        added += come - gone
    if not removed and not added:
        return None
    soa = [_soa(view) for view in (old, new)]
    return Difference(soa[0], soa[1], _sorted(removed), _sorted(added))


def records(view: ZoneView) -> Iterator[Record]:
    """Every record of a zone but its SOA, in the zone's own order."""
    for node in view.nodes.values():
        for record in _node_records(node):
            if record.rdtype != SOA:
                yield record


def soa_of(view: ZoneView) -> Record:
    return _soa(view)


def digest(view: ZoneView) -> bytes:
    """SHA-256 over all records, however they are ordered: equal for equal zones, in every process."""
    content = hashlib.sha256()
    for record in sorted([_soa(view), *records(view)], key=_order):
        content.update(_pack(record))
    return content.digest()


def encode(journal: Journal) -> bytes:
    """A journal as the octets of a file, its checksum last."""
    parts = [_MAGIC, to_wire(journal.origin), struct.pack("!I", journal.serial), journal.digest]
    parts.append(struct.pack("!I", len(journal.differences)))
    parts += map(_pack_difference, journal.differences)
    octets = b"".join(parts)
    return octets + hashlib.sha256(octets).digest()


def decode(octets: bytes) -> Journal:
    """A journal from the octets of a file. Raises JournalError, whatever they are."""
    body, checksum = octets[:-_CHECKSUM], octets[-_CHECKSUM:]
    if not body.startswith(_MAGIC):
        raise JournalError("not a journal, or of another version")
    if hashlib.sha256(body).digest() != checksum:
        raise JournalError("damaged: its checksum is wrong")
    try:
        return _unpack(body)
    except (struct.error, IndexError, ValueError) as error:  # whole, and yet written wrong
        raise JournalError(f"damaged: {error}") from error


def _unpack(body: bytes) -> Journal:
    origin, offset = _unpack_name(body, len(_MAGIC))
    serial, end, count = struct.unpack_from("!I32sI", body, offset)
    offset += 40
    differences: list[Difference] = []
    for _ in range(count):
        gone, come = struct.unpack_from("!II", body, offset)
        offset += 8
        found: list[Record] = []
        for _ in range(2 + gone + come):
            record, offset = _unpack_record(body, offset)
            found.append(record)
        differences.append(Difference(found[0], found[1], tuple(found[2 : 2 + gone]), tuple(found[2 + gone :])))
    links = [each.from_serial for each in differences[1:]] + [serial]
    if offset != len(body) or any(each.to_serial != link for each, link in zip(differences, links, strict=False)):
        raise ValueError("its chain is broken")
    return Journal(origin, serial, end, tuple(differences))


def _node_records(node: Node) -> Iterator[Record]:
    """Signatures have the TTL of what they cover (RFC 4034 3), which the one RRset of all RRSIGs does not tell."""
    covering: set[bytes] = set()
    for rrset in node.values():
        if rrset.rdtype == RRSIG:
            continue
        for rdata in rrset.rdatas:
            yield Record(rrset.owner, rrset.rdtype, rrset.ttl, rdata)
        for rdata in rrset.signatures:
            covering.add(rdata)
            yield Record(rrset.owner, RRSIG, rrset.ttl, rdata)
    if RRSIG in node:
        alone = node[RRSIG]
        for rdata in alone.rdatas:
            if rdata not in covering:
                yield Record(alone.owner, RRSIG, alone.ttl, rdata)


def _soa(view: ZoneView) -> Record:
    return Record(view.soa.owner, SOA, view.soa.ttl, view.soa.rdatas[0])


def _sorted(found: Iterable[Record]) -> tuple[Record, ...]:
    return tuple(sorted((record for record in found if record.rdtype != SOA), key=_order))


def _order(record: Record) -> tuple[object, ...]:
    return fold(record.owner)[::-1], record


def _pack(record: Record) -> bytes:
    head = struct.pack("!HIH", record.rdtype, record.ttl, len(record.rdata))
    return to_wire(record.owner) + head + record.rdata


def _pack_difference(change: Difference) -> bytes:
    head = struct.pack("!II", len(change.removed), len(change.added))
    return head + b"".join(map(_pack, (change.old, change.new, *change.removed, *change.added)))


def _unpack_name(body: bytes, offset: int) -> tuple[Labels, int]:
    labels: list[bytes] = []
    while length := body[offset]:
        labels.append(body[offset + 1 : offset + 1 + length])
        offset += 1 + length
    return tuple(labels), offset + 1


def _unpack_record(body: bytes, offset: int) -> tuple[Record, int]:
    owner, offset = _unpack_name(body, offset)
    rdtype, ttl, length = struct.unpack_from("!HIH", body, offset)
    end = offset + 8 + length
    if end > len(body):
        raise ValueError("a record is cut")
    return Record(owner, rdtype, ttl, body[offset + 8 : end]), end


def describe(journal: Journal) -> str:
    """One line for a log: what IXFR can start from."""
    if not journal.differences:
        return f"zone {to_text(journal.origin)} serial {journal.serial}, no earlier one"
    first = journal.differences[0].from_serial
    return f"zone {to_text(journal.origin)} serials {first} to {journal.serial}"
