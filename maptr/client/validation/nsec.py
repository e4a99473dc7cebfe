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

    def name_error(self, name: dns.name.Name) -> str:
        """Proves that the name does not exist, nor a wildcard for it (RFC 4035 5.4)."""
        record = self._covering(name)
        if self._next(record).is_subdomain(name):
            raise Bogus(f"{name} exists, because there are names below it")
        wildcard = _child(self._encloser(record, name))
        if self._is_below(self._covering(wildcard), wildcard):
            raise Bogus(f"{wildcard} exists, because there are names below it")
        return SECURE

    def no_data(self, name: dns.name.Name, rdtype: RdataType) -> str:
        """Proves that the name, an empty non-terminal or its wildcard lacks the type (RFC 4035 3.1.3.4)."""
        record = self._matching(name)
        if record is not None:
            if not lacks(record.rrset[0], rdtype):
                raise Bogus(f"the NSEC of {name} does not say that there is no {dns.rdatatype.to_text(rdtype)}")
            return SECURE
        record = self._covering(name)
        if self._next(record).is_subdomain(name):
            return SECURE
        wildcard = _child(self._encloser(record, name))
        match = self._matching(wildcard)
        if match is None or not lacks(match.rrset[0], rdtype):
            raise Bogus(f"no NSEC says that {name} has no {dns.rdatatype.to_text(rdtype)}")
        return SECURE

    def wildcard(self, name: dns.name.Name, encloser: dns.name.Name) -> str:
        """Proves that nothing is closer to the name than the wildcard below the encloser (RFC 4035 5.3.4)."""
        if self._encloser(self._covering(name), name) != encloser:
            raise Bogus(f"{name} has something closer than {_child(encloser)}")
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
            owner, after = record.rrset.name, self._next(record)
            inside = owner < name and (name < after or after == self.zone)  # the last one leads to the apex
            if inside and name.is_subdomain(self.zone) and not self._says_nothing(record, name):
                return record
        raise Bogus(f"no NSEC says that {name} does not exist")

    @staticmethod
    def _says_nothing(record: VerifiedRRset, name: dns.name.Name) -> bool:
        """Whether it belongs to an ancestor that is delegated or has a DNAME (RFC 6840 4.1)."""
        rdata = record.rrset[0]
        return name.is_subdomain(record.rrset.name) and (is_delegation(rdata) or has(rdata, DNAME))

    def _is_below(self, record: VerifiedRRset, name: dns.name.Name) -> bool:
        return self._next(record).is_subdomain(name)

    @staticmethod
    def _next(record: VerifiedRRset) -> dns.name.Name:
        after: dns.name.Name = record.rrset[0].next
        return after

    def _encloser(self, record: VerifiedRRset, name: dns.name.Name) -> dns.name.Name:
        """The closest ancestor that exists: the longest that the name shares with an end of the gap."""
        ends = (record.rrset.name, self._next(record))
        return max((_common(name, end) for end in ends), key=len)


def _common(one: dns.name.Name, other: dns.name.Name) -> dns.name.Name:
    labels = one.fullcompare(other)[2]
    return one.split(labels)[1]


def _child(encloser: dns.name.Name) -> dns.name.Name:
    """The wildcard directly below a name."""
    return WILDCARD.concatenate(encloser)


def proofs(zone: dns.name.Name, records: Iterable[VerifiedRRset]) -> NsecProofs:
    """The proofs of one zone, without records whose next name is outside of it."""
    return NsecProofs(zone, tuple(r for r in records if len(r.rrset) == 1 and r.rrset[0].next.is_subdomain(zone)))
