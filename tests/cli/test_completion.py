"""``maptr completion``: the scripts, and completion in real shells."""

from __future__ import annotations

import os
import re
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
from tests.support.peers import find, require


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


# Each program prints what the shell completes after the words of LINE.
PROGRAMS = {
    "bash": """
        eval "$(maptr completion bash)"
        read -ra COMP_WORDS <<<"$LINE"
        [[ $LINE == *' ' ]] && COMP_WORDS+=('')
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _maptr_completion maptr
        printf '%s\\n' "${COMPREPLY[@]}"
    """,
    # zsh completes on a terminal only: zpty is one. The line is typed, and Tab pressed twice to list.
    "zsh": """
        zmodload zsh/zpty
        zpty shell zsh -f -i
        zpty -w shell 'PS1=; autoload -Uz compinit; compinit -u; eval "$(maptr completion zsh)"'
        zpty -w shell 'zstyle ":completion:*" list-prompt ""; setopt auto_list no_beep; LISTMAX=1000; print ready; '
        zpty -r -m shell text '*ready*ready*'
        zpty -w -n shell "$LINE"$'\\t\\t'
        sleep 3
        while zpty -r -t shell text; do print -r -- "$text"; done
        zpty -d shell
    """,
    "fish": """
        maptr completion fish | source
        complete -C "$LINE"
    """,
}


@pytest.mark.interop
@pytest.mark.parametrize("shell", PROGRAMS)
@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("maptr ga", "gateway"),
        ("maptr table pu", "pull"),
        ("maptr url --pol", "--policy"),
        ("maptr url --policy natab-o", "natab-only"),
    ],
)
def test_a_shell_completes(shell: str, line: str, word: str, tmp_path: Path) -> None:
    require(shell)
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "LINE": line,
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "TERM": "dumb",
    }
    done = subprocess.run(
        [str(find(shell)), "-c", PROGRAMS[shell]],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert word in done.stdout, (done.stdout, done.stderr)
