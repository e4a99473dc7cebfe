"""Statistics: what is counted, its bounds, the absence of client addresses, and who may see it."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from maptr.client import Client
from maptr.config import parse
from maptr.config.model import GatewayConfig
from maptr.daemon.process import in_thread
from maptr.discovery import Outcome
from maptr.errors import ConfigError
from maptr.gateway import resolve, statistics
from maptr.gateway.message import Unreadable
from maptr.gateway.objects import OwnObject
from maptr.gateway.route import route
from maptr.gateway.service import Service
from maptr.gateway.statistics import DAY, DAYS_KEPT, HOUR, HOURS_KEPT, MAX_VALUES, Statistics, naan_in, span_of
from maptr.walk import Answer
from tests.gateway.test_service import TABLE
from tests.support.caching import HOME, SILENT, Clock, dns_answer
from tests.support.command_line import run
from tests.support.gateway import Gateway, objects
from tests.support.http_gateway import configured, get

NOON = 1_700_006_400.0  # the start of an hour


def counted(*requests: tuple[Any, ...], file: Path | None = None) -> tuple[Statistics, Clock]:
    clock = Clock(NOON)
    made = Statistics(file, wall=clock)
    for each in requests:
        made.count(naan_in(each[0]), *each)
    return made, clock


def keep(made: Statistics) -> None:
    asyncio.run(made.keep())


REQUESTS = (
    ("/ark:/12345/x1?info", 302, "natab;table=builtin;age=5", "https://Library.example/page?secret=1"),
    ("/ark:12345/x2", 302, "dns", ""),
    ("/https://n2t.net/ark:/99999/x?a=b", 404, "dns", "not a URL", "nxdomain"),
    ("/ark:99999/x??", 503, "", "", "timeout"),
    ("/ark:", 400, "", "", "not-an-ark"),
    ("/ark:12345/gone?", 410, "redirects", "https://library.example/", "gone"),
    ("/ark:12345/x1", 204, "", "https://library.example/"),  # OPTIONS, before a request of a script: not counted
)


def test_what_is_counted() -> None:
    made, _ = counted(*REQUESTS)
    document = made.report(1).to_dict()
    assert document["requests"] == 6
    assert document["naans"] == [
        {"naan": "12345", "requests": 3},
        {"naan": "99999", "requests": 2},
        {"naan": "none", "requests": 1},
    ]
    assert {(one["naan"], one["status"], one["reason"]) for one in document["failed"]} == {
        ("99999", 404, "nxdomain"),
        ("99999", 503, "timeout"),
        ("none", 400, "not-an-ark"),
        ("12345", 410, "gone"),
    }
    assert document["reasons"] == {"nxdomain": 1, "timeout": 1, "not-an-ark": 1, "gone": 1}
    assert document["sources"] == {"dns": 2, "natab": 1, "redirects": 1}
    assert document["inflections"] == {"?info": 1, "??": 1, "?": 1}
    assert document["referrers"] == [{"host": "library.example", "requests": 2}]
    assert sum(one["requests"] for one in document["periods"]) == 6
    assert len(document["periods"]) == 24


BOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"


def asked(made: Statistics, agent: str, *targets: str, status: int = 302) -> None:
    for target in targets:
        made.count(naan_in(target), target, status, "natab", "", agent=agent)


def test_crawlers_are_counted_apart_and_only_their_class_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "stats.sqlite"
    made, _ = counted(file=path)
    asked(made, BROWSER, "/ark:12345/x5a", "/ark:/12345/x-5-b?info", "/ark:12345/bc9", "/ark:12345/9z")
    asked(made, BOT, "/ark:12345/x5a", "/ark:12345/x5c")
    asked(made, BOT, "/ark:12345/x5gone", status=404)
    asked(made, "", "/ark:12345/q1")
    unwritten = made.report(1)
    made.close()
    with closing(Statistics(path, wall=Clock(NOON), is_read_only=True)) as kept:
        report = kept.report(1)
    assert report == unwritten
    assert report.shoulders == [("12345/x5", 2, 2), ("12345/bc9", 1, 0), ("12345/q1", 1, 0)]
    assert dict(report.values["client"]) == {"other": 5, "crawler": 3}
    (month,) = report.months
    assert month[:4] == ("2023-11", 8, 3, 1)
    assert month.shoulders == {"12345/x5": 2, "12345/bc9": 1, "12345/q1": 1}
    assert b"Googlebot" not in path.read_bytes()
    assert b"Firefox" not in path.read_bytes()


def test_without_the_list_of_crawlers_all_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_crawler_patterns", lambda: None)
    statistics.is_crawler.cache_clear()
    made, _ = counted()
    asked(made, BOT, "/ark:12345/x5a")
    assert dict(made.report(1).values["client"]) == {"other": 1}
    statistics.is_crawler.cache_clear()


def test_many_clients_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_AGENTS", 10)
    made, _ = counted()
    for number in range(100):
        asked(made, f"agent {number} " + "x" * 1_000, "/ark:12345/x5a")
    assert sum(len(value) for *_, value in made._agents.known) <= 11 * (statistics.MAX_AGENT + 20)
    report = made.report(1)
    assert dict(report.values["client"]) == {"other": 100}
    assert report.shoulders == [("other", 90, 0), ("12345/x5", 10, 0)]
    assert report.requests == 100


def test_months_are_side_by_side_whatever_the_period() -> None:
    made, clock = counted()
    for days in (0, 20, 45, 370, 500):
        clock.now = NOON - days * DAY
        asked(made, BROWSER, "/ark:12345/x5a")
        keep(made)
    clock.now = NOON
    expected = ["2023-11", "2023-10", "2022-11"]
    assert [month.month for month in made.report(1).months] == expected
    assert [month.month for month in made.report(period="2023-11-14").months] == expected
    assert [month.requests for month in made.report(1).months] == [1, 2, 1]


def test_each_table_is_a_csv(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = counted(*REQUESTS)
    asked(made, BOT, "/ark:12345/x5a")
    made.count("12345", "/ark:12345/x", 404, "=1+1", "", "no-object")
    gateway = Gateway(TABLE, statistics=made.reading, public_stats=True)
    page = gateway.ask("/stats", accept="text/html").body.decode()
    for table in statistics.TABLES_OF_REPORT:
        response = gateway.ask(f"/stats.csv?table={table}")
        assert (response.status, response.header("content-type")) == (200, "text/csv; charset=utf-8")
        rows = list(csv.reader(io.StringIO(response.body.decode())))
        assert len(rows) > 1
        assert {len(row) for row in rows} == {len(rows[0])}, table
        assert f"/stats.csv?table={table}&amp;days=7" in page
    naans = gateway.ask("/stats.csv?table=naans").body.decode().splitlines()
    assert naans[:2] == ["naan,who,requests", f"12345,{TABLE['12345'].who.name},5"]
    assert "'=1+1,1" in gateway.ask("/stats.csv?table=sources").body.decode(), "no formula"
    assert gateway.ask("/stats.csv?table=periods&days=1").body.count(b"\n") == 25
    assert gateway.ask("/stats.csv?table=x").status == 400
    assert gateway.ask("/stats.csv?table=naans&period=x").status == 400
    assert Gateway(statistics=made.reading).ask("/stats.csv?table=naans").status == 404, "for the operator only"


@pytest.mark.parametrize(
    ("target", "naan"),
    [
        ("/ark:12345/x", "12345"),
        ("/ark%3A%2F12-345%2Fx", "12345"),
        ("/https://n2t.net/ark:/B5060/x?y", "b5060"),
        ("/api/v1/discover?ark=ark:12345", "12345"),
        ("/ark:", ""),
        ("/naan/12345", ""),
    ],
)
def test_the_naan_of_a_target(target: str, naan: str) -> None:
    assert naan_in(target) == naan


def test_each_failure_has_its_reason() -> None:
    """One of a few words: the end of a query, or what is wrong with the request."""
    gone = objects(OwnObject("ark:12345/gone", status=410))
    gateway = Gateway(TABLE, {}, policy="dns-only", objects=gone)
    long = "x" * (resolve.MAX_ARK + 1)
    for target, reason in {
        "/ark:!": "not-an-ark",
        f"/ark:12345/{long}": "too-long",
        "/ark:12345/gone": "gone",
        "/nothing": "no-page",
    }.items():
        assert gateway.ask(target).reason == reason
    for answer, reason in (
        (Answer(Outcome.NODATA, zone=()), "nodata"),
        (SILENT, "timeout"),
        (dns_answer(), "nxdomain"),
        (Answer(Outcome.NO_ORIGIN), "no-origin"),
        (Answer(Outcome.SERVFAIL), "servfail"),
    ):
        assert Gateway(None, {HOME: answer}, policy="dns-only").ask("/ark:12345/x").reason == reason
    assert Gateway(TABLE).ask("/ark:77777/x").reason == "not-in-table"
    assert Gateway(TABLE).ask("/ark:12345/x").reason == ""


def test_the_file_keeps_the_counts(tmp_path: Path) -> None:
    path = tmp_path / "stats.sqlite"
    made, clock = counted(*REQUESTS, file=path)
    before = made.report(1)
    keep(made)
    assert made.report(1) == before
    made.count("12345", "/ark:12345/x1", 302, "dns", "")
    made.close()
    again = Statistics(path, wall=clock)
    assert again.report(1).requests == 7
    clock.now += 2 * DAY
    assert (again.report(1).requests, again.report(7).requests, again.report(365).requests) == (0, 7, 7)
    assert b"secret" not in path.read_bytes()
    old = again._store
    path.rename(tmp_path / "old.sqlite")
    again.count("12345", "/ark:12345/x1", 302, "dns", "")
    keep(again)
    assert Statistics(path, wall=clock).report(7).requests == 1, "a file that is removed is made again"
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        old.execute("SELECT 1")


def test_hours_and_days_are_forgotten_in_time() -> None:
    made, clock = counted(REQUESTS[0])
    keep(made)
    clock.now += 15 * DAY
    keep(made)
    assert (made.report(14).requests, made.report(30).requests) == (0, 1)
    clock.now += 400 * DAY
    keep(made)
    assert made.report(400).requests == 0
    for day in range(DAYS_KEPT + 5):
        clock.now = NOON + day * DAY
        made.count("12345", "/ark:12345/x1", 302, "dns", "")
        keep(made)
    with made._lock:
        for table, most in (("hours", HOURS_KEPT), ("days", DAYS_KEPT)):
            first, size = made._store.execute(f"SELECT min(start), count(DISTINCT start) FROM {table}").fetchone()
            assert (first // DAY, size) == (clock.now // DAY - most + 1, most)


def test_a_clock_that_is_wrong_for_a_time_loses_no_counts() -> None:
    made, clock = counted(REQUESTS[0])
    keep(made)
    for wrong in (NOON + 9_000 * DAY, 0.0):
        clock.now = wrong
        made.count("12345", "/ark:12345/x1", 302, "dns", "")
        keep(made)
    clock.now = NOON + DAY
    assert (made.report(2).requests, made.report(400).requests) == (1, 1)


@pytest.mark.parametrize(
    ("period", "since", "until"),
    [
        ("2024", "2024-01-01", "2025-01-01"),
        ("2023-12", "2023-12-01", "2024-01-01"),
        ("2024-02-28", "2024-02-28", "2024-02-29"),
        ("2024-02-29/2024-03-01", "2024-02-29", "2024-03-02"),
        ("2023-07/2024-06", "2023-07-01", "2024-07-01"),
        ("2024/2025-02-03", "2024-01-01", "2025-02-04"),
    ],
)
def test_a_period_is_of_the_calendar(period: str, since: str, until: str) -> None:
    expected = [int(datetime.fromisoformat(f"{day}T00:00Z").timestamp()) for day in (since, until)]
    assert [*span_of(period)] == expected


@pytest.mark.parametrize(
    "text", ["2023-13", "2023-02-29", "23", "2023-1", "2023/2025", "2024/2025-02-04", "2024/2023", "/2023", "x"]
)
def test_what_is_not_a_period_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a period of at most 400 days"):
        span_of(text)


def test_a_period_is_counted_by_day_or_if_it_is_recent_by_hour() -> None:
    made, clock = counted(REQUESTS[0])
    keep(made)
    made.count("12345", "/ark:12345/x1", 302, "dns", "")
    for period, requests, size, count in (
        ("2023-11-15", 2, HOUR, 1),
        ("2023-11-14", 0, HOUR, 24),
        ("2023-11-02/2023-11", 2, HOUR, 13 * 24 + 1),
        ("2023-11", 2, DAY, 15),
        ("2023-10", 0, DAY, 31),
        ("2023", 2, DAY, 319),
        ("2022", 0, DAY, 365),
        ("2024", 0, HOUR, 0),
    ):
        report = made.report(period=period)
        assert (report.requests, report.seconds, len(report.periods)) == (requests, size, count), period
        assert report.until == max(report.since, min(span_of(period)[1], clock.now))


def test_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_REQUESTS", 10)
    made, clock = counted()
    for hour in range(30):
        for number in range(MAX_VALUES + 50):
            made.count(f"{hour}00{number}", "/", 404, "dns", f"https://h{hour}x{number}.example/", "nxdomain")
            assert len(made._requests) < 10
        assert MAX_VALUES < len(made._waiting) <= 3 * (MAX_VALUES + 1) + 5
        clock.now += HOUR
        keep(made)
    clock.now += DAY
    keep(made)
    select = "SELECT max(n) FROM (SELECT count(*) AS n FROM days GROUP BY start, kind)"
    per_day = "SELECT count(*) FROM days WHERE kind = 'naan' AND start = ?"
    first_day = int(NOON) // DAY * DAY
    with made._lock:
        assert made._store.execute(per_day, (first_day + DAY,)).fetchone()[0] <= MAX_VALUES + 1
        assert made._store.execute(select).fetchone()[0] <= 24 * (MAX_VALUES + 1)
        assert made._store.execute(select.replace("days", "hours")).fetchone()[0] <= MAX_VALUES + 1
    assert made.report(30).requests == 30 * (MAX_VALUES + 50), "the rest is counted together"
    assert sum(made.report(30).values["status"][0][1:]) == 30 * (MAX_VALUES + 50)


def test_robots_that_ask_for_nonsense_hide_no_other_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The values of an hour are those that were counted most, not those that came first."""
    monkeypatch.setattr(statistics, "MAX_FRESH", 2 * MAX_VALUES)
    made, clock = counted()
    for minute in range(10):
        for number in range(MAX_VALUES):
            made.count(f"{minute}x{number}", "/", 404, "dns", f"https://{minute}x{number}.example/", "nxdomain")
        for _ in range(3 if minute else 0):
            made.count("12345", "/", 404, "dns", "https://library.example/", "nxdomain")
        clock.now += 60
        keep(made)
    for left in (2 * MAX_VALUES, MAX_VALUES):  # while the hour goes on, and then
        found = made.report(1)
        others = 10 * MAX_VALUES - left + 1
        assert (found.values["naan"][:2], found.requests) == ((("other", others), ("12345", 27)), 2_027)
        assert found.values["failed"][1] == ("12345 404 nxdomain", 27)
        assert found.values["referrer"][1] == ("library.example", 27)
        clock.now += HOUR
        keep(made)


def test_a_disk_that_is_full_loses_no_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "stats.sqlite"
    made, _ = counted(*REQUESTS, file=path)
    made._store.execute("PRAGMA query_only = ON")
    keep(made)
    made._store.execute("PRAGMA query_only = OFF")
    assert made.report(1).requests == 6
    keep(made)
    assert made.report(1).requests == 6
    for _ in "once":
        made._store.execute("PRAGMA query_only = ON")
        made.count("12345", "/ark:12345/x", 302, "", "")
        keep(made)
        keep(made)
        made._store.execute("PRAGMA query_only = OFF")
    warning = f"statistics not kept: {path}: attempt to write a readonly database"
    assert [record.getMessage() for record in caplog.records] == [warning, warning], "each time, it is logged once"


def unable(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_a_folder_that_is_gone_or_a_thread_that_cannot_start_loses_no_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, away = tmp_path / "kept", tmp_path / "away"
    folder.mkdir()
    made, _ = counted(*REQUESTS, file=folder / "stats.sqlite")
    folder.rename(away)
    folder.touch()
    keep(made)
    with pytest.raises(Unreadable):
        made.report(1)
    folder.unlink()
    away.rename(folder)
    with monkeypatch.context() as patch:
        patch.setattr(statistics, "in_thread", unable)
        with pytest.raises(RuntimeError):
            keep(made)
    keep(made)
    assert made.report(1).requests == 6


def test_a_file_that_is_damaged_in_use_gives_503(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "stats.sqlite"
    with configured(f'stats = "{path}"\npublic_stats = true\n', TABLE) as service:
        port = service.bound[0].port
        assert get(port, "/api/v1/stats").status == 200
        damaged = tmp_path / "damaged"
        damaged.write_bytes(b"damaged" * 1000)
        damaged.replace(path)
        for log in ("stats.sqlite-wal", "stats.sqlite-shm"):
            (tmp_path / log).unlink()
        for target in ("/stats", "/api/v1/stats", "/stats"):
            assert get(port, target).status == 503
        assert get(port, "/ark:12345/x").status == 302
    logged = [line for line in caplog.messages if "statistics" in line]
    assert logged == [f"statistics not read: {path}: file is not a database"], "once"


async def test_counting_goes_on_while_counts_are_written() -> None:
    made, _ = counted()
    keeping = [asyncio.ensure_future(made.keep())]
    for number in range(2000):
        made.count(str(number), "/", 302, "dns", "")
        if not number % 50:
            keeping.append(asyncio.ensure_future(made.keep()))
            await asyncio.sleep(0)
    await asyncio.gather(*keeping)
    await made.keep()
    assert made.report(1).requests == 2000


async def test_a_stop_loses_no_count_to_a_thread_that_is_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of a cancelled task gets its turn only after the file was closed."""
    path = tmp_path / "stats.sqlite"
    made, clock = counted(*REQUESTS, file=path)
    late: list[Callable[[], object]] = []

    async def in_late_thread(work: Callable[[], object]) -> None:
        late.append(work)
        await asyncio.sleep(3600)

    monkeypatch.setattr(statistics, "in_thread", in_late_thread)
    task = asyncio.ensure_future(made.keep())
    while not late:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    made.close()
    late[0]()
    with closing(Statistics(path, wall=clock, is_read_only=True)) as kept:
        assert kept.report(1).requests == 6


def test_a_report_counts_nothing_twice_and_loses_nothing_while_counts_are_written(tmp_path: Path) -> None:
    made, _ = counted(*REQUESTS, file=tmp_path / "stats.sqlite")
    reading = made.reading(1)
    keep(made)
    assert reading().requests == 6
    made.count("12345", "/ark:12345/x", 302, "", "")
    assert (reading().requests, made.report(1).requests) == (6, 7)


@pytest.mark.parametrize(
    "row",
    [
        (NOON, "requests", "", None),
        (NOON, "naan", "12345", "many"),
        (NOON, "naan", b"\xff\xfe", 3),
        (NOON, "naan", "23456", -5),
        (NOON, "naan", "34567", 9e99),
        (NOON, "failed", "12345 soon never", 2),
        (NOON, "failed", "", 2),
        (NOON, "status", "3\x1b[2J02", 2**62),
        (b"", "naan", "45678", 1),
    ],
)
def test_a_bad_row_is_left_out_and_the_others_count(row: tuple[Any, ...], tmp_path: Path) -> None:
    path = tmp_path / "stats.sqlite"
    made, clock = counted(*REQUESTS, file=path)
    made.close()
    with closing(sqlite3.connect(path)) as edited, edited:
        for table, start in (("hours", NOON), ("days", NOON // DAY * DAY)):
            at = int(start) if row[0] == NOON else row[0]
            edited.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?, ?)", (at, *row[1:]))
            edited.execute(f"INSERT INTO {table} VALUES (?, 'naan', CAST(x'80' AS TEXT), 1)", (int(start),))
    again = Statistics(path, wall=clock)
    again.count("12345", "/ark:12345/x1", 302, "", "")
    keep(again)
    for days in (1, 100):
        report = again.report(days)
        assert report.requests == (1 if row[1] == "requests" else 7)
        assert ("12345", 4 if row[1:3] != ("naan", "12345") else 1) in report.values["naan"]
        json.dumps(report.to_dict())
    site = Gateway(TABLE, statistics=again.reading, public_stats=True)
    assert site.ask("/stats").status == site.ask("/api/v1/stats").status == 200
    again.close()


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE VIEW hours AS WITH RECURSIVE c(start, kind, value, n) AS (SELECT 1, '', '', 1 UNION ALL"
        " SELECT start + 1, kind, value, n FROM c) SELECT * FROM c",
        "CREATE TABLE hours (start)",
        "CREATE TABLE hours (start, kind, value, n); CREATE TRIGGER t AFTER INSERT ON hours BEGIN SELECT 1; END",
        "CREATE VIRTUAL TABLE hours USING fts5 (start, kind, value, n)",
    ],
)
def test_a_database_with_other_parts_is_refused(schema: str, tmp_path: Path) -> None:
    path = tmp_path / "stats.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.executescript(schema)
    with pytest.raises(ConfigError, match="not a file of statistics"):
        Statistics(path, wall=Clock()).open()


def test_hours_from_the_future_take_no_real_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A clock ran ahead: what it counted is set aside, and the hours after it are kept as ever."""
    path = tmp_path / "stats.sqlite"
    made, clock = counted(file=path)
    for hour in range(HOURS_KEPT):
        clock.now = NOON + hour * HOUR
        made.count("12345", "/ark:12345/x1", 302, "", "")
        made.reading(1)  # hands the counts over
    keep(made)
    now = clock.now
    with closing(sqlite3.connect(path)) as other, other:
        ahead = [(int(now) + (9000 + hour) * HOUR, "requests", "", 1) for hour in range(480)]
        other.executemany("INSERT INTO hours VALUES (?, ?, ?, ?)", ahead)
    keep(made)
    assert made.report(14).requests == HOURS_KEPT
    for hour in range(1, 4):
        clock.now = now + hour * HOUR
        made.count("12345", "/ark:12345/x1", 302, "", "")
        keep(made)
        assert made.report(1).requests == 24
    assert [line for line in caplog.messages if "from the future" in line] == [
        f"statistics of {HOURS_KEPT} hours until 2024-12-21T22:00:00Z are from the future: set aside"
    ]
    made.close()


def test_a_clock_that_is_a_year_behind_takes_nothing(tmp_path: Path) -> None:
    made, clock = counted(file=tmp_path / "stats.sqlite")
    for day in (0, 1):
        for hour in range(24):
            clock.now = NOON + day * DAY + hour * HOUR
            made.count("12345", "/ark:12345/x1", 302, "", "")
            made.reading(1)  # hands the counts over
        keep(made)
    now = clock.now
    for hour in range(HOURS_KEPT + 5):
        clock.now = now - 365 * DAY + hour * HOUR
        made.count("12345", "/ark:12345/x1", 302, "", "")
        keep(made)
    clock.now = now
    keep(made)
    assert made.report(2).requests == 48
    made.close()


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "stats.sqlite"
    counted(*REQUESTS, file=path)[0].close()
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE hours", b"CREATE TABL\xcc hours"))
    with pytest.raises(ConfigError, match=r"stats\.sqlite: the database is damaged"):
        Statistics(path, wall=Clock()).open()
    path.write_text("not a database, but a text that is long enough to be one" * 20)
    with pytest.raises(ConfigError, match=r"stats\.sqlite: file is not a database"):
        Statistics(path, wall=Clock()).open()


@pytest.mark.usefixtures("home")
def test_a_database_of_something_else_is_not_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "own.sqlite"
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE redirects (ark, url)")
    before = path.read_bytes()
    assert "own.sqlite: not a file of statistics: it has a table redirects" in run("stats", str(path), code=8).stderr
    assert caplog.messages == [], "said once"
    with pytest.raises(ConfigError, match="not a file of statistics"):
        Statistics(path, wall=Clock()).open()
    assert path.read_bytes() == before
    assert list(tmp_path.glob("own.sqlite*")) == [path]


def test_a_check_of_the_configuration_makes_no_file(tmp_path: Path) -> None:
    """Perhaps root checks what another user runs."""
    path = tmp_path / "stats.sqlite"
    client = Client(["127.0.0.1#9"], policy="natab-only", table=TABLE)
    made = Service(parse(f'[gateway]\nlisten = ["127.0.0.1:0"]\nstats = "{path}"\n'), client)
    assert not path.exists()
    made.bind()
    assert path.exists()
    made._public.close()
    made._statistics.close()


def test_the_operator_sees_them_and_the_public_does_not(tmp_path: Path) -> None:
    with configured(f'admin_listen = "127.0.0.1:0"\nstats = "{tmp_path}/stats.sqlite"\n', TABLE) as service:
        public, admin = service.bound[0].port, service.bound_admin[0].port
        assert get(public, "/ark:12345/x1", "Referer: https://library.example/").status == 302
        assert get(public, "/ark:77777/x1").status == 404
        for path in ("/stats", "/api/v1/stats"):
            assert get(public, path).status == 404
            assert get(admin, path).status == 200
        document = json.loads(get(admin, "/api/v1/stats?days=1").body)
        assert document["requests"] == 2
        assert document["failed"] == [{"naan": "77777", "status": 404, "reason": "not-in-table", "requests": 1}]
        assert document["reasons"] == {"not-in-table": 1}
        assert document["sources"] == {"natab": 2}
        page = get(admin, "/stats?days=30").body.decode()
        assert "2 requests for ARKs" in page
        assert "<svg" in page
        assert get(admin, "/api/v1/stats?days=0").status == 400
    with closing(sqlite3.connect(tmp_path / "stats.sqlite")) as kept:
        assert kept.execute("SELECT sum(n) FROM hours WHERE kind = 'requests'").fetchone() == (2,)
        texts = "".join(str(row) for row in kept.execute("SELECT * FROM hours"))
    assert "127.0.0.1" not in texts


def test_they_may_be_public() -> None:
    made, _ = counted(*REQUESTS)
    public = Gateway(statistics=made.reading, public_stats=True)
    assert public.ask("/stats").status == 200
    assert public.ask("/stats?days=9999").body == public.ask("/stats?days=x").body == public.ask("/stats").body
    assert public.ask("/api/v1/stats").status == 200
    for days, said in ((1, "day"), (400, "400 days"), (0, "7 days"), (401, "7 days")):
        assert f">The last {said}</p>" in public.ask(f"/stats?days={days}").body.decode()
    year = public.ask("/stats?period=2023&days=1").body.decode()
    assert ("6 requests for ARKs" in year, '<p class="eyebrow">2023</p>' in year) == (True, True)
    assert public.ask("/stats?period=x").body == public.ask("/stats").body
    assert json.loads(public.ask("/api/v1/stats?period=2023").body)["requests"] == 6
    for wrong in ("period=x", "period=2023&days=1"):
        assert public.ask(f"/api/v1/stats?{wrong}").status == 400
    assert Gateway(statistics=made.reading).ask("/stats").status == 404, "there is no address for the operator"


@pytest.mark.usefixtures("home")
def test_the_command_reads_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stats.sqlite"
    made, clock = counted(*REQUESTS, file=path)
    made.close()
    monkeypatch.setattr("maptr.cli.stats.time.time", clock)
    text = run("stats", str(path), "--days", "1").stdout
    assert text.startswith("6 requests in 1 day, from 2023-11-14 01:00 to 2023-11-15 00:00 UTC\n")
    assert "NAANs                3 12345\n" in text
    assert "failed               1 99999 503 timeout\n" in text
    assert "reasons              1 timeout\n" in text
    report = json.loads(run("stats", str(path), "--days", "1", "--json").stdout)
    assert report.pop("schema") == "maptr/1"
    text = run("stats", str(path), "--period", "2023-11").stdout
    assert text.startswith("6 requests in 2023-11, from 2023-11-01 00:00 to 2023-11-15 00:00 UTC\n")
    run("stats", str(path), "--period", "2023", "--days", "1", code=2, said="give only one")
    assert report == json.loads(json.dumps(Statistics(path, wall=clock).report(1).to_dict()))
    assert run("stats", str(path), "--days", "1").stderr == ""
    with closing(Statistics(tmp_path / "new", wall=clock)) as begun:
        begun.open()  # as at the start of a gateway
    none = "0 requests in 7 days, from 2023-11-08 01:00 to 2023-11-15 00:00 UTC\n"
    new = run("stats", str(tmp_path / "new"), out=none)
    assert new.stderr == "a gateway writes its counts to this file once a minute; /stats has those up to now\n"
    assert "no gateway.stats" in run("stats", code=2).stderr
    assert "gone: no such file: a gateway writes it" in run("stats", str(tmp_path / "gone"), code=8).stderr


@pytest.mark.usefixtures("home")
def test_the_command_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def content() -> dict[str, bytes]:
        return {each.name: each.read_bytes() for each in tmp_path.glob("stats*") if each.suffix != ".sqlite-shm"}

    path = tmp_path / "stats.sqlite"
    made, clock = counted(*REQUESTS, file=path)
    keep(made)
    monkeypatch.setattr("maptr.cli.stats.time.time", clock)
    for is_open in (True, False):
        assert path.with_name("stats.sqlite-wal").exists() is is_open
        before = content()
        assert run("stats", str(path), "--days", "1").stdout.startswith("6 requests")
        assert content() == before
        if is_open:
            made.close()
    empty = tmp_path / "empty"
    empty.touch()
    assert "not a file of statistics" in run("stats", str(empty), code=8).stderr
    assert empty.read_bytes() == b""


# ---- the pages of the operator


def test_pages_have_the_name_and_the_links_of_the_operator() -> None:
    settings = GatewayConfig(
        name="ARKs & more",
        contact="a@example.org",
        imprint="https://example.org/imprint",
        text="Links that stay.\n\nDes liens qui restent.\n",
    )
    page = Gateway(TABLE, settings=settings).ask("/", accept="text/html").body.decode()
    for part in (
        "ARKs &amp; more",
        'href="mailto:a@example.org"',
        'href="https://example.org/imprint"',
        '<p class="lede">Links that stay.</p>\n<p class="lede">Des liens qui restent.</p>\n<form',
    ):
        assert part in page
    assert "Contact" not in Gateway(TABLE).ask("/", accept="text/html").body.decode()


@pytest.mark.parametrize(
    ("line", "is_right"),
    [
        ('contact = "a@example.org"', True),
        ('contact = "mailto:a@example.org"', True),
        ('contact = "https://example.org/contact"', True),
        ('contact = "javascript:alert(1)"', False),
        ('contact = "a@b@c"', False),
        ('imprint = "data:text/html,x"', False),
        ('imprint = ""', True),
    ],
)
def test_links_of_the_operator_are_checked(line: str, is_right: bool) -> None:
    if is_right:
        assert not parse(f"[gateway]\n{line}\n").gateway.contact.startswith("mailto:")
    else:
        with pytest.raises(ConfigError, match=r"gateway\.(contact|imprint): "):
            parse(f"[gateway]\n{line}\n")


def test_files_for_search_engines() -> None:
    public = Gateway(TABLE, public_url="https://ark.example.org")
    assert "Sitemap: https://ark.example.org/sitemap.xml\n" in public.ask("/robots.txt").body.decode()
    sitemap = public.ask("/sitemap.xml")
    assert sitemap.header("content-type") == "application/xml"
    assert "<loc>https://ark.example.org/naan/12345</loc>" in sitemap.body.decode()
    assert Gateway(TABLE).ask("/sitemap.xml").status == 404
    assert Gateway(TABLE).location("/favicon.ico") == "/icon.svg"
    assert statistics.KINDS[0] == "requests"


def test_a_report_of_a_full_file_and_a_search_of_a_long_table_do_not_hold_the_loop() -> None:
    """A thread makes them; a report from the counts until the request, undisturbed by those that come meanwhile."""
    made = Statistics(wall=lambda: 1e9)
    made.count("12345", "/ark:12345/x1", 302, "natab", "")
    reading = made.reading(1)
    made.count("12345", "/ark:12345/x1", 302, "natab", "")
    assert made.report(1).requests == 2
    assert asyncio.run(in_thread(reading)).requests == 1
    site = Gateway(TABLE, statistics=made.reading, public_stats=True).site
    targets = ("/stats", "/api/v1/stats", "/?q=library", "/naan/?q=a+b", "/api/v1/naans?q=a+b")
    assert all(callable(route("GET", target, {}, site)) for target in targets)
