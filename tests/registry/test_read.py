"""Reading any registry file: its format, rejected files, limits, and hostile input."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr import registry
from maptr.errors import TableError
from maptr.registry import anvl, json_records, natab, prefixes, table
from maptr.zone.lint import lint
from tests.support.answers import load_vectors
from tests.support.registries import BAD_RECORDS, GOOD_RECORDS, SAMPLES

VECTORS = load_vectors("json_registry")["vector"]
FATAL = [vector for vector in VECTORS if "fatal" in vector]
PIECES = [
    *("\0", "\n", " ", ":", "%", "$", "${x}", "{", "[", "]", "}", '"', "null", "NaN", "1e999", "-", "#", "\ud800"),
    *("\u2028", "ark:/", "é"),
]
MEMBERS = ["data", "index", "metadata", "what", "where", "target", "who", "url", "nmas", "na_policy", "12345"]


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_byte_order_mark_is_ignored(sample: str) -> None:
    assert registry.read("\ufeff" + sample) == registry.read(sample)


@pytest.mark.parametrize(
    ("text", "metadata"),
    [
        ("# c\n\n  \nerc:\nwho: x\n\nnaa:\nwhat: 12345\n", {"who": "x"}),
        ("naa:\r\nwhat: 12345\r\n", {}),
        ("# c\n# x: y\n# Last change: today\n12345:\n", {"Last change": "today"}),
        ("# c\n\n---\nark:/12345:\n  name: x\n", {}),
    ],
    ids=["ANVL", "ANVL without erc", "natab", "prefixes"],
)
def test_format_is_recognised_below_a_preamble(text: str, metadata: dict[str, str]) -> None:
    table = registry.read(text)
    assert (list(table), dict(table.metadata)) == (["12345"], metadata)


@pytest.mark.parametrize("vector", FATAL, ids=lambda vector: vector["title"])
def test_text_that_is_not_a_registry_is_refused_even_with_on_bad(vector: dict[str, Any]) -> None:
    with pytest.raises(TableError, match=vector["fatal"]) as caught:
        registry.read(vector["text"].encode(), filename="f.json", on_bad=lambda error: None)
    assert (caught.value.filename, caught.value.line) == ("f.json", vector["line"])


@pytest.mark.parametrize(
    ("data", "reason", "line"),
    [
        (b"{}\n\xff", "not UTF-8", 2),
        (b"\x1f\x8b\x08", "gzip", 1),
        (b"# a\n\0", "NUL", 2),
        ("# a\n\ud800", "not UTF-8", 2),
        (b"[" * 200_000, "nested too deeply", 1),
        (b'{"a":' * 200_000, "nested too deeply", 1),
        (b'{"data": ' + b"1" * 10_000 + b"}", "too many digits", 1),
    ],
    ids=["utf-8", "gzip", "nul", "surrogate", "deep list", "deep object", "digits"],
)
def test_invalid_data_is_refused_before_parsing(data: bytes | str, reason: str, line: int) -> None:
    with pytest.raises(TableError, match=reason) as caught:
        registry.read(data)
    assert caught.value.line == line


def test_lines_and_json_values_are_counted_before_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_LINES", 100)
    monkeypatch.setattr(registry, "MAX_PARTS", 25)
    monkeypatch.setattr(anvl, "MAX_PARTS", 100)
    monkeypatch.setattr(prefixes, "MAX_PARTS", 100)
    monkeypatch.setattr(natab, "MAX_PARTS", 30)
    monkeypatch.setattr(json_records, "MAX_VALUES", 100)
    for end in ("\n", "\r", "\x85", "\u2028"):
        with pytest.raises(TableError, match="more than 100 lines"):
            registry.read("12345:" + end * 101, is_pulled=True)
    with pytest.raises(TableError, match="more than 100 JSON values"):
        registry.read('{"data": [' + "{}," * 60 + "{}]}", is_pulled=True)
    assert registry.read('{"data": [{"what": "12345"}]}' + " " * 1000)
    assert registry.read("x y\n" * 24 + "12345:\n", on_bad=lambda error: None)
    with pytest.raises(TableError, match="no entry of any known format"):
        registry.read("x y\n" * 25 + "12345:\n")
    for text, what in (
        ("naa:\nwhat: 12345\nwho: " + "%vb" * 100, "100 lines and escapes"),
        ("ark:/12345:\n x: [" + "[]," * 50, "100 lines and separators"),
        ("ark:/12345:\n  - " + "- " * 100, "100 lines and separators"),
        ("ark:/12345:\n" + "\n" * 200, "200 lines"),
        ("12345:\n" + " a_b.org\n" * 31, "30 unusual lines"),
    ):
        monkeypatch.setattr(registry, "MAX_LINES", 1000)
        with pytest.raises(TableError, match=f"^f:1: not a registry: more than {what}$"):
            registry.read(text, filename="f", on_bad=lambda error: None, is_pulled=True)


@pytest.mark.parametrize("title", BAD_RECORDS)
def test_bad_records_are_limited(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_BAD", 100)
    bad: list[TableError] = []
    registry.read(BAD_RECORDS[title](90), on_bad=bad.append)
    assert len(bad) == 90
    bad.clear()
    with pytest.raises(TableError, match=r"^f:1: not a registry: more than 100 bad records$"):
        registry.read(BAD_RECORDS[title](5000), filename="f", on_bad=bad.append)
    assert len(bad) == 100


@pytest.mark.parametrize("title", GOOD_RECORDS)
def test_records_are_limited(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_ENTRIES", 100)
    monkeypatch.setattr(table, "MAX_PARSED", 200)
    assert len(registry.read(GOOD_RECORDS[title](90))) == 90
    with pytest.raises(TableError, match=r"^f:1: not a registry: more than (100|200) records\b"):
        registry.read(GOOD_RECORDS[title](5000), filename="f", on_bad=lambda error: None, is_pulled=True)
    monkeypatch.setattr(table, "MAX_ENTRIES", 5000)
    if "natab" not in title:
        with pytest.raises(TableError, match="more than 200 records and mapping authorities"):
            registry.read(GOOD_RECORDS[title](300), on_bad=lambda error: None, is_pulled=True)
        assert len(registry.read(GOOD_RECORDS[title](300))) == 300, "a file of this machine may have more"


@pytest.mark.parametrize(
    ("head", "nma"),
    [
        ('{"data": [{"what": "12345", "nmas": [', '{"where": "h.example.org"},'),
        ("naa:\nwhat: 12345\n", "where: h.example.org\n"),
        ("12345:\n", "  h.example.org\n"),
        ("12345:\n", "  h_1.example.org\n"),
    ],
    ids=["JSON", "ANVL", "natab", "natab, unusual"],
)
def test_a_record_has_64_mapping_authorities_at_most(head: str, nma: str) -> None:
    end = '{"where": "x.example.org"}]}]}' if head[0] == "{" else nma
    bad: list[TableError] = []
    assert len(registry.read(head + nma * 63 + end)["12345"].nmas) == 64
    assert not registry.read(head + nma * 64 + end, on_bad=bad.append)
    assert [(error.record, error.reason) for error in bad] == [("12345", "more than 64 mapping authorities")]


HOSTILE = """
import resource
from maptr import registry
from maptr.errors import TableError
from maptr.registry.json_records import MAX_VALUES
from maptr.registry.table import MAX_PARTS, MAX_SOURCE
resource.setrlimit(resource.RLIMIT_AS, (350 << 20,) * 2)
for head, part, tail, most in (
    ('[', '[[]],', '[]]', MAX_VALUES // 3),
    ('{"data": [{"what": "1", "x": "', 'x', '\U0001f600"}]}', MAX_SOURCE),
    ('12345:\\n', '\\t', '', MAX_SOURCE),
    ('12345:\\n', ' a_b.org\\n', '', MAX_PARTS - 2),
    ('naa:\\nwhat: 12345\\nx: ', '%{', '', MAX_PARTS - 9),
    ('ark:/12345:\\n x: [', '[],', ']', MAX_PARTS // 2 - 9),
    ('ark:/12345:\\n x: ', '- ', '', MAX_PARTS - 9),
):
    for most in (most, MAX_SOURCE):
        content = (head + part * min(most, (MAX_SOURCE - 100) // len(part)) + tail).encode()
        try:
            registry.read(content, on_bad=lambda error: None)
        except TableError:
            pass
try:
    registry.read(''.join(f'{number}:\\n' for number in range(MAX_SOURCE // 8)))
except TableError:
    pass
"""


def test_a_hostile_file_of_any_format_takes_little_memory() -> None:
    """It is read in the process that answers queries."""
    subprocess.run([sys.executable, "-c", HOSTILE], check=True, timeout=600)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """Remove, duplicate or overwrite a few slices of a sample."""
    text = draw(st.sampled_from(SAMPLES))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 20)))
        piece = draw(st.sampled_from([*PIECES, text[start:end] * 2, ""]) | st.text(max_size=3))
        text = text[:start] + piece + text[end:]
    return text


documents = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.sampled_from(["12345", "12345/x6"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    max_leaves=20,
)


def check(data: bytes | str) -> None:
    """Assert that only TableError is raised, and that a table can be checked and written in every format."""
    with contextlib.suppress(TableError):
        registry.read(data, filename="f")
    bad: list[TableError] = []
    found = None
    try:
        found = registry.read(data, filename="f", on_bad=bad.append)
    except TableError as error:
        bad.append(error)
    for one in bad:
        assert one.filename == "f"
        assert one.line or one.record
        str(one).encode()
    if found is not None:
        for finding in lint(found):
            str(finding).encode()
        text, _ = registry.write_natab(found)
        assert [*registry.read(text)] == found.naans()
        assert registry.read(registry.write_json(found)) == found


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_random_data(data: bytes | str) -> None:
    check(data)


@given(damaged(), st.integers(0, 400))
def test_damaged_and_truncated_samples(text: str, end: int) -> None:
    check(text)
    check(text[:end].encode("utf-8", "surrogatepass"))


@given(documents)
def test_random_json_documents(document: object) -> None:
    check(json.dumps({"data": [document, {"what": "12345", "where": document}], "index": document}))
    check(json.dumps(document))
