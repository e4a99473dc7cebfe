"""What the docs say of limits, defaults and exit codes is what the code has."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from maptr.cli import output

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "maptr.md").read_text("utf-8")
CONSTANTS = re.findall(r"^\| `([\w.]+)\.([A-Z_0-9]+)` \| ([\d.]+) \|", PAGE, re.MULTILINE)
EXITS = re.findall(r"^\| (\d+) \| `(EXIT_\w+)` \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("module", "name", "value"), CONSTANTS)
def test_limits_and_defaults(module: str, name: str, value: str) -> None:
    assert getattr(import_module(f"maptr.{module}"), name) == float(value)


def test_every_limit_of_the_walk_is_on_the_page() -> None:
    told = {(module, name) for module, name, _ in CONSTANTS}
    validation = (
        "validation.signed",
        "validation.nsec3",
        "validation.chain",
        "validation.inquiry",
        "validation.message",
    )
    for module in ("walk", "ere", "regexp", "url", "ark", *validation):
        limits = {name for name in vars(import_module(f"maptr.{module}")) if name.startswith("MAX_")}
        assert {(module, name) for name in limits - {"MAX_TTL"}} <= told


def test_exit_codes() -> None:
    codes = {name: value for name, value in vars(output).items() if name.startswith("EXIT_")}
    assert {name: int(code) for code, name in EXITS} == codes
