"""Pages, modules and tests that scripts name exist, and CONTRIBUTING.md has every script."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.project.test_readme import commands

ROOT = Path(__file__).resolve().parents[2]
FIRST_HOUR = runpy.run_path(str(ROOT / "scripts" / "first-hour"))
SCRIPTS = sorted(path.name for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix)


@pytest.mark.parametrize("role", FIRST_HOUR["ROLES"])
def test_each_role_has_pages_with_commands(role: str) -> None:
    """``test_readme`` runs the commands."""
    found = [commands((ROOT / page).read_text("utf-8")) for page in FIRST_HOUR["pages"](role)]
    assert found[0][0].text == "scripts/demo"
    assert all(found), "each page has commands"


def test_the_modules_that_scripts_quality_mutates_and_their_tests_exist() -> None:
    for module, tests in runpy.run_path(str(ROOT / "scripts" / "quality"))["CORE"].items():
        assert (ROOT / "maptr" / f"{module}.py").is_file()
        assert all((ROOT / test).exists() for test in tests)


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_is_documented(script: str) -> None:
    assert re.search(rf"[`/]{script}\b", (ROOT / "CONTRIBUTING.md").read_text("utf-8"))
