"""Checks of a table's records.

An *error* means that the record cannot be published: it has no usable public http or https host, or needs a rule longer
than DNS allows. If another record's rules then match its ARKs, that is a second error. A *warning* does not stop
publication. Only problems on which an operator would act are reported: a ``where`` without a scheme, a shoulder that is
not primordinal and an http target are common, and work. Names are not looked up.

A new check is a ``warning`` in ``_nma_warnings`` or ``_shoulder_warnings``, or a reason in ``_fault``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain

from maptr import url
from maptr.errors import TableError, printable
from maptr.protocol.names import ARK_ARPA, Labels
from maptr.registry import target
from maptr.registry.table import Entry, Nma, Table, parse_key
from maptr.zone.finding import Finding, Severity, error, warning
from maptr.zone.rules import unwritable

BAD_RECORD = "bad-record"  # the record cannot be read
OTHER_ANSWER = "other-answer"  # DNS answers with another record
MAX_NAMED = 5  # records that one line names

CENTRAL_RESOLVERS = ("n2t.net", "www.n2t.net", "arks.org", "www.arks.org")
"""Hosts that resolve ARKs by this registry: a target there is a redirect loop."""

PLACEHOLDERS = ("example.com", "example.net", "example.org", "example")  # RFC 2606; others are in url.SPECIAL_USE

_EXEMPLE = re.compile(r"(?:\A|\.)exemple\.[a-z]{2,}\Z")  # not reserved, but used as an example in French and Catalan
_ARK = re.compile(r"ark:/?([0-9A-Za-z]+)", re.IGNORECASE)
_BARE_VARIABLE = re.compile(r"\$\w+")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\Z")  # RFC 1123 2.1


class LeftOut(tuple[Finding, ...]):
    """The findings for the parts of a table that a zone lacks.

    It has errors for records, and warnings for unusable NMAs of records that have a usable one.
    """

    __slots__ = ()

    @property
    def records(self) -> tuple[str, ...]:
        """The keys of the records that the zone lacks."""
        return tuple(dict.fromkeys(finding.record for finding in self if finding.severity is Severity.ERROR))

    @property
    def answered_by_others(self) -> tuple[str, ...]:
        """The keys of the records whose ARKs get the URLs of another record in DNS."""
        return tuple(finding.record for finding in self if finding.code == OTHER_ANSWER)

    def __str__(self) -> str:
        """Return one line with the number of records, and the first of them with their codes."""
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
    """Check a table. The findings are in its order, with the errors of a record before its warnings.

    For records that could not be read (``unread``), only the effect of their absence on other answers is reported.
    """
    left_out = _left_out(table, ARK_ARPA, unread)
    found: list[Finding] = []
    for entry in table.values():
        mine = [*left_out.pop(entry.key, ()), *_nma_warnings(entry), *_shoulder_warnings(entry, table)]
        found += [finding for finding in mine if finding.code != BAD_RECORD]
    return found + [finding for mine in left_out.values() for finding in mine if finding.code != BAD_RECORD]


def publishable(table: Table, *, origin: Labels = ARK_ARPA, unread: Iterable[TableError] = ()) -> tuple[Table, LeftOut]:
    """Return the part of a table that the zone ``origin`` can hold, and the findings for the rest.

    Records with an error are left out, and NMAs that no client can use or whose rule is too long. ``unread`` are the
    records that could not be read.
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


def without_room(table: Table, shoulders: Collection[Entry]) -> Iterator[Finding]:
    """Yield the errors for shoulders that a zone lacks because their NAAN has too many."""
    gone = {entry.key for entry in shoulders}
    for entry in shoulders:
        reason = f"NAAN {entry.naan} has more shoulders than fit into responses, so the zone lacks this one"
        yield error("too-many-shoulders", entry.key, reason)
        if (other := _answers_instead(table, gone, entry.key)) is not None:
            reason = f"the zone lacks the record, so DNS gives its ARKs the URLs of {other}"
            yield error(OTHER_ANSWER, entry.key, reason, other)


def unpublishable(entry: Entry, origin: Labels = ARK_ARPA) -> list[Finding]:
    """Return the reasons why the zone ``origin`` cannot hold a record; empty if it can."""
    return [finding for finding in _errors(entry, origin) if finding.severity is Severity.ERROR]


def _left_out(table: Table, origin: Labels, unread: Iterable[TableError]) -> dict[str, list[Finding]]:
    """Return the errors of each record and the warnings for its NMAs, by key. Unread records come first."""
    found: dict[str, list[Finding]] = {}
    for failed in unread:
        record = failed.record or "-"
        found.setdefault(record, []).append(error(BAD_RECORD, record, failed.reason, line=failed.line))
    gone: set[str] = set()
    for entry in table.values():
        if mine := list(_errors(entry, origin)):
            found.setdefault(entry.key, []).extend(mine)
            gone |= {finding.record for finding in mine if finding.severity is Severity.ERROR}
    for record, mine in found.items():
        if (other := _answers_instead(table, gone, record)) is not None:
            reason = f"the zone lacks the record, so DNS gives its ARKs the URLs of {other}"
            mine.append(error(OTHER_ANSWER, record, reason, other))
    return found


def _answers_instead(table: Table, gone: Collection[str], record: str) -> str | None:
    """Return the key of the record whose rules match the ARKs of a shoulder that the zone lacks, or None."""
    try:
        naan, shoulder = parse_key(record)
    except ValueError:
        return None
    if not shoulder or (f"{naan}/{shoulder}" in table and record not in gone):
        return None
    around = [*table.shoulders(naan), *filter(None, [table.get(naan)])]
    matching = (entry for entry in around if shoulder.startswith(entry.shoulder) and entry.key not in gone)
    return next((entry.key for entry in matching), None)


def _errors(entry: Entry, origin: Labels) -> Iterator[Finding]:
    """Yield an error for each unusable NMA, or a warning if the record has a usable one."""
    if not entry.nmas:
        yield error("no-nma", entry.key, "the record names no mapping authority")
    faults = {nma: _fault(entry, nma, origin) for nma in entry.nmas}
    made = error if all(faults.values()) else warning
    for nma, fault in faults.items():
        if fault:
            yield made(fault[0], entry.key, fault[1], nma.target)


def _fault(entry: Entry, nma: Nma, origin: Labels) -> tuple[str, str] | None:
    """Return a code and a reason if the zone cannot hold an NMA."""
    if fault := target.unusable(nma.target):
        return fault
    reason = unwritable(entry, nma, origin)
    return ("rule-too-long", reason) if reason else None


def _nma_warnings(entry: Entry) -> Iterator[Finding]:
    for nma in entry.nmas:
        if written := _upper_case(nma):
            yield warning("upper-case-host", entry.key, f"the host is in upper case: {written}", written)
        yield from _target_warnings(entry, nma)
        if target.unusable(nma.target):
            continue
        host = url.parse(target.example_url(nma.target)).host
        name = host.text.rstrip(".").lower()
        if host.address is not None:
            reason = f"{host.text} is an address, which changes more often than a name: {nma.target}"
            yield warning("address-host", entry.key, reason, nma.target)
        if any(name == known or name.endswith(f".{known}") for known in PLACEHOLDERS) or _EXEMPLE.search(name):
            reason = f"{name} is a placeholder, not a real host: {nma.target}"
            yield warning("placeholder-host", entry.key, reason, nma.target)
        if name in CENTRAL_RESOLVERS:
            reason = f"the target is the central resolver itself: {nma.target}"
            yield warning("self-target", entry.key, reason, nma.target)
        if fault := _bad_where(nma):
            yield warning("bad-where", entry.key, f"where is not a valid URL ({fault}): {nma.where}", nma.where)


def _target_warnings(entry: Entry, nma: Nma) -> Iterator[Finding]:
    """Yield warnings about a target's path, usable or not."""
    if not target.variables(nma.target):
        reason = f"the target has no variable, so every ARK leads to {nma.target}"
        yield warning("no-variable", entry.key, reason, nma.target)
    for literal, _ in target.template_parts(nma.target):
        for match in _ARK.finditer(literal):
            if match[1].lower() != entry.naan:
                reason = f"the target contains another NAAN, probably a copied example: {match[0]}"
                yield warning("copied-example", entry.key, reason, match[0])
        for match in _BARE_VARIABLE.finditer(literal):
            reason = f"{match[0]} without braces is not a variable, and is sent to the server as it is: {nma.target}"
            yield warning("bare-variable", entry.key, reason, match[0])


def _shoulder_warnings(entry: Entry, table: Table) -> Iterator[Finding]:
    if not entry.shoulder:
        return
    if not _LABEL.match(entry.shoulder):
        reason = f"{entry.shoulder} is not a DNS label, so the shoulder cannot have its own zone"
        yield warning("shoulder-not-a-label", entry.key, reason, entry.shoulder)
    if "-" in entry.shoulder:
        reason = f"no ARK starts with {entry.shoulder}: hyphens are not part of an ARK (draft section 3.2)"
        yield warning("shoulder-with-hyphen", entry.key, reason, entry.shoulder)
    if entry.naan not in table:
        reason = f"there is no record {entry.naan}: other ARKs of this NAAN cannot be resolved"
        yield warning("shoulder-without-naan", entry.key, reason, entry.naan)


def _bad_where(nma: Nma) -> str | None:
    """Return the reason if a ``where`` is not a URL, empty or unknown."""
    if not nma.where or nma.where.startswith(target.UNKNOWN):
        return None
    try:
        url.parse(target.example_url(target.where_to_target(nma.where)))
    except ValueError as fault:
        return str(fault)
    return None


def _upper_case(nma: Nma) -> str | None:
    """Return the ``where`` or target if its host has capitals."""
    for text in (target.split_status(nma.where)[1], nma.target):
        host = target.authority(text)
        if "$" not in host and host != host.lower():
            return text
    return None
