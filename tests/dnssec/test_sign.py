"""Zone signing: the keys for each RRset, unsigned RRsets, and signatures kept from an earlier version.

``tests/interop/test_signing.py`` shows that validators accept the result.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dns.dnssec
import dns.exception
import dns.name
import dns.rdata
import dns.rdatatype
import dns.zone
import pytest
from dns.rdatatype import CDNSKEY, CDS, DNSKEY, MX, NS, NSEC, RRSIG, SOA, TXT, ZONEMD, A
from hypothesis import given, settings
from hypothesis import strategies as st

from maptr.dnssec.keys import Algorithm, KeySet, KeyState, Role, ZoneKey, add_key, ds_rdata
from maptr.dnssec.policy import Children, SigningPolicy
from maptr.dnssec.sign import Renewal, is_current
from maptr.errors import SigningError
from maptr.protocol.names import folded_from_wire
from maptr.zone import text as zonetext
from maptr.zone.diff import ZoneDiff, stripped
from maptr.zone.masterfile import read_master_file
from tests.support import signing
from tests.support.zones import view_zone

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519", reason="signing needs maptr[dnssec]")


def text_of(made: dns.zone.Zone) -> str:
    return zonetext.to_text(view_zone(made))


def tags(signed: dns.zone.Zone, owner: str, covered: dns.rdatatype.RdataType) -> set[int]:
    found = signed.get_rdataset(dns.name.from_text(owner, signing.ORIGIN), RRSIG, covered)
    return {rdata.key_tag for rdata in found or ()}


@pytest.mark.parametrize("state", KeyState)
def test_each_key_signs_the_rrsets_of_its_role(keys: dict[Role, ZoneKey], tmp_path: Path, state: KeyState) -> None:
    """Beside an active pair, a second one: its KSK signs in every state, its ZSK while active (RFC 7583 2.1, 2.2)."""
    ksk, zsk = keys[Role.KSK], keys[Role.ZSK]
    others = [add_key(tmp_path / "keys", role, Algorithm.ECDSAP256SHA256, state).key for role in (Role.KSK, Role.ZSK)]
    signed = signing.sign_example(ksk, zsk, *others)
    dnskeys = signed.find_rdataset(signing.ORIGIN, DNSKEY)
    found = {(dns.dnssec.key_id(rdata), int(rdata.flags)) for rdata in dnskeys}
    assert found == {(key.tag, 256 if key.role is Role.ZSK else 257) for key in (ksk, zsk, *others)}
    for covered in (DNSKEY, CDS, CDNSKEY):
        assert tags(signed, "@", covered) == {ksk.tag, others[0].tag}
    zone_signers = {zsk.tag, others[1].tag} if state is KeyState.ACTIVE else {zsk.tag}
    for owner, covered in (("@", SOA), ("@", NS), ("@", ZONEMD), ("ns1", A), ("a.b", TXT), ("*.w", MX), ("del", NSEC)):
        assert tags(signed, owner, covered) == zone_signers, (owner, covered)


def test_signatures_of_separate_keys_verify(keys: dict[Role, ZoneKey]) -> None:
    signed = signing.sign_example(keys[Role.KSK], keys[Role.ZSK])
    dnskeys = {signing.ORIGIN: signed.get_rdataset(signing.ORIGIN, DNSKEY)}
    count = 0
    for name, rdataset in signed.iterate_rdatasets():
        signatures = signed.get_rdataset(name, RRSIG, rdataset.rdtype)
        if rdataset.rdtype != RRSIG and signatures:
            dns.dnssec.validate((name, rdataset), (name, signatures), dnskeys, signing.ORIGIN, signing.NOW)  # type: ignore[arg-type]
            count += 1
    assert count == 19


def test_signing_a_signed_zone_removes_the_records_of_old_keys(keys: dict[Role, ZoneKey]) -> None:
    signed = signing.sign_example(keys[Role.KSK], keys[Role.ZSK])
    again = signing.sign_zone(signed, [keys[Role.CSK]], now=signing.NOW, serial=7)
    assert text_of(again) == text_of(signing.sign_example(keys[Role.CSK]))


def test_rfc4035_2_2_glue_and_delegations_are_not_signed(keys: dict[Role, ZoneKey]) -> None:
    """RFC 4035 2.2 and 2.3: glue has no signature and no NSEC, and the delegation's NSEC does not list its type."""
    signed = signing.sign_example(keys[Role.CSK])
    assert tags(signed, "del", NS) == tags(signed, "del", A) == tags(signed, "ns.del", A) == tags(signed, "x.dname", A)
    assert tags(signed, "del", A) == set()
    nsec = signed.find_rdataset("del", NSEC)[0]
    assert nsec.to_text() == "dname.example. NS DS RRSIG NSEC"
    assert signed.find_rdataset("dname", NSEC)[0].to_text().startswith("ns1.example. ")
    assert signed.get_rdataset("ns.del", NSEC) is None
    assert signed.find_rdataset("ns.del", A)[0].to_text() == "192.0.2.3"


def test_rfc9077_3_nsec_has_the_ttl_of_a_negative_response(keys: dict[Role, ZoneKey]) -> None:
    """RFC 9077 3: this is the lesser of the TTL and the MINIMUM field of the SOA record."""
    low = dns.zone.from_text(signing.TEXT.replace("$TTL 3600", "$TTL 60"), relativize=False)
    signed = signing.sign_zone(low, [keys[Role.CSK]], now=signing.NOW, serial=7)
    assert {rdataset.ttl for _, rdataset in signed.iterate_rdatasets(NSEC)} == {60}
    assert {rdataset.ttl for _, rdataset in signing.sign_example(keys[Role.CSK]).iterate_rdatasets(NSEC)} == {300}


def test_rfc8976_zonemd_covers_the_whole_zone(keys: dict[Role, ZoneKey]) -> None:
    """The digest also covers glue; an additional address is detected."""
    signed = signing.sign_example(keys[Role.CSK], serial=99)
    signed.verify_digest()
    assert signed.find_rdataset(signing.ORIGIN, ZONEMD)[0].serial == 99
    signed.find_rdataset("ns.del", A, create=True).add(dns.rdata.from_text("IN", "A", "192.0.2.9"), 3600)
    with pytest.raises(dns.zone.DigestVerificationFailure):
        signed.verify_digest()
    assert (
        signing.sign_example(keys[Role.CSK], policy=SigningPolicy(zonemd=False)).get_rdataset(signing.ORIGIN, ZONEMD)
        is None
    )


@pytest.mark.parametrize(
    ("change", "current"),
    [
        ({}, True),
        ({"text": signing.TEXT.replace(" 7 ", " 8 ", 1)}, True),
        ({"text": signing.TEXT.replace("192.0.2.1", "192.0.2.9")}, False),
        ({"text": signing.TEXT.replace("192.0.2.3", "192.0.2.9")}, False),
        ({"text": signing.TEXT + "new A 192.0.2.1\n"}, False),
        ({"policy": SigningPolicy(zonemd=False)}, False),
        ({"policy": SigningPolicy(cds=Children.NONE)}, False),
        ({"policy": SigningPolicy(dnskey_ttl=60)}, False),
    ],
)
def test_is_current_after_a_change(keys: dict[Role, ZoneKey], change: dict[str, object], current: bool) -> None:
    ksk, zsk = keys[Role.KSK], keys[Role.ZSK]
    old = dns.zone.from_text(text_of(signing.sign_example(ksk, zsk)), "example.", relativize=False)
    now = dns.zone.from_text(str(change.get("text", signing.TEXT)), relativize=False)
    policy = change.get("policy", SigningPolicy())
    assert isinstance(policy, SigningPolicy)
    assert is_current(view_zone(old), view_zone(now), KeySet((ksk, zsk)), policy) is current


def test_a_signed_zone_is_not_current_after_a_change_of_keys(keys: dict[Role, ZoneKey]) -> None:
    """A retired key still signs and is in the DNSKEY RRset, but has no CDS record."""
    ksk, zsk, csk = (keys[role] for role in (Role.KSK, Role.ZSK, Role.CSK))
    old, plain = view_zone(signing.sign_example(ksk, zsk, csk)), view_zone(signing.example_zone())
    assert is_current(old, plain, KeySet((ksk, zsk, csk)), SigningPolicy())
    assert not is_current(plain, plain, KeySet((ksk, zsk, csk)), SigningPolicy())
    retired, waiting = replace(ksk, state=KeyState.RETIRED), replace(csk, state=KeyState.PUBLISHED)
    for others in ((retired, zsk, csk), (ksk, zsk, waiting), (ksk, zsk)):
        assert not is_current(old, plain, KeySet(others), SigningPolicy())


def test_only_active_keys_have_cds_and_ds_records(keys: dict[Role, ZoneKey]) -> None:
    old = replace(keys[Role.KSK], state=KeyState.RETIRED)
    signed = signing.sign_example(old, keys[Role.ZSK], keys[Role.CSK])
    (entry,) = KeySet((old, keys[Role.ZSK], keys[Role.CSK])).entries
    assert [rdata.to_wire() for rdata in signed.find_rdataset(signing.ORIGIN, CDS)] == [ds_rdata((b"Example",), entry)]
    assert len(signed.find_rdataset(signing.ORIGIN, CDNSKEY)) == 1
    assert tags(signed, "@", DNSKEY) == {old.tag, keys[Role.CSK].tag}
    gone = signing.sign_example(keys[Role.CSK], policy=SigningPolicy(cds=Children.DELETE))
    assert gone.find_rdataset(signing.ORIGIN, CDS)[0].to_text() == "0 0 0 00"
    assert (
        signing.sign_example(keys[Role.CSK], policy=SigningPolicy(cds=Children.NONE)).get_rdataset(signing.ORIGIN, CDS)
        is None
    )


@pytest.mark.parametrize("times", [{"lifetime": 100, "refresh": 100}, {"refresh": -1}, {"inception": -1}])
def test_a_policy_with_impossible_times_is_refused(times: dict[str, int]) -> None:
    with pytest.raises(SigningError, match="cannot be renewed"):
        SigningPolicy(**times)  # type: ignore[arg-type]


def test_rfc4034_b_signatures_of_another_key_with_the_same_tag_are_replaced(
    keys: dict[Role, ZoneKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key tags are not unique, so a signature is kept only if the key itself was in the old zone."""
    old = signing.sign_example(keys[Role.CSK])
    other = replace(keys[Role.CSK], private=Algorithm.ED25519.private_class(ed25519.Ed25519PrivateKey.generate()))
    monkeypatch.setattr(ZoneKey, "tag", keys[Role.CSK].tag)
    signed = signing.sign_zone(signing.example_zone(), [other], now=signing.NOW + 60, serial=8, old=old)
    before, after = (
        {rdata for _, found in zone.iterate_rdatasets() if found.rdtype == RRSIG for rdata in found}
        for zone in (old, signed)
    )
    assert before
    assert not before & after


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.booleans())
def test_dnspython_accepts_any_signed_zone(seed: int, zonemd: bool) -> None:
    """All signatures and the digest are valid, only authoritative RRsets are signed, and the NSEC chain is closed."""
    plain = signing.random_view(seed)
    view = Renewal(signing.one_key(), SigningPolicy(zonemd=zonemd), signing.NOW).renew(plain, None)
    zone = signing.to_zone(view)
    dnskeys = {signing.ORIGIN: zone.find_rdataset(signing.ORIGIN, DNSKEY)}
    cuts = [name for name in zone.nodes if name != signing.ORIGIN and zone.get_rdataset(name, "NS")]
    tops = [*cuts, *(name for name in zone.nodes if zone.get_rdataset(name, "DNAME"))]
    for name, rdataset in zone.iterate_rdatasets():
        if rdataset.rdtype == RRSIG:
            continue
        below = any(name != top and name.is_subdomain(top) for top in tops)
        glue = name in cuts and rdataset.rdtype not in (dns.rdatatype.DS, NSEC)
        signatures = zone.get_rdataset(name, RRSIG, rdataset.rdtype)
        assert (signatures is None) is (below or glue), (name, rdataset)
        if signatures is not None:
            dns.dnssec.validate((name, rdataset), (name, signatures), dnskeys, signing.ORIGIN, signing.NOW)  # type: ignore[arg-type]
    proving = sorted(name for name in zone.nodes if zone.get_rdataset(name, NSEC))
    assert proving == sorted(
        name for name in zone.nodes if not any(name != top and name.is_subdomain(top) for top in tops)
    )
    following = [zone.find_rdataset(name, NSEC)[0].next for name in proving]
    assert following == [*proving[1:], signing.ORIGIN]
    for name in proving:
        types = {dns.rdatatype.to_text(rdataset.rdtype) for rdataset in zone.nodes[name]}
        said = set(zone.find_rdataset(name, NSEC)[0].to_text().split()[1:])
        assert said == types if name not in cuts else said <= types
    if zonemd:
        zone.verify_digest()


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000))
def test_a_signed_zone_survives_writing_and_reading(seed: int) -> None:
    """Both readers read the same zone; it is current, and its signatures are kept."""
    plain, keys, policy = signing.random_view(seed), signing.one_key(), SigningPolicy()
    view = Renewal(keys, policy, signing.NOW).renew(plain, None)
    text = zonetext.to_text(view)
    slow = view_zone(dns.zone.from_text(text, "example.", relativize=False))
    back = read_master_file("zone", text.encode(), folded_from_wire(signing.ORIGIN.to_wire() or b""))
    assert back == slow
    assert (back.nodes.keys(), back.denial) == (view.nodes.keys(), view.denial)
    assert zonetext.to_text(back) == zonetext.to_text(slow) == text
    assert not ZoneDiff.between(back, view)
    assert is_current(back, plain, keys, policy)
    assert not ZoneDiff.between(stripped(back, plain.serial), plain)
    again = Renewal(keys, policy, signing.NOW + 60).sign(plain, back)
    changed = {(change.rrset.owner, change.rrset.rdtype) for change in ZoneDiff.between(back, again).changes}
    assert changed == {((b"example",), rdtype) for rdtype in (SOA, RRSIG, ZONEMD)}
    other = signing.random_view(seed + 1)
    assert is_current(Renewal(keys, policy, signing.NOW).sign(other, back), other, keys, policy)
