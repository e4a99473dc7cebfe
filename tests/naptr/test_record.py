"""One record: wire and text and back, and how it is read."""

from __future__ import annotations

import dns.rdata
import dns.rdataclass
import dns.rdatatype
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.naptr.record import Kind, Naptr, read

strings = st.binary(max_size=255)
naptrs = st.builds(
    Naptr,
    st.integers(0, 65535),
    st.integers(0, 65535),
    strings,
    strings,
    strings,
    st.lists(st.binary(min_size=1, max_size=20), max_size=4).map(tuple),
)


@given(naptrs)
def test_wire_and_text_mean_the_same_to_dnspython(naptr: Naptr) -> None:
    theirs = dns.rdata.from_text("IN", "NAPTR", naptr.to_text())
    wire = naptr.to_wire()
    assert theirs.to_wire() == wire
    assert Naptr.from_wire(wire) == naptr
    assert theirs.to_digestable() == naptr.canonical()


@given(st.binary(max_size=60))
def test_any_rdata_is_read_or_a_value_error(rdata: bytes) -> None:
    try:
        naptr = Naptr.from_wire(rdata)
    except ValueError:
        return
    assert naptr.to_wire() == rdata
    read(naptr)
    read(naptr, undotted=(b"ark", b"arpa"))


def test_compressed_and_cut_rdata_is_refused() -> None:
    wire = Naptr(0, 0, b"h", b"ark", b"", (b"h", b"example")).to_wire()
    for cut in range(len(wire)):
        with pytest.raises(ValueError):
            Naptr.from_wire(wire[:cut])
    with pytest.raises(ValueError):
        Naptr.from_wire(wire[:-9] + b"\xc0\x0c")
    with pytest.raises(ValueError, match="after the rdata"):
        Naptr.from_wire(wire + b"\0")


def test_text_that_every_reader_takes() -> None:
    rule = Naptr(10, 10, b"u", b"ark", rb"!^ark:/?12345/(.*)$!https://h.example:8443/\1!", ())
    assert rule.to_text() == r'10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://h.example:8443/\\1!" .'
    host = Naptr(100, 10, b"h", b"ark", b"", (b"h", b"example:8443"))
    assert host.to_text() == r'100 10 "h" "ark" "" h.example\0588443.'
    assert Naptr(0, 0, b'"\xff', b"", b"", ()).to_text() == '0 0 "\\"\\255" "" "" .'


@given(naptrs)
def test_reading_never_raises_and_always_explains_what_is_not_ours(naptr: Naptr) -> None:
    rule = read(naptr, undotted=(b"ark", b"arpa"))
    assert rule.notes or rule.kind is not Kind.OTHER
    assert (rule.kind is Kind.HOST) == bool(rule.hosts)
    assert rule.kind is not Kind.URL or rule.substitution is not None
