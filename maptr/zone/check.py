"""Checks of a zone: what any zone checker finds, and what only Maptr needs.

``examine`` reads the text, in which ``masterfile.py`` finds what a loaded zone does not show. It then checks the zone
that a server would load: ``check_integrity`` finds what every name server would report, and ``check_rules`` checks each
NAPTR record (``_RuleChecks``). ``read_checked`` reads a file that is to be served.

A new check of NAPTR records is a method of ``_RuleChecks`` that yields ``self._found(...)``, listed in ``findings``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from maptr import url
from maptr.errors import ZoneError
from maptr.files import file_signature, read_whole
from maptr.naptr.automaton import Budget, BudgetSpent
from maptr.naptr.record import HOST_VARIES, SERVICE, Kind, Naptr, quote, read
from maptr.naptr.regexp import RegexpError, Substitution
from maptr.protocol.names import (
    ARK_ARPA,
    Folded,
    Labels,
    fold,
    folded_from_wire,
    from_wire,
    is_below,
    parse,
    read_wire,
    to_text,
    to_wire,
    wire_length,
)
from maptr.protocol.numbers import AAAA, CNAME, DNAME, DS, MX, NAPTR, NS, NSEC3, SOA, SRV, UDP_PAYLOAD, A
from maptr.zone.clean import MAX_RRSET, OVERHEAD, is_naan
from maptr.zone.denial import hash_of
from maptr.zone.finding import NOT_LOADED, Finding, Severity, error, warning
from maptr.zone.masterfile import (
    AS_TEXT,
    Locations,
    Source,
    ZoneFile,
    read_master_file,
    read_zone_file,
    soa_owner,
)
from maptr.zone.rdata import type_text
from maptr.zone.rrset import Node, read_node, types_of
from maptr.zone.snapshot import ZoneView
from maptr.zone.zonemd import check_digest

_OF_HOSTS = frozenset({A, AAAA, MX})
_SERVERS = {NS: error, MX: warning, SRV: warning}  # types that name servers, and the finding for one without an address
_HOST_LABEL = re.compile(rb"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?")
MAX_MESSAGE = 65_535  # bytes (RFC 1035 4.2.2)
MAX_NAME = 255  # bytes (RFC 1035 3.1)
TSIG_SIZE = MAX_NAME + 10 + 13 + 80  # the longest name of a key, hmac-sha512 (RFC 8945 4.2)
MAX_SIGNATURE = 512  # bytes: RSA with 4096 bits (RFC 3110 3)
RRSIG_FIXED = 18  # bytes before the signer's name (RFC 4034 3.1)
_OF_INTEGRITY = frozenset({*_SERVERS, DNAME, DS, NSEC3})  # a name without these types needs no check
_RECORD = 12  # compressed owner, type, class, TTL, length
_REGEXP_STEPS = 20_000
MAX_WARNINGS = 10  # findings of a zone in the log and the status; ``maptr zone check`` shows all
# BIND rejects a zone with these errors. NSD, Knot and PowerDNS serve it; maptr serves it with a warning.
SERVED_WITH_ERROR = ("no-address", "server-alias", "wildcard-delegation", "ds-at-apex", "owner-not-a-hash")


class Examined(NamedTuple):
    """The findings in a zone's text, the zone (None if it cannot be loaded), and the files that it includes."""

    findings: list[Finding]
    view: ZoneView | None
    included: list[Path]


def examine(text: str, *, origin: str | None = None, filename: str = "") -> Examined:
    """Check a zone's text, which is decoded by ``AS_TEXT``. The findings are sorted by file, line and owner.

    Without ``origin``, the zone is named by the owner of its SOA, or ``ark.arpa.`` if it has none. A text that cannot
    be loaded is a finding, and so is an unreadable file that it includes.
    """
    origin = origin or soa_owner(text)
    locations = Locations()
    found: list[Finding] = []
    view = None
    try:
        view = read_master_file(filename, text.encode(*AS_TEXT), fold(parse(origin)), locations)
    except ZoneError as refused:
        found.append(Finding.of(refused))
    except ValueError as reason:
        found.append(error(NOT_LOADED, "the zone", f"{origin} is not a domain name: {reason}"))
    else:
        found += check_rules(view, locations)
        found += [_located(finding, locations) for finding in (*check_integrity(view), *check_hostnames(view))]
    findings = [replace(one, file=one.file or filename) for one in {*locations.findings, *found}]
    findings.sort(key=lambda f: (f.line == 0, f.file != filename, f.file, f.line, f.record, f.code, f.value))
    return Examined(findings, view, locations.included)


def _located(finding: Finding, locations: Locations) -> Finding:
    """Add file and line to a finding: those of its NS record, or of the owner's first record."""
    owner = fold(parse(finding.record))
    file, line = locations.find(owner, NS, to_wire(parse(finding.value))) if finding.value else ("", 0)
    if not line:
        file, line = locations.find(owner)
    return replace(finding, file=file, line=line)


# ---- a file, before it is served


class Checked(NamedTuple):
    """A zone that may be served, its findings, one line each, and the files that it was read from.

    ``sources`` has the zone file first, then each file that it includes, in the order of reading.
    """

    view: ZoneView
    warnings: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()

    def first_warnings(self) -> tuple[str, ...]:
        """Return the findings for the log and the status: the first ones, and how many more there are."""
        more = len(self.warnings) - MAX_WARNINGS
        return self.warnings[:MAX_WARNINGS] + ((f"and {more} more findings",) if more > 0 else ())


def read_checked(path: Path, name: Folded, *, lint: str = "warn", to_sign: bool = False) -> Checked:
    """Read a zone file, verify its ZONEMD, and check the zone as a whole. ``lint`` is the setting of a zone's
    configuration. ``to_sign``: as in ``check_integrity``.

    Raises ZoneError with file and line, also for errors that prevent a zone from being served and for a file that
    changed during reading, and OSError for the file.
    """
    before = file_signature(path)
    view, doubtful, sources = read_zone(read_whole(path), name, path)
    findings = list(check_integrity(view, to_sign=to_sign))
    _refuse(findings, path)
    if lint != "off":
        rules = check_rules(view, names=doubtful)
        if lint == "refuse":
            _refuse(rules, path)
        findings += rules
    if file_signature(path) != before:
        raise ZoneError("changed while it was read: write beside it and rename", filename=str(path))
    return Checked(view, tuple(map(str, findings)), sources)


def read_zone(data: bytes, name: Folded, path: Path) -> ZoneFile:
    """Read the zone in the content of a file, and verify its ZONEMD.

    Raises ZoneError with file and line. Data outside the zone is an error.
    """
    found = read_zone_file(str(path), data, name)
    try:
        check_digest(found.view)
    except ZoneError as error:
        raise ZoneError(error.reason, filename=str(path)) from None
    return found


def _refuse(findings: Sequence[Finding], path: Path) -> None:
    errors = [found for found in findings if found.severity is Severity.ERROR and found.code not in SERVED_WITH_ERROR]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise ZoneError(f"{errors[0]}{more}", filename=str(path))


# ---- the loaded zone, as any name server checks it


def check_integrity(zone: ZoneView, *, to_sign: bool = False) -> Iterator[Finding]:
    """Yield what kzonecheck, nsd-checkzone or named-checkzone also report.

    ``to_sign``: the zone will be signed, so that each RRset needs room for its signatures.
    """
    table = zone.nodes.table
    checked = (key for key in zone.nodes.special if not _OF_INTEGRITY.isdisjoint(types_of(table[key])))
    special = [(name, zone.nodes[name]) for name in map(folded_from_wire, checked)]
    if any(DNAME in node for _, node in special):
        for owner in zone.nodes:
            if above := next((name for name in _above(zone, owner) if DNAME in zone.nodes.get(name, {})), None):
                reason = f"is below the DNAME at {to_text(above)} (RFC 6672 section 2.4)"
                yield error("below-dname", to_text(owner), reason)
    yield from _too_large(zone, to_sign=to_sign)
    for owner, node in special:
        yield from _refused_by_bind(owner, node)
        servers = [(host, made) for rdtype, made in _SERVERS.items() if rdtype in node for host in node[rdtype].hosts]
        for host, made in servers:
            if not is_below(host, zone.origin):
                continue
            cut = _cut_above(zone, host)
            if cut and cut != owner:
                continue  # the address belongs to the zone below that cut
            target = zone.nodes.get(host) or _from_wildcard(zone, host)
            server = to_text(host)
            if CNAME in target:
                reason = f"its server {server} is an alias (RFC 2181 section 10.3)"
                yield made("server-alias", to_text(owner), reason, server)
            elif not {A, AAAA} & target.keys():
                reason = f"its server {server} is in the zone and has no address"
                yield made("no-address", to_text(owner), reason, server)


def check_hostnames(zone: ZoneView) -> Iterator[Finding]:
    """Yield the owners and hosts that are not host names (RFC 1123 2.1): BIND rejects them as a primary.

    Also yields the hosts that no client can find, unless the zone is not public itself.
    """
    is_public = not url.Host(to_text(zone.origin)).is_local
    for name in map(folded_from_wire, zone.nodes.special):
        yield from _targets(name, zone.nodes[name], is_public)
    for key, packed in zone.nodes.table.items():
        if _OF_HOSTS.isdisjoint(types_of(packed)):
            continue
        owner = zone.nodes.owner(key)
        if not _is_hostname(owner[owner[:1] == (b"*",) :]):
            reason = "has an address or MX, and BIND, as a primary, rejects the zone because of it (check-names)"
            yield warning("not-a-hostname", to_text(owner), reason)


def _targets(owner: Labels, node: Node, is_public: bool) -> Iterator[Finding]:
    hosts: list[Labels] = [host for rdtype in (NS, MX, SRV) if rdtype in node for host in node[rdtype].hosts]
    mailbox: Labels = ()
    if SOA in node:
        primary, at = read_wire(node[SOA].rdatas[0], 0)
        hosts.append(primary)
        mailbox = from_wire(node[SOA].rdatas[0], at)[1:]  # its first label may be anything
    for host in dict.fromkeys((*hosts, mailbox)):
        shown = to_text(host)
        if not _is_hostname(host):
            reason = f"names {shown}, and BIND, as a primary, rejects the zone because of it (check-names)"
            yield warning("not-a-hostname", to_text(owner), reason, shown)
        elif is_public and host and host != mailbox and url.Host(shown).is_local:
            reason = f"names {shown}, which is not public: other machines cannot find it"
            yield warning("not-public", to_text(owner), reason, shown)


def _is_hostname(name: Labels) -> bool:
    return all(map(_HOST_LABEL.fullmatch, name))


def _refused_by_bind(owner: Labels, node: Node) -> Iterator[Finding]:
    """Yield what makes BIND reject a zone, in files and in transfers, though other servers load it."""
    if owner[:1] == (b"*",) and NS in node:
        yield error("wildcard-delegation", to_text(owner), "BIND rejects a zone with NS records at a wildcard")
    if DS in node and SOA in node:
        yield error("ds-at-apex", to_text(owner), "BIND rejects a DS at a zone's origin: it belongs to the parent")
    if NSEC3 in node and not hash_of(owner[0]):
        yield error("owner-not-a-hash", to_text(owner), "BIND rejects a zone with an NSEC3 owner that is not a hash")


def _too_large(zone: ZoneView, *, to_sign: bool) -> Iterator[Finding]:
    """Yield the RRsets that no response can hold, with their signatures, OPT and TSIG, over any transport.

    Of signatures to come, only the largest size is known: two by RSA keys, as during a rollover.
    """
    signature = _RECORD + RRSIG_FIXED + wire_length(zone.origin) + MAX_SIGNATURE
    room = MAX_MESSAGE - OVERHEAD - TSIG_SIZE - (2 * signature if to_sign else 0)
    for key, packed in zone.nodes.table.items():
        if len(packed) <= room - MAX_NAME:
            continue
        owner = zone.nodes.owner(key)
        question = MAX_NAME if owner[:1] == (b"*",) else len(key)
        for rdtype, rrset in read_node(owner, packed).items():
            records = len(rrset.records) + (0 if to_sign else len(rrset.signatures))
            if question + records > room:
                size = question + records + MAX_MESSAGE - room
                reason = f"a response with its {type_text(rdtype)} records, signatures, OPT and TSIG has {size} bytes"
                yield error("too-large", to_text(owner), f"{reason}, but at most {MAX_MESSAGE} can be sent")


def _above(zone: ZoneView, name: Folded) -> list[Folded]:
    """Return the names above a name, up to the origin, the longest first."""
    return [Folded(name[start:]) for start in range(1, len(name) - len(zone.origin) + 1)]


def _cut_above(zone: ZoneView, name: Folded) -> Labels:
    """Return the topmost delegation at or above a name; empty if there is none."""
    return next((cut for cut in reversed([name, *_above(zone, name)]) if cut in zone.cuts), ())


def _from_wildcard(zone: ZoneView, name: Folded) -> Node:
    """Return the node that a wildcard gives a name without records (RFC 4592 3.3): glue, for NSD and Knot."""
    if name in zone.nodes:
        return {}
    encloser = next(above for above in _above(zone, name) if above in zone.nodes)
    return zone.nodes.get(Folded((b"*", *encloser)), {})


# ---- the NAPTR records


def check_rules(
    zone: ZoneView, locations: Locations | None = None, *, names: Iterable[bytes] | None = None
) -> list[Finding]:
    """Check the NAPTR records of ``names``, or all if it is None.

    The findings are sorted by owner and have file and line from ``locations``.
    """
    found = set(_RuleChecks(zone, locations or Locations(), names).findings())
    return sorted(found, key=lambda f: (f.record, f.line, f.code, f.value))


class _Rule(NamedTuple):
    owner: Labels
    rdata: bytes
    naptr: Naptr


class _RuleChecks:
    def __init__(self, zone: ZoneView, locations: Locations, names: Iterable[bytes] | None) -> None:
        self.zone = zone
        self.locations = locations
        self.origin = zone.origin
        nodes = zone.nodes if names is None else map(folded_from_wire, names)
        self.rules = [
            _Rule(node[NAPTR].owner, rdata, Naptr.from_wire(rdata))
            for node in map(zone.nodes.__getitem__, nodes)
            if NAPTR in node
            for rdata in node[NAPTR].rdatas
        ]
        self.ark = [rule for rule in self.rules if rule.naptr.service.lower() == SERVICE]

    def findings(self) -> Iterator[Finding]:
        for rule in self.rules:
            yield from self._regexp(rule)
        for rule in self.ark:
            yield from self._fields(rule)
        yield from self._redirects()
        yield from self._owners()
        yield from self._sizes()

    def _found(self, made: Callable[..., Finding], code: str, at: _Rule | Labels, why: str, value: str = "") -> Finding:
        owner, rdata = (at.owner, at.rdata) if isinstance(at, _Rule) else (at, b"")
        file, line = self.locations.find(fold(owner), NAPTR, rdata)
        return made(code, to_text(owner), why, value, line, file)

    def _regexp(self, rule: _Rule) -> Iterator[Finding]:
        if not rule.naptr.regexp:
            return
        shown = quote(rule.naptr.regexp)
        try:
            made = Substitution.parse(rule.naptr.regexp)
        except RegexpError as bad:
            if bad.refused:
                reason = f"BIND refuses this regexp, in files and in transfers of the whole zone: {bad}"
                yield self._found(error, "regexp-refused", rule, reason, shown)
            else:
                yield self._found(warning, "regexp-not-understood", rule, f"maptr skips this regexp: {bad}", shown)
            return
        if rule.naptr.flags.lower() == b"u" and rule.naptr.service.lower() == SERVICE and not made.fixes_host:
            yield self._found(error, "host-varies", rule, f"clients refuse the rule: {HOST_VARIES}", shown)

    def _fields(self, rule: _Rule) -> Iterator[Finding]:
        naptr = rule.naptr
        meaning = read(naptr)
        if meaning.kind is Kind.OTHER and not naptr.regexp:
            yield self._found(error, "no-rule", rule, "; ".join(meaning.notes), naptr.to_text())
        if meaning.kind is Kind.HOST and naptr.regexp:
            reason = "h takes the replacement: leave the regexp empty, and names to a TXT record"
            yield self._found(warning, "h-with-regexp", rule, reason, quote(naptr.regexp))
        if meaning.kind in (Kind.URL, Kind.REDIRECT) and naptr.regexp and naptr.replacement:
            reason = "regexp and replacement exclude each other (RFC 3403 section 4.1)"
            yield self._found(warning, "both-fields", rule, reason, naptr.to_text())
        for host, _ in meaning.hosts:
            if host.is_local:
                yield self._found(warning, "not-public", rule, "clients refuse a host that is not public", host.text)
        if meaning.kind is Kind.URL:
            yield from self._url(rule, meaning.substitution)

    def _url(self, rule: _Rule, substitution: Substitution | None) -> Iterator[Finding]:
        naan = rule.owner[0].decode("ascii", "replace") if rule.owner else ""
        try:
            made = substitution.apply(f"ark:{naan}/x1".encode(), Budget(_REGEXP_STEPS)) if substitution else None
        except (BudgetSpent, ValueError) as spent:
            yield self._found(warning, "costly-regexp", rule, f"clients give up on it: {spent}")
            return
        if made is not None and (refusal := url.refusal(made.decode("ascii", "backslashreplace"))):
            reason = f"clients refuse the URL that the rule makes: {refusal}"
            yield self._found(warning, "not-followed", rule, reason, ascii(made)[1:])

    def _redirects(self) -> Iterator[Finding]:
        """Find each loop of redirects once, and redirects to names that do not exist in the zone."""
        targets: dict[Folded, list[Folded]] = {}
        for rule in self.ark:
            if rule.naptr.flags == b"" and rule.naptr.replacement:
                targets.setdefault(fold(rule.owner), []).append(fold(rule.naptr.replacement))
        done: set[Labels] = set()
        for start in sorted(targets):
            path: list[Labels] = []
            stack = [(start, 0)]
            while stack:
                name, depth = stack.pop()
                del path[depth:]
                if name in path:
                    loop = " -> ".join(to_text(part) for part in [*path[path.index(name) :], name])
                    yield self._found(error, "redirect-loop", name, "the redirects form a loop", loop)
                elif name not in done:
                    done.add(name)
                    path.append(name)
                    stack += [(following, depth + 1) for following in sorted(targets.get(name, ()))]
        for owner, names in sorted(targets.items()):
            for target in names:
                if self._is_absent(target):
                    yield self._found(warning, "redirect-nowhere", owner, "the zone has no such name", to_text(target))

    def _is_absent(self, name: Folded) -> bool:
        if not is_below(name, self.origin) or _cut_above(self.zone, name):
            return False
        wildcards = [Folded((b"*", *above)) for above in _above(self.zone, name)]
        return not any(self.zone.nodes.get(owner) for owner in (name, *wildcards))

    def _owners(self) -> Iterator[Finding]:
        targets = {fold(rule.naptr.replacement) for rule in self.ark}
        # A zone below ark.arpa belongs to one NAAN, whose owner may choose the names in it.
        of_one_naan = len(self.origin) > len(ARK_ARPA) and is_below(self.origin, ARK_ARPA)
        for owner in sorted({rule.owner for rule in self.ark}):
            if _cut_above(self.zone, fold(owner)):
                reason = "is at or below a delegation, so no server will return it"
                yield self._found(error, "occluded", owner, reason)
            label = owner[0].decode("ascii", "replace") if owner else ""
            is_entry = len(owner) == len(self.origin) + 1 and not of_one_naan and fold(owner) not in targets
            if is_entry and label != "*" and not is_naan(owner[0]):
                reason = "is not a NAAN, so no client queries it: a NAAN is digits and consonants without l"
                yield self._found(warning, "not-a-naan", owner, reason, label)

    def _sizes(self) -> Iterator[Finding]:
        sizes: dict[Labels, list[int]] = {}
        for rule in self.rules:
            sizes.setdefault(rule.owner, []).append(_RECORD + len(rule.naptr.to_wire()))
        for owner, of_records in sizes.items():
            if len(of_records) > MAX_RRSET:
                limit = f"BIND rejects a zone with more than {MAX_RRSET} (max-records-per-type)"
                yield self._found(warning, "large-rrset", owner, f"{len(of_records)} NAPTR records: {limit}")
            total = sum(of_records) + OVERHEAD + wire_length(owner)
            if total > UDP_PAYLOAD:
                reason = f"the response has {total} bytes: over {UDP_PAYLOAD}, clients ask again by TCP"
                yield self._found(warning, "large-reply", owner, reason)
