"""Validates the answer to one question of a walk: the NAPTR records at a name, or the proof that there are none.

Without I/O, as ``chain``: a driver asks each ``lookup`` with DO and CD set. Every record of the answer comes from
RRsets that were validated here, so that no second reader of the message can see other data.

    secure         every RRset and proof on the way is signed, from a trust anchor down
    insecure       a delegation on the way is proven to be unsigned
    indeterminate  no trust anchor is above the name, or a lookup of keys failed
    bogus          it must be secure, and is not: no answer
"""

from __future__ import annotations

from collections.abc import Iterable

import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
from dns.flags import RA
from dns.rcode import NOERROR, NXDOMAIN, YXDOMAIN
from dns.rdataclass import IN
from dns.rdatatype import CNAME, DNAME, NAPTR, SOA, RdataType

from maptr.discovery import SECURITY, Outcome
from maptr.naptr.record import Naptr
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.protocol.numbers import MAX_TTL
from maptr.resolver.message import MAX_CHAIN
from maptr.resolver.validation import signed as reading
from maptr.resolver.validation.chain import Chain, DnssecQuestion, Lookups, Resolved, Trust, Unknown
from maptr.resolver.validation.denial import INSECURE, SECURE, denials, proofs
from maptr.resolver.validation.signed import Bogus, WorkBudget, Zone, signers, verify
from maptr.walk import Answer

INDETERMINATE, BOGUS = "indeterminate", "bogus"


class AnswerValidator:
    """One question of a walk: ask ``lookup`` and ``tell()`` its result, until there is an ``answer``."""

    def __init__(self, trust: Trust, name: Labels, rdtype: int = NAPTR) -> None:
        self.answer: Answer | None = None
        self._trust = trust
        self._rdtype = RdataType(rdtype)
        self._budget = WorkBudget()
        self._chain = Chain(trust, self._budget)
        self._asked = name
        # What was validated so far, along the aliases.
        self._found: set[str] = set()
        self._ttl = MAX_TTL
        self._aliases = 0
        self._note = ""
        self._steps = self._run()
        self.lookup: DnssecQuestion = next(self._steps)

    def tell(self, result: Resolved) -> None:
        message = result.message  # which dnspython's resolver may have parsed
        if message is not None and len(message.answer) + len(message.authority) > reading.MAX_RRSETS:
            result = Resolved(Outcome.MALFORMED, None, reading.TOO_MANY_RRSETS, result.server, result.elapsed)
        try:
            self.lookup = self._steps.send(result)
        except StopIteration as done:
            self.answer = done.value

    def _run(self) -> Lookups[Answer]:
        lookup = DnssecQuestion(dns.name.Name((*self._asked, b"")), self._rdtype)
        result = yield lookup
        try:
            while result.message is not None and result.message.rcode() in (NOERROR, NXDOMAIN, YXDOMAIN):
                try:
                    answer = yield from self._read(lookup.name, result)
                except dns.name.NameTooLong:  # of a validated DNAME (RFC 6672 2.2)
                    self._note = "a DNAME makes the name too long"
                    answer = self._answer(Outcome.NXDOMAIN, result, zone=self._asked)
                if isinstance(answer, Answer):
                    return answer
                lookup = DnssecQuestion(answer, self._rdtype)  # where an alias leads
                result = yield lookup
        except Bogus as error:
            self._chain.link(lookup, result, BOGUS, str(error))
            return self._failed(Outcome.BOGUS, str(error), BOGUS, result)
        except Unknown as error:
            return self._failed(error.outcome, str(error), INDETERMINATE, result)
        return self._failed(result.outcome, result.note, INDETERMINATE, result)

    def _failed(self, outcome: Outcome, note: str, security: str, result: Resolved) -> Answer:
        note = "; ".join(part for part in (self._note, note) if part)
        if outcome.answered:  # in a response that cannot be validated
            outcome = Outcome.SERVFAIL
        links, extended = tuple(self._chain.links), result.extended
        return Answer(outcome, note=note, server=result.server, security=security, links=links, extended=extended)

    def _read(self, name: dns.name.Name, result: Resolved) -> Lookups[Answer | dns.name.Name]:
        """Return the answer in a message, or the name to query next if an alias leads to a name outside the message."""
        message = result.response
        start = name
        while True:
            records = reading.rrset(message.answer, name, self._rdtype)
            if records is not None:
                return (yield from self._positive(name, records, result))
            target = yield from self._alias(name, result)
            if target is None:
                break
            self._aliases += 1
            if self._aliases > MAX_CHAIN:
                raise Bogus(f"more than {MAX_CHAIN} CNAMEs")
            name = target
            self._note = f"through CNAME {names.to_text(name.labels[:-1])}"
        if name != start and not message.flags & RA:
            return name  # a resolver follows aliases to their end; an authoritative server need not
        return (yield from self._negative(name, result))

    def _positive(self, name: dns.name.Name, records: dns.rrset.RRset, result: Resolved) -> Lookups[Answer]:
        rcode = result.response.rcode()
        if rcode != NOERROR:
            raise Bogus(f"records with rcode {dns.rcode.to_text(rcode)}")
        yield from self._take(DnssecQuestion(name, self._rdtype), records, result)
        naptrs = [
            Naptr(r.order, r.preference, r.flags, r.service, r.regexp, r.replacement.labels[:-1])
            for r in records
            if self._rdtype == NAPTR
        ]
        return self._answer(Outcome.ANSWER, result, naptrs)

    def _alias(self, name: dns.name.Name, result: Resolved) -> Lookups[dns.name.Name | None]:
        """Return the target of a CNAME at the name or a DNAME above it. Ignores CNAMEs synthesized from a DNAME."""
        answer = result.response.answer
        for dname in answer:
            if dname.rdtype == DNAME and dname.rdclass == IN and name != dname.name and name.is_subdomain(dname.name):
                if len(dname) != 1:
                    raise Bogus(f"several DNAMEs at {dname.name}")
                yield from self._take(DnssecQuestion(dname.name, DNAME), dname, result)
                return name.relativize(dname.name).concatenate(dname[0].target)
        cname = reading.rrset(answer, name, CNAME)
        if cname is None:
            return None
        if len(cname) != 1:
            raise Bogus(f"several CNAMEs at {name}")  # RFC 2181 10.1
        yield from self._take(DnssecQuestion(name, CNAME), cname, result)
        target: dns.name.Name = cname[0].target
        return target

    def _take(self, what: DnssecQuestion, rrset: dns.rrset.RRset, result: Resolved) -> Lookups[None]:
        """Validate an RRset of the answer, and add its security and TTL to the whole."""
        message = result.response
        signatures = reading.signatures(message.answer, rrset)
        zone = yield from self._zone(rrset.name, signers(signatures))
        if zone is None or not zone.keys:
            self._add(what, result, *_unsigned(zone), int(rrset.ttl))
            return
        signed = verify(rrset, signatures, zone, self._trust.clock(), self._budget)
        security, ttl = SECURE, signed.ttl
        if signed.encloser is not None:
            # From a wildcard: no closer name may exist, which has to be proven.
            proven, proof_ttl = proofs(message, zone, self._trust.clock(), self._budget)
            security, ttl = proven.wildcard(rrset.name, signed.encloser), min(ttl, proof_ttl)
        note = f"signed by {zone.name} key {signed.tag}" + (", from a wildcard" if signed.encloser is not None else "")
        self._add(what, result, security, note, ttl)

    def _negative(self, name: dns.name.Name, result: Resolved) -> Lookups[Answer]:
        """Return the answer that there are no records, which a signed zone has to prove."""
        message = result.response
        absent = message.rcode() == NXDOMAIN
        zone = yield from self._zone(name, (signer for _, signed in denials(message) for signer in signers(signed)))
        soa = next((rrset for rrset in message.authority if rrset.rdtype == SOA), None)
        ttl = None if soa is None else min(int(soa.ttl), int(soa[0].minimum))  # RFC 2308 5
        denying = None if soa is None else soa.name.labels[:-1]
        what = DnssecQuestion(name, self._rdtype)
        if zone is None or not zone.keys:
            self._add(what, result, *_unsigned(zone), MAX_TTL)
        else:
            proven, kept = proofs(message, zone, self._trust.clock(), self._budget)
            security = proven.name_error(name) if absent else proven.no_data(name, self._rdtype)
            self._add(what, result, security, f"{zone.name} proves that there are none", kept)
            denying = zone.name.labels[:-1]  # the SOA is not validated
        # An alias on the way is at or below the origin.
        denied = self._asked if self._aliases else denying
        return self._answer(Outcome.NXDOMAIN if absent else Outcome.NODATA, result, (), ttl, denied)

    def _zone(self, owner: dns.name.Name, signed_by: Iterable[dns.name.Name]) -> Lookups[Zone | None]:
        """Return the zone that has to sign an owner's records; without keys if it is unsigned, None if unknown.

        The signer's name shows where the zone begins. Without a signer, the zone has to be provably unsigned.
        """
        anchor = self._trust.anchor_of(owner)
        if anchor is None:
            return None
        held = (s for s in signed_by if owner.is_subdomain(s) and s.is_subdomain(anchor))
        signer = max(held, key=len, default=None)  # a response along aliases may also have proofs of zones above
        zone = yield from self._chain.down(anchor, owner if signer is None else signer)
        if not zone.keys:
            return zone
        if signer is None:
            raise Bogus(f"{owner} is in the signed zone {zone.name}, but without signature or proof")
        if signer != zone.name:
            raise Bogus(f"{owner} is signed by {signer}, which is not a zone")
        return zone

    # ---- the end

    def _add(self, what: DnssecQuestion, result: Resolved, security: str, note: str, ttl: int) -> None:
        self._chain.link(what, result, security, note)
        self._found.add(security)
        self._ttl = min(self._ttl, ttl)

    def _answer(
        self,
        outcome: Outcome,
        result: Resolved,
        records: Iterable[Naptr] = (),
        ttl: int | None = MAX_TTL,
        zone: Labels | None = None,
    ) -> Answer:
        security = max(self._found, key=SECURITY.index)
        ttl = None if ttl is None else min(ttl, self._ttl)
        links = tuple(self._chain.links)
        return Answer(outcome, tuple(records), ttl, self._note, result.server, result.elapsed, security, links, zone)


def _unsigned(zone: Zone | None) -> tuple[str, str]:
    """Return the security of data without a usable signature, and the reason."""
    return (INDETERMINATE, "no trust anchor is above it") if zone is None else (INSECURE, f"{zone.name} is not signed")
