"""ARK service requests and probes against real HTTP servers, honest and hostile."""

from __future__ import annotations

import gzip
import inspect
import json
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from maptr import url
from maptr.ark import Ark
from maptr.cli.group import main
from maptr.client.sync import discover
from maptr.discovery import Candidate, Discovery, NoMappingAuthority
from maptr.errors import ConfigError, NmaError
from maptr.nma.describe import DiscoverOptions, describe, read
from maptr.nma.reachable import Reachable, info
from maptr.web import connect
from maptr.web.connect import Page
from tests.support.hostile import hostile, hosts, naptr
from tests.support.ports import free_port

ARK = Ark.parse("ark:12345/x1")
ERC = b"""# a comment
erc:
who:   Lederberg,
       Joshua
what:  Studies%spof Human Families \xe2\x80\x94 1
when:  1974
where: https://ark.example.org/ark:12345/x1
!note: private
erc-support:
who:   Example
who:   Another
"""


class Pages:
    """An HTTP server that answers by path and query, and the raw targets it was asked."""

    def __init__(
        self, respond: Callable[[str], tuple[int, dict[str, str], bytes]], tls: ssl.SSLContext | None = None
    ) -> None:
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                status, headers, body = respond(self.path)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def pages(
    respond: Callable[[str], tuple[int, dict[str, str], bytes]], tls: ssl.SSLContext | None = None
) -> Iterator[Pages]:
    running = Pages(respond, tls)
    thread = threading.Thread(target=running.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield running
    finally:
        running.server.shutdown()
        thread.join()
        running.server.server_close()


TEXT = {"Content-Type": "text/plain; charset=UTF-8", "THUMP-Status": "0.6 200 OK", "Link": '<a>; rel="describes"'}


def erc(path: str) -> tuple[int, dict[str, str], bytes]:
    return (200, TEXT, ERC) if path.endswith("?info") else (200, {"Content-Type": "text/html"}, b"<html>")


def at(target: str, *more: str) -> Discovery:
    """A discovery of candidates at the places, by h records."""
    places = [url.parse(text) for text in (target, *more)]
    found = [Candidate(where.host.text, where.port, 0, n, "12345.ark.arpa.") for n, where in enumerate(places)]
    return Discovery(ARK, tuple(found), scheme="http")


def test_a_record_in_segments() -> None:
    with pages(erc) as running:
        told = describe(ARK, discovery=at(running.url), allow_private=True)
    assert running.asked == ["/ark:12345/x1?info"]
    assert told.spoken
    assert (told.status, told.thump, told.links) == (200, "0.6 200 OK", ('<a>; rel="describes"',))
    first, support = told.segments
    assert first.name == "erc"
    assert first.elements[:2] == (("who", "Lederberg, Joshua"), ("what", "Studies of Human Families \u2014 1"))
    assert first.get("note") is None
    assert support.elements == (("who", "Example"), ("who", "Another"))
    assert told.segment("erc-support") == support
    assert told.to_text().startswith("erc:\nwho: Lederberg, Joshua\n")


def test_the_short_form_and_other_encodings() -> None:
    page = Page(
        "http://a/", 200, (("content-type", "text/plain;charset=latin-1"),), b"erc: M\xfcller | T | 1 | w\n", False
    )
    (segment,) = read(ARK, "", page).segments
    assert segment.elements == (("who", "Müller"), ("what", "T"), ("when", "1"), ("where", "w"))
    unknown = page._replace(headers=(("content-type", "text/plain; charset=nonsense"),), body=b"erc: \xff|b\n")
    assert read(ARK, "", unknown).spoken


@pytest.mark.parametrize(
    "charset", ["idna", "punycode", "undefined", "unicode_escape", "utf-7", "zlib", "a\0b", "../x"]
)
def test_a_charset_that_is_none_is_utf_8(charset: str) -> None:
    headers = (("content-type", f"text/plain; charset={charset}"),)
    told = read(ARK, "", Page("http://a/", 200, headers, "erc: é+2AA-\\ud800|b".encode(), False))
    assert told.segments[0].elements[0] == ("who", "é+2AA-\\ud800")


def test_a_line_end_in_a_value_makes_no_label() -> None:
    page = Page("http://a/", 200, (), "erc:\nwho: a\x85erc-support:\u2028what: b\x0bx\n".encode(), False)
    told = read(ARK, "", page)
    assert told.to_text() == "erc:\nwho: a\n\terc-support:\n\twhat: b\n\tx"
    (again,) = read(ARK, "", page._replace(body=told.to_text().encode())).segments
    assert again.elements == (("who", "a erc-support: what: b x"),)


def test_an_authority_that_does_not_speak_it_is_said_so() -> None:
    with pages(lambda path: (200, {"Content-Type": "text/html"}, b"<p>erc: no</p>")) as running:
        told = describe(ARK, discovery=at(running.url), allow_private=True)
    assert not told.spoken
    assert "HTTP status 200, text/html, no erc: record" in told.note
    with pages(lambda path: (200, TEXT, ERC) if path.endswith("x1?") else (404, {}, b"")) as running:
        told = describe(ARK, discovery=at(running.url), allow_private=True, inflections=("?info", "?", "??"))
        assert running.asked == ["/ark:12345/x1?info", "/ark:12345/x1?"]
    assert told.spoken


def test_redirects_are_followed_within_limits() -> None:
    with pages(erc) as target:
        away = f"{target.url}/ark:12345/x1?info"
        with pages(lambda path: (302, {"Location": away}, b"")) as running:
            told = describe(ARK, discovery=at(running.url), allow_private=True)
            assert told.url == away
    with pages(lambda path: (302, {"Location": "/again"}, b"")) as running, pytest.raises(NmaError, match="redirects"):
        describe(ARK, discovery=at(running.url), allow_private=True)
    with (
        pages(lambda path: (302, {"Location": "http://["}, b"")) as running,
        pytest.raises(NmaError, match="redirects"),
    ):
        describe(ARK, discovery=at(running.url), allow_private=True)
    for away in ("file:///etc/passwd", "http://user@h.example/", "gopher://h.example/", "http://h.example:0/"):
        with (
            pages(lambda path, away=away: (302, {"Location": away}, b"")) as running,  # type: ignore[misc]
            pytest.raises(NmaError, match="is not asked"),
        ):
            describe(ARK, discovery=at(running.url), allow_private=True)


def test_private_addresses_are_refused_when_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    def rebinding(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    with pages(erc) as running:
        with pytest.raises(NmaError, match="not a public host"):
            describe(ARK, discovery=at(running.url))
        monkeypatch.setattr(socket, "getaddrinfo", rebinding)
        with pytest.raises(NmaError, match=r"127\.0\.0\.1 is not a public address"):
            connect.get(f"http://h.example:{running.port}/", seconds=2)
        assert running.asked == []


def test_time_and_size_are_bounded() -> None:
    with pages(lambda path: (200, TEXT, b"erc:\nwho: " + b"x" * 1_000_000)) as running:
        told = describe(ARK, discovery=at(running.url), allow_private=True)
    assert "cut at" in told.note
    assert len(told.to_text()) <= connect.MAX_BODY
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


def test_the_next_authority_is_asked_where_one_is_down() -> None:
    with pages(erc) as running:
        told = describe(ARK, discovery=at(f"http://127.0.0.1:{free_port()}", running.url), allow_private=True)
    assert told.spoken
    with pytest.raises(NmaError, match="no mapping authority could be asked"):
        describe(ARK, discovery=at(f"http://127.0.0.1:{free_port()}"), allow_private=True)
    with pytest.raises(NoMappingAuthority):
        describe(ARK, discovery=Discovery(ARK))


@pytest.mark.parametrize(
    ("inflections", "why"),
    [(("?x",), r"inflections: '\?x' is not one of \?info, \?, \?\?"), ((), "inflections: must have one")],
)
def test_what_cannot_be_asked_is_said(inflections: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        describe(ARK, discovery=Discovery(ARK), inflections=inflections)


def test_an_h_record_is_asked_by_https_and_then_by_http() -> None:
    with pages(erc) as running:
        told = describe(ARK, discovery=at(running.url).replace(scheme="https"), allow_private=True)
        assert told.url == f"{running.url}/ark:12345/x1?info"
        found = at(running.url).replace(scheme="https")
        by_rule = found.replace(candidates=(found[0]._replace(target=f"https://127.0.0.1:{running.port}/"),))
        with pytest.raises(NmaError):
            describe(ARK, discovery=by_rule, allow_private=True)  # a rule says the scheme


def test_a_chooser_hears_of_an_authority_that_fails() -> None:
    chooser = Reachable(probe=lambda where, seconds: None, allow_private=True)  # it takes a connection and no more
    with raw(b"garbage", b"") as mute, pages(erc) as running:
        found = at(f"http://127.0.0.1:{mute}", running.url).replace(scheme="https")
        assert chooser(found).port == mute
        assert describe(ARK, discovery=found, chooser=chooser, allow_private=True).spoken
        assert [chooser(found).scheme for _ in range(2)] == ["http", "http"]  # by https the first one failed just now
        assert describe(ARK, discovery=found, chooser=chooser, allow_private=True).spoken
        assert chooser(found).port == running.port


def test_a_silent_authority_leaves_time_for_the_next() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pages(erc) as running:
        found = at(f"http://127.0.0.1:{silent.getsockname()[1]}", running.url)
        assert describe(ARK, discovery=found, allow_private=True, seconds=2).spoken


@pytest.mark.parametrize("seconds", [float("inf"), 1e300])
def test_any_time_in_seconds_may_be_given(seconds: float) -> None:
    with pages(erc) as running:
        assert describe(ARK, discovery=at(running.url), allow_private=True, seconds=seconds).spoken
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ConfigError, match="not a number of seconds"):
            describe(ARK, discovery=Discovery(ARK), seconds=wrong)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
HOSTILE: dict[str, tuple[bytes, bytes]] = {  # what is sent first, and then without end
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
ODD: dict[str, tuple[bytes, bytes]] = {  # these are read, within bounds
    "a body without end": (HEAD + b"\r\nerc:\nwho: x\n", b"what: " + b"x" * 1000 + b"\n"),
    "chunks without end": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nerc:\n\r\n",
        b"3e8\r\nwhat: " + b"x" * 993 + b"\n\r\n",
    ),
    "a length of thousands of digits": (HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nerc:\nwho: x\n", b""),
    "what gzip would make long": (
        HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"erc:\nwho: " + b"a" * 9_000_000),
        b"",
    ),
    "control characters": (
        b"HTTP/1.1 200 OK\r\nContent-Type: a\0b\x1b[31m\r\nTHUMP-Status: \x1b]0;x\x07\r\nLink: \xff<\x9b\r\n\r\n"
        b"erc:\nwho: \x1b[31m\xc2\x9b31m\xe2\x80\xae\n",
        b"",
    ),
}


@contextmanager
def raw(first: bytes, more: bytes) -> Iterator[int]:
    """A server that sends this whatever it is asked, and hangs up when it has sent it or nobody listens; its port."""
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                sock, _ = listener.accept()
            except TimeoutError:
                continue
            with sock, suppress(OSError):
                sock.settimeout(0.2)  # the kernel goes on asking a client that is gone whether it has room
                sock.recv(65536)
                sock.sendall(first)
                while more and not over.is_set():
                    sock.sendall(more)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_server_is_an_error_of_the_authority(case: str) -> None:
    with raw(*HOSTILE[case]) as port, pytest.raises(NmaError):
        connect.get(f"http://127.0.0.1:{port}/", seconds=0.5, allow_private=True)


@pytest.mark.parametrize("case", ODD)
def test_what_a_hostile_server_says_is_bounded_and_harmless(case: str) -> None:
    target = "!^ark:/?12345/(.*)$!http://127.0.0.1:%d/\\1!"
    with raw(*ODD[case]) as port:
        tracemalloc.start()
        told = describe(ARK, discovery=at(f"http://127.0.0.1:{port}"), allow_private=True)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 40_000_000
        assert told.spoken is ("gzip" not in case)
        script = hosts({"12345.ark.arpa.": [naptr(flags=b"u", regexp=(target % port).encode())]})
        with hostile(script) as server:
            arguments = ["info", "ark:12345/x1", f"@{server.name}", "--allow-private"]
            shown, document = CliRunner().invoke(main, arguments), CliRunner().invoke(main, [*arguments, "--json"])
    assert shown.exit_code == document.exit_code == (0 if told.spoken else 1)
    assert json.loads(document.stdout)["segments"] == told.to_dict()["segments"]
    for text in (shown.stdout, shown.stderr, document.stdout, document.stderr):
        assert all(character.isprintable() or character in "\n\t" for character in text)


# ---- the chooser that asks


def test_reachable_takes_what_answers_and_remembers() -> None:
    asked: list[str] = []
    dead = {"a.example"}
    now = [0.0]

    def probe(where: url.Url, seconds: float) -> None:
        asked.append(f"{where.scheme}://{where.host.text}")
        if where.host.text in dead or where.scheme == "https":
            raise NmaError("down")

    chooser = Reachable(probe=probe, clock=lambda: now[0])
    found = at("http://a.example/", "http://b.example/")
    chosen = found.preferring(chooser)
    assert chosen.url() == "http://b.example/ark:12345/x1"
    assert [c.host for c in chosen] == ["b.example", "a.example"]
    assert asked == ["https://a.example", "http://a.example", "https://b.example", "http://b.example"]
    assert found.preferring(chooser)[0].host == "b.example"
    assert len(asked) == 4  # remembered
    dead.clear()
    now[0] = 61.0  # silence counts a minute
    assert found.preferring(chooser)[0].host == "a.example"
    chooser.failed(chooser(found), found)
    assert found.preferring(chooser)[0].host == "b.example"
    dead |= {"a.example", "b.example"}
    now[0] = 1000.0
    assert found.preferring(chooser)[0].host == "a.example"  # nothing answers: the best


def test_reachable_over_real_sockets() -> None:
    with pages(lambda path: (503, {}, b"")) as sick, pages(erc) as well:
        both = at(f"http://127.0.0.1:{free_port()}", sick.url, well.url)
        by_connection = Reachable(schemes=("http",), allow_private=True)
        assert by_connection(both).port == sick.port
        by_info = Reachable(schemes=("http",), probe=info(allow_private=True))
        assert by_info(both).port == well.port
        assert well.asked == ["/ark:12345/x1?info"]
        assert Reachable(schemes=("http",))(both) == both[0]  # none of them is public, so none is asked


def test_tls_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the host as it stands in the URL, by what the system trusts."""
    pytest.importorskip("cryptography", reason="makes a certificate")
    from tests.support.certificates import write_certificate

    write_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    with pages(erc, context) as secure, pages(erc) as plain:
        found = at(f"https://127.0.0.1:{secure.port}", plain.url).replace(scheme="https")
        with pytest.raises(NmaError, match="not trusted"):
            connect.get(f"https://127.0.0.1:{secure.port}/x?info", seconds=5, allow_private=True)
        assert Reachable(allow_private=True)(found).scheme == "http"
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.crt"))
        chosen = Reachable(allow_private=True)(found)
        assert (chosen.port, chosen.scheme) == (secure.port, "https")
        told = describe(ARK, discovery=found, allow_private=True)
        assert (told.spoken, told.url) == (True, f"https://127.0.0.1:{secure.port}/ark:12345/x1?info")
        monkeypatch.setattr(connect, "look_up", lambda *_: ["127.0.0.1"])
        for host in ("ns1.example", "NS1.example."):
            assert connect.get(f"https://{host}:{secure.port}/?info", seconds=5, allow_private=True).status == 200
        with pytest.raises(NmaError, match="not trusted"):
            connect.get(f"https://ns2.example:{secure.port}/?info", seconds=5, allow_private=True)


# ---- the command


def test_the_command() -> None:
    with pages(erc) as running:
        target = f"!^ark:/?12345/(.*)$!{running.url}/ark:12345/\\1!".encode()
        with hostile(hosts({"12345.ark.arpa.": [naptr(flags=b"u", regexp=target)]})) as server:
            arguments = ["info", "ark:12345/x1", f"@{server.name}", "--allow-private"]
            shown = CliRunner().invoke(main, arguments)
            assert shown.exit_code == 0, shown.output
            assert shown.stdout.startswith("erc:\nwho: Lederberg, Joshua\n")
            assert "THUMP status 0.6 200 OK" in shown.stderr
            document = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
            assert document["segments"][0]["name"] == "erc"
            mute = CliRunner().invoke(main, [*arguments[:1], "ark:12345/x1?", *arguments[2:]])
            assert mute.exit_code == 1
            assert "no erc: record" in mute.stderr
            assert running.asked[-1] == "/ark:12345/x1?"
            assert CliRunner().invoke(main, ["info", "ark:1/x", f"@{server.name}"]).exit_code == 1
            assert CliRunner().invoke(main, arguments[:3]).exit_code == 1  # not a public host: no candidate
    assert CliRunner().invoke(main, ["info", "nonsense"]).exit_code == 2


def test_it_takes_what_discover_takes() -> None:
    taken = inspect.signature(discover).parameters.keys() - {"ark", "chooser", "raise_on_none"}
    assert DiscoverOptions.__annotations__.keys() == taken
