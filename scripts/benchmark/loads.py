"""The zones that the servers load, and the queries of each load, generated from a fixed seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scripts.benchmark.odd import DO, NAPTR, NONE, A, ask, opt, option, word

ORIGIN = "ark.arpa."
SERIAL = 2026010100
FIRST_NAAN = 10000
QUERIES, FEW = 50_000, 1_000  # in a file that the generator sends repeatedly; few for a smoke test
MISSES = 0.05  # the fraction of queries for names that do not exist

Name = tuple[bytes, ...]


def ark_zone(names: int, serial: int = SERIAL) -> str:
    """Return a zone of that many NAANs, each with one host, without delegations and wildcards."""
    lines = [
        f"$ORIGIN {ORIGIN}",
        "$TTL 3600",
        f"@ IN SOA ns1 hostmaster {serial} 7200 3600 1209600 300",
        "@ IN NS ns1",
        "ns1 IN A 192.0.2.1",
        *(
            f'{naan} IN NAPTR 100 10 "h" "ark" "" resolver{naan}.example.org.'
            for naan in range(FIRST_NAAN, FIRST_NAAN + names)
        ),
    ]
    return "\n".join(lines) + "\n"


def below(label: bytes, origin: str = ORIGIN) -> Name:
    return (label, *origin.encode().rstrip(b".").split(b"."))


def present(rng: random.Random, names: int) -> Name:
    return below(b"%d" % rng.randrange(FIRST_NAAN, FIRST_NAAN + names))


def naan(rng: random.Random, names: int) -> Name:
    """Return a NAAN, which may be missing from the zone."""
    return below(b"%d" % rng.randrange(10**7, 10**8)) if rng.random() < MISSES else present(rng, names)


def edns(rng: random.Random, names: int) -> bytes:
    return ask(naan(rng, names), NAPTR, opt())


def mix(rng: random.Random, names: int) -> bytes:
    """Make queries: 30 % random cookies, 25 % random case, 10 % without EDNS, 15 % other payload sizes."""
    name = naan(rng, names)
    if rng.random() < 0.25:
        name = tuple(bytes(rng.choice((c, c ^ 0x20)) if c > 57 else c for c in label) for label in name)
    if rng.random() < 0.10:
        return ask(name, counts=NONE)
    size = rng.choice((512, 1400, 1452, 4096)) if rng.random() < 0.15 else 1232
    options = (option(10, rng.randbytes(8)),) if rng.random() < 0.30 else ()
    return ask(name, NAPTR, opt(*options, size=size))


def cookies(rng: random.Random, names: int) -> bytes:
    return ask(naan(rng, names), NAPTR, opt(option(10, rng.randbytes(8))))


def nxdomain(rng: random.Random, names: int) -> bytes:
    return ask(below(word(rng)), rng.choice((NAPTR, A)), opt())


def nodata(rng: random.Random, names: int) -> bytes:
    return ask(present(rng, names), rng.choice((A, 28, 15, 33, 99)), opt())


def refused(rng: random.Random, names: int) -> bytes:
    return ask((b"www%d" % rng.randrange(10**6), b"example", b"net"), A, opt())


def secure(rng: random.Random, names: int) -> bytes:
    return ask(naan(rng, names), NAPTR, opt(flags=DO))


def absent(rng: random.Random, names: int) -> bytes:
    """Make queries with DO for different nonexistent names. Each sorts directly after an existing name."""
    label, *parents = present(rng, names)
    return ask((label + word(rng, 1, 12), *parents), NAPTR, opt(flags=DO))


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of traffic.

    ``budget`` is the highest ratio of CPU per query to the server ``base``. ``rate`` is queries a second, 0 for as many
    as the server answers. ``how`` is ``udp``; ``tcp`` or ``tls`` on connections kept open; ``once`` or ``tls-once`` for
    a connection per query, with a full TLS handshake. ``signed`` is empty, ``nsec`` or ``nsec3``. ``count`` is the
    number of different queries.
    """

    name: str
    budget: float
    make: Callable[[random.Random, int], bytes]
    names: int = 2000
    rate: int = 0
    how: str = "udp"
    signed: str = ""
    base: str = "nsd"
    count: int = QUERIES

    @property
    def setting(self) -> tuple[int, str, bool]:
        """The settings with which the servers start: number of names, signatures, TLS."""
        return self.names, self.signed, self.how.startswith("tls")

    def queries(self, seed: int = 0) -> Iterator[bytes]:
        rng = random.Random(seed)
        return (self.make(rng, self.names) for _ in range(self.count))


def packed(queries: Iterator[bytes]) -> bytes:
    """Return the file that the generator reads."""
    return b"".join(len(wire).to_bytes(2, "big") + wire for wire in queries)


LOADS = (
    Load("2,000 names, EDNS", 1.0, edns),
    Load("2,000 names, mix", 1.15, mix),
    Load("2,000 names, all with cookies", 1.3, cookies),
    Load("100,000 names, EDNS", 0.95, edns, 100_000),
    Load("flood of NXDOMAIN", 1.35, nxdomain),
    Load("flood of NODATA", 1.35, nodata),
    Load("flood of REFUSED", 1.35, refused),
    Load("10,000 queries a second", 1.5, edns, rate=10_000, base="bind"),
    Load("50,000 queries a second", 1.5, edns, rate=50_000, base="bind"),
    Load("TCP, 16 connections kept open", 1.5, edns, how="tcp"),
    Load("TCP, a connection for each query", 6.0, edns, how="once"),
    Load("TLS, 16 connections kept open", 1.5, edns, how="tls"),
    Load("TLS, a connection for each query", 6.0, edns, how="tls-once"),
    Load("2,000 names, signed, DO", 1.1, secure, signed="nsec"),
    Load("flood of NXDOMAIN, NSEC", 2.5, absent, signed="nsec"),
    Load("flood of NXDOMAIN, NSEC3", 2.5, absent, signed="nsec3"),
)
