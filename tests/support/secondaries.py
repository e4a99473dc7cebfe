"""Real servers as secondaries of maptr, configured with the lines shown in docs/admin.md.

A test adds only a temporary directory, a port, one process, no control channel, and permission to transfer the zone.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar

import dns.message
import dns.query
import dns.zone

from tests.support.peers import HOST, Bind, Knot, Maptr, Nsd, Peer, PowerDns, output, skip_or_fail
from tests.support.waiting import PATIENCE, until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "admin.md"
SECRET = "dGhpcyBpcyBhIHRlc3Qga2V5LCBrbm93biB0byBhbGwhISE="  # 32 bytes
KEY = f"--key=xfr=hmac-sha256:{SECRET}"
ORIGIN = "ark.arpa."
CATALOG = "catalog.invalid."
POWERDNS_SCHEMAS = (  # paths in Debian and elsewhere
    Path("/usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql"),
    Path("/usr/share/doc/pdns-backend-sqlite3/schema.sqlite3.sql"),
    Path("/usr/share/doc/pdns/schema.sqlite3.sql"),
)


class Secondary(Peer):
    """A secondary of the primary at ``primary_host`` and ``primary_port``. It is ready when it has the zone."""

    snippet: ClassVar[str]  # the language of its code block in the page
    before: ClassVar[str] = ""  # a catalog's snippet replaces the rest of this one, from the line ``zone``
    primary_host = HOST
    secret = SECRET

    def __init__(self, primary_port: int, port: int = 0) -> None:
        super().__init__({ORIGIN: Path()}, port)
        self.primary_port = primary_port

    def documented(self, language: str = "") -> str:
        """The page's code block in this language, with the test's addresses and secret."""
        text = re.split("^zone", block(self.before), maxsplit=1, flags=re.MULTILINE)[0] if self.before else ""
        text += block(language or self.snippet)
        text = text.replace("192.0.2.1", self.primary_host).replace("SECRET", self.secret)
        return re.sub(r"\b5300\b", str(self.primary_port), text)


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return str(found)


class NsdSecondary(Secondary, Nsd):
    snippet = "nsd"
    settings = "    verbosity: 2\n    xfrd-reload-timeout: 0\n"

    def statements(self) -> str:
        return f"{self.documented()}\n    provide-xfr: {self.host} NOKEY\n"


class KnotSecondary(Secondary, Knot):
    snippet = "knot"

    def statements(self) -> str:
        (self.directory / "db").mkdir(exist_ok=True)  # Knot 3.2 crashes if it cannot create the database of a catalog
        storage = f'    storage: "{self.directory}"\n'
        lines = re.sub(r"(  - (domain: .*|id: member)\n)", rf"\1{storage}", self.documented())
        lines = lines.replace("acl: maptr-may-notify", "acl: [maptr-may-notify, test-may-transfer]")
        return f"acl:\n  - id: test-may-transfer\n    address: {self.host}\n    action: transfer\n{lines}"


class KnotCatalogSecondary(KnotSecondary):
    """Configured with the catalog zone only, in which it finds the zone."""

    snippet, before = "knot-catalog", "knot"


class BindSecondary(Secondary, Bind):
    snippet = "bind"

    def statements(self) -> str:
        """The zones; the page's options join the test's."""
        lines = self.documented()
        if options := re.search(r"^options \{\n(.*?)^\};\n", lines, re.MULTILINE | re.DOTALL):
            self.settings += options[1]
            lines = lines.replace(options[0], "")
        return lines


class BindCatalogSecondary(BindSecondary):
    """Configured with the catalog zone only, in which it finds the zone."""

    snippet, before = "bind-catalog", "bind"


class PowerDnsSecondary(Secondary, PowerDns):
    snippet = "pdns"
    settings = PowerDns.settings + (
        "zone-cache-refresh-interval=0\nzone-metadata-cache-ttl=0\nxfr-cycle-interval=1\nloglevel=6\n"
    )

    def configure(self) -> list[str]:
        self.sections = self.documented()
        schema = next((path for path in POWERDNS_SCHEMAS if path.is_file()), None)
        if schema is None:
            skip_or_fail("interop: the SQLite backend of PowerDNS is not installed")
        with contextlib.closing(sqlite3.connect(self.directory / "pdns.sqlite3")) as database:
            database.executescript(schema.read_text())
        command = super().configure()
        for line in self.documented("pdnsutil").splitlines():
            program, *arguments = line.split()
            output(program, f"--config-dir={self.directory}", *arguments, cwd=self.directory)
        return command


SECONDARIES: tuple[type[Secondary], ...] = (BindSecondary, NsdSecondary, KnotSecondary, PowerDnsSecondary)


class Primary:
    """maptr with the test's zone file, and its secondaries."""

    def __init__(self, path: Path, server: Maptr, secondaries: list[Secondary]) -> None:
        self.path, self.server, self.secondaries = path, server, secondaries
        self.log = server.log

    def publish(self, text: str) -> None:
        """Replace the zone file and send SIGHUP."""
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.replace(self.path)
        self.server.hang_up()

    def wait_for(self, serial: int, *kinds: type[Secondary]) -> None:
        """Wait until the secondaries, or those of the kinds, have the serial."""
        for secondary in self.secondaries:
            if isinstance(secondary, kinds or Secondary):
                wait_for_serial(secondary, serial, self.log)

    def check(self, path: Path | None = None) -> None:
        """Check that all secondaries have the file's zone, record for record, with a correct digest.

        They also answer queries for every name: PowerDNS may transfer records that it does not answer.
        """
        expected = dns.zone.from_file(str(path or self.path), ORIGIN, relativize=False)
        for secondary in self.secondaries:
            wait_for_zone(secondary, expected)
            if path is not None:
                contents(secondary).verify_digest()
            check_answers(secondary, expected)


def check_answers(secondary: Peer, expected: dns.zone.Zone) -> None:
    """Check that the secondary answers every RRset of the zone, except those at or below delegations and those of
    DNSSEC."""
    cuts = [name for name in expected if name != expected.origin and expected.get_rdataset(name, "NS")]
    for name, rdataset in expected.iterate_rdatasets():
        if any(name.is_subdomain(cut) for cut in cuts) or rdataset.rdtype in (dns.rdatatype.RRSIG, dns.rdatatype.NSEC):
            continue
        query = dns.message.make_query(name, rdataset.rdtype, flags=0)
        reply, _ = dns.query.udp_with_fallback(query, secondary.host, port=secondary.port, timeout=5)
        found = [set(rrset) for rrset in reply.answer if rrset.rdtype == rdataset.rdtype]
        assert found == [set(rdataset)], f"{secondary.name}: {name} {dns.rdatatype.to_text(rdataset.rdtype)}"


@contextmanager
def primary_of(directory: Path, kinds: tuple[type[Secondary], ...], *options: str) -> Iterator[Primary]:
    """maptr with the directory's ``ark.arpa.zone``, which notifies secondaries of these kinds."""
    path = directory / "ark.arpa.zone"
    server = Maptr({ORIGIN: path}, KEY, "--transfer=key:xfr", *options)
    secondaries = [kind(server.port) for kind in kinds]
    server.options += tuple(f"--notify={HOST}:{secondary.port} key:xfr" for secondary in secondaries)
    with ExitStack() as stack:
        stack.enter_context(server)
        yield Primary(path, server, [stack.enter_context(secondary) for secondary in secondaries])


def serial_at(server: Peer, patience: float = 5.0, origin: str = ORIGIN) -> int | None:
    query = dns.message.make_query(origin, "SOA", flags=0)
    reply = dns.query.udp(query, server.host, port=server.port, timeout=patience)
    return reply.answer[0][0].serial if reply.answer else None


def wait_for_serial(peer: Peer, serial: int, log: Callable[[], str] = str) -> None:
    """Wait until a peer has the serial; else the test fails with its log, and another one."""
    until(lambda: serial_at(peer) == serial, lambda: f"{peer.name} is at {serial_at(peer)}\n{peer.log()}\n{log()}")


def wait_for_zone(peer: Peer, expected: dns.zone.Zone) -> None:
    """Wait until a peer has the zone: an ending NSD process may still send the previous one over TCP."""
    until(lambda: contents(peer) == expected, f"{peer.name} has the zone of the file")


def contents(server: Peer) -> dns.zone.Zone:
    """A server's zone, by AXFR."""
    zone = dns.zone.Zone(ORIGIN, relativize=False)
    dns.query.inbound_xfr(server.host, zone, port=server.port, timeout=PATIENCE)
    return zone
