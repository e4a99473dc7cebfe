"""DNS over HTTPS without sockets: RFC 8484, and the hostile messages of the general path's tests."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import dns.message
import dns.query
import dns.rcode
import dns.rdatatype
import pytest
from dns.edns import GenericOption, OptionType
from hypothesis import given
from hypothesis import strategies as st

import maptr
from maptr.answer.context import Context, Identity, Transport
from maptr.answer.message import PADDING_BLOCK
from maptr.answer.respond import respond as general
from maptr.client import Client
from maptr.config import ZoneConfig
from maptr.config.model import GatewayConfig, read_name
from maptr.gateway.doh import DNS_MESSAGE, PATH, freshness
from maptr.gateway.message import Response
from maptr.gateway.route import route
from maptr.gateway.server import MAX_BODY
from maptr.gateway.service import Service
from maptr.gateway.site import Site
from maptr.protocol.names import Folded
from maptr.registry.table import Table
from maptr.transfer.acl import TsigKey
from maptr.transfer.tsig import BADKEY, find, sign_query
from tests.support.answers import PACKETS, SNAPSHOT, snapshot_of
from tests.support.certificates import write_certificate
from tests.support.http_gateway import LOOPBACK, running_service
from tests.support.peers import run
from tests.support.web_servers import WebServer

SITE = Site(zones=SNAPSHOT)
POST = {"content-type": DNS_MESSAGE, "accept": DNS_MESSAGE}
TTLS = snapshot_of(
    "@ 3600 SOA ns h 1 2 3 4 300\n@ 3600 NS ns\nns 60 A 192.0.2.1\nwww 600 A 192.0.2.2\ntwo 500 CNAME www\n"
    "mail 900 MX 1 ns\ncut 200 NS ns.cut\nns.cut 100 A 192.0.2.3\n"
)


def encoded(message: bytes) -> str:
    return base64.urlsafe_b64encode(message).rstrip(b"=").decode()


def ask(
    target: str, method: str = "GET", headers: dict[str, str] | None = None, body: bytes = b"", site: Site = SITE
) -> Response:
    answer = route(method, target, headers or {}, site, body=body, client="192.0.2.9")
    assert isinstance(answer, Response)
    return answer


def get(query: bytes, site: Site = SITE, **headers: str) -> Response:
    return ask(f"{PATH}?dns={encoded(query)}", headers=headers, site=site)


def post(query: bytes, site: Site = SITE) -> Response:
    return ask(PATH, "POST", POST, query, site)


def query(name: str, rdtype: str, **options: object) -> bytes:
    return dns.message.make_query(name, rdtype, id=0, **options).to_wire()  # type: ignore[arg-type]


def test_the_example_of_the_rfc() -> None:
    """RFC 8484 4.1.1: www.example.com for type A, with ID 0."""
    example = "AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB"
    response = ask(f"{PATH}?dns={example}", headers={"accept": DNS_MESSAGE})
    assert (response.status, response.header("content-type")) == (HTTPStatus.OK, DNS_MESSAGE)
    said = dns.message.from_wire(response.body)
    assert (said.id, said.rcode(), said.question[0].to_text()) == (0, dns.rcode.REFUSED, "www.example.com. IN A")


@pytest.mark.parametrize("case", PACKETS["case"], ids=lambda case: case["title"])
def test_the_vectors_of_hostile_packets(case: dict[str, str]) -> None:
    check(bytes.fromhex(case["packet"]))


@given(st.binary(max_size=600))
def test_any_bytes(message: bytes) -> None:
    check(message)


def check(message: bytes) -> None:
    """GET and POST give the bytes of the general path, or a problem where that is silent."""
    expected = general(message, SNAPSHOT, transport=Transport.TLS)
    for response in (get(message), post(message)):
        if expected is None:
            assert response.status == HTTPStatus.BAD_REQUEST
            continue
        assert (response.status, response.body) == (HTTPStatus.OK, expected)
        assert response.header("cache-control") in ("no-store", f"max-age={freshness(expected)}")


@pytest.mark.parametrize(
    ("target", "method", "headers", "body", "status", "reason"),
    [
        (PATH, "GET", {}, b"", 400, "the parameter dns is missing"),
        (f"{PATH}?name=example.&type=A", "GET", {}, b"", 400, "the parameter dns is missing"),
        (f"{PATH}?dns=AAAA&dns=AAAA", "GET", {}, b"", 400, "dns is given twice"),
        (f"{PATH}?dns=", "GET", {}, b"", 400, "not a DNS query"),
        (f"{PATH}?dns=AAAA", "GET", {}, b"", 400, "not a DNS query"),
        (f"{PATH}?dns=AAA=", "GET", {}, b"", 400, "base64url"),  # RFC 8484 6: no padding
        (f"{PATH}?dns=AA%2FA", "GET", {}, b"", 400, "base64url"),
        (f"{PATH}?dns=AAAAA", "GET", {}, b"", 400, "base64url"),
        (f"{PATH}?dns=%00%ff\udcff", "GET", {}, b"", 400, "base64url"),
        (f"{PATH}?dns=AAAA", "HEAD", {}, b"", 400, "not a DNS query"),
        (f"{PATH}?dns=AAAA", "GET", {"accept": "text/html, image/*"}, b"", 406, DNS_MESSAGE),
        (f"{PATH}?dns=AAAA", "GET", {"accept": f"{DNS_MESSAGE};q=0, */*"}, b"", 406, DNS_MESSAGE),
        (PATH, "POST", {}, b"\0" * 12, 415, DNS_MESSAGE),
        (PATH, "POST", {"content-type": "application/dns-json"}, b"\0" * 12, 415, DNS_MESSAGE),
        (PATH, "POST", POST, b"", 400, "not a DNS query"),
        (PATH, "POST", POST, bytes(65_536), 413, "65535"),
        (PATH, "PUT", POST, b"", 405, "PUT"),
    ],
)
def test_invalid_doh_requests_are_refused(
    target: str, method: str, headers: dict[str, str], body: bytes, status: int, reason: str
) -> None:
    response = ask(target, method, headers, body)
    assert response.status == status
    assert reason in response.body.decode()
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        assert response.header("allow") == "GET, HEAD, OPTIONS, POST"


def test_the_largest_message_is_within_the_limit_of_a_body() -> None:
    assert MAX_BODY > 65_535
    assert post(query("www.example.", "A") + bytes(65_000)).status == HTTPStatus.OK


@pytest.mark.parametrize("accept", [DNS_MESSAGE, "*/*", "application/*;q=0.1", "text/html, */*;q=0.01", ""])
def test_accepted_types(accept: str) -> None:
    assert get(query("www.example.", "A"), accept=accept).status == HTTPStatus.OK


def test_the_media_type_may_have_parameters_and_any_case() -> None:
    headers = {"content-type": "Application/DNS-Message; charset=binary"}
    assert ask(PATH, "POST", headers, query("www.example.", "A")).status == HTTPStatus.OK


def test_without_zones_there_is_no_service() -> None:
    assert get(query("www.example.", "A"), Site()).status == HTTPStatus.NOT_FOUND


@pytest.mark.parametrize(
    ("name", "rdtype", "seconds"),
    [
        ("www", "A", 600),
        ("two", "A", 500),  # the smallest TTL of the answer
        ("mail", "MX", 60),  # an address in the additional section
        ("www", "TXT", 300),  # NODATA: the MINIMUM of the SOA
        ("nope", "A", 300),
        ("x.cut", "A", 100),  # a referral
    ],
)
def test_max_age_is_the_lowest_ttl(name: str, rdtype: str, seconds: int) -> None:
    """RFC 8484 5.1."""
    response = get(query(f"{name}.example.", rdtype), Site(zones=TTLS))
    assert response.header("cache-control") == f"max-age={seconds}"


def test_a_ttl_above_2147483647_is_0() -> None:
    """RFC 2181 8."""
    response = get(query("www.example.", "A"), Site(zones=TTLS)).body
    assert freshness(response) == 600
    assert freshness(response.replace((600).to_bytes(4), (2**31).to_bytes(4))) == 0


@pytest.mark.parametrize(
    "message",
    [
        query("elsewhere.", "A"),  # REFUSED
        query("www.example.", "AXFR"),
        query("www.example.", "IXFR"),
        query("www.example.", "A", use_edns=1),  # BADVERS
        query("www.example.", "A")[:-3],  # FORMERR
    ],
)
def test_errors_are_not_cached(message: bytes) -> None:
    response = get(message, Site(zones=TTLS))
    assert (response.status, response.header("cache-control")) == (HTTPStatus.OK, "no-store")
    assert not dns.message.from_wire(response.body).answer


def test_rfc8945_5_2_1_a_signed_query_gets_badkey_because_there_are_no_keys() -> None:
    signed, _ = sign_query(query("www.example.", "A"), TsigKey((b"key",), "hmac-sha256", bytes(32)), 0)
    reply = get(signed, Site(zones=TTLS)).body
    record = find(reply)
    assert record is not None
    assert (dns.message.from_wire(reply, keyring=False).rcode(), record.rdata.error) == (dns.rcode.NOTAUTH, BADKEY)


def test_a_zone_that_could_not_be_read_is_a_server_failure() -> None:
    broken = TTLS._replace(zones={}, broken=frozenset({Folded((b"example",))}), depth=1)
    response = get(query("www.example.", "A"), Site(zones=broken))
    assert response.status == HTTPStatus.OK
    assert dns.message.from_wire(response.body).rcode() == dns.rcode.SERVFAIL
    assert response.header("cache-control") == "no-store"


def test_options_of_the_query() -> None:
    """Padding where the client asks for it; neither a cookie nor a time to keep the connection open."""
    asked = (
        (OptionType.COOKIE, bytes(8)),
        (OptionType.KEEPALIVE, b""),
        (OptionType.PADDING, b""),
        (OptionType.NSID, b""),
    )
    options = [GenericOption(code, data) for code, data in asked]
    message = query("www.example.", "A", use_edns=0, options=options)
    site = Site(zones=TTLS, dns_context=Context(Identity(nsid="here")))
    response = get(message, site)
    assert len(response.body) % PADDING_BLOCK == 0
    said = {option.otype for option in dns.message.from_wire(response.body).options}
    assert said == {OptionType.NSID, OptionType.PADDING}
    plain = get(query("www.example.", "A", use_edns=0), site)
    assert not dns.message.from_wire(plain.body).options


def test_answers_are_not_truncated() -> None:
    """No limit of UDP applies."""
    text = "".join(f'big 60 TXT "{number:0200}"\n' for number in range(200))
    site = Site(zones=snapshot_of("@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n" + text))
    said = dns.message.from_wire(get(query("big.example.", "TXT"), site).body)
    assert len(said.answer[0]) == 200
    assert said.answer[0].rdtype == dns.rdatatype.TXT


# ---- real clients


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
