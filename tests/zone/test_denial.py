"""Proofs of absence: the examples of RFC 4035 and RFC 5155, hashes, unusable chains, sizes with DO."""

from __future__ import annotations

from typing import Any

import dns.dnssec
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdataset
import dns.rdatatype
import dns.rrset
import dns.zone
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maptr.answer.context import Transport
from maptr.answer.respond import respond
from maptr.errors import ZoneError
from maptr.zone.denial import MAX_ITERATIONS
from maptr.zone.snapshot import Snapshot
from tests.support.answers import load_vectors
from tests.support.zones import snapshot_of_zones, view_zone

VECTORS = load_vectors("dnssec")


def load(text: str, origin: str = "example.") -> dns.zone.Zone:
    """Make a zone with an invalid signature on each RRset that has a signature in a signed zone."""
    zone = dns.zone.from_text(text, origin, relativize=False)
    assert zone.origin is not None
    cuts = [name for name, _ in zone.iterate_rdatasets("NS") if name != zone.origin]
    for name, node in zone.nodes.items():
        for rdataset in list(node):
            at_cut, below = name in cuts, any(name.is_subdomain(cut) for cut in cuts)
            if below and not (at_cut and rdataset.rdtype in (dns.rdatatype.DS, dns.rdatatype.NSEC)):
                continue
            node.replace_rdataset(dns.rdataset.from_rdata(rdataset.ttl, fake_signature(name, rdataset.rdtype)))
    return zone


def fake_signature(name: dns.name.Name, rdtype: dns.rdatatype.RdataType) -> dns.rdata.Rdata:
    labels = len(name) - 1 - name.is_wild()
    covered = dns.rdatatype.to_text(rdtype)
    text = f"{covered} 13 {labels} 3600 20400101000000 20200101000000 1 example. {'A' * 86}=="
    return dns.rdata.from_text("IN", "RRSIG", text)


ZONES = {kind: load(text) for kind, text in VECTORS["zone"].items()}
SNAPSHOTS = {kind: snapshot_of_zones(zone) for kind, zone in ZONES.items()}


def ask(snapshot: Snapshot, name: str, rdtype: str, *, do: bool = True, payload: int = 1232) -> dns.message.Message:
    query = dns.message.make_query(name, rdtype, use_edns=0, payload=payload, want_dnssec=do)
    query.flags = dns.flags.Flag(0)
    wire = respond(query.to_wire(), snapshot)
    assert wire is not None
    assert len(wire) <= payload
    return dns.message.from_wire(wire)


def shown(section: list[dns.rrset.RRset]) -> list[str]:
    def kind(rrset: dns.rrset.RRset) -> str:
        covers = f" {dns.rdatatype.to_text(rrset.covers)}" if rrset.rdtype == dns.rdatatype.RRSIG else ""
        return dns.rdatatype.to_text(rrset.rdtype) + covers

    return sorted(f"{rrset.name.to_text().lower()} {kind(rrset)}" for rrset in section)


def expected(case: dict[str, Any], section: str) -> list[str]:
    listed = case.get(section, [])
    signed = [record.replace(". ", ". RRSIG ", 1) for record in listed if record not in case.get("unsigned", [])]
    return sorted([*listed, *signed])


@pytest.mark.parametrize("case", VECTORS["case"], ids=lambda case: case["title"])
def test_answer(case: dict[str, Any]) -> None:
    reply = ask(SNAPSHOTS[case["zone"]], case["name"], case["type"], do=case.get("do", True))
    assert dns.rcode.to_text(reply.rcode()) == case.get("rcode", "NOERROR")
    assert dns.flags.to_text(reply.flags) == f"QR {case.get('flags', 'AA')}".strip()
    for name, section in (("answer", reply.answer), ("authority", reply.authority), ("additional", reply.additional)):
        assert shown(section) == expected(case, name)
    assert bool(reply.ednsflags & dns.flags.DO) is case.get("do", True)


@pytest.mark.parametrize("kind", ["nsec", "nsec3"])
def test_rrsig_queries_are_answered_without_duplicates(kind: str) -> None:
    reply = ask(SNAPSHOTS[kind], "ns1.example.", "RRSIG")
    assert shown(reply.answer) == sorted(["ns1.example. RRSIG A"] + ["ns1.example. RRSIG NSEC"] * (kind == "nsec"))
    query = dns.message.make_query("xx.example.", "ANY", use_edns=0, want_dnssec=True)
    reply = dns.message.from_wire(respond(query.to_wire(), SNAPSHOTS[kind], transport=Transport.TCP) or b"")
    assert len(shown(reply.answer)) == len(set(shown(reply.answer)))
    types = ["A", "AAAA", "HINFO"] + ["NSEC"] * (kind == "nsec")
    assert shown(reply.answer) == sorted(f"xx.example. {prefix}{one}" for one in types for prefix in ("", "RRSIG "))


def test_proofs_along_a_cname_chain_are_not_repeated() -> None:
    text = (
        VECTORS["zone"]["nsec"]
        .replace("ai           A ", "c.w CNAME d.w\nai           A ")
        .replace("*.w          MX    1 ai", "*.w CNAME ml")
    )
    reply = ask(snapshot_of_zones(load(text)), "a.z.w.example.", "MX")
    assert reply.rcode() == dns.rcode.NXDOMAIN
    proofs = [record for record in shown(reply.authority) if record.endswith(" NSEC")]
    assert len(proofs) == len(set(proofs)) == 6  # three records and their signatures


def test_a_proof_that_does_not_fit_sets_tc() -> None:
    """RFC 4035 3.1.1: a client must not take a part of a proof for the whole."""
    reply = ask(SNAPSHOTS["nsec3"], "a.c.x.w.example.", "A", payload=512)
    assert reply.flags & dns.flags.TC
    assert not ask(SNAPSHOTS["nsec3"], "a.c.x.w.example.", "A").flags & dns.flags.TC


def with_parameters(*texts: str) -> str:
    kept = [line for line in VECTORS["zone"]["nsec3"].splitlines() if "NSEC3PARAM 1 0 12" not in line]
    return "\n".join([*kept, *(f"@ NSEC3PARAM {text}" for text in texts)]) + "\n"


@pytest.mark.parametrize("text", [f"1 0 {MAX_ITERATIONS + 1} -", "1 0 65535 aabbccdd", "2 0 12 aabbccdd", "1 1 12 -"])
def test_a_chain_that_cannot_be_used_is_refused(text: str) -> None:
    with pytest.raises(ZoneError, match=r"zone example\.: NSEC3"):
        view_zone(load(with_parameters(text)))


def test_the_nsec3_parameters_that_have_a_chain_are_used() -> None:
    zone = load(with_parameters("1 0 0 -", "1 0 12 aabbccdd", "9 0 12 aabbccdd"))
    assert shown(ask(snapshot_of_zones(zone), "ns1.example.", "MX").authority) == expected(
        {"authority": ["example. SOA", "2t7b4g4vsa5smi47k61mv5bv1a22bojr.example. NSEC3"]}, "authority"
    )


def test_an_incomplete_chain_gives_incomplete_proofs() -> None:
    """A proof of a damaged zone may be incomplete, but never raises an exception."""
    for kind, text in VECTORS["zone"].items():
        lines = text.splitlines()
        for number, line in enumerate(lines):
            if " NSEC" not in line:
                continue
            snapshot = snapshot_of_zones(load("\n".join(lines[:number] + lines[number + 1 :]) + "\n"))
            for case in VECTORS["case"]:
                if case["zone"] == kind:
                    ask(snapshot, case["name"], case["type"])


@pytest.mark.parametrize(
    "label", ["nohash", "35mthgpg", "35mthgpgcu1qg68fab165klnsnk3dpvw"], ids=["odd", "short", "past-v"]
)
def test_an_nsec3_owner_that_is_not_a_hash_is_refused(label: str) -> None:
    text = VECTORS["zone"]["nsec3"].replace("35mthgpgcu1qg68fab165klnsnk3dpvl NSEC3", f"{label} NSEC3")
    with pytest.raises(ZoneError, match=rf"{label}\.example\. has an NSEC3 record, and its first label is not a hash"):
        view_zone(load(text))


LABELS = st.sampled_from([b"a", b"b", b"w", b"x", b"y", b"z", b"*", b"\0", b"\xff", b"ns1", b"xx", b"WWW"])
TYPES = st.sampled_from(["A", "MX", "DS", "TXT", "NSEC", "ANY"])


@given(st.lists(LABELS, max_size=5), TYPES, st.sampled_from([512, 1232]))
def test_rfc4035_5_4_each_nsec_proof_is_complete(labels: list[bytes], rdtype: str, payload: int) -> None:
    """The response has the records that a validator needs, by dnspython's order of names."""
    name = dns.name.Name((*labels, b"example", b""))
    reply = ask(SNAPSHOTS["nsec"], name.to_text(), rdtype, payload=payload)
    if reply.flags & dns.flags.TC or reply.answer or not reply.flags & dns.flags.AA:
        return
    origin = dns.name.from_text("example.")
    proofs = {rrset.name: rrset[0] for rrset in reply.authority if rrset.rdtype == dns.rdatatype.NSEC}

    def covered(absent: dns.name.Name) -> bool:
        return any(
            owner < absent and (absent < nsec.next or nsec.next == origin) and not nsec.next.is_subdomain(absent)
            for owner, nsec in proofs.items()
        )

    exists = {above for owner in ZONES["nsec"].nodes for above in _at_and_above(owner)}
    encloser = next(above for above in _at_and_above(name) if above in exists)
    wildcard = dns.name.Name((b"*", *encloser.labels))
    if reply.rcode() == dns.rcode.NXDOMAIN:
        assert covered(name)
        assert covered(wildcard)
    elif encloser != name:
        assert covered(name)
        assert wildcard in proofs
    else:
        assert name in proofs or any(nsec.next.is_subdomain(name) for nsec in proofs.values())


def _at_and_above(name: dns.name.Name) -> list[dns.name.Name]:
    return [name] if len(name) <= 2 else [name, *_at_and_above(name.parent())]
