"""Real servers and their zone checkers: BIND, NSD, Knot, PowerDNS, Unbound and maptr.

A server runs as the current user (root or not), in a temporary directory, on a free port of 127.0.0.1 and without
a control channel. It is stopped when its context ends.

    with Nsd({"ark.arpa.": path}) as server:
        dns.query.udp(query, server.host, port=server.port)
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, NoReturn, Self

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import pytest

from tests.support.ports import HOST as HOST
from tests.support.ports import free_port as free_port

START_SECONDS = 30.0  # until all zones are answered; less than one on an idle machine
STOP_SECONDS = 10.0  # between SIGTERM and SIGKILL
LOG_TAIL = 40  # lines of the log shown in an error
SOCKET_PATH = 80  # bytes for the directory of a Unix socket, whose path has at most 108 (unix(7))
SEARCH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", "/usr/local/sbin"))


class PeerError(Exception):
    """A server did not start, or does not serve its zones. The message ends with its log."""


def find(command: str) -> str | None:
    """The path of a command, also in the sbin directories, which a user's PATH often lacks."""
    return shutil.which(command, path=SEARCH)


def require(*commands: str) -> None:
    """Skip the test unless all commands are installed, or fail it if MAPTR_REQUIRE_PEERS=1."""
    if missing := [command for command in commands if find(command) is None]:
        skip_or_fail(f"interop: not installed: {', '.join(missing)}; run scripts/test as root on Debian or Ubuntu")


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the test, or fail it if MAPTR_REQUIRE_PEERS=1."""
    if os.environ.get("MAPTR_REQUIRE_PEERS") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


class Checked(NamedTuple):
    """The result of a program: whether it exits with 0 (a zone checker accepts the zone), and its output."""

    accepted: bool
    output: str


def run(command: str, *arguments: object, cwd: Path | None = None, text: str = "") -> Checked:
    """Run a program to its end; ``text`` is its standard input."""
    done = subprocess.run(
        [find(command) or command, *map(str, arguments)],
        cwd=cwd,
        input=text.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    return Checked(done.returncode == 0, done.stdout.decode(errors="replace"))


class Peer:
    """A server with zones by origin, started when its context is entered or by ``start()``.

    It reads the zone files and never writes them, and allows transfers to 127.0.0.1, without recursion and rate
    limiting. ``port`` 0 is any free port. Raises PeerError if a zone's SOA is not answered in START_SECONDS.
    """

    name: ClassVar[str]
    commands: ClassVar[tuple[str, ...]]  # the server first, then the checkers
    settings = ""  # more lines for the section ``options`` of BIND or ``server`` of the others
    sections = ""  # more sections of the configuration

    def __init__(self, zones: Mapping[str, Path | str], port: int = 0) -> None:
        self.zones = {dns.name.from_text(origin).to_text(): Path(path).resolve() for origin, path in zones.items()}
        self.host = HOST
        self.port = port
        self.directory = Path()
        self._fixed_port = port
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self) -> list[str]:
        """Write the configuration into ``self.directory`` and return the command that runs in the foreground."""
        raise NotImplementedError

    def for_each_zone(self, template: str) -> str:
        """The template for each zone, with ``{origin}`` and ``{path}``."""
        return "".join(template.format(origin=origin, path=path) for origin, path in self.zones.items())

    def write(self, name: str, text: str) -> Path:
        """Write a file of the configuration."""
        path = self.directory / name
        path.write_text(text)
        return path

    @classmethod
    def program(cls) -> str:
        """The path of the server. Raises PeerError if it is not installed."""
        path = find(cls.commands[0])
        if path is None:
            raise PeerError(f"{cls.commands[0]} is not installed")
        return path

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process ID of the server, which leads its own process group."""
        if self._process is None:
            raise PeerError(f"{self.name} is not running")
        return self._process.pid

    def log(self) -> str:
        """The log so far."""
        with contextlib.suppress(OSError):
            return (self.directory / "log").read_text(errors="replace")
        return ""

    def start(self) -> Self:
        """Run the server and wait for its zones."""
        try:
            self.launch()
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def launch(self) -> None:
        """Run the server without waiting for it."""
        self.port = self._fixed_port or free_port(self.host)
        self.directory = _temporary_directory(f"maptr-{self.name}-")
        command = self.configure()
        with (self.directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def restart_after_kill(self) -> None:
        """End the server with SIGKILL, as a crash does, and start it again on its port."""
        self._fixed_port = self.port
        os.kill(self.pid, signal.SIGKILL)
        self.stop()
        self.start()

    def questions(self) -> list[dns.message.Message]:
        """The server is ready when it answers these."""
        found: list[dns.message.Message] = [dns.message.make_query(origin, "SOA") for origin in self.zones]
        for query in found:
            query.flags &= ~dns.flags.RD
        return found

    def is_ready(self, reply: dns.message.Message) -> bool:
        return reply.rcode() == dns.rcode.NOERROR and bool(reply.answer) and bool(reply.flags & dns.flags.AA)

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        for query in self.questions():
            said = "no answer"
            patience = 0.05  # seconds
            while True:
                if (code := self._process.poll()) is not None:
                    raise PeerError(f"{self.name} ended with code {code}\n{self._tail()}")
                try:
                    reply = dns.query.udp(query, self.host, port=self.port, timeout=patience)
                except (OSError, dns.exception.DNSException) as error:
                    said = str(error) or type(error).__name__
                    patience = min(2 * patience, 1.0)
                else:
                    if self.is_ready(reply):
                        break
                    said = dns.rcode.to_text(reply.rcode())
                if time.monotonic() > deadline:
                    raise PeerError(f"{self.name} does not serve {query.question[0].name}: {said}\n{self._tail()}")
                time.sleep(0.02)

    def _tail(self) -> str:
        return "\n".join(self.log().splitlines()[-LOG_TAIL:])

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL to the process group, and delete the directory. May be called twice."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            _kill_group(process.pid)
            process.wait()
        if self.directory != Path():
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = Path()


def processes(group: int) -> list[int]:
    """The living members of a process group, from /proc. Zombies count as dead."""
    living = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # the process has ended
            stat = (process / "stat").read_text(errors="replace")
            state, _, member_of = stat.rpartition(")")[2].split()[:3]
            if int(member_of) == group and state not in "ZX":
                living.append(int(process.name))
    return living


def _kill_group(group: int) -> None:
    """Send SIGKILL to the rest of a group: NSD's children outlive it for a moment."""
    deadline = time.monotonic() + STOP_SECONDS
    with contextlib.suppress(ProcessLookupError):
        while processes(group) and time.monotonic() < deadline:
            os.killpg(group, signal.SIGKILL)
            time.sleep(0.005)


class Maptr(Peer):
    """maptr itself, as an operator starts it."""

    name = "maptr"
    commands = (sys.executable,)

    def __init__(self, zones: Mapping[str, Path | str], *options: str, port: int = 0) -> None:
        super().__init__(zones, port)
        self.options = options  # more options of ``maptr serve``

    def configure(self) -> list[str]:
        zones = [f"--zone={origin}={path}" for origin, path in self.zones.items()]
        return [sys.executable, "-m", "maptr", "serve", *zones, f"--listen={self.host}:{self.port}", *self.options]


@functools.cache
def bind_version() -> tuple[int, ...]:
    """The version of the installed BIND, such as (9, 20, 4)."""
    said = run(Bind.program(), "-v").output
    numbers = re.match(r"BIND (\d+)\.(\d+)\.(\d+)", said)
    if numbers is None:
        raise PeerError(f"named -v says {said!r}")
    return tuple(map(int, numbers.groups()))


class Bind(Peer):
    """ISC BIND 9, with ``rndc`` off."""

    name = "bind"
    commands = ("named", "named-checkzone")

    def options(self) -> str:
        """The lines of ``options`` that keep BIND to the test."""
        no_lock = "    lock-file none;\n" if bind_version() < (9, 20) else ""  # later releases have no lock file
        return f"""\
    directory "{self.directory}";
    listen-on port {self.port} {{ {self.host}; }};
    listen-on-v6 {{ none; }};
    pid-file none;
{no_lock}    session-keyfile "{self.directory}/session.key";
    recursion no;
    dnssec-validation no;
    empty-zones-enable no;
    notify no;
    allow-transfer {{ {self.host}; }};
    max-cache-size 8M;
{self.settings}"""

    def statements(self) -> str:
        """The configuration with the zones."""
        zones = self.for_each_zone('zone "{origin}" {{ type primary; file "{path}"; }};\n')
        return f"options {{\n{self.options()}}};\n{self.sections}{zones}"

    def configure(self) -> list[str]:
        config = self.write("named.conf", f"controls {{ }};\n{self.statements()}")
        return [self.program(), "-g", "-4", "-n", "1", "-p", str(self.port), "-c", str(config)]


class Nsd(Peer):
    """NLnet Labs NSD."""

    name = "nsd"
    commands = ("nsd", "nsd-checkzone")

    def statements(self) -> str:
        """The configuration of the zones."""
        return self.for_each_zone(
            f'zone:\n    name: "{{origin}}"\n    zonefile: "{{path}}"\n    provide-xfr: {self.host} NOKEY\n'
        )

    def configure(self) -> list[str]:
        config = self.write(
            "nsd.conf",
            f"""\
server:
    ip-address: {self.host}@{self.port}
    port: {self.port}
    do-ip6: no
    username: ""
    zonesdir: "{self.directory}"
    zonelistfile: "{self.directory}/zone.list"
    xfrdfile: "{self.directory}/xfrd.state"
    xfrdir: "{self.directory}"
    cookie-secret-file: "{self.directory}/cookie"
    pidfile: "{self.directory}/pid"
    database: ""
    server-count: 1
    tcp-count: 100
    # Debian builds NSD with response rate limiting on.
    rrl-ratelimit: 0
    rrl-whitelist-ratelimit: 0
{self.settings}remote-control:
    control-enable: no
{self.statements()}""",
        )
        return [self.program(), "-d", "-c", str(config)]


class Knot(Peer):
    """CZ.NIC Knot DNS. Its control socket is a file in the temporary directory."""

    name = "knot"
    commands = ("knotd", "kzonecheck")
    template = ""  # more lines for the default template

    def statements(self) -> str:
        """The configuration of the zones."""
        zones = self.for_each_zone('  - domain: "{origin}"\n    file: "{path}"\n    acl: transfer\n')
        return f"""\
acl:
  - id: transfer
    address: {self.host}
    action: transfer
template:
  - id: default
    storage: "{self.directory}"
    zonefile-sync: -1
    zonefile-load: whole
    journal-content: none
{self.template}zone:
{zones}"""

    def configure(self) -> list[str]:
        config = self.write(
            "knot.conf",
            f"""\
server:
    rundir: "{self.directory}"
    pidfile: "{self.directory}/pid"
    listen: {self.host}@{self.port}
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
control:
    listen: "{self.directory}/control"
log:
  - target: stderr
    any: info
database:
    storage: "{self.directory}/db"
{self.sections}{self.statements()}""",
        )
        return [self.program(), "-c", str(config)]


class PowerDns(Peer):
    """PowerDNS with its BIND backend."""

    name = "powerdns"
    commands = ("pdns_server", "pdnsutil")
    settings = "cache-ttl=0\nnegquery-cache-ttl=0\nquery-cache-ttl=0\n"  # no caches

    def backend(self) -> str:
        """The settings that name the zones."""
        zones = "".join(
            f'zone "{origin.rstrip(".") or "."}" {{ type native; file "{path}"; }};\n'
            for origin, path in self.zones.items()
        )
        config = self.write("named.conf", f'options {{ directory "{self.directory}"; }};\n{zones}')
        return f"launch=bind\nbind-config={config}\nloglevel=5\n"

    def configure(self) -> list[str]:
        self.write(
            "pdns.conf",
            f"""\
{self.backend()}socket-dir={self.directory}
local-address={self.host}
local-port={self.port}
daemon=no
guardian=no
webserver=no
api=no
security-poll-suffix=
disable-axfr=no
allow-axfr-ips={self.host}
receiver-threads=1
distributor-threads=1
{self.settings}""",
        )
        return [self.program(), f"--config-dir={self.directory}"]


class Unbound(Peer):
    """NLnet Labs Unbound, a validating resolver of the test's own servers and trust anchors.

    ``stubs`` are the servers by zone, ``anchors`` DS or DNSKEY records in presentation format. It queries no other.
    """

    name = "unbound"
    commands = ("unbound",)

    def __init__(self, stubs: Mapping[str, Peer], anchors: Sequence[str], settings: str = "") -> None:
        super().__init__({})
        self.stubs = {dns.name.from_text(origin).to_text(): server for origin, server in stubs.items()}
        self.anchors = tuple(anchors)
        self.settings = settings

    def configure(self) -> list[str]:
        stubs = "".join(
            f'stub-zone:\n    name: "{origin}"\n    stub-addr: {server.host}@{server.port}\n'
            for origin, server in self.stubs.items()
        )
        anchors = "".join(f'    trust-anchor: "{anchor}"\n' for anchor in self.anchors)
        config = self.write(
            "unbound.conf",
            f"""\
server:
    interface: {self.host}
    port: {self.port}
    do-ip6: no
    username: ""
    chroot: ""
    directory: "{self.directory}"
    pidfile: "{self.directory}/pid"
    use-syslog: no
    num-threads: 1
    do-not-query-localhost: no
    module-config: "validator iterator"
    aggressive-nsec: no
    trust-anchor-signaling: no
    root-key-sentinel: no
    ede: yes
    val-log-level: 2
{self.settings}{anchors}remote-control:
    control-enable: no
{stubs}forward-zone:
    name: "."
    forward-addr: {self.host}@9
""",
        )
        return [self.program(), "-d", "-c", str(config)]

    def questions(self) -> list[dns.message.Message]:
        return [dns.message.make_query("id.server.", "TXT", "CH")]  # answered without querying a server

    def is_ready(self, reply: dns.message.Message) -> bool:
        return True


PEERS: tuple[type[Peer], ...] = (Bind, Nsd, Knot, PowerDns)


# Paths in Debian and elsewhere.
POWERDNS_SCHEMAS = (
    Path("/usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql"),
    Path("/usr/share/doc/pdns-backend-sqlite3/schema.sqlite3.sql"),
    Path("/usr/share/doc/pdns/schema.sqlite3.sql"),
)


def make_powerdns_database(path: Path) -> None:
    """An empty database of PowerDNS's SQLite backend."""
    schema = next((path for path in POWERDNS_SCHEMAS if path.is_file()), None)
    if schema is None:
        raise PeerError("the SQLite backend of PowerDNS is not installed")
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript(schema.read_text())


def pdnsutil_check_zone(origin: str, path: Path | str) -> Checked:
    """PowerDNS's checker. It reads zones of a backend only, so the zone is loaded into SQLite.

    It warns about the final dot of every NAPTR record; warnings do not refuse a zone.
    """
    directory = _temporary_directory("maptr-pdnsutil-")
    zone = origin.rstrip(".") or "."
    try:
        make_powerdns_database(directory / "zones")
        (directory / "pdns.conf").write_text(
            f"launch=gsqlite3\ngsqlite3-database={directory}/zones\nsocket-dir={directory}\n"
        )
        loaded = run("pdnsutil", f"--config-dir={directory}", "load-zone", zone, path)
        return run("pdnsutil", f"--config-dir={directory}", "check-zone", zone) if loaded.accepted else loaded
    finally:
        shutil.rmtree(directory, ignore_errors=True)


CHECKERS: Mapping[str, Callable[[str, Path | str], Checked]] = {
    # ``-i local`` keeps BIND's checker from looking up name servers outside the zone.
    "named-checkzone": lambda origin, path: run("named-checkzone", "-i", "local", origin, path),
    "nsd-checkzone": lambda origin, path: run("nsd-checkzone", origin, path),
    "kzonecheck": lambda origin, path: run("kzonecheck", "-o", origin, path),
    "pdnsutil": pdnsutil_check_zone,
}
"""Zone checkers by their command."""


def _temporary_directory(prefix: str) -> Path:
    """A directory with a path short enough for Unix sockets, even if TMPDIR is long."""
    parent = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix=prefix, dir=parent if len(parent) < SOCKET_PATH - 30 else "/tmp"))
