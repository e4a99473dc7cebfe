"""``scripts/bootstrap`` and the conditions on which it recreates ``.venv``, with fake interpreters."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

BOOTSTRAP = Path(__file__).resolve().parents[2] / "scripts" / "bootstrap"

# Creates a virtual environment by copying itself, installs nothing, and prints its name.
INTERPRETER = """\
#!/bin/sh
case "$1 $2" in
"-m venv") mkdir -p .venv/bin && cp "{path}" .venv/bin/python ;;
"-c "*print*) echo "{path}" ;;
"--version ") echo "{name}" ;;
esac
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    shutil.copy(BOOTSTRAP, tmp_path / "scripts" / "bootstrap")
    (tmp_path / "pyproject.toml").write_text("")
    for name in ("old", "new"):
        path = tmp_path / name
        path.write_text(INTERPRETER.format(path=path, name=name))
        path.chmod(0o755)
    return tmp_path


def bootstrap(repository: Path, interpreter: str | None, extra: str = "dev") -> str:
    """Run the script and return its standard error."""
    environment = {name: value for name, value in os.environ.items() if name != "MAPTR_PYTHON"}
    if interpreter is not None:
        environment["MAPTR_PYTHON"] = str(repository / interpreter)
    command = [str(repository / "scripts" / "bootstrap"), extra]
    return subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=True).stderr


def test_the_environment_is_recreated_only_for_another_interpreter(repository: Path) -> None:
    assert "making .venv with old" in bootstrap(repository, "old")
    assert bootstrap(repository, "old") == ""
    assert "making .venv with new" in bootstrap(repository, "new")
    assert bootstrap(repository, "new") == ""
    assert bootstrap(repository, None) == ""


def test_other_extras_are_installed_unless_dev_is_installed(repository: Path) -> None:
    assert "extras: metrics\n" in bootstrap(repository, "old", "metrics")
    assert "extras: gateway metrics\n" in bootstrap(repository, None, "gateway")
    assert "extras: dev gateway metrics\n" in bootstrap(repository, None)
    assert bootstrap(repository, None, "doh") == ""
    assert "extras: bench dev gateway metrics\n" in bootstrap(repository, None, "bench")


def test_a_command_that_is_not_python_is_an_error(repository: Path) -> None:
    bootstrap(repository, "old")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        bootstrap(repository, "none")
    assert "which is not Python 3.11 or later" in refused.value.stderr
    assert bootstrap(repository, None) == ""
