"""Domain names as label tuples, held to dnspython's reading of the same text."""

from __future__ import annotations

import dns.name
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr import names

labels = st.lists(st.binary(min_size=1, max_size=63), max_size=3).map(tuple)


@given(labels)
def test_text_and_back(name: names.Labels) -> None:
    text = names.to_text(name)
    assert names.parse(text) == name
    assert dns.name.from_text(text) == dns.name.Name((*name, b""))
    assert names.to_wire(name) == dns.name.Name((*name, b"")).to_wire()
    assert names.wire_length(name) == len(names.to_wire(name))


def test_a_port_is_escaped_for_every_reader() -> None:
    assert names.to_text((b"h", b"example:8443")) == "h.example\\0588443."
    assert names.parse("h.example:8443") == names.parse("h.example\\0588443.") == (b"h", b"example:8443")


@pytest.mark.parametrize("text", ["a..b", ".a", "a\\", "a\\1", "a\\12", "a\\12x", "a\\256", "a" * 64, "a." * 128, "é"])
def test_no_name(text: str) -> None:
    with pytest.raises(ValueError):
        names.parse(text)


@given(st.text(max_size=30))
def test_any_text_is_a_name_or_a_value_error(text: str) -> None:
    try:
        name = names.parse(text)
    except ValueError:
        return
    assert names.parse(names.to_text(name)) == name


def test_below() -> None:
    assert names.is_below((b"x", b"ARK", b"arpa"), (b"ark", b"arpa"))
    assert names.is_below((b"ark", b"arpa"), (b"ark", b"arpa"))
    assert names.is_below((b"x",), ())
    assert not names.is_below((b"xark", b"arpa"), (b"ark", b"arpa"))
