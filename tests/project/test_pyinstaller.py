"""The hook for PyInstaller: it is found by its entry point, and names the data files and the hidden modules."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from maptr.pyinstaller import hook_folders
from maptr.registry import builtin

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_entry_point_names_the_folder_of_the_hook() -> None:
    (found,) = (point for point in metadata.entry_points(group="pyinstaller40") if point.value.startswith("maptr."))
    assert (found.name, found.load()) == ("hook-dirs", hook_folders)
    assert [(Path(folder) / "hook-maptr.py").is_file() for folder in hook_folders()] == [True]


def test_the_hook_collects_data_modules_and_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PyInstaller: its helpers are stand-ins, which do what its documentation says."""
    package = builtin.FILE.parents[1]

    def data(name: str) -> list[tuple[str, str]]:
        return [(str(path), name) for path in package.rglob("*") if path.is_file() and path.suffix != ".py"]

    def modules(name: str, filter: Callable[[str], bool]) -> list[str]:
        paths = (path.relative_to(package.parent).with_suffix("") for path in package.rglob("*.py"))
        return [each for path in paths if filter(each := ".".join(path.parts))]

    hooks: Any = ModuleType("PyInstaller.utils.hooks")
    hooks.collect_data_files, hooks.collect_submodules = data, modules
    hooks.copy_metadata = lambda name: [(f"{name}.dist-info", ".")]
    monkeypatch.setitem(sys.modules, "PyInstaller.utils.hooks", hooks)
    collected = runpy.run_path(str(Path(hook_folders()[0]) / "hook-maptr.py"))
    assert str(builtin.FILE) in {source for source, _ in collected["datas"]}
    assert ("maptr.dist-info", ".") in collected["datas"]
    assert {"maptr.cli.pull", "maptr.gateway.service"} <= set(collected["hiddenimports"])
    assert "maptr.pytest_plugin" not in collected["hiddenimports"]
