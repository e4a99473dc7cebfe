"""``maptr serve`` as a process, its configuration and its zones."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dns.message
import dns.query
import pytest
from click.testing import Result

from tests.support.command_line import run
from tests.support.peers import Maptr
from tests.support.waiting import PATIENCE


def zone_text(serial: int, address: str = "192.0.2.1") -> str:
    return (
        f"$TTL 60\n@ SOA ns host {serial} 7200 3600 1209600 300\n@ NS ns\nns A {address}\n"
        '12345 NAPTR 100 10 "h" "ark" "" h.example\\0588443.\n'
    )


Start = Callable[..., Maptr]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a server with only these options."""
    with ExitStack() as stack:

        def run(*options: str) -> Maptr:
            server = Maptr({}, *options)
            stack.callback(server.stop)
            return server.launch()

        yield run


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
        self.stack = ExitStack()
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

    def launch(self, *options: str) -> Maptr:
        """Start a server with only these options; the last one started is ``server``."""
        self.server = Maptr({}, *options)
        self.stack.callback(self.server.stop)
        return self.server.launch()

    def run(self, *arguments: str) -> Result:
        return run(arguments[0], "--config", self.config, *arguments[1:])

    def status(self) -> dict[str, Any]:
        result = self.run("status", "--json")
        document: dict[str, Any] = json.loads(result.stdout)
        assert result.exit_code == bool(document["alarms"]), result.output
        return document

    def zone(self, name: str) -> dict[str, object]:
        (found,) = (zone for zone in self.status()["zones"] if zone["zone"] == name)
        return dict(found)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr("maptr.cli.control.STATUS_SECONDS", PATIENCE)
    directory = Path(tempfile.mkdtemp(prefix="maptr-"))  # short enough for a socket
    found = Site(directory)
    with found.stack:
        yield found
    shutil.rmtree(directory)
