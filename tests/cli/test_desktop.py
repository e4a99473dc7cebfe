"""``maptr open --register`` and ``--unregister``: the user's desktop entry for links that start with ``ark:``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.support.peers import find, require
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("home")

VALIDATE = find("desktop-file-validate")
ODD = ["plain", "with a blank", 'quote"s', "dollar$HOME", "back\\slash", "100%u", "tick`s", "semi;colon", "ünïcode"]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH without the tools of a desktop."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def script(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def command_of(entry: Path) -> list[str]:
    """Read Exec as the specification says: as a string, in words, which may be in quotes, and with %% for %."""
    (line,) = (line for line in entry.read_text("utf-8").splitlines() if line.startswith("Exec="))
    value = line.removeprefix("Exec=").replace("\\\\", "\\")
    words = (quoted or plain for quoted, plain in re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', value))
    unquoted = (re.sub(r'\\(["`$\\])', r"\1", word) for word in words)
    return [word if word == "%u" else word.replace("%%", "%") for word in unquoted]


@pytest.mark.parametrize("folder", ODD)
def test_the_entry_runs_maptr_where_it_is_installed(
    folder: str, home: Path, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = script(home / folder / "maptr")
    monkeypatch.setattr(sys, "argv", [str(program)])
    entry = home / "data" / "applications" / "maptr.desktop"
    assert run("open", "--register", code=0).stderr == f"maptr: {entry} opens links that start with ark:\n"
    assert command_of(entry) == [str(program), "open", "%u"]
    if VALIDATE:
        assert subprocess.run([VALIDATE, entry], capture_output=True, text=True, timeout=600).stdout == ""
    assert run("open", "--register", code=0)
    assert run("open", "--unregister", code=0).stderr == f"maptr: removed {entry}\n"
    assert not entry.exists()
    assert run("open", "--unregister", code=0).stderr == "maptr: it was not registered\n"


def test_a_zipapp_and_a_module_are_run_by_python(home: Path, bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "maptr.pyz").touch()
    entry = home / "data" / "applications" / "maptr.desktop"
    for argument, words in ((home / "maptr.pyz", [str(home / "maptr.pyz")]), (home / "__main__.py", ["-m", "maptr"])):
        monkeypatch.setattr(sys, "argv", [str(argument)])
        run("open", "--register", code=0)
        assert command_of(entry) == [sys.executable, *words, "open", "%u"]


def test_unregister_leaves_the_other_defaults(home: Path, bare: Path) -> None:
    run("open", "--register", code=0)
    lists = home / "config" / "mimeapps.list", home / "data" / "applications" / "mimeapps.list"
    for path in lists:
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            "[Default Applications]\ntext/html=firefox.desktop;\nx-scheme-handler/ark=maptr.desktop\n\n"
            "[Added Associations]\nx-scheme-handler/ark=other.desktop;maptr.desktop;not-maptr.desktop;\n"
            "x-scheme-handler/arkive=maptr.desktop;\n"
        )
    run("open", "--unregister", code=0, said="maptr: removed ")
    for path in lists:
        assert path.read_text() == (
            "[Default Applications]\ntext/html=firefox.desktop;\n\n"
            "[Added Associations]\nx-scheme-handler/ark=other.desktop;not-maptr.desktop;\n"
            "x-scheme-handler/arkive=maptr.desktop;\n"
        )


def test_a_tool_of_the_desktop_that_fails_and_a_folder_that_cannot_be_written_to(home: Path, bare: Path) -> None:
    script(bare / "xdg-mime", "#!/bin/sh\necho no such desktop >&2\nexit 3\n")
    run("open", "--register", code=8, said="maptr: xdg-mime failed: no such desktop")
    (home / "data" / "applications" / "maptr.desktop").unlink()
    (home / "data" / "applications").rmdir()
    (home / "data" / "applications").touch()
    run("open", "--register", code=8, said="applications")
    run("open", "--unregister", code=8, said="applications")


@pytest.mark.parametrize("words", [[], ["--register", "--unregister"], ["--register", "ark:12345/x1"]])
def test_bad_usage(words: list[str]) -> None:
    run("open", *words, code=2)


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_other_systems_have_no_desktop_entries(system: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maptr.cli.desktop.sys.platform", system)
    for option in ("--register", "--unregister"):
        run("open", option, code=8, said="this system has no desktop entries; faq.md")
    assert not (home / "data").exists()


@pytest.mark.interop
def test_xdg_open_opens_an_ark_after_register(tmp_path: Path) -> None:
    require("xdg-open")
    browser = script(tmp_path / "browser", f'#!/bin/sh\nprintf %s "$1" >"{tmp_path}/opened"\n')
    maptr = script(tmp_path / "maptr", f'#!/bin/sh\nexec "{sys.executable}" -m maptr "$@"\n')
    own = dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(tmp_path))
    own |= {"BROWSER": str(browser), "DISPLAY": ":0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run_ = "import sys; sys.argv[0] = sys.argv.pop(1); from maptr.cli.start import run; run()"
    for command in (
        [sys.executable, "-c", run_, str(maptr), "open", "--register"],
        ["xdg-open", "ark:/12148/btv1b8449691v"],
    ):
        subprocess.run(command, env={**os.environ, **own}, check=True, timeout=600)
    until((tmp_path / "opened").exists, "the browser is called")
    assert (tmp_path / "opened").read_text() == "https://ark.bnf.fr/ark:/12148/btv1b8449691v"
