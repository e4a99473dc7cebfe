"""What NSEC and NSEC3 records prove, section by section, and what they may cost. Signatures are not checked here."""

from __future__ import annotations

from typing import Any

import dns.name
import dns.rdatatype
import dns.rrset
import dns.zone
import pytest

from maptr.resolver.validation.denial import BOGUS_ITERATIONS, INSECURE_ITERATIONS, Nsec3Proofs, NsecProofs
from maptr.resolver.validation.signed import MAX_HASHES, Bogus, VerifiedRRset, WorkBudget
from tests.support.answers import load_vectors

VECTORS = load_vectors("validation")
ZONES = {**load_vectors("dnssec")["zone"], **VECTORS["zone"]}
ORIGIN = dns.name.from_text("example.")
CASES = VECTORS["case"]


def records(case: dict[str, Any], wanted: list[str]) -> list[VerifiedRRset]:
    text = ZONES[case["zone"]]
    if not case.get("opt_out", True):
        text = text.replace(" NSEC3 1 1 ", " NSEC3 1 0 ")
    zone = dns.zone.from_text(text, ORIGIN, relativize=False)
    found = []
    for record in wanted:
        owner, rdtype = record.split()
        rdataset = zone.find_rdataset(owner, rdtype)
        found.append(signed(dns.rrset.from_rdata_list(owner, 3600, list(rdataset))))
    return found


def signed(rrset: dns.rrset.RRset) -> VerifiedRRset:
    return VerifiedRRset(rrset, 0, 3600)


def verdict(case: dict[str, Any], wanted: list[str]) -> str:
    found = records(case, wanted)
    name = dns.name.from_text(case["name"])
    try:
        proofs = Nsec3Proofs(ORIGIN, found, WorkBudget()) if case["zone"] == "nsec3" else NsecProofs(ORIGIN, found)
        match case["proves"]:
            case "name_error":
                return proofs.name_error(name)
            case "wildcard":
                return proofs.wildcard(name, dns.name.from_text(case["encloser"]))
            case "cut":
                return str(proofs.cut(name)).lower()
        return proofs.no_data(name, dns.rdatatype.from_text(case["type"]))
    except Bogus:
        return "bogus"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["title"])
def test_vectors(case: dict[str, Any]) -> None:
    assert verdict(case, case["records"]) == case["verdict"]


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c["verdict"] in ("secure", "insecure") and c["proves"] != "cut"],
    ids=lambda case: case["title"],
)
def test_every_record_of_a_proof_is_needed(case: dict[str, Any]) -> None:
    for record in case["records"]:
        assert verdict(case, [other for other in case["records"] if other != record]) == "bogus"


def hashed(name: str, text: str) -> VerifiedRRset:
    return signed(dns.rrset.from_text(f"{name}.example.", 60, "IN", "NSEC3", text))


LABEL, AFTER = "0p9mhaveqvm6t7vbl5lop2u3t2rp3tom", "2t7b4g4vsa5smi47k61mv5bv1a22bojr"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (LABEL, f"2 0 12 aabbccdd {AFTER} A"),  # RFC 5155 8.1: another hash
        (LABEL, f"1 2 12 aabbccdd {AFTER} A"),  # 8.2: a flag that is not known
        (LABEL, "1 0 12 aabbccdd 2t7b4g4v A"),  # a hash of another length
        ("nohash!", f"1 0 12 aabbccdd {AFTER} A"),
        (f"{LABEL[:-1]}w", f"1 0 12 aabbccdd {AFTER} A"),  # no Base 32 with extended hex alphabet (RFC 4648 7)
        (f"x.{LABEL}", f"1 0 12 aabbccdd {AFTER} A"),  # not directly below the apex
    ],
)
def test_nsec3_records_that_are_ignored(name: str, text: str) -> None:
    with pytest.raises(Bogus, match="no proof"):
        Nsec3Proofs(ORIGIN, [hashed(name, text)], WorkBudget())


def test_nsec3_records_of_other_parameters_are_ignored() -> None:
    """RFC 5155 8.2."""
    name = dns.name.from_text("ns1.example.")
    good = hashed(AFTER, f"1 0 12 aabbccdd {LABEL} A RRSIG")
    other = hashed(LABEL, f"1 0 13 aabbccdd {AFTER} A RRSIG")
    proofs = Nsec3Proofs(ORIGIN, [good, other], WorkBudget())
    assert len(proofs.links) == 1
    assert proofs.no_data(name, dns.rdatatype.NAPTR) == "secure"


def test_iterations() -> None:
    """RFC 9276 3.2: a zone that wants many is insecure, one that wants yet more bogus."""
    name = dns.name.from_text("nothing.example.")

    def ask(iterations: int) -> set[str]:
        found = Nsec3Proofs(ORIGIN, [hashed(LABEL, f"1 0 {iterations} - {AFTER} A")], WorkBudget())
        assert found.cut(name)
        return {found.name_error(name), found.no_data(name, dns.rdatatype.NAPTR), found.wildcard(name, ORIGIN)}

    with pytest.raises(Bogus, match="does not exist"):
        ask(INSECURE_ITERATIONS)
    assert ask(INSECURE_ITERATIONS + 1) == ask(BOGUS_ITERATIONS) == {"insecure"}
    with pytest.raises(Bogus, match="501 iterations"):
        ask(BOGUS_ITERATIONS + 1)


def test_hashing_is_bounded() -> None:
    """CVE-2023-50868: names of many labels, each to be hashed many times, in one question after the other."""
    name = dns.name.from_text("a." * 120 + "example.")
    record = hashed(LABEL, f"1 0 {INSECURE_ITERATIONS} - {AFTER} A")
    budget = WorkBudget()
    for reason in ("no NSEC3 says", f"{MAX_HASHES} rounds", f"{MAX_HASHES} rounds"):
        proofs = Nsec3Proofs(ORIGIN, [record], budget)
        with pytest.raises(Bogus, match=reason):
            proofs.name_error(name)
