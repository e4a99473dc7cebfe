"""The zones that every server loads, and the queries that the generator sends: each from a seed, the same each time."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scripts.benchmark import odd

ORIGIN = "ark.arpa."
DELEGATIONS = "refer.test."
FIRST_NAAN = 10000
QUERIES = 50_000  # in a file, which the generator goes through again and again
MISSES = 0.05  # of the questions are for names that do not exist
NAPTR, A, SOA = 35, 1, 6
RD = b"\1\0"


def ark_zone(names: int) -> str:
    """So many NAANs, each with one host; nothing below the apex that a delegation or wildcard could touch."""
    lines = [
        f"$ORIGIN {ORIGIN}",
        "$TTL 3600",
        "@ IN SOA ns1 hostmaster 2026010100 7200 3600 1209600 300",
        "@ IN NS ns1",
        "ns1 IN A 192.0.2.1",
        *(
            f'{naan} IN NAPTR 100 10 "h" "ark" "" resolver{naan}.example.org.'
            for naan in range(FIRST_NAAN, FIRST_NAAN + names)
        ),
    ]
    return "\n".join(lines) + "\n"


def delegating_zone(cuts: int = 1000) -> str:
    """A zone of delegations with glue."""
    lines = [
        f"$ORIGIN {DELEGATIONS}",
        "$TTL 3600",
        "@ IN SOA ns1 hostmaster 2026010100 7200 3600 1209600 300",
        "@ IN NS ns1",
        "ns1 IN A 192.0.2.1",
        *(f"d{i} IN NS ns.d{i}\nns.d{i} IN A 192.0.2.2" for i in range(cuts)),
    ]
    return "\n".join(lines) + "\n"


def question(name: str, rdtype: int) -> bytes:
    labels = name.rstrip(".").encode().split(b".")
    return b"".join(bytes((len(label),)) + label for label in labels) + struct.pack("!BHH", 0, rdtype, 1)


def query(name: str, rdtype: int, *, payload: int | None = 1232, do: bool = False, options: bytes = b"") -> bytes:
    """A query with ID 0; ``payload`` None is without EDNS."""
    head = b"\0\0" + RD + struct.pack("!4H", 1, 0, 0, payload is not None)
    opt = struct.pack("!BHHIH", 0, 41, payload, do << 15, len(options)) + options if payload else b""
    return head + question(name, rdtype) + opt


def naan(rng: random.Random, names: int) -> str:
    missing = rng.random() < MISSES
    return f"{rng.randrange(FIRST_NAAN, FIRST_NAAN + names) + (10_000_000 if missing else 0)}.{ORIGIN}"


def plain(rng: random.Random, names: int) -> bytes:
    return query(naan(rng, names), NAPTR, payload=None)


def edns(rng: random.Random, names: int) -> bytes:
    return query(naan(rng, names), NAPTR)


def mix(rng: random.Random, names: int) -> bytes:
    """30 % random cookies, 25 % random case, 10 % without EDNS, 15 % other sizes."""
    name = naan(rng, names)
    if rng.random() < 0.25:
        name = "".join(rng.choice((c.lower(), c.upper())) for c in name)
    if rng.random() < 0.10:
        return query(name, NAPTR, payload=None)
    payload = rng.choice((512, 1400, 1452, 4096)) if rng.random() < 0.15 else 1232
    options = struct.pack("!HH8s", 10, 8, rng.randbytes(8)) if rng.random() < 0.30 else b""
    return query(name, NAPTR, payload=payload, options=options)


def cookies(rng: random.Random, names: int) -> bytes:
    return query(naan(rng, names), NAPTR, options=struct.pack("!HH8s", 10, 8, rng.randbytes(8)))


def nxdomain(rng: random.Random, names: int) -> bytes:
    word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(4, 16)))
    return query(f"{word}.{ORIGIN}", rng.choice((NAPTR, A)))


def nodata(rng: random.Random, names: int) -> bytes:
    return query(f"{rng.randrange(FIRST_NAAN, FIRST_NAAN + names)}.{ORIGIN}", rng.choice((A, 28, 15, 33, 99)))


def apex(rng: random.Random, names: int) -> bytes:
    return query(ORIGIN, rng.choice((SOA, 2, A)))


def referral(rng: random.Random, names: int) -> bytes:
    return query(f"www{rng.randrange(10**6)}.d{rng.randrange(1000)}.{DELEGATIONS}", A)


def refused(rng: random.Random, names: int) -> bytes:
    return query(f"www{rng.randrange(10**6)}.example.net.", A)


def secure(rng: random.Random, names: int) -> bytes:
    return query(naan(rng, names), NAPTR, do=True)


def absent(rng: random.Random, names: int) -> bytes:
    """Names that do not exist, by who wants it proved: no two are alike, and each is right behind one that exists."""
    return query(_behind(rng, names), NAPTR, do=True)


def absent_cut(rng: random.Random, names: int) -> bytes:
    """The same by who takes so little that no proof fits."""
    return query(_behind(rng, names), NAPTR, payload=512, do=True)


def _behind(rng: random.Random, names: int) -> str:
    word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(1, 12)))
    return f"{rng.randrange(FIRST_NAAN, FIRST_NAAN + names)}{word}.{ORIGIN}"


def below(rng: random.Random, names: int) -> bytes:
    """Names below such as exist, which have nothing there."""
    word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(1, 8)))
    return query(f"{word}.{rng.randrange(FIRST_NAAN, FIRST_NAAN + names)}.{ORIGIN}", NAPTR)


def absent_below(rng: random.Random, names: int) -> bytes:
    """The same by who wants it proved: each proof has a record of another name that exists, and of its wildcard."""
    word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(1, 8)))
    return query(f"{word}.{rng.randrange(FIRST_NAAN, FIRST_NAAN + names)}.{ORIGIN}", NAPTR, do=True)


def malformed(rng: random.Random, names: int) -> bytes:
    """Queries cut short: the header promises a question that is not there in full."""
    whole = query(naan(rng, names), NAPTR)
    return whole[: rng.randint(13, 25)]


def unusual(kinds: dict[str, odd.Make]) -> Callable[[random.Random, int], bytes]:
    """All of these kinds, in any order."""
    makers = list(kinds.values())
    return lambda rng, _: rng.choice(makers)(rng)


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of traffic; ``names`` and ``signed`` choose the zone, ``rate`` 0 is as much as the server answers.

    Where ``alike`` is unset, servers say no to it in several ways. It comes by ``udp``, by ``tcp`` or ``tls`` on
    connections kept open, ``once``: a TCP connection for each query, or ``tls-once``: a TLS connection for each, with
    a whole handshake, for the client keeps no session that it could resume. ``signed`` is empty, ``nsec`` or ``nsec3``.
    """

    name: str
    make: Callable[[random.Random, int], bytes]
    names: int = 2000
    rate: int = 0
    how: str = "udp"
    signed: str = ""
    alike: bool = True

    @property
    def setting(self) -> tuple[int, str, bool]:
        """What servers are started for: how many names, how signed, with TLS or not."""
        return self.names, self.signed, self.how.startswith("tls")

    def queries(self, seed: int = 0) -> Iterator[bytes]:
        rng = random.Random(seed)
        return (self.make(rng, self.names) for _ in range(QUERIES))

    def file(self) -> bytes:
        return b"".join(len(wire).to_bytes(2, "big") + wire for wire in self.queries())


LOADS = (
    Load("2,000 names, EDNS", edns),
    Load("2,000 names, no EDNS", plain),
    Load("2,000 names, mix", mix),
    Load("2,000 names, all with cookies", cookies),
    Load("100,000 names, EDNS", edns, 100_000),
    Load("100,000 names, mix", mix, 100_000),
    Load("flood of NXDOMAIN", nxdomain),
    Load("flood of NODATA", nodata),
    Load("flood at the apex", apex),
    Load("flood of referrals", referral),
    Load("flood of REFUSED", refused),
    Load("flood below names that exist", below),
    Load("flood of cut queries", malformed),
    Load("flood of errors", unusual(odd.ERRORS), alike=False),
    Load("flood of malformed packets", unusual(odd.MALFORMED), alike=False),
    Load("flood of odd headers", unusual(odd.HEADERS), alike=False),
    Load("flood of odd options", unusual(odd.OPTIONS), alike=False),
    Load("flood of odd questions", unusual(odd.QUESTIONS), alike=False),
    Load("10,000 queries a second", edns, rate=10_000),
    Load("50,000 queries a second", edns, rate=50_000),
    Load("100,000 queries a second", edns, rate=100_000),
    Load("200,000 queries a second", edns, rate=200_000),
    Load("TCP, 16 connections kept open", edns, how="tcp"),
    Load("TCP, a connection for each query", edns, how="once"),
    Load("TLS, 16 connections kept open", edns, how="tls"),
    Load("TLS, a connection for each query", edns, how="tls-once"),
    Load("2,000 names, signed, DO", secure, signed="nsec"),
    Load("flood of NXDOMAIN, NSEC", absent, signed="nsec"),
    Load("flood of NXDOMAIN, NSEC3", absent, signed="nsec3"),
    Load("flood of NXDOMAIN, NSEC3, 512 octets", absent_cut, signed="nsec3"),
    Load("flood below names that exist, NSEC3", absent_below, signed="nsec3"),
    Load("flood of NXDOMAIN, NSEC3, 10,000 names", absent, 10_000, signed="nsec3"),
)
