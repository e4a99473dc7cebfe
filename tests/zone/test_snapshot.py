"""Snapshots and views of zones."""

from __future__ import annotations

import dns.zone
import pytest

from maptr.errors import ZoneError
from maptr.protocol.names import Folded, parse, to_wire
from maptr.zone.snapshot import PackedNodes
from tests.support.zones import snapshot_of_zones, view_zone

APEX = "@ 3600 SOA ns host 42 7200 3600 1209600 300\n@ 3600 NS ns\n"


def zone(text: str = "", origin: str = "example.", relativize: bool = False) -> dns.zone.Zone:
    return dns.zone.from_text(APEX + text, origin, relativize=relativize)


@pytest.mark.parametrize("relativize", [False, True])
def test_owners_are_folded_keys_and_keep_their_case(relativize: bool) -> None:
    view = view_zone(zone("WwW 60 A 192.0.2.1", "EXAMPLE.", relativize))
    assert view.origin == (b"example",)
    rrset = view.nodes[Folded((b"www", b"example"))][1]
    assert rrset.owner == (b"WwW", b"EXAMPLE")
    assert rrset.rdatas == (bytes([192, 0, 2, 1]),)


def test_rfc2308_the_negative_soa_has_the_smaller_ttl() -> None:
    view = view_zone(zone())
    assert (view.serial, view.soa.ttl, view.negative_soa.ttl) == (42, 3600, 300)
    small = dns.zone.from_text(APEX.replace("3600 SOA", "60 SOA"), "example.", relativize=False)
    assert view_zone(small).negative_soa.ttl == 60


def test_rfc4592_empty_non_terminals_are_names_without_records() -> None:
    nodes = view_zone(zone("a.b.c 60 A 192.0.2.1")).nodes
    assert [name for name, node in nodes.items() if not node] == [parse("b.c.example"), parse("c.example")]
    assert nodes.keys() == {*map(parse, ("example", "a.b.c.example", "b.c.example", "c.example"))}


def test_two_zones_of_one_name_are_refused() -> None:
    with pytest.raises(ZoneError, match=r"example\. is given twice"):
        snapshot_of_zones(zone(), zone(origin="EXAMPLE."))


def test_rfc4034_6_1_the_order_of_names() -> None:
    """The names are the example of RFC 4034 6.1."""
    owners = ["example", "a.example", "yljkjljk.a.example", "Z.a.example", "zABC.a.EXAMPLE", "z.example"]
    folded = [to_wire(parse(owner.lower())) for owner in owners]
    assert [name for _, name in PackedNodes(dict.fromkeys(reversed(folded), b""), {}).in_order()] == folded


def test_a_snapshot_cannot_be_changed() -> None:
    snapshot = snapshot_of_zones(zone("www 60 A 192.0.2.1"))
    with pytest.raises(TypeError):
        snapshot.zones[()] = snapshot.zones[(b"example",)]  # type: ignore[index]
    with pytest.raises(AttributeError):
        snapshot.depth = 3  # type: ignore[misc]
