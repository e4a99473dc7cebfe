"""``maptr table check``, ``convert`` and ``export``: output, messages and exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
from functools import partial
from pathlib import Path

import pytest

from maptr import registry
from maptr.registry import write_json
from maptr.registry.table import Entry, Nma, Table, Who
from tests.support import command_line

HERE = Path(__file__).resolve().parents[1]
ZONES = HERE.parent / "zones"
REAL = Path(os.environ.get("MAPTR_REAL_DATA") or HERE.parent.parent / "shared" / "data")
CLEAN = '{"data": [{"what": "12345", "where": "https://ark.nlm.nih.gov"}]}'
MIXED = """{"data": [{"what": "12345", "where": "https://ark.nlm.nih.gov"}, {"what": "aeiou"}, {"what": 7},
 {"what": "12346", "where": "https://localhost"}, {"what": "12347", "where": "https://ARK.nlm.nih.gov"}]}"""


run = partial(command_line.run, "table")


def test_check_of_a_registry_without_findings() -> None:
    result = run("check", "-", text=CLEAN, code=0, out="")
    assert result.stderr == "1 NAAN, 0 shoulders: 0 errors, 0 warnings\n"


def test_check_lists_every_bad_record_and_every_finding() -> None:
    result = run("check", "-", text=MIXED, code=1)
    assert result.stdout.splitlines() == [
        "<stdin>: error: aeiou: bad-record: the NAAN is not betanumeric",
        "<stdin>: error: data[2]: bad-record: what is not text",
        "<stdin>: error: 12346: no-public-host: localhost is not a public host: https://localhost/ark:/${content}",
        "<stdin>: warning: 12347: upper-case-host: the host is in upper case: https://ARK.nlm.nih.gov",
    ]
    assert result.stderr == "3 NAANs, 0 shoulders: 3 errors, 1 warning\n"
    document = json.loads(run("check", "--json", "-", text=MIXED, code=1).stdout)
    assert [bad["record"] for bad in document["bad_records"]] == ["aeiou", "data[2]"]
    assert [finding["code"] for finding in document["findings"]] == ["no-public-host", "upper-case-host"]


def test_check_names_damaged_natab_lines_by_number() -> None:
    result = run("check", "-", text="12345:\n  ark.nlm.nih.gov A\nLibrary of Congress\n1l346: x\n", code=1)
    assert result.stdout.splitlines() == [
        "<stdin>:3: error: -: bad-record: neither comment, entry nor NMA: Library of Congress",
        "<stdin>:4: error: 1l346: bad-record: the NAAN is not betanumeric",
    ]


def test_warnings_fail_only_when_strict() -> None:
    assert run("check", ZONES / "sample.json").exit_code == 0
    assert run("check", "--strict", ZONES / "sample.json").exit_code == 1


@pytest.mark.parametrize("content", [b"", b"<html>", b'{"data": [', b"\xff", b"\x1f\x8b", b"hello"])
def test_content_that_is_not_a_registry_gives_exit_code_8(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "registry"
    file.write_bytes(content)
    for command in (["check"], ["convert", "--to", "json"]):
        result = run(*command, file, code=8, out="")
        assert result.stderr.startswith(f"maptr: {file}:1: ")


def test_control_characters_are_escaped() -> None:
    text = json.dumps({"data": [{"what": "12345", "where": "https://a\x1b[31m\n.example.org"}, {"what": "\x1b[2J"}]})
    result = run("check", "-", text=text)
    assert "\x1b" not in result.output
    assert len(result.stdout.splitlines()) == 2


def test_the_scheme_of_a_natab_is_an_option() -> None:
    natab = "12345:\n  a.example.org:80\n  b.example.org\n"
    for options, scheme in (((), "https"), (("--scheme", "http"), "http")):
        table = registry.read(run("convert", "-", "--to", "json", *options, text=natab).stdout)
        targets = [f"{start}.example.org/ark:/${{content}}" for start in ("http://a", f"{scheme}://b")]
        assert [nma.target for nma in table["12345"].nmas] == targets


def test_convert_writes_nothing_when_a_record_is_bad(tmp_path: Path) -> None:
    file = tmp_path / "out"
    result = run("convert", "-", "--to", "json", "-o", file, text=MIXED, code=1)
    assert not file.exists()
    assert result.stderr.splitlines() == [
        "maptr: <stdin>: record aeiou: the NAAN is not betanumeric",
        "maptr: <stdin>: record data[2]: what is not text",
    ]


@pytest.mark.real_data
def test_check_the_real_registry() -> None:
    path = REAL / "naan_records.json"
    if not path.exists():
        pytest.skip(f"no real registry at {path} (set MAPTR_REAL_DATA)")
    result = run("check", path, code=1)
    errors = {line.split(": ")[2] for line in result.stdout.splitlines() if ": error: " in line}
    assert errors == {"83025", "15050", "85163", "56775"}
    assert result.stderr == "1432 NAANs, 368 shoulders: 4 errors, 39 warnings\n"


def test_only_what_convert_wrote_is_replaced(tmp_path: Path) -> None:
    out, source = tmp_path / "out", tmp_path / "in"
    source.write_text(CLEAN)
    states = []
    for _ in range(2):
        assert run("convert", source, "--to", "natab", "-o", out).exit_code == 0
        states.append((out.stat().st_ino, out.stat().st_mtime_ns))
    assert states[0] == states[1], "a file that stays the same is not touched"
    out.write_text(out.read_text() + "# mine\n")
    result = run("convert", source, "--to", "natab", "-o", out)
    assert (result.exit_code, "# mine" in out.read_text()) == (2, True)
    assert run("convert", source, "--to", "natab", "-o", out, "--overwrite").exit_code == 0
    result = run("convert", source, "--to", "json", "-o", source, "--overwrite")
    assert (result.exit_code, "input and output are the same file" in result.stderr) == (2, True)


def test_export_reads_back_and_lists_what_is_lost(tmp_path: Path) -> None:
    source = ZONES / "sample.json"
    table = registry.read(source.read_bytes())
    assert registry.read(run("export", source, "--format", "json", code=0).stdout) == table
    natab = run("export", source, "--format", "natab", code=0)
    assert natab.stdout == (ZONES / "sample.natab").read_text("utf-8")
    assert "lost 12345/x6: the whole record: natab has no shoulders" in natab.stderr.splitlines()
    rows = list(csv.DictReader(io.StringIO(run("export", source, "--format", "csv", code=0).stdout)))
    assert [row["target"] for row in rows] == [nma.target for entry in table.values() for nma in entry.nmas]
    for form in ("nginx", "apache", "caddy"):
        out = tmp_path / form
        for _ in range(2):  # what maptr wrote is replaced
            result = run("export", source, "--format", form, "-o", out, code=0, out="")
        assert result.stderr == "lost 12025: the NMA https://foobar.example.net:8080/ark:/${content}\n"
        assert run("export", source, "--format", form).stdout == out.read_text()
        out.write_text(out.read_text() + "# mine\n")
        assert "# mine" not in run("export", source, "--format", form, "-o", out, code=2).output
        run("export", source, "--format", form, "-o", out, "--overwrite", code=0)
        assert "# mine" not in out.read_text()


def test_exports_of_servers_carry_own_objects(tmp_path: Path) -> None:
    own, table = tmp_path / "own.csv", tmp_path / "naans"
    table.write_text("12345: x\n  a.example.org\n")
    own.write_text("ark,url,status,what\nark:12345/k1,https://o.example.org/?id=1,,A thing\nark:12345/k2,,410,\n")
    done = run("export", str(table), "--format", "nginx", "--redirects", str(own))
    assert "return 410;" in done.stdout
    assert "https://o.example.org/?id=1" in done.stdout
    lost = "inflections and query strings, which are not added to its URL; its description"
    assert done.stderr == f"lost 12345/k1: {lost}\n"
    own.write_text("ark,url,what\n" + "".join(f"ark:12345/k{n},https://o.example.org/{n},A\n" for n in range(8)))
    words = ("export", str(table), "--format", "nginx", "--redirects", str(own))
    assert run(*words).stderr == "lost 12345/k0, 12345/k1, 12345/k2, 12345/k3, 12345/k4 and 3 more: its description\n"
    assert run(*words, "--quiet").stderr == ""
    done = run("export", str(table), "--format", "csv", "--redirects", str(own), code=2)
    assert "--redirects is for nginx, apache, caddy, not for csv" in done.stderr


@pytest.mark.usefixtures("home")
def test_no_text_of_a_registry_forges_a_line(tmp_path: Path) -> None:
    evil = "A\nFORGED line\r\x1b[31m\u202e\u2028x"
    entries = [
        Entry(naan, nmas=(Nma("https://h.example/${content}", evil),), who=Who(evil, acronym=evil))
        for naan in ("12345", "54321")
    ]
    file = tmp_path / "naans.json"
    file.write_text(write_json(Table(entries)))
    for command in (["naan", "12345"], ["naan", "forged"], ["table", "check"], ["url", "ark:12345/x"]):
        named = [str(file)] if command[0] == "table" else ["--table", str(file)]
        more = ["--policy", "natab-only"] if command[0] == "url" else []
        result = command_line.run(*command, *named, *more)
        for line in (result.stdout + result.stderr).split("\n"):
            assert not line.startswith("FORGED")
            assert line.replace("\t", "").isprintable()
