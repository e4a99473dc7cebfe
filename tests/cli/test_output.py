"""What every command shares: files replaced whole, and exit codes for what no command foresaw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from maptr.cli import group, output
from maptr.dnssec.keys import Algorithm, Role, State, add_key


@pytest.mark.parametrize("raised", [ValueError("a bug"), KeyError("a bug")])
def test_a_bug_is_exit_10_and_never_none_found(raised: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def broken() -> None:
        raise raised

    monkeypatch.setattr(group.MainGroup, "get_command", lambda *_: broken)
    result = CliRunner().invoke(group.main, ["table"])
    assert result.exit_code == output.EXIT_INTERNAL
    assert "a bug" in result.stderr
    assert result.stderr.endswith("maptr: internal error, please report the lines above\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [["table", "check", "registry.json"], ["--help"], ["serve", "--help"], ["--version"]])
def test_a_full_disk_below_stdout_is_exit_8(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "registry.json").write_text('{"data": [{"what": "aeiou"}]}')
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "maptr", *words],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (8, "maptr: No space left on device\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words", [["bulk", "-", "--table", "natab", "--policy", "natab-only"], ["table", "check", "table"]]
)
def test_a_reader_who_has_read_enough_is_no_fault(words: list[str], unbuffered: str, tmp_path: Path) -> None:
    """As of ``maptr bulk | head -1``: nothing is said, by Python at its end neither."""
    (tmp_path / "natab").write_text("12345:\n    h.example.org  ACR\n")
    (tmp_path / "table").write_text("naa:\nwhat: 12345\nwhere: https://h.example.org\n" + "rubbish\n" * 9)
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "maptr", *words],
        cwd=tmp_path,
        input="ark:12345/x1\n" * 20000,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["table", "check", "table"], 1, "https://\\u56fd.example"),
        (["table", "check", "table", "--json"], 1, "https://\\u56fd.example"),
        (
            ["table", "convert", "table", "--to", "natab"],
            8,
            "standard output: its encoding iso8859-1 lacks some characters: give -o FILE",
        ),
        (["bulk", "arks"], 1, "H\\u014dsei"),
        (["bulk", "arks", "--json"], 1, "H\\u014dsei"),
    ],
)
def test_a_locale_that_has_not_all_characters(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    """What people read is escaped; JSON is the same document; what programs read is not changed without a word."""
    (tmp_path / "table").write_text("naa:\nwho: Hōsei国 (=) H\nwhat: 12345\nwhere: https://国.example\n", "utf-8")
    (tmp_path / "arks").write_text("Hōsei\n", "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "maptr", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "iso8859-1"},
        capture_output=True,
        timeout=60,
    )
    text = (done.stdout + done.stderr).decode("ascii")
    assert "Traceback" not in text
    assert (done.returncode, said in text) == (code, True), text
    if "--json" in words or "--json" in words:
        json.loads(done.stdout)


BULK = ["bulk", "-", "--table", "natab", "--policy", "natab-only"]


def run_without(stream: str, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """maptr, one of whose streams whoever started it closed (``<&-``, say), in a folder with a natab."""
    (folder / "natab").write_text("12345:\n    h.example.org  ACR\n")
    command = ["sh", "-c", f'exec "$@" {stream}', "sh", sys.executable, "-m", "maptr", *words]
    return subprocess.run(
        command, cwd=folder, input="ark:12345/x1\n", capture_output=True, text=True, timeout=60, check=False
    )


def test_rows_for_a_stdout_that_is_closed_are_an_error(tmp_path: Path) -> None:
    done = run_without(">&-", BULK, tmp_path)
    assert (done.returncode, done.stderr) == (8, "maptr: standard output is closed\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (BULK, "maptr: standard input is closed\n"),
        (["table", "check", "-"], "maptr: <stdin>: standard input is closed\n"),
        (["zone", "check", "-"], "maptr: <stdin>: standard input is closed\n"),
        (["zone", "sign", "-", "keys"], "maptr: <stdin>: standard input is closed\n"),
    ],
)
def test_a_stdin_that_is_closed_is_a_file_that_cannot_be_read(words: list[str], said: str, tmp_path: Path) -> None:
    add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, State.ACTIVE)
    done = run_without("<&-", words, tmp_path)
    assert (done.returncode, done.stderr) == (8, said)


def test_a_stderr_that_is_closed_changes_no_answer(tmp_path: Path) -> None:
    done = run_without("2>&-", BULK, tmp_path)
    assert (done.returncode, done.stdout.count("https://h.example.org/ark:/12345/x1")) == (0, 1)


def test_a_stderr_that_is_closed_signs_all_the_same(tmp_path: Path) -> None:
    add_key(tmp_path / "keys", Role.CSK, Algorithm.ED25519, State.ACTIVE)
    (tmp_path / "zone").write_text("a.test. 60 IN SOA ns1 host 1 2 3 4 5\na.test. 60 IN NS ns.b.test.\n")
    done = run_without("2>&-", ["zone", "sign", "zone", "keys"], tmp_path)
    assert (done.returncode, done.stdout.count(" IN RRSIG ")) == (0, 7)
