"""``maptr completion``: what the shells themselves make of the scripts."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from maptr.cli import main
from maptr.cli.completion import SHELLS


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_for_each_shell(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"_MAPTR_COMPLETE={shell}_complete" in result.stdout
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=result.stdout, text=True, check=True, timeout=60)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("maptr", "co"), {"completion"}),
        (("maptr", "table", "p"), {"pull", "probe"}),
        (("maptr", "url", "--pol"), {"--policy"}),
        (("maptr", "url", "--policy", "natab-o"), {"natab-only"}),
    ],
)
def test_bash_completes(words: tuple[str, ...], expected: set[str], tmp_path: Path) -> None:
    command = tmp_path / "maptr"
    # Through a shell, for the interpreter's path may have a space, which "#!" cannot say.
    code = "import maptr.cli; maptr.cli.main(prog_name='maptr')"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{code}" "$@"\n')
    command.chmod(0o755)
    program = (
        'eval "$(maptr completion bash)"\n'
        f"COMP_WORDS=({' '.join(words)}) COMP_CWORD={len(words) - 1}\n"
        '_maptr_completion maptr\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    assert set(done.stdout.split()) == expected, done.stderr
