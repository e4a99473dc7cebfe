"""One question of a walk, asked and validated: the NAPTR records at a name, or the proof that there are none.

A generator like ``chain``: what it yields is asked with DO and CD set, whoever asks. Every record of the answer comes
from RRsets that were validated here, so no second reading of the message can differ.

    secure         every RRset and proof on the way is signed, from a trust anchor down
    insecure       a delegation on the way is proven not to be signed
    indeterminate  no trust anchor is above the name, or a question about keys got no answer
    bogus          it ought to be secure, and is not: no answer at all
"""

from __future__ import annotations

from collections.abc import Iterable

import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
from dns.flags import RA
from dns.rdataclass import IN
from dns.rdatatype import CNAME, DNAME, NAPTR, RdataType

from maptr.client.validation import message as reading
from maptr.client.validation.chain import Asking, Chain, Heard, Need, Trust, Unknown, Zone
from maptr.client.validation.nsec import INSECURE, SECURE
from maptr.client.validation.signed import Bogus, Budget, Keys, Signed, signers, verify
from maptr.discovery import SECURITY, Outcome
from maptr.naptr.record import Naptr
from maptr.protocol import names
from maptr.protocol.names import Labels
from maptr.protocol.numbers import MAX_TTL
from maptr.walk import Answer

MAX_ALIASES = 16  # CNAMEs and DNAMEs followed for one question, as in ``wire``
INDETERMINATE, BOGUS = "indeterminate", "bogus"


class Inquiry:
    """One question of a walk: ask ``need``, ``tell()`` what was heard, until there is an ``answer``."""

    def __init__(self, trust: Trust, name: Labels, rdtype: int = NAPTR) -> None:
        self.answer: Answer | None = None
        self._steps = _Inquiry(trust, RdataType(rdtype)).run(dns.name.Name((*name, b"")))
        self.need: Need = next(self._steps)

    def tell(self, heard: Heard) -> None:
        if heard.message is not None and not reading.is_honest(heard.message):
            heard = Heard(Outcome.MALFORMED, None, reading.TOO_MANY_RRSETS, heard.server, heard.elapsed)
        try:
            self.need = self._steps.send(heard)
        except StopIteration as done:
            self.answer = done.value


class _TooLong(Exception):
    """A DNAME, validated, makes of a name what is none."""


class _Inquiry:
    """One question under way: what was validated so far, along its aliases."""

    def __init__(self, trust: Trust, rdtype: RdataType) -> None:
        self._trust = trust
        self._rdtype = rdtype
        self._budget = Budget()
        self._chain = Chain(trust, self._budget)
        self._found: set[str] = set()
        self._ttl = MAX_TTL
        self._aliases = 0
        self._asked: Labels = ()
        self._note = ""

    def run(self, name: dns.name.Name) -> Asking[Answer]:
        self._asked = name.labels[:-1]
        need = Need(name, self._rdtype)
        heard = yield need
        try:
            while heard.message is not None and _is_said(heard.message):
                try:
                    answer = yield from self._read(need.name, heard)
                except _TooLong:  # RFC 6672 2.2
                    self._note = "a DNAME makes the name too long"
                    answer = self._answer(Outcome.NXDOMAIN, heard, zone=self._asked)
                if isinstance(answer, Answer):
                    return answer
                need = Need(answer, self._rdtype)  # where an alias leads
                heard = yield need
        except Bogus as error:
            self._chain.link(need, heard, BOGUS, str(error))
            return self._failed(Outcome.BOGUS, str(error), BOGUS, heard)
        except Unknown as error:
            return self._failed(error.outcome, str(error), INDETERMINATE, heard)
        return self._failed(heard.outcome, heard.note, INDETERMINATE, heard)

    def _failed(self, outcome: Outcome, note: str, security: str, heard: Heard) -> Answer:
        note = "; ".join(part for part in (self._note, note) if part)
        if outcome.said:  # by something that cannot be validated
            outcome = Outcome.SERVFAIL
        return Answer(outcome, note=note, server=heard.server, security=security, links=tuple(self._chain.links))

    def _read(self, name: dns.name.Name, heard: Heard) -> Asking[Answer | dns.name.Name]:
        """The answer in a message; or a name to ask next, where an alias leads to what the server does not know."""
        message = heard.said
        start = name
        while True:
            records = reading.rrset(message.answer, name, self._rdtype)
            if records is not None:
                return (yield from self._positive(name, records, heard))
            target = yield from self._alias(name, heard)
            if target is None:
                break
            self._aliases += 1
            if self._aliases > MAX_ALIASES:
                raise Bogus(f"more than {MAX_ALIASES} CNAMEs")
            name = target
            self._note = f"through CNAME {names.to_text(name.labels[:-1])}"
        if name != start and not message.flags & RA:
            return name  # a resolver follows aliases to their end; a server may leave it at that, or half of a proof
        return (yield from self._negative(name, heard))

    def _positive(self, name: dns.name.Name, records: dns.rrset.RRset, heard: Heard) -> Asking[Answer]:
        rcode = heard.said.rcode()
        if rcode != dns.rcode.NOERROR:
            raise Bogus(f"records with rcode {dns.rcode.to_text(rcode)}")
        yield from self._take(Need(name, self._rdtype), records, heard)
        naptrs = [
            Naptr(r.order, r.preference, r.flags, r.service, r.regexp, r.replacement.labels[:-1])
            for r in records
            if self._rdtype == NAPTR
        ]
        return self._answer(Outcome.ANSWER, heard, naptrs)

    def _alias(self, name: dns.name.Name, heard: Heard) -> Asking[dns.name.Name | None]:
        """Where a CNAME at the name or a DNAME above it leads; a CNAME that a DNAME makes is made again here."""
        answer = heard.said.answer
        for dname in answer:
            if dname.rdtype == DNAME and dname.rdclass == IN and name != dname.name and name.is_subdomain(dname.name):
                if len(dname) != 1:
                    raise Bogus(f"several DNAMEs at {dname.name}")
                yield from self._take(Need(dname.name, DNAME), dname, heard)
                prefix = name.relativize(dname.name)
                try:
                    return prefix.concatenate(dname[0].target)
                except dns.name.NameTooLong:
                    raise _TooLong from None
        cname = reading.rrset(answer, name, CNAME)
        if cname is None:
            return None
        if len(cname) != 1:
            raise Bogus(f"several CNAMEs at {name}")  # RFC 2181 10.1
        yield from self._take(Need(name, CNAME), cname, heard)
        target: dns.name.Name = cname[0].target
        return target

    def _take(self, what: Need, rrset: dns.rrset.RRset, heard: Heard) -> Asking[None]:
        """Validate an RRset of the answer; what it is worth adds to the whole."""
        message = heard.said
        signatures = reading.signatures(message.answer, rrset)
        zone = yield from self._zone(rrset.name, signers(signatures))
        if zone is None or zone.keys is None:
            self._worth(what, heard, zone, int(rrset.ttl))
            return
        signed = verify(rrset, signatures, zone.keys, self._trust.clock(), self._budget)
        security, ttl = SECURE, signed.ttl
        if signed.encloser is not None:
            security, proof_ttl = self._expanded(message, rrset.name, signed, zone.keys)
            ttl = min(ttl, proof_ttl)
        until = f"signed by {zone.name} key {signed.tag}"
        self._chain.link(what, heard, security, until + (", from a wildcard" if signed.encloser is not None else ""))
        self._found.add(security)
        self._ttl = min(self._ttl, ttl)

    def _expanded(
        self, message: dns.message.Message, name: dns.name.Name, signed: Signed, keys: Keys
    ) -> tuple[str, int]:
        """What an RRset that a wildcard made is worth: that nothing is closer to the name has to be proven."""
        assert signed.encloser is not None  # noqa: S101
        proofs, ttl = reading.proofs(message, keys, self._trust.clock(), self._budget)
        return proofs.wildcard(name, signed.encloser), ttl

    def _negative(self, name: dns.name.Name, heard: Heard) -> Asking[Answer]:
        """There are none: by a proof of the zone, or by nothing where that is not signed."""
        message = heard.said
        absent = message.rcode() == dns.rcode.NXDOMAIN
        zone = yield from self._zone(name, reading.deniers(message))
        ttl = reading.negative_ttl(message)
        what = Need(name, self._rdtype)
        if zone is None or zone.keys is None:
            self._worth(what, heard, zone, MAX_TTL)
        else:
            proofs, kept = reading.proofs(message, zone.keys, self._trust.clock(), self._budget)
            security = proofs.name_error(name) if absent else proofs.no_data(name, self._rdtype)
            self._found.add(security)
            self._chain.link(what, heard, security, f"{zone.name} proves that there are none")
            ttl = None if ttl is None else min(ttl, kept)
        # An alias on the way stands at or below the origin.
        denied = self._asked if self._aliases else reading.denying_zone(message)
        return self._answer(Outcome.NXDOMAIN if absent else Outcome.NODATA, heard, (), ttl, denied)

    def _zone(self, owner: dns.name.Name, signed_by: Iterable[dns.name.Name]) -> Asking[Zone | None]:
        """The zone that has to have signed something; without keys where it cannot have, None where nobody knows.

        Its signer tells where it ends. Without one it has to be proven that nobody had to sign.
        """
        anchor = self._trust.anchor_of(owner)
        if anchor is None:
            return None
        held = (s for s in signed_by if owner.is_subdomain(s) and s.is_subdomain(anchor))
        signer = max(held, key=len, default=None)  # a reply along aliases may have proofs of zones above, too
        zone = yield from self._chain.down(anchor, owner if signer is None else signer)
        if zone.keys is None:
            return zone
        if signer is None:
            raise Bogus(f"{owner} is in {zone.name}, which is signed, and there is no signature or proof of it")
        if signer != zone.name:
            raise Bogus(f"{owner} is signed by {signer}, which is no zone")
        return zone

    # ---- the end

    def _worth(self, what: Need, heard: Heard, zone: Zone | None, ttl: int) -> None:
        """Something without a signature that counts."""
        security = INDETERMINATE if zone is None else INSECURE
        note = "no trust anchor is above it" if zone is None else f"{zone.name} is not signed"
        self._chain.link(what, heard, security, note)
        self._found.add(security)
        self._ttl = min(self._ttl, ttl)

    def _answer(
        self,
        outcome: Outcome,
        heard: Heard,
        records: Iterable[Naptr] = (),
        ttl: int | None = MAX_TTL,
        zone: Labels | None = None,
    ) -> Answer:
        security = max(self._found, key=SECURITY.index)
        ttl = None if ttl is None else min(ttl, self._ttl)
        links = tuple(self._chain.links)
        return Answer(outcome, tuple(records), ttl, self._note, heard.server, heard.elapsed, security, links, zone)


def _is_said(message: dns.message.Message) -> bool:
    return message.rcode() in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN, dns.rcode.YXDOMAIN)
