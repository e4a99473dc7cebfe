"""CPU per query of maptr and Debian's DNS servers, as ratios in alternating rounds of the same traffic."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import dns.exception
import dns.message
import dns.query
import dns.rcode

from scripts.benchmark import results, servers
from scripts.benchmark.loads import FEW, LOADS, ORIGIN, Load, ark_zone, packed
from scripts.benchmark.report import Round, table
from tests.support import signers
from tests.support.peers import HOST, Peer, PeerError, find

HERE = Path(__file__).resolve().parent
WINDOW, SOCKETS = 256, 16  # queries in flight, and the sockets that share them
SAMPLE = 40  # queries of a load that all servers must answer equally before it is measured
SERVER_CORE, GENERATOR_CORE = 0, 1
SMOKE = ("2,000 names, mix", "TLS, a connection for each query", "flood of NXDOMAIN, NSEC3")


def main(arguments: Sequence[str]) -> int:
    parser = results.parser("server", __doc__)
    parser.epilog = f"Loads: {'; '.join(load.name for load in LOADS)}."
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round (default 2)")
    parser.add_argument("--servers", type=_server_names, default=[*servers.SERVERS], help="(default: all)")
    parser.add_argument("--load", action="append", default=[], help="part of a load's name; repeatable (default: all)")
    parser.add_argument("--unpinned", action="store_true", help="do not bind servers and generator to one core each")
    options = parser.parse_args(arguments)
    loads = [load for load in LOADS if not options.load or any(part in load.name for part in options.load)]
    if options.smoke:
        options.seconds, options.rounds, options.servers = 0.1, 1, ["maptr", "nsd"]
        loads = [dataclasses.replace(load, names=50, count=FEW) for load in LOADS if load.name in SMOKE]
    options.servers = [name for name in options.servers if find(servers.SERVERS[name].commands[0])]
    with results.reported("server", save=options.save), tempfile.TemporaryDirectory(prefix="maptr-bench-") as folder:
        run(Path(folder), loads, options)
    return 0


def _server_names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - servers.SERVERS.keys():
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))} is not one of {', '.join(servers.SERVERS)}")
    return names


def run(folder: Path, loads: Sequence[Load], options: argparse.Namespace) -> None:
    """Print a table for each load, and the memory of the servers after the loads of each zone."""
    generator = compile_generator(folder)
    for setting in sorted({load.setting for load in loads}):
        size, signed, tls = setting
        if signed == "nsec3" and find("dnssec-signzone") is None:
            print("bench: dnssec-signzone is not installed: no zone with NSEC3", file=sys.stderr)
            continue
        with contextlib.ExitStack() as stack:
            peers = started(stack, zone_file(folder, size, signed), signed=bool(signed), tls=tls, options=options)
            for load in (load for load in loads if load.setting == setting):
                rounds = measure(generator, load, peers, options)
                print(*table(load, rounds), "", sep="\n", flush=True)
            sizes = ", ".join(f"{name} {servers.memory(peer):.0f}" for name, peer in peers.items())
            print(f"memory in MB (PSS), {size:,} names{', ' * bool(signed)}{signed}{', TLS' * tls}: {sizes}\n")


def started(
    stack: contextlib.ExitStack, zone: Path, *, signed: bool, tls: bool, options: argparse.Namespace
) -> dict[str, Peer]:
    """Start the servers that can serve the zone in this way. They run until the stack is closed."""
    peers: dict[str, Peer] = {}
    for name in options.servers:
        kind = (servers.SECURE if tls else servers.SERVERS).get(name)
        if kind is None or (signed and name in servers.UNSIGNED):
            continue
        try:
            peers[name] = stack.enter_context(kind({ORIGIN: zone}))
        except PeerError as error:
            print(f"bench: {error}", file=sys.stderr)
            continue
        if not options.unpinned:
            servers.pin(peers[name], SERVER_CORE)
    return peers


def compile_generator(folder: Path) -> Path:
    """Compile the load generator, with TLS if OpenSSL's headers are installed."""
    if shutil.which("cc") is None:
        sys.exit("bench: the generator needs a C compiler (cc)")
    generator = folder / "generator"
    command = ["cc", "-O2", "-o", str(generator), str(HERE / "generator.c")]
    if subprocess.run([*command, "-DTLS", "-lssl", "-lcrypto"], capture_output=True).returncode:
        subprocess.run(command, check=True)
    return generator


def zone_file(folder: Path, names: int, signed: str) -> Path:
    """Write a zone, unsigned, or signed with NSEC by maptr or with NSEC3 by BIND."""
    zone = folder / f"{names}{signed}.zone"
    if zone.exists():
        return zone
    zone.write_text(ark_zone(names))
    if signed == "nsec3":
        made = folder / "nsec3"
        made.mkdir()
        signers.sign(zone.read_text(), ORIGIN, made, "bind-nsec3").replace(zone)
    elif signed:
        made = folder / "signed"
        keys = folder / "keys"
        for arguments in (("keys", "add", keys), ("sign", zone, keys, "-o", made)):
            subprocess.run(
                [sys.executable, "-m", "maptr", "zone", *map(str, arguments)], check=True, capture_output=True
            )
        made.replace(zone)
    return zone


def measure(generator: Path, load: Load, peers: dict[str, Peer], options: argparse.Namespace) -> dict[str, list[Round]]:
    queries = generator.with_name("queries")
    queries.write_bytes(packed(load.queries()))
    verify(load, peers)
    rounds: dict[str, list[Round]] = {name: [] for name in peers}
    for number in range(options.rounds):
        for name in list(peers) if number % 2 == 0 else reversed(peers):
            one = drive(generator, queries, load, peers[name], options)
            if one is not None:
                rounds[name].append(one)
        print(f"{load.name}: round {number + 1} of {options.rounds}", file=sys.stderr)
    return rounds


@contextlib.contextmanager
def generate(
    generator: Path,
    queries: Path,
    peer: Peer,
    seconds: float,
    *,
    rate: int = 0,
    how: str = "udp",
    window: int = WINDOW,
    pinned: bool = True,
) -> Iterator[subprocess.Popen[str]]:
    """Run the generator, which prints one line of JSON at its end or at SIGTERM."""
    port = getattr(peer, "tls_port", peer.port)
    words = map(str, (HOST, port, queries, seconds, window, SOCKETS, rate, how))
    pin = ["taskset", "-c", str(GENERATOR_CORE)] if pinned and find("taskset") else []
    with subprocess.Popen([*pin, str(generator), *words], stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def drive(generator: Path, queries: Path, load: Load, peer: Peer, options: argparse.Namespace) -> Round | None:
    """Run one round. Return None if the server answers less than a tenth of the lost queries or disconnects."""
    before = servers.cpu_seconds(peer)
    with generate(
        generator, queries, peer, options.seconds, rate=load.rate, how=load.how, pinned=not options.unpinned
    ) as running:
        out, _ = running.communicate(timeout=options.seconds + 60)
    cpu = servers.cpu_seconds(peer) - before
    if running.returncode:
        return None
    said = json.loads(out)
    received = said["received"]
    if not received or received < said["lost"] / 10:
        return None
    return Round(cpu / received * 1e6, received / said["seconds"], said["lost"], said["p50"], said["p99"])


def verify(load: Load, peers: dict[str, Peer]) -> None:
    """End the run unless all servers give the same rcode and answer section to a sample of queries."""
    for wire in random.Random(1).sample(list(load.queries()), SAMPLE):
        said = {name: answer(peer, wire) for name, peer in peers.items()}
        if len({reply for reply in said.values() if reply is not None}) > 1:
            lines = "".join(f"\n  {name}: {reply}" for name, reply in said.items())
            sys.exit(f"bench: {load.name}: servers differ about {wire.hex()}{lines}")


def answer(peer: Peer, wire: bytes) -> tuple[str, tuple[str, ...]] | None:
    """Return rcode and answers; None without a response."""
    try:
        reply = dns.query.udp(dns.message.from_wire(wire), HOST, 1.0, peer.port)
    except (dns.exception.DNSException, OSError):
        return None
    answers = sorted(f"{rrset.name} {rrset.rdtype} {rdata}".lower() for rrset in reply.answer for rdata in rrset)
    return dns.rcode.to_text(reply.rcode()), tuple(answers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
