"""The servers that are compared, each as one process on one address, without any rate limit for loopback."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.certificates import write_certificate
from tests.support.peers import Bind, Knot, Maptr, Nsd, Peer, PowerDns, free_port, processes

ANSWER = 50  # octets of records that an answer of the first load has behind its question
ROOT = Path(__file__).resolve().parent.parent.parent


class CachingPowerDns(PowerDns):
    """PowerDNS with the caches that it comes with; the tests run it without any."""

    def configure(self) -> list[str]:
        command = super().configure()
        config = self.directory / "pdns.conf"
        lines = [line for line in config.read_text().splitlines() if "cache-ttl=0" not in line]
        config.write_text("\n".join(lines) + "\n")
        return command


class Echo(Peer):
    """No DNS server: it sends back what it gets, and so is the least that any server can cost."""

    name = "echo"
    binary = Path()
    options: tuple[int, ...] = ()

    def _start(self) -> None:
        self.port = free_port()
        self._process = subprocess.Popen([self.binary, *map(str, (self.port, *self.options))], start_new_session=True)


class LongEcho(Echo):
    """The same with as many octets more as the answers of the first load have on average: what the kernel copies."""

    name = "echo-long"
    options = (ANSWER,)


class Dnslib(Peer):
    """dnslib's stock server with its ZoneResolver."""

    name = "dnslib"
    commands = (sys.executable,)

    def configure(self) -> list[str]:
        path = next(iter(self.zones.values()))
        command = [sys.executable, "-m", "dnslib.zoneresolver", "--zone", str(path), "--address", self.host]
        return [*command, "--port", str(self.port), "--log=-request,-reply"]


class Twisted(Peer):
    """Twisted Names, in an environment of its own beside the project's, made where it is not there."""

    name = "twisted"
    commands = (sys.executable,)

    def configure(self) -> list[str]:
        python = ROOT / ".venv-twisted" / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", "twisted"], check=True)
        zones = [str(path) for path in self.zones.values()]
        return [str(python), str(ROOT / "scripts" / "benchmark" / "twisted_names.py"), str(self.port), *zones]


class SecureMaptr(Maptr):
    """maptr with TLS."""

    def configure(self) -> list[str]:
        self.tls_port = with_certificate(self)
        pem = (f"--tls-cert={self.directory}/tls.crt", f"--tls-key={self.directory}/tls.key")
        return [*super().configure(), f"--tls-listen={self.host}:{self.tls_port}", *pem]


class SecureNsd(Nsd):
    """NSD with TLS."""

    def configure(self) -> list[str]:
        self.tls_port = with_certificate(self)
        command = super().configure()
        config = self.directory / "nsd.conf"
        lines = (
            f"    ip-address: {self.host}@{self.tls_port}\n    tls-port: {self.tls_port}\n"
            f'    tls-service-key: "{self.directory}/tls.key"\n    tls-service-pem: "{self.directory}/tls.crt"\n'
        )
        config.write_text(config.read_text().replace("server:\n", f"server:\n{lines}", 1))
        return command


class SecureBind(Bind):
    """BIND with TLS."""

    def configure(self) -> list[str]:
        self.tls_port = with_certificate(self)
        command = super().configure()
        config = self.directory / "named.conf"
        pair = f'key-file "{self.directory}/tls.key"; cert-file "{self.directory}/tls.crt";'
        listen = f"    listen-on port {self.tls_port} tls pair {{ {self.host}; }};\n"
        text = config.read_text().replace("options {\n", f"options {{\n{listen}", 1)
        config.write_text(f"tls pair {{ {pair} }};\n{text}")
        return command


def with_certificate(peer: Peer) -> int:
    """Write a certificate into the server's directory; a port for its TLS."""
    write_certificate(peer.directory)
    return free_port()


# Knot 3.2 and PowerDNS speak no TLS to clients.
SECURE: dict[str, type[Peer]] = {peer.name: peer for peer in (SecureMaptr, SecureNsd, SecureBind)}
SERVERS: dict[str, type[Peer]] = {
    peer.name: peer
    for peer in (
        *(Maptr, Nsd, Bind, Knot, CachingPowerDns, Dnslib, Twisted),
        *(Echo, LongEcho),
    )
}
ECHOES = tuple(name for name, kind in SERVERS.items() if issubclass(kind, Echo))


SINGLE = ("dnslib", "twisted")  # those that serve one zone alone
UNSIGNED = (*SINGLE, "powerdns")  # those that need more than a signed zone file to send its signatures


def start(kind: type[Peer], zones: dict[str, Path]) -> Peer:
    os.environ["PYTHONPATH"] = str(ROOT)
    return kind(zones).start()


@contextlib.contextmanager
def started(peer: Peer) -> Iterator[Peer]:
    """A server that is made already, until the end of the block."""
    os.environ["PYTHONPATH"] = str(ROOT)
    with peer:
        yield peer


def cpu_seconds(peer: Peer) -> float:
    """What the server's processes have run, by the scheduler's own account in nanoseconds.

    That forgets threads which have ended, so where the account by ticks is higher, it counts.
    """
    total = 0.0
    for pid in processes(peer.pid):
        with contextlib.suppress(OSError):
            threads = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime, proc(5)
            total += max(sum(int(text.split()[0]) for text in threads) / 1e9, ticks)
    return total


def memory(peer: Peer) -> float:
    """Proportional set size of all its processes, in MB: what is shared counts in parts."""
    total = 0
    for pid in processes(peer.pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


def pin(peer: Peer, core: int) -> None:
    """All threads on one core."""
    for pid in processes(peer.pid):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(task.name), {core})
