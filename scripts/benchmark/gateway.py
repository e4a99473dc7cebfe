"""Redirects a second of ``maptr gateway``, a resolver on FastAPI and SQLite, and nginx with the exported table.

Each server has the same registry and one core; wrk sends the requests from the other core, over 32 connections that
stay open. First, all servers must answer a sample of ARKs equally. At half load, as many connections as half of the
server's own rate needs pause between their requests. Last, maptr's most expensive request, and one client beside
another that sends such requests at its limit.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import importlib.util
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from maptr import registry
from maptr.ark import BETANUMERIC
from maptr.registry.table import Table
from maptr.registry.target import unusable
from scripts.benchmark import abuse, resolver, results, servers
from tests.support.peers import HOST, Peer, find
from tests.support.registries import natab

REGISTRY = "naan_records_2026-07-14.json.gz"
SERVER_CORE, GENERATOR_CORE = 0, 1
CONNECTIONS = 32
PAUSE = 10  # average milliseconds between two requests on a connection at half load
SAMPLE = 5_000  # ARKs that all servers must answer equally, and that fill their caches by NAAN
START_SECONDS = 60.0
LOADS = {"ARKs that are asked again and again": 2_000, "ARKs that are asked once": 50_000}  # more than a cache keeps
TAILS = ("", "", "", "?info", "?a=b%20c&d", "/c3/s5.v7.xsl", "/c3?info")

NGINX = """\
daemon off;
pid {0}/pid;
error_log {0}/error;
worker_processes 1;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000;
    map_hash_max_size 65536;
    map_hash_bucket_size 128;
    include {0}/ark.conf;
    server {{
        listen {1}:{2};
        if ($maptr_303) {{ return 303 $maptr_303; }}
        if ($maptr_302) {{ return 302 $maptr_302; }}
    }}
}}
"""
WRK = """\
local ready, i = {{}}, 0
function init() for path in io.lines("{paths}") do ready[#ready + 1] = wrk.format("GET", path) end end
function request() i = i % #ready + 1 return ready[i] end
{delay}
function done(summary, latency)
    local failed = summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout
    io.stderr:write(string.format("%d %d %d %d %d\\n", summary.requests, summary.duration, failed,
        latency:percentile(50), latency:percentile(99)))
end
"""
DELAY = f"function delay() return math.random({PAUSE // 2}, {PAUSE + PAUSE // 2}) end"


class Gateway(Peer):
    """``maptr gateway`` with a table and without DNS."""

    name = "maptr"
    commands = (sys.executable,)
    packages: tuple[str, ...] = ("aiohttp", "jinja2", "prometheus_client")
    table = Path()
    rate = "MAPTR_GATEWAY_RATE=0"  # no limit
    configured = 0.0  # the value of ``time.perf_counter`` once only the command remains to be run

    def configure(self) -> list[str]:
        command = self.command()
        self.configured = time.perf_counter()
        return command

    def command(self) -> list[str]:
        options = (f"--listen={HOST}:{self.port}", f"--table={self.table}", "--policy=natab-only")
        return [
            "env",
            f"XDG_CACHE_HOME={self.directory}",
            *filter(None, [self.rate]),
            sys.executable,
            "-m",
            "maptr",
            "gateway",
            *options,
        ]


class Limited(Gateway):
    """``maptr gateway`` with its default limits."""

    rate = ""


class FastApi(Gateway):
    """The resolver beside this module, in uvicorn with httptools and uvloop."""

    name = "fastapi"
    packages = ("fastapi", "uvicorn", "httptools", "uvloop")

    def command(self) -> list[str]:
        path = self.directory / "records.sqlite"
        resolver.fill(path, read(self.table))
        options = (f"--port={self.port}", "--loop=uvloop", "--http=httptools", "--no-access-log", "--log-level=warning")
        app = ("-m", "uvicorn", "scripts.benchmark.resolver:app")
        return ["env", f"RESOLVER_TABLE={path}", sys.executable, *app, *options]


class Nginx(Gateway):
    """nginx with the file of ``maptr table export``."""

    name = "nginx"
    commands = ("nginx",)
    packages = ()

    def command(self) -> list[str]:
        export = [sys.executable, "-m", "maptr", "table", "export", str(self.table), "--format", "nginx"]
        subprocess.run([*export, "-o", str(self.directory / "ark.conf")], check=True, stderr=subprocess.DEVNULL)
        configuration = self.directory / "nginx.conf"
        configuration.write_text(NGINX.format(self.directory, HOST, self.port))
        return [find("nginx") or "nginx", "-p", str(self.directory), "-c", str(configuration)]


class Round(NamedTuple):
    """One server under one load."""

    rate: float  # redirects a second
    cpu_us: float  # of the server, for each
    p50_ms: float
    p99_ms: float


def read(path: Path) -> Table:
    return registry.read(path.read_bytes(), on_bad=lambda error: None)


def write_table(folder: Path) -> Path:
    """Return the registry of July 2026, or a generated one of 2,000 NAANs."""
    real = Path(os.environ.get("MAPTR_REAL_DATA", "../shared/data")) / REGISTRY
    content = gzip.decompress(real.read_bytes()) if real.exists() else natab(*range(10_000, 12_000))
    path = folder / "naans"
    path.write_bytes(content)
    print(f"table: {real.name if real.exists() else 'generated'}, {len(read(path)):,} records")
    return path


def make_paths(table: Table, count: int) -> Iterator[str]:
    """Targets of requests for ARKs of usable records, with qualifiers, inflections and queries."""
    rng = random.Random(0)
    entries = [entry for entry in table.values() if entry.nmas and not unusable(entry.nmas[0].target)]
    for _ in range(count):
        entry = rng.choice(entries)
        name = (entry.shoulder or "x") + "".join(rng.choices(BETANUMERIC, k=8))
        yield f"/ark:{rng.choice(('', '/'))}{entry.naan}/{name}{rng.choice(TAILS)}"


def ask(port: int, paths: Sequence[str]) -> list[tuple[int, str | None]]:
    """Return the status and target of each redirect."""
    with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=10)) as connection:
        found = []
        for path in paths:
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            found.append((response.status, response.getheader("Location")))
    return found


def start(kind: type[Gateway], path: str) -> tuple[Gateway, float]:
    """Start a server on its core, and return it with the seconds until its first redirect."""
    server = kind({})
    server.launch()
    while True:
        with contextlib.suppress(OSError):
            if ask(server.port, [path])[0][0] in (302, 303):
                break
        if server.process.poll() is not None or time.perf_counter() - server.configured > START_SECONDS:
            sys.exit(f"bench: {server.name} does not answer\n{server.log()}")
        time.sleep(0.005)
    took = time.perf_counter() - server.configured
    servers.pin(server, SERVER_CORE)
    return server, took


def run_wrk(server: Gateway, paths: Path, seconds: int, *, rate: float = 0.0) -> Round:
    """Run wrk once, as fast as the server answers, or at a ``rate``."""
    script = paths.with_suffix(".lua")
    script.write_text(WRK.format(paths=paths, delay=DELAY if rate else ""))
    connections = max(1, round(rate * PAUSE / 1000)) if rate else CONNECTIONS
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "-s", str(script), f"http://{HOST}:{server.port}"]
    before = servers.cpu_seconds(server)
    done = subprocess.run(
        command, capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, {GENERATOR_CORE})
    )
    cpu = servers.cpu_seconds(server) - before
    if done.returncode or not done.stderr:
        sys.exit(f"bench: wrk exits {done.returncode}\n{done.stdout}{done.stderr}")
    count, duration, failed, p50, p99 = map(int, done.stderr.split()[-5:])
    if failed:
        sys.exit(f"bench: {failed} of {count} requests to {server.name} failed")
    return Round(count / duration * 1e6, cpu / count * 1e6, p50 / 1e3, p99 / 1e3)


def compare(running: Mapping[str, Gateway], paths: Sequence[str]) -> None:
    """End the benchmark if two servers answer an ARK differently."""
    answers = {name: ask(server.port, paths) for name, server in running.items()}
    for name, given in answers.items():
        for path, ours, theirs in zip(paths, answers["maptr"], given, strict=True):
            if ours != theirs:
                sys.exit(f"bench: {path}: maptr answers {ours}, {name} {theirs}")
    print(f"{len(paths):,} ARKs of the sample: the same answers by {', '.join(running)}")


def table_of(load: str, rounds: Mapping[str, Sequence[Round]]) -> Iterator[str]:
    """Yield the lines about one load."""
    yield f"\n{load} (goals: 1.0 x fastapi, 0.15 x nginx; p99 at half load 10 ms)"
    yield f"  {'':9}{'redirects/s':>12}{'us CPU':>8}{'p50 ms':>8}{'p99 ms':>8}   maptr's rate / this"
    for name, each in rounds.items():
        middle = Round(*map(statistics.median, zip(*each, strict=True)))
        ratios = [ours.rate / theirs.rate for ours, theirs in zip(rounds["maptr"], each, strict=False)]
        ratio = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]" if ratios else ""
        yield f"  {name:9}{middle.rate:12.0f}{middle.cpu_us:8.1f}{middle.p50_ms:8.2f}{middle.p99_ms:8.2f}   {ratio}"


def measure(
    running: dict[str, Gateway], at_half: Sequence[str], load: str, paths: Path, rounds: int, seconds: int
) -> None:
    """Print all servers' rates under one load, and the latency of some at half of their own rate."""
    full: dict[str, list[Round]] = {name: [] for name in running}
    for number in range(rounds):
        for name in running if number % 2 == 0 else reversed(running):
            full[name].append(run_wrk(running[name], paths, seconds))
    print(*table_of(load, full), sep="\n", flush=True)
    for name in at_half:
        half = statistics.median(one.rate for one in full[name]) / 2
        found = run_wrk(running[name], paths, seconds, rate=half)
        print(f"  {name:9}{found.rate:12.0f}{'':8}{found.p50_ms:8.2f}{found.p99_ms:8.2f}   at half load", flush=True)


def main(arguments: Sequence[str]) -> int:
    parser = results.parser("gateway", __doc__)
    parser.add_argument("--seconds", type=int, default=3, help="length of a round (default 3)")
    options = parser.parse_args(arguments)
    if find("wrk") is None:
        sys.exit("bench: wrk is not installed: run scripts/peers bench as root on Debian or Ubuntu")
    kinds = [kind for kind in (Gateway, FastApi, Nginx) if all(map(importlib.util.find_spec, kind.packages))]
    kinds = [kind for kind in kinds if find(kind.commands[0])]
    loads = dict(LOADS)
    if options.smoke:
        options.rounds, options.seconds, loads = 1, 1, {"50 ARKs": 50}
    with (
        results.reported("gateway", save=options.save),
        tempfile.TemporaryDirectory(prefix="maptr-bench-") as name,
        contextlib.ExitStack() as stack,
    ):
        Gateway.table = write_table(Path(name))
        paths = list(make_paths(read(Gateway.table), max(loads.values())))
        running: dict[str, Gateway] = {}
        for kind in kinds:
            server, took = start(kind, paths[0])
            stack.callback(server.stop)
            running[kind.name] = server
            print(f"{kind.name:9} first redirect after {took:.2f} s, {servers.memory(server):.0f} MB (PSS)", flush=True)
        compare(running, paths[:SAMPLE])
        at_half = ["maptr"] if options.smoke else [*running]
        for load, count in loads.items():
            file = Path(name) / f"{count}.paths"
            file.write_text("".join(f"{path}\n" for path in paths[:count]))
            measure(running, at_half, load, file, options.rounds, options.seconds)
        print(*abuse.dearest(running["maptr"].port, 3 if options.smoke else 20), sep="\n", flush=True)
        limited, _ = start(Limited, paths[0])
        stack.callback(limited.stop)
        count, requests = (20, abuse.DEAR[:1]) if options.smoke else (300, abuse.DEAR)
        print(*abuse.beside(limited.port, paths[0], count, requests), sep="\n", flush=True)
        memory = ", ".join(f"{name} {servers.memory(server):.0f}" for name, server in running.items())
        print(f"\nmemory in MB (PSS) after all loads (goal for maptr: 120): {memory}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
