"""The command line through a cache: what answers when, where it says that it is from, and what sets it up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from maptr.cli import main
from maptr.cli.through import shown
from tests.peers import Maptr
from tests.test_client import serving

ZONES = Path(__file__).resolve().parent.parent / "zones"
ARK = "ark:12025/x6np1wh8k"
URL = "http://ark.nlm.example.org/ark:/12025/x6np1wh8k"
DEAD = "127.0.0.1#9"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user of his own, and his working directory."""
    for name in ("data", "cache", "config"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with Maptr({"ark.arpa.": ZONES / "ark.arpa.zone"}) as running:
        yield f"127.0.0.1#{running.port}"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def url_of(file: Path) -> str:
    result = run("url", ARK, "--natab", str(file), "--policy", "natab-only")
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_without_anything_set_up_nothing_is_kept_and_nothing_said(home: Path, server: str) -> None:
    result = run("discover", ARK, f"@{server}")
    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(path.name for path in home.iterdir()) == ["work"]


def test_a_table_pulled_answers_where_dns_does_not(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAPTR_CLIENT_NAMESERVERS", DEAD)
    assert run("url", ARK).exit_code == 9
    pulled = run("table", "pull", str(ZONES / "sample.json"), "--apply")
    assert pulled.exit_code == 0, pulled.output
    assert (home / "data" / "maptr" / "naans").read_bytes() == (ZONES / "sample.json").read_bytes()
    result = run("url", ARK)
    assert (result.exit_code, result.stdout.strip()) == (0, url_of(ZONES / "sample.json"))
    assert f"maptr: {ARK}: from the table, " in result.stderr
    assert " old (DNS: silent; the table has it)" in result.stderr
    document = json.loads(run("url", "--json", ARK).stdout)
    assert (document["source"], document["stale"], document["url"]) == ("natab", False, result.stdout.strip())
    assert 0 <= document["age"] < 60
    assert run("url", "--no-cache", ARK).exit_code == 9
    assert run("url", ARK, f"@{DEAD}").exit_code == 9, "a server that is named is asked directly"
    assert run("url", "--policy", "dns-only", ARK).exit_code == 9


def test_what_dns_said_is_kept_for_the_next_command(home: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("maptr.toml").write_text(f'[client]\nnameservers = ["{server}"]\n[cache]\npath = "kept.sqlite"\n')
    first, second = run("discover", ARK), run("discover", ARK)
    assert f"maptr: {ARK}: from DNS, 0 s old (DNS answers)\n" == first.stderr
    assert "from the cache on disk, " in second.stderr
    assert first.stdout == second.stdout
    assert [path.name for path in Path().glob("kept*")] == ["kept.sqlite"], "and it is closed"
    assert run("url", ARK).stderr == "", "what is of DNS and fresh needs no word"
    document = json.loads(run("discover", "--json", ARK).stdout)
    assert (document["source"], document["stale"]) == ("disk", False)
    assert document["age"] >= 0
    monkeypatch.setenv("MAPTR_CACHE_PATH", "")
    assert "from DNS" in run("discover", ARK).stderr


@pytest.mark.parametrize(
    ("policy", "source"),
    [("dns-first", "dns"), ("natab-first", "natab"), ("dns-only", "dns"), ("natab-only", "natab")],
)
def test_the_policy_says_who_is_believed(policy: str, source: str, server: str) -> None:
    natab = str(ZONES / "sample.json")
    document = json.loads(run("url", "--json", ARK, f"@{server}", "--natab", natab, "--policy", policy).stdout)
    assert document["source"] == source
    assert document["url"] == url_of(ZONES / "sample.json")


def test_a_silent_server_costs_patience_and_no_more() -> None:
    with serving(lambda query: None) as port:
        natab = str(ZONES / "sample.natab")
        result = run("url", "--timeout", "30", ARK, f"@127.0.0.1#{port}", "--natab", natab)
    assert result.exit_code == 0, "and not after 30 seconds, by which time the test would have been ended"
    assert "DNS: silent" in result.stderr


def test_the_origin_and_the_servers_are_the_configuration_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = tmp_path / "zone"
    zone.write_text((ZONES / "ark.arpa.zone").read_text().replace("ark.arpa.", "ark.example."))
    with Maptr({"ark.example.": zone}) as running:
        config = tmp_path / "config" / "maptr" / "maptr.toml"
        config.parent.mkdir(parents=True)
        config.write_text(f'[client]\norigin = "ark.example"\nnameservers = ["{running.host}#{running.port}"]\n')
        result = run("url", ARK)
        assert (result.exit_code, result.stderr) == (0, ""), "asked directly: no cache is configured"
        Path("arks").write_text(f"{ARK}\n")
        assert result.stdout.strip() in run("bulk", "arks").stdout
        assert run("table", "drift", "--table", str(ZONES / "sample.json"), "12025").exit_code == 0
        for said in ("", "# nothing of a client"):
            Path("maptr.toml").write_text(f'{said}\n[[zone]]\nname = "a"\nfile = "b"\n')
            assert run("url", ARK).exit_code == 0, "a configuration that says nothing of clients is passed over"
        monkeypatch.setenv("MAPTR_CONFIG", str(config))
        assert run("url", ARK).exit_code == 0


def test_the_table_of_a_server_s_configuration_is_the_client_s_too() -> None:
    shutil.copy(ZONES / "sample.json", "naans.json")
    Path("maptr.toml").write_text(f'[table]\nfile = "naans.json"\n[client]\nnameservers = ["{DEAD}"]\n')
    assert "from the table" in run("url", ARK).stderr
    assert run("table", "drift").exit_code == 9


@pytest.mark.parametrize(
    ("arguments", "because"),
    [
        (("url", ARK, "--policy", "last"), "'last' is not one of"),
        (("url", ARK, "--natab", "none"), "does not exist"),
        (("url", ARK, "--no-cache", "--policy", "dns-only"), "--no-cache goes with neither"),
        (("table", "drift"), "no table was pulled and none is configured"),
    ],
)
def test_bad_usage_is_2(arguments: tuple[str, ...], because: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert because in " ".join(result.stderr.replace("│", " ").split())


def test_a_bad_configuration_is_told_with_its_line() -> None:
    Path("maptr.toml").write_text('[cache]\npolicy = "last"\n')
    result = run("url", ARK)
    assert result.exit_code == 2
    assert "maptr.toml:2: cache.policy: must be one of" in result.stderr


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172_800, "2 days")]
)
def test_ages_are_told_for_people(seconds: float, text: str) -> None:
    assert shown(seconds) == text
