"""Canonical forms, and what is made with them, against dnspython: signed data, digests, the text and its reader."""

from __future__ import annotations

import random

import dns.dnssec
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.zone
import dns.zonetypes
import pytest
from dns.rdatatype import DNSKEY, NSEC, RRSIG
from hypothesis import given, settings
from hypothesis import strategies as st

from maptr.dnssec.keys import Algorithm, Key, KeySet, Role, State
from maptr.dnssec.policy import Policy
from maptr.dnssec.sign import Renewal, is_current
from maptr.protocol.names import from_wire
from maptr.zone import text as zonetext
from maptr.zone.diff import ZoneDiff, stripped
from maptr.zone.packed import PackedNodes
from maptr.zone.reader import read_plain
from maptr.zone.rrset import canonical_rdata
from maptr.zone.snapshot import ZoneView, view_zone
from maptr.zone.zonemd import zone_digest
from tests.answer.test_respond_oracle import ORIGIN, random_zone, zone_text
from tests.support.signing import to_zone

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519", reason="signing needs maptr[dnssec]")

NOW = 1_800_000_000
APEX = dns.name.from_text(ORIGIN)
PRIVATE = Algorithm.ED25519.private_class(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32)))
KEYS = KeySet((Key(Role.CSK, State.ACTIVE, Algorithm.ED25519, PRIVATE),))

# One of each type whose names count in lower case (RFC 4034 6.2), and some whose do not.
RECORDS = {
    "NS": "Ns.Example.",
    "CNAME": "C.Example.",
    "SOA": "Ns.Example. Host.Example. 1 2 3 4 5",
    "PTR": "P.Example.",
    "MX": "10 Mail.Example.",
    "TXT": '"Upper Case"',
    "RP": "Mbox.Example. Txt.Example.",
    "AFSDB": "1 Host.Example.",
    "RT": "10 Host.Example.",
    "PX": "10 Map.Example. X.Example.",
    "SRV": "1 2 3 Host.Example.",
    "NAPTR": '10 10 "U" "Ark" "!^ARK:(.*)$!https://H.example/!" Next.Example.',
    "KX": "1 Host.Example.",
    "DNAME": "D.Example.",
    "NSEC": "Next.Example. A RRSIG NSEC",
    "HTTPS": "1 Svc.Example. alpn=h2",
    "RRSIG": "A 13 2 60 20300101000000 20200101000000 1 Example. AAAA",
}


@pytest.mark.parametrize("kind", RECORDS)
def test_rfc4034_6_2_names_in_rdata_count_in_lower_case(kind: str) -> None:
    rdata = dns.rdata.from_text("IN", kind, RECORDS[kind])
    assert canonical_rdata(int(rdata.rdtype), rdata.to_wire() or b"") == rdata.to_digestable()


def test_rfc4034_6_1_the_order_of_names() -> None:
    """The example of the section."""
    owners = ["example", "a.example", "yljkjljk.a.example", "Z.a.example", "zABC.a.EXAMPLE", "z.example"]
    names = [dns.name.from_text(owner).to_wire() or b"" for owner in owners]
    folded = [name.lower() for name in names]
    assert [name for _, name in PackedNodes(dict.fromkeys(reversed(folded), b""), {}).in_order()] == folded


def zone_of(seed: int) -> ZoneView:
    return view_zone(dns.zone.from_text(zone_text(random_zone(random.Random(seed))), ORIGIN, relativize=False))


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.booleans())
def test_any_zone_is_signed_so_that_dnspython_agrees(seed: int, zonemd: bool) -> None:
    """Each signature verifies, what has authority is signed and nothing else is, the chain is closed, and the digest
    is right."""
    plain = zone_of(seed)
    view = Renewal(KEYS, Policy(zonemd=zonemd), NOW).renew(plain, None)
    zone = to_zone(view)
    dnskeys = {APEX: zone.find_rdataset(APEX, DNSKEY)}
    cuts = [name for name in zone.nodes if name != APEX and zone.get_rdataset(name, "NS")]
    tops = [*cuts, *(name for name in zone.nodes if zone.get_rdataset(name, "DNAME"))]
    for name, rdataset in zone.iterate_rdatasets():
        if rdataset.rdtype == RRSIG:
            continue
        below = any(name != top and name.is_subdomain(top) for top in tops)
        glue = name in cuts and rdataset.rdtype not in (dns.rdatatype.DS, NSEC)
        signatures = zone.get_rdataset(name, RRSIG, rdataset.rdtype)
        assert (signatures is None) is (below or glue), (name, rdataset)
        if signatures is not None:
            dns.dnssec.validate((name, rdataset), (name, signatures), dnskeys, APEX, NOW)  # type: ignore[arg-type]
    proving = sorted(name for name in zone.nodes if zone.get_rdataset(name, NSEC))
    assert proving == sorted(
        name for name in zone.nodes if not any(name != top and name.is_subdomain(top) for top in tops)
    )
    following = [zone.find_rdataset(name, NSEC)[0].next for name in proving]
    assert following == [*proving[1:], APEX]
    for name in proving:
        types = {int(rdataset.rdtype) for rdataset in zone.nodes[name]}
        said = {
            window * 256 + at * 8 + bit
            for window, octets in zone.find_rdataset(name, NSEC)[0].windows
            for at, octet in enumerate(octets)
            for bit in range(8)
            if octet & 0x80 >> bit
        }
        assert said == types if name not in cuts else said <= types
    if zonemd:
        zone.verify_digest()


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000))
def test_a_signed_zone_comes_back_from_its_text(seed: int) -> None:
    """By the quick reader: the very zone that dnspython reads, good as it is, and of which every signature is kept."""
    plain = zone_of(seed)
    view = Renewal(KEYS, Policy(), NOW).renew(plain, None)
    text = zonetext.to_text(view)
    slow = view_zone(dns.zone.from_text(text, ORIGIN, relativize=False))
    quick = read_plain(text.encode(), from_wire(APEX.to_wire() or b""))
    assert quick is not None
    back = quick.view
    assert isinstance(back.nodes, PackedNodes)
    assert {name: dict(node) for name, node in back.nodes.items()} == {n: dict(node) for n, node in slow.nodes.items()}
    assert (back.cuts, back.hashed, back.denial) == (slow.cuts, slow.hashed, slow.denial)
    assert (back.nodes.keys(), back.denial) == (view.nodes.keys(), view.denial)
    assert zonetext.to_text(back) == zonetext.to_text(slow) == text
    assert not ZoneDiff.between(back, view)
    assert is_current(back, plain, KEYS, Policy())
    assert not ZoneDiff.between(stripped(back, plain.serial), plain)
    again = Renewal(KEYS, Policy(), NOW + 60).sign(plain, back)
    changed = {(change.rrset.owner, change.rrset.rdtype) for change in ZoneDiff.between(back, again).changes}
    assert {rdtype for _, rdtype in changed} == {6, 46, 63}, "SOA, ZONEMD and their signatures"


@pytest.mark.parametrize("kind", [1, 2], ids=["SHA-384", "SHA-512"])
def test_the_digest_is_dnspythons(kind: int) -> None:
    for seed in range(20):
        view = Renewal(KEYS, Policy(), NOW).renew(zone_of(seed), None)
        expected = to_zone(view).compute_digest(dns.zonetypes.DigestHashAlgorithm(kind))
        assert zone_digest(view, kind) == expected.digest


# Lines that are odd or wrong: the quick reader leaves them to dnspython, or reads what that reads.
HEAD = "$TTL 60\n@ IN SOA ns host 1 7200 3600 1209600 300\n@ IN NS ns\nns IN A 192.0.2.1\n"
SIGNATURE = "A 13 2 60 20300101000000 20200101000000 1 example. AAAA"
ODD = [
    f"ns IN RRSIG {SIGNATURE}",
    f"ns IN RRSIG {SIGNATURE} BBBB",
    f"ns 30 IN RRSIG {SIGNATURE}",
    f"nothing IN RRSIG {SIGNATURE}",
    f"ns IN RRSIG {SIGNATURE.replace(' example.', ' @')}",
    f"ns IN RRSIG {SIGNATURE.replace('20300101000000', '1893456000')}",
    f"ns IN RRSIG {SIGNATURE.replace('20300101000000', '20301301000000')}",
    f"ns IN RRSIG {SIGNATURE.replace('20300101000000', '20400101000000')}",
    f"ns IN RRSIG {SIGNATURE.replace('20300101000000', '22000101000000')}",
    f"ns IN RRSIG {SIGNATURE.replace('AAAA', 'AAA')}",
    f"ns IN RRSIG {SIGNATURE.replace('AAAA', 'A-_A')}",
    f"ns IN RRSIG {SIGNATURE.replace(' 1 ', ' 70000 ')}",
    f"ns IN RRSIG TYPE1 {SIGNATURE[2:]}",
    "c IN CNAME x.example.\nc IN RRSIG CNAME 13 2 60 20300101000000 20200101000000 1 example. AAAA\n"
    "c IN NSEC ns.example. CNAME RRSIG NSEC",
    "c IN CNAME x.example.\nc IN A 192.0.2.1",
    "ns IN NSEC example. A",
    "ns IN NSEC @ A",
    "ns IN NSEC example.",
    "ns IN NSEC example. A A",
    "ns IN NSEC example. TYPE65280",
    "@ IN DNSKEY 257 3 13 AAAA",
    "@ IN DNSKEY 257 3 13 AA AA",
    "@ IN DNSKEY 65536 3 13 AAAA",
    "@ IN CDS 0 0 0 00",
    "@ IN CDNSKEY 0 3 0 AA==",
    f"a IN DS 1 13 2 {'00' * 32}",
    f"a IN DS 1 13 2 {'00' * 31}",
    f"a IN DS 1 13 2 {'00' * 16} {'11' * 16}",
    f"@ IN ZONEMD 1 1 1 {'00' * 48}",
    f"@ IN ZONEMD 1 1 240 {'00' * 48}",
    f"@ IN ZONEMD 1 1 1 {'0' * 95}",
]


@pytest.mark.parametrize("line", ODD)
def test_odd_lines_of_signed_zones_are_read_as_dnspython_reads_them(line: str) -> None:
    read = read_plain((HEAD + line + "\n").encode(), (b"example",))
    if read is not None:
        slow = view_zone(dns.zone.from_text(HEAD + line + "\n", "example.", relativize=False))
        nodes = read.view.nodes
        assert {name: dict(node) for name, node in nodes.items()} == {n: dict(node) for n, node in slow.nodes.items()}
        assert read.view.denial == slow.denial


def test_most_lines_of_signed_zones_are_read_quickly() -> None:
    """So that the test above says something."""
    quick = [line for line in ODD if read_plain((HEAD + line + "\n").encode(), (b"example",)) is not None]
    assert len(quick) >= 10
    assert ODD[0] in quick
    assert ODD[2] not in quick, "a TTL that is not that of what it covers"


def test_a_chain_of_hashes_is_stripped_with_its_empty_names() -> None:
    """RFC 5155 7.1: owners of NSEC3 go, and empty non-terminals that nothing else needs."""
    digest = "0p9mhaveqvm6t7vbl5lop2u3t2rp3tom"
    text = f"{HEAD}a.b IN TXT x\n@ IN NSEC3PARAM 1 0 0 -\n{digest} IN NSEC3 1 0 0 - {digest} SOA\n"
    signed = view_zone(dns.zone.from_text(text, "example.", relativize=False))
    plain = view_zone(dns.zone.from_text(f"{HEAD}a.b IN TXT x\n", "example.", relativize=False))
    bare = stripped(signed)
    assert {name: dict(node) for name, node in bare.nodes.items()} == {n: dict(node) for n, node in plain.nodes.items()}
