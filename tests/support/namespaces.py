"""Network namespaces, with only a loopback interface at first."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE

REPOSITORY = Path(__file__).resolve().parents[2]


class Network:
    """A network namespace until ``close``, which first closes ``stack``. ``refused`` is the reason if there is none."""

    def __init__(self) -> None:
        self.stack = contextlib.ExitStack()
        self.keeper = subprocess.Popen(
            ["unshare", "--map-root-user", "--net", "sh", "-c", "echo ready; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.keeper.stdout is not None
        self.refused = "" if (said := self.keeper.stdout.readline()) == "ready\n" else said.strip()

    def command(self, *command: str) -> list[str]:
        pid = str(self.keeper.pid)
        return ["nsenter", "--preserve-credentials", "--user", "--net", "--target", pid, *command]

    def run(self, *command: str, or_skip: bool = False) -> str:
        """Run a command in the namespace and return its output; ``or_skip`` skips the test if the system forbids it."""
        done = subprocess.run(
            self.command(*command), capture_output=True, text=True, timeout=PATIENCE, env=environment(), check=False
        )
        if or_skip and done.returncode:
            pytest.skip(f"no network namespace: {' '.join(command)}: {done.stderr.strip()}")
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def ip(self, *lines: str, or_skip: bool = False) -> None:
        for line in lines:
            self.run("ip", *line.split(), or_skip=or_skip)

    def cable(self) -> None:
        """Add a pair of connected interfaces, ``va`` and ``vb``."""
        self.ip("link add va type veth peer name vb", or_skip=True)
        self.ip("link set va up", "link set vb up")

    def close(self) -> None:
        self.stack.close()
        self.keeper.communicate()


@contextlib.contextmanager
def with_loopback() -> Iterator[Network]:
    """A network namespace; skips the test with the reason if the system forbids it."""
    found = Network()
    with contextlib.closing(found):
        if found.refused:
            pytest.skip(f"no network namespace: {found.refused}")
        found.ip("link set lo up", or_skip=True)
        yield found


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "MAPTR_SERVE_RRL_RESPONSES_PER_SECOND": "0"}
