"""Denial of existence by NSEC records, as validated (RFC 4035 5.4, RFC 6840 4). ``zone.denial`` makes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import dns.name
import dns.rdatatype
from dns.rdatatype import CNAME, DNAME, DS, NS, SOA, RdataType

from maptr.client.validation.signed import Bogus, Rdata, VerifiedRRset

WILDCARD = dns.name.from_text("*", None)

SECURE, INSECURE = "secure", "insecure"


def has(rdata: Rdata, rdtype: RdataType) -> bool:
    """Whether a type bitmap (RFC 4034 4.1.2) contains a type."""
    window, bit = divmod(int(rdtype), 256)
    for number, octets in rdata.windows:
        if number == window and bit // 8 < len(octets):
            return bool(octets[bit // 8] & 0x80 >> bit % 8)
    return False


def is_delegation(rdata: Rdata) -> bool:
    """Whether it is the parent's side of a cut, which proves nothing at or below it but DS (RFC 6840 4.1)."""
    return has(rdata, NS) and not has(rdata, SOA)


def lacks(rdata: Rdata, rdtype: RdataType) -> bool:
    """Whether the name of this record has neither the type nor an alias, and this zone is authoritative for that."""
    if has(rdata, rdtype) or has(rdata, CNAME):
        return False
    return not has(rdata, SOA) if rdtype == DS else not is_delegation(rdata)


@dataclass(frozen=True, slots=True)
class NsecProofs:
    """The validated NSEC records of one reply and zone. Each method gives ``secure``, or raises Bogus."""

    zone: dns.name.Name
    records: tuple[VerifiedRRset, ...]

    @classmethod
    def of(cls, zone: dns.name.Name, records: Iterable[VerifiedRRset]) -> NsecProofs:
        """The proofs of one zone, without records whose next name is outside of it."""
        return cls(zone, tuple(r for r in records if len(r.rrset) == 1 and _next(r).is_subdomain(zone)))

    def name_error(self, name: dns.name.Name) -> str:
        """Proves that the name does not exist, nor a wildcard for it (RFC 4035 5.4)."""
        wildcard = WILDCARD.concatenate(_encloser(name, self._gap(name)))
        self._gap(wildcard)
        return SECURE

    def no_data(self, name: dns.name.Name, rdtype: RdataType) -> str:
        """Proves that the name, an empty non-terminal or its wildcard lacks the type (RFC 4035 3.1.3.4)."""
        shown = dns.rdatatype.to_text(rdtype)
        match = self._matching(name)
        if match is not None:
            if not lacks(match.rrset[0], rdtype):
                raise Bogus(f"the NSEC of {name} does not say that there is no {shown}")
            return SECURE
        record = self._covering(name)
        if _next(record).is_subdomain(name):
            return SECURE
        match = self._matching(WILDCARD.concatenate(_encloser(name, record)))
        if match is None or not lacks(match.rrset[0], rdtype):
            raise Bogus(f"no NSEC says that {name} has no {shown}")
        return SECURE

    def wildcard(self, name: dns.name.Name, encloser: dns.name.Name) -> str:
        """Proves that nothing is closer to the name than the wildcard below the encloser (RFC 4035 5.3.4)."""
        if _encloser(name, self._covering(name)) != encloser:
            raise Bogus(f"{name} has something closer than {WILDCARD.concatenate(encloser)}")
        return SECURE

    def cut(self, name: dns.name.Name) -> bool:
        """Whether the name, which has no DS, is a delegation (RFC 4035 5.2)."""
        record = self._matching(name)
        return record is not None and has(record.rrset[0], NS)

    # ---- single records

    def _matching(self, name: dns.name.Name) -> VerifiedRRset | None:
        return next((record for record in self.records if record.rrset.name == name), None)

    def _covering(self, name: dns.name.Name) -> VerifiedRRset:
        for record in self.records:
            owner, after, rdata = record.rrset.name, _next(record), record.rrset[0]
            inside = owner < name and (name < after or after == self.zone)  # the last one leads to the apex
            # An ancestor that is delegated or has a DNAME proves nothing (RFC 6840 4.1).
            silent = name.is_subdomain(owner) and (is_delegation(rdata) or has(rdata, DNAME))
            if inside and name.is_subdomain(self.zone) and not silent:
                return record
        raise Bogus(f"no NSEC says that {name} does not exist")

    def _gap(self, name: dns.name.Name) -> VerifiedRRset:
        """The record that covers a name which is not an empty non-terminal either."""
        record = self._covering(name)
        if _next(record).is_subdomain(name):
            raise Bogus(f"{name} exists, because there are names below it")
        return record


def _next(record: VerifiedRRset) -> dns.name.Name:
    after: dns.name.Name = record.rrset[0].next
    return after


def _encloser(name: dns.name.Name, gap: VerifiedRRset) -> dns.name.Name:
    """The closest ancestor of a name that exists: the longest that the name shares with an end of the gap."""
    return name.split(max(name.fullcompare(end)[2] for end in (gap.rrset.name, _next(gap))))[1]
