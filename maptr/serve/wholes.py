"""Whole replies behind the octets of their queries, for those that come alone (``alone.py``).

Octets are without IDs and cookies, keys with the name in lower case, as a reply then has it too. All is bounded; what
floods fill, the denials of names that do not exist, is not what the others fill.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from maptr.cookies import CLIENT_COOKIE
from maptr.ready import COOKIE
from maptr.serve.jar import WHOLE_COOKIE
from maptr.serve.plans import FIRST

MAX_WHOLE = 1 << 14  # whole replies, some 300 octets each with their queries
MAX_DENIED = 1 << 12  # of them with another RCODE than NOERROR

_ENDS = tuple(
    (slice(-size - len(COOKIE) - 2, -size), COOKIE + size.to_bytes(2, "big"), -size)
    for size in (CLIENT_COOKIE, WHOLE_COOKIE)
)


class Whole(NamedTuple):
    """A reply as its query asks, without ID and cookie, what it is kept by, and the cookie of the query."""

    reply: bytes
    key: bytes
    cookie: bytes


class Wholes:
    """Tables of one ReadyAnswers. ``kinds`` has by key what the rate limit counts a reply by."""

    def __init__(self) -> None:
        # By the octets of queries without a cookie, for who looks at nothing else.
        self.noerror: dict[bytes, bytes] = {}
        self.denied: dict[bytes, bytes] = {}
        self.kinds: dict[bytes, Hashable] = {}
        self._with_cookie: dict[bytes, bytes] = {}  # by what stands before the cookie

    def find(self, octets: bytes) -> Whole | None:
        """What is known for a query without its ID, whatever its case and its cookie."""
        reply = self.noerror.get(octets) or self.denied.get(octets)
        if reply is not None:
            return Whole(reply, octets, b"")
        asked, cookie = _cut(octets)
        key = _lowered(asked)
        reply = self._with_cookie.get(key) if cookie else self.noerror.get(key) or self.denied.get(key)
        if reply is None:
            return None
        if key != asked:
            end = asked.find(0, FIRST)
            reply = reply[:FIRST] + asked[FIRST:end] + reply[end:]
        return Whole(reply, key, cookie)

    def learn(self, asked: bytes, reply: bytes, kind: Hashable, *, cookie: bool) -> None:
        """Keep a reply to a query without its ID and cookie; ``cookie`` says whether that had one."""
        key = _lowered(asked)
        if key != asked:
            end = asked.find(0, FIRST)
            reply = reply[:FIRST] + key[FIRST:end] + reply[end:]
        table = self._with_cookie if cookie else self.noerror
        if reply[1]:
            if cookie:
                return  # a name that does not exist seldom comes again
            table = self.denied
            if len(table) >= MAX_DENIED:
                for old in table:
                    del self.kinds[old]
                table.clear()
        elif len(self.noerror) + len(self._with_cookie) >= MAX_WHOLE:
            self.forget()
        table[key] = reply
        self.kinds[key] = kind

    def forget(self) -> None:
        for table in (self.noerror, self.denied, self._with_cookie, self.kinds):
            table.clear()


def _cut(octets: bytes) -> tuple[bytes, bytes]:
    """A query without its cookie, and that, or nothing.

    What only looks like one does no harm: nothing is known by what stands before it.
    """
    for before, option, size in _ENDS:
        if octets[before] == option:
            return octets[:size], octets[size:]
    return octets, b""


def _lowered(octets: bytes) -> bytes:
    """With the name in lower case, up to its first zero, and all else as it is: there is no case in types and flags."""
    lower = octets.lower()
    if lower == octets:
        return octets
    end = octets.find(0, FIRST)
    return octets[:FIRST] + lower[FIRST:end] + octets[end:]
