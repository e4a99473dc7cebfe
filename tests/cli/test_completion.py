"""``maptr completion`` in the real shells: bash, zsh and fish complete commands, options and values."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.peers import find, require

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
    ("line", "word"), [("maptr ga", "gateway"), ("maptr table pu", "pull"), ("maptr url --pol", "--policy")]
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
