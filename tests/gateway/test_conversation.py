"""docs/operator.md: each row of the conversation over a real socket and behind each proxy; and faults."""

from __future__ import annotations

import re
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest

from maptr.ark import Ark
from maptr.gateway.resolve import MAX_ARK
from maptr.nma.describe import describe
from maptr.registry.table import Table
from tests.support.authority import discovery_at
from tests.support.caching import HOME, ONE_HOST, SILENT, table
from tests.support.gateway import Gateway
from tests.support.http_gateway import GatewayProcess, get
from tests.support.peers import require
from tests.support.ports import HOST
from tests.support.web_servers import MODULES, Apache, Caddy, Nginx, WebServer

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "operator.md").read_text("utf-8")
SINGLE = "ark,url,status\nark:12345/b6single,https://one.example.org/item/1,303\n"
METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS")

_SPAN = re.compile(r"`([^`]*)`")
_HEADER = re.compile(r"([A-Z][A-Za-z-]+): (.*)")


def rows(section: str) -> list[list[str]]:
    """The cells of a table of the page."""
    table = PAGE.partition(f"<!-- {section}: begin -->\n")[2].partition(f"<!-- {section}: end -->")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def block(language: str) -> str:
    """The first block of the page in this language."""
    (first, *_) = re.findall(rf"^```{language}\b.*\n((?:.*\n)*?)```$", PAGE, re.MULTILINE)
    return str(first)


class Row(NamedTuple):
    """A request and what its response must have: a status, headers, and texts in the body."""

    method: str
    target: str
    sends: list[str]
    body: bytes
    status: int
    headers: dict[str, str]
    texts: list[str]

    @classmethod
    def of(cls, cells: list[str]) -> Row:
        request, *more = _SPAN.findall(cells[0])
        method, target = request.split(" ")
        sends = [text for text in more if _HEADER.fullmatch(text)]
        body = "".join(text for text in more if not _HEADER.fullmatch(text)).encode()
        expected = _SPAN.findall(cells[2])
        headers = {found[1].lower(): found[2] for text in expected if (found := _HEADER.fullmatch(text))}
        texts = [text for text in expected if not _HEADER.fullmatch(text) and text not in ("%", "root")]
        return cls(method, target, sends, body, int(cells[1]), headers, texts)


# More requests that a proxy could spoil; tests/vectors/gateway.toml has the others.
HOME_URL = "https://ark.example.org/ark:/12345/b6"
MORE = [
    ["`HEAD /ark:12345/x6np1wh8k`", "302", "`Location: https://x6.example.net:8443/p/ark:/12345/x6np1wh8k`"],
    ["`DELETE /ark:12345/b6`", "307", f"`Location: {HOME_URL}` `Access-Control-Allow-Origin: *`"],
    ["`DELETE /`", "405", "`Allow: GET, HEAD, OPTIONS, POST` `Access-Control-Allow-Origin: *`"],
    ["`POST /ark:12345/b6` `a body`", "307", f"`Location: {HOME_URL}` `Access-Control-Allow-Origin: *`"],
    ["`OPTIONS /ark:12345/b6`", "204", "`Access-Control-Allow-Origin: *`"],
    ["`GET /ark%3A%2F12345%2Fb6`", "302", f"`Location: {HOME_URL}`"],
    ["`GET /https://n2t.net/e/find?id=ark:/12345/b6`", "302", f"`Location: {HOME_URL}`"],
    ["`GET /ark:12345/b6?a=%20b`", "302", f"`Location: {HOME_URL}?a=%20b`"],
    ["`GET /ark:12345/b6??`", "302", f"`Location: {HOME_URL}??`"],
    [
        "`POST /` `Content-Type: application/x-www-form-urlencoded` `ark=ark%3A12345%2Fb6`",
        "303",
        f"`Location: {HOME_URL}`",
    ],
    ["`GET /ark:12025/b6` `Accept: application/linkset+json`", "200", "`Content-Type: application/linkset+json`"],
    ["`GET /ark:12345` `Accept: text/html`", "200", "`Content-Type: text/html; charset=utf-8`"],
]
SHOWN = [Row.of(cells) for cells in rows("conversation")]
ROWS = [*SHOWN, *map(Row.of, MORE)]


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of the page, with its files."""
    folder = tmp_path_factory.mktemp("gateway")
    shutil.copytree(REPOSITORY / "zones", folder / "zones")
    (folder / "redirects.csv").write_text(SINGLE)
    (folder / "maptr.toml").write_text(block("toml"))
    return folder / "maptr.toml"


@pytest.fixture(scope="module")
def gateway(configuration: Path) -> Iterator[GatewayProcess]:
    with GatewayProcess(f"--config={configuration}") as running:
        yield running


def check(row: Row, port: int) -> None:
    reply = get(port, row.target, f"Host: {HOST}:{port}", *row.sends, method=row.method, body=row.body)
    assert reply.status == row.status, reply
    # The rest of a TTL: the second request within a second gets the answer of the first.
    headers = {name: re.sub(r"max-age=29\d", "max-age=300", value) for name, value in reply.headers.items()}
    assert {name: headers.get(name) for name in row.headers} == row.headers
    for text in row.texts:
        assert text in reply.text
    assert row.method != "HEAD" or not reply.body


def ids(row: Row) -> str:
    return f"{row.method} {row.target} {' '.join(row.sends)}".strip()


def test_the_documented_tables_have_every_method_and_status() -> None:
    assert {row.method for row in ROWS} == set(METHODS)
    assert {row.status for row in ROWS} >= {200, 204, 302, 303, 400, 404, 405}
    assert {row.status for row in SHOWN} >= {200, 302, 303, 400, 404}


@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_conversation(row: Row, gateway: GatewayProcess) -> None:
    check(row, gateway.port)


def test_the_client_of_descriptions_reads_that_of_a_shoulder(gateway: GatewayProcess) -> None:
    where = discovery_at(f"http://{HOST}:{gateway.port}").replace(ark=Ark.parse("ark:12345/x60"))
    found = describe(where, allow_private=True)
    assert (found.spoken, found.thump, found.note) == (True, "0.6 200 OK", "")
    assert [segment.name for segment in found.segments] == ["erc", "erc-support", "erc-from"]
    assert found.segments[0].get("what") == "shoulder ark:12345/x60"


def test_the_chooser_of_the_command_line(tmp_path: Path) -> None:
    zones = REPOSITORY / "zones"
    with GatewayProcess(f"--table={zones / 'sample.json'}", "--policy", "natab-only", "--choose", "random") as gateway:
        found = {gateway.ask("/ark:12025/b6").headers["location"].partition("/ark:")[0] for _ in range(40)}
    assert found == {"https://ark.nlm.example.org", "https://foobar.example.net:8080"}


# ---- behind other servers


class Proxy(WebServer):
    """A web server with its block of the page, in front of a gateway."""

    language: ClassVar[str]

    def __init__(self, gateway: GatewayProcess) -> None:
        super().__init__("")
        text = block(self.language).replace("127.0.0.1:8080", f"{HOST}:{gateway.port}")
        self.block = text.replace('"8080"', f'"{gateway.port}"').replace("127.0.0.1:8081", f"{HOST}:{self.port}")

    @property
    def usage(self) -> str:
        return self.block


class NginxProxy(Proxy, Nginx):
    language = "nginx"
    usage = ""  # the block is a server of its own, beside the one of the configuration

    def __init__(self, gateway: GatewayProcess) -> None:
        super().__init__(gateway)
        self.exported = self.block


class ApacheProxy(Proxy, Apache):
    language = "apache"
    settings = "".join(
        f"LoadModule {name}_module {MODULES}/mod_{name}.so\n" for name in ("proxy", "proxy_http", "headers")
    )


class CaddyProxy(Proxy, Caddy):
    language = "caddy"


class HaProxy(Proxy):
    name = "haproxy"
    language = "haproxy"
    commands = ("haproxy",)
    files = ("haproxy.cfg",)
    arguments = "-db -f $directory/haproxy.cfg"


class Varnish(Proxy):
    name = "varnish"
    language = "vcl"
    commands = ("varnishd",)
    files = ("varnish.vcl",)
    arguments = (
        "-F -n $directory/state -f $directory/varnish.vcl -s malloc,32m -a 127.0.0.1:$port "
        "-p http_req_hdr_len=16k -p http_resp_hdr_len=16k -p http_req_size=64k -p http_resp_size=64k "
        "-p workspace_client=256k -p workspace_backend=256k -p thread_pools=1 -p thread_pool_min=5"
    )


each_proxy = pytest.mark.parametrize(
    "kind", [NginxProxy, ApacheProxy, CaddyProxy, HaProxy, Varnish], ids=lambda kind: kind.name
)


@each_proxy
def test_conversation_behind_a_proxy(kind: type[Proxy], gateway: GatewayProcess) -> None:
    require(*kind.commands)
    with kind(gateway) as proxy:
        for row in ROWS:
            if "%zz" in row.target:  # which they refuse themselves
                continue
            try:
                check(row, proxy.port)
            except AssertionError as error:
                raise AssertionError(f"{ids(row)}: {error}") from None


@each_proxy
def test_the_longest_ark_passes_a_proxy(kind: type[Proxy], gateway: GatewayProcess) -> None:
    """A redirect names it in Location and Link."""
    require(*kind.commands)
    longest = "/ark:12345/b6" + "x" * (MAX_ARK - len("ark:/12345/b6"))
    with kind(gateway) as proxy:
        for target in (longest, f"{longest}?info"):
            reply = get(proxy.port, target, f"Host: {HOST}:{proxy.port}")
            assert (reply.status, reply.headers.get("location", "")[-9:]) == (302, target[-9:])
        assert get(proxy.port, "/health").status == 200, "a probe"
        with socket.create_connection((proxy.host, proxy.port)) as sock, sock.makefile("rb") as file:
            sock.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            assert b" 200 OK" in file.readline(), "a probe without Host"


@pytest.mark.parametrize(
    ("kind", "whole", "only_arks"),
    [
        (NginxProxy, "location /", r"`(location [^`]*)`"),
        (CaddyProxy, "reverse_proxy", r"`(@ark path_regexp [^`]*)`"),
        (ApacheProxy, "ProxyPass / http://127.0.0.1:8080/", r"`(ProxyPassMatch [^`]*)`"),
    ],
)
def test_a_web_site_hands_over_what_has_an_ark(
    kind: type[Proxy], whole: str, only_arks: str, gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(*kind.commands)
    (found,) = re.findall(only_arks, PAGE)
    text = block(kind.language).replace(whole, f"{found}\nreverse_proxy @ark" if kind is CaddyProxy else found)
    monkeypatch.setattr(sys.modules[__name__], "block", lambda _: text)
    with kind(gateway) as proxy:
        arks = [row for row in ROWS if row.target.startswith("/ark:") and "%zz" not in row.target]
        assert arks
        for row in arks:
            check(row, proxy.port)
            check(row._replace(target=f"/id{row.target}"), proxy.port)
        assert get(proxy.port, "/health").body != b"ok\n", "of the site"


# ---- faults

HAS = table(("12345", "natab.example"))
TABLES: dict[str, list[tuple[Table | None, str]]] = {
    "any": [(HAS, ""), (Table(), ""), (None, "")],
    "has it": [(HAS, "")],
    "has it, its file is broken or gone": [(HAS, "the file does not exist")],
    "has not, or is missing": [(Table(), ""), (None, "the file does not exist")],
}
FAULTS = [
    (dns, int(status), source.replace("`", ""), *state)
    for dns, of_table, status, source in rows("faults")
    for state in TABLES[of_table]
]


def test_faults_of_the_page() -> None:
    assert {state[:2] for state in FAULTS} == {
        ("answers", 302),
        ("does not answer, an older answer is kept", 302),
        ("does not answer", 302),
        ("does not answer", 503),
        ("says none", 302),
        ("says none", 404),
    }


@pytest.mark.parametrize(("dns", "status", "sources", "natab", "trouble"), FAULTS)
def test_faults(dns: str, status: int, sources: str, natab: Table | None, trouble: str) -> None:
    gateway = Gateway(natab, dict(ONE_HOST), policy="dns-first", trouble=trouble)
    if dns == "says none":
        gateway.rig.dns.answers.clear()
    elif dns != "answers":
        if "an older answer is kept" in dns:
            gateway.ask("/ark:12345/x")
            gateway.rig.pass_time(1000)
        gateway.rig.dns.answers[HOME] = SILENT
    for source in sources.split(", then "):
        response = gateway.ask("/ark:12345/x")
        assert response.status == status
        assert response.header("maptr-source").startswith(source)
        assert ("stale" in response.header("maptr-source").partition("reason")[0]) == ("stale" in source)
