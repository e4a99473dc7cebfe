"""Zone files read in one pass, line by line, straight into the packed form: for plain files, and large ones.

``read_plain`` gives None for whatever it is not sure about, in form or content: parentheses, comments, capitals in
owners, rare types, relative times, a second record of a kind that stands alone. Then dnspython reads the file, and
says what is wrong with it if anything is. What is read here is what dnspython reads, by a test over random zones.
"""

from __future__ import annotations

import ipaddress
import re
import struct

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype

from maptr.names import MAX_LABEL, MAX_NAME, Labels, is_below, parse, to_wire
from maptr.packed import IN, RECORD, RRSET, TO_QUESTION, PackedNodes, read_labels
from maptr.snapshot import CNAME, DNAME, NS, SOA, ZoneView, make_view

# What needs a real tokenizer: tabs and other controls, non-ASCII, other directives, a line that begins with a space
# and so has the owner of the one before.
_ODD = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f-\xff]|^\$(?!ORIGIN |TTL )|^ ", re.MULTILINE)
_LINE = re.compile(r"([a-z0-9_*@.-]+) (?:(\d{1,10}) )?(?:IN )?([A-Z]+) (\S.*)")
_STRING = r'"([^"\\]*(?:\\(?:\D|[01]\d\d)[^"\\]*)*)"'  # escapes of octets are taken below 128 alone
_NAPTR = re.compile(rf"(\d{{1,5}}) (\d{{1,5}}) {_STRING} {_STRING} {_STRING}")
_ESCAPE = re.compile(rb"\\(\d\d\d|.)", re.DOTALL)
_GROUP_OR_COMMENT = re.compile(r"[();]")  # where it is not within the quotes of a NAPTR
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]+")
MAX_TTL = 0x7FFFFFFF  # RFC 2181 8
MAX_STRING = 255  # RFC 1035 3.3
# Types whose records mean nothing to the others of a zone that only a second look shows, and no DNSSEC.
_TYPES = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33, "NAPTR": 35, "DNAME": 39}
NAPTR = 35
MAX_FIELDS = 1000  # of NAPTR records, kept because most zones repeat a few
_ALONE = {SOA, CNAME, DNAME}


def read_plain(octets: bytes, origin: Labels) -> ZoneView | None:
    """The zone in a plain file, or None for dnspython to read it, good or bad. ``origin`` is folded."""
    if _ODD.search(octets):
        return None
    try:
        return _Reader(origin).read(octets.decode("ascii"))
    except (ValueError, struct.error, dns.exception.DNSException):
        return None


class _Reader:
    """One pass. Any ValueError means a file for dnspython."""

    def __init__(self, origin: Labels) -> None:
        self._zone = origin
        self._apex = to_wire(origin)
        self._turn_to(origin)
        self._ttl: int | None = None
        self._fields: dict[str, bytes] = {}
        self._records: dict[bytes, list[bytes]] = {}

    def _turn_to(self, origin: Labels) -> None:
        """Names without a final dot are below this from now on."""
        self._origin = to_wire(origin)
        self._origin_name = dns.name.Name((*origin, b""))
        self._inside = is_below(origin, self._zone)

    def read(self, text: str) -> ZoneView:
        for line in text.split("\n"):
            if line[:1] == "$":
                self._direct(line)
            elif line:
                self._take(line)
        table = {name: _pack(records) for name, records in self._records.items()}
        cuts = [name for name, packed in table.items() if packed[:2] == _NS and name != self._apex]
        cuts += [name for name, packed in table.items() if packed[:2] == _A and _NS in _first_types(packed)]
        apex = _first_types(table.get(self._apex, b""))
        if SOA.to_bytes(2, "big") not in apex or _NS not in apex:
            raise ValueError("no SOA or no NS at the origin")
        own = len(self._apex)
        for name in list(table):
            at = name[0] + 1
            while len(name) - at > own:
                table.setdefault(name[at:], b"")
                at += name[at] + 1
        return make_view(self._zone, PackedNodes(table, {}), {read_labels(cut) for cut in cuts if cut != self._apex})

    def _direct(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "$ORIGIN" and rest.endswith(".") and rest == rest.lower():
            self._turn_to(parse(rest))
        elif word == "$TTL" and rest.isdigit() and int(rest) <= MAX_TTL:
            self._ttl = int(rest)
        else:
            raise ValueError("another directive")

    def _take(self, line: str) -> None:
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError("another form of line")
        owner, ttl_text, type_text, rest = match.groups()
        rdtype, ttl = _TYPES.get(type_text, 0), int(ttl_text) if ttl_text else self._ttl
        if not rdtype or ttl is None or ttl > MAX_TTL:
            raise ValueError("another type, or no TTL")
        name = self._name(owner)
        if not (self._inside and not owner.endswith(".")) and not is_below(read_labels(name), self._zone):
            raise ValueError("outside the zone")
        rdata = self._rdata(rdtype, rest)
        record = RECORD.pack(TO_QUESTION, rdtype, IN, ttl, len(rdata)) + rdata
        if name in self._records:
            self._records[name].append(record)
        else:
            self._records[name] = [record]

    def _name(self, text: str) -> bytes:
        """A name as wire, its case kept."""
        if text == "@":
            return self._origin
        if text == ".":
            return b"\0"
        absolute = text[-1] == "."
        if _PLAIN_NAME.fullmatch(text) or text[0] == "*":
            labels = text.encode().split(b".")
            if absolute:
                labels.pop()
            sizes = [*map(len, labels)]
            if not sizes or 0 in sizes or max(sizes) > MAX_LABEL:
                raise ValueError("a label of a wrong size")
            wire = b"".join(
                [part for pair in zip(map(_SIZES.__getitem__, sizes), labels, strict=True) for part in pair]
            )
        elif _GROUP_OR_COMMENT.search(text):
            raise ValueError("a group or comment, perhaps")
        else:
            wire = to_wire(parse(text))[:-1]
        wire += b"\0" if absolute else self._origin
        if len(wire) > MAX_NAME:
            raise ValueError("a name too long")
        return wire

    def _rdata(self, rdtype: int, text: str) -> bytes:
        if rdtype == NAPTR:
            fields, _, replacement = text.rpartition(" ")
            wire = self._fields.get(fields)
            if wire is None and (match := _NAPTR.fullmatch(fields)):
                order, preference, *strings = match.groups()
                wire = struct.pack("!HH", int(order), int(preference)) + _strings(strings)
                if len(self._fields) < MAX_FIELDS:
                    self._fields[fields] = wire
            if wire is not None:
                return wire + self._name(replacement)
        if rdtype == 1:
            return ipaddress.IPv4Address(text).packed
        if _GROUP_OR_COMMENT.search(text):
            raise ValueError("a group or comment, perhaps")
        rdata = dns.rdata.from_text(
            dns.rdataclass.IN, dns.rdatatype.RdataType(rdtype), text, self._origin_name, relativize=False
        )
        return rdata.to_wire() or b""  # None only where it was given a file


_SIZES = [bytes((size,)) for size in range(256)]
_NS, _A = NS.to_bytes(2, "big"), b"\0\1"


def _strings(texts: list[str]) -> bytes:
    """Character strings (RFC 1035 3.3) from between their quotes."""
    wire = b""
    for text in texts:
        octets = _ESCAPE.sub(_unescape, text.encode()) if "\\" in text else text.encode()
        if len(octets) > MAX_STRING:
            raise ValueError("a string too long")
        wire += bytes((len(octets),)) + octets
    return wire


def _unescape(match: re.Match[bytes]) -> bytes:
    escaped = match[1]
    if len(escaped) == 1:
        return escaped
    if int(escaped) > 127:
        raise ValueError("an octet that readers take differently")
    return bytes((int(escaped),))


def _pack(records: list[bytes]) -> bytes:
    """A node of records in the order of the file, as ``packed.py`` has it."""
    if len(records) == 1:
        return records[0][2:4] + b"\0\1" + len(records[0]).to_bytes(4, "big") + records[0]
    groups: dict[int, list[bytes]] = {}
    for record in records:
        groups.setdefault(record[2] << 8 | record[3], []).append(record)
    if len(set(records)) < len(records) or (CNAME in groups and len(groups) > 1):
        raise ValueError("a record twice, or data beside a CNAME")
    parts = []
    for rdtype in sorted(groups):
        group = groups[rdtype]
        if len(group) > 1 and (rdtype in _ALONE or len({record[6:10] for record in group}) > 1):
            raise ValueError("two of one, or two TTLs")
        parts.append(RRSET.pack(rdtype, len(group), sum(map(len, group))) + b"".join(group))
    return b"".join(parts)


def _first_types(packed: bytes) -> list[bytes]:
    """Its types from 1 to 6, which stand first."""
    types, at = [], 0
    while at < len(packed) and packed[at : at + 2] <= SOA.to_bytes(2, "big"):
        types.append(packed[at : at + 2])
        at += RRSET.size + int.from_bytes(packed[at + 4 : at + 8], "big")
    return types
