"""Descriptions of NAANs and shoulders: ERC, JSON and pages, and that maptr's own client reads them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr import registry
from maptr.ark import Ark
from maptr.gateway.message import Response
from maptr.nma.describe import KERNEL, Description, read
from maptr.registry import anvl
from maptr.registry.table import Entry, NaanPolicy, Nma, Table, Who
from maptr.web.http import Page
from tests.support.caching import ONE_HOST
from tests.support.gateway import Gateway

SEGMENTS = ["erc", "erc-support", "erc-from"]


def entry(**values: object) -> Entry:
    given: dict[str, object] = {"nmas": (Nma("https://h.example/${pid}", "https://h.example"),), "who": Who("A")}
    return Entry("12345", **{**given, **values})  # type: ignore[arg-type]


def description(response: Response, ark: str = "ark:12345") -> Description:
    """The response as ``maptr info`` reads it."""
    headers = tuple((name.lower(), value) for name, value in response.headers)
    page = Page("https://gw.example/", response.status, headers, response.body, False)
    return read(Ark.parse(ark, bare=True), "https://gw.example/", page)


def test_the_client_reads_what_the_gateway_writes() -> None:
    who = Who("Bibliothèque | 100 %", "Native", "B")
    policy = NaanPolicy("NP", "NR, OP, CC", "2001", "https://h.example/policy?a=%20b")
    table = Table([entry(who=who, when="2001-03-08T00:00:00+00:00", policy=policy)])
    found = description(Gateway(table, origin="https://registry.example/naans.json").ask("/ark:12345"))
    assert found.spoken
    assert (found.thump, found.links) == ("0.6 200 OK", ('</ark:12345>; rel="describes"',))
    assert [segment.name for segment in found.segments] == SEGMENTS
    erc, support, source = (dict(segment.elements) for segment in found.segments)
    name = "Bibliothèque | 100 % (=) Native (=) B"
    assert erc == {"who": name, "what": "NAAN 12345", "when": "20010308", "where": "https://h.example"}
    assert support == {
        "who": name,
        "what": "(:permanence) NR, OP, CC",
        "when": "2001",
        "where": "https://h.example/policy?a=%20b",
    }
    assert source == {
        "who": "NAAN registry",
        "what": "record of NAAN 12345",
        "when": "20231114215640",
        "where": "https://registry.example/naans.json",
    }


def test_the_path_of_a_local_source_is_not_shown() -> None:
    found = description(Gateway(Table([entry()]), origin="/srv/secret/naans.json").ask("/ark:12345"))
    assert found.segments[2].code("where") == "unkn"


@pytest.mark.parametrize(
    ("when", "written"),
    [
        ("2001-03-08T00:00:00+00:00", "20010308"),
        ("2026-01-23T20:56:20+00:00", "20260123205620"),
        ("2026-01-23T20:56:20.123Z", "20260123205620"),
        ("2001.03.08", "20010308"),
        ("2001", "2001"),
        ("2001-03-08T01:00:00+02:00", "2001-03-08T01:00:00+02:00"),
        ("spring", "spring"),
    ],
)
def test_dates_are_written_as_in_the_kernel_profile(when: str, written: str) -> None:
    """2002 draft 7.6; any other text is as the registry has it."""
    assert description(Gateway(Table([entry(when=when)])).ask("/ark:12345")).segments[0].get("when") == written


def test_unknown_elements_have_a_code() -> None:
    """2002 draft 7.5."""
    unknown = entry(who=Who(""), policy=NaanPolicy(None, "(:unkn) unknown", "(:unav)", "(:unkn)"))
    erc, support, _ = description(Gateway(Table([unknown])).ask("/ark:12345")).segments
    assert [erc.code(label) for label in KERNEL] == ["unkn", None, "unkn", None]
    assert [support.code(label) for label in KERNEL] == ["unkn"] * 4


def test_what_dns_says_if_the_table_has_no_record() -> None:
    gateway = Gateway(None, ONE_HOST, policy="dns-only", inflections="describe")
    erc, support, source = description(gateway.ask("/ark:12345/x1?info")).segments
    assert (erc.get("what"), erc.get("where"), erc.code("who")) == ("NAAN 12345", "https://h.example", "unkn")
    assert [support.code(label) for label in KERNEL] == ["unkn"] * 4
    assert source.elements == (
        ("who", "DNS"),
        ("what", "NAPTR records of 12345.ark.arpa."),
        ("when", "20231114221320"),
        ("where", "dns:12345.ark.arpa.?type=NAPTR"),
    )


def test_the_object_is_not_described() -> None:
    gateway = Gateway(Table([entry()]), inflections="describe")
    response = gateway.ask("/ark:12345/x1?info")
    assert response.header("link") == '</ark:12345>; rel="describes"'
    assert response.body.decode().endswith("\n# This describes NAAN 12345, not ark:12345/x1.\n")
    assert description(response, "ark:12345/x1").segments[0].get("what") == "NAAN 12345"
    assert "not ark" not in gateway.ask("/ark:12345?info").body.decode()
    value = json.loads(gateway.ask("/ark:12345/x1?info", accept="application/json").body)
    assert (value["ark"], value["describes"]) == ("ark:12345/x1", "ark:12345")
    assert list(value["segments"]) == SEGMENTS
    assert all(list(elements) == list(KERNEL) for elements in value["segments"].values())


@pytest.mark.real_data
@pytest.mark.parametrize("file", ["naan_records.json", "naan_records_2026-07-14.json.gz"])
def test_every_record_of_the_registry_is_described(file: str, real_data: Path) -> None:
    if not (real_data / file).exists():
        pytest.skip(f"no {file} in {real_data}")
    content = (real_data / file).read_bytes()
    table = registry.read(gzip.decompress(content) if file.endswith(".gz") else content)
    gateway = Gateway(table)
    for key in table:
        response = gateway.ask(f"/ark:/{key}")
        assert (response.status, response.header("link")) == (200, f'</ark:{key}>; rel="describes"')
        assert "# This describes" not in response.body.decode()
        erc, support, _ = description(response, f"ark:{key}").segments
        assert [tuple(label for label, _ in segment.elements) for segment in (erc, support)] == [KERNEL, KERNEL]
        assert erc.get("what") == (f"shoulder ark:{key}" if "/" in key else f"NAAN {key}")
        assert erc.date("when") or erc.code("when") == "unkn"


PARTS = ("%", "%ex", "%{", " %}", "%7e", "|", ":", "#", "\n", "\t", "erc:", "who:", "(:unkn)", "\x85", "\x1b")
TEXTS = st.one_of(st.text(), st.lists(st.sampled_from(PARTS)).map("".join))


@given(TEXTS)
def test_encoding_keeps_a_value_on_one_line(text: str) -> None:
    encoded = anvl.encode(text)
    assert encoded.isprintable()
    assert anvl.decode(encoded) == anvl.one_line(text)
    assert "  " not in anvl.one_line(text)
    if text.isprintable():
        assert anvl.one_line(text) == " ".join(text.split())


@given(TEXTS, TEXTS, TEXTS, TEXTS, TEXTS)
def test_any_record_is_read_back(name: str, native: str, when: str, policy: str, url: str) -> None:
    """All four elements in their order, in three segments, whatever the registry says."""
    record = entry(who=Who(name, native), when=when, policy=NaanPolicy("NP", policy, when, url))
    found = description(Gateway(Table([record])).ask("/ark:12345"))
    assert [segment.name for segment in found.segments] == SEGMENTS
    for segment in found.segments:
        assert tuple(label for label, _ in segment.elements) == KERNEL
        assert all(value for _, value in segment.elements)
    assert found.segments[0].get("what") == "NAAN 12345"
