"""``maptr`` in a pseudo-terminal, and what its user sees there."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

from tests.support.command_line import MAPTR

COLORS = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE")
_PART = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


class Shown(NamedTuple):
    """Exit code, stdout if it was a pipe, and all that the terminal got."""

    code: int
    out: str
    sent: str

    @property
    def has_color(self) -> bool:
        return re.search(r"\x1b\[[0-9;]*[1-9][0-9;]*m", self.sent) is not None

    @property
    def lines(self) -> list[str]:
        """The lines that are left on the terminal at the end, and their text without colours."""
        lines, row, column = [""], 0, 0
        for match in _PART.finditer(self.sent):
            number, command, line_end, text = match.groups()
            if command == "A":
                row = max(0, row - int(number or 1))
            elif command == "K":
                lines[row] = "" if number == "2" else lines[row][:column]
            elif line_end == "\r":
                column = 0
            elif line_end:
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif text:
                lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
                column += len(text)
        return [line.rstrip() for line in lines if line.strip()]


def run_in_terminal(
    *words: object, cwd: Path | None = None, environment: Mapping[str, str] | None = None, piped: bool = False
) -> Shown:
    """Run ``maptr`` with stdout and stderr in a terminal; ``piped``: stdout is not one."""
    ours, theirs = os.openpty()
    variables = {name: value for name, value in os.environ.items() if name not in COLORS}
    with (
        TemporaryFile("w+") as out,
        subprocess.Popen(
            [*MAPTR, *map(str, words)],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out if piped else theirs,
            stderr=theirs,
            env={**variables, "TERM": "xterm-256color", "COLUMNS": "200", **(environment or {})},
        ) as process,
    ):
        os.close(theirs)
        shown = bytearray()
        with contextlib.suppress(OSError):  # EIO: the other end of the terminal is closed
            while part := os.read(ours, 65536):
                shown += part
        os.close(ours)
        code = process.wait()
        out.seek(0)
        return Shown(code, out.read(), shown.decode())
