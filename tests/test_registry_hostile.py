"""Whatever the bytes, the readers raise TableError or give a table that lint, natab and JSON can take."""

from __future__ import annotations

import contextlib
import json

from hypothesis import given
from hypothesis import strategies as st

from maptr import registry
from maptr.errors import TableError
from maptr.lint import lint

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
