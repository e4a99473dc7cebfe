"""``maptr serve`` as a process, its configuration and its zones."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dns.message
import dns.query
import pytest
from click.testing import CliRunner, Result

from maptr.cli.group import main

PATIENCE = 20.0  # seconds until a step of a process counts as failed


def zone_text(serial: int, address: str = "192.0.2.1") -> str:
    return (
        f"$TTL 60\n@ SOA ns host {serial} 7200 3600 1209600 300\n@ NS ns\nns A {address}\n"
        '12345 NAPTR 100 10 "h" "ark" "" h.example\\0588443.\n'
    )


STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ [A-Z]+ (?=maptr: )")  # time and level of a line of the log
CURRENT_USER = pwd.getpwuid(os.geteuid()).pw_name  # root warns where it is not asked to stay root


class Server:
    """The command in a process of its own, with its log read as it comes."""

    def __init__(self, *arguments: str, program: tuple[str, ...] = ("-m", "maptr")) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *program, "serve", *arguments],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"MAPTR_SERVE_USER": CURRENT_USER} | os.environ,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as log:
            for line in log:
                self.lines.append(STAMP.sub("", line.rstrip("\n")))

    def wait_for(self, pattern: str, after: int = 0) -> re.Match[str]:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for line in self.lines[after:]:
                if match := re.search(pattern, line):
                    return match
            time.sleep(0.01)
        raise AssertionError(f"no {pattern!r} in {self.lines}")

    def ready(self) -> int:
        return int(self.wait_for(r"^maptr: ready, serving .* on 127\.0\.0\.1:(\d+)")[1])

    def hang_up(self) -> int:
        """SIGHUP; the number of lines logged before it."""
        before = len(self.lines)
        self.process.send_signal(signal.SIGHUP)
        return before

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join(PATIENCE)
            assert self.process.stdin is not None
            self.process.stdin.close()


Start = Callable[..., Server]


@pytest.fixture
def start() -> Iterator[Start]:
    servers: list[Server] = []

    def run(*arguments: str) -> Server:
        servers.append(Server(*arguments))
        return servers[-1]

    yield run
    for server in servers:
        server.end()


@pytest.fixture
def zone_file(tmp_path: Path) -> Path:
    path = tmp_path / "a zone.txt"
    path.write_text(zone_text(1))
    return path


def address_of(name: str, port: int, transport: str = "udp") -> str:
    query = dns.message.make_query(name, "A")
    ask = dns.query.udp if transport == "udp" else dns.query.tcp
    reply = ask(query, "127.0.0.1", PATIENCE, port)
    return str(reply.answer[0][0]) if reply.answer else ""


class Site:
    """A directory with a configuration and zones, and the server that has it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "maptr.toml"
        self.socket = directory / "run" / "maptr.sock"
        self.servers: list[Server] = []
        self.write_zone("a.test", zone_text(1))
        self.write_zone("b.test", zone_text(1))
        self.configure()

    def configure(self, extra: str = "", *, zones: tuple[str, ...] = ("a.test", "b.test"), serve: str = "") -> None:
        tables = "".join(f'[[zone]]\nname = "{name}"\nfile = "{name}.zone"\n' for name in zones)
        self.config.write_text(f'[serve]\nlisten = ["127.0.0.1:0"]\n{serve}\n{tables}{extra}')

    def write_zone(self, name: str, text: str) -> None:
        beside = self.directory / "new"
        beside.write_text(text)
        beside.replace(self.directory / f"{name}.zone")

    def start(self, *arguments: str) -> int:
        """Run the server and give its port."""
        return self.launch("--config", str(self.config), *arguments).ready()

    def launch(self, *arguments: str) -> Server:
        """Start a server with these options alone."""
        self.servers.append(Server(*arguments))
        return self.server

    @property
    def server(self) -> Server:
        """The last one started."""
        return self.servers[-1]

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, [arguments[0], "--config", str(self.config), *arguments[1:]])

    def status(self) -> dict[str, Any]:
        result = self.run("status", "--json")
        assert result.exit_code == 0, result.output
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    def zone(self, name: str) -> dict[str, object]:
        zones = self.status()["zones"]
        assert isinstance(zones, list)
        found: dict[str, object] = next(zone for zone in zones if zone["zone"] == name)
        return found


@pytest.fixture
def site() -> Iterator[Site]:
    directory = Path(tempfile.mkdtemp(prefix="maptr-"))  # short enough for a socket
    found = Site(directory)
    yield found
    for server in found.servers:
        server.end()
    shutil.rmtree(directory)
