"""Whole replies behind the octets of queries that came before by TCP or TLS, as ``alone.py`` has them for UDP.

A query that comes by itself finds the processor's caches cold, on a new connection above all, so what it touches is
what it costs: here one lookup, where making even a ready reply again costs a third of such a connection.
"""

from __future__ import annotations

from maptr.context import OPTION_HEADER
from maptr.fastpath import ReadyAnswers
from maptr.ready import OPT_SIZE, Found, before_cookie

MAX_KNOWN = 1 << 12  # replies, some hundred octets each and none above what goes over UDP; then all are forgotten


class Known:
    """What was learned of the answers that lie ready now; those of others are forgotten at once."""

    def __init__(self) -> None:
        self._ready: ReadyAnswers | None = None
        self._replies: dict[bytes, bytes] = {}
        self._found: dict[bytes, Found] = {}  # by octets up to a cookie's

    def find(self, query: bytes, ready: ReadyAnswers | None) -> bytes | None:
        """The reply to that query as it was learned, but with its own ID."""
        if ready is not self._ready:
            self._ready = ready
            self._forget()
        rest = self._replies.get(query[2:])
        return None if rest is None else query[:2] + rest

    def find_with_cookie(self, query: bytes) -> Found | None:
        """After ``find``, for a query that ends in a cookie: the ready reply to one with any other."""
        start = before_cookie(query)
        place = start + OPT_SIZE + OPTION_HEADER
        found = self._found.get(query[2:place]) if start else None
        return None if found is None else Found(found.ready, found.question_end, query[place:])

    def learn(self, query: bytes, found: Found, reply: bytes) -> None:
        """After ``find``, what depends on nothing but the query and what lies ready."""
        octets = query[2:]
        if found.cookie is not None:
            octets = octets[: -len(found.cookie)]
        if octets != octets.lower():
            return  # letters in both cases come anew each time
        if len(self._replies) + len(self._found) >= MAX_KNOWN:
            self._forget()
        if found.cookie is None:
            self._replies[octets] = reply[2:]
        elif before_cookie(query):
            self._found[octets] = found._replace(cookie=None)

    def _forget(self) -> None:
        self._replies.clear()
        self._found.clear()
