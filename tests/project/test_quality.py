"""The modules that scripts/quality mutates."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
QUALITY = runpy.run_path(str(ROOT / "scripts" / "quality"))


def test_the_modules_of_the_core_and_their_tests_exist() -> None:
    for module, tests in QUALITY["CORE"].items():
        assert (ROOT / "maptr" / f"{module}.py").is_file()
        assert all((ROOT / test).exists() for test in tests)
