"""The cache and the table: CPU time of a look-up in memory, on disk and in a table, and of reading a registry.

The best and the median of the rounds are printed; the best is the least disturbed one.
"""

from __future__ import annotations

import gzip
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from maptr import registry
from maptr.naptr.record import Naptr
from scripts.benchmark import results
from tests.cache import test_load as cache_load
from tests.support.caching import Rig, dns_answer, host, table

NAANS = 100_000
CACHED = range(1000, 3000)
REGISTRY = "naan_records_2026-07-14.json.gz"


def measure(name: str, budget: str, scale: float, unit: str, run: Callable[[], float], rounds: int) -> None:
    """Print the best and the median of some rounds; ``run`` returns the seconds of one."""
    taken = [run() * scale for _ in range(rounds)]
    print(f"{name:<40} {min(taken):>9.2f} {statistics.median(taken):>9.2f} {unit:<3} {budget:>6}", flush=True)


def cpu(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def hits(directory: Path, rounds: int, count: int) -> None:
    answers = {f"{n}.ark.arpa.": dns_answer(host("h.example.")) for n in CACHED}
    rig = Rig(answers, path=directory / "c.sqlite")
    for n in CACHED:
        rig.sources.discover(f"ark:{n}/x1")

    def in_memory() -> float:
        return cpu(lambda: [rig.sources.discover("ark:1000/x1") for _ in range(count)]) / count

    def on_disk() -> float:
        again = Rig({}, path=directory / "c.sqlite")
        again.sources.discover("ark:1000/x1")  # opens the cache file
        taken = cpu(lambda: [again.sources.discover(f"ark:{n}/x1") for n in CACHED[1:]]) / len(CACHED[1:])
        if again.dns.asked:
            raise SystemExit("bench: the disk did not answer")
        again.close()
        return taken

    measure("hit in memory, the same ARK", "2", 1e6, "us", in_memory, rounds)
    measure("hit on disk after a restart", "100", 1e6, "us", on_disk, rounds)


def new_arks(rounds: int, count: int) -> None:
    """Look up ARKs that were not asked before, of one NAAN: cached answers of DNS, and a table, in turn."""
    rule = Naptr(10, 0, b"u", b"ark", rb"!^ark:/?1000/(.*)$!https://h.example/\1!", ())
    rigs = {
        "a look-up in the table": Rig(natab=table(("1000", "h.example")), policy="natab-only", clock=time.monotonic),
        "a new ARK of a kept NAAN, host records": Rig(
            {"1000.ark.arpa.": dns_answer(host("h.example."), ttl=3600)}, clock=time.monotonic
        ),
        "a new ARK of a kept NAAN, URL rules": Rig(
            {"1000.ark.arpa.": dns_answer(rule, host("h.example.", 100), ttl=3600)}, clock=time.monotonic
        ),
    }
    taken: dict[str, list[float]] = {name: [] for name in rigs}
    names = itertools.count()
    for _ in range(rounds + 1):
        for name, rig in rigs.items():
            arks = [f"ark:1000/x{next(names)}" for _ in range(count)]
            rig.sources.discover(arks[0])
            taken[name].append(cpu(partial(_look_up, rig, arks[1:])) / count)
    (table_name, in_table), *others = taken.items()
    print(f"{table_name:<40} {min(in_table) * 1e6:>9.2f} {statistics.median(in_table) * 1e6:>9.2f} us")
    for name, seconds in others:
        ratios = [
            mine / its for mine, its in zip(seconds[1:], in_table[1:], strict=True)
        ]  # the first round is a warm-up
        print(f"{name:<40} {min(ratios):>9.2f} {statistics.median(ratios):>9.2f} x of the table, budget 2", flush=True)


def _look_up(rig: Rig, arks: Sequence[str]) -> None:
    for ark in arks:
        rig.sources.discover(ark)


def tables(data: Path, rounds: int, naans: int) -> None:
    entries = "".join(f"{n}:\n    h{n}.example.org  ACR\n" for n in range(10_000, 10_000 + naans))
    natab = f"{entries}#--- end of data ---\n"
    measure(f"natab of {naans:,} NAANs", "300", 1e3, "ms", lambda: cpu(lambda: registry.read(natab)), rounds)
    if not (data / REGISTRY).exists():
        print(f"no {REGISTRY} in {data}")
        return
    content = gzip.decompress((data / REGISTRY).read_bytes())

    def read() -> None:
        registry.read(content, on_bad=lambda error: None)

    measure("the registry of July 2026", "50", 1e3, "ms", lambda: cpu(read), rounds)


def mixed(seconds: float) -> None:
    """Run mixed traffic. Raises AssertionError for a wrong answer, and any undocumented error of the cache."""
    with tempfile.TemporaryDirectory() as name:
        outcomes, stops = cache_load.run(Path(name), seconds=seconds, period=5.0)
    print(f"{outcomes.total()} discoveries in {seconds:g} s, the server stopped {stops} times, no wrong answer:")
    for outcome, count in outcomes.most_common():
        print(f"{count:>9}  {outcome}")


def main(arguments: Sequence[str]) -> int:
    parser = results.parser("cache", __doc__)
    parser.add_argument(
        "--load", type=float, metavar="SECONDS", help="instead, mixed traffic; its server is stopped every 5 s"
    )
    options = parser.parse_args(arguments)
    count, naans = 100_000, NAANS
    if options.smoke:
        options.rounds, count, naans = 1, 100, 100
    with results.reported("cache", save=options.save), tempfile.TemporaryDirectory() as name:
        if options.load is not None:
            mixed(options.load)
            return 0
        print(f"{'':<40} {'best':>9} {'median':>9}     budget")
        hits(Path(name), options.rounds, count)
        new_arks(options.rounds, max(count // 50, 2))
        tables(Path(os.environ.get("MAPTR_REAL_DATA", "../shared/data")), options.rounds, naans)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
