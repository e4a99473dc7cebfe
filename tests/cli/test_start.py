"""The entry point: ``maptr url`` and ``maptr discover`` give the same results with and without click."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipapp
from contextlib import suppress
from pathlib import Path

import click
import pytest

import maptr
from maptr.cli import lookup, start
from maptr.cli.discover import discover, url
from maptr.client import Client
from tests.support.command_line import MAPTR, run, run_process
from tests.support.waiting import until

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
def test_same_output_as_click(words: tuple[str, ...], code: int, at: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = [at, *words] if words[0].startswith("ark:") else [*words, at]
    assert start.answer(line, {}) == code
    direct = capsys.readouterr()
    by_click = run(*line)
    assert (direct.out, direct.err, code) == (by_click.stdout, by_click.stderr, by_click.exit_code)


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
        ("serve", "--zone", "a=b"),
        ("nonsense",),
    ],
)
def test_other_command_lines_are_left_to_click(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert start.answer(words, {}) is None
    assert start.answer(["url", "ark:12345/x1", "@127.0.0.1"], {start.COMPLETION: "bash_complete"}) is None
    assert capsys.readouterr() == ("", "")


def test_an_internal_error_is_exit_code_10(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Client, "discover", broken)
    monkeypatch.setattr(sys, "argv", ["maptr", "url", "ark:12345/x1", "@127.0.0.1"])
    with pytest.raises(SystemExit, match="10"):
        start.run()
    assert "a bug" in capsys.readouterr().err


@pytest.mark.parametrize("command", [url, discover])
def test_click_has_the_same_defaults(command: click.Command) -> None:
    given = command.make_context("maptr", ["ark:12345/x54"]).params
    shared = {*lookup.LookupOptions._fields, *lookup.CLIENT_OPTIONS}
    options = lookup.LookupOptions.of({name: value for name, value in given.items() if name in shared})
    assert options._replace(client={}) == lookup.DEFAULTS._replace(client={})
    assert {**lookup.CLIENT_OPTIONS, **options.client} == lookup.CLIENT_OPTIONS


def test_a_pipe_closed_by_its_reader_is_not_reported(at: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = run_process("url", "ark:12345/x54", at, stdout=pipe, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(("closed", "code"), [(">&-", 8), ("2>&-", 1)])
def test_only_a_closed_stdout_is_an_error(closed: str, code: int, at: str) -> None:
    words = [*MAPTR, "url", "ark:00000/x1", at]
    assert subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *words], timeout=600).returncode == code


def run_code(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600)


def test_url_without_options_does_not_import_click(at: str) -> None:
    code = (
        f"import sys, json; sys.argv = ['maptr', 'url', 'ark:12345/x54', 'ark:12345/x54', {at!r}]\n"
        "before = {*sys.modules}  # those of the measurement of coverage\n"
        "try:\n    import maptr.__main__\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "heavy = ('click', 'dataclasses', 'inspect', 'dns.message')\n"
        "print(json.dumps([module for module in heavy if module in {*sys.modules} - before]))"
    )
    done = run_code(code)
    assert done.returncode == 0, done.stderr
    first, _, loaded = done.stdout.splitlines()
    assert first == "https://ark.example.org/ark:/12345/x54"
    assert json.loads(loaded) == []


def test_ctrl_c_during_the_import_of_click() -> None:
    code = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'click': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "sys.argv = ['maptr', 'up', '--offline']\n"
        "import maptr.__main__"
    )
    done = run_code(code)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "maptr: interrupted: nothing was changed; run it again\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--version", 0, "maptr"),
        ("zone check ZONES/ark.arpa.zone", 0, "0 errors"),
        ("url --table ZONES/sample.natab --policy natab-only ark:12345/x1", 0, "https://ark.example.org"),
        ("serve --zone ark.arpa=ZONES/ark.arpa.zone --check-config", 0, "zone ark.arpa."),
    ],
)
def test_a_zipapp_needs_no_compiled_code(words: str, code: int, said: str, tmp_path: Path) -> None:
    app = tmp_path / "app"
    shutil.copytree(Path(maptr.__file__).parent, app / "maptr", ignore=shutil.ignore_patterns("__pycache__"))
    zipapp.create_archive(app, tmp_path / "maptr.pyz", main="maptr.cli.start:run")
    # The pure packages that a zipapp would hold are found beside it, and siphashc is not.
    (tmp_path / "siphashc.py").write_text("raise ImportError\n")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "maptr.pyz"), *words.replace("ZONES", str(ZONES)).split()],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done
    assert "Traceback" not in done.stderr


def opened_to_write(pipe: Path) -> int | None:
    """The descriptor of a pipe; None as long as no process reads it."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


@pytest.mark.parametrize(("ignored", "code"), [(False, 130), (True, 1)])
def test_sigterm_ends_a_command_as_ctrl_c_does(ignored: bool, code: int, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "in")
    words = [*MAPTR, "zone", "check", str(tmp_path / "in")]
    shell = ["sh", "-c", "trap '' TERM; exec \"$@\"", "sh"] if ignored else []
    with subprocess.Popen([*shell, *words], stderr=subprocess.PIPE, text=True) as process:
        writer = until(lambda: opened_to_write(tmp_path / "in"), "a command that reads its file")
        assert writer
        for _ in range(12):  # Python misses a signal that arrives just before a system call blocks
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(0 if ignored else 1)
                break
        os.close(writer)  # the end of the input, at which any other command ends
        said = process.communicate(timeout=60)[1]
    assert (process.returncode, "interrupted: nothing was changed" in said) == (code, not ignored)
