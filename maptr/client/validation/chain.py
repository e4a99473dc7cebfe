"""The chain of trust: from a trust anchor down to the zone that signs, by DS and DNSKEY (RFC 4035 5.2).

Generators, so that whoever asks is free how: they yield a ``Need`` and are sent what was ``Heard``. What is found is
kept by ``Trust``, which one caller may share over many questions, and never by this module.

    zone = that of the closest trust anchor
    for each name from there down to the target:
        a DS signed by the zone:            the name is a zone, with the keys that this DS leads to
        proof of a delegation without DS:   from here on everything is insecure
        proof of neither, or an alias:      no zone begins here
        anything else:                      bogus
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import dns.dnssec
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
from dns.rdatatype import CNAME, DNAME, DNSKEY, DS, RdataType

from maptr.client.validation import message as reading
from maptr.client.validation.anchors import SHA1, Anchors, is_usable
from maptr.client.validation.nsec import INSECURE, SECURE
from maptr.client.validation.signed import Bogus, Budget, Keys, Rdata, Spent, key_tag, may_sign, named, verify
from maptr.discovery import Link, Outcome

T = TypeVar("T")


class Need(NamedTuple):
    """A question that has to be asked, with DO and CD set."""

    name: dns.name.Name
    rdtype: RdataType


class Heard(NamedTuple):
    """What came of it: a message, or why there is none."""

    outcome: Outcome
    message: dns.message.Message | None = None
    note: str = ""
    server: str = ""
    elapsed: float | None = None

    @property
    def said(self) -> dns.message.Message:
        """The message, for whoever has seen that there is one."""
        assert self.message is not None  # noqa: S101
        return self.message


Asking = Generator[Need, Heard, T]


MAX_NEEDS = 48  # questions about keys for one question; a name of 34 labels, as in ip6.arpa, needs one for each
MAX_KEPT = 10_000  # names whose keys, or lack of them, are kept
MAX_KEPT_SECONDS = 86_400  # for which anything is kept, whatever its TTL (RFC 8767 4 says a week for answers)
BAD_TIMES = 2  # in a row: one forged reply is not enough to make a zone bad
BAD_SECONDS = 15.0  # for which what is bogus is not asked for again (RFC 4035 4.7; Unbound has 60)
MAX_BAD = 1_000  # names for which that is kept
MAX_DIGESTS = 256  # DS records compared with keys, for one zone
DIGEST_ROUNDS = 50  # that one digest of a key counts for among the hashes of a question


class Unknown(Exception):
    """The chain cannot be followed, because a question about it was not answered."""

    def __init__(self, need: Need, heard: Heard) -> None:
        note = f"{need.name} {dns.rdatatype.to_text(need.rdtype)}: {heard.outcome.value}"
        super().__init__(note + (f" ({heard.note})" if heard.note else ""))
        self.outcome: Outcome = Outcome.SERVFAIL if heard.outcome.said else heard.outcome


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone: its keys, None where it is not signed as far as anyone can show."""

    name: dns.name.Name
    keys: Keys | None


class Kept(NamedTuple):
    """What begins at a name: a zone, or None for no zone. ``leaf``: there are no names below it."""

    zone: Zone | None
    until: float
    leaf: bool = False


class Bad(NamedTuple):
    """What begins at a name was bogus so many times in a row, last for this reason."""

    times: int
    until: float
    why: str


class Trust:
    """Trust anchors, and what was found from them. Many threads may share one. ``clock`` is Unix time."""

    def __init__(self, anchors: Anchors, clock: Callable[[], float]) -> None:
        self.anchors = anchors
        self.clock = clock
        self._kept: dict[dns.name.Name, Kept] = {}
        self._bad: dict[dns.name.Name, Bad] = {}

    def anchor_of(self, name: dns.name.Name) -> dns.name.Name | None:
        """The closest trust anchor at or above a name."""
        found = [anchor for anchor in self.anchors if name.is_subdomain(anchor)]
        return max(found, key=len, default=None)

    def recall(self, name: dns.name.Name) -> Kept | None:
        kept = self._kept.get(name)
        return kept if kept is not None and self._holds(kept.until, MAX_KEPT_SECONDS) else None

    def keep(self, name: dns.name.Name, kept: Kept) -> None:
        if len(self._kept) >= MAX_KEPT:
            self._kept = {}  # all at once: no lock is needed, and what is in use is back at once
        self._kept[name] = kept
        self._bad.pop(name, None)

    def is_bad(self, name: dns.name.Name) -> str | None:
        """Why what begins at a name is bogus, where it was so just now and more than once (RFC 4035 4.7)."""
        bad = self._bad.get(name)
        return bad.why if bad is not None and bad.times >= BAD_TIMES and self._holds(bad.until, BAD_SECONDS) else None

    def keep_bad(self, name: dns.name.Name, why: str) -> None:
        before = self._bad.get(name)
        times = before.times if before is not None and self._holds(before.until, BAD_SECONDS) else 0
        if len(self._bad) >= MAX_BAD:
            self._bad = {}
        self._bad[name] = Bad(times + 1, self.clock() + BAD_SECONDS, why)

    def _holds(self, until: float, longest: float) -> bool:
        """Whether a time has not come, and is no further away than any is: the clock was wrong, and was put back."""
        return 0 < until - self.clock() < longest + 1  # a second for threads, and for rounding


class Chain:
    """The chains that one question needs, within its budget; ``links`` tells what was asked and what came of it."""

    def __init__(self, trust: Trust, budget: Budget) -> None:
        self.links: list[Link] = []
        self._trust = trust
        self._budget = budget
        self._needs = 0

    def down(self, anchor: dns.name.Name, target: dns.name.Name) -> Asking[Zone]:
        """The closest zone at or above the target, from the anchor's zone down, or the first that is not signed.

        Raises Bogus, and Unknown where a question got no answer.
        """
        zone = Zone(anchor, None)
        for name in _names(anchor, target):
            kept = self._trust.recall(name)
            if kept is None:
                if (why := self._trust.is_bad(name)) is not None:
                    raise Bogus(f"{why} (found before)")
                kept = yield from (self._begin(anchor) if name == anchor else self._cut(zone, name))
                self._trust.keep(name, kept)
            if kept.zone is not None:
                zone = kept.zone
            if zone.keys is None or kept.leaf:
                break
        return zone

    def _begin(self, anchor: dns.name.Name) -> Asking[Kept]:
        return (yield from self._keys(anchor, self._trust.anchors[anchor], MAX_KEPT_SECONDS, "the trust anchor"))

    def _cut(self, above: Zone, name: dns.name.Name) -> Asking[Kept]:
        """What begins at a name, said by the zone above it."""
        keys = above.keys
        assert keys is not None  # noqa: S101 - down() goes no further below a zone without
        need = Need(name, DS)
        heard = yield from self._ask(need)
        if (known := self._trust.recall(name)) is not None:  # another question may have found it meanwhile
            return known
        message = heard.said
        try:
            found = reading.rrset(message.answer, name, DS)
            if found is None:
                return self._no_ds(message, keys, need, heard)
            signed = verify(found, reading.signatures(message.answer, found), keys, self._now, self._budget)
            if signed.encloser is not None:
                raise Bogus(f"{name} DS: made from a wildcard")
        except Bogus as error:
            raise self._bogus(need, heard, error) from None
        usable = [rdata for rdata in found if is_usable(rdata)]
        if not usable:
            self.link(need, heard, INSECURE, "no DS of an algorithm that is known")
            return self._until(Zone(name, None), signed.ttl)
        self.link(need, heard, SECURE, f"signed by {keys.zone} key {signed.tag}")
        return (yield from self._keys(name, tuple(usable), signed.ttl, f"the DS in {keys.zone}"))

    def _no_ds(self, message: dns.message.Message, keys: Keys, need: Need, heard: Heard) -> Kept:
        """A name without DS: not signed, or no zone at all (RFC 4035 5.2, RFC 5155 8.6)."""
        for alias in (a for a in message.answer if a.rdtype in (CNAME, DNAME)):
            at_name = alias.rdtype == CNAME and alias.name == need.name
            if at_name or (alias.rdtype == DNAME and need.name.is_subdomain(alias.name) and need.name != alias.name):
                found = reading.signatures(message.answer, alias)
                if found is None and alias.rdtype == CNAME:
                    continue  # it may be one that a DNAME makes
                signed = verify(alias, found, keys, self._now, self._budget)
                if signed.encloser is None:
                    self.link(need, heard, SECURE, "an alias, so no zone begins here")
                    return self._until(None, signed.ttl)
        proofs, ttl = reading.proofs(message, keys, self._now, self._budget)
        if message.rcode() != dns.rcode.NXDOMAIN:
            proofs.no_data(need.name, DS)
        elif proofs.name_error(need.name) == SECURE:  # with opt-out it may hide a delegation (RFC 5155 9.2)
            self.link(need, heard, SECURE, "no such name, so no zone begins here")
            return self._until(None, ttl, leaf=True)
        if proofs.cut(need.name):
            self.link(need, heard, INSECURE, f"{keys.zone} proves that this delegation is not signed")
            return self._until(Zone(need.name, None), ttl)
        self.link(need, heard, SECURE, "no zone begins here")
        return self._until(None, ttl)

    def _keys(self, name: dns.name.Name, trusted: tuple[Rdata, ...], ttl: int, by: str) -> Asking[Kept]:
        """A zone's keys, signed by one that a DS or an anchor names."""
        need = Need(name, DNSKEY)
        heard = yield from self._ask(need)
        if (known := self._trust.recall(name)) is not None:
            return known
        message = heard.said
        try:
            found = reading.rrset(message.answer, name, DNSKEY)
            if found is None:
                raise Bogus(f"{name} has no DNSKEY")
            usable = tuple(key for key in found if may_sign(key))
            entry = tuple(key for key in usable if self._is_named(name, key, trusted))
            if not entry:
                raise Bogus(f"{name} DNSKEY: none of its keys is that of {by}")
            signatures = reading.signatures(message.answer, found)
            signed = verify(found, signatures, Keys.of(name, entry), self._now, self._budget)
        except Bogus as error:
            raise self._bogus(need, heard, error) from None
        self.link(need, heard, SECURE, f"keys {named(usable)}, signed by {signed.tag}, which is that of {by}")
        return self._until(Zone(name, Keys.of(name, usable)), min(ttl, signed.ttl))

    def _is_named(self, name: dns.name.Name, key: Rdata, trusted: tuple[Rdata, ...]) -> bool:
        """Whether an anchor or a DS is of this key; SHA-1 counts only where there is nothing better (RFC 4509 3)."""
        tag = key_tag(key)
        best = [t for t in trusted if t.rdtype == DNSKEY or t.digest_type != SHA1]
        digests: dict[int, bytes] = {}  # by type, each made once: a key may have 64 KiB, and DS records be many
        for rdata in (best or trusted)[:MAX_DIGESTS]:
            if rdata.rdtype == DNSKEY:
                if rdata == key:
                    return True
            elif (rdata.key_tag, rdata.algorithm) == (tag, key.algorithm):
                kind = rdata.digest_type
                if kind not in digests:
                    self._budget.hash(DIGEST_ROUNDS)
                    made = dns.dnssec.make_ds(name, key, kind, policy=dns.dnssec.allow_all_policy)
                    digests[kind] = made.digest
                if digests[kind] == rdata.digest:
                    return True
        return False

    # ---- asking and telling

    @property
    def _now(self) -> float:
        return self._trust.clock()

    def _ask(self, need: Need) -> Asking[Heard]:
        """What a question brought that has a message. Raises Bogus past the budget, and Unknown."""
        self._needs += 1
        if self._needs > MAX_NEEDS:
            raise Bogus(f"more than {MAX_NEEDS} questions about keys")
        heard = yield need
        if heard.message is None or heard.message.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
            self.link(need, heard, "indeterminate", heard.note or heard.outcome.value)
            raise Unknown(need, heard)
        return heard

    def link(self, need: Need, heard: Heard, security: str, note: str) -> None:
        """Tell what a question was worth, and why."""
        shown = need.name.to_text(), dns.rdatatype.to_text(need.rdtype)
        self.links.append(Link(*shown, security, note, heard.server, heard.elapsed))

    def _bogus(self, need: Need, heard: Heard, error: Bogus) -> Bogus:
        self.link(need, heard, "bogus", str(error))
        if not isinstance(error, Spent):
            self._trust.keep_bad(need.name, str(error))
        return error

    def _until(self, zone: Zone | None, ttl: int, *, leaf: bool = False) -> Kept:
        return Kept(zone, self._now + min(ttl, MAX_KEPT_SECONDS), leaf)


def _names(top: dns.name.Name, target: dns.name.Name) -> Iterator[dns.name.Name]:
    """From the top down to the target, both included."""
    for labels in range(len(top), len(target) + 1):
        yield target.split(labels)[1]
