"""Tests of ``tests.support.peers``, with which other tests run real servers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.peers import processes, require
from tests.support.waiting import until

RUN = """
import time
from tests.support.peers import Maptr
server = Maptr({}, *%r).launch()
print(server.process.pid, server.directory, flush=True)
time.sleep(60)
"""


def test_a_missing_server_skips_a_test_and_fails_it_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAPTR_REQUIRE_PEERS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="not installed: no-such-server; run scripts/test as root"):
        require("sh", "no-such-server")
    monkeypatch.setenv("MAPTR_REQUIRE_PEERS", "1")
    with pytest.raises(pytest.fail.Exception, match="no-such-server"):
        require("no-such-server")
    require("sh")


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv of util-linux is not installed")
def test_servers_end_with_a_test_run_that_is_killed(zone_file: Path) -> None:
    code = RUN % ([f"--zone=a.test={zone_file}", "--listen=127.0.0.1:0"],)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        group, directory = running.stdout.readline().split()
        command = Path(f"/proc/{group}/cmdline")
        until(lambda: b"setpriv" not in command.read_bytes().partition(b"\0")[0], "setpriv has set the signal")
        assert processes(int(group))
        running.kill()
    until(lambda: not processes(int(group)), "the server has ended")
    shutil.rmtree(directory)
