"""Commands in processes of their own that get SIGINT, as by Ctrl-C, once something has come about."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.caching import until
from tests.running import PATIENCE


def interrupted(
    words: list[str], when: Callable[[], object], *, cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """How a command ended that was interrupted when ``when`` was true, or returned."""
    with subprocess.Popen(
        [sys.executable, "-m", "maptr", *words],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until(when, "what was to be interrupted")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(words, process.returncode, out, err)
