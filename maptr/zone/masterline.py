"""One line of a plain master file to one record as wire, without a tokenizer and without dnspython.

Takes only what it is sure that every reader takes alike; LineError is for everything else, right or wrong.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Callable, Mapping

from maptr.protocol.names import MAX_LABEL, MAX_NAME, Labels, from_wire, is_below, parse, to_wire
from maptr.protocol.numbers import IN, MAX_TTL
from maptr.zone.layout import number
from maptr.zone.packing import RECORD, TO_QUESTION, pack_records

_LINE = re.compile(r"([a-z0-9_*@.-]+) (?:(\d{1,10}) )?(?:IN )?([A-Z]+) (\S.*)")
_STRING = r'"([^"\\]*(?:\\(?:\D|\d\d\d)[^"\\]*)*)"'
_NAPTR = re.compile(rf"(\d{{1,5}}) (\d{{1,5}}) {_STRING} {_STRING} {_STRING}")
_TEXT = re.compile(rf"{_STRING}(?: |$)")
_ESCAPE = re.compile(rb"\\(\d\d\d|.)", re.DOTALL)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.*-]+")
_TOKENIZED = re.compile(r"[();\"\s]")  # what means more to a tokenizer than itself
MAX_STRING = 255  # RFC 1035 3.3
MAX_FIELDS = 1000  # of NAPTR records, kept because most zones repeat a few
_SIZES = [bytes((size,)) for size in range(256)]


LineReads = Mapping[str, tuple[int, Callable[["LineReader", str], bytes]]]
"""By mnemonic the number of a type, and what reads its rdata."""


class LineError(Exception):
    """A line that is not for us."""


class LineReader:
    """Reads lines in the order of the file into ``records``: by folded owner as wire, as ``packed.py`` has them.

    ``origin`` is the folded name of the zone. ``ttl`` is that of $TTL, None before one.
    """

    def __init__(self, origin: Labels) -> None:
        self.records: dict[bytes, list[bytes]] = {}
        self.ttl: int | None = None
        self.has_odd_replacements = False  # of NAPTR records: relative, or with a colon that is not escaped
        self._zone = origin
        self._turn_to(origin)
        self._fields: dict[str, bytes] = {}
        self._signed: LineReads = {}
        self._owner = "", b""  # of the line before: the lines of a name stand together

    def _turn_to(self, origin: Labels) -> None:
        """Names without a final dot are below this from now on."""
        self._origin = to_wire(origin)
        self._is_inside = is_below(origin, self._zone)
        self._owner = "", b""
        self.is_at_zone = origin == self._zone

    def read(self, octets: bytes) -> None:
        """Whole lines of printable ASCII. Raises LineError."""
        try:
            for line in octets.decode("ascii").split("\n"):
                if line[:1] == "$":
                    self._direct(line)
                elif line:
                    name, record = self.take(line)
                    self.records.setdefault(name, []).append(record)
        except (ValueError, KeyError, struct.error) as error:
            raise LineError from error

    def take(self, line: str) -> tuple[bytes, bytes]:
        """Owner and record of one line. Raises LineError, ValueError, KeyError and struct.error."""
        match = _LINE.fullmatch(line)
        if match is None:
            raise LineError("another form of line")
        owner, ttl_text, type_text, rest = match.groups()
        ttl = int(ttl_text) if ttl_text else self.ttl
        known = _TYPES.get(type_text) or self._signed_type(type_text)
        if known is None or ttl is None or ttl > MAX_TTL:
            raise LineError("another type, or no TTL")
        name = self._owner[1] if owner == self._owner[0] else self._new_owner(owner)
        rdtype, read = known
        rdata = read(self, rest)
        return name, RECORD.pack(TO_QUESTION, rdtype, IN, ttl, len(rdata)) + rdata

    def _direct(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "$ORIGIN" and rest.endswith(".") and rest == rest.lower() and not _TOKENIZED.search(rest):
            self._turn_to(parse(rest))
        elif word == "$TTL" and rest.isdigit() and int(rest) <= MAX_TTL:
            self.ttl = int(rest)
        else:
            raise LineError("another directive")

    def _signed_type(self, text: str) -> tuple[int, Callable[[LineReader, str], bytes]] | None:
        """What signing makes; most zones have none of it, and wait for nothing."""
        if not self._signed:
            from maptr.zone.signedline import reads

            self._signed = reads(_TYPES)
        return self._signed.get(text)

    def _new_owner(self, text: str) -> bytes:
        name = self.name(text)
        if not (self._is_inside and not text.endswith(".")) and not is_below(from_wire(name), self._zone):
            raise LineError("outside the zone")
        self._owner = text, name
        return name

    def name(self, text: str) -> bytes:
        """A name as wire, its case kept."""
        if text == "@":
            return self._origin
        if text == ".":
            return b"\0"
        absolute = text.endswith(".")
        if _PLAIN_NAME.fullmatch(text):
            labels = text.encode().split(b".")
            if absolute:
                labels.pop()
            sizes = [*map(len, labels)]
            if not sizes or 0 in sizes or max(sizes) > MAX_LABEL:
                raise LineError("a label of a wrong size")
            wire = b"".join(
                [part for pair in zip(map(_SIZES.__getitem__, sizes), labels, strict=True) for part in pair]
            )
        elif not text or _TOKENIZED.search(text) or text.endswith("\\."):
            raise LineError("a group or comment, or a name whose last dot is none, perhaps")
        else:
            wire = to_wire(parse(text))[:-1]
        wire += b"\0" if absolute else self._origin
        if len(wire) > MAX_NAME:
            raise LineError("a name too long")
        return wire

    def _naptr(self, text: str) -> bytes:
        fields, _, replacement = text.rpartition(" ")
        wire = self._fields.get(fields)
        if wire is None:
            match = _NAPTR.fullmatch(fields)
            if match is None:
                raise LineError("not six fields, three of them quoted")
            order, preference, *strings = match.groups()
            # Readers take escapes beyond ASCII differently here.
            wire = struct.pack("!HH", int(order), int(preference)) + b"".join(_string(s, 0x7F) for s in strings)
            if len(self._fields) < MAX_FIELDS:
                self._fields[fields] = wire
        if not replacement.endswith(".") or ":" in replacement:
            self.has_odd_replacements = True
        return wire + self.name(replacement)

    def _txt(self, text: str) -> bytes:
        wire, at = b"", 0
        while at < len(text):
            match = _TEXT.match(text, at)
            if match is None:
                raise LineError("not in quotes")
            wire += _string(match[1], 0xFF)
            at = match.end()
        return wire

    def _a(self, text: str) -> bytes:
        return ipaddress.IPv4Address(text).packed

    def _aaaa(self, text: str) -> bytes:
        if "%" in text:
            raise LineError("a scope")
        return ipaddress.IPv6Address(text).packed

    def _mx(self, text: str) -> bytes:
        preference, exchange = text.split(" ")
        return struct.pack("!H", number(preference)) + self.name(exchange)

    def _srv(self, text: str) -> bytes:
        priority, weight, port, target = text.split(" ")
        return struct.pack("!3H", number(priority), number(weight), number(port)) + self.name(target)

    def _soa(self, text: str) -> bytes:
        mname, rname, serial, *times = text.split(" ")
        seconds = [number(time) for time in times]
        if len(seconds) != 4 or max(seconds) > MAX_TTL:
            raise LineError("not four times")
        return self.name(mname) + self.name(rname) + struct.pack("!5I", number(serial), *seconds)


class BlockPacker:
    """A ``packed.Packer`` for lines that are known to be right."""

    def __init__(self, origin: Labels, ttl: int) -> None:
        self.ttl = ttl
        self._reader = LineReader(origin)
        self._reader.ttl = ttl

    def __call__(self, lines: bytes, /) -> bytes:
        records = [self._reader.take(line)[1] for line in lines.decode("ascii").split("\n")]
        return pack_records(dict.fromkeys(records))  # of two alike one counts (RFC 2181 5)


# Types whose records mean nothing to the others of a zone that only a second look shows. What signing makes is read
# in ``signedline``.
_TYPES: LineReads = {
    "A": (1, LineReader._a),
    "NS": (2, LineReader.name),
    "CNAME": (5, LineReader.name),
    "SOA": (6, LineReader._soa),
    "MX": (15, LineReader._mx),
    "TXT": (16, LineReader._txt),
    "AAAA": (28, LineReader._aaaa),
    "SRV": (33, LineReader._srv),
    "NAPTR": (35, LineReader._naptr),
    "DNAME": (39, LineReader.name),
}


def _string(text: str, highest: int) -> bytes:
    """A character string (RFC 1035 3.3) from between its quotes; escaped octets are ``highest`` at most."""

    def unescape(match: re.Match[bytes]) -> bytes:
        escaped = match[1]
        if len(escaped) == 3 and int(escaped) > highest:
            raise LineError("an octet that readers take differently, or none")
        return escaped if len(escaped) == 1 else _SIZES[int(escaped)]

    octets = _ESCAPE.sub(unescape, text.encode()) if "\\" in text else text.encode()
    if len(octets) > MAX_STRING:
        raise LineError("a string too long")
    return _SIZES[len(octets)] + octets
