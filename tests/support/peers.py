"""Real servers and their zone checkers: BIND, NSD, Knot, PowerDNS and Unbound.

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
from types import TracebackType
from typing import ClassVar, NamedTuple, Self

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
STARTS = 3  # attempts, in case another program takes the port
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
    missing = [command for command in commands if find(command) is None]
    if not missing:
        return
    reason = f"interop: not installed: {', '.join(missing)}; run scripts/test as root on Debian or Ubuntu"
    if os.environ.get("MAPTR_REQUIRE_PEERS") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


class Peer:
    """A server with zones by origin, started when its context is entered or by ``start()``.

    It reads the zone files and never writes them, and allows transfers to 127.0.0.1, without recursion and rate
    limiting. Raises PeerError if a zone's SOA is not answered in START_SECONDS.
    """

    name: ClassVar[str]
    commands: ClassVar[tuple[str, ...]]  # the server first, then the checkers

    def __init__(self, zones: Mapping[str, Path | str], port: int = 0) -> None:
        self.zones = {dns.name.from_text(origin).to_text(): Path(path).resolve() for origin, path in zones.items()}
        self.host = HOST
        self.port = 0
        self._wanted_port = port  # 0: any free port
        self.directory = Path()
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self) -> list[str]:
        """Write the configuration into ``self.directory`` and return the command that runs in the foreground."""
        raise NotImplementedError

    @classmethod
    def program(cls) -> str:
        """The path of the server. Raises PeerError if it is not installed."""
        path = find(cls.commands[0])
        if path is None:
            raise PeerError(f"{cls.commands[0]} is not installed")
        return path

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
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
        """Run the server and wait for its zones; use another port if the first was taken."""
        for last in range(1, STARTS + 1):
            try:
                self._start()
            except BaseException as error:
                in_use = "in use" in self.log()  # EADDRINUSE, as all servers print it
                self.stop()
                if not (isinstance(error, PeerError) and in_use and last < STARTS):
                    raise
            else:
                break
        return self

    def _start(self) -> None:
        self.port = self._wanted_port or free_port(self.host)
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
        deadline = time.monotonic() + START_SECONDS
        for origin in self.zones:
            self._wait_for(origin, deadline)

    def _wait_for(self, origin: str, deadline: float) -> None:
        assert self._process is not None
        query = dns.message.make_query(origin, "SOA")
        query.flags &= ~dns.flags.RD
        said = "no answer"
        patience = 0.05  # seconds
        while time.monotonic() < deadline:
            if (code := self._process.poll()) is not None:
                raise PeerError(f"{self.name} ended with code {code}\n{self._tail()}")
            try:
                reply = dns.query.udp(query, self.host, port=self.port, timeout=patience)
            except (OSError, dns.exception.DNSException) as error:
                said = str(error) or type(error).__name__
                patience = min(2 * patience, 1.0)
            else:
                if reply.rcode() == dns.rcode.NOERROR and reply.answer and reply.flags & dns.flags.AA:
                    return
                said = dns.rcode.to_text(reply.rcode())
            time.sleep(0.02)
        raise PeerError(f"{self.name} does not serve {origin}: {said}\n{self._tail()}")

    def _tail(self) -> str:
        return "\n".join(self.log().splitlines()[-LOG_TAIL:])

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL to the process group, and delete the directory. May be called twice."""
        process, self._process = self._process, None
        if process is not None:
            end(process)
            _kill_group(process.pid)
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


def end(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM, then SIGKILL."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


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
    said = subprocess.run([Bind.program(), "-v"], capture_output=True, text=True, check=True).stdout
    numbers = re.match(r"BIND (\d+)\.(\d+)\.(\d+)", said)
    if numbers is None:
        raise PeerError(f"named -v says {said!r}")
    return tuple(map(int, numbers.groups()))


def bind_options(peer: Peer) -> str:
    """The lines of ``options`` that keep BIND to the test."""
    no_lock = "    lock-file none;\n" if bind_version() < (9, 20) else ""  # from there on it takes no lock
    return f"""\
    directory "{peer.directory}";
    listen-on port {peer.port} {{ {peer.host}; }};
    listen-on-v6 {{ none; }};
    pid-file none;
{no_lock}    session-keyfile "{peer.directory}/session.key";
    recursion no;
    dnssec-validation no;
    empty-zones-enable no;
    notify no;
    allow-transfer {{ {peer.host}; }};
    max-cache-size 8M;
"""


def nsd_server(peer: Peer) -> str:
    """The lines of ``server:`` that keep NSD to the test; more of them may follow, then ``NSD_QUIET``."""
    return f"""\
server:
    ip-address: {peer.host}@{peer.port}
    port: {peer.port}
    do-ip6: no
    username: ""
    zonesdir: "{peer.directory}"
    zonelistfile: "{peer.directory}/zone.list"
    xfrdfile: "{peer.directory}/xfrd.state"
    xfrdir: "{peer.directory}"
    cookie-secret-file: "{peer.directory}/cookie"
    pidfile: "{peer.directory}/pid"
    database: ""
    server-count: 1
"""


# Where Debian and others put what its SQLite backend needs.
POWERDNS_SCHEMAS = (
    Path("/usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql"),
    Path("/usr/share/doc/pdns-backend-sqlite3/schema.sqlite3.sql"),
    Path("/usr/share/doc/pdns/schema.sqlite3.sql"),
)

# Debian builds NSD with response rate limiting on, which is turned off here.
NSD_QUIET = """\
    rrl-ratelimit: 0
    rrl-whitelist-ratelimit: 0
remote-control:
    control-enable: no
"""


def knot_server(peer: Peer) -> str:
    """The sections that keep Knot to the test."""
    return f"""\
server:
    rundir: "{peer.directory}"
    pidfile: "{peer.directory}/pid"
    listen: {peer.host}@{peer.port}
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
control:
    listen: "{peer.directory}/control"
log:
  - target: stderr
    any: info
database:
    storage: "{peer.directory}/db"
"""


def powerdns_settings(peer: Peer) -> tuple[str, ...]:
    """The lines that keep PowerDNS to the test: no caches, no web server, and no question to its makers at start."""
    return (
        f"local-address={peer.host}",
        f"local-port={peer.port}",
        "daemon=no",
        "guardian=no",
        "webserver=no",
        "api=no",
        "security-poll-suffix=",
        "cache-ttl=0",
        "negquery-cache-ttl=0",
        "query-cache-ttl=0",
        "disable-axfr=no",
        f"allow-axfr-ips={peer.host}",
        "receiver-threads=1",
        "distributor-threads=1",
    )


class Bind(Peer):
    """ISC BIND 9. Its ``rndc`` channel is off; files of its own stay in the temporary directory."""

    name = "bind"
    commands = ("named", "named-checkzone")

    def configure(self) -> list[str]:
        zones = "".join(f'zone "{origin}" {{ type primary; file "{path}"; }};\n' for origin, path in self.zones.items())
        config = self.directory / "named.conf"
        config.write_text(
            f"""\
options {{
{bind_options(self)}}};
controls {{ }};
{zones}"""
        )
        return [self.program(), "-g", "-4", "-n", "1", "-p", str(self.port), "-c", str(config)]


class Nsd(Peer):
    """NLnet Labs NSD."""

    name = "nsd"
    commands = ("nsd", "nsd-checkzone")

    def configure(self) -> list[str]:
        zones = "".join(
            f'zone:\n    name: "{origin}"\n    zonefile: "{path}"\n    provide-xfr: {self.host} NOKEY\n'
            for origin, path in self.zones.items()
        )
        config = self.directory / "nsd.conf"
        config.write_text(
            f"""\
{nsd_server(self)}    tcp-count: 100
{NSD_QUIET}{zones}"""
        )
        return [self.program(), "-d", "-c", str(config)]


class Knot(Peer):
    """CZ.NIC Knot DNS. Its control socket is a file in the temporary directory."""

    name = "knot"
    commands = ("knotd", "kzonecheck")

    def configure(self) -> list[str]:
        zones = "".join(
            f'  - domain: "{origin}"\n    file: "{path}"\n    acl: transfer\n' for origin, path in self.zones.items()
        )
        config = self.directory / "knot.conf"
        config.write_text(
            f"""\
{knot_server(self)}acl:
  - id: transfer
    address: {self.host}
    action: transfer
template:
  - id: default
    storage: "{self.directory}"
    zonefile-sync: -1
    zonefile-load: whole
    journal-content: none
zone:
{zones}"""
        )
        return [self.program(), "-c", str(config)]


class PowerDns(Peer):
    """PowerDNS with its BIND backend."""

    name = "powerdns"
    commands = ("pdns_server", "pdnsutil")

    def configure(self) -> list[str]:
        named = "".join(
            f'zone "{origin.rstrip(".") or "."}" {{ type native; file "{path}"; }};\n'
            for origin, path in self.zones.items()
        )
        (self.directory / "named.conf").write_text(f'options {{ directory "{self.directory}"; }};\n{named}')
        settings = (
            "launch=bind",
            f"bind-config={self.directory}/named.conf",
            f"socket-dir={self.directory}",
            *powerdns_settings(self),
            "loglevel=5",
        )
        (self.directory / "pdns.conf").write_text("".join(f"{line}\n" for line in settings))
        return [self.program(), f"--config-dir={self.directory}"]


class Unbound(Peer):
    """NLnet Labs Unbound, a validating resolver of the test's own servers and trust anchors.

    ``stubs`` are the servers by zone, ``anchors`` DS or DNSKEY records in presentation format. It queries no other.
    """

    name = "unbound"
    commands = ("unbound",)

    def __init__(self, stubs: Mapping[str, Peer], anchors: Sequence[str]) -> None:
        super().__init__({})
        self.stubs = {dns.name.from_text(origin).to_text(): server for origin, server in stubs.items()}
        self.anchors = tuple(anchors)

    def configure(self) -> list[str]:
        stubs = "".join(
            f'stub-zone:\n    name: "{origin}"\n    stub-addr: {server.host}@{server.port}\n'
            for origin, server in self.stubs.items()
        )
        anchors = "".join(f'    trust-anchor: "{anchor}"\n' for anchor in self.anchors)
        config = self.directory / "unbound.conf"
        config.write_text(
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
    val-log-level: 2
{anchors}remote-control:
    control-enable: no
{stubs}forward-zone:
    name: "."
    forward-addr: {self.host}@9
"""
        )
        return [self.program(), "-d", "-c", str(config)]

    def _start(self) -> None:
        super()._start()
        self._wait_until_it_speaks(time.monotonic() + START_SECONDS)

    def _wait_until_it_speaks(self, deadline: float) -> None:
        query = dns.message.make_query("id.server.", "TXT", "CH")  # answered without asking anybody
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, dns.exception.DNSException):
                dns.query.udp(query, self.host, port=self.port, timeout=0.2)
                return
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.02)
        raise PeerError(f"{self.name} does not answer\n{self._tail()}")


PEERS: tuple[type[Peer], ...] = (Bind, Nsd, Knot, PowerDns)


def make_powerdns_database(path: Path) -> None:
    """An empty database of PowerDNS's SQLite backend."""
    schema = next((path for path in POWERDNS_SCHEMAS if path.is_file()), None)
    if schema is None:
        raise PeerError("the SQLite backend of PowerDNS is not installed")
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript(schema.read_text())


class Checked(NamedTuple):
    """The result of a zone checker: whether it accepts the zone, and its output."""

    accepted: bool
    output: str


def named_checkzone(origin: str, path: Path | str) -> Checked:
    """BIND's checker; ``-i local`` keeps it from looking up name servers outside the zone."""
    return check("named-checkzone", "-i", "local", origin, str(path))


def nsd_checkzone(origin: str, path: Path | str) -> Checked:
    """NSD's checker."""
    return check("nsd-checkzone", origin, str(path))


def kzonecheck(origin: str, path: Path | str) -> Checked:
    """Knot's checker."""
    return check("kzonecheck", "-o", origin, str(path))


def pdnsutil_check_zone(origin: str, path: Path | str) -> Checked:
    """PowerDNS's checker. It reads zones of a backend only, so the zone is loaded into SQLite.

    It warns about the final dot of every NAPTR record; warnings do not refuse a zone.
    """
    directory = _temporary_directory("maptr-pdnsutil-")
    zone = origin.rstrip(".") or "."
    lines = ("launch=gsqlite3", f"gsqlite3-database={directory}/zones", f"socket-dir={directory}")
    try:
        make_powerdns_database(directory / "zones")
        (directory / "pdns.conf").write_text("".join(f"{line}\n" for line in lines))
        loaded = check("pdnsutil", f"--config-dir={directory}", "load-zone", zone, str(path))
        if not loaded.accepted:
            return loaded
        return check("pdnsutil", f"--config-dir={directory}", "check-zone", zone)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


CHECKERS: Mapping[str, Callable[[str, Path | str], Checked]] = {
    "named-checkzone": named_checkzone,
    "nsd-checkzone": nsd_checkzone,
    "kzonecheck": kzonecheck,
    "pdnsutil": pdnsutil_check_zone,
}


def check(command: str, *arguments: object) -> Checked:
    """Run a checker: the exit code 0 accepts the zone."""
    done = subprocess.run(
        [find(command) or command, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    return Checked(done.returncode == 0, done.stdout.decode(errors="replace"))


def _temporary_directory(prefix: str) -> Path:
    """A directory with a path short enough for Unix sockets, even if TMPDIR is long."""
    parent = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix=prefix, dir=parent if len(parent) < SOCKET_PATH - 30 else "/tmp"))
