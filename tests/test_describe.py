"""ARK service requests and probes against real HTTP servers, honest and hostile."""

from __future__ import annotations

import inspect
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

from maptr import url, visit
from maptr.ark import Ark
from maptr.cli import main
from maptr.client import discover
from maptr.describe import DiscoverOptions, describe, read
from maptr.discovery import Candidate, Discovery
from maptr.errors import NmaError, NoMappingAuthority
from maptr.reachable import Reachable, info
from maptr.visit import Page
from tests.hostile import hostile, hosts, naptr

ARK = Ark.parse("ark:12345/x1")
ERC = b"""# a comment
erc:
who:   Lederberg,
       Joshua
what:  Studies%20of Human Families \xe2\x80\x94 1
when:  1974
where: https://ark.example.org/ark:12345/x1
!note: private
erc-support:
who:   Example
who:   Another
"""


class Pages:
    """An HTTP server that answers by path and query, and the raw targets it was asked."""

    def __init__(self, respond: Callable[[str], tuple[int, dict[str, str], bytes]]) -> None:
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
        self.port = self.server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def pages(respond: Callable[[str], tuple[int, dict[str, str], bytes]]) -> Iterator[Pages]:
    running = Pages(respond)
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


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


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
        pages(lambda path: (302, {"Location": "http://[::1/"}, b"")) as running,
        pytest.raises(NmaError, match="no URL"),
    ):
        describe(ARK, discovery=at(running.url), allow_private=True)
    for away in ("file:///etc/passwd", "http://user@h.example/", "gopher://h.example/"):
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
            visit.get(f"http://h.example:{running.port}/", seconds=2)
        assert running.asked == []


def test_time_and_size_are_bounded() -> None:
    with pages(lambda path: (200, TEXT, b"erc:\nwho: " + b"x" * 1_000_000)) as running:
        told = describe(ARK, discovery=at(running.url), allow_private=True)
    assert "cut at" in told.note
    assert len(told.to_text()) <= visit.MAX_BODY
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
            visit.get(f"http://127.0.0.1:{listener.getsockname()[1]}/", seconds=0.5, allow_private=True)
        assert time.monotonic() - started < 5
        over.set()
        thread.join()


def test_the_next_authority_is_asked_where_one_is_down() -> None:
    with pages(erc) as running:
        told = describe(ARK, discovery=at(f"http://127.0.0.1:{closed_port()}", running.url), allow_private=True)
    assert told.spoken
    with pytest.raises(NmaError, match="cannot be asked about"):
        describe(ARK, discovery=at(f"http://127.0.0.1:{closed_port()}"), allow_private=True)
    with pytest.raises(NoMappingAuthority):
        describe(ARK, discovery=Discovery(ARK))
    with pytest.raises(ValueError, match="no inflection"):
        describe(ARK, discovery=Discovery(ARK), inflections=("?x",))


def test_garbage_is_an_error_of_the_authority() -> None:
    with hostile(lambda query, transport: [b"garbage"]) as server, pytest.raises(NmaError):
        visit.get(f"http://{server.host}:{server.port}/", seconds=1, allow_private=True)


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
        both = at(f"http://127.0.0.1:{closed_port()}", sick.url, well.url)
        by_connection = Reachable(schemes=("http",), allow_private=True)
        assert by_connection(both).port == sick.port
        by_info = Reachable(schemes=("http",), probe=info(allow_private=True))
        assert by_info(both).port == well.port
        assert well.asked == ["/ark:12345/x1?info"]
        assert Reachable(schemes=("http",))(both) == both[0]  # none of them is public, so none is asked


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
