"""What makes BIND refuse a zone is a finding of ``zone check``, and what it accepts, BIND loads."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from maptr.errors import ZoneError
from maptr.protocol.numbers import NAPTR, NSEC3, SOA
from maptr.zone.check import OBSOLETE, examine
from maptr.zone.rdata import META_TYPES, read_rdata
from tests.support.peers import run

ORIGIN = "example."
HEAD = "$TTL 60\n@ SOA ns host 1 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n"
TYPES = sorted(
    {*range(1, 70), *range(99, 110), *range(256, 270), 32768, 32769, 65280}
    - META_TYPES
    - {SOA, NSEC3, NAPTR}
    - OBSOLETE
)
PARTS = [
    *(
        b"\0",
        b"\1a\0",
        b"\2ns\7example\0",
        b"\xc0\x0c",
        b"\1a",
        b"\x40a\0",
        b"\0\1",
        b"\0\0",
        b"\0\1\0\3\2h2",
        b"\x041234",
    ),
    *(b"\0\4\0\4\1\1\1\1", b"\0\0\0\2\0\1", b"\0\2\0\0", b"\1", b"\0\1\x40", b"\xff\xff", b"\0\0\0\0\0"),
]
TRIES = 30_000


def generic_data(rng: random.Random) -> Iterator[tuple[int, bytes]]:
    """Yield types with random data made of the parts that the data of known types has."""
    for _ in range(TRIES):
        parts = [rng.choice([*PARTS, rng.randbytes(rng.randint(1, 9))]) for _ in range(rng.randint(0, 5))]
        yield rng.choice(TYPES), b"".join(parts)


def is_readable(rdtype: int, octets: bytes) -> bool:
    try:
        read_rdata(rdtype, ["\\#", str(len(octets)), octets.hex()], (b"example",))
    except ZoneError:
        return False
    return True


def test_bind_loads_the_data_that_maptr_reads(tmp_path: Path) -> None:
    corpus = [found for found in generic_data(random.Random(21)) if is_readable(*found)]
    assert len({rdtype for rdtype, _ in corpus}) > 0.9 * len(TYPES)
    lines = [f"n{i} TYPE{rdtype} \\# {len(octets)} {octets.hex()}\n" for i, (rdtype, octets) in enumerate(corpus)]
    text = HEAD + "".join(lines)
    assert [finding for finding in examine(text, origin=ORIGIN).findings if finding.severity == "error"] == []
    path = tmp_path / "zone"
    path.write_text(text)
    accepted, output = run("named-checkzone", "-i", "none", "-k", "ignore", ORIGIN, path)
    assert accepted, [(line, text.splitlines()[int(line) - 1]) for line in re.findall(r":(\d+): ", output)]


NAMES = [
    *("a_b A 192.0.2.1", "a-b A 192.0.2.1", "*.x AAAA ::1", "a_b TXT t", "*.x_y A 192.0.2.1", "x MX 10 a_b"),
    *("x MX 0 .", "a_b MX 10 a", "x NS a_b.test.", "_s SRV 1 2 3 a_b", "_s SRV 1 2 3 .", "x CNAME a_b"),
    *('_s NAPTR 1 1 "" "" "" a_b.', "x DNAME a_b", "x RP a_b a_b", "x- A 192.0.2.1", "-x A 192.0.2.1", "x PTR a_b"),
    *("* NS a.test.", f"* DS 1 13 2 {'00' * 32}", "x MD a", "x MB a_b", "* DNAME a", "\\*x A 192.0.2.1"),
    "x NSEC3 1 0 1 - 2t7b4g4vsa5smi47k61mv5bv1a22bojr A",
]


@pytest.mark.parametrize("line", NAMES)
def test_zone_check_has_a_finding_for_each_name_that_bind_refuses(line: str, tmp_path: Path) -> None:
    """With the check of names of a primary."""
    path = tmp_path / "zone"
    path.write_text(f"{HEAD}{line}\n")
    accepted, output = run("named-checkzone", "-i", "none", "-k", "fail", "-n", "fail", ORIGIN, path)
    assert bool(examine(path.read_text(), origin=ORIGIN).findings) is not accepted, output
