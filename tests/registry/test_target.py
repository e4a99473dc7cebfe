"""``where`` to ``target``, by vectors and against the real registry."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr import registry
from maptr.registry.target import where_to_target

HERE = Path(__file__).resolve().parents[1]
VECTORS = tomllib.loads((HERE / "vectors" / "registry_where.toml").read_text("utf-8"))["vector"]
REAL = Path(os.environ.get("MAPTR_REAL_DATA") or HERE.parent.parent / "shared" / "data")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["title"])
def test_vector(vector: dict[str, Any]) -> None:
    assert where_to_target(vector["where"]) == vector["target"]


@given(st.text())
def test_nothing_is_an_error(text: str) -> None:
    where_to_target(text)


@pytest.mark.real_data
def test_every_real_target_that_is_derived_comes_out_as_it_is() -> None:
    path = REAL / "naan_records.json"
    if not path.exists():
        pytest.skip(f"no real registry at {path} (set MAPTR_REAL_DATA)")
    table = registry.read(path.read_bytes())
    differing = {
        key: (nma.where, nma.target)
        for key, entry in table.items()
        for nma in entry.nmas
        if where_to_target(nma.where) != nma.target
    }
    # All that differ were set by hand: served by the provider's own resolver, not by where.
    served = ("https://ezid.cdlib.org/ark:/", "https://doi.org/10.", "http://arks.org/", "https://arks.org/")
    others = {key for key, (_, target) in differing.items() if not target.startswith(served)}
    assert others == {"83025", "15050", "19156", "19156/tkt42"}
    assert len(table) - len(differing) == 1305
