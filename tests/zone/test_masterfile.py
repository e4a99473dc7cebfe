"""The reader of master files: directives, several files, every kind of record, and the reasons for rejections."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maptr.errors import ZoneError
from maptr.protocol.names import Folded, to_text
from maptr.zone.masterfile import Locations, read_master_file
from maptr.zone.rdata import type_text
from maptr.zone.rrset import records_of
from maptr.zone.snapshot import ZoneView
from maptr.zone.text import rdata_text
from tests.support.answers import load_vectors

EXAMPLE = Folded((b"example",))
ZONES = load_vectors("master_files")["zone"]
LINES = load_vectors("zone_lines")
HEAD = "$TTL 60\n@ IN SOA ns host 1 7200 3600 1209600 300\n@ IN NS ns\nns IN A 192.0.2.1\n"


LONG = " ".join([f'"{"a" * 255}"'] * 300)  # more than a record may have


def records(view: ZoneView) -> set[str]:
    nodes = view.nodes
    return {
        f"{to_text(nodes.owner(key))} {ttl} {type_text(rdtype)} {rdata_text(rdtype, rdata)}"
        for key, packed in nodes.table.items()
        for rdtype, ttl, rdata in records_of(packed)
    }


@pytest.mark.parametrize("case", ZONES, ids=lambda case: case["title"])
def test_zones_of_several_files(case: dict[str, Any], tmp_path: Path) -> None:
    for name, text in case["files"].items():
        (tmp_path / name).write_text(text.lstrip("\n"))
    path = tmp_path / "zone"
    if "error" in case:
        with pytest.raises(ZoneError) as raised:
            read_master_file(str(path), path.read_bytes(), EXAMPLE)
        assert str(raised.value) == f"{path}:{case['error']}"
    else:
        assert {*case["records"]} <= records(read_master_file(str(path), path.read_bytes(), EXAMPLE))


OWNERS = st.sampled_from(
    ["@", "a", "b.a", "*.c", "a.*.c", "ns", "x_y", "12345", "a.example.", "other.test.", "A", "é", "\\097", "a..b"]
)
TTLS = st.sampled_from(["", "", "", "7 ", "0 ", "2147483648 ", "1h ", "x "])
CLASSES = st.sampled_from(["", "IN ", "IN ", "in ", "CH "])
RDATA = [
    *("A 192.0.2.1", "A 192.0.2.2", "A 192.0.2.999", "A", "AAAA ::1", "AAAA ::ffff:192.0.2.1", "a 192.0.2.1"),
    *("NS ns", "NS ns.", "NS ns.other.test.", "NS .", "NS @", "NS ns\\.", "NS a b", "CNAME a", "CNAME .", "DNAME b.a"),
    *("SOA ns h 1 2 3 4 5", "SOA ns h 1 2 3 4 -5", "MX 10 a", "MX -1 a", "MX 10 .", "SRV 1 2 3 .", "SRV 1 2 70000 ."),
    *('TXT "a"', "TXT a b", 'TXT "a;b" "c"', 'TXT "\\255"', 'TXT "\\256"', 'TXT "', "TXT", 'TXT ""', "TXT é"),
    *('NAPTR 1 1 "u" "ark" "!a!b!" .', 'NAPTR 1 1 "" "" "" A.', "NAPTR 1 1 u ark !a!b! .", "NAPTR 1 1"),
    *("DS 1 13 2 " + "00" * 32, "DS 1 13 2 00", "DS 1 13 2 0", "DS 1 13 2", "DNSKEY 257 3 13 AAAA", "DNSKEY 1 3 13 A"),
    *(
        "RRSIG A 13 2 60 20300101000000 20200101000000 1 example. AAAA",
        "NSEC a.example. A RRSIG",
        "TYPE1 \\# 4 00000000",
    ),
    *("RRSIG CNAME 13 2 60 20300101000000 20200101000000 1 example. AAAA", "NSEC3PARAM 1 0 0 -", "CDS 0 0 0 00"),
    *("NSEC a.example. FOO", "HTTPS 0 .", "HTTPS 1 . alpn=h2", 'HTTPS 0 a. alpn="h2"', "CAA 0 issue a"),
    *(
        "TYPE65280 \\# 1 00",
        "TYPE1 \\# 3 000000",
        "TYPE41 \\# 0",
        "ANY \\# 0",
        "FOO a",
        "",
        "MB a",
        "LOC 1 2 3 N 4 5 6 E 7m",
        "HINFO a b",
    ),
]
DIRECTIVES = ["", "; a comment", " ; another", "$TTL 9", "$TTL 1h", "$ORIGIN a", "$ORIGIN example.", "$ORIGIN b."]
odd_lines = st.one_of(
    st.builds(lambda *parts: "{} {}{}{}".format(*parts), OWNERS, TTLS, CLASSES, st.sampled_from(RDATA)),
    st.sampled_from([*DIRECTIVES, "$X", "a", *LINES["plain"], *LINES["other"], *LINES["signed"]]),
)


def outcome(lines: str) -> tuple[set[str], list[str], list[str]]:
    """Return the records and special names of a zone, or its error, and its findings."""
    locations = Locations()
    try:
        view = read_master_file("zone", f"{HEAD}{lines}\n".encode(), EXAMPLE, locations)
        found = records(view), [to_text(view.nodes.owner(key)) for key in view.nodes.special]
    except ZoneError as error:
        found = set(), [str(error)]
    return *found, [*map(str, locations.findings)]


def assert_read_alike(lines: str) -> None:
    """Assert that the lines are read as they are with tabs, which the tokenizer reads."""
    assert outcome(lines) == outcome(re.sub("^([^ \n]*) ", "\\1\t", lines, flags=re.MULTILINE))


@pytest.mark.parametrize("lines", [*LINES["plain"], *LINES["other"], *LINES["signed"], f"x TXT {LONG}"])
def test_each_plain_line_is_read_as_its_tokens(lines: str) -> None:
    assert_read_alike(lines)


@settings(max_examples=400, deadline=None)
@given(st.lists(odd_lines, max_size=6))
def test_plain_lines_are_read_as_their_tokens(drawn: list[str]) -> None:
    assert_read_alike("\n".join(drawn))


@given(st.text('ab1.@ \t\n\r();"\\$é*#\x00-', max_size=60))
def test_any_text_is_read_or_refused_with_its_line(text: str) -> None:
    try:
        read_master_file("zone", (HEAD + text).encode(), EXAMPLE)
    except ZoneError as error:
        assert error.filename == "zone"
        assert error.reason
        assert error.line or error.code


DIGITS = "9" * 5000  # Python refuses to make a number of so many


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"x {DIGITS} IN A 192.0.2.1", "is out of range"),
        (f"$TTL {DIGITS}", "is not a time"),
        (f"x IN A6 {DIGITS} ::", "is out of range"),
        (f"x IN TYPE{DIGITS} \\# 0", "unknown RR type"),
        (f"x CLASS{DIGITS} A 192.0.2.1", "unknown RR type"),
        (f"$GENERATE {DIGITS}-{DIGITS} a A 192.0.2.1", "bad range"),
        ("x \u0663 IN A 192.0.2.1", "is out of range"),
        ("x \u00b2 IN A 192.0.2.1", "is out of range"),
        ("$GENERATE \u0661-\u0662 a TXT $", "bad range"),
    ],
    ids=range(9),
)
def test_odd_numbers_are_refused_with_their_line(line: str, reason: str) -> None:
    with pytest.raises(ZoneError, match=f"^zone:5: near .*{reason}"):
        read_master_file("zone", f"{HEAD}{line}\n".encode(), EXAMPLE)


def test_a_name_has_its_first_spelling() -> None:
    view = read_master_file("zone", (HEAD + "WwW A 192.0.2.1\nwww A 192.0.2.2\nwwW TXT x\n").encode(), EXAMPLE)
    assert {rrset.owner[0] for rrset in view.nodes[Folded((b"www", b"example"))].values()} == {b"WwW"}
