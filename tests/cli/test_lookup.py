"""ARK look-up on the command line: configuration, cache, table, policies and choosers."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dns.message import Message, make_response
from dns.rcode import NXDOMAIN

from maptr.cache import POLICIES
from maptr.cli.lookup import duration_text
from tests.support.command_line import run, run_process
from tests.support.peers import Maptr
from tests.support.ports import free_port
from tests.support.scripted import serving, zone

pytestmark = pytest.mark.usefixtures("home")

ZONES = Path(__file__).resolve().parents[2] / "zones"
ARK = "ark:12025/x6np1wh8k"
URL = "http://ark.nlm.example.org/ark:/12025/x6np1wh8k"
DEAD = "127.0.0.1#9"


@pytest.fixture
def server(at: str) -> str:
    return at[1:]


def url_of(file: Path) -> str:
    result = run("url", ARK, "--table", str(file), "--policy", "natab-only", code=0)
    return result.stdout.strip()


def test_without_a_configuration_nothing_is_cached_or_reported(home: Path, server: str) -> None:
    result = run("discover", ARK, f"@{server}")
    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(path.name for path in home.iterdir()) == ["work"]


def test_a_pulled_table_answers_where_dns_does_not(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAPTR_CLIENT_NAMESERVERS", DEAD)
    assert "from the built-in registry of 2026-07-14; DNS does not say." in run("url", ARK, code=0).stderr
    run("table", "pull", str(ZONES / "sample.json"), "--apply", "--force", code=0)
    assert (home / "data" / "maptr" / "naans").read_bytes() == (ZONES / "sample.json").read_bytes()
    result = run("url", ARK)
    assert (result.exit_code, result.stdout.strip()) == (0, url_of(ZONES / "sample.json"))
    assert f"maptr: {ARK}: from the table, " in result.stderr
    assert " old (DNS: does not say; the table has it: record 12025); its data are of " in result.stderr
    document = json.loads(run("url", "--json", ARK).stdout)
    assert (document["source"], document["stale"], document["url"]) == ("natab", False, result.stdout.strip())
    assert 0 <= document["age"] < 60
    assert run("url", "--no-cache", ARK).exit_code == 9
    assert run("url", ARK, f"@{DEAD}").exit_code == 9, "@SERVER is asked directly"
    assert run("url", "--policy", "dns-only", ARK).exit_code == 9


def test_a_configured_gateway_s_own_objects_come_first(home: Path) -> None:
    """As the gateway itself answers, without one; a server that is named is asked instead."""
    Path("own.csv").write_text(
        "ark,url,status,reason\n"
        "ark:12025/own,https://o.example/1,302,\nark:12025/gone,,410,withdrawn\nark:12345/b,https://o.example/?a=b,302,\n"
    )
    Path("gateway.toml").write_text('[gateway]\nredirects = "own.csv"\n[client]\nhyphens = "keep"\n')
    config = ("--config", "gateway.toml")
    assert run("url", "ark:12025/own", *config, code=0).stdout == "https://o.example/1\n"
    assert run("url", "ark:/12025/o-wn/c-2.pdf?x=y", *config, code=0).stdout == "https://o.example/1/c-2.pdf?x=y\n"
    gone = run("url", "ark:12025/gone", *config, code=1)
    assert (gone.stdout, "ark:12025/gone is gone: withdrawn" in gone.stderr) == ("\n", True)
    found = json.loads(run("discover", "--json", "ark:12025/own", *config, code=0).stdout)
    assert (found["source"], found["candidates"][0]["url"]) == ("redirects", "https://o.example/1")
    assert "from own objects" in run("discover", "ark:12025/own", *config, code=0).stderr
    table = ("--policy", "natab-only", "--table", str(ZONES / "sample.json"))
    assert "o.example" not in run("url", ARK, *config, *table, code=0).stdout
    assert run("url", "ark:12025/own", *config, f"@{DEAD}", "--timeout", "0.5").exit_code == 9
    Path("own.csv").unlink()
    run("url", "ark:12025/own", *config, code=2, said="own.csv")


def test_a_given_table_without_a_good_record_is_not_replaced_by_the_built_in_one() -> None:
    words = ("url", "ark:12148/x", "--table", "-", "--policy", "natab-only")
    done = run_process(*words, input='{"data": [{"what": "???"}]}')
    assert (done.returncode, done.stdout.strip()) == (1, "")


def test_what_a_table_cannot_give_is_not_advised() -> None:
    run("url", ARK, "--require", "secure", "--policy", "natab-only", code=2, said="a table has no signatures")

    def nothing_exists(query: Message) -> Message:
        reply = make_response(query)
        reply.set_rcode(NXDOMAIN)
        return reply

    with serving(nothing_exists) as port:
        for command in (["url", ARK], ["bulk"]):
            words = (*command, f"@127.0.0.1#{port}")
            assert "maptr up" in run(*words, text=ARK, code=9).stderr
            assert "maptr up" not in run(*words, "--require", "secure", text=ARK, code=9).stderr


def test_an_answer_of_dns_is_cached(home: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("maptr.toml").write_text(f'[client]\nnameservers = ["{server}"]\n[cache]\npath = "kept.sqlite"\n')
    first, second = run("discover", ARK), run("discover", ARK)
    assert re.fullmatch(rf"maptr: {ARK}: from DNS, \d+ s old \(DNS answered\)\n", first.stderr)
    assert "from the cache on disk, " in second.stderr
    assert first.stdout == second.stdout
    assert [path.name for path in Path().glob("kept*")] == ["kept.sqlite"], "and it is closed"
    assert run("url", ARK).stderr == ""
    document = json.loads(run("discover", "--json", ARK).stdout)
    assert (document["source"], document["stale"]) == ("disk", False)
    assert document["age"] >= 0
    monkeypatch.setenv("MAPTR_CACHE_PATH", "")
    assert "from DNS" in run("discover", ARK).stderr


def test_a_silent_server_delays_the_answer_only_by_the_patience() -> None:
    with serving(lambda query: None) as port:
        natab = str(ZONES / "sample.natab")
        result = run("url", "--timeout", "30", ARK, f"@127.0.0.1#{port}", "--table", natab)
    assert result.exit_code == 0
    assert "DNS: does not say" in result.stderr


def test_origin_and_servers_from_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = tmp_path / "zone"
    zone.write_text((ZONES / "ark.arpa.zone").read_text().replace("ark.arpa.", "ark.example."))
    with Maptr({"ark.example.": zone}) as running:
        config = tmp_path / "config" / "maptr" / "maptr.toml"
        config.parent.mkdir(parents=True)
        config.write_text(f'[client]\norigin = "ark.example"\nnameservers = ["{running.host}#{running.port}"]\n')
        result = run("url", ARK)
        assert (result.exit_code, result.stderr) == (0, ""), "no cache is configured"
        Path("arks").write_text(f"{ARK}\n")
        assert result.stdout.strip() in run("bulk", "arks").stdout
        assert run("table", "drift", "--table", str(ZONES / "sample.json"), "12025").exit_code == 0
        for said in ("", "# nothing of a client"):
            Path("maptr.toml").write_text(f'{said}\n[[zone]]\nname = "a"\nfile = "b"\n')
            assert run("url", ARK).exit_code == 0, "without tables for clients it is skipped"
        monkeypatch.setenv("MAPTR_CONFIG", str(config))
        assert run("url", ARK).exit_code == 0


def test_the_table_in_use_is_the_same_for_all_commands(home: Path) -> None:
    Path("maptr.toml").write_text('[client]\norigin = "ark.example"\nnameservers = ["127.0.0.1#9"]\n')
    shown = run("table", code=0)
    assert "built-in" not in shown.stdout
    assert "*" not in shown.stdout
    assert "none is used: no file exists, and the built-in registry is not for ark.example\n" in shown.stderr
    assert not any(each["used"] for each in json.loads(run("table", "--json").stdout)["tables"])
    run("url", "ark:12148/x", code=9, out="\n")
    for words in ("table check", "table convert --to json", "table export --format csv", "table drift", "table probe"):
        run(*words.split(), code=2, said="no table is in use: the built-in one is not for ark.example; name a file")
    run("naan", "12148", said="National Library of France")
    sample = ZONES / "sample.natab"
    Path("maptr.toml").write_text(f'[client]\norigin = "ark.example"\n[table]\nfile = "{sample}"\n')
    run("table", code=0, said=f"* configured  {sample}: ")
    run("table", "check", code=0, said=f"the configured table, {sample}")
    Path("maptr.toml").write_text('[client]\norigin = "ARK.arpa."\n')
    run("table", code=0, said="* built-in")


def test_server_and_client_use_the_same_configured_table() -> None:
    shutil.copy(ZONES / "sample.json", "naans.json")
    Path("maptr.toml").write_text(f'[table]\nfile = "naans.json"\n[client]\nnameservers = ["{DEAD}"]\n')
    assert "from the table" in run("url", ARK).stderr
    assert run("table", "drift").exit_code == 9


def test_a_configured_table_may_be_absent_before_the_first_pull(server: str) -> None:
    config = f'[client]\nnameservers = ["{server}"]\n[table]\nfile = "naans.json"\n'
    Path("maptr.toml").write_text(f'{config}url = "https://example.org/naans.json"\n')
    run("url", ARK, code=0, out=run("url", ARK, f"@{server}").stdout)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('policy = "last"', "cache.policy: must be one of"),
        ('path = "no/c"', "cache.path: no/c: there is no folder no"),
        ('path = "maptr.toml"', "cache.path: maptr.toml: holds something other than a maptr cache"),
    ],
)
def test_a_bad_configuration_is_reported_with_its_line(line: str, said: str) -> None:
    Path("maptr.toml").write_text(f"[cache]\n{line}\n")
    run("url", ARK, code=2, said=f"maptr.toml:2: {said}")
    Path("maptr.toml").write_text("[cache]\n")
    done = run("url", ARK, "--trust-anchor", "maptr.toml", code=2)
    assert "cache.path" not in done.stderr, "only its own errors are"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172_800, "2 days")]
)
def test_durations_are_written_in_words(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize("policy", ["dns-first", "natab-first", "natab-only"])
def test_the_age_of_a_table_counts_from_its_last_pull(policy: str, tmp_path: Path) -> None:
    source, natab = tmp_path / "source", tmp_path / "natab"
    source.write_text("54321:\n    t.example.org\n")
    assert run("table", "pull", str(source), "--table", str(natab), "--apply").exit_code == 0
    os.utime(natab, (1, 1))
    words = ("url", "ark:54321/x", "--table", str(natab), "--policy", policy)
    for line in ((*words, f"@{DEAD}"), words) if policy != "dns-first" else ((*words, f"@{DEAD}"),):
        assert re.search(r"from the table, \d+ s old", at(0, *line)[2])


def test_log_lines_of_the_cache_begin_with_maptr(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("nothing of any format")
    words = ["url", "ark:12345/x1", "--table", "bad", "--policy", "natab-only"]
    done = run_process(*words, cwd=tmp_path)
    assert done.returncode == 9
    assert all(line.startswith("maptr: ") for line in done.stderr.splitlines()), done.stderr
    assert "bad: not a registry" in done.stderr


# ---- clock changes


def of_minutes(folder: Path) -> Path:
    """Write the zone with a TTL of five minutes."""
    path = folder / "zone"
    path.write_text((ZONES / "ark.arpa.zone").read_text().replace("$TTL 86400", "$TTL 300"))
    return path


def at(seconds: float, *arguments: str) -> tuple[int, str, str]:
    """Run a command with the clock set forward or back by some seconds."""
    program = (
        f"import sys, time; real = time.time; time.time = lambda: real() + {seconds};"
        "from maptr.cli.start import run; run()"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def test_after_the_clock_was_set_back_an_age_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MAPTR_CACHE_POLICY", "dns-first")
    (tmp_path / "natab").write_text("54321:\n    t.example.org\n")
    with Maptr({"ark.arpa.": of_minutes(tmp_path)}) as dns:
        monkeypatch.setenv("MAPTR_CLIENT_NAMESERVERS", f"127.0.0.1#{dns.port}")
        assert re.match(rf"maptr: {ARK}: from DNS, \d+ s old", at(0, "discover", ARK)[2])
        assert "from the cache on disk, " in at(0, "discover", ARK)[2]
    for words, said in (
        ((ARK,), "from the cache on disk, of unknown age, stale (DNS does not say"),
        (("ark:54321/x", "--table", str(tmp_path / "natab")), "from the table, of unknown age (DNS: does not say"),
    ):
        code, _, shown = at(-3 * 86_400, "url", *words)
        assert (code, said in shown) == (0, True), shown


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("ark", [ARK, "ark:54321/x1"])  # one in the zone and the table, and one in neither
def test_bulk_answers_as_url_does(policy: str, ark: str, server: str) -> None:
    for name in (server, DEAD):
        options = ("--table", str(ZONES / "sample.json"), "--policy", policy, f"@{name}")
        one, many = run("url", ark, *options), run("bulk", *options, text=f"{ark}\n")
        (row,) = csv.DictReader(many.stdout.splitlines())
        assert (one.exit_code, one.stdout.strip()) == (many.exit_code, row["url"]), many.output
        assert bool(row["url"]) is (one.exit_code == 0)
        assert ("from the table" in one.stderr) is ("from the table" in row["note"])
        assert "; 0 names asked" in many.stderr or policy.startswith("dns") or ark != ARK


# ---- choosers

NAME = "ark:12345/x1"


@pytest.fixture
def alive() -> Iterator[int]:
    """Provide the port of a server that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


@pytest.fixture
def dns(alive: int) -> Iterator[str]:
    """Run a name server with a rule for a host that is down, and then a rule for one that is up."""
    dead = free_port()
    rules = [rf'0 {rank} "u" "ark" "!^(.*)$!http://127.0.0.1:{port}/\\1!" .' for rank, port in enumerate((dead, alive))]
    with serving(zone({"12345.ark.arpa.": rules})) as port:
        yield f"@127.0.0.1#{port}"


def found(*words: str, text: str = "") -> str:
    result = run(*words, text=text, code=0)
    return result.stdout


def places(*words: str) -> list[str]:
    """Return the URL of each line, without the ARK."""
    return [line.rpartition(NAME)[0] for line in found(*words).splitlines()]


def test_chooser_reachable_on_each_command(dns: str, alive: int, monkeypatch: pytest.MonkeyPatch) -> None:
    best = f"http://127.0.0.1:{alive}/"
    options = (dns, "--choose", "reachable", "--allow-private")
    assert places("url", NAME, *options) == [best]
    assert places("discover", "--short", NAME, *options)[0] == best
    assert best + NAME in found("bulk", *options, text=f"{NAME}\n")
    first = places("url", NAME, dns, "--allow-private")
    assert first != [best]
    monkeypatch.setenv("MAPTR_CLIENT_CHOOSE", "reachable")
    assert places("url", NAME, dns, "--allow-private") == [best]
    assert places("url", NAME, dns, "--allow-private", "--choose", "first") == first, "the option overrides"


def test_chooser_own_on_each_command(dns: str, alive: int) -> None:
    received = f"http://127.0.0.1:{alive}/own/"
    options = (dns, "--choose", "own", "--allow-private")
    assert places("url", received + NAME, *options) != [received], "DNS has a rule for that host"
    with socket.create_server(("127.0.0.1", 0)) as server:
        received = f"http://127.0.0.1:{server.getsockname()[1]}/own/"
        assert places("url", received + NAME, *options) == [received]
        assert received + NAME in found("bulk", *options, text=f"{received}{NAME}\n")
    assert places("url", received + NAME, *options) == places("url", NAME, dns, "--allow-private"), "its server is down"


def test_choosers_apply_to_the_authorities_of_a_table(alive: int, tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    where = "".join(f"where: http://127.0.0.1:{port}\n" for port in (free_port(), alive))
    registry.write_text(f"erc:\n\nnaa:\nwho: Example (=) EX\nwhat: 12345\n{where}how: NP | NR | 2024 |\n")
    arguments = ("--table", str(registry), "--policy", "natab-only", "--allow-private", "--choose", "reachable")
    assert f":{alive}/" in found("url", NAME, *arguments)
    assert f":{alive}/" in found("bulk", *arguments, text=f"{NAME}\n")


def test_bulk_chooses_concurrently_and_keeps_the_order_of_the_lines(dns: str, alive: int) -> None:
    lines = [f"ark:12345/x{number}" for number in range(200)]
    rows = found("bulk", dns, "--choose", "reachable", "--allow-private", text="\n".join(lines)).splitlines()[1:]
    assert [row.split(",")[2] for row in rows] == lines
    assert all(f"http://127.0.0.1:{alive}/" in row for row in rows)


def test_hyphens_are_kept_by_configuration(tmp_path: Path, server: str) -> None:
    config = tmp_path / "hyphens.toml"
    config.write_text('[client]\nhyphens = "keep"\n')
    assert run("url", f"{ARK}-1", f"@{server}").stdout.endswith("/12025/x6np1wh8k1\n")
    assert run("url", f"{ARK}-1", f"@{server}", "--config", str(config)).stdout.endswith("/12025/x6np1wh8k-1\n")
