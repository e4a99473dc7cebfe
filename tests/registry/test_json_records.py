"""JSON of both versions: read as the registry publishes it, and written without loss."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr import registry
from maptr.errors import TableError
from maptr.registry.json_records import MAX_DEPTH, flaw
from maptr.registry.table import Entry, NaanPolicy, Nma, Table, Who
from tests.support.answers import load_vectors

VECTORS = load_vectors("json_registry")["vector"]

maybe = st.none() | st.text(max_size=8)
entries = st.builds(
    lambda naan, shoulder, nmas, who, when, policy, extra: Entry(
        f"1{naan}", shoulder, tuple(nmas), who, when, policy, extra
    ),
    st.text("0123456789bcdfghjkmnpqrstvwxz", max_size=8),
    st.text("abcXYZ0123456789", max_size=4),
    st.lists(
        st.builds(
            Nma, st.text(min_size=1, max_size=12), st.text(max_size=8), st.integers(300, 399), st.text(max_size=4)
        ),
        max_size=3,
    ),
    st.builds(Who, st.text(max_size=8), maybe, maybe),
    st.text(max_size=8),
    st.builds(NaanPolicy, maybe, maybe, maybe, maybe),
    st.dictionaries(
        st.sampled_from(["purpose", "é", "who", "target", "nmas", "more", "rtype", "when", "date_created", "naan"]),
        st.sampled_from([None, True, "PublicNAAN"])
        | st.integers()
        | st.text(max_size=8)
        | st.lists(st.text(max_size=3), max_size=2),
    ),
)
tables = st.lists(entries, max_size=4, unique_by=lambda entry: entry.key).map(Table)


@pytest.mark.parametrize("vector", [v for v in VECTORS if "fatal" not in v], ids=lambda vector: vector["title"])
def test_vector(vector: dict[str, Any]) -> None:
    bad: list[TableError] = []
    table = registry.read(vector["text"], on_bad=bad.append)
    assert [nma.target for entry in table.values() for nma in entry.nmas] == vector["targets"]
    assert [error.record for error in bad] == vector["bad"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("(:unkn)"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "a", "url"]), inner, max_size=2)
    ),
    max_leaves=5,
)
INFORMING = ("where", "when", "who", "na_policy", "purpose", "test_identifier", "rtype", "date_created")


@given(
    st.dictionaries(st.sampled_from(INFORMING), anything),
    st.dictionaries(st.sampled_from(["name", "name_native", "acronym", "location"]), anything),
    st.dictionaries(st.sampled_from(["orgtype", "policy", "tenure", "policy_url"]), anything),
    anything,
)
def test_optional_member_of_any_type_is_kept(
    record: dict[str, Any], who: dict[str, Any], policy: dict[str, Any], status: object
) -> None:
    """The value is kept and written back. Null and a missing member are equal."""
    record = {"who": who, "na_policy": policy} | record
    record |= {"what": "12345", "target": {"url": "https://a.example.org/${content}", "http_code": status}}
    table = registry.read(json.dumps({"data": [record]}))
    assert table["12345"].nmas[0].target == "https://a.example.org/${content}"
    written = json.loads(registry.write_json(table))
    assert registry.read(json.dumps(written)) == table
    back = written["data"][0] | written["data"][0].get("more", {})
    for member, value in record.items():
        if isinstance(value, dict):
            for name, inner in value.items():
                assert back[member][name] == inner or inner is None, (member, name)
        elif isinstance(value, str) and member == "who":
            assert back["who"]["name"] == value
        else:
            assert back[member] == value or value is None, member


@given(tables)
def test_written_json_is_read_as_the_same_table(table: Table) -> None:
    assert registry.read(registry.write_json(table)) == table


def test_records_have_a_limit_of_depth() -> None:
    deepest: object = "x"
    for _ in range(MAX_DEPTH):
        deepest = [deepest]
    assert [flaw(deepest), flaw([deepest])] == [None, f"nested deeper than {MAX_DEPTH}"]


def test_the_sample_is_written_byte_for_byte() -> None:
    text = (Path(__file__).resolve().parents[2] / "zones" / "sample.json").read_text("utf-8")
    assert registry.write_json(registry.read(text)) == text


def test_the_real_registry_of_2024_is_written_back_byte_for_byte(real_data: Path) -> None:
    data = (real_data / "naan_records.json").read_bytes()
    table = registry.read(data)
    assert len(table.naans()) == 1432
    assert len(table) == 1432 + 368
    assert registry.write_json(table).encode().strip() == data.strip()


def test_the_real_registry_of_2026_is_written_back_and_refused_if_cut(real_data: Path) -> None:
    document = json.loads(gzip.decompress((real_data / "naan_records_2026-07-14.json.gz").read_bytes()))
    table = registry.read(json.dumps(document))
    assert (len(table.naans()), len(table)) == (1863, 2232)
    written = json.loads(registry.write_json(table))
    assert written["data"] == document["data"]
    assert written["metadata"] == document["metadata"]
    with pytest.raises(TableError, match="cut short: 2000 of the 2232 records that its index lists"):
        registry.read(json.dumps({**document, "data": document["data"][:2000]}), on_bad=lambda error: None)
