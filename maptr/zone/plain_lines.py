"""Plain lines of a zone file: whole records in printable ASCII, read without tokenizer and dnspython.

A *plain line* has, in the layout of any server and in any case::

    [owner] [TTL] [IN] TYPE rdata [; comment]

with a type of ``rdata.PLAIN`` and an owner without escapes. Empty lines and comments are also plain. One expression
reads a line. ``PlainLines.groups`` packs adjacent records of one owner together, and ends before the first line that it
cannot read: one with a directive, a group in parentheses, generic data, an error, or anything unusual. The tokenizer of
``masterfile.py`` reads that line, and both read each plain line alike.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import dns.rdatatype
import dns.ttl

from maptr.errors import ZoneError
from maptr.naptr.record import MAX_STRING
from maptr.protocol import names
from maptr.protocol.names import MAX_LABEL, MAX_NAME, WILDCARD, Labels, fold, is_below, to_text, to_wire
from maptr.protocol.numbers import CNAME, IN, MAX_TTL, NAPTR, NS, SOA
from maptr.zone.clean import BLANK, HOST_RULE, MAX_CLEAN, MAX_RRSET, URL_RULE, is_naan
from maptr.zone.rdata import MAX_RDATA, PLAIN
from maptr.zone.rrset import RECORD, RRSET, TO_QUESTION
from maptr.zone.snapshot import INERT

_B = BLANK.pattern
_OWNER = r"(@|[A-Za-z0-9_*-][A-Za-z0-9_*.-]*)?"
_TTL_AND_CLASS = rf"((?:{_B}(?:(?i:IN)|\d[0-9A-Za-z]*))*)"
_END = r"(?:\r?\n|\Z)"
_COMMENT = rf"[ \t]*(?:;[^\r\n]*)?{_END}"
_CLEAN = rf"(?i:NAPTR){_B}(?:{URL_RULE.pattern}|{HOST_RULE.pattern}){_COMMENT}"
_ANY = rf"([A-Za-z]+){_B}([!-~][ -~\t]*){_END}"
_LINE = re.compile(rf"{_OWNER}{_TTL_AND_CLASS}{_B}(?:{_CLEAN}|{_ANY})|{_COMMENT}".encode())
_BEFORE_COMMENT = re.compile(rb'(?:[^";\\]|\\.|"(?:[^"\\]|\\.)*")*')

_BYTES = [bytes((size,)) for size in range(256)]
SINGLE = frozenset(int(rdtype) for rdtype in dns.rdatatype.RdataType if dns.rdatatype.is_singleton(rdtype))
"""Types of which a name has at most one record."""
_SINGLE_WIRE = frozenset(rdtype.to_bytes(2, "big") for rdtype in SINGLE)
_CNAME_WIRE, _NAPTR_WIRE = CNAME.to_bytes(2, "big"), NAPTR.to_bytes(2, "big")


@dataclass(slots=True)
class Ttls:
    """The TTL for a record without one: from $TTL, else the last TTL (RFC 1035 5.1), else the SOA's minimum."""

    default: int | None = None
    last: int | None = None
    minimum: int | None = None

    def implied(self) -> int | None:
        return next((ttl for ttl in (self.default, self.last, self.minimum) if ttl is not None), None)

    def note_minimum(self, soa: bytes) -> None:
        """Note the minimum of the first SOA, from its rdata."""
        if self.minimum is None:
            minimum = int.from_bytes(soa[-4:], "big")
            self.minimum = minimum if minimum <= MAX_TTL else 0  # RFC 2181 8


class Owner(NamedTuple):
    """An owner in wire format, as it is spelled and folded, and whether it is a NAAN directly below the apex."""

    name: bytes
    key: bytes
    is_naan: bool = False

    @classmethod
    def of(cls, labels: Labels) -> Owner:
        return cls(to_wire(labels), to_wire(fold(labels)))


class _Base(NamedTuple):
    """What follows the first label of owners, in wire format, and whether it is the apex."""

    name: bytes
    key: bytes
    is_apex: bool


@dataclass(slots=True)
class LineGroup:
    """Adjacent records of one owner, each with the number of its line.

    ``is_clean``: no check can find anything in the NAPTR records. ``is_special`` is as in ``PackedNodes``.
    """

    owner: Owner
    is_clean: bool
    is_special: bool = False
    records: list[bytes] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    @classmethod
    def at(cls, owner: Owner) -> LineGroup:
        return cls(owner, owner.is_naan, owner.key[:2] == WILDCARD)

    def packed(self) -> bytes:
        """Pack the records; return b"" if one may be a duplicate, or must stand alone."""
        records = self.records
        kinds = {record[2:10] for record in records}  # type, class and TTL
        rrsets = {records[0][2:4]: records} if len(kinds) == 1 else _by_type(records)
        if _CNAME_WIRE in rrsets and len(records) > 1:
            return b""
        packed = b""
        for rdtype, alike in sorted(rrsets.items()):
            if len(alike) > 1 and (rdtype in _SINGLE_WIRE or len({record.lower() for record in alike}) < len(alike)):
                return b""
            joined = b"".join(alike)
            packed += RRSET.pack(rdtype[0] << 8 | rdtype[1], len(alike), len(joined)) + joined
        if len(packed) > MAX_CLEAN or len(records) > MAX_RRSET:
            self.is_clean = False
        if _NAPTR_WIRE not in rrsets:
            self.is_clean = True
        return packed


def _by_type(records: list[bytes]) -> dict[bytes, list[bytes]]:
    """Return the records of each type, with the least of their TTLs (RFC 2181 5)."""
    rrsets: dict[bytes, list[bytes]] = {}
    for record in records:
        rrsets.setdefault(record[2:4], []).append(record)
    for rdtype, alike in rrsets.items():
        if len(ttls := {record[6:10] for record in alike}) > 1:
            least = min(ttls)
            rrsets[rdtype] = [record[:6] + least + record[10:] for record in alike]
    return rrsets


class PlainLines:
    """Reader of plain lines.

    ``at`` and ``number`` are the offset and number of the line after those that were read, ``owner`` is the last owner.
    ``finds``: findings in the text are wanted, so a line with one is left to the tokenizer.
    """

    def __init__(self, apex: Labels, ttls: Ttls, *, finds: bool) -> None:
        self.at = 0
        self.number = 1
        self.owner: Owner | None = None
        self._apex = apex
        self._apex_key = to_wire(apex)
        self._inside = to_text(apex).encode().removesuffix(b".")
        self._ttls = ttls
        self._finds = finds
        self._origin: Labels = ()
        self._suffix: bytes | None = None  # the text after the first label of the last owner; None: not known
        self._base: _Base | None = None

    def groups(self, data: bytes, at: int, number: int, origin: Labels, owner: Labels) -> Iterator[LineGroup]:
        """Yield the groups of the plain lines from an offset. ``owner`` is the previous line's.

        When a group is yielded, ``at`` and ``number`` are those of the line after it.
        """
        if origin != self._origin:
            self._origin, self._suffix = origin, None
        self.owner = Owner.of(owner) if is_below(owner, self._apex) else None
        group = None if self.owner is None else LineGroup.at(self.owner)
        spelled: bytes | None = None
        between: bytes | None = None
        ttl: int | None = None
        match, end, pack = _LINE.match, len(data), RECORD.pack
        while at < end and (line := match(data, at)):
            shown, ttl_and_class, url_head, regexp, host_head, host, kind, text = line.groups()
            if ttl_and_class is None:  # an empty line, or a comment
                at, number = line.end(), number + 1
                continue
            if shown is not None and shown != spelled:
                if group is not None and group.records:
                    self.at, self.number = at, number
                    yield group
                group, spelled = None, shown
                if (found := self._owner(shown)) is None:
                    break
                self.owner, group = found, LineGroup.at(found)
            if ttl_and_class != between:
                between, ttl = ttl_and_class, self._ttl(ttl_and_class)
            if group is None or ttl is None:
                break
            if regexp is not None:
                rdtype, rdata = NAPTR, _url_rdata(url_head, regexp)
            elif host is not None:
                rdtype, rdata = NAPTR, self._host_rdata(group, host_head, host)
            else:
                rdtype, rdata = self._read(group, kind, text)
                if rdtype == SOA:
                    between = None  # the implied TTL may be another one
            if rdata is None:
                break
            group.records.append(pack(TO_QUESTION, rdtype, IN, ttl, len(rdata)) + rdata)
            group.lines.append(number)
            at, number = line.end(), number + 1
        self.at, self.number = at, number
        if group is not None and group.records:
            yield group

    def _owner(self, text: bytes) -> Owner | None:
        """Return the owner from its text; None for one that is not below the apex, or not valid."""
        if text == b"@":
            return Owner.of(self._origin) if is_below(self._origin, self._apex) else None
        label = text.partition(b".")[0]
        if (suffix := text[len(label) :]) != self._suffix:
            self._suffix, self._base = suffix, self._base_of(suffix.decode())
        base = self._base
        if base is None or not label or len(label) > MAX_LABEL or len(label) + 1 + len(base.name) > MAX_NAME:
            return None
        size = _BYTES[len(label)]
        return Owner(size + label + base.name, size + label.lower() + base.key, base.is_apex and is_naan(label))

    def _base_of(self, suffix: str) -> _Base | None:
        """Return the name that a suffix such as ``.example.`` means; None for one outside the zone, or not valid."""
        labels = self._origin
        if suffix:
            try:
                labels = names.parse(suffix[1:])
                if not suffix.endswith("."):
                    labels = names.check((*labels, *self._origin))
            except ValueError:
                return None
        if not is_below(labels, self._apex):
            return None
        return _Base(*Owner.of(labels)[:2], len(labels) == len(self._apex))

    def _ttl(self, ttl_and_class: bytes) -> int | None:
        """Return the TTL of a record, from the words before its type; None without one, or for other words."""
        words = ttl_and_class.decode().upper().split()
        if "IN" in words:
            words.remove("IN")
        if not words:
            return self._ttls.implied()
        try:
            (ttl,) = map(dns.ttl.from_text, words)
        except (ValueError, dns.ttl.BadTTL):
            return None
        if ttl > MAX_TTL:
            return None
        self._ttls.last = ttl
        return ttl

    def _host_rdata(self, group: LineGroup, head: bytes, host: bytes) -> bytes | None:
        """Return the rdata of a clean ``h`` record; None for a name that is too long, or a line with a finding."""
        if self._inside in host.lower():  # it may be a target of other names, which are then not entries
            group.is_clean = False
        if b":" in host and self._finds:
            return None
        labels = (host.replace(b"\\058", b":") if b"\\" in host else host).split(b".")
        if len(labels[-1]) > MAX_LABEL:  # with its port
            return None
        name = b"".join([_BYTES[len(label)] + label for label in labels]) + b"\0"
        return _naptr_head(head) + b"\0" + name if len(name) <= MAX_NAME else None

    def _read(self, group: LineGroup, kind: bytes, text: bytes) -> tuple[int, bytes | None]:
        """Return type and rdata of a record of any plain type; None as the rdata for a form that is not plain."""
        known = PLAIN.get(kind) or PLAIN.get(kind.upper())
        if known is None:
            return 0, None
        rdtype, read = known
        if rdtype in (NAPTR, NS):  # records below a delegation are a finding
            group.is_clean = False
        if rdtype not in INERT:
            group.is_special = True
        if not (text := _without_comment(text)):  # not the origin, as a relative name without labels would be
            return rdtype, None
        try:
            rdata = read(text.decode(), self._origin)
        except (ValueError, KeyError, OSError, struct.error, ZoneError):
            return rdtype, None
        if len(rdata) > MAX_RDATA:
            return rdtype, None
        if rdtype == SOA:
            if group.owner.key != self._apex_key:
                return rdtype, None
            self._ttls.note_minimum(rdata)
        return rdtype, rdata


def _without_comment(text: bytes) -> bytes:
    """Return rdata without the comment and trailing blanks."""
    if b";" in text and (before := _BEFORE_COMMENT.match(text)) and text[before.end() : before.end() + 1] == b";":
        text = before[0]
    return text.rstrip()


def _url_rdata(head: bytes, regexp: bytes) -> bytes | None:
    """Return the rdata of a clean ``u`` record; None for a regexp that is too long."""
    regexp = regexp.replace(b"\\\\", b"\\")
    return _naptr_head(head) + _BYTES[len(regexp)] + regexp + b"\0" if len(regexp) <= MAX_STRING else None


@lru_cache(maxsize=256)  # most zones have few different ones
def _naptr_head(text: bytes) -> bytes:
    """Return order, preference, flags and service of a clean NAPTR record in wire format."""
    order, preference, *strings = text.replace(b'"', b"").split()
    return struct.pack("!HH", int(order), int(preference)) + b"".join([_BYTES[len(one)] + one for one in strings])
