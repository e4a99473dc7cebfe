"""``maptr completion``: the scripts, and completion in real shells."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from maptr.cli.group import SHELLS, main
from tests.cli.test_group import COMMANDS


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_for_each_shell(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"_MAPTR_COMPLETE={shell}_complete" in result.stdout
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=result.stdout, text=True, check=True, timeout=60)


NAMES_A_FILE = re.compile(r"FILE|OUT\b|SOURCE|OLD|NEW|PATH|SOCKET|KEYS|DIRECTORY")
NO_FILE_ALONE = {"zone", "key"}  # ORIGIN=FILE and NAME=ALGORITHM:@FILE, of maptr serve


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_parameters_that_name_a_file_complete_files(words: tuple[str, ...]) -> None:
    with click.Context(COMMANDS[words]) as ctx:
        for param in COMMANDS[words].params:
            text = param.metavar or param.human_readable_name
            if NAMES_A_FILE.search(text) and param.name not in NO_FILE_ALONE:
                assert [item.type for item in param.shell_complete(ctx, "x")] in (["file"], ["dir"]), text


def test_the_shell_completes_the_zones_of_the_configuration(tmp_path: Path) -> None:
    zones = "".join(f'[[zone]]\nname = "{name}"\nfile = "z"\n' for name in ("ark.arpa", "arks.example", "example"))
    (tmp_path / "maptr.toml").write_text(zones)
    (tmp_path / "bad.toml").write_text("nonsense")
    for file, expected in (("maptr.toml", ["ark.arpa", "arks.example"]), ("bad.toml", []), ("gone.toml", [])):
        completes = ShellComplete(main, {}, "maptr", "_MAPTR_COMPLETE")
        found = completes.get_completions(["reload", "--config", str(tmp_path / file)], "ark")
        assert [item.value for item in found] == expected


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("maptr", "co"), {"completion", "config"}),
        (("maptr", "table", "p"), {"pull", "probe"}),
        (("maptr", "url", "--pol"), {"--policy"}),
        (("maptr", "url", "--policy", "natab-o"), {"natab-only"}),
    ],
)
def test_bash_completes(words: tuple[str, ...], expected: set[str], tmp_path: Path) -> None:
    command = tmp_path / "maptr"
    # Through a shell, because "#!" does not allow a space in the path of the interpreter.
    code = "from maptr.cli.group import main; main(prog_name='maptr')"
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
