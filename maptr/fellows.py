"""Fellows: who else has the same reply as a question, for whoever knows replies by less than the whole query.

Names that do not exist are asked once each, and as many as somebody likes; so are names below a delegation, and types
that names lack. Their replies differ in nothing but the question. Which names those are is said here by looks into the
zone's table, so that a reply learned from one serves all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from maptr.ready import Ready, Shared
from maptr.readyzone import ReadyZone, is_alone

_NOWHERE: Mapping[bytes, bytes] = MappingProxyType({})


class Fellows(NamedTuple):
    """Who has the same reply as a question: all that differ from it in the octets of the first label, but as long.

    Not ``labels``, each after its length. If ``absent``, it is for the names of which ``find`` has no value; otherwise
    for those of which ``read`` has one packed RRset, of another type and no alias. ``find`` may give lines instead.
    Where there is ``gap``, it is for those names alone that lie in the same gap of a chain.
    """

    find: Callable[[bytes], bytes | None]
    read: Callable[[bytes], bytes]
    labels: frozenset[bytes]
    absent: bool
    gap: Callable[[bytes], int] | None = None

    @classmethod
    def everywhere(cls, labels: frozenset[bytes] = frozenset()) -> Fellows:
        """All but for the labels, for no zone has a say."""
        return cls(_NOWHERE.get, _NOWHERE.__getitem__, labels, True)

    @classmethod
    def within(cls, zone: ReadyZone, name: bytes, ready: Ready, origins: frozenset[bytes]) -> Fellows | None:
        """Those of a name below the zone's origin, as folded wire; None where the reply is of this name alone.

        ``origins`` are the labels that make zones beside the name.
        """
        first = name[0] + 1
        rest = name[first:]
        labels = origins | zone.soa_words | zone.cuts.get(rest, frozenset())
        if name[:first] in labels:
            return None  # none of the others' plans is for it, nor its own for them
        packed = zone.find(name)
        if packed is None:
            gap = None
            if ready.shared is Shared.BY_PROOF:
                gap = zone.gap(rest) if rest in zone.table else _one_gap
            return cls(zone.table.get, zone.read, labels, True, gap)
        empty = ready.kind is None and ready.head[4:6] == b"\0\0"
        if empty and not zone.layered and not zone.signed and is_alone(packed):
            return cls(zone.table.get, zone.read, labels, False)
        return None


def _one_gap(name: bytes) -> int:
    """Below what does not exist, all names lie in the same."""
    return 0
