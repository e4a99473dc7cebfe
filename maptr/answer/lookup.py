"""The lookup of a question in a zone: the algorithm of RFC 1034 4.3.2 with wildcards (RFC 4592) and DNAME (RFC 6672).

Names and RRsets in, sections of RRsets out. ``maptr.zone.denial`` chooses the records for denial of existence.
Class CHAOS has a separate lookup (RFC 4892).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from maptr.answer.context import Identity
from maptr.protocol.names import MAX_NAME, Folded, Labels, fold, is_below, to_wire, wire_length
from maptr.protocol.numbers import AAAA, ANY, CNAME, DNAME, DS, NOERROR, NS, NXDOMAIN, RRSIG, TXT, YXDOMAIN, A
from maptr.zone.rrset import Node, RRset, pack_record, rdata_name
from maptr.zone.snapshot import Snapshot, ZoneView

# CNAME and DNAME records followed for one question. No RFC sets a limit; Knot stops at 20, BIND at 16 (later 11).
MAX_CHAIN = 16

_VERSION = frozenset({(b"version", b"bind"), (b"version", b"server")})
_HOSTNAME = frozenset({(b"hostname", b"bind"), (b"id", b"server")})


@dataclass(slots=True)
class LookupResult:
    """The sections of a response. If ``glue`` does not fit, TC is set (RFC 9471); ``additional`` may be left out.

    ``source`` is the folded name that the response comes from: the name itself, a wildcard, a DNAME, a delegation, or
    the zone's origin if the name does not exist. The rate limit counts responses by it. ``dnssec``: the client set DO,
    so the response has signatures and denial of existence (RFC 4035 3.1).
    """

    rcode: int = NOERROR
    authoritative: bool = True
    dnssec: bool = False
    answer: list[RRset] = field(default_factory=list)
    authority: list[RRset] = field(default_factory=list)
    glue: list[RRset] = field(default_factory=list)
    additional: list[RRset] = field(default_factory=list)
    source: Labels = ()
    base: int = 0  # number of labels of the zone's origin or the delegation

    def prove(self, proof: list[RRset]) -> None:
        """Add the records of a denial, each once: proofs may share records."""
        for rrset in proof:
            if not any(rrset is other for other in self.authority):
                self.authority.append(rrset)


def find_zone(snapshot: Snapshot, name: Folded, rdtype: int) -> ZoneView | None:
    """Return the closest zone to a folded name; for DS at an apex, the parent zone if served (RFC 4035 3.1.4.1)."""
    zone = snapshot.closest(name)
    if zone is not None and rdtype == DS and name and name == zone.origin:
        return snapshot.closest(Folded(name[1:])) or zone
    return zone


def is_broken(snapshot: Snapshot, name: Folded, rdtype: int, zone: ZoneView | None) -> bool:
    """Return whether a zone that could not be loaded is closer to the name than ``zone``, the closest loaded one."""
    if rdtype == DS and name in snapshot.broken and zone is not None:
        return False  # the parent zone has the answer
    nearest = len(zone.origin) if zone is not None else -1
    return any(Folded(name[start:]) in snapshot.broken for start in range(len(name) - nearest))


def look_up(zone: ZoneView, name: Labels, rdtype: int, *, minimal_any: bool, dnssec: bool) -> LookupResult:
    """Look up one question in one zone. A chain of aliases ends where it leaves the zone.

    ``minimal_any``: ANY returns one RRset (RFC 8482 4.1), otherwise all. ``dnssec``: the client set DO. The first owner
    name in the answer is spelled as in the question.
    """
    key = fold(name)
    lookup = _ZoneLookup(zone, rdtype, minimal_any, LookupResult(source=key, dnssec=dnssec, base=len(zone.origin)))
    seen: set[Folded] = set()
    while key not in seen and len(seen) < MAX_CHAIN:
        seen.add(key)
        target = lookup.step(name, key)
        if target is None or not is_below(target, zone.origin):
            break
        name, key = target, fold(target)
    return lookup.result


@dataclass(slots=True)
class _ZoneLookup:
    zone: ZoneView
    rdtype: int
    minimal_any: bool
    result: LookupResult

    def step(self, name: Labels, key: Folded) -> Labels | None:
        """Add the records for one name; ``key`` is its folded form. Returns the target if the name is an alias."""
        zone, result = self.zone, self.result
        node: Node | None = None
        encloser = zone.origin
        for start in range(len(key) - len(zone.origin), -1, -1):
            suffix = Folded(key[start:])
            node = zone.find(suffix)
            if node is None:
                break
            encloser = suffix
            if suffix in zone.cuts and not (start == 0 and self.rdtype == DS):
                self._refer(suffix)
                return None
            if start and DNAME in node:
                result.source = suffix
                target = self._redirect(name, start, node[DNAME])
                return None if self.rdtype == CNAME else target
        denial = zone.denial if result.dnssec else None
        if node is not None:
            found, target = self._take(name, node)
            if denial and not found:
                result.prove(denial.no_data(to_wire(key)))
            return target
        wildcard = Folded((b"*", *encloser))
        node = zone.find(wildcard)
        if node is None:
            result.rcode, result.source = NXDOMAIN, zone.origin
            result.authority.append(zone.negative_soa)
            if denial:
                result.prove(denial.name_error(to_wire(key), to_wire(encloser)))
            return None
        result.source = wildcard
        found, target = self._take(name, node)
        if denial:
            prove = denial.wildcard if found else denial.wildcard_no_data
            result.prove(prove(to_wire(key), to_wire(encloser)))
        return target

    def _take(self, name: Labels, node: Node) -> tuple[bool, Labels | None]:
        """Add the records of a node. Returns whether it has the query type, and the target if it is an alias."""
        rdtype, result = self.rdtype, self.result
        if rdtype == ANY and node:
            rrsets = [rrset for rrset in node.values() if not (result.dnssec and rrset.rdtype == RRSIG)]
            result.answer += [rrset.at(name) for rrset in rrsets[: 1 if self.minimal_any else None]]
        elif rdtype in node:
            result.answer.append(node[rdtype].at(name))
            if rdtype != CNAME:
                result.additional += self._addresses(node[rdtype].hosts)
        elif CNAME in node:
            result.answer.append(node[CNAME].at(name))
            return True, rdata_name(node[CNAME])
        else:
            result.authority.append(self.zone.negative_soa)
            return False, None
        return True, None

    def _refer(self, cut: Folded) -> None:
        """Add a referral: the NS records of the delegation, and its glue (RFC 9471 3.1)."""
        result, denial, node = self.result, self.zone.denial, self.zone.nodes[cut]
        ns = node[NS]
        # AA refers to the first owner name in the answer (RFC 1035 4.1.1), so it stays set after a chain of aliases.
        result.authoritative = bool(result.answer)
        result.source, result.base = cut, len(cut)
        result.authority.append(ns)
        if result.dnssec and DS in node and node[DS].signatures:  # useless without signatures (RFC 4035 3.1.4)
            result.authority.append(node[DS])
        elif result.dnssec and denial:
            result.prove(denial.no_data(to_wire(cut)))
        hosts = ns.hosts
        inside = [host for host in hosts if host[-len(cut) :] == cut]
        result.glue += self._addresses(inside)
        result.additional += self._addresses([host for host in hosts if host not in inside])

    def _redirect(self, name: Labels, start: int, dname: RRset) -> Labels | None:
        """Add a DNAME and the CNAME made from it (RFC 6672 3.1), or set YXDOMAIN if the target is too long.

        A DNAME is added once. A DNAME that points below itself is followed once, as in NSD.
        """
        result = self.result
        if dname not in result.answer:
            result.answer.append(dname)
        elif is_below(rdata_name(dname), dname.owner):
            return None
        target = name[:start] + rdata_name(dname)
        if wire_length(target) > MAX_NAME:
            result.rcode = YXDOMAIN
            return None
        result.answer.append(RRset(name, CNAME, pack_record(CNAME, dname.ttl, to_wire(target))))
        return target

    def _addresses(self, hosts: Iterable[Folded]) -> list[RRset]:
        """Return the address RRsets of the hosts, each once."""
        nodes = [self._host(host) for host in dict.fromkeys(hosts)]
        return [node[rdtype] for node in nodes for rdtype in (A, AAAA) if rdtype in node]

    def _host(self, host: Folded) -> Node:
        """Return the records of a host, including glue; if the host does not exist, the wildcard's addresses."""
        zone = self.zone
        for start in range(len(host) - len(zone.origin) + 1):
            encloser = Folded(host[start:])
            node = zone.find(encloser)
            if node is None:
                continue
            if start == 0:
                return node
            delegated = any(Folded(host[above:]) in zone.cuts for above in range(start, len(host) - len(zone.origin)))
            wildcard = {} if delegated else zone.find(Folded((b"*", *encloser))) or {}
            return {rdtype: wildcard[rdtype].at(host) for rdtype in (A, AAAA) if rdtype in wildcard}
        return {}


def look_up_chaos(name: Labels, rdtype: int, identity: Identity) -> LookupResult | None:
    """Return the server's identity (RFC 4892); None for other questions, which get REFUSED, as in Knot."""
    key = fold(name)
    text = identity.version if key in _VERSION else identity.hostname if key in _HOSTNAME else ""
    if rdtype != TXT or not text:
        return None
    data = text.encode()
    # There is no zone, so AA is clear, as in NSD and Knot. The TTL is 0, as in BIND, NSD, Knot and PowerDNS.
    record = RRset(name, TXT, pack_record(TXT, 0, bytes((len(data),)) + data))
    return LookupResult(authoritative=False, answer=[record], source=key)
