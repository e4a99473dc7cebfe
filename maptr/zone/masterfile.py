"""Master files (RFC 1035 5): dnspython's reader with the file and line of each error, and the raw tokens of a text."""

from __future__ import annotations

import codecs
import contextlib
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dns.exception
import dns.name
import dns.rdataclass
import dns.rdataset
import dns.rdatatype
import dns.tokenizer
import dns.transaction
import dns.zone
import dns.zonefile

from maptr.errors import ZoneError
from maptr.files import MAX_WHOLE, read_whole
from maptr.protocol import names
from maptr.protocol.names import ARK_ARPA, Labels, to_text
from maptr.protocol.numbers import MAX_TTL
from maptr.registry.table import shown
from maptr.zone.finding import NOT_LOADED
from maptr.zone.snapshot import ZoneView, view_zone

MAX_INCLUDES = 16  # levels of $INCLUDE
TOO_MUCH_INCLUDED = f"more than {MAX_INCLUDES} levels of $INCLUDE, or {MAX_WHOLE} bytes in included files"
MAX_GENERATED = 1_000_000  # records from the $GENERATE lines of a file: as many as a large zone has
TOO_MANY_GENERATED = f"its $GENERATE lines make more than {MAX_GENERATED} records"
SECOND = "a second"  # begins the reason for a record of a type that a name has once
MAX_RDATA = 0xFFFF  # bytes (RFC 1035 3.2.1)
# Type 0, OPT, NXNAME (RFC 9824 2), and the Q and meta types (RFC 6895 3.1): no zone has records of them.
META_TYPES = frozenset({0, 41, 128, *range(249, 256)})
NOT_OF_ZONES = "the type is one of queries and messages, not of zones"
MARK_REFUSED = "begins with a byte order mark, which name servers read as part of the first name: save it without"

_CLASSES = ("IN", "CH", "HS", "CS")  # RFC 1035 3.2.4
_SPAN = re.compile(r"(\d{1,20})-(\d{1,20})(?:/(\d{1,20}))?")
# The line of an $INCLUDE matches as a whole, so that it stays as it is, and so does an escaped character.
_NOT_ASCII = re.compile(rb"(?mi)^\$INCLUDE\b.*|\\(?s:.)|[\x80-\xff]")


class Places:
    """The file and line of each record of a zone, for checks that see only the loaded zone."""

    def __init__(self) -> None:
        self.included: list[tuple[Path, bytes]] = []  # the included files and their contents, in order
        self._places: dict[tuple[Labels, int, bytes], tuple[str, int]] = {}

    def add(self, owner: Labels, rdtype: int, rdata: bytes, place: tuple[str, int]) -> None:
        """Note the place of a record. ``owner`` is folded."""
        for key in ((owner, rdtype, rdata.lower()), (owner, rdtype, b""), (owner, 0, b"")):
            self._places.setdefault(key, place)

    def find(self, owner: Labels, rdtype: int = 0, rdata: bytes = b"") -> tuple[str, int]:
        """Return the place of a record, or of the first one with this type or owner."""
        return self._places.get((owner, rdtype, rdata.lower()), ("", 0))


# ---- raw tokens: they show whether a name is relative and how it is escaped, which a loaded zone does not


def logical_lines(text: str) -> Iterator[tuple[int, bool, list[str]]]:
    """Yield the line number of each logical line, whether it begins with white space, and its raw tokens.

    Stops at the first token that cannot be read; ``read_master_file`` reports the reason.
    """
    tokenizer = dns.tokenizer.Tokenizer(text)
    with contextlib.suppress(dns.exception.DNSException):
        while True:
            first = tokenizer.get(want_leading=True)
            line = tokenizer.line_number
            leading = first.is_whitespace()
            token = tokenizer.get() if leading else first
            tokens: list[str] = []
            while not token.is_eol_or_eof():
                tokens.append(token.value)
                token = tokenizer.get()
            yield line, leading, tokens
            if token.is_eof():
                return


def generated(span: str) -> int:
    """Count the records in the range of a $GENERATE line, ``1-10`` or ``1-10/2``; 0 for a bad range.

    >>> generated("1-10/2")
    5
    """
    match = _SPAN.fullmatch(span)
    if match is None:
        return 0
    start, stop, step = (int(number or 1) for number in match.groups())
    return len(range(start, stop + 1, step)) if step else 0


def absolute(name: str, base: str) -> str:
    """Complete a name of the file with an absolute name, both in presentation format."""
    if name == "@":
        return base
    return name if name.endswith(".") else f"{name}.{base}" if base != "." else f"{name}."


def type_and_rdata(tokens: list[str]) -> tuple[str, list[str]]:
    """Return the type in upper case, and the rdata, from the tokens after an owner: TTL, class, type and rdata."""
    for at, token in enumerate(tokens):
        if not (token[:1].isdigit() or token.upper() in _CLASSES):
            return token.upper(), tokens[at + 1 :]
    return "", []


def soa_owner(text: str) -> str:
    """Return the owner of the SOA in a zone text; ``ark.arpa.`` if it has none."""
    base = to_text(ARK_ARPA)
    for _, leading, tokens in logical_lines(text):
        if len(tokens) > 1 and tokens[0].upper() == "$ORIGIN":
            base = absolute(tokens[1], base)
        elif not leading and type_and_rdata(tokens[1:])[0] == "SOA":
            return absolute(tokens[0], base)
    return base


# ---- the zone


def read_master_file(path: Path, data: bytes, apex: Labels, places: Places) -> ZoneView:
    """Read the zone in the content of a file. Adds its records and the files that it includes to ``places``.

    Raises ZoneError with file and line for an error, which includes records outside the zone, and OSError if an
    included file cannot be read.
    """
    zone = dns.zone.Zone(dns.name.Name((*apex, b"")), relativize=False)
    read_records(zone, path, data, apex, places)
    try:
        zone.check_origin()
        return view_zone(zone)
    except (dns.zone.NoSOA, dns.zone.NoNS) as error:
        missing = "SOA" if isinstance(error, dns.zone.NoSOA) else "NS"
        raise ZoneError(f"no {missing} at the origin", filename=str(path), code=NOT_LOADED) from None
    except ZoneError as error:
        raise ZoneError(error.reason, filename=str(path), code=NOT_LOADED) from None


def read_records(
    zone: dns.zone.Zone, path: Path, data: bytes, apex: Labels, places: Places, ttl: int | None = None
) -> None:
    """Read the records in the content of a file into a zone. Relative names are below ``apex``.

    ``ttl`` is the TTL without $TTL; with one, the file is a part of a zone and must not include others. Raises
    ZoneError with file and line, and OSError if an included file cannot be read.
    """
    if data.startswith(codecs.BOM_UTF8):
        raise ZoneError(MARK_REFUSED, filename=str(path), line=1, owner="the file", code="byte-order-mark")
    with _text_of(data, str(path)) as file, zone.writer(True) as transaction:
        reader = _Reader(_Tokens(file, str(path)), transaction, places, allow_include=ttl is None)
        # With the root as its origin, the reader passes all records to the transaction, which refuses those outside the
        # zone, and still completes relative names with current_origin.
        reader.zone_origin = dns.name.root
        reader.current_origin = dns.name.Name((*apex, b""))
        reader.default_ttl, reader.default_ttl_known = ttl or 0, ttl is not None
        transaction.check_put_rdataset(reader.check)
        try:
            reader.read()
        except ZoneError:
            raise
        except (dns.exception.DNSException, KeyError, ValueError) as error:
            filename, line = reader.tok.where()
            reason, code = reader.tok.reason(str(error).removeprefix(f"{filename}:{line}: ")), NOT_LOADED
            if isinstance(error, KeyError):
                reason, code = f"the owner is outside the zone {to_text(apex)}", "out-of-zone"
            elif reason.startswith(SECOND):
                code = "second-of-one"
            elif reason.endswith("has non-origin SOA"):  # dnspython's message
                reason = f"the SOA is that of {reader.last_name}, and the zone was to be {to_text(apex)}"
            owner = names.to_text(reader.last_name.labels[:-1]) if reader.tok.is_record() and reader.last_name else ""
            raise ZoneError(reason, filename=filename, line=line, owner=owner, code=code) from error
        finally:
            reader.close()


def _text_of(data: bytes, filename: str) -> io.TextIOWrapper:
    """Open a text in which each byte that is not ASCII is ``\\DDD`` (RFC 1035 5.1), as name servers read it.

    dnspython would convert non-ASCII names to A-labels, and some characters to ASCII. Raises ZoneError for data that is
    not UTF-8.
    """
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ZoneError("not UTF-8", filename=filename, line=line, code=NOT_LOADED) from None
    return io.TextIOWrapper(io.BytesIO(_NOT_ASCII.sub(_escaped, data)), encoding="utf-8")


def _escaped(found: re.Match[bytes]) -> bytes:
    text = found[0]
    return text if text[:-1] not in (b"", b"\\") or text[-1] < 0x80 else b"\\%03d" % text[-1]


# Parts of dnspython's messages, and the words of the checkers of name servers for them. The first match counts.
_REASONS = (
    ("expected EOL or EOF", "more fields than the record has"),
    ("expecting an integer", "is not a number"),
    ("integer string conversion", "is out of range"),
    ("an unsigned", "is out of range"),
    ("hexadecimal", "bad hexadecimal text"),
    ("Odd-length", "bad hexadecimal text"),
    ("not compatible with a CNAME", "CNAME and other data"),
    ("compatible with an existing CNAME", "CNAME and other data"),
    ("unknown rdatatype", "unknown RR type"),
    ("RR class is not", "the class of the zone is IN"),
    ("newline in quoted string", "unbalanced quotes"),
    ("is not allowed", "unknown directive"),
    ("label is empty", "empty label"),
    ("label is > 63", "label too long"),
)


def _type_of(text: str) -> int:
    """Return the number of a type; -1 for text that is none."""
    try:
        return int(dns.rdatatype.from_text(text))
    except (dns.exception.DNSException, ValueError):
        return -1


class _Tokens(dns.tokenizer.Tokenizer):
    """A tokenizer that knows the line on which a record began; dnspython's own may be on the next line.

    It calls ``directed`` with each directive and its first argument before the reader acts on them.
    """

    directed: Callable[[str, str], None]
    began = 1
    at_start = True
    directive = ""

    def __init__(self, file: io.TextIOBase, filename: str) -> None:
        super().__init__(file, filename)
        self._words: list[str] = []  # of the current record or directive

    def get(self, want_leading: bool = False, want_comment: bool = False) -> dns.tokenizer.Token:
        again = self.ungotten_token is not None
        starts = self.at_start and not again
        if starts:
            self.began = self.line_number
            self._words = []
        token = super().get(want_leading, want_comment)
        self.at_start = token.is_eol()
        if not again:
            self._words.append("" if token.is_eol_or_eof() else token.value)
        if self.directive:
            self.directed(self.directive, token.value)
        self.directive = token.value.upper() if starts and token.is_identifier() and token.value[:1] == "$" else ""
        return token

    def where(self) -> tuple[str, int]:
        return str(self.filename), self.began

    def is_record(self) -> bool:
        """Return whether the reader is at a record, not at a directive."""
        return not self._words or not self._words[0].startswith("$")

    def reason(self, message: str) -> str:
        """Reword dnspython's message as the checkers of name servers do, and add the word at which it stopped."""
        word = self._words[-1] if self._words else ""
        kind = next((type_and_rdata(self._words[at:])[0] for at in (1, 0) if self._words[at:]), "")
        if _type_of(kind) in META_TYPES:
            return NOT_OF_ZONES
        bad = {"A": "bad IPv4 address", "AAAA": "bad IPv6 address"}.get(kind, "malformed text")
        found = next((better for part, better in _REASONS if part in message), "")
        if "input is malformed" in message:
            found = "bad range of $GENERATE" if self._words[:1] == ["$GENERATE"] else bad
        elif not word and "expecting" in message:
            return "unexpected end of line: a field is missing"
        near = f"near {shown(word)!r}: " if word and found and "quotes" not in found else ""
        return f"{near}{found or message}"


class _Reader(dns.zonefile.Reader):
    """dnspython's reader with the tokenizer above, and with limits on included files and generated records.

    The limits stop a file that includes itself, a pipe or a device, or that generates too many records.
    """

    def __init__(
        self, tokens: _Tokens, transaction: dns.transaction.Transaction, places: Places, *, allow_include: bool
    ) -> None:
        self._places = places
        self._include = b""  # the content of the file of the last $INCLUDE
        self._bytes_left = MAX_WHOLE
        self._records_left = MAX_GENERATED
        super().__init__(tokens, dns.rdataclass.IN, transaction, allow_include=allow_include)

    @property
    def tok(self) -> Any:  # always _Tokens
        return self._tokens

    @tok.setter
    def tok(self, tokens: dns.tokenizer.Tokenizer) -> None:
        if isinstance(tokens, _Tokens):
            tokens.directed = self._directed
            self._tokens = tokens
            return
        tokens.file.close()  # dnspython has opened an included file
        self._bytes_left -= len(self._include)
        if len(self.saved_state) > MAX_INCLUDES or self._bytes_left < 0:
            raise dns.exception.SyntaxError(TOO_MUCH_INCLUDED)  # type: ignore[no-untyped-call]
        self._places.included.append((Path(tokens.filename), self._include))
        self.current_file = _text_of(self._include, tokens.filename)
        self.tok = _Tokens(self.current_file, tokens.filename)
        if self._include.startswith(codecs.BOM_UTF8):
            raise dns.exception.SyntaxError(MARK_REFUSED)  # type: ignore[no-untyped-call]

    def _directed(self, directive: str, value: str) -> None:
        if directive == "$INCLUDE" and directive in self.allowed_directives:
            if not value.strip():
                raise dns.exception.SyntaxError("$INCLUDE without a file")  # type: ignore[no-untyped-call]
            self._include = read_whole(Path(value))  # before dnspython opens it, and waits for a pipe
        elif directive == "$GENERATE":
            self._records_left -= generated(value)
            if self._records_left < 0:
                filename, line = self.tok.where()
                raise ZoneError(TOO_MANY_GENERATED, filename=filename, line=line, code="generated")

    def check(self, writer: dns.transaction.Transaction, name: dns.name.Name, rdataset: dns.rdataset.Rdataset) -> None:
        """Note the place of the last record of an RRset, which is the one just read.

        Raises ValueError for a type that no zone has and rdata that is too long, which dnspython accepts, and for a
        second SOA or CNAME, which BIND and NSD refuse; dnspython would replace the first.
        """
        if rdataset.rdtype in META_TYPES:
            raise ValueError(NOT_OF_ZONES)
        if rdataset.ttl > MAX_TTL:
            rdataset.ttl = 0  # RFC 2181 8; ``check.py`` warns of it
        if dns.rdatatype.is_singleton(rdataset.rdtype):
            earlier = writer.get(name, rdataset.rdtype, rdataset.covers)
            if earlier is not None and earlier != rdataset:
                raise ValueError(f"{SECOND} {dns.rdatatype.to_text(rdataset.rdtype)} at {name}")
        rdata = rdataset[-1].to_wire()
        if len(rdata) > MAX_RDATA:
            raise ValueError(f"the rdata has {len(rdata)} bytes, {MAX_RDATA} at most")
        self._places.add(names.fold(name.labels[:-1]), int(rdataset.rdtype), rdata, self.tok.where())

    def close(self) -> None:
        """Close the included files that an error left open."""
        for file in (self.current_file, *(state[3] for state in self.saved_state)):
            if file is not None:
                file.close()
