"""The journal of a zone: what changed from serial to serial, from which IXFR is answered (RFC 1995).

A chain of differences (``zone/diff.py``), each packed once into the octets that its file has, and unpacked only while
it is sent. So a reload costs what changed, and neither the time nor the memory of all records of the journal.
Reading and writing files is in ``serve/journal_file.py``, messages are in ``transfer.py``.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from maptr.errors import JournalError, ZoneError
from maptr.protocol.names import Labels, read_wire, to_text, to_wire
from maptr.protocol.serial import is_newer
from maptr.zone.diff import Difference, Record, difference, digest
from maptr.zone.snapshot import ZoneView

# A secondary that is further behind takes the whole zone. A hundred is a hundred reloads; Knot keeps 20 and up.
MAX_DIFFERENCES = 100
# Octets of a journal, in memory and in its file: many times what changes in a year of the real registry.
MAX_OCTETS = 16 * 1024 * 1024

_MAGIC = b"maptr journal 2\n"
_CHECKSUM = 32  # octets of SHA-256
_DIFFERENCE = struct.Struct("!4I")  # serials, number of records, octets of the records


@dataclass(frozen=True, slots=True)
class PackedDifference:
    """A difference as octets: its records in the order in which IXFR sends them, which iterating gives.

    Iterating raises ZoneError for octets that ``of`` did not make, as a transfer does that ends early.
    """

    from_serial: int
    to_serial: int
    count: int
    octets: bytes

    @classmethod
    def of(cls, change: Difference) -> PackedDifference:
        octets = b"".join(map(Record.pack, (change.old, *change.removed, change.new, *change.added)))
        return cls(change.from_serial, change.to_serial, len(change), octets)

    def __iter__(self) -> Iterator[Record]:
        offset = 0
        for _ in range(self.count):
            try:
                record, offset = Record.unpack(self.octets, offset)
            except (struct.error, IndexError, ValueError) as error:
                raise ZoneError(f"its journal is damaged: {error}") from error
            yield record

    def __len__(self) -> int:
        """Records, as IXFR sends them."""
        return self.count

    @property
    def size(self) -> int:
        """Octets in a file."""
        return _DIFFERENCE.size + len(self.octets)


@dataclass(frozen=True, slots=True)
class Journal:
    """An unbroken chain of differences that ends at the zone with this serial and ``digest``."""

    origin: Labels
    serial: int
    digest: bytes
    differences: tuple[PackedDifference, ...] = ()

    @classmethod
    def start(cls, view: ZoneView) -> Journal:
        """The journal of a zone of which no earlier version is known."""
        return cls(view.origin, view.serial, digest(view))

    def fits(self, view: ZoneView) -> bool:
        """True where the chain ends at this very zone: same content, not only the same serial."""
        return (self.origin, self.serial) == (view.origin, view.serial) and self.digest == digest(view)

    def since(self, serial: int) -> tuple[PackedDifference, ...] | None:
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
        kept: list[PackedDifference] = []
        octets = 0
        for each in reversed((*self.differences, PackedDifference.of(change))):
            octets += each.size
            if octets > max_octets or len(kept) == max_differences:
                break
            kept.append(each)
        return Journal(new.origin, new.serial, after, tuple(reversed(kept)))


def encode(journal: Journal) -> bytes:
    """A journal as the octets of a file, its checksum last."""
    parts = [_MAGIC, to_wire(journal.origin), struct.pack("!I", journal.serial), journal.digest]
    parts.append(struct.pack("!I", len(journal.differences)))
    for each in journal.differences:
        parts += _DIFFERENCE.pack(each.from_serial, each.to_serial, each.count, len(each.octets)), each.octets
    checksum = hashlib.sha256()
    for part in parts:
        checksum.update(part)
    return b"".join((*parts, checksum.digest()))


def decode(octets: bytes) -> Journal:
    """A journal from the octets of a file. Raises JournalError, whatever they are."""
    body = memoryview(octets)[:-_CHECKSUM]
    if not octets.startswith(_MAGIC) or len(body) < len(_MAGIC):
        raise JournalError("not a journal, or of another version")
    if hashlib.sha256(body).digest() != octets[-_CHECKSUM:]:
        raise JournalError("damaged: its checksum is wrong")
    try:
        return _unpack(octets, len(body))
    except (struct.error, IndexError, ValueError) as error:  # whole, and yet written wrong
        raise JournalError(f"damaged: {error}") from error


def _unpack(body: bytes, stop: int) -> Journal:
    origin, offset = read_wire(body, len(_MAGIC))
    serial, end, count = struct.unpack_from("!I32sI", body, offset)
    offset += 40
    differences: list[PackedDifference] = []
    for _ in range(count):
        old, new, records, size = _DIFFERENCE.unpack_from(body, offset)
        offset += _DIFFERENCE.size + size
        if offset > stop:
            raise ValueError("a difference is cut")
        differences.append(PackedDifference(old, new, records, body[offset - size : offset]))
    links = [each.from_serial for each in differences[1:]] + [serial]
    if offset != stop or any(each.to_serial != link for each, link in zip(differences, links, strict=False)):
        raise ValueError("its chain is broken")
    return Journal(origin, serial, end, tuple(differences))


def describe(journal: Journal) -> str:
    """One line for a log: what IXFR can start from."""
    if not journal.differences:
        return f"zone {to_text(journal.origin)} serial {journal.serial}, no earlier one"
    first = journal.differences[0].from_serial
    return f"zone {to_text(journal.origin)} serials {first} to {journal.serial}"
