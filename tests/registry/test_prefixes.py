"""The prefixes file: its records, and the treatment of other text."""

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
    table = registry.read(SAMPLE)
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
    ("lines", "reason", "bad_line"),
    [
        ("  redirect: [a, b]", "the redirect is not a text: [a, b]", 2),
        ("  redirect: {a: b}", "the redirect is not a text: {a: b}", 2),
        ("  redirect:\n    - item", "the redirect is not a text: - item", 2),
        ("  redirect: *alias", "not YAML: found undefined alias", 2),
        ("  redirect: a: b", "not YAML: mapping values are not allowed in this context", 2),
        ('  redirect: "open', "not YAML: ", 2),
        ('  redirect: "\\ud800"', "not YAML: found invalid Unicode character escape code", 2),
        ("  redirect: h.example\n  - item", "not YAML: ", 3),
        ("  - item", "no fields below the prefix", 2),
        ("  [a]: b", "the name of a field is not a text", 2),
        ("  redirect: h.example\n  redirect: https://twice.example.org", "redirect occurs twice", 3),
        ("  redirect: " + "[" * 50_000, "not YAML: ", 2),
    ],
)
def test_a_record_without_one_redirect_as_text_is_bad(lines: str, reason: str, bad_line: int) -> None:
    text = f"ark:/12345:\n{lines}\nark:/12346:\n  redirect: b.example.org\n"
    bad: list[TableError] = []
    table = registry.read(text, filename="p.yaml", on_bad=bad.append)
    assert list(table) == ["12346"]
    assert [(error.line, error.record) for error in bad] == [(bad_line, "12345")]
    assert reason in str(bad[0])


@pytest.mark.parametrize(
    ("redirect", "where"),
    [
        ("&anchor a.example.org/$id", "a.example.org/$id"),
        ("|-\n    a.example.org/$id", "a.example.org/$id"),
        ('"\\x61.example.org/$id"', "a.example.org/$id"),
        ("a.example.org\n    /$id", "a.example.org /$id"),
    ],
)
def test_a_redirect_is_any_scalar_of_yaml(redirect: str, where: str) -> None:
    entry = registry.read(f"ark:/12345:\n  redirect: {redirect}\n")["12345"]
    assert [nma.where for nma in entry.nmas] == [where]


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ("  more: [a, b]", "[a, b]"),
        ("  more: {a: b}", "{a: b}"),
        ("  more: |-\n    two\n    lines: of text", "two\nlines: of text"),
        ("  more:\n  - item\n  - redirect: x", "- item - redirect: x"),
        ("  more:\n    redirect: elsewhere.example.org", "redirect: elsewhere.example.org"),
        ("  more: a\n  more: b", "a b"),
    ],
)
def test_any_other_field_is_kept_as_text(lines: str, kept: str) -> None:
    entry = registry.read(f"ark:/12345:\n{lines}\n  redirect: https://a.example.org/$id\n")["12345"]
    assert [nma.where for nma in entry.nmas] == ["https://a.example.org/$id"]
    assert entry.extra == {"more": kept}


def test_without_pyyaml_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "find_spec", lambda name: None)
    with pytest.raises(TableError, match=r"pip install 'maptr\[prefixes\]'"):
        registry.read(SAMPLE)


def test_name_policy_and_date_have_the_parts_of_anvl() -> None:
    entry = registry.read(
        'ark:/12345:\n  name: "National Library (=) Native Library (=) NLEX"\n  date: "2001.03.08"\n'
        '  na_policy: "NP | NR, OP, CC | 2001 | https://nlex.example/policy"\n'
    )["12345"]
    assert entry.who == Who("National Library", "Native Library", "NLEX")
    assert entry.when == "2001.03.08"
    assert entry.policy == NaanPolicy("NP", "NR, OP, CC", "2001", "https://nlex.example/policy")
    assert entry.extra == {}


def test_nothing_is_appended_to_a_redirect() -> None:
    """An example is ark:/99997/6 in the resolver's default prefixes."""
    made = registry.read("ark:/99997/6:\n  redirect: id.example.org/nothing_to_subst\nark:/1:\n  redirect: b.org/?q=\n")
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
        registry.read(text, filename="p.yaml")
    assert caught.value.line == line
