"""``maptr naan``, ``maptr open ARK`` and ``maptr table`` without a command."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

import pytest

from maptr.registry.followed_file import OFFICIAL, pull_file
from tests.support.command_line import run

pytestmark = pytest.mark.usefixtures("home")

DEAD = "127.0.0.1#9"


def asked(*words: str, code: int = 0) -> list[str]:
    return run("naan", *words, f"@{DEAD}", "--timeout", "0.2", code=code).stdout.splitlines()


@pytest.mark.parametrize("words", [["12148"], ["BnF"], ["ark:/12148/btv1b8449691v"], ["library of france"]])
def test_a_naan_is_found_by_number_acronym_ark_and_name(words: list[str]) -> None:
    lines = asked(*words)
    assert lines[:2] == ["NAAN       12148", "who        National Library of France (BNF)"]
    assert "ARKs go to https://ark.bnf.fr/ark:/${content}" in lines
    assert "table      built-in of 2026-07-14" in lines
    assert lines[-1].startswith("DNS        12148.ark.arpa. NAPTR: ")


def test_several_are_listed_and_none_is_exit_1() -> None:
    assert asked("epinal")[:-1] == asked("ÉPINAL")[:-1] != []
    lines = asked("national library of")
    assert "12148\tBNF\tNational Library of France" in lines
    assert len(lines) > 5
    many = run("naan", "university", "--json", code=0, said="more matches: give more words")
    assert len(many.stdout.splitlines()) == 50
    assert run("naan", "no such organisation", code=1).stderr == (
        "maptr: no such organisation: the built-in table has no such NAAN or organisation"
        "; maptr table pull --apply gets today's registry\n"
    )


def test_what_dns_says(at: str) -> None:
    lines = run("naan", "12025", at, code=0).stdout.splitlines()
    assert lines[-1].startswith("DNS        https://ark.nlm.example.org/ark:/12025")
    document = json.loads(run("naan", "12025", "--json", at, code=0).stdout)
    assert document["entry"]["who"]["acronym"] == "USNLM"
    assert document["dns"]["candidates"][0]["host"] == "ark.nlm.example.org"


def test_a_naan_with_shoulders_and_a_table_of_ones_own(sample: Path) -> None:
    lines = asked("12345", "--table", str(sample))
    assert any(line.startswith("shoulder   x6: https://x6.example.net") for line in lines)


def test_table_shows_every_place_and_the_one_in_use(home: Path) -> None:
    lines = run("table", code=0).stdout.splitlines()
    assert [line[:12].strip("* ") for line in lines] == ["pulled", "system", "system", "built-in"]
    assert lines[-1].startswith("* built-in ")
    assert ": 2232 records of 2026-07-14, " in lines[-1]
    pulled = home / "data" / "maptr" / "naans"
    pulled.parent.mkdir(parents=True)
    pulled.write_text("12345: x\n  h.example.org\n")
    tables = json.loads(run("table", "--json", code=0).stdout)["tables"]
    assert [(one["kind"], one["records"]) for one in tables if one["used"]] == [("pulled", 1)]


def test_the_date_of_the_data_is_shown_beside_that_of_their_confirmation(home: Path, tmp_path: Path) -> None:
    """Data of 2024 of the official registry, pulled today, are not today's."""
    record = {"what": "12345", "target": {"url": "https://h.nlm.nih.gov/${content}"}}
    for source, used in (("https://mirror.example/", "pulled"), (OFFICIAL, "builtin")):
        content = json.dumps({"metadata": {"updated": "2024-11-07T16:48:32+00:00"}, "data": [record]})
        pulled = home / "data" / "maptr" / "naans"
        pulled.parent.mkdir(parents=True, exist_ok=True)
        pulled.write_text(content)
        note = {"source": source, "sha256": hashlib.sha256(content.encode()).hexdigest(), "checked": time.time()}
        pull_file(pulled).write_text(json.dumps(note))
        done = run("table", code=0)
        (line,) = (line for line in done.stdout.splitlines() if "pulled" in line)
        assert ": 1 record of 2024-11-07, confirmed 20" in line
        assert line.startswith("* ") is (used == "pulled")
        assert ("its data are newer than those of" in done.stderr) is (used == "builtin")
        tables = json.loads(run("table", "--json", code=0).stdout)["tables"]
        assert [one["kind"] for one in tables if one["used"]] == [used]
    found = json.loads(run("naan", "12345", f"@{DEAD}", "--timeout", "0.2", "--json", "--table", str(pulled)).stdout)
    assert time.strftime("%Y-%m-%d", time.gmtime(found["date"])) == "2024-11-07"
    assert found["fetched"] > time.time() - 600
    lines = asked("12345", "--table", str(pulled))
    assert any(line.startswith("table      given of 2024-11-07, confirmed 20") for line in lines)
    assert "table      built-in of 2026-07-14" in asked("12148", "--table", "builtin")
    url = run("url", "ark:12345/x", "--table", str(pulled), "--policy", "natab-only", code=0)
    assert "; its data are of 2024-11-07" in url.stderr


def test_open_opens_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def browse(url: str) -> bool:
        opened.append(url)
        return len(opened) == 1

    monkeypatch.setattr("webbrowser.open", browse)
    monkeypatch.setenv("MAPTR_CACHE_POLICY", "natab-only")
    run("open", "ark:12148/btv1b8449691v", code=0)
    assert opened == ["https://ark.bnf.fr/ark:/12148/btv1b8449691v"]
    run("open", "ark:99998/x", code=1)
    assert len(opened) == 1
    assert "there is no browser: set BROWSER" in run("open", "ark:12148/btv1b8449691v", code=8).stderr
