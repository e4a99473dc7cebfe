"""The command line through a cache: what answers when, where it says that it is from, and what sets it up."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from maptr.cli.group import main
from maptr.cli.results import duration_text
from maptr.cli.rows import InOrder
from maptr.discovery import DiscoveryFailed
from tests.client.test_drivers import serving
from tests.support.peers import Maptr

ZONES = Path(__file__).resolve().parents[2] / "zones"
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


def run(*arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(main, arguments, input=text)


def url_of(file: Path) -> str:
    result = run("url", ARK, "--table", str(file), "--policy", "natab-only")
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
    document = json.loads(run("url", "--json", ARK, f"@{server}", "--table", natab, "--policy", policy).stdout)
    assert document["source"] == source
    assert document["url"] == url_of(ZONES / "sample.json")


def test_a_silent_server_costs_patience_and_no_more() -> None:
    with serving(lambda query: None) as port:
        natab = str(ZONES / "sample.natab")
        result = run("url", "--timeout", "30", ARK, f"@127.0.0.1#{port}", "--table", natab)
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


def test_a_configured_table_that_a_pull_will_write_may_be_absent(server: str) -> None:
    config = f'[client]\nnameservers = ["{server}"]\n[table]\nfile = "naans.json"\n'
    Path("maptr.toml").write_text(f'{config}url = "https://example.org/naans.json"\n')
    result = run("url", ARK)
    assert (result.exit_code, result.stdout) == (0, run("url", ARK, f"@{server}").stdout)
    assert "naans.json: not there yet; maptr table pull --apply gets it" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "because"),
    [
        (("url", ARK, "--policy", "last"), "'last' is not one of"),
        (("url", ARK, "--table", "none"), "does not exist"),
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
    assert duration_text(seconds) == text


@pytest.mark.parametrize("policy", ["dns-first", "natab-first", "natab-only"])
def test_a_table_is_as_old_as_its_source_said_so_last(policy: str, tmp_path: Path) -> None:
    source, natab = tmp_path / "source", tmp_path / "natab"
    source.write_text("54321:\n    t.example.org\n")
    assert run("table", "pull", str(source), "--table", str(natab), "--apply").exit_code == 0
    os.utime(natab, (1, 1))
    words = ("url", "ark:54321/x", "--table", str(natab), "--policy", policy)
    for line in ((*words, f"@{DEAD}"), words) if policy != "dns-first" else ((*words, f"@{DEAD}"),):
        assert re.search(r"from the table, \d+ s old", at(0, *line)[2])


# ---- a clock that is set


def of_minutes(folder: Path) -> Path:
    """The zone with a TTL of five minutes."""
    path = folder / "zone"
    path.write_text((ZONES / "ark.arpa.zone").read_text().replace("$TTL 86400", "$TTL 300"))
    return path


def at(seconds: float, *arguments: str) -> tuple[int, str, str]:
    """A command on a machine whose clock was set so many seconds on, or back."""
    program = (
        f"import sys, time; real = time.time; time.time = lambda: real() + {seconds};"
        "from maptr.cli.start import run; run()"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


@pytest.mark.parametrize("days", [1, -1])
def test_a_clock_set_by_a_day_makes_no_answer_fresh_and_no_age_known(
    days: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MAPTR_CACHE_POLICY", "dns-first")
    (tmp_path / "natab").write_text("54321:\n    t.example.org\n")
    with Maptr({"ark.arpa.": of_minutes(tmp_path)}) as dns:
        monkeypatch.setenv("MAPTR_CLIENT_NAMESERVERS", f"127.0.0.1#{dns.port}")
        url = run("url", ARK, "--no-cache").stdout.strip()
        assert at(0, "discover", ARK)[2].startswith(f"maptr: {ARK}: from DNS, 0 s old")
        assert "from the cache on disk, " in at(0, "discover", ARK)[2]
        code, out, said = at(days * 86_400, "discover", ARK)
        assert (code, said.split(": ", 2)[2][:8]) == (0, "from DNS"), "asked again"
        assert "from the cache on disk, " in at(days * 86_400, "discover", ARK)[2], "kept by the new clock"
        assert "from DNS" in at(0, "discover", ARK)[2], "and asked again once the clock is right"
    code, out, said = at(43_200, "url", ARK)
    assert (code, out) == (0, url)
    assert "from the cache on disk, 12 h old, stale (DNS does not say" in said
    code, out, said = at(-3 * 86_400, "url", ARK)
    assert (code, out) == (0, url)
    assert "from the cache on disk, of unknown age, stale (DNS does not say" in said
    code, out, said = at(-3 * 86_400, "url", "ark:54321/x", "--table", str(tmp_path / "natab"))
    assert (code, out) == (0, "https://t.example.org/ark:/54321/x")
    assert "from the table, of unknown age (DNS: silent" in said
    for policy in ("natab-only", "natab-first"):
        said = at(-3 * 86_400, "url", "ark:54321/x", "--table", str(tmp_path / "natab"), "--policy", policy)[2]
        assert "from the table, of unknown age (the table has it)" in said
    code, out, said = at(3 * 86_400, "url", ARK)
    assert (code, out) == (9, ""), "no answer is kept for ever"


# ---- many


def bulk(text: str, *arguments: str) -> tuple[int, list[dict[str, object]], str]:
    result = run("bulk", "--json", *arguments, text=text)
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()], result.stderr


def test_many_arks_fall_to_the_table_that_was_pulled(monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    monkeypatch.setenv("MAPTR_CLIENT_NAMESERVERS", DEAD)
    run("table", "pull", str(ZONES / "sample.json"), "--apply")
    text = f"{ARK}\nnonsense\nark:54321/x\n"
    code, rows, said = bulk(text)
    assert [(row["line"], row["status"]) for row in rows] == [(1, "found"), (2, "bad"), (3, "unknown")]
    assert (rows[0]["url"], rows[0]["source"], rows[0]["stale"]) == (run("url", ARK).stdout.strip(), "natab", False)
    assert str(rows[0]["note"]).endswith("old (DNS: silent; the table has it)")
    assert code == 9
    assert "1 from the table" in said
    assert bulk(text, "--no-cache")[1][0]["status"] == "unknown"
    assert bulk(text, f"@{DEAD}")[1][0]["status"] == "unknown", "a server that is named is asked, and nobody else"
    code, rows, said = bulk(text, f"@{server}")
    assert ("source" in rows[0], rows[0]["note"], "table" in said) == (False, "", False)


def test_what_dns_said_earlier_stands_in_for_a_silent_one(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    with Maptr({"ark.arpa.": of_minutes(home)}) as dns:
        monkeypatch.setenv("MAPTR_CLIENT_NAMESERVERS", f"127.0.0.1#{dns.port}")
        assert run("url", ARK, "--policy", "dns-first").exit_code == 0
    with sqlite3.connect(home / "cache" / "maptr" / "cache.sqlite") as kept:
        kept.execute("UPDATE answer SET fetched = fetched - 4000, expires = expires - 4000")
    kept.close()
    code, rows, _ = bulk("ark:12025/y\n", "--policy", "dns-first")
    assert (code, rows[0]["source"], rows[0]["stale"]) == (0, "disk", True), rows
    assert "67 min old, stale (DNS does not say" in str(rows[0]["note"])


def test_without_a_resolver_the_table_answers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*arguments: object) -> None:
        raise DiscoveryFailed(None, "no resolver")  # type: ignore[arg-type]

    monkeypatch.setattr("maptr.client.servers.system_servers", none)  # of the command line
    monkeypatch.setattr("maptr.client.stub.system_servers", none)
    assert run("bulk", text=f"{ARK}\n").exit_code == 9
    code, rows, said = bulk(f"{ARK}\nark:54321/x\n", "--table", str(ZONES / "sample.natab"))
    assert (code, [row["status"] for row in rows]) == (9, ["found", "unknown"])
    assert "0 names asked, 1 from the table" in said


@pytest.mark.parametrize("policy", ["dns-first", "natab-first"])
def test_rows_are_in_the_order_of_the_lines_whoever_answers(policy: str, server: str) -> None:
    lines = [("ark:12025/x", "nonsense", "ark:12345/x", "ark:54321/x", "ark:99999/x")[i * i % 5] for i in range(5000)]
    _, rows, _ = bulk("\n".join(lines), "--table", str(ZONES / "sample.natab"), "--policy", policy, f"@{server}")
    assert [row["line"] for row in rows] == list(range(1, 5001))
    status = {"nonsense": "bad", "ark:54321/x": "none"}
    assert [row["status"] for row in rows] == [status.get(line, "found") for line in lines]


def test_rows_that_wait_are_bounded() -> None:
    written: list[object] = []
    order = InOrder(lambda row: written.append(row["line"]), max_held=3)
    order.announce(1)
    for number in (2, 3, 4, 5):
        order.put(number, {"line": number})
    assert written == [4, 5]
    order.put(1, {"line": 1})
    assert written == [4, 5, 1, 2, 3]


def test_what_the_cache_has_to_say_is_said_as_maptr(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("nothing of any format")
    words = ["url", "ark:12345/x1", "--table", "bad", "--policy", "natab-only"]
    done = subprocess.run(
        [sys.executable, "-m", "maptr", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 9
    assert all(line.startswith("maptr: ") for line in done.stderr.splitlines()), done.stderr
    assert "bad: not a registry" in done.stderr
