"""The HTTP client: limits on time, size, redirects and addresses, and TLS."""

from __future__ import annotations

import contextlib
import errno
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from maptr.errors import Fault, FetchError, NmaError
from maptr.url import parse
from maptr.web.http import MAX_ADDRESSES, connection, fetch, get
from tests.support.certificates import write_certificate
from tests.support.http_server import Handle, holds, http_server, pages, raw_server, sends
from tests.support.waiting import PATIENCE

CONTENT = b"12345:\n    h.example.org  ACR\n"
ADDRESSES = {"localhost": "127.0.0.2", "127.0.0.1": "127.0.0.1"}


def drips(request: BaseHTTPRequestHandler, *, headers: bool = True) -> None:
    """Send one byte at a time."""
    if headers:
        request.send_response(200)
        request.end_headers()
    pause = threading.Event()
    with contextlib.suppress(OSError):
        for _ in range(1000):
            request.wfile.write(b"#" if headers else b"H")
            pause.wait(0.05)


def redirects(location: str, status: int = 302) -> Handle:
    """Return a handler that redirects. ``{path}`` in the location is the path of the request."""
    return lambda request: sends(b"", status, Location=location.replace("{path}", request.path))(request)


def sends_long_status(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 500 " + b"essay " * 10_000 + b"\r\n\r\n")


FAULTS: dict[str, tuple[Handle, str]] = {
    "a web page by its type": (sends(CONTENT, Content_Type="text/html; charset=utf-8"), "web page"),
    "not found": (sends(b"no", 404), "404"),
    "a server error": (sends(b"no", 503), "503"),
    "not modified, unasked": (sends(b"", 304), "304"),
    "half of the content": (sends(CONTENT[:20], length=len(CONTENT)), "cut short"),
    "an endless body": (drips, "in time"),
    "endless headers": (partial(drips, headers=False), "in time"),
    "a stalled body": (holds(b"HTTP/1.1 200 OK\r\n\r\n"), "in time"),
    "endless redirects": (redirects("{path}x"), "redirected"),
    "a redirect to itself": (redirects("{path}", 301), "redirected"),
    "a redirect to an invalid URL": (redirects("gopher://[::1/"), "not a valid URL"),
    "a redirect with control characters": (redirects("gopher://\x1b[2J\x07h/"), "not a valid URL"),
    "a redirect to a name with a NUL": (redirects("http://h\0.example/"), "not a valid URL"),
    "a long status": (sends_long_status, "answers 500 "),
    "a long redirect": (redirects("gopher://h/" + "essay" * 10_000), "not a valid URL"),
    "a redirect to a file": (redirects("file:///etc/passwd"), "neither http nor https"),
}


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, float]]:
    """List the address, port and timeout of each connection that is tried."""
    found: list[tuple[str, int, float]] = []
    real = socket.create_connection

    def noted(address: tuple[str, int], timeout: float) -> socket.socket:
        found.append((*address, timeout))
        return real(address, timeout)

    monkeypatch.setattr("socket.create_connection", noted)
    return found


def look_up_finds(addresses: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.web.http.look_up", lambda host, port, seconds: addresses)


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_response_is_a_short_printable_error(fault: str) -> None:
    handle, reason = FAULTS[fault]
    with http_server(handle) as url, pytest.raises(FetchError, match=reason) as failed:
        fetch(url, seconds=0.5 if reason == "in time" else 30)
    message = str(failed.value)
    assert url in message
    assert message.isprintable()
    assert len(message) < 1100


@pytest.mark.parametrize("tag", ["x" * 50_000, "\x1b[2J", "\xe4", '"a"\r\n b'])
def test_unusable_validators_are_dropped(tag: str) -> None:
    with http_server(sends(CONTENT, ETag=tag, Last_Modified=tag)) as url:
        got = fetch(url)
    assert (got.content, got.etag, got.modified) == (CONTENT, "", "")


def test_redirect_from_a_public_to_a_private_address_is_refused(
    tried: list[tuple[str, int, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_server(sends(CONTENT)) as inside, http_server(redirects(inside.replace("127.0.0.1", "localhost"))) as url:
        got = fetch(url)  # a private server may redirect to a private address
        assert (got.content, got.url) == (CONTENT, inside.replace("127.0.0.1", "localhost"))
        tried.clear()
        monkeypatch.setattr("maptr.web.http.look_up", lambda host, port, seconds: [ADDRESSES[host]])
        monkeypatch.setattr("maptr.url.is_local", lambda address: address == ADDRESSES["localhost"])
        refused = r": redirected to http://localhost\S+: localhost is refused: 127\.0\.0\.2 is not a public address"
        with pytest.raises(FetchError, match=re.escape(url) + refused):
            fetch(url)
        assert [address for address, _, _ in tried] == ["127.0.0.1"]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Provide a port at which every address of 127.0.0.0/8 neither accepts nor refuses a connection."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("0.0.0.0", 0))
        listening.listen(0)
        port: int = listening.getsockname()[1]
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port


def test_all_addresses_share_one_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each address is silent for as long as it may be."""
    now, waits = 0.0, []

    def silent(address: tuple[str, int], timeout: float) -> socket.socket:
        nonlocal now
        now += timeout
        waits.append(timeout)
        raise TimeoutError("timed out")

    look_up_finds([f"192.0.2.{i}" for i in range(8)], monkeypatch)
    monkeypatch.setattr("socket.create_connection", silent)
    monkeypatch.setattr("maptr.web.http.time", Mock(monotonic=lambda: now))
    with pytest.raises(FetchError, match="in time"):
        fetch("http://h.example/", seconds=6.0)
    assert waits == pytest.approx([6.0 / MAX_ADDRESSES] * MAX_ADDRESSES)


def test_connecting_has_a_shorter_timeout_than_a_whole_fetch(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.web.http.CONNECT_SECONDS", 0.2)
    with pytest.raises(FetchError, match=r"in time|timed out"):
        fetch(f"http://127.0.0.1:{silent_port}/", seconds=3600)


def test_both_address_families_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def unreachable(address: tuple[str, int], timeout: float) -> socket.socket:
        tried.append(address[0])
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr("socket.create_connection", unreachable)
    six, four = [f"2001:db8::{i}" for i in range(4)], [f"192.0.2.{i}" for i in range(4)]
    for addresses in ([*six, *four], [*four, *six], six, six[:1] + four):
        look_up_finds(addresses, monkeypatch)
        tried.clear()
        with pytest.raises(FetchError, match="unreachable"):
            fetch("http://h.example/")
        other = [address for address in addresses if (":" in address) != (":" in addresses[0])]
        assert tried[:2] == [addresses[0], (other or addresses[1:])[0]]
        assert len(tried) == MAX_ADDRESSES


@pytest.mark.parametrize(("url", "port"), [("http://[::1]/naans", 80), ("https://[::1]/", 443), ("http://[::1]:8/", 8)])
def test_ipv6_literal_has_the_default_port(url: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def refused(address: tuple[str, int], timeout: float) -> socket.socket:
        asked.append(address)
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr("socket.create_connection", refused)
    with pytest.raises(FetchError, match=rf"^{re.escape(url)}: ::1: Connection refused$"):
        fetch(url)
    assert asked == [("::1", port)]


def test_silent_resolver_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    waited_for: list[object] = []

    def silent(*_: object, **__: object) -> list[object]:
        if not over.wait(PATIENCE):
            waited_for.append(1)
        raise OSError("no")

    monkeypatch.setattr("socket.getaddrinfo", silent)
    with pytest.raises(NmaError, match=r"^h\.example: no address in time$") as failed:
        get("http://h.example/", seconds=0.2)
    assert failed.value.fault is Fault.DNS
    over.set()
    assert not waited_for


def test_five_redirects_are_followed_and_a_body_may_have_the_maximum_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.web.http.MAX_PAGE", 9)

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        left = int(path.rpartition("/")[2])
        return (302, {"Location": f"/{left - 1}"}, b"") if left else (200, {"Location": "/elsewhere"}, b"123456789")

    with pages(answer) as running:
        page = get(f"{running.url}/5", seconds=PATIENCE, allow_private=True)
        assert (page.url, page.body, page.cut) == (f"{running.url}/0", b"123456789", False)
        assert fetch(f"{running.url}/5", max_bytes=9).content == b"123456789"
        with pytest.raises(NmaError, match="more than 5 redirects"):
            get(f"{running.url}/6", seconds=PATIENCE, allow_private=True)
    with pages(lambda path: (302, {}, b"")) as running:
        assert get(running.url, seconds=PATIENCE, allow_private=True).status == 302, "without a Location"


def test_body_is_limited_in_size() -> None:
    with http_server(sends(b"#" * 100_000)) as url, pytest.raises(FetchError, match="more than 5000 "):
        fetch(url, max_bytes=5000)


@pytest.mark.parametrize("endless", [False, True])
def test_certificates_are_verified_and_tls_is_limited_in_time(endless: bool, tmp_path: Path) -> None:
    write_certificate(tmp_path)
    trusted = str(tmp_path / "tls.crt")
    with http_server(drips if endless else sends(CONTENT), certificate=tmp_path) as url:
        with pytest.raises(FetchError, match="not trusted"):
            fetch(url)
        if endless:
            with pytest.raises(FetchError, match="in time"):
                fetch(url, cafile=trusted, seconds=0.5)
        else:
            assert fetch(url, cafile=trusted).content == CONTENT
    with pytest.raises(FetchError, match="no certificates"):
        fetch(url, cafile=str(tmp_path / "none"))


@pytest.mark.parametrize("cased", [str.lower, str.upper])
def test_redirect_from_https_to_http_is_refused(cased: Callable[[str], str], tmp_path: Path) -> None:
    write_certificate(tmp_path)
    with (
        http_server(sends(CONTENT)) as plain,
        http_server(redirects(plain.replace("http", cased("http"))), certificate=tmp_path) as url,
        pytest.raises(FetchError, match="away from https"),
    ):
        fetch(url.replace("https", cased("https")), cafile=str(tmp_path / "tls.crt"))


def test_the_time_ends_while_tls_begins() -> None:
    """The timer shuts down a socket. That of TLS takes its place at some moment."""

    class Slow(ssl.SSLContext):
        def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
            made = super().wrap_socket(*arguments, **options)
            for timer in threading.enumerate():
                if isinstance(timer, threading.Timer):
                    timer.join(PATIENCE)
            made.do_handshake = Mock(side_effect=AssertionError)  # type: ignore[method-assign]
            return made

    with socket.create_server(("127.0.0.1", 0)) as server:
        where = parse(f"https://127.0.0.1:{server.getsockname()[1]}/")
        slow = connection(where, seconds=0.1, allow_private=True, context=Slow(ssl.PROTOCOL_TLS_CLIENT))
        with pytest.raises(NmaError, match="no answer in time"), slow:
            pass


# ---- get

PAGE = (200, {"Content-Type": "text/plain"}, b"erc:\n")


def test_addresses_that_are_not_public_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def rebinding(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    with pages(lambda path: PAGE) as running:
        with pytest.raises(NmaError, match="not a public host"):
            get(running.url, seconds=PATIENCE)
        monkeypatch.setattr(socket, "getaddrinfo", rebinding)
        with pytest.raises(NmaError, match=r"127\.0\.0\.1 is not a public address"):
            get(f"http://h.example:{running.port}/", seconds=PATIENCE)
        assert running.asked == []


def test_the_end_of_an_ipv6_literal_is_not_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with pages(lambda path: PAGE) as running:
        monkeypatch.setattr("maptr.web.http.look_up", lambda *_: ["127.0.0.1"])
        assert get(f"http://[2001:db8::abcd]:{running.port}/", seconds=PATIENCE, allow_private=True).status == 200


def test_tls_is_verified_for_the_host_of_the_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_certificate(tmp_path)
    with pages(lambda path: PAGE, certificate=tmp_path) as secure:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.crt"))
        monkeypatch.setattr("maptr.web.http.look_up", lambda *_: ["127.0.0.1"])
        for host in ("ns1.example", "NS1.example."):
            assert get(f"https://{host}:{secure.port}/?info", seconds=PATIENCE, allow_private=True).status == 200
        with pytest.raises(NmaError, match="not trusted"):
            get(f"https://ns2.example:{secure.port}/?info", seconds=PATIENCE, allow_private=True)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
HOSTILE: dict[str, tuple[bytes, bytes]] = {  # the first bytes, and the bytes that are repeated after them
    "garbage": (b"garb\x1b[2Jage" * 1000, b""),
    "nothing": (b"", b""),
    "a status line without end": (b"HTTP", b"x" * 65536),
    "a header without end": (b"HTTP/1.1 200 OK\r\nx: ", b"y" * 65536),
    "headers without end": (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 1000),
    "continue without end": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "no chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b""),
    "a chunk that is too large": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 20 + b"\r\nerc:\n", b""),
    "a chunk of less than nothing": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nerc:\n", b""),
    "trailers without end": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n" * 8192),
    "no status": (b"HTTP/1.1 99999 OK\r\n\r\n", b""),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_response_is_an_error(case: str) -> None:
    with raw_server(*HOSTILE[case]) as port, pytest.raises(NmaError) as failed:
        get(f"http://127.0.0.1:{port}/", seconds=0.5, allow_private=True)
    assert str(failed.value).isprintable()
    assert 12 < len(str(failed.value).removesuffix("None")) < 300, "the host, and why"
