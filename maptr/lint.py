"""What is wrong with a table: each finding names its record, a code, the value and the reason.

An *error* means that the record cannot be published: it has no usable public http or https host. A
*warning* is published all the same. Only what someone would act on is a finding: a ``where`` without
scheme, a shoulder that is not primordinal, an http target are common, and work.
Judged by text alone; no name is ever looked up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from maptr import url
from maptr.finding import Finding, Severity
from maptr.registry import where as where_
from maptr.table import VARIABLES, Entry, Nma, Table, example_url, template_parts, variables

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
_AUTHORITY = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//([^/?#]*)")
_ARK = re.compile(r"ark:/?([0-9A-Za-z]+)", re.IGNORECASE)
_BARE_VARIABLE = re.compile(r"\$\w+")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\Z")  # RFC 1123 2.1


def lint(table: Table) -> list[Finding]:
    """Everything wrong with a table, in the table's order, the errors of a record before its warnings."""
    found: list[Finding] = []
    for entry in table.values():
        mine = [*_errors(entry), *_nma_warnings(entry), *_shoulder_warnings(entry, table)]
        found += dict.fromkeys(mine)  # two NMAs of a record may share a fault
    return found


def publishable(table: Table) -> tuple[Table, list[Finding]]:
    """What of a table a zone may hold, and the findings of what it may not.

    Records with an error are gone; of the others, the NMAs that no client can use, each of which is a warning.
    """
    left_out = [finding for entry in table.values() for finding in dict.fromkeys(_errors(entry))]
    entries = table.without(finding.record for finding in left_out if finding.severity is Severity.ERROR).values()
    usable = (replace(entry, nmas=tuple(nma for nma in entry.nmas if unusable(nma) is None)) for entry in entries)
    return Table(usable, metadata=table.metadata), left_out


def unusable(nma: Nma) -> tuple[str, str] | None:
    """Why no client can use an NMA, as a code and a reason; None if one can."""
    for name in variables(nma.target):
        if name not in VARIABLES:
            return (
                "unknown-variable",
                f"the target asks for ${{{name}}}, which nothing fills in: {nma.target}",
            )
    if "${" in _authority(nma.target):
        return "bad-target", f"a variable stands in the host: {nma.target}"
    try:
        parsed = url.parse(example_url(nma.target))
    except ValueError as error:
        code = "no-public-host" if str(error) == "no host" else "bad-target"
        return code, f"{error}: {nma.target}"
    host = parsed.host
    if host.is_local:
        return "no-public-host", f"{host.text} is not a public host: {nma.target}"
    if host.address is None and "." not in host.text.strip("."):
        return "no-public-host", f"{host.text} is a single label, not a public host: {nma.target}"
    return None


def _errors(entry: Entry) -> Iterator[Finding]:
    """Errors if no NMA can be used; where another one can, the bad one is a warning."""
    if not entry.nmas:
        yield Finding(Severity.ERROR, "no-nma", entry.key, "the record names no mapping authority")
    faults = [(nma, unusable(nma)) for nma in entry.nmas]
    severity = Severity.ERROR if all(fault for _, fault in faults) else Severity.WARNING
    for nma, fault in faults:
        if fault:
            code, reason = fault
            yield Finding(severity, code, entry.key, reason, nma.target)


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
        host = _authority(text)
        if "$" not in host and host != host.lower():
            return text
    return None


def _authority(text: str) -> str:
    match = _AUTHORITY.match(text)
    return match[1] if match else ""
