"""The compared servers, each as one process on one address, with its CPU time and memory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tests.support.certificates import write_certificate
from tests.support.peers import Bind, Knot, Maptr, Nsd, Peer, PowerDns, TlsMaptr, free_port, processes


class CachingPowerDns(PowerDns):
    """PowerDNS with its default caches; the tests run it without caches."""

    settings = ""


class SecureNsd(Nsd):
    """NSD with TLS."""

    def configure(self) -> list[str]:
        self.tls_port = with_certificate(self)
        self.settings = (
            f"    ip-address: {self.host}@{self.tls_port}\n    tls-port: {self.tls_port}\n"
            f'    tls-service-key: "{self.directory}/tls.key"\n    tls-service-pem: "{self.directory}/tls.crt"\n'
        )
        return super().configure()


class SecureBind(Bind):
    """BIND with TLS."""

    def configure(self) -> list[str]:
        self.tls_port = with_certificate(self)
        self.settings += f"    listen-on port {self.tls_port} tls pair {{ {self.host}; }};\n"
        self.sections = f'tls pair {{ key-file "{self.directory}/tls.key"; cert-file "{self.directory}/tls.crt"; }};\n'
        return super().configure()


def with_certificate(peer: Peer) -> int:
    """Write a certificate into the server's directory, and return a port for TLS."""
    write_certificate(peer.directory)
    return free_port()


SERVERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Maptr, Nsd, Bind, Knot, CachingPowerDns)}
# Knot 3.2 and PowerDNS do not support TLS for clients.
SECURE: dict[str, type[Peer]] = {peer.name: peer for peer in (TlsMaptr, SecureNsd, SecureBind)}
UNSIGNED = ("powerdns",)  # needs more than a signed zone file to send its signatures


def cpu_seconds(peer: Peer) -> float:
    """Return the CPU time of the server's processes.

    schedstat counts in nanoseconds, but without threads that have ended; stat counts in ticks. The higher value counts.
    """
    total = 0.0
    for pid in processes(peer.process.pid):
        with contextlib.suppress(OSError):
            threads = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime, proc(5)
            total += max(sum(int(text.split()[0]) for text in threads) / 1e9, ticks)
    return total


def memory(peer: Peer) -> float:
    """Return the proportional set size (PSS) of the server's processes in MB."""
    total = 0
    for pid in processes(peer.process.pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


def pin(peer: Peer, core: int) -> None:
    """Bind all threads to one core."""
    for pid in processes(peer.process.pid):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(task.name), {core})
