"""Real servers and their zone checkers: BIND, NSD, Knot, PowerDNS, Unbound and maptr.

A server runs as the current user (root or not), in a temporary directory, on a free port of 127.0.0.1 and without
a control channel. It is stopped when its context ends. The test is skipped if the server is not installed.

    with Nsd({"ark.arpa.": path}) as server:
        dns.query.udp(query, server.host, port=server.port)
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from string import Template
from typing import ClassVar, NamedTuple, NoReturn, Self

import dns.exception
import dns.flags
import dns.message
import dns.query
import dns.rcode
import pytest

from tests.support.certificates import write_certificate
from tests.support.command_line import ENDING
from tests.support.ports import HOST as HOST
from tests.support.ports import free_port as free_port
from tests.support.waiting import PATIENCE, until

CONFIGURATIONS = Path(__file__).parent / "configurations"
SOCKET_PATH = 80  # bytes for the directory of a Unix socket, whose path has at most 108 (unix(7))
PROGRAM_FOLDERS = ("/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/lib/systemd", "/usr/local/lib/systemd")
SEARCH = os.pathsep.join((os.environ.get("PATH", os.defpath), *PROGRAM_FOLDERS))
STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ [A-Z]+ (?=maptr: )")  # time and level of a line of maptr's log


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


def run(command: str, *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Checked:
    """Run a program to its end. Skip the test if it is not installed."""
    require(command)
    done = subprocess.run(
        [find(command) or command, *map(str, arguments)],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
        check=False,
    )
    return Checked(done.returncode == 0, done.stdout.decode(errors="replace"))


def output(command: str, *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """The output of a program that must succeed."""
    done = run(command, *arguments, cwd=cwd, env=env)
    assert done.accepted, f"{command} {' '.join(map(str, arguments))}: {done.output}"
    return done.output


def path_with_maptr(folder: Path) -> str:
    """A PATH that finds the maptr under test, through a script in the folder."""
    (folder / "maptr").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m maptr "$@"\n')
    (folder / "maptr").chmod(0o755)
    return os.pathsep.join([str(folder), os.environ["PATH"]])


class Peer:
    """A server with zones by origin, started when its context is entered or by ``start()``.

    It reads the zone files and never writes them, and allows transfers to 127.0.0.1, without recursion and rate
    limiting. ``port`` 0 is any free port. Raises PeerError if a zone's SOA is not answered in PATIENCE.
    """

    name: ClassVar[str]
    commands: ClassVar[tuple[str, ...]]  # the server first, then the checkers
    # Templates, in which $settings and $sections stand for the attributes below, and $zones for ``statements()``.
    arguments: ClassVar[str] = ""  # of the command that runs in the foreground
    files: ClassVar[tuple[str, ...]] = ()  # of the configuration, in CONFIGURATIONS
    zone = ""  # lines for one zone, with $origin and $path
    settings = ""  # more lines for ``options`` of BIND, the default template of Knot, or ``server`` of the others
    sections = ""  # more sections of the configuration
    wrapper: Sequence[str] = ()  # a command that runs the server, in a network namespace for instance
    environment: ClassVar[Mapping[str, str]] = {}  # its own variables

    def __init__(self, zones: Mapping[str, Path | str], port: int = 0) -> None:
        self.zones = {origin: Path(path).resolve() for origin, path in zones.items()}
        self.host = HOST
        self.port = port or free_port()
        self.directory = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._last_log = ""

    def statements(self) -> str:
        """The lines of all zones."""
        lines = Template(self.zone)
        return "".join(lines.substitute(origin=origin, path=path, host=HOST) for origin, path in self.zones.items())

    def values(self) -> dict[str, object]:
        """The values for the configuration's templates."""
        names = ("host", "port", "directory", "settings", "sections")
        return {"zones": self.statements(), **{name: getattr(self, name) for name in names}}

    def configure(self) -> list[str]:
        """Write the configuration into ``self.directory`` and return the command that runs in the foreground."""
        values = self.values()
        for name in self.files:
            (self.directory / name).write_text(Template((CONFIGURATIONS / name).read_text()).substitute(values))
        return [find(self.commands[0]) or self.commands[0], *self.words(self.arguments)]

    def words(self, arguments: str) -> list[str]:
        values = {"port": self.port, "directory": self.directory}
        return [Template(word).substitute(values) for word in arguments.split()]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the server, which leads its own process group."""
        if self._process is None:
            raise PeerError(f"{self.name} is not running")
        return self._process

    def log(self) -> str:
        """The log so far, even after the end of the server."""
        with contextlib.suppress(OSError):
            return (self.directory / "log").read_text(errors="replace")
        return self._last_log

    def start(self) -> Self:
        """Run the server and wait for its zones."""
        try:
            self.launch()
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def launch(self) -> Self:
        """Run the server without waiting for it; after a kill, in the same directory."""
        require(*self.commands)
        if self.directory == Path():
            self.directory = _temporary_directory(f"maptr-{self.name}-")
        command = self.configure()
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self.wrapper, *ENDING, *command],
                cwd=self.directory,
                env={"MAPTR_SERVE_USER": pwd.getpwuid(os.geteuid()).pw_name, **os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def restart_after_kill(self) -> None:
        """End the server with SIGKILL, as a crash does, and start it again on its port."""
        self.stop(signal.SIGKILL)
        self.start()

    def wait_until_ready(self) -> None:
        for query in self.questions():
            self._wait_for_answer(query)

    def questions(self) -> list[dns.message.Message]:
        """The server is ready when it answers these with authority or as a resolver."""
        return [dns.message.make_query(origin, "SOA", flags=0) for origin in self.zones]

    def _wait_for_answer(self, query: dns.message.Message) -> None:
        deadline = time.monotonic() + PATIENCE
        for attempt in count():
            try:
                reply = dns.query.udp(query, self.host, min(0.05 * (attempt + 1), 1.0), self.port)
                if reply.answer and reply.flags & (dns.flags.AA | dns.flags.RA):
                    return
                said = dns.rcode.to_text(reply.rcode())
            except (OSError, dns.exception.DNSException) as error:
                said = str(error) or type(error).__name__
            if (code := self.process.poll()) is not None:
                raise PeerError(f"{self.name} ended with code {code}\n{self.log()}")
            if time.monotonic() > deadline:
                raise PeerError(f"{self.name} does not serve {query.question[0].name}: {said}\n{self.log()}")
            time.sleep(0.01)

    def stop(self, number: int = signal.SIGTERM) -> int | None:
        """End the server and delete its directory. Returns its exit code; a second call does nothing."""
        code = self.kill(number)
        if self.directory != Path():
            self._last_log = self.log()
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = Path()
        return code

    def kill(self, number: int = signal.SIGKILL) -> int | None:
        """End the server and keep its directory, for ``launch``. Returns its exit code."""
        process, self._process = self._process, None
        code = None
        if process is not None:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
            _kill_group(process.pid)
            code = process.wait()
        return code


def processes(group: int) -> list[int]:
    """The living members of a process group, from /proc. Zombies count as dead."""
    living = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended
            stat = (process / "stat").read_text(errors="replace")
            state, _, member_of = stat.rpartition(")")[2].split()[:3]
            if int(member_of) == group and state not in "ZX":
                living.append(int(process.name))
    return living


def _kill_group(group: int) -> None:
    """Send SIGKILL to the rest of a group: NSD's children outlive it for a moment."""
    deadline = time.monotonic() + PATIENCE
    with contextlib.suppress(ProcessLookupError):
        while processes(group) and time.monotonic() < deadline:
            os.killpg(group, signal.SIGKILL)
            time.sleep(0.005)


class Maptr(Peer):
    """maptr itself, as an operator starts it: with zones and an address, or only with the options of the test."""

    name = "maptr"
    commands = (sys.executable,)

    def __init__(self, zones: Mapping[str, Path | str], *options: str, port: int = 0) -> None:
        super().__init__(zones, port)
        self.options = options  # more options of ``maptr serve``

    def configure(self) -> list[str]:
        zones = [f"--zone={origin}={path}" for origin, path in self.zones.items()]
        listen = [f"--listen={self.host}:{self.port}"] if zones else []
        return [sys.executable, "-m", "maptr", "serve", *zones, *listen, *self.options]

    @property
    def lines(self) -> list[str]:
        """The lines of the log, without time and level."""
        return [STAMP.sub("", line) for line in self.log().splitlines()]

    def wait_for(self, pattern: str, after: int = 0) -> re.Match[str]:
        """The first line, of those after some, in which the pattern is found."""

        def matches() -> list[re.Match[str]]:
            return [found for line in self.lines[after:] if (found := re.search(pattern, line))]

        return until(matches, lambda: f"{pattern!r} in {self.lines}")[0]

    def ready(self) -> int:
        """Wait until the zones are served; the port."""
        return int(self.wait_for(r"^maptr: ready, serving .* on 127\.0\.0\.1:(\d+)")[1])

    def hang_up(self) -> int:
        """SIGHUP; the number of lines logged before it."""
        before = len(self.lines)
        self.process.send_signal(signal.SIGHUP)
        return before


class TlsMaptr(Maptr):
    """maptr, also with DNS over TLS; its certificate is ``tls.crt`` in its directory."""

    tls_port = 0

    def configure(self) -> list[str]:
        write_certificate(self.directory)
        self.tls_port = free_port()
        files = (f"--tls-cert={self.directory}/tls.crt", f"--tls-key={self.directory}/tls.key")
        return [*super().configure(), f"--tls-listen={self.host}:{self.tls_port}", *files]


@functools.cache
def bind_lock_file() -> str:
    """The option that keeps BIND from locking a file of the system; since 9.20 there is none."""
    version = re.match(r"BIND 9\.(\d+)", run("named", "-v").output)
    return "    lock-file none;\n" if version and int(version[1]) < 20 else ""


class Bind(Peer):
    """ISC BIND 9, with ``rndc`` off."""

    name = "bind"
    commands = ("named", "named-checkzone")
    arguments = "-g -4 -n 1 -p $port -c $directory/named.conf"
    zone = 'zone "$origin" { type primary; file "$path"; };\n'
    files = ("named.conf",)

    def __init__(self, zones: Mapping[str, Path | str], port: int = 0) -> None:
        super().__init__(zones, port)
        self.settings += bind_lock_file()


class Nsd(Peer):
    """NLnet Labs NSD."""

    name = "nsd"
    commands = ("nsd", "nsd-checkzone")
    arguments = "-d -c $directory/nsd.conf"
    zone = 'zone:\n    name: "$origin"\n    zonefile: "$path"\n    provide-xfr: $host NOKEY\n'
    files = ("nsd.conf",)


class Knot(Peer):
    """CZ.NIC Knot DNS. Its control socket is a file in the temporary directory."""

    name = "knot"
    commands = ("knotd", "kzonecheck")
    arguments = "-c $directory/knot.conf"
    zone = '  - domain: "$origin"\n    file: "$path"\n    acl: transfer\n'
    files = ("knot.conf",)

    def statements(self) -> str:
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
{self.settings}zone:
{super().statements()}"""


class PowerDns(Peer):
    """PowerDNS with its BIND backend."""

    name = "powerdns"
    commands = ("pdns_server", "pdnsutil")
    arguments = "--config-dir=$directory"
    settings = "cache-ttl=0\nnegquery-cache-ttl=0\nquery-cache-ttl=0\n"  # no caches
    sections = "launch=bind\nbind-config=zones.conf\nloglevel=5\n"  # the backend
    zone = 'zone "$origin" { type native; file "$path"; };\n'
    files = (
        "zones.conf",
        "pdns.conf",
    )


class Unbound(Peer):
    """NLnet Labs Unbound, a validating resolver with the test's own servers and trust anchors.

    ``stubs`` are the servers by zone, ``anchors`` DS or DNSKEY records in presentation format. It queries no other.
    """

    name = "unbound"
    commands = ("unbound",)
    arguments = "-d -c $directory/unbound.conf"
    files = ("unbound.conf",)

    def __init__(self, stubs: Mapping[str, Peer], anchors: Sequence[str], settings: str = "") -> None:
        super().__init__({})
        self.stubs = stubs
        self.settings = settings + "".join(f'    trust-anchor: "{anchor}"\n' for anchor in anchors)

    def statements(self) -> str:
        lines = 'stub-zone:\n    name: "{}"\n    stub-addr: {}@{}\n'
        return "".join(lines.format(origin, server.host, server.port) for origin, server in self.stubs.items())

    def questions(self) -> list[dns.message.Message]:
        return [dns.message.make_query("id.server.", "TXT", "CH")]  # answered without querying a server


PEERS: tuple[type[Peer], ...] = (Bind, Nsd, Knot, PowerDns)


def pdnsutil_check_zone(origin: str, path: Path | str) -> Checked:
    """PowerDNS's checker, which only reads zones of a backend.

    It warns about the final dot of every NAPTR record; a zone with warnings is accepted.
    """
    server = PowerDns({origin: path})
    server.directory = _temporary_directory("maptr-pdnsutil-")
    try:
        server.configure()
        return run("pdnsutil", f"--config-dir={server.directory}", "check-zone", origin, cwd=server.directory)
    finally:
        server.stop()


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
