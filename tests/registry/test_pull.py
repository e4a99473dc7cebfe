"""Pulling a table: from a real HTTP server on loopback that does, for each test, one thing wrong."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from maptr import registry
from maptr.cli.group import main
from maptr.errors import FetchError, ParserFailed, PullFailed, TableError, UnsafePlan
from maptr.registry import sandbox
from maptr.registry.followed_file import WatchedTable, read_pull_file
from maptr.registry.pull import Demands, Pull, apply_pull, plan_pull
from maptr.registry.table import Table
from maptr.web.connect import MAX_ADDRESSES
from maptr.web.fetch import fetch
from tests.support.caching import until
from tests.support.certificates import write_certificate

Handle = Callable[[BaseHTTPRequestHandler], None]


def natab(*naans: int, host: str = "h.example.org") -> bytes:
    return b"".join(b"%d:\n    %s  ACR\n" % (naan, host.encode()) for naan in naans) + b"#--- end of data ---\n"


OLD = natab(*range(10000, 10010))
NEW = natab(*range(10000, 10011))


@contextmanager
def http(handle: Handle, *, certificate: Path | None = None) -> Iterator[str]:
    """The URL of a server on loopback that answers every GET with a function, over TLS with a certificate."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            handle(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_address[1]}/naans"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def sends(content: bytes, status: int = 200, length: int | None = None, **headers: str) -> Handle:
    def handle(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(content) if length is None else length))
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(content)

    return handle


def trickles(request: BaseHTTPRequestHandler) -> None:
    """An octet now and then, for as long as anybody listens."""
    request.send_response(200)
    request.end_headers()
    _trickle(request, b"#")


def trickles_headers(request: BaseHTTPRequestHandler) -> None:
    _trickle(request, b"H")


def _trickle(request: BaseHTTPRequestHandler, octet: bytes) -> None:
    pause = threading.Event()
    with contextlib.suppress(OSError):
        for _ in range(1000):
            request.wfile.write(octet)
            pause.wait(0.05)


def stalls(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    threading.Event().wait(2)


def redirects_forever(request: BaseHTTPRequestHandler) -> None:
    request.send_response(302)
    request.send_header("Location", f"{request.path}x")
    request.end_headers()


def redirects_to_itself(request: BaseHTTPRequestHandler) -> None:
    request.send_response(301)
    request.send_header("Location", request.path)
    request.end_headers()


def says_much(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 500 " + b"essay " * 10_000 + b"\r\n\r\n")


FAULTS: dict[str, tuple[Handle, str]] = {
    "a web page by its type": (sends(NEW, Content_Type="text/html; charset=utf-8"), "web page"),
    "a web page by its content": (sends(b"<!DOCTYPE html><p>Moved", Content_Type="text/plain"), "web page"),
    "nothing": (sends(b""), "empty"),
    "not found": (sends(b"no", 404), "404"),
    "an error": (sends(b"no", 503), "503"),
    "unasked not modified": (sends(b"", 304), "304"),
    "half of it": (sends(NEW[:50], length=len(NEW)), "cut short"),
    "gzip": (sends(gzip.compress(NEW), Content_Encoding="gzip"), "gzip"),
    "not text": (sends(b"\xff\xfe\x00"), "UTF-8"),
    "another format, broken": (sends(b'{"data": ['), ""),
    "no end": (trickles, "in time"),
    "no end of headers": (trickles_headers, "in time"),
    "a stall": (stalls, "in time"),
    "redirects without end": (redirects_forever, "redirected"),
    "a redirect to itself": (redirects_to_itself, "redirected"),
    "a redirect to no URL": (sends(b"", 302, Location="gopher://[::1/"), "no URL"),
    "words for a terminal": (sends(b"", 302, Location="gopher://\x1b[2J\x07h/"), "no URL"),
    "a redirect to a name with a NUL": (sends(b"", 302, Location="http://h\0.example/"), "no URL"),
    "an essay for a status": (says_much, "answers 500 "),
    "a redirect to an essay": (sends(b"", 302, Location="gopher://h/" + "essay" * 10_000), "neither an http"),
    "a redirect to a file": (sends(b"", 302, Location="file:///etc/passwd"), "neither an http"),
}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "natab"
    path.write_bytes(OLD)
    return path


@pytest.mark.parametrize("fault", FAULTS)
def test_a_source_that_sends_no_registry_leaves_the_old_table(fault: str, target: Path) -> None:
    handle, reason = FAULTS[fault]
    with http(handle) as url, pytest.raises(PullFailed) as failed:
        plan_pull(target, [url], seconds=0.5)
    assert reason in str(failed.value)
    assert url in str(failed.value)
    assert str(failed.value).isprintable()
    assert len(str(failed.value)) < 1100
    assert target.read_bytes() == OLD
    assert [path.name for path in target.parent.iterdir()] == ["natab"]


@pytest.mark.parametrize("tag", ["x" * 50_000, "\x1b[2J", "\xe4", '"a"\r\n b'])
def test_a_tag_that_no_server_might_take_back_is_not_kept(tag: str) -> None:
    with http(sends(NEW, ETag=tag, Last_Modified=tag)) as url:
        got = fetch(url)
    assert (got.content, got.etag, got.modified) == (NEW, "", "")


def test_a_mirror_is_asked_after_whatever_came_before(target: Path) -> None:
    """A NUL in a redirect was an error of another kind, after which nobody was asked."""
    with http(FAULTS["a redirect to a name with a NUL"][0]) as bad, http(sends(NEW)) as good:
        assert plan_pull(target, [bad, good]).source == good


def test_a_redirect_from_a_public_server_to_one_inside_is_refused(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http(sends(NEW)) as inside:
        elsewhere = inside.replace("127.0.0.1", "localhost")
        with http(sends(b"", 302, Location=elsewhere)) as url:
            assert plan_pull(target, [url]).content == NEW, "who asks inside may be sent to inside"
            asked: list[str] = []
            real = socket.create_connection

            def noted(address: tuple[str, int], timeout: float) -> socket.socket:
                asked.append(address[0])
                return real(address, timeout)

            monkeypatch.setattr("socket.create_connection", noted)
            monkeypatch.setattr("maptr.web.connect.look_up", lambda host, port, seconds: [ADDRESSES[host]])
            for module in ("web.fetch", "web.connect"):
                monkeypatch.setattr(f"maptr.{module}.is_local", lambda address: address == ADDRESSES["localhost"])
            with pytest.raises(PullFailed, match=r"localhost is not asked: 127\.0\.0\.2 is not a public address"):
                plan_pull(target, [url])
            assert asked == ["127.0.0.1"], "nobody inside was connected to"


ADDRESSES = {"localhost": "127.0.0.2", "127.0.0.1": "127.0.0.1"}


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port at which every address of 127.0.0.0/8 takes no connection and says nothing."""
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


def test_many_silent_addresses_have_the_time_of_one(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each had all of it: a name with eight addresses that say nothing kept mirrors waiting for eight minutes."""
    given: list[float] = []
    real = socket.create_connection

    def noted(address: tuple[str, int], timeout: float) -> socket.socket:
        given.append(timeout)
        return real(address, timeout)

    monkeypatch.setattr("socket.create_connection", noted)
    monkeypatch.setattr("maptr.web.connect.look_up", lambda host, port, seconds: [f"127.0.0.{i + 1}" for i in range(8)])
    with pytest.raises(FetchError, match="in time"):
        fetch(f"http://h.example:{silent_port}/", seconds=0.4)
    assert len(given) == MAX_ADDRESSES
    assert sum(given) < 0.5


def test_a_network_that_says_nothing_is_not_waited_for_as_a_slow_server_is(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maptr.web.fetch.CONNECT_SECONDS", 0.2)
    with pytest.raises(FetchError, match=r"in time|timed out"):
        fetch(f"http://127.0.0.1:{silent_port}/", seconds=3600)


def test_an_address_of_the_other_kind_is_tried_where_one_kind_goes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The public registry's server has four of each."""
    tried: list[str] = []

    def unreachable(address: tuple[str, int], timeout: float) -> socket.socket:
        tried.append(address[0])
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr("socket.create_connection", unreachable)
    six, four = [f"2001:db8::{i}" for i in range(4)], [f"192.0.2.{i}" for i in range(4)]
    for addresses in ([*six, *four], [*four, *six], six, six[:1] + four):
        monkeypatch.setattr("maptr.web.connect.look_up", lambda host, port, seconds, found=addresses: found)
        tried.clear()
        with pytest.raises(FetchError, match="unreachable"):
            fetch("http://h.example/")
        other = [address for address in addresses if (":" in address) != (":" in addresses[0])]
        assert tried[0] == addresses[0]
        assert len(tried) == MAX_ADDRESSES
        assert not other or tried[1] == other[0]


def test_a_silent_address_leaves_time_for_the_next(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with http(sends(NEW)) as url:
        real = socket.create_connection

        def routed(address: tuple[str, int], timeout: float) -> socket.socket:
            host, port = address
            return real((host, silent_port if host == "127.0.0.2" else port), timeout)

        monkeypatch.setattr("socket.create_connection", routed)
        monkeypatch.setattr("maptr.web.connect.look_up", lambda host, port, seconds: ["127.0.0.2", "127.0.0.1"])
        assert fetch(url, seconds=2.0).content == NEW


@pytest.mark.parametrize(("url", "port"), [("http://[::1]/naans", 80), ("https://[::1]/", 443), ("http://[::1]:8/", 8)])
def test_a_source_at_an_ipv6_address_needs_no_port(url: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def refused(address: tuple[str, int], timeout: float) -> socket.socket:
        asked.append(address)
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr("socket.create_connection", refused)
    with pytest.raises(FetchError, match=rf"^{re.escape(url)}: ::1: Connection refused$"):
        fetch(url)
    assert asked == [("::1", port)]


def test_a_resolver_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    waited_for: list[object] = []

    def silent(*_: object, **__: object) -> list[object]:
        if not over.wait(10):
            waited_for.append(1)
        raise OSError("no")

    monkeypatch.setattr("socket.getaddrinfo", silent)
    with pytest.raises(FetchError, match="in time"):
        fetch("http://h.example/", seconds=0.2)
    over.set()
    assert not waited_for


def test_a_source_too_big_is_not_read_to_its_end() -> None:
    with http(sends(b"#" * 100_000)) as url, pytest.raises(FetchError, match="more than 5000 octets"):
        fetch(url, max_octets=5000)


def test_a_device_is_not_read_to_its_end(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.registry.pull.MAX_TABLE", 5000)
    with pytest.raises(PullFailed, match="/dev/zero: more than 5000 bytes"):
        plan_pull(target, ["/dev/zero"])


def test_a_server_that_is_gone(target: Path) -> None:
    with http(sends(NEW)) as url:
        pass
    with pytest.raises(PullFailed, match="refused"):
        plan_pull(target, [url])


@pytest.mark.parametrize("stalling", [False, True])
def test_tls_is_checked_and_bounded_in_time(stalling: bool, target: Path, tmp_path: Path) -> None:
    write_certificate(tmp_path)
    with http(trickles if stalling else sends(NEW), certificate=tmp_path) as url:
        with pytest.raises(PullFailed, match="not trusted"):
            plan_pull(target, [url])
        if stalling:
            with pytest.raises(PullFailed, match="in time"):
                plan_pull(target, [url], cafile=str(tmp_path / "tls.crt"), seconds=0.5)
        else:
            assert plan_pull(target, [url], cafile=str(tmp_path / "tls.crt")).plan
    with pytest.raises(PullFailed, match="no certificates"):
        plan_pull(target, [url], cafile=str(tmp_path / "none"))


def test_a_redirect_away_from_https_is_refused(target: Path, tmp_path: Path) -> None:
    write_certificate(tmp_path)
    trusted = str(tmp_path / "tls.crt")
    with (
        http(sends(NEW)) as plain,
        http(sends(b"", 302, Location=plain), certificate=tmp_path) as url,
        pytest.raises(PullFailed, match="away from https"),
    ):
        plan_pull(target, [url], cafile=trusted)


def test_mirrors_are_tried_in_order_and_what_was_passed_over_is_told(target: Path) -> None:
    with http(sends(b"<html>")) as page, http(sends(OLD[:60])) as shrunk, http(sends(NEW)) as good:
        pull = plan_pull(target, [page, shrunk, good, "/nowhere"])
    assert (pull.source, [entry.key for entry in pull.plan.added]) == (good, ["10010"])
    assert "web page" in pull.passed_over[0]
    assert "removes" in pull.passed_over[1]


def test_a_plan_is_only_a_plan_and_applying_keeps_the_last_good_states(target: Path) -> None:
    states = [natab(*range(10000, 10010 + extra)) for extra in range(1, 6)]
    for number, content in enumerate(states):
        with http(sends(content, ETag='"1"')) as url:
            pull = plan_pull(target, [url])
            assert target.read_bytes() == (states[number - 1] if number else OLD)
            apply_pull(pull, wall=lambda: 1234.5)
    assert target.read_bytes() == states[4]
    assert [(target.parent / f"natab.{n}").read_bytes() for n in (1, 2, 3)] == [states[3], states[2], states[1]]
    assert not (target.parent / "natab.4").exists()
    note = read_pull_file(target)
    assert (note["checked"], note["etag"], note["sha256"]) == (1234.5, '"1"', hashlib.sha256(states[4]).hexdigest())


def test_the_last_state_is_kept_where_no_link_may_be_made(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux lets nobody link somebody else's file: where root had pulled first, the server never could."""

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", refused)
    with http(sends(NEW)) as url:
        apply_pull(plan_pull(target, [url]), wall=time.time)
    assert target.read_bytes() == NEW
    assert target.with_name("natab.1").read_bytes() == OLD


def test_a_file_changed_since_the_plan_was_made_stays(target: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(NEW)
    planned = plan_pull(target, [str(source)])
    target.write_bytes(OLD + b"\n# edited\n")
    with pytest.raises(TableError, match="changed since the plan was made"):
        apply_pull(planned, wall=time.time)
    assert target.read_bytes() == OLD + b"\n# edited\n"
    target.unlink()
    with pytest.raises(TableError):
        apply_pull(planned, wall=time.time)
    assert not target.exists()
    target.write_bytes(NEW)
    apply_pull(planned, wall=time.time)
    assert not target.with_name("natab.1").exists(), "somebody else did the same: nothing is left to do"


def test_many_who_pull_at_once_leave_whole_files(target: Path, tmp_path: Path) -> None:
    sources = [tmp_path / f"source-{number}" for number in range(4)]
    for number, source in enumerate(sources):
        source.write_bytes(OLD + b"# %d\n" % number)

    def pull(number: int) -> str:
        try:
            apply_pull(plan_pull(target, [str(sources[number % 4])]), wall=time.time)
        except TableError as error:
            return error.reason
        return ""

    with ThreadPoolExecutor(8) as pool:
        ends = set(pool.map(pull, range(80)))
    assert ends <= {"", "has changed since the plan was made; pull again"}
    assert "" in ends
    whole = {source.read_bytes() for source in sources} | {OLD}
    assert {(tmp_path / f"natab{suffix}").read_bytes() for suffix in ("", ".1", ".2", ".3")} <= whole
    assert read_pull_file(target)["sha256"] == hashlib.sha256(target.read_bytes()).hexdigest()


def test_what_did_not_change_is_not_sent_again_and_only_confirmed(target: Path) -> None:
    asked: list[str | None] = []

    def handle(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.headers["If-None-Match"])
        sends(b"", 304)(request) if asked[-1] else sends(NEW, ETag='"v1"')(request)

    with http(handle) as url:
        apply_pull(plan_pull(target, [url]), wall=lambda: 1.0)
        again = plan_pull(target, [url])
        assert (bool(again.plan), again.content) == (False, None)
        apply_pull(again, wall=lambda: 2.0)
        assert read_pull_file(target)["checked"] == 2.0
        target.write_bytes(OLD)  # changed by hand: the tag is of another content now
        assert plan_pull(target, [url]).plan
    assert asked == [None, '"v1"', None]
    assert not (target.parent / "natab.2").exists()


def test_a_plan_that_removes_or_changes_too_much_is_refused_unless_forced(target: Path) -> None:
    for content in (natab(*range(10000, 10005)), natab(*range(10000, 10010), host="evil.example.org")):
        with http(sends(content)) as url:
            with pytest.raises(UnsafePlan, match="the limit is 30%"):
                plan_pull(target, [url])
            assert plan_pull(target, [url], force=True).plan


@pytest.mark.parametrize("content", [b"", b"<!DOCTYPE html>\n", b'{"data": [', b"\xff\xfe"])
def test_a_file_that_is_no_table_any_more_is_replaced_and_never_kept(content: bytes, target: Path) -> None:
    with http(sends(NEW, ETag='"v1"')) as url:
        apply_pull(plan_pull(target, [url]), wall=lambda: 1.0)
        target.write_bytes(content)
        code, _, err = run(url, "--table", str(target))
        assert (code, target.read_bytes()) == (1, content), "there is something to do"
        assert "is none, to be replaced" in err
        small = natab(10000)
        with http(sends(small)) as few, pytest.raises(UnsafePlan):
            plan_pull(target, [few])  # a third of the last good state may not go because the file is broken
        code, _, err = run(url, "--table", str(target), "--apply")
        assert (code, target.read_bytes()) == (0, NEW)
        assert "replaced" in err
    assert (target.parent / "natab.1").read_bytes() == OLD
    assert not (target.parent / "natab.2").exists()


def test_the_checksum_decides_where_it_is_given(target: Path) -> None:
    digest = hashlib.sha256(NEW).hexdigest()
    with http(sends(NEW)) as url:
        assert plan_pull(target, [url], demands=Demands(digest.upper())).plan
        with pytest.raises(PullFailed, match="SHA-256"):
            plan_pull(target, [url], demands=Demands("0" * 64))


def test_a_redirect_is_followed_and_a_local_file_is_a_source_too(target: Path, tmp_path: Path) -> None:
    with http(sends(NEW)) as url, http(sends(b"", 302, Location=url)) as first:
        assert plan_pull(target, [first]).plan
    source = tmp_path / "source"
    source.write_bytes(NEW)
    assert isinstance(plan_pull(target, [str(source)]), Pull)
    assert plan_pull(tmp_path / "none-yet", [str(source)]).plan.size == 0


def test_nothing_is_parsed_before_checksum_and_signature_are_right(target: Path) -> None:
    from tests.registry.test_minisign import KEY, signature  # here, for it imports this module

    parsed: list[str] = []

    def read(content: bytes, *, filename: str) -> tuple[Table, list[TableError]]:
        parsed.append(filename)
        return sandbox.read(content, filename=filename)

    files = {"/naans": NEW, "/naans.minisig": signature(OLD).encode()}
    with http(lambda request: sends(files[request.path])(request)) as url:
        for demands in (Demands("0" * 64), Demands(public_key=KEY)):
            with pytest.raises(PullFailed):
                plan_pull(target, [url], demands=demands, read=read)
        assert parsed == [str(target)] * 2
        files["/naans.minisig"] = signature(NEW).encode()
        with pytest.raises(PullFailed, match=r"natab\.pull is missing"):
            plan_pull(target, [url], demands=Demands(public_key=KEY), read=read)
        assert parsed == [str(target)] * 3
        assert plan_pull(target, [url], demands=Demands(public_key=KEY), read=read, force=True).plan


def test_a_table_whose_reading_fails_is_not_taken_for_a_broken_one(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be replaced, whatever the source has lost of it."""
    source = tmp_path / "source"
    source.write_bytes(natab(10000))
    monkeypatch.setattr("maptr.registry.sandbox.PROGRAM", "raise SystemExit(3)")
    with pytest.raises(ParserFailed, match=f"{target}: the process that reads it ended with status 3"):
        plan_pull(target, [str(source)])
    code, _, err = run(str(source), "--table", str(target), "--apply")
    assert (code, target.read_bytes()) == (8, OLD)
    assert "ended with status 3" in err


# --- records that were usable and cannot be read any more


def v1(*records: object) -> bytes:
    return json.dumps({"metadata": {"version": "2"}, "data": records}).encode()


def good(naan: int, host: str = "h.example.org") -> dict[str, object]:
    url = f"https://{host}/ark:/${{content}}"
    return {"what": str(naan), "where": f"https://{host}", "target": {"url": url, "http_code": 302}}


def test_a_record_that_cannot_be_read_any_more_keeps_its_last_good_entry(target: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    bad = {"what": "10003", "where": 7, "target": []}
    never = {"what": "10010", "where": 7, "target": []}
    source.write_bytes(v1(*(bad if n == 10003 else good(n, "new.example.org") for n in range(10001, 10004)), never))
    target.write_bytes(v1(*(good(n) for n in range(10000, 10010))))
    before = registry.read(target.read_bytes())
    with pytest.raises(UnsafePlan, match="removes 7 of 10"):
        plan_pull(target, [str(source)])
    source.write_bytes(v1(*(bad if n == 10003 else good(n) for n in range(10001, 10010)), never, good(10011)))
    into = (str(source), "--table", str(target))
    code, out, err = run(*into)
    assert (code, [line.split()[:2] for line in out.splitlines()]) == (
        1,
        [["-", "10000"], ["!", "10003"], ["+", "10011"]],
    )
    assert re.fullmatch(r"! 10003 kept as it was: .*(target|where) is not .*", out.splitlines()[1])
    assert err.splitlines()[0].startswith(f"left out: {source}: record 10010: ")
    assert err.endswith("1 to add, 0 to change, 1 to remove of 10, 1 kept for they cannot be read\n")
    assert json.loads(run(*into, "--json")[1])["plan"]["kept"][0]["record"] == "10003"
    assert "| kept | `10003` |" in run(*into, "--markdown")[1]
    assert run(*into, "--apply")[0] == 0
    after = registry.read(target.read_bytes())
    assert {**after} == {**{key: before[key] for key in before if key != "10000"}, "10011": after["10011"]}
    assert after.metadata == {"version": "2"}
    content = target.read_bytes()
    code, out, _ = run(*into, "--apply")
    assert (code, out[:8], target.read_bytes()) == (0, "! 10003 ", content), "told until the source is mended"
    assert not target.with_name("natab.2").exists()
    code, out, _ = run(*into, "--apply", "--force")
    assert (code, out.splitlines()) == (0, ["- 10003 https://h.example.org/ark:/${content}"])
    assert target.read_bytes() == source.read_bytes()


def test_all_of_the_source_is_asked_for_while_a_record_is_kept(target: Path) -> None:
    asked: list[str | None] = []
    broken = OLD.replace(b"10003:\n    h.", b"10003:\n    h!")

    def handle(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.headers["If-None-Match"])
        sends(broken, ETag='"v1"')(request)

    with http(handle) as url:
        for _ in range(2):
            found = plan_pull(target, [url])
            apply_pull(found, wall=time.time)
            assert [key for key, _ in found.plan.kept] == ["10003"]
            assert found.sha256 == hashlib.sha256(broken).hexdigest()
    assert asked == [None, None]
    after, old = registry.read(target.read_bytes()), registry.read(OLD)
    assert dict(after) == dict(old)


def test_a_program_that_follows_the_file_follows_it_into_another_format(target: Path, tmp_path: Path) -> None:
    """Where an entry is kept, a natab with its end mark becomes JSON, which has none."""
    source = tmp_path / "source"
    source.write_bytes(NEW.replace(b"10003:\n    h.", b"10003:\n    h!"))
    watched = WatchedTable(target, clock=time.monotonic)
    assert len(watched.current().table or ()) == 10
    apply_pull(plan_pull(target, [str(source)]), wall=time.time)
    assert target.read_bytes().startswith(b"{")
    state = watched.reload()
    assert (state.trouble, len(state.table or ())) == ("", 11)


def test_a_record_too_damaged_to_have_a_key_may_be_any_that_is_gone(target: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    target.write_bytes(v1(*(good(n) for n in range(10000, 10010))))
    source.write_bytes(v1(*(good(n) for n in range(10001, 10010)), {"wot": "10000"}))
    found = plan_pull(target, [str(source)])
    assert ([key for key, _ in found.plan.kept], found.plan.removed) == (["10000"], ())
    assert "a record without a key cannot be read: " in found.plan.kept[0][1]


def test_what_cannot_be_read_counts_with_what_goes(target: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    target.write_bytes(v1(*(good(n) for n in range(10000, 10010))))
    records = [good(n, f"{'new' if n < 10002 else 'h'}.example.org") for n in range(10000, 10008)]
    source.write_bytes(v1(*records, {"what": "10008", "where": 7}, {"what": "10009", "where": 7}))
    with pytest.raises(UnsafePlan, match="cannot read 4 of 10 records"):
        plan_pull(target, [str(source)])


def test_what_only_informs_may_change_in_all_records(target: Path, tmp_path: Path) -> None:
    """As it did when the registry began to say where an organisation is."""
    source = tmp_path / "source"
    target.write_bytes(v1(*(good(n) for n in range(10000, 10010))))
    source.write_bytes(v1(*({**good(n), "who": {"name": "A", "location": "X"}} for n in range(10000, 10010))))
    assert len(plan_pull(target, [str(source)]).plan.changed) == 10


@pytest.mark.real_data
def test_from_the_registry_of_2024_to_that_of_2026_and_back(real_data: Path, tmp_path: Path) -> None:
    contents = [gzip.decompress((real_data / name).read_bytes()) for name in REGISTRIES]
    sources = [tmp_path / name.removesuffix(".gz") for name in REGISTRIES]
    tables = [registry.read(content, on_bad=lambda error: None) for content in contents]
    keys = [{record["what"] for record in json.loads(content)["data"]} for content in contents]
    for source, content in zip(sources, contents, strict=True):
        source.write_bytes(content)
    target = tmp_path / "naans"
    target.write_bytes(contents[0])
    assert (len(keys[0]), len(keys[1])) == (1704, 2232)
    code, out, err = run(str(sources[1]), "--table", str(target), "--apply", "--json")
    plan = json.loads(out)["plan"]
    assert (code, "left out" in err) == (0, False)
    assert (set(plan["added"]), set(plan["removed"]), plan["kept"]) == (keys[1] - keys[0], keys[0] - keys[1], [])
    assert (len(plan["added"]), len(plan["removed"]), plan["size"]) == (529, 1, 1704)
    assert err.startswith("529 to add, 1703 to change, 1 to remove of 1704\n")
    assert target.read_bytes() == contents[1]
    assert dict(registry.read(target.read_bytes())) == dict(tables[1])
    code, out, err = run(str(sources[0]), "--table", str(target), "--apply")
    assert (code, target.read_bytes()) == (1, contents[1]), "a third of it would go or lead elsewhere"
    code, out, err = run(str(sources[0]), "--table", str(target), "--apply", "--force", "--json")
    plan = json.loads(out)["plan"]
    assert (code, set(plan["added"]), set(plan["removed"])) == (0, keys[0] - keys[1], keys[1] - keys[0])
    assert (len(plan["changed"]), plan["size"]) == (1703, 2232)
    assert dict(registry.read(target.read_bytes())) == dict(tables[0])
    assert target.with_name("naans.1").read_bytes() == contents[1]


REGISTRIES = ("naan_records_2024-06-21.json.gz", "naan_records_2026-07-14.json.gz")


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["table", "pull", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_a_file_that_is_not_a_registry_is_replaced_only_on_request(tmp_path: Path) -> None:
    notes, source = tmp_path / "notes.txt", tmp_path / "natab"
    notes.write_text("my notes\n")
    source.write_bytes(natab(10000))
    code, _, err = run(str(source), "--table", str(notes), "--apply")
    assert (code, notes.read_text()) == (2, "my notes\n")
    assert "maptr did not write it" in err
    assert run(str(source), "--table", str(notes), "--apply", "--overwrite")[0] == 0
    notes.write_text("damaged")  # what was pulled before is replaced, with its last good state in mind
    assert run(str(source), "--table", str(notes), "--apply")[0] == 0
    assert notes.read_bytes() == source.read_bytes()


def test_the_command_plans_applies_and_refuses(target: Path) -> None:
    into = ("--table", str(target))
    with http(sends(NEW)) as url, http(sends(natab(10000))) as shrunk, http(sends(b"<html>")) as page:
        code, out, _ = run(url, *into)
        assert (code, out) == (1, "+ 10010 https://h.example.org/ark:/${content}\n")
        assert json.loads(run(url, *into, "--json")[1])["plan"]["added"] == ["10010"]
        assert "| added | `10010` |" in run(url, *into, "--markdown")[1]
        assert run(shrunk, *into, "--apply")[0] == 1
        assert run(page, *into, "--apply")[0] == 8
        assert target.read_bytes() == OLD
        assert run(url, *into, "--apply")[0] == 0
        assert target.read_bytes() == NEW
        assert run(url, *into)[:2] == (0, "")
        assert run(shrunk, *into, "--apply", "--force")[0] == 0
    assert run("x", *into, "--every", "1h")[0] == 2
    assert run("x", *into, "--every", "soon", "--apply")[0] == 2
    assert run("x", *into, "--sha256", "12")[0] == 2


def test_certificates_for_files_are_a_mistake(target: Path, tmp_path: Path) -> None:
    arguments = ("--table", str(target), "--cafile", "tls.crt")
    code, _, err = run("a", "b", *arguments)
    assert (code, "--cafile: nothing uses it: all sources are files" in err) == (2, True)
    key = tmp_path / "key"
    key.write_text("no key")
    signed = ("--public-key", str(key), "--signature", "https://r.example/a.minisig")
    assert run("a", *arguments, *signed)[0] == 8, "the signature's URL is one that uses it"


def test_a_plan_alone_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a home, such as a service's, may look as well."""
    source = tmp_path / "source"
    source.write_bytes(NEW)
    home = tmp_path / "home"
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    assert run(str(source))[0] == 1
    assert not home.exists()
    assert run(str(source), "--apply")[0] == 0
    assert (home / "maptr" / "naans").read_bytes() == NEW


def test_every_goes_on_after_failures(target: Path) -> None:
    answers = [sends(b"no", 500), sends(NEW)]
    count = 0

    def handle(request: BaseHTTPRequestHandler) -> None:
        nonlocal count
        count += 1
        answers[min(count, 2) - 1](request)

    with http(handle) as url:
        command = [sys.executable, "-m", "maptr", "table", "pull", url, "--table", str(target), "--apply"]
        with subprocess.Popen(
            [*command, "--every", "1s"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as process:
            try:
                until(lambda: count >= 3, "three pulls")
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(10)
    assert target.read_bytes() == NEW
