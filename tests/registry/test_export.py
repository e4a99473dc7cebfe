"""The text of exports: redirects for other servers, and records as CSV."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import astuple

import pytest
from hypothesis import given, settings

from maptr.errors import cell, visible
from maptr.registry import export
from maptr.registry.table import Entry, NaanPolicy, Nma, Table, Who
from tests.support.entries import LONG, MAIN, PRIVATE, entry, hostile_tables, tables

_PART = r'[^"\\\s{}]'  # a part of a URL; variables of the server stand between such parts

# All forms of lines in a file. Text from the registry never leaves its quotes.
LINES = {
    "nginx": [
        r"#.*",
        r"",
        r"\}",
        r'geo \$maptr_dollar \{ default "\$"; \}',
        r"map \$request_uri \$maptr_naan \{",
        r'    "~\*\^\(\?>.*" \$maptr_found;',
        r'map \$maptr_target \$maptr_30[23] \{ "~\^30[23] \(\?<maptr_30[23]_url>\.\+\)\$" \$maptr_30[23]_url; \}',
        r"map \$maptr_(naan|name) \$maptr_(target|at_\d+) \{",
        r'    ([0-9a-z]+|"~\*\^[0-9a-z]+\$") \$maptr_at_\d+;',
        rf'    ([0-9a-z]+|"~[^"\\\s{{}}]+"|default) "(30[23] ({_PART}|\$\{{maptr_\w+\}})+)?";',
    ],
    "apache": [
        r"#.*",
        r"",
        r"RewriteEngine On",
        r'RewriteCond "%\{THE_REQUEST\}" ".*" \[NC\]',
        r'RewriteCond "%\{ENV:MAPTR_(NAAN|NAME)\}" "[^"\s{}\\]+"( \[NC\])?',
        r'RewriteRule "\^" "-" \[(S=\d+|L|E=MAPTR_NAAN:%1,E=MAPTR_NAME:%2,E=MAPTR_TAIL:%3)\]',
        rf'RewriteRule "\^" "(?:(?![$%]){_PART}|\\[$%]|%1|%\{{ENV:\w+\}})+\?" \[R=30[23],NE,L,UnsafeAllow3F\]',
    ],
    "caddy": [
        r"#.*",
        r"",
        r" *\}",
        r'@maptr vars_regexp maptr \{http\.request\.orig_uri\} ".*"',
        r"route @maptr \{",
        r"    map \{re\.maptr\.1\}/\{re\.maptr\.2\} \{maptr_record\} \{maptr_suffix\} \{",
        r"    map \{maptr_record\} \{maptr_30[23]\} \{",
        r"    @maptr_30[23] vars_regexp \{maptr_30[23]\} \^http",
        r"    redir @maptr_30[23] \{maptr_30[23]\} 30[23]",
        r'        default "(\{re\.maptr\.1\})?"( "")?',
        r'        "~[^"\\\s{}]+" "[^"\\\s{}]+" "(\$\{1\})?"',
        rf'        "[^"\\\s{{}}]+" "({_PART}|\{{re\.maptr\.\d\}}|\{{maptr_suffix\}})+"',
    ],
}


@pytest.mark.parametrize("form", LINES)
@given(table=hostile_tables())
@settings(max_examples=40)
def test_registry_text_stays_inside_its_quotes(form: str, table: Table) -> None:
    text, _ = export.write(table, form)
    for line in text.split("\n"):
        assert any(re.fullmatch(each, line) for each in LINES[form]), line


@given(table=hostile_tables())
@settings(max_examples=40)
def test_csv_has_every_field(table: Table) -> None:
    text, losses = export.write(table, "csv")
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert tuple(header) == export.COLUMNS
    found: dict[str, Entry] = {}
    for naan, shoulder, target, status, where, acronym, *about in rows:
        nma = (Nma(target, where, int(status), acronym),) if target else ()
        made = Entry(naan, shoulder, nma, Who(*about[:3]), about[3], NaanPolicy(*about[4:]))
        before = found.get(made.key)
        found[made.key] = made if before is None else Entry(naan, shoulder, before.nmas + nma, made.who, made.when)
    for key, one in table.items():
        nmas = [(each.target, each.where, each.acronym) for each in one.nmas]
        written = [tuple(cell(visible(text)) for text in each) for each in nmas]
        assert [(each.target, each.where, each.acronym) for each in found[key].nmas] == written
    for one, read in zip(table.values(), found.values(), strict=True):
        assert [*astuple(read.who), read.when] == [cell(visible(text)) for text in (*astuple(one.who), one.when)]
    assert len(losses) == sum(map(bool, (value for one in table.values() for value in one.extra.values())))


def test_losses_are_listed() -> None:
    table = tables(
        entry("12345/x6", PRIVATE),
        entry("12345/x-7", MAIN),
        entry("12346", MAIN, LONG),
        entry("12347"),
        entry("12348", "https://h.example.org/${other}"),
        entry("12349", "https://h.example.org/" + "x" * 4000),
        entry("12350/x\n}", MAIN),
        entry('12351"', MAIN),
    )
    for form in ("nginx", "apache", "caddy"):
        text, losses = export.write(table, form)
        assert [": ".join(loss) for loss in losses[:5]] == [
            "12345/x-7: the whole record: no ARK starts with this",
            f"12345/x6: the whole record: 10.0.0.1 is not a public host: {PRIVATE}",
            f"12346: the NMA {LONG}",
            "12347: the whole record: no mapping authority",
            "12348: the whole record: the target has the unknown variable ${other}: https://h.example.org/${other}",
        ]
        assert [(loss.record, loss.what) for loss in losses[5:]] == [
            ("12349", "the whole record: a target of over 4000 bytes"),
            ("12350/x\n}", "the whole record: no ARK starts with this"),
            ('12351"', "the whole record: no ARK starts with this"),
        ]
        assert not any(left_out in text for left_out in ("10.0.0.1", "x-7", "12350", "12351"))


@pytest.mark.parametrize("form", [*export.SERVERS, "csv"])
def test_only_an_unedited_file_is_recognised(form: str) -> None:
    text, _ = export.write(tables(entry("12345/x6", MAIN, LONG)), form)
    assert export.is_written(text.encode(), form)
    others = [b"", b"\xff", b"# mine\n", text.encode() + b"# mine\n", text.replace("x6", "x7", 1).encode() * 2]
    if form != "csv":
        others.append(text.replace("main", "evil").encode())
    assert not any(export.is_written(other, form) for other in others)
