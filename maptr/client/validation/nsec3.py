"""Denial of existence by NSEC3 records, as validated (RFC 5155 8, RFC 9276). ``zone.denial`` makes them.

With opt-out, a gap may hide unsigned delegations, so a proof by such a gap is insecure (RFC 5155 9.2).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field

import dns.name
import dns.rdatatype
from dns.rdatatype import DNAME, NS, RdataType

from maptr.client.validation.nsec import INSECURE, SECURE, WILDCARD, has, is_delegation, lacks
from maptr.client.validation.signed import Bogus, Rdata, VerifiedRRset, WorkBudget
from maptr.protocol.names import to_wire
from maptr.zone.denial import SHA1, nsec3_hash

INSECURE_ITERATIONS = 150  # more make a zone insecure (RFC 9276 3.2), as in BIND, Unbound and Knot Resolver
BOGUS_ITERATIONS = 500  # more are bogus (RFC 9276 3.2 leaves the number open)
OPT_OUT = 1  # RFC 5155 3.1.2.1; records with other flags are ignored (8.2)


@dataclass(frozen=True, slots=True)
class _Link:
    """One record of the chain: from the hash of its owner to the next one."""

    hash: bytes
    rdata: Rdata

    def covers(self, digest: bytes) -> bool:
        after: bytes = self.rdata.next
        if self.hash < after:
            return self.hash < digest < after
        return digest > self.hash or digest < after  # the last one leads to the first

    @property
    def security(self) -> str:
        return INSECURE if self.rdata.flags & OPT_OUT else SECURE


@dataclass(frozen=True, slots=True)
class Nsec3Proofs:
    """The validated NSEC3 records of one reply, zone and set of parameters.

    Each method gives ``secure`` or ``insecure``, or raises Bogus.
    """

    zone: dns.name.Name
    links: tuple[_Link, ...]
    budget: WorkBudget
    known: dict[dns.name.Name, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, zone: dns.name.Name, records: Iterable[VerifiedRRset], budget: WorkBudget) -> Nsec3Proofs | None:
        """The proofs of one zone, from records with known parameters, all those of the first (RFC 5155 8.2); or None.

        Raises Bogus for more than BOGUS_ITERATIONS.
        """
        links: list[_Link] = []
        for record in records:
            digest = _digest(record.rrset.name, zone)
            for rdata in record.rrset:
                if (
                    digest is None
                    or rdata.algorithm != SHA1
                    or rdata.flags & ~OPT_OUT
                    or len(rdata.next) != len(digest)
                ):
                    continue
                first = links[0].rdata if links else rdata
                if (rdata.salt, rdata.iterations) == (first.salt, first.iterations):
                    links.append(_Link(digest, rdata))
        if not links:
            return None
        if links[0].rdata.iterations > BOGUS_ITERATIONS:
            raise Bogus(f"NSEC3 with {links[0].rdata.iterations} iterations, {BOGUS_ITERATIONS} at most")
        return cls(zone, tuple(links), budget)

    @property
    def too_costly(self) -> bool:
        """Whether the zone has too many iterations, so that it counts as unsigned (RFC 9276 3.2)."""
        return bool(self.links[0].rdata.iterations > INSECURE_ITERATIONS)

    def name_error(self, name: dns.name.Name) -> str:
        """Proves that the name does not exist, nor a wildcard for it (RFC 5155 8.4)."""
        if self.too_costly:
            return INSECURE
        encloser, gap = self._closest(name)
        self._gap(WILDCARD.concatenate(encloser))
        return gap.security

    def no_data(self, name: dns.name.Name, rdtype: RdataType) -> str:
        """Proves that the name or its wildcard lacks the type (RFC 5155 8.5 to 8.7)."""
        if self.too_costly:
            return INSECURE
        shown = dns.rdatatype.to_text(rdtype)
        match = self._matching(name)
        if match is not None:
            if not lacks(match.rdata, rdtype):
                raise Bogus(f"the NSEC3 of {name} does not say that there is no {shown}")
            return SECURE
        encloser, gap = self._closest(name)
        wildcard = self._matching(WILDCARD.concatenate(encloser))
        if wildcard is not None and lacks(wildcard.rdata, rdtype):
            return gap.security
        # An insecure delegation, or an empty non-terminal above insecure ones only (RFC 5155 8.6, 7.2.4, errata 3441).
        if gap.security == INSECURE and wildcard is None:
            return INSECURE
        raise Bogus(f"no NSEC3 says that {name} has no {shown}")

    def wildcard(self, name: dns.name.Name, encloser: dns.name.Name) -> str:
        """Proves that nothing is closer to the name than the wildcard below the encloser (RFC 5155 8.8)."""
        if self.too_costly:
            return INSECURE
        return self._gap(name.split(len(encloser) + 1)[1]).security

    def cut(self, name: dns.name.Name) -> bool:
        """Whether the name, which has no DS, is a delegation, or may be one (RFC 5155 8.9)."""
        if self.too_costly:
            return True
        match = self._matching(name)
        return has(match.rdata, NS) if match is not None else self._closest(name)[1].security == INSECURE

    # ---- single records

    def _closest(self, name: dns.name.Name) -> tuple[dns.name.Name, _Link]:
        """The closest encloser, and the gap that covers the name one label longer (RFC 5155 8.3)."""
        closer = name
        while closer != self.zone and closer.is_subdomain(self.zone):
            encloser = closer.parent()
            match = self._matching(encloser)
            if match is not None:
                if is_delegation(match.rdata) or has(match.rdata, DNAME):
                    raise Bogus(f"{encloser} is a delegation or has a DNAME, so its zone proves nothing about {name}")
                gap = self._covering(closer)
                if gap is None:
                    break
                return encloser, gap
            closer = encloser
        raise Bogus(f"no NSEC3 says that {name} does not exist")

    def _matching(self, name: dns.name.Name) -> _Link | None:
        digest = self._hash(name)
        return next((link for link in self.links if link.hash == digest), None)

    def _covering(self, name: dns.name.Name) -> _Link | None:
        digest = self._hash(name)
        return next((link for link in self.links if link.covers(digest)), None)

    def _gap(self, name: dns.name.Name) -> _Link:
        gap = self._covering(name)
        if gap is None:
            raise Bogus(f"no NSEC3 says that {name} does not exist")
        return gap

    def _hash(self, name: dns.name.Name) -> bytes:
        if name not in self.known:
            rdata = self.links[0].rdata
            self.budget.hash(1 + rdata.iterations)
            self.known[name] = nsec3_hash(to_wire(name.canonicalize().labels[:-1]), rdata.salt, rdata.iterations)
        return self.known[name]


def _digest(owner: dns.name.Name, zone: dns.name.Name) -> bytes | None:
    """The hash in an owner's first label; None if the record is not in this zone's chain."""
    if len(owner) != len(zone) + 1 or not owner.is_subdomain(zone):
        return None
    try:
        return base64.b32hexdecode(owner.labels[0], casefold=True)
    except ValueError:
        return None
