"""What is wrong with a zone: what every checker finds, and what only one that knows Maptr can.

Two looks at one text. The first is at the tokens as they are written, because a reader hides what happened to them
(a relative replacement, an unescaped port). The second is at the zone that a server would load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import dns.exception
import dns.name
import dns.rdatatype
import dns.zone

from maptr import integrity, names, url
from maptr.ark import BETANUMERIC
from maptr.ere import RegexpError
from maptr.finding import Finding, Severity
from maptr.masterfile import absolute, logical_lines, soa_owner, type_and_rdata
from maptr.names import Labels
from maptr.naptr import SERVICE, Kind, Naptr, quote, read
from maptr.nfa import Budget, BudgetSpent
from maptr.regexp import Substitution
from maptr.snapshot import view_zone
from maptr.walk import ARK_ARPA

MAX_REPLY = 1232  # octets of a UDP reply that no path fragments (DNS flag day 2020)
MAX_RRSET = 100  # records of one type at one name: BIND's max-records-per-type since 9.18.28
_OVERHEAD = 12 + 4 + 11  # header, type and class of the question, OPT without options
_RECORD = 12  # compressed owner, type, class, TTL, length
_REGEXP_STEPS = 20_000
_SINGLE = ("SOA", "CNAME", "DNAME")  # a second one BIND and NSD refuse, and dnspython takes for the first


def check_zone(text: str, *, origin: str | None = None, filename: str = "") -> list[Finding]:
    """Every finding, by line and then by owner.

    Without ``origin`` the zone is that of its SOA: its owner, below $ORIGIN if relative, and ``ark.arpa.`` where the
    text does not say. Never raises: a text that is no zone is a finding too.
    """
    origin = origin or soa_owner(text)
    findings = list(_written(text, origin))
    try:
        zone = dns.zone.from_text(
            text, origin=origin, relativize=False, filename=filename or "<zone>", check_origin=False
        )
        zone.check_origin()
    except dns.exception.DNSException as error:
        findings.append(_error("not-loaded", "the zone", _reason(error)))
    except KeyError:
        findings.append(_error("not-loaded", "the zone", "has no record at its origin"))
    except ValueError as error:  # dnspython lets a few through for odd octets
        findings.append(_error("not-loaded", "the zone", str(error)))
    else:
        findings += [*_Loaded(zone).findings(), *integrity.check(view_zone(zone))]
    return sorted(set(findings), key=lambda f: (f.line == 0, f.line, f.record, f.code, f.value))


def check_loaded(zone: dns.zone.Zone) -> list[Finding]:
    """What Maptr alone finds in a zone with its origin, SOA and NS; what any server would is for ``integrity``."""
    return sorted(set(_Loaded(zone).findings()), key=lambda f: (f.record, f.code, f.value))


def _reason(error: dns.exception.DNSException) -> str:
    return str(error) or type(error).__name__


def _error(code: str, record: str, reason: str, value: str = "", line: int = 0) -> Finding:
    return Finding(Severity.ERROR, code, record, reason, value, line)


def _warning(code: str, record: str, reason: str, value: str = "", line: int = 0) -> Finding:
    return Finding(Severity.WARNING, code, record, reason, value, line)


# ---- the text as written


def _written(text: str, origin: str) -> Iterator[Finding]:
    base = owner = origin if origin.endswith(".") else f"{origin}."
    alone: set[tuple[str, str]] = set()
    for line, leading, tokens in logical_lines(text):
        if not tokens:
            continue
        if tokens[0].upper() == "$ORIGIN" and len(tokens) > 1:
            base = absolute(tokens[1], base)
            continue
        if tokens[0].startswith("$"):
            continue
        if not leading:
            owner = absolute(tokens[0], base)
            if not _within(owner, origin):
                yield _error("out-of-zone", owner, f"is not below {origin}", line=line)
        kind, fields = type_and_rdata(tokens[0 if leading else 1 :])
        if kind in _SINGLE:
            if (owner.lower(), kind) in alone:
                yield _error("second-of-one", owner, f"has a {kind} already, and may have one only", line=line)
            alone.add((owner.lower(), kind))
        if kind != "NAPTR":
            continue
        if len(fields) != 6:
            yield _error("naptr-fields", owner, f"a NAPTR record has 6 fields, this one {len(fields)}", line=line)
        elif "ark" in fields[3].lower():
            yield from _written_replacement(owner, fields[2].lower(), fields[5], base, line)


def _written_replacement(owner: str, flags: str, replacement: str, base: str, line: int) -> Iterator[Finding]:
    if _unescaped_colon(replacement):
        escaped = replacement.replace(":", "\\058")
        reason = f"Knot refuses the zone for the port as it is written: write {escaped}"
        yield _error("unescaped-port", owner, reason, replacement, line)
    if replacement.endswith(".") or replacement == "@":
        return
    if "." in replacement:
        reason = f"has no final dot: a server reads {absolute(replacement, base)}"
        yield _error("relative-replacement", owner, reason, replacement, line)
    elif flags == "h":
        reason = f"is relative: a server reads {absolute(replacement, base)}"
        yield _warning("relative-replacement", owner, reason, replacement, line)


def _within(name: str, origin: str) -> bool:
    end = "." + origin.strip(".").lower() + "."
    return ("." + name.lower()).endswith(end) or end == ".."


def _unescaped_colon(token: str) -> bool:
    return any(octet == ":" and (at == 0 or token[at - 1] != "\\") for at, octet in enumerate(token))


# ---- the zone as loaded


@dataclass(frozen=True, slots=True)
class _Record:
    owner: Labels
    naptr: Naptr

    @property
    def shown(self) -> str:
        return names.to_text(self.owner)


class _Loaded:
    """One loaded zone under examination."""

    def __init__(self, zone: dns.zone.Zone) -> None:
        self.zone = zone
        self.origin: Labels = zone.origin.labels[:-1] if zone.origin else ()
        self.records = [
            _Record(name.labels[:-1], _naptr(rdata)) for (name, _, rdata) in zone.iterate_rdatas(dns.rdatatype.NAPTR)
        ]
        self.ark = [record for record in self.records if record.naptr.service.lower() == SERVICE]
        self.cuts = {
            names.fold(name.labels[:-1]) for name, _ in zone.iterate_rdatasets(dns.rdatatype.NS) if name != zone.origin
        }

    def findings(self) -> Iterator[Finding]:
        for record in self.records:
            yield from self._regexp(record)
        for record in self.ark:
            yield from self._record(record)
        yield from self._loops()
        yield from self._owners()
        yield from self._sizes()

    def _regexp(self, record: _Record) -> Iterator[Finding]:
        if not record.naptr.regexp:
            return
        shown = quote(record.naptr.regexp)
        try:
            Substitution.parse(record.naptr.regexp)
        except RegexpError as error:
            if error.refused:
                reason = f"BIND refuses this regexp, in files and in transfers of the whole zone: {error}"
                yield _error("regexp-refused", record.shown, reason, shown)
            else:
                yield _warning("regexp-not-understood", record.shown, f"maptr skips this regexp: {error}", shown)

    def _record(self, record: _Record) -> Iterator[Finding]:
        naptr = record.naptr
        rule = read(naptr)
        if rule.kind is Kind.OTHER and not naptr.regexp:
            yield _error("no-rule", record.shown, "; ".join(rule.notes), naptr.to_text())
        if rule.kind is Kind.HOST and naptr.regexp:
            reason = "h takes the replacement: leave the regexp empty, and names to a TXT record"
            yield _warning("h-with-regexp", record.shown, reason, quote(naptr.regexp))
        if rule.kind in (Kind.URL, Kind.REDIRECT) and naptr.regexp and naptr.replacement:
            reason = "regexp and replacement exclude each other (RFC 3403 section 4.1)"
            yield _warning("both-fields", record.shown, reason, naptr.to_text())
        for host, _ in rule.hosts:
            if url.parse_host(host).is_local:
                yield _warning("not-public", record.shown, "clients refuse a host that is not public", host)
        if rule.kind is Kind.URL:
            yield from self._makes(record, rule.substitution)

    def _makes(self, record: _Record, substitution: Substitution | None) -> Iterator[Finding]:
        naan = record.owner[0].decode("ascii", "replace") if record.owner else ""
        try:
            made = substitution.apply(f"ark:{naan}/x1".encode(), Budget(_REGEXP_STEPS)) if substitution else None
        except (BudgetSpent, ValueError) as error:
            yield _warning("costly-regexp", record.shown, f"clients give up on it: {error}")
            return
        if made is not None and (refusal := url.refusal(made.decode("ascii", "backslashreplace"))):
            yield _warning(
                "not-followed", record.shown, f"clients refuse what the rule makes: {refusal}", ascii(made)[1:]
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
                    yield _error("redirect-loop", names.to_text(name), "redirects come back to themselves", loop)
                elif name not in done:
                    done.add(name)
                    trail.append(name)
                    stack += [(following, depth + 1) for following in sorted(onward.get(name, ()))]
        for owner, targets in sorted(onward.items()):
            for target in targets:
                if self._absent(target):
                    shown = names.to_text(target)
                    yield _warning("redirect-nowhere", names.to_text(owner), "the zone has no such name", shown)

    def _absent(self, name: Labels) -> bool:
        if not names.is_below(name, self.origin) or self._cut_above(name):
            return False
        above = [name[at:] for at in range(1, len(name) - len(self.origin) + 1)]
        wildcards = [dns.name.Name((b"*", *part, b"")) for part in above]
        return not any(self.zone.get_node(owner) for owner in (dns.name.Name((*name, b"")), *wildcards))

    def _cut_above(self, name: Labels) -> Labels:
        """The delegation at or above a name, empty where there is none."""
        folded = names.fold(name)
        return next((folded[at:] for at in range(len(folded)) if folded[at:] in self.cuts), ())

    def _owners(self) -> Iterator[Finding]:
        targets = {names.fold(record.naptr.replacement) for record in self.ark}
        # A zone that somebody runs below ark.arpa is about one NAAN, and may name its parts as it likes.
        of_one_naan = len(self.origin) > len(ARK_ARPA) and names.is_below(self.origin, ARK_ARPA)
        for owner in sorted({record.owner for record in self.ark}):
            shown = names.to_text(owner)
            if self._cut_above(owner):
                yield _error("occluded", shown, "stands at or below a delegation: no server answers with it")
            label = owner[0].decode("ascii", "replace") if owner else ""
            alone = len(owner) == len(self.origin) + 1 and not of_one_naan and names.fold(owner) not in targets
            if alone and label != "*" and set(label.lower()) - set(BETANUMERIC):
                reason = "is no NAAN, so nobody asks here: a NAAN is digits and consonants without l"
                yield _warning("not-a-naan", shown, reason, label)

    def _sizes(self) -> Iterator[Finding]:
        sizes: dict[Labels, int] = {}
        counts = Counter(record.owner for record in self.records)
        for record in self.records:
            sizes[record.owner] = sizes.get(record.owner, 0) + _RECORD + len(record.naptr.to_wire())
        for owner, count in sorted(counts.items()):
            if count > MAX_RRSET:
                limit = f"beyond {MAX_RRSET} a BIND server refuses the zone, by max-records-per-type"
                reason = f"{count} NAPTR records: {limit}"
                yield _warning("large-rrset", names.to_text(owner), reason)
        for owner, size in sorted(sizes.items()):
            total = size + _OVERHEAD + names.wire_length(owner)
            if total > MAX_REPLY:
                reason = f"the reply has {total} octets: over {MAX_REPLY}, clients ask again by TCP"
                yield _warning("large-reply", names.to_text(owner), reason)


def _naptr(rdata: object) -> Naptr:
    return Naptr.from_wire(rdata.to_wire())  # type: ignore[attr-defined]
