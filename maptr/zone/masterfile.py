"""Master files (RFC 1035 5): records of any type, with the file and line of each error, and the directives.

$TTL and the last TTL apply to all later records, even in other files (RFC 2308 4); the origin and the owner apply to
one file (RFC 1035 5.1).

A plain line is a whole record in printable ASCII, in any server's layout (``plain_lines.py``). Those of the types in
``rdata.PLAIN`` are read without tokenizer or dnspython. Plain lines of one name are packed together when the next name
begins; those that may be wrong, and all other lines, go record by record through ``_add``.

The same expression tells NAPTR records in which ``check.py`` finds nothing: the names of all others are *doubtful*.

The reader also finds what only the text shows: a loaded zone does not tell whether a name was relative or a port
unescaped.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import dns.exception
import dns.rdataclass
import dns.rdatatype
import dns.ttl

from maptr.errors import ZoneError, reason_of
from maptr.files import MAX_WHOLE, read_whole
from maptr.protocol import names
from maptr.protocol.names import ARK_ARPA, WILDCARD, Folded, Labels, fold, from_wire, is_below, to_text, to_wire
from maptr.protocol.numbers import CNAME, IN, MAX_TTL, NAPTR, NS, NSEC, NSEC3, RRSIG, SOA
from maptr.zone.finding import NOT_LOADED, Finding, error, warning
from maptr.zone.plain_lines import SINGLE, LineGroup, PlainLines, Ttls
from maptr.zone.rdata import (
    GENERIC,
    MISSING,
    bad_field,
    read_rdata,
    type_number,
    type_text,
)
from maptr.zone.rrset import (
    RECORD,
    canonical_rdata,
    pack_record,
    pack_rrsets,
    rdatas_of,
    records_of,
    split_rrsets,
    ttl_of,
    types_of,
)
from maptr.zone.snapshot import INERT, PackedNodes, ZoneView, add_empty_names

MAX_INCLUDES = 16  # levels of $INCLUDE
TOO_MUCH_INCLUDED = f"more than {MAX_INCLUDES} levels of $INCLUDE, or {MAX_WHOLE} bytes in included files"
MAX_GENERATED = 1_000_000  # records from the $GENERATE lines of a file: as many as a large zone has
TOO_MANY_GENERATED = f"its $GENERATE lines make more than {MAX_GENERATED} records"
MARK_REFUSED = "begins with a byte order mark, which name servers read as part of the first name: save it without"
_MARK, _UTF16 = ("byte-order-mark", MARK_REFUSED), ("byte-order-mark", "is UTF-16: save it as UTF-8")
_RAW = NOT_LOADED, "is in BIND's raw format: named-compilezone -f raw -o OUT ZONE FILE makes a zone file of it"
_NOT_A_ZONE_FILE = {codecs.BOM_UTF8: _MARK, codecs.BOM_UTF16_LE: _UTF16, codecs.BOM_UTF16_BE: _UTF16, b"\0\0\0\2": _RAW}
# Bytes of a word, and words of a record: 65,535 bytes of rdata need no more, each as \DDD or as a word.
MAX_WORD = 1 << 18
MAX_REFUSED = 100  # unreadable lines after which the reader stops
NOT_ASCII = "Knot and PowerDNS reject the zone because of it, and others serve its bytes: write its A-label"
DATA_NOT_ASCII = "Knot rejects the zone because of it: write \\DDD for each byte"
UNBALANCED_QUOTES, UNBALANCED_GROUP = "unbalanced quotes", "unbalanced parentheses"
TOO_LONG = f"a record has more than {MAX_WORD} words, or a word of more than {MAX_WORD} bytes"

_KEY = 25
_BESIDE_CNAME = frozenset({CNAME, RRSIG, NSEC, NSEC3, _KEY})  # RFC 4034 3 and 4, RFC 2181 10.1
_SPAN = re.compile(r"(?a)(\d{1,10})-(\d{1,10})(?:/(\d{1,10}))?")
# An escape, $$, or the number of a $GENERATE with its offset, width and base.
_PLACE = re.compile(r"(?a)\\.|\$\$|\$(?:\{([+-]?\d{1,10})(?:,(\d{1,3})(?:,([doxXnN]))?)?\})?", re.DOTALL)
_MAX_WIDTH = 127  # BIND's
_MAX_NUMBER = 0x7FFF_FFFF  # of a $GENERATE line: BIND rejects or changes greater ones
_CLASSES = ("IN", "CH", "HS", "CS")  # RFC 1035 3.2.4

# A word may end with a quoted value directly after "=", as SvcParams do (RFC 9460 2.1).
_ESCAPED = r"\\(?s:.)"
_QUOTED = rf'"(?:[^"\\\n]|{_ESCAPED})*"'
_PART = re.compile(
    (
        rf"(?P<blank>[ \t]+)|(?P<end>\r\n|[\r\n])|(?P<comment>;[^\r\n]*)|(?P<group>[()])|(?P<quoted>{_QUOTED})"
        rf'|(?P<word>(?:[^ \t\r\n;()"\\]|\\[^\r\n])+(?:(?<==){_QUOTED})?)'
    ).encode()
)
_END_OF_LINE = re.compile(rb"[\r\n]|\Z")
_NOT_ASCII = re.compile(rb"\\(?s:.)|[\x80-\xff]")

AS_TEXT = "utf-8", "surrogateescape"  # a zone file is bytes: text that is not UTF-8 is kept as it is
Record = tuple[Labels, int, int, bytes]  # owner, type, TTL in seconds, rdata


class Locations:
    """The file and line of each record of a zone, for checks of the loaded zone.

    ``included`` are the files that the zone includes, ``findings`` those in the text.
    """

    def __init__(self) -> None:
        self.included: list[Path] = []
        self.findings: list[Finding] = []
        self._places: dict[tuple[Labels, int, bytes], tuple[str, int]] = {}

    def add(self, owner: Labels, rdtype: int, rdata: bytes, place: tuple[str, int]) -> None:
        """Note the file and line of a record. ``owner`` is folded."""
        for key in ((owner, rdtype, rdata.lower()), (owner, rdtype, b""), (owner, 0, b"")):
            self._places.setdefault(key, place)

    def find(self, owner: Labels, rdtype: int = 0, rdata: bytes = b"") -> tuple[str, int]:
        """Return file and line of a record, or of the first one with this type or owner."""
        return self._places.get((owner, rdtype, rdata.lower()), ("", 0))


class Source(NamedTuple):
    """A file that a zone was read from. ``digest`` is the SHA-256 of the bytes that were read."""

    path: Path
    digest: bytes


class ZoneFile(NamedTuple):
    """A zone that was read from a file. ``doubtful`` are the names whose NAPTR records need a check.

    ``sources`` has the zone file, and then each file that it includes, in the order of reading.
    """

    view: ZoneView
    doubtful: frozenset[bytes]
    sources: tuple[Source, ...]


def read_master_file(filename: str, data: bytes, apex: Folded, locations: Locations | None = None) -> ZoneView:
    """Read the zone in the content of a file, as ``read_zone_file`` does."""
    return read_zone_file(filename, data, apex, locations).view


def read_zone_file(filename: str, data: bytes, apex: Folded, locations: Locations | None = None) -> ZoneFile:
    """Read the zone in the content of a file, and note its records and findings in ``locations``.

    ``apex`` is folded. Raises ZoneError with file and line for the first error, which includes records outside the zone
    and an included file that cannot be read. ``locations`` then also has the errors of other lines.
    """
    reader = MasterFileReader(apex, locations)
    reader.read_all(filename, data)
    try:
        nodes = reader.packed()
        types = types_of(nodes.table.get(to_wire(apex), b""))
        for rdtype, text in ((SOA, "SOA"), (NS, "NS")):
            if rdtype not in types:
                raise ZoneError(f"no {text} at the origin")
        return ZoneFile(ZoneView.of(apex, nodes), frozenset(reader.doubtful), tuple(reader.sources))
    except ZoneError as refused:
        raise ZoneError(refused.reason, filename=filename, code=NOT_LOADED) from None


def read_part(filename: str, data: bytes, apex: Labels, ttl: int) -> list[Record]:
    """Read the records in the content of a file that is part of a zone.

    ``apex`` is the origin of the zone, ``ttl`` the TTL without $TTL. The file must not include others. Raises ZoneError
    with file and line.
    """
    reader = MasterFileReader(apex, default_ttl=ttl, may_include=False)
    reader.read_all(filename, data)
    return list(reader.records())


def soa_owner(text: str) -> str:
    """Return the owner of the SOA in a zone text; ``ark.arpa.`` if it has none."""
    base = to_text(ARK_ARPA)
    with suppress(ZoneError):  # the reader of the zone reports it
        for _, is_indented, tokens in _logical_lines(text.encode(*AS_TEXT)):
            if len(tokens) > 1 and tokens[0].upper() == "$ORIGIN":
                base = _absolute(tokens[1], base)
            elif not is_indented and _type(tokens[1:]) == "SOA":
                return _absolute(tokens[0], base)
    return base


def _type(tokens: Sequence[str]) -> str:
    """Return the type from the tokens after an owner, in upper case."""
    return next((text for token in tokens if not ((text := token.upper()) in _CLASSES or text[0].isdigit())), "")


def _absolute(name: str, base: str) -> str:
    """Complete a name from the file with an absolute name, both in presentation format."""
    if name == "@" or _is_absolute(name):
        return base if name == "@" else name
    return f"{name}.{base.removeprefix('.')}"


@dataclass(slots=True)
class FileState:
    """A file, and its own state: the origin, the owner of the last record, and the first line of the current one."""

    name: str
    origin: Labels
    owner: Labels
    line: int = 1
    depth: int = 0


@dataclass(slots=True)
class _Set:
    """The records of one owner and type: the least TTL, and rdata by its canonical form."""

    ttl: int
    rdatas: dict[bytes, bytes] = field(default_factory=dict)


class MasterFileReader:
    """Reads a zone's records. ``refused`` has the errors.

    ``table`` has the packed values of names whose plain lines stood together and are in order, ``nodes`` the RRsets of
    all others, both by folded owner in wire format. ``spelled`` and ``special`` are as in ``PackedNodes``.

    ``default_ttl`` is the TTL without $TTL; $TTL replaces it. Limits stop a file that includes itself, a pipe or a
    device, or that generates too many records.
    """

    def __init__(
        self,
        apex: Labels,
        locations: Locations | None = None,
        *,
        default_ttl: int | None = None,
        may_include: bool = True,
    ) -> None:
        self.table: dict[bytes, bytes] = {}
        self.nodes: dict[bytes, dict[int, _Set]] = {}
        self.spelled: dict[bytes, bytes] = {}
        self.special: dict[bytes, None] = {}
        self.doubtful: set[bytes] = set()
        self.sources: list[Source] = []
        self.refused: list[ZoneError] = []
        self.findings: list[Finding] = [] if locations is None else locations.findings
        self._apex = apex
        self._locations = locations
        self._ttls = Ttls(default_ttl)
        self._lines = PlainLines(apex, self._ttls, finds=locations is not None)
        self._may_include = may_include
        self._bytes_left = MAX_WHOLE
        self._records_left = MAX_GENERATED

    def packed(self) -> PackedNodes:
        """Pack what was read, and forget it."""
        for key, node in self.nodes.items():
            self.table[key] = pack_rrsets(
                {
                    rdtype: b"".join([pack_record(rdtype, found.ttl, rdata) for rdata in found.rdatas.values()])
                    for rdtype, found in node.items()
                }
            )
            if key[:2] == WILDCARD or not INERT.issuperset(node):
                self.special[key] = None
            if NAPTR in node:
                self.doubtful.add(key)
        self.nodes = {}
        add_empty_names(self.table, to_wire(self._apex))
        self.special |= {key: None for key, packed in self.table.items() if not packed and key[:2] == WILDCARD}
        return PackedNodes(self.table, self.spelled, self.special)

    def records(self) -> Iterator[Record]:
        nodes = self.packed()
        for key, packed in nodes.table.items():
            yield from ((nodes.owner(key), *record) for record in records_of(packed))

    def read_all(self, filename: str, data: bytes) -> None:
        """Read a file and those that it includes, and raise the first error."""
        self.sources.append(Source(Path(filename), sha256(data).digest()))
        self.read(FileState(filename, self._apex, self._apex), data)
        if self.refused:
            raise self.refused[0]

    def read(self, file: FileState, data: bytes) -> None:
        """Read the records of a file, continuing after a refused line."""
        try:
            for start, (code, reason) in _NOT_A_ZONE_FILE.items():
                if data.startswith(start):
                    raise ZoneError(reason, line=1, owner="the file", code=code)
            at, number = 0, 1
            while at < len(data):
                at, number = self._plain_lines(file, data, at, number)
                line, at, number = _logical_line(data, at, number)
                if line is None:
                    continue
                file.line = line.number
                if self._is_full(file):
                    return
                try:
                    self._line(file, line)
                except ZoneError as refused:
                    self._refuse(file, refused)
        except ZoneError as refused:
            self._refuse(file, refused)

    def _is_full(self, file: FileState) -> bool:
        """Return whether MAX_REFUSED lines were refused, so that the rest is not read, which is a finding."""
        if len(self.refused) == MAX_REFUSED:
            self._refuse(file, ZoneError(f"{MAX_REFUSED} lines cannot be read; what follows is not checked"))
        return len(self.refused) > MAX_REFUSED

    def _refuse(self, file: FileState, refused: ZoneError) -> None:
        place = refused.line or file.line
        located = ZoneError(
            refused.reason,
            filename=file.name,
            line=place,
            owner=refused.owner,
            code=refused.code or NOT_LOADED,
        )
        self.refused.append(located)
        self.findings.append(Finding.of(located))

    def _plain_lines(self, file: FileState, data: bytes, at: int, number: int) -> tuple[int, int]:
        """Read the plain lines that follow; return the offset and number of the first line for the tokenizer."""
        lines = self._lines
        for group in lines.groups(data, at, number, file.origin, file.owner):
            self._add_group(file, group)
            if len(self.refused) >= MAX_REFUSED:
                break
        if lines.owner is not None:
            file.owner = from_wire(lines.owner.name)
        return lines.at, lines.number

    def _add_group(self, file: FileState, group: LineGroup) -> None:
        """Add adjacent records of one name: packed, or one by one where something may be wrong with them."""
        owner = group.owner
        if self._locations is None and owner.key not in self.table and (packed := group.packed()):
            self.table[owner.key] = packed
            if owner.name != owner.key:
                self.spelled[owner.key] = owner.name
            if group.is_special:
                self.special[owner.key] = None
            if not group.is_clean:
                self.doubtful.add(owner.key)
            return
        for line, record in zip(group.lines, group.records, strict=True):
            file.line = line
            if self._is_full(file):
                return
            _, rdtype, _, ttl, _ = RECORD.unpack_from(record)
            try:
                self._merge(file, owner.key, owner.name, ttl, rdtype, record[RECORD.size :])
            except ZoneError as refused:
                refused.owner = to_text(from_wire(owner.name))
                self._refuse(file, refused)

    def _merge(self, file: FileState, key: bytes, name: bytes, ttl: int, rdtype: int, rdata: bytes) -> None:
        """Add a record to its name. Raises ZoneError for one that must not stand beside others."""
        node = self.nodes.get(key)
        if node is None:
            known = self.table.get(key, b"")
            if not known and name != key:
                self.spelled[key] = name
            self.special.pop(key, None)
            self.table[key] = b""  # keeps its place
            node = self.nodes[key] = {
                of: _Set(ttl_of(records), {canonical_rdata(of, wire): wire for wire in rdatas_of(records)})
                for of, records in split_rrsets(known)
            }
        rrset = node.setdefault(rdtype, _Set(ttl))
        if CNAME in node and not node.keys() <= _BESIDE_CNAME:
            raise ZoneError("CNAME and other data")
        rrset.ttl = min(rrset.ttl, ttl)
        rrset.rdatas.setdefault(canonical_rdata(rdtype, rdata), rdata)
        if len(rrset.rdatas) > 1 and rdtype in SINGLE:
            raise ZoneError(f"a second {type_text(rdtype)} at {to_text(from_wire(name))}", code="second-of-one")
        if self._locations is not None:
            self._locations.add(from_wire(key), rdtype, rdata, (file.name, file.line))

    def _line(self, file: FileState, line: RecordLine) -> None:
        first, *rest = line.tokens
        if line.is_indented:
            self._record(file, line.tokens)
        elif first[0] == "$":
            self._directive(file, line.tokens)
        else:
            file.owner = self._name(first, file.origin)
            if not first.isascii():
                self._found(error, "not-ascii", file, NOT_ASCII, first)
            self._record(file, rest)

    def _found(self, made: Callable[..., Finding], code: str, file: FileState, reason: str, value: str = "") -> None:
        self.findings.append(made(code, to_text(file.owner), reason, value, file.line, file.name))

    # ---- records

    def _record(self, file: FileState, tokens: Sequence[str]) -> None:
        """Read a record from the tokens after its owner."""
        try:
            ttl, rdtype, fields = self._head(file, tokens)
            if rdtype == NAPTR and fields[:1] != [GENERIC]:
                self._check_naptr(file, fields)
            if odd := next((token for token in fields if not token.isascii()), ""):
                self._found(warning, "not-ascii", file, DATA_NOT_ASCII, odd)
            rdata = read_rdata(rdtype, [escaped(token) for token in fields], file.origin)
            self._add(file, ttl, rdtype, rdata)
        except ZoneError as refused:
            refused.owner = refused.owner or to_text(file.owner)
            raise

    def _check_naptr(self, file: FileState, fields: Sequence[str]) -> None:
        """Check the spelling of a NAPTR record. Raises ZoneError for another number of fields."""
        if len(fields) != 6:
            raise ZoneError(f"a NAPTR record has 6 fields, this one {len(fields)}", code="naptr-fields")
        if "ark" not in fields[3].lower():
            return
        replacement, origin = fields[5], to_text(file.origin)
        if re.search(r"(?<!\\):", replacement):
            escaped = replacement.replace(":", "\\058")
            reason = f"Knot rejects the zone because the port is not escaped: write {escaped}"
            self._found(error, "unescaped-port", file, reason, replacement)
        if _is_absolute(replacement) or replacement == "@":
            return
        if "." in replacement:
            reason = f"has no final dot: a server will read it as {_absolute(replacement, origin)}"
            self._found(error, "relative-replacement", file, reason, replacement)
        elif _unquoted(fields[2]).lower() == "h":
            reason = f"is relative: a server reads {_absolute(replacement, origin)}"
            self._found(warning, "relative-replacement", file, reason, replacement)

    def _head(self, file: FileState, tokens: Sequence[str]) -> tuple[int | None, int, Sequence[str]]:
        """Return TTL (None without one), type and rdata from the tokens after an owner: TTL and class in any order."""
        ttl: int | None = None
        has_class = False
        for at, token in enumerate(tokens):
            if _is_quoted(token):
                raise bad_field(token, "a type must not be in quotes")
            if ttl is None and (found := self._ttl(file, token)) is not None:
                ttl = self._ttls.last = found
            elif not has_class and (rdclass := _class(token)) is not None:
                if rdclass != IN:
                    raise bad_field(token, "the class of the zone is IN")
                has_class = True
            elif ttl is None and token.isdigit():
                raise bad_field(token, "is out of range")
            else:
                return ttl, type_number(token), tokens[at + 1 :]
        raise ZoneError(MISSING)

    def _add(self, file: FileState, ttl: int | None, rdtype: int, rdata: bytes) -> None:
        """Add a record. Equal records count once, and an RRset has the lowest TTL of its records (RFC 2181 5).

        Raises ZoneError for a record outside the zone or without a TTL, and for one that must not stand beside others.
        """
        owner = fold(file.owner)
        if rdtype == SOA and owner != self._apex:
            raise ZoneError(f"the SOA belongs to {to_text(file.owner)}, but the zone is {to_text(self._apex)}")
        if not is_below(owner, self._apex):
            raise ZoneError(f"the owner is outside the zone {to_text(self._apex)}", code="out-of-zone")
        if rdtype == SOA:
            self._ttls.note_minimum(rdata)
        ttl = self._ttls.implied() if ttl is None else ttl
        if ttl is None:
            raise ZoneError("no TTL: begin the file with a $TTL line")
        self._merge(file, to_wire(owner), to_wire(file.owner), ttl, rdtype, rdata)

    def _ttl(self, file: FileState, token: str, record: str = "") -> int | None:
        """Return the TTL in a word such as ``3600`` or ``1h``; None for any other word."""
        if not token.isascii():  # dnspython reads digits of other scripts
            return None
        try:
            ttl = dns.ttl.from_text(token)
        except (dns.ttl.BadTTL, ValueError):  # Python refuses to read thousands of digits
            return None
        if ttl <= MAX_TTL:
            return ttl
        reason = f"is 0, because it is above {MAX_TTL}"  # RFC 2181 8
        record = record or to_text(file.owner)
        self.findings.append(warning("ttl-too-large", record, reason, token, file.line, file.name))
        return 0

    @staticmethod
    @lru_cache(maxsize=16)  # lines of one name are usually adjacent
    def _name(token: str, origin: Labels) -> Labels:
        """Return a name in the file. Raises ZoneError."""
        if token == "@":  # noqa: S105
            return origin
        if _is_quoted(token):
            raise bad_field(token, "a name must not be in quotes")
        text = escaped(token)
        try:
            labels = names.parse(text)
            return labels if _is_absolute(text) else names.check((*labels, *origin))
        except ValueError as error:
            raise bad_field(token, str(error)) from None

    # ---- directives

    def _directive(self, file: FileState, tokens: list[str]) -> None:
        word, *fields = tokens
        match word.upper(), fields:
            case "$TTL", [text]:
                if (ttl := self._ttl(file, text, "the zone")) is None:
                    raise bad_field(text, "is not a time")
                self._ttls.default = ttl
            case "$ORIGIN", [text]:
                file.origin = self._name(text, file.origin)
            case "$INCLUDE", [path, *rest] if self._may_include and len(rest) < 2:
                self._include(file, _unquoted(path), self._name(rest[0], file.origin) if rest else file.origin)
            case "$GENERATE", [span, owner, *rest]:
                self._generate(file, span, owner, rest)
            case "$INCLUDE", [] if self._may_include:
                raise ZoneError("$INCLUDE without a file")
            case (("$TTL" | "$ORIGIN" | "$GENERATE"), [] | [_]):
                raise ZoneError(MISSING)
            case (("$TTL" | "$ORIGIN"), _):
                raise bad_field(fields[1], f"more fields than {word.upper()} has")
            case "$INCLUDE", _ if self._may_include:
                raise bad_field(fields[2], "more fields than $INCLUDE has")
            case _:
                raise bad_field(word, "unknown directive")

    def _include(self, file: FileState, name: str, origin: Labels) -> None:
        """Read another file. Its path is relative to the folder of the file that includes it."""
        path = Path(file.name).parent / name
        try:
            data = read_whole(path)
        except OSError as error:
            raise ZoneError(reason_of(error)) from None
        except ValueError:  # a NUL, or a character that the system cannot encode
            raise bad_field(name, "is not the name of a file") from None
        self._bytes_left -= len(data)
        if file.depth >= MAX_INCLUDES or self._bytes_left < 0:
            raise ZoneError(TOO_MUCH_INCLUDED)
        self.sources.append(Source(path, sha256(data).digest()))
        if self._locations is not None:
            self._locations.included.append(path)
        self.read(FileState(str(path), origin, file.owner, depth=file.depth + 1), data)

    def _generate(self, file: FileState, span: str, owner: str, tokens: list[str]) -> None:
        """Add the records of a $GENERATE line, as BIND makes them. The last record's owner does not change."""
        match = _SPAN.fullmatch(span)
        start, stop, step = (int(number or 1) for number in match.groups()) if match else (1, 0, 1)
        if start > stop or not step:
            raise bad_field(span, "bad range of $GENERATE")
        if max(stop, step) > _MAX_NUMBER:
            raise bad_field(span, f"a number of $GENERATE is at most {_MAX_NUMBER}")
        numbers = range(start, stop + 1, step)
        self._records_left -= len(numbers)
        if self._records_left < 0:
            raise ZoneError(TOO_MANY_GENERATED, code="generated")
        ttl, rdtype, fields = self._head(file, tokens)
        if not fields:
            raise ZoneError(MISSING)
        if fields[1:]:
            raise bad_field(fields[1], "more fields than $GENERATE has")
        for number in numbers:
            made = replace(file, owner=self._name(_numbered(owner, number), file.origin))
            rdata = escaped(_numbered(_unquoted(fields[0]), number))
            tokens = [token for line in _logical_lines(rdata.encode(*AS_TEXT)) for token in line.tokens]
            self._add(made, ttl, rdtype, read_rdata(rdtype, tokens, file.origin))


def _class(token: str) -> int | None:
    """Return the number of a class; None for any other word."""
    try:
        return int(dns.rdataclass.from_text(token))
    except (dns.exception.DNSException, ValueError):
        return None


def _numbered(template: str, number: int) -> str:
    """Insert a number into a text of a $GENERATE line.

    Raises ZoneError for a bad modifier.

    >>> _numbered("a-${-1,3,x}.$", 17)
    'a-010.17'
    """

    def put(found: re.Match[str]) -> str:
        if found[0][0] == "\\" or found[0] == "$$":
            return found[0].removeprefix("$")
        if found.end() < len(template) and template[found.end()] == "{" and found[0] == "$":
            raise bad_field(template, "bad modifier of $GENERATE")
        offset, width, base = int(found[1] or 0), int(found[2] or 0), found[3] or "d"
        if width > _MAX_WIDTH:
            raise bad_field(template, f"the width is above {_MAX_WIDTH}")
        made = number + offset
        if min(made, offset) < -_MAX_NUMBER - 1 or made > _MAX_NUMBER:
            raise bad_field(template, f"makes {made} of {number}: a number of $GENERATE is at most {_MAX_NUMBER}")
        if base == "d":
            return str(made).zfill(width)
        if base not in "nN":
            return format(made & 0xFFFF_FFFF, base).zfill(width)  # a negative number has 32 bits, as BIND writes it
        if made < 0:
            raise bad_field(template, "a negative number has no nibbles")
        nibbles = ".".join(reversed(format(made, "x" if base == "n" else "X")))
        missing = max(0, width - len(nibbles))
        return nibbles + ".0" * (missing // 2) + "." * (missing % 2)

    return _PLACE.sub(put, template)


# ---- logical lines: their tokens, as they are spelled


class RecordLine(NamedTuple):
    """A logical line: its first line in the file, whether it begins with a blank, and its tokens with their quotes."""

    number: int
    is_indented: bool
    tokens: list[str]


def _logical_lines(data: bytes) -> Iterator[RecordLine]:
    """Yield the logical lines that have a token. Raises ZoneError, with the line, for data that cannot be split."""
    at, number = 0, 1
    while at < len(data):
        line, at, number = _logical_line(data, at, number)
        if line is not None:
            yield line


def _logical_line(data: bytes, at: int, number: int) -> tuple[RecordLine | None, int, int]:
    """Read the logical line at an offset and line number (None: it has no token), and return where the next begins.

    Raises ZoneError, with the line, for data that cannot be split.
    """
    began, depth = number, 0
    is_indented = data[at : at + 1] in (b" ", b"\t")
    tokens: list[str] = []
    while at < len(data):
        part = _PART.match(data, at, at + MAX_WORD)
        if part is None:
            reason = "an escape at the end of a line"
            if data[at : at + 1] == b'"':
                is_long = data.find(b"\n", at, at + MAX_WORD) < 0 and at + MAX_WORD < len(data)
                reason = TOO_LONG if is_long else UNBALANCED_QUOTES
            raise ZoneError(reason, line=began)
        kind, found, at = part.lastgroup, part[0], part.end()
        if kind in ("word", "quoted"):
            # A word that reaches the limit may go on, and an escape at its end is not in it.
            if len(found) >= MAX_WORD - 1 or len(tokens) == MAX_WORD:
                raise ZoneError(TOO_LONG, line=began)
            tokens.append(found.decode(*AS_TEXT))
        elif kind == "comment":
            end = _END_OF_LINE.search(data, at)
            at = len(data) if end is None else end.start()
        elif kind == "group":
            depth += 1 if found == b"(" else -1
            if depth < 0:
                raise ZoneError(UNBALANCED_GROUP, line=began)
        number += 1 if kind == "end" else found.count(b"\n")
        if kind == "end" and not depth:
            break
    if depth:
        raise ZoneError(UNBALANCED_GROUP, line=began)
    return RecordLine(began, is_indented, tokens) if tokens else None, at, number


def _is_quoted(token: str) -> bool:
    return token[:1] == '"'


def _unquoted(token: str) -> str:
    """Return a token without the quotes around it and, as BIND does, without the backslash of a quote in it."""
    if not _is_quoted(token):
        return token
    return re.sub(r"(?s)\\(.)", lambda found: '"' if found[1] == '"' else found[0], token[1:-1])


def escaped(token: str) -> str:
    """Return a token with ``\\DDD`` for each byte that is not ASCII (RFC 1035 5.1), as name servers read it."""
    return token if token.isascii() else _NOT_ASCII.sub(_escape_byte, token.encode(*AS_TEXT)).decode()


def _escape_byte(found: re.Match[bytes]) -> bytes:
    return found[0] if found[0][-1] < 0x80 else b"\\%03d" % found[0][-1]


def _is_absolute(name: str) -> bool:
    """Return whether a name ends in a dot that is not escaped."""
    return name.endswith(".") and (len(name) - len(name[:-1].rstrip("\\")) - 1) % 2 == 0
