"""The cache's figures against its targets, and what can be compared as ratios in one run.

Run with --help. Absolute figures depend on the machine and on what else it does; the best of some rounds is printed,
as the least disturbed one, with the median beside it. What asks a server is measured by the clock, the rest in time
of the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dns.zone

from maptr import Cache, registry
from maptr.registry.followed_file import WatchedTable
from maptr.registry.plan import Plan
from maptr.registry.table import Table
from maptr.zone.build import build
from maptr.zone.lint import publishable
from maptr.zone.snapshot import ZoneView, view_zone
from scripts.benchmark.processes import processes
from tests.cache import test_load as test_cache_load
from tests.support.caching import Rig, host, said
from tests.support.moments import ORIGIN, Follower, states, with_part
from tests.support.peers import HOST, Maptr, find, free_port

NAANS = 100_000
FIRST = 10_000

# The draft's way: read natab line by line until the NAAN's entry is found.
PERL = r"""
use Time::HiRes qw(time);
my ($file, $count, @naans) = @ARGV;
my $s = time();
for my $naan (@naans) {
  open(my $f, "<", $file) or die; my $in = 0; my @nma;
  while (<$f>) { if (/^(\S+):/) { last if $in; $in = 1 if $1 eq $naan } elsif ($in && /^\s+(\S+)/) { push @nma, $1 } }
  close $f; die unless @nma;
}
printf "%.9f\n", (time() - $s) / @naans;
"""


def measure(name: str, target: str, scale: float, unit: str, run: Callable[[], float], rounds: int) -> float:
    """Print the best and the median of some rounds; ``run`` gives seconds for one. Gives the best, in seconds."""
    taken = [run() for _ in range(rounds)]
    best, median = min(taken), statistics.median(taken)
    print(f"{name:<58} {best * scale:>9.2f} {median * scale:>9.2f} {unit:<3} {target}")
    return best


def per_call(function: Callable[[], object], number: int) -> Callable[[], float]:
    def run() -> float:
        started = time.process_time()
        for _ in range(number):
            function()
        return (time.process_time() - started) / number

    return run


def natab_text() -> str:
    entries = (f"{FIRST + n}:\n    h{n}.example.org  ACR\n" for n in range(NAANS))
    return "".join(entries) + "#--- end of data ---\n"


@contextmanager
def served(table_file: Path, directory: Path) -> Iterator[tuple[int, Table]]:
    table = registry.read(table_file.read_bytes(), on_bad=lambda error: None)
    path = directory / "ark.arpa.zone"
    path.write_text(build(table, 1).text)
    with Maptr({"ark.arpa.": path}) as server:
        yield server.port, table


def memory_and_disk(directory: Path, rounds: int) -> None:
    answers = {f"{n}.ark.arpa.": said(host("h.example.")) for n in range(1000, 3000)}
    rig = Rig(answers, path=directory / "c.sqlite")
    for n in range(1000, 3000):
        rig.cache.discover(f"ark:{n}/x1")
    rig.cache.discover("ark:1000/x1")
    measure("hit in memory, sync, a text seen within the second", "2", 1e6, "us",
            per_call(lambda: rig.cache.discover("ark:1000/x1"), 100_000), rounds)  # fmt: skip
    counter = iter(range(10**9))
    measure("hit in memory, a NAAN seen, another ARK of it", "", 1e6, "us",
            per_call(lambda: rig.cache.discover(f"ark:1000/x{next(counter)}"), 2_000), rounds)  # fmt: skip

    def after_restart() -> float:
        again = Rig({}, path=directory / "c.sqlite")
        again.cache.discover("ark:1000/x1")  # opens the file
        started = time.process_time()
        for n in range(1001, 3000):
            again.cache.discover(f"ark:{n}/x1")
        taken = (time.process_time() - started) / 1999
        if again.dns.questions:
            raise SystemExit("the disk did not answer")
        again.cache.close()
        return taken

    measure("hit on disk after a restart", "60", 1e6, "us", after_restart, rounds)


def natab(directory: Path, rounds: int) -> None:
    path = directory / "natab"
    path.write_text(natab_text())
    measure(f"natab of {NAANS} NAANs read", "300", 1e3, "ms",
            lambda: worked(WatchedTable(path, clock=time.monotonic).reload), rounds)  # fmt: skip
    watched = WatchedTable(path, clock=time.monotonic)
    table = watched.reload().table
    if table is None:
        raise SystemExit("no table")
    measure("the same, unchanged, noticed by its hash", "", 1e3, "ms", lambda: worked(watched.reload), rounds)
    keys = [str(FIRST + n) for n in range(0, NAANS, 97)]
    measure("natab look-up, each NAAN for the first time", "", 1e6, "us",
            lambda: worked(lambda: [table[key] for key in keys]) / len(keys), 1)  # fmt: skip
    best = measure(
        "natab look-up", "0.5", 1e6, "us", lambda: worked(lambda: [table[key] for key in keys]) / len(keys), rounds
    )
    measure("the same natab with every entry made", "", 1e3, "ms", lambda: worked(lambda: every_entry(path)), 1)
    once(path, rounds)
    if find("perl"):
        some = [keys[n] for n in range(0, len(keys), 100)]
        done = subprocess.run(["perl", "-e", PERL, str(path), "1", *some], capture_output=True, text=True, check=True)
        print(f"{'the draft: Perl reading natab, a look-up':<58} {float(done.stdout) * 1e6:>9.0f} {'':>9} us")
        print(f"{'ratio of the two look-ups':<58} {float(done.stdout) / best:>9.0f} {'':>9} x   50000")


def every_entry(path: Path) -> None:
    list(registry.read(path.read_bytes()).values())


def once(path: Path, rounds: int) -> None:
    """Processes that ask once and end, by what they take longer than one that does nothing: CPU, then by the clock."""
    with processes() as started:
        commands = {"": started.nothing}
        for where, naan in (("in the middle", FIRST + NAANS // 2), ("at the end", FIRST + NAANS - 1)):
            line = ["url", f"ark:{naan}/x1", "--table", str(path), "--policy", "natab-only"]
            commands[f"maptr url --table, {where}"] = [*started.command, *line]
        told = list(started.rounds(commands, 4 * rounds))
        for name in list(commands)[1:]:
            for clock, kind in ((1, "CPU"), (0, "time")):
                taken = sorted(took[name][clock] - took[""][clock] for took in told)
                print(f"{f'a process that asks once: {name}, {kind}':<58} {taken[0] * 1e3:>9.2f}"
                      f" {statistics.median(taken) * 1e3:>9.2f} ms")  # fmt: skip
        for clock, kind in ((1, "CPU"), (0, "time")):
            least = statistics.median(took[""][clock] for took in told)
            print(f"{f'the process that does nothing, {kind}':<58} {'':>9} {least * 1e3:>9.2f} ms")


def worked(function: Callable[[], object]) -> float:
    """Seconds of this process's own work, which what else the machine does disturbs least."""
    started = time.process_time()
    function()
    return time.process_time() - started


def timed(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def drift(file: Path, directory: Path, rounds: int) -> None:
    with served(file, directory) as (port, table):

        def run() -> float:
            cache = Cache(table, policy="dns-only", nameservers=[f"{HOST}#{port}"])
            return timed(lambda: list(cache.drift_many()))

        measure(f"drift over {len(table)} records, loopback", "1", 1, "s", run, rounds)


def moments(data: Path) -> None:
    """The registry's real moments: what IXFR sends of them, and what AXFR would."""
    if not (data / "naan_updates.jsonl.gz").exists():
        print("no real registry: its moments are not followed")
        return
    followed = states(data)
    table = registry.read(json.dumps(next(followed)[1]))
    follower = Follower(view_of(table, 1))
    whole = count = 0
    for count, (_, document) in enumerate(followed, 1):
        plan = Plan.between(table, following := registry.read(json.dumps(document)))
        touched = {entry.naan for entry in (*plan.added, *plan.removed, *(new for _, new in plan.changed))}
        part = Table(entry for entry in following.values() if entry.naan in touched)
        if follower.publish(with_part(follower.view, view_of(part, count + 1), touched)) is not None:
            whole += follower.axfr_size()
        table = following
    print(f"{f'IXFR of the registry, {count} moments':<58} {follower.ixfr:>9} octets")
    print(f"{'AXFR of the same':<58} {whole:>9} octets")
    print(f"{'ratio of the two':<58} {whole / follower.ixfr:>9.0f} x")


def view_of(table: Table, serial: int) -> ZoneView:
    text = build(publishable(table)[0], serial).text
    return view_zone(dns.zone.from_text(text, ORIGIN, relativize=False))


def black_hole(rounds: int) -> None:
    table = registry.read(natab_text()[: 40 * 1000] + "\n#--- end of data ---\n", on_bad=lambda error: None)
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as hole:
        port = free_port()
        hole.bind((HOST, port))
        cache = Cache(table, nameservers=[f"{HOST}#{port}"])
        naans = iter(table)
        measure("first answer, DNS black-holed, natab there", "300", 1e3, "ms",
                lambda: timed(lambda: cache.discover(f"ark:{next(naans)}/x")), 1)  # fmt: skip
        for _ in range(5):
            cache.discover(f"ark:{next(naans)}/x")
        measure("the same, the circuit open", "1", 1e3, "ms",
                lambda: timed(lambda: cache.discover(f"ark:{next(naans)}/x")), max(rounds, 20))  # fmt: skip


def load(seconds: float) -> None:
    """Ends with an AssertionError where an answer is wrong, and with whatever error leaves the cache."""
    with tempfile.TemporaryDirectory() as name:
        outcomes, kills = test_cache_load.run(Path(name), seconds=seconds, period=5.0)
    print(f"{outcomes.total()} discoveries in {seconds:g} s, the server killed {kills} times, none of them wrong:")
    for outcome, count in outcomes.most_common():
        print(f"{count:>9}  {outcome}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--load", type=float, metavar="SECONDS", help="instead, mixed traffic for so long, its server killed every 5 s"
    )
    parser.add_argument("--registry", type=Path, default=None, help="by default the real one, or the sample")
    options = parser.parse_args()
    if options.load is not None:
        load(options.load)
        return
    real = Path(os.environ.get("MAPTR_REAL_DATA", "../shared/data")) / "naan_records.json"
    file = options.registry or (real if real.exists() else Path("zones/sample.json"))
    print(f"Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}\n")
    print(f"{'':<58} {'best':>9} {'median':>9}     target")
    with tempfile.TemporaryDirectory() as name:
        memory_and_disk(Path(name), options.rounds)
        natab(Path(name), options.rounds)
        drift(file, Path(name), options.rounds)
        black_hole(options.rounds)
        moments(real.parent)


if __name__ == "__main__":
    main()
