"""The zone file writer: text that all name servers read alike."""

from __future__ import annotations

import dns.name
import dns.rdata
import dns.zone
from hypothesis import given, settings
from hypothesis import strategies as st

from maptr.zone import text as zonetext
from tests.support.signing import example_zone
from tests.support.zones import view_zone


def text_of(made: dns.zone.Zone) -> str:
    return zonetext.to_text(view_zone(made))


def test_a_colon_in_a_name_is_escaped() -> None:
    text = text_of(example_zone())
    assert '"" h.example\\0588443.' in text
    assert "port:" not in text
    again = dns.zone.from_text(text, "example.", relativize=False)
    assert text_of(again) == text
    assert text.splitlines()[0] == "example. 3600 IN SOA ns1.example. hostmaster.example. 7 7200 3600 1209600 300"


def test_the_mailbox_of_a_soa_may_have_a_dot() -> None:
    """RFC 1035 8. Its serial stays readable, for people and scripts."""
    soa = "ns1.example. dns\\.admin.example. 7 7200 3600 1209600 300"
    assert zonetext.rdata_text(6, dns.rdata.from_text("IN", "SOA", soa).to_wire() or b"") == soa


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=4))
@settings(max_examples=50)
def test_any_name_is_written_and_read_back(labels: list[bytes]) -> None:
    made = example_zone()
    name = dns.name.Name((*labels, b"example", b""))
    rrsig = f"PTR 13 2 60 20300101000000 20200101000000 1 {name} QUJD"
    for kind, text in (("PTR", str(name)), ("MX", f"1 {name}"), ("RRSIG", rrsig)):
        rdata = dns.rdata.from_text("IN", kind, text)
        made.find_rdataset(name, rdata.rdtype, rdata.covers(), create=True).add(rdata, 60)
    assert dns.zone.from_text(text_of(made), "example.", relativize=False) == made
