"""A zone with many NAANs, half of them delegated: building, serving, transfers, changes and signing.

CPU times, sizes and memory. Half of the NAANs are in the registry; the other half are delegated to their organisations'
servers: two NS records each, a DS for half of them, and addresses in the zone for a fifth. The tables at the end are
the model of ``model.py``, with the measured costs.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import dns.exception

from maptr.files import write_atomically
from scripts.benchmark import model, results, servers
from scripts.benchmark.loads import FIRST_NAAN, ORIGIN
from scripts.benchmark.odd import AXFR, IXFR, SOA, ask
from scripts.benchmark.start import ask_until_answered
from tests.support.peers import HOST, Maptr, Nsd, Peer, find
from tests.support.secondaries import KEY, KnotSecondary, NsdSecondary, serial_at

SIZES = (100_000, 1_000_000)
WHOLE = 100_000  # the largest zone that is signed and transferred to secondaries; the model has the others
QUERY_US = 5.06  # CPU time of a query with 100,000 names, results/server.txt
SOA_TIMERS = struct.pack("!IIII", 3600, 900, 1209600, 300)  # of ``zone build``: the end of a transfer
SECONDS = 1800  # limit for one server to load a zone


class Figures(NamedTuple):
    """The figures for one size: CPU times in seconds, memory in MB, and sizes in MB unless a unit is named."""

    names: int
    registry: float = 0.0
    delegations: float = 0.0
    build_cpu: float = 0.0
    build_memory: float = 0.0
    zone: float = 0.0
    records: int = 0
    start_cpu: float = 0.0
    memory: float = 0.0
    nsd_start_cpu: float = 0.0
    nsd_memory: float = 0.0
    axfr: float = 0.0
    axfr_cpu: float = 0.0
    secondaries: tuple[tuple[str, float, float], ...] = ()  # name, CPU time to take the zone, memory
    reload_cpu: float = 0.0
    reload_memory: float = 0.0  # the peak during a reload
    ixfr_bytes: int = 0
    sign_cpu: float = 0.0
    sign_again_cpu: float = 0.0
    signed_zone: float = 0.0
    signatures: int = 0


class Spent(NamedTuple):
    """The CPU time in seconds and the peak memory in MB of a command."""

    cpu: float
    memory: float


def command(*words: object) -> Spent:
    command_line = [sys.executable, "-m", "maptr", *map(str, words)]
    process = subprocess.Popen(command_line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"bench: maptr {' '.join(map(str, words))} exits {process.returncode}\n{said}")
    return Spent(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def write_registry(path: Path, names: int) -> None:
    """Write the registry: a natab with every second NAAN."""
    with path.open("w") as file:
        for naan in range(FIRST_NAAN, FIRST_NAAN + names, 2):
            file.write(f"#\n# Institution {naan}\n{naan}:\n    resolver{naan}.example.org    I{naan}\n")


def write_delegations(path: Path, names: int) -> None:
    """Write the records of the other NAANs."""
    rng = random.Random(0)
    with path.open("w") as file:
        for number, naan in enumerate(range(FIRST_NAAN + 1, FIRST_NAAN + names, 2)):
            zone = naan if number % 5 == 0 else f"institution{naan}.example."
            file.writelines(f"{naan} IN NS ns{server}.{zone}\n" for server in (1, 2))
            if number % 5 == 0:
                file.writelines(f"ns{server}.{naan} IN A 192.0.2.{server}\n" for server in (1, 2))
            if number % 2 == 0:
                file.write(f"{naan} IN DS {rng.randrange(1 << 16)} 13 2 {rng.randbytes(32).hex()}\n")


def size(path: Path) -> float:
    return path.stat().st_size / 1e6


def peak(peer: Peer) -> float:
    """Return the peak memory of the server's process so far, in MB."""
    status = Path(f"/proc/{peer.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def transfer(port: int, rdtype: int, serial: int = 0) -> tuple[int, int]:
    """Return the bytes and the records of a transfer."""
    authority = b"\xc0\x0c" + struct.pack("!HHIH", SOA, 1, 0, 22) + bytes(2) + struct.pack("!I", serial) + bytes(16)
    query = ask((b"ark", b"arpa"), rdtype, *([authority] if rdtype == IXFR else []), counts=(0, int(rdtype == IXFR), 0))
    total = records = 0
    with socket.create_connection((HOST, port), timeout=SECONDS) as connection, connection.makefile("rb") as stream:
        connection.sendall(len(query).to_bytes(2, "big") + query)
        message = b""
        while not message.endswith(SOA_TIMERS):
            length = stream.read(2)
            message = stream.read(int.from_bytes(length, "big"))
            if len(length) < 2 or message[3] & 15:
                sys.exit("bench: the transfer was refused or broken off")
            total += 2 + len(message)
            records += int.from_bytes(message[6:8], "big")
    return total, records


def wait_for(peer: Peer, serial: int, seconds: float = SECONDS) -> None:
    """Wait until a server has the serial; else end the program with its log."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and peer.process.poll() is None:
        with suppress(OSError, dns.exception.Timeout):  # it does not answer yet
            if serial_at(peer, 0.1) == serial:
                return
        time.sleep(0.05)
    sys.exit(f"bench: {peer.name} does not have the serial {serial}\n{peer.log()}")


def started(peer: Peer) -> Spent:
    """Wait for the first answer of a launched server."""
    ask_until_answered(peer, SECONDS)
    return Spent(servers.cpu_seconds(peer), servers.memory(peer))


def measure(names: int, folder: Path) -> Figures:
    registry, delegations, zone = folder / "natab", folder / "delegations.zone", folder / "ark.zone"
    write_registry(registry, names)
    write_delegations(delegations, names)
    words = ("zone", "build", registry, "--include", delegations, "-o", zone, "--ns", "ns1=192.0.2.1", "--serial", 1)
    built = command(*words)
    figures = Figures(names, size(registry), size(delegations), built.cpu, built.memory, size(zone))
    figures = served(figures, zone)
    if find("nsd"):
        with ExitStack() as stack:
            nsd = Nsd({ORIGIN: zone})
            stack.callback(nsd.stop)
            spent = started(nsd.launch())
            figures = figures._replace(nsd_start_cpu=spent.cpu, nsd_memory=spent.memory)
    return signed(figures, zone) if names <= WHOLE else figures


def served(figures: Figures, zone: Path) -> Figures:
    """Measure a primary with its secondaries, before and after a change to one NAAN."""
    with ExitStack() as stack:
        primary = Maptr({ORIGIN: zone}, KEY, "--transfer=key:xfr", f"--transfer={HOST}")
        stack.callback(primary.stop)
        spent = started(primary.launch())
        before = servers.cpu_seconds(primary)
        total, records = transfer(primary.port, AXFR)
        figures = figures._replace(
            start_cpu=spent.cpu,
            memory=spent.memory,
            axfr=total / 1e6,
            records=records - 1,
            axfr_cpu=servers.cpu_seconds(primary) - before,
        )
        taken = []
        for kind in (NsdSecondary, KnotSecondary):
            if figures.names <= WHOLE and find(kind.commands[0]):
                secondary = kind(primary.port)
                stack.callback(secondary.stop)
                secondary.launch()
                wait_for(secondary, 1)
                taken.append((kind.name, servers.cpu_seconds(secondary), servers.memory(secondary)))
                secondary.stop()
        text = zone.read_text().replace(f"resolver{FIRST_NAAN}.", "elsewhere.").replace(" 1 3600 ", " 2 3600 ", 1)
        write_atomically(zone, text.encode())
        before = servers.cpu_seconds(primary)
        primary.process.send_signal(signal.SIGHUP)
        wait_for(primary, 2)
        spent_cpu = servers.cpu_seconds(primary) - before
        most = peak(primary)
        changed, _ = transfer(primary.port, IXFR, 1)
        return figures._replace(secondaries=tuple(taken), reload_cpu=spent_cpu, reload_memory=most, ixfr_bytes=changed)


def signed(figures: Figures, zone: Path) -> Figures:
    keys, target = zone.with_name("keys"), zone.with_name("ark.signed")
    command("zone", "keys", "add", keys)
    first = command("zone", "sign", zone, keys, "-o", target)
    count = target.read_text().count(" RRSIG ")
    again = command("zone", "sign", zone, keys, "-o", target)
    return figures._replace(sign_cpu=first.cpu, sign_again_cpu=again.cpu, signed_zone=size(target), signatures=count)


ROWS = (
    ("records of the zone", "records", 0),
    ("registry (natab), MB", "registry", 1),
    ("delegations, MB", "delegations", 1),
    ("zone file, MB", "zone", 1),
    ("maptr zone build, CPU s", "build_cpu", 1),
    ("maptr zone build, most memory, MB", "build_memory", 0),
    ("maptr serve, CPU s to the first answer", "start_cpu", 1),
    ("maptr serve, memory, MB (PSS)", "memory", 0),
    ("nsd, CPU s to the first answer", "nsd_start_cpu", 1),
    ("nsd, memory, MB (PSS)", "nsd_memory", 0),
    ("AXFR, MB", "axfr", 1),
    ("AXFR, CPU s of maptr", "axfr_cpu", 1),
    ("reload after one change, CPU s", "reload_cpu", 1),
    ("reload after one change, most memory, MB", "reload_memory", 0),
    ("IXFR of one change, bytes", "ixfr_bytes", 0),
    ("maptr zone sign, CPU s", "sign_cpu", 1),
    ("maptr zone sign again, no change, CPU s", "sign_again_cpu", 1),
    ("signatures", "signatures", 0),
    ("signed zone file, MB", "signed_zone", 1),
)


def table(found: Sequence[Figures]) -> Iterator[str]:
    """Yield the figures, one column per size, and then the costs that the model predicts for the largest size."""
    yield f"{'NAANs, half of them delegated':44}" + "".join(f"{each.names:>12,}" for each in found)
    for title, field, digits in ROWS:
        values = [getattr(each, field) for each in found]
        yield f"{title:44}" + "".join(f"{value:12,.{digits}f}" if value else f"{'-':>12}" for value in values)
    for name, cpu, memory in found[0].secondaries:
        yield f"{f'{name} as secondary, CPU s to have the zone':44}{cpu:12,.1f}"
        yield f"{f'{name} as secondary, memory, MB (PSS)':44}{memory:12,.0f}"
    yield ""
    first, largest = found[0], found[-1]
    yield f"by the model, from {first.names:,} to {largest.names:,} NAANs"
    for title, field, digits in ROWS:
        if field != "ixfr_bytes" and (value := getattr(first, field)):
            yield f"{title:44}{model.scaled(value, first.names, largest.names):12,.{digits}f}"
    megabytes, changes = largest.axfr, largest.names * model.CHANGED
    yield f"{'AXFR at 100 Mbit/s, s':44}{model.seconds_to_send(megabytes * 1e6):12,.1f}"
    yield f"{f'IXFR of {changes:,.0f} changes a day, MB':44}{changes * largest.ixfr_bytes / 1e6:12,.2f}"


def main(arguments: Sequence[str]) -> int:
    parser = results.parser("scale", __doc__, rounds=1)
    parser.add_argument(
        "--names", type=int, action="append", help="NAANs of the zone; repeatable (default 100000, 1000000)"
    )
    parser.add_argument("--model", action="store_true", help="print only the model of the traffic")
    options = parser.parse_args(arguments)
    sizes = [100] if options.smoke else options.names or SIZES
    with results.reported("scale", save=options.save):
        if not options.model:
            found = []
            for names in sizes:
                with tempfile.TemporaryDirectory(prefix="maptr-bench-") as folder:
                    found.append(measure(names, Path(folder)))
                print(found[-1], file=sys.stderr)  # in case a larger zone fails
            print("\n".join(table(found)), end="\n\n", flush=True)
        print("\n".join(model.table(QUERY_US)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
