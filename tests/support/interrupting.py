"""Commands that are interrupted by SIGINT, as by Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from tests.support.running import PATIENCE
from tests.support.waiting import until


def interrupted(
    words: list[str], when: Callable[[], object], *, cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``maptr`` with these arguments and interrupt it when ``when`` is true or returns."""
    with subprocess.Popen(
        [sys.executable, "-m", "maptr", *words],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            until(when, "the moment of the interrupt")
            # Python misses a signal that arrives just before a system call blocks; a user presses Ctrl-C again.
            for _ in range(int(PATIENCE)):
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    out, err = process.communicate(timeout=1)
                    break
            else:
                raise AssertionError(f"{words} still runs")
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)
