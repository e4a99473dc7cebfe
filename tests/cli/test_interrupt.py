"""Ctrl-C: every command ends with 130, says what was kept and how to go on, and leaves files as they were."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.hostile import hostile
from tests.support.http_server import http_server
from tests.support.interrupting import interrupted
from tests.support.registries import OLD

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("MAPTR_", "XDG_"))}


def opened(pipe: Path) -> Callable[[], bool]:
    """Whether a process has opened the pipe for reading, and so waits for what never comes."""
    held: list[int] = []

    def look() -> bool:
        try:
            held.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # ENXIO: nobody reads
            return False
        return True

    return look


@pytest.mark.parametrize(
    "words",
    [
        ["table", "check", "PIPE"],
        ["table", "convert", "PIPE", "--to", "json", "-o", "out"],
        ["table", "drift", "--table", "PIPE"],
        ["table", "probe", "--table", "PIPE"],
        ["zone", "build", "PIPE", "-o", "out"],
        ["zone", "check", "PIPE"],
        ["serve", "--zone", "a.test=zone", "--key", "xfr=hmac-sha256:@PIPE"],
    ],
    ids=" ".join,
)
def test_while_a_file_is_read(words: list[str], tmp_path: Path) -> None:
    pipe = tmp_path / "PIPE"
    os.mkfifo(pipe)
    done = interrupted(words, opened(pipe), cwd=tmp_path, environment={**ENVIRONMENT, "HOME": str(tmp_path)})
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "maptr: interrupted: nothing was changed; run it again\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["url", "discover", "info"])
@pytest.mark.parametrize("more", [[], ["--timeout", "60"]], ids=["plain", "option"])
def test_while_dns_is_asked(command: str, more: list[str], tmp_path: Path) -> None:
    asked = threading.Event()

    def silent(query: bytes, transport: str) -> list[bytes]:
        asked.set()
        return []

    with hostile(silent) as server:
        words = [command, "ark:12345/x1", "ark:12345/x2", f"@{server.name}", *more]
        done = interrupted(words, asked.is_set, cwd=tmp_path, environment={**ENVIRONMENT, "HOME": str(tmp_path)})
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "maptr: interrupted: 0 of 2 ARKs were answered; ask again for the others\n"


@pytest.mark.parametrize("command", [["table", "pull", "--apply", "--table", "natab"], ["up"]], ids=" ".join)
def test_while_a_registry_is_pulled(command: list[str], tmp_path: Path) -> None:
    asked, over = threading.Event(), threading.Event()

    def hangs(request: object) -> None:
        asked.set()
        over.wait(60)

    (tmp_path / "natab").write_bytes(OLD)
    with http_server(hangs) as url:
        environment = {**ENVIRONMENT, "HOME": str(tmp_path)}
        done = interrupted([*command, url], asked.is_set, cwd=tmp_path, environment=environment)
        over.set()
    assert done.returncode == 130
    assert "maptr: interrupted: " in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "natab").read_bytes() == OLD
