"""What the server counts: words of 64 bits, cheap enough to be on the path of every query.

One ``Counters`` has one writer, a thread of one process. Where several processes answer, theirs lie in memory that
they share with their owner (``shared``), so the owner adds them up without asking anybody, and what a process counted
outlives it, however it ends. A new counter is a name in ``GROUPS`` and a line of the class.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from typing import overload

from maptr.context import Transport
from maptr.ready import HEADER

# RFC 1035 4.1.1, RFC 2136 2.2 and RFC 6891 9; the others have no name here. The four bits of the header that say 7
# are YXRRSET, which is never ours, or the lower half of BADCOOKIE, 23 (RFC 7873 8).
RCODES = {
    0: "NOERROR",
    1: "FORMERR",
    2: "SERVFAIL",
    3: "NXDOMAIN",
    4: "NOTIMP",
    5: "REFUSED",
    6: "YXDOMAIN",
    7: "BADCOOKIE",
    9: "NOTAUTH",
}
SILENCE = 16  # beyond the four bits of the header: no reply was made
BADVERS = 17  # in the header it is a 0, the rest stands in the OPT (RFC 6891 6.1.3)
_RESULTS = 18
_NAMES = {**{code: f"RCODE{code}" for code in range(SILENCE)}, **RCODES, SILENCE: "dropped", BADVERS: "BADVERS"}
_TRANSPORTS = tuple(Transport)

GROUPS = {
    "batches": ("received", "ready", "general", "silent", "overload", "lost", "calls"),
    "rate_limit": ("dropped", "truncated"),
    "cookies": ("verified", "unverified"),
    "connections": ("open", "accepted", "refused", "shed"),
}
NAMES = tuple(name for names in GROUPS.values() for name in names)
# A reply of ``alone.py`` went over UDP, came as a batch of its own and lay ready: four counters at once would cost it
# more than its answer. So there is one for each RCODE of those, which is added to the four when they are read.
_ALONE = len(_TRANSPORTS) * _RESULTS + len(NAMES)
_SIZE = _ALONE + SILENCE  # words of one Counters


_RECEIVED, _READY, _CALLS, _VERIFIED, _UNVERIFIED, _OPEN, _ACCEPTED = (
    len(_TRANSPORTS) * _RESULTS + NAMES.index(name)
    for name in ("received", "ready", "calls", "verified", "unverified", "open", "accepted")
)


class _Count:
    """A counter of ``NAMES`` as an attribute."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._at = len(_TRANSPORTS) * _RESULTS + NAMES.index(name)

    @overload
    def __get__(self, counters: None, owner: type) -> _Count: ...
    @overload
    def __get__(self, counters: Counters, owner: type) -> int: ...
    def __get__(self, counters: Counters | None, owner: type) -> int | _Count:
        return self if counters is None else counters._words[self._at]

    def __set__(self, counters: Counters, value: int) -> None:
        counters._words[self._at] = value


class _CountWithAlone(_Count):
    """One of those that a reply of ``alone.py`` counts among."""

    @overload
    def __get__(self, counters: None, owner: type) -> _Count: ...
    @overload
    def __get__(self, counters: Counters, owner: type) -> int: ...
    def __get__(self, counters: Counters | None, owner: type) -> int | _Count:
        return self if counters is None else counters._words[self._at] + sum(counters.alone)

    def __set__(self, counters: Counters, value: int) -> None:
        counters._words[self._at] = value - sum(counters.alone)


class Counters:
    """Queries by transport and by the RCODE of their reply, and what else happened, since the start."""

    __slots__ = ("_queries", "_words", "alone", "cookies")

    # UDP in batches (``batch.py``): queries that came,
    received = _CountWithAlone()
    ready = _CountWithAlone()  # those answered by what lies ready,
    general = _Count()  # by the general path,
    silent = _Count()  # with nothing, as they deserve,
    overload = _Count()  # among those, what there was no time for: it had no ready reply, and too many waited,
    lost = _Count()  # replies that the kernel did not take,
    calls = _CountWithAlone()  # and calls of recvmmsg: received / calls is the size of batches.
    # Replies that the rate limit withheld (``rrl.py``).
    dropped = _Count()
    truncated = _Count()
    # Cookies of clients: good ones of ours, and others, which get a new one (RFC 7873 5.2).
    verified = _Count()
    unverified = _Count()
    # Connections (``connections.py``): open now, and since the start accepted, refused to a client that had
    # enough, and closed to make room.
    open = _Count()
    accepted = _Count()
    refused = _Count()
    shed = _Count()

    def __init__(self, words: memoryview[int] | None = None) -> None:
        self._words = memoryview(bytearray(8 * _SIZE)).cast("q") if words is None else words
        self.alone = self._words[_ALONE:]  # by RCODE, written by ``alone.py``
        self.cookies = self._words[_VERIFIED : _UNVERIFIED + 1]  # verified and unverified
        self._queries = {
            transport: self._words[at * _RESULTS : (at + 1) * _RESULTS] for at, transport in enumerate(_TRANSPORTS)
        }

    @classmethod
    def shared(cls, number: int) -> list[Counters]:
        """So many, in memory that this process and those it forks have in common."""
        words = memoryview(mmap.mmap(-1, 8 * _SIZE * number)).cast("q")
        return [cls(words[_SIZE * at : _SIZE * (at + 1)]) for at in range(number)]

    def count(self, transport: Transport, reply: bytes | None) -> None:
        self._queries[transport][SILENCE if reply is None else _result(reply)] += 1

    def count_batch(self, size: int) -> None:
        """Count the queries of a batch as they came: on its own, for that is the cost of a query alone."""
        self._words[_RECEIVED] += size
        self._words[_CALLS] += 1

    def count_ready(self, number: int) -> None:
        """Count how many of a batch were answered by what lies ready; how, is for ``results``."""
        self._words[_READY] += number

    def results(self, transport: Transport) -> memoryview[int]:
        """How many had which RCODE, or SILENCE: to be written by who counts many."""
        return self._queries[transport]

    def count_one_ready(self, transport: Transport, code: int) -> None:
        """Count a batch of one reply."""
        self._words[_READY] += 1
        self._queries[transport][code] += 1

    def count_open(self) -> None:
        """Count a connection that was accepted."""
        self._words[_OPEN] += 1
        self._words[_ACCEPTED] += 1

    def add(self, other: Counters) -> None:
        """Take over what another counted, of another thread or worker say."""
        for at, count in enumerate(other._words):
            if count:
                self._words[at] += count

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Queries by transport and result, those that came to nothing left out."""
        queries = {transport: counts.tolist() for transport, counts in self._queries.items()}
        for code, count in enumerate(self.alone):
            queries[Transport.UDP][code] += count
        return {
            transport.value: {_NAMES[code]: count for code, count in enumerate(counts) if count}
            for transport, counts in queries.items()
            if any(counts)
        }

    def named(self) -> dict[str, int]:
        """The counters of ``NAMES``."""
        return {name: getattr(self, name) for name in NAMES}


def total(several: Iterable[Counters]) -> Counters:
    """The sum of any number of counters."""
    result = Counters()
    for counters in several:
        result.add(counters)
    return result


def _result(reply: bytes) -> int:
    """The result that a reply is counted under: its header's RCODE, and BADVERS, for which the OPT is looked at."""
    code = reply[3] & 0xF
    if code or reply[6:10] != b"\0\0\0\0" or reply[10:HEADER] == b"\0\0":
        return code
    at = HEADER
    if reply[4:6] != b"\0\0":
        while reply[at]:  # the question's name, which is never compressed
            at += 1 + reply[at]
        at += 5
    return BADVERS if reply[at : at + 3] == b"\0\0\x29" and reply[at + 5] == 1 else 0
