"""discover() through a caching, validating Unbound to a signed zone, and to a forged one."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import dns.dnssec
import dns.dnssectypes
import dns.message
import dns.query
import dns.rdataclass
import dns.rdatatype
import dns.resolver
import dns.rrset
import dns.zone
import pytest
from click.testing import CliRunner

from maptr import discover, discover_async, discover_many
from maptr.cli.group import main
from maptr.client.call import CallOptions
from maptr.discovery import DiscoveryFailed, NoMappingAuthority
from tests.support.peers import HOST, START_SECONDS, Maptr, Nsd, Unbound, end, find, free_port, require

ZONE = """\
$ORIGIN ark.arpa.
$TTL 300
@ SOA ns.example. admin.example. 1 3600 600 86400 60
@ NS ns.example.
1 NAPTR 0 0 "h" "ark" "" h.example.
2 NAPTR 0 0 "" "ark" "" two.split.ark.arpa.
two.split NAPTR 0 0 "h" "ark" "" split.example.
3 NAPTR 0 0 "h" "ark" "" forged.example.
"""


@contextmanager
def unbound(upstream: Nsd, anchor: str) -> Iterator[str]:
    """A validating resolver that has one trust anchor and asks one server for ark.arpa."""
    directory = Path(tempfile.mkdtemp(prefix="maptr-unbound-"))
    port = free_port()
    config = directory / "unbound.conf"
    config.write_text(
        f"""\
server:
    interface: {HOST}@{port}
    directory: "{directory}"
    chroot: ""
    username: ""
    pidfile: ""
    use-syslog: no
    do-daemonize: no
    do-not-query-localhost: no
    module-config: "validator iterator"
    trust-anchor: "{anchor}"
    ede: yes
    local-zone: "arpa." nodefault
remote-control:
    control-enable: no
stub-zone:
    name: "ark.arpa."
    stub-addr: {upstream.host}@{upstream.port}
"""
    )
    process = subprocess.Popen(
        [find("unbound") or "unbound", "-d", "-c", str(config)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        query = dns.message.make_query("ark.arpa.", "SOA")
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(dns.exception.Timeout, OSError):
                if dns.query.udp(query, HOST, port=port, timeout=0.5).answer:
                    break
            time.sleep(0.05)
        else:
            pytest.fail("unbound did not start", pytrace=False)
        yield f"{HOST}#{port}"
    finally:
        end(process)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require("unbound", *Nsd.commands)
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives.asymmetric import ec

    zone = dns.zone.from_text(ZONE, "ark.arpa.", relativize=False)
    private = ec.generate_private_key(ec.SECP256R1())
    key = dns.dnssec.make_dnskey(private.public_key(), dns.dnssectypes.Algorithm.ECDSAP256SHA256, flags=257)
    with zone.writer() as transaction:
        dns.dnssec.sign_zone(zone, transaction, [(private, key)], lifetime=86400, dnskey_ttl=300)
    # Forged after signing.
    zone.replace_rdataset("3.ark.arpa.", dns.rdataset.from_text("IN", "NAPTR", 300, '0 0 "h" "ark" "" evil.example.'))
    signed = tmp_path_factory.mktemp("signed") / "ark.arpa.zone"
    zone.to_file(str(signed), relativize=False)
    anchor = dns.rrset.from_rdata("ark.arpa.", 300, key).to_text()
    with Nsd({"ark.arpa.": signed}) as server, unbound(server, anchor) as name:
        yield name


def test_signed_answers_are_secure_by_every_driver(resolver: str) -> None:
    asked = dns.resolver.Resolver(configure=False)
    host, _, port = resolver.partition("#")
    asked.nameservers, asked.port = [host], int(port)
    for ark, url in (("ark:1/x", "https://h.example/ark:1/x"), ("ark:2/x", "https://split.example/ark:2/x")):
        found = discover(ark, nameservers=[resolver], trust_ad=True, require="secure")
        assert found.security == "secure"
        assert found.url() == url
        assert discover(ark, resolver=asked, trust_ad=True) == found
        assert asyncio.run(discover_async(ark, nameservers=[resolver], trust_ad=True)) == found
        assert list(discover_many([ark], nameservers=[resolver], trust_ad=True)) == [found]
        assert discover(ark, nameservers=[resolver]).security == "indeterminate"


def test_a_signed_no_is_secure_too(resolver: str) -> None:
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
    asked = dns.resolver.Resolver(configure=False)
    host, _, port = resolver.partition("#")
    asked.nameservers, asked.port = [host], int(port)
    asked.use_edns(0, 0, 1232)
    with pytest.raises(DiscoveryFailed) as caught:
        discover("ark:3/x", resolver=asked, trust_ad=True)
    assert caught.value.discovery is not None
    assert caught.value.discovery.security == "bogus"


def test_the_sample_signed_and_served_by_maptr_through_unbound(tmp_path: Path) -> None:
    """The AD bit of a resolver that validates, and our own validation through it: the same by every driver."""
    require("unbound")
    pytest.importorskip("cryptography")
    sample = Path(__file__).resolve().parents[2] / "zones" / "ark.arpa.zone"
    for command in (
        ["keys", "add", f"{tmp_path}/keys"],
        ["sign", str(sample), f"{tmp_path}/keys", "-o", f"{tmp_path}/signed"],
        ["keys", "ds", f"{tmp_path}/keys", "ark.arpa."],
    ):
        done = CliRunner().invoke(main, ["zone", *command])
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
