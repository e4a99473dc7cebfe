"""Other transports: DNS over TLS and IPv6 with our own stub, and DNS over HTTPS through dnspython's resolvers."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import dns.asyncresolver
import dns.nameserver
import dns.query
import dns.resolver
import pytest

from maptr import Client, Discovery, discover, discover_async, discover_many, discover_many_async
from maptr.discovery import DiscoveryFailed, DiscoveryTimeout, NoMappingAuthority, Outcome
from maptr.errors import ConfigError
from maptr.resolver.dnspython import make_resolver
from maptr.resolver.stub import Stub
from tests.conftest import REPOSITORY
from tests.support.certificates import write_certificate
from tests.support.command_line import run
from tests.support.drivers import collect
from tests.support.peers import HOST, Bind, Maptr, TlsMaptr, free_port, require
from tests.support.proxies import TinyProxy, set_proxies
from tests.support.waiting import PATIENCE

ARK = "ark:12345/x60np1wh8k"
ZONE = REPOSITORY / "zones" / "ark.arpa.zone"
UNCLOSED = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # dnspython leaves transports to the collector


@pytest.fixture(autouse=True)
def collected_transports() -> Iterator[None]:
    """Collects what dnspython leaves while its warnings are ignored."""
    yield
    gc.collect()


def ask_all(ark: str, servers: str | list[str]) -> list[Discovery]:
    """The discoveries by each function of maptr."""
    return [
        discover(ark, nameservers=servers),
        asyncio.run(discover_async(ark, nameservers=servers)),
        *ask_many(ark, servers),
    ]


def ask_many(ark: str, servers: str | list[str]) -> list[Discovery]:
    """The discoveries by the functions that do not raise an error."""
    return [
        *discover_many([ark], nameservers=servers),
        *asyncio.run(collect(discover_many_async([ark], nameservers=servers))),
    ]


def test_ipv6() -> None:
    if not _has_ipv6():
        pytest.skip("no IPv6 loopback here")
    with Maptr({"ark.arpa.": ZONE}) as server:
        plain = discover(ARK, nameservers=[f"{server.host}#{server.port}"])
    port = free_port()
    with Maptr({"ark.arpa.": ZONE}, f"--listen=[::1]:{port}") as server:
        assert ask_all(ARK, [f"::1#{port}"]) == [plain] * 4


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


class Https(Bind):
    """BIND as a server of DNS over TLS and HTTPS, by IPv4 and IPv6."""

    def __init__(self, folder: Path) -> None:
        super().__init__({"ark.arpa.": ZONE})
        self.folder = folder
        self.https, self.tls = free_port(), free_port()

    def configure(self) -> list[str]:
        command = super().configure()
        config = self.directory / "named.conf"
        ports = f"    listen-on port {self.tls} tls own {{ {HOST}; }};\n"
        for option, host in (("listen-on", HOST), ("listen-on-v6", "::1")):
            ports += f"    {option} port {self.https} tls own http own {{ {host}; }};\n"
        text = (
            config.read_text()
            .replace("listen-on-v6 { none; };\n", "")
            .replace("options {\n", f"options {{\n{ports}", 1)
        )
        config.write_text(
            f'tls own {{ key-file "{self.folder}/tls.key"; cert-file "{self.folder}/tls.crt"; }};\n'
            f'http own {{ endpoints {{ "/dns-query"; }}; }};\n{text}'
        )
        return [part for part in command if part != "-4"]

    def url(self, host: str = HOST) -> str:
        return f"https://{host}:{self.https}/dns-query"


@pytest.fixture(scope="module")
def bind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Https]:
    require(*Bind.commands)
    if not dns.query.have_doh:
        pytest.skip("DNS over HTTPS needs maptr[doh]")
    folder = tmp_path_factory.mktemp("tls")
    write_certificate(folder)
    with Https(folder) as server:
        yield server


@pytest.fixture
def trusted(bind: Https, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is one that the system trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(bind.folder / "tls.crt"))


@UNCLOSED
@pytest.mark.usefixtures("trusted")
def test_dns_over_https_and_tls_of_bind(bind: Https) -> None:
    """RFC 8484, RFC 7858."""
    plain = discover(ARK, nameservers=[f"{bind.host}#{bind.port}"])
    for text in (bind.url(), bind.url("localhost"), f"tls://{HOST}#{bind.tls}"):
        assert ask_all(ARK, text) == [plain] * 4
        arks = [ARK, "ark:00000/x", ARK]
        assert list(discover_many(arks, nameservers=[text]))[::2] == [plain, plain]
        assert asyncio.run(collect(discover_many_async(arks, nameservers=text)))[::2] == [plain, plain]
    assert discover(ARK, nameservers=bind.url()).trace[0].server == bind.url()
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers = [bind.url()]  # dnspython's own way to say it
    assert discover(ARK, nameservers=resolver) == plain
    assert list(discover_many([ARK, ARK], nameservers=resolver)) == [plain, plain]
    if _has_ipv6():
        assert discover(ARK, nameservers=bind.url("[::1]")) == plain
    with pytest.raises(NoMappingAuthority):
        discover("ark:00000/x", nameservers=bind.url())


@UNCLOSED
def test_dns_over_https_that_fails(bind: Https, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that the system does not trust, another path, a closed port, one server of two; no package."""
    for asked in (bind.url(), f"tls://{HOST}#{bind.tls}"):
        for refused in ask_many(ARK, asked):
            assert refused.trace[0].note.endswith(": its certificate is refused: self-signed certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(bind.folder / "tls.crt"))
    other, closed = bind.url().replace("dns-query", "other"), f"https://{HOST}:{free_port()}/dns-query"
    for text, outcome, note in (
        (other, Outcome.MALFORMED, f"{other}: {other} responded with status code 404"),
        (closed, Outcome.UNREACHABLE, f"{closed}: no connection"),
    ):
        began = time.monotonic()
        for failed in ask_many(ARK, text):
            assert (failed.trace[0].outcome, failed.trace[0].note) == (outcome, note)
        assert time.monotonic() - began < PATIENCE, "it is not tried again until the time is over"
        assert discover(ARK, nameservers=[text, bind.url()])  # the next one is asked
    assert discover(ARK, nameservers=[f"{HOST}#{free_port()}", bind.url()])
    monkeypatch.setattr("dns.query.have_doh", False)
    with pytest.raises(ConfigError, match=r"maptr\[doh\]"):
        Client(bind.url())  # not only when it asks


@UNCLOSED
@pytest.mark.usefixtures("trusted")
def test_drift_over_https_and_tls_and_bulk_over_tls(bind: Https, tmp_path: Path) -> None:
    table = ("table", "drift", "--all", "--table", str(ZONE.parent / "sample.json"), "12025", "99999")
    plain = run(*table, f"@{bind.host}#{bind.port}")
    assert plain.stdout
    for url in (bind.url(), f"tls://{HOST}#{bind.tls}"):
        asked = run(*table, f"@{url}")
        assert (asked.exit_code, asked.stdout) == (plain.exit_code, plain.stdout)
    plain = run("bulk", f"@{bind.host}#{bind.port}", text="ark:12345/x1")
    asked = run("bulk", f"@tls://{HOST}#{bind.tls}", text="ark:12345/x1")
    assert (asked.exit_code, asked.stdout) == (plain.exit_code, plain.stdout) == (0, asked.stdout)
    refused = run("bulk", f"@{bind.url()}", text="ark:12345/x1")
    assert refused.exit_code == 2
    assert "maptr bulk asks servers without https://" in refused.stderr
    silent = run(*table[:-1], "--timeout", "0.5", f"@https://{HOST}:{free_port()}/dns-query")
    assert (silent.exit_code, silent.stdout.split(":")[0]) == (9, "unknown 12025")


@UNCLOSED
@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("credentials", ["", "reader:s3cret"])
def test_dns_over_https_by_a_proxy(credentials: str, bind: Https, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy looks up the name of the server, and sees nothing but that; plain servers are asked directly."""
    plain = discover(ARK, nameservers=[f"{bind.host}#{bind.port}"])
    with TinyProxy(credentials) as proxy:
        set_proxies(monkeypatch, HTTPS_PROXY=proxy.with_credentials)
        with monkeypatch.context() as patch:
            patch.setattr("maptr.resolver.dnspython.find_servers", None)
            assert ask_all(ARK, bind.url("localhost")) == [plain] * 4
            assert ask_all(ARK, bind.url()) == [plain] * 4
        targets = proxy.passed()
        assert len(targets) >= 8
        assert set(targets) == {f"localhost:{bind.https}", f"{HOST}:{bind.https}"}
        assert ask_all(ARK, f"{bind.host}#{bind.port}") == [plain] * 4
        monkeypatch.setenv("NO_PROXY", f"localhost:{bind.https}")
        assert ask_all(ARK, bind.url("localhost")) == [plain] * 4
        assert len(proxy.passed()) == len(targets)
        if credentials:
            set_proxies(monkeypatch, ALL_PROXY=proxy.with_credentials.replace("s3cret", "other"))
            for refused in ask_many(ARK, bind.url()):
                assert refused.trace[0].outcome is Outcome.UNREACHABLE
                assert refused.trace[0].note.startswith(f"{bind.url()}: by the proxy {proxy.url}: 40")
                assert "other" not in refused.trace[0].note


@UNCLOSED
def test_dns_over_https_by_a_proxy_that_fails(bind: Https, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = f"http://{HOST}:{free_port()}"
    set_proxies(monkeypatch, HTTPS_PROXY=closed.replace("//", "//u:s3cret@"))
    for failed in ask_many(ARK, bind.url()):
        note = failed.trace[0].note
        assert note.startswith(f"{bind.url()}: by the proxy {closed}: "), note
        assert "s3cret" not in note
    with socket.create_server((HOST, 0)) as silent:
        set_proxies(monkeypatch, HTTPS_PROXY=f"http://{HOST}:{silent.getsockname()[1]}")
        for waited in (discover_many([ARK], nameservers=bind.url(), lifetime=0.5),):
            assert [one.trace[0].outcome for one in waited] == [Outcome.TIMEOUT]
        with pytest.raises(DiscoveryTimeout):
            asyncio.run(discover_async(ARK, nameservers=bind.url(), lifetime=0.5))
    set_proxies(monkeypatch, HTTPS_PROXY="socks5://u:s3cret@p.example")
    with pytest.raises(DiscoveryFailed, match="HTTPS_PROXY is not a usable proxy") as unusable:
        discover(ARK, nameservers=bind.url())
    assert "s3cret" not in str(unusable.value)
    assert discover(ARK, nameservers=[f"{bind.host}#{bind.port}"])


MANY = [f"ark:{naan}/x1" for naan in range(10000, 10401)]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TlsMaptr]:
    """maptr with DNS over TLS, which allows a client 50 connections, and a certificate that the system trusts."""
    zone = tmp_path / "zone"
    rules = "".join(f'{naan} NAPTR 0 0 "h" "ark" "" h.example.\n' for naan in range(10000, 10401))
    zone.write_text(f"$TTL 60\n@ SOA ns host 1 7200 3600 1209600 300\n@ NS ns.example.\n{rules}")
    with TlsMaptr({"ark.arpa.": zone}, "--tls-listen=127.0.0.2:0") as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.directory / "tls.crt"))
        yield server


@pytest.mark.parametrize("limit", [None, 8, 60])
def test_bulk_over_tls_keeps_to_what_the_server_allows(own: TlsMaptr, limit: int | None) -> None:
    where = f"tls://{HOST}#{own.tls_port}"
    found = list(Client([where], max_connections=limit).discover_many(MANY))
    assert [bool(one) for one in found] == [True] * len(MANY)
    assert {one.trace[0].server for one in found} == {f"{HOST}#{own.tls_port}"}


def test_bulk_over_tls_by_asyncio_and_by_a_validating_stub(own: TlsMaptr) -> None:
    where = f"tls://localhost#{own.tls_port}"
    found = asyncio.run(collect(discover_many_async(MANY[:40], nameservers=[where])))
    assert all(found)
    client = Client([where])
    assert {client.discover(ark)[0].host for ark in MANY[:3]} == {"h.example"}
    stub = client.resolver.opened(1.0)
    assert isinstance(stub, Stub)
    assert stub.servers[0][2:] == (True, "localhost")


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("127.0.0.2", "IP address mismatch"),
        ("other.localhost", "Hostname mismatch"),
    ],
)
def test_rfc7858_a_certificate_must_be_that_of_the_host_as_written(
    host: str, said: str, own: TlsMaptr, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda name, *given, **more: real(HOST, *given, **more))
    port = own.wait_for(r"127\.0\.0\.2:(\d+)")[1] if host == "127.0.0.2" else own.tls_port
    with pytest.raises(DiscoveryFailed, match="its certificate is refused: ") as caught:
        discover(MANY[0], nameservers=f"tls://{host}#{port}")
    assert said in str(caught.value)
    with pytest.raises(DiscoveryFailed):  # beside https:// servers, dnspython asks
        discover(MANY[0], nameservers=make_resolver([f"tls://{host}#{port}"]), lifetime=1.0)


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x01\0\2\2\x28"])
async def test_a_server_that_does_not_speak_tls(reply: bytes) -> None:
    """It closes at once, answers plainly, or sends an alert."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if reply:
            await reader.read(1)
        writer.write(reply)
        with suppress(OSError):
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, HOST, 0) as listening:
        where = f"tls://{HOST}#{listening.sockets[0].getsockname()[1]}"
        with pytest.raises(DiscoveryFailed) as caught:
            await discover_async(MANY[0], nameservers=where)
        assert caught.value.discovery.trace[0].outcome is Outcome.UNREACHABLE
    with pytest.raises(DiscoveryFailed) as refused:
        discover(MANY[0], nameservers=f"tls://{HOST}#{free_port()}")
    assert "Connection refused" in str(refused.value)
