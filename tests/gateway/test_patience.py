"""No request holds the event loop: own objects in a database that is locked, slow, damaged or hostile."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maptr.config.model import GatewayConfig
from maptr.errors import ConfigError
from maptr.gateway import patience
from maptr.gateway.message import Busy, Unreadable
from maptr.gateway.objects import Redirects
from maptr.gateway.redirects import store as stores
from maptr.gateway.redirects.store import ObjectStore
from maptr.gateway.route import route
from maptr.gateway.site import DriftReport, Site
from maptr.registry.followed_file import TableState
from tests.support.caching import ONE_HOST, Rig, table
from tests.support.http_gateway import Gateway, HttpClient, Reply, gateway, get, request
from tests.support.own_objects import imported as imported_text
from tests.support.own_objects import read
from tests.support.waiting import PATIENCE, until

OWN = "ark,url\nark:12345/x5,https://h.example/5\nark:12345/x6,https://h.example/6\n"
TABLE = table(("12345", "t.example"), ("54321", "u.example"))
OTHERS = {"/health": 200, "/ark:54321/x": 302, "/naan/": 200, "/ark:54321/x?maptr=list": 200, "/naan/12345": 200}


def imported(path: Path) -> Path:
    return imported_text(path, OWN)


@contextmanager
def serving(path: Path) -> Iterator[Gateway]:
    with gateway(
        Rig(natab=TABLE, policy="natab-only"), Site(table_state=TableState(TABLE), redirects=read(path))
    ) as found:
        yield found


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("PRAGMA locking_mode = EXCLUSIVE")
        writer.execute("BEGIN EXCLUSIVE")
        yield writer


def assert_others_are_answered(port: int) -> None:
    for target, status in OTHERS.items():
        assert get(port, target).status == status, target


@pytest.fixture
def long_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request waits for as long as the test takes."""
    monkeypatch.setattr("maptr.gateway.server.PATIENCE", 3 * PATIENCE)
    monkeypatch.setattr(patience.Allowance.__init__, "__defaults__", (3 * PATIENCE,))


@pytest.mark.usefixtures("long_patience")
@pytest.mark.parametrize("target", ["/ark:12345/x5", "/ark:12345/x5/more", "/?q=ark:12345/x5", "/ark:12345"])
def test_a_locked_database_keeps_nobody_else_waiting(target: str, tmp_path: Path) -> None:
    path = imported(tmp_path / "own.sqlite")
    with serving(path) as found, HttpClient(found.port) as client:
        at_first = client.get(target)
        with locked(path) as writer:
            client.send(request(target))
            assert_others_are_answered(found.port)
            writer.execute("ROLLBACK")
            writer.execute("PRAGMA locking_mode = NORMAL")
            writer.execute("SELECT count(*) FROM redirects").fetchone()
            assert (client.reply().status, at_first.status) == (at_first.status,) * 2


def test_a_database_that_stays_locked_gives_503(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = imported(tmp_path / "own.sqlite")
    with serving(path) as found:
        with locked(path):
            for _ in "again":
                reply = get(found.port, "/ark:12345/x5")
                assert (reply.status, reply.headers["retry-after"]) == (503, "10")
                assert reply.text.splitlines()[1].endswith(" cannot be read now")
                assert reply.headers["cache-control"] == "no-store"
            assert get(found.port, "/api/v1/discover?ark=ark:12345/x5").status == 503
            lines = get(found.port, "/api/v1/discover?ark=ark:12345/x5&ark=ark:54321/x&ark=ark:12345/x6&ark=nonsense")
            documents = [json.loads(line) for line in lines.body.splitlines()]
            errors = [document["error"] for document in documents]
            assert errors[1] is None
            assert all("cannot be read now" in errors[index] for index in (0, 2)), str(errors)
            assert documents[1]["candidates"]
            assert found.metric("maptr_redirects_unavailable_total") == 8
        until(lambda: get(found.port, "/ark:12345/x5").status == 302, "it is read again")
    assert caplog.messages == [f"{path}: ark:12345/x5: database is locked"], "once"


class SlowConnection:
    """A connection to a database on a disk that gives nothing until ``gate`` is set."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.gate = threading.Event()
        self.pause = 0.0
        self.threads: list[str] = []

    def execute(self, statement: str, parameters: Any = ()) -> sqlite3.Cursor:
        self.threads.append(threading.current_thread().name)
        time.sleep(self.pause)
        assert self.gate.wait(2 * PATIENCE)
        return self.connection.execute(statement, parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


@contextmanager
def slow_disk(path: Path) -> Iterator[tuple[Gateway, SlowConnection]]:
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    disk = SlowConnection(connection)
    searching = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    store = ObjectStore(disk, str(path), searching=searching)  # type: ignore[arg-type]
    disk.gate.set()
    store.prepare()
    disk.pause = stores.AT_ONCE
    store.get("ark:12345/x5")  # the first that takes long
    disk.pause = 0.0
    with gateway(
        Rig(natab=TABLE, policy="natab-only"),
        Site(table_state=TableState(TABLE), redirects=Redirects("own.sqlite", store)),
    ) as found:
        yield found, disk


@pytest.mark.usefixtures("long_patience")
def test_a_slow_disk_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    with slow_disk(imported(tmp_path / "own.sqlite")) as (found, disk), HttpClient(found.port) as client:
        disk.gate.clear()
        client.send(request("/ark:12345/x5"))
        assert_others_are_answered(found.port)
        disk.gate.set()
        assert client.reply().headers["location"] == "https://h.example/5"

        def is_calm() -> bool:
            assert client.get("/ark:12345/x6").status == 302
            return disk.threads[-1] != "background"

        until(is_calm, "the event loop looks up itself again")


def test_after_a_pause_a_thread_finds_out_whether_the_disk_is_slow(tmp_path: Path) -> None:
    store = read(imported(tmp_path / "own.sqlite")).objects
    assert isinstance(store, ObjectStore)
    assert store.within(0).get("ark:12345/x5") is not None
    store.quiet_after = 0.0
    with pytest.raises(Busy):
        store.within(0).get("ark:12345/x5")
    assert store.within(PATIENCE).get("ark:12345/x5") is not None
    store.quiet_after = PATIENCE
    assert store.within(0).get("ark:12345/x5") is not None


def test_a_disk_that_hangs_gives_503_and_takes_a_few_threads(tmp_path: Path) -> None:
    with slow_disk(imported(tmp_path / "own.sqlite")) as (found, disk), ExitStack() as stack:
        disk.gate.clear()
        clients = [stack.enter_context(HttpClient(found.port)) for _ in range(3 * patience.THREADS)]
        for client in clients:
            client.send(request("/ark:12345/x5"))
        assert_others_are_answered(found.port)
        replies: list[Reply] = [client.reply() for client in clients]
        assert {reply.status for reply in replies} == {503}
        assert all(reply.headers["retry-after"] for reply in replies)
        working = [thread for thread in threading.enumerate() if thread.name == "background"]
        assert len(working) <= patience.THREADS
        disk.gate.set()
        until(lambda: get(found.port, "/ark:12345/x5").status == 302, "the disk answers again")


def test_a_statement_that_takes_long_is_ended(tmp_path: Path) -> None:
    """The file says that it is ours, and has no index: each look-up reads all rows."""
    path = imported(tmp_path / "own.sqlite")
    with closing(sqlite3.connect(path)) as made, made:
        made.executescript(
            "ALTER TABLE redirects RENAME TO keyed; CREATE TABLE redirects AS SELECT * FROM keyed; DROP TABLE keyed;"
        )
        many = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c LIMIT 300000) SELECT 'ark:12345/y' || i"
        made.execute(f"INSERT INTO redirects (ark, url, status, suffix) {many}, 'https://h.example/', 302, 1 FROM c")
    found = read(path).objects
    with pytest.raises(Busy):
        found.within(0).get("ark:12345/y299999")
    patient = found.within(3 * PATIENCE)
    assert patient.get("ark:12345/y299999") is not None
    brief = found.within(0.001)
    with pytest.raises(Unreadable):
        brief.get("ark:12345/z")


def test_a_row_that_cannot_be_served_gets_503_and_the_others_are_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another program has written it."""
    path = imported(tmp_path / "own.sqlite")
    spoilt = (
        'more = \'{"a": ' + "[" * 30_000 + "]" * 30_000 + "}'",
        "more = '{\"a\": [1]}'",
        "more = NULL, status = 9e999",
        "status = 'x'",
        "status = 302, url = CAST(x'68ff' AS TEXT)",
        "url = 'http://10.0.0.1/'",
    )
    with serving(path) as found:
        for change in spoilt:
            with closing(sqlite3.connect(path)) as writer, writer:
                writer.execute(f"UPDATE redirects SET {change} WHERE ark LIKE '%x5'")
            for target in ("/ark:12345/x5", "/ark:12345/x5/more", "/ark:12345/x5?info"):
                reply = get(found.port, target)
                assert (reply.status, reply.headers["cache-control"]) == (503, "no-store")
            assert get(found.port, "/ark:12345/x6").headers["location"] == "https://h.example/6"
            assert found.site.redirects.objects.broken.keys() == {"ark:12345/x5"}
        with closing(sqlite3.connect(path)) as writer, writer:
            writer.execute("UPDATE redirects SET url = 'https://h.example/7' WHERE ark LIKE '%x5'")
        assert get(found.port, "/ark:12345/x5").headers["location"] == "https://h.example/7"
    assert len(caplog.messages) == len(spoilt), "each once"


@pytest.mark.parametrize("name", ["columns", "redirects"])
def test_a_view_in_the_place_of_a_table_is_refused(name: str, tmp_path: Path) -> None:
    """It could go on for ever."""
    path = imported(tmp_path / "own.sqlite")
    with closing(sqlite3.connect(path)) as made:
        made.execute(f"DROP TABLE {name}")
        made.execute(
            f"CREATE VIEW {name} AS WITH RECURSIVE c(name) AS (SELECT '' UNION ALL SELECT '' FROM c) SELECT * FROM c"
        )
    with pytest.raises(ConfigError, match=f"{name} is not a table"):
        read(path)
    with pytest.raises(ConfigError, match=f"{name} is not a table"):
        imported_text(tmp_path / "new.sqlite", path.read_bytes().decode("utf-8", "surrogateescape"))


def test_lists_of_the_whole_table_are_made_by_a_thread() -> None:
    site = Site(table_state=TableState(TABLE), compares=True, drift=DriftReport((), 1.0))
    site = replace(site, settings=GatewayConfig(public_url="https://own.example"))
    for target in ("/drift", "/servers", "/servers.atom", "/status", "/sitemap.xml", "/naan/", "/api/v1/drift"):
        assert callable(route("GET", target, {}, site)), target


def test_a_silent_dns_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    rig = Rig(ONE_HOST, natab=TABLE)
    rig.dns.gate = threading.Event()
    own = read(imported(tmp_path / "own.sqlite"))
    with gateway(rig, Site(table_state=TableState(TABLE), redirects=own)) as found, HttpClient(found.port) as client:
        client.send(request("/ark:12345/other"))
        until(lambda: rig.dns.calls, "DNS is asked")
        for target, status in {"/health": 200, "/ark:12345/x5": 302, "/naan/": 200, "/": 200}.items():
            assert get(found.port, target).status == status, target
        rig.dns.gate.set()
        assert client.reply().headers["location"] == "https://h.example/ark:12345/other"
