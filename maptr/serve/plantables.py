"""Plans behind the octets of queries: how a batch finds them, and the tables in which it does.

Keys are queries without ID as ``slots.key_of`` has them, with the name in lower case. Two ways lead to a plan:

* the whole key, for names that exist;
* a *pattern*, which is a query without the octets of its first label, for names that do not exist, referrals, refusals
  and types that a name does not have. Its length stands before the label, so the rest lies where it lay. Whether a
  name is meant is one look into the zone's table (``fellows.Fellows``); where that is to be proved, the gap of the
  chain in which the name lies says which of the pattern's plans it is.

Cookies have tables of their own, for their plans leave a place for the answer; keys there are the octets before the
cookie. Replies that fit into what every client takes are kept for queries with the usual payload size, and found for
any other. What is put here is for ``plans.py`` to say.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

from maptr.context import OPTION_HEADER
from maptr.cookies import CLIENT_COOKIE, WHOLE_COOKIE
from maptr.fellows import Fellows
from maptr.ready import COOKIE_REPLY, COOKIE_SIZES, OPT_SIZE, OPT_START, WHOLE_OPTION
from maptr.readyzone import is_alone
from maptr.serve.deepplans import DeepPlans
from maptr.serve.plan import FIRST, ID, USUAL_SIZE
from maptr.serve.slots import LENGTH, key_of

MAX_KNOWN = 110_000  # plans by whole keys, 300 octets each with their keys: 100,000 names asked in one way
MAX_SHARED = 1 << 14  # plans of replies that many questions share, and patterns
MIN_KEY = FIRST + 5
_RECORDS = FIRST - 1  # where a query without ID counts what is in its last section

_USUAL_END = USUAL_SIZE[1]
_SIZED = 8  # octets of an OPT from its size on
# The octet before the last eight: the length of a client's cookie, or the type of a bare OPT.
_MARK, _BARE = CLIENT_COOKIE + 1, OPT_START[-1]
_MIN_CLIENT, _MIN_WHOLE = (MIN_KEY + OPT_SIZE + OPTION_HEADER + size for size in COOKIE_SIZES)
_FIRST_LETTER = ord("A")  # as the length of a query


class Special(NamedTuple):
    """What of a pattern is not so for most.

    ``labels`` are those of Fellows that are as long as the first label of the pattern, ``exact`` is what a query must
    have around its name where a letter is among that, for lower case would hide it, ``read`` as in Fellows, and
    ``other`` the plan for types that a name does not have. With ``gap``, as in Fellows, ``proved`` are the plans for
    absent names.
    """

    labels: frozenset[bytes]
    exact: bytes | None
    read: Callable[[bytes], bytes]
    other: bytes | None
    gap: Callable[[bytes], int] | None
    proved: dict[int, bytes]


# For all names of a pattern: octets after the name, ``find`` as in Fellows, the plan for absent names.
Pattern = tuple[int, Callable[[bytes], bytes | None], bytes | None, Special | None]


# What is done with a query that ends in some way: where its plan and pattern are found, how far before the end its
# payload size ends (0 for none).
_Kind = tuple[Callable[[bytes], bytes | None], Callable[[bytes], Pattern | None], int]


class PlanTables:
    """All that is looked up. What plans point to is theirs who made them."""

    def __init__(self, deep: DeepPlans) -> None:
        self.deep = deep
        self.known: dict[bytes, bytes] = {}
        self.with_cookie: dict[bytes, bytes] = {}
        self.patterns: dict[bytes, Pattern] = {}
        self.patterns_with_cookie: dict[bytes, Pattern] = {}
        self.lettered: set[bytes] = set()  # keys with a small letter around the name, where a capital is another
        self.large: set[bytes] = set()  # keys of the usual size whose replies not everybody takes
        self.large_patterns: set[bytes] = set()
        self.types: dict[bytes, bytes] = {}  # by name, of patterns for other types
        # For queries that end in a bare OPT, in a cookie, or otherwise.
        self._by_end: tuple[_Kind, _Kind, _Kind] = (
            (self.known.get, self.patterns.get, _SIZED - 1),
            (self.with_cookie.get, self.patterns_with_cookie.get, _SIZED + 3),
            (self.known.get, self.patterns.get, 0),
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
        if missed:
            missed = self.deep.fill(missed, plans, queries, sizes, enough=self._has_enough())
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
        lettered, types = self.lettered, self.types
        large, large_patterns = self.large, self.large_patterns
        for i in which:
            query = queries[i]
            end = sizes[i] - ID
            if end < MIN_KEY:
                missed.append(i)
                continue
            # As ``ready.cookie_size``, but one octet tells what a query ends in; that it is so tells the key, which has
            # all that stands before. Two in 256 of whole cookies look like something else, for which nothing is known.
            mark = query[end - _MARK]
            cookie = None
            if mark == _BARE:
                get, get_pattern, at = bare
            elif mark == CLIENT_COOKIE and end >= _MIN_CLIENT:
                end -= CLIENT_COOKIE
                query, cookie = query[:end], query[end : end + CLIENT_COOKIE]
                get, get_pattern, at = with_cookie
            elif end >= _MIN_WHOLE and query[end - COOKIE_REPLY : end - WHOLE_COOKIE] == WHOLE_OPTION:
                end -= WHOLE_COOKIE
                query, cookie = query[:end], query[end : end + WHOLE_COOKIE]
                get, get_pattern, at = with_cookie
            else:
                get, get_pattern, at = plain
            key = query.lower()
            if end >= _FIRST_LETTER - ID and cookie is None:
                key = key[:-LENGTH] + query[-LENGTH:]
            at = end - at
            # What is not counted is no OPT, but octets of a name.
            other_size = query[at] != _USUAL_END and at < end and resize and query[_RECORDS]
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
                        labels, exact, read, other, gap, proved = special
                        if key[FIRST:after] not in labels and (
                            exact is None or query[:FIRST] + query[name_end:end] == exact
                        ):
                            rdtype = None if other is None else types.get(name)
                            if rdtype is None:
                                if find(name) is None:
                                    plan = absent if gap is None else proved.get(gap(name))
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
        if len(self.types) >= MAX_SHARED:
            self.types.clear()
        packed = read(name)
        rdtype = self.types[name] = packed[:2] if is_alone(packed) else b""
        return rdtype

    def put(self, key: bytes, plan: bytes, *, cookie: bool, large: bool, lettered: bool) -> bool:
        """Keep a plan by a whole key that is new; ``large`` and ``lettered`` as the sets. Whether it is."""
        known = self.with_cookie if cookie else self.known
        if key in known:
            return False
        known[key] = plan
        if large:
            self.large.add(key)
        if lettered:
            self.lettered.add(key)
        return True

    def put_pattern(
        self,
        pattern: bytes,
        plan: bytes,
        fellows: Fellows,
        *,
        name: bytes,
        name_end: int,
        exact: bytes | None,
        cookie: bool,
        large: bool,
    ) -> bool:
        """Keep a plan by the pattern of ``name``, beside others that it may have. ``name_end`` counts from the end.

        Whether it is kept: a gap that another in this batch has met has its plan.
        """
        if self._has_enough():
            self.forget_patterns()
        if large:
            self.large_patterns.add(pattern)
        patterns = self.patterns_with_cookie if cookie else self.patterns
        absent = other = None
        proved: dict[int, bytes] = {}
        if pattern in patterns:
            _, _, known_absent, special = patterns[pattern]
            if (special and special.exact) == exact:
                absent = known_absent
                if special is not None:
                    other, proved = special.other, special.proved
        gap = fellows.gap
        if gap is not None:
            number = gap(name)
            if number in proved:
                return False
            proved[number] = plan
        elif fellows.absent:
            absent = plan
        else:
            other = plan
        labels = frozenset(label for label in fellows.labels if label[0] == pattern[FIRST])
        special = Special(labels, exact, fellows.read, other, gap, proved) if labels or exact or other or gap else None
        patterns[pattern] = name_end, fellows.find, absent, special
        return True

    def _has_enough(self) -> bool:
        """Whether there are as many patterns as may be."""
        return len(self.patterns) + len(self.patterns_with_cookie) >= MAX_SHARED

    def is_full(self) -> bool:
        """Whether there are as many whole keys as may be."""
        return len(self.known) + len(self.with_cookie) >= MAX_KNOWN

    def forget_names(self) -> None:
        for table in (self.known, self.with_cookie, self.lettered, self.large):
            table.clear()

    def forget_patterns(self) -> None:
        for table in (self.patterns, self.patterns_with_cookie, self.large_patterns, self.types):
            table.clear()

    def forget_proved(self) -> None:
        """Forget the plans with proofs that patterns have by gaps."""
        for patterns in (self.patterns, self.patterns_with_cookie):
            for _, _, _, special in patterns.values():
                if special is not None:
                    special.proved.clear()

    def forget_plans(self, plans: Container[bytes]) -> None:
        """Forget whole keys of these plans."""
        for known in (self.known, self.with_cookie):
            for key in [key for key, plan in known.items() if plan in plans]:
                del known[key]
        for keys in (self.lettered, self.large):
            keys.intersection_update({*self.known, *self.with_cookie})
