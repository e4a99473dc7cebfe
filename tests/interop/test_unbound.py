"""discover() through a caching, validating Unbound to a signed zone, and to a forged one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import dns.rdataset
import dns.resolver
import dns.rrset
import pytest

from maptr import discover, discover_async, discover_many
from maptr.client.call import CallOptions
from maptr.discovery import DiscoveryFailed, NoMappingAuthority
from tests.support.command_line import run
from tests.support.peers import Maptr, Nsd, Unbound
from tests.support.signers import signed_zone

RECORDS = """\
1 NAPTR 0 0 "h" "ark" "" h.example.
2 NAPTR 0 0 "" "ark" "" two.split.ark.arpa.
two.split NAPTR 0 0 "h" "ark" "" split.example.
3 NAPTR 0 0 "h" "ark" "" forged.example.
"""


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    zone, key = signed_zone("ark.arpa.", RECORDS)
    # Forged after signing.
    zone.replace_rdataset("3.ark.arpa.", dns.rdataset.from_text("IN", "NAPTR", 300, '0 0 "h" "ark" "" evil.example.'))
    signed = tmp_path_factory.mktemp("signed") / "ark.arpa.zone"
    zone.to_file(str(signed), relativize=False)
    anchor = dns.rrset.from_rdata("ark.arpa.", 300, key).to_text()
    with Nsd({"ark.arpa.": signed}) as server, Unbound({"ark.arpa.": server}, [anchor]) as running:
        yield f"{running.host}#{running.port}"


def resolver_at(name: str) -> dns.resolver.Resolver:
    """dnspython's resolver."""
    made = dns.resolver.Resolver(configure=False)
    host, _, port = name.partition("#")
    made.nameservers, made.port = [host], int(port)
    return made


def test_signed_answers_are_secure_by_every_driver(resolver: str) -> None:
    asked = resolver_at(resolver)
    for ark, url in (("ark:1/x", "https://h.example/ark:1/x"), ("ark:2/x", "https://split.example/ark:2/x")):
        found = discover(ark, nameservers=[resolver], trust_ad=True, require="secure")
        assert found.security == "secure"
        assert found.url() == url
        assert discover(ark, resolver=asked, trust_ad=True) == found
        assert asyncio.run(discover_async(ark, nameservers=[resolver], trust_ad=True)) == found
        assert list(discover_many([ark], nameservers=[resolver], trust_ad=True)) == [found]
        assert discover(ark, nameservers=[resolver]).security == "indeterminate"


def test_a_signed_denial_is_secure_too(resolver: str) -> None:
    with pytest.raises(NoMappingAuthority) as caught:
        discover("ark:4/x", nameservers=[resolver], trust_ad=True)
    assert caught.value.discovery is not None
    assert caught.value.discovery.security == "secure"


def test_a_forged_answer_is_bogus_and_no_candidate(resolver: str) -> None:
    with pytest.raises(DiscoveryFailed) as caught:
        discover("ark:3/x", nameservers=[resolver], trust_ad=True)
    assert caught.value.discovery is not None
    assert caught.value.discovery.security == "bogus"
    assert not caught.value.discovery.candidates
    asked = resolver_at(resolver)
    asked.use_edns(0, 0, 1232)
    with pytest.raises(DiscoveryFailed) as caught:
        discover("ark:3/x", resolver=asked, trust_ad=True)
    assert caught.value.discovery is not None
    assert caught.value.discovery.security == "bogus"


def test_the_sample_signed_and_served_by_maptr_through_unbound(sample: Path, tmp_path: Path) -> None:
    """The AD bit of a resolver that validates, and our own validation through it: the same by every driver."""
    zone = sample.with_name("ark.arpa.zone")
    for command in (
        ["keys", "add", f"{tmp_path}/keys"],
        ["sign", str(zone), f"{tmp_path}/keys", "-o", f"{tmp_path}/signed"],
        ["keys", "ds", f"{tmp_path}/keys", "ark.arpa."],
    ):
        done = run("zone", *command)
        assert done.exit_code == 0, done.output
    (tmp_path / "anchor").write_text(done.stdout)
    arks = ["ark:12345/x6np1wh8k?info", "ark:12345/x54", "ark:12027/x1", "ark:00000/x1"]
    with (
        Maptr({"ark.arpa.": tmp_path / "signed"}) as server,
        Unbound({"ark.arpa.": server}, done.stdout.splitlines()) as resolver,
    ):
        through, direct = [f"{resolver.host}#{resolver.port}"], [f"{server.host}#{server.port}"]
        ways: list[tuple[list[str], CallOptions]] = [
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
