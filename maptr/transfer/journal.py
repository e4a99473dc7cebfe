"""The journal of a zone: the changes from serial to serial, from which the server answers IXFR (RFC 1995).

A journal is a chain of differences (``zone/diff.py``). Each is packed once, in the format of the journal's file, and
unpacked only while it is sent. So the cost of a reload depends on its changes, not on the size of the journal.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from maptr.errors import JournalError
from maptr.protocol.names import Folded, fold, read_wire, to_wire
from maptr.protocol.serial import is_newer
from maptr.zone.diff import Difference, digest
from maptr.zone.snapshot import ZoneView

# A reload adds one difference. A secondary that is further behind gets the whole zone. Knot keeps 20 or more.
MAX_DIFFERENCES = 100
# Bytes of a journal in memory and in its file: many times the changes of the NAAN registry in a year.
MAX_BYTES = 16 * 1024 * 1024

_MAGIC = b"maptr journal 3\n"
_CHECKSUM = 32  # bytes of SHA-256
_HEAD = struct.Struct("!I32sI")  # the serial and the digest at its end, number of differences
_DIFFERENCE = struct.Struct("!4I")  # serials, number of records, bytes of the records


@dataclass(frozen=True, slots=True)
class Journal:
    """An unbroken chain of differences that ends at the version of the zone with this serial and ``digest``."""

    origin: Folded
    serial: int
    digest: bytes
    differences: tuple[Difference, ...] = ()

    @classmethod
    def start(cls, view: ZoneView) -> Journal:
        """Return the empty journal of a zone that has no known earlier version."""
        return cls(view.origin, view.serial, digest(view))

    def fits(self, view: ZoneView) -> bool:
        """Return whether the chain ends at this version, with the same serial and the same content."""
        return (self.origin, self.serial) == (view.origin, view.serial) and self.digest == digest(view)

    @property
    def first_serial(self) -> int:
        """The oldest serial from which IXFR can start."""
        return self.differences[0].from_serial if self.differences else self.serial

    def since(self, serial: int) -> tuple[Difference, ...] | None:
        """Return the differences from a serial to the zone's; None if the serial is not in the journal."""
        for number in range(len(self.differences) - 1, -1, -1):
            if self.differences[number].from_serial == serial:
                return self.differences[number:]
        return None

    def extend(self, old: ZoneView, new: ZoneView, changed: Sequence[bytes] | None = None) -> Journal:
        """Return the journal after a reload, without the oldest differences if it would exceed its limits.

        If the serial did not increase (RFC 1982), a new journal starts, because secondaries cannot follow the change.
        ``changed`` is as in ``Difference.between``.
        """
        change = Difference.between(old, new, changed)
        if change is None:
            return self
        after = digest(new)
        if self.serial != old.serial or not is_newer(new.serial, old.serial):
            return Journal(new.origin, new.serial, after)
        kept: list[Difference] = []
        size = 0
        for each in reversed((*self.differences, change)):
            size += _DIFFERENCE.size + len(each.data)
            if size > MAX_BYTES or len(kept) == MAX_DIFFERENCES:
                break
            kept.append(each)
        return Journal(new.origin, new.serial, after, tuple(reversed(kept)))


def encode(journal: Journal) -> bytes:
    """Return a journal in its file format, which ends with a checksum."""
    head = _HEAD.pack(journal.serial, journal.digest, len(journal.differences))
    parts = [_MAGIC, to_wire(journal.origin), head]
    for each in journal.differences:
        parts += _DIFFERENCE.pack(each.from_serial, each.to_serial, each.count, len(each.data)), each.data
    body = b"".join(parts)
    return body + hashlib.sha256(body).digest()


def decode(data: bytes) -> Journal:
    """Return the journal from the content of its file. Raises JournalError for a damaged file or another version."""
    if not data.startswith(_MAGIC):
        raise JournalError("not a journal, or one of another version")
    body = data[:-_CHECKSUM]
    if hashlib.sha256(body).digest() != data[-_CHECKSUM:]:
        raise JournalError("damaged: the checksum is wrong")
    differences: list[Difference] = []
    try:
        origin, offset = read_wire(body, len(_MAGIC))
        serial, end, count = _HEAD.unpack_from(body, offset)
        offset += _HEAD.size
        for _ in range(count):
            old, new, records, size = _DIFFERENCE.unpack_from(body, offset)
            offset += _DIFFERENCE.size + size
            differences.append(Difference(old, new, records, body[offset - size : offset]))
    except (IndexError, struct.error):
        offset = -1
    if offset != len(body):
        raise JournalError("damaged: its length is wrong")
    return Journal(fold(origin), serial, end, tuple(differences))
