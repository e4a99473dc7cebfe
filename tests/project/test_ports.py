"""Free ports: no two processes of tests use the same one."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import ports
from tests.support.ports import BLOCK, HOST, PORTS, NoFreePort, free_port

ROOT = Path(__file__).resolve().parents[2]
TAKE = "from tests.support.ports import *; print(*(free_port() for _ in range(BLOCK)), flush=True); input()"


@contextmanager
def other_process() -> Iterator[set[int]]:
    """Provide the ports that another running process gets."""
    command = [sys.executable, "-c", TAKE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield {int(port) for port in process.stdout.readline().split()}
        process.stdin.close()


def test_processes_use_different_ports() -> None:
    own = {free_port() for _ in range(BLOCK)}
    with other_process() as first, other_process() as second:
        assert min(len(own), len(first), len(second)) > BLOCK / 2
        assert not own & first
        assert not own & second
        assert not first & second
        assert own | first | second < set(PORTS)


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_a_port_in_use_is_skipped(kind: int) -> None:
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, kind == socket.SOCK_STREAM)
        taken.bind((HOST, free_port()))
        if kind == socket.SOCK_STREAM:
            taken.listen()
        assert taken.getsockname()[1] not in {free_port() for _ in range(BLOCK)}


def test_no_free_block_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    start = free_port()
    monkeypatch.setattr(ports, "PORTS", range(start, start + BLOCK))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((HOST, start))
        with pytest.raises(NoFreePort, match="no block"):
            ports.own_block.__wrapped__()
