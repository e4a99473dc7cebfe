"""discover() through a caching, validating Unbound to a signed zone, and to a forged one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dns.rdataset
import dns.resolver
import dns.rrset
import pytest

from maptr import discover, discover_async, discover_many
from maptr.discovery import DiscoveryFailed
from tests.support.command_line import run
from tests.support.drivers import at, by_async, by_discover, by_resolver, resolver_of
from tests.support.peers import Maptr, Nsd, Unbound
from tests.support.signers import signed_zone

RECORDS = """\
1 NAPTR 0 0 "h" "ark" "" h.example.
2 NAPTR 0 0 "" "ark" "" two.split.ark.arpa.
two.split NAPTR 0 0 "h" "ark" "" split.example.
3 NAPTR 0 0 "h" "ark" "" forged.example.
"""


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unbound]:
    zone, key = signed_zone("ark.arpa.", RECORDS)
    # Forged after signing.
    zone.replace_rdataset("3.ark.arpa.", dns.rdataset.from_text("IN", "NAPTR", 300, '0 0 "h" "ark" "" evil.example.'))
    signed = tmp_path_factory.mktemp("signed") / "ark.arpa.zone"
    zone.to_file(str(signed), relativize=False)
    anchor = dns.rrset.from_rdata("ark.arpa.", 300, key).to_text()
    with Nsd({"ark.arpa.": signed}) as server, Unbound({"ark.arpa.": server}, [anchor]) as running:
        yield running


def test_signed_answers_are_secure_by_every_driver(resolver: Unbound) -> None:
    for ark, url in (("ark:1/x", "https://h.example/ark:1/x"), ("ark:2/x", "https://split.example/ark:2/x")):
        found = by_discover(ark, resolver, trust_ad=True, require="secure")
        assert found.security == "secure"
        assert found.url() == url
        assert by_resolver(ark, resolver, trust_ad=True) == found
        assert by_async(ark, resolver, trust_ad=True) == found
        assert list(discover_many([ark], nameservers=[at(resolver)], trust_ad=True)) == [found]
        assert by_discover(ark, resolver).security == "indeterminate"


def test_a_forged_answer_is_bogus_and_no_candidate(resolver: Unbound) -> None:
    asked = resolver_of(resolver, dns.resolver.Resolver)
    asked.use_edns(0, 0, 1232)
    ways: tuple[dict[str, Any], ...] = ({"nameservers": [at(resolver)]}, {"resolver": asked})
    for options in ways:
        with pytest.raises(DiscoveryFailed) as caught:
            discover("ark:3/x", trust_ad=True, **options)
        assert caught.value.discovery is not None
        assert caught.value.discovery.security == "bogus"
        assert not caught.value.discovery.candidates


def test_the_sample_signed_and_served_by_maptr_through_unbound(sample: Path, tmp_path: Path) -> None:
    """The AD bit of a resolver that validates, and our own validation through it: the same by every driver."""
    run("zone", "keys", "add", tmp_path / "keys", code=0)
    run("zone", "sign", sample.with_name("ark.arpa.zone"), tmp_path / "keys", "-o", tmp_path / "signed", code=0)
    anchors = run("zone", "keys", "ds", tmp_path / "keys", "ark.arpa.", code=0).stdout
    (tmp_path / "anchor").write_text(anchors)
    arks = ["ark:12345/x6np1wh8k?info", "ark:12345/x54", "ark:12027/x1", "ark:00000/x1"]
    with (
        Maptr({"ark.arpa.": tmp_path / "signed"}) as server,
        Unbound({"ark.arpa.": server}, anchors.splitlines()) as resolver,
    ):
        through, direct = [at(resolver)], [at(server)]
        ways: list[tuple[list[str], dict[str, Any]]] = [
            (through, {"trust_ad": True, "require": "secure", "raise_on_none": False}),
            (through, {"trust_anchors": tmp_path / "anchor", "require": "secure", "raise_on_none": False}),
            (direct, {"trust_anchors": tmp_path / "anchor", "require": "secure", "raise_on_none": False}),
        ]
        found = [[discover(ark, nameservers=servers, **options) for ark in arks] for servers, options in ways]
        assert found[0] == found[1] == found[2]
        assert [len(discovery) > 0 for discovery in found[0]] == [True, True, True, False]
        for servers, options in ways:
            awaited = [asyncio.run(discover_async(ark, nameservers=servers, **options)) for ark in arks]
            assert awaited == found[0]
        assert list(discover_many(arks, nameservers=through, trust_ad=True)) == found[0]
        assert list(discover_many(arks, nameservers=direct, trust_anchors=tmp_path / "anchor")) == found[0]
