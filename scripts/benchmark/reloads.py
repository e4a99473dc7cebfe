"""What clients lose while a server reloads its zone again and again under load."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import dns.message
import dns.query

from scripts.benchmark import servers
from scripts.benchmark.loads import LOADS, ORIGIN, ark_zone
from tests.support.peers import HOST, Peer

RATE = 10_000
PAUSE = 0.5  # seconds between one reload's end and the next
PATIENCE = 30.0  # seconds that one may take
BY_SIGNAL = ("maptr", "maptr-2", "nsd", "bind")  # those that SIGHUP has read their zones again


def run(folder: Path, names: Sequence[str], count: int) -> int:
    """Print a line for each server; 1 where maptr lost a query."""
    from scripts.benchmark.server import compile_programs

    compile_programs(folder)
    queries = folder / "queries"
    queries.write_bytes(LOADS[0].file())
    lost_by_us = 0
    for name in (name for name in names if name in BY_SIGNAL):
        zone = folder / f"{name}.zone"
        zone.write_text(ark_zone(2000))
        peer = servers.start(servers.SERVERS[name], {ORIGIN: zone})
        try:
            said = load_while_reloading(folder / "generator", queries, peer, zone, count)
        finally:
            peer.stop()
        print(
            f"{name:9} {count} reloads: {said['sent']} queries, {said['lost']} lost, p99 {said['p99']} us", flush=True
        )
        lost_by_us += said["lost"] if name.startswith("maptr") else 0
    return 1 if lost_by_us else 0


def load_while_reloading(generator: Path, queries: Path, peer: Peer, zone: Path, count: int) -> dict[str, int]:
    command = [generator, HOST, peer.port, queries, count * PATIENCE, 256, 16, RATE, "udp"]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as running:
        try:
            for number in range(1, count + 1):
                time.sleep(PAUSE)
                following = zone.with_suffix(".new")
                following.write_text(ark_zone(2000).replace(" 2026010100 ", f" {2026010100 + number} "))
                following.replace(zone)
                os.kill(peer.pid, signal.SIGHUP)
                wait_for(peer, 2026010100 + number)
            time.sleep(PAUSE)
        finally:
            running.terminate()
        output, _ = running.communicate()
    if running.returncode:
        sys.exit(f"scripts/bench: the generator ended with {running.returncode}")
    said: dict[str, int] = json.loads(output)
    return said


def wait_for(peer: Peer, serial: int) -> None:
    """Wait until the server has a serial."""
    deadline = time.monotonic() + PATIENCE
    query = dns.message.make_query(ORIGIN, "SOA")
    while dns.query.udp(query, HOST, 5.0, peer.port).answer[0][0].serial != serial:
        if time.monotonic() > deadline:
            sys.exit(f"scripts/bench: {peer.name} does not reload")
        time.sleep(0.05)
