"""Counters of queries and responses. One thread writes to each ``Counters``; ``total`` adds them up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from operator import add

import dns.rcode

from maptr.answer.arena import SILENCE
from maptr.answer.context import Transport
from maptr.protocol.numbers import HEADER_SIZE

# RFC 1035 4.1.1, RFC 2136 2.2 and RFC 6891 9. In the header's four bits, 7 means YXRRSET, which maptr never sends, or
# BADCOOKIE, whose full code is 23 (RFC 7873 8).
RCODES = {code: "BADCOOKIE" if code == 7 else dns.rcode.Rcode(code).name for code in (0, 1, 2, 3, 4, 5, 6, 7, 9)}
BADVERS = 17  # its lower four bits, in the header, are 0; its upper bits are in the OPT (RFC 6891 6.1.3)
_NAMES = {**{code: f"RCODE{code}" for code in range(SILENCE)}, **RCODES, SILENCE: "dropped", BADVERS: "BADVERS"}


@dataclass(slots=True)
class Counters:
    """The number of queries by transport and response RCODE, and of other events, since the start."""

    # UDP in batches (``udp.py``): queries received, answered with a ready response, answered on the general path, not
    # answered, and dropped under overload; responses that the kernel did not send; calls of recvmmsg(2).
    received: int = 0
    ready: int = 0
    general: int = 0
    silent: int = 0
    overload: int = 0
    lost: int = 0
    calls: int = 0
    # Queries with a valid server cookie, and queries with any other cookie, which get a new one (RFC 7873 5.2).
    verified: int = 0
    unverified: int = 0
    queries: dict[Transport, list[int]] = field(default_factory=lambda: {each: [0] * len(_NAMES) for each in Transport})

    def count(self, transport: Transport, reply: bytes | None) -> int:
        """Count a query and its response, and return the code under which it is counted."""
        code = SILENCE if reply is None else result(reply)
        self.queries[transport][code] += 1
        return code

    def count_cookie(self, *, verified: bool) -> None:
        if verified:
            self.verified += 1
        else:
            self.unverified += 1

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Return the number of queries by transport and RCODE, without zeros."""
        return {
            transport.value: {_NAMES[code]: count for code, count in enumerate(counts) if count}
            for transport, counts in self.queries.items()
            if any(counts)
        }

    def groups(self) -> dict[str, dict[str, int]]:
        """Return all other counters by group and name."""
        return {group: {name: getattr(self, name) for name in names} for group, names in GROUPS.items()}


GROUPS = {
    "batches": ("received", "ready", "general", "silent", "overload", "lost", "calls"),
    "cookies": ("verified", "unverified"),
}


def rcode_text(code: int) -> str:
    """Return the mnemonic for a code from ``result``, or ``-`` for no response."""
    return "-" if code == SILENCE else _NAMES[code]


def total(several: Iterable[Counters]) -> Counters:
    result = Counters()
    for counters in several:
        for name in chain(*GROUPS.values()):
            setattr(result, name, getattr(result, name) + getattr(counters, name))
        for transport, counts in counters.queries.items():
            result.queries[transport] = [*map(add, result.queries[transport], counts)]
    return result


def result(reply: bytes) -> int:
    """Return the code under which a response is counted: the RCODE in its header, or BADVERS, which is in its OPT."""
    code = reply[3] & 0xF
    if code or reply[6:10] != b"\0\0\0\0" or reply[10:HEADER_SIZE] == b"\0\0":
        return code
    at = HEADER_SIZE
    if reply[4:6] != b"\0\0":
        while reply[at]:  # skip the question's name, which is never compressed
            at += 1 + reply[at]
        at += 5
    return BADVERS if reply[at : at + 3] == b"\0\0\x29" and reply[at + 5] == 1 else 0
