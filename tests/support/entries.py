"""Entries of a table for tests: usable ones, and those that no zone can hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from hypothesis import strategies as st

from maptr.ark import BETANUMERIC
from maptr.naptr.record import Naptr
from maptr.protocol.names import ARK_ARPA
from maptr.registry.table import Entry, NaanPolicy, Nma, Table, Who
from maptr.zone import rules

MAIN = "https://main.nlm.nih.gov/ark:/${content}"
LONG = "https://x7.nlm.nih.gov/" + "x" * 230 + "/${content}"
PRIVATE = "http://10.0.0.1/${content}"
REDIRECTED = "https://x8.nlm.nih.gov/" + "x" * 208 + "/${content}"  # fits only where the NAAN need not be matched


def entry(key: str, *targets: str) -> Entry:
    naan, _, shoulder = key.partition("/")
    return Entry(naan, shoulder, tuple(Nma(target) for target in targets))


def records(entry: Entry, shoulders: Sequence[Entry] = ()) -> list[Naptr]:
    """All NAPTR records of a NAAN in a zone."""
    return [naptr for _, naptr in rules.records_by_name(entry, shoulders, ARK_ARPA)]


def tables(*more: Entry) -> Table:
    """A table of 12345 and more."""
    return Table([entry("12345", MAIN), *more])


def written(path: Path, table: Table) -> str:
    """The path of a registry file with the table."""
    data = [
        {"what": entry.key, "nmas": [{"target": {"url": nma.target, "http_code": nma.status}} for nma in entry.nmas]}
        for entry in table.values()
    ]
    path.write_text(json.dumps({"data": data}))
    return str(path)


# Text with a meaning in a server's configuration, a shell or a spreadsheet.
_IN_URLS = [*";#'*?,", "${pid}", "${suffix}", "$1", "$$", "$maptr_naan", "%1", "%2F", "()", "[R=301]"]
_ANYWHERE = [
    *['"', "\\", "{", "}", "${maptr_tail}", "{env.HOME}", "%{ENV:PATH}", "`", "<script>"],
    *("\n", "\r\n", "\0", " ", "\t", "\u2028", "é"),
    *('"; return 200; #', '"\n}\nrespond 200\n#', '"\nRedirect / http://evil.example/\n', "=cmd|' /C calc'!A0"),
]


@st.composite
def hostile_tables(draw: st.DrawFn, *, shoulders: str = "0123456789bcxz=~*+@_$.%-ABZ") -> Table:
    """A table with such text in every field; half of its targets are still valid."""
    anything = st.lists(st.sampled_from(_IN_URLS + _ANYWHERE), max_size=4).map("".join)
    rest = st.one_of(st.lists(st.sampled_from(_IN_URLS), max_size=8).map("".join), anything)
    host = st.sampled_from(["a.example.org", "b.example.org:8443", 'c.example.org"', "10.0.0.1", "d.example.org\\"])
    nma = st.builds(
        Nma,
        st.builds("https://{}/{}".format, host, rest),
        anything,
        st.sampled_from([302, 303, 301, 307]),
        anything,
    )
    entries = st.builds(
        Entry,
        st.text(BETANUMERIC, min_size=1, max_size=63),
        st.text(shoulders, max_size=63),
        st.lists(nma, max_size=2).map(tuple),
        st.builds(Who, anything, anything, anything),
        anything,
        st.builds(NaanPolicy, anything, anything, anything, anything),
        st.dictionaries(st.sampled_from(["purpose", "more"]), anything),
    )
    return Table(draw(st.lists(entries, min_size=1, max_size=12, unique_by=lambda one: one.key)))
