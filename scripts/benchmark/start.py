"""From the command to the first answer: time, CPU time and memory of maptr and Debian's DNS servers.

Each server is started, queried for one name every millisecond until it answers, and stopped; the servers take turns.
The largest zone is read in several layouts. *Restarted* is maptr with ``serve.state``, started again with the same
files. With ``--zones``, there are many small zones instead of one, and a name in the last one is queried.
"""

from __future__ import annotations

import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.benchmark import layouts, results, servers
from scripts.benchmark.loads import FIRST_NAAN, ORIGIN, below
from scripts.benchmark.odd import NAPTR, ask, opt
from tests.support.peers import HOST, Knot, Maptr, Nsd, Peer, find
from tests.support.waiting import until

SIZES = (2_000, 100_000)
NAMES_EACH = 3  # NAANs in each of many zones
KEEPING = 300.0  # seconds to wait until many versions are saved
INTERVAL = 0.001  # seconds between two queries
AA = 0x04
RESTARTED = "restarted"
OTHERS = (Nsd, Knot)
Starters = Mapping[str, Callable[[], Peer]]


class ConfiguredMaptr(Maptr):
    """maptr with its zones in a configuration file, as an operator has thousands of them."""

    def configure(self) -> list[str]:
        path = self.directory / "maptr.toml"
        zones = [f'[[zone]]\nname = "{origin}"\nfile = "{file}"\n' for origin, file in self.zones.items()]
        path.write_text("\n".join([f'[serve]\nlisten = ["{self.host}:{self.port}"]\ncontrol = ""\n', *zones]))
        return [sys.executable, "-m", "maptr", "serve", f"--config={path}", *self.options]


class Start(NamedTuple):
    """One start: seconds to the first answer, CPU seconds, and the memory afterwards in MB."""

    wall: float
    cpu: float
    memory: float


def first_answer(peer: Peer, state: Path | None = None) -> Start:
    """Start a server, wait for its first answer from its last zone, and stop it.

    With a state folder, also wait until all zones are saved there, so that the next start is a restart.
    """
    *_, origin = peer.zones
    started = time.perf_counter()
    try:
        peer.launch()
        ask_until_answered(peer, origin=origin)
        found = Start(time.perf_counter() - started, servers.cpu_seconds(peer), servers.memory(peer))
        if state is not None:
            kept = lambda: len([*state.glob("*.kept")]) == len(peer.zones)  # noqa: E731
            until(kept, lambda: f"not all versions were kept\n{peer.log()}", seconds=KEEPING)
        return found
    finally:
        peer.stop()


def ask_until_answered(peer: Peer, seconds: float = 60, *, origin: str = ORIGIN) -> None:
    wire = ask(below(b"%d" % FIRST_NAAN, origin), NAPTR, opt())
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


def starters(zones: Mapping[str, Path], state: Path, *, smoke: bool) -> Starters:
    """Return the functions that make each server, by name in the table."""
    found: dict[str, Callable[[], Peer]] = {
        Maptr.name: lambda: ConfiguredMaptr(zones),
        RESTARTED: lambda: ConfiguredMaptr(zones, f"--state={state}"),
    }
    if not smoke:
        found |= {kind.name: lambda kind=kind: kind(zones) for kind in OTHERS if find(kind.commands[0])}  # type: ignore[misc]
    return found


def measure(made: Starters, rounds: int, state: Path) -> dict[str, list[Start]]:
    """Measure the starts of each server. The first start, which fills caches and compiles modules, does not count."""
    starts: dict[str, list[Start]] = {name: [] for name in made}
    for number in range(rounds + 1):
        for name in list(made) if number % 2 == 0 else reversed(list(made)):
            starts[name].append(first_answer(made[name](), state if name == RESTARTED else None))
    return {name: found[1:] for name, found in starts.items()}


def table(title: str, starts: Mapping[str, Sequence[Start]]) -> Iterator[str]:
    """Yield the medians of each server, and the ratio to NSD in the same round."""
    yield f"{title:32}{'s':>8}{'least':>8}{'CPU s':>8}{'MB':>6}   x NSD"
    for name, found in starts.items():
        wall, cpu, memory = map(statistics.median, zip(*found, strict=True))
        ratio = ""
        if nsd := starts.get(Nsd.name):
            ratios = [one.wall / other.wall for one, other in zip(found, nsd, strict=True)]
            ratio = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]"
        yield f"{name:32}{wall:8.2f}{min(one.wall for one in found):8.2f}{cpu:8.2f}{memory:6.0f}   {ratio}"


def measure_zones(count: int, rounds: int, *, smoke: bool) -> None:
    """Measure and print the starts with many zones of a few names."""
    with tempfile.TemporaryDirectory(prefix="maptr-bench-") as folder:
        state, zones = Path(folder, "state"), dict[str, Path]()
        state.mkdir(mode=0o700)
        for number in range(count):
            origin = f"zone{number}.{ORIGIN}"
            zones[origin] = Path(folder, f"{number}.zone")
            zones[origin].write_text(layouts.own(NAMES_EACH, origin))
        starts = measure(starters(zones, state, smoke=smoke), rounds, state)
    print("\n".join(table(f"{count:,} zones of {NAMES_EACH} names", starts)), flush=True)


def main(arguments: Sequence[str]) -> int:
    parser = results.parser("start", __doc__, rounds=3)
    parser.add_argument("--names", type=int, action="append", help="of the zone; repeatable (default 2000, 100000)")
    parser.add_argument("--zones", type=int, help="number of small zones, instead of one zone with many names")
    options = parser.parse_args(arguments)
    sizes, rounds = options.names or ([] if options.zones else list(SIZES)), options.rounds
    if options.smoke:
        sizes, rounds = [100], 1
    with results.reported("start", save=options.save):
        if options.zones or options.smoke:
            measure_zones(options.zones or 10, rounds, smoke=options.smoke)
        for size in sizes:
            for layout, make in layouts.LAYOUTS.items():
                if (size != max(sizes) and make is not str) or (isinstance(make, str) and options.smoke):
                    continue
                with tempfile.TemporaryDirectory(prefix="maptr-bench-") as folder:
                    zone, state = Path(folder, "zone"), Path(folder, "state")
                    state.mkdir(mode=0o700)
                    layouts.write(layout, size, zone)
                    starts = measure(starters({ORIGIN: zone}, state, smoke=options.smoke), rounds, state)
                print("\n".join(table(f"{size:,} names, {layout}", starts)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
