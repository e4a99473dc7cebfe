"""Whole replies behind the octets of their queries: to UDP that comes alone (``alone.py``), and to TCP and TLS.

A query that comes by itself finds the processor's caches cold, on a new connection above all, so what it touches is
what it costs: here one lookup. Octets are without IDs and cookies, keys with the name in lower case, as a reply then
has it too. All is bounded; what floods fill, the denials of names that do not exist, is not what the others fill.
"""

from __future__ import annotations

from collections.abc import Hashable

from maptr.cookies import WHOLE_COOKIE
from maptr.fastpath import ReadyAnswers
from maptr.ready import HEADER, Found, cookie_size
from maptr.serve.plan import FIRST, ID, parts

MAX_WHOLE = 1 << 14  # whole replies, some 300 octets each with their queries
MAX_DENIED = 1 << 12  # as many with another RCODE than NOERROR


class Wholes:
    """Tables of one ReadyAnswers. ``kinds`` has by key what the rate limit counts a reply by, if anything."""

    def __init__(self, most: int = MAX_WHOLE) -> None:
        self.ready: ReadyAnswers | None = None
        self._most = most
        # By the octets of queries without a cookie, for who looks at nothing else.
        self.noerror: dict[bytes, bytes] = {}
        self.denied: dict[bytes, bytes] = {}
        self.kinds: dict[bytes, Hashable] = {}
        self._with_cookie: dict[bytes, bytes] = {}  # by what stands before the cookie
        self._parts: dict[bytes, tuple[bytes, tuple[bytes, int, bytes]]] = {}  # by plans that many names share

    def turn_to(self, ready: ReadyAnswers | None) -> None:
        """Be of these, and forget what was learned of others."""
        if ready is not self.ready:
            self.ready = ready
            self.forget()

    def find(self, octets: bytes) -> tuple[bytes, bytes, bytes] | None:
        """What is known for a query without its ID, whatever its case and its cookie.

        The reply as the query asks, without ID and cookie, what it is kept by, and the cookie. What only looks like a
        cookie does no harm: nothing is known by what stands before it.
        """
        reply = self.noerror.get(octets) or self.denied.get(octets)
        if reply is not None:
            return reply, octets, b""
        size = cookie_size(octets)
        if size:
            asked, cookie = octets[:-size], octets[-size:]
            reply = self._with_cookie.get(asked)
            if reply is not None:
                return reply, asked, cookie
        else:
            asked, cookie = octets, b""
        key = _lowered(asked)
        if key is asked:
            return None
        reply = self._with_cookie.get(key) if size else self.noerror.get(key) or self.denied.get(key)
        return None if reply is None else (_as_asked(reply, asked), key, cookie)

    def learn_ready(self, query: bytes, found: Found, reply: bytes) -> None:
        """Keep a reply to a query, both with ID and cookie, that depends on nothing but the query and what is ready."""
        if found.cookie is None:
            if found.question_end > HEADER:
                self.learn(query[ID:], reply[ID:], None, cookie=False)
        elif size := found.key_size(query):
            self.learn(query[ID:size], reply[ID:-WHOLE_COOKIE], None, cookie=True)

    def learn(self, asked: bytes, reply: bytes, kind: Hashable, *, cookie: bool) -> None:
        """Keep a reply, both without ID and cookie; ``cookie`` says whether the query had one."""
        key = _lowered(asked)
        if key != asked:
            reply = _as_asked(reply, key)
        table = self._with_cookie if cookie else self.noerror
        if reply[1]:
            if cookie:
                return  # a name that does not exist seldom comes again
            table = self.denied
            if len(table) >= MAX_DENIED:
                for old in table:
                    self.kinds.pop(old, None)
                table.clear()
        elif len(self.noerror) + len(self._with_cookie) >= self._most:
            self.forget()
        table[key] = reply
        if kind is not None:
            self.kinds[key] = kind

    def make_shared(self, plan: bytes, query: bytes) -> bytes:
        """As ``plan.whole``, by a plan that many names share, whose octets are fetched once."""
        plan_of, known = self._parts.get(plan, (None, None))
        # An equal one may point to what has taken the place of something that is forgotten.
        if known is None or plan_of is not plan:
            if len(self._parts) >= MAX_DENIED:
                self._parts.clear()
            known = parts(plan)
            self._parts[plan] = plan, known
        head, end, rest = known
        return head + query[FIRST:end] + rest

    def forget(self) -> None:
        self.noerror.clear()
        self.denied.clear()
        self.kinds.clear()
        self._with_cookie.clear()
        self._parts.clear()


def _lowered(octets: bytes) -> bytes:
    """With the name in lower case, up to its first zero, and all else as it is: there is no case in types and flags."""
    lower = octets.lower()
    if lower == octets:
        return octets
    end = octets.find(0, FIRST)
    return octets[:FIRST] + lower[FIRST:end] + octets[end:]


def _as_asked(reply: bytes, octets: bytes) -> bytes:
    """A reply with the name of its question as that query has it."""
    end = octets.find(0, FIRST)
    return reply[:FIRST] + octets[FIRST:end] + reply[end:]
