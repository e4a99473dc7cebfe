"""Whole replies behind the octets of queries that came before by TCP or TLS, as ``alone.py`` has them for UDP.

A query that comes by itself finds the processor's caches cold, on a new connection above all, so what it touches is
what it costs: here one lookup, where making even a ready reply again costs a third of such a connection.
"""

from __future__ import annotations

from maptr.fastpath import ReadyAnswers

MAX_KNOWN = 1 << 12  # replies, some hundred octets each and none above what goes over UDP; then all are forgotten


class Known:
    """What was learned of the answers that lie ready now; those of others are forgotten at once."""

    def __init__(self) -> None:
        self._ready: ReadyAnswers | None = None
        self._replies: dict[bytes, bytes] = {}

    def find(self, query: bytes, ready: ReadyAnswers | None) -> bytes | None:
        """The reply to that query as it was learned, but with its own ID."""
        if ready is not self._ready:
            self._ready = ready
            self._replies.clear()
        rest = self._replies.get(query[2:])
        return None if rest is None else query[:2] + rest

    def learn(self, query: bytes, reply: bytes) -> None:
        """After ``find``, a reply that depends on nothing but the query and what lies ready: no client's cookie."""
        octets = query[2:]
        if octets != octets.lower():
            return  # letters in both cases come anew each time
        if len(self._replies) >= MAX_KNOWN:
            self._replies.clear()
        self._replies[octets] = reply[2:]
