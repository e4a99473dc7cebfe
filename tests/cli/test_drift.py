"""``maptr table drift`` on a real server."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from maptr import registry
from maptr.zone.build import build
from tests.support import command_line
from tests.support.peers import Maptr
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


def test_html_without_its_packages_is_refused_before_any_query(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
