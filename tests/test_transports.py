"""The other ways to ask, through dnspython's resolvers: DNS over TLS to our own server, and IPv6 by our own stub."""

from __future__ import annotations

import asyncio
import gc
import socket
from pathlib import Path

import dns.asyncresolver
import dns.nameserver
import dns.resolver
import pytest

from maptr import discover, discover_async, discover_many
from maptr.errors import DiscoveryFailed
from tests.certificates import write_certificate
from tests.peers import HOST, Maptr, free_port

ARK = "ark:12345/x60np1wh8k"
ZONE = Path(__file__).parent.parent / "zones" / "ark.arpa.zone"


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # dnspython leaves its TLS transport to the collector
def test_dns_over_tls_through_the_callers_resolver(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    port = free_port()
    options = (f"--tls-listen={HOST}:{port}", f"--tls-cert={tmp_path}/tls.crt", f"--tls-key={tmp_path}/tls.key")
    with Maptr({"ark.arpa.": ZONE}, *options) as server:
        plain = discover(ARK, nameservers=[f"{server.host}#{server.port}"])
        over_tls = dns.nameserver.DoTNameserver(HOST, port, hostname="ns1.example", verify=str(tmp_path / "tls.crt"))
        resolver = dns.resolver.Resolver(configure=False)
        resolver.nameservers = [over_tls]
        awaited = dns.asyncresolver.Resolver(configure=False)
        awaited.nameservers = [over_tls]
        assert discover(ARK, resolver=resolver) == plain
        assert asyncio.run(discover_async(ARK, resolver=awaited)) == plain
        resolver.nameservers = [dns.nameserver.DoTNameserver(HOST, port, hostname="other.example")]
        with pytest.raises(DiscoveryFailed):  # a certificate that nobody vouches for
            discover(ARK, resolver=resolver, lifetime=2)
    gc.collect()


def test_ipv6() -> None:
    if not _has_ipv6():
        pytest.skip("no IPv6 loopback here")
    with Maptr({"ark.arpa.": ZONE}) as server:
        plain = discover(ARK, nameservers=[f"{server.host}#{server.port}"])
    port = free_port()
    with Maptr({"ark.arpa.": ZONE}, f"--listen=[::1]:{port}") as server:
        servers = [f"::1#{port}"]
        assert discover(ARK, nameservers=servers) == plain
        assert asyncio.run(discover_async(ARK, nameservers=servers)) == plain
        assert list(discover_many([ARK], nameservers=servers)) == [plain]


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True
