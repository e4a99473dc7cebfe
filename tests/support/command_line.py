"""``maptr`` commands: in this process, in their own process, with a terminal, and interrupted."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from maptr.cli.group import main
from tests.support.waiting import until

# Runs a command that ends with its parent, so that a killed test run leaves no servers behind (prctl(2)).
ENDING = (found, "--pdeathsig", "KILL") if (found := shutil.which("setpriv")) else ()
MAPTR = (*ENDING, sys.executable, "-m", "maptr")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory for the test, and a working directory below it."""
    for name in ("data", "cache", "config"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path


def run(
    *words: object, text: str | bytes | None = None, code: int | None = None, out: str | None = None, said: str = ""
) -> Result:
    """Run a command in this process, with ``text`` as its standard input.

    It must have the exit code, the stdout ``out``, and the text ``said`` in its output, if they are given.
    """
    result = CliRunner().invoke(main, [str(word) for word in words], input=text)
    assert code is None or result.exit_code == code, result.output
    assert out is None or result.stdout == out
    assert said in result.output
    return result


def run_process(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process, with the ``options`` of ``subprocess.run``."""
    streams = {} if {"stdout", "stderr"} & options.keys() else {"capture_output": True}
    defaults = {"text": True, "timeout": 600, "check": False}
    return subprocess.run([*MAPTR, *map(str, words)], **{**streams, **defaults, **options})


def interrupted(
    words: list[str], when: Callable[[], object], *, cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``maptr`` with these arguments and interrupt it when ``when`` is true or returns."""
    with subprocess.Popen(
        [*MAPTR, *words],
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
            for _ in range(12):
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = process.communicate(timeout=15)
                    break
            else:
                raise AssertionError(f"{words} still runs")
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)
