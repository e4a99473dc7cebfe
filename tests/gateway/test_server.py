"""The HTTP server on real sockets: the raw target, refused requests, and closed connections."""

from __future__ import annotations

import gc
import ipaddress
import logging
import re
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from maptr.config.model import GatewayConfig
from maptr.daemon.certificate import Certificate
from maptr.gateway import connections, server
from maptr.gateway.message import Response
from maptr.gateway.server import MAX_BODY
from maptr.gateway.site import Site
from tests.support.caching import ONE_HOST, Rig, dns_answer, host
from tests.support.certificates import write_certificate
from tests.support.http_gateway import TABLE, Gateway, HttpClient, gateway, get, request
from tests.support.streams import linger
from tests.support.waiting import PATIENCE, until

TARGET = "/ark:12345/x1"
LOCATION = "https://h.example/ark:12345/x1"
PROXIES = (ipaddress.ip_network("127.0.0.0/8"),)
BIG = 16 * 1024 * 1024  # bytes: more than the kernel and the transport hold


@pytest.fixture(scope="module")
def shared() -> Iterator[Gateway]:
    with gateway() as found:
        yield found


def big(found: Gateway) -> None:
    """Let ``/metrics`` answer with ``BIG`` bytes."""
    body = bytes(BIG)
    found.change(metrics=lambda: Response(200, (("Content-Type", "text/plain"),), body))


@contextmanager
def asking(**settings: Any) -> Iterator[tuple[Gateway, HttpClient]]:
    """A gateway that has sent the query for ``TARGET``, whose answer waits for the gate, and the client that asked."""
    rig = Rig(ONE_HOST)
    rig.dns.gate = threading.Event()
    with gateway(rig, **settings) as found, HttpClient(found.port) as busy:
        busy.send(request(TARGET))
        until(lambda: rig.dns.calls, "the lookup")
        yield found, busy


def let_go(found: Gateway) -> None:
    assert found.rig.dns.gate is not None
    found.rig.dns.gate.set()


# ---- requests and responses


@pytest.mark.parametrize(
    "target", [TARGET, "/ark:12345", "/", "/health", "/nothing", "/api/v1/discover?ark=ark:12345/x1&ark=ark:12345/x2"]
)
def test_head_is_get_without_a_body(shared: Gateway, target: str) -> None:
    with HttpClient(shared.port) as client:
        client.get(target)  # what follows comes from memory
        whole = client.get(target)
        head = client.get(target, method="HEAD")
        assert client.get("/health").body == b"ok\n"  # nothing was left of a body
    assert whole.body
    differ = {"x-request-id", "date", "expires", "transfer-encoding"}
    assert head.status == whole.status
    assert {k: v for k, v in head.headers.items() if k not in differ} == {
        k: v for k, v in whole.headers.items() if k not in differ
    }


def test_every_response_has_an_id_and_no_version(shared: Gateway) -> None:
    targets: list[bytes | str] = [
        "/health",
        "/nothing",
        TARGET,
        "/ark:%zz",
        b"/\xff",
        "/" + "a" * 20_000,
        "/api/v1/nothing",
    ]
    replies = [get(shared.port, target) for target in targets]
    assert [reply.status for reply in replies] == [200, 404, 302, 400, 400, 414, 404]
    assert replies[1].headers["cache-control"] == "no-store"
    for reply in replies:
        assert reply.headers["server"] == "maptr"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"aiohttp|python|\d\.\d+\.\d", str(reply).lower().replace("http/1.1", ""))
    assert len({reply.headers["x-request-id"] for reply in replies}) == len(replies)


def test_pipelined_requests_are_answered_in_their_order(shared: Gateway) -> None:
    with HttpClient(shared.port) as client:
        targets = [f"/ark:12345/x{number}?" for number in range(200)]
        client.send(b"".join(map(request, targets)))
        assert [client.reply().headers["location"] for _ in targets] == [f"https://h.example{each}" for each in targets]


def test_connection_close_ends_the_connection(shared: Gateway) -> None:
    with HttpClient(shared.port) as client:
        assert client.get("/health", "Connection: close").headers["connection"] == "close"
        assert client.ended()


def test_other_versions_of_http_are_refused(shared: Gateway) -> None:
    for version in (b"HTTP/2.0", b"HTTP/0.9"):
        with HttpClient(shared.port) as client:
            client.send(b"GET /health " + version + b"\r\nHost: a\r\n\r\n")
            assert client.sock.recv(1000).startswith(b"HTTP/1.1 505 ")


def test_a_target_in_absolute_form_is_its_path(shared: Gateway) -> None:
    assert get(shared.port, "http://gateway.example/health").body == b"ok\n"
    assert get(shared.port, f"HTTP://gateway.example:80{TARGET}?").headers["location"] == LOCATION + "?"
    assert get(shared.port, "http://gateway.example").status == 200
    assert b"user:secret" not in get(shared.port, f"http://user:secret@gateway.example{TARGET}?maptr=list").body


def test_a_posted_ark_is_found_after_100_continue(shared: Gateway) -> None:
    with HttpClient(shared.port) as client:
        client.send(request("/", "Expect: 100-continue", "Content-Length: 12", method="POST"))
        assert client.sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        reply = client.send(b"ark:12345/x1").reply()
        assert (reply.status, reply.headers["location"]) == (303, LOCATION)
        client.send(b"POST / HTTP/1.0\r\nContent-Length: 12\r\nExpect: 100-continue\r\n\r\nark:12345/x1")
        assert client.reply().status == 303, "at once (RFC 9110 10.1.1)"


# ---- hostile requests

UNENCODED = "the target has a character that must be %-encoded: é is %C3%A9, a blank is %20 (RFC 3986 2.1)\n".encode()
NO_CODING = b"chunked is the only transfer coding supported\n"
MALFORMED = {
    "not UTF-8": request(b"/ark:12345/x\xff\xfe"),
    "not ASCII": request("/ark:12345/é"),
    "a control character": request(b"/ark:12345/x\x01"),
    "a space": request("/ark:12345/x y"),
    "no target": b"GET\r\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": request("/", "Host: a", "Host: b"),
    "a method in lower case": request("/", method="get"),
    "an unknown method": request("/", method="STEAL"),
    "TLS on a port without it": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "NUL in a header": request("/", "X-Test: a\0b"),
    "a folded header": request("/", "X-Test: a\r\n b"),
    "a bare LF": b"GET / HTTP/1.1\nHost: a\n\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "200 headers": request("/", *(f"X-{number}: 1" for number in range(200))),
    "a length that is no number": request("/", "Content-Length: x"),
    "a negative length": request("/", "Content-Length: -1"),
    "two lengths": request("/", "Content-Length: 1", "Content-Length: 2"),
    "a length and chunks": request("/", "Content-Length: 4", "Transfer-Encoding: chunked", method="POST")
    + b"0\r\n\r\n",
    "an unknown transfer encoding": request("/", "Transfer-Encoding: gzip", method="POST"),
    "a bad chunk": request("/", "Transfer-Encoding: chunked", method="POST") + b"zz\r\n",
    "a target without a path": request("h.example:80"),
}


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED)
def test_malformed_requests_get_no_details(shared: Gateway, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with HttpClient(shared.port) as client:
        reply = client.send(content).reply()
        assert (reply.status, reply.body) in ((400, b"bad request\n"), (400, UNENCODED), (501, NO_CODING))
        assert reply.headers["content-type"] == "text/plain; charset=utf-8"
        assert client.ended()
    assert not caplog.records  # any client could fill the log


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/%", 404),
        ("/%zz", 404),
        ("/%00", 404),
        ("/ark:12345/%zz", 400),
        ("/ark:", 400),
        ("/ark:" + "a" * 70 + "/x", 400),
        ("/ark:12345/" + "x" * 9000, 414),
        ("/../../../etc/passwd", 404),
        ("/templates/../../etc/passwd", 404),
        ("/%2e%2e/%2e%2e/etc/passwd", 404),
        ("/..%2f..%2fetc/passwd", 404),
        ("/.well-known/x", 404),
        ("/naan/%ff", 404),
        ("/naan/../../etc/passwd", 404),
        ("/?q=%ff%00", 200),
        ("/?q=%3Cscript%3Ealert(1)%3C/script%3E", 200),
        ("/?q=ark:12345/%3Cscript%3E", 200),
        ("/dns-query?dns=%ff", 404),
        ("/api/v1/discover", 400),
        ("/api/v1/naans/%ff", 400),
        ("/api/v1/nothing", 404),
    ],
)
def test_a_hostile_target_is_answered_and_no_error_of_the_server(shared: Gateway, target: str, status: int) -> None:
    reply = get(shared.port, target, "Accept: text/html")
    assert reply.status == status
    assert b"<script>alert" not in reply.body
    assert b"root:" not in reply.body


@pytest.mark.parametrize("pair", ["%0d%0a", "%0D%0ASet-Cookie:%20a=b", "%E5%98%8D%E5%98%8A", "%0a", "%00", "%7f"])
@pytest.mark.parametrize("where", ["{}", "x{}1", "x1?{}", "x1?a={}", "x1?maptr=list&{}", "x1/{}/?info"])
@pytest.mark.parametrize("accept", ["*/*", "application/linkset+json", "application/json"])
def test_no_pair_of_a_target_becomes_a_header(shared: Gateway, pair: str, where: str, accept: str) -> None:
    reply = get(shared.port, "/ark:12345/" + where.format(pair), f"Accept: {accept}")
    assert reply.status in (200, 302, 400)
    assert "set-cookie" not in reply.headers
    assert set(reply.headers["location"]) <= set(map(chr, range(33, 127))) if reply.status == 302 else True


@pytest.mark.parametrize(
    "headers",
    [
        ["Accept: \xff\xfe"],
        ["Accept: " + "a/b;q=0.5," * 700],
        ["Accept: " + "," * 8000],
        ["Accept: text/html;q=" + "9" * 4000],
        ["Content-Type: \xff", "Origin: null"],
        ["Upgrade: websocket", "Connection: upgrade"],
        ["Range: bytes=0-1"],
        ["If-Modified-Since: x"],
        ["X-Forwarded-For: 10.0.0.1\xff"],
    ],
)
def test_a_hostile_header_changes_nothing(shared: Gateway, headers: list[str]) -> None:
    assert get(shared.port, TARGET, *headers).headers["location"] == LOCATION


def test_methods_that_are_not_for_an_ark(shared: Gateway) -> None:
    """tests/vectors/gateway.toml has the others."""
    reply = get(shared.port, TARGET, method="TRACE")
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST, PUT, DELETE")
    assert get(shared.port, "*", method="OPTIONS").status == 204
    assert get(shared.port, "h.example:80", method="CONNECT").status == 405


def test_a_failure_of_the_core_is_logged_and_has_no_details(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> Response:
        raise RuntimeError("a secret")

    with gateway() as found:
        found.change(metrics=fail)
        replies = [get(found.port, "/metrics") for _ in range(3)]
        assert {reply.status for reply in replies} == {500}
        assert b"secret" not in replies[0].body
        page = get(found.port, "/metrics", "Accept: text/html", "Accept-Language: es")
        assert (page.status, "Aquí se ha producido un error" in page.text) == (500, True)
        assert "access-control-allow-origin" not in replies[0].headers, "it is for operators"
        found.change(metrics=lambda: Response(200, (("X-Bad", "a\r\nb"),), b""))
        with HttpClient(found.port) as client, pytest.raises((EOFError, ConnectionError)):
            client.get("/metrics")
        found.change(metrics=None)
        assert get(found.port, "/health").status == 200
    assert caplog.messages == ["internal error, GET /metrics", "internal error"], "each once"


# ---- limits of size


@pytest.mark.parametrize(
    ("longest", "more", "status"),
    [
        (["/health?" + "a" * (connections.MAX_TARGET - 8)], "a", 414),
        (["/health", "X: " + "a" * (connections.MAX_HEADER - 10)], "a" * 10, 431),
    ],
    ids=["target", "header"],
)
def test_a_target_and_a_header_have_a_limit(shared: Gateway, longest: list[str], more: str, status: int) -> None:
    with HttpClient(shared.port) as client:
        assert client.get(*longest).status == 200
        refused = client.get(*longest[:-1], longest[-1] + more)
        assert (refused.status, refused.headers["access-control-allow-origin"]) == (status, "*")
        assert client.ended()


def test_a_body_has_a_limit(shared: Gateway) -> None:
    assert get(shared.port, "/", method="POST", body=b" " * MAX_BODY).status == 414  # longer than an ARK
    chunks = b"8000\r\n" + b"a" * 0x8000 + b"\r\n"
    for content in (
        request("/", method="POST", body=b" " * (MAX_BODY + 1)),
        request("/", method="POST", body=b" " * 1_000_000),
        request("/", "Content-Length: 99999999999", method="POST"),
        request("/", "Transfer-Encoding: chunked", method="POST") + chunks * 3,
    ):
        with HttpClient(shared.port) as client:
            reply = client.send(content).reply()
            assert (reply.status, reply.body) == (413, b"the body has more than 65536 bytes\n")


def test_a_compressed_body_is_refused(shared: Gateway) -> None:
    """RFC 9112 6.1."""
    assert get(shared.port, "/", "Content-Encoding: gzip", method="POST", body=b"\x1f\x8b").status == 415
    with HttpClient(shared.port) as client:
        client.send(request("/", "Transfer-Encoding: gzip, chunked", method="POST") + b"0\r\n\r\n")
        assert client.reply().status == 501


# ---- limits of time and number


def test_slow_headers_end_the_connection() -> None:
    with gateway() as found, HttpClient(found.port) as client, HttpClient(found.port) as second:
        assert second.get("/health").status == 200
        found.configure(idle_timeout=1.0)
        stop = threading.Event()

        def drip() -> None:
            for octet in b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 10_000:
                try:
                    client.send(bytes([octet]))
                    second.send(bytes([octet]))
                except OSError:
                    return
                if stop.wait(0.02):
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        assert client.ended()
        assert second.ended()
        stop.set()
        thread.join()


def test_a_slow_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BODY_TIMEOUT", 0.1)
    with gateway() as found, HttpClient(found.port) as client:
        client.send(request("/", "Content-Length: 100", method="POST") + b"ark:")
        assert client.reply().status == 408
        assert client.ended()


@pytest.mark.parametrize("length", [100, 99_999_999_999], ids=["accepted", "refused"])
def test_a_client_that_leaves_in_the_middle_of_its_body_is_forgotten(length: int) -> None:
    with gateway() as found:
        with HttpClient(found.port) as client:
            client.send(request("/", f"Content-Length: {length}", method="POST") + b"ark:")
            until(lambda: found.connections.open, "the connection")
            if length > MAX_BODY:
                assert client.reply().status == 413
        until(lambda: not found.connections.open, "its end")


@pytest.mark.parametrize("target", ["/metrics", "/health"])
def test_a_client_that_does_not_read_is_disconnected(target: str) -> None:
    """A long response, and many short ones for pipelined requests."""
    with gateway(idle_timeout=1.0) as found:
        big(found)
        with HttpClient(found.port, receive_buffer=4096) as client:
            client.send(request(target) if target == "/metrics" else request(target) * 100)
            assert client.sock.recv(1)
            client.sock.setblocking(False)
            sent = 0
            while target == "/health" and sent < 60_000:  # until the server reads no more
                try:
                    sent += client.sock.send(request(target) * 100)
                except BlockingIOError:
                    time.sleep(0.01)
                except OSError:
                    break
            until(lambda: not found.connections.open, "its end")


def test_a_client_that_reads_a_long_response_slowly_gets_it() -> None:
    with gateway() as found:
        big(found)
        with HttpClient(found.port, receive_buffer=65536) as client:
            client.send(request("/metrics"))
            time.sleep(0.2)
            assert len(client.reply().body) == BIG
            assert client.get("/health").status == 200
        assert get(found.port, "/metrics", method="HEAD").headers["content-length"] == str(BIG)


def test_at_the_limit_the_connection_that_waits_for_longest_makes_room() -> None:
    with asking(max_connections=3) as (found, busy):
        with HttpClient(found.port) as first, HttpClient(found.port) as second:
            for client in (first, second, first):
                assert client.get("/health").status == 200
            with HttpClient(found.port) as third:
                assert third.get("/health").status == 200
                assert second.ended()
                assert first.get("/health").status == 200
        let_go(found)
        assert busy.reply().headers["location"] == LOCATION
        assert found.metric("maptr_http_connections_shed_total") == 1
        assert found.metric("maptr_http_connections") == 2


def test_a_new_connection_is_counted_once() -> None:
    with gateway() as found:
        counts: list[int] = []
        is_over = threading.Event()

        def count() -> None:
            counts.append(found.connections.open)
            if not is_over.is_set():
                found.running.loop.call_soon(count)

        found.running.loop.call_soon_threadsafe(count)
        with HttpClient(found.port) as client:
            assert client.get("/health").status == 200
        is_over.set()
        assert max(counts) == 1


def test_a_connection_is_refused_when_all_are_busy() -> None:
    with asking(max_connections=1) as (found, busy):
        with HttpClient(found.port) as client:
            assert client.ended()
        let_go(found)
        assert busy.reply().headers["location"] == LOCATION
        assert "maptr_http_connections_refused_total 1.0" in busy.get("/metrics").text


# ---- the rate of a client


def test_x_forwarded_for_counts_from_proxies_only() -> None:
    with gateway(rate=1) as found, HttpClient(found.port) as client:
        replies = [client.get("/health", f"X-Forwarded-For: 192.0.2.{number}") for number in range(10)]
        assert {(reply.status, reply.headers.get("retry-after")) for reply in replies} == {(200, None), (429, "1")}
        found.configure(rate=1, proxies=PROXIES)
        statuses = [client.get("/health", f"X-Forwarded-For: 192.0.2.{number}").status for number in range(10)]
        assert set(statuses) == {200}
        both = ("X-Forwarded-For: 203.0.113.{}", "X-Forwarded-For: 192.0.2.77")  # as HAProxy adds a header of its own
        statuses = [client.get("/health", both[0].format(number), both[1]).status for number in range(10)]
        assert 429 in statuses


@pytest.mark.parametrize(
    ("code", "title"), [("en", "Too many requests"), ("fr", "Trop de requêtes"), ("es", "Demasiadas peticiones")]
)
def test_a_browser_that_asks_too_often_gets_a_page(code: str, title: str) -> None:
    """In its language, with the name and the contact of the operator; a program gets a line or problem details."""
    browser = ("Accept: text/html,*/*;q=0.8", f"Accept-Language: {code}")
    site = Site(GatewayConfig(name="Our Library", contact="us@example.org"))
    with gateway(site=site, rate=1) as found, HttpClient(found.port) as client:
        replies = [client.get("/", *browser) for _ in range(5)]
        (page, *_) = [reply for reply in replies if reply.status == 429]
        assert page.headers["retry-after"].isdigit()
        assert (page.headers["cache-control"], page.headers["content-language"]) == ("no-store", code)
        for text in (f"<h1>{title}</h1>", "Our Library", "mailto:us@example.org"):
            assert text in page.text
        assert client.get("/style.css?x").status == 200, "for the page"
        assert client.get("/style.css/x").status == 429, "no other path"
        line, document = client.get("/"), client.get("/api/v1/naans")
        assert (line.status, line.text.splitlines()[1]) == (429, "too many requests")
        assert (document.status, document.headers["content-type"]) == (429, "application/problem+json")


def test_a_proxy_that_names_no_client_shares_one_limit(caplog: pytest.LogCaptureFixture) -> None:
    """The limit fails closed, and a line of the log says why."""
    names_none = "X-Forwarded-For names no client outside gateway.proxies"
    for named, fault in (
        ([], "sends no X-Forwarded-For"),
        (["X-Forwarded-For: unknown"], names_none),
        (['X-Forwarded-For: "x"'], names_none),
        (["X-Forwarded-For: 127.0.0.1"], names_none),  # as nginx writes it for a client of the same machine
    ):
        caplog.clear()
        with gateway(rate=1, proxies=PROXIES) as found, HttpClient(found.port) as client:
            assert {client.get("/health", *named).status for _ in range(5)} == {200, 429}
            assert f"127.0.0.1 is in gateway.proxies and {fault}: all its clients share one limit" in caplog.text
            assert client.get("/health", "X-Forwarded-For: 192.0.2.1").status == 200


def test_a_proxy_that_asks_for_the_health_of_the_gateway_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    with gateway(proxies=PROXIES) as found, HttpClient(found.port) as client:
        assert {client.get(target).status for target in ("/health", "/ready", "/metrics")} == {200}
        assert "gateway.proxies" not in caplog.text
        client.get("/naan/")
        assert "sends no X-Forwarded-For" in caplog.text


def test_the_header_forwarded_names_the_client(caplog: pytest.LogCaptureFixture) -> None:
    """RFC 7239; the other header then means nothing."""
    caplog.set_level("INFO", "maptr.gateway.access")
    with (
        gateway(proxies=PROXIES, client_header="Forwarded", access_log=True) as found,
        HttpClient(found.port) as client,
    ):
        client.get(
            "/health", 'Forwarded: for=198.51.100.1, for="[2001:db8::7]:4711";proto=https', "X-Forwarded-For: 192.0.2.1"
        )
    assert caplog.messages[-1].startswith('2001:db8::7 "GET /health" 200')


def test_a_request_is_charged_for_the_time_that_it_takes() -> None:
    def slow() -> Response:
        time.sleep(0.1)  # a hundred tokens
        return Response(200, ())

    with gateway(rate=1) as found, HttpClient(found.port) as client:
        found.change(metrics=slow)
        assert [client.get(target).status for target in ("/metrics", "/health")] == [200, 429]


V2 = b"\r\n\r\n\x00\r\nQUIT\n"


@pytest.mark.parametrize(
    ("header", "client"),
    [
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1000 80\r\n", "192.0.2.1"),
        (b"PROXY TCP6 2001:db8::1 2001:db8::2 1000 80\r\n", "2001:db8::1"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
        (V2 + bytes((0x21, 0x11, 0, 12, 192, 0, 2, 1, 192, 0, 2, 2, 4, 0, 0, 80)), "192.0.2.1"),
        (V2 + bytes((0x21, 0x21, 0, 39)) + bytes(15) + b"\x01" + bytes(16) + bytes(4) + b"\x03\x00\x00", "::1"),
        (V2 + bytes((0x20, 0x00, 0, 0)), "127.0.0.1"),
        (V2 + bytes((0x22, 0x11, 0, 12)) + bytes(12), None),
        (V2 + bytes((0x21, 0x11, 0, 3)) + bytes(3), None),
        (b"PROXY TCP4 x y 1000 80\r\n", None),
        (b"PROXY TCP4 " + b"1" * 200, None),
        (b"", None),
    ],
)
def test_proxy_protocol_names_the_client(header: bytes, client: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """Versions 1 and 2, before anything else of a connection from a proxy."""
    caplog.set_level("INFO", "maptr.gateway.access")
    with gateway(proxies=PROXIES, proxy_protocol=True, access_log=True) as found:
        for _ in range(2):
            with HttpClient(found.port) as link:
                link.send(header + request("/health"))
                if client is None:
                    assert link.ended()
                else:
                    assert link.reply().status == 200
                    assert caplog.messages[-1].startswith(f'{client} "GET /health" 200')
        assert caplog.text.count("its connection was closed: ") == (client is None), "logged once"


def test_a_client_has_a_limit_of_connections() -> None:
    with gateway(max_per_client=3) as found:
        clients = [HttpClient(found.port) for _ in range(3)]
        assert [client.get("/health").status for client in clients] == [200] * 3
        with HttpClient(found.port) as more:
            assert more.ended()
        clients[0].sock.close()
        until(lambda: found.connections.open == 2, "the end of a connection")
        assert get(found.port, "/health").status == 200
        found.configure(max_per_client=1, proxies=PROXIES)
        assert get(found.port, "/health").status == 200, "a proxy has no such limit"
        for client in clients[1:]:
            client.sock.close()


def test_a_connection_that_waits_for_its_body_makes_room() -> None:
    with gateway(max_connections=20) as found:
        slow = [HttpClient(found.port).send(request("/", "Content-Length: 9", method="POST")) for _ in range(40)]
        assert get(found.port, "/health").status == 200
        for client in slow:
            client.sock.close()


def test_a_client_that_ends_its_side_gets_its_responses() -> None:
    """As nc -N and some health checks do. The connection then ends."""
    with gateway() as found:
        for content, count in ((request("/health"), 1), (request("/health") + request(TARGET), 2)):
            with HttpClient(found.port) as client:
                client.send(content)
                client.sock.shutdown(socket.SHUT_WR)
                assert [client.reply().status for _ in range(count)] == [200, 302][:count]
                assert client.ended()
        with HttpClient(found.port) as client:
            client.sock.shutdown(socket.SHUT_WR)
            assert client.ended()


@pytest.mark.parametrize("protocol", ["h2c", "websocket", "HTTP/3, x"])
def test_a_request_after_one_that_asks_for_another_protocol_is_answered(shared: Gateway, protocol: str) -> None:
    """RFC 9110 7.8: the server may ignore Upgrade."""
    first = request("/health", "Connection: Upgrade", f"Upgrade: {protocol}")
    with HttpClient(shared.port) as client:
        client.send(first + request(TARGET) + first + request("/health"))
        assert [client.reply().status for _ in range(4)] == [200, 302, 200, 200]
        assert client.get("/health").status == 200


def test_every_response_is_http_1_1(shared: Gateway) -> None:
    """RFC 9110 2.5: the version of a response is that of its server."""
    arks = "/api/v1/discover?ark=ark:12345/x1&ark=ark:12345/x2"
    for content in (b"GET /health HTTP/1.0\r\n\r\n", b"GET\r\n\r\n", f"GET {arks} HTTP/1.0\r\n\r\n".encode()):
        with socket.create_connection(("127.0.0.1", shared.port)) as sock, sock.makefile("rb") as file:
            sock.sendall(content)
            received = file.read()
        assert received.startswith(b"HTTP/1.1 ")
        assert b"chunked" not in received
        assert arks.encode() not in content or received.count(b'"ark": "ark:12345/x') == 2
    with HttpClient(shared.port) as client:
        client.send(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert client.reply().headers["connection"] == "keep-alive"
        assert client.get("/health").status == 200


@pytest.mark.parametrize(
    ("status", "hosts"),
    [
        (
            400,
            [
                "a b",
                "a/b",
                "h.example:x",
                "[::1",
                "a,b/c",
                "é",
                "a:99999",
                "a:65536",
                "[::1]:99999",
                "a:" + "9" * 5_000,
            ],
        ),
        (200, ["", "h.example", "h.example:8080", "[2001:db8::1]:80", "h_1.example.", "127.0.0.1", "a:65535", "a:"]),
    ],
)
def test_hosts(shared: Gateway, status: int, hosts: list[str]) -> None:
    """RFC 9112 3.2."""
    for text in hosts:
        with HttpClient(shared.port) as client:
            content = f"GET /health HTTP/1.1\r\nHost: {text}\r\n\r\n".encode()
            assert client.send(content).reply().status == status, text


@pytest.mark.parametrize("port", ["99999", "65536", "x"])
def test_the_host_of_an_absolute_target_has_a_port_that_exists(shared: Gateway, port: str) -> None:
    with HttpClient(shared.port) as client:
        assert client.send(f"GET http://a:{port}/health HTTP/1.1\r\nHost: a\r\n\r\n".encode()).reply().status == 400


def test_the_rules_of_a_naan_that_take_too_long_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its answer is kept. Other NAANs are answered."""
    monkeypatch.setattr(server, "FREE_WORK", 0)
    monkeypatch.setattr(server, "NAAN_WORK", 100)
    answers = {f"{naan}.ark.arpa.": dns_answer(host("h.example.")) for naan in ("12345", "54321")}
    with gateway(Rig(answers)) as found, HttpClient(found.port) as client:
        statuses = [client.get(f"/ark:12345/x{number}").status for number in range(20)]
        assert statuses[0] == 302
        refused = client.get("/ark:12345/x99")
        assert (refused.status, refused.headers["retry-after"]) == (503, "30")
        assert client.get("/ark:54321/x").status == 302


# ---- lookups


def test_too_many_lookups_at_a_time_are_503_and_what_is_kept_is_answered() -> None:
    rig = Rig(ONE_HOST, natab=TABLE)
    with gateway(rig) as found:
        assert get(found.port, TARGET).status == 302
        rig.dns.gate = threading.Event()
        clients = [HttpClient(found.port).send(request(f"/ark:2{number:04}/x")) for number in range(300)]
        refused = [client for client in clients[256:] if client.reply().status == 503]
        assert len(refused) == 44
        assert int(clients[-1].get("/ark:99998/x").headers["retry-after"]) > 0
        assert get(found.port, TARGET).status == 302
        rig.dns.gate.set()
        assert {client.reply().status for client in clients[:256]} == {404}
        for client in clients:
            client.sock.close()


def test_a_client_that_leaves_does_not_end_the_lookup_of_others() -> None:
    with asking() as (found, first), HttpClient(found.port) as other:
        other.send(request(TARGET))
        linger(first.sock)  # its end is a reset: a plain end may mean that it still reads
        first.sock.close()
        until(lambda: found.connections.open == 1, "the end of the first connection")
        let_go(found)
        assert other.reply().headers["location"] == LOCATION
        assert found.rig.dns.calls == 1


def test_a_client_that_leaves_a_response_in_lines_leaves_no_task() -> None:
    rig = Rig()
    rig.dns.gate = threading.Event()
    with gateway(rig) as found:
        arks = "&".join(f"ark=ark:2{number:04}/x" for number in range(100))
        with HttpClient(found.port) as client:
            client.send(request(f"/api/v1/discover?{arks}"))
            until(lambda: rig.dns.calls >= server.AT_ONCE, "the lookups")
        rig.dns.gate.set()
        until(lambda: not found.connections.open, "the end of the connection")
        assert rig.dns.calls < 100


# ---- stop


def test_a_stop_answers_what_is_under_way_and_what_comes_on_open_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "QUIET_TIMEOUT", PATIENCE)
    rig = Rig(ONE_HOST)
    gate = rig.dns.gate = threading.Event()
    with gateway(rig) as found:
        under_way = HttpClient(found.port).send(request(TARGET))
        opened = HttpClient(found.port)
        assert opened.get("/health").status == 200
        until(lambda: rig.dns.calls, "the lookup")
        replies = []

        def ask_during_the_stop() -> None:
            until(lambda: not is_listening(found.port), "the stop")
            replies.append(opened.get("/health"))
            gate.set()
            replies.append(under_way.reply())

        thread = threading.Thread(target=ask_during_the_stop)
        thread.start()
    thread.join()
    assert [(reply.status, reply.headers["connection"]) for reply in replies] == [(200, "close"), (302, "close")]
    for client in (under_way, opened):
        with client:
            assert client.ended()


def is_listening(port: int) -> bool:
    try:
        with HttpClient(port):
            return True
    except ConnectionError:
        return False


# ---- TLS


def context(directory: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A certificate's context for a server, and the one for its clients."""
    directory.mkdir()
    write_certificate(directory, name)
    made = Certificate(directory / "tls.crt", directory / "tls.key", alpn="http/1.1").context
    return made, ssl.create_default_context(cafile=str(directory / "tls.crt"))


def test_a_new_certificate_is_for_new_connections(tmp_path: Path) -> None:
    (first, trusts_first), (second, trusts_second) = context(tmp_path / "1", "a"), context(tmp_path / "2", "b")
    with gateway(tls=first) as found, HttpClient(found.port, tls=trusts_first) as client:
        assert client.get(TARGET + "?").headers["location"] == LOCATION + "?"
        found.configure(second)
        with HttpClient(found.port, tls=trusts_second) as other:
            assert other.get(TARGET).headers["location"] == LOCATION
        with pytest.raises(ssl.SSLError):
            HttpClient(found.port, tls=trusts_first)
        assert client.get(TARGET).headers["location"] == LOCATION


def test_a_handshake_has_a_limit_of_time_and_number(tmp_path: Path) -> None:
    tls, trusts = context(tmp_path / "1", "a")
    with gateway(tls=tls, max_connections=2) as found:
        with HttpClient(found.port) as first, HttpClient(found.port) as second:
            until(lambda: found.connections.open == 2, "the handshakes")
            with HttpClient(found.port, tls=trusts) as client:
                assert client.get("/health").status == 200
                assert first.ended()
                found.configure(tls, idle_timeout=0.3, max_connections=2)
                second.sock.close()
        with HttpClient(found.port) as silent:
            assert silent.ended()
        found.configure(tls, max_connections=2)
        with HttpClient(found.port, tls=trusts) as client:
            assert client.get("/health").status == 200


def test_a_failed_handshake_leaves_no_reference_cycle(tmp_path: Path) -> None:
    """With one, the memory of the connection would wait for the garbage collector."""
    tls, _ = context(tmp_path / "1", "a")
    with gateway(tls=tls) as found:
        gc.collect()
        gc.disable()
        try:
            with HttpClient(found.port) as client:
                client.sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert client.ended()
            until(lambda: not any(isinstance(each, ssl.SSLObject) for each in gc.get_objects()), "the release")
        finally:
            gc.enable()


def test_an_open_tls_connection_takes_little_memory(tmp_path: Path) -> None:
    tls, trusts = context(tmp_path / "1", "a")
    with gateway(tls=tls) as found, ExitStack() as stack:
        get_one = partial(HttpClient, found.port, tls=trusts)
        assert stack.enter_context(get_one()).get("/health").status == 200
        tracemalloc.start()
        try:
            for _ in range(8):
                assert stack.enter_context(get_one()).get("/health").status == 200
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert taken < 8 * 100_000


def test_a_stop_ends_a_handshake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "DRAIN_TIMEOUT", 0.1)
    tls, _ = context(tmp_path / "1", "a")
    with gateway(tls=tls) as found:
        client = HttpClient(found.port)
        until(lambda: found.connections.open, "the handshake")
    with client:
        assert client.ended()


# ---- the log


def lines_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "maptr.gateway.access"]


def test_the_access_log_has_the_id_of_the_response(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "maptr.gateway.access")
    with gateway(access_log=True, proxies=PROXIES) as found, HttpClient(found.port) as client:
        reply = client.get(TARGET + "?", "X-Forwarded-For: 192.0.2.1")
        until(lambda: lines_of(caplog), "the line")
        number = reply.headers["x-request-id"]
        pattern = rf'192\.0\.2\.1 "GET /ark:12345/x1\?" 302 \d\.\d+ {number}'
        assert re.fullmatch(pattern, lines_of(caplog)[0].getMessage())
        reply = client.get("/health", "X-Request-Id: proxys-own.7")
        assert reply.headers["x-request-id"] == "proxys-own.7"
        assert client.get("/health", "X-Request-Id: a b").headers["x-request-id"] != "a b"
        found.configure(access_log=False)
        assert client.get("/health", "X-Request-Id: proxys").headers["x-request-id"] != "proxys"
        assert len(lines_of(caplog)) == 3


def test_a_target_cannot_forge_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "maptr.gateway.access")
    with gateway(access_log=True) as found:
        get(found.port, '/%0a"\'<>\\" 200')
        get(found.port, '/"200"')
        get(found.port, b"/\xff")
    assert [record.getMessage().split(" ", 1)[1].rsplit(" ", 2)[0] for record in lines_of(caplog)] == [
        '"- -" 400',
        '"GET /%22200%22" 404',
        '"- -" 400',
    ]


def test_requests_are_counted_by_kind_and_status() -> None:
    with gateway() as found:
        for target in (TARGET, TARGET, "/nothing", "/api/v1/nothing", b"/\xff"):
            get(found.port, target)
        counted = {("resolve", "302"): 2, ("page", "404"): 1, ("api", "404"): 1, ("malformed", "400"): 1}
        for (kind, status), count in counted.items():
            assert found.metric("maptr_http_requests_total", kind=kind, status=status) == count
        assert found.metric("maptr_http_request_seconds_count", kind="resolve") == 2
