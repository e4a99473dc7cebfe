"""The reader of zone files: it reads them as dnspython does, and keeps the text of blocks."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dns.zone
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from maptr.errors import ZoneError
from maptr.protocol.names import Labels, from_wire, parse
from maptr.zone.check import check_integrity, check_rules, examine
from maptr.zone.masterfile import read_master_file
from maptr.zone.reader import ZoneFile, read_blocks, read_zone_file
from maptr.zone.rrset import RRset
from maptr.zone.snapshot import INERT, PackedNodes, ZoneView, is_text
from tests.support.answers import load_vectors
from tests.support.random_zones import ORIGIN, random_zone, zone_text
from tests.support.zones import view_zone

EXAMPLE = (b"example",)
LINES = load_vectors("zone_lines")
HEAD = "$TTL 60\n@ IN SOA ns host 1 7200 3600 1209600 300\n@ IN NS ns\nns IN A 192.0.2.1\n"


def records_of(view: ZoneView) -> dict[tuple[Labels, int], RRset]:
    """Return the RRsets of a zone with sorted records, because their order has no meaning (RFC 2181 5)."""
    rrsets = ((name, rrset) for name, node in view.nodes.items() for rrset in node.values())
    return {(name, rrset.rdtype): rrset._replace(rdatas=tuple(sorted(rrset.rdatas))) for name, rrset in rrsets}


def assert_same_zone(text: str, origin: str = ORIGIN) -> None:
    """Assert that the zone is the one that dnspython's reader gives."""
    read = read_zone_file(text.encode(), parse(origin), Path("zone"))
    other = view_zone(dns.zone.from_text(text, origin, relativize=False))
    assert records_of(read.view) == records_of(other)
    assert read.view._replace(nodes=other.nodes) == other
    assert read.view.nodes.keys() == other.nodes.keys()
    assert {*read.view.nodes.special} == {*other.nodes.special}


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
            read_zone_file(text, EXAMPLE, zone)
        assert str(raised.value).startswith(error.replace("PART", str(place)).replace("ZONE", str(zone)))


# --- blocks

ARK = (b"ark", b"arpa")
ARK_HEAD = "$ORIGIN ark.arpa.\n$TTL 60\n@ IN SOA ns1 host 1 7200 3600 1209600 300\n@ IN NS ns1\nns1 IN A 192.0.2.1\n"
# For each part of a line: texts that are valid in a block, and similar ones that are not, or that are wrong anywhere.
OWNERS = ["12345", "b1", "x" * 63], ["x" * 64, "word", "*", "a.12345", "ns1"]
ODD_HOSTS = (
    "-h.example h-.example localhost h.localhost h.1 192.0.2.1 127.0.0.1 12345.ark.arpa word.ark.arpa h.word.ark.arpa"
    " ark.arpa x-ark.arpa a.b.c.d.example h..example h.xn--p1ai H.example example"
)
LONG_HOST = ".".join(letter * 30 for letter in "xyzt")
HOSTS = ["h.example", "a.b.c.example", "h_.example", "x-ark.arp", LONG_HOST], ODD_HOSTS.split()
PORTS = ["", "8443"], ["0", "65535", "65536", "08"]
NUMBERS = ["10 10", "100 20", "010 10"], ["65535 1", "65536 1", "1  1"]
PATHS = ["", "p", "x" * 60, "ark:/12345/", "~x%20"], ["x" * 130, "x" * 250, "a b", "p!", "a;b", "{x}"]
GROUPS = ["(.*)", "x6(.*)", "(x6.*)", f"{'x' * 9}(.*)"], [".*", "(.*", "x{2}(.*)", "^(.*)", f"{'x' * 10}(.*)"]
BACK = ["\\\\1", ""], ["\\\\2", "\\1", "\\\\\\\\1"]
TEXTS = ["x", "", "a; b (c)", "x" * 255, "\\195", '\\"'], ["x" * 256, "\\256", "a" * 900, "\\x"]
KINDS = ["h", "u", "txt"], ["redirect", "ns", "a", "upper"]


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Draw a line of a block, in which one part may be invalid in a block."""
    odd_part = draw(st.integers(0, 30))

    def pick(number: int, choices: tuple[list[str], list[str]]) -> str:
        return draw(st.sampled_from(choices[number == odd_part]))

    owner, host, port, kind, numbers = (
        pick(number, choices) for number, choices in enumerate((OWNERS, HOSTS, PORTS, KINDS, NUMBERS))
    )
    if kind == "h":
        dot = "" if odd_part == 5 else "."
        return f'{owner} IN NAPTR {numbers} "h" "ark" "" {host}{chr(92) + "058" + port if port else ""}{dot}'
    if kind == "u":
        naan = "99999" if odd_part == 6 else owner
        scheme = "ftp" if odd_part == 7 else draw(st.sampled_from(["https", "http"]))
        where = f"{scheme}://{host}{':' + port if port else ''}/{pick(8, PATHS)}{pick(9, BACK)}{pick(10, PATHS)}"
        return f'{owner} IN NAPTR {numbers} "u" "ark" "!^ark:/?{naan}/{pick(11, GROUPS)}$!{where}!" .'
    if kind == "txt":
        return f'{owner} IN TXT "{pick(12, TEXTS)}"'
    if kind == "redirect":
        target = draw(st.sampled_from(["12345.ark.arpa.", "b1.ark.arpa.", "x.test.", "b9.ark.arpa."]))
        return f'{owner} IN NAPTR {numbers} "" "ark" "" {target}'
    if kind == "upper":
        return f'{owner} IN NAPTR {numbers} "H" "ARK" "" {host}.'
    return f"{owner} IN {'NS ns1' if kind == 'ns' else 'A 192.0.2.1'}"


def assert_same_as_dnspython(text: str) -> None:
    """Assert that a file with blocks gives the same zone as dnspython, with the same findings."""
    plain = read_blocks(text.encode(), ARK)
    if plain is None:
        return  # masterfile.py reads or refuses it
    assert_same_zone(text, "ark.arpa.")
    other = view_zone(dns.zone.from_text(text, "ark.arpa.", relativize=False))
    assert sorted(map(str, check_integrity(plain.view))) == sorted(map(str, check_integrity(other)))
    assert check_rules(plain.view, plain.doubtful) == check_rules(other)
    through_dnspython = text.replace("1209600 300\n", "1209600 300 ; SOA\n", 1)
    assert examine(text).findings == examine(through_dnspython).findings
    nodes = plain.view.nodes
    inert = {name for name, node in other.nodes.items() if INERT.issuperset(node) and name[:1] != (b"*",)}
    assert other.nodes.keys() - inert == set(map(from_wire, nodes.special))


@settings(max_examples=150)
@example(  # the host of the block is a name of the zone, which then need not be a NAAN
    ['12345 IN NAPTR 10 10 "h" "ark" "" word.ark.arpa.', 'word IN NAPTR 10 10 "h" "ark" "" h.example.'], False, 0
)
@given(st.lists(lines(), max_size=12), st.booleans(), st.integers(0, 3))
def test_blocks_are_read_as_by_dnspython_and_have_no_findings(
    drawn: list[str], stand_together: bool, repeated: int
) -> None:
    if stand_together:
        drawn.sort(key=lambda line: line.partition(" ")[0])
    assert_same_as_dnspython(ARK_HEAD + "".join(f"{line}\n" for line in drawn + drawn[:repeated] * (repeated == 3)))


def texts(nodes: PackedNodes) -> list[bytes]:
    """Return the names that are not packed."""
    return [key for key, value in nodes.table.items() if is_text(value)]


def block_zone(*lines: str) -> ZoneFile:
    plain = read_blocks((ARK_HEAD + "".join(f"{line}\n" for line in lines)).encode(), ARK)
    assert plain is not None
    return plain


GOOD = (
    '12345 IN NAPTR 10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://h.example:8443/p/ark:/12345/\\\\1!" .',
    '12345 IN NAPTR 100 10 "h" "ark" "" h.example\\0588443.',
    '12345 IN TXT "who=Universit\\195\\169"',
)


def test_lines_of_the_zone_writer_are_a_block() -> None:
    plain = block_zone(*GOOD, GOOD[1].replace("12345", "12346", 1))
    nodes = plain.view.nodes
    assert len(texts(nodes)) == 2
    assert not plain.doubtful
    assert set(nodes[(b"12345", *ARK)]) == {16, 35}
    assert len(texts(nodes)) == 1
    assert len(nodes) == len(list(nodes)) == 4
    nodes.pack_all()
    assert not texts(nodes)


@pytest.mark.parametrize(
    "others",
    [
        ('12345 IN TXT "a" "b"',),
        ("x IN A 192.0.2.1", GOOD[1]),
        ("12345.ark.arpa. IN A 192.0.2.1",),
        ("12345 IN NS ns1",),
        tuple(f'12345 IN TXT "{letter * 200}"' for letter in "abcdef"),
        ("$TTL 61", '12345 IN TXT "x"'),
        ("$TTL 61", "12345 IN A 192.0.2.1"),
        (" IN A 192.0.2.1",),
        ("$ORIGIN 12345.ark.arpa.", "@ IN A 192.0.2.1"),
    ],
)
def test_a_name_with_lines_outside_its_block_is_read_line_by_line(others: tuple[str, ...]) -> None:
    text = ARK_HEAD + "\n".join((*GOOD, *others)) + "\n"
    read = read_zone_file(text.encode(), ARK, Path("zone"))
    # With another $TTL above a block, or an indented line, no block counts.
    is_odd = others[-1] == '12345 IN TXT "x"' or others[-1].startswith(" ")
    assert read.doubtful == (None if is_odd else frozenset({(b"12345", *ARK)}))
    assert_same_zone(text, "ark.arpa.")


def test_lines_after_the_blocks_may_have_another_origin_and_ttl() -> None:
    """Records that ``zone build --include`` adds may have them."""
    below = "x.12345.ark.arpa. IN A 192.0.2.1"
    lines = *GOOD, "; from sub.zone", "$ORIGIN sub.ark.arpa.", "$TTL 61", "x IN NS ns.example.", below
    plain = block_zone(*lines)
    assert (len(texts(plain.view.nodes)), plain.doubtful) == (1, frozenset())
    for start in ("", "$ORIGIN sub.ark.arpa.\n"):
        assert_same_zone(ARK_HEAD + start + "".join(f"{line}\n" for line in lines), "ark.arpa.")


def test_threads_may_read_a_block_at_once() -> None:
    lines = [f'{naan} IN NAPTR 10 10 "h" "ark" "" h{naan}.example.' for naan in range(10000, 14000)]
    nodes = block_zone(*lines).view.nodes

    def look() -> list[bytes]:
        return [key for key in nodes.table if is_text(nodes.read(key))]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            looks = [threads.submit(look) for _ in range(4)]
            nodes.pack_all()
            assert [done.result() for done in looks] == [[]] * 4
    finally:
        sys.setswitchinterval(interval)
    assert not texts(nodes)


@pytest.mark.parametrize("ttl", [2147483648, 4294967295])
def test_rfc2181_8_a_ttl_with_the_highest_bit_is_zero(ttl: int) -> None:
    head = b"@ 60 IN SOA ns host 1 2 3 4 5\n@ 60 IN NS ns\n"
    for text in (b"x %d IN TXT t\n" % ttl, b"$TTL %d\nx IN TXT t\n" % ttl):
        view = read_zone_file(head + text, (b"example",), Path("zone")).view
        assert view.nodes[b"x", b"example"][16].ttl == 0
