"""Lines of what signing makes, as ``masterline`` reads others: the forms in which maptr writes them, and no others.

What is not for it is a ValueError, a KeyError or a struct.error.
"""

from __future__ import annotations

import binascii
import datetime
import struct
from typing import TYPE_CHECKING

from maptr.protocol.numbers import CDNSKEY, CDS, DNSKEY, DS, NSEC, RRSIG, ZONEMD
from maptr.zone.layout import DELETE_CDS, RRSIG_HEAD, TIME_FORMAT, bitmap, number

if TYPE_CHECKING:
    from maptr.zone.masterline import LineReader, LineReads

_DS_SIZES = {"1": 20, "2": 32, "4": 48}  # octets of SHA-1, SHA-256 and SHA-384 (RFC 4034, RFC 4509, RFC 6605)


def reads(others: LineReads) -> LineReads:
    """Readers for one zone; ``others`` are those of what is signed."""
    found = _SignedLines()
    made: LineReads = {
        "DS": (DS, found.ds),
        "RRSIG": (RRSIG, found.rrsig),
        "NSEC": (NSEC, found.nsec),
        "DNSKEY": (DNSKEY, found.dnskey),
        "CDS": (CDS, found.cds),
        "CDNSKEY": (CDNSKEY, found.dnskey),
        "ZONEMD": (ZONEMD, found.zonemd),
    }
    found.types = {text: rdtype for text, (rdtype, _) in (*others.items(), *made.items())}
    return made


class _SignedLines:
    """Each reads the rdata of one type."""

    def __init__(self) -> None:
        self.types: dict[str, int] = {}
        self._times: dict[str, int] = {}  # few in a zone
        self._bitmaps: dict[str, bytes] = {}  # likewise

    def rrsig(self, lines: LineReader, text: str) -> bytes:
        covered, *numbers, expiration, inception, tag, signer, signature = text.split(" ", 8)
        times = self._time(expiration), self._time(inception)
        return (
            RRSIG_HEAD.pack(self.types[covered], *map(number, numbers), *times, number(tag))
            + _absolute(lines, signer)
            + _base64(signature)
        )

    def _time(self, text: str) -> int:
        if text not in self._times:
            if len(text) != len("YYYYMMDDHHMMSS") or not text.isdigit():
                raise ValueError("another form of time")
            moment = datetime.datetime.strptime(text, TIME_FORMAT).replace(tzinfo=datetime.UTC)
            self._times[text] = int(moment.timestamp())
        return self._times[text]

    def nsec(self, lines: LineReader, text: str) -> bytes:
        following, _, types = text.partition(" ")
        if types not in self._bitmaps:
            self._bitmaps[types] = bitmap([self.types[rdtype] for rdtype in types.split(" ")])
        return _absolute(lines, following) + self._bitmaps[types]

    def dnskey(self, lines: LineReader, text: str) -> bytes:
        flags, protocol, algorithm, key = text.split(" ", 3)
        return struct.pack("!HBB", number(flags), number(protocol), number(algorithm)) + _base64(key)

    def ds(self, lines: LineReader, text: str) -> bytes:
        tag, algorithm, kind, digest = text.split(" ", 3)
        octets = bytes.fromhex(digest)
        if len(octets) != _DS_SIZES.get(kind):
            raise ValueError("a digest that readers may refuse")
        return struct.pack("!HBB", number(tag), number(algorithm), number(kind)) + octets

    def cds(self, lines: LineReader, text: str) -> bytes:
        return DELETE_CDS if text == "0 0 0 00" else self.ds(lines, text)

    def zonemd(self, lines: LineReader, text: str) -> bytes:
        serial, scheme, kind, digest = text.split(" ", 3)
        octets = bytes.fromhex(digest)
        if (scheme, kind, len(octets)) != ("1", "1", 48):
            raise ValueError("another digest than SHA-384 of the whole zone")
        return struct.pack("!IBB", number(serial), 1, 1) + octets


def _absolute(lines: LineReader, text: str) -> bytes:
    if not text.endswith("."):
        raise ValueError("a relative name")
    return lines.name(text)


def _base64(text: str) -> bytes:
    return binascii.a2b_base64(text.replace(" ", ""), strict_mode=True)
