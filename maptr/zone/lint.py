"""What is wrong with a table: each finding names its record, a code, the value and the reason.

An *error* means that the record cannot be published: it has no usable public http or https host, or makes a rule
longer than DNS can carry. Where the zone has rules that take its ARKs all the same, that is an error of its own. A
*warning* is published all the same. Only what someone would act on is a finding: a ``where`` without
scheme, a shoulder that is not primordinal, an http target are common, and work.
Judged by text alone; no name is ever looked up.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain

from maptr import url
from maptr.errors import TableError
from maptr.protocol.names import ARK_ARPA, Labels
from maptr.registry import where as where_
from maptr.registry.table import (
    Entry,
    Nma,
    Table,
    authority,
    example_url,
    parse_key,
    template_parts,
    unusable,
    variables,
)
from maptr.text import printable
from maptr.zone.finding import Finding, Severity
from maptr.zone.rules import unwritable

BAD_RECORD, OTHER_ANSWER = "bad-record", "other-answer"  # codes: not read; in DNS another record answers
MAX_NAMED = 5  # records in a line about all that are left out

CENTRAL_RESOLVERS = ("n2t.net", "www.n2t.net", "arks.org", "www.arks.org")
"""Hosts that ask this very registry where to go: a target there sends the reader in a circle."""

PLACEHOLDERS = (
    "example.com",
    "example.net",
    "example.org",
    "example",
    "invalid",
    "test",
)  # RFC 2606, RFC 6761

_EXEMPLE = re.compile(r"(?:\A|\.)exemple\.[a-z]{2,}\Z")  # not reserved; what a French or Catalan form fills in
_ARK = re.compile(r"ark:/?([0-9A-Za-z]+)", re.IGNORECASE)
_BARE_VARIABLE = re.compile(r"\$\w+")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\Z")  # RFC 1123 2.1


class LeftOut(tuple[Finding, ...]):
    """What of a table its zone lacks: errors for records, warnings for NMAs of records that have another one."""

    __slots__ = ()

    @property
    def records(self) -> tuple[str, ...]:
        """The records that the zone lacks."""
        return tuple(dict.fromkeys(finding.record for finding in self if finding.severity is Severity.ERROR))

    @property
    def answered_by_others(self) -> tuple[str, ...]:
        """Those whose ARKs get the URLs of another record in DNS."""
        return tuple(finding.record for finding in self if finding.code == OTHER_ANSWER)

    def __str__(self) -> str:
        """One line: how many records, and which; of many the first."""
        records = self.records
        named = "; ".join(f"{name} {', '.join(self._codes(name))}" for name in records[:MAX_NAMED])
        more = f"; and {len(records) - MAX_NAMED} more" if len(records) > MAX_NAMED else ""
        return printable(f"{len(records)} records left out: {named}{more}" if records else "no record left out")

    def _codes(self, record: str) -> Iterator[str]:
        for finding in self:
            if finding.record == record and finding.severity is Severity.ERROR:
                code = finding.code
                yield f"its ARKs get the answer of {finding.value}" if code == OTHER_ANSWER else code


def lint(table: Table, *, unread: Iterable[TableError] = ()) -> list[Finding]:
    """Everything wrong with a table, in the table's order, the errors of a record before its warnings.

    Of the records that could not be read, ``unread``, only what their absence does to other answers.
    """
    left_out = _left_out(table, ARK_ARPA, unread)
    found: list[Finding] = []
    for entry in table.values():
        mine = [*left_out.pop(entry.key, ()), *_nma_warnings(entry), *_shoulder_warnings(entry, table)]
        found += [finding for finding in mine if finding.code != BAD_RECORD]
    return found + [finding for mine in left_out.values() for finding in mine if finding.code != BAD_RECORD]


def publishable(table: Table, *, origin: Labels = ARK_ARPA, unread: Iterable[TableError] = ()) -> tuple[Table, LeftOut]:
    """What of a table the zone of that name may hold, and the findings of what it may not.

    Records with an error are gone; of the others, the NMAs that no client can use or no rule can say. ``unread`` are
    the records that could not be read.
    """
    left_out = _left_out(table, origin, unread)
    usable: list[Entry] = []
    for entry in table.values():
        if entry.key not in left_out:
            usable.append(entry)
        elif not unpublishable(entry, origin):
            nmas = (nma for nma in entry.nmas if _fault(entry, nma, origin) is None)
            usable.append(replace(entry, nmas=tuple(nmas)))
    return Table(usable, metadata=table.metadata), LeftOut(chain.from_iterable(left_out.values()))


def unpublishable(entry: Entry, origin: Labels = ARK_ARPA) -> list[Finding]:
    """Why the zone of that name cannot hold a record; empty if it can."""
    return [finding for finding in _errors(entry, origin) if finding.severity is Severity.ERROR]


def _left_out(table: Table, origin: Labels, unread: Iterable[TableError]) -> dict[str, list[Finding]]:
    """By record, its errors and those of its NMAs that are warnings; records that could not be read first."""
    found: dict[str, list[Finding]] = {}
    for error in unread:
        record = error.record or "-"
        bad = Finding(Severity.ERROR, BAD_RECORD, record, error.reason, line=error.line)
        found.setdefault(record, []).append(bad)
    gone: set[str] = set()
    for entry in table.values():
        if mine := list(_errors(entry, origin)):
            found.setdefault(entry.key, []).extend(mine)
            gone |= {finding.record for finding in mine if finding.severity is Severity.ERROR}
    for record, mine in found.items():
        if (other := _answers_instead(table, gone, record)) is not None:
            reason = f"the zone lacks the record, so DNS gives its ARKs the URLs of {other}"
            mine.append(Finding(Severity.ERROR, OTHER_ANSWER, record, reason, other))
    return found


def _answers_instead(table: Table, gone: Collection[str], record: str) -> str | None:
    """The record whose rules a zone has for the ARKs of one that it lacks; None where it has any, or lacks nothing."""
    try:
        naan, shoulder = parse_key(record)
    except ValueError:
        return None
    if not shoulder or (f"{naan}/{shoulder}" in table and record not in gone):
        return None
    around = [*table.shoulders(naan), *filter(None, [table.get(naan)])]
    there = (entry for entry in around if shoulder.startswith(entry.shoulder) and entry.key not in gone)
    return next((entry.key for entry in there), None)


def _errors(entry: Entry, origin: Labels) -> Iterator[Finding]:
    """Errors if no NMA can be published; where another one can, the bad one is a warning."""
    if not entry.nmas:
        yield Finding(Severity.ERROR, "no-nma", entry.key, "the record names no mapping authority")
    faults = {nma: _fault(entry, nma, origin) for nma in entry.nmas}
    severity = Severity.ERROR if all(faults.values()) else Severity.WARNING
    for nma, fault in faults.items():
        if fault:
            code, reason = fault
            yield Finding(severity, code, entry.key, reason, nma.target)


def _fault(entry: Entry, nma: Nma, origin: Labels) -> tuple[str, str] | None:
    """Why an NMA cannot be in the zone, as a code and a reason; None if it can."""
    if fault := unusable(nma):
        return fault
    reason = unwritable(entry, nma, origin)
    return ("rule-too-long", reason) if reason else None


def _nma_warnings(entry: Entry) -> Iterator[Finding]:
    for nma in entry.nmas:
        if shouting := _upper_case(nma):
            yield _warning(entry, "upper-case-host", f"the host is in upper case: {shouting}", shouting)
        yield from _target_warnings(entry, nma)
        if unusable(nma):
            continue
        host = url.parse(example_url(nma.target)).host
        name = host.text.rstrip(".").lower()
        if host.address is not None:
            reason = f"{host.text} is an address, which changes hands sooner than a name: {nma.target}"
            yield _warning(entry, "address-host", reason, nma.target)
        if any(name == known or name.endswith(f".{known}") for known in PLACEHOLDERS) or _EXEMPLE.search(name):
            reason = f"{name} is a placeholder, nobody's host: {nma.target}"
            yield _warning(entry, "placeholder-host", reason, nma.target)
        if name in CENTRAL_RESOLVERS:
            reason = f"the target points back at the central resolver: {nma.target}"
            yield _warning(entry, "self-target", reason, nma.target)
        if fault := _bad_where(nma):
            yield _warning(entry, "bad-where", f"where is no URL ({fault}): {nma.where}", nma.where)


def _target_warnings(entry: Entry, nma: Nma) -> Iterator[Finding]:
    """What a target says of the ARK, usable or not."""
    if not variables(nma.target):
        yield _warning(entry, "no-variable", f"every ARK leads to one page, {nma.target}", nma.target)
    for literal, _ in template_parts(nma.target):
        for match in _ARK.finditer(literal):
            if match[1].lower() != entry.naan:
                reason = f"the target names another NAAN, as an example that was copied: {match[0]}"
                yield _warning(entry, "copied-example", reason, match[0])
        for match in _BARE_VARIABLE.finditer(literal):
            reason = f"{match[0]} without braces is no variable, and goes to the server as it stands: {nma.target}"
            yield _warning(entry, "bare-variable", reason, match[0])


def _shoulder_warnings(entry: Entry, table: Table) -> Iterator[Finding]:
    if not entry.shoulder:
        return
    if not _LABEL.match(entry.shoulder):
        reason = f"{entry.shoulder} is no DNS label, so the shoulder cannot have a zone of its own"
        yield _warning(entry, "shoulder-not-a-label", reason, entry.shoulder)
    if "-" in entry.shoulder:
        reason = f"no ARK starts with {entry.shoulder}: a hyphen is no part of an ARK (draft section 3.2)"
        yield _warning(entry, "shoulder-with-hyphen", reason, entry.shoulder)
    if entry.naan not in table:
        reason = f"there is no record {entry.naan}: ARKs outside this shoulder lead nowhere"
        yield _warning(entry, "shoulder-without-naan", reason, entry.naan)


def _warning(entry: Entry, code: str, reason: str, value: str) -> Finding:
    return Finding(Severity.WARNING, code, entry.key, reason, value)


def _bad_where(nma: Nma) -> str | None:
    """Why a ``where`` means no URL while the target is good; None if it means one or is not there."""
    if not nma.where or nma.where.startswith(where_.UNKNOWN):
        return None
    try:
        url.parse(example_url(where_.to_target(nma.where)))
    except ValueError as error:
        return str(error)
    return None


def _upper_case(nma: Nma) -> str | None:
    """The text whose host is not in lower case: ``where`` before the target, which is made from it."""
    for text in (where_.split_status(nma.where)[1], nma.target):
        host = authority(text)
        if "$" not in host and host != host.lower():
            return text
    return None
