"""scripts/first-hour finds the pages of each role; test_readme.py runs their commands."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.project.test_readme import commands

ROOT = Path(__file__).resolve().parents[2]
FIRST_HOUR = runpy.run_path(str(ROOT / "scripts" / "first-hour"))


@pytest.mark.parametrize("role", FIRST_HOUR["ROLES"])
def test_each_role_has_pages_with_commands(role: str) -> None:
    found = [commands((ROOT / page).read_text(encoding="utf-8")) for page in FIRST_HOUR["pages"](role)]
    assert found[0][0].text == "scripts/demo"
    assert all(found), "each page has commands"
