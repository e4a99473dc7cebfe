"""Real servers as secondaries of maptr, configured with the lines shown in docs/transfers.md.

A test adds only a temporary directory, a port, one process, no control channel, and permission to transfer the zone.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import ClassVar

from tests.support.peers import (
    NSD_QUIET,
    Bind,
    Knot,
    Nsd,
    Peer,
    PeerError,
    PowerDns,
    bind_options,
    find,
    knot_server,
    make_powerdns_database,
    nsd_server,
    powerdns_settings,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "transfers.md"
SECRET = "dGhpcyBpcyBhIHRlc3Qga2V5LCBrbm93biB0byBhbGwhISE="  # 32 bytes
ORIGIN = "ark.arpa."
CATALOG = "catalog.invalid."


def snippet(language: str) -> str:
    """The code block of the page in this language."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if len(blocks) != 1:
        raise ValueError(f"{len(blocks)} blocks of {language} in {PAGE.name}")
    return str(blocks[0])


class Secondary(Peer):
    """A secondary of the primary at ``host`` and ``primary_port``. It is ready when it has the zone."""

    snippets: ClassVar[tuple[str, ...]]
    documented = ORIGIN

    def __init__(self, primary_port: int, port: int = 0) -> None:
        super().__init__({ORIGIN: Path()}, port)
        self.primary_port = primary_port

    def documented_lines(self, language: str) -> str:
        """The lines of the page with the addresses and the secret of the test."""
        text = snippet(language).replace("192.0.2.1", self.host).replace("SECRET", SECRET)
        return re.sub(r"\b5300\b", str(self.primary_port), text)


class NsdSecondary(Secondary):
    name = "nsd"
    commands = Nsd.commands
    snippets = ("nsd",)

    def configure(self) -> list[str]:
        config = self.directory / "nsd.conf"
        config.write_text(
            f"""\
{nsd_server(self)}    verbosity: 2
    xfrd-reload-timeout: 0
{NSD_QUIET}{self.documented_lines("nsd")}
    provide-xfr: {self.host} NOKEY
"""
        )
        return [self.program(), "-d", "-c", str(config)]


class KnotSecondary(Secondary):
    name = "knot"
    commands = Knot.commands
    snippets = ("knot",)

    def configure(self) -> list[str]:
        (self.directory / "db").mkdir()  # Knot 3.2 crashes where a catalog's database cannot be made
        lines = self.documented_lines(self.snippets[0])
        storage = f'    storage: "{self.directory}"\n'
        lines = lines.replace("  - id: member\n", "  - id: member\n" + storage)
        lines = re.sub(r"(  - domain: .*\n)", rf"\1{storage}", lines)
        lines = lines.replace("acl: maptr-may-notify", "acl: [maptr-may-notify, test-may-look]")
        config = self.directory / "knot.conf"
        config.write_text(
            f"""\
{knot_server(self)}acl:
  - id: test-may-look
    address: {self.host}
    action: transfer
{lines}"""
        )
        return [self.program(), "-c", str(config)]


class KnotCatalogSecondary(KnotSecondary):
    """Configured with the catalog zone only, in which it finds the zone."""

    snippets = ("knot-catalog",)


class BindSecondary(Secondary):
    name = "bind"
    commands = Bind.commands
    snippets = ("bind",)

    def configure(self) -> list[str]:
        lines = self.documented_lines(self.snippets[0])
        own = bind_options(self)
        if "options {\n" in lines:
            lines = lines.replace("options {\n", "options {\n" + own)
        else:
            lines = f"options {{\n{own}}};\n{lines}"
        config = self.directory / "named.conf"
        config.write_text(f"controls {{ }};\n{lines}")
        return [self.program(), "-g", "-4", "-n", "1", "-p", str(self.port), "-c", str(config)]


class BindCatalogSecondary(BindSecondary):
    """Configured with the catalog zone only, in which it finds the zone."""

    snippets = ("bind-catalog",)


class PowerDnsSecondary(Secondary):
    name = "powerdns"
    commands = PowerDns.commands
    snippets = ("pdns", "pdnsutil")

    def configure(self) -> list[str]:
        (self.directory / "pdns.conf").write_text(
            self.documented_lines("pdns").replace("=pdns.sqlite3", f"={self.directory}/pdns.sqlite3")
            + "\n".join(
                (
                    f"socket-dir={self.directory}",
                    *powerdns_settings(self),
                    "zone-cache-refresh-interval=0",
                    "zone-metadata-cache-ttl=0",
                    "xfr-cycle-interval=1",
                    "loglevel=6",
                    "",
                )
            )
        )
        make_powerdns_database(self.directory / "pdns.sqlite3")
        for line in self.documented_lines("pdnsutil").splitlines():
            command, *arguments = line.split()
            done = subprocess.run(
                [find(command) or command, f"--config-dir={self.directory}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=30,
                check=False,
            )
            if done.returncode:
                raise PeerError(f"{line}\n{done.stdout.decode(errors='replace')}")
        return [self.program(), f"--config-dir={self.directory}"]


SECONDARIES: tuple[type[Secondary], ...] = (BindSecondary, NsdSecondary, KnotSecondary, PowerDnsSecondary)
