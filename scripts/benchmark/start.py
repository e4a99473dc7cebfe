"""From the command to the first answer: wall time and CPU time of maptr and of the DNS servers of Debian.

A server is started, queried for one name every millisecond until it answers, and stopped; the servers take turns.
"""

from __future__ import annotations

import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.benchmark import results, servers
from scripts.benchmark.loads import FIRST_NAAN, ORIGIN, ark_zone, below
from scripts.benchmark.odd import NAPTR, ask, opt
from tests.support.peers import HOST, Bind, Knot, Maptr, Nsd, Peer, find

SIZES = (2_000, 100_000)
INTERVAL = 0.001  # seconds between two queries
AA = 0x04
SERVERS = (Maptr, Nsd, Knot, Bind)


class Start(NamedTuple):
    """One start, in milliseconds."""

    wall: float
    cpu: float


def first_answer(kind: type[Peer], zone: Path) -> Start:
    """Start a server, wait for its first answer from the zone, and stop it."""
    peer = kind({ORIGIN: zone})
    started = time.perf_counter()
    try:
        peer.launch()
        ask_until_answered(peer)
        return Start((time.perf_counter() - started) * 1e3, servers.cpu_seconds(peer) * 1e3)
    finally:
        peer.stop()


def ask_until_answered(peer: Peer, seconds: float = 60) -> None:
    wire = ask(below(b"%d" % FIRST_NAAN), NAPTR, opt())
    deadline = time.perf_counter() + seconds
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((HOST, peer.port))
        sock.settimeout(INTERVAL)
        while time.perf_counter() < deadline:
            try:
                sock.send(wire)
                reply = sock.recv(4096)
            except TimeoutError:
                continue
            except ConnectionRefusedError:
                time.sleep(INTERVAL)
                continue
            if reply[2] & AA and reply[7]:
                return
    sys.exit(f"bench: {peer.name} does not answer\n{peer.log()}")


def main(arguments: Sequence[str]) -> int:
    parser = results.parser("start", __doc__)
    parser.add_argument("--names", type=int, action="append", help="of the zone; repeatable (default 2000, 100000)")
    options = parser.parse_args(arguments)
    kinds: list[type[Peer]] = [kind for kind in SERVERS if find(kind.commands[0])]
    if options.smoke:
        options.rounds, options.names, kinds = 1, [100], [Maptr]
    with results.reported("start", save=options.save):
        for size in options.names or SIZES:
            print(table(size, measure(size, kinds, options.rounds)), flush=True)
    return 0


def measure(size: int, kinds: Sequence[type[Peer]], rounds: int) -> dict[str, list[Start]]:
    """Measure the starts of each server. The first start, which fills caches and compiles modules, does not count."""
    starts: dict[str, list[Start]] = {kind.name: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="maptr-bench-") as folder:
        zone = Path(folder) / "zone"
        zone.write_text(ark_zone(size))
        for number in range(rounds + 1):
            for kind in kinds if number % 2 == 0 else reversed(kinds):
                starts[kind.name].append(first_answer(kind, zone))
    return {name: found[1:] for name, found in starts.items()}


def table(size: int, starts: Mapping[str, Sequence[Start]]) -> str:
    """Write the medians, the least wall time, and the ratio to NSD in the same round."""
    lines = [f"{size:,} names", f"{'':12}{'wall ms':>9}{'least':>9}{'CPU ms':>9}{'x NSD, wall':>13}"]
    for name, found in starts.items():
        wall, cpu = map(statistics.median, zip(*found, strict=True))
        ratio = ""
        if nsd := starts.get(Nsd.name):
            ratios = [one.wall / other.wall for one, other in zip(found, nsd, strict=True)]
            ratio = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]"
        least = min(one.wall for one in found)
        lines.append(f"{name:12}{wall:9.0f}{least:9.0f}{cpu:9.0f}   {ratio}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
