"""Zone files for the server: where they are, and reading them. Whether what was read is published: ``publisher``."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import dns.exception
import dns.name
import dns.rdataclass
import dns.rdataset
import dns.rdatatype
import dns.tokenizer
import dns.transaction
import dns.zone
import dns.zonefile

from maptr import integrity
from maptr.errors import ZoneError
from maptr.finding import Finding, Severity
from maptr.names import Labels, fold, parse, to_text
from maptr.plainzone import read_plain
from maptr.publish import Guards
from maptr.serve.zoneimage import folder_for
from maptr.signing import Policy
from maptr.snapshot import Snapshot, ZoneView, view_zone
from maptr.zonecheck import check_loaded


@dataclass(frozen=True, slots=True)
class Signing:
    """The folder of the keys that a zone is signed with, and how."""

    keys: Path
    policy: Policy = field(default_factory=Policy)


@dataclass(frozen=True, slots=True)
class ZoneSource:
    """A zone by its origin and the file that holds it; what a new version must be like, and where serials are kept.

    With ``signing`` the server signs it, and needs ``state``.
    """

    origin: Labels
    path: Path
    guards: Guards = field(default_factory=Guards)
    state: Path | None = None
    signing: Signing | None = None

    @classmethod
    def from_text(cls, text: str) -> ZoneSource:
        """Read ``ORIGIN=FILE``; the origin's final dot may be missing. Raises ValueError."""
        origin, equals, path = text.partition("=")
        if not (origin and equals and path):
            raise ValueError(f"{text!r} is not ORIGIN=FILE, such as ark.arpa=ark.arpa.zone")
        try:
            return cls(fold(parse(origin)), Path(path))
        except ValueError as error:
            raise ValueError(f"{origin!r} is no domain name: {error}") from None


def read_zone(source: ZoneSource) -> ZoneView:
    """Read and check one zone file.

    Raises ZoneError with file and line for what is wrong in it, OSError where it or a file it includes cannot
    be read. Data outside the zone is an error, where dnspython's own reader passes over it in silence.
    """
    view = _read_plain(source.path.read_bytes(), source)
    return _view(_read(source), source) if view is None else view


@dataclass(frozen=True, slots=True)
class Checked:
    """A zone file that read well and has no error; what may be wrong with it all the same, a line each."""

    view: ZoneView
    warnings: tuple[str, ...] = ()


def read_checked(source: ZoneSource) -> Checked:
    """Read a zone file as ``read_zone`` does, and look at the zone as a whole.

    Raises ZoneError for a DNS error, for a ZONEMD that does not hold, for what Maptr finds where that is to be
    refused, and for a file that changed while it was read; OSError where a file cannot be read.
    """
    before = _stamp(source.path)
    images = folder_for(source.state, source.path)
    text = source.path.read_bytes() if images or source.guards.lint == "off" else b""
    if images and (kept := images.read(source.origin, text, source.guards.lint)):
        return Checked(*kept)
    checked = _read_and_check(source, before, text)
    if images:
        images.write(source.origin, text, source.guards.lint, checked.view, checked.warnings)
    return checked


# Checkers call these errors, and BIND refuses the zone. NSD, Knot and PowerDNS serve it; so do we, with a warning.
_SERVED_ALL_THE_SAME = ("no-address", "server-alias")


def _read_plain(text: bytes, source: ZoneSource) -> ZoneView | None:
    """A plain zone, read without looking for garbage meanwhile: a reader makes no cycles, but many objects."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        return read_plain(text, source.origin)
    finally:
        if enabled:
            gc.enable()


def _read_and_check(source: ZoneSource, before: tuple[int, ...], text: bytes) -> Checked:
    # What Maptr looks for it looks for in dnspython's zone; a plain file has no ZONEMD.
    plain = _read_plain(text, source) if source.guards.lint == "off" else None
    if plain is not None and _stamp(source.path) == before:
        found = list(integrity.check(plain))
        _refuse(_grave(found), source)
        return Checked(plain, tuple(map(str, found)))
    zone = _read(source)
    if _stamp(source.path) != before:
        raise ZoneError("changed while it was read: write beside it and rename", filename=str(source.path))
    view = _view(zone, source)
    try:
        integrity.check_digest(zone)
    except ZoneError as error:
        raise ZoneError(error.reason, filename=str(source.path)) from None
    found = list(integrity.check(view))
    _refuse(_grave(found), source)
    findings = check_loaded(zone) if source.guards.lint != "off" else []
    if source.guards.lint == "refuse":
        _refuse([*found, *findings], source)
    return Checked(view, tuple(map(str, (*found, *findings))))


def _grave(findings: Iterable[Finding]) -> list[Finding]:
    return [found for found in findings if found.code not in _SERVED_ALL_THE_SAME]


def _refuse(findings: Iterable[Finding], source: ZoneSource) -> None:
    errors = [
        found for found in findings if found.severity is Severity.ERROR and found.code not in _SERVED_ALL_THE_SAME
    ]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise ZoneError(f"{errors[0]}{more}", filename=str(source.path))


def _stamp(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _view(zone: dns.zone.Zone, source: ZoneSource) -> ZoneView:
    try:
        zone.check_origin()
        return view_zone(zone)
    except dns.zone.NoSOA:
        raise ZoneError("no SOA at the origin", filename=str(source.path)) from None
    except dns.zone.NoNS:
        raise ZoneError("no NS at the origin", filename=str(source.path)) from None
    except KeyError:
        raise ZoneError(f"nothing at {to_text(source.origin)}", filename=str(source.path)) from None


def _read(source: ZoneSource) -> dns.zone.Zone:
    origin = dns.name.Name((*source.origin, b""))
    zone = dns.zone.Zone(origin, relativize=False)
    with source.path.open(encoding="utf-8") as file, zone.writer(True) as transaction:
        transaction.check_put_rdataset(_only_one)
        tokens = dns.tokenizer.Tokenizer(file, str(source.path))
        reader = _Reader(tokens, dns.rdataclass.IN, transaction, allow_include=True)
        # With the root for an origin the reader lets everything through to the transaction, which refuses
        # what is outside the zone. Relative names go by current_origin, which stays.
        reader.zone_origin = dns.name.root
        try:
            reader.read()
        except (dns.exception.DNSException, KeyError, ValueError) as error:
            filename, line = reader.tok.where()
            reason = str(error).removeprefix(f"{filename}:{line}: ")
            if isinstance(error, KeyError):
                reason = f"the owner is outside the zone {to_text(source.origin)}"
            raise ZoneError(reason, filename=filename, line=line) from error
        finally:
            reader.close()
    return zone


def _only_one(transaction: dns.transaction.Transaction, name: dns.name.Name, rdataset: dns.rdataset.Rdataset) -> None:
    """Refuse a second SOA or CNAME, as BIND and NSD do; dnspython would put it in place of the first."""
    if dns.rdatatype.is_singleton(rdataset.rdtype):
        there = transaction.get(name, rdataset.rdtype, rdataset.covers)
        if there is not None and there != rdataset:
            raise ValueError(f"a second {dns.rdatatype.to_text(rdataset.rdtype)} at {name}")


class _Tokens(dns.tokenizer.Tokenizer):
    """Says where the record began: dnspython's own tells the line after it once the end of line was read."""

    began = 1
    at_start = True

    def get(self, want_leading: bool = False, want_comment: bool = False) -> dns.tokenizer.Token:
        if self.at_start and self.ungotten_token is None:
            self.began = self.line_number
        token = super().get(want_leading, want_comment)
        self.at_start = token.is_eol()
        return token

    def where(self) -> tuple[str, int]:
        return str(self.filename), self.began


class _Reader(dns.zonefile.Reader):
    """A reader whose every tokenizer, those of included files too, is of the kind above."""

    @property
    def tok(self) -> dns.tokenizer.Tokenizer:
        return self._tokens

    @tok.setter
    def tok(self, tokens: dns.tokenizer.Tokenizer) -> None:
        self._tokens = tokens if isinstance(tokens, _Tokens) else _Tokens(tokens.file, tokens.filename)

    def close(self) -> None:
        """Close the included files that an error left open."""
        for file in (self.current_file, *(state[3] for state in self.saved_state)):
            if file is not None:
                file.close()


def load(sources: Iterable[ZoneSource]) -> Snapshot:
    """All the zones, or the first error: for a check. Raises ZoneError and OSError."""
    return Snapshot.of(read_checked(source).view for source in sources)
