"""Plans: what the replies are made of whose questions need no look at a zone any more, learned from ReadyAnswers.

What a *plan* is says ``plan.py``.
Keys are queries without ID as ``slots.key_of`` has them, with the name in lower case. Two ways lead to a plan:

* the whole key, for names that exist;
* a *pattern*, which is a query without the octets of its first label, for names that do not exist, referrals, refusals
  and types that a name does not have. Its length stands before the label, so the rest lies where it lay. Whether a
  name is meant is one look into the zone's table (``fastpath.Fellows``).

Cookies have tables of their own, for their plans leave a place for the answer; keys there are the octets before the
cookie. Replies that fit into what every client takes are kept for queries with the usual payload size, and found for
any other. Nothing that never comes twice stays: patterns are learned the second time, names that do not exist never.
All tables are bounded, each for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from maptr.cookies import CLIENT_COOKIE
from maptr.fastpath import ReadyAnswers
from maptr.ready import (
    COOKIE,
    COOKIE_REPLY,
    HEADER,
    MIN_PAYLOAD,
    NOERROR,
    OPT_SIZE,
    OPT_START,
    RD,
    Found,
    Shared,
    with_cookie,
)
from maptr.readyzone import is_alone
from maptr.serve.jar import WHOLE_COOKIE
from maptr.serve.plan import FIRST, HEAD, ID, pack
from maptr.serve.slots import LENGTH, key_of

MAX_KNOWN = 110_000  # plans by whole keys, 300 octets each with their keys: 100,000 names asked in one way
MAX_SHARED = 1 << 14  # plans of replies that many questions share, and patterns
# NODATA is learned by name, for some thousand names, for types that are asked much: A, TXT, AAAA, NAPTR. HTTPS is type
# 65, which is a letter, and better known by patterns, which tell its case.
COMMON_TYPES = frozenset({1, 16, 28, 35})
MIN_KEY = FIRST + 5

USUAL_SIZE = (1232).to_bytes(2, "big")  # what most resolvers say since 2020; none of its octets is a letter
_USUAL_END = USUAL_SIZE[1]
_SIZED = 8  # octets of an OPT from its size on
_WHOLE_OPTION = COOKIE + bytes((0, WHOLE_COOKIE))
# The octet before the last eight: the length of a client's cookie, or the type of a bare OPT.
_MARK, _BARE = CLIENT_COOKIE + 1, OPT_START[-1]
_MIN_CLIENT = MIN_KEY + OPT_SIZE + 4 + CLIENT_COOKIE
_MIN_WHOLE = MIN_KEY + OPT_SIZE + COOKIE_REPLY
_FIRST_LETTER = ord("A")  # as the length of a query


_PROVED = (Shared.BY_NONE, Shared.BY_NONE_LATER)


class Special(NamedTuple):
    """What of a pattern is not so for most.

    ``labels`` are those of Fellows that are as long as the first label of the pattern, ``exact`` is what a query must
    have around its name where a letter is among that, for lower case would hide it, ``read`` as in Fellows, and
    ``other`` the plan for types that a name does not have.
    """

    labels: frozenset[bytes]
    exact: bytes | None
    read: Callable[[bytes], bytes]
    other: bytes | None


# For all names of a pattern: octets after the name, ``find`` as in Fellows, the plan for absent names.
Pattern = tuple[int, Callable[[bytes], bytes | None], bytes | None, Special | None]


# What is done with a query that ends in some way: where its plan and pattern are found, how far before the end its
# payload size ends (0 for none).
_Kind = tuple[Callable[[bytes], bytes | None], Callable[[bytes], Pattern | None], int]


class Plans:
    """All that was learned of one ReadyAnswers. Plans point into its octets, so it lives as long as they do."""

    def __init__(self, ready: ReadyAnswers) -> None:
        self.ready = ready
        self.known: dict[bytes, bytes] = {}
        self._with_cookie: dict[bytes, bytes] = {}
        self._patterns: dict[bytes, Pattern] = {}
        self._patterns_with_cookie: dict[bytes, Pattern] = {}
        self._kinds: dict[bytes, Hashable] = {}  # of shared plans that have one whatever the name
        self._kinds_by_name: dict[bytes, Hashable] = {}  # of plans that only one name has
        self._kinds_now: dict[bytes, Hashable] = {}  # of plans with proofs, which nobody keeps
        self._shared: dict[Hashable, bytes] = {}
        self._lettered: set[bytes] = set()  # keys with a small letter around the name, where a capital is another
        self._large: set[bytes] = set()  # keys of the usual size whose replies not everybody takes
        self._large_patterns: set[bytes] = set()
        self._seen: set[bytes] = set()  # patterns met once
        self._types: dict[bytes, bytes] = {}  # by name, of patterns for other types
        # What plans point into: those by whole keys, shared ones, and of this batch those that nobody keeps. The tables
        # of zones have it as well, but may get an equal value in its place, where two threads pack a name at once.
        self._alive: list[bytes] = []
        self._alive_now: list[bytes] = []
        self._alive_shared: list[object] = []
        self._denials = 0  # plans of names for types that they lack
        self._names_full = self._shared_full = False
        self._long_opts: dict[bytes, bytes] = {}
        # For queries that end in a bare OPT, in a cookie, or otherwise.
        self._by_end: tuple[_Kind, _Kind, _Kind] = (
            (self.known.get, self._patterns.get, _SIZED - 1),
            (self._with_cookie.get, self._patterns_with_cookie.get, _SIZED + 3),
            (self.known.get, self._patterns.get, 0),
        )

    def fill(
        self, which: list[int], plans: list[bytes | None], queries: Sequence[bytes], sizes: Sequence[int]
    ) -> tuple[list[int], list[tuple[int, bytes]]]:
        """Put plans where there are none yet. Which were not found, and who of the others sent what cookie.

        ``queries`` as ``slots.key_of`` has them, ``sizes`` with their IDs.
        """
        missed, sized, asked = self._fill_each(which, plans, queries, sizes, True)
        if sized:
            others, _, more = self._fill_each(sized, plans, queries, sizes, False)
            missed += others
            asked += more
        return missed, asked

    def find_alone(self, query: bytes) -> tuple[bytes | None, bytes]:
        """The plan for one query without ID, and its cookie, empty where it has none; None where no plan is known."""
        key = key_of(query)
        plan = self.known.get(key)
        if plan is not None:
            return plan, b""
        plans: list[bytes | None] = [None]
        _, asked = self.fill([0], plans, (key,), (ID + len(query),))
        return plans[0], asked[0][1] if asked else b""

    def _fill_each(
        self,
        which: list[int],
        plans: list[bytes | None],
        queries: Sequence[bytes],
        sizes: Sequence[int],
        resize: bool,
    ) -> tuple[list[int], list[int], list[tuple[int, bytes]]]:
        """Whose plans were not found, of the usual size and of others if they were to be found by the plans of that.

        This is where floods spend their time, so there are no calls in it, but for those of tables.
        """
        missed: list[int] = []
        sized: list[int] = []
        asked: list[tuple[int, bytes]] = []
        bare, with_cookie, plain = self._by_end
        lettered, types = self._lettered, self._types
        large, large_patterns = self._large, self._large_patterns
        for i in which:
            query = queries[i]
            end = sizes[i] - ID
            if end < MIN_KEY:
                missed.append(i)
                continue
            # One octet tells what a query ends in; that it is so tells the key, which has all that stands before.
            mark = query[end - _MARK]
            cookie = None
            if mark == _BARE:
                get, get_pattern, at = bare
            elif mark == CLIENT_COOKIE and end >= _MIN_CLIENT:
                end -= CLIENT_COOKIE
                query, cookie = query[:end], query[end : end + CLIENT_COOKIE]
                get, get_pattern, at = with_cookie
            elif end >= _MIN_WHOLE and query[end - WHOLE_COOKIE - 4 : end - WHOLE_COOKIE] == _WHOLE_OPTION:
                end -= WHOLE_COOKIE
                query, cookie = query[:end], query[end : end + WHOLE_COOKIE]
                get, get_pattern, at = with_cookie
            else:
                get, get_pattern, at = plain
            key = query.lower()
            if end >= _FIRST_LETTER - ID and cookie is None:
                key = key[:-LENGTH] + query[-LENGTH:]
            at = end - at
            other_size = query[at] != _USUAL_END and at < end and resize
            if other_size:
                key = key[: at - 1] + USUAL_SIZE + key[at + 1 :]
                plan = get(key)
                if plan is None or key in large or key in lettered:
                    query = query[: at - 1] + USUAL_SIZE + query[at + 1 :]
                    if key in large or key != query:
                        plan = None
            elif key != query:
                plan = get(key)
                if plan is None or key in lettered:
                    plan = None if cookie is None else get(query)
            else:
                plan = None if cookie is None else get(key)
            if plan is None:
                after = FIRST + 1 + key[FIRST]
                shape = key[: FIRST + 1] + key[after:end]
                pattern = get_pattern(shape)
                if pattern is not None:
                    name_end, find, absent, special = pattern
                    name_end = end - name_end
                    name = key[FIRST:name_end]
                    if other_size and shape in large_patterns:
                        pass
                    elif special is None:
                        if find(name) is None:
                            plan = absent
                    else:
                        labels, exact, read, other = special
                        if key[FIRST:after] not in labels and (
                            exact is None or query[:FIRST] + query[name_end:end] == exact
                        ):
                            rdtype = None if other is None else types.get(name)
                            if rdtype is None:
                                if find(name) is None:
                                    plan = absent
                                elif other is not None:
                                    rdtype = self._learn_type(name, read)
                            if rdtype and query[name_end : name_end + 2] != rdtype:
                                plan = other
                if plan is None:
                    (sized if other_size else missed).append(i)
                    continue
            plans[i] = plan
            if cookie is not None:
                asked.append((i, cookie))
        return missed, sized, asked

    def _learn_type(self, name: bytes, read: Callable[[bytes], bytes]) -> bytes:
        """The only type that a name has, empty where it has none, an alias or several."""
        if len(self._types) >= MAX_SHARED:
            self._types.clear()
        packed = read(name)
        rdtype = self._types[name] = packed[:2] if is_alone(packed) else b""
        return rdtype

    def learn(self, query: bytes, found: Found) -> bytes:
        """The plan of a ready reply, kept where it may serve again."""
        size = 0 if found.cookie is None else len(found.cookie)
        plan = self._share(query, found)
        head = found.ready.head
        if found.question_end == HEADER or found.ready.shared in _PROVED:
            return plan  # without a question there is nothing to know it by; with proofs, nobody to share it
        whole = len(query) - size
        if whole != found.question_end + (OPT_SIZE + bool(size) * 4 if found.ready.opt else 0):
            return plan  # with more octets it comes in more ways than can be learned
        # Outside the name there is no case: two octets that differ by 32 are two things (types 65 and 97).
        name_end = found.question_end - 4
        ready, rest = found.ready, query[name_end:whole]
        large = False
        if ready.opt:
            if found.question_end + ready.end - ready.start + len(ready.opt) + bool(size) * COOKIE_REPLY > MIN_PAYLOAD:
                large = rest[7:9] == USUAL_SIZE
            else:
                rest = rest[:7] + USUAL_SIZE + rest[9:]
        name = query[HEADER:name_end].lower()
        octets, around = query[ID:HEADER] + name + rest, query[ID:HEADER] + rest
        # What stands in the zone's table under its own name is there, and nobody else's.
        packed = found.ready.start and found.ready.kind is None
        fellows = None if packed else self.ready.fellows(query, found)
        exists = fellows is None or not fellows.absent
        qtype = int.from_bytes(query[name_end : name_end + 2], "big")
        answered = any(head[4:6])
        if exists and (answered or (qtype in COMMON_TYPES and self._denials < MAX_SHARED)):
            known = self._with_cookie if size else self.known
            if len(self.known) + len(self._with_cookie) >= MAX_KNOWN:
                self._names_full = True
            self._denials += not answered
            key = octets if size else key_of(octets)
            if packed and key not in known:
                self._alive.append(ready.body)
            known[key] = plan
            if large:
                self._large.add(key)
            if around != around.upper():
                self._lettered.add(key)
        elif fellows is not None:
            patterns = self._patterns_with_cookie if size else self._patterns
            pattern = (octets[: FIRST + 1] + octets[FIRST + 1 + name[0] :]).lower()
            if pattern not in self._seen:
                if len(self._seen) >= MAX_SHARED:
                    self._seen.clear()
                self._seen.add(pattern)
                return plan
            if len(self._patterns) + len(self._patterns_with_cookie) >= MAX_SHARED:
                self._forget_patterns()
            if large:
                self._large_patterns.add(pattern)
            exact = None if around.lower() == around.upper() else around
            absent = other = None
            if pattern in patterns:
                _, _, known_absent, special = patterns[pattern]
                if (special and special.exact) == exact:
                    absent, other = known_absent, special and special.other
            absent, other = (plan, other) if fellows.absent else (absent, plan)
            labels = frozenset(label for label in fellows.labels if label[0] == name[0])
            special = Special(labels, exact, fellows.read, other) if labels or exact or other else None
            patterns[pattern] = whole - name_end, fellows.find, absent, special
        return plan

    def kind(self, plan: bytes, query: bytes) -> Hashable:
        """What a rate limit counts the reply to a query without its ID by, as ``Found.kind`` says."""
        kind = self._kinds.get(plan)
        if kind is None:
            kind = self._kinds_now.get(plan) or self._kinds_by_name.get(plan)
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
        if ready.start and ready.kind is None:
            self._alive_now.append(ready.body)
            return self._pack(query, found)
        if ready.shared is Shared.BY_NONE_LATER:
            self._alive_now.append(ready.body)
            plan = self._pack(query, found)
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
        opt, cookie = ready.opt, 0
        if found.cookie is not None:
            opt = self._long_opts.setdefault(opt, with_cookie(opt))
            cookie = WHOLE_COOKIE
        return pack(ready, opt, question_end=found.question_end, flags=query[2], cookie=cookie)

    def sent(self) -> None:
        """After each batch: its plans are used no more, so what has grown too large can be forgotten.

        What floods fill is not what names fill, and goes without it.
        """
        self._alive_now.clear()
        self._kinds_now.clear()
        if self._names_full:
            self._names_full, self._denials = False, 0
            for table in (self.known, self._with_cookie, self._kinds_by_name, self._alive):
                table.clear()
            self._lettered.clear()
            self._large.clear()
        if self._shared_full:
            self._shared_full = False
            self._forget_shared()

    def _forget_shared(self) -> None:
        self._forget_patterns()
        shared = {*self._shared.values()}
        for known in (self.known, self._with_cookie):
            for key in [key for key, plan in known.items() if plan in shared]:
                del known[key]
        for keys in (self._lettered, self._large):
            keys.intersection_update({*self.known, *self._with_cookie})
        self._denials = 0
        self._shared.clear()
        self._kinds.clear()
        self._alive_shared.clear()

    def _forget_patterns(self) -> None:
        for table in (self._patterns, self._patterns_with_cookie, self._seen, self._large_patterns, self._types):
            table.clear()
