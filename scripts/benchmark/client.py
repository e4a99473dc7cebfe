"""The client against dnspython, and ``maptr url`` against dig, over one local server: ratios in one run.

It also measures how long one hostile response occupies the event loop, in the thread's CPU time.

The subjects of a ratio take turns; a ratio is the median over the rounds, with the lowest and the highest.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import dns.asyncresolver
import dns.resolver

from maptr import Client
from maptr.ark import Ark
from maptr.discovery import Discovery, DiscoveryFailed
from maptr.walk import MAX_RECORDS
from scripts.benchmark import results
from tests.support.hostile import NAPTR, TC, hostile, naptr, record, reply
from tests.support.peers import Maptr, Nsd, Peer, find

FIRST = 10_000  # the first NAAN of the zone
SHARED = 1_432  # NAANs of the real registry


class Ratio:
    """Pairs of measurements, one per round, with a budget for their median ratio."""

    def __init__(self, title: str, unit: str, budget: str) -> None:
        self.title, self.unit, self.budget = title, unit, budget
        self.pairs: list[tuple[float, float]] = []

    def add(self, ours: float, theirs: float) -> None:
        self.pairs.append((ours, theirs))

    def __str__(self) -> str:
        ratios = [ours / theirs for ours, theirs in self.pairs]
        ours, theirs = (statistics.median(side) for side in zip(*self.pairs, strict=True))
        spread = f"[{min(ratios):.2f}-{max(ratios):.2f}]"
        return (
            f"{self.title:58} {statistics.median(ratios):6.2f} {spread:>15}  "
            f"{ours:10.1f} / {theirs:<10.1f} {self.unit:12} budget {self.budget}"
        )


def cpu(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def both(work: Callable[[], object], count: int) -> tuple[float, float]:
    """Return the wall time and CPU time of one of ``count`` units of work, in seconds."""
    started = time.perf_counter()
    busy = cpu(work)
    return (time.perf_counter() - started) / count, busy / count


def zone_text(count: int) -> Iterator[str]:
    yield "$ORIGIN ark.arpa.\n$TTL 300\n@ SOA ns.example. admin.example. 1 3600 600 86400 60\n@ NS ns.example.\n"
    for naan in range(FIRST, FIRST + count):
        yield f'{naan} NAPTR 100 10 "h" "ark" "" h{naan}.example.\n'
    for naan in range(FIRST, FIRST + SHARED):
        yield f'b{naan} NAPTR 10 10 "u" "ark" "!^ark:/?b{naan}/(.*)$!https://h{naan}.example/\\\\1!" .\n'


def arks(count: int, distinct: int, before: str = "") -> Iterable[str]:
    return (f"ark:{before}{FIRST + i % distinct}/x{i}" for i in range(count))


def single(server: Peer, rounds: int, count: int) -> list[Ratio]:
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = [server.host], server.port
    resolver.use_edns(0, 0, 1232)
    client = Client([f"{server.host}#{server.port}"])
    given_client = Client(resolver)
    given = Ratio("discover(resolver=R) / R.resolve, CPU", "us", "1.25")
    light = Ratio("discover(nameservers) / R.resolve, CPU", "us", "0.48")
    for _ in range(rounds):
        bare = cpu(lambda: [resolver.resolve(f"{FIRST + i}.ark.arpa.", "NAPTR") for i in range(count)]) / count * 1e6
        ours = cpu(lambda: [given_client.discover(ark) for ark in arks(count, count)]) / count * 1e6
        small = cpu(lambda: [client.discover(ark) for ark in arks(count, count)]) / count * 1e6
        given.add(ours, bare)
        light.add(small, bare)
    return [given, light]


def many(server: Peer, rounds: int, count: int) -> list[Ratio]:
    client = Client([f"{server.host}#{server.port}"])
    ratios = [
        Ratio("discover_many / dnspython async, walks a second", "walks/s", "at least 6.0"),
        Ratio("dnspython async / discover_many, CPU a walk", "us", "at least 6.0"),
        Ratio("discover_many_async / dnspython async, walks a second", "walks/s", "none"),
        Ratio("dnspython async / discover_many_async, CPU a walk", "us", "none"),
    ]
    few = min(count, 3000)
    for _ in range(rounds):
        theirs = both(lambda: asyncio.run(_dnspython(server, few)), few)
        sync = both(lambda: _all(client.discover_many(arks(count, count))), count)
        awaited = both(lambda: asyncio.run(_all_async(client, count)), count)
        for at, ours in ((0, sync), (2, awaited)):
            ratios[at].add(1 / ours[0], 1 / theirs[0])
            ratios[at + 1].add(theirs[1] * 1e6, ours[1] * 1e6)
    return ratios


def shared(server: Peer, rounds: int, total: int, before: str, kind: str) -> str:
    runs: list[tuple[float, float]] = []
    for _ in range(rounds):
        client = Client([f"{server.host}#{server.port}"])
        pairs = ((number, Ark.parse(ark)) for number, ark in enumerate(arks(total, SHARED, before)))
        runs.append(both(partial(_all, (discovery for _, discovery in client.discover_pairs(pairs))), total))
    passed, busy = (statistics.median(side) for side in zip(*runs, strict=True))
    return (
        f"{total} ARKs over {SHARED} NAANs, {kind} records: {client.resolver.questions} queries, "
        f"{1 / passed:.0f} ARKs/s, {busy * 1e6:.1f} us CPU each"
    )


# The starter script of pip 26 and uv. Earlier versions of pip first import re.
STARTER = """import sys
from maptr.cli.start import run
if __name__ == "__main__":
    sys.argv[0] = sys.argv[0].removesuffix(".exe")
    sys.exit(run())
"""


def processes(server: Peer, rounds: int, directory: Path) -> list[Ratio]:
    """Compare dig with ``maptr url``, installed with compiled modules and without a configuration."""
    name = f"{FIRST}.ark.arpa."
    starter = directory / "maptr"
    starter.write_text(STARTER)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("MAPTR_", "XDG_"))},
        "HOME": str(directory),
        "PYTHONPATH": os.fspath(Path.cwd()),  # an editable install would take time to find the package
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(directory / "compiled"),
    }
    ours = [sys.executable, str(starter), "url", f"ark:{FIRST}/x", f"@{server.host}#{server.port}"]
    dig = [find("dig") or "dig", "+short", "-p", str(server.port), f"@{server.host}", name, "NAPTR"]
    ratios = [Ratio(f"maptr url ARK @server / dig +short, {clock}", "ms", "3.0") for clock in ("time", "CPU")]
    for number in range(rounds + 1):
        first, second = (spawn(command, environment) for command in ((ours, dig) if number % 2 else (dig, ours)))
        took = (first, second) if number % 2 else (second, first)
        for ratio, mine, other in zip(ratios, *took, strict=True):
            if number:  # the first round compiles
                ratio.add(mine * 1e3, other * 1e3)
    return ratios


def spawn(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run a process and return its wall and CPU time in seconds. Raises SystemExit if it fails."""
    started = time.perf_counter()
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, env=environment) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
    if status:
        raise SystemExit(f"bench: {' '.join(command)} failed")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime


# Each fills most of the 65,535 bytes of a response over TCP.
HOSTILE = {
    "2,048 hosts": [naptr(f"{n:03x}.b") for n in range(2_048)],
    "200 hostile regexps": [
        naptr(flags=b"u", regexp=f"!((((x?)*)*)*)*y!https://h{n}.example/!".encode()) for n in range(200)
    ],
    "700 prefix rules": [
        naptr(flags=b"u", regexp=rf"!^ark:/?{FIRST}/(.*)$!https://h{n}.example/\1!".encode()) for n in range(700)
    ],
}


class Hold:
    """The longest time that one callback occupied the event loop, in seconds of the thread's CPU."""

    def __init__(self) -> None:
        self.longest = 0.0

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        watch = asyncio.create_task(self._watch())
        try:
            yield
            await asyncio.sleep(0)  # the watch sees the last callback too
        finally:
            watch.cancel()

    async def _watch(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest = max(self.longest, now - last)
            last = now


def holds(rounds: int) -> Iterator[str]:
    """Yield a row for each hostile response: the time for which the two asynchronous functions occupy the loop."""
    ark = f"ark:{FIRST}/{'x' * 200}"
    for title, rdatas in HOSTILE.items():
        answer = [record(None, NAPTR, rdata) for rdata in rdatas]

        def script(query: bytes, transport: str, answer: list[bytes] = answer) -> list[bytes]:
            return [reply(query, answer) if transport == "tcp" else reply(query, flags=TC)]

        with hostile(script) as server:
            client = Client([server.name])
            one = [asyncio.run(_hold(partial(_one, client, ark, len(rdatas)))) for _ in range(rounds)]
            bulk = [asyncio.run(_hold(partial(_bulk, client, ark, len(rdatas)))) for _ in range(rounds)]
        yield (
            f"{f'event loop occupied by one response, {title}':58} {statistics.median(one) * 1e3:6.1f} ms, in bulk "
            f"{statistics.median(bulk) * 1e3:6.1f} ms of CPU"
        )


async def _hold(work: Callable[[], Awaitable[None]]) -> float:
    hold = Hold()
    async with hold.watching():
        await work()
    return hold.longest


async def _one(client: Client, ark: str, records: int) -> None:
    try:
        _check_read(await client.discover_async(ark), records)
    except DiscoveryFailed as failed:  # the response reached a limit, as expected
        _check_read(failed.discovery, records)


async def _bulk(client: Client, ark: str, records: int) -> None:
    async for found in client.discover_many_async([ark]):
        _check_read(found, records)


def _check_read(found: Discovery | None, records: int) -> None:
    if found is None or len(found.trace[0].readings) != min(records, MAX_RECORDS):
        raise SystemExit(f"bench: the hostile response was not read: {found}")


async def _dnspython(server: Peer, count: int) -> None:
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = [server.host], server.port
    limit = asyncio.Semaphore(100)

    async def one(number: int) -> None:
        async with limit:
            await resolver.resolve(f"{FIRST + number}.ark.arpa.", "NAPTR", lifetime=300)

    await asyncio.gather(*map(one, range(count)))


def _all(found: Iterable[object]) -> None:
    if not all(found):
        raise SystemExit("bench: an ARK was not found")


async def _all_async(client: Client, count: int) -> None:
    async for discovery in client.discover_many_async(arks(count, count)):
        if not discovery:
            raise SystemExit("bench: an ARK was not found")


def main(arguments: Sequence[str]) -> int:
    parser = results.parser("client", __doc__)
    parser.add_argument("--count", type=int, default=1_000, help="single queries of a round")
    parser.add_argument("--names", type=int, default=20_000, help="different NAANs in bulk")
    parser.add_argument("--arks", type=int, default=200_000, help="ARKs over 1432 NAANs")
    parser.add_argument("--processes", action="store_true", help="only maptr url against dig")
    parser.add_argument("--server", choices=("nsd", "maptr"), action="append", help="(default: both)")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.rounds, options.count, options.names, options.arks, options.server = 1, 20, 200, 2_000, ["maptr"]
    kinds = [
        kind for kind in (Nsd, Maptr) if kind.name in (options.server or ("nsd", "maptr")) and find(kind.commands[0])
    ]
    with results.reported("client", save=options.save), tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        path = directory / "ark.arpa.zone"
        with path.open("w", encoding="ascii") as file:
            file.writelines(zone_text(max(options.names, SHARED, options.count)))
        for kind in kinds:
            with kind({"ark.arpa.": path}) as server:
                print(f"== against {kind.name}, {options.rounds} rounds")
                for row in rows(server, options, directory):
                    print(row, flush=True)
        if not options.processes:
            for row in holds(options.rounds):
                print(row, flush=True)
    return 0


def rows(server: Peer, options: Namespace, directory: Path) -> Iterator[object]:
    """Yield the lines about one server."""
    if not options.processes:
        yield from single(server, options.rounds, options.count)
        yield from many(server, (options.rounds + 1) // 2, options.names)
        for before, kind in (("", "h"), ("b", "u")):
            yield shared(server, options.rounds, options.arks, before, kind)
    if find("dig"):
        yield from processes(server, options.rounds * 3, directory)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
