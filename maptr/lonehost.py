"""The reply of a bulk run: one ``h`` record and nothing else, read by the shortest way there is.

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
from maptr.plainwire import AD, HEADER_SIZE, MAX_TTL, NAPTR_IN, OPCODE, OPT, QR, TC

_TELLING = QR | OPCODE | TC | 15  # bits of which the commonest reply has only the first; the last four are the rcode
_SAME_NAPTR = b"\xc0\x0c" + NAPTR_IN
_H_ARK = b"\1h\3ark\0"
_ONE, _ONE_AND_OPT = 1 << 48 | 1 << 32, 1 << 48 | 1 << 32 | 1  # the four counts of a header as one number
_OPT = struct.Struct("!BHHBBHH")  # with a payload size, extended rcode, version, flags and length of options
_RECORD_FIXED = 12  # octets of a record before its rdata, where the owner is a pointer
_LONE_LEAST = 12  # octets of rdata that is "h" "ark" "" and the root


class LoneReader:
    """Reads replies that are one ``h`` record and nothing else, by far the commonest: one unpacking, five comparisons.

    It remembers where things are, by the length of the question, and the OPT that it saw last.
    """

    def __init__(self) -> None:
        self._unpack: dict[int, Callable[[bytes], tuple[Any, ...]]] = {}
        self._bare_opt: bytes | None = None

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
            or fields != _H_ARK
            or owner != _SAME_NAPTR
            or bits & _TELLING != QR
            or length < _LONE_LEAST
            or ttl > MAX_TTL
        ):
            return None
        if counts == _ONE_AND_OPT:
            if packet[end:] != self._bare_opt and not self._is_bare_opt(packet[end:]):
                return None
        elif counts != _ONE or len(packet) != end:
            return None
        return order, preference, packet[rdata + _LONE_LEAST - 1 : end], ttl, bits & AD != 0

    def _is_bare_opt(self, octets: bytes) -> bool:
        """True where they are an OPT without options or extended rcode, of any payload size and flags."""
        if len(octets) != _OPT.size:
            return False
        name, rdtype, _, rcode, _, _, length = _OPT.unpack(octets)
        if name or rdtype != OPT or rcode or length:
            return False
        self._bare_opt = octets
        return True


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
