"""What a zone says to one question: the algorithm of RFC 1034 4.3.2 with wildcards (4592) and DNAME (6672).

Pure: names and RRsets in, sections of RRsets out. Which records prove an absence is for ``denial.py`` to say,
sizes, transports and octets are ``rendering.py``'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from maptr.protocol.names import MAX_NAME, Labels, fold, is_below, to_wire, wire_length
from maptr.protocol.numbers import AAAA, ANY, CNAME, DNAME, DS, NOERROR, NS, NXDOMAIN, RRSIG, YXDOMAIN, A
from maptr.zone.rrset import Node, RRset, rdata_name
from maptr.zone.snapshot import Snapshot, ZoneView

# CNAMEs and DNAMEs followed for one question. No RFC says; Knot stops at 20, BIND at 16 (later 11).
MAX_CHAIN = 16


@dataclass(slots=True)
class Outcome:
    """Sections as lists of RRsets. ``glue`` must fit or TC is set (RFC 9471); ``additional`` may go.

    ``source`` is the folded name that all replies like this one have in common, whatever name was asked: the
    name itself, a wildcard, a DNAME, a delegation, or the zone for names that do not exist. Rate limits count by it.
    ``dnssec``: the client set DO, so signatures and proofs go along (RFC 4035 3.1).
    """

    rcode: int = NOERROR
    authoritative: bool = True
    dnssec: bool = False
    answer: list[RRset] = field(default_factory=list)
    authority: list[RRset] = field(default_factory=list)
    glue: list[RRset] = field(default_factory=list)
    additional: list[RRset] = field(default_factory=list)
    source: Labels = ()
    base: int = 0  # labels of the zone or delegation that answers

    def prove(self, proof: list[RRset]) -> None:
        """Add what is not there yet: along a chain of aliases proofs may share records."""
        self.authority += [rrset for rrset in proof if not any(rrset is other for other in self.authority)]


def find_zone(snapshot: Snapshot, name: Labels, rdtype: int) -> ZoneView | None:
    """The closest zone to a folded name; for DS of an apex the parent's, where we have it (RFC 4035 3.1.4.1)."""
    zone = snapshot.closest(name)
    if zone is not None and rdtype == DS and name and name == zone.origin:
        return snapshot.closest(name[1:]) or zone
    return zone


def is_broken(snapshot: Snapshot, name: Labels, rdtype: int, zone: ZoneView | None) -> bool:
    """True where a zone that could not be loaded is closer to the name than ``zone``, which ``find_zone`` gave."""
    if rdtype == DS and name in snapshot.broken and zone is not None:
        return False  # the parent's to answer, and the parent is here
    nearest = len(zone.origin) if zone is not None else -1
    return any(name[start:] in snapshot.broken for start in range(len(name) - nearest))


def look_up(zone: ZoneView, name: Labels, rdtype: int, *, minimal_any: bool = True, dnssec: bool = False) -> Outcome:
    """Answer one question from one zone; a chain that leaves the zone ends there, with what it has.

    ``minimal_any``: ANY gives one RRset (RFC 8482 4.1) rather than all. ``dnssec``: with proofs, as DO asks.
    The owner of the first answer is the name as asked, case kept.
    """
    key = fold(name)
    outcome = Outcome(source=key, dnssec=dnssec, base=len(zone.origin))
    seen: set[Labels] = set()
    while key not in seen and len(seen) < MAX_CHAIN:
        seen.add(key)
        target = _step(zone, name, key, rdtype, outcome, minimal_any)
        if target is None or not is_below(target, zone.origin):
            break
        name, key = target, fold(target)
    return outcome


def _step(zone: ZoneView, name: Labels, key: Labels, rdtype: int, outcome: Outcome, minimal_any: bool) -> Labels | None:
    """Answer for one name, which folded is the key, adding to the outcome; the next name where an alias leads on."""
    node: Node | None = None
    encloser = zone.origin
    for start in range(len(key) - len(zone.origin), -1, -1):
        suffix = key[start:]
        node = zone.find(suffix)
        if node is None:
            break
        encloser = suffix
        if suffix in zone.cuts and not (start == 0 and rdtype == DS):
            _refer(zone, suffix, outcome)
            return None
        if start and DNAME in node:
            outcome.source = suffix
            target = _redirect(name, start, node[DNAME], outcome)
            return None if rdtype == CNAME else target
    denial = zone.denial if outcome.dnssec else None
    if node is not None:
        found, target = _take(zone, name, node, rdtype, outcome, minimal_any)
        if denial and not found:
            outcome.prove(denial.no_data(to_wire(key)))
        return target
    wildcard = (b"*", *encloser)
    node = zone.find(wildcard)
    if node is None:
        outcome.rcode, outcome.source = NXDOMAIN, zone.origin
        outcome.authority.append(zone.negative_soa)
        if denial:
            outcome.prove(denial.name_error(to_wire(key), to_wire(encloser)))
        return None
    outcome.source = wildcard
    found, target = _take(zone, name, node, rdtype, outcome, minimal_any)
    if denial:
        prove = denial.wildcard if found else denial.wildcard_no_data
        outcome.prove(prove(to_wire(key), to_wire(encloser)))
    return target


def _take(
    zone: ZoneView, name: Labels, node: Node, rdtype: int, outcome: Outcome, minimal_any: bool
) -> tuple[bool, Labels | None]:
    """Answer from a node, found by its name or by a wildcard: whether it has what is asked, and the alias's target."""
    if rdtype == ANY and node:
        rrsets = [rrset for rrset in node.values() if not (outcome.dnssec and rrset.rdtype == RRSIG)]
        outcome.answer += [rrset.at(name) for rrset in rrsets[: 1 if minimal_any else None]]
    elif rdtype in node:
        outcome.answer.append(node[rdtype].at(name))
        if rdtype == CNAME:
            return True, None
        outcome.additional += _addresses(zone, node[rdtype].hosts, outcome)
    elif CNAME in node:
        outcome.answer.append(node[CNAME].at(name))
        return True, rdata_name(node[CNAME])
    else:
        outcome.authority.append(zone.negative_soa)
        return False, None
    return True, None


def _refer(zone: ZoneView, cut: Labels, outcome: Outcome) -> None:
    """A referral: the child's NS, and the addresses that only we can give (RFC 9471 3.1)."""
    node = zone.nodes[cut]
    ns = node[NS]
    # Authority over the first owner of the answer is what AA speaks of (RFC 1035 4.1.1), so a chain keeps it.
    outcome.authoritative = bool(outcome.answer)
    outcome.source, outcome.base = cut, len(cut)
    outcome.authority.append(ns)
    if outcome.dnssec and DS in node and node[DS].signatures:  # of no use without them (RFC 4035 3.1.4)
        outcome.authority.append(node[DS])
    elif outcome.dnssec and zone.denial:
        outcome.prove(zone.denial.no_data(to_wire(cut)))
    inside = [host for host in ns.hosts if host[-len(cut) :] == cut]
    outcome.glue += _addresses(zone, inside, outcome)
    outcome.additional += _addresses(zone, [host for host in ns.hosts if host not in inside], outcome)


def _redirect(name: Labels, start: int, dname: RRset, outcome: Outcome) -> Labels | None:
    """The DNAME and the CNAME it makes of this name (RFC 6672 3.1); YXDOMAIN where that is too long.

    A DNAME met again is not repeated. One that points below itself would go on for ever, and ends, as in NSD.
    """
    if dname not in outcome.answer:
        outcome.answer.append(dname)
    elif is_below(rdata_name(dname), dname.owner):
        return None
    target = name[:start] + rdata_name(dname)
    if wire_length(target) > MAX_NAME:
        outcome.rcode = YXDOMAIN
        return None
    outcome.answer.append(RRset(name, CNAME, dname.ttl, (to_wire(target),)))
    return target


def _addresses(zone: ZoneView, hosts: Iterable[Labels], outcome: Outcome) -> list[RRset]:
    """Address RRsets of the hosts, each once, without those that the answer has already."""
    present = {(fold(rrset.owner), rrset.rdtype) for rrset in outcome.answer}
    found: dict[tuple[Labels, int], RRset] = {}
    for host in hosts:
        node = _host(zone, host)
        for rdtype in (A, AAAA):
            if rdtype in node and (host, rdtype) not in present:
                found.setdefault((host, rdtype), node[rdtype])
    return list(found.values())


def _host(zone: ZoneView, host: Labels) -> Node:
    """The records of a host that another record names: its own, glue included, or a wildcard's."""
    for start in range(len(host) - len(zone.origin) + 1):
        encloser = host[start:]
        node = zone.find(encloser)
        if node is None:
            continue
        if start == 0:
            return node
        delegated = any(host[above:] in zone.cuts for above in range(start, len(host) - len(zone.origin)))
        wildcard = {} if delegated else zone.find((b"*", *encloser)) or {}
        return {rdtype: wildcard[rdtype].at(host) for rdtype in (A, AAAA) if rdtype in wildcard}
    return {}
