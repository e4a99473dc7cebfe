"""Zone files for the server: where they are, reading them, and replacing only those that are good."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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

from maptr.errors import ZoneError
from maptr.names import Labels, fold, parse, to_text
from maptr.plainzone import read_plain
from maptr.serve.zoneimage import ImageFolder
from maptr.snapshot import Snapshot, ZoneView, view_zone

log = logging.getLogger("maptr.serve")


@dataclass(frozen=True, slots=True)
class ZoneSource:
    """A zone by its origin and the file that holds it; with ``images``, read again from there."""

    origin: Labels
    path: Path
    images: ImageFolder | None = None

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
    text = source.path.read_bytes()
    view = source.images.read(source.origin, text) if source.images else None
    if view is None:
        with _without_collection():
            view = read_plain(text, source.origin)
        view = _read_any(source) if view is None else view
        if source.images:
            source.images.write(source.origin, text, view)
    return view


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """No garbage collection meanwhile: it would look for cycles, of which a reader makes none, again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read_any(source: ZoneSource) -> ZoneView:
    """Any master file, by dnspython."""
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
    try:
        zone.check_origin()
        return view_zone(zone)
    except dns.zone.NoSOA:
        raise ZoneError("no SOA at the origin", filename=str(source.path)) from None
    except dns.zone.NoNS:
        raise ZoneError("no NS at the origin", filename=str(source.path)) from None
    except KeyError:
        raise ZoneError(f"nothing at {to_text(source.origin)}", filename=str(source.path)) from None


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
    """All the zones, or the first error: for a start and for a check. Raises ZoneError and OSError."""
    return Snapshot.of(read_zone(source) for source in sources)


def reload(sources: Iterable[ZoneSource], current: Snapshot) -> Snapshot:
    """Each zone anew where its file is good, as it was where it is not, with the reason in the log.

    Raises nothing that a file could cause; reads files, so it belongs in a thread.
    """
    views: list[ZoneView] = []
    for source in sources:
        name, old = to_text(source.origin), current.zones[source.origin]
        try:
            view = read_zone(source)
        except (ZoneError, OSError) as error:
            log.error("zone %s not reloaded, serial %d stays: %s", name, old.serial, error)
            view = old
        else:
            log.info("zone %s reloaded, serial %d (was %d)", name, view.serial, old.serial)
        views.append(view)
    return Snapshot.of(views)
