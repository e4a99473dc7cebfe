"""natab: damaged lines, losses in writing, and the natabs printed in the drafts."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr import Ark, registry
from maptr.discovery import Outcome
from maptr.errors import TableError
from maptr.registry.table import Entry, NaanPolicy, Nma, Table, Who
from maptr.walk import Answer, Walk
from tests.support.entries import records

VECTORS_DIR = Path(__file__).resolve().parents[1] / "vectors"
VECTORS = tomllib.loads((VECTORS_DIR / "natab.toml").read_text("utf-8"))["vector"]
DRAFTS = tomllib.loads((VECTORS_DIR / "drafts.toml").read_text("utf-8"))["natab"]
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
