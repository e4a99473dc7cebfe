"""The registry's ANVL text: blocks, continuations, escapes, and private labels."""

from __future__ import annotations

import pytest

from maptr import registry
from maptr.errors import TableError
from maptr.registry import anvl
from maptr.registry.table import NaanPolicy, Nma, TableBuilder, Who

SAMPLE = """\
erc:
who: The example registry
what: NAAN registry
when: 2026.01.01
# --- start of data ---

naa:
who:    US National Library of Examples (=) NLEX
what:   12345
when:   2001.03.08
where:  http://www.nlex.example.org
where:  303 https://mirror.example.net:8443/ark:$id
how:    NP | NR, OP, CC | 2001 | https://nlex.example.org/policy
!why:   ARK secret-reason
!contact: Jo Private | Unit | 2001 |
    jo@private.example
    secret-continuation
note:   public
    continued

naa:
# a comment inside a block
who:    National Library of Elsewhere (=) Bibliothèque d%sqailleurs (=) BNE
what:   ark:/12345/x6
where:  (:unkn)
how:    NP | (:unkn) unknown | 2001 |

!naa:
who: Secret Society (=) SECSOC
what: 99999
"""


def test_sample() -> None:
    table = registry.read(SAMPLE)
    assert list(table) == ["12345", "12345/x6"]
    entry = table["12345"]
    assert entry.who == Who("US National Library of Examples", None, "NLEX")
    assert entry.when == "2001.03.08"
    assert entry.nmas == (
        Nma("http://www.nlex.example.org/ark:/${content}", "http://www.nlex.example.org"),
        Nma(
            "https://mirror.example.net:8443/ark:/${content}", "303 https://mirror.example.net:8443/ark:$id", status=303
        ),
    )
    assert entry.policy == NaanPolicy("NP", "NR, OP, CC", "2001", "https://nlex.example.org/policy")
    assert entry.extra == {"note": "public continued"}
    assert entry.line == 7
    shoulder = table["12345/x6"]
    assert shoulder.who == Who("National Library of Elsewhere", "Bibliothèque d'ailleurs", "BNE")
    assert shoulder.nmas == ()
    assert shoulder.policy == NaanPolicy("NP", "(:unkn) unknown", "2001", None)
    assert table.metadata["what"] == "NAAN registry"


def test_private_labels_are_not_in_the_table() -> None:
    table = registry.read(SAMPLE)
    everything = repr([*table.values(), dict(table.metadata)]).lower()
    for secret in ("private", "secret", "secsoc", "jo@"):
        assert secret not in everything
    assert "secret" not in registry.write_json(table)


@pytest.mark.parametrize(
    "text",
    [
        "naa:\nwhat: 12345\n!contact: secret\n\n  secret continuation\n",
        "naa:\nwhat: 12345\n!contact: secret\nsecret without colon\n",
        "naa:\nwhat: 12345\n%21contact: secret\n  secret\nwhat: 12345\n",
        "naa:\n! contact: secret\nwhat: 12345\nwhat: 12346\n",
    ],
)
def test_private_labels_are_not_in_messages(text: str) -> None:
    bad: list[TableError] = []
    registry.read(text, on_bad=bad.append)
    assert bad
    assert not any("secret" in str(error) for error in bad)


def test_a_record_may_start_with_a_private_line() -> None:
    assert list(registry.read("!note: mine\nnaa:\nwhat: 12345\n")) == ["12345"]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("naa:\nwho: A\n", 1, "no what"),
        ("naa:\nwhat: 12345\nwhat: 12346\n", 1, "what occurs twice"),
        ("naa:\nwhat: aeiou\n", 1, "not betanumeric"),
        ("naa:\nwhat: 12345/\n", 1, "no shoulder"),
        ("\n\nnaa:\nwhat: 12345\nno colon here\n", 5, "not a label and a colon"),
        ("naa: x\nwhat: 12345\n", 1, "does not start with naa:"),
        ("who: A\nwhat: 12345\n", 1, "does not start with naa:"),
        ("  lost\n\nnaa:\nwhat: 12345\n", 1, "without a label above"),
        ("naa:\nwhat: 12345\n\nnaa:\nwhat: 12345\n", 4, "duplicate record, first on line 1"),
    ],
)
def test_bad_records_are_reported_by_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(TableError, match=reason) as caught:
        anvl.read(text, TableBuilder("naans.txt"))
    assert caught.value.line == line


def test_repeated_or_malformed_optional_labels_are_accepted() -> None:
    text = (
        "naa:\nwhat: 12345\nwhere: h.example.org\nhow: NP | a | b | c | d\nwho: a (=) b (=) c (=) d\nwhen: 1\nwhen: 2\n"
    )
    entry = registry.read(text)["12345"]
    assert entry.nmas[0].target == "https://h.example.org/ark:/${content}"
    assert entry.policy == NaanPolicy("NP", "a", "b", "c | d")
    assert entry.who == Who("a (=) b (=) c (=) d")
    assert entry.when == "1"
    assert entry.extra == {"when": ["1", "2"]}


def test_escapes() -> None:
    assert anvl.decode("a%cnb%3A%c3%a9 100% %zz") == "a:b%3A%c3%a9 100% %zz"
    assert anvl.decode("a%cn b c%{ d%cn e %} f %{ g") == "a: b cd:e f  g"
    who = registry.read("naa:\nwhat: 12345\nwho: A %op%eq%cp B\n")["12345"].who
    assert who == Who("A (=) B")
