"""natab: damaged lines, losses in writing, and the natabs printed in the drafts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from maptr import Ark, registry
from maptr.discovery import Outcome
from maptr.errors import TableError
from maptr.registry import natab
from maptr.registry.table import Entry, NaanPolicy, Nma, OnBad, Table, TableBuilder, Who
from maptr.walk import Answer, Walk
from tests.support.answers import load_vectors
from tests.support.entries import records

VECTORS = load_vectors("natab")["vector"]
DRAFTS = load_vectors("drafts")["natab"]
ZONES = Path(__file__).resolve().parents[2] / "zones"

hosts = st.from_regex(r"[a-z][a-z0-9]{0,8}\.example\.org(:[1-9][0-9]{0,3})?", fullmatch=True)
naans = st.text("0123456789bcdfghjkmnpqrstvwxz", min_size=1, max_size=12).map(lambda text: f"1{text}")
nmas = st.builds(
    lambda host, acronym: Nma(
        f"http://{host[:-3]}/ark:/${{content}}" if host.endswith(":80") else f"https://{host}/ark:/${{content}}",
        host,
        acronym=acronym,
    ),
    hosts | hosts.map(lambda host: host.partition(":")[0] + ":80"),
    st.from_regex(r"([A-Za-z]{1,6}( [A-Za-z]{1,6})?)?", fullmatch=True),
)
entries = st.builds(
    lambda naan, listed, name: Entry(naan, nmas=tuple(listed), who=Who(name)),
    naans,
    st.lists(nmas, max_size=3),
    st.text(max_size=20),
)
tables = st.lists(entries, max_size=5, unique_by=lambda entry: entry.key).map(Table)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["title"])
def test_vector(vector: dict[str, Any]) -> None:
    bad: list[TableError] = []
    table = registry.read(vector["text"], on_bad=bad.append)
    assert [nma.where for nma in table["12345"].nmas] == vector["nmas"]
    assert list(table) == ["12345"]
    nmas = table["12345"].nmas
    assert [nma.acronym for nma in nmas] == vector.get("acronyms", [nma.acronym for nma in nmas])
    assert [nma.target for nma in nmas] == vector.get("targets", [nma.target for nma in nmas])
    assert table["12345"].policy.url == vector.get("policy", table["12345"].policy.url)
    assert [error.line for error in bad] == vector["bad"]


@pytest.mark.parametrize(
    ("text", "hosts", "refused"),
    [
        ("12l345: http://x.example\n  a.example A\n12346:\n  b.example B\n", {"12346": ["b.example"]}, (1, "12l345")),
        ("12345:\n  a.example A\n12345:\n  b.example B\n", {"12345": ["a.example"]}, (3, "12345")),
        ("  a.example A\n12345:\n", {"12345": []}, (1, "")),
    ],
    ids=["an invalid NAAN and its NMAs", "a second entry", "an NMA before any entry"],
)
def test_lines_outside_an_entry_are_refused(text: str, hosts: dict[str, list[str]], refused: tuple[int, str]) -> None:
    bad: list[TableError] = []
    table = registry.read(text, on_bad=bad.append)
    assert {naan: [nma.where for nma in entry.nmas] for naan, entry in table.items()} == hosts
    assert [(error.line, error.record) for error in bad] == [refused]


def at(target: str, where: str = "", *, status: int = 302, shoulder: str = "") -> Entry:
    return Entry("12345", shoulder, (Nma(target, where, status),))


@pytest.mark.parametrize(
    ("entry", "losses"),
    [
        (at("https://a.example.org/ark:/${content}", shoulder="x6"), ["the whole record"]),
        (at("http://a.example.org:8080/ark:/${content}"), ["the scheme http"]),
        (at("https://a.example.org:80/ark:/${content}"), ["the NMA https://a.example.org:80/"]),
        (at("https://a.example.org/p/ark:/${content}"), ["the path"]),
        (at("https://a.example.org/?q=${pid}"), ["the template"]),
        (at("https:///ark:/${content}"), ["the NMA https:///ark:/${content}"]),
        (at("https://a.example.org/${id}"), ["the NMA https://a.example.org/${id} (an unknown variable)"]),
        (at("https://a.example.org/ark:/${content}", status=303), ["the status 303"]),
        (at("https://a.example.org/ark:/${content}", "https://b.example.org"), ["where: https://b.example.org"]),
        (Entry("12345", when="2001"), ["when: 2001"]),
        (Entry("12345", who=Who("A", "Ä", "AA")), ["the acronym 'AA'", "native name: Ä"]),
        (Entry("12345", who=Who("#--- end of data ---")), ["the organisation's name"]),
        (Entry("12345", who=Who("two\nlines")), ["the organisation's name"]),
        (Entry("12345", policy=NaanPolicy("NP", "OP", "2001", "see\nme")), ["the policy 'see\\nme'", "orgtype: NP"]),
        (Entry("12345", extra={"purpose": "maps", "none": None}), ["purpose: maps"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_every_loss_is_listed(entry: Entry, losses: list[str]) -> None:
    text, found = registry.write_natab(Table([entry]))
    assert all(loss.record == entry.key for loss in found)
    for loss in losses:
        assert any(one.what.startswith(loss) for one in found), found
    registry.read(text)


@given(tables)
def test_written_natab_is_read_as_the_same_table_except_for_losses(table: Table) -> None:
    text, losses = registry.write_natab(table)
    back = registry.read(text)
    assert list(back) == list(table)
    lost = {loss.record for loss in losses}
    assert [back[key] for key in table if key not in lost] == [table[key] for key in table if key not in lost]
    assert [back[key].nmas for key in table] == [entry.nmas for entry in table.values()]


def test_the_scheme_of_hosts_is_an_option() -> None:
    text = "12345:\n  a.example.org A\n  b.example.org:8080\n  c.example.org:80\n"
    assert [nma.target for nma in registry.read(text, scheme="http")["12345"].nmas] == [
        "http://a.example.org/ark:/${content}",
        "http://b.example.org:8080/ark:/${content}",
        "http://c.example.org/ark:/${content}",
    ]


def test_the_sample_natab_is_written_from_the_sample() -> None:
    table = registry.read((ZONES / "sample.json").read_bytes())
    text, losses = registry.write_natab(table)
    assert text == (ZONES / "sample.natab").read_text("utf-8")
    routing = ("the scheme", "the path", "the template", "the whole record")
    assert {loss.record for loss in losses if loss.what.startswith(routing)} == {
        *("13038", "20775", "b9876"),
        *(key for key, entry in table.items() if entry.shoulder),
    }


# --- the natabs printed in the drafts


@pytest.mark.parametrize("vector", DRAFTS, ids=lambda vector: vector["title"])
def test_natabs_of_the_drafts_are_read_and_written_without_loss(vector: dict[str, Any]) -> None:
    bad: list[TableError] = []
    table = registry.read(vector["text"], on_bad=bad.append)
    assert [error.line for error in bad] == vector["bad"]
    assert table.metadata == vector["metadata"]
    assert list(table) == list(vector["entry"])
    for naan, said in vector["entry"].items():
        entry = table[naan]
        assert (entry.who.name, entry.policy.url) == (said["name"], said["policy"])
        assert [nma.where for nma in entry.nmas] == said["hosts"]
        assert [nma.acronym for nma in entry.nmas] == said["acronyms"]
        assert entry.urls(Ark.parse(f"ark:{naan}/x1")) == said["urls"]
    text, losses = registry.write_natab(table)
    assert losses == []
    assert registry.read(text) == table
    assert registry.read(text).metadata == table.metadata
    assert registry.read(registry.write_json(table)) == table


@pytest.mark.parametrize("vector", DRAFTS, ids=lambda vector: vector["title"])
def test_records_of_the_drafts_natabs_give_the_same_urls(vector: dict[str, Any]) -> None:
    """This includes a client that knows only ``h`` records."""
    table = registry.read(vector["text"])
    for naan, said in vector["entry"].items():
        made = records(table[naan])
        for kept in (made, [rule for rule in made if rule.flags == b"h"]):
            walk = Walk(Ark.parse(f"ark:{naan}/x1"))
            walk.tell(walk.next()[0], Answer(Outcome.ANSWER, tuple(kept), 60))
            urls = [url.replace("/ark:/", "/ark:") for url in walk.result().urls()]
            assert urls == [url.replace("/ark:/", "/ark:") for url in said["urls"]]


# ---- entries that are made later


SAMPLE = (Path(__file__).resolve().parents[2] / "zones" / "sample.natab").read_text("utf-8")

NAANS = ["12345", "1", "b9876", "B9876", "0" * 63, "1" * 64, "1l", "x", "13030", "13031", "1\u00b2"]
HOSTS = [
    *("h.example.org", "a-b.c-1.example", "xn--abc.xn--p1ai", "h_1.example.org", "h.example.org:80", "h.e:65535"),
    *("h.example.org:99999", "h.example.org:0", "h.example.org:", "h.example.org.", "1.2.3.4", "1.2.3", "[::1]:80"),
    *("localhost", "host", "host:80", "-h.example.org", "h-.example.org", "h..example.org", ".h.example", "h.0x1"),
    *("a-b", "a-b.c-d", "h.example-1", "h.1-a", "h.example.org/p", "h.éxample", ".".join(["abcdefghi"] * 30)),
    *(f"{'a' * 63}.example", f"{'a' * 64}.example"),
]
ACRONYMS = [
    *("", " A", "  UC-1&x", "  lower", "  A B", " A_.-", " Ä", " A ", " A\u00a0", " BnF", " # note", " #A", "\u00a0A")
]
POLICIES = [
    *("", " http://p.example/", "  ark:/1/p", " urn:x", " see me", " http://a b", "http://p.example", " HTTP://x"),
    *(' "', " http://", " http://p.example/<b>", " http://p\u00a0x/", " http://é.example/", " urn:urn:", "\thttp://p/"),
]
COMMENTS = [
    *("# Library", "#", "##", "#  ", "# Last change: today", "#Mirrored at:\u2003x", "#-- end of data --", "# x: y"),
    *("end  of\u00a0data", "#\x0bEND OF DATA", "# the end of data is near", "", " ", "\x0c", "\u2028# x", " # in"),
    *("# end", "# To register:", "# Reload from: https://example.org/natab #", "\x85"),
]
LINES = st.one_of(
    st.builds("{}:{}".format, *map(st.sampled_from, (NAANS, POLICIES))),
    st.builds(
        "{}{}{}".format, st.sampled_from(["    ", " ", "\t", "", "\u00a0"]), *map(st.sampled_from, (HOSTS, ACRONYMS))
    ),
    st.builds("    {}{}".format, *map(st.sampled_from, (HOSTS, ACRONYMS))),
    st.sampled_from(COMMENTS),
    st.text(max_size=8),
)
BREAKS = st.sampled_from(["\n", "\n", "\n", "\n", "\r\n", "\r", "\n\n", "\n  "])
PLAIN = st.lists(LINES, max_size=12).map("\n".join)
MIXED = st.lists(st.tuples(LINES, BREAKS).map("".join), max_size=12).map("".join)
CUT = st.tuples(st.integers(0, len(SAMPLE)), st.integers(0, 40), st.sampled_from(["", "\n", " ", "#", ":", "x"])).map(
    lambda cut: SAMPLE[: cut[0]] + cut[2] + SAMPLE[cut[0] + cut[1] :]
)


BEFORE_POLICY = re.compile(r"^([0-9A-Za-z]+:)(?=\s|\Z)", re.MULTILINE)


def read_line_by_line(text: str, on_bad: OnBad | None) -> Table:
    """Read with white space after each NAAN that the pattern of valid lines does not have."""
    return natab.read(BEFORE_POLICY.sub("\\1\u2003", text), TableBuilder("natab", on_bad))


def read(text: str, on_bad: OnBad | None) -> Table:
    return natab.read(text, TableBuilder("natab", on_bad))


def assert_same(text: str) -> None:
    """Assert that both ways give equal tables and errors, and raise the same error without ``on_bad``."""
    errors: tuple[list[TableError], list[TableError]] = ([], [])
    one, other = read_line_by_line(text, errors[0].append), read(text, errors[1].append)
    assert [(repr(each), each.line) for each in other.values()] == [(repr(each), each.line) for each in one.values()]
    assert (list(other), other.metadata) == (list(one), one.metadata)
    assert [(str(error), error.line, error.record) for error in errors[1]] == [
        (str(error), error.line, error.record) for error in errors[0]
    ]
    if errors[0]:
        for way in (read_line_by_line, read):
            with pytest.raises(TableError) as caught:
                way(text, None)
            assert str(caught.value) == str(errors[0][0])


@given(st.one_of(PLAIN, MIXED, CUT, st.text(max_size=40)))
@settings(max_examples=400)
@example(SAMPLE)
@example("1:\n  a.b\n1:\n  c.d\n2l:\n")
@example("# A\n# B\n1:\n h.example\n# C\n2:\n#\n# D\n3:\n\n# E\n4:\n# F\n#\n5:\n")
@example("1:\n h.example\n X\n# C\n2:\n# D\n3:\n")
@example("  1:\n    h.example\n  #--- end of data ---\n  2:\n")
@example("1:\n h.example\n#- end of data\n2:\n h.example\n1:\n")
def test_any_text_is_read_as_line_by_line(text: str) -> None:
    assert_same(text)


@pytest.mark.parametrize(
    "lines",
    [
        *(f"{naan}:\n h.example" for naan in NAANS),
        *(f"54321:{policy}\n h.example" for policy in POLICIES),
        *(f"54321:\n    {host}" for host in HOSTS),
        *(f"54321:\n    h.example{acronym}" for acronym in ACRONYMS),
        *COMMENTS,
        *(f"54321:\n{comment}" for comment in COMMENTS),
        *(f"54321:\n{comment}\n# A" for comment in COMMENTS),
    ],
)
def test_any_line_between_valid_lines_is_read_as_line_by_line(lines: str) -> None:
    assert_same(f"10000:\n    a.example\n{lines}\n10001:\n    b.example\n# Name\n10002:\n    c.example\n")
