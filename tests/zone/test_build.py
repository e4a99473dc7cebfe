"""The zone builder: the text, included files, and omitted entries."""

from __future__ import annotations

import subprocess
from pathlib import Path

import dns.zone
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr import Client, registry
from maptr.errors import ZoneError
from maptr.registry.table import Entry, Nma, Table, Who
from maptr.zone import rules
from maptr.zone.build import Build, NameServer, ZoneSettings, build, serial_of
from maptr.zone.check import examine
from maptr.zone.finding import Severity
from tests.support.entries import LONG, REDIRECTED, tables
from tests.support.peers import Maptr, find

NOBODY = Who("")


def entry(key: str, target: str, who: Who = NOBODY) -> Entry:
    naan, _, shoulder = key.partition("/")
    return Entry(naan, shoulder, (Nma(target),), who)


TABLE = Table(
    [
        entry("99999", "https://t.example/ark:/${content}", Who('Tést "x"; \\ \u0001', "テスト", "TEST")),
        entry("12345", "https://h.example:8443/p/ark:/${content}"),
        entry("12345/x6", "https://x6.example/${value}"),
    ]
)


def load(text: str) -> dns.zone.Zone:
    return dns.zone.from_text(text, relativize=False)


def test_the_text_of_a_zone() -> None:
    assert build(TABLE, 7).text == "\n".join(
        [
            "$ORIGIN ark.arpa.",
            "$TTL 86400",
            "ark.arpa. IN SOA localhost. hostmaster.ark.arpa. 7 3600 900 1209600 300",
            "ark.arpa. IN NS localhost.",
            r'12345 IN NAPTR 9 10 "u" "ark" "!^ark:/?12345/(x6.*)$!https://x6.example/\\1!" .',
            r'12345 IN NAPTR 10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://h.example:8443/p/ark:/12345/\\1!" .',
            r'12345 IN NAPTR 100 10 "h" "ark" "" h.example\0588443.',
            r'99999 IN NAPTR 10 10 "u" "ark" "!^ark:/?99999/(.*)$!https://t.example/ark:/99999/\\1!" .',
            r'99999 IN NAPTR 100 10 "h" "ark" "" t.example.',
            r'99999 IN TXT "who=T\195\169st \"x\"; \\ \001"',
            r'99999 IN TXT "native=\227\131\134\227\130\185\227\131\136"',
            r'99999 IN TXT "acronym=TEST"',
            "",
        ]
    )


@pytest.mark.parametrize(("letters", "left"), [(200, 200), (66_000, 508)], ids=["split", "cut"])
def test_long_names_are_split_into_strings_and_very_long_ones_truncated(letters: int, left: int) -> None:
    built = build(Table([entry("12345", "https://h.example/", Who("é" * letters))]), 1)
    (txt,) = load(built.text).find_rdataset("12345.ark.arpa.", "TXT")
    assert len(txt.strings) > 1
    assert b"".join(txt.strings).decode() == "who=" + "é" * left
    assert built.counts["naans"] == 1


@given(st.permutations([*TABLE.values()]))
def test_the_order_of_the_table_does_not_matter(entries: list[Entry]) -> None:
    assert build(Table(entries), 7).text == build(TABLE, 7).text


def test_servers_and_contact() -> None:
    origin = (b"ark", b"example")
    servers = (NameServer.parse("ns1=192.0.2.1,2001:db8::1", origin), NameServer.parse("ns.other.example", origin))
    text = build(TABLE, 1, ZoneSettings(origin=origin, servers=servers, contact=(b"dns", b"example"), ttl=60)).text
    assert "ark.example. IN SOA ns1.ark.example. dns.example. 1 3600 900 1209600 300" in text
    assert "ns1.ark.example. IN A 192.0.2.1" in text
    assert "ns1.ark.example. IN AAAA 2001:db8::1" in text
    assert "ark.example. IN NS ns.other.example." in text
    assert not [f for f in examine(text).findings if f.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("ns1", "give its address"),
        ("ns1.ark.arpa.", "give its address"),
        ("ns.example=192.0.2.1", "not in the zone"),
        ("ns1=192.0.2.300", "192.0.2.300"),
        ("a..b", "empty label"),
        ("", "no name"),
    ],
)
def test_bad_name_servers(text: str, because: str) -> None:
    with pytest.raises(ZoneError, match=because):
        NameServer.parse(text)


def build_including(content: bytes, table: Table = TABLE) -> Build:
    return build(table, 1, ZoneSettings(include=(("extra.zone", content),)))


def test_included_records_are_added_and_delegated_names_are_not_taken_from_the_table() -> None:
    include = '12345 3600 IN NS ns.other.example.\nextra 60 IN TXT "a"\n'
    built = build_including(include.encode())
    assert (built.delegated, built.left_out) == (("12345",), ())
    assert built.text.endswith(include)
    zone = load(built.text)
    assert zone.get_rdataset("12345.ark.arpa.", "NAPTR") is None
    assert zone.get_rdataset("extra.ark.arpa.", "TXT") is not None
    assert not [f for f in examine(built.text).findings if f.severity is Severity.ERROR]
    assert build_including(include.replace("\n", "\r\n").encode()).text == built.text


@pytest.mark.parametrize("comment", ["", " ; a comment, so that dnspython reads it"])
def test_every_delegation_of_an_included_file_is_found(comment: str) -> None:
    lines = "12345 NS ns.other.example.", "$ORIGIN 12026.ark.arpa.", "@ IN NS ns", "ns IN A 192.0.2.1", "x IN TXT t"
    include = "".join(f"{line}{comment}\n" for line in lines)
    table = tables(entry("12026", "https://h.example/${content}"), entry("12345/x7", LONG))
    built = build_including(include.encode(), table)
    assert (built.delegated, built.left_out) == (("12026", "12345"), ())


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"12345 IN NS", "1: cannot be included: unexpected end of line: a field is missing"),
        (b'a IN A 192.0.2.1\nb 60 IN TXT "\n', "2: cannot be included: unbalanced quotes"),
        (b"\n\n$INCLUDE /etc/hostname\n", "3: cannot be included: near '$INCLUDE': unknown directive"),
        (b"\nother.test. 60 IN A 192.0.2.1\n", "2: cannot be included: the owner is outside the zone ark.arpa."),
        (b"\xef\xbb\xbfextra IN A 192.0.2.1", "1: cannot be included: begins with a byte order mark"),
    ],
)
def test_error_in_an_included_file_names_file_and_line(content: bytes, error: str) -> None:
    with pytest.raises(ZoneError) as raised:
        build_including(content)
    assert str(raised.value).startswith(f"extra.zone:{error}")


def test_bytes_of_an_included_file_that_are_not_utf8_are_escaped() -> None:
    include = b'; caf\xe9\n12345 IN NS caf\xe9.example.\n$ORIGIN 12345.ark.arpa.\nx IN TXT "\xfc" \\\xfc\n'
    built = build_including(include)
    assert "12345 IN NS caf\\233.example.\n" in built.text
    assert 'x IN TXT "\\252" \\252\n' in built.text
    assert built.delegated == ("12345",)
    built.text.encode("ascii")


def test_a_long_rule_at_its_own_naan_does_not_match_the_naan() -> None:
    (rule, _) = [line for line in build(Table([entry("12345", REDIRECTED)]), 1).text.splitlines() if "NAPTR" in line]
    assert '"!^ark:/?(.*)$!' in rule


def test_a_shoulder_is_published_though_its_naan_is_not() -> None:
    zone = load(build(Table([entry("12345/x6", "https://x6.example/${value}")]), 1).text)
    (naptr,) = zone.find_rdataset("12345.ark.arpa.", "NAPTR")
    assert b"x6" in naptr.regexp


def test_the_serial_is_read_from_text_that_build_made() -> None:
    one, two = (build(TABLE, serial) for serial in (7, 8))
    assert (serial_of(one.text), serial_of(two.text)) == (7, 8)
    assert one.with_serial(8) == two
    assert serial_of("$ORIGIN ark.arpa.\nnothing here") is None


# --- the sample in zones/

ZONES = Path(__file__).resolve().parents[2] / "zones"


def test_the_zone_is_the_one_built_from_the_sample() -> None:
    table = registry.read((ZONES / "sample.json").read_bytes())
    include = ("delegations.zone", (ZONES / "delegations.zone").read_bytes())
    settings = ZoneSettings(servers=(NameServer.parse("ns1=192.0.2.1"),), include=(include,))
    built = build(table, 2026010101, settings)
    assert (ZONES / "ark.arpa.zone").read_text() == built.text
    assert built.delegated == ("20775",)
    assert built.left_out == ()


@pytest.mark.parametrize("file", ["ark.arpa.zone", "20775.ark.arpa.zone"])
def test_sample_zone_has_no_findings(file: str) -> None:
    assert examine((ZONES / file).read_text()).findings == []


def test_a_naan_with_400_shoulders_is_published_with_all_of_them(tmp_path: Path) -> None:
    long = "p" * 120
    shoulders = [entry(f"12345/x{n}", f"https://h{n}.example.org/{long}/${{suffix}}") for n in range(400)]
    built = build(Table([entry("12345", "https://main.example.org/${content}"), *shoulders]), 1)
    assert not built.left_out.records
    found = examine(built.text)
    assert found.view is not None
    assert not {one.code for one in found.findings} & {"too-large", "large-rrset", "redirect-nowhere", "not-a-naan"}
    checker = find("named-checkzone")
    if checker is not None:
        file = tmp_path / "zone"
        file.write_text(built.text)
        subprocess.run([checker, "-i", "none", "ark.arpa", str(file)], check=True, capture_output=True, timeout=60)
    served = Maptr({"ark.arpa.": file_of(tmp_path, built.text)})
    with served as server, Client([f"{server.host}#{server.port}"]) as client:
        for n in (0, 7, 70, 399):
            found_at = client.discover(f"ark:12345/x{n}/a")
            assert found_at.url() == f"https://h{n}.example.org/{long}//a"
        assert client.discover("ark:12345/b5").url() == "https://main.example.org/12345/b5"


def test_shoulders_without_room_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_RECORDS", 6)  # as if a name had room for few
    keys = [f"{one}{n}" for one in "bcdfghjkmn" for n in range(5)]
    many = [entry(f"12345/{key}", f"https://h.example.org/{key}") for key in keys]
    built = build(Table([entry("12345", "https://main.example.org/${content}"), *many]), 1)
    lost = built.left_out.records
    assert 0 < len(lost) < len(many)
    assert "12345" not in lost
    assert set(built.left_out.answered_by_others) == set(lost)
    assert {one.code for one in built.left_out} == {"too-many-shoulders", "other-answer"}


def file_of(folder: Path, text: str) -> Path:
    file = folder / "served"
    file.write_text(text)
    return file
