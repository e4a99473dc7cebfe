"""Latency of ordinary queries while a server reloads a large zone after one change.

Queries for random names are sent at a fixed rate, from before the reload until after it.
"""

from __future__ import annotations

import random
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from maptr.files import write_atomically
from scripts.benchmark import results
from scripts.benchmark.loads import FIRST_NAAN, ORIGIN, SERIAL, ark_zone, below
from scripts.benchmark.odd import NAPTR, ask, opt
from scripts.benchmark.scale import wait_for
from scripts.benchmark.start import ask_until_answered
from tests.support.peers import HOST, Knot, Maptr, Nsd, Peer, find
from tests.support.secondaries import KEY

NAMES = 500_000
RATE = 1_000  # queries a second
AFTER = 1.0  # seconds of queries before the reload, and after it
LOST = 5.0  # seconds after which a query counts as lost
WITHIN = 0.05  # seconds


class Latencies(NamedTuple):
    """Seconds from each query to its response; ``lost`` had none. ``reload`` is the time until the new serial."""

    seconds: list[float]
    lost: int
    reload: float

    def at(self, share: float) -> float:
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(share * len(self.seconds)))]

    def within(self, limit: float) -> float:
        """Return the share of queries answered within a time."""
        return sum(each <= limit for each in self.seconds) / (len(self.seconds) + self.lost)


class Asker:
    """Sends queries at a fixed rate in one thread, and takes the responses in another."""

    def __init__(self, peer: Peer, names: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect((HOST, peer.port))
        self._socket.settimeout(0.2)
        rng = random.Random(1)
        self._queries = [ask(below(b"%d" % (FIRST_NAAN + rng.randrange(names))), NAPTR, opt()) for _ in range(10_000)]
        self._sent: dict[int, float] = {}
        self._seconds: list[float] = []
        self._lost = 0
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._receive)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> tuple[list[float], int]:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._socket.close()
        return self._seconds, self._lost + len(self._sent)

    def _send(self) -> None:
        number, due = 0, time.perf_counter()
        while not self._stopped.is_set():
            key = number % (1 << 16)
            if key in self._sent:
                self._lost += 1
            self._sent[key] = time.perf_counter()
            self._socket.send(key.to_bytes(2, "big") + self._queries[number % len(self._queries)][2:])
            number, due = number + 1, due + 1 / RATE
            time.sleep(max(0.0, due - time.perf_counter()))

    def _receive(self) -> None:
        end = float("inf")
        while time.perf_counter() < end and (self._sent or not self._stopped.is_set()):
            if self._stopped.is_set() and end == float("inf"):
                end = time.perf_counter() + LOST
            try:
                response = self._socket.recv(4096)
            except TimeoutError:
                continue
            now, sent = time.perf_counter(), self._sent.pop(int.from_bytes(response[:2], "big"), None)
            if sent is not None:
                self._seconds.append(now - sent)


def measure(kind: type[Peer], zone: Path, names: int, *options: str) -> Latencies:
    """Start a server, change one record of its zone, reload it under queries, and stop it."""
    peer = kind({ORIGIN: zone}, KEY, *options) if kind is Maptr else kind({ORIGIN: zone})
    text = zone.read_bytes()
    changed = text.replace(b" %d 7200 " % SERIAL, b" %d 7200 " % (SERIAL + 1), 1).replace(
        b"resolver%d." % FIRST_NAAN, b"elsewhere.", 1
    )
    assert changed != text
    try:
        peer.launch()
        ask_until_answered(peer, 600)
        asker = Asker(peer, names)
        asker.start()
        time.sleep(AFTER)
        write_atomically(zone, changed)
        started = time.perf_counter()
        peer.process.send_signal(signal.SIGHUP)
        wait_for(peer, SERIAL + 1)
        spent = time.perf_counter() - started
        time.sleep(AFTER)
        seconds, lost = asker.stop()
        return Latencies(seconds, lost, spent)
    finally:
        peer.stop()
        write_atomically(zone, text)


def table(names: int, found: dict[str, list[Latencies]]) -> str:
    lines = [f"reload of {names:,} names after one change, {RATE:,} queries a second for random names"]
    lines.append(
        f"{'':8}{'reload, s':>12}{'99 %, ms':>12}{'99.9 %, ms':>12}{'longest, ms':>12}{'in 50 ms, %':>14}{'lost':>8}"
    )
    for name, runs in found.items():
        middle = statistics.median
        lines.append(
            f"{name:8}{middle(run.reload for run in runs):13.1f}{middle(run.at(0.99) for run in runs) * 1e3:13.1f}"
            f"{middle(run.at(0.999) for run in runs) * 1e3:13.1f}{max(max(run.seconds) for run in runs) * 1e3:13.1f}"
            f"{middle(run.within(WITHIN) for run in runs) * 1e2:13.2f}{sum(run.lost for run in runs):13}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = results.parser("reload", __doc__)
    parser.add_argument("--names", type=int, default=NAMES, help=f"of the zone (default {NAMES})")
    options = parser.parse_args(arguments)
    kinds: list[type[Peer]] = [kind for kind in (Maptr, Nsd, Knot) if find(kind.commands[0])]
    if options.smoke:
        options.rounds, options.names, kinds = 1, 100, [Maptr]
    with results.reported("reload", save=options.save), tempfile.TemporaryDirectory() as folder:
        zone = Path(folder) / "ark.zone"
        zone.write_bytes(ark_zone(options.names).encode())
        found: dict[str, list[Latencies]] = {kind.name: [] for kind in kinds}
        for _ in range(options.rounds):
            for kind in kinds:
                found[kind.name].append(measure(kind, zone, options.names, "--transfer=key:xfr"))
        print(table(options.names, found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
