"""Table, its keys, and the Plan between two of them."""

from __future__ import annotations

import copy
import gzip
import json
import os
import pickle
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr import Ark, registry
from maptr.errors import UnsafePlan
from maptr.naptr.automaton import Budget
from maptr.naptr.regexp import Substitution
from maptr.registry.plan import REMOVAL_LIMIT, Plan
from maptr.registry.table import Entry, Nma, Table, Who, parse_key
from maptr.registry.target import DEFAULT_STATUS, VARIABLES
from maptr.zone import rules

PAGE = Path(__file__).resolve().parents[2] / "docs" / "maptr.md"
REAL = Path(os.environ.get("MAPTR_REAL_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")

entries = st.builds(
    Entry,
    st.integers(10, 60).map(str),
    nmas=st.sampled_from([(), (Nma("https://a.example.org/"),), (Nma("https://b.example.org/", status=303),)]),
    when=st.sampled_from(["2001", "2002"]),
)
tables = st.lists(entries, max_size=12, unique_by=lambda entry: entry.key).map(Table)


def table(*keys: str, when: str = "") -> Table:
    return Table(Entry(*parse_key(key), when=when) for key in keys)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("12345", ("12345", "")),
        ("B5060", ("b5060", "")),
        ("00123", ("00123", "")),
        ("12345/x6", ("12345", "x6")),
        ("ark:/12345/X6", ("12345", "X6")),
        ("ARK:12345/x6", ("12345", "x6")),
        ("81986/s6.caida", ("81986", "s6.caida")),
        ("1" * 63, ("1" * 63, "")),
    ],
)
def test_keys(text: str, key: tuple[str, str]) -> None:
    assert parse_key(text) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ark:",
        "aeiou",
        "12345/",
        "12345/x/y",
        "12 345",
        "12345/x 6",
        "12345/é",
        "1" * 64,
        "1/" + "x" * 64,
        "１２３",
        "12345\n",
    ],
)
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(ValueError):
        parse_key(text)


def test_shoulders_come_longest_first() -> None:
    found = table("12345", "12345/x6", "12345/b5", "12345/x60", "54321/x6").shoulders("12345")
    assert [entry.shoulder for entry in found] == ["x60", "b5", "x6"]


def test_a_key_stands_in_a_table_once() -> None:
    with pytest.raises(ValueError, match="two records have the key 12345/x6"):
        table("12345/x6", "12345/x6")


def test_equality_is_of_entries_and_their_order() -> None:
    assert table("1", "2") == table("1", "2")
    assert table("1", "2") != table("2", "1")
    assert Entry("1", line=3) == Entry("1", line=4)
    assert table("1", "2").without(["1"]) == table("2")
    assert repr(table("1", "1/x6")) == "<Table of 1 NAANs, 1 shoulders>"
    assert Nma("").status == DEFAULT_STATUS


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("https://a.example.org/ark:/${content}", "https://a.example.org/ark:/12345/x6np-1/c2?info"),
        ("https://a.example.org/${value}", "https://a.example.org/x6np-1/c2?info"),
        ("https://a.example.org/${suffix}", "https://a.example.org/np-1/c2?info"),
        ("https://a.example.org/", "https://a.example.org/?info"),
    ],
)
def test_a_target_is_expanded_for_the_ark_that_the_entry_serves(target: str, url: str) -> None:
    nma = Nma(target)
    found = Table([Entry("12345"), Entry("12345", "x6", (nma,)), Entry("12345", "x60")])
    ark: Any = SimpleNamespace(naan="12345", resolution="ark:12345/x6np-1/c2", tail="?info")
    entry = found.lookup(ark)
    assert entry is not None
    assert entry.key == "12345/x6"
    assert nma.url(ark, entry.shoulder) == url


def test_plan_as_text_is_sorted_by_key() -> None:
    old = Table([Entry("3"), Entry("2", nmas=(Nma("https://a.example.org/"),)), Entry("1", who=Who("A"))])
    new = Table([Entry("4"), Entry("2", nmas=(Nma("https://b.example.org/"),)), Entry("1", who=Who("B"), when="2002")])
    plan = Plan.between(old, new)
    assert plan.to_text() == (
        "~ 1 who 'A' -> 'B'; when  -> 2002\n~ 2 target https://a.example.org/ -> https://b.example.org/\n- 3\n+ 4\n"
    )
    assert plan.to_dict() == {
        "added": ["4"],
        "changed": [
            {"record": "1", "differences": ["who 'A' -> 'B'", "when  -> 2002"]},
            {"record": "2", "differences": ["target https://a.example.org/ -> https://b.example.org/"]},
        ],
        "removed": ["3"],
        "kept": [],
        "size": 3,
    }
    assert plan
    assert not Plan.between(old, old)
    assert Plan.between(old, old).to_text() == ""


@given(tables, tables)
def test_every_difference_is_said(old: Table, new: Table) -> None:
    plan = Plan.between(old, new)
    assert dict(plan.apply(old)) == dict(new)
    assert not Plan.between(plan.apply(old), new)
    assert len(plan.to_text().splitlines()) == len(plan.added) + len(plan.removed) + len(plan.changed)
    assert all(change["differences"] for change in plan.to_dict()["changed"])


def test_a_plan_is_for_the_table_it_was_made_for() -> None:
    plan = Plan.between(table("1", "2"), table("1"))
    with pytest.raises(ValueError, match="2 differs from what the plan expects"):
        plan.apply(table("1"))


def test_a_plan_that_removes_too_much_is_unsafe() -> None:
    old = table(*map(str, range(10, 20)))
    Plan.between(old, old.without(["10", "11", "12"])).check()
    unsafe = Plan.between(old, old.without(["10", "11", "12", "13"]))
    with pytest.raises(UnsafePlan, match=r"removes 4 of 10 records \(40%, the limit is 30%\)"):
        unsafe.check()
    unsafe.check(0.4)
    assert REMOVAL_LIMIT == 0.30
    Plan.between(Table(), old).check()


@pytest.mark.real_data
def test_real_events_lead_to_the_real_registry() -> None:
    """130 moments of the real registry, each read, planned, checked and applied."""
    if not (REAL / "naan_updates.jsonl.gz").exists():
        pytest.skip(f"no real registry in {REAL} (set MAPTR_REAL_DATA)")
    now = registry.read(gzip.decompress((REAL / "naan_records_2024-06-21.json.gz").read_bytes()))
    lines = gzip.decompress((REAL / "naan_updates.jsonl.gz").read_bytes()).decode().splitlines()
    events = [json.loads(line) for line in lines]
    sums = {"added": 0, "changed": 0, "removed": 0}
    moments = 0
    for _, moment in groupby(events, key=lambda event: event["t"]):
        moments += 1
        plan = Plan.between(now, after(now, [*moment]))
        plan.check()
        now = plan.apply(now)
        said = plan.to_dict()
        sums = {name: count + len(said[name]) for name, count in sums.items()}
    goal = registry.read((REAL / "naan_records.json").read_bytes())
    assert dict(now) == dict(goal)
    assert moments == 130
    assert sums == {"added": 131, "changed": 459, "removed": 35}


def after(now: Table, events: list[Mapping[str, Any]]) -> Table:
    """The table after some events, made without the plan's help."""
    found = dict(now)
    for event in events:
        found.pop(event["what"], None)
        found |= registry.read(json.dumps({"data": [event["new"]] if "new" in event else []}))
    return Table(found.values())


def test_tables_and_entries_are_pickled_and_copied_whole() -> None:
    entry = Entry("12345", "x6", (Nma("https://h.example/${content}"),), extra={"rtype": "x"}, line=7)
    table = Table([entry], metadata={"version": "1"})
    for twin in (pickle.loads(pickle.dumps(table)), copy.deepcopy(table), copy.copy(table)):
        assert twin == table
        assert twin.metadata == table.metadata
        assert twin.shoulders("12345")[0].line == 7
        assert repr(twin) == repr(table)
    assert copy.copy(entry) == entry


def test_an_entry_keeps_extra_fields_that_nobody_can_change() -> None:
    given = {"rtype": "x"}
    entry = Entry("12345", extra=given)
    given["rtype"] = "y"
    assert entry.extra == {"rtype": "x"}
    with pytest.raises(TypeError):
        entry.extra["rtype"] = "y"  # type: ignore[index]


@pytest.mark.parametrize("name", VARIABLES)
def test_each_variable_is_what_the_table_of_meanings_says(name: str) -> None:
    """From the table, by a rule in DNS, and on the page."""
    expected = VARIABLES[name].rpartition(": ")[2].strip("`")
    ark = Ark.parse("ark:12345/x6np1")
    entry = Entry("12345", "x6", (Nma(f"https://h.example/?${{{name}}}"),))
    assert entry.urls(ark) == [f"https://h.example/?{expected}"]
    rule = Substitution.parse(rules.regexp(entry, entry.nmas[0]))
    assert rule.apply(ark.resolution.encode(), Budget(10_000)) == f"https://h.example/?{expected}".encode()
    assert f"| `{name}` | {VARIABLES[name]} |" in PAGE.read_text("utf-8")
