"""The patterns of maptr.ark and maptr.rewritten: what each finds, and what it does not."""

from __future__ import annotations

import re
from typing import Any

import pytest

from maptr import ark, rewritten
from tests.support.answers import load_vectors

VECTORS = load_vectors("ark_patterns")["pattern"]
CHARACTERS = {"_AROUND", "_DASHES", "_EMPHASIZING", "_LENGTHS", "_MARKS", "_NAAN"}  # sets of characters for the others


def pattern_of(name: str) -> str | re.Pattern[str]:
    found: str | re.Pattern[str] = getattr(ark, name, None) or getattr(rewritten, name)
    return found


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_a_pattern_finds_its_examples_alone(vector: dict[str, Any]) -> None:
    pattern = pattern_of(vector["name"])
    for text, expected in vector["finds"].items():
        found = re.search(pattern, text)
        assert found is not None, text
        assert found[0] == expected, text
    for text in vector["not_in"]:
        assert re.search(pattern, text) is None, text


def test_every_pattern_has_examples() -> None:
    private = {
        name
        for module in (ark, rewritten)
        for name, value in vars(module).items()
        if isinstance(value, str | re.Pattern) and re.fullmatch("_[A-Z][A-Z0-9_]+", name)
    }
    assert private - CHARACTERS <= {vector["name"] for vector in VECTORS}
