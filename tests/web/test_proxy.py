"""Proxies from the environment: which one a URL gets, pulls through tinyproxy, and proxies that refuse, lie or
stall."""

from __future__ import annotations

import base64
import re
import socket
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from maptr.errors import FetchError
from maptr.registry import read
from maptr.url import parse
from maptr.web.http import fetch, get, head, look_up
from maptr.web.proxy import proxy_for
from tests.support.certificates import write_certificate
from tests.support.command_line import run
from tests.support.http_server import http_server, pages, raw_server, sends
from tests.support.ports import free_port
from tests.support.proxies import TinyProxy, set_proxies
from tests.support.waiting import PATIENCE

CONTENT = b"12345:\n    h.example.org  ACR\n"
P, Q, R = "http://p.example:1", "http://q.example:2", "http://r.example:3"
SECURE, PLAIN = "https://h.example.org/naans", "http://h.example.org/naans"

CHOICES: dict[str, tuple[dict[str, str], str, str | None]] = {
    "none": ({}, SECURE, None),
    "https": ({"HTTPS_PROXY": P, "HTTP_PROXY": Q}, SECURE, P),
    "http": ({"HTTPS_PROXY": P, "HTTP_PROXY": Q}, PLAIN, Q),
    "lower case first": ({"HTTPS_PROXY": P, "https_proxy": Q}, SECURE, Q),
    "an empty one in lower case": ({"HTTPS_PROXY": P, "https_proxy": ""}, SECURE, None),
    "all": ({"ALL_PROXY": R}, SECURE, R),
    "the one of the scheme before all": ({"ALL_PROXY": R, "HTTPS_PROXY": P}, SECURE, P),
    "http of CGI": ({"HTTP_PROXY": P, "REQUEST_METHOD": "GET"}, PLAIN, None),
    "http of CGI in lower case": ({"http_proxy": P, "REQUEST_METHOD": "GET"}, PLAIN, P),
    "https of CGI": ({"HTTPS_PROXY": P, "REQUEST_METHOD": "GET"}, SECURE, P),
    "no": ({"HTTPS_PROXY": P, "NO_PROXY": "a.example, H.example.org"}, SECURE, None),
    "no for a domain": ({"HTTPS_PROXY": P, "no_proxy": ".example.org"}, SECURE, None),
    "no for part of a label": ({"HTTPS_PROXY": P, "NO_PROXY": "ample.org"}, SECURE, P),
    "no for all": ({"HTTPS_PROXY": P, "NO_PROXY": "*"}, SECURE, None),
    "no for a port": ({"HTTPS_PROXY": P, "NO_PROXY": "h.example.org:443"}, SECURE, None),
    "no for another port": ({"HTTPS_PROXY": P, "NO_PROXY": "h.example.org:444"}, SECURE, P),
    "no for a name with a final dot": (
        {"HTTPS_PROXY": P, "NO_PROXY": "h.example.org"},
        "https://h.example.org./",
        None,
    ),
    "no for an address": ({"HTTP_PROXY": P, "NO_PROXY": "127.0.0.1"}, "http://127.0.0.1:8/", None),
    "no for an IPv6 address": ({"HTTP_PROXY": P, "NO_PROXY": "::1"}, "http://[::1]:8/", None),
    "no for one in brackets": ({"HTTP_PROXY": P, "NO_PROXY": "[::1]"}, "http://[::1]:8/", None),
    "without scheme": ({"HTTPS_PROXY": "p.example:1"}, SECURE, P),
    "without port": ({"HTTPS_PROXY": "HTTP://p.example/"}, SECURE, "http://p.example:80"),
    "IPv6": ({"HTTPS_PROXY": "http://[::1]:3128"}, SECURE, "http://[::1]:3128"),
}


@pytest.mark.parametrize("case", CHOICES)
def test_the_proxy_of_a_url(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variables, target, expected = CHOICES[case]
    set_proxies(monkeypatch, **variables)
    found = proxy_for(parse(target))
    assert (found and str(found)) == expected


@pytest.mark.parametrize(
    ("given", "basic"),
    [("u:pass@", b"u:pass"), ("u@", b"u:"), ("u%40x:a%3Ab%2F%C3%A9@", "u@x:a:b/é".encode()), ("u:a:b@c@", b"u:a:b@c")],
)
def test_rfc7617_credentials_of_a_proxy_are_basic_and_never_written(
    given: str, basic: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_proxies(monkeypatch, HTTPS_PROXY=f"http://{given}p.example:1")
    found = proxy_for(parse(SECURE))
    assert found is not None
    assert found.headers == {"Proxy-Authorization": f"Basic {base64.b64encode(basic).decode()}"}
    assert str(found) == P
    assert found.authorization not in repr(found)


@pytest.mark.parametrize(
    "given",
    [
        "https://u:secret@p.example:1",
        "socks5://u:secret@p.example:1",
        "http://u:secret@",
        "http://u:sec/ret@p.example:1",
        "http://u:1/secret@p.example",
        "http://u:1?secret@p.example",
        "http://p.example:secret",
        "http://u:secret@p.example:1/path",
        "http://u:secret@p example:1",
        "http://",
        "//u:secret@p.example",
    ],
)
def test_a_proxy_that_cannot_be_used_is_an_error_without_its_password(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_proxies(monkeypatch, ALL_PROXY=given)
    with pytest.raises(FetchError, match=f"^{PLAIN}: ALL_PROXY is not a usable proxy: ") as failed:
        fetch(PLAIN)
    assert "secret" not in str(failed.value)
    assert "ret@" not in str(failed.value)


# ---- pulls by tinyproxy


@pytest.mark.parametrize("credentials", ["", "reader:s3cret"])
@pytest.mark.parametrize("secure", [False, True])
def test_a_pull_by_tinyproxy(credentials: str, secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy looks up the host of the URL: the client only that of the proxy."""
    write_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.crt"))
    looked_up: list[str] = []

    def noted(host: str, port: int, seconds: float) -> list[str]:
        looked_up.append(host)
        return look_up(host, port, seconds)

    monkeypatch.setattr("maptr.web.http.look_up", noted)
    table = tmp_path / "naans"
    with (
        TinyProxy(credentials) as proxy,
        pages(lambda path: (200, {"ETag": '"1"'}, CONTENT), certificate=tmp_path if secure else None) as served,
    ):
        set_proxies(monkeypatch, **{"HTTPS_PROXY" if secure else "HTTP_PROXY": proxy.with_credentials})
        source = f"http{'s' if secure else ''}://localhost:{served.port}/naans?x=1"
        run("table", "pull", source, "--table", str(table), "--apply", code=0)
        assert set(read(table.read_text())) == {"12345"}
        assert served.asked == ["/naans?x=1"]
        assert proxy.passed() == [f"localhost:{served.port}" if secure else source]
        assert looked_up == ["127.0.0.1"]
        monkeypatch.setenv("NO_PROXY", "localhost")
        assert fetch(source).content == CONTENT
        assert len(proxy.passed()) == 1
        if credentials:
            set_proxies(monkeypatch, ALL_PROXY=proxy.with_credentials.replace("s3cret", "other"))
            with pytest.raises(FetchError, match=f"the proxy {proxy.url}") as refused:
                fetch(source)
            assert re.search("answers 40[17] ", str(refused.value))
            assert "other" not in str(refused.value)


def test_a_proxy_reports_what_it_cannot_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = free_port()
    with TinyProxy() as proxy:
        set_proxies(monkeypatch, ALL_PROXY=proxy.url)
        for scheme in ("http", "https"):
            with pytest.raises(FetchError, match=f"the proxy {proxy.url}") as failed:
                fetch(f"{scheme}://127.0.0.1:{closed}/")
            assert " 500 " in str(failed.value)


def test_a_proxy_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = free_port()
    set_proxies(monkeypatch, HTTPS_PROXY=f"http://u:secret@localhost:{closed}")
    with pytest.raises(FetchError, match=f"h.example.org by the proxy http://localhost:{closed}: .*refused") as failed:
        fetch(SECURE)
    assert "secret" not in str(failed.value)


def test_pages_and_heads_of_mapping_authorities_use_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    set_proxies(monkeypatch, ALL_PROXY=f"http://127.0.0.1:{free_port()}")
    with pages(lambda path: (200, {}, b"erc:\n")) as served:
        assert get(served.url, seconds=PATIENCE, allow_private=True).body == b"erc:\n"
        assert head(parse(served.url), PATIENCE, allow_private=True).status == 200


# ---- guards


@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.1:9/", "http://169.254.169.254/latest", "http://[::1]/", "http://intranet/", "http://a.internal/"],
)
def test_a_redirect_by_a_proxy_to_a_host_that_is_not_public_is_refused(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def proxy(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        sends(b"", 302, Location=location)(request)

    with http_server(proxy) as url:
        set_proxies(monkeypatch, HTTP_PROXY=url.removesuffix("/naans"))
        with pytest.raises(FetchError, match="is refused: not a public host"):
            fetch(PLAIN)
        assert asked == [PLAIN]
        with pytest.raises(FetchError, match="redirected more than"):  # a private one may redirect anywhere, as ever
            fetch("http://intranet/")


def test_a_redirect_by_a_proxy_does_not_leave_https_or_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_certificate(tmp_path)
    for location, said in ((PLAIN, "away from https"), ("file:///etc/passwd", "neither http nor https")):

        def answer(path: str, location: str = location) -> tuple[int, dict[str, str], bytes]:
            return 302, {"Location": location}, b""

        with TinyProxy() as proxy, pages(answer, certificate=tmp_path) as served:
            set_proxies(monkeypatch, ALL_PROXY=proxy.url)
            with pytest.raises(FetchError, match=said):
                fetch(f"https://localhost:{served.port}/", cafile=tmp_path / "tls.crt")


# ---- proxies that lie or stall

HOSTILE: dict[str, tuple[bytes, bytes]] = {  # the first bytes, and the bytes that are repeated after them
    "garbage": (b"garb\x1b[2Jage" * 1000, b""),
    "nothing": (b"", b""),
    "a status line without end": (b"HTTP", b"x" * 65536),
    "headers without end": (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 1000),
    "continue without end": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "a redirect": (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n", b""),
    "a long reason": (b"HTTP/1.1 403 " + b"\x1b" * 5000 + b"\r\n\r\n", b""),
    "a plain page instead of TLS": (b"HTTP/1.1 200 OK\r\n\r\n<html>", b"x" * 100),
    "the end after the connection": (b"HTTP/1.1 200 OK\r\n\r\n", b""),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_proxy_is_a_short_printable_error(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_server(*HOSTILE[case]) as port:
        set_proxies(monkeypatch, HTTPS_PROXY=f"http://u:secret@127.0.0.1:{port}")
        began = time.monotonic()
        with pytest.raises(FetchError, match=f"the proxy http://127.0.0.1:{port}") as failed:
            fetch(SECURE, seconds=2.0)
        assert time.monotonic() - began < PATIENCE
    message = str(failed.value)
    assert message.isprintable()
    assert len(message) < 500
    assert "secret" not in message


def test_a_silent_proxy_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        set_proxies(monkeypatch, HTTPS_PROXY=f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(FetchError, match="in time"):
            fetch(SECURE, seconds=0.5)
