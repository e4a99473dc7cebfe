"""The first pull of a table, and pulls of older data: refused by every function and command, unless forced."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from maptr.cli.up import find_registry
from maptr.client import Client
from maptr.config import Config, parse
from maptr.daemon.pulling import TablePulls
from maptr.errors import PullFailed, UnsafePlan
from maptr.registry import builtin, followed_file, pull
from maptr.registry import found as found_table
from maptr.registry.pull import apply_pull
from maptr.web.http import Fetched
from tests.support.command_line import run
from tests.support.registries import natab, plan_pull


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own table, which does not exist yet."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "maptr" / "naans"


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small"
    path.write_bytes(natab(12148))
    return str(path)


def dated(path: Path, day: str, *naans: int) -> str:
    records = [{"what": str(naan), "target": {"url": "https://h.nlm.nih.gov/${content}"}} for naan in naans]
    path.write_text(json.dumps({"metadata": {"updated": day}, "data": records}))
    return str(path)


def config(folder: Path, file: Path, url: str) -> Config:
    return parse(f'[table]\nfile = "{file}"\nurl = "{url}"\n', filename="maptr.toml", directory=folder)


def test_a_first_pull_of_the_users_table_is_compared_with_the_table_in_use(home: Path, small: str) -> None:
    done = run("table", "pull", small, "--apply")
    assert (done.exit_code, home.exists()) == (1, False)
    assert "--force" in done.stderr
    planned = json.loads(run("table", "pull", small, "--force", "--json").stdout)
    assert planned["first"]["is_compared"]
    assert planned["first"]["kind"] == "builtin"
    assert len(planned["plan"]["removed"]) > 2000
    assert run("table", "pull", small, "--apply", "--force").exit_code == 0
    assert home.read_bytes() == natab(12148)


@pytest.mark.parametrize("content", [b"<html>", b""])
def test_a_damaged_table_without_a_good_state_is_a_first_pull_too(home: Path, small: str, content: bytes) -> None:
    home.parent.mkdir(parents=True)
    home.write_bytes(content)
    assert run("table", "pull", small, "--apply", "--overwrite").exit_code == 1
    assert home.read_bytes() == content


def test_another_file_is_a_new_table_and_the_plan_says_what_it_does_not_know(
    tmp_path: Path, small: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a relative file
    done = run("table", "pull", small, "--table", "mine", "--apply")
    assert done.exit_code == 0
    table = builtin.state().table
    assert table is not None
    missing = len(table.naans()) - 1
    assert f"mine: a new table; it lacks {missing} NAANs of the table in use, the built-in one of" in done.stderr
    assert (tmp_path / "mine").read_bytes() == natab(12148)
    assert not home.exists()


def test_the_official_registry_is_compared_with_the_table_in_use_wherever_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "_get", lambda source, **given: Fetched(source, natab(12148)))
    with pytest.raises(UnsafePlan):
        plan_pull(tmp_path / "naans", [pull.OFFICIAL])
    table = tmp_path / "table"
    pulls = TablePulls(clock=time.time)
    assert not pulls.pull(config(tmp_path, table, pull.OFFICIAL), table)
    assert "removes" in pulls.state.error
    assert not table.exists()


def test_a_client_and_a_daemon_refuse_the_same_first_pull(home: Path, small: str, tmp_path: Path) -> None:
    with Client(policy="natab-only") as client:
        with pytest.raises(UnsafePlan):
            client.pull(small)
        assert client.discover("ark:13030/x").table == "builtin"
    pulls = TablePulls(clock=time.time)
    assert not pulls.pull(config(tmp_path, home, small), home)
    assert "removes" in pulls.state.error
    assert not home.exists()
    with pytest.raises(SystemExit):
        find_registry((small,), Config(), offline=False, force=False)
    assert not home.exists()


def test_a_client_uses_the_same_table_after_its_pull_as_the_next_client(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the official registry, that may be the built-in one, if its data are newer."""
    found = {}
    for day in ("2026-01-01", "2026-07-20"):
        source = dated(tmp_path / day, day, 12148)
        for module in (pull, followed_file, found_table):
            monkeypatch.setattr(module, "OFFICIAL", source)
        with Client(policy="natab-only") as client:
            client.pull(source, force=True)
            found[day] = client.discover("ark:12148/x").table
        with Client(policy="natab-only") as client:
            assert client.discover("ark:12148/x").table == found[day]
    assert found == {"2026-01-01": "builtin", "2026-07-20": "pulled"}


def test_a_pull_into_a_relative_file_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").write_bytes(natab(12148, 13030))
    with Client(table="mine", policy="natab-only") as client:
        client.pull(small)
    assert Path("mine").read_bytes() == natab(12148)


def test_a_pull_does_not_go_back_in_time_unless_forced(tmp_path: Path) -> None:
    naans = range(12345, 12365)
    target = tmp_path / "naans"
    new, old = dated(tmp_path / "new", "2026-07-01", *naans), dated(tmp_path / "old", "2026-06-01", *naans)
    apply_pull(plan_pull(target, [new]), wall=time.time)
    refused = run("table", "pull", old, "--table", str(target), "--apply")
    assert refused.exit_code == 1
    assert "from 2026-06-01, the current table's from 2026-07-01" in refused.stderr
    with Client(table=target, policy="natab-only") as client, pytest.raises(UnsafePlan, match="goes back in time"):
        client.pull(old)
    pulls = TablePulls(clock=time.time)
    assert not pulls.pull(config(tmp_path, target, old), target)
    assert "goes back in time" in pulls.state.error
    assert "2026-07-01" in target.read_text()
    forced = run("table", "pull", old, "--table", str(target), "--apply", "--force")
    assert (forced.exit_code, "2026-06-01" in target.read_text()) == (0, True)
    assert "from 2026-06-01, the current table's from 2026-07-01" in forced.stderr


@pytest.mark.parametrize("skew", [-365 * 86_400.0, 0.0, 365 * 86_400.0])
def test_data_of_the_future_do_not_refuse_later_pulls_for_ever(tmp_path: Path, skew: float) -> None:
    def wall() -> float:
        return time.time() + skew

    naans = range(12345, 12365)
    target = tmp_path / "naans"
    false, true = dated(tmp_path / "false", "2099-01-01", *naans), dated(tmp_path / "true", "2026-07-20", *naans)
    apply_pull(plan_pull(target, [false], wall=wall), wall=wall)
    apply_pull(plan_pull(target, [true], wall=wall), wall=wall)
    assert "2026-07-20" in target.read_text()


def test_a_refused_source_is_passed_over(tmp_path: Path) -> None:
    target = tmp_path / "naans"
    new, old = (dated(tmp_path / day, day, *range(12345, 12365)) for day in ("2026-07-01", "2026-06-01"))
    apply_pull(plan_pull(target, [new]), wall=time.time)
    done: Any = plan_pull(target, [old, str(tmp_path / "missing"), new])
    assert (done.source, len(done.skipped)) == (new, 2)
    with pytest.raises(PullFailed):
        plan_pull(target, [str(tmp_path / "missing")])
