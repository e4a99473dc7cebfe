"""Referrals with DO, as BIND, NSD, Knot and PowerDNS send them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import dns.message
import dns.query
import dns.rdatatype
import dns.zone

from maptr.answer.respond import respond
from maptr.zone.snapshot import Snapshot
from tests.support.peers import START_SECONDS, Peer

VECTORS = Path(__file__).resolve().parent.parent / "vectors"
ZONE = tomllib.loads((VECTORS / "answer.toml").read_text(encoding="utf-8"))["zone"]


def test_rfc4035_3_1_4_a_referral_of_an_unsigned_zone_has_ns_alone(peer: type[Peer], tmp_path: Path) -> None:
    """The zone has a DS at the cut, which without signatures proves nothing."""
    file = tmp_path / "example.zone"
    file.write_text("$ORIGIN example.\n" + ZONE)
    query = dns.message.make_query("www.sub.example.", "A", want_dnssec=True)
    with peer({"example.": file}) as server:
        theirs = dns.query.udp(query, server.host, START_SECONDS, server.port)
    wire = respond(query.to_wire(), Snapshot.from_zones([dns.zone.from_text(ZONE, "example.", relativize=False)]))
    assert wire is not None
    ours = dns.message.from_wire(wire)
    assert [rrset.rdtype for rrset in ours.authority] == [dns.rdatatype.NS]
    assert ours.authority == theirs.authority
