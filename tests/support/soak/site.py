"""The site of the soak: a primary, two secondaries, a resolver, a gateway and clients, as docs/ describe them."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import dns.exception
import dns.message
import dns.query

from tests.support import waiting
from tests.support.http_gateway import ConfiguredGateway
from tests.support.peers import Maptr, Peer, PeerError, Unbound
from tests.support.secondaries import ORIGIN, SECRET, KnotSecondary, NsdSecondary
from tests.support.soak.clients import Answer, Clients, by_http
from tests.support.soak.machines import PREFIX, Machine
from tests.support.soak.truth import CANARY, CANARY_ARK, TTL
from tests.support.waiting import PATIENCE

PAUSE = 0.1  # seconds between two looks at the servers
SECONDS = 60.0  # within which everything must recover
until = partial(waiting.until, seconds=SECONDS, pause=PAUSE)
STATE_SIZE = "64m"  # of the file system that holds the state folder of the primary
PRIMARY = f"""\
[serve]
listen = ["$host:$port"]
state = "state"
control = "control"
[serve.rrl]
responses_per_second = 0
[[key]]
name = "xfr"
secret = "{SECRET}"
[table]
file = "naans.json"
url = "$source"
every = "1h"
[[zone]]
name = "{ORIGIN}"
file = "ark.arpa.zone"
table = "naans.json"
keys = "keys"
transfer = ["key:xfr", "$knot"]
notify = [$notify]
ns = [$ns]
ttl = {TTL}
$signing
"""
GATEWAY = """\
[gateway]
listen = ["$host:$port"]
drift_every = 0
rate = 0
[client]
nameservers = ["$resolver"]
[cache]
natab = "naans.json"
path = "cache.sqlite"
"""


class Knot(KnotSecondary):
    """Knot without TSIG, by its address, because it has the real clock."""

    def statements(self) -> str:
        return super().statements().replace("    key: xfr\n", "")


class Resolver(Unbound):
    """Unbound, which queries both secondaries and validates from the current anchor."""

    def __init__(self, servers: list[Peer], anchor: Path) -> None:
        super().__init__({}, [], f'    access-control: {PREFIX}.0/24 allow\n    trust-anchor-file: "{anchor}"\n')
        self.servers = servers

    def statements(self) -> str:
        addresses = "".join(f"    stub-addr: {server.host}@{server.port}\n" for server in self.servers)
        return f'stub-zone:\n    name: "{ORIGIN}"\n{addresses}'


class Site:
    """All machines and servers, which run until ``stack`` is closed."""

    def __init__(self, directory: Path, stack: ExitStack, *, namespaces: bool) -> None:
        self.namespaces = namespaces
        self.offset = 0.0
        self.version = 0  # of the source
        self.source = b""
        self.signing = ""  # more settings of the zone
        self.machines: list[Machine] = []
        for number, name in enumerate(("primary", "nsd", "knot", "resolver", "gateway", "clients"), 1):
            self.machines.append(Machine(name, number, directory, namespaces=namespaces, faked=name != "knot"))
            stack.callback(self.machines[-1].close)
        self.at_primary, self.at_nsd, self.at_knot, self.at_resolver, self.at_gateway, self.at_clients = self.machines
        self.directory = self.at_primary.directory
        self.state = self.directory / "state"
        self.state.mkdir()
        if namespaces:
            self._mount("-t", "tmpfs", "-o", f"size={STATE_SIZE}", "none")
            stack.callback(subprocess.run, ["umount", "-l", str(self.state)], check=False)
        self.anchor = directory / "anchor"
        self._anchors = 0
        self.primary = Maptr({}, "--config", str(self.directory / "maptr.toml"))
        self.nsd, self.knot = NsdSecondary(self.primary.port), Knot(self.primary.port)
        self.secondaries: list[Peer] = [self.nsd, self.knot]
        self.resolver = Resolver(self.secondaries, self.anchor)
        self.gateway = ConfiguredGateway("--config", str(self.at_gateway.directory / "maptr.toml"))
        self.servers: dict[str, Peer] = {
            "primary": self.primary,
            "nsd": self.nsd,
            "knot": self.knot,
            "resolver": self.resolver,
            "gateway": self.gateway,
        }
        for machine, server in zip(self.machines, self.servers.values(), strict=False):
            machine.place(server)
            stack.callback(server.stop)
        for secondary in (self.nsd, self.knot):
            secondary.primary_host = self.primary.host

    # ---- starting

    def start(self, content: bytes, stack: ExitStack) -> None:
        """Configure and start everything."""
        self.at_primary.maptr("zone", "keys", "add", "keys")
        self.follow_keys()
        notify = f'"{self.nsd.host}:{self.nsd.port} key:xfr", "{self.knot.host}:{self.knot.port}"'
        source = str(self.directory / "source.json")
        names = ", ".join(f'"ns{number}={server.host}"' for number, server in enumerate(self.secondaries, 1))
        self._configure(
            self.primary,
            self.directory,
            PRIMARY,
            notify=notify,
            ns=names,
            source=source,
            knot=self.knot.host,
            signing=self.signing,
        )
        self._configure(
            self.gateway, self.at_gateway.directory, GATEWAY, resolver=f"{self.resolver.host}#{self.resolver.port}"
        )
        self.publish(content)
        self.start_primary()
        for server in (*self.secondaries, self.resolver):
            server.launch()
        self.pull_for_gateway()
        self.gateway.launch()
        self.clients = Clients(self.at_clients)
        stack.callback(self.clients.close)
        self.wait_for(0)
        self.wait_for_resolver()
        self.wait_for_gateway()

    def _configure(self, server: Peer, directory: Path, template: str, **values: str) -> None:
        values |= {"host": server.host, "port": str(server.port)}
        text = re.sub(r"\$(\w+)", lambda found: values[found[1]], template)
        (directory / "maptr.toml").write_text(text)

    # ---- the registry

    def publish(self, content: bytes) -> None:
        """Set the content of the registry at its source."""
        self.source = content
        self.write_source(content)

    def write_source(self, content: bytes) -> None:
        new = self.directory / "source.new"
        new.write_bytes(content)
        new.replace(self.directory / "source.json")

    def pull_for_gateway(self) -> None:
        """What the gateway's own timer does."""
        source = str(self.directory / "source.json")
        self.at_gateway.maptr("table", "pull", source, "--table", "naans.json", "--apply", codes=(0, 1))

    # ---- the clocks

    def set_clocks(self, offset: float) -> None:
        """Set all clocks ahead of the real one by some seconds."""
        self.offset = offset
        for machine in self.machines:
            machine.set_clock(offset)

    def skew(self, machine: Machine, seconds: float) -> None:
        """Make one clock differ from the others."""
        machine.set_clock(self.offset + seconds)

    @property
    def now(self) -> float:
        """The simulated time, in seconds since 1970."""
        return time.time() + self.offset

    # ---- what is served

    def version_at(self, server: Peer) -> int | None:
        """The version that a server has in its zone, by the canary; None if it does not answer."""
        found = re.search(r"//v(\d+)\.soak", self._ask(server, f"{CANARY}.{ORIGIN}", "NAPTR"))
        return int(found[1]) if found else None

    def serial_at(self, server: Peer) -> int | None:
        found = re.search(r" IN SOA \S+ \S+ (\d+)", self._ask(server, ORIGIN, "SOA"))
        return int(found[1]) if found else None

    def _ask(self, server: Peer, name: str, rdtype: str) -> str:
        try:
            query = dns.message.make_query(name, rdtype)
            return "\n".join(map(str, dns.query.udp(query, server.host, 1.0, server.port).answer))
        except (OSError, dns.exception.DNSException):
            return ""

    def has(self, version: int | None) -> bool:
        """Whether primary and secondaries have a version, with one serial."""
        servers = (self.primary, *self.secondaries)
        if any(self.version_at(server) != version for server in servers):
            return False
        return len({self.serial_at(server) for server in servers}) == 1

    def wait_for(self, version: int | None) -> None:
        until(lambda: self.has(version), lambda: f"not all have version {version}: {self.describe()}")

    def gateway_answer(self) -> Answer:
        """What the gateway answers for the canary."""
        return by_http(CANARY_ARK, host=self.gateway.host, port=self.gateway.port)

    def wait_for_gateway(self) -> None:
        until(lambda: not self.gateway_answer().silent, lambda: f"no gateway\n{self.gateway.log()}")

    def wait_for_resolver(self) -> None:
        until(lambda: self.version_at(self.resolver) is not None, lambda: f"no resolver\n{self.resolver.log()}")

    def describe(self) -> str:
        servers = (self.primary, *self.secondaries)
        return ", ".join(f"{one.name} {self.version_at(one)} (serial {self.serial_at(one)})" for one in servers)

    def alarms(self) -> list[str]:
        """What ``maptr status`` shows an operator."""
        found = self.at_primary.maptr("status", "--json", "--control", "control", codes=(0, 1))
        return [alarm["text"] for alarm in json.loads(found)["alarms"]]

    def is_running(self, name: str) -> bool:
        server = self.servers[name]
        with contextlib.suppress(PeerError):
            return server.process.poll() is None
        return False

    # ---- the administrator

    def reload(self) -> None:
        self.primary.hang_up()

    def start_primary(self) -> None:
        """Wait until it serves: a SIGHUP would end a process that has just been started."""
        self.primary.launch()
        until(lambda: self.version_at(self.primary) is not None, lambda: f"no primary\n{self.primary.log()}")

    def restart(self, server: Peer) -> None:
        server.kill()
        server.launch()

    def keys(self, *words: str) -> str:
        return self.at_primary.maptr("zone", "keys", *words)

    def key_tags(self, state: str) -> list[str]:
        keys = json.loads(self.keys("list", "keys", "--json"))["keys"]
        return [str(key["tag"]) for key in keys if key["state"] == state]

    def signs_anew(self, change: Callable[[], object]) -> None:
        """Change the key folder, and wait until all serve the zone that was signed for it."""
        before = self.serial_at(self.primary)
        change()
        self.reload()
        until(lambda: self.serial_at(self.primary) not in (before, None), "a zone signed with other keys")
        self.wait_for(self.version_at(self.primary))

    def follow_keys(self) -> None:
        """Give the DS of the active keys to the resolver's configuration and to the clients."""
        text = self.keys("ds", "keys", ORIGIN)
        self._anchors += 1
        self.anchor.write_text(text)
        self.client_anchor.write_text(text)

    @property
    def client_anchor(self) -> Path:
        """A separate file for each anchor, because clients read it once."""
        return self.anchor.with_name(f"anchor.{self._anchors}")

    # ---- the state folder

    def _mount(self, *options: str) -> None:
        subprocess.run(["mount", *options, str(self.state)], check=True, timeout=PATIENCE)

    def fill_state(self) -> None:
        """Fill the file system of the state folder."""
        with (self.state / "filler").open("wb") as file:
            try:
                while True:
                    file.write(bytes(65536))
                    file.flush()
            except OSError:
                pass

    def empty_state(self) -> None:
        (self.state / "filler").unlink()

    def protect_state(self, *, protected: bool) -> None:
        self._mount("-o", f"remount,{'ro' if protected else 'rw'}")
