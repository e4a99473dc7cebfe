"""The zone file reader reads files as dnspython does."""

from __future__ import annotations

import random
from pathlib import Path

import dns.zone
import pytest

from maptr.errors import ZoneError
from maptr.protocol.names import Folded, Labels, fold, parse
from maptr.zone.masterfile import read_master_file
from maptr.zone.rrset import RRset, split_records
from maptr.zone.snapshot import ZoneView
from tests.support.answers import load_vectors
from tests.support.random_zones import ORIGIN, random_zone, zone_text
from tests.support.zones import view_zone

EXAMPLE = Folded((b"example",))
LINES = load_vectors("zone_lines")
HEAD = "$TTL 60\n@ IN SOA ns host 1 7200 3600 1209600 300\n@ IN NS ns\nns IN A 192.0.2.1\n"


def records_of(view: ZoneView) -> dict[tuple[Labels, int], RRset]:
    """Return the RRsets of a zone with sorted records, because their order has no meaning (RFC 2181 5)."""
    rrsets = ((name, rrset) for name, node in view.nodes.items() for rrset in node.values())
    return {
        (name, rrset.rdtype): rrset._replace(records=b"".join(sorted(split_records(rrset.records))))
        for name, rrset in rrsets
    }


def assert_same_zone(text: str, origin: str = ORIGIN) -> None:
    """Assert that the zone is the one that dnspython's reader gives."""
    read = read_master_file("zone", text.encode(), fold(parse(origin)))
    other = view_zone(dns.zone.from_text(text, origin, relativize=False))
    assert records_of(read) == records_of(other)
    assert read._replace(nodes=other.nodes) == other
    assert read.nodes.keys() == other.nodes.keys()
    assert {*read.nodes.special} == {*other.nodes.special}


@pytest.mark.parametrize("seed", range(60))
def test_random_zones(seed: int) -> None:
    assert_same_zone(zone_text([record for record in random_zone(random.Random(seed)) if record.rdtype != "DS"]))


@pytest.mark.parametrize("line", LINES["plain"])
def test_plain_lines(line: str) -> None:
    assert_same_zone(HEAD + line + "\n")


def test_rfc1035_5_1_bytes_beyond_ascii_stay_bytes_in_names(tmp_path: Path) -> None:
    """They are not converted to A-labels or to equivalents: ``\ufb01`` is not ``fi``, and ``\u3002`` is not a dot."""
    latin1 = b'; caf\xe9\ncaf\xe9 IN TXT "\xfc" \\\xfc\n'
    (tmp_path / "caf\u00e9.inc").write_bytes('f\ufb01 IN TXT "\u00fc"\n'.encode() + latin1)
    path = tmp_path / "z"
    path.write_text(
        HEAD + 'caf\u00e9 IN TXT "\u00fc" \\\u00fc ; \u00e9\n\\\u00e9 IN NS ns.\u00e9.\na\u3002b IN A 192.0.2.1\n'
        "\\\\\u00e9 IN A 192.0.2.1\n"
        f"$INCLUDE {tmp_path}/caf\u00e9.inc\n",
        "utf-8",
    )
    view = read_master_file(str(path), path.read_bytes(), EXAMPLE)
    read = {name[0]: next(iter(node.values())).rdatas for name, node in view.nodes.items() if node}
    assert read.keys() >= {"a\u3002b".encode(), b"\\\xc3\xa9"}
    assert read["caf\u00e9".encode()] == (b"\2\xc3\xbc" * 2,)
    assert read["\u00e9".encode()] == (b"\2ns\2\xc3\xa9\0",)
    assert read["f\ufb01".encode()] == (b"\2\xc3\xbc",)
    assert read[b"caf\xe9"] == (b"\1\xfc" * 2,)


LONG = " ".join(["a" * 255] * 300)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (f"x 60 IN TXT {LONG}\n".encode(), "PART:1: the rdata has 76800 bytes, 65535 at most"),
        (f"x IN MX {'9' * 5000} a.\n".encode(), f"PART:1: near '{'9' * 57}...': is out of range"),
        (b"\nx IN A 192.0.2.999\n", "PART:2: near '192.0.2.999': bad IPv4 address"),
        (b"\n$INCLUDE\n", "PART:2: $INCLUDE without a file"),
        (b"@ 60 NSEC3PARAM 1 0 1 -\nx 60 NSEC3 1 0 1 - 00 A\n", "ZONE: x.example. has an NSEC3 record, and its"),
    ],
    ids=["long rdata", "large number", "address", "include", "chain"],
)
def test_error_in_an_included_file_names_that_file(content: bytes, error: str, tmp_path: Path) -> None:
    zone, part = tmp_path / "zone", tmp_path / "part"
    part.write_bytes(content)
    block = b'12345 IN TXT "x"\n'
    for text, place in ((f"{HEAD}$INCLUDE {part}\n".encode(), part), (content + HEAD.encode() + block, zone)):
        with pytest.raises(ZoneError) as raised:
            read_master_file(str(zone), text, EXAMPLE)
        assert str(raised.value).startswith(error.replace("PART", str(place)).replace("ZONE", str(zone)))


@pytest.mark.parametrize("ttl", [2147483648, 4294967295])
def test_rfc2181_8_a_ttl_with_the_highest_bit_is_zero(ttl: int) -> None:
    head = b"@ 60 IN SOA ns host 1 2 3 4 5\n@ 60 IN NS ns\n"
    for text in (b"x %d IN TXT t\n" % ttl, b"$TTL %d\nx IN TXT t\n" % ttl):
        view = read_master_file("zone", head + text, EXAMPLE)
        assert view.nodes[Folded((b"x", b"example"))][16].ttl == 0


@pytest.mark.parametrize("rdtype", [12287, 12288, 40000, 65280, 65534])
def test_rfc6895_3_1_a_type_of_any_number_beside_lines_of_naans(rdtype: int) -> None:
    """The kind of a value was once told from its first byte, which is that of the type."""
    text = HEAD + f'12345 IN TYPE{rdtype} \\# 2 3031\n12345 IN TXT "x"\n'
    assert_same_zone(text.replace("@ IN", "example. IN"), "example.")
    node = read_master_file("zone", text.encode(), EXAMPLE).nodes[Folded((b"12345", *EXAMPLE))]
    assert node[rdtype].rdatas == (b"01",)
