"""Zones built from a table, pulls of the table, and drift reports."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maptr import config as configuration
from maptr import registry
from maptr.config import Config
from maptr.daemon.background import Background
from maptr.daemon.pulling import ServerDrift
from maptr.dnssec import keys as zonekeys
from maptr.dnssec.keys import Algorithm, KeyState, Role
from maptr.protocol.names import Folded, Labels
from maptr.protocol.numbers import RRSIG
from maptr.server.alarm import AlarmLog
from maptr.server.daemon import Daemon
from maptr.server.publisher import start
from maptr.server.puller import HISTORY, Puller
from maptr.server.status import ReloadResult, ZoneResult, to_json
from tests.support.command_line import run
from tests.support.http_server import http_server, sends
from tests.support.peers import Maptr
from tests.support.registries import natab
from tests.support.waiting import PATIENCE
from tests.support.zone_site import ZoneSite

ORIGIN = Folded((b"ark", b"arpa"))
ZONE = '[[zone]]\nname = "ark.arpa"\nfile = "ark.arpa.zone"\ntable = "naans"\n'


class Site(ZoneSite):
    """A folder with a configuration and a table, and the zone served from it."""

    def __init__(self, folder: Path, extra: str = "", zone: str = "", naans: Iterable[int] = ()) -> None:
        self.folder = folder
        self.table = folder / "naans"
        (folder / "maptr.toml").write_text(f'[serve]\nstate = "."\n{extra}\n{ZONE}{zone}')
        self.config: Config = configuration.load(folder / "maptr.toml")
        super().__init__(self.config.zones[0], 1_700_000_000.0)
        if naans:
            self.write(naans)

    def write(self, naans: Iterable[int]) -> None:
        self.table.write_bytes(natab(*naans))


def alarms_of(puller: Puller) -> list[str]:
    return [alarm.text for alarm in puller.alarms()]


TEN = range(10000, 10010)
ELEVEN = range(10000, 10011)


def test_the_serial_increases_only_if_the_table_has_changed(tmp_path: Path) -> None:
    site = Site(tmp_path, naans=TEN)
    site.start()
    assert site.reload() == ZoneResult("ark.arpa.", "unchanged", 2023111400, 2023111400)
    site.write(ELEVEN)
    assert site.reload() == ZoneResult("ark.arpa.", "reloaded", 2023111401, 2023111400)
    assert "ark.arpa. IN SOA localhost. hostmaster.ark.arpa. 2023111401 " in site.zone.file.read_text()
    assert run("zone", "check", site.zone.file).exit_code == 0
    files = ["ark.arpa.kept", "ark.arpa.serial", "ark.arpa.zone", "maptr.toml", "naans"]
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    site.zone.file.unlink()
    site.start()
    assert site.serial == 2023111401, "that of the secondaries, not the first one of the day"


@pytest.mark.parametrize(
    ("content", "because"),
    [
        (natab(*range(10000, 10006)), "it lost 4 of 11 names (36%, max_shrink is 30%)"),
        (b"<html>The registry moved</html>", "not a registry"),
        (b"", "naans"),
    ],
)
def test_a_bad_table_changes_nothing_even_after_a_restart(tmp_path: Path, content: bytes, because: str) -> None:
    site = Site(tmp_path, naans=TEN)
    site.start()
    before = site.zone.file.read_text()
    site.table.write_bytes(content)
    for _ in "reload", "restart":  # a restart serves the published zone, and compares the table with it
        outcome = site.reload()
        assert (outcome.result, outcome.serial, site.serial) == ("refused", 2023111400, 2023111400)
        assert because in outcome.reason
        site.start()
    assert site.zone.file.read_text() == before
    assert not list(tmp_path.glob(".*"))
    site.write([10000])
    assert site.reload(force=True).result == "reloaded"


def test_a_zone_from_a_table_is_signed(tmp_path: Path) -> None:
    zonekeys.add_key(tmp_path / "keys", Role.CSK, Algorithm.ECDSAP256SHA256, KeyState.ACTIVE)
    site = Site(tmp_path, zone='keys = "keys"\n', naans=TEN)
    site.start()
    first = site.serial
    assert RRSIG in site.view.nodes[ORIGIN]
    assert "RRSIG" not in site.zone.file.read_text()
    site.now += 3600
    site.write(ELEVEN)
    outcome = site.reload()
    assert (outcome.result, outcome.was, outcome.serial) == ("reloaded", first, site.serial)
    for _ in "reload", "restart":
        assert RRSIG in site.view.nodes[ORIGIN]
        assert site.serial == outcome.serial
        site.start()
    site.write([10000])
    assert site.reload().result == "refused"


def test_the_zone_is_not_loaded_until_there_is_a_table(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert site.start() is None
    site.write(TEN)
    assert site.reload().result == "loaded"


def test_the_built_zone_has_configured_servers_and_included_records(tmp_path: Path) -> None:
    (tmp_path / "more").write_text("20775 IN NS ns.example.\n")
    site = Site(tmp_path, zone='ns = ["ns1=192.0.2.1"]\ncontact = "dns.example.org"\nttl = 60\ninclude = ["more"]\n')
    site.write([10000, 20775])
    assert site.start()
    text = site.zone.file.read_text()
    assert "$TTL 60\n" in text
    assert "SOA ns1.ark.arpa. dns.example.org. " in text
    assert "20775 IN NS ns.example." in text
    assert "20775 IN NAPTR" not in text
    (tmp_path / "more").write_text("\n10000 IN CNAME other.example.\n")
    assert site.reload().reason.startswith(
        f"{tmp_path / 'more'}:2: error: 10000.ark.arpa.: not-loaded: CNAME and other"
    )
    assert site.zone.file.read_text() == text
    assert not [*tmp_path.glob(".*.next")]


def check(site: Site) -> tuple[int, str]:
    before = {path: path.read_bytes() for path in site.folder.iterdir()}
    result = run("serve", "--check-config", "--config", site.folder / "maptr.toml")
    assert {path: path.read_bytes() for path in site.folder.iterdir()} == before, "a check writes nothing"
    return result.exit_code, result.output


def test_check_config_builds_the_zone_in_a_temporary_folder(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert check(site)[0] == 8
    site.write([10000])
    code, shown = check(site)
    assert code == 0
    assert f"2 names, from {site.table}" in shown
    site.table.write_text(SHOULDER)
    assert "zone ark.arpa.: 2 records left out: a bad-record; 12345/x7 no-public-host" in check(site)[1]
    site.table.write_bytes(b"<html>")
    assert check(site)[0] == 1
    site.table.unlink()
    pulled = Site(tmp_path, '[table]\nfile = "naans"\nurl = "https://registry.example/"\n')
    code, shown = check(pulled)
    assert (code, "naans has not been pulled yet" in shown) == (0, True)


@pytest.mark.parametrize(("key", "why"), [("none", "table.public_key: "), ("maptr.toml", "not a minisign public key")])
def test_check_config_reports_errors_of_the_table_settings(tmp_path: Path, key: str, why: str) -> None:
    code, shown = check(Site(tmp_path, f'[table]\nfile = "naans"\nurl = "x"\npublic_key = "{key}"\n'))
    assert code == 1
    assert why in shown
    assert "maptr.toml:" in shown


# --- pulling, without a running server


class Pulling(Site):
    """A site with a puller. ``published`` has the zones that the puller has published."""

    def __init__(self, folder: Path, table: str = "") -> None:
        super().__init__(folder, f'[table]\nfile = "naans"\n{table}' if table else "")
        self.published: list[Labels] = []
        self.puller = Puller(lambda: self.config, self.publish, clock=self.clock)
        self.alarm_log = AlarmLog()

    async def publish(self, zone: Labels) -> ReloadResult:
        self.published.append(zone)
        return ReloadResult()

    def pull(self) -> None:
        async def work() -> None:
            await self.puller.pull_now()
            await self.puller.look_for_drift()

        asyncio.run(work())
        self.alarm_log.dated(self.puller.alarms(), self.now)

    def described(self, key: str) -> Any:
        """Return a value from the puller's status."""
        return to_json(self.puller.status())[key]


@pytest.fixture
def answers() -> dict[str, bytes]:
    return {"/naans": natab(*TEN)}


@pytest.fixture
def url(answers: dict[str, bytes]) -> Iterator[str]:
    def serve(request: Any) -> None:
        sends(answers.get(request.path, b""), 200 if request.path in answers else 404)(request)

    with http_server(serve) as found:
        yield found


@pytest.fixture
def pulling(tmp_path: Path, url: str) -> Pulling:
    return Pulling(tmp_path, f'url = "{url}"\nevery = "1h"\n')


def test_a_pull_publishes_changed_tables_only(pulling: Pulling, url: str, answers: dict[str, bytes]) -> None:
    pulling.pull()
    pulling.pull()
    assert pulling.published == [ORIGIN]
    answers["/naans"] = natab(*ELEVEN)
    pulling.pull()
    assert len(pulling.published) == 2
    state = pulling.puller.pulls.state
    assert (state.source, state.error, state.checked) == (url, "", 1_700_000_000.0)


def test_a_pull_publishes_a_table_that_an_operator_has_changed(pulling: Pulling, answers: dict[str, bytes]) -> None:
    """``maptr table pull --force --apply`` replaces the file, so that the source has nothing new for the server."""
    pulling.pull()
    answers["/naans"] = natab(*range(10000, 10004))
    pulling.pull()
    assert [text.partition("(60%, the limit is 30%)")[2] for text in alarms_of(pulling.puller)] == [
        "; if this is intended, run maptr table pull --force --apply; maptr control pull retries"
    ]
    assert pulling.published == [ORIGIN]
    pulling.table.write_bytes(answers["/naans"])
    pulling.pull()
    pulling.pull()
    assert (pulling.published, alarms_of(pulling.puller)) == ([ORIGIN] * 2, [])


def test_a_failed_pull_is_logged_once_and_retried_soon(
    pulling: Pulling, tmp_path: Path, url: str, answers: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    good = answers.pop("/naans")
    assert 3240 <= pulling.puller.pause() <= 3960
    for _ in range(3):
        pulling.pull()
    assert [record.message for record in caplog.records] == alarms_of(pulling.puller)
    assert 108 <= pulling.puller.pause() <= 132
    error = f"{url}: the server answers 404 Not Found"
    assert alarms_of(pulling.puller) == [
        f"table {tmp_path}/naans: not pulled, there is none: {error}; maptr control pull retries"
    ]
    assert pulling.puller.pulls.state.error == error
    assert pulling.published == []
    answers["/naans"] = good
    pulling.pull()
    assert alarms_of(pulling.puller) == []
    assert pulling.published == [ORIGIN]
    del answers["/naans"]
    pulling.pull()
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 2, "it came back"
    pulling.config = replace(pulling.config, table=replace(pulling.config.table, url=""))
    pulling.pull()
    assert alarms_of(pulling.puller) == [], "a reload has removed the source"


def test_a_record_that_became_unreadable_is_an_alarm_until_it_is_repaired(
    pulling: Pulling, answers: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    good = answers["/naans"]
    pulling.pull()
    answers["/naans"] = good.replace(b"10003:\n    h.", b"10003:\n    h!")
    caplog.clear()
    for _ in range(2):
        pulling.pull()
    told = "1 record keeps its last good entry, as the source has unreadable data: 10003: not a valid NMA"
    assert [(record.levelname, told in record.message) for record in caplog.records] == [("ERROR", True)]
    assert [told in alarm for alarm in alarms_of(pulling.puller)] == [True]
    assert [kept["record"] for kept in pulling.described("kept")] == ["10003"]
    assert "10003" in registry.read(pulling.table.read_bytes())
    assert pulling.published == [ORIGIN], "nothing changed"
    answers["/naans"] = good
    pulling.pull()
    assert alarms_of(pulling.puller) == []


def test_drift_report_names_the_records_that_a_server_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.server.puller.DRIFT_WAITS", (0.0,))
    zone = tmp_path / "served.zone"
    site = Site(tmp_path, naans=TEN)
    site.start()
    zone.write_bytes(site.zone.file.read_bytes())
    site.write([*range(10000, 10008), 10100])
    with Maptr({"ark.arpa.": zone}) as server:
        pulling = Pulling(tmp_path, f'drift = ["127.0.0.1#{server.port}", "127.0.0.1#9"]\n')
        pulling.pull()
    first, second = pulling.puller._drift
    assert (first.records, first.deviating, str(first)) == (9, ("10100 missing",), "1 of 9 records: 10100 missing")
    assert len(second.deviating) == 9
    assert str(second).endswith(" and 4 more")
    assert len(AlarmLog().dated(pulling.puller.alarms(), 0.0)) == 2
    assert pulling.described("drift")[0]["deviating"] == ["10100 missing"]
    pulling.config = replace(pulling.config, table=replace(pulling.config.table, drift=()))
    pulling.pull()
    assert alarms_of(pulling.puller) == [], "forgotten with the server"


def test_drift_is_looked_for_with_the_configured_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.server.puller.DRIFT_WAITS", (0.0,))
    client = '[client]\nscheme = "http"\n'
    site = Site(tmp_path, client, naans=[10000])
    site.start()
    with Maptr({"ark.arpa.": site.zone.file}) as server:
        Pulling(tmp_path, f'drift = ["127.0.0.1#{server.port}"]\n{client}').pull()
    with closing(sqlite3.connect(tmp_path / HISTORY)) as history:
        found = history.execute("SELECT verdict, in_table FROM verdict").fetchall()
    assert found == [("same", '["http://h.example.org/ark:/10000/zzz"]')]


def test_drift_report_as_text() -> None:
    assert str(ServerDrift("s", 0.0, 0, error="no address")) == "not known: no address"
    assert str(ServerDrift("s", 0.0, 9)) == "none in 9 records"


async def test_a_request_during_a_pull_causes_another_pull(pulling: Pulling, answers: dict[str, bytes]) -> None:
    async def publish(zone: Labels) -> ReloadResult:
        pulling.published.append(zone)
        if len(pulling.published) == 1:
            answers["/naans"] = natab(*range(10000, 10012))
            puller.wanted.set()
        else:
            done.set()
        return ReloadResult()

    done = asyncio.Event()
    puller = Puller(lambda: pulling.config, publish, clock=pulling.clock)
    background = Background(asyncio.Event().wait)
    background.repeat(puller.pause, puller.publish_and_pull, "nothing pulled", wanted=puller.wanted)
    async with asyncio.timeout(PATIENCE):
        await done.wait()
    await asyncio.sleep(0.2)
    await background.stop()
    assert len(pulling.published) == 2, "and then it waits"


def test_without_a_table_nothing_is_pulled_or_reported(tmp_path: Path) -> None:
    pulling = Pulling(tmp_path)
    pulling.pull()
    assert (pulling.puller.status(), alarms_of(pulling.puller)) == (None, [])


# --- records left out of the zone

SHOULDER = """
naa:
what: 12345
where: https://main.nlm.nih.gov

naa:
what: 12345/x7
where: http://10.0.0.1/

naa:
what: 13030
where: https://cdlib.nlm.nih.gov

naa:
what: a
where: https://cdlib.nlm.nih.gov
"""


def test_left_out_records_are_in_status_and_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = Site(tmp_path)
    site.table.write_text(SHOULDER)
    site.start()
    site.reload()
    told = site.state.status(0.0).left_out
    assert told is not None
    assert (told.records, [finding["record"] for finding in told.findings]) == (2, ["a", "12345/x7", "12345/x7"])
    line = "2 records left out: a bad-record; 12345/x7 no-public-host, its ARKs get the answer of 12345"
    assert told.text == line
    assert site.alarms() == [f"zone ark.arpa.: {line}"]
    site.now += 86400.0
    site.alarms()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", f"zone ark.arpa.: {line}")
    ]
    caplog.clear()
    site.table.write_text(SHOULDER.replace("/x7", "/x6").replace("10.0.0.1", "x6.nlm.nih.gov"))
    site.reload()
    assert site.alarms() == []
    site.reload(force=True)
    assert [record.levelname for record in caplog.records] == ["WARNING"], "when it is new, without an alarm"


def test_after_a_refused_table_the_left_out_records_are_those_of_the_served_table(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.table.write_text(SHOULDER)
    site.start()
    site.reload()
    known = site.state.left_out
    assert known
    site.table.write_text("nonsense")
    assert site.reload().result == "refused"
    assert site.state.left_out is known
    site.start()  # reads the zone's file, but not its table
    assert site.state.left_out is None
    assert site.state.status(0.0).left_out is None


def test_a_table_that_is_pulled_often_repeats_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    records = [SHOULDER]

    def serve(request: Any) -> None:
        records.append(f"\nnaa:\nwhat: {20000 + len(records)}\nwhere: https://main.nlm.nih.gov\n")
        sends("".join(records).encode())(request)

    async def work() -> None:
        daemon = Daemon(site.config, start(site.config.zones, clock=site.clock), clock=site.clock)
        running = asyncio.create_task(daemon.run())
        try:
            async with asyncio.timeout(PATIENCE):
                while daemon.reloader.reloads.done < 4:
                    await asyncio.sleep(0.01)
                    await daemon.execute({"command": "pull"})
        finally:
            daemon.stop()
            await running

    with http_server(serve) as url:
        sources = f'url = "http://127.0.0.1:9/"\nmirrors = ["{url}"]\n'
        site = Site(tmp_path, f'listen = ["127.0.0.1:0"]\n[table]\nfile = "naans"\n{sources}')
        asyncio.run(work())
    said = [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    parts = ("is not loaded, queries get SERVFAIL", "source skipped: http://127.0.0.1:9/", "2 records left out")
    assert [[part in text for part in parts].index(True) for text in said] == [0, 1, 2]
