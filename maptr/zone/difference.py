"""A zone as single records, and what leads from one version of it to the next, as IXFR sends it (RFC 1995).

RRset by RRset, for people to look at, is ``zonediff.py``; differences one after the other are a ``journal.py``.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from maptr.protocol.names import Labels, fold, read_wire, to_wire
from maptr.protocol.numbers import RRSIG, SOA
from maptr.zone.packed import changed_names
from maptr.zone.snapshot import Node, ZoneView

SERIAL = slice(-20, -16)  # in the rdata of an SOA: five 32-bit numbers end it (RFC 1035 3.3.13)


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


def difference(old: ZoneView, new: ZoneView) -> Difference | None:
    """What changed between two versions of a zone, in canonical order of names; None where nothing did.

    Owners count with their case, so that a name written otherwise is sent anew; so does a record whose TTL changed.
    """
    removed: list[Record] = []
    added: list[Record] = []
    for key in changed_names(old.nodes, new.nodes):
        before, after = old.nodes.get(key, {}), new.nodes.get(key, {})
        if before == after:
            continue
        gone, come = set(_node_records(before)), set(_node_records(after))
        removed += gone - come
        added += come - gone
    if not removed and not added:
        return None
    soa = [soa_of(view) for view in (old, new)]
    return Difference(soa[0], soa[1], _sorted(removed), _sorted(added))


def records(view: ZoneView) -> Iterator[Record]:
    """Every record of a zone but its SOA, in the zone's own order."""
    for node in view.nodes.values():
        for record in _node_records(node):
            if record.rdtype != SOA:
                yield record


def soa_of(view: ZoneView) -> Record:
    return Record(view.soa.owner, SOA, view.soa.ttl, view.soa.rdatas[0])


def serial_of(soa: Record) -> int:
    """The serial of an SOA, whose names may be compressed: it stands at a fixed place from the end."""
    return int.from_bytes(soa.rdata[SERIAL], "big")


def digest(view: ZoneView) -> bytes:
    """SHA-256 over all records, however they are ordered: equal for equal zones, in every process."""
    content = hashlib.sha256()
    for record in sorted([soa_of(view), *records(view)], key=_order):
        content.update(pack(record))
    return content.digest()


def pack(record: Record) -> bytes:
    """A record as octets, for a digest and a file."""
    head = struct.pack("!HIH", record.rdtype, record.ttl, len(record.rdata))
    return to_wire(record.owner) + head + record.rdata


def unpack(body: bytes, offset: int) -> tuple[Record, int]:
    """The record that ``pack`` wrote there, and where it ends. Raises ValueError, IndexError, struct.error."""
    owner, offset = read_wire(body, offset)
    rdtype, ttl, length = struct.unpack_from("!HIH", body, offset)
    end = offset + 8 + length
    if end > len(body):
        raise ValueError("a record is cut")
    return Record(owner, rdtype, ttl, body[offset + 8 : end]), end


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


def _sorted(found: Iterable[Record]) -> tuple[Record, ...]:
    return tuple(sorted((record for record in found if record.rdtype != SOA), key=_order))


def _order(record: Record) -> tuple[object, ...]:
    return fold(record.owner)[::-1], record
