"""Whatever the bytes, the readers raise TableError or give a table that lint, natab and JSON can take."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr import registry
from maptr.errors import TableError
from maptr.registry import table
from maptr.zone.lint import lint

JSON_V1 = """{"metadata": {"version": "1.0"}, "data": [
{"what": "12345", "where": "http://a.example.org",
"target": {"url": "http://a.example.org/ark:/${content}", "http_code": 302}, "when": "2001",
"who": {"name": "A", "name_native": null, "acronym": "AA"},
"na_policy": {"orgtype": "NP", "policy": "NR", "tenure": "2001", "policy_url": null}},
{"shoulder": "x6", "naan": "12345", "what": "12345/x6", "where": "303 b.example.org",
"nmas": [{"where": "c"}]}]}"""
JSON_V2 = """{"date_created": "2025", "index": {"12345": 0}, "data": {"12345": {"where": "https://[::1]:8080/?",
"target": "https://a.example.org/$arkpid", "who": {"name": "A", "location": "X"}}}}"""
ANVL = """erc:\nwho: x\n\nnaa:\nwho: A (=) B (=) C\nwhat: ark:/12345/x6\nwhere: 303 http://a.example.org/$id\n
naa:\nwhat: 12345\nhow: NP | OP | 2001 | u\n!contact: x\n  y%41%\n"""
NATAB = """# A\n12345: http://a.example.org/p\n  a.example.org:80 AA\n  127.0.0.1 BB
#--- end of data ---\nmy $x;\n"""
PREFIXES = """---\nark:/12345:\n  name: "A\\n"\n  redirect: 'http://a.example.org/ark:$id' # x
ark:/1/x6:\n  redirect: b.c/${blade}\n"""

SAMPLES = [JSON_V1, JSON_V2, ANVL, NATAB, PREFIXES]
PIECES = [
    "\0",
    "\n",
    " ",
    ":",
    "%",
    "$",
    "${x}",
    "{",
    "[",
    "]",
    "}",
    '"',
    "null",
    "NaN",
    "1e999",
    "-",
    "#",
    "\ud800",
    "\u2028",
    "ark:/",
    "é",
]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A sample with a few slices cut out, doubled or overwritten."""
    text = draw(st.sampled_from(SAMPLES))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 20)))
        piece = draw(st.sampled_from([*PIECES, text[start:end] * 2, ""]) | st.text(max_size=3))
        text = text[:start] + piece + text[end:]
    return text


def exercise(data: bytes | str) -> None:
    with contextlib.suppress(TableError):
        registry.read(data, filename="f")
    bad: list[TableError] = []
    try:
        table = registry.read(data, filename="f", on_bad=bad.append)
    except TableError as error:
        bad.append(error)
        table = None
    for one in bad:
        assert one.filename == "f"
        assert one.line or one.record
        str(one).encode()
    if table is not None:
        for finding in lint(table):
            str(finding).encode()
        text, _ = registry.write_natab(table)
        assert [*registry.read(text)] == table.naans()
        assert registry.read(registry.write_json(table)) == table


@given(st.binary(max_size=200))
def test_bytes(data: bytes) -> None:
    exercise(data)


@given(st.text(max_size=200))
def test_text(text: str) -> None:
    exercise(text)


@given(mutated())
def test_damaged_samples(text: str) -> None:
    exercise(text)


@given(mutated(), st.integers(0, 400))
def test_damaged_and_cut_samples(text: str, end: int) -> None:
    exercise(text[:end].encode("utf-8", "surrogatepass"))


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.sampled_from(["12345", "12345/x6"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "data",
                        "index",
                        "metadata",
                        "what",
                        "where",
                        "target",
                        "who",
                        "url",
                        "nmas",
                        "na_policy",
                        "12345",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_document(document: object) -> None:
    exercise(json.dumps({"data": [document, {"what": "12345", "where": document}], "index": document}))
    exercise(json.dumps(document))


def v1(records: list[object]) -> str:
    return json.dumps({"metadata": {}, "data": records})


def v2(records: dict[str, object]) -> str:
    return json.dumps({"date_created": "2025", "index": {}, "data": records})


BAD: dict[str, Callable[[int], str]] = {
    "JSON v1": lambda count: v1([{}] * count),
    "JSON v2": lambda count: v2({f"!{number}": {} for number in range(count)}),
    "ANVL": lambda count: "erc:\nwho: x\n" + "\nnaa:\nwho: x\nwhat: ark\n" * count,
    "natab": lambda count: "12345:\n    h.example.org A\n" + "stray\n" * count,
    "natab, here and there": lambda count: "".join(f"{n}:\n  h.example.org A\n!\n" for n in range(count)),
    "natab, all the same": lambda count: "12345:\n    h.example.org A\n" * (count + 1),
    "prefixes": lambda count: "---\n" + "".join(f"ark:/a{n}:\n  name: x\n" for n in range(count)),
}
MANY: dict[str, Callable[[int], str]] = {
    "JSON v1": lambda count: v1([{"what": str(number)} for number in range(count)]),
    "JSON v2": lambda count: v2({str(number): {"where": "h.example.org"} for number in range(count)}),
    "ANVL": lambda count: (
        "erc:\nwho: x\n" + "".join(f"\nnaa:\nwho: x\nwhat: {n}\nwhere: h.example\n" for n in range(count))
    ),
    "natab": lambda count: "".join(f"{number}:\n  h.example.org A\n" for number in range(count)),
    "natab, with comments": lambda count: "".join(
        f"{number}: \n\n# x\n\n  h.example.org A\n" for number in range(count)
    ),
    "prefixes": lambda count: "---\n" + "".join(f"ark:/{n}:\n  redirect: h.example/$id\n" for n in range(count)),
}


@pytest.mark.parametrize(
    ("limit", "title"), [*(("bad records", title) for title in BAD), *(("records", title) for title in MANY)]
)
def test_a_source_of_millions_of_records_ends_early(limit: str, title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four megabytes of ``{},`` took two and a half gigabytes of memory, and a source may have sixty-four."""
    make = (BAD if limit == "bad records" else MANY)[title]
    monkeypatch.setattr(table, "MAX_BAD" if limit == "bad records" else "MAX_ENTRIES", 100)
    told: list[TableError] = []
    few = registry.read(make(90), on_bad=told.append)
    assert len(told if limit == "bad records" else few) == 90, told[:3]
    told.clear()
    with pytest.raises(TableError, match=f"^f:1: not a registry: more than 100 {limit}$"):
        registry.read(make(5000), filename="f", on_bad=told.append)
    assert len(told) <= 100
