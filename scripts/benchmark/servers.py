"""The servers that are compared, each as one worker on one address, without any rate limit for loopback."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.peers import HOST, Bind, Knot, Maptr, Nsd, Peer, PowerDns, free_port, processes

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

    def _start(self) -> None:
        self.port = free_port()
        self._process = subprocess.Popen([self.binary, str(self.port)], start_new_session=True)


class Twisted(Peer):
    """Twisted Names with a zone file, if it is installed."""

    name = "twisted"
    commands = (sys.executable,)

    def configure(self) -> list[str]:
        # Its reader of zone files knows no NAPTR, so it gets Python source, which it calls a primary too.
        source = self.directory / "zone.py"
        lines = ["from twisted.names import dns", "zone = ["]
        for path in self.zones.values():
            for line in path.read_text().splitlines():
                words = line.split()
                if words[2:3] == ["NAPTR"]:
                    lines.append(
                        f'NAPTR("{words[0]}.ark.arpa", 100, 10, b"h", b"ark", b"", b"{words[-1].rstrip(".")}"),'
                    )
        soa = 'SOA("ark.arpa", mname="ns1.ark.arpa", rname="h.ark.arpa", serial=1, refresh=1, retry=1, expire=1, minimum=300),'
        source.write_text("\n".join([*lines[1:], soa, "]"]) + "\n")
        twistd = str(Path(sys.executable).with_name("twistd"))
        return [twistd, "-n", "--pidfile=", "dns", f"--interface={HOST}", f"--port={self.port}", f"--pyzone={source}"]


class Dnslib(Peer):
    """dnslib's stock server with its ZoneResolver."""

    name = "dnslib"
    commands = (sys.executable,)

    def configure(self) -> list[str]:
        path = next(iter(self.zones.values()))
        command = [sys.executable, "-m", "dnslib.zoneresolver", "--zone", str(path), "--address", self.host]
        return [*command, "--port", str(self.port), "--log=-request,-reply"]


SERVERS: dict[str, type[Peer]] = {
    peer.name: peer for peer in (Maptr, Nsd, Bind, Knot, CachingPowerDns, Echo, Twisted, Dnslib)
}


def start(kind: type[Peer], zones: dict[str, Path]) -> Peer:
    os.environ["PYTHONPATH"] = str(ROOT)
    return kind(zones).start()


def cpu_seconds(peer: Peer) -> float:
    """What the server's processes and threads have run, by the scheduler's own account, in nanoseconds exact."""
    total = 0
    for pid in processes(peer.pid):
        for stat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(stat.read_text().split()[0])
    return total / 1e9


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


__all__ = ["SERVERS", "Self", "cpu_seconds", "memory", "pin", "start"]
