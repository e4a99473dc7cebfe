"""The command line of ``maptr gateway``: its options, its configuration and table, and how each mistake is reported."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sys
import time
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.certificates import write_certificate
from tests.support.command_line import run, run_process
from tests.support.http_gateway import GatewayProcess, get
from tests.support.scripted import serving, zone
from tests.support.server_process import zone_text
from tests.support.waiting import until

ZONES = Path(__file__).resolve().parents[2] / "zones"
SAMPLE = ZONES / "sample.json"
ARK = "ark:12345/x60np1wh8k"
URL = "https://x60.example.net/item/np1wh8k"
DEAD = "127.0.0.1#9"
PRIVATE = "12345:\n    127.0.0.1:8080  ACR\n"


def redirect(gateway: GatewayProcess, target: str) -> tuple[int, str | None]:
    """Return the status and the target of a redirect."""
    reply = gateway.ask(target)
    return reply.status, reply.headers.get("location")


# ---- options


@pytest.mark.usefixtures("home")
def test_a_gateway_with_only_a_table_and_a_private_host(tmp_path: Path) -> None:
    table = tmp_path / "natab"
    table.write_text(PRIVATE)
    words = ("--table", str(table), "--policy", "natab-only", "--choose", "random", "--listen", "127.0.0.1:0")
    with GatewayProcess(*words, "--allow-private") as gateway:
        ports = re.findall(r":(\d+)/", gateway.wait_for("^maptr: ready, serving on .*$")[0])
        assert len(set(ports)) == 2
        for port in ports:
            location = get(int(port), "/ark:12345/x1").headers["location"]
            assert location == "https://127.0.0.1:8080/ark:/12345/x1"
        assert [line for line in gateway.lines if "ready" not in line] == ["maptr: sources: table of 1 records"]
        assert gateway.stop() == 0
        assert gateway.lines[-1] == "maptr: stopped"
    with GatewayProcess(*words) as gateway:
        assert "127.0.0.1 is not a public host" in gateway.ask("/ark:12345/x1").text


@pytest.mark.usefixtures("home")
def test_a_gateway_with_only_dns_at_another_origin() -> None:
    with (
        serving(zone({"12345.ark.example.": ['0 0 "h" "ark" "" h.example.']})) as port,
        GatewayProcess(f"@127.0.0.1#{port}", "--origin", "ark.example") as gateway,
    ):
        reply = gateway.ask("/ark:12345/x1")
        assert (reply.status, reply.headers["location"]) == (302, "https://h.example/ark:12345/x1")
        assert reply.headers["maptr-source"] == "dns"


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        (["ark:12345/x1"], 2, "'ark:12345/x1' is not @SERVER"),
        (["--listen", "localhost:80"], 2, "the host must be an IP address"),
        (["--listen", "127.0.0.1"], 2, "is not HOST:PORT"),
        (["--table", "none"], 8, "none: No such file or directory"),
        (["--policy", "table-first"], 2, "'table-first' is not one of"),
        (["--origin", "a..b"], 2, "'--origin': 'a..b' is not a valid domain name: empty label"),
        (["@127.0.0.1#x"], 2, "'127.0.0.1#x' is not a server"),
        (["--listen", "127.0.0.1:80", "--listen", "127.0.0.1:80"], 2, "127.0.0.1:80 is given twice"),
        (["--config", "none.toml"], 8, "none.toml: No such file or directory"),
        (["--config", "bad.toml"], 1, "maptr: bad.toml:2: gateway.rate: must be an integer, not a text"),
        (["--config", "bad.toml"], 1, "maptr: bad.toml:3: gateway.rot: no such key; the nearest is gateway.root"),
        (["--config", "files.toml"], 1, "maptr: files.toml:2: gateway.redirects: none.csv: No such file or directory"),
        (["--config", "files.toml"], 1, "maptr: files.toml:3: gateway.certificate: none.crt"),
        (["--config", "files.toml"], 1, "maptr: files.toml:5: gateway.stats: none: no file can be made there"),
        (["--config", "stats.toml"], 1, "maptr: stats.toml:2: gateway.stats: single.csv: file is not a database"),
        (["--config", "cache.toml"], 1, "maptr: cache.toml:2: cache.path: none/c: there is no folder none"),
        (["--config", "twice.toml"], 1, "maptr: twice.toml:2: gateway.listen: 127.0.0.1:8080 is given twice"),
    ],
)
def test_each_mistake_is_reported(options: list[str], code: int, why: str) -> None:
    Path("single.csv").write_text("ark,url\n")
    for name, text in {
        "bad": "rate = 'many'\nrot = ''",
        "files": "redirects = 'none.csv'\ncertificate = 'none.crt'\nkey = 'none.key'\nstats = 'none/stats'",
        "stats": "stats = 'single.csv'",
        "twice": "listen = ['127.0.0.1:8080', '127.0.0.1:8080']",
    }.items():
        Path(f"{name}.toml").write_text(f"[gateway]\n{text}\n")
    Path("cache.toml").write_text("[cache]\npath = 'none/c'\n")
    result = run("gateway", "--check-config", *options, code=code, out="")
    assert why in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.usefixtures("home")
def test_a_check_has_its_mistakes_and_what_would_be_served_as_json() -> None:
    Path("maptr.toml").write_text("[gateway]\nrate = 'many'\nrot = ''\n")
    document = json.loads(run("gateway", "--check-config", "--json", code=1).stdout)
    assert [(one["line"], one["key"]) for one in document["errors"]] == [(2, "gateway.rate"), (3, "gateway.rot")]
    assert (document["table"], document["listen"]) == (None, [])
    Path("single.csv").write_text("ark,url\nx,y\n")
    Path("maptr.toml").write_text("[gateway]\nredirects = 'single.csv'\n[[zone]]\nname = 'a.test'\nfile = 'none'\n")
    document = json.loads(run("gateway", "--check-config", "--json", "--table", "single.csv", code=1).stdout)
    assert [one["key"] for one in document["errors"]] == ["table", "zone", "gateway.redirects"]
    assert document["errors"][0]["reason"].startswith("not a registry: ")
    Path("maptr.toml").unlink()
    words = ("--table", SAMPLE, "--listen", "127.0.0.1:0", "--json")
    document = json.loads(run("gateway", "--check-config", *words, code=0).stdout)
    assert (document["errors"], document["table"]["kind"], document["listen"]) == ([], "given", ["127.0.0.1:0"])
    assert document["redirects"] is None
    own = "[gateway]\nredirects = 'single.csv'\npublic_url = 'https://o.example.org'\n"
    Path("maptr.toml").write_text(f"{own}[client]\nnameservers = ['127.0.0.1#9']\n")
    single = "ark;url;Statut;Raison\nark:12345/x1;https://o.example.org/1;;\n"
    Path("single.csv").write_text(
        f"{single}ark:12345/x2;https://o.example.org/ark:12345/x3;;\nark:12345/x3;https://h.example/;;\n"
    )
    said = (
        "\ndns 127.0.0.1#9\ntable 18 records (given)\n"
        "redirects single.csv: 3 redirects; 1 below gateway.public_url, whose ARKs are described, not redirected; "
        "extra columns, kept, and not public: Statut, Raison\n"
    )
    assert run("gateway", "--check-config", *words[:4], code=0).stdout.endswith(said)
    document = json.loads(run("gateway", "--check-config", *words, code=0).stdout)
    assert document["dns"] == ["127.0.0.1#9"]
    counts = {"redirects": 3, "described": 1, "unused_columns": ["Statut", "Raison"]}
    assert document["redirects"] == {"file": "single.csv", **counts}
    run("gateway", "--json", code=2, said="--json needs --check-config")


def test_a_check_warns_of_texts_that_stay_in_english(tmp_path: Path) -> None:
    (tmp_path / "messages").mkdir()
    (tmp_path / "messages" / "de.toml").write_text('"Find" = "Los"\n"Fund" = "Fund"\n')
    (tmp_path / "maptr.toml").write_text("[gateway]\nmessages = 'messages'\n[gateway.texts.fr]\n")
    words = ("gateway", "--check-config", "--table", SAMPLE, "--listen", "127.0.0.1:0")
    done = run_process(*words, cwd=tmp_path)
    assert done.returncode == 0
    unknown = 'messages/de.toml: not known to this version, and ignored: "Fund"'
    assert f"maptr: {unknown}\n" in done.stderr
    assert "maptr: messages/de.toml: not translated, and shown in English: " in done.stderr
    assert json.loads(run_process(*words, "--json", cwd=tmp_path).stdout)["warnings"][1] == unknown
    (tmp_path / "maptr.toml").write_text("[gateway.texts.fr]\nFnd = 'x'\n")
    done = run_process(*words, "--json", cwd=tmp_path)
    (error,) = json.loads(done.stdout)["errors"]
    assert (done.returncode, error["file"], error["line"], error["key"]) == (
        *(1, "maptr.toml", 2),
        "gateway.texts.fr.Fnd",
    )


@pytest.mark.parametrize(
    ("configured", "said"),
    [
        ("[cache]\nnatab = 'none.json'", "none.json does not exist; the built-in table is used until it does"),
        (
            "[gateway]\nredirects = 'r.csv'",
            "maptr: r.csv:3: ark:12345/x2: 127.0.0.1 is not a public host; this row is left out",
        ),
    ],
)
def test_a_check_names_what_would_not_be_served(configured: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("ark,url\nark:12345/x1,https://h.example/\nark:12345/x2,https://127.0.0.1/\n")
    (tmp_path / "maptr.toml").write_text(configured)
    done = run_process("gateway", "--check-config", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(f"{said}\n")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("configured", ["", "[cache]\nnatab = 'naans'\n", "[cache]\npolicy = 'natab-only'\n"])
def test_a_table_that_comes_after_the_start_is_taken(home: Path, configured: str) -> None:
    """Both a configured one and the one that maptr table pull writes."""
    config = home / "config.toml"
    config.write_text(f'{configured}[client]\nnameservers = ["{DEAD}"]\n')
    with GatewayProcess("--config", str(config)) as gateway:
        reply = gateway.ask("/ark:12345/x1")
        assert (reply.status, reply.headers["maptr-source"][:19]) == (302, "natab;table=builtin")
        dns = "" if "only" in configured else "DNS; "
        gateway.wait_for(rf"^maptr: sources: {dns}built-in registry of 2026-07-14, 2232 records$")
        pulled = home / "data" / "maptr" / "naans"
        file = home / "naans" if "natab =" in configured else pulled
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(Path(SAMPLE).read_bytes())
        gateway.wait_for(r"^maptr: sources: .*table of 18 records$")
        until(lambda: "builtin" not in gateway.ask("/ark:12345/x1").headers["maptr-source"], "the file is used")
        assert "source: table of 18 records" in gateway.ask("/ready").text.splitlines()


@pytest.mark.usefixtures("home")
def test_an_address_in_use_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_process("gateway", "--listen", f"127.0.0.1:{port}", "--table", SAMPLE, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"maptr: --listen: cannot listen on 127.0.0.1:{port}: Address")
        (tmp_path / "maptr.toml").write_text(f"[gateway]\nlisten = ['127.0.0.1:{port}']\n")
        done = run_process("gateway", "--table", SAMPLE, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"maptr: maptr.toml:2: gateway.listen: cannot listen on 127.0.0.1:{port}: Address" in done.stderr


@pytest.mark.parametrize("package", ["aiohttp", "jinja2", "prometheus_client"])
def test_without_the_extra_the_message_names_it(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    result = run("gateway", code=2, out="")
    assert result.stderr.splitlines()[-1] == f"maptr: needs the package {package}: pip install 'maptr[gateway]'"


# ---- configuration and table


def listening(*words: object) -> str:
    """Return the output of ``--check-config``."""
    return run("gateway", "--check-config", *words, code=0).stdout


def test_the_configuration_is_found_where_other_commands_find_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "listen 127.0.0.1:8080 (http)\ndns 127.0.0.1#5300 tls://dns.example\ntable 2232 records (built-in)\n"
    assert listening("@127.0.0.1#5300", "@tls://dns.example") == said
    assert "\ndns none\n" in listening("--policy", "natab-only")
    user = home / "config" / "maptr" / "maptr.toml"
    user.parent.mkdir(parents=True)
    user.write_text('[gateway]\nlisten = ["127.0.0.1:8001"]\n')
    assert "127.0.0.1:8001" in listening()
    Path("maptr.toml").write_text('[gateway]\nlisten = ["127.0.0.1:8002"]\n')
    assert "127.0.0.1:8002" in listening()
    Path("named.toml").write_text('[gateway]\nlisten = ["127.0.0.1:8003"]\n')
    monkeypatch.setenv("MAPTR_CONFIG", "named.toml")
    assert "127.0.0.1:8003" in listening()
    Path("other.toml").write_text('[gateway]\nlisten = ["127.0.0.1:8004"]\n')
    assert "127.0.0.1:8004" in listening("--config", "other.toml")
    monkeypatch.setenv("MAPTR_GATEWAY_LISTEN", "127.0.0.1:8005,[::1]:8005")
    assert "listen 127.0.0.1:8005 (http)\nlisten [::1]:8005 (http)\n" in listening()
    assert listening("--listen", "[::1]:8006").startswith("listen [::1]:8006 (http)\ndns ")


@pytest.mark.usefixtures("home")
def test_serve_and_gateway_share_one_configuration_file() -> None:
    shutil.copy(ZONES / "ark.arpa.zone", "ark.arpa.zone")
    write_certificate(Path())
    Path("maptr.toml").write_text(
        '[serve]\nlisten = ["127.0.0.1:5300"]\nlog_format = "json"\n'
        '[[zone]]\nname = "ark.arpa"\nfile = "ark.arpa.zone"\n'
        f'[table]\nfile = "{SAMPLE}"\n[client]\nnameservers = ["127.0.0.1#5300"]\n'
        '[gateway]\nlisten = ["127.0.0.1:8443"]\ncertificate = "tls.crt"\nkey = "tls.key"\n'
    )
    assert "listen 127.0.0.1:5300 (udp, tcp)" in run("serve", "--check-config", code=0).stdout
    assert listening().splitlines() == [
        "listen 127.0.0.1:8443 (https)",
        "dns 127.0.0.1#5300",
        "table 18 records (configured)",
        "zone ark.arpa. serial 2026010101",
    ]
    Path("ark.arpa.zone").write_text("@ 60 SOA")
    done = run_process("gateway", "--check-config", cwd=Path.cwd())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("maptr: zone ark.arpa. not loaded, queries get SERVFAIL: ark.arpa.zone:1: ")


def test_a_named_configuration_needs_no_table_for_clients(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(ZONES / "ark.arpa.zone", home / "ark.arpa.zone")
    config = home / "maptr.toml"
    config.write_text('[[zone]]\nname = "ark.arpa"\nfile = "ark.arpa.zone"\n')
    monkeypatch.setenv("MAPTR_CONFIG", str(config))
    with GatewayProcess("@127.0.0.1#9") as gateway:
        query = "AAABAAABAAAAAAAAA2FyawRhcnBhAAAGAAE"  # ark.arpa SOA
        assert gateway.ask(f"/dns-query?dns={query}").status == 200


def test_a_damaged_cache_or_file_of_statistics_does_not_stop_it(home: Path) -> None:
    config = home / "maptr.toml"
    config.write_text(
        f'[gateway]\nstats = "stats"\n[table]\nfile = "{SAMPLE}"\n[cache]\npath = "answers"\npolicy = "natab-only"\n'
    )
    for name in ("stats", "answers"):
        (home / name).write_bytes(b"garbage " * 1024)
    assert "answers" in run("gateway", "--check-config", "--config", config, code=1).stderr
    with GatewayProcess("--config", str(config)) as gateway:
        assert redirect(gateway, f"/{ARK}") == (302, URL)
        log = gateway.log()
    assert f"{home}/answers: holds something other than a maptr cache: left alone; going on without the disk" in log
    assert f"statistics not kept: {home}/stats: file is not a database" in log
    assert (home / "answers").read_bytes() == (home / "stats").read_bytes() == b"garbage " * 1024


@pytest.mark.usefixtures("home")
def test_the_table_of_table_pull_is_the_default() -> None:
    run("table", "pull", SAMPLE, "--apply", "--force", code=0)
    assert "table 18 records" in listening()
    Path("natab").write_text(PRIVATE)
    assert "table 1 record (" in listening("--table", "natab")
    assert "table 1 record (" in listening("--table", "natab", "--policy", "natab-only")


def test_a_table_that_is_pulled_later_is_used(home: Path) -> None:
    config = home / "maptr.toml"
    config.write_text(f'[table]\nfile = "naans.json"\nurl = "{SAMPLE}"\n[cache]\npolicy = "natab-only"\n')
    with GatewayProcess("--config", str(config)) as gateway:
        waiting = gateway.ask("/ready")
        trouble = "table: naans.json does not exist: restore it, or write it with maptr table pull --apply\n"
        assert (waiting.status, waiting.text.partition("source")[0]) == (503, trouble)
        run("table", "pull", "--config", config, "--apply", code=0)
        until(lambda: "source: table of" in gateway.ask("/ready").text, "a gateway with its table")
        assert redirect(gateway, f"/{ARK}") == (302, URL)


def test_what_a_missing_configured_table_may_have_is_not_known(home: Path) -> None:
    """The file may have had any NAAN that the built-in table lacks."""
    config = home / "maptr.toml"
    config.write_text('[table]\nfile = "naans.json"\n[cache]\npolicy = "natab-only"\n')
    with GatewayProcess("--config", str(config)) as gateway:
        unknown = gateway.ask("/ark:00000/x1")
        assert (unknown.status, unknown.headers["cache-control"]) == (503, "no-store")
        assert "naans.json does not exist" in unknown.text
        assert redirect(gateway, "/ark:12148/x1")[0] == 302
        run("table", "pull", SAMPLE, "--config", config, "--apply", "--force", code=0)
        until(lambda: gateway.ask("/ark:00000/x1").status == 404, "a gateway with its table")
        until(lambda: gateway.ask("/ready").status == 200, "a gateway that is ready")


def test_a_reload_reads_the_same_file_again(home: Path) -> None:
    config = home / "maptr.toml"
    base = f'[cache]\nnatab = "{SAMPLE}"\npolicy = "natab-only"\n[gateway]\n'
    config.write_text(base)
    with GatewayProcess("--config", str(config)) as gateway:
        assert gateway.ask("/ark:00000/x1").status == 404
        config.write_text(f'{base}root = "https://n2t.example"\n')
        gateway.wait_for("^maptr: reloaded$", gateway.hang_up())
        assert redirect(gateway, "/ark:00000/x1") == (302, "https://n2t.example/ark:00000/x1")
        for damage in (lambda: config.write_text(f"{base}max_connections = 0\n"), config.unlink):
            damage()
            gateway.wait_for("^maptr: not reloaded", gateway.hang_up())
            assert redirect(gateway, "/ark:00000/x1") == (302, "https://n2t.example/ark:00000/x1")


@pytest.mark.parametrize(
    ("command", "table", "key"),
    [("serve", "serve.tls", "warn_before"), ("gateway", "gateway", "certificate_warn_before")],
)
def test_a_certificate_that_ends_soon_is_a_warning_of_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, table: str, key: str
) -> None:
    monkeypatch.chdir(tmp_path)
    now, day = time.time(), 86400.0
    write_certificate(tmp_path, period=(now - 80 * day, now + 10 * day))
    (tmp_path / "a.zone").write_text(zone_text(1))

    def checked(extra: str = "") -> Result:
        text = f'[{table}]\nlisten = ["127.0.0.1:0"]\ncertificate = "tls.crt"\nkey = "tls.key"\n{extra}'
        (tmp_path / "maptr.toml").write_text(f'{text}[[zone]]\nname = "a.test"\nfile = "a.zone"\n')
        return run(command, "--config", "maptr.toml", "--check-config", *as_json, code=0)

    as_json: tuple[str, ...] = ()
    assert "maptr: the certificate of tls.crt expires at " in checked().stderr
    assert "certificate" not in checked(f'{key} = "9d"\n').stderr
    as_json = ("--json",)
    (warning,) = json.loads(checked().stdout)["warnings"]
    assert ", in 10 days; renew it, and load it by " in warning
    assert json.loads(checked(f'{key} = "9d"\n').stdout)["warnings"] == []
