"""Queries a second as ``dnsperf`` counts them: a second opinion, by a generator that is not ours."""

from __future__ import annotations

import contextlib
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import dns.message
import dns.rdatatype

from scripts.benchmark import servers
from scripts.benchmark.loads import LOADS, ORIGIN, ark_zone
from tests.support.peers import HOST, Peer, find

CLIENTS = 16
UNDER_WAY = 256


def run(folder: Path, names: Sequence[str], seconds: float, rounds: int) -> int:
    """Alternating rounds of the plain EDNS load; a line for each server."""
    if find("dnsperf") is None:
        sys.exit("scripts/bench: dnsperf is not installed")
    zone, queries = folder / "2000.zone", folder / "queries.txt"
    zone.write_text(ark_zone(2000))
    asked = (dns.message.from_wire(wire).question[0] for wire in LOADS[0].queries())
    queries.write_text("".join(f"{one.name} {dns.rdatatype.to_text(one.rdtype)}\n" for one in asked))
    rates: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        peers = [
            stack.enter_context(servers.SERVERS[name]({ORIGIN: zone})) for name in names if name not in servers.ECHOES
        ]
        for peer in peers:
            servers.pin(peer, 0)
        for number in range(rounds):
            for peer in peers if number % 2 == 0 else reversed(peers):
                rates.setdefault(peer.name, []).append(rate(peer, queries, seconds))
    for name, each in rates.items():
        print(f"{name:9} {statistics.median(each):9.0f} queries/s [{min(each):.0f}-{max(each):.0f}]")
    return 0


def rate(peer: Peer, queries: Path, seconds: float) -> float:
    command = ["taskset", "-c", "1", find("dnsperf") or "dnsperf", "-s", HOST, "-p", peer.port, "-d", queries, "-e"]
    command += ["-l", int(max(seconds, 1)), "-c", CLIENTS, "-q", UNDER_WAY, "-T", 1]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=seconds + 60)
    found = re.search(r"Queries per second:\s+([0-9.]+)", done.stdout)
    if found is None:
        sys.exit(f"scripts/bench: dnsperf says nothing of {peer.name}\n{done.stdout}{done.stderr}")
    return float(found[1])
