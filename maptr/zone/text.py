"""A zone as master file text that every reader takes, whatever stands in its names.

dnspython's own writer leaves a colon in a name as it is, and Knot then refuses the zone. Reading a zone is not here.
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
from maptr.zone import canonical
from maptr.zone.layout import RRSIG_HEAD, TIME_FORMAT, types_in
from maptr.zone.packed import PackedNodes
from maptr.zone.packing import RECORD, split_records, split_rrsets
from maptr.zone.snapshot import ZoneView


def to_text(zone: ZoneView) -> str:
    """One record a line, absolute names, the SOA first and the rest in canonical order (RFC 4034 6).

    Signatures follow what they cover. The same records give the same text, in whatever order they were added.
    """
    nodes = PackedNodes.pack(zone.nodes)
    writer = _Writer()
    lines: list[str] = []
    for labels, name in sorted(canonical.in_order(nodes.table), key=lambda found: len(found[0]) != len(zone.origin)):
        spelled = nodes.spelled.get(name)
        owner = names.to_text(labels[::-1] if spelled is None else names.from_wire(spelled))
        lines += writer.lines(owner, nodes.read(name))
    return "\n".join(lines) + "\n"


def rdata_text(rdtype: int, octets: bytes) -> str:
    """Presentation format of uncompressed rdata; RFC 3597's, of which no reader can mistake an octet, where a name
    needs care. Raises ValueError or DNSException for octets that are no such rdata."""
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
    """Writes the records of one name after the other, and remembers what most of them repeat."""

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
            covering.append((self._signature(rdata), int.from_bytes(record[6:10], "big")))
        for rdtype in sorted(rrsets, key=lambda rdtype: (rdtype != SOA, rdtype)):
            records = rrsets[rdtype]
            head = f"{owner} {int.from_bytes(records[6:10], 'big')} IN "
            kind = f"{head}{self._type(rdtype)} "
            for rdata in _sorted(rdtype, records):
                yield kind + (self._nsec(rdata) if rdtype == NSEC else rdata_text(rdtype, rdata))
            for text, _ in sorted(signatures.pop(rdtype, ())):
                # The TTL of what they cover (RFC 4034 3), which the one RRset of all signatures does not tell.
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
        """The text of the signer's name, and its octets."""
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
    rdatas = [record[RECORD.size :] for record in split_records(records)]
    return rdatas if len(rdatas) == 1 else sorted(rdatas, key=lambda octets: canonical.rdata(rdtype, octets))


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
