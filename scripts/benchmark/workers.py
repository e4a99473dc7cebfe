"""Two workers against one: what a query costs, and how long it takes, where both share two cores with the generator.

Servers and generator are left to the scheduler. Each rate is the total of all clients; the first are as fast as
replies come, with so many queries under way: with few, workers find short queues, with many full ones.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.benchmark import servers
from scripts.benchmark.loads import DELEGATIONS, LOADS, ORIGIN, Load, ark_zone, delegating_zone
from scripts.benchmark.report import Round, median
from tests.peers import Maptr, Nsd, Peer

# The same server with one process that answers, and with two.
PAIRS: dict[str, tuple[type[Peer], type[Peer]]] = {
    kind.name: (kind, twice)
    for kind, twice in (
        (Maptr, servers.MaptrTwo),
        (Nsd, servers.NsdTwo),
        (servers.Echo, servers.EchoTwo),
    )
}
WINDOWS = (256, 2048)
RATES = (20_000, 100_000, 200_000, 300_000)


def run(folder: Path, names: Sequence[str], options: argparse.Namespace) -> int:
    """Print a table for each rate."""
    from scripts.benchmark.server import WINDOW, compile_programs, drive

    compile_programs(folder)
    zones = {ORIGIN: folder / "zone", DELEGATIONS: folder / "delegations"}
    zones[ORIGIN].write_text(ark_zone(2000))
    zones[DELEGATIONS].write_text(delegating_zone())
    queries = folder / "queries"
    queries.write_bytes(LOADS[0].file())
    free = argparse.Namespace(seconds=options.seconds, unpinned=True)
    with contextlib.ExitStack() as stack:
        peers: dict[str, Peer] = {}
        for kind in (kind for name in names if name in PAIRS for kind in PAIRS[name]):
            peer = servers.start(kind, {} if issubclass(kind, servers.Echo) else zones)
            stack.callback(peer.stop)
            peers[peer.name] = peer
        cases = [*((0, window) for window in WINDOWS), *((rate, WINDOW) for rate in RATES)]
        for rate, window in cases[1:3] if options.smoke else cases:
            load: Load = dataclasses.replace(LOADS[0], rate=rate)
            rounds: dict[str, list[Round]] = {name: [] for name in peers}
            for number in range(options.rounds + 1):
                for name in peers if number % 2 == 0 else reversed(peers):
                    one = drive(folder / "generator", queries, load, peers[name], free, window)
                    if one is None:
                        sys.exit(f"scripts/bench: {name} does not answer")
                    if number:  # in the first, servers learn
                        rounds[name].append(one)
            what = f"{rate:,} queries a second" if rate else f"as fast as replies come, {window:,} under way"
            print(table(what, rounds), flush=True)
    return 0


def table(what: str, rounds: Mapping[str, Sequence[Round]]) -> str:
    """Medians of one and of two, and of the ratios of the single rounds."""
    lines = [
        what,
        f"  {'':7}{'us CPU, one':>12}{'two':>7}  {'two / one, round by round':<26}"
        f"{'p50 us, one':>12}{'two':>7}{'p99 us, one':>13}{'two':>7}{'queries/s, one':>16}{'two':>9}",
    ]
    for name in (name for name in PAIRS if name in rounds):
        one, two = rounds[name], rounds[PAIRS[name][1].name]
        each = [its.cpu_us / mine.cpu_us for mine, its in zip(one, two, strict=True)]
        ratio = f"{statistics.median(each):.2f} [{min(each):.2f}-{max(each):.2f}]"
        lines.append(
            f"  {name:7}{median(one, 'cpu_us'):12.2f}{median(two, 'cpu_us'):7.2f}  {ratio:<26}"
            f"{median(one, 'p50_us'):12.0f}{median(two, 'p50_us'):7.0f}"
            f"{median(one, 'p99_us'):13.0f}{median(two, 'p99_us'):7.0f}"
            f"{median(one, 'rate'):16.0f}{median(two, 'rate'):9.0f}"
        )
    return "\n".join(lines) + "\n"
