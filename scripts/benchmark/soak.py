"""What servers hold in memory through a long time of mixed load: what is learned and forgotten must not add up."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from scripts.benchmark import servers
from scripts.benchmark.loads import ORIGIN, ark_zone, mix, nodata, nxdomain, refused
from tests.support.peers import HOST, Peer

NAMES = 100_000
QUERIES = 500_000  # in the file, so that most names and as many cookies come by
RATE = 4_000  # queries a second to each server, all at the same time
LOOK = 60.0  # seconds between two looks at the memory


def run(folder: Path, names: Sequence[str], minutes: float) -> int:
    """Print the memory of each server (PSS, MB) at its start, in between, and at the end."""
    from scripts.benchmark.server import compile_programs

    compile_programs(folder)
    zone, queries = folder / "zone", folder / "queries"
    zone.write_text(ark_zone(NAMES))
    queries.write_bytes(b"".join(len(wire).to_bytes(2, "big") + wire for wire in traffic(random.Random(0))))
    with contextlib.ExitStack() as stack:
        peers = [servers.SERVERS[name]({ORIGIN: zone}) for name in names if name not in servers.ECHOES]
        for peer in peers:
            stack.enter_context(servers.started(peer))
        print(f"{'minute':>6} " + " ".join(f"{peer.name:>9}" for peer in peers), flush=True)
        print(line(0, peers), flush=True)
        loads = [stack.enter_context(load(folder, peer, minutes)) for peer in peers]
        begun = time.monotonic()
        while (left := begun + minutes * 60 - time.monotonic()) > 0:
            time.sleep(min(left, LOOK))
            print(line((time.monotonic() - begun) / 60, peers), flush=True)
        said = [one.communicate(timeout=60)[0] for one in loads]
    for peer, text in zip(peers, said, strict=True):
        print(f"{peer.name}: {text.strip()}")
    return 0 if all(one.returncode == 0 for one in loads) else 1


def traffic(rng: random.Random) -> Iterator[bytes]:
    """Four fifths of the realistic mix, and a fifth of what floods are made of."""
    kinds: tuple[Callable[[random.Random, int], bytes], ...] = (*[mix] * 12, nxdomain, nodata, refused)
    return (rng.choice(kinds)(rng, NAMES) for _ in range(QUERIES))


def load(folder: Path, peer: Peer, minutes: float) -> subprocess.Popen[str]:
    command = [folder / "generator", HOST, peer.port, folder / "queries", minutes * 60, 256, 16, RATE, "udp"]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=sys.stderr, text=True)


def line(minute: float, peers: Sequence[Peer]) -> str:
    return f"{minute:6.0f} " + " ".join(f"{servers.memory(peer):9.1f}" for peer in peers)
