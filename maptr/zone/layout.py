"""How the records that signing makes are laid out, RRSIG and NSEC (RFC 4034 3.1 and 4.1), and numbers in any record."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

# Type covered, algorithm, labels, TTL, expiration, inception, key tag; then the signer's name and the signature.
RRSIG_HEAD = struct.Struct("!HBBIIIH")
DELETE_CDS, DELETE_CDNSKEY = b"\0\0\0\0\0", b"\0\0\3\0\0"  # rdata that ask for no DS any more (RFC 8078 4)
TIME_FORMAT = "%Y%m%d%H%M%S"  # of expiration and inception as text, UTC (RFC 4034 3.2)


def bitmap(types: Iterable[int]) -> bytes:
    """Types as an NSEC has them (RFC 4034 4.1.2)."""
    windows: dict[int, bytearray] = {}
    for rdtype in types:
        window = windows.setdefault(rdtype >> 8, bytearray(32))
        window[(rdtype & 0xFF) >> 3] |= 0x80 >> (rdtype & 7)
    parts = ((number, bytes(octets).rstrip(b"\0")) for number, octets in sorted(windows.items()))
    return b"".join([bytes((number, len(octets))) + octets for number, octets in parts])


def types_in(octets: bytes) -> Iterator[int]:
    """The types of a bitmap, in order."""
    while octets:
        window, size = octets[0], octets[1]
        for at, octet in enumerate(octets[2 : 2 + size]):
            yield from (window * 256 + at * 8 + bit for bit in range(8) if octet & 0x80 >> bit)
        octets = octets[2 + size :]


def number(text: str) -> int:
    """A number in a record's text, which is ASCII. Raises ValueError."""
    if not text.isdigit():
        raise ValueError(f"{text!r} is not a number")
    return int(text)
