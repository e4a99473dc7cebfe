"""Master files (RFC 1035 5): records of any type, with the file and line of each error, and the directives.

$TTL and the last TTL hold for all records after them, in other files too (RFC 2308 4); the origin and the owner are
those of one file (RFC 1035 5.1).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import dns.exception
import dns.rdataclass
import dns.rdatatype
import dns.ttl

from maptr.errors import ZoneError
from maptr.files import MAX_WHOLE, read_whole
from maptr.protocol import names
from maptr.protocol.names import Labels, fold, is_below, to_text
from maptr.protocol.numbers import CNAME, IN, MAX_TTL, NS, NSEC, NSEC3, RRSIG, SOA
from maptr.registry.table import shown
from maptr.zone.finding import NOT_LOADED
from maptr.zone.lines import RecordLine, escaped, is_absolute, is_quoted, logical_lines, unquoted
from maptr.zone.rdata import MISSING, read_rdata, type_number, type_text
from maptr.zone.rrset import canonical_rdata
from maptr.zone.snapshot import PackedNodes, ZoneView

MAX_INCLUDES = 16  # levels of $INCLUDE
TOO_MUCH_INCLUDED = f"more than {MAX_INCLUDES} levels of $INCLUDE, or {MAX_WHOLE} bytes in included files"
MAX_GENERATED = 1_000_000  # records from the $GENERATE lines of a file: as many as a large zone has
TOO_MANY_GENERATED = f"its $GENERATE lines make more than {MAX_GENERATED} records"
MARK_REFUSED = "begins with a byte order mark, which name servers read as part of the first name: save it without"

_KEY = 25
_BESIDE_CNAME = frozenset({CNAME, NSEC, NSEC3, _KEY})  # RFC 4034 3 and 4, RFC 2181 10.1, and signatures of these
_SPAN = re.compile(r"(\d{1,10})-(\d{1,10})(?:/(\d{1,10}))?")
# An escape, $$, or the number of a $GENERATE with its offset, width and base.
_PLACE = re.compile(r"\\.|\$\$|\$(?:\{([+-]?\d{1,10})(?:,(\d{1,3})(?:,([doxXnN]))?)?\})?", re.DOTALL)
_MAX_WIDTH = 127  # BIND's

Record = tuple[Labels, int, int, bytes]  # owner, type, TTL in seconds, rdata


class Locations:
    """The file and line of each record of a zone, for checks that see only the loaded zone."""

    def __init__(self) -> None:
        self.included: list[tuple[Path, bytes]] = []  # the included files and their contents, in order
        self._locations: dict[tuple[Labels, int, bytes], tuple[str, int]] = {}

    def add(self, owner: Labels, rdtype: int, rdata: bytes, place: tuple[str, int]) -> None:
        """Note the place of a record. ``owner`` is folded."""
        for key in ((owner, rdtype, rdata.lower()), (owner, rdtype, b""), (owner, 0, b"")):
            self._locations.setdefault(key, place)

    def find(self, owner: Labels, rdtype: int = 0, rdata: bytes = b"") -> tuple[str, int]:
        """Return the place of a record, or of the first one with this type or owner."""
        return self._locations.get((owner, rdtype, rdata.lower()), ("", 0))


def read_master_file(path: Path, data: bytes, apex: Labels, locations: Locations) -> ZoneView:
    """Read the zone in the content of a file. Adds its records and the files that it includes to ``locations``.

    ``apex`` is folded. Raises ZoneError with file and line for an error, which includes records outside the zone, and
    OSError if an included file cannot be read.
    """
    reader = _Reader(apex, locations, zone=apex)
    reader.read(_File(str(path), apex, apex), data)
    try:
        for rdtype, text in ((SOA, "SOA"), (NS, "NS")):
            if apex not in reader.nodes or rdtype not in reader.nodes[apex].rrsets:
                raise ZoneError(f"no {text} at the origin")
        return ZoneView.of(apex, PackedNodes.pack(reader.records()))
    except ZoneError as error:
        raise ZoneError(error.reason, filename=str(path), code=NOT_LOADED) from None


def read_part(path: Path, data: bytes, apex: Labels, ttl: int) -> list[Record]:
    """Read the records in the content of a file that is part of a zone, also those outside the zone.

    Relative names are below ``apex``. ``ttl`` is the TTL without $TTL. The file must not include others. Raises
    ZoneError with file and line.
    """
    reader = _Reader(apex, Locations(), zone=(), ttl=ttl, may_include=False)
    reader.read(_File(str(path), apex, apex), data)
    return list(reader.records())


def generated(span: str) -> range:
    """Return the numbers in the range of a $GENERATE line, ``1-10`` or ``1-10/2``. Raises ValueError for a bad range.

    >>> list(generated("1-10/4"))
    [1, 5, 9]
    """
    match = _SPAN.fullmatch(span)
    if match is None:
        raise ValueError(f"{span!r} is not a range")
    start, stop, step = (int(number or 1) for number in match.groups())
    if start > stop:
        raise ValueError(f"{span!r} is an empty range")
    return range(start, stop + 1, step)  # ValueError if the step is 0


@dataclass(slots=True)
class _File:
    """A file, and its own state: the origin, the owner of the last record, and the first line of the current one."""

    name: str
    origin: Labels
    owner: Labels
    line: int = 1
    depth: int = 0


@dataclass(slots=True)
class _Node:
    """The records of a name in its first spelling. A signature is of the kind of the type that it covers."""

    owner: Labels
    kinds: set[int] = field(default_factory=set)
    rrsets: dict[int, _Set] = field(default_factory=dict)


@dataclass(slots=True)
class _Set:
    """The records of one owner and type: the least TTL, and rdata by its canonical form."""

    ttl: int
    rdatas: dict[bytes, bytes] = field(default_factory=dict)


class _Reader:
    """Reader of the records of a zone. ``nodes`` has them, by folded owner.

    Limits stop a file that includes itself, a pipe or a device, or that generates too many records.
    """

    def __init__(
        self, apex: Labels, locations: Locations, *, zone: Labels, ttl: int | None = None, may_include: bool = True
    ) -> None:
        self.nodes: dict[Labels, _Node] = {}
        self._apex = apex
        self._zone = zone
        self._locations = locations
        self._default_ttl = ttl  # of $TTL
        self._last_ttl: int | None = None  # RFC 1035 5.1
        self._minimum: int | None = None  # of the SOA, for a zone without any TTL
        self._may_include = may_include
        self._bytes_left = MAX_WHOLE
        self._records_left = MAX_GENERATED

    def records(self) -> Iterator[Record]:
        for node in self.nodes.values():
            for rdtype, found in node.rrsets.items():
                yield from ((node.owner, rdtype, found.ttl, rdata) for rdata in found.rdatas.values())

    def read(self, file: _File, data: bytes) -> None:
        """Read the records of a file. Raises ZoneError with file and line."""
        owner = ""
        try:
            if data.startswith(codecs.BOM_UTF8):
                raise ZoneError(MARK_REFUSED, line=1, owner="the file", code="byte-order-mark")
            for line in logical_lines(_decoded(data)):
                file.line = line.number
                if line.tokens[0][0] == "$" and not line.is_indented:
                    self._directive(file, line.tokens)
                    continue
                if not line.is_indented:
                    file.owner = self._name(line.tokens[0], file.origin)
                owner = to_text(file.owner)
                self._record(file, line)
                owner = ""
        except ZoneError as error:
            if error.filename:
                raise
            place = error.line or file.line
            code = error.code or NOT_LOADED
            raise ZoneError(
                error.reason, filename=file.name, line=place, owner=error.owner or owner, code=code
            ) from error

    # ---- records

    def _record(self, file: _File, line: RecordLine) -> None:
        ttl, rdtype, fields = self._head(line.tokens if line.is_indented else line.tokens[1:])
        rdata = read_rdata(rdtype, [escaped(token) for token in fields], file.origin)
        self._add(file, ttl, rdtype, rdata)

    def _head(self, tokens: Sequence[str]) -> tuple[int | None, int, Sequence[str]]:
        """Return TTL (None without one), type and rdata from the tokens after an owner: TTL and class in any order."""
        ttl: int | None = None
        has_class = False
        for at, token in enumerate(tokens):
            if is_quoted(token):
                raise ZoneError(f"near {shown(token)!r}: a type must not be in quotes")
            if ttl is None and (found := _ttl(token)) is not None:
                ttl = self._last_ttl = found
            elif not has_class and (rdclass := _class(token)) is not None:
                if rdclass != IN:
                    raise ZoneError(f"near {shown(token)!r}: the class of the zone is IN")
                has_class = True
            elif ttl is None and token.isdigit():
                raise ZoneError(f"near {shown(token)!r}: is out of range")
            else:
                return ttl, type_number(token), tokens[at + 1 :]
        raise ZoneError(MISSING)

    def _add(self, file: _File, ttl: int | None, rdtype: int, rdata: bytes) -> None:
        """Add a record. Equal records are one, and an RRset has the least TTL of its records (RFC 2181 5).

        Raises ZoneError for a record outside the zone or without a TTL, and for one that must not stand beside others.
        """
        owner = fold(file.owner)
        if rdtype == SOA and owner != self._apex:
            raise ZoneError(f"the SOA is that of {to_text(file.owner)}, and the zone was to be {to_text(self._apex)}")
        if not is_below(owner, self._zone):
            raise ZoneError(f"the owner is outside the zone {to_text(self._zone)}", code="out-of-zone")
        if rdtype == SOA and self._minimum is None:
            self._minimum = int.from_bytes(rdata[-4:], "big")
        ttls = (ttl, self._default_ttl, self._last_ttl, self._minimum)
        ttl = next((found for found in ttls if found is not None), None)
        if ttl is None:
            raise ZoneError("no TTL: begin the file with a $TTL line")
        if ttl > MAX_TTL:
            ttl = 0  # RFC 2181 8; ``check.py`` warns of it
        node = self.nodes.setdefault(owner, _Node(file.owner))
        node.kinds.add(rdtype if rdtype != RRSIG else int.from_bytes(rdata[:2], "big"))
        if CNAME in node.kinds and not node.kinds <= _BESIDE_CNAME:
            raise ZoneError("CNAME and other data")
        rrset = node.rrsets.setdefault(rdtype, _Set(ttl))
        rrset.ttl = min(rrset.ttl, ttl)
        rrset.rdatas.setdefault(canonical_rdata(rdtype, rdata), rdata)
        if len(rrset.rdatas) > 1 and dns.rdatatype.is_singleton(dns.rdatatype.RdataType.make(rdtype)):
            raise ZoneError(f"a second {type_text(rdtype)} at {to_text(file.owner)}", code="second-of-one")
        self._locations.add(owner, rdtype, rdata, (file.name, file.line))

    @staticmethod
    def _name(token: str, origin: Labels) -> Labels:
        """Return a name of the file. Raises ZoneError."""
        if token == "@":  # noqa: S105
            return origin
        if is_quoted(token):
            raise ZoneError(f"near {shown(token)!r}: a name must not be in quotes")
        text = escaped(token)
        try:
            labels = names.parse(text)
            return labels if is_absolute(text) else names.check((*labels, *origin))
        except ValueError as error:
            raise ZoneError(f"near {shown(token)!r}: {error}") from None

    # ---- directives

    def _directive(self, file: _File, tokens: list[str]) -> None:
        word, *fields = tokens
        match word.upper(), fields:
            case "$TTL", [text]:
                if (ttl := _ttl(text)) is None:
                    raise ZoneError(f"near {shown(text)!r}: is not a time")
                self._default_ttl = ttl
            case "$ORIGIN", [text]:
                file.origin = self._name(text, file.origin)
            case "$INCLUDE", [path, *rest] if self._may_include and len(rest) < 2:
                self._include(file, unquoted(path), self._name(rest[0], file.origin) if rest else file.origin)
            case "$GENERATE", [span, owner, *rest]:
                self._generate(file, span, owner, rest)
            case "$INCLUDE", [] if self._may_include:
                raise ZoneError("$INCLUDE without a file")
            case (("$TTL" | "$ORIGIN" | "$GENERATE"), [] | [_]):
                raise ZoneError(MISSING)
            case (("$TTL" | "$ORIGIN"), _):
                raise ZoneError(f"near {shown(fields[1])!r}: more fields than {word.upper()} has")
            case "$INCLUDE", _ if self._may_include:
                raise ZoneError(f"near {shown(fields[2])!r}: more fields than $INCLUDE has")
            case _:
                raise ZoneError(f"near {shown(word)!r}: unknown directive")

    def _include(self, file: _File, name: str, origin: Labels) -> None:
        data = read_whole(Path(name))
        self._bytes_left -= len(data)
        if file.depth >= MAX_INCLUDES or self._bytes_left < 0:
            raise ZoneError(TOO_MUCH_INCLUDED)
        self._locations.included.append((Path(name), data))
        self.read(_File(name, origin, file.owner, depth=file.depth + 1), data)

    def _generate(self, file: _File, span: str, owner: str, tokens: list[str]) -> None:
        """Add the records of a $GENERATE line, as BIND makes them."""
        try:
            numbers = generated(span)
        except ValueError:
            raise ZoneError(f"near {shown(span)!r}: bad range of $GENERATE") from None
        self._records_left -= len(numbers)
        if self._records_left < 0:
            raise ZoneError(TOO_MANY_GENERATED, code="generated")
        ttl, rdtype, fields = self._head(tokens)
        if len(fields) != 1:
            raise ZoneError(MISSING if not fields else f"near {shown(fields[1])!r}: more fields than $GENERATE has")
        for number in numbers:
            file.owner = self._name(_numbered(owner, number), file.origin)
            rdata = escaped(_numbered(unquoted(fields[0]), number))
            tokens = [token for line in logical_lines(rdata) for token in line.tokens]
            self._add(file, ttl, rdtype, read_rdata(rdtype, tokens, file.origin))


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ZoneError("not UTF-8", line=data.count(b"\n", 0, error.start) + 1) from None


def _ttl(token: str) -> int | None:
    """Return the TTL of a word such as ``3600`` or ``1h``; None for another word."""
    try:
        return dns.ttl.from_text(token)
    except dns.ttl.BadTTL:
        return None


def _class(token: str) -> int | None:
    """Return the number of a class; None for a word that is none."""
    try:
        return int(dns.rdataclass.from_text(token))
    except (dns.exception.DNSException, ValueError):
        return None


def _numbered(template: str, number: int) -> str:
    """Put a number into a text of a $GENERATE line.

    Raises ZoneError for a bad modifier.

    >>> _numbered("a-${-1,3,x}.$", 17)
    'a-010.17'
    """

    def put(found: re.Match[str]) -> str:
        if found[0][0] == "\\" or found[0] == "$$":
            return found[0].removeprefix("$")
        if found.end() < len(template) and template[found.end()] == "{" and found[0] == "$":
            raise ZoneError(f"near {shown(template)!r}: bad modifier of $GENERATE")
        offset, width, base = int(found[1] or 0), int(found[2] or 0), found[3] or "d"
        if width > _MAX_WIDTH:
            raise ZoneError(f"near {shown(template)!r}: the width is above {_MAX_WIDTH}")
        if base not in "nN":
            return format(number + offset, base).zfill(width)
        if number + offset < 0:
            raise ZoneError(f"near {shown(template)!r}: a negative number has no nibbles")
        nibbles = ".".join(reversed(format(number + offset, "x" if base == "n" else "X")))
        missing = max(0, width - len(nibbles))
        return nibbles + ".0" * (missing // 2) + "." * (missing % 2)

    return _PLACE.sub(put, template)
