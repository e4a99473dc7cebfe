"""The client against dnspython, the draft's Perl and dig, over one local server: ratios in one run.

And how long one hostile reply holds the event loop: no ratio, but CPU time of the loop's thread.

What is compared is run in turn, round after round; a ratio is the median over the rounds, with the lowest and the
highest beside it. Absolute figures depend on the machine and are there for orientation only.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import dns.asyncresolver
import dns.resolver

from maptr import Stub, discover, discover_async, discover_many, discover_many_async
from maptr.ark import Ark
from maptr.client.bulk import Bulk
from maptr.discovery import Discovery, DiscoveryFailed
from scripts.benchmark.processes import processes
from tests.support.hostile import NAPTR, TC, hostile, naptr, record, reply
from tests.support.peers import Maptr, Nsd, Peer, find

FIRST = 10_000  # the first NAAN of the zone
SHARED = 1_432  # NAANs of the real registry

# The walk of the draft's appendix B as Net::DNS writes it, its mistakes put right: flags without quotes, one level.
PERL = r"""
use Net::DNS; use Time::HiRes qw(clock);
my ($port, $count, $first) = @ARGV;
my $r = Net::DNS::Resolver->new(nameservers => ["127.0.0.1"], port => $port, recurse => 1, udppacketsize => 1232);
sub walk { my $q = $r->query($_[0], "NAPTR") or return;
  my @found; for ($q->answer) { next unless $_->type eq "NAPTR" and lc $_->service eq "ark";
    push @found, $_->replacement if lc $_->flags eq "h"; } @found = sort @found; return @found; }
walk("$first.ark.arpa.");
my $s = clock();
for my $i (0 .. $count - 1) { walk(($first + $i) . ".ark.arpa.") or die }
printf "%.9f\n", (clock() - $s) / $count;
"""


class Ratio:
    """What each round measured of two things, and how the one compares with the other."""

    def __init__(self, title: str, unit: str, target: str) -> None:
        self.title, self.unit, self.target = title, unit, target
        self.pairs: list[tuple[float, float]] = []

    def add(self, ours: float, theirs: float) -> None:
        self.pairs.append((ours, theirs))

    def __str__(self) -> str:
        ratios = [ours / theirs for ours, theirs in self.pairs]
        ours, theirs = (statistics.median(side) for side in zip(*self.pairs, strict=True))
        spread = f"[{min(ratios):.2f}-{max(ratios):.2f}]"
        return (
            f"{self.title:58} {statistics.median(ratios):6.2f} {spread:>15}  "
            f"{ours:10.1f} / {theirs:<10.1f} {self.unit:12} target {self.target}"
        )


def cpu(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def both(work: Callable[[], object], count: int) -> tuple[float, float]:
    """Seconds for each of so many, by the clock and of CPU."""
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
    stub = Stub([f"{server.host}#{server.port}"])
    given = Ratio("discover(resolver=R) / R.resolve, CPU", "us", "1.25")
    light = Ratio("discover(nameservers) / R.resolve, CPU", "us", "0.35")
    perl = Ratio("discover(nameservers) / the draft's Perl, CPU", "us", "0.35")
    for _ in range(rounds):
        bare = cpu(lambda: [resolver.resolve(f"{FIRST + i}.ark.arpa.", "NAPTR") for i in range(count)]) / count * 1e6
        ours = cpu(lambda: [discover(ark, resolver=resolver) for ark in arks(count, count)]) / count * 1e6
        small = cpu(lambda: [discover(ark, resolver=stub) for ark in arks(count, count)]) / count * 1e6
        given.add(ours, bare)
        light.add(small, bare)
        if find("perl"):
            arguments = ["perl", "-e", PERL, str(server.port), str(count), str(FIRST)]
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
            if done.returncode == 0:
                perl.add(small, float(done.stdout) * 1e6)
    return [ratio for ratio in (given, light, perl) if ratio.pairs]


def many(server: Peer, rounds: int, count: int) -> list[Ratio]:
    stub = Stub([f"{server.host}#{server.port}"])
    ratios = [
        Ratio("discover_many / dnspython async, walks a second", "walks/s", "15"),
        Ratio("dnspython async / discover_many, CPU a walk", "us", "15"),
        Ratio("discover_many_async / dnspython async, walks a second", "walks/s", "12"),
        Ratio("dnspython async / discover_many_async, CPU a walk", "us", "12"),
    ]
    few = min(count, 3000)
    for _ in range(rounds):
        theirs = both(lambda: asyncio.run(_dnspython(server, few)), few)
        sync = both(lambda: _all(discover_many(arks(count, count), resolver=stub)), count)
        awaited = both(lambda: asyncio.run(_all_async(stub, count)), count)
        for at, ours in ((0, sync), (2, awaited)):
            ratios[at].add(1 / ours[0], 1 / theirs[0])
            ratios[at + 1].add(theirs[1] * 1e6, ours[1] * 1e6)
    return ratios


def shared(server: Peer, rounds: int, total: int, before: str, kind: str) -> str:
    runs: list[tuple[float, float]] = []
    for _ in range(rounds):
        bulk = Bulk(nameservers=[f"{server.host}#{server.port}"])
        pairs = ((number, Ark.parse(ark)) for number, ark in enumerate(arks(total, SHARED, before)))
        runs.append(both(partial(_all, (discovery for _, discovery in bulk.run(pairs))), total))
    passed, busy = (statistics.median(side) for side in zip(*runs, strict=True))
    return (
        f"{total} ARKs over {SHARED} NAANs, {kind} records: {bulk.questions} questions, {1 / passed:.0f} ARKs/s, "
        f"{busy * 1e6:.1f} us CPU each; target {SHARED}, 200000, 5.0"
    )


def process(server: Peer, rounds: int) -> list[Ratio]:
    """``maptr url`` as a process of its own, as it is installed, against dig and Perl."""
    name = f"{FIRST}.ark.arpa."
    titles = {"dig": "maptr url ARK @server / dig +short", "perl": "maptr url ARK @server / the draft's Perl"}
    targets = {"dig": "2.0", "perl": "1.0"}
    ratios = {
        (key, clock): Ratio(f"{titles[key]}, {name}", "ms", targets[key])
        for key in titles
        for clock, name in enumerate(("time", "CPU"))
    }
    with processes() as started:
        commands = {
            "maptr": [*started.command, "url", f"ark:{FIRST}/x", f"@{server.host}#{server.port}"],
            "dig": ["dig", "+short", "-p", str(server.port), f"@{server.host}", name, "NAPTR"],
            "perl": ["perl", "-e", PERL, str(server.port), "1", str(FIRST)],
        }
        there = {key: command for key, command in commands.items() if find(command[0])}
        for took in started.rounds(there, rounds):
            for (key, clock), ratio in ratios.items():
                if key in took:
                    ratio.add(took["maptr"][clock] * 1e3, took[key][clock] * 1e3)
    return [ratio for ratio in ratios.values() if ratio.pairs]


# Each fills most of the 65,535 octets of a reply over TCP.
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
    """The longest time that one callback held the event loop, in seconds of the thread's CPU."""

    def __init__(self) -> None:
        self.longest = 0.0

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        watch = asyncio.create_task(self._watch())
        try:
            yield
            await asyncio.sleep(0)  # for the watch to see the last callback, too
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
    """A row for each hostile reply: what it holds the loop for in ``discover_async`` and in ``discover_many_async``."""
    ark = f"ark:{FIRST}/{'x' * 200}"
    for title, rdatas in HOSTILE.items():
        answer = [record(None, NAPTR, rdata) for rdata in rdatas]

        def script(query: bytes, transport: str, answer: list[bytes] = answer) -> list[bytes]:
            return [reply(query, answer) if transport == "tcp" else reply(query, flags=TC)]

        with hostile(script) as server:
            stub = Stub([server.name])
            one = [asyncio.run(_hold(partial(_one, stub, ark, len(rdatas)))) for _ in range(rounds)]
            bulk = [asyncio.run(_hold(partial(_bulk, stub, ark, len(rdatas)))) for _ in range(rounds)]
        yield (
            f"{f'event loop held by one reply, {title}':58} {statistics.median(one) * 1e3:6.1f} ms, in bulk "
            f"{statistics.median(bulk) * 1e3:6.1f} ms of CPU; target 50"
        )


async def _hold(work: Callable[[], Awaitable[None]]) -> float:
    hold = Hold()
    async with hold.watching():
        await work()
    return hold.longest


async def _one(stub: Stub, ark: str, records: int) -> None:
    try:
        _check_read(await discover_async(ark, resolver=stub), records)
    except DiscoveryFailed as failed:  # a limit was reached, which is well
        _check_read(failed.discovery, records)


async def _bulk(stub: Stub, ark: str, records: int) -> None:
    async for found in discover_many_async([ark], resolver=stub):
        _check_read(found, records)


def _check_read(found: Discovery | None, records: int) -> None:
    if found is None or len(found.trace[0].readings) != records:
        raise SystemExit(f"bench: the hostile reply was not read: {found}")


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


async def _all_async(stub: Stub, count: int) -> None:
    async for discovery in discover_many_async(arks(count, count), resolver=stub):
        if not discovery:
            raise SystemExit("bench: an ARK was not found")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench client", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=1_000, help="questions one by one in a round")
    parser.add_argument("--names", type=int, default=20_000, help="distinct NAANs in bulk (the target says 100000)")
    parser.add_argument("--arks", type=int, default=200_000, help="ARKs over 1432 NAANs (the target says 1000000)")
    parser.add_argument("--processes", action="store_true", help="only maptr url against dig and Perl")
    parser.add_argument("--server", choices=("nsd", "maptr"), action="append", help="both, unless named")
    parser.add_argument("--smoke", action="store_true", help="a moment of each, but for processes: does it run at all?")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.count, options.names, options.arks, options.server = 1, 20, 200, 2_000, ["maptr"]
    servers = {"nsd": Nsd, "maptr": Maptr}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "ark.arpa.zone")
        with path.open("w", encoding="ascii") as file:
            file.writelines(zone_text(max(options.names, SHARED, options.count)))
        for name in options.server or servers:
            if name == "nsd" and not find("nsd"):
                print("nsd is not installed: passed over")
                continue
            with servers[name]({"ark.arpa.": path}) as server:
                print(
                    f"== against {name}, {options.rounds} rounds; {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
                )
                if not options.processes:
                    for ratio in single(server, options.rounds, options.count):
                        print(ratio)
                    for ratio in many(server, max(2, options.rounds // 2), options.names):
                        print(ratio)
                    print(shared(server, options.rounds, options.arks, "", "h"))
                    print(shared(server, options.rounds, options.arks, "b", "u"))
                if not options.smoke:
                    for ratio in process(server, options.rounds * 3):
                        print(ratio, flush=True)
    if not options.processes:
        for row in holds(options.rounds):
            print(row, flush=True)


if __name__ == "__main__":
    main()
