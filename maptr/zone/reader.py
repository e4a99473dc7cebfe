"""Zone files read by dnspython: any file, whatever is in it, with file and line of what is wrong.

Takes some 0.1 ms a record and 40 ms to import, so ``plainzone`` is tried first.
"""

from __future__ import annotations

import codecs
import io
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
from maptr.zone.masterfile import MARK_REFUSED, MAX_GENERATED, TOO_MANY_GENERATED, generated, in_ascii, type_and_rdata
from maptr.zone.snapshot import ZoneView, view_zone

MAX_INCLUDES = 16  # files inside one another
TOO_MUCH_INCLUDED = f"more than {MAX_INCLUDES} files inside one another, or {MAX_WHOLE} octets of them"


def read_zone_file(
    path: Path, octets: bytes, apex: Labels, places: Places | None = None
) -> tuple[dns.zone.Zone, tuple[tuple[Path, bytes], ...]]:
    """The zone in these octets of the file, and the files that it includes with what they hold.

    Raises ZoneError with file and line, and OSError where an included file cannot be read. Data outside the
    zone is an error, where dnspython's own reader passes over it in silence. ``places`` learns where records stand.
    """
    if octets.startswith(codecs.BOM_UTF8):
        raise ZoneError(MARK_REFUSED, filename=str(path), line=1, owner="the file", code="byte-order-mark")
    origin = dns.name.Name((*apex, b""))
    zone = dns.zone.Zone(origin, relativize=False)
    with _opened(octets) as file, zone.writer(True) as transaction:
        transaction.check_put_rdataset(_only_one)
        tokens = dns.tokenizer.Tokenizer(file, str(path))
        reader = _Reader(tokens, transaction)
        # With the root for an origin the reader lets everything through to the transaction, which refuses
        # what is outside the zone. Relative names go by current_origin, which stays.
        reader.zone_origin = dns.name.root
        if places is not None:
            transaction.check_put_rdataset(lambda _, name, rdataset: _note(places, reader, name, rdataset))
        try:
            reader.read()
        except (dns.exception.DNSException, KeyError, ValueError) as error:
            filename, line = reader.tok.where()
            reason = reader.tok.reason(str(error).removeprefix(f"{filename}:{line}: "))
            if isinstance(error, KeyError):
                reason = f"the owner is outside the zone {to_text(apex)}"
            elif reason.endswith("has non-origin SOA"):  # dnspython's words
                reason = f"the SOA is that of {reader.last_name}, and the zone was to be {to_text(apex)}"
            owner = names.to_text(reader.last_name.labels[:-1]) if reader.tok.is_record() and reader.last_name else ""
            raise ZoneError(reason, filename=filename, line=line, owner=owner, code=NOT_LOADED) from error
        finally:
            reader.close()
            if places is not None:
                places.included = reader.included
    return zone, tuple(reader.included)


def view_of(zone: dns.zone.Zone, path: Path) -> ZoneView:
    """The zone, ready to answer from. Raises ZoneError."""
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


def _opened(octets: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(in_ascii(octets)), encoding="utf-8")


def _only_one(transaction: dns.transaction.Transaction, name: dns.name.Name, rdataset: dns.rdataset.Rdataset) -> None:
    """Refuse a second SOA or CNAME, as BIND and NSD do; dnspython would put it in place of the first."""
    if dns.rdatatype.is_singleton(rdataset.rdtype):
        there = transaction.get(name, rdataset.rdtype, rdataset.covers)
        if there is not None and there != rdataset:
            raise ValueError(f"a second {dns.rdatatype.to_text(rdataset.rdtype)} at {name}")


def _note(places: Places, reader: _Reader, name: dns.name.Name, rdataset: dns.rdataset.Rdataset) -> None:
    """Where the last record of a set stands, which was just added."""
    owner = names.fold(name.labels[:-1])
    places.add(owner, int(rdataset.rdtype), rdataset[-1].to_wire(), reader.tok.where())


# What dnspython says of bad rdata, and what name servers' checkers say; the first that is in its text.
_REASONS = (
    ("expected EOL or EOF", "more fields than the record has"),
    ("expecting an integer", "is no number"),
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
    """Says where the record began: dnspython's own tells the line after it once the end of line was read.

    ``directed`` is told what follows a directive before the reader is: a file that it would open, say.
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
        """Whether what was read last is a record, not a directive."""
        return not self._words or not self._words[0].startswith("$")

    def reason(self, said: str) -> str:
        """What dnspython says of the record, in the words of name servers' checkers, and the word where it gave up."""
        word = self._words[-1] if self._words else ""
        kind = next((type_and_rdata(self._words[at:])[0] for at in (1, 0) if self._words[at:]), "")
        bad = {"A": "bad IPv4 address", "AAAA": "bad IPv6 address"}.get(kind, "malformed text")
        found = next((better for part, better in _REASONS if part in said), "")
        if "input is malformed" in said:
            found = "bad range of $GENERATE" if self._words[:1] == ["$GENERATE"] else bad
        elif not word and "expecting" in said:
            return "unexpected end of line: a field is missing"
        near = f"near {word!r}: " if word and found and "quotes" not in found else ""
        return f"{near}{found or said}"


class _Reader(dns.zonefile.Reader):
    """A reader whose every tokenizer is of the kind above, and that knows the files it included.

    A file that includes itself, a pipe, a device or billions of generated records end it before they fill memory.
    """

    def __init__(self, tokens: dns.tokenizer.Tokenizer, transaction: dns.transaction.Transaction) -> None:
        self.included: list[tuple[Path, bytes]] = []
        self._include: bytes | None = None
        self._octets_left = MAX_WHOLE
        self._records_left = MAX_GENERATED
        super().__init__(tokens, dns.rdataclass.IN, transaction, allow_include=True)

    @property
    def tok(self) -> Any:  # _Tokens, by the setter
        return self._tokens

    @tok.setter
    def tok(self, tokens: dns.tokenizer.Tokenizer) -> None:
        if not isinstance(tokens, _Tokens):
            file = tokens.file
            if hasattr(self, "_tokens"):  # the first is the zone's own file
                file.close()
                octets = read_whole(Path(tokens.filename)) if self._include is None else self._include
                self._include = None
                self._octets_left -= len(octets)
                if len(self.saved_state) > MAX_INCLUDES or self._octets_left < 0:
                    raise dns.exception.SyntaxError(TOO_MUCH_INCLUDED)  # type: ignore[no-untyped-call]
                self.included.append((Path(tokens.filename), octets))
                file = self.current_file = _opened(octets)
            tokens = _Tokens(file, tokens.filename, self._directed)
            self._tokens = tokens
            if self.included and self.included[-1][1].startswith(codecs.BOM_UTF8):
                raise dns.exception.SyntaxError(MARK_REFUSED)  # type: ignore[no-untyped-call]
        self._tokens = tokens

    def _directed(self, directive: str, value: str) -> None:
        if directive == "$INCLUDE":
            self._include = read_whole(Path(value))  # raises before the reader opens it, and waits
        elif directive == "$GENERATE":
            self._records_left -= generated(value)
            if self._records_left < 0:
                raise dns.exception.SyntaxError(TOO_MANY_GENERATED)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Close the included files that an error left open."""
        for file in (self.current_file, *(state[3] for state in self.saved_state)):
            if file is not None:
                file.close()
