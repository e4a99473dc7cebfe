"""Lint: each finding, records without findings, and the findings of the real registry."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maptr import Ark, registry
from maptr.errors import TableError
from maptr.registry.table import Entry, Nma, Table
from maptr.zone.finding import Finding, Severity
from maptr.zone.lint import OTHER_ANSWER, lint, publishable
from tests.support.answers import load_vectors
from tests.support.entries import LONG, PRIVATE, REDIRECTED, entry, tables

ZONES = Path(__file__).resolve().parents[2] / "zones"
VECTORS = load_vectors("lint")["vector"]
GOOD = Nma("https://ark.nlm.nih.gov/ark:/${content}")
BAD = Nma("https:///ark:/${content}")
NAAN = Entry("12345", nmas=(GOOD,))


def summary(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(str(finding.severity), finding.record, finding.code) for finding in findings]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["title"])
def test_vector(vector: dict[str, Any]) -> None:
    found = lint(Table([Entry("12345", nmas=(Nma(vector["target"], vector["where"]),))]))
    assert [f"{finding.severity} {finding.code}" for finding in found] == vector["codes"]
    for finding in found:
        assert finding.record == "12345"
        assert finding.value in vector["target"] or finding.value in vector["where"]
        assert finding.value in finding.reason


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([Entry("12345")], [("error", "12345", "no-nma")]),
        ([Entry("12345", nmas=(GOOD, BAD))], [("warning", "12345", "no-public-host")]),
        ([Entry("12345", nmas=(BAD, BAD))], [("error", "12345", "no-public-host")]),
        ([NAAN, Entry("12345", "s6.caida", (GOOD,))], [("warning", "12345/s6.caida", "shoulder-not-a-label")]),
        ([NAAN, Entry("54321", "X6", (GOOD,))], [("warning", "54321/X6", "shoulder-without-naan")]),
        ([NAAN, Entry("12345", "x-6", (GOOD,))], [("warning", "12345/x-6", "shoulder-with-hyphen")]),
    ],
)
def test_several_nmas_and_shoulders(entries: list[Entry], expected: list[tuple[str, str, str]]) -> None:
    assert summary(lint(Table(entries))) == expected


def test_a_shoulder_with_a_hyphen_never_matches() -> None:
    found = Table([NAAN, Entry("12345", "x-6", (GOOD,))]).lookup(Ark.parse("ark:12345/x-6np1"))
    assert found == NAAN


SHOULDER = "https://x7.nlm.nih.gov/${content}"


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (
            tables(entry("12345/x7", LONG), entry("12345/x77", PRIVATE), entry("13030", LONG)),
            [
                ("12345/x7", "rule-too-long", LONG),
                ("12345/x7", OTHER_ANSWER, "12345"),
                ("12345/x77", "no-public-host", PRIVATE),
                ("12345/x77", OTHER_ANSWER, "12345"),
                ("13030", "rule-too-long", LONG),
            ],
        ),
        (
            tables(entry("12345/x7", SHOULDER), entry("12345/x77", PRIVATE)),
            [("12345/x77", "no-public-host", PRIVATE), ("12345/x77", OTHER_ANSWER, "12345/x7")],
        ),
        (
            Table([entry("12345", PRIVATE), entry("12345/x7", PRIVATE)]),
            [("12345", "no-public-host", PRIVATE), ("12345/x7", "no-public-host", PRIVATE)],
        ),
        # A redirect, or a rule that need not match the NAAN, is short enough.
        (tables(entry("12345/x8", REDIRECTED), entry("12345/X8", REDIRECTED.replace("x8.", "y8."))), []),
        (Table([entry("12345", REDIRECTED)]), []),
    ],
    ids=["two shoulders and a NAAN", "a longer shoulder", "a NAAN that is not published", "redirects", "a short rule"],
)
def test_errors_name_the_record_that_answers_instead(table: Table, expected: list[tuple[str, str, str]]) -> None:
    errors = [finding for finding in lint(table) if finding.severity is Severity.ERROR]
    assert [(finding.record, finding.code, finding.value) for finding in errors] == expected


def test_unread_shoulder_is_answered_by_its_naan() -> None:
    unread = [TableError("target is a number", record="12345/x7"), TableError("no NAAN", line=3)]
    _, left_out = publishable(tables(), unread=unread)
    assert left_out.records == ("12345/x7", "-")
    assert left_out.answered_by_others == ("12345/x7",)


def test_one_of_several_nmas_whose_rule_is_too_long_is_a_warning() -> None:
    usable, left_out = publishable(tables(entry("12345/x7", LONG, SHOULDER)))
    assert [nma.target for nma in usable["12345/x7"].nmas] == [SHOULDER]
    assert [(f.severity, f.code) for f in left_out] == [("warning", "rule-too-long")]
    assert left_out.records == ()


def test_a_finding_as_text_and_json() -> None:
    finding = lint(Table([Entry("12345")]))[0]
    assert str(finding) == "error: 12345: no-nma: the record names no mapping authority"
    words = {"severity": "error", "record": "12345", "code": "no-nma"}
    unknown = {"value": "", "line": 0, "file": ""}
    assert finding.to_dict() == {**words, "reason": "the record names no mapping authority", **unknown}


def test_the_sample_has_only_placeholder_hosts() -> None:
    for name in ("sample.json", "sample.natab"):
        table = registry.read((ZONES / name).read_bytes())
        assert {(finding.severity, finding.code) for finding in lint(table)} == {(Severity.WARNING, "placeholder-host")}


def real(data: bytes) -> tuple[list[tuple[str, str, str]], Callable[[str], set[str]]]:
    """Return the findings of a registry, and a function from a code to the records with that code."""
    found = summary(lint(registry.read(data)))
    return found, lambda code: {record for _, record, name in found if name == code}


def test_the_real_registry_of_2024(real_data: Path) -> None:
    found, records = real((real_data / "naan_records.json").read_bytes())
    assert records("no-public-host") == {"83025", "15050", "85163", "56775"}
    assert records("placeholder-host") == {"53356", "47542", "84822"}
    assert records("address-host") == {"19837"}
    assert records("bad-where") == {"87920", "87928", "87928/h7"}
    assert records("self-target") == {
        *("99152", "99166", "99999", "12345/fk1", "12345/fk3", "99166/p5", "99999/fk3", "99999/fq3")
    }
    assert records("shoulder-not-a-label") == {"81986/s6.caida"}
    assert len(records("upper-case-host")) == 22
    assert Counter(level for level, _, _ in found) == {"error": 4, "warning": 39}
    assert len(records("copied-example")) == 1
    assert records("no-variable") == records("bare-variable") == records("shoulder-with-hyphen") == set()


def test_the_real_registry_of_2026(real_data: Path) -> None:
    _, records = real(gzip.decompress((real_data / "naan_records_2026-07-14.json.gz").read_bytes()))
    assert records("no-variable") == {
        *("53359", "75589", "30786", "36944", "40363", "42073", "49939", "17791", "14372", "23948", "66013")
    }
    assert {"53359", "36944", "14372", "75589"} < records("copied-example")
    assert len(records("copied-example")) == 17
    assert records("bare-variable") == {"82087", "37285"}
    assert records("unknown-variable") == {"33181"}
