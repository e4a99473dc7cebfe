"""Export of a table: its redirects as configuration of nginx, Apache or Caddy, and its records as CSV.

Each configuration matches the raw request target, as the gateway does: the label ``ark:`` or ``ark:/``, any path or
host before it, ``%`` pairs unchanged, longest shoulder first, and the inflection or query string appended to the URL. A
hyphen is allowed anywhere in a shoulder, because hyphens are not part of an ARK, but not in a NAAN. Other requests are
not affected.

Only NAANs, shoulders and targets are written. A NAAN is betanumeric, a shoulder has no quote, brace or white space, and
``target.unusable`` refuses a target with any of them, with a control character, or with a backslash. Characters that
are still special to a server (``$``, ``%``) are escaped here. The first line has a checksum of the others, so that a
file that was edited is not replaced unnoticed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple
from itertools import groupby
from typing import NamedTuple

from maptr import entry_points, registry, url
from maptr.errors import PluginError, TableError, cell, visible
from maptr.registry import json_records, natab
from maptr.registry.natab import Loss
from maptr.registry.table import Entry, Table, normal_key
from maptr.registry.target import DEFAULT_STATUS, template_parts, unusable

SEE_OTHER, TEMPORARY, GONE = 303, 307, 410
MAX_TOKEN = 4000  # bytes of a target with its variables; nginx reads its configuration through a buffer of 4,096
MAX_HASHED = 40  # characters of a NAAN in nginx's hash, whose buckets have 64 bytes by default

COLUMNS = (
    *("naan", "shoulder", "target", "status", "where", "acronym", "name", "name_native", "name_acronym"),
    *("when", "orgtype", "policy", "tenure", "policy_url"),
)

_SEAL = "# Written by maptr table export. SHA-256 of the lines below: {}"

# The request target: NAAN, name and tail. Characters that no ARK or URL has do not match. Only the first label counts,
# and no part is matched twice, so matching takes linear time; in RE2, it always does.
_PCRE = (
    "(?>[^? ]*?(?:/|%2F)ark(?::|%3A))(?:/|%2F)?({}[0-9a-z]++)(?:/|%2F)({}[!$-;=@A-Z_a-z~]++)({}(?:[?][!$-;=?-~]*+)?)"
)
_RE2 = _PCRE.replace("(?>", "(?:").replace("++", "+").replace("*+", "*")


class RedirectRule(NamedTuple):
    """The redirect of one record. ``pieces`` has pairs of a literal text and the slot after it: ``name``, ``suffix`` or
    "". Without pieces, no rule redirects its ARKs, not even a shorter shoulder's or the NAAN's.

    The rule of a gateway's own object has the whole name as ``shoulder``. ``rest`` is the pattern of what may follow,
    and ``takes_tail`` tells whether the inflection or query string is appended to its URL.
    """

    naan: str
    shoulder: str
    status: int = DEFAULT_STATUS
    pieces: tuple[tuple[str, str], ...] = ()
    is_own: bool = False
    rest: str = ".*"
    takes_tail: bool = True

    @property
    def key(self) -> str:
        key = f"{self.naan}/{self.shoulder}" if self.shoulder else self.naan
        return f"={key}" if self.is_own else key

    def url(self, escape: Callable[[str], str], slots: dict[str, str]) -> str:
        """Return the URL in a server's syntax, without the tail. ``slots`` has its syntax of name and suffix."""
        return "".join(escape(text) + slots.get(slot, "") for text, slot in self.pieces)

    def pattern(self, rest: str) -> str:
        """Return a pattern for a name that begins with the shoulder, followed by ``rest``."""
        escaped = (character if character.isalnum() else f"[{character}]" for character in self.shoulder)
        return f"^{''.join(f'-*{character}' for character in escaped)}{rest}$"


Export = Callable[[Table], tuple[str, list[Loss]]]
"""Writes a table as text, and returns a Loss for everything that the text cannot hold. The type of ``maptr.exports``"""


def write(table: Table, form: str, own: Iterable[RedirectRule] = ()) -> tuple[str, list[Loss]]:
    """Write a format of FORMATS or of an installed package, and return a Loss for everything that it cannot hold.

    ``own`` are rules for single ARKs, which precede the table's in a server's configuration. Raises PluginError.
    """
    if form in _WRITERS:
        return _WRITERS[form](table)
    if form not in _SERVERS:
        return _load(form)(table)
    losses: list[Loss] = []
    rules = _rules(table, losses)
    ordered = sorted(own, key=lambda rule: (-len(rule.shoulder), rule.shoulder))
    for naan in dict.fromkeys(rule.naan for rule in ordered):
        rules[naan] = [*(rule for rule in ordered if rule.naan == naan), *rules.get(naan, ())]
    body = "".join(f"{line}\n" for line in _SERVERS[form](dict(sorted(rules.items()))))
    return f"{_SEAL.format(_checksum(body))}\n{body}", losses


def own_rule(key: str, target: str, status: int, *, suffix: bool) -> tuple[RedirectRule, str]:
    """Return the rule of an own object, ``NAAN/NAME``, and what it lacks ("" for nothing)."""
    naan, _, name = key.partition("/")
    base, mark, fragment = url.with_path(target).partition("#")
    pieces = ((base, "suffix"), (f"{mark}{fragment}", "")) if target else ()
    rest = "(?:[/.].*)?" if suffix else ""
    rule = RedirectRule(naan, name, status, pieces, True, rest, not mark and "?" not in base)
    if len(_nginx_value(rule)) > MAX_TOKEN:
        return rule._replace(pieces=()), f"the whole redirect: a target of over {MAX_TOKEN} bytes"
    return rule, "" if rule.takes_tail else "inflections and query strings, which are not added to its URL"


def is_written(content: bytes, form: str) -> bool:
    """Return whether a file is unchanged since ``write`` made it, so that replacing it loses nothing."""
    try:
        text = content.decode()
        if form in _SERVERS:
            seal, _, body = text.partition("\n")
            return seal == _SEAL.format(_checksum(body))
        if form == "csv":
            first, *rows = csv.reader(io.StringIO(text, newline=""))
            keys = all(len(row) == len(COLUMNS) and normal_key("/".join(filter(None, row[:2]))) for row in rows)
            return keys and first == list(COLUMNS) and _csv_text([first, *rows]) == text
        return write(registry.read(text), form)[0] == text
    except (ValueError, csv.Error, TableError):  # not UTF-8, empty, or not of this format
        return False


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _rules(table: Table, losses: list[Loss]) -> dict[str, list[RedirectRule]]:
    """Return the rules of each NAAN in the order in which they match: longest shoulder first, then the NAAN."""
    found: dict[str, list[RedirectRule]] = {}
    for naan in sorted({entry.naan for entry in table.values()}):
        at_naan = table.get(naan)
        for entry in (*table.shoulders(naan), *([at_naan] if at_naan else ())):
            if "-" in entry.shoulder or normal_key(entry.key) != entry.key:
                losses.append(Loss(entry.key, "the whole record: no ARK starts with this"))
                continue
            rule, lost = _rule(entry)
            if lost:
                losses.append(Loss(entry.key, lost))
            if rule.pieces or rule.shoulder:
                found.setdefault(naan, []).append(rule)
    return found


def _rule(entry: Entry) -> tuple[RedirectRule, str]:
    """Return the rule of a record, and the part of the record that the rule lacks ("" if none)."""
    if not entry.nmas:
        return RedirectRule(entry.naan, entry.shoulder), "the whole record: no mapping authority"
    nma, *others = entry.nmas
    if trouble := unusable(nma.target):
        return RedirectRule(entry.naan, entry.shoulder), f"the whole record: {trouble[1]}"
    fixed = {"pid": f"ark:{entry.naan}/", "content": f"{entry.naan}/", "prefix": entry.naan}
    slots = {"pid": "name", "content": "name", "value": "name", "suffix": "suffix" if entry.shoulder else "name"}
    pieces = tuple(
        (text + fixed.get(variable, ""), slots.get(variable, "")) for text, variable in template_parts(nma.target)
    )
    rule = RedirectRule(entry.naan, entry.shoulder, SEE_OTHER if nma.status == SEE_OTHER else DEFAULT_STATUS, pieces)
    if len(_nginx_value(rule)) > MAX_TOKEN:
        return RedirectRule(entry.naan, entry.shoulder), f"the whole record: a target of over {MAX_TOKEN} bytes"
    return rule, "; ".join(f"the NMA {other.target}" for other in others)


def _statuses(rules: dict[str, list[RedirectRule]]) -> list[int]:
    """Return the statuses that a configuration needs."""
    used = {rule.status for group in rules.values() for rule in group}
    return [SEE_OTHER, DEFAULT_STATUS, *sorted(used & {TEMPORARY, GONE})]


# ---- nginx


def _nginx_value(rule: RedirectRule) -> str:
    slots = {"name": "${maptr_name}", "suffix": "${maptr_suffix}"}
    made = rule.url(lambda text: text.replace("$", "${maptr_dollar}"), slots)
    tail = "${maptr_tail}" if rule.takes_tail else ""
    return f'"{rule.status} {made or "-"}{tail}"' if made or rule.status == GONE else '""'


def _nginx(rules: dict[str, list[RedirectRule]]) -> Iterator[str]:
    """Write maps: a hash finds the NAAN, patterns its shoulders. nginx evaluates a map when its variable is used."""
    statuses = _statuses(rules)
    redirects = [status for status in statuses if status != GONE]
    yield from (
        "#",
        "# Redirects of ARKs for nginx. Include this file in the block http, and write in a block server:",
        "#",
        *(f"#     if ($maptr_{status}) {{ return {status} $maptr_{status}; }}" for status in redirects),
        *(["#     if ($maptr_410) { return 410; }"] if GONE in statuses else []),
        "",
        'geo $maptr_dollar { default "$"; }',
        "map $request_uri $maptr_naan {",
        f'    "~*^{_PCRE.format("?<maptr_found>", "?<maptr_name>", "?<maptr_tail>")}$" $maptr_found;',
        "}",
    )
    for status in statuses:
        yield f'map $maptr_target $maptr_{status} {{ "~^{status} (?<maptr_{status}_url>.+)$" $maptr_{status}_url; }}'
    yield "map $maptr_naan $maptr_target {"
    for number, (naan, group) in enumerate(rules.items()):
        name = naan if len(naan) <= MAX_HASHED else f'"~*^{naan}$"'
        yield f"    {name} {f'$maptr_at_{number}' if group[0].shoulder else _nginx_value(group[0])};"
    yield "}"
    for number, group in enumerate(rules.values()):
        if group[0].shoulder:
            yield f"map $maptr_name $maptr_at_{number} {{"
            for rule in group:
                name = f'"~{rule.pattern(f"(?<maptr_suffix>{rule.rest})")}"' if rule.shoulder else "default"
                yield f"    {name} {_nginx_value(rule)};"
            yield "}"


# ---- Apache


def _apache(rules: dict[str, list[RedirectRule]]) -> Iterator[str]:
    """Write rules of mod_rewrite, in one group for the NAANs with the same two first characters.

    Apache does not send the ``?`` at the end of each URL. Without it, Apache would take the query string from the URL,
    and drop a single final ``?``. UnsafeAllow3F allows names with ``%3F``.
    """
    every = [rule for group in rules.values() for rule in group]
    groups = [(start, list(group)) for start, group in groupby(every, lambda rule: rule.naan[:2])]
    yield from (
        "#",
        "# Redirects of ARKs for Apache 2.4.60 or later with mod_rewrite. Include this file in a virtual host:",
        "#",
        "#     <VirtualHost *:80>",
        "#         AllowEncodedSlashes NoDecode",
        "#         Include FILE",
        "#     </VirtualHost>",
        "",
        "RewriteEngine On",
        f'RewriteCond "%{{THE_REQUEST}}" "^\\S+ {_PCRE.format("", "", "")} " [NC]',
        'RewriteRule "^" "-" [E=MAPTR_NAAN:%1,E=MAPTR_NAME:%2,E=MAPTR_TAIL:%3]',
        'RewriteCond "%{ENV:MAPTR_NAAN}" "^$"',
        f'RewriteRule "^" "-" [S={len(every) + len(groups)}]',
    )
    for start, group in groups:
        yield f'RewriteCond "%{{ENV:MAPTR_NAAN}}" "!^{start}" [NC]'
        yield f'RewriteRule "^" "-" [S={len(group)}]'
        for rule in group:
            yield f'RewriteCond "%{{ENV:MAPTR_NAAN}}" "={rule.naan}" [NC]'
            if rule.shoulder:
                yield f'RewriteCond "%{{ENV:MAPTR_NAME}}" "{rule.pattern(f"({rule.rest})")}"'
            slots = {"name": "%{ENV:MAPTR_NAME}", "suffix": "%1"}
            made = rule.url(lambda text: re.sub("[$%]", r"\\\g<0>", text), slots)
            flags = f"R={rule.status},NE,L,UnsafeAllow3F" if made or rule.status == GONE else "L"
            made += "%{ENV:MAPTR_TAIL}?" if made and rule.takes_tail else ""
            yield f'RewriteRule "^" "{made or "-"}" [{flags}]'


# ---- Caddy


def _caddy(rules: dict[str, list[RedirectRule]]) -> Iterator[str]:
    """Write a map from the ARK to its record, with patterns where the NAAN has shoulders or letters, and for each
    status a map from the record to its URL."""
    yield from (
        "#",
        "# Redirects of ARKs for Caddy. Import this file in a site:",
        "#",
        "#     ark.example.org {",
        "#         import FILE",
        "#         respond 404",
        "#     }",
        "",
        f'@maptr vars_regexp maptr {{http.request.orig_uri}} "(?i)^{_RE2.format("", "", "")}$"',
        "route @maptr {",
        "    map {re.maptr.1}/{re.maptr.2} {maptr_record} {maptr_suffix} {",
    )
    for naan, group in rules.items():
        for rule in group:
            if rule.shoulder:
                pattern = rule.pattern(f"({rule.rest})").replace("^", f"^(?i:{naan})/", 1)
                yield f'        "~{pattern}" "{rule.key.replace("$", "$$")}" "${{1}}"'
        if not naan.isdigit():
            yield f'        "~^(?i:{naan})/" "{naan}" ""'
    yield from ('        default "{re.maptr.1}" ""', "    }")
    slots = {"name": "{re.maptr.2}", "suffix": "{maptr_suffix}"}
    for status in _statuses(rules):
        url = f"{{maptr_{status}}}"
        yield f"    map {{maptr_record}} {url} {{"
        for rule in (rule for group in rules.values() for rule in group if rule.status == status):
            tail = "{re.maptr.3}" if rule.takes_tail else ""
            if rule.pieces or status == GONE:
                yield f'        "{rule.key}" "{rule.url(str, slots) + tail if rule.pieces else "gone"}"'
        start, action = ("gone", "respond @maptr_410") if status == GONE else ("http", f"redir @maptr_{status} {url}")
        yield from ('        default ""', "    }", f"    @maptr_{status} vars_regexp {url} ^{start}")
        yield f"    {action} {status}"
    yield "}"


# ---- CSV


def _csv(table: Table) -> tuple[str, list[Loss]]:
    """Write one row for each NMA of a record, and a row with an empty target for a record without one."""
    rows, losses = [list(COLUMNS)], []
    for entry in table.values():
        about = [*astuple(entry.who), entry.when, *astuple(entry.policy)]
        nmas = [[nma.target, str(nma.status), nma.where, nma.acronym] for nma in entry.nmas] or [[""] * 4]
        rows += [[entry.naan, entry.shoulder, *nma, *(value or "" for value in about)] for nma in nmas]
        losses += [
            Loss(entry.key, f"{name}: {value}") for name, value in entry.extra.items() if value not in (None, "")
        ]
    return _csv_text(rows), losses


def _csv_text(rows: list[list[str]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(
        [*row[:2], *(cell(visible(value)) for value in row[2:])] for row in rows
    )
    return text.getvalue()


_SERVERS: dict[str, Callable[[dict[str, list[RedirectRule]]], Iterator[str]]] = {
    "nginx": _nginx,
    "apache": _apache,
    "caddy": _caddy,
}
SERVERS = tuple(_SERVERS)
_WRITERS: dict[str, Export] = {"csv": _csv, "json": lambda table: (json_records.write(table), []), "natab": natab.write}
FORMATS = (*_SERVERS, *_WRITERS)


def _load(form: str) -> Export:
    """Return the export of an installed package."""
    found: Export | None = entry_points.load(entry_points.EXPORTS, form)
    if found is None:
        raise PluginError(f"no installed package has the export {form!r}")
    return found
