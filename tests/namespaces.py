"""Python in a network namespace of its own, with nothing but a loopback interface, for what tests may not do here."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.peers import require


def run_apart(code: str, *, seconds: float = 30.0) -> str:
    """What that code prints, run as root of a new network namespace. Skips the test where none may be made."""
    require("unshare", "ip")
    unshare = ["unshare", "--net", "--map-root-user"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("no network namespace may be made here (unshare --net --map-root-user)")
    command = [*unshare, sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr
    return done.stdout
