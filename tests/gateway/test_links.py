"""Link checks with real servers on loopback, their stored results, and a gateway that makes them."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from maptr import __version__
from maptr.client import Client
from maptr.config import Config, parse
from maptr.config.model import GatewayConfig
from maptr.errors import ConfigError
from maptr.gateway.links import check, checker, monitor, store
from maptr.gateway.links.check import AGAIN, CheckOutcome, CheckResult, LinkCounts, LinkState
from maptr.gateway.links.checker import LinkChecker
from maptr.gateway.links.monitor import LinkMonitor
from maptr.gateway.links.store import Due, LinkStore, alone
from maptr.gateway.objects import Redirects
from maptr.gateway.redirects import changes
from maptr.gateway.redirects.following import KeptStores
from maptr.gateway.redirects.importing import Missing, Staged, Terms
from maptr.gateway.redirects.store import open_store
from maptr.gateway.service import Service
from maptr.web import http
from tests.support.caching import Clock
from tests.support.certificates import write_certificate
from tests.support.http_gateway import TABLE, get, serving
from tests.support.http_server import Handle, holds, http_server, pages, raw_server, sends
from tests.support.own_objects import csv_file
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, until

DAY = 86_400.0
NOW = 1_000_000_000.0
ALL = Due(float("inf"), float("inf"))
BAD = CheckResult(CheckOutcome.FAILED, 404)
GOOD = CheckResult(CheckOutcome.ANSWERED, 200)


def own(path: Path, *rows: tuple[str, str], terms: Terms | None = None) -> Path:
    """Write a store of own objects that lead to loopback; one without a URL is gone."""
    lines = [f"ark:12345/{name},{where},{'' if where else 410}\n" for name, where in rows]
    source = csv_file(path.with_suffix(".csv"), "ark,url,status\n" + "".join(lines))
    with Staged(source, path, lambda error: pytest.fail(str(error)), allow_private=True) as staged:
        staged.put(terms or Terms(missing=Missing.REMOVE, force=True), NOW)
    return path


@contextmanager
def kept_at(path: Path, now: float = NOW) -> Iterator[LinkStore]:
    kept = LinkStore(path, now)
    try:
        yield kept
    finally:
        kept.close()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[LinkStore]:
    with kept_at(tmp_path / "links.sqlite") as made:
        yield made


def followed(kept: LinkStore, path: Path, **options: Any) -> LinkChecker:
    made = LinkChecker(None, kept, allow_private=True, **options)
    made.follow(open_store(path, allow_private=True))
    return made


def follow(kept: LinkStore, **targets: str) -> None:
    """Take over these objects, and no others."""
    kept.follow("", "", {f"ark:12345/{name}": where for name, where in targets.items()})


def next_of(kept: LinkStore, due: Due = ALL, now: float = NOW, without: tuple[str, ...] = ()) -> list[str]:
    return [where for _, where in kept.next(due, now, 64, without=without)]


def record(kept: LinkStore, where: str, found: CheckResult, now: float = NOW) -> None:
    kept.record(store.digest_of(where), found, now)


def failed(kept: LinkStore) -> dict[str, tuple[str, LinkState]]:
    rows = kept.failed((LinkState.FAILING, LinkState.DEAD))
    return {row.ark.removeprefix("ark:12345/"): (row.status, row.link.state) for row in rows}


# ---- what is kept


def test_equal_urls_are_one_link_and_withdrawn_objects_have_none(kept: LinkStore) -> None:
    follow(kept, x1="http://h.example/1", x2="http://h.example/1#page=2", x3="", x4="http://h.example/4")
    assert kept.counts() == LinkCounts(unknown=3)
    assert kept.checked_since(0.5) == (2, 0)
    record(kept, "http://h.example/1", BAD)
    assert kept.counts() == LinkCounts(unknown=1, failing=2)
    assert failed(kept) == dict.fromkeys(("x1", "x2"), ("404", LinkState.FAILING))


def test_results_survive_an_import_and_go_with_their_object(kept: LinkStore) -> None:
    follow(kept, x1="http://h.example/1", x2="http://h.example/2", x3="http://h.example/3")
    for name in "123":
        record(kept, f"http://h.example/{name}", BAD)
    follow(kept, x1="http://h.example/1", x2="http://new.example/2", x4="http://h.example/3")
    assert failed(kept).keys() == {"x1", "x4"}, "the link of x3 is that of x4 now"
    assert kept.counts() == LinkCounts(unknown=1, failing=2)
    follow(kept, x1="")
    kept.forget_hosts()
    assert (failed(kept), kept.counts()) == ({}, LinkCounts())
    record(kept, "http://h.example/1", BAD)
    follow(kept, x1="http://h.example/1")
    assert kept.counts() == LinkCounts(unknown=1), "nothing is left of the one that was there"


def test_pages_of_a_store_change_only_what_is_in_them(
    kept: LinkStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(checker, "PAGE", 3)
    for count in (0, 1, 3, 6, 7, 2):
        path = own(tmp_path / "own.sqlite", *((f"x{n}", f"http://h.example/{n % 5}") for n in range(count)), ("z", ""))
        followed(kept, path)
        assert sum(kept.counts()) == count
        assert kept.checked_since(0.0)[0] == min(count, 5)


def test_the_longest_unchecked_first_and_before_it_what_has_failed(kept: LinkStore) -> None:
    targets = {name: f"http://h.example/{name}" for name in ("a", "b", "c", "d")}
    follow(kept, **targets, e="http://other.example/")
    for number, name in enumerate("bca"):
        record(kept, targets[name], GOOD, NOW + number)
    record(kept, targets["d"], BAD, NOW + 10)
    record(kept, "http://other.example/", GOOD, NOW + 1.5)
    later = NOW + 8 * DAY
    assert next_of(kept, Due(later, later)) == [targets["d"], "http://other.example/"]
    record(kept, targets["d"], BAD, later)
    assert next_of(kept, Due(later - DAY, later)) == [targets["b"], "http://other.example/"]
    assert next_of(kept, Due(later - DAY, NOW + 0.5)) == [targets["b"]]
    assert next_of(kept, Due(later - DAY, NOW)) == []
    assert next_of(kept, Due(later, later), without=("h.example",)) == ["http://other.example/"]
    ordered = kept.next(Due(later, later), NOW, 64, later=("h.example",))
    assert [where for _, where in ordered] == ["http://other.example/", targets["b"]]
    follow(kept, **targets, n="http://h.example/new")
    assert next_of(kept, Due(0.0, later)) == ["http://h.example/new"], "a new one was never checked"


def test_a_host_that_rests_is_not_asked_also_after_a_restart(tmp_path: Path) -> None:
    with kept_at(tmp_path / "l.sqlite") as kept:
        follow(kept, a="http://h.example/1", b="http://h.example/2")
        kept.rest("h.example", NOW + 100)
    with kept_at(tmp_path / "l.sqlite") as kept:
        assert next_of(kept) == []
        assert kept.resting(ALL, NOW) == (2, NOW + 100)
        assert next_of(kept, now=NOW + 100) == ["http://h.example/1"]
    with kept_at(tmp_path / "l.sqlite", NOW - 30 * DAY) as kept:
        assert next_of(kept, now=NOW - 30 * DAY), "the clock went back"


def test_a_clock_that_ran_ahead_does_not_stop_checks(tmp_path: Path) -> None:
    with kept_at(tmp_path / "l.sqlite") as kept:
        follow(kept, a="http://h.example/1", b="http://h.example/2")
        record(kept, "http://h.example/1", BAD, NOW + 365 * DAY)
        record(kept, "http://h.example/2", BAD)
    with kept_at(tmp_path / "l.sqlite") as kept:
        assert next_of(kept, Due(NOW, NOW)) == ["http://h.example/1"]
        assert failed(kept).keys() == {"b"}


def test_a_damaged_file_is_built_anew_and_a_foreign_one_is_left_alone(tmp_path: Path) -> None:
    damaged, foreign = tmp_path / "damaged", tmp_path / "foreign"
    with kept_at(damaged) as kept:
        follow(kept, a="http://h.example/1")
    damaged.write_bytes(b"SQLite format 3\0" + b"x" * 8192)
    with kept_at(damaged) as kept:
        assert kept.counts() == LinkCounts()
        follow(kept, a="http://h.example/1")
    with sqlite3.connect(foreign) as database:
        database.execute("CREATE TABLE t (x)")
    database.close()
    with pytest.raises(ConfigError, match="is not a file with results of checks"):
        LinkStore(foreign, NOW)


def test_rows_that_another_program_spoilt_are_left_out(kept: LinkStore, tmp_path: Path) -> None:
    path = own(tmp_path / "own.sqlite", *((f"x{n}", f"http://h.example/{n}") for n in range(6)))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE redirects SET url = 'javascript:alert(1)' WHERE ark = 'ark:12345/x1'")
        database.execute("UPDATE redirects SET url = x'ff00' WHERE ark = 'ark:12345/x2'")
        database.execute("UPDATE redirects SET ark = CAST(x'61726bff' AS TEXT) WHERE ark = 'ark:12345/x3'")
        database.execute("UPDATE redirects SET ark = x'0001' WHERE ark = 'ark:12345/x4'")
    database.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checker, "PAGE", 1)
        followed(kept, path)
    assert kept.counts() == LinkCounts(unknown=2)


def test_one_process_checks_at_a_time(tmp_path: Path) -> None:
    with alone(tmp_path / "l") as first, alone(tmp_path / "l") as second:
        assert (first, second) == (True, False)
    with alone(tmp_path / "l") as third:
        assert third


# ---- requests to real servers


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pause of a host."""
    monkeypatch.setattr(check, "PAUSE", 0.0)


def checked(tmp_path: Path, *targets: str, **options: Any) -> dict[str, tuple[str, LinkState]]:
    """Check these URLs once, and return those that have failed, by their place, from 1."""
    path = own(tmp_path / "own.sqlite", *((str(n), where) for n, where in enumerate(targets, 1)))
    with kept_at(tmp_path / "links.sqlite") as kept:
        made = followed(kept, path, **options)
        start = time.time()
        while made.work(PATIENCE, lambda wall: Due(start, start)):
            pass
        assert kept.checked_since(start)[1] == len(set(targets))
        return failed(kept)


FAILING = LinkState.FAILING


@pytest.mark.usefixtures("fast")
def test_what_real_servers_answer(tmp_path: Path) -> None:
    def respond(target: str) -> tuple[int, dict[str, str], bytes]:
        if target.startswith("/to/"):
            return 302, {"Location": f"/{target[4:]}"}, b""
        return int(target[1:]), {}, b""

    with pages(respond) as server:
        names = ("200", "404", "to/200", "to/410", "to/to/to/to/to/200", "to/to/to/to/to/to/200", "403", "500")
        found = checked(tmp_path, *(f"{server.url}/{name}" for name in names), f"http://127.0.0.1:{free_port()}/")
        assert max(map(server.asked.count, server.asked)) <= len(names)
    states = {"2": "404", "4": "410", "6": "redirect", "8": "500", "9": "unreachable"}
    assert found == {name: (status, FAILING) for name, status in states.items()}


@pytest.mark.usefixtures("fast")
def test_the_requests_say_who_asks_and_are_head_first(tmp_path: Path) -> None:
    asked: list[tuple[str, Message]] = []

    def handle(request: BaseHTTPRequestHandler) -> None:
        asked.append((request.requestline, request.headers))
        sends(b"x", 405 if request.command == "HEAD" else 200)(request)

    with http_server(handle) as url:
        assert checked(tmp_path, f"{url}?a=b#c", contact="https://ark.example.org") == {}
    assert [line for line, _ in asked] == ["HEAD /naans?a=b HTTP/1.1", "GET /naans?a=b HTTP/1.1"]
    for _, headers in asked:
        assert headers["User-Agent"] == f"maptr/{__version__} (+https://ark.example.org)"
        assert headers["Host"] == url.split("/")[2]


def drips(request: BaseHTTPRequestHandler) -> None:
    """Send a header that never ends, one byte at a time."""
    request.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    try:
        while True:
            request.wfile.write(b"x")
            threading.Event().wait(0.02)
    except OSError:
        pass


@pytest.mark.parametrize(
    ("handle", "status"),
    [
        (holds(b""), "timeout"),
        (holds(b"HTTP/1.1 200 OK\r\n"), "timeout"),
        (drips, "timeout"),
        (holds(b"nonsense"), "timeout"),
    ],
)
@pytest.mark.usefixtures("fast")
def test_a_silent_or_slow_server_gives_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handle: Handle, status: str
) -> None:
    monkeypatch.setattr(checker, "SECONDS", 0.5)
    with http_server(handle) as url:
        assert checked(tmp_path, url) == {"1": (status, FAILING)}


@pytest.mark.parametrize(
    ("first", "more", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 50_000, {}),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 50_000, {}),
        (b"", b"x" * 50_000, {"1": ("not-http", FAILING)}),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", b"", {"1": ("404", FAILING)}),
        (b"HTTP/1.1 \xff\xff\r\n\r\n", b"", {"1": ("not-http", FAILING)}),
    ],
)
@pytest.mark.usefixtures("fast")
def test_an_endless_response_is_cut(tmp_path: Path, first: bytes, more: bytes, expected: dict[str, Any]) -> None:
    with raw_server(first, more) as port:
        assert checked(tmp_path, f"http://127.0.0.1:{port}/") == expected


@pytest.mark.usefixtures("fast")
def test_an_endless_loop_of_redirects_ends(tmp_path: Path) -> None:
    with pages(lambda target: (302, {"Location": f"{target}x"}, b"")) as server:
        assert checked(tmp_path, f"{server.url}/") == {"1": ("redirect", FAILING)}
        assert len(server.asked) == 6
    with pages(lambda target: (302, {"Location": target}, b"")) as server:
        assert checked(tmp_path, f"{server.url}/") == {"1": ("redirect", FAILING)}
        assert len(server.asked) == 1


@pytest.mark.usefixtures("fast")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # a failed handshake leaves its socket
def test_faults_of_tls(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    with http_server(sends(b""), certificate=tmp_path) as url, pages(lambda target: (200, {}, b"")) as plain:
        targets = (url, plain.url.replace("http:", "https:"), plain.url)
        found = checked(tmp_path, *targets)
    assert found == {"1": ("tls", FAILING), "2": ("tls", FAILING)}


@pytest.mark.usefixtures("fast")
def test_private_hosts_are_not_asked_and_not_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by a name that has such an address here."""
    addresses = {"a.example": ["10.0.0.1"], "b.example": ["127.0.0.1"]}
    monkeypatch.setattr("maptr.web.http.look_up", lambda host, port, seconds: addresses[host])
    with kept_at(tmp_path / "l.sqlite") as kept:
        follow(kept, a="http://a.example/", b="http://b.example/", c="http://127.0.0.1/")
        made, start = LinkChecker(None, kept), time.time()
        while made.work(PATIENCE, lambda wall: Due(start, start)):
            pass
        assert kept.counts() == LinkCounts(unknown=2)
        assert kept.checked_since(start) == (2, 2)


@pytest.mark.usefixtures("fast")
def test_a_redirect_from_a_public_host_to_a_private_one_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def respond(where: Any, method: str, seconds: float, **options: Any) -> Any:
        asked.append(where.host.text)
        headers = Message()
        headers["Location"] = "http://127.0.0.1:1/"
        return http.ResponseHead(302, headers)

    monkeypatch.setattr(http, "ask", respond)
    with kept_at(tmp_path / "l.sqlite") as kept:
        follow(kept, a="http://h.example/")
        made, start = LinkChecker(None, kept), time.time()
        while made.work(PATIENCE, lambda wall: Due(start, start)):
            pass
        assert (asked, failed(kept)) == (["h.example"], {"a": ("redirect", FAILING)})


def test_a_host_that_says_retry_after_is_left_alone(tmp_path: Path) -> None:
    with pages(lambda target: (503, {"Retry-After": "3600"}, b"")) as server:
        path = own(tmp_path / "own.sqlite", ("1", f"{server.url}/1"), ("2", f"{server.url}/2"))
        with kept_at(tmp_path / "l.sqlite") as kept:
            made, start = followed(kept, path), time.time()
            while made.work(PATIENCE, lambda wall: Due(start, start)):
                pass
            assert len(server.asked) == 1
            assert kept.counts() == LinkCounts(unknown=2)
            links, rest = kept.resting(Due(start, start), time.time())
            assert links == 1
            assert rest - start >= 3600


def test_a_fault_of_this_machine_is_raised_and_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(http, "ask", fail)
    with kept_at(tmp_path / "l.sqlite") as kept:
        follow(kept, a="http://h.example/")
        made = LinkChecker(None, kept)
        for _ in range(2):
            with pytest.raises(MemoryError):
                made.work(PATIENCE, lambda wall: ALL)
        assert kept.counts() == LinkCounts(unknown=1)


def test_a_link_dies_and_comes_back_over_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "PAUSE", 0.0)
    status = [404]
    wall = Clock(NOW)
    with pages(lambda target: (status[0], {}, b"")) as server:
        path = own(tmp_path / "own.sqlite", ("1", f"{server.url}/1"))
        with kept_at(tmp_path / "l.sqlite") as kept:
            made = followed(kept, path, wall=wall)

            def day() -> LinkState:
                while made.work(PATIENCE, lambda now: Due(now - AGAIN, now - 7 * DAY)):
                    pass
                wall.now += AGAIN + 1
                return next(iter(failed(kept).values()), ("", LinkState.ANSWERS))[1]

            assert [day() for _ in range(5)] == [FAILING, FAILING, *[LinkState.DEAD] * 3]
            assert len(server.asked) == 3, "a dead link is checked as any other"
            status[0] = 200
            wall.now += 7 * DAY
            assert day() is LinkState.ANSWERS


# ---- a gateway


@contextmanager
def gateway(tmp_path: Path, text: str, *, reread: Callable[[], Config] | None = None) -> Iterator[Service]:
    client = Client(["127.0.0.1#9"], policy="natab-only", table=TABLE, cache=tmp_path / "cache.sqlite")
    config = parse(f'[gateway]\nlisten = ["127.0.0.1:0"]\n{text}')
    service = Service(config, client, reread=reread, allow_private=True)
    with serving(service, client):
        yield service


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pauses, and with counts at each turn."""
    monkeypatch.setattr(check, "PAUSE", 0.0)
    monkeypatch.setattr(monitor, "IDLE", 0.05)
    monkeypatch.setattr(monitor, "COUNT_EVERY", 0.0)
    monkeypatch.setattr(checker, "FOLLOW_PAUSE", 0.0)


def links_of(port: int) -> dict[str, int] | None:
    found: dict[str, int] | None = json.loads(get(port, "/api/v1/status").body)["links"]
    return found


@pytest.mark.usefixtures("hasty")
def test_a_gateway_checks_and_follows_its_store_and_reloads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "maptr.gateway")
    with pages(lambda target: (int(target[1:4]), {}, b"")) as server:
        path = own(tmp_path / "own.sqlite", ("x1", f"{server.url}/200"), ("x2", f"{server.url}/404"), ("x3", ""))
        settings = {"check_every": "7d"}

        def text() -> str:
            return f'redirects = "{path}"\n' + "".join(f'{name} = "{value}"\n' for name, value in settings.items())

        def reread() -> Config:
            return parse(f'[gateway]\nlisten = ["127.0.0.1:0"]\n{text()}')

        with gateway(tmp_path, text(), reread=reread) as service:
            port = service.bound[0].port
            wanted = {"unknown": 0, "answers": 1, "failing": 1, "dead": 0}
            until(lambda: links_of(port) == wanted, lambda: f"the first checks: {links_of(port)}")
            changes.set_object(path, "ark:12345/x4", {"url": f"{server.url}/410"}, by="t", allow_private=True)
            until(lambda: links_of(port) == wanted | {"failing": 2}, "a new object is checked")
            changes.withdraw(path, "ark:12345/x2", reason="r", by="t", allow_private=True)
            until(lambda: links_of(port) == wanted, "a withdrawn one is not")
            page = get(port, "/links?state=failing")
            assert f"{server.url}/410" in page.text
            assert f"{server.url}/404" not in page.text
            table = get(port, "/links.csv?state=failing")
            assert table.headers["content-type"].startswith("text/csv")
            assert [line.split(",")[:3] for line in table.text.splitlines()] == [
                ["ark", "url", "status"],
                ["ark:12345/x4", f"{server.url}/410", "410"],
            ]
            assert 'maptr_redirects_links{state="failing"} 1.0' in get(port, "/metrics").text
            assert b'href="/links"' in get(port, "/").body

            settings["check_every"] = "0"
            service.reload()
            until(lambda: "reloaded" in caplog.messages, "the reload")
            until(lambda: service._links._checker is None, "no more checks")
            asked = len(server.asked)
            changes.set_object(path, "ark:12345/x5", {"url": f"{server.url}/500"}, by="t", allow_private=True)
            with alone(KeptStores(tmp_path).path(path, monitor.SUFFIX)) as is_alone:
                assert is_alone, "a command may check them now"
            assert len(server.asked) == asked
            assert links_of(port) == wanted, "what is known stays"
        assert not [line for line in caplog.messages if "internal error" in line]


@pytest.mark.usefixtures("hasty")
def test_dead_links_are_an_alarm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = own(tmp_path / "own.sqlite", *((f"x{n}", f"http://127.0.0.1:9/{n}") for n in range(150)))
    with kept_at(KeptStores(tmp_path).path(path, monitor.SUFFIX), time.time()) as kept:
        followed(kept, path)
        for number in range(120):
            where = f"http://127.0.0.1:9/{number}"
            for days in (3, 2, 1):
                record(kept, where, CheckResult(CheckOutcome.FAILED, fault="dns"), time.time() - days * DAY)
    with gateway(tmp_path, f'redirects = "{path}"\ncheck_every = 0\n') as service:
        port = service.bound[0].port
        until(lambda: links_of(port) is not None, "what a command has found")
        alarm = json.loads(get(port, "/api/v1/status").body)["alarms"]["links"]
        assert alarm == "links: 120 of 150 objects lead nowhere: /links has them"
        assert 'maptr_gateway_alarms{kind="links"} 1.0' in get(port, "/metrics").text
        assert get(port, "/ready").status == 200, "redirects go on"
        first = get(port, "/links")
        assert "120 of 150 objects lead nowhere" in first.text
        assert "its host has no address" in first.text
        seen, target = set[str](), "/links"
        while target:
            text = get(port, target).text
            seen |= {
                line.partition("<code>")[2].partition("</code>")[0]
                for line in text.split("<tr>")
                if "<code>ark:" in line
            }
            target = text.partition('<p><a href="/links?')[2].partition('"')[0].replace("&amp;", "&")
            target = target and f"/links?{target}"
        assert len(seen) == 120
        for language, title in (("fr", "120 objets sur 150 ne mènent nulle part"), ("es", "120 de 150 objetos")):
            assert title in get(port, "/links", f"Accept-Language: {language}").text
    assert "links: 120 of 150 objects lead nowhere: /links has them" in caplog.messages


def test_the_page_is_for_operators_only(tmp_path: Path) -> None:
    path = own(tmp_path / "own.sqlite", ("x1", "http://127.0.0.1:9/"))
    with kept_at(KeptStores(tmp_path).path(path, monitor.SUFFIX), time.time()) as kept:
        followed(kept, path)
    with gateway(tmp_path, f'redirects = "{path}"\nadmin_listen = "127.0.0.1:0"\n') as service:
        public, admin = service.bound[0].port, service.bound_admin[0].port
        until(lambda: get(admin, "/links").status == 200, "the page")
        assert get(admin, "/links.csv").status == 200
        assert get(public, "/links").status == get(public, "/links.csv").status == 404
        assert b'href="/links"' not in get(public, "/").body


@pytest.mark.usefixtures("hasty")
def test_without_own_objects_or_results_there_is_no_page(tmp_path: Path) -> None:
    with gateway(tmp_path, "") as service:
        port = service.bound[0].port
        assert (get(port, "/links").status, links_of(port)) == (404, None)
    path = csv_file(tmp_path / "own.csv", "ark,url\nark:12345/x1,http://127.0.0.1:9/\n")
    with gateway(tmp_path, f'redirects = "{path}"\n') as service:
        port = service.bound[0].port
        assert (get(port, "/links").status, links_of(port)) == (404, None)
    assert not list(tmp_path.glob("*.links.sqlite*"))


@pytest.mark.usefixtures("hasty")
def test_a_followed_csv_is_checked(tmp_path: Path) -> None:
    with pages(lambda target: (200, {}, b"")) as server:
        path = csv_file(tmp_path / "own.csv", f"ark,url\nark:12345/x1,{server.url}/1\n")
        with gateway(tmp_path, f'redirects = "{path}"\ncheck_every = "1d"\n') as service:
            port = service.bound[0].port
            until(lambda: (links_of(port) or {}).get("answers") == 1, "the check")


@pytest.mark.usefixtures("hasty")
def test_a_gateway_stops_in_the_midst_of_a_request(tmp_path: Path) -> None:
    begun = threading.Event()

    def handle(request: BaseHTTPRequestHandler) -> None:
        begun.set()
        holds(b"")(request)

    with http_server(handle) as url:
        path = own(tmp_path / "own.sqlite", ("x1", url))
        with gateway(tmp_path, f'redirects = "{path}"\ncheck_every = "1d"\n') as service:
            assert begun.wait(PATIENCE)
            working = service._links._working
            assert get(service.bound[0].port, "/ark:12345/x1").headers["location"] == url
        assert not working.locked()
        assert service._links._opened is None
    with kept_at(KeptStores(tmp_path).path(path, monitor.SUFFIX)) as kept:
        assert kept.counts() == LinkCounts(unknown=1)


@pytest.mark.usefixtures("hasty")
def test_faults_of_the_file_are_logged_once_and_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = own(tmp_path / "own.sqlite", ("x1", f"http://127.0.0.1:{free_port()}/"))
    results = KeptStores(tmp_path).path(path, monitor.SUFFIX)
    results.mkdir()
    with gateway(tmp_path, f'redirects = "{path}"\ncheck_every = "1d"\n') as service:
        port = service.bound[0].port
        until(lambda: any("links not checked" in line for line in caplog.messages), "the log")
        assert get(port, "/ark:12345/x1").status == 302
        results.rmdir()
        until(lambda: (links_of(port) or {}).get("failing") == 1, "the check")
    assert len([line for line in caplog.messages if "links not checked" in line]) == 1
    assert not [line for line in caplog.messages if "internal error" in line]


@pytest.mark.usefixtures("hasty")
def test_another_process_that_checks_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = own(tmp_path / "own.sqlite", ("x1", "http://127.0.0.1:9/"))
    results = KeptStores(tmp_path).path(path, monitor.SUFFIX)
    settings = parse(f'[gateway]\nredirects = "{path}"\ncheck_every = "1d"\n').gateway
    made = LinkMonitor(KeptStores(tmp_path), allow_private=True)
    with alone(results):
        for _ in range(3):
            assert made.work(settings, redirects_of(path)) is not None
            assert made.is_idle
    made.stop()
    made.close()
    line = f"links not checked: another process checks those of {results}"
    assert caplog.messages == [line]


def redirects_of(path: Path) -> Any:
    return Redirects(path.name, open_store(path, allow_private=True), 1.0)


@pytest.mark.parametrize("text", ["59m", "1", "-1", "x"])
def test_a_time_that_is_too_short_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"at least 1h|not a duration"):
        parse(f'[gateway]\nredirects = "own.sqlite"\ncheck_every = "{text}"\n')
    assert GatewayConfig().check_every == 0
