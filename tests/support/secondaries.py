"""Real servers as secondaries of maptr, configured with the lines shown in docs/transfers.md.

A test adds only a temporary directory, a port, one process, no control channel, and permission to transfer the zone.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar

import dns.flags
import dns.message
import dns.query
import dns.zone

from tests.support.peers import (
    HOST,
    Bind,
    Knot,
    Maptr,
    Nsd,
    Peer,
    PeerError,
    PowerDns,
    free_port,
    make_powerdns_database,
    require,
    run,
)
from tests.support.waiting import until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "transfers.md"
SECRET = "dGhpcyBpcyBhIHRlc3Qga2V5LCBrbm93biB0byBhbGwhISE="  # 32 bytes
KEY = f"--key=xfr=hmac-sha256:{SECRET}"
ORIGIN = "ark.arpa."
CATALOG = "catalog.invalid."


class Secondary(Peer):
    """A secondary of the primary at ``host`` and ``primary_port``. It is ready when it has the zone."""

    snippet: ClassVar[str]  # the language of its code block in the page

    def __init__(self, primary_port: int, port: int = 0) -> None:
        super().__init__({ORIGIN: Path()}, port)
        self.primary_port = primary_port

    def documented(self, language: str = "") -> str:
        """The code block of the page in this language, with the addresses and the secret of the test."""
        language = language or self.snippet
        (block,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        text = block.replace("192.0.2.1", self.host).replace("SECRET", SECRET)
        return re.sub(r"\b5300\b", str(self.primary_port), text)


class NsdSecondary(Secondary, Nsd):
    snippet = "nsd"
    settings = "    verbosity: 2\n    xfrd-reload-timeout: 0\n"

    def statements(self) -> str:
        return f"{self.documented()}\n    provide-xfr: {self.host} NOKEY\n"


class KnotSecondary(Secondary, Knot):
    snippet = "knot"

    def statements(self) -> str:
        (self.directory / "db").mkdir()  # Knot 3.2 crashes if it cannot create the database of a catalog
        storage = f'    storage: "{self.directory}"\n'
        lines = self.documented().replace("  - id: member\n", "  - id: member\n" + storage)
        lines = re.sub(r"(  - domain: .*\n)", rf"\1{storage}", lines)
        lines = lines.replace("acl: maptr-may-notify", "acl: [maptr-may-notify, test-may-transfer]")
        return f"acl:\n  - id: test-may-transfer\n    address: {self.host}\n    action: transfer\n{lines}"


class KnotCatalogSecondary(KnotSecondary):
    """Configured with the catalog zone only, in which it finds the zone."""

    snippet = "knot-catalog"


class BindSecondary(Secondary, Bind):
    snippet = "bind"

    def statements(self) -> str:
        lines = self.documented()
        if "options {\n" in lines:
            return lines.replace("options {\n", "options {\n" + self.options())
        return f"options {{\n{self.options()}}};\n{lines}"


class BindCatalogSecondary(BindSecondary):
    """Configured with the catalog zone only, in which it finds the zone."""

    snippet = "bind-catalog"


class PowerDnsSecondary(Secondary, PowerDns):
    snippet = "pdns"
    settings = PowerDns.settings + (
        "zone-cache-refresh-interval=0\nzone-metadata-cache-ttl=0\nxfr-cycle-interval=1\nloglevel=6\n"
    )

    def backend(self) -> str:
        return self.documented().replace("=pdns.sqlite3", f"={self.directory}/pdns.sqlite3")

    def configure(self) -> list[str]:
        command = super().configure()
        make_powerdns_database(self.directory / "pdns.sqlite3")
        for line in self.documented("pdnsutil").splitlines():
            program, *arguments = line.split()
            done = run(program, f"--config-dir={self.directory}", *arguments)
            if not done.accepted:
                raise PeerError(f"{line}\n{done.output}")
        return command


SECONDARIES: tuple[type[Secondary], ...] = (BindSecondary, NsdSecondary, KnotSecondary, PowerDnsSecondary)


class Primary:
    """maptr with a zone file of the test, and the secondaries that follow it."""

    def __init__(self, path: Path, server: Maptr, secondaries: list[Secondary]) -> None:
        self.path, self.server, self.secondaries = path, server, secondaries
        self.log = server.log

    def publish(self, text: str) -> None:
        """Replace the zone file and send SIGHUP."""
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.replace(self.path)
        self.hang_up()

    def hang_up(self) -> None:
        os.kill(self.server.pid, signal.SIGHUP)

    def wait_for(self, serial: int, *kinds: type[Secondary]) -> None:
        """Wait until the secondaries, or those of the kinds, have the serial."""
        for secondary in self.secondaries:
            if isinstance(secondary, kinds or Secondary):
                self._wait_for_one(secondary, serial)

    def _wait_for_one(self, secondary: Secondary, serial: int) -> None:
        until(
            lambda: serial_at(secondary) == serial,
            lambda: f"{secondary.name} is at {serial_at(secondary)}\n{secondary.log()}\n{self.log()}",
        )

    def wait_for_line(self, text: str) -> None:
        until(lambda: text in self.log(), self.log)

    def check(self, path: Path | None = None) -> None:
        """All secondaries have the zone of the file, record for record, and the digest in it is correct."""
        expected = dns.zone.from_file(str(path or self.path), ORIGIN, relativize=False)
        for secondary in self.secondaries:
            zone = contents(secondary)
            assert zone == expected, secondary.name
            if path is not None:
                zone.verify_digest()


@contextmanager
def primary_of(directory: Path, kinds: tuple[type[Secondary], ...], *options: str) -> Iterator[Primary]:
    """maptr with ``ark.arpa.zone`` of the directory, which notifies secondaries of these kinds."""
    require(*(command for kind in kinds for command in kind.commands))
    ports = [free_port() for _ in kinds]
    notify = [f"--notify={HOST}:{port} key:xfr" for port in ports]
    path = directory / "ark.arpa.zone"
    with ExitStack() as stack:
        server = stack.enter_context(Maptr({ORIGIN: path}, KEY, "--transfer=key:xfr", *notify, *options))
        started = [stack.enter_context(kind(server.port, port)) for kind, port in zip(kinds, ports, strict=True)]
        yield Primary(path, server, started)


def serial_at(server: Peer) -> int | None:
    query = dns.message.make_query(ORIGIN, "SOA")
    query.flags &= ~dns.flags.RD
    reply = dns.query.udp(query, server.host, port=server.port, timeout=5)
    return reply.answer[0][0].serial if reply.answer else None


def contents(server: Peer) -> dns.zone.Zone:
    """The zone of a server, by AXFR."""
    zone = dns.zone.Zone(ORIGIN, relativize=False)
    dns.query.inbound_xfr(server.host, zone, port=server.port, timeout=10)
    return zone
