"""Requests to web servers that hostile DNS may name: limits on addresses, time and size, and TLS."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from maptr.errors import NmaError
from maptr.web import connect
from tests.support.certificates import write_certificate
from tests.support.http_server import pages, raw_server

PAGE = (200, {"Content-Type": "text/plain"}, b"erc:\n")


def test_addresses_that_are_not_public_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def rebinding(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    with pages(lambda path: PAGE) as running:
        with pytest.raises(NmaError, match="not a public host"):
            connect.get(running.url, seconds=2)
        monkeypatch.setattr(socket, "getaddrinfo", rebinding)
        with pytest.raises(NmaError, match=r"127\.0\.0\.1 is not a public address"):
            connect.get(f"http://h.example:{running.port}/", seconds=2)
        assert running.asked == []


def test_a_body_is_cut_at_the_limit() -> None:
    with pages(lambda path: (200, {}, b"x" * 1_000_000)) as running:
        page = connect.get(running.url, seconds=5, allow_private=True)
    assert (page.cut, len(page.body)) == (True, connect.MAX_BODY)


def test_a_server_that_sends_byte_by_byte_meets_the_time_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        over = threading.Event()

        def drip() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.sendall(b"HTTP/1.1 200 OK\r\n")
                while not over.wait(0.05):
                    try:
                        sock.sendall(b"X")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        started = time.monotonic()
        with pytest.raises(NmaError, match="no answer in time"):
            connect.get(f"http://127.0.0.1:{listener.getsockname()[1]}/", seconds=0.5, allow_private=True)
        assert time.monotonic() - started < 5
        over.set()
        thread.join()


def test_tls_is_verified_for_the_host_of_the_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_certificate(tmp_path)
    with pages(lambda path: PAGE, certificate=tmp_path) as secure:
        with pytest.raises(NmaError, match="not trusted"):
            connect.get(f"https://127.0.0.1:{secure.port}/", seconds=5, allow_private=True)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.crt"))
        monkeypatch.setattr(connect, "look_up", lambda *_: ["127.0.0.1"])
        for host in ("ns1.example", "NS1.example."):
            assert connect.get(f"https://{host}:{secure.port}/?info", seconds=5, allow_private=True).status == 200
        with pytest.raises(NmaError, match="not trusted"):
            connect.get(f"https://ns2.example:{secure.port}/?info", seconds=5, allow_private=True)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
HOSTILE: dict[str, tuple[bytes, bytes]] = {  # the first bytes, and what follows without end
    "garbage": (b"garbage", b""),
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
    with raw_server(*HOSTILE[case]) as port, pytest.raises(NmaError):
        connect.get(f"http://127.0.0.1:{port}/", seconds=0.5, allow_private=True)
