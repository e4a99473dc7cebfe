"""Whole processes, run in turn: how long each takes, by the clock and of CPU, and the command as it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# As pip 26 and uv write the command. Earlier pips import re there first, whatever the command then does.
STARTER = """import sys
from maptr.cli.start import run
if __name__ == "__main__":
    sys.argv[0] = sys.argv[0].removesuffix(".exe")
    sys.exit(run())
"""


class Processes:
    """``command`` starts maptr. What it imports is compiled already, and nothing is configured."""

    def __init__(self, directory: Path) -> None:
        starter = directory / "maptr"
        starter.write_text(STARTER)
        self.command = [sys.executable, str(starter)]
        self.nothing = [sys.executable, "-c", "pass"]
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("MAPTR_", "XDG_"))},
            "HOME": str(directory),
            "PYTHONPATH": os.fspath(Path.cwd()),  # instead of looking through what an editable install needs
            # A development environment may forbid to write that beside the source.
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(directory / "compiled"),
        }

    def spawn(self, command: list[str]) -> tuple[float, float]:
        """Seconds that a process takes, by the clock and of CPU. Raises SystemExit where it fails."""
        started = time.perf_counter()
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, stdout=quiet, stderr=quiet, env=self._environment) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = status
        if status:
            raise SystemExit(f"bench: {' '.join(command)[:200]} failed")
        return time.perf_counter() - started, usage.ru_utime + usage.ru_stime

    def rounds(self, commands: dict[str, list[str]], rounds: int) -> Iterator[dict[str, tuple[float, float]]]:
        """What each took, round by round, in alternating order. The first round compiles, and is not told."""
        for number in range(rounds + 1):
            names = list(commands) if number % 2 else list(commands)[::-1]
            took = {name: self.spawn(commands[name]) for name in names}
            if number:
                yield took


@contextmanager
def processes() -> Iterator[Processes]:
    with tempfile.TemporaryDirectory() as directory:
        yield Processes(Path(directory))
