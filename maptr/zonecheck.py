"""What is wrong with a zone: what every checker finds, and what only one that knows Maptr can.

Two looks at one text. The first is at the tokens as they are written, because a reader hides what happened to them
(a relative replacement, an unescaped port). The second is at the zone that a server would load: that is
in ``rulecheck`` and ``integrity``.
"""

from __future__ import annotations

from collections.abc import Iterator

import dns.exception
import dns.zone

from maptr import integrity
from maptr.errors import ZoneError
from maptr.finding import Finding, Severity
from maptr.masterfile import (
    BYTE_ORDER_MARK,
    MARK_REFUSED,
    MAX_GENERATED,
    TOO_MANY_GENERATED,
    absolute,
    generated,
    in_ascii,
    logical_lines,
    soa_owner,
    type_and_rdata,
)
from maptr.plainzone import Plain
from maptr.rulecheck import check_rules
from maptr.snapshot import ZoneView, view_zone

NOT_ASCII = "Knot and PowerDNS refuse the zone for it, and others serve it as octets: write its A-label"
_GENERATED = "generated"
_SINGLE = ("SOA", "CNAME", "DNAME")  # a second one BIND and NSD refuse, and dnspython takes for the first


def check_zone(text: str, *, origin: str | None = None, filename: str = "") -> list[Finding]:
    """Every finding, by line and then by owner.

    Without ``origin`` the zone is that of its SOA: its owner, below $ORIGIN if relative, and ``ark.arpa.`` where the
    text does not say. Never raises: a text that is no zone is a finding too.
    """
    return examine(text, origin=origin, filename=filename)[0]


def examine(text: str, *, origin: str | None = None, filename: str = "") -> tuple[list[Finding], ZoneView | None]:
    """What ``check_zone`` finds, and the zone itself, None where it cannot be loaded."""
    if text.startswith(BYTE_ORDER_MARK):
        return [_error("byte-order-mark", "the file", MARK_REFUSED, line=1)], None
    origin = origin or soa_owner(text)
    findings = list(_written(text, origin))
    view = None
    if any(finding.code == _GENERATED for finding in findings):
        return findings, None
    try:
        ascii_text = in_ascii(text.encode("utf-8", "replace")).decode()
        zone = dns.zone.from_text(
            ascii_text, origin=origin, relativize=False, filename=filename or "<zone>", check_origin=False
        )
        zone.check_origin()
        view = view_zone(zone)
    except ZoneError as error:
        findings.append(_error("not-loaded", "the zone", error.reason))
    except dns.exception.DNSException as error:
        findings.append(_error("not-loaded", "the zone", _reason(error)))
    except KeyError:
        findings.append(_error("not-loaded", "the zone", "has no record at its origin"))
    except ValueError as error:  # dnspython lets a few through for odd octets
        findings.append(_error("not-loaded", "the zone", str(error)))
    else:
        findings += [*check_rules(view), *integrity.check(view)]
    return sorted(set(findings), key=lambda f: (f.line == 0, f.line, f.record, f.code, f.value)), view


def is_clean(plain: Plain) -> bool:
    """Whether ``check_zone`` finds no error in the file of a plain zone; where not, it says what."""
    if plain.has_odd_replacements:
        return False
    findings = [*check_rules(plain.view, plain.doubtful), *integrity.check(plain.view)]
    return all(finding.severity is not Severity.ERROR for finding in findings)


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
    made = 0
    for line, leading, tokens in logical_lines(text):
        if not tokens:
            continue
        if tokens[0].upper() == "$ORIGIN" and len(tokens) > 1:
            base = absolute(tokens[1], base)
            continue
        if tokens[0].startswith("$"):
            made += generated(tokens[1]) if tokens[0].upper() == "$GENERATE" and len(tokens) > 1 else 0
            if made > MAX_GENERATED:
                yield _error(_GENERATED, "the file", TOO_MANY_GENERATED, tokens[1], line)
                return
            continue
        if not leading:
            owner = absolute(tokens[0], base)
            if not tokens[0].isascii():
                yield _error("not-ascii", owner, NOT_ASCII, line=line)
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
