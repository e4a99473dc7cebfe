"""Proofs: signed replies that deny, laid out of what they say and the records that prove it.

There are as many such replies as pairs or triples of records in a chain, so hardly any comes twice in a flood. What
they say is learned from the general path once a kind, as the octets before its proof; ``denial.py`` says what proves;
here is where these records then lie, as ``packet.Writer`` would write them. The first layout of a kind is held
against the general path's. Replies whose names would compress in other ways are not laid out here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from maptr.names import ROOT, to_wire
from maptr.packet import MAX_POINTER, RECORD
from maptr.protocol import IN, RRSIG
from maptr.ready import CLASS_IN, DO, HEADER, MIN_QUESTION, Mould, Ready, Shared
from maptr.snapshot import RRset

# Records, half a kilobyte each, and kinds of replies. Past that all are forgotten.
MAX_PARTS = 8192
MAX_KINDS = 1024

_AUTHORITY = slice(6, 8)  # the count in the head of a Ready


class Asked(NamedTuple):
    """The name of a question, folded, with the octets before its zone's origin, and the label in front of that."""

    name: bytes
    place: int
    top: bytes

    def end(self) -> int:
        """Where the question ends."""
        return HEADER + len(self.name) - 1 + MIN_QUESTION


class _Part(NamedTuple):
    """A RRset and its signatures: ``records`` from their types on. ``size`` is all of them after a whole owner."""

    owner: bytes  # folded
    below: bytes  # the origin, as it is spelled
    top: bytes
    records: tuple[bytes, ...]
    size: int


class _Frame:
    """What replies of a kind say before the proof, by where the origin lies in the name asked."""

    def __init__(self, ready: Ready, place: int) -> None:
        self._mould = Mould.of(ready, place)
        self._by_place: dict[int, Ready] = {}

    def at(self, place: int) -> Ready:
        ready = self._by_place.get(place)
        if ready is None:
            ready = self._by_place[place] = self._mould.at(place)
        return ready


class Proofs:
    """The denials of one zone, whose SOA names hosts with these ``soa_labels`` in front of the origin."""

    def __init__(self, origin: bytes, soa_labels: frozenset[bytes]) -> None:
        self._origin = origin
        self._soa_labels = soa_labels
        self._parts: dict[int, _Part] = {}  # by the identity of the RRset, which the chain keeps
        self._frames: dict[Hashable, _Frame | None] = {}

    def reply(
        self,
        kind: Hashable,
        asked: Asked,
        qtype: int,
        proof: Sequence[RRset],
        ask: Callable[[bytes, int], Ready | None],
        shared: Shared,
    ) -> Ready | None:
        """The reply of that kind with that proof; ``ask`` is ``Learned.ask``. None where it is not laid out here."""
        if asked.top in self._soa_labels or not asked.top or self._origin == ROOT:
            return None
        parts = [self._parts.get(id(rrset)) or self._part(rrset) for rrset in proof]
        try:
            frame = self._frames[kind]
        except KeyError:  # looked at once, as in ``learned.py``
            if len(self._frames) >= MAX_KINDS:
                self._frames.clear()
            frame = self._frames[kind] = self._learn(asked, qtype, parts, ask)
        if frame is None:
            return None
        said = frame.at(asked.place)
        laid = self._lay(asked, parts, asked.end() + said.end)
        if laid is None:
            return None
        body = said.body + laid
        records = int.from_bytes(said.head[_AUTHORITY], "big")
        for part in parts:
            records += len(part.records)
        head = said.head[:6] + records.to_bytes(2, "big") + said.head[8:]
        return Ready(head, body, 0, len(body), said.opt, said.kind, shared)

    def _learn(
        self, asked: Asked, qtype: int, parts: list[_Part], ask: Callable[[bytes, int], Ready | None]
    ) -> _Frame | None:
        """What the general path says before the proof; None where it has another proof than would be laid out."""
        whole = ask(asked.name + qtype.to_bytes(2, "big") + CLASS_IN, DO)
        size = len(self._lay(asked, parts, 0) or b"")
        if whole is None or not size or size > whole.end:
            return None
        end = whole.end - size
        if whole.body[end:] != self._lay(asked, parts, asked.end() + end):
            return None
        records = int.from_bytes(whole.head[_AUTHORITY], "big") - sum(len(part.records) for part in parts)
        head = whole.head[:6] + records.to_bytes(2, "big") + whole.head[8:]
        return _Frame(whole._replace(head=head, body=whole.body[:end], end=end), asked.place)

    def _lay(self, asked: Asked, parts: list[_Part], at: int) -> bytes | None:
        """The records of a proof that starts there; None where an owner shares more than the origin with others."""
        name, place, top = asked
        to_origin = _pointer(HEADER + place)
        laid = []
        branch = b""
        for owner, below, its_top, records, size in parts:
            if not its_top:
                laid.append(to_origin)
                laid.append(to_origin.join(records))
            elif its_top == top:
                to_owner = _within(name, owner)
                if to_owner is None:
                    return None
                laid.append(to_owner)
                laid.append(to_owner.join(records))
                size -= len(below)
            elif its_top in self._soa_labels or its_top == branch:
                # A wildcard and what is below it: of any other branch only the last record proves something.
                return None
            else:
                branch = its_top
                laid.append(below)
                laid.append(to_origin)
                laid.append(_pointer(at).join(records))
            at += size
        return b"".join(laid) if at <= MAX_POINTER else None

    def _part(self, rrset: RRset) -> _Part:
        if len(self._parts) >= MAX_PARTS:
            self._parts.clear()
        owner = to_wire(rrset.owner)
        below = owner[: len(owner) - len(self._origin)]
        at = 0
        while at < len(below) and at + below[at] + 1 < len(below):
            at += below[at] + 1
        records = (
            *(RECORD.pack(rrset.rdtype, IN, rrset.ttl, len(rdata)) + rdata for rdata in rrset.rdatas),
            *(RECORD.pack(RRSIG, IN, rrset.ttl, len(rdata)) + rdata for rdata in rrset.signatures),
        )
        size = len(below) + sum(map(len, records)) + 2 * len(records)
        part = self._parts[id(rrset)] = _Part(owner.lower(), below, below[at:].lower(), records, size)
        return part


def _within(name: bytes, owner: bytes) -> bytes | None:
    """A pointer to the owner in the question for that name, None where that is not at or above the name."""
    place, at = len(name) - len(owner), 0
    while at < place:
        at += name[at] + 1
    return _pointer(HEADER + place) if name[at:] == owner else None


def _pointer(place: int) -> bytes:
    """Compression (RFC 1035 4.1.4)."""
    return (0xC000 | place).to_bytes(2, "big")
