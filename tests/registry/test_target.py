"""Targets: their variables, and their derivation from ``where``, by vectors and in the real registry."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr import Ark, registry
from maptr.naptr.automaton import Budget
from maptr.naptr.regexp import Substitution
from maptr.registry.table import Entry, Nma
from maptr.registry.target import VARIABLES, unusable, where_to_target
from maptr.zone import rules
from tests.support.answers import load_vectors

REPOSITORY = Path(__file__).resolve().parents[2]
VECTORS = load_vectors("registry_where")["vector"]
PAGE = (REPOSITORY / "docs" / "wire-format.md").read_text("utf-8")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["title"])
def test_vector(vector: dict[str, Any]) -> None:
    assert where_to_target(vector["where"]) == vector["target"]


@given(st.text())
def test_any_where_is_converted_without_an_error(text: str) -> None:
    where_to_target(text)


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("https://ark.nlm.nih.gov/ark:/${content}", None),
        ("https:///ark:/${content}", ("no-public-host", "no host: https:///ark:/${content}")),
    ],
)
def test_an_unusable_target_has_a_reason(target: str, fault: tuple[str, str] | None) -> None:
    assert unusable(target) == fault


@pytest.mark.parametrize("name", VARIABLES)
def test_each_variable_has_its_documented_value(name: str) -> None:
    """The value is the same in a table, in a rule in DNS, and on the page."""
    expected = VARIABLES[name].partition(": `")[2].partition("`")[0]
    ark = Ark.parse("ark:12345/x6np1")
    entry = Entry("12345", "x6", (Nma(f"https://h.example/?${{{name}}}"),))
    assert entry.urls(ark) == [f"https://h.example/?{expected}"]
    rule = Substitution.parse(rules.regexp(entry, entry.nmas[0]))
    assert rule.apply(ark.resolution.encode(), Budget(10_000)) == f"https://h.example/?{expected}".encode()
    assert re.search(rf"^\| `{name}` \|.*`{re.escape(expected)}`", PAGE, re.MULTILINE)


def test_derived_targets_of_the_real_registry(real_data: Path) -> None:
    table = registry.read((real_data / "naan_records.json").read_bytes())
    differing = {
        key: (nma.where, nma.target)
        for key, entry in table.items()
        for nma in entry.nmas
        if where_to_target(nma.where) != nma.target
    }
    # These were set by hand: a provider's own resolver serves them.
    served = ("https://ezid.cdlib.org/ark:/", "https://doi.org/10.", "http://arks.org/", "https://arks.org/")
    others = {key for key, (_, target) in differing.items() if not target.startswith(served)}
    assert others == {"83025", "15050", "19156", "19156/tkt42"}
    assert len(table) - len(differing) == 1305
