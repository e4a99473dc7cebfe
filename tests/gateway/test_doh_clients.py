"""Real clients of DNS over HTTPS: dnspython, maptr itself and curl with HTTP/1.1, kdig with HTTP/2 through proxies."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import dns.message
import dns.query
import dns.rdatatype
import pytest

import maptr
from maptr.client import Client
from maptr.config import ZoneConfig
from maptr.config.model import GatewayConfig, read_name
from maptr.gateway.service import Service
from maptr.registry.table import Table
from tests.support.certificates import write_certificate
from tests.support.http_gateway import LOOPBACK, running_service
from tests.support.peers import run
from tests.support.web_servers import WebServer

ZONE = (
    "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\nwww 60 A 127.0.0.1\n"
    '12345 600 NAPTR 0 0 "h" "ark" "" h.example.\n'
)
QUERY = dns.message.make_query("12345.ark.arpa.", "NAPTR", use_edns=0, pad=128)


def zone(folder: Path) -> ZoneConfig:
    path = folder / "ark.arpa.zone"
    path.write_text(ZONE)
    return ZoneConfig(read_name("ark.arpa."), path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("doh")
    write_certificate(made)
    return made


@pytest.fixture(scope="module")
def https(folder: Path) -> Iterator[str]:
    """The URL of the service, with TLS."""
    settings = GatewayConfig(listen=(LOOPBACK,), certificate=folder / "tls.crt", key=folder / "tls.key")
    client = Client(table=Table(), policy="natab-only")
    with running_service(client, zones=(zone(folder),), gateway=settings) as service:
        yield f"{service.urls[0]}dns-query"


@pytest.fixture(scope="module")
def plain(folder: Path) -> Iterator[Service]:
    with running_service(Client(table=Table(), policy="natab-only"), zones=(zone(folder),)) as service:
        yield service


@pytest.mark.parametrize("post", [True, False], ids=["POST", "GET"])
def test_dnspython_queries_by_doh(https: str, folder: Path, post: bool) -> None:
    context = ssl.create_default_context(cafile=folder / "tls.crt")
    reply = dns.query.https(QUERY, https, verify=context, post=post)
    assert reply.answer[0].ttl == 600
    assert reply.answer[0].rdtype == dns.rdatatype.NAPTR


def test_maptr_queries_by_doh(https: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "tls.crt"))
    assert maptr.discover("ark:12345/x1", nameservers=[https]).url() == "https://h.example/ark:12345/x1"


def test_curl_resolves_names(https: str) -> None:
    """``--doh-url`` asks for A and AAAA, by POST."""
    url = https.replace("127.0.0.1", "www.ark.arpa").replace("dns-query", "health")
    asked = run("curl", "-sS", "-k", "--noproxy", "*", "--doh-insecure", "--doh-url", https, url)
    assert asked == (True, "ok\n")


class Proxy(WebServer):
    """A web server with HTTP/2 in front of a gateway; ``exported`` is the address of the gateway."""

    @property
    def usage(self) -> str:
        return ""

    def values(self) -> dict[str, object]:
        return {**super().values(), "gateway": self.exported}

    def configure(self) -> list[str]:
        write_certificate(self.directory)
        return super().configure()


class NginxProxy(Proxy):
    name = "nginx"
    commands = ("nginx",)
    files = ("nginx-proxy.conf",)
    arguments = "-p $directory -e $directory/log -c $directory/nginx-proxy.conf"


class CaddyProxy(Proxy):
    name = "caddy"
    commands = ("caddy",)
    files = ("caddy-proxy.conf",)
    arguments = "run --adapter caddyfile --config $directory/caddy-proxy.conf"


@pytest.mark.parametrize("proxy", [NginxProxy, CaddyProxy])
def test_kdig_through_a_proxy(proxy: type[Proxy], plain: Service) -> None:
    """kdig speaks HTTP/2 alone, the gateway HTTP/1.1."""
    with proxy(str(plain.bound[0])) as server:
        ca = server.directory / "tls.crt"
        for form in ("+https", "+https-get"):
            options = ("+tls-hostname=localhost", f"+tls-ca={ca}", "+padding", form, "+short")
            asked = run("kdig", "@127.0.0.1", "-p", server.port, *options, "12345.ark.arpa.", "NAPTR")
            assert asked == (True, '0 0 "h" "ark" "" h.example.\n'), server.log()
