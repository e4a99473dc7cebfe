"""Plans: what the replies are made of whose questions need no look at a zone any more, learned from ReadyAnswers.

What a *plan* is says ``plan.py``, and by which octets of queries they are found, ``plantables.py``. Here they are made,
kept as long as they serve, with what they point to, and forgotten. Nothing that never comes twice stays: patterns are
learned the second time, names that do not exist never. All tables are bounded, each for itself.
"""

from __future__ import annotations

from collections.abc import Hashable

from maptr.context import MIN_PAYLOAD
from maptr.cookies import WHOLE_COOKIE
from maptr.fastpath import ReadyAnswers
from maptr.protocol import AAAA, NAPTR, NOERROR, TXT, A
from maptr.ready import HEADER, RD, TC, Found, Shared, with_cookie
from maptr.request import Request
from maptr.serve.deepplans import DeepPlans
from maptr.serve.plan import FIRST, HEAD, ID, USUAL_SIZE, pack
from maptr.serve.plantables import MAX_SHARED, PlanTables
from maptr.serve.slots import key_of

# NODATA is learned by name, for some thousand names: origins, and others for types that are asked much. HTTPS is type
# 65, which is a letter, and better known by patterns, which tell its case.
COMMON_TYPES = frozenset({A, TXT, AAAA, NAPTR})
_PROVED = (Shared.BY_PROOF, Shared.BY_NONE)
MAX_PROVED = 1 << 15  # plans with proofs, 1,200 to 1,500 octets each with their replies


class Plans:
    """All that was learned of one ReadyAnswers. Plans point into its octets, so it lives as long as they do."""

    def __init__(self, ready: ReadyAnswers) -> None:
        self.ready = ready
        self.tables = PlanTables(DeepPlans(ready.zones, ready.depth))
        self._kinds: dict[bytes, Hashable] = {}  # of shared plans that have one whatever the name
        self._kinds_by_name: dict[bytes, Hashable] = {}  # of plans that only one name has
        self._kinds_proved: dict[bytes, Hashable] = {}  # of plans with proofs
        self._kinds_now: dict[bytes, Hashable] = {}  # of those that nobody keeps
        self._shared: dict[Hashable, bytes] = {}
        # What plans point into: those by whole keys, shared ones, and of this batch those that nobody keeps. The tables
        # of zones have it as well, but may get an equal value in its place, where two threads pack a name at once.
        self._alive: list[bytes] = []
        self._alive_now: list[bytes] = []
        self._alive_proved: list[bytes] = []
        self._alive_shared: list[object] = []
        self._denials = 0  # plans of names for types that they lack
        self._names_full = self._shared_full = False
        self._opts: dict[tuple[bytes, bool], bytes] = {}  # few, by those of replies; with room for a cookie or without

    def look_up(self, query: bytes) -> tuple[bytes, bytes | None] | None:
        """The plan for a query that the tables do not know as it is, and its cookie; None for the general path."""
        request = self.ready.read(query, stream=False)
        if isinstance(request, Request):
            plain = request.plain(query)
            if plain is not query:
                # Whatever else it has, there is no end to, but what it asks for may be known.
                plan, cookie = self.tables.find_alone(plain[ID:])
                if plan is not None:
                    return plan, cookie or None
            query, found = plain, self.ready.answer(plain, request, stream=False)
        else:
            found = request
        return None if found is None else (self.learn(query, found), found.cookie)

    def learn(self, query: bytes, found: Found) -> bytes:
        """The plan of a ready reply, kept where it may serve again."""
        size = 0 if found.cookie is None else len(found.cookie)
        plan = self._share(query, found)
        ready = found.ready
        if found.question_end == HEADER or ready.shared is Shared.BY_NONE:
            return plan  # without a question there is nothing to know it by
        whole = found.key_size(query)
        if not whole:
            return plan  # with more octets it comes in more ways than can be learned
        answered = any(ready.head[4:6])
        proved = ready.shared is Shared.BY_PROOF
        deep = ready.shared is Shared.BY_ORIGIN and found.size() <= MIN_PAYLOAD
        if (deep or (proved and not answered)) and not size:
            kept = self.tables.deep.put(query[ID:whole], plan, proved=proved)
            if kept and proved:
                self._alive_proved.append(ready.body)
                self._kinds_proved[plan] = ready.kind
        if not answered or proved or (ready.start and ready.kind is not None):
            # What does not exist, or as a wildcard, seldom comes again: kept when what is behind its first label does.
            tail = query[HEADER + 1 + query[HEADER] : whole].lower()
            if not self.tables.deep.tails.again(tail):
                return plan
        # Outside the name there is no case: two octets that differ by 32 are two things (types 65 and 97).
        name_end = found.question_end - 4
        rest = query[name_end:whole]
        large = False
        if ready.opt:
            if found.size() > MIN_PAYLOAD or ready.head[0] & TC:
                large = rest[7:9] == USUAL_SIZE
            else:
                rest = rest[:7] + USUAL_SIZE + rest[9:]
        name = query[HEADER:name_end].lower()
        octets, around = query[ID:HEADER] + name + rest, query[ID:HEADER] + rest
        # What stands in the zone's table under its own name is there, and nobody else's.
        packed = ready.start and ready.kind is None
        fellows = None if packed else self.ready.fellows(query, found)
        if proved and fellows is None:
            return plan
        exists = fellows is None or not fellows.absent
        qtype = int.from_bytes(query[name_end : name_end + 2], "big")
        tables = self.tables
        common = qtype in COMMON_TYPES or name in self.ready.zones
        if exists and (answered or (common and self._denials < MAX_SHARED)):
            key = octets if size else key_of(octets)
            full = tables.is_full()
            if not tables.put(key, plan, cookie=bool(size), large=large, lettered=around != around.upper()):
                return plan  # of another in this batch, and what that one points to is alive
            self._names_full = self._names_full or full
            self._denials += not answered
            if packed:
                self._alive.append(ready.body)
        elif fellows is not None:
            pattern = (octets[: FIRST + 1] + octets[FIRST + 1 + name[0] :]).lower()
            exact = None if around.lower() == around.upper() else around
            kept = tables.put_pattern(
                pattern,
                plan,
                fellows,
                name=name,
                name_end=whole - name_end,
                exact=exact,
                cookie=bool(size),
                large=large,
            )
            if kept and proved:
                self._alive_proved.append(ready.body)
                self._kinds_proved[plan] = ready.kind
        return plan

    def kind(self, plan: bytes, query: bytes) -> Hashable:
        """What a rate limit counts the reply to a query without its ID by, as ``Found.kind`` says."""
        kind = self._kinds.get(plan)
        if kind is None:
            kind = self._kinds_proved.get(plan) or self._kinds_now.get(plan) or self._kinds_by_name.get(plan)
        if kind is None:
            end = int.from_bytes(plan[8:16], "little") - 2
            answered = plan[HEAD + 4 : HEAD + 6] != b"\0\0"
            qtype = query[end - 4] << 8 | query[end - 3] if answered else 0
            kind = NOERROR, query[FIRST : end - 4].lower(), qtype
            if answered:  # and so nobody else's, while all names of a zone may share an empty reply
                if len(self._kinds_by_name) >= MAX_SHARED:
                    self._kinds_by_name.clear()
                self._kinds_by_name[plan] = kind
        return kind

    def _share(self, query: bytes, found: Found) -> bytes:
        """The plan of a reply, one object for all who ask as long a question for the same octets."""
        ready = found.ready
        if (ready.start and ready.kind is None) or ready.shared in _PROVED:
            self._alive_now.append(ready.body)
            plan = self._pack(query, found)
            if ready.kind is not None:
                self._kinds_now[plan] = ready.kind
            return plan
        # The records of a wildcard are a part of the table, too, but not its own reply.
        what = (id(ready.body), ready.start, ready.opt, ready.kind) if ready.start else id(ready)
        key = what, found.question_end, query[2] & RD, found.cookie is not None
        shared = self._shared.get(key)
        if shared is not None:
            return shared
        if len(self._shared) >= MAX_SHARED:
            self._shared_full = True
        self._alive_shared.append(ready)
        plan = self._shared[key] = self._pack(query, found)
        if ready.kind is not None:
            self._kinds[plan] = ready.kind
        return plan

    def _pack(self, query: bytes, found: Found) -> bytes:
        ready = found.ready
        cookie = found.cookie is not None
        opt = self._opts.get((ready.opt, cookie))
        if opt is None:
            opt = self._opts[ready.opt, cookie] = with_cookie(ready.opt) if cookie else ready.opt
        return pack(ready, opt, question_end=found.question_end, flags=query[2], cookie=cookie * WHOLE_COOKIE)

    def sent(self) -> None:
        """After each batch: its plans are used no more, so what has grown too large can be forgotten.

        What floods fill is not what names fill, and goes without it.
        """
        self._alive_now.clear()
        self._kinds_now.clear()
        if self._names_full:
            self._names_full, self._denials = False, 0
            self.tables.forget_names()
            self._kinds_by_name.clear()
            self._alive.clear()
        if self._shared_full:
            self._shared_full = False
            self._forget_shared()
        if len(self._alive_proved) >= MAX_PROVED:
            self.tables.forget_proved()
            self.tables.deep.forget_proved()
            self._alive_proved.clear()
            self._kinds_proved.clear()

    def _forget_shared(self) -> None:
        self.tables.forget_patterns()
        self.tables.forget_plans({*self._shared.values()})
        self._denials = 0
        self.tables.deep.forget()
        for table in (self._shared, self._kinds, self._alive_shared):
            table.clear()
