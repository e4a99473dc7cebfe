"""The journal of a zone: what changed from serial to serial, from which IXFR is answered (RFC 1995).

A chain of differences (``difference.py``), and its octets in a file. Reading and writing files is in
``serve/journal_file.py``, messages are in ``transfer.py``.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from maptr.difference import Difference, Record, difference, digest, pack, unpack
from maptr.errors import JournalError
from maptr.names import Labels, read_wire, to_text, to_wire
from maptr.serial import is_newer
from maptr.snapshot import ZoneView

# A secondary that is further behind takes the whole zone. A hundred is a hundred reloads; Knot keeps 20 and up.
MAX_DIFFERENCES = 100
# Octets of a journal, in memory and in its file: many times what changes in a year of the real registry.
MAX_OCTETS = 16 * 1024 * 1024

_MAGIC = b"maptr journal 1\n"
_CHECKSUM = 32  # octets of SHA-256


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
            octets += len(_pack_difference(each))
            if octets > max_octets or len(kept) == max_differences:
                break
            kept.append(each)
        return Journal(new.origin, new.serial, after, tuple(reversed(kept)))


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
    origin, offset = read_wire(body, len(_MAGIC))
    serial, end, count = struct.unpack_from("!I32sI", body, offset)
    offset += 40
    differences: list[Difference] = []
    for _ in range(count):
        gone, come = struct.unpack_from("!II", body, offset)
        offset += 8
        found: list[Record] = []
        for _ in range(2 + gone + come):
            record, offset = unpack(body, offset)
            found.append(record)
        differences.append(Difference(found[0], found[1], tuple(found[2 : 2 + gone]), tuple(found[2 + gone :])))
    links = [each.from_serial for each in differences[1:]] + [serial]
    if offset != len(body) or any(each.to_serial != link for each, link in zip(differences, links, strict=False)):
        raise ValueError("its chain is broken")
    return Journal(origin, serial, end, tuple(differences))


def _pack_difference(change: Difference) -> bytes:
    head = struct.pack("!II", len(change.removed), len(change.added))
    return head + b"".join(map(pack, (change.old, change.new, *change.removed, *change.added)))


def describe(journal: Journal) -> str:
    """One line for a log: what IXFR can start from."""
    if not journal.differences:
        return f"zone {to_text(journal.origin)} serial {journal.serial}, no earlier one"
    first = journal.differences[0].from_serial
    return f"zone {to_text(journal.origin)} serials {first} to {journal.serial}"
