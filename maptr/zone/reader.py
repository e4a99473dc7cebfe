r"""Reader of zone files. It reads plain lines itself and leaves every other file to ``masterfile.py``.

A plain line is a whole record in printable ASCII, such as ``12345 IN TXT "who=Example"``. ``masterfile.py`` reads a
file that has anything else (parentheses, a comment after a record, a capital in an owner name, a relative target of
NAPTR, a rare type, a time such as ``1h``), and a file with an error, because it says what is wrong. A record takes it
0.07 ms and this reader 4 us.

A *block* is read faster still: the lines of one NAAN directly below the origin, as ``rules.py`` writes them::

    12345 IN NAPTR 10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://h.example/ark:/12345/\\1!" .
    12345 IN NAPTR 100 10 "h" "ark" "" h.example.
    12345 IN TXT "who=Example"

One regular expression finds all blocks of a file. It matches only records in which ``check.py`` finds nothing, so the
text of a block can stay as it is until its name is read for the first time.
"""

from __future__ import annotations

import binascii
import datetime
import functools
import re
import socket
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import dns.rdatatype

from maptr.errors import ZoneError
from maptr.protocol.names import MAX_NAME, Labels, from_wire, is_below, parse, to_text, to_wire, wire_length
from maptr.protocol.numbers import CNAME, DNAME, MAX_TTL, NAPTR, NS, NSEC, RRSIG, SOA
from maptr.zone.masterfile import read_master_file
from maptr.zone.rdata import read_rdata
from maptr.zone.rrset import RECORD, RRSIG_HEAD, bitmap, pack_record, pack_records, types_of
from maptr.zone.snapshot import PackedNodes, ZoneView, add_empty_names, special_names

_PRINTABLE = bytes(range(0x20, 0x7F)) + b"\n"
# Bytes of a line and of a block. Text is longer than its wire format, and a line has 11 characters besides its longest
# name or string, so these limits keep each name, string and response within the limits that ``check.py`` checks.
MAX_LINE = 255 + 9
MAX_BLOCK = 900
MAX_ORIGIN = 190  # bytes of the origin in wire format, so that no name of a block is too long
MAX_STRING = 255  # RFC 1035 3.3

# A part never matches text that the next part could match, so matching takes linear time. Lengths are checked later.
_NAAN = r"[0-9bcdfghjkmnpqrstvwxz]{1,63}+"
_LABEL = r"[a-z0-9_][a-z0-9_-]{0,62}+(?<!-)\.(?=[a-z0-9_])"
# Not possessive: possessive groups match too little before Python 3.11.5 (CPython issue 106052).
_HOST = rf"(?:{_LABEL}){{1,8}}[a-z]{{2,58}}(?<!\blocalhost)"
_PORT = r"[1-9]\d{0,3}"
_PATH = r"[A-Za-z0-9_./:?=&~%+-]*"
_TWO_NUMBERS = r"\d{1,4} \d{1,4}"
_URL_RULE = (
    rf'NAPTR {_TWO_NUMBERS} "u" "ark" "!\^ark:/\?\2/[a-z0-9]*\([a-z0-9]*\.\*\)\$!'
    rf'https?://{_HOST}(?::{_PORT})?/{_PATH}(?:\\\\1{_PATH})?!" \.'
)
_HOST_RULE = rf'NAPTR {_TWO_NUMBERS} "h" "ark" "" {_HOST}(?:\\058{_PORT})?\.'
_TEXT_RECORD = r'TXT "[^"\\\n]*(?:\\(?:[01]\d\d|2[0-4]\d|25[0-5]|["\\])[^"\\\n]*)*"'
_RECORD = rf"IN (?:{_HOST_RULE}|{_URL_RULE}|{_TEXT_RECORD})"
_BLOCK = rf"^(({_NAAN}) {_RECORD}(?:\n\2 {_RECORD})*)$"

_LINE = re.compile(r"([a-z0-9_*@.-]+) (?:(\d{1,10}) )?(?:IN )?([A-Z]+) (\S.*)")
_STRING = r'"([^"\\]*(?:\\(?:\D|\d\d\d)[^"\\]*)*)"'
_NAPTR_FIELDS = re.compile(rf"(\d{{1,5}}) (\d{{1,5}}) {_STRING} {_STRING} {_STRING}")
_TEXT_FIELD = re.compile(rf"{_STRING}(?: |$)")
_ESCAPE = re.compile(rb"\\(\d\d\d|.)", re.DOTALL)
_TOKENIZED = re.compile(r"[();\"\s]")  # characters with a meaning for a tokenizer
_BYTES = [bytes((value,)) for value in range(256)]

_RRSIG_WIRE = RRSIG.to_bytes(2, "big")
_CNAME_WIRE = CNAME.to_bytes(2, "big")
_BESIDE_CNAME = (_RRSIG_WIRE, NSEC.to_bytes(2, "big"))  # RFC 4034 3 and 4
_SINGLETONS = (SOA.to_bytes(2, "big"), _CNAME_WIRE, DNAME.to_bytes(2, "big"))


class ZoneFile(NamedTuple):
    """A zone that was read from a file. ``doubtful`` are the names whose NAPTR records to check; None: all."""

    view: ZoneView
    doubtful: frozenset[Labels] | None = None


class LineError(Exception):
    """A line that is not plain."""


def read_zone_file(data: bytes, origin: Labels, path: Path) -> ZoneFile:
    """Read the zone in the content of a file. ``origin`` is folded.

    Raises ZoneError with file and line, also for records outside the zone and for an unreadable included file.
    """
    plain = read_plain(data, origin)
    if plain is not None:
        return plain
    return ZoneFile(read_master_file(str(path), data, origin))


def read_plain(data: bytes, origin: Labels) -> ZoneFile | None:
    """Read the zone in a plain file; return None for a file that is not plain. ``origin`` is folded."""
    if data.translate(None, _PRINTABLE) or wire_length(origin) > MAX_ORIGIN:
        return None
    try:
        return _read_blocks(data, origin)
    except LineError:
        return None


def _read_blocks(data: bytes, origin: Labels) -> ZoneFile:
    """Read a plain file. Raises LineError if it is not plain."""
    head, *parts = re.compile(_BLOCK.encode(), re.MULTILINE).split(data)
    blocks, owners, rests = parts[::3], parts[1::3], parts[2::3]
    lines = _LineReader(origin)
    lines.read(head)
    ttl = lines.ttl
    between = [rest for rest in rests[:-1] if rest != b"\n"]
    # A directive after the last block does not apply to any block.
    if not lines.is_at_apex or ttl is None or any(b"\n$" in rest for rest in between):
        blocks, owners, between, rests = [], [], [], [data.removeprefix(head)]
    for rest in (*between, *rests[-1:]):
        lines.read(rest)
    apex = to_wire(origin)
    keys = [_BYTES[len(owner)] + owner + apex for owner in owners]
    nodes = dict(zip(keys, blocks, strict=True))
    line_by_line = {key for key in lines.records if key in nodes}
    if len(nodes) < len(keys):
        line_by_line.update(key for key, count in Counter(keys).items() if count > 1)
    if max(map(len, blocks), default=0) > MAX_LINE:
        line_by_line.update(key for key, text in zip(keys, blocks, strict=True) if _is_long(text))
    inside = to_text(origin).encode()  # a host below the origin may be another name of the zone
    line_by_line.update(key for key, text in zip(keys, blocks, strict=True) if inside in text)
    block_reader = _LineReader(origin, ttl, lines.records)
    for key, text in zip(keys, blocks, strict=True) if line_by_line else ():
        if key in line_by_line:
            block_reader.read(text)
    packed = {name: _pack_name(records) for name, records in lines.records.items()}
    if not {SOA, NS} <= set(types_of(packed.get(apex, b""))):
        raise LineError("no SOA or no NS at the origin")
    if any(SOA in types_of(value) for name, value in packed.items() if name != apex):
        raise LineError("a SOA below the origin")
    doubtful = frozenset(from_wire(name) for name, value in packed.items() if NAPTR in types_of(value))
    add_empty_names(packed, apex)
    special = special_names(packed)
    nodes.update((name, value) for name, value in packed.items() if value or name not in nodes)
    packer = block_reader.pack if blocks else None
    return ZoneFile(ZoneView.of(origin, PackedNodes(nodes, {}, special, packer, ttl)), doubtful)


def _is_long(block: bytes) -> bool:
    return len(block) > MAX_BLOCK or (len(block) > MAX_LINE and max(map(len, block.split(b"\n"))) > MAX_LINE)


def _pack_name(records: list[bytes]) -> bytes:
    """Pack the records of a name. Raises LineError if a name must not have them together."""
    if len({record.lower() for record in records}) < len(records):
        raise LineError("a record twice, or one that differs in its case only")
    types = [record[2:4] for record in records]
    if _RRSIG_WIRE in types:
        records, types = _level_signatures(records), [rdtype for rdtype in types if rdtype not in _BESIDE_CNAME]
    if _CNAME_WIRE in types and len(types) > 1:
        raise LineError("a CNAME and other data")
    if len(types) > len(set(types)) and any(types.count(rdtype) > 1 for rdtype in _SINGLETONS):
        raise LineError("two records of a type that has one")
    if len({(record[2:4], record[6:10]) for record in records}) > len({record[2:4] for record in records}):
        raise LineError("two TTLs in one RRset")
    return pack_records(records)


def _level_signatures(records: list[bytes]) -> list[bytes]:
    """Give the signatures the least of their TTLs.

    Raises LineError for a signature whose TTL differs from that of the records it covers (RFC 4034 3).
    """
    others = [record for record in records if record[2:4] != _RRSIG_WIRE]
    signatures = [record for record in records if record[2:4] == _RRSIG_WIRE]
    ttls = {record[2:4]: record[6:10] for record in others}
    if any(ttls.get(record[RECORD.size : RECORD.size + 2]) != record[6:10] for record in signatures):
        raise LineError("a signature that covers nothing, or with another TTL")
    least = min(record[6:10] for record in signatures)
    return others + [record[:6] + least + record[10:] for record in signatures]


class _LineReader:
    """Reader of plain lines. ``read`` adds packed records to ``records``, by owner in folded wire format.

    ``origin`` is the folded name of the zone. ``ttl`` is the TTL of the last $TTL directive, None without one.
    """

    def __init__(self, origin: Labels, ttl: int | None = None, records: dict[bytes, list[bytes]] | None = None) -> None:
        self.records = {} if records is None else records
        self.ttl = ttl
        self._zone = origin
        self._set_origin(origin)

    def _set_origin(self, origin: Labels) -> None:
        self._origin = to_wire(origin)
        self._is_inside = is_below(origin, self._zone)
        self._owner = "", b""  # of the last line, because lines of one name are usually adjacent
        self.is_at_apex = origin == self._zone

    def read(self, data: bytes) -> None:
        """Add the records of whole lines of printable ASCII. Raises LineError."""
        try:
            for line in data.decode("ascii").split("\n"):
                if line[:1] == "$":
                    self._directive(line)
                elif line and line[0] != ";":
                    name, record = self.record(line)
                    self.records.setdefault(name, []).append(record)
        except (ValueError, KeyError, OSError, struct.error, ZoneError) as error:
            raise LineError from error

    def pack(self, block: bytes) -> bytes:
        """Pack the records of a block."""
        records = [self.record(line)[1] for line in block.decode("ascii").split("\n")]
        return pack_records(dict.fromkeys(records))  # equal records are one (RFC 2181 5)

    def record(self, line: str) -> tuple[bytes, bytes]:
        """Return owner and packed record of one line. Raises the exceptions that ``read`` catches."""
        match = _LINE.fullmatch(line)
        if match is None:
            raise LineError("another form of line")
        owner, ttl_text, type_text, rest = match.groups()
        ttl = int(ttl_text) if ttl_text else self.ttl
        if ttl is None or ttl > MAX_TTL:
            raise LineError("no TTL, or one out of range")
        rdtype = _TYPES[type_text]
        read_rdata = _READERS.get(type_text)
        rdata = self.other(rdtype, rest) if read_rdata is None else read_rdata(self, rest)
        name = self._owner[1] if owner == self._owner[0] else self._new_owner(owner)
        return name, pack_record(rdtype, ttl, rdata)

    def _directive(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "$ORIGIN" and rest.endswith(".") and rest == rest.lower() and not _TOKENIZED.search(rest):
            self._set_origin(parse(rest))
        elif word == "$TTL" and rest.isdigit() and int(rest) <= MAX_TTL:
            self.ttl = int(rest)
        else:
            raise LineError("another directive")

    def _new_owner(self, text: str) -> bytes:
        name = self.name(text)
        if not (self._is_inside and not text.endswith(".")) and not is_below(from_wire(name), self._zone):
            raise LineError("outside the zone")
        self._owner = text, name
        return name

    def name(self, text: str) -> bytes:
        """Return a name in wire format, in the case of the text."""
        if text == "@":
            return self._origin
        if not text or _TOKENIZED.search(text) or text.endswith("\\."):
            raise LineError("a group, a comment, or an escaped final dot")
        wire = to_wire(parse(text))
        if not text.endswith("."):
            wire = wire[:-1] + self._origin
        if len(wire) > MAX_NAME:
            raise LineError("a long name")
        return wire

    # ---- rdata, in the forms that maptr writes

    def naptr(self, text: str) -> bytes:
        fields, _, replacement = text.rpartition(" ")
        if ":" in replacement:
            raise LineError("a port that is not escaped, which check.py finds")
        return _naptr_fields(fields) + self._absolute(replacement)

    def txt(self, text: str) -> bytes:
        wire, at = b"", 0
        while at < len(text):
            match = _TEXT_FIELD.match(text, at)
            if match is None:
                raise LineError("not in quotes")
            wire += _string(match[1], 0xFF)
            at = match.end()
        return wire

    def rrsig(self, text: str) -> bytes:
        covered, *numbers, expiration, inception, tag, signer, signature = text.split(" ", 8)
        times = _time(expiration), _time(inception)
        if not signature.strip():
            raise LineError("no signature")
        head = RRSIG_HEAD.pack(_TYPES[covered], *map(_number, numbers), *times, _number(tag))
        return head + self._absolute(signer) + binascii.a2b_base64(signature.replace(" ", ""), strict_mode=True)

    def nsec(self, text: str) -> bytes:
        following, _, types = text.partition(" ")
        return self._absolute(following) + _bitmap(types)

    def _absolute(self, text: str) -> bytes:
        if not text.endswith("."):
            raise LineError("a relative name")
        return self.name(text)

    def other(self, rdtype: int, text: str) -> bytes:
        """Read the rdata of any type."""
        return read_rdata(rdtype, text.split(" "), from_wire(self._origin))


_PLAIN_TYPES = "A NS CNAME SOA MX TXT AAAA SRV NAPTR DNAME DS RRSIG NSEC DNSKEY CDS CDNSKEY ZONEMD"
_TYPES = {name: int(dns.rdatatype.RdataType[name]) for name in _PLAIN_TYPES.split()}
# Readers of the rdata of types of which a zone may have many records. ``rdata.py`` reads the others.
_READERS: dict[str, Callable[[_LineReader, str], bytes]] = {
    "A": lambda _, text: socket.inet_pton(socket.AF_INET, text),
    "NS": _LineReader.name,
    "CNAME": _LineReader.name,
    "TXT": _LineReader.txt,
    "AAAA": lambda _, text: socket.inet_pton(socket.AF_INET6, text),
    "NAPTR": _LineReader.naptr,
    "RRSIG": _LineReader.rrsig,
    "NSEC": _LineReader.nsec,
}


@functools.lru_cache(maxsize=1024)  # most zones have few different ones
def _naptr_fields(text: str) -> bytes:
    match = _NAPTR_FIELDS.fullmatch(text)
    if match is None:
        raise LineError("not six fields, three of them quoted")
    order, preference, *strings = match.groups()
    # Name servers differ in how they read an escape beyond ASCII in these strings.
    return struct.pack("!HH", int(order), int(preference)) + b"".join(_string(s, 0x7F) for s in strings)


def _string(text: str, highest: int) -> bytes:
    """Return the wire format of a quoted character string (RFC 1035 3.3). Escaped bytes are at most ``highest``."""

    def unescape(match: re.Match[bytes]) -> bytes:
        escaped = match[1]
        if len(escaped) == 3 and int(escaped) > highest:
            raise LineError("an escape that name servers read differently, or out of range")
        return escaped if len(escaped) == 1 else _BYTES[int(escaped)]

    octets = _ESCAPE.sub(unescape, text.encode()) if "\\" in text else text.encode()
    if len(octets) > MAX_STRING:
        raise LineError("a long string")
    return _BYTES[len(octets)] + octets


def _number(text: str) -> int:
    if not text.isdigit():
        raise LineError("not a number")
    return int(text)


@functools.lru_cache(maxsize=64)  # most signatures of a zone have the same times
def _time(text: str) -> int:
    if len(text) != len("YYYYMMDDHHMMSS") or not text.isdigit():
        raise LineError("another form of time")
    return int(datetime.datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=datetime.UTC).timestamp())


@functools.lru_cache(maxsize=1024)  # most names have the same types
def _bitmap(text: str) -> bytes:
    return bitmap([_TYPES[rdtype] for rdtype in text.split(" ")])
