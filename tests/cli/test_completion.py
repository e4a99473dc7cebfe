"""``maptr completion``: the scripts, and completion in real shells."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from maptr.cli.completion import SHELLS
from maptr.cli.group import main
from tests.cli.test_group import COMMANDS
from tests.support.peers import find, require
from tests.support.waiting import PATIENCE


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"_MAPTR_COMPLETE={shell}_complete" in result.stdout
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=result.stdout, text=True, check=True, timeout=600)


NAMES_A_FILE = re.compile(r"FILE|OUT\b|SOURCE|OLD|NEW|PATH|SOCKET|KEYS|DIRECTORY")
NO_FILE_ALONE = {"zone", "key"}  # ORIGIN=FILE and NAME=ALGORITHM:@FILE, of maptr serve


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_parameters_that_name_a_file_complete_files(words: tuple[str, ...]) -> None:
    with click.Context(COMMANDS[words]) as ctx:
        for param in COMMANDS[words].params:
            text = param.metavar or param.human_readable_name
            if NAMES_A_FILE.search(text) and param.name not in NO_FILE_ALONE:
                assert [item.type for item in param.shell_complete(ctx, "x")] in (["file"], ["dir"]), text


# Each program completes LINE. bash and zsh complete only on a terminal, where Tab is pressed twice for the list.
PROGRAMS = {
    "bash": """eval "$(maptr completion bash)"; bind "set bell-style none"; bind "set page-completions off"; PS1=; """,
    "zsh": """PS1=; autoload -Uz compinit; compinit -u; eval "$(maptr completion zsh)";"""
    """ zstyle ":completion:*" list-prompt ""; setopt auto_list no_beep; LISTMAX=1000; """,
    "fish": """maptr completion fish | source; complete -C "$LINE" """,
}
OPTIONS = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"], "fish": ["--no-config", "-c"]}


def completed(shell: str, line: str, word: str, folder: Path) -> str:
    """Return the output of the shell once it shows ``word`` after ``line``, or after PATIENCE."""
    environment = {
        **os.environ,
        "HOME": str(folder),
        "LINE": line,
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "TERM": "dumb",
    }
    command = [str(find(shell)), *OPTIONS[shell]]
    if shell == "fish":
        command.append(PROGRAMS[shell])
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        ).stdout
    ours, theirs = os.openpty()
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        try:
            os.write(ours, f"{PROGRAMS[shell]} printf 'rea%s\\n' dy\n".encode())
            read_until("ready", ours)
            os.write(ours, f"{line}\t\t".encode())
            return read_until(word, ours)
        finally:
            process.kill()
            os.close(ours)


def read_until(word: str, terminal: int) -> str:
    shown, end = "", time.monotonic() + PATIENCE
    while word not in shown and (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            shown += os.read(terminal, 65536).decode("utf-8", "replace")
    return shown


@pytest.mark.interop
@pytest.mark.parametrize("shell", PROGRAMS)
@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("maptr ga", "gateway"),
        ("maptr table pu", "pull"),
        ("maptr --color never zo", "zone"),
        ("maptr url --pol", "--policy"),
        ("maptr url --policy natab-o", "natab-only"),
        ("maptr ark:12345/x1 --choose reach", "reachable"),
        ("maptr url ark:12345/x1 @192.0.2.1 --requ", "--require"),
        ("maptr zone check my", "myzone"),
        ("maptr zone build --include my", "myzone"),
        ("maptr bulk -o my", "myzone"),
        ("maptr zone sign myzone ke", "keys/"),
    ],
)
def test_completion_in_each_shell(shell: str, line: str, word: str, tmp_path: Path) -> None:
    require(shell)
    (tmp_path / "myzone").touch()
    (tmp_path / "keys").mkdir()
    assert word in (shown := completed(shell, line, word, tmp_path)), shown


@pytest.mark.interop
def test_bash_completes_a_value_after_an_equals_sign(tmp_path: Path) -> None:
    require("bash")
    assert "natab-only" in (shown := completed("bash", "maptr url --policy=natab-o", "natab-only", tmp_path)), shown
