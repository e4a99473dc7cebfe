"""Builds zones as master file text (RFC 1035 5), which depends only on table and serial.

``rules.py`` makes the NAPTR records.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from maptr.errors import TableError, ZoneError
from maptr.naptr.record import MAX_STRING, quote
from maptr.protocol import names
from maptr.protocol.names import ARK_ARPA, Labels
from maptr.protocol.numbers import NS
from maptr.registry.table import Entry, Table
from maptr.zone.lint import LeftOut, publishable, without_room
from maptr.zone.masterfile import AS_TEXT, escaped, read_part
from maptr.zone.rules import lay_out

TTL = 86400  # of every record, in seconds
REFRESH, RETRY, EXPIRE = 3600, 900, 1209600  # SOA timers in seconds: an hour, 15 minutes, two weeks
MINIMUM = 300  # TTL of negative responses in seconds (RFC 2308 5), so that a new NAAN is found within minutes
MAX_WHO = 4 * MAX_STRING  # bytes of a name or acronym with its key
_SOA_TO_SERIAL = re.compile(r"^(\S+ IN SOA \S+ \S+ )(\d+)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NameServer:
    """A name server of the zone. ``addresses`` are its glue, which it needs if its name is below the origin."""

    name: Labels
    addresses: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, origin: Labels = ARK_ARPA) -> NameServer:
        """Parse ``NAME[=ADDRESS[,ADDRESS...]]``. A name without a dot is below the origin, others are absolute.

        Raises ZoneError for a bad name or address, and for missing or unusable glue.
        """
        name_text, _, addresses_text = text.partition("=")
        try:
            name = names.parse(name_text)
            addresses = tuple(str(ipaddress.ip_address(part)) for part in addresses_text.split(",") if part)
        except ValueError as error:
            raise ZoneError(f"name server {text}: {error}") from None
        if not name:
            raise ZoneError(f"name server {text}: no name")
        if any("%" in address for address in addresses):
            raise ZoneError(f"name server {text}: an address with a scope is valid on one machine only")
        if "." not in name_text:
            name = names.check((*name, *origin))
        below = names.is_below(name, origin)
        if below and not addresses:
            raise ZoneError(f"name server {text} is in the zone: give its address, {name_text}=ADDRESS")
        if addresses and not below:
            raise ZoneError(f"name server {text} is not in the zone, so the zone cannot have its address")
        return cls(name, addresses)


@dataclass(frozen=True, slots=True)
class ZoneSettings:
    """The content of a zone besides its table. Without ``servers``, its name server is ``localhost``.

    ``include`` has the names and contents of files whose records are added. Names that they delegate are not taken from
    the table.
    """

    origin: Labels = ARK_ARPA
    servers: tuple[NameServer, ...] = ()
    contact: Labels = (b"hostmaster",)
    ttl: int = TTL
    include: tuple[tuple[str, bytes], ...] = ()


PLAIN = ZoneSettings()


@dataclass(frozen=True, slots=True)
class Build:
    """The text of a zone, and the entries that it lacks: those left out, with the reason, and those delegated.

    ``parts`` are the included files, each with the number of lines in the text before it.
    """

    text: str
    serial: int
    left_out: LeftOut = field(default_factory=LeftOut)
    delegated: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    parts: tuple[tuple[str, int], ...] = ()

    def with_serial(self, serial: int) -> Build:
        """Return the same zone with another serial."""
        text = _SOA_TO_SERIAL.sub(rf"\g<1>{serial}", self.text, count=1)
        return replace(self, text=text, serial=serial)

    def place(self, filename: str, line: int) -> tuple[str, int]:
        """Return the included file and the line in it from which a line of the text comes; others unchanged."""
        return next(((file, line - before) for file, before in reversed(self.parts) if line > before), (filename, line))


def build(table: Table, serial: int, settings: ZoneSettings = PLAIN, *, unread: Iterable[TableError] = ()) -> Build:
    """Build the zone of a table: for each NAAN, in order, its NAPTR rules and TXT records with its names.

    The result reports the entries that cannot be published, and those that could not be read (``unread``). Raises
    ZoneError, with file and line for an included file that is not valid.
    """
    origin = names.to_text(settings.origin)
    lines = [*_header(serial, settings)]
    delegated = {name for include in settings.include for name in _delegations(*include, names.fold(settings.origin))}
    usable, left_out = publishable(table, origin=settings.origin, unread=unread)
    skipped: list[str] = []
    crowded: list[Entry] = []
    published = rules = 0
    for naan in sorted({entry.naan for entry in table.values()}):
        if (naan.encode(), *settings.origin) in delegated:
            skipped.append(naan)
            continue
        entry = usable.get(naan) or Entry(naan)
        made, without = lay_out(entry, usable.shoulders(naan), settings.origin)
        crowded += without
        published += bool(made)
        rules += len(made)
        below: list[str] = []  # the records of shoulders, kept back so that the records of each name are adjacent
        for owner, naptr in made:
            name = names.to_text(owner[: len(owner) - len(settings.origin)]).removesuffix(".")
            (lines if name == naan else below).append(f"{name} IN NAPTR {naptr.to_text()}")
        lines += [f"{naan} IN TXT {strings}" for strings in _who(entry)] if made else []
        lines += below
    left_out = LeftOut([*left_out, *without_room(usable, crowded)])
    left_out = LeftOut(finding for finding in left_out if finding.record.partition("/")[0] not in skipped)
    parts: list[tuple[str, int]] = []
    for file, data in settings.include:
        try:
            records = data.decode()
        except UnicodeDecodeError:  # the zone is UTF-8
            records = escaped(data.decode(*AS_TEXT))
        records = records.replace("\r\n", "\n").rstrip("\n")
        lines += [f"; from {file.rpartition('/')[2]}", f"$ORIGIN {origin}"]
        parts.append((file, len(lines)))
        lines += records.split("\n")
    counts = {"naans": published, "rules": rules}
    return Build("\n".join(lines) + "\n", serial, left_out, tuple(skipped), counts, tuple(parts))


def _header(serial: int, settings: ZoneSettings) -> Iterator[str]:
    servers = settings.servers or (NameServer((b"localhost",)),)
    origin = names.to_text(settings.origin)
    contact = settings.contact if len(settings.contact) > 1 else (*settings.contact, *settings.origin)
    soa = f"{names.to_text(servers[0].name)} {names.to_text(contact)}"
    yield f"$ORIGIN {origin}"
    yield f"$TTL {settings.ttl}"
    yield f"{origin} IN SOA {soa} {serial} {REFRESH} {RETRY} {EXPIRE} {MINIMUM}"
    for server in servers:
        yield f"{origin} IN NS {names.to_text(server.name)}"
    for server in servers:
        for address in server.addresses:
            kind = "AAAA" if ":" in address else "A"
            yield f"{names.to_text(server.name)} IN {kind} {address}"


def _who(entry: Entry) -> Iterator[str]:
    """Yield TXT rdata, one ``key=value`` per record (RFC 1464), with UTF-8 as ``\\DDD``.

    A long value is split into several strings, and cut: a record has at most 65,535 bytes (RFC 1035 3.2.1).
    """
    acronym = entry.who.acronym or next((nma.acronym for nma in entry.nmas if nma.acronym), None)
    for key, value in (("who", entry.who.name), ("native", entry.who.name_native), ("acronym", acronym)):
        octets = f"{key}={value}".encode()[:MAX_WHO].decode("utf-8", "ignore").encode()
        if value:
            chunks = [octets[at : at + MAX_STRING] for at in range(0, len(octets), MAX_STRING)]
            yield " ".join(quote(chunk) for chunk in chunks)


def _delegations(file: str, data: bytes, origin: Labels) -> Iterable[Labels]:
    """Return the folded names that included records delegate. ``origin`` is folded, and not one of them."""
    try:
        records = read_part(file, data, origin, TTL)
    except ZoneError as error:
        reason = f"cannot be included: {error.reason}"
        raise ZoneError(reason, filename=error.filename, line=error.line, owner=error.owner) from None
    return {names.fold(owner) for owner, rdtype, _, _ in records if rdtype == NS} - {origin}


def serial_of(text: str) -> int | None:
    """Return the serial of a text that ``build`` made; None for any other text."""
    found = _SOA_TO_SERIAL.search(text)
    return int(found[2]) if found else None
