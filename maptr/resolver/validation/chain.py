"""The chain of trust: from a trust anchor down to the zone that signs, by DS and DNSKEY (RFC 4035 5.2).

Generators without I/O: they yield a ``DnssecQuestion`` and are sent its ``Resolved``. ``Trust`` caches what they find,
and many questions may share it.

    zone = that of the closest trust anchor
    for each name from there down to the target:
        a DS signed by the zone:            the name is a zone, with the keys that this DS leads to
        proof of a delegation without DS:   from here on everything is insecure
        proof of neither, or an alias:      no zone begins here
        anything else:                      bogus
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple, TypeVar

import dns.dnssec
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
from dns.rdatatype import CNAME, DNAME, DNSKEY, DS, RdataType

from maptr.discovery import Link, Outcome
from maptr.protocol.extended_error import ExtendedError
from maptr.resolver.validation import signed as reading
from maptr.resolver.validation.denial import INSECURE, SECURE, proofs
from maptr.resolver.validation.signed import SHA1, Bogus, Rdata, WorkBudget, Zone, is_usable, may_sign, verify

T = TypeVar("T")


class DnssecQuestion(NamedTuple):
    """A question to ask with DO and CD set."""

    name: dns.name.Name
    rdtype: RdataType


class Resolved(NamedTuple):
    """The result of a lookup: a message, or why there is none."""

    outcome: Outcome
    message: dns.message.Message | None = None
    note: str = ""
    server: str = ""
    elapsed: float | None = None
    extended: tuple[ExtendedError, ...] = ()

    @property
    def response(self) -> dns.message.Message:
        """The message, which must be there."""
        assert self.message is not None  # noqa: S101
        return self.message


Lookups = Generator[DnssecQuestion, Resolved, T]


MAX_LOOKUPS = 48  # of keys for one question; a name of 34 labels, as in ip6.arpa, needs one for each
MAX_KEPT = 10_000  # names whose keys, or lack of them, are cached
MAX_KEPT_SECONDS = 86_400  # for which anything is cached, whatever its TTL (RFC 8767 4 says a week for answers)
MAX_DIGESTS = 256  # DS records compared with keys, for one zone
DIGEST_ROUNDS = 50  # of the hash budget that one digest of a key costs


class Unknown(Exception):
    """The chain cannot be followed, because one of its lookups failed."""

    def __init__(self, lookup: DnssecQuestion, result: Resolved) -> None:
        note = f"{lookup.name} {dns.rdatatype.to_text(lookup.rdtype)}: {result.outcome.value}"
        super().__init__(note + (f" ({result.note})" if result.note else ""))
        self.outcome: Outcome = Outcome.SERVFAIL if result.outcome.answered else result.outcome


class CachedZone(NamedTuple):
    """The zone that begins at a name, None for no zone. ``leaf``: there are no names below it."""

    zone: Zone | None
    until: float
    leaf: bool = False


class Trust:
    """Trust anchors, and a cache of the zones found from them. Threads may share one. ``clock`` is Unix time."""

    def __init__(self, anchors: Mapping[dns.name.Name, tuple[Rdata, ...]], clock: Callable[[], float]) -> None:
        self.anchors = anchors
        self.clock = clock
        self._kept: dict[dns.name.Name, CachedZone] = {}

    def anchor_of(self, name: dns.name.Name) -> dns.name.Name | None:
        """Return the closest trust anchor at or above a name."""
        found = [anchor for anchor in self.anchors if name.is_subdomain(anchor)]
        return max(found, key=len, default=None)

    def recall(self, name: dns.name.Name) -> CachedZone | None:
        """Return what begins at a name, unless the clock must have been set back since."""
        kept = self._kept.get(name)
        return kept if kept is not None and 0 < kept.until - self.clock() < MAX_KEPT_SECONDS + 1 else None

    def keep(self, name: dns.name.Name, kept: CachedZone) -> None:
        if len(self._kept) >= MAX_KEPT:
            self._kept = {}  # all at once, which needs no lock
        self._kept[name] = kept


class Chain:
    """The chains that one question needs, within its budget; ``links`` are its lookups with their results."""

    def __init__(self, trust: Trust, budget: WorkBudget) -> None:
        self.links: list[Link] = []
        self._trust = trust
        self._budget = budget
        self._lookups = 0

    def down(self, anchor: dns.name.Name, target: dns.name.Name) -> Lookups[Zone]:
        """Return the closest zone at or above the target, from the anchor's zone down, or the first that is unsigned.

        Raises Bogus, and Unknown if a lookup failed.
        """
        zone = Zone(anchor)
        for labels in range(len(anchor), len(target) + 1):
            name = target.split(labels)[1]
            kept = self._trust.recall(name)
            if kept is None:
                if name == anchor:
                    kept = yield from self._keys(name, self._trust.anchors[name], MAX_KEPT_SECONDS, "the trust anchor")
                else:
                    kept = yield from self._cut(zone, name)
                self._trust.keep(name, kept)
            if kept.zone is not None:
                zone = kept.zone
            if not zone.keys or kept.leaf:
                break
        return zone

    def _cut(self, above: Zone, name: dns.name.Name) -> Lookups[CachedZone]:
        lookup = DnssecQuestion(name, DS)
        result = yield from self._ask(lookup)
        if (known := self._trust.recall(name)) is not None:  # another question may have found it in the meantime
            return known
        message = result.response
        try:
            found = reading.rrset(message.answer, name, DS)
            if found is None:
                return self._no_ds(message, above, lookup, result)
            signed = verify(found, reading.signatures(message.answer, found), above, self._now, self._budget)
            if signed.encloser is not None:
                raise Bogus(f"{name} DS: made from a wildcard")
        except Bogus as error:
            self.link(lookup, result, "bogus", str(error))
            raise
        usable = [rdata for rdata in found if is_usable(rdata)]
        if not usable:
            self.link(lookup, result, INSECURE, "no DS with a known algorithm")
            return self._cached(Zone(name), signed.ttl)
        self.link(lookup, result, SECURE, f"signed by {above.name} key {signed.tag}")
        return (yield from self._keys(name, tuple(usable), signed.ttl, f"the DS in {above.name}"))

    def _no_ds(self, message: dns.message.Message, zone: Zone, lookup: DnssecQuestion, result: Resolved) -> CachedZone:
        """Return a name without DS: an unsigned zone, or no zone (RFC 4035 5.2, RFC 5155 8.6)."""
        for alias in message.answer:
            above = lookup.name != alias.name and lookup.name.is_subdomain(alias.name)
            if not (above if alias.rdtype == DNAME else alias.rdtype == CNAME and alias.name == lookup.name):
                continue
            found = reading.signatures(message.answer, alias)
            if found is None and alias.rdtype == CNAME:
                continue  # it may be synthesized from a DNAME
            signed = verify(alias, found, zone, self._now, self._budget)
            if signed.encloser is None:
                self.link(lookup, result, SECURE, "an alias, so no zone begins here")
                return self._cached(None, signed.ttl)
        proven, ttl = proofs(message, zone, self._now, self._budget)
        if message.rcode() != dns.rcode.NXDOMAIN:
            proven.no_data(lookup.name, DS)
        elif proven.name_error(lookup.name) == SECURE:  # with opt-out it may hide a delegation (RFC 5155 9.2)
            self.link(lookup, result, SECURE, "no such name, so no zone begins here")
            return self._cached(None, ttl, leaf=True)
        if proven.cut(lookup.name):
            self.link(lookup, result, INSECURE, f"{zone.name} proves that this delegation is unsigned")
            return self._cached(Zone(lookup.name), ttl)
        self.link(lookup, result, SECURE, "no zone begins here")
        return self._cached(None, ttl)

    def _keys(self, name: dns.name.Name, trusted: tuple[Rdata, ...], ttl: int, by: str) -> Lookups[CachedZone]:
        """Return a zone's keys, signed by a key that matches a DS or an anchor."""
        lookup = DnssecQuestion(name, DNSKEY)
        result = yield from self._ask(lookup)
        if (known := self._trust.recall(name)) is not None:
            return known
        message = result.response
        try:
            found = reading.rrset(message.answer, name, DNSKEY)
            if found is None:
                raise Bogus(f"{name} has no DNSKEY")
            usable = tuple(key for key in found if may_sign(key))
            entry = tuple(key for key in usable if self._is_trusted(name, key, trusted))
            if not entry:
                raise Bogus(f"{name} DNSKEY: no key matches {by}")
            signatures = reading.signatures(message.answer, found)
            signed = verify(found, signatures, Zone.of(name, entry), self._now, self._budget)
        except Bogus as error:
            self.link(lookup, result, "bogus", str(error))
            raise
        tags = ", ".join(sorted({str(dns.dnssec.key_id(key)) for key in usable}))
        self.link(lookup, result, SECURE, f"keys {tags}, signed by {signed.tag}, which matches {by}")
        return self._cached(Zone.of(name, usable), min(ttl, signed.ttl))

    def _is_trusted(self, name: dns.name.Name, key: Rdata, trusted: tuple[Rdata, ...]) -> bool:
        """Return whether an anchor or a DS is for this key; SHA-1 only counts without a better one (RFC 4509 3)."""
        tag = dns.dnssec.key_id(key)
        best = [t for t in trusted if t.rdtype == DNSKEY or t.digest_type != SHA1]
        digests: dict[int, bytes] = {}  # by type, each made once: a key may have 64 KiB, and many DS records its tag
        for rdata in (best or trusted)[:MAX_DIGESTS]:
            if rdata.rdtype == DNSKEY:
                if rdata == key:
                    return True
            elif (rdata.key_tag, rdata.algorithm) == (tag, key.algorithm):
                kind = rdata.digest_type
                if kind not in digests:
                    self._budget.hash(DIGEST_ROUNDS)
                    digests[kind] = dns.dnssec.make_ds(name, key, kind, policy=dns.dnssec.allow_all_policy).digest
                if digests[kind] == rdata.digest:
                    return True
        return False

    # ---- lookups

    @property
    def _now(self) -> float:
        return self._trust.clock()

    def _ask(self, lookup: DnssecQuestion) -> Lookups[Resolved]:
        """Return the result of a lookup, with a message. Raises Bogus above the limit, and Unknown."""
        self._lookups += 1
        if self._lookups > MAX_LOOKUPS:
            raise Bogus(f"more than {MAX_LOOKUPS} lookups of keys")
        result = yield lookup
        if result.message is None or result.message.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
            self.link(lookup, result, "indeterminate", result.note or result.outcome.value)
            raise Unknown(lookup, result)
        return result

    def link(self, lookup: DnssecQuestion, result: Resolved, security: str, note: str) -> None:
        """Add a lookup to the trace, with its security and the reason."""
        shown = lookup.name.to_text(), dns.rdatatype.to_text(lookup.rdtype)
        self.links.append(Link(*shown, security, note, result.server, result.elapsed))

    def _cached(self, zone: Zone | None, ttl: int, *, leaf: bool = False) -> CachedZone:
        return CachedZone(zone, self._now + min(ttl, MAX_KEPT_SECONDS), leaf)
