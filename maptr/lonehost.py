"""The commonest reply of a bulk run, one ``h`` record, read by the shortest way there is.

What is not taken here is for ``plainwire`` and then ``reply``; property tests hold them to the same reading. The ID is
not looked at, the question is: it must come back octet for octet.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from maptr import names
from maptr.names import Labels
from maptr.plainurl import host_of
from maptr.plainwire import H_ARK, SAME_NAPTR, TELLING, plain_records
from maptr.protocol import AD, HEADER_SIZE, MAX_TTL, QR

_ONE = 1 << 16 | 1  # question and answer, in the upper half of the four counts of a header as one number
MAX_BEHIND = 4_096
_RECORD_FIXED = 12  # octets of a record before its rdata, where the owner is a pointer
_LONE_LEAST = 12  # octets of rdata that is "h" "ark" "" and the root


class LoneReader:
    """Reads replies whose answer is one ``h`` record, by far the commonest: one unpacking, a few comparisons.

    For questions that have one label below one origin, as all of a run. It remembers where things are by the length of
    the question, and what stood last behind the answer (name servers, OPT), which ``plainwire`` found nothing odd in.
    """

    def __init__(self) -> None:
        self._unpack: dict[int, Callable[[bytes], tuple[Any, ...]]] = {}
        self._behind: dict[tuple[int, int, int], bytes] = {}  # by length of question and label, and counts

    def __call__(self, question: bytes, packet: bytes) -> tuple[int, int, bytes, int, bool] | None:
        """Order, preference, replacement (in wire format, not looked at), TTL, and whether AD is set."""
        size = len(question)
        unpack = self._unpack.get(size)
        if unpack is None:
            unpack = self._unpack[size] = struct.Struct(f"!2xHQ{size}s6sIHHH7s").unpack_from
        try:
            bits, counts, echoed, owner, ttl, length, order, preference, fields = unpack(packet)
        except struct.error:  # shorter
            return None
        rdata = HEADER_SIZE + _RECORD_FIXED + size
        end = rdata + length
        if (
            echoed != question
            or fields != H_ARK
            or owner != SAME_NAPTR
            or bits & TELLING != QR
            or length < _LONE_LEAST
            or ttl > MAX_TTL
            or counts >> 32 != _ONE
            or len(packet) < end
        ):
            return None
        behind, key = packet[end:], (size, question[0], counts)
        if behind != self._behind.get(key):
            if plain_records(names.from_wire(question), question, packet) is None:
                return None
            if len(self._behind) >= MAX_BEHIND:
                self._behind.clear()
            self._behind[key] = behind
        return order, preference, packet[rdata + _LONE_LEAST - 1 : end], ttl, bits & AD != 0


def host_in_wire(replacement: bytes, undotted: Labels | None) -> str | None:
    """The host of a plain replacement in wire format, as ``plainurl.host_of``."""
    labels: list[bytes] = []
    at = 1
    try:
        while size := replacement[at - 1]:
            if size > names.MAX_LABEL:
                return None
            labels.append(replacement[at : at + size])
            at += size + 1
    except IndexError:
        return None
    return host_of(tuple(labels), undotted) if at == len(replacement) else None
