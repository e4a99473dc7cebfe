"""``maptr table drift`` on a real server, and ``maptr table probe``, whose results it shows."""

from __future__ import annotations

import json
import sqlite3
import time
from functools import partial
from pathlib import Path

import pytest

from maptr import registry
from maptr.cache.disk import Disk
from maptr.errors import time_text
from maptr.reconcile.probes import ProbeLog
from maptr.registry import write_json
from maptr.registry.table import Entry, Nma, Table
from maptr.zone.build import build
from tests.support import command_line
from tests.support.caching import Clock
from tests.support.certificates import write_certificate
from tests.support.http_server import pages
from tests.support.peers import Maptr
from tests.support.ports import free_port
from tests.support.scripted import serving, zone


def run(*arguments: object) -> tuple[int, str, str]:
    done = command_line.run("table", "drift", *arguments)
    return done.exit_code, done.stdout, done.stderr


def test_drift_of_the_sample_with_its_own_zone_and_another(sample: Path, tmp_path: Path) -> None:
    path = tmp_path / "ark.arpa.zone"
    table = registry.read(sample.read_bytes())
    path.write_text(build(table, 1).text)
    with Maptr({"ark.arpa.": path}) as server:
        at = ("--table", sample, f"@127.0.0.1#{server.port}")
        code, out, err = run(*at)
        assert (code, out) == (0, "")
        assert f"{len(table)} records: " in err
        assert all(line.startswith(("same ", "lossy ")) for line in run(*at, "--all")[1].splitlines())
        other = tmp_path / "other.json"
        other.write_text(sample.read_text().replace("ark.nlm.example.org", "elsewhere.example.org"))
        history = tmp_path / "history.sqlite"
        run(*at, "--history", history)
        changed = ("--table", other, f"@127.0.0.1#{server.port}")
        code, out, _ = run(*changed)
        assert (code, out.split(":")[0]) == (1, "differs 12025")
        assert run(*changed, "--history", history)[1].startswith("stale 12025: DNS says what the table said")
        assert run(*changed, "99999")[0] in (0, 1)
        code, out, err = run(*at, "12345", "13579")  # a mistyped NAAN is on neither side
        assert (code, out) == (0, "")
        assert "neither side has anything for 13579\n" in err
        assert "for 12345" not in err
        document = json.loads(run(*changed, "12025", "12025/x1", "--json")[1])
        assert document["counts"] == {"differs": 1}
        assert document["records"][0]["dns"][0].startswith("https://ark.nlm.example.org/")
        assert document["records"][0]["table"][0].startswith("https://elsewhere.example.org/")
        page = tmp_path / "page.html"
        assert run(*changed, "--html", page)[0] == 1
        assert 'href="#r-12025"' in page.read_text()


def test_html_without_its_packages_is_refused(sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.cli.drift.find_spec", lambda name: None)
    code, out, err = run("--table", sample, "@192.0.2.1", "--html", tmp_path / "page.html")
    assert (code, out) == (2, "")
    assert "maptr[gateway]" in err


def test_an_unusable_history_is_reported_before_any_query(sample: Path, tmp_path: Path) -> None:
    missing = tmp_path / "nowhere" / "history.sqlite"
    other = sqlite3.connect(tmp_path / "other.sqlite")
    other.execute("CREATE TABLE theirs (id)")
    other.close()
    reasons = {missing: "there is no folder", tmp_path / "other.sqlite": "holds something other"}
    for path, reason in reasons.items():
        code, out, err = run("--table", sample, "@192.0.2.1", "--history", path)
        assert (code, out) == (8, "")
        assert f"{path}: {reason}" in err


def test_exit_codes_if_dns_does_not_answer(sample: Path) -> None:
    with serving(lambda query: None) as port:
        code, out, _ = run("--table", sample, f"@127.0.0.1#{port}", "12025", "--timeout", "0.3")
        assert (code, out.split(":")[0]) == (9, "unknown 12025")
    with serving(zone({})) as port:
        assert run("--table", sample, f"@127.0.0.1#{port}", "12025")[0] == 1


# ---- maptr table probe


table_command = partial(command_line.run, "table")


def write_registry(path: Path, *ports: int, scheme: str = "http") -> str:
    bases = [f"{scheme}://127.0.0.1:{port}" for port in ports]
    tested = {"test_identifier": "ark:/10000/b6"}
    entries = (
        Entry(str(naan), nmas=(Nma(f"{base}/ark:/${{content}}", base),), extra=tested)
        for naan, base in enumerate(bases, 10000)
    )
    path.write_text(write_json(Table(entries)))
    return str(path)


def test_results_are_kept_and_servers_are_probed_once_an_hour(tmp_path: Path) -> None:
    dead, config = free_port(), tmp_path / "maptr.toml"
    config.write_text('[gateway]\ncontact = "arks@example.org"\n')
    with pages(lambda path: (404, {}, b"")) as server:
        file, history = write_registry(tmp_path / "naans", server.port, dead), str(tmp_path / "h.sqlite")
        options = ("probe", "--table", file, "--history", history, "--config", str(config))
        result = table_command(*options)
        assert (result.exit_code, result.stdout.count("not asked http://127.0.0.1:")) == (0, 2), result.output
        assert server.asked == []
        result = table_command(*options, "--allow-private", code=1)
        assert result.stdout.startswith(f"failed http://127.0.0.1:{dead}: ")
        assert "2 servers: 1 answered, 1 failed, 0 not asked, 0 probed within the hour" in result.stderr
        table_command(*options, "--allow-private", code=0, out="", said="2 probed within the hour")
        assert server.asked == ["/ark:/10000/b6"]
    one = table_command(*options, "--allow-private", "--again", "10001", "--json")
    assert [(probe["outcome"], probe["fault"]) for probe in json.loads(one.stdout)["probes"]] == [
        ("failed", "unreachable")
    ]
    drift = table_command(
        "drift", "--table", file, "--history", history, "@127.0.0.1#9", "--html", str(tmp_path / "page")
    )
    assert f"failed http://127.0.0.1:{dead}: 2 in a row" in drift.stderr, drift.output
    document = json.loads(
        table_command("drift", "--table", file, "--history", history, "@127.0.0.1#9", "--json").stdout
    )
    assert [(one["place"], one["failures"]) for one in document["silent"]] == [(f"http://127.0.0.1:{dead}", 2)]
    assert "Mapping authorities that did not answer" in (tmp_path / "page").read_text()


def test_a_history_that_cannot_be_written_is_named_before_a_server_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")  # as a read-only home
    with pages(lambda path: (404, {}, b"")) as server:
        file = write_registry(tmp_path / "naans", server.port)
        said = "maptr: /proc/none/maptr/cache.sqlite: cannot be written"
        table_command("probe", "--table", file, "--allow-private", code=8, out="", said=said)
    assert server.asked == []


def test_a_network_failure_is_not_kept(tmp_path: Path) -> None:
    history = tmp_path / "h.sqlite"
    file = write_registry(tmp_path / "naans", free_port(), free_port())
    result = table_command("probe", "--table", file, "--history", str(history), "--allow-private", code=9)
    assert "perhaps because of this machine's network; nothing was kept" in result.stderr
    assert ProbeLog(Disk(history, wall=Clock())).all() == {}


def test_a_certificate_that_ends_soon_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_certificate(tmp_path, hours=5 * 24)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.crt"))
    with pages(lambda path: (405, {}, b""), certificate=tmp_path) as server:
        file = write_registry(tmp_path / "naans", server.port, scheme="https")
        options = ("probe", "--table", file, "--history", str(tmp_path / "h.sqlite"), "--allow-private", "--json")
        result = table_command(*options)
    ends = json.loads(result.stdout)["probes"][0]["certificate_end"]
    assert 4 * 86_400 < ends - time.time() < 6 * 86_400
    assert f"certificate of https://127.0.0.1:{server.port}: until {time_text(ends)}" in result.stderr
    assert result.exit_code == 0


def test_choose_reachable_tries_servers_last_that_failed_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both accept connections, so that only the probes tell them apart."""
    monkeypatch.setattr("maptr.reconcile.probes.PAUSE", 0.0)
    file = tmp_path / "naans"
    with pages(lambda path: (503, {}, b"")) as sick, pages(lambda path: (200, {}, b"")) as well:
        nmas = tuple(Nma(f"{one.url}/ark:/${{content}}") for one in (sick, well))
        file.write_text(write_json(Table([Entry("12345", nmas=nmas)])))
        options = ("--table", str(file), "--allow-private")
        chosen = []
        for _ in range(4):
            look_up = ("url", "ark:12345/x1", "--choose", "reachable", "--policy", "natab-only", *options)
            chosen.append(command_line.run(*look_up).stdout.strip())
            table_command("probe", "--again", *options)
    assert chosen == [f"{sick.url}/ark:/12345/x1"] * 3 + [f"{well.url}/ark:/12345/x1"]
