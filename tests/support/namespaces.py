"""A network namespace of its own, with nothing but a loopback interface at first, for what tests may not do here."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds, for a machine that is busy


class Network:
    """One namespace, which lasts while this process does; ``refused`` says why there is none. ``close`` it.

    What is on ``stack`` ends before it.
    """

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
        """What it says; ``or_skip``: not every system lets us."""
        done = subprocess.run(
            self.command(*command), capture_output=True, text=True, timeout=PATIENCE, env=environment(), check=False
        )
        if or_skip and done.returncode:
            pytest.skip(f"no network of its own: {' '.join(command)}: {done.stderr.strip()}")
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def ip(self, *lines: str, or_skip: bool = False) -> None:
        for line in lines:
            self.run("ip", *line.split(), or_skip=or_skip)

    def cable(self) -> None:
        """Two ends, ``va`` and ``vb``."""
        self.ip("link add va type veth peer name vb", or_skip=True)
        self.ip("link set va up", "link set vb up")

    def close(self) -> None:
        self.stack.close()
        self.keeper.communicate()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "MAPTR_SERVE_RRL_RESPONSES_PER_SECOND": "0"}
