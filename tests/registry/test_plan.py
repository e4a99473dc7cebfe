"""Plans: the changes between two tables, as text and JSON, and the removal limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.errors import UnsafePlan
from maptr.registry.plan import SMALL, Plan
from maptr.registry.table import Entry, Nma, Table, Who
from tests.support.registries import applied

entries = st.builds(
    Entry,
    st.integers(10, 60).map(str),
    nmas=st.sampled_from([(), (Nma("https://a.example.org/"),), (Nma("https://b.example.org/", status=303),)]),
    when=st.sampled_from(["2001", "2002"]),
)
tables = st.lists(entries, max_size=12, unique_by=lambda entry: entry.key).map(Table)


def test_text_is_sorted_by_key() -> None:
    old = Table([Entry("3"), Entry("2", nmas=(Nma("https://a.example.org/"),)), Entry("1", who=Who("A"))])
    new = Table([Entry("4"), Entry("2", nmas=(Nma("https://b.example.org/"),)), Entry("1", who=Who("B"), when="2002")])
    plan = Plan.between(old, new)
    assert plan.to_text() == (
        "~ 1 who 'A' -> 'B'; when none -> 2002\n~ 2 target https://a.example.org/ -> https://b.example.org/\n- 3\n+ 4\n"
    )
    assert plan.to_dict() == {
        "added": ["4"],
        "changed": [
            {"record": "1", "differences": ["who 'A' -> 'B'", "when none -> 2002"]},
            {"record": "2", "differences": ["target https://a.example.org/ -> https://b.example.org/"]},
        ],
        "removed": ["3"],
        "kept": [],
        "size": 3,
    }
    assert plan
    assert not Plan.between(old, old)
    assert Plan.between(old, old).to_text() == ""


def test_a_registry_cannot_add_lines_to_a_plan() -> None:
    old, new = Entry("1"), Entry("1", nmas=(Nma("https://h\x1b[2J/"),), when="\n- 2", extra={"a\u2028- 3": 1})
    plan = Plan.between(Table([old]), Table([new]))
    added = Plan.between(Table(), Table([new]))
    kept = Plan(kept=(("1", "bad\r- 2"),))
    for each in (plan, added, kept):
        (line,) = each.to_text().splitlines()
        assert line.isprintable()
        assert each.to_markdown().splitlines()[4:] == [each.to_markdown().splitlines()[-1]]


@given(tables, tables)
def test_a_plan_applied_to_the_old_table_gives_the_new_table(old: Table, new: Table) -> None:
    plan = Plan.between(old, new)
    assert applied(plan, old) == dict(new)
    assert len(plan.to_text().splitlines()) == len(plan.added) + len(plan.removed) + len(plan.changed)
    assert all(change["differences"] for change in plan.to_dict()["changed"])


def test_removing_too_much_is_unsafe() -> None:
    old = Table(Entry(str(naan)) for naan in range(10, 20))
    Plan.between(old, old.without(["10", "11", "12"])).check()
    unsafe = Plan.between(old, old.without(["10", "11", "12", "13"]))
    with pytest.raises(UnsafePlan, match=r"cannot read 4 of 10 records \(40%, the limit is 30%\)"):
        unsafe.check()
    Plan.between(Table(), old).check()


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (Nma("https://a.example/", "https://w.example/", acronym="A"), Nma("https://b.example/"), "target"),
        (Nma("https://a.example/"), Nma("https://a.example/", status=303), "status 302 -> 303"),
        (
            Nma("https://a.example/", "https://w.example/"),
            Nma("https://a.example/"),
            "where https://w.example/ -> none",
        ),
        (Nma("https://a.example/"), Nma("https://a.example/", acronym="A"), "acronym none -> A"),
    ],
)
def test_only_a_change_of_target_or_status_counts_as_retargeted(before: Nma, after: Nma, text: str) -> None:
    """A registry file with targets alone may replace the built-in registry, which has the registry's texts, too."""
    old, new = (Table(Entry(str(naan), nmas=(nma,)) for naan in range(10, 30)) for nma in (before, after))
    plan = Plan.between(old, new)
    assert plan.to_text().startswith(f"~ 10 {text}")
    assert ";" not in plan.to_text()
    if text.startswith(("target", "status")):
        with pytest.raises(UnsafePlan):
            plan.check()
    else:
        plan.check()


def test_a_small_table_is_not_held_to_the_limit() -> None:
    """One record of three is more than 30 %."""
    entries = [Entry(f"1234{n}") for n in range(SMALL)]
    Plan.between(Table(entries[1:]), Table()).check()
    with pytest.raises(UnsafePlan):
        Plan.between(Table(entries), Table()).check()
