"""Servers under a constant load: queries lost over reloads and beside odd queries, and memory over time."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from scripts.benchmark import odd, results, servers
from scripts.benchmark.loads import FEW, LOADS, ORIGIN, SERIAL, Load, ark_zone, mix, nodata, nxdomain, packed, refused
from scripts.benchmark.scale import wait_for
from scripts.benchmark.server import compile_generator, generate
from tests.support.peers import Peer, find

RELOADABLE = ("maptr", "nsd", "bind")  # servers that reread their zones on SIGHUP
RELOAD_RATE, ORDINARY_RATE, ODD_RATE, SOAK_RATE = 10_000, 5_000, 100_000, 4_000  # queries a second
ODD_WINDOW = 32_768  # dropped queries stay in the window until they count as lost
ANSWERED = 0.99  # the least share of ordinary queries that maptr answers beside odd ones
PAUSE = 0.5  # seconds between two reloads
PATIENCE = 30.0  # seconds for one reload
SOAK_NAMES, SOAK_QUERIES = 100_000, 500_000


def main(arguments: Sequence[str]) -> int:
    parser = results.parser("trials", __doc__)
    parser.add_argument("--reloads", type=int, default=20, metavar="N", help="(default 20)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of odd queries (default 10)")
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES", help="of mixed load (default 0)")
    options = parser.parse_args(arguments)
    load = LOADS[0]
    if options.smoke:
        options.reloads, options.seconds, load = 1, 0.2, dataclasses.replace(load, count=FEW)
    with results.reported("trials", save=options.save), tempfile.TemporaryDirectory(prefix="maptr-bench-") as name:
        folder = Path(name)
        generator = compile_generator(folder)
        kinds = [kind for kind in servers.SERVERS.values() if find(kind.commands[0])][: 1 if options.smoke else None]
        good = [reloads(generator, kind, load, options.reloads) for kind in kinds if kind.name in RELOADABLE]
        good += [beside_odd(generator, kind, load, options.seconds) for kind in kinds if kind.name == "maptr"]
        if options.soak:
            soak(generator, kinds, options.soak)
    return 0 if all(good) else 1


def figures(running: subprocess.Popen[str]) -> dict[str, int]:
    out, _ = running.communicate()
    if running.returncode:
        sys.exit(f"bench: the generator exits {running.returncode}")
    found: dict[str, int] = json.loads(out)
    return found


@contextlib.contextmanager
def serving(generator: Path, kind: type[Peer], names: int = 2000) -> Iterator[tuple[Peer, Path]]:
    zone = generator.with_name("zone")
    zone.write_text(ark_zone(names))
    with kind({ORIGIN: zone}) as peer:
        yield peer, zone


def queries_of(generator: Path, name: str, queries: Iterator[bytes]) -> Path:
    path = generator.with_name(name)
    path.write_bytes(packed(queries))
    return path


def reloads(generator: Path, kind: type[Peer], load: Load, count: int) -> bool:
    """Print the queries lost while the zone is repeatedly replaced. Returns False if maptr loses a query."""
    queries = queries_of(generator, "queries", load.queries())
    with (
        serving(generator, kind) as (peer, zone),
        generate(generator, queries, peer, count * PATIENCE, rate=RELOAD_RATE) as running,
    ):
        for serial in range(SERIAL + 1, SERIAL + count + 1):
            time.sleep(PAUSE)
            following = zone.with_suffix(".new")
            following.write_text(ark_zone(2000, serial))
            following.replace(zone)
            os.kill(peer.process.pid, signal.SIGHUP)
            wait_for(peer, serial, PATIENCE)
        time.sleep(PAUSE)
        running.terminate()
        found = figures(running)
    print(
        f"{kind.name:9} {count} reloads: {found['sent']} queries, {found['lost']} lost, p99 {found['p99']} us",
        flush=True,
    )
    return kind.name != "maptr" or not found["lost"]


def beside_odd(generator: Path, kind: type[Peer], load: Load, seconds: float) -> bool:
    """Print the share of ordinary queries answered during a flood of odd ones. Returns False if it is too low."""
    rng = random.Random(0)
    kinds = list(odd.ODD.values())
    flood = queries_of(generator, "odd", (rng.choice(kinds)(rng) for _ in range(load.count)))
    ordinary = queries_of(generator, "queries", load.queries())
    with (
        serving(generator, kind) as (peer, _),
        generate(generator, flood, peer, seconds + 1, rate=ODD_RATE, window=ODD_WINDOW) as flooding,
        generate(generator, ordinary, peer, seconds, rate=ORDINARY_RATE) as running,
    ):
        found = figures(running)
        figures(flooding)
    share = found["received"] / (found["received"] + found["lost"])
    print(
        f"{kind.name:9} {ORDINARY_RATE:,} ordinary queries a second beside {ODD_RATE:,} odd ones: {share:.2%} answered"
        f" (at least {ANSWERED:.0%})",
        flush=True,
    )
    return share >= ANSWERED


def soak(generator: Path, kinds: Sequence[type[Peer]], minutes: float) -> None:
    """Print the memory of each server (PSS, MB) once a minute. Memory for temporary data must not accumulate."""
    rng = random.Random(0)
    makers: tuple[Callable[[random.Random, int], bytes], ...] = (*[mix] * 12, nxdomain, nodata, refused)
    traffic = (rng.choice(makers)(rng, SOAK_NAMES) for _ in range(SOAK_QUERIES))
    queries = queries_of(generator, "queries", traffic)
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(serving(generator, kind, SOAK_NAMES))[0] for kind in kinds]
        loads = [
            stack.enter_context(generate(generator, queries, peer, minutes * 60, rate=SOAK_RATE)) for peer in peers
        ]
        print(f"{'minute':>6} " + " ".join(f"{peer.name:>9}" for peer in peers))
        for minute in range(int(minutes) + 1):
            print(f"{minute:6} " + " ".join(f"{servers.memory(peer):9.1f}" for peer in peers), flush=True)
            if minute < int(minutes):
                time.sleep(60)
        for running in loads:
            figures(running)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
