"""ZONEMD (RFC 8976): computing and verifying the digest of a zone."""

from __future__ import annotations

import contextlib

import dns.rdataset
import dns.zone
import dns.zonetypes
import pytest

from maptr.dnssec.policy import SigningPolicy
from maptr.dnssec.sign import Renewal
from maptr.errors import ZoneError
from maptr.zone.zonemd import check_digest, zone_digest
from tests.support.signing import NOW, one_key, random_view, to_zone
from tests.support.zones import view_of, view_zone, zone_of, zonemd_of


@pytest.mark.parametrize("kind", [1, 2], ids=["SHA-384", "SHA-512"])
def test_rfc8976_the_digest_is_that_of_dnspython(kind: int) -> None:
    for seed in range(20):
        signed = Renewal(one_key(), SigningPolicy(), NOW).renew(random_view(seed), None)
        expected = to_zone(signed).compute_digest(dns.zonetypes.DigestHashAlgorithm(kind))
        assert zone_digest(signed, kind) == expected.digest


def test_rfc8976_4_a_digest_is_verified() -> None:
    digested = zone_of("a A 192.0.2.2\nb A 192.0.2.2")
    digested.replace_rdataset("ark.arpa.", zonemd_of(digested))
    check_digest(view_zone(digested))
    digested.delete_node("b.ark.arpa.")
    with pytest.raises(ZoneError, match="ZONEMD does not verify"):
        check_digest(view_zone(digested))
    other = zone_of("a A 192.0.2.2", 2)
    other.replace_rdataset("ark.arpa.", zonemd_of(zone_of("a A 192.0.2.2")))
    with pytest.raises(ZoneError, match="ZONEMD is for serial 1, but the zone has serial 2"):
        check_digest(view_zone(other))


def test_rfc8976_2_two_digests_by_one_hash_do_not_verify() -> None:
    digested = zone_of("a A 192.0.2.2")
    (zonemd,) = zonemd_of(digested)
    other = zonemd.replace(digest=bytes(48))
    for records, good in (([zonemd, other], False), ([zonemd, other.replace(serial=2)], True), ([other], False)):
        digested.replace_rdataset("ark.arpa.", dns.rdataset.from_rdata_list(60, records))
        with contextlib.nullcontext() if good else pytest.raises(ZoneError, match="ZONEMD does not verify"):
            check_digest(view_zone(digested))


def test_rfc8976_4_a_digest_of_an_unknown_kind_is_ignored() -> None:
    for text in ("@ ZONEMD 1 1 240 " + "00" * 48, "@ ZONEMD 1 240 1 " + "00" * 48, ""):
        check_digest(view_of(text))
