"""What only one who knows Maptr finds wrong with a zone as it would be served: its NAPTR records, rule by rule.

The text as it is written is looked at in ``zonecheck``, what any DNS server would refuse in ``integrity``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from maptr import url
from maptr.ark import BETANUMERIC
from maptr.naptr.automaton import Budget, BudgetSpent
from maptr.naptr.record import SERVICE, Kind, Naptr, quote, read
from maptr.naptr.regexp import RegexpError, Substitution
from maptr.protocol import names
from maptr.protocol.names import ARK_ARPA, Labels
from maptr.protocol.numbers import HEADER_SIZE, NAPTR, UDP_PAYLOAD
from maptr.zone.finding import Finding, Places, Severity
from maptr.zone.integrity import cut_above
from maptr.zone.snapshot import ZoneView

MAX_RRSET = 100  # records of one type at one name: BIND's max-records-per-type since 9.18.28
_OVERHEAD = HEADER_SIZE + 4 + 11  # header, type and class of the question, OPT without options
_RECORD = 12  # compressed owner, type, class, TTL, length
_REGEXP_STEPS = 20_000


def check_rules(zone: ZoneView, owners: Iterable[Labels] | None = None, places: Places | None = None) -> list[Finding]:
    """Every finding, by owner, with file and line where ``places`` has them.

    ``owners`` are the folded names to look at, where it is known of all others that nothing can be found there and
    that none of their records leads to a name of the zone.
    """
    found = set(_Rules(zone, owners, places or Places()).findings())
    return sorted(found, key=lambda f: (f.record, f.line, f.code, f.value))


@dataclass(frozen=True, slots=True)
class _Record:
    owner: Labels
    rdata: bytes
    naptr: Naptr


class _Rules:
    """One zone under examination."""

    def __init__(self, zone: ZoneView, owners: Iterable[Labels] | None, places: Places) -> None:
        self.zone = zone
        self.places = places
        self.origin = zone.origin
        nodes = zone.nodes.values() if owners is None else (zone.nodes[owner] for owner in owners)
        self.records = [
            _Record(node[NAPTR].owner, rdata, Naptr.from_wire(rdata))
            for node in nodes
            if NAPTR in node
            for rdata in node[NAPTR].rdatas
        ]
        self.ark = [record for record in self.records if record.naptr.service.lower() == SERVICE]

    def findings(self) -> Iterator[Finding]:
        for record in self.records:
            yield from self._regexp(record)
        for record in self.ark:
            yield from self._record(record)
        yield from self._loops()
        yield from self._owners()
        yield from self._sizes()

    def _error(self, code: str, at: _Record | Labels, reason: str, value: str = "") -> Finding:
        return self._finding(Severity.ERROR, code, at, reason, value)

    def _warning(self, code: str, at: _Record | Labels, reason: str, value: str = "") -> Finding:
        return self._finding(Severity.WARNING, code, at, reason, value)

    def _finding(self, severity: Severity, code: str, at: _Record | Labels, reason: str, value: str) -> Finding:
        owner, rdata = (at.owner, at.rdata) if isinstance(at, _Record) else (at, b"")
        file, line = self.places.find(names.fold(owner), NAPTR, rdata)
        return Finding(severity, code, names.to_text(owner), reason, value, line, file)

    def _regexp(self, record: _Record) -> Iterator[Finding]:
        if not record.naptr.regexp:
            return
        shown = quote(record.naptr.regexp)
        try:
            Substitution.parse(record.naptr.regexp)
        except RegexpError as error:
            if error.refused:
                reason = f"BIND refuses this regexp, in files and in transfers of the whole zone: {error}"
                yield self._error("regexp-refused", record, reason, shown)
            else:
                yield self._warning("regexp-not-understood", record, f"maptr skips this regexp: {error}", shown)

    def _record(self, record: _Record) -> Iterator[Finding]:
        naptr = record.naptr
        rule = read(naptr)
        if rule.kind is Kind.OTHER and not naptr.regexp:
            yield self._error("no-rule", record, "; ".join(rule.notes), naptr.to_text())
        if rule.kind is Kind.HOST and naptr.regexp:
            reason = "h takes the replacement: leave the regexp empty, and names to a TXT record"
            yield self._warning("h-with-regexp", record, reason, quote(naptr.regexp))
        if rule.kind in (Kind.URL, Kind.REDIRECT) and naptr.regexp and naptr.replacement:
            reason = "regexp and replacement exclude each other (RFC 3403 section 4.1)"
            yield self._warning("both-fields", record, reason, naptr.to_text())
        for host, _ in rule.hosts:
            if host.is_local:
                yield self._warning("not-public", record, "clients refuse a host that is not public", host.text)
        if rule.kind is Kind.URL:
            yield from self._makes(record, rule.substitution)

    def _makes(self, record: _Record, substitution: Substitution | None) -> Iterator[Finding]:
        naan = record.owner[0].decode("ascii", "replace") if record.owner else ""
        try:
            made = substitution.apply(f"ark:{naan}/x1".encode(), Budget(_REGEXP_STEPS)) if substitution else None
        except (BudgetSpent, ValueError) as error:
            yield self._warning("costly-regexp", record, f"clients give up on it: {error}")
            return
        if made is not None and (refusal := url.refusal(made.decode("ascii", "backslashreplace"))):
            yield self._warning(
                "not-followed", record, f"clients refuse what the rule makes: {refusal}", ascii(made)[1:]
            )

    def _loops(self) -> Iterator[Finding]:
        """Redirects that come back to themselves, each loop once, and those that lead to nothing in the zone."""
        onward: dict[Labels, list[Labels]] = {}
        for record in self.ark:
            if record.naptr.flags == b"" and record.naptr.replacement:
                onward.setdefault(names.fold(record.owner), []).append(names.fold(record.naptr.replacement))
        done: set[Labels] = set()
        for start in sorted(onward):
            trail: list[Labels] = []
            stack = [(start, 0)]
            while stack:
                name, depth = stack.pop()
                del trail[depth:]
                if name in trail:
                    loop = " -> ".join(names.to_text(part) for part in [*trail[trail.index(name) :], name])
                    yield self._error("redirect-loop", name, "redirects come back to themselves", loop)
                elif name not in done:
                    done.add(name)
                    trail.append(name)
                    stack += [(following, depth + 1) for following in sorted(onward.get(name, ()))]
        for owner, targets in sorted(onward.items()):
            for target in targets:
                if self._absent(target):
                    shown = names.to_text(target)
                    yield self._warning("redirect-nowhere", owner, "the zone has no such name", shown)

    def _absent(self, name: Labels) -> bool:
        if not names.is_below(name, self.origin) or cut_above(self.zone, name):
            return False
        above = [name[at:] for at in range(1, len(name) - len(self.origin) + 1)]
        wildcards = [(b"*", *part) for part in above]
        return not any(self.zone.nodes.get(owner) for owner in (name, *wildcards))

    def _owners(self) -> Iterator[Finding]:
        targets = {names.fold(record.naptr.replacement) for record in self.ark}
        # A zone that somebody runs below ark.arpa is about one NAAN, and may name its parts as it likes.
        of_one_naan = len(self.origin) > len(ARK_ARPA) and names.is_below(self.origin, ARK_ARPA)
        for owner in sorted({record.owner for record in self.ark}):
            if cut_above(self.zone, names.fold(owner)):
                yield self._error("occluded", owner, "stands at or below a delegation: no server answers with it")
            label = owner[0].decode("ascii", "replace") if owner else ""
            alone = len(owner) == len(self.origin) + 1 and not of_one_naan and names.fold(owner) not in targets
            if alone and label != "*" and set(label.lower()) - set(BETANUMERIC):
                reason = "is no NAAN, so nobody asks here: a NAAN is digits and consonants without l"
                yield self._warning("not-a-naan", owner, reason, label)

    def _sizes(self) -> Iterator[Finding]:
        sizes: dict[Labels, int] = {}
        counts = Counter(record.owner for record in self.records)
        for record in self.records:
            sizes[record.owner] = sizes.get(record.owner, 0) + _RECORD + len(record.naptr.to_wire())
        for owner, count in sorted(counts.items()):
            if count > MAX_RRSET:
                limit = f"beyond {MAX_RRSET} a BIND server refuses the zone, by max-records-per-type"
                reason = f"{count} NAPTR records: {limit}"
                yield self._warning("large-rrset", owner, reason)
        for owner, size in sorted(sizes.items()):
            total = size + _OVERHEAD + names.wire_length(owner)
            if total > UDP_PAYLOAD:
                reason = f"the reply has {total} octets: over {UDP_PAYLOAD}, clients ask again by TCP"
                yield self._warning("large-reply", owner, reason)
