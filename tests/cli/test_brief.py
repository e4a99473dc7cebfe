"""The short way into ``maptr url`` and ``maptr discover`` says and does what click's way does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from maptr.cli import asking, brief, main
from maptr.cli.discover import discover, url
from tests.client.test_drivers import serving

ZONES = Path(__file__).resolve().parents[2] / "zones"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("url", "ark:12345/x54"), 0),
        (("url", "https://n2t.net/ark:/12345/x5-4?info", "ark:12027/x1"), 0),
        (("discover", "ark:12345/x54"), 0),
        (("ark:12345/x54",), 0),
        (("url", "ark:00000/x1", "ark:12027/x1"), 1),
        (("ark:00000/x1",), 1),
    ],
)
def test_both_ways_say_the_same(words: tuple[str, ...], code: int, at: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert brief.answer([*words, at], {}) == code
    ours = capsys.readouterr()
    theirs = CliRunner().invoke(main, [*words, at])
    assert (ours.out, ours.err, code) == (theirs.stdout, theirs.stderr, theirs.exit_code)


def test_the_server_may_come_first(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert brief.answer([at, "ark:12345/x54"], {}) == 0
    assert capsys.readouterr().out == CliRunner().invoke(main, ["discover", at, "ark:12345/x54"]).stdout


def test_silence_is_9(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(asking, "DEFAULTS", asking.Options(timeout=0.2))
    with serving(lambda query: None) as port:
        assert brief.answer(["url", "ark:12345/x1", f"@127.0.0.1#{port}"], {}) == 9
    assert capsys.readouterr().out == "\n"


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("url",),
        ("url", "nonsense"),
        ("url", "@127.0.0.1"),
        ("url", "ark:12345/x1", "@127.0.0.1#x"),
        ("url", "ark:12345/x1", "@no-such-host.invalid"),
        ("url", "--json", "ark:12345/x1"),
        ("url", "ark:12345/x1", "--help"),
        ("--version",),
        ("zone", "check"),
        ("nonsense",),
    ],
)
def test_what_is_odd_is_left_to_click_before_anything_is_said(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert brief.answer(words, {}) is None
    assert capsys.readouterr() == ("", "")


def test_completion_is_left_to_click() -> None:
    assert brief.answer(["url", "ark:12345/x1", "@127.0.0.1"], {brief.COMPLETION: "bash_complete"}) is None


def test_a_bug_is_10(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("what nobody foresaw")

    monkeypatch.setattr(asking, "discover", broken)
    with pytest.raises(SystemExit, match="10"):
        brief.answer(["url", "ark:12345/x1", "@127.0.0.1"], {})
    assert "what nobody foresaw" in capsys.readouterr().err


@pytest.mark.parametrize("command", [url, discover])
def test_click_has_the_same_defaults(command: click.Command) -> None:
    given = command.make_context("maptr", ["ark:12345/x54"]).params
    assert {name: given[name] for name in asking.Options._fields} == asking.DEFAULTS._asdict()


def start(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-m", "maptr", *words], text=True, timeout=60, check=False, **options
    )


def test_a_reader_who_has_read_enough_is_no_error(at: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = start("url", "ark:12345/x54", at, stdout=pipe, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_closed_stream_is_no_bug(closed: str, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, closed, None)  # as Python starts with >&- in the shell
    assert brief.answer(["url", "ark:00000/x1", at], {}) == 1


def test_the_short_way_loads_no_click(at: str) -> None:
    code = (
        f"import sys, json; sys.argv = ['maptr', 'url', 'ark:12345/x54', 'ark:12345/x54', {at!r}]\n"
        "try:\n    import maptr.__main__\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "heavy = ('click', 'dataclasses', 'inspect', 'dns.message', 'maptr.naptr.regexp')\n"
        "print(json.dumps([module for module in heavy if module in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    url, _, loaded = done.stdout.splitlines()
    assert url == "https://ark.example.org/ark:/12345/x54"
    assert json.loads(loaded) == ["maptr.naptr.regexp"]  # the sample's 12345 has a u record


def test_ctrl_c_while_it_starts_is_told_in_a_word() -> None:
    code = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'click': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "sys.argv = ['maptr', 'up', '--offline']\n"
        "import maptr.__main__"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "maptr: interrupted: nothing was changed; run it again\n"
