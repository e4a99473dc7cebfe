"""Master files (RFC 1035 5) of any form, read by dnspython, with the file and line of an error."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable
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
from maptr.protocol.names import Labels, to_text
from maptr.zone.finding import NOT_LOADED, Places
from maptr.zone.snapshot import ZoneView, view_zone
from maptr.zone.tokens import MARK_REFUSED, MAX_GENERATED, TOO_MANY_GENERATED, generated, type_and_rdata

MAX_INCLUDES = 16  # levels of $INCLUDE
TOO_MUCH_INCLUDED = f"more than {MAX_INCLUDES} levels of $INCLUDE, or {MAX_WHOLE} bytes in included files"
# The names of included files stay as they are; an escaped character is one match with its backslash.
_NOT_ASCII = re.compile(rb"(?mi)^\$INCLUDE\b.*|\\(?s:.)|[\x80-\xff]")


def read_master_file(
    path: Path, data: bytes, apex: Labels, places: Places | None = None
) -> tuple[dns.zone.Zone, tuple[tuple[Path, bytes], ...]]:
    """The zone in the bytes of a file, and the files that it includes, with their content.

    Raises ZoneError with file and line, and OSError if an included file cannot be read. Data outside the zone is an
    error. The file and line of each record are added to ``places``.
    """
    if data.startswith(codecs.BOM_UTF8):
        raise ZoneError(MARK_REFUSED, filename=str(path), line=1, owner="the file", code="byte-order-mark")
    origin = dns.name.Name((*apex, b""))
    zone = dns.zone.Zone(origin, relativize=False)
    with _text_of(data) as file, zone.writer(True) as transaction:
        transaction.check_put_rdataset(_check_singleton)
        reader = _Reader(dns.tokenizer.Tokenizer(file, str(path)), transaction)
        # With the root as origin, the reader passes all data to the transaction, which refuses data outside the zone.
        # Relative names are completed from current_origin, which stays.
        reader.zone_origin = dns.name.root
        if places is not None:
            transaction.check_put_rdataset(lambda _, name, rdataset: _add_place(places, reader, name, rdataset))
        try:
            reader.read()
        except (dns.exception.DNSException, KeyError, ValueError) as error:
            filename, line = reader.tok.where()
            reason = reader.tok.reason(str(error).removeprefix(f"{filename}:{line}: "))
            if isinstance(error, KeyError):
                reason = f"the owner is outside the zone {to_text(apex)}"
            elif reason.endswith("has non-origin SOA"):  # dnspython's message
                reason = f"the SOA is that of {reader.last_name}, and the zone was to be {to_text(apex)}"
            owner = names.to_text(reader.last_name.labels[:-1]) if reader.tok.is_record() and reader.last_name else ""
            raise ZoneError(reason, filename=filename, line=line, owner=owner, code=NOT_LOADED) from error
        finally:
            reader.close()
            if places is not None:
                places.included = reader.included
    return zone, tuple(reader.included)


def view_of(zone: dns.zone.Zone, path: Path) -> ZoneView:
    """The view of a zone that was read from a file. Raises ZoneError."""
    try:
        zone.check_origin()
        return view_zone(zone)
    except dns.zone.NoSOA:
        raise ZoneError("no SOA at the origin", filename=str(path), code=NOT_LOADED) from None
    except dns.zone.NoNS:
        raise ZoneError("no NS at the origin", filename=str(path), code=NOT_LOADED) from None
    except KeyError:
        apex = () if zone.origin is None else zone.origin.labels[:-1]
        raise ZoneError(f"nothing at {to_text(apex)}", filename=str(path), code=NOT_LOADED) from None


def _text_of(data: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(_in_ascii(data)), encoding="utf-8")


def _in_ascii(data: bytes) -> bytes:
    """The same file with ``\\DDD`` for each byte that is not ASCII (RFC 1035 5.1), as name servers read it.

    dnspython makes A-labels of non-ASCII names, and treats some characters as ASCII. Data that is not UTF-8 stays as it
    is, and is refused.
    """
    if data.isascii():
        return data
    try:
        data.decode()
    except UnicodeDecodeError:
        return data
    return re.sub(_NOT_ASCII, _escaped, data)


def _escaped(found: re.Match[bytes]) -> bytes:
    text = found[0]
    return text if text[:-1] not in (b"", b"\\") or text[-1] < 0x80 else b"\\%03d" % text[-1]


def _check_singleton(
    transaction: dns.transaction.Transaction, name: dns.name.Name, rdataset: dns.rdataset.Rdataset
) -> None:
    """Refuse a second SOA or CNAME, as BIND and NSD do; dnspython would replace the first."""
    if dns.rdatatype.is_singleton(rdataset.rdtype):
        earlier = transaction.get(name, rdataset.rdtype, rdataset.covers)
        if earlier is not None and earlier != rdataset:
            raise ValueError(f"a second {dns.rdatatype.to_text(rdataset.rdtype)} at {name}")


def _add_place(places: Places, reader: _Reader, name: dns.name.Name, rdataset: dns.rdataset.Rdataset) -> None:
    """Add the place of the last record of an RRset, the one that was just read."""
    owner = names.fold(name.labels[:-1])
    places.add(owner, int(rdataset.rdtype), rdataset[-1].to_wire(), reader.tok.where())


# Parts of dnspython's messages, and what the checkers of name servers say instead. The first that is found counts.
_REASONS = (
    ("expected EOL or EOF", "more fields than the record has"),
    ("expecting an integer", "is not a number"),
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


class _Tokens(dns.tokenizer.Tokenizer):
    """A tokenizer that knows the line where a record began; dnspython's own may be at the next line.

    ``directed`` is called with each directive and its first argument before the reader acts on it.
    """

    began = 1
    at_start = True
    directive = ""

    def __init__(self, file: io.TextIOBase, filename: str, directed: Callable[[str, str], None]) -> None:
        super().__init__(file, filename)
        self._directed = directed
        self._words: list[str] = []  # of the record

    def get(self, want_leading: bool = False, want_comment: bool = False) -> dns.tokenizer.Token:
        starts = self.at_start and self.ungotten_token is None
        if starts:
            self.began = self.line_number
            self._words = []
        again = self.ungotten_token is not None
        token = super().get(want_leading, want_comment)
        self.at_start = token.is_eol()
        if not again:
            self._words.append("" if token.is_eol_or_eof() else token.value)
        if self.directive:
            self._directed(self.directive, token.value)
        self.directive = token.value.upper() if starts and token.is_identifier() and token.value[:1] == "$" else ""
        return token

    def where(self) -> tuple[str, int]:
        return str(self.filename), self.began

    def is_record(self) -> bool:
        """Whether the last thing read is a record, not a directive."""
        return not self._words or not self._words[0].startswith("$")

    def reason(self, message: str) -> str:
        """dnspython's message in the words that the checkers of name servers use, and the word where it stopped."""
        word = self._words[-1] if self._words else ""
        kind = next((type_and_rdata(self._words[at:])[0] for at in (1, 0) if self._words[at:]), "")
        bad = {"A": "bad IPv4 address", "AAAA": "bad IPv6 address"}.get(kind, "malformed text")
        found = next((better for part, better in _REASONS if part in message), "")
        if "input is malformed" in message:
            found = "bad range of $GENERATE" if self._words[:1] == ["$GENERATE"] else bad
        elif not word and "expecting" in message:
            return "unexpected end of line: a field is missing"
        near = f"near {word!r}: " if word and found and "quotes" not in found else ""
        return f"{near}{found or message}"


class _Reader(dns.zonefile.Reader):
    """dnspython's reader with our tokenizer, and with limits on included files and generated records.

    The limits end the reading of a file that includes itself, a pipe or a device, or that generates too many records.
    """

    def __init__(self, tokens: dns.tokenizer.Tokenizer, transaction: dns.transaction.Transaction) -> None:
        self.included: list[tuple[Path, bytes]] = []
        self._include: bytes | None = None
        self._bytes_left = MAX_WHOLE
        self._records_left = MAX_GENERATED
        super().__init__(tokens, dns.rdataclass.IN, transaction, allow_include=True)

    @property
    def tok(self) -> Any:  # always _Tokens
        return self._tokens

    @tok.setter
    def tok(self, tokens: dns.tokenizer.Tokenizer) -> None:
        if not isinstance(tokens, _Tokens):
            file = tokens.file
            if hasattr(self, "_tokens"):  # an included file, not the zone's own
                file.close()
                data = read_whole(Path(tokens.filename)) if self._include is None else self._include
                self._include = None
                self._bytes_left -= len(data)
                if len(self.saved_state) > MAX_INCLUDES or self._bytes_left < 0:
                    raise dns.exception.SyntaxError(TOO_MUCH_INCLUDED)  # type: ignore[no-untyped-call]
                self.included.append((Path(tokens.filename), data))
                file = self.current_file = _text_of(data)
            tokens = _Tokens(file, tokens.filename, self._directed)
            self._tokens = tokens
            if self.included and self.included[-1][1].startswith(codecs.BOM_UTF8):
                raise dns.exception.SyntaxError(MARK_REFUSED)  # type: ignore[no-untyped-call]
        self._tokens = tokens

    def _directed(self, directive: str, value: str) -> None:
        if directive == "$INCLUDE":
            self._include = read_whole(Path(value))  # before dnspython opens it, and waits for a pipe
        elif directive == "$GENERATE":
            self._records_left -= generated(value)
            if self._records_left < 0:
                raise dns.exception.SyntaxError(TOO_MANY_GENERATED)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Close the included files that an error left open."""
        for file in (self.current_file, *(state[3] for state in self.saved_state)):
            if file is not None:
                file.close()
