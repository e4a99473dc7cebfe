"""The prefixes file: the flat subset of YAML, and the treatment of other text."""

from __future__ import annotations

import pytest

from maptr import Ark, registry
from maptr.errors import TableError
from maptr.registry import prefixes
from maptr.registry.table import NaanPolicy, Nma, Who

SAMPLE = """\
---
# Section start
ark:
  type: "scheme"
  redirect: "resolver.example.org/ark:$id"

doi:
  redirect: {deep: [yaml]}
  more:
    - deeper

ark:/12345:
  type: "naan"
  name: "Biblioth\\u00e8que: example"   # a comment
  alias:
  redirect: "http://nlex.example.org/ark:/$id"
"ark:/12345/x6":
  name: 'It''s the shoulder'
  redirect: 'data.example.org/x/${blade}'
ark:/b1234: # flat
  redirect: https://b.example.org/?id=${nlid}
  primary: true
"""


def test_sample() -> None:
    table = prefixes.read(SAMPLE)
    assert list(table) == ["12345", "12345/x6", "b1234"]
    assert table["12345"].who == Who("Bibliothèque: example")
    assert table["12345"].nmas == (Nma("http://nlex.example.org/ark:/${content}", "http://nlex.example.org/ark:/$id"),)
    assert table["12345"].extra == {"type": "naan", "alias": None}
    assert table["12345/x6"].who == Who("It's the shoulder")
    assert table["12345/x6"].nmas[0].target == "https://data.example.org/x/${suffix}"
    assert table["b1234"].nmas[0].target == "https://b.example.org/?id=${value}"
    assert table["b1234"].extra == {"primary": "true"}
    assert registry.read(SAMPLE) == table


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        *((f"  redirect: {value}", "not a flat YAML value") for value in ("[a, b]", "{a: b}", "&anchor x", "*alias")),
        *((f"  redirect: {value}", "not a flat YAML value") for value in ("|", "a: b", '"open')),
        *((f"  redirect: {value}", "only full YAML has") for value in ('"\\x41"', '"\\ud800"')),
        *((f"  redirect: h.example\n{line}", "not a field") for line in ("  - item", "    - item")),
        ("  - item", "not a field"),
        ("  redirect: h.example\n  redirect: https://twice.example.org", "redirect occurs twice"),
    ],
)
def test_a_redirect_outside_the_subset_makes_the_record_bad(line: str, reason: str) -> None:
    text = f"ark:/12345:\n{line}\nark:/12346:\n  redirect: b.example.org\n"
    bad: list[TableError] = []
    table = registry.read(text, filename="p.yaml", on_bad=bad.append)
    assert list(table) == ["12346"]
    assert [(error.line, error.record) for error in bad] == [(line.count("\n") + 2, "12345")]
    assert reason in str(bad[0])


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ("  more: [a, b]", "[a, b]"),
        ("  more: {a: b}", "{a: b}"),
        ("  more: |\n    two\n    lines: of text", "| two lines: of text"),
        ("  more:\n  - item\n  - redirect: x", "- item - redirect: x"),
        ("  more:\n    redirect: elsewhere.example.org", "redirect: elsewhere.example.org"),
        ('  more: "\\x41"', '"\\x41"'),
        ("  more: a\n  more: b", "a b"),
    ],
)
def test_any_other_field_outside_the_subset_is_kept_as_text(lines: str, kept: str) -> None:
    entry = prefixes.read(f"ark:/12345:\n{lines}\n  redirect: https://a.example.org/$id\n")["12345"]
    assert [nma.where for nma in entry.nmas] == ["https://a.example.org/$id"]
    assert entry.extra == {"more": kept}


def test_name_policy_and_date_have_the_parts_of_anvl() -> None:
    entry = prefixes.read(
        'ark:/12345:\n  name: "National Library (=) Native Library (=) NLEX"\n  date: "2001.03.08"\n'
        '  na_policy: "NP | NR, OP, CC | 2001 | https://nlex.example/policy"\n'
    )["12345"]
    assert entry.who == Who("National Library", "Native Library", "NLEX")
    assert entry.when == "2001.03.08"
    assert entry.policy == NaanPolicy("NP", "NR, OP, CC", "2001", "https://nlex.example/policy")
    assert entry.extra == {}


def test_nothing_is_appended_to_a_redirect() -> None:
    """An example is ark:/99997/6 in the resolver's default prefixes."""
    made = prefixes.read("ark:/99997/6:\n  redirect: id.example.org/nothing_to_subst\nark:/1:\n  redirect: b.org/?q=\n")
    entry = made.lookup(Ark.parse("ark:/99997/6andmore"))
    assert entry is not None
    assert entry.urls(Ark.parse("ark:/99997/6andmore")) == ["https://id.example.org/nothing_to_subst"]
    assert made["1"].nmas[0].target == "https://b.org/?q="


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ark:/12345:\n  type: naan\nstray text\n", 3),
        ("  name: x\nark:/12345:\n", 1),
        ("ark:/12345:\nark:/12345:\n", 2),
        ("ark:/aeiou:\n", 1),
        ("ark:/12345/x/y:\n", 1),
    ],
)
def test_bad_lines_are_reported(text: str, line: int) -> None:
    with pytest.raises(TableError) as caught:
        prefixes.read(text, filename="p.yaml")
    assert caught.value.line == line
