"""The writer of zones: master file text that every name server reads alike, whatever its names contain.

dnspython's own writer does not escape a colon in a name, and Knot then refuses the zone.
"""

from __future__ import annotations

import binascii
import datetime
from collections.abc import Iterator

import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype

from maptr.naptr.record import Naptr, quote
from maptr.protocol import names
from maptr.protocol.numbers import NAPTR, NSEC, RRSIG, SOA, TXT, A
from maptr.zone.packed import RECORD, rdatas_of, split_records, split_rrsets, ttl_of
from maptr.zone.rrset import RRSIG_HEAD, TIME_FORMAT, canonical_rdata, types_in
from maptr.zone.snapshot import ZoneView


def to_text(zone: ZoneView) -> str:
    """One record a line, with absolute names, the SOA first and the rest in canonical order (RFC 4034 6).

    Signatures follow the records they cover. The same records give the same text, whatever their order.
    """
    writer = _Writer()
    lines: list[str] = []
    nodes = zone.nodes
    for _, name in sorted(nodes.in_order(), key=lambda found: len(found[0]) != len(zone.origin)):
        lines += writer.lines(names.to_text(nodes.owner(name)), nodes.read(name))
    return "\n".join(lines) + "\n"


def rdata_text(rdtype: int, octets: bytes) -> str:
    """Presentation format of uncompressed rdata; that of RFC 3597, which all readers take alike, if a name in it has
    characters that readers take differently. Raises ValueError or DNSException for bad rdata."""
    if rdtype == NAPTR:
        return Naptr.from_wire(octets).to_text()
    if rdtype == TXT:
        return " ".join(map(quote, _strings(octets)))
    if rdtype == A:
        return ".".join(map(str, octets))
    rdata = dns.rdata.from_wire(dns.rdataclass.IN, dns.rdatatype.RdataType.make(rdtype), octets, 0, len(octets))
    if any(names.to_text(name.labels[:-1]) != name.to_text() for name in _names(rdata)):
        return str(rdata.to_generic().to_text())
    return str(rdata.to_text())


class _Writer:
    """Writes the records of one name after the other. What most of them repeat is formatted once."""

    def __init__(self) -> None:
        self._types: dict[int, str] = {}
        self._times: dict[int, str] = {}
        self._signers: dict[bytes, tuple[str, int]] = {}
        self._bitmaps: dict[bytes, str] = {}

    def lines(self, owner: str, packed: bytes) -> Iterator[str]:
        rrsets = dict(split_rrsets(packed))
        signatures: dict[int, list[tuple[str, int]]] = {}
        for record in split_records(rrsets.pop(RRSIG, b"")):
            rdata = record[RECORD.size :]
            covering = signatures.setdefault(int.from_bytes(rdata[:2], "big"), [])
            covering.append((self._signature(rdata), ttl_of(record)))
        for rdtype in sorted(rrsets, key=lambda rdtype: (rdtype != SOA, rdtype)):
            records = rrsets[rdtype]
            head = f"{owner} {ttl_of(records)} IN "
            kind = f"{head}{self._type(rdtype)} "
            for rdata in _sorted(rdtype, records):
                yield kind + (self._nsec(rdata) if rdtype == NSEC else rdata_text(rdtype, rdata))
            for text, _ in sorted(signatures.pop(rdtype, ())):
                # The TTL of what they cover (RFC 4034 3), which the RRset of all signatures does not have.
                yield f"{head}RRSIG {text}"
        for alone in signatures.values():
            for text, ttl in sorted(alone):
                yield f"{owner} {ttl} IN RRSIG {text}"

    def _type(self, rdtype: int) -> str:
        if rdtype not in self._types:
            self._types[rdtype] = dns.rdatatype.to_text(dns.rdatatype.RdataType.make(rdtype))
        return self._types[rdtype]

    def _signature(self, rdata: bytes) -> str:
        covered, algorithm, labels, ttl, expiration, inception, tag = RRSIG_HEAD.unpack_from(rdata)
        signer, size = self._signer(rdata)
        octets = binascii.b2a_base64(rdata[RRSIG_HEAD.size + size :], newline=False).decode("ascii")
        times = f"{self._time(expiration)} {self._time(inception)}"
        return f"{self._type(covered)} {algorithm} {labels} {ttl} {times} {tag} {signer} {octets}"

    def _signer(self, rdata: bytes) -> tuple[str, int]:
        """The signer's name as text, and its size in bytes."""
        for wire, found in self._signers.items():
            if rdata.startswith(wire, RRSIG_HEAD.size):
                return found
        labels, end = names.read_wire(rdata, RRSIG_HEAD.size)
        found = names.to_text(labels), end - RRSIG_HEAD.size
        self._signers[rdata[RRSIG_HEAD.size : end]] = found
        return found

    def _time(self, stamp: int) -> str:
        if stamp not in self._times:
            self._times[stamp] = datetime.datetime.fromtimestamp(stamp, datetime.UTC).strftime(TIME_FORMAT)
        return self._times[stamp]

    def _nsec(self, rdata: bytes) -> str:
        labels, end = names.read_wire(rdata, 0)
        bitmap = rdata[end:]
        if bitmap not in self._bitmaps:
            self._bitmaps[bitmap] = "".join(f" {self._type(rdtype)}" for rdtype in types_in(bitmap))
        return names.to_text(labels) + self._bitmaps[bitmap]


def _sorted(rdtype: int, records: bytes) -> list[bytes]:
    """The rdatas of an RRset in canonical order (RFC 4034 6.3), as they are spelled."""
    return sorted(rdatas_of(records), key=lambda rdata: canonical_rdata(rdtype, rdata))


def _strings(octets: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(octets):
        yield octets[at + 1 : at + 1 + octets[at]]
        at += 1 + octets[at]


def _names(rdata: dns.rdata.Rdata) -> Iterator[dns.name.Name]:
    for slot in rdata._get_all_slots():  # type: ignore[no-untyped-call]
        value = getattr(rdata, slot, None)
        if isinstance(value, dns.name.Name):
            yield value
