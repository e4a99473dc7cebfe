"""Start to first answer: wall time, and the CPU time of all the server's processes until then.

A server is started, asked for one name every millisecond until it answers, and stopped; the servers take turns.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.benchmark import servers
from scripts.benchmark.loads import FIRST_NAAN, NAPTR, ORIGIN, ark_zone, query
from tests.support.peers import HOST, Bind, Knot, Maptr, Nsd, Peer, find

SIZES = (2_000, 100_000)
PATIENCE = 0.001  # seconds between two questions
AA = 0x04


SERVERS: dict[str, type[Peer]] = {kind.name: kind for kind in (Maptr, Nsd, Knot, Bind)}


class Start(NamedTuple):
    """One start, in milliseconds."""

    wall: float
    cpu: float


def first_answer(kind: type[Peer], zone: Path) -> Start:
    """Start a server, wait for its first answer from the zone, and stop it."""
    peer = kind({ORIGIN: zone})
    peer._wait_for = _nothing  # type: ignore[method-assign,assignment] # it would ask too rarely
    # Whoever installs maptr has its modules compiled.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.perf_counter()
    with servers.started(peer), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((HOST, peer.port))
        _ask_until_answered(peer, sock)
        return Start((time.perf_counter() - started) * 1e3, servers.cpu_seconds(peer) * 1e3)


def _nothing(*_: object) -> None:
    pass


def _ask_until_answered(peer: Peer, sock: socket.socket) -> None:
    wire = query(f"{FIRST_NAAN}.{ORIGIN}", NAPTR)
    sock.settimeout(PATIENCE)
    deadline = time.perf_counter() + 60
    while time.perf_counter() < deadline:
        try:
            sock.send(wire)
            reply = sock.recv(4096)
        except TimeoutError:
            continue
        except ConnectionRefusedError:
            time.sleep(PATIENCE)
            continue
        if reply[2] & AA and reply[7]:
            return
    sys.exit(f"scripts/bench: {peer.name} does not answer\n{peer.log()}")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="starts of each server, alternating (default 5)")
    parser.add_argument("--servers", default=",".join(SERVERS), help="comma-separated")
    parser.add_argument("--names", type=int, action="append", help="of the zone; repeatable (default 2000, 100000)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    names = options.servers.split(",")
    for name in names:
        if name not in SERVERS:
            sys.exit(f"scripts/bench: {name!r} is none of {', '.join(SERVERS)}")
    names = [name for name in names if find(SERVERS[name].commands[0])]
    for size in options.names or SIZES:
        print(table(size, measure(size, names, options.rounds)), flush=True)
    return 0


def measure(size: int, names: Sequence[str], rounds: int) -> dict[str, list[Start]]:
    starts: dict[str, list[Start]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="maptr-bench-") as folder:
        zone = Path(folder) / "zone"
        zone.write_text(ark_zone(size))
        for name in names:  # the first of each fills caches and compiles modules
            first_answer(SERVERS[name], zone)
        for number in range(rounds):
            for name in names if number % 2 == 0 else reversed(names):
                starts[name].append(first_answer(SERVERS[name], zone))
    return starts


def table(size: int, starts: Mapping[str, Sequence[Start]]) -> str:
    """Medians, the least wall time, and the ratio to NSD of the same round."""
    lines = [f"{size:,} names", f"{'':12}{'wall ms':>9}{'least':>9}{'CPU ms':>9}{'x NSD, wall':>13}"]
    for name, found in starts.items():
        wall, cpu = (statistics.median(values) for values in zip(*found, strict=True))
        ratio = ""
        if nsd := starts.get(Nsd.name):
            ratios = [one.wall / other.wall for one, other in zip(found, nsd, strict=True)]
            ratio = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]"
        least = min(one.wall for one in found)
        lines.append(f"{name:12}{wall:9.0f}{least:9.0f}{cpu:9.0f}   {ratio}")
    return "\n".join(lines)
