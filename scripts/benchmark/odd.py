"""Rare and hostile queries, the most expensive for a server, each kind with random names."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

ZONE = (b"ark", b"arpa")
RD, NOTIFY, UPDATE = 0x0100, 0x2000, 0x2800
NAPTR, A, SOA, TXT, OPT, DS, TSIG, IXFR, AXFR, ANY = 35, 1, 6, 16, 41, 43, 250, 251, 252, 255
A_RECORD = b"\0\0\1\0\1\0\0\0\0\0\4\1\2\3\4"
SOA_RECORD = b"\xc0\x0c\0\6\0\1\0\0\0\0\0\x16\0\0" + bytes(20)

Make = Callable[[random.Random], bytes]


def word(rng: random.Random, least: int = 4, most: int = 16) -> bytes:
    return bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=rng.randint(least, most)))


def present(rng: random.Random) -> tuple[bytes, ...]:
    return (b"%d" % rng.randrange(10_000, 12_000), *ZONE)


def absent(rng: random.Random, *above: bytes) -> tuple[bytes, ...]:
    return (word(rng), *above, *ZONE)


def deep(rng: random.Random, labels: int, most: int = 3) -> tuple[bytes, ...]:
    return (*(word(rng, 1, most) for _ in range(labels)), *ZONE)


def option(code: int, data: bytes = b"") -> bytes:
    return struct.pack("!HH", code, len(data)) + data


def opt(*options: bytes, size: int = 1232, version: int = 0, flags: int = 0, rcode: int = 0) -> bytes:
    data = b"".join(options)
    return b"\0" + struct.pack("!HHBBHH", OPT, size, rcode, version, flags, len(data)) + data


def tsig(rng: random.Random, key: bytes) -> bytes:
    rdata = b"\x0bhmac-sha256\0" + struct.pack("!HIHH", 0, 1_700_000_000, 300, 32) + rng.randbytes(32) + bytes(6)
    return bytes((len(key),)) + key + b"\0" + struct.pack("!HHIH", TSIG, 255, 0, len(rdata)) + rdata


def ask(
    name: tuple[bytes, ...],
    rdtype: int = NAPTR,
    *tail: bytes,
    rdclass: int = 1,
    flags: int = RD,
    counts: tuple[int, int, int] = (0, 0, 1),
) -> bytes:
    """Make a query with ID 0 and records, by default an OPT."""
    wire = b"".join(bytes((len(label),)) + label for label in name) + b"\0"
    return struct.pack("!6H", 0, flags, 1, *counts) + wire + struct.pack("!HH", rdtype, rdclass) + b"".join(tail)


NONE = (0, 0, 0)  # records
DO = 0x8000

# Queries with an error, which get the same response for any name.
ERRORS: dict[str, Make] = {
    "class CHAOS": lambda r: ask((word(r), b"bind"), TXT, opt(), rdclass=3),
    "another class": lambda r: ask(absent(r), NAPTR, opt(), rdclass=r.choice((4, 254, 255))),
    "a version of EDNS": lambda r: ask(absent(r), NAPTR, opt(version=r.choice((1, 2, 255)))),
    "AXFR by UDP": lambda r: ask(absent(r), AXFR, opt()),
}

# Malformed packets, some with missing or additional bytes.
MALFORMED: dict[str, Make] = {
    "no question": lambda r: bytes(10) + b"\0\1" + opt(),
    "two questions": lambda r: struct.pack("!6H", 0, RD, 2, 0, 0, 1) + ask(absent(r))[12:] * 2 + opt(),
    "records that are not there": lambda r: ask(present(r), NAPTR, opt(), counts=(r.choice((1, 65535)), 0, 0)),
    "two OPTs": lambda r: ask(present(r), NAPTR, opt(), opt(), counts=(0, 0, 2)),
    "an OPT cut short": lambda r: ask(present(r), NAPTR, opt()[: r.randrange(1, 11)]),
    "an OPT with a name": lambda r: ask(present(r), NAPTR, b"\1a" + opt()),
    "bytes after it": lambda r: ask(present(r), NAPTR, opt(), r.randbytes(r.randint(1, 20))),
    "bytes after one without EDNS": lambda r: ask(present(r), NAPTR, r.randbytes(r.randint(1, 20)), counts=NONE),
    "a cookie of a wrong length": lambda r: ask(present(r), NAPTR, opt(option(10, r.randbytes(r.choice((7, 9)))))),
    "options cut short": lambda r: ask(present(r), NAPTR, opt(option(3), b"\0\x0c\0\5")),
    "a compressed name": lambda r: ask(present(r))[:-5] + b"\xc0\x0c\0\1\0\1" + opt(),
    "random bytes": lambda r: b"\0\0\1\0" + r.randbytes(r.randint(8, 60)),
}

HEADERS: dict[str, Make] = {
    "opcodes": lambda r: ask(absent(r), SOA, opt(), flags=r.choice((1, 2, 3, 6, 15)) << 11),
    "NOTIFY": lambda r: ask(absent(r), SOA, flags=NOTIFY, counts=NONE),
    "UPDATE": lambda r: ask(ZONE, SOA, A_RECORD, flags=UPDATE, counts=(0, 1, 0)),
    "UPDATE of no zone": lambda r: ask(absent(r), A, flags=UPDATE, counts=NONE),
    "no question, a cookie": lambda r: bytes(10) + b"\0\1" + opt(option(10, r.randbytes(8))),
    "a record": lambda r: ask(present(r), NAPTR, A_RECORD, opt(), counts=(1, 0, 1)),
    "sixteen records": lambda r: ask(present(r), NAPTR, A_RECORD * 16, counts=(0, 16, 0)),
    "an unknown key": lambda r: ask(present(r), NAPTR, tsig(r, word(r))),
    "random flags": lambda r: ask(present(r), NAPTR, opt(), flags=r.randrange(0x800)),
}

OPTIONS: dict[str, Make] = {
    "NSID": lambda r: ask(absent(r), NAPTR, opt(option(3))),
    "NSID and a cookie": lambda r: ask(present(r), NAPTR, opt(option(3), option(10, r.randbytes(8)))),
    "a false cookie": lambda r: ask(absent(r), NAPTR, opt(option(10, r.randbytes(8) + b"\1\0\0\0" + r.randbytes(12)))),
    "a long cookie": lambda r: ask(present(r), NAPTR, opt(option(10, r.randbytes(40)))),
    "two cookies": lambda r: ask(present(r), NAPTR, opt(option(10, r.randbytes(8)), option(10, bytes(8)))),
    "a subnet": lambda r: ask(present(r), NAPTR, opt(option(8, b"\0\1\x18\0" + r.randbytes(3)))),
    "padding": lambda r: ask(absent(r), NAPTR, opt(option(12, bytes(r.randrange(200))))),
    "a hundred options": lambda r: ask(present(r), NAPTR, opt(option(65001) * 100)),
    "random sizes": lambda r: ask(present(r), NAPTR, opt(size=r.randrange(65536))),
    "random flags of EDNS": lambda r: ask(present(r), NAPTR, opt(flags=r.randrange(65536))),
}

QUESTIONS: dict[str, Make] = {
    "types": lambda r: ask(present(r), r.randrange(256, 65536), opt()),
    "types of no record": lambda r: ask(present(r), r.choice((OPT, 128, 200, 249, TSIG, 254)), opt()),
    "ANY": lambda r: ask(present(r), ANY, opt()),
    "IXFR": lambda r: ask(ZONE, IXFR, SOA_RECORD, counts=(0, 1, 0)),
    "DS of the origin": lambda r: ask(ZONE, DS, opt()),
    "ten labels": lambda r: ask(deep(r, 10), NAPTR, opt()),
    "as many labels as go": lambda r: ask(deep(r, 122, 1), NAPTR, opt()),
    "four labels elsewhere": lambda r: ask(tuple(word(r) for _ in range(4)), NAPTR, opt()),
    "the longest names": lambda r: ask((*(word(r, 63, 63) for _ in range(3)), word(r, 51, 51), *ZONE), NAPTR, opt()),
    "below a name of the SOA": lambda r: ask(absent(r, r.choice((b"ns1", b"hostmaster"))), NAPTR, opt()),
    "DO": lambda r: ask(absent(r), NAPTR, opt(flags=DO)),
}

ODD: dict[str, Make] = {**ERRORS, **MALFORMED, **HEADERS, **OPTIONS, **QUESTIONS}
