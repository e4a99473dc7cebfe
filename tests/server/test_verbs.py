"""``maptr control``: pull, notify, sign and zone-status; and alarms with their age, or silenced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maptr.config import parse
from maptr.errors import ConfigError
from maptr.server.alarm import Alarm, AlarmKind, AlarmLog, Silence
from maptr.server.settings import silences_of
from tests.support.registries import natab
from tests.support.server_process import Site, site
from tests.support.waiting import until

__all__ = ["site"]
LAGS = Alarm(AlarmKind.SECONDARY_BEHIND, "it lags", "a.test.", "192.0.2.1:53")


def test_an_alarm_is_dated_once_and_has_its_first_time() -> None:
    log = AlarmLog()
    assert log.dated([LAGS, LAGS], 100.0) == (Alarm(LAGS.kind, "it lags", "a.test.", "192.0.2.1:53", 100.0),)
    later = Alarm(LAGS.kind, "it lags more", "a.test.", "192.0.2.1:53")
    assert [(alarm.text, alarm.since) for alarm in log.dated([later], 200.0)] == [("it lags more", 100.0)]
    assert log.dated([], 300.0) == ()
    assert log.dated([LAGS], 400.0)[0].since == 400.0, "it had gone"


@pytest.mark.parametrize(
    ("text", "covers"),
    [
        ("secondary-behind", True),
        ("secondary-behind A.TEST", True),
        ("secondary-behind a.test. 192.0.2.1:53", True),
        ("secondary-behind b.test", False),
        ("secondary-behind a.test 192.0.2.2:53", False),
        ("drift", False),
    ],
)
def test_a_silence_covers_a_kind_a_zone_or_a_secondary(text: str, covers: bool) -> None:
    assert Silence.parse(text).covers(LAGS) is covers


@pytest.mark.parametrize("text", ["", "nonsense", "drift a b c", "drift a..b"])
def test_a_wrong_silence_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"serve\.silence"):
        silences_of(parse(f'[serve]\nsilence = ["{text}"]\n'))


def test_pull_notify_and_zone_status(site: Site) -> None:
    source, table = site.directory / "source", site.directory / "table"
    source.write_bytes(natab(10000, 10001))
    extra = 'notify = ["127.0.0.1:9"]\n'
    pulled = f'[table]\nfile = "{table}"\nurl = "{source}"\nevery = "1h"\n'
    site.configure(f"{extra}{pulled}", serve='silence = ["notify-given-up"]\n')
    site.start()
    until(table.exists, "the first pull")
    assert site.run("control", "pull").stdout == f"table {table} up to date, from {source}\n"
    source.write_bytes(natab(10000, 10001, 10002))
    assert site.run("control", "pull").stdout == f"table {table} changed, from {source}\n"
    assert b"10002" in table.read_bytes()
    assert site.run("control", "notify").stdout == "NOTIFY b.test. 127.0.0.1:9\n"
    assert site.run("control", "notify", "a.test").stdout == ""
    missing = site.run("control", "notify", "c.test")
    assert (missing.exit_code, "no zone c.test. is served" in missing.stderr) == (1, True)
    assert json.loads(site.run("control", "notify", "--json").stdout)["notified"] == ["b.test. 127.0.0.1:9"]
    assert site.run("control", "sign").stdout == "no signature is due\n"
    assert site.run("control", "pull", "a.test").exit_code == 2
    shown = site.run("control", "zone-status", "A.test.")
    assert (shown.exit_code, shown.stdout.startswith("zone a.test. serial 1, ")) == (0, True)
    assert "b.test" not in shown.stdout
    assert [zone["zone"] for zone in json.loads(site.run("control", "zone-status", "--json").stdout)["zones"]] == [
        "a.test.",
        "b.test.",
    ]
    assert site.run("control", "zone-status", "x.test").exit_code == 1


def test_pull_without_a_table_says_so(site: Site) -> None:
    site.start()
    done = site.run("control", "pull")
    assert (done.exit_code, "no table is pulled" in done.stderr) == (1, True)


def test_status_has_the_age_of_an_alarm_and_those_that_are_silenced(site: Site) -> None:
    site.start()
    site.write_zone("a.test", "nonsense")
    assert site.run("reload").exit_code == 1
    (alarm,) = site.status()["alarms"]
    assert (alarm["kind"], alarm["since"].endswith("Z")) == ("zone-refused", True)
    assert "was not reloaded" in site.run("status").stdout
    assert " (for " in site.run("status").stdout
    assert site.run("control", "zone-status", "a.test").exit_code == 1
    assert site.run("control", "zone-status", "b.test").exit_code == 0
    site.configure(serve='silence = ["zone-refused a.test"]')
    site.run("reload")
    found = site.status()
    assert (found["alarms"], [one["kind"] for one in found["silenced"]]) == ([], ["zone-refused"])
    assert site.run("status").exit_code == 0
    assert "silenced zone a.test." in site.run("status").stdout


def test_a_bad_silence_keeps_the_configuration(site: Site, tmp_path: Path) -> None:
    site.start()
    site.configure(serve='silence = ["nonsense"]')
    refused = site.run("reload")
    assert (refused.exit_code, "serve.silence" in refused.stderr) == (1, True)
