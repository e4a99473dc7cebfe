"""The mutants of scripts/quality."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
QUALITY = runpy.run_path(str(ROOT / "scripts" / "quality"))

SOURCE = """\
LIMIT = 5
def read(text: Literal[1], most: int = 2) -> int:
    assert len(text) < 9
    if not text and most >= 3:
        raise ValueError("a string")
    for line in text:
        if line:
            break
        notes.append(line)
    return most + 4 if known else LIMIT
"""
CHANGED = [
    ("most: int=2", "most: int=3"),
    ("not text and", "not text or"),
    ("not text and", "not not text and"),
    (">= 3", "> 3"),
    (">= 3", ">= 4"),
    ("raise ValueError('a string')", "pass"),
    ("if line:", "if not line:"),
    ("break", "continue"),
    ("notes.append(line)", "pass"),
    ("most + 4", "most - 4"),
    ("most + 4", "most + 5"),
    ("if known", "if not known"),
]


def test_a_mutant_has_one_change_of_behaviour() -> None:
    tree = ast.parse(SOURCE)
    plain = ast.unparse(tree)
    made = [QUALITY["mutant"](change, tree).source for change in QUALITY["changes"]("x", tree)]
    assert sorted(made) == sorted(plain.replace(*change, 1) for change in CHANGED)
    assert ast.unparse(tree) == plain


def test_the_modules_of_the_core_and_their_tests_exist() -> None:
    for module, tests in QUALITY["CORE"].items():
        assert (ROOT / "maptr" / f"{module}.py").is_file()
        assert all((ROOT / test).exists() for test in tests)
