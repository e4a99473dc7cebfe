"""The flat subset of YAML that a prefixes file needs, and everything else refused by line."""

from __future__ import annotations

import pytest

from maptr import registry
from maptr.errors import TableError
from maptr.registry import Format, prefixes
from maptr.table import Nma, Who

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
    assert registry.recognise(SAMPLE) is Format.PREFIXES


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("  name: [a, b]", "more YAML"),
        ("  name: {a: b}", "more YAML"),
        ("  name: &anchor x", "more YAML"),
        ("  name: *alias", "more YAML"),
        ("  name: |", "more YAML"),
        ("  name: a: b", "more YAML"),
        ('  name: "open', "more YAML"),
        ('  name: "\\x41"', "only full YAML knows"),
        ('  name: "\\ud800"', "only full YAML knows"),
        ("  - item", "not a field"),
        ("  redirect: https://twice.example.org", "redirect is given twice"),
    ],
)
def test_more_than_flat_is_refused_by_line(line: str, reason: str) -> None:
    text = f"ark:/12345:\n  redirect: https://a.example.org\n{line}\nark:/12346:\n  redirect: b.example.org\n"
    bad: list[TableError] = []
    table = registry.read(text, filename="p.yaml", on_bad=bad.append)
    assert list(table) == ["12346"]
    assert [(error.line, error.record) for error in bad] == [(3, "12345")]
    assert reason in str(bad[0])


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
def test_bad_lines_are_named(text: str, line: int) -> None:
    with pytest.raises(TableError) as caught:
        prefixes.read(text, filename="p.yaml")
    assert caught.value.line == line
