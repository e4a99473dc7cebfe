"""What is wrong with a zone: what every checker finds, and what only one that knows Maptr can.

Two looks at one text. The first is at the tokens as they are written, because a reader hides what happened to them
(a relative replacement, an unescaped port). The second is at the zone that a server would load: that is
in ``rulecheck`` and ``integrity``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from maptr.errors import ZoneError
from maptr.protocol.names import fold, parse, to_wire
from maptr.protocol.numbers import NS
from maptr.zone import integrity
from maptr.zone.finding import Finding, Places, Severity
from maptr.zone.masterfile import (
    MAX_GENERATED,
    TOO_MANY_GENERATED,
    absolute,
    generated,
    logical_lines,
    soa_owner,
    type_and_rdata,
)
from maptr.zone.plainzone import Plain
from maptr.zone.reader import read_zone_file, view_of
from maptr.zone.rulecheck import check_rules
from maptr.zone.snapshot import ZoneView

NOT_ASCII = "Knot and PowerDNS refuse the zone for it, and others serve it as octets: write its A-label"
_SINGLE = ("SOA", "CNAME", "DNAME")  # a second one BIND and NSD refuse, and dnspython takes for the first


def check_zone(text: str, *, origin: str | None = None, filename: str = "") -> list[Finding]:
    """Every finding, by file, line and then owner.

    Without ``origin`` the zone is that of its SOA: its owner, below $ORIGIN if relative, and ``ark.arpa.`` where the
    text does not say. A text that is no zone is a finding too. Raises OSError for a file that it includes.
    """
    return examine(text, origin=origin, filename=filename).findings


class Examined(NamedTuple):
    """What ``check_zone`` finds, the zone itself, None where it cannot be loaded, and the files that it includes."""

    findings: list[Finding]
    view: ZoneView | None
    included: list[tuple[Path, bytes]]


def examine(text: str, *, origin: str | None = None, filename: str = "") -> Examined:
    """``check_zone``, and what was read for it. The zone is read as a server reads it, $INCLUDE too."""
    origin = origin or soa_owner(text)
    places = Places()
    loaded: list[Finding] = []
    view = None
    path = Path(filename or "<zone>")
    try:
        view = view_of(read_zone_file(path, text.encode("utf-8", "replace"), fold(parse(origin)), places)[0], path)
    except ZoneError as error:
        file = "" if error.filename == str(path) else error.filename
        loaded.append(replace(Finding.of(error), file=file))
    except ValueError as error:
        loaded.append(_error("not-loaded", "the zone", f"{origin} is no domain name: {error}"))
    else:
        loaded += check_rules(view, places=places)
        loaded += [_placed(finding, places) for finding in integrity.check(view)]
    marked = any(one.code == "byte-order-mark" and not one.file for one in loaded)  # what is read then is another text
    findings = [] if marked else list(_Written(text, origin, places.included).findings())
    told = {(finding.file, finding.line) for finding in findings if finding.severity is Severity.ERROR}
    # What keeps the zone from being loaded is told once, in the words of who knows more of it.
    findings += [one for one in loaded if one.code != "not-loaded" or (one.file, one.line) not in told]
    named = [one if one.file == str(path) else replace(one, file=one.file or filename) for one in set(findings)]
    named.sort(key=lambda f: (f.line == 0, f.file != filename, f.file, f.line, f.record, f.code, f.value))
    return Examined(named, view, places.included)


def is_clean(plain: Plain) -> bool:
    """Whether ``check_zone`` finds no error in the file of a plain zone; where not, it says what."""
    if plain.has_odd_replacements:
        return False
    findings = [*check_rules(plain.view, plain.doubtful), *integrity.check(plain.view)]
    return all(finding.severity is not Severity.ERROR for finding in findings)


def _placed(finding: Finding, places: Places) -> Finding:
    """With file and line: of a server that is named, the NS record's; else the first record's at the owner."""
    owner = fold(parse(finding.record))
    file, line = places.find(owner, NS, to_wire(parse(finding.value))) if finding.value else places.find(owner)
    return replace(finding, file=file, line=line)


def _error(code: str, record: str, reason: str, value: str = "", line: int = 0, file: str = "") -> Finding:
    return Finding(Severity.ERROR, code, record, reason, value, line, file)


def _warning(code: str, record: str, reason: str, value: str = "", line: int = 0, file: str = "") -> Finding:
    return Finding(Severity.WARNING, code, record, reason, value, line, file)


# ---- the text as written


class _Written:
    """The text of a zone under examination, the files that it includes as a reader found them."""

    def __init__(self, text: str, origin: str, included: Iterable[tuple[Path, bytes]]) -> None:
        self._text = text
        self._origin = origin
        self._included = iter(included)
        self._alone: set[tuple[str, str]] = set()
        self._made = 0

    def findings(self) -> Iterator[Finding]:
        base = self._origin if self._origin.endswith(".") else f"{self._origin}."
        yield from self._file(self._text, "", base, base)

    def _file(self, text: str, file: str, base: str, owner: str) -> Iterator[Finding]:
        for line, leading, tokens in logical_lines(text):
            if not tokens:
                continue
            directive = tokens[0].upper()
            if directive == "$ORIGIN" and len(tokens) > 1:
                base = absolute(tokens[1], base)
            elif directive == "$INCLUDE":
                inner = absolute(tokens[2], base) if len(tokens) > 2 else base
                if (found := next(self._included, None)) is not None:
                    yield from self._file(found[1].decode("utf-8", "replace"), str(found[0]), inner, owner)
            elif directive.startswith("$"):
                self._made += generated(tokens[1]) if directive == "$GENERATE" and len(tokens) > 1 else 0
                if self._made > MAX_GENERATED:
                    yield _error("generated", "the file", TOO_MANY_GENERATED, tokens[1], line, file)
                    return
            else:
                if not leading:
                    owner = absolute(tokens[0], base)
                    yield from self._owner(tokens[0], owner, line, file)
                yield from self._record(owner, tokens[0 if leading else 1 :], base, line, file)

    def _owner(self, written: str, owner: str, line: int, file: str) -> Iterator[Finding]:
        if not written.isascii():
            yield _error("not-ascii", owner, NOT_ASCII, line=line, file=file)
        if not _within(owner, self._origin):
            yield _error("out-of-zone", owner, f"is not below {self._origin}", line=line, file=file)

    def _record(self, owner: str, tokens: list[str], base: str, line: int, file: str) -> Iterator[Finding]:
        kind, fields = type_and_rdata(tokens)
        if kind in _SINGLE:
            if (owner.lower(), kind) in self._alone:
                reason = f"has a {kind} already, and may have one only"
                yield _error("second-of-one", owner, reason, line=line, file=file)
            self._alone.add((owner.lower(), kind))
        if kind != "NAPTR":
            return
        if len(fields) != 6:
            reason = f"a NAPTR record has 6 fields, this one {len(fields)}"
            yield _error("naptr-fields", owner, reason, line=line, file=file)
        elif "ark" in fields[3].lower():
            yield from _written_replacement(owner, fields[2].lower(), fields[5], base, line, file)


def _written_replacement(
    owner: str, flags: str, replacement: str, base: str, line: int, file: str
) -> Iterator[Finding]:
    if _unescaped_colon(replacement):
        escaped = replacement.replace(":", "\\058")
        reason = f"Knot refuses the zone for the port as it is written: write {escaped}"
        yield _error("unescaped-port", owner, reason, replacement, line, file)
    if replacement.endswith(".") or replacement == "@":
        return
    if "." in replacement:
        reason = f"has no final dot: a server reads {absolute(replacement, base)}"
        yield _error("relative-replacement", owner, reason, replacement, line, file)
    elif flags == "h":
        reason = f"is relative: a server reads {absolute(replacement, base)}"
        yield _warning("relative-replacement", owner, reason, replacement, line, file)


def _within(name: str, origin: str) -> bool:
    end = "." + origin.strip(".").lower() + "."
    return ("." + name.lower()).endswith(end) or end == ".."


def _unescaped_colon(token: str) -> bool:
    return any(octet == ":" and (at == 0 or token[at - 1] != "\\") for at, octet in enumerate(token))
