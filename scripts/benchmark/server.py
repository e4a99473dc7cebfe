"""``scripts/bench server``: rounds of the same traffic to each server in turn, and what each cost the machine."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import dns.exception
import dns.message
import dns.query
import dns.rcode

from scripts.benchmark import perf, reloads, report, servers, soak
from scripts.benchmark.loads import DELEGATIONS, LOADS, ORIGIN, Load, ark_zone, delegating_zone
from tests.support import signers
from tests.support.peers import HOST, Peer, PeerError, find

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WINDOW, SOCKETS = 256, 16  # queries under way, over so many sockets
FEWER = {"dnslib": (4, 4)}  # for who would not answer so many in time
SUBJECTS = "maptr,nsd,bind,knot,powerdns,echo"
SAMPLE = 40  # queries of a load that every server answers first, and alike
SERVER_CORE, GENERATOR_CORE = 0, 1
# Both ends of what the generator does, and what others sign.
SMOKE = ("2,000 names, mix", "TLS, a connection for each query", "flood of NXDOMAIN, NSEC3")
# Sent to every server, but only answered like NSD's by those that mean to be DNS servers.
UNCHECKED = frozenset(servers.ECHOES)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    loads = "; ".join(load.name for load in LOADS)
    parser = argparse.ArgumentParser(prog="scripts/bench server", description=__doc__, epilog=f"Loads: {loads}.")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a round (default 2)")
    parser.add_argument("--rounds", type=int, default=5, help="of each load, servers alternating (default 5)")
    parser.add_argument("--servers", default=SUBJECTS, help=f"of {', '.join(servers.SERVERS)} (default {SUBJECTS})")
    parser.add_argument("--load", action="append", default=[], help="part of a load's name; repeatable (default all)")
    parser.add_argument("--unpinned", action="store_true", help="leave servers and generator to the scheduler")
    parser.add_argument(
        "--reloads", type=int, metavar="N", help="instead, what is lost of 10,000 queries a second over N reloads"
    )
    parser.add_argument("--dnsperf", action="store_true", help="instead, queries a second as dnsperf counts them")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="instead, memory through so long a mixed load")
    parser.add_argument(
        "--smoke", action="store_true", help="one short round of three small loads, whatever is installed"
    )
    parser.add_argument("-o", "--output", type=Path, help="a folder for server.txt, server.json and server.svg")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    loads = [load for load in LOADS if not options.load or any(part in load.name for part in options.load)]
    names = options.servers.split(",")
    if options.smoke:
        options.seconds, options.rounds, names = 0.3, 1, ["maptr", "nsd", "echo"]
        loads = [dataclasses.replace(load, names=50) for load in LOADS if load.name in SMOKE]
    for name in names:
        if name not in servers.SERVERS:
            sys.exit(f"scripts/bench: {name!r} is none of {', '.join(servers.SERVERS)}")
    names = [name for name in names if name in servers.ECHOES or find(servers.SERVERS[name].commands[0])]
    if shutil.which("cc") is None:
        sys.exit("scripts/bench: the generator needs a C compiler (cc)")
    if options.reloads:
        with tempfile.TemporaryDirectory(prefix="maptr-bench-") as folder:
            return reloads.run(Path(folder), names, options.reloads)
    if options.dnsperf:
        with tempfile.TemporaryDirectory(prefix="maptr-bench-") as folder:
            return perf.run(Path(folder), names, options.seconds, options.rounds)
    if options.soak:
        with tempfile.TemporaryDirectory(prefix="maptr-bench-") as folder:
            return soak.run(Path(folder), names, options.soak)
    with tempfile.TemporaryDirectory(prefix="maptr-bench-") as folder:
        results, pss = run(Path(folder), names, loads, options)
    about = machine()
    text = "\n".join(f"{key}: {value}" for key, value in about.items()) + "\n" + report.table(results)
    text += "\n\nmemory (PSS, MB): " + ", ".join(f"{key} {value:.0f}" for key, value in pss.items()) + "\n"
    print(text)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "server.txt").write_text(text)
        (options.output / "server.json").write_text(report.as_json(about, results, {"pss_mb": pss}))
        (options.output / "server.svg").write_text(report.chart(results))
    return 0


def run(
    folder: Path, names: Sequence[str], loads: Sequence[Load], options: argparse.Namespace
) -> tuple[dict[str, dict[str, list[report.Round]]], dict[str, float]]:
    """All loads; servers with one size of zone run at the same time, and all are stopped at the end."""
    compile_programs(folder)
    results: dict[str, dict[str, list[report.Round]]] = {}
    pss: dict[str, float] = {}
    for setting in sorted({load.setting for load in loads}):
        size, signed, tls = setting
        zones = {ORIGIN: folder / f"{size}{signed}.zone", DELEGATIONS: folder / "delegations.zone"}
        zones[ORIGIN].write_text(ark_zone(size))
        zones[DELEGATIONS].write_text(delegating_zone())
        if signed == "nsec3" and find(signers.COMMANDS[1]) is None:
            print(f"scripts/bench: {signers.COMMANDS[1]} is not installed, so nothing with NSEC3", file=sys.stderr)
            continue
        if signed:
            sign(zones[ORIGIN], folder, signed)
        with contextlib.ExitStack() as stack:
            peers: dict[str, Peer] = {}
            for name in names:
                kind = (servers.SECURE if tls else servers.SERVERS).get(name)
                if kind is None or (signed and name in servers.UNSIGNED):
                    continue
                alone = {ORIGIN: zones[ORIGIN]}
                served = {} if name in servers.ECHOES else alone if name in servers.SINGLE else zones
                try:
                    peers[name] = servers.start(kind, served)
                except PeerError as error:
                    print(f"scripts/bench: {error}", file=sys.stderr)
                    continue
                stack.callback(peers[name].stop)
                if not options.unpinned:
                    servers.pin(peers[name], SERVER_CORE)
            for load in (load for load in loads if load.setting == setting):
                results[load.name] = measure(folder, load, peers, options)
            what = f"{size:,} names" + f", {signed.upper()}" * bool(signed) + ", TLS" * tls
            pss |= {f"{name}, {what}": servers.memory(peer) for name, peer in peers.items()}
    return results, pss


def compile_programs(folder: Path) -> None:
    """The generator, with TLS where OpenSSL's headers are installed, and the echo."""
    cc = ["cc", "-O2", "-o"]
    generator = [*cc, str(folder / "generator"), str(HERE / "generator.c")]
    if subprocess.run([*generator, "-DTLS", "-lssl", "-lcrypto"], capture_output=True).returncode:
        subprocess.run(generator, check=True)
    servers.Echo.binary = folder / "echo"
    subprocess.run([*cc, str(servers.Echo.binary), str(HERE / "echo.c")], check=True)


def sign(zone: Path, folder: Path, way: str) -> None:
    """Sign the zone in its place: ``nsec`` by maptr, which has no other, ``nsec3`` by BIND, as RFC 9276 has it."""
    if way == "nsec3":
        made = folder / f"{zone.stem}-{way}"
        made.mkdir()
        zone.write_bytes(signers.sign(zone.read_text(), ORIGIN, made, "bind-nsec3").read_bytes())
        return
    keys = folder / "keys"
    command = [sys.executable, "-m", "maptr", "zone"]
    subprocess.run([*command, "keys", "add", keys], check=True, capture_output=True, cwd=ROOT)
    made = zone.with_suffix(".signed")
    subprocess.run([*command, "sign", zone, keys, "-o", made], check=True, capture_output=True, cwd=ROOT)
    made.replace(zone)


def measure(
    folder: Path, load: Load, peers: dict[str, Peer], options: argparse.Namespace
) -> dict[str, list[report.Round]]:
    queries = folder / "queries"
    queries.write_bytes(load.file())
    if load.alike:
        verify(load, peers)
    rounds: dict[str, list[report.Round]] = {name: [] for name in peers}
    for number in range(options.rounds):
        order = list(peers) if number % 2 == 0 else list(reversed(peers))
        for name in order:
            if name in servers.ECHOES and load.how != "udp":
                continue
            one = drive(folder / "generator", queries, load, peers[name], options)
            if one is not None:
                rounds[name].append(one)
        print(f"{load.name}: round {number + 1} of {options.rounds}", file=sys.stderr)
    return rounds


def drive(
    generator: Path, queries: Path, load: Load, peer: Peer, options: argparse.Namespace, window: int = WINDOW
) -> report.Round | None:
    """One round. None where the server answers less than a tenth of what is lost, or breaks off."""
    seconds = options.seconds
    port = getattr(peer, "tls_port", peer.port)
    window, sockets = FEWER.get(peer.name, (window, SOCKETS))
    command = [generator, HOST, port, queries, seconds, window, sockets, load.rate, load.how]
    before = servers.cpu_seconds(peer)
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=seconds + 60,
        preexec_fn=None if options.unpinned else _pin_generator,
    )
    cpu = servers.cpu_seconds(peer) - before
    if done.returncode:
        return None
    said = json.loads(done.stdout)
    if said["received"] < said["lost"] / 10 or not said["received"]:
        return None
    return report.Round(
        cpu / said["received"] * 1e6, said["received"] / said["seconds"], said["lost"], said["p50"], said["p99"]
    )


def _pin_generator() -> None:
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {GENERATOR_CORE})


def verify(load: Load, peers: dict[str, Peer]) -> None:
    """Every server gives the same rcode and the same answer section on a sample, or the run ends here."""
    sample = random.Random(1).sample(list(load.queries()), SAMPLE)
    for wire in sample:
        said = {name: ask(peer, wire) for name, peer in peers.items() if name not in UNCHECKED}
        known = {reply for reply in said.values() if reply is not None}
        if len(known) > 1:
            lines = "\n".join(f"  {name}: {reply}" for name, reply in said.items())
            sys.exit(f"scripts/bench: {load.name}: servers differ about {wire.hex()}\n{lines}")


def ask(peer: Peer, wire: bytes) -> tuple[str, tuple[str, ...]] | None:
    """Rcode and answers; None for silence, and for what is no query and may be answered in several ways."""
    try:
        query = dns.message.from_wire(wire)
        reply = dns.query.udp(query, HOST, 1.0, peer.port)
    except (dns.exception.DNSException, OSError, IndexError):
        return None
    answers = sorted(f"{rrset.name} {rrset.rdtype} {rdata}".lower() for rrset in reply.answer for rdata in rrset)
    return dns.rcode.to_text(reply.rcode()), tuple(answers)


def machine() -> dict[str, str]:
    model = next(
        (line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith(("model name", "Hardware"))),
        platform.machine(),
    )
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} x {model}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load before": " ".join(f"{value:.1f}" for value in os.getloadavg()),
    }


def _cpuinfo() -> list[str]:
    with contextlib.suppress(OSError):
        return Path("/proc/cpuinfo").read_text().splitlines()
    return []
