"""Domain names as tuples of labels, compared with dnspython."""

from __future__ import annotations

import contextlib

import dns.exception
import dns.name
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.protocol import names

labels = st.lists(st.binary(min_size=1, max_size=63), max_size=3).map(tuple)


@given(labels)
def test_presentation_format_round_trip(name: names.Labels) -> None:
    text = names.to_text(name)
    assert names.parse(text) == name
    assert dns.name.from_text(text) == dns.name.Name((*name, b""))
    assert names.to_wire(name) == dns.name.Name((*name, b"")).to_wire()
    assert names.wire_length(name) == len(names.to_wire(name))


@given(labels, st.binary(max_size=20))
def test_wire_format_round_trip(name: names.Labels, before: bytes) -> None:
    octets = before + names.to_wire(name)
    assert names.read_name(octets + b"more", len(before)) == (name, len(octets))


@given(
    st.lists(st.sampled_from((0, 0, 1, 2, 3, 5, 63, 64, 65, 0x80, 0xC0, 0xC0, 0xC1)), max_size=300), st.integers(0, 40)
)
def test_compressed_names_are_read_as_dnspython_reads_them(octets: list[int], at: int) -> None:
    """dnspython refuses some more packets: compression pointers into the name itself, which maptr may follow."""
    packet = bytes(octets)
    try:
        name, size = dns.name.from_wire(packet, at)
    except dns.exception.DNSException:
        with contextlib.suppress(ValueError):
            names.read_name(packet, at)
        return
    assert names.read_name(packet, at) == (name.labels[:-1], at + size)


@pytest.mark.parametrize(
    ("reason", "packets"),
    [
        ("does not lead back", [b"\xc0\0", b"\1a\xc0\2", b"\1a\xc0\x10", b"\1a\xc0\0"]),  # the last: a loop
        ("unknown kind", [b"\x40a", b"\x80a"]),
        ("too long", [b"\1a" * 128 + b"\0"]),
        ("cut short", [b"", b"\1a", b"\1a\xc0"]),
    ],
)
def test_invalid_wire_names(reason: str, packets: list[bytes]) -> None:
    for packet in packets:
        with pytest.raises(ValueError, match=reason):
            names.read_name(packet, 0)


def test_too_many_compression_pointers_are_refused() -> None:
    packet = b"\0" + b"".join((0xC000 | max(0, 2 * number - 1)).to_bytes(2, "big") for number in range(200))
    assert names.read_name(packet, 2 * names.MAX_JUMPS - 1) == ((), 2 * names.MAX_JUMPS + 1)
    with pytest.raises(ValueError, match="does not lead back"):
        names.read_name(packet, 2 * names.MAX_JUMPS + 1)


def test_a_colon_is_escaped() -> None:
    assert names.to_text((b"h", b"example:8443")) == "h.example\\0588443."
    assert names.parse("h.example:8443") == names.parse("h.example\\0588443.") == (b"h", b"example:8443")


@pytest.mark.parametrize("text", ["a..b", ".a", "a\\", "a\\1", "a\\12", "a\\12x", "a\\256", "a" * 64, "a." * 128, "é"])
def test_invalid_presentation_format_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        names.parse(text)


@given(st.text(max_size=30))
def test_random_text_is_a_valid_name_or_raises_value_error(text: str) -> None:
    try:
        name = names.parse(text)
    except ValueError:
        return
    assert names.parse(names.to_text(name)) == name


def test_is_below() -> None:
    assert names.is_below((b"x", b"ARK", b"arpa"), (b"ark", b"arpa"))
    assert names.is_below((b"ark", b"arpa"), (b"ark", b"arpa"))
    assert names.is_below((b"x",), ())
    assert not names.is_below((b"xark", b"arpa"), (b"ark", b"arpa"))
