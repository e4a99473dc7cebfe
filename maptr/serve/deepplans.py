"""Plans for what does not exist, however deep: random names of several labels below an origin, or outside of all zones.

The patterns of ``plantables.py`` know all names that differ in the first label alone. Who makes up other labels, too,
makes as many patterns as queries. But all names that a zone does not have get one reply, whose records point to nothing
in the question but the origin (``ready.Shared.BY_ORIGIN``). So a plan is known by what of the query is not below the
origin, and by how long the name is; where it has a proof, also by the gap of the chain in which the label next to the
origin lies. Such a plan is for all whose label next to the origin is not in the zone's table either, and for all that
are not in there themselves where the zone has neither wildcards nor delegations. Cookies are left to others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from maptr.ready import NO_RECORDS, ONE_RECORD, OPT_SIZE, find_labels
from maptr.readyzone import ReadyZone
from maptr.serve.plan import FIRST, ID, USUAL_SIZE

MAX_DEEP = 1 << 14  # plans by length of the name, type and so on, 200 octets each with their keys
MAX_SEEN = 1 << 14
OFTEN = 4  # times that a tail came: to learn a pattern takes as long as ten queries by these plans, and saves half

_COUNTS = slice(FIRST - 6, FIRST)
# Behind the name: type and class, then an OPT without options, and what it says of the payload's size.
_BARE = 4
_WITH_OPT = _BARE + OPT_SIZE
_SIZE = slice(_BARE + 3, _BARE + 5)
_DO = _BARE + 7  # the octet with that flag
_LAST = 5  # octets of version, flags and options of an OPT, or of the root, type and class
NEITHER = b"", b""


class Seen:
    """How often octets were seen, of some thousand."""

    def __init__(self) -> None:
        self._times: dict[bytes, int] = {}

    def again(self, octets: bytes) -> int:
        """How often these were seen before."""
        times = self._times.get(octets, 0)
        if not times and len(self._times) >= MAX_SEEN:
            self._times.clear()
        self._times[octets] = times + 1
        return times

    def forget(self) -> None:
        self._times.clear()


class DeepPlans:
    """Of those ``zones`` by origin as folded wire, of at most ``depth`` labels; False is for others to answer."""

    def __init__(self, zones: Mapping[bytes, ReadyZone | Literal[False]], depth: int) -> None:
        self.tails = Seen()  # what was behind first labels: if it comes often, a pattern is better
        self._zones = zones
        self._depth = depth
        self._plans: dict[bytes, bytes] = {}
        self._proved: dict[bytes, bytes] = {}
        self._kinds: set[bytes] = set()  # what is before the name of such a query, and its last octets

    def fill(
        self,
        which: Sequence[int],
        plans: list[bytes | None],
        queries: Sequence[bytes],
        sizes: Sequence[int],
        *,
        enough: bool,
    ) -> list[int]:
        """As ``PlanTables.fill``; which were not found, or had better be patterns if there are not ``enough``."""
        missed = []
        kinds = self._kinds
        for i in which:
            query, end = queries[i], sizes[i] - ID
            # What may be is seen first, for a walk over the labels takes longer.
            if query[:FIRST] + query[end - _LAST : end] in kinds:
                shape, tail = self._read(query, end)
                plan = self._plans.get(shape) or self._proved.get(shape)
                if plan is not None and (self.tails.again(tail) < OFTEN or enough):
                    plans[i] = plan
                    continue
            missed.append(i)
        return missed

    def put(self, query: bytes, plan: bytes, *, proved: bool) -> bool:
        """Keep the plan of a reply to a query without ID that is BY_ORIGIN and fits everybody, or BY_PROOF.

        Whether it is kept.
        """
        shape, _ = self._read(query, len(query))
        if not shape or shape in self._proved:
            return False
        if len(self._plans) >= MAX_DEEP:
            self.forget()
        (self._proved if proved else self._plans)[shape] = plan
        self._kinds.add(query[:FIRST] + query[-_LAST:])
        return True

    def forget(self) -> None:
        """Forget all but proofs."""
        self._plans.clear()
        self._kinds.clear()
        self.tails.forget()

    def forget_proved(self) -> None:
        self._proved.clear()

    def _read(self, query: bytes, end: int) -> tuple[bytes, bytes]:
        """What of a query of that size its plan is known by, and what is behind its first label; empty for none."""
        offsets = find_labels(query, FIRST, end)
        if offsets is None or len(offsets) == 1:
            return NEITHER
        name_end = FIRST + offsets[-1] + 1
        rest, counts, do = query[name_end:end], query[_COUNTS], False
        if counts == ONE_RECORD:
            if len(rest) != _WITH_OPT:
                return NEITHER
            do = bool(rest[_DO] & 0x80)
        elif counts != NO_RECORDS or len(rest) != _BARE:
            return NEITHER
        name = query[FIRST:name_end].lower()
        below = offsets[max(0, len(offsets) - self._depth - 1)]
        origin, gap, proved = b"", 0, False
        for place in offsets[-self._depth :]:
            zone = self._zones.get(name[place:])
            if zone is None:
                below = place
                continue
            # Right below the origin all have one tail, and so a pattern soon.
            if not zone or not below:
                return NEITHER
            origin, closer = name[place:], name[below:]
            if closer[: closer[0] + 1] in zone.soa_words:
                return NEITHER
            proved = do and zone.signed
            # Where there is no wildcard to be met below it, no name below one that exists.
            if (name if zone.flat and not proved else closer) in zone.table:
                return NEITHER
            if proved:
                number = zone.gap(origin)
                if number is None:
                    return NEITHER
                gap = number(closer)
            break
        if counts == ONE_RECORD and not proved:
            rest = rest[: _SIZE.start] + USUAL_SIZE + rest[_SIZE.stop :]
        return b"%b%c%b%b%d" % (query[:FIRST], offsets[-1], origin, rest, gap), name[offsets[1] :] + rest
