"""The machines to which accidents happen: a primary of each kind, with two zones, and its secondary."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import dns.dnssec
import dns.exception
import dns.message
import dns.name
import dns.query
import dns.rdatatype
import dns.rrset

from tests.accidents.outcome import Impossible
from tests.support.peers import HOST, Bind, Knot, Maptr, Nsd, Peer, PowerDns, find, run
from tests.support.ports import free_port
from tests.support.soak.machines import libfaketime
from tests.support.waiting import PATIENCE, until

MAIN, NEIGHBOUR, CATALOG = "ark.arpa.", "naan.example.", "catalog.invalid."
NAANS = range(10000, 10020)
QUIET = 0.6  # seconds without a new log line after which a server counts as settled
LONGEST = 12.0  # seconds until a server counts as settled even if it still logs
DAY = 86400
TROUBLE = re.compile(
    r"error|warn|fail|refus|cannot|can't|unable|not loaded|missing|expired|invalid(?![.])|no such|critical|out of",
    re.IGNORECASE,
)
ABOUT = re.compile(r"ark[.]arpa|[.]zone\b|[.]conf\b|catalog|/keys|serial", re.IGNORECASE)
NOISE = re.compile(
    r" info: |CFLAGS|database storage|persistent timer|signal received|built with|fetch|primary, address", re.IGNORECASE
)

Records = Mapping[tuple[str, str], frozenset[str]]


def zone_text(serial: int, *, naans: Iterable[int] = NAANS, extra: str = "") -> str:
    lines = "".join(f'{naan} NAPTR 100 10 "h" "ark" "" h{naan}.example.\n' for naan in naans)
    return f"$TTL 60\n@ SOA ns hostmaster {serial} 7200 3600 1209600 60\n@ NS ns\nns A 192.0.2.1\n{lines}{extra}"


def ask(port: int, names: Iterable[tuple[str, str]], *, seconds: float = 1.0, tries: int = 3) -> Records:
    """A server's answers to questions of name and type. All are sent at once, and lost ones again."""
    wanted = list(names)
    found: dict[tuple[str, str], frozenset[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect((HOST, port))
        for _ in range(tries):
            open_ = {number: key for number, key in enumerate(wanted) if key not in found}
            try:
                for number, (name, rdtype) in open_.items():
                    asking.send(dns.message.make_query(name, rdtype, flags=0, id=number).to_wire())
                deadline = time.monotonic() + seconds
                while open_ and (left := deadline - time.monotonic()) > 0:
                    if not select.select([asking], [], [], left)[0]:
                        break
                    reply = dns.message.from_wire(asking.recv(65535))
                    if (key := open_.pop(reply.id, None)) is not None:
                        found[key] = frozenset(
                            rdata.to_text()
                            for rrset in reply.answer
                            if rrset.rdtype != dns.rdatatype.RRSIG
                            for rdata in rrset
                        )
            except ConnectionError:  # no process has the port
                time.sleep(0.1)
                continue
            if not open_:
                break
    return {key: found.get(key, frozenset()) for key in wanted}


def naptr(origin: str, naans: Iterable[int] = NAANS) -> list[tuple[str, str]]:
    return [(f"{naan}.{origin}", "NAPTR") for naan in naans]


def _tells(line: str) -> bool:
    """Whether a log line reports trouble with the zone or the configuration."""
    return bool(TROUBLE.search(line) and ABOUT.search(line)) and not NOISE.search(line)


class Follower(Knot):
    """Knot as the zones' secondary, by name or by a catalog."""

    def __init__(self, primary_port: int, origins: Iterable[str], *, catalog: bool) -> None:
        super().__init__({origin: Path() for origin in origins})
        self.primary_port, self.catalog = primary_port, catalog

    def statements(self) -> str:
        (self.directory / "db").mkdir(exist_ok=True)  # Knot 3.2 crashes if it cannot create a catalog's database
        common = f'    storage: "{self.directory}"\n'
        follows = "    master: primary\n    acl: notify\n    journal-content: none\n"
        zones = "".join(f"  - domain: {origin}\n{common}{follows}" for origin in self.zones)
        if self.catalog:
            zones = (
                f"  - domain: {CATALOG}\n{common}{follows}    catalog-role: interpret\n    catalog-template: member\n"
            )
        return (
            f"remote:\n  - id: primary\n    address: {HOST}@{self.primary_port}\n"
            f"acl:\n  - id: notify\n    address: {HOST}\n    action: notify\n"
            f"template:\n  - id: member\n{common}{follows}zone:\n{zones}"
        )

    def refresh(self) -> None:
        """Query the primary's serials now, as after a NOTIFY or the refresh time."""
        control = ("-s", self.directory / "control", "-t", "5", "-b")
        for zones in ([CATALOG] if self.catalog else [], list(self.zones)):
            run("knotc", *control, "zone-refresh", *zones)
            time.sleep(0.3 if self.catalog else 0)


class ZoneSite:
    """A primary with two zones and a secondary that follows it.

    ``folder`` has the zone files. An accident changes files, or the configuration's ``texts`` or ``garbage``, and acts
    on the server by ``restart``, ``reload``, ``stop`` and ``launch``.
    """

    software: ClassVar[str]
    program: ClassVar[str]
    catalog = False
    preloaded = ""  # libraries before libfaketime

    def __init__(self, *, signed: bool = False, clock: int | None = None) -> None:
        """``clock`` is how far the primary's clock is ahead at first, None for this machine's clock."""
        self.folder = Path(tempfile.mkdtemp(prefix="acc-", dir="/tmp"))
        self.signed, self.has_clock = signed, clock is not None
        self.files = {MAIN: self.folder / "ark.arpa.zone", NEIGHBOUR: self.folder / "naan.example.zone"}
        for path in self.files.values():
            path.write_text(zone_text(1))
        self.garbage = ""
        self.has_stopped = False
        self.said: list[str] = []  # by commands that fail
        self.expected: Records = {}
        self.keys: dns.rrset.RRset | None = None
        self._told = 0
        if clock is not None:
            self.set_clock(clock)
        self.server = self.make()
        self.follower = Follower(self.server.port, self.files, catalog=self.catalog)
        if clock is not None:
            self.server.wrapper = self._faked()

    # ---- differs by server

    def make(self) -> Peer:
        raise NotImplementedError

    def reload(self, *, force: bool = False) -> None:
        """Reread configuration and zones, as an operator does, and wait until that is done."""
        raise NotImplementedError

    def check(self) -> bool:
        """Whether the server's checker accepts the present configuration."""
        raise NotImplementedError

    @property
    def state(self) -> list[Path]:
        """The files that the server keeps for itself, without zone files and keys."""
        return []

    @property
    def key_files(self) -> list[Path]:
        """The secret keys with which the server signs."""
        return []

    # ---- the same for all servers

    def __enter__(self) -> Self:
        try:
            self.server.start()
            self.follower.start()
            self.settle()
            names = [*naptr(MAIN), *naptr(NEIGHBOUR)]
            until(lambda: all(ask(self.follower.port, names).values()), "the secondary has the zones", pause=0.1)
            self.expected = ask(self.server.port, names)
            assert all(self.expected.values()), f"{self.software} does not answer\n{self.server.log()}"
            if self.signed:
                self.keys = self._rrset(self.server.port, MAIN, "DNSKEY")
        except BaseException:
            self.__exit__()
            raise
        self._told = len(self.server.log())
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop(signal.SIGKILL)
        self.follower.stop(signal.SIGKILL)
        for mounted in self.folder.iterdir():
            if os.path.ismount(mounted):
                subprocess.run(["umount", "-l", mounted], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def zone(self) -> Path:
        """The zone file to which the accident happens."""
        return self.files[MAIN]

    def write(self, text: str | bytes, *, origin: str = MAIN) -> None:
        """Replace a zone file, as an editor does."""
        path = self.files[origin]
        beside = path.with_suffix(".new")
        beside.write_bytes(text.encode() if isinstance(text, str) else text)
        beside.replace(path)
        ahead = time.time() + 2  # NSD and PowerDNS compare times in seconds
        os.utime(path, (ahead, ahead))

    def settle(self) -> None:
        """Wait until the log is quiet."""
        deadline, size, since = time.monotonic() + LONGEST, -1, time.monotonic()
        while time.monotonic() < deadline and time.monotonic() - since < QUIET:
            if (now := len(self.server.log())) != size:
                size, since = now, time.monotonic()
            time.sleep(0.05)

    def begin_reload(self) -> None:
        """Let the server reload, without waiting for it."""
        self.server.process.send_signal(signal.SIGHUP)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End the primary, by SIGKILL if necessary: named may wait for ever after its clock was set."""
        if self.has_stopped:
            return
        self.server.process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.server.process.wait(LONGEST)
        self.server.kill()
        self.has_stopped = True

    def launch(self) -> None:
        """Start the server and wait until it answers or ends, or some seconds have passed."""
        self.server.zones = dict(self.files)
        self.server.launch()
        self.has_stopped = False
        neighbour = naptr(NEIGHBOUR)[:1]
        deadline = time.monotonic() + LONGEST
        while time.monotonic() < deadline and self.server.process.poll() is None:
            if any(ask(self.server.port, neighbour, seconds=0.3, tries=1).values()):
                break
            time.sleep(0.05)
        self.settle()

    def restart(self, number: int = signal.SIGTERM) -> None:
        self.stop(number)
        self.launch()

    @property
    def has_ended(self) -> bool:
        return self.has_stopped or self.server.process.poll() is not None

    def lost(self) -> Mapping[str, list[str]]:
        self.settle()
        self.follower.refresh()
        time.sleep(0.3)
        return {
            place: [
                name for (name, _), found in ask(port, self.expected).items() if found != self.expected[name, "NAPTR"]
            ]
            for place, port in (("primary", self.server.port), ("secondary", self.follower.port))
        }

    def alarms(self) -> list[str]:
        """Log lines since the accident that report trouble."""
        lines = self.server.log()[self._told :].splitlines()
        return [*self.said, *(line.strip()[-300:] for line in lines if _tells(line))]

    def command(self, *words: str | Path) -> None:
        """Run an operator's command; the operator reads what it says if it fails."""
        done = run(*map(str, words))
        if not done.accepted:
            self.said.append(f"{words[0]}: {' '.join(done.output.split())[-200:]}")

    def split(self, names: Iterable[int]) -> list[str]:
        """NAANs that the primary answers and the secondary does not."""
        there = [
            name.partition(".")[0] for (name, _), found in ask(self.server.port, naptr(MAIN, names)).items() if found
        ]
        return self.missing([int(name) for name in there]) if there else []

    def missing(self, names: Iterable[int], *, origin: str = MAIN) -> list[str]:
        """NAANs that the secondary lacks, seconds after the primary answers them."""
        self.settle()
        self.follower.refresh()
        time.sleep(0.3)
        wanted = naptr(origin, names)
        gone = [name for (name, _), found in ask(self.follower.port, wanted).items() if not found]
        return [f"the secondary never gets {', '.join(gone)}"] if gone else []

    def bogus(self) -> list[str]:
        """The faults that a validating resolver, with the original DS, finds in the signed zone."""
        assert self.keys is not None
        problems = []
        for place, port in (("primary", self.server.port), ("secondary", self.follower.port)):
            try:
                keys = self._rrset(port, MAIN, "DNSKEY")
                known = {
                    dns.name.from_text(MAIN): dns.rrset.from_rdata(MAIN, 60, *(k for k in self.keys if k.flags & 1))
                }
                self._validate(port, MAIN, "DNSKEY", known)
                self._validate(port, naptr(MAIN)[0][0], "NAPTR", {dns.name.from_text(MAIN): keys})
            except (dns.exception.DNSException, OSError, KeyError) as error:
                said = "no answer" if isinstance(error, KeyError) else " ".join(str(error).split())
                problems.append(f"bogus at {place}: {said}"[:120])
        return problems

    def _rrset(self, port: int, name: str, rdtype: str) -> dns.rrset.RRset:
        query = dns.message.make_query(name, rdtype, flags=0, want_dnssec=True)
        reply, _ = dns.query.udp_with_fallback(query, HOST, 2, port)
        return reply.find_rrset(
            reply.answer, dns.name.from_text(name), dns.rdataclass.IN, dns.rdatatype.from_text(rdtype)
        )

    def _validate(self, port: int, name: str, rdtype: str, keys: Mapping[dns.name.Name, dns.rrset.RRset]) -> None:
        query = dns.message.make_query(name, rdtype, flags=0, want_dnssec=True)
        reply, _ = dns.query.udp_with_fallback(query, HOST, 2, port)
        kind = dns.rdatatype.from_text(rdtype)
        owner = dns.name.from_text(name)
        found = reply.find_rrset(reply.answer, owner, dns.rdataclass.IN, kind)
        signatures = reply.find_rrset(reply.answer, owner, dns.rdataclass.IN, dns.rdatatype.RRSIG, kind)
        dns.dnssec.validate(found, signatures, dict(keys))

    # ---- the clock

    def set_clock(self, seconds: float) -> None:
        clock = self.folder / "clock"
        beside = self.folder / "clock.new"
        beside.write_text(f"{seconds:+.0f}\n")
        beside.replace(clock)

    def _faked(self) -> list[str]:
        if (library := libfaketime()) is None:
            raise Impossible("libfaketime is not installed")
        faked = {
            "LD_PRELOAD": f"{self.preloaded}{library}",
            "FAKETIME_TIMESTAMP_FILE": str(self.folder / "clock"),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "NO_FAKE_STAT": "1",
        }
        return ["env", *(f"{name}={value}" for name, value in faked.items())]


class WithGarbage:
    """A peer whose configuration may end in wrong lines."""

    garbage: Callable[[], str] = staticmethod(str)

    def configure(self) -> list[str]:
        command: list[str] = super().configure()  # type: ignore[misc]
        path = self.directory / self.files[0]  # type: ignore[attr-defined]
        with path.open("a") as file:
            file.write(self.garbage())
        return command


class BindServer(WithGarbage, Bind):
    pass


class BindSite(ZoneSite):
    """BIND, with ``inline-signing`` if it signs."""

    software, program = "bind", "named"
    preloaded = "libc_malloc_debug.so.0 "  # libfaketime and jemalloc wait for each other

    def make(self) -> Peer:
        server = BindServer(self.files)
        server.garbage = lambda: self.garbage
        if self.signed:
            (self.folder / "keys").mkdir()
            server.zone = (
                'zone "$origin" { type primary; file "$path"; dnssec-policy default; inline-signing yes; '
                f'key-directory "{self.folder}/keys"; }};\n'
            )
        return server

    def check(self) -> bool:
        self.server.configure()
        return run("named-checkconf", self.server.directory / "named.conf").accepted

    def reload(self, *, force: bool = False) -> None:
        self.server.zones = dict(self.files)
        self.server.configure()
        self.server.process.send_signal(signal.SIGHUP)
        self.settle()

    @property
    def state(self) -> list[Path]:
        return [*self.folder.glob("*.signed*"), *self.folder.glob("*.jnl"), *self.folder.glob("*.jbk")]

    @property
    def key_files(self) -> list[Path]:
        return sorted((self.folder / "keys").glob("*"))


class NsdServer(WithGarbage, Nsd):
    def statements(self) -> str:
        control = f'remote-control:\n    control-enable: yes\n    control-interface: "{self.directory}/nsd.sock"\n'
        return f"{super().statements()}{control}"


class NsdSite(ZoneSite):
    software, program = "nsd", "nsd"

    def make(self) -> Peer:
        server = NsdServer(self.files)
        server.garbage = lambda: self.garbage
        return server

    def check(self) -> bool:
        self.server.configure()
        return run("nsd-checkconf", self.server.directory / "nsd.conf").accepted

    def reload(self, *, force: bool = False) -> None:
        self.server.zones = dict(self.files)
        self.server.configure()
        for command in ("reconfig", "reload"):
            self.command("nsd-control", "-c", self.server.directory / "nsd.conf", command)
            self.settle()

    @property
    def state(self) -> list[Path]:
        return [path for path in self.server.directory.iterdir() if path.name in ("zone.list", "xfrd.state", "cookie")]


class KnotServer(WithGarbage, Knot):
    more = ""  # zones

    def statements(self) -> str:
        (self.directory / "db").mkdir(exist_ok=True)  # without it, Knot 3.2 keeps no journal, timers or keys
        return super().statements() + self.more


class KnotSite(ZoneSite):
    """Knot with its defaults: the zone file counts."""

    software, program = "knot", "knotd"
    loading = "    zonefile-load: whole\n    journal-content: changes\n"

    def make(self) -> Peer:
        server = KnotServer(self.files)
        server.garbage = lambda: self.garbage
        if self.signed:
            signing = "    dnssec-signing: on\n    zonefile-load: difference-no-serial\n    journal-content: all\n"
            server.zone = Knot.zone + signing
        else:
            server.zone = Knot.zone + self.loading
        return server

    def check(self) -> bool:
        self.server.configure()
        return run("knotc", "-c", self.server.directory / "knot.conf", "conf-check").accepted

    def reload(self, *, force: bool = False) -> None:
        self.server.zones = dict(self.files)
        self.server.configure()
        self.command("knotc", "-s", self.server.directory / "control", "reload")
        self.settle()

    @property
    def state(self) -> list[Path]:
        return [self.server.directory / "db"]

    @property
    def key_files(self) -> list[Path]:
        return [
            path for path in (self.server.directory / "db" / "keys", self.server.directory / "keys") if path.exists()
        ]


class KnotJournalSite(KnotSite):
    """Knot with the whole zone in its journal."""

    software, program = "knot-journal", "knotd"
    loading = "    zonefile-load: difference\n    journal-content: all\n"


class KnotCatalogSite(KnotSite):
    """Knot with a generated catalog, which its secondary follows, as maptr's does."""

    software, program = "knot-catalog", "knotd"
    catalog = True
    loading = KnotSite.loading + f"    catalog-role: member\n    catalog-zone: {CATALOG}\n"

    def make(self) -> Peer:
        server = super().make()
        assert isinstance(server, KnotServer)
        server.more = f"  - domain: {CATALOG}\n    catalog-role: generate\n    acl: transfer\n"
        return server


class PowerDnsServer(WithGarbage, PowerDns):
    pass


class PowerDnsSite(ZoneSite):
    """PowerDNS with zone files (its BIND backend)."""

    software, program = "powerdns", "pdns_server"

    def make(self) -> Peer:
        server = PowerDnsServer(self.files)
        server.garbage = lambda: self.garbage
        return server

    def begin_reload(self) -> None:
        control = ("pdns_control", f"--socket-dir={self.server.directory}")
        subprocess.Popen(
            [*control, "bind-reload-now", MAIN.rstrip(".")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def check(self) -> bool:
        self.server.configure()
        return run("pdns_server", f"--config-dir={self.server.directory}", "--config=check").accepted

    def reload(self, *, force: bool = False) -> None:
        self.server.zones = dict(self.files)
        self.server.configure()
        control = ("pdns_control", f"--socket-dir={self.server.directory}")
        self.command(*control, "rediscover")
        self.command(*control, "bind-reload-now", *(origin.rstrip(".") for origin in self.files))
        self.settle()


class MaptrSite(ZoneSite):
    """maptr with ``serve.state`` and a catalog, from which the secondary purges a member that leaves it."""

    software, program = "maptr", "python3"
    catalog = True

    def make(self) -> Peer:
        self.extra = ""  # settings of [serve]
        self.sections = ""  # more sections
        self.settings = ""  # of each zone
        self.port = free_port()
        if self.signed:
            (self.folder / "keys").mkdir(mode=0o700)
            self.run("zone", "keys", "add", self.folder / "keys")
        return Maptr({}, "--config", str(self.config), port=self.port)

    @property
    def config(self) -> Path:
        return self.folder / "maptr.toml"

    @property
    def control(self) -> Path:
        return self.folder / "run" / "maptr.sock"

    def configure(self) -> None:
        follower = f"{HOST}:{self.follower.port}"
        keys = f'keys = "{self.folder}/keys"\n' if self.signed else ""
        transfer = f'transfer = ["{HOST}"]\nnotify = ["{follower}"]\n'
        zones = "".join(
            f'[[zone]]\nname = "{origin}"\nfile = "{path}"\n{transfer}{keys}{self.settings}'
            for origin, path in self.files.items()
        )
        self.config.write_text(
            f'[serve]\nlisten = ["{HOST}:{self.port}"]\nstate = "{self.folder}/state"\n'
            f'control = "{self.control}"\n{self.extra}'
            f'[serve.catalog]\nname = "{CATALOG}"\n{transfer}{zones}{self.sections}{self.garbage}'
        )
        (self.folder / "state").mkdir(exist_ok=True)

    def __enter__(self) -> Self:
        self.configure()
        return super().__enter__()

    def launch(self) -> None:
        self.configure()
        self.server.launch()
        self.has_stopped = False
        maptr = self.server
        assert isinstance(maptr, Maptr)
        before = maptr.log().count("maptr: ready")
        until(lambda: self.has_ended or maptr.log().count("maptr: ready") > before, maptr.log, seconds=LONGEST * 2)
        self.settle()

    def check(self) -> bool:
        self.configure()
        return self.run("serve", "--config", self.config, "--check-config").returncode == 0

    def reload(self, *, force: bool = False) -> None:
        self.configure()
        done = self.run("reload", "--control", self.control, *(["--force"] if force else []))
        self.said += [done.stdout + done.stderr] if done.returncode else []
        self.settle()

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.server_wrapper, sys.executable, "-m", "maptr", *map(str, words)],
            cwd=Path(__file__).resolve().parents[2],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    @property
    def server_wrapper(self) -> list[str]:
        return self._faked() if self.has_clock else []

    def status(self) -> dict[str, Any]:
        done = self.run("status", "--control", self.control, "--json")
        try:
            document: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            return {}
        return document

    def alarms(self) -> list[str]:
        if self.has_ended:
            return [f"the server does not start: {line}" for line in self.server.log().strip().splitlines()[-1:]]
        return [f"{alarm['kind']}: {alarm['text']}" for alarm in self.status().get("alarms", [])]

    @property
    def state(self) -> list[Path]:
        return sorted(path for path in (self.folder / "state").glob("**/*") if path.is_file())

    @property
    def key_files(self) -> list[Path]:
        return sorted((self.folder / "keys").glob("*"))


SITES: Mapping[str, type[ZoneSite]] = {
    each.software: each
    for each in (MaptrSite, BindSite, NsdSite, KnotSite, KnotJournalSite, KnotCatalogSite, PowerDnsSite)
}


def zones(software: str) -> ZoneSite:
    return _made(software)


def signed_zones(software: str) -> ZoneSite:
    return _made(software, signed=True)


def with_clock(software: str) -> ZoneSite:
    return _made(software, clock=0)


def signed_with_clock(software: str) -> ZoneSite:
    return _made(software, signed=True, clock=0)


def signed_long_ago(software: str) -> ZoneSite:
    return _made(software, signed=True, clock=-60 * DAY)


def _made(software: str, **options: Any) -> ZoneSite:
    site = SITES[software]
    for program in (site.program, "knotd"):  # Knot is the secondary
        if find(program) is None:
            raise Impossible(f"{program} is not installed")
    return site(**options)
