"""The library and the commands that look up ARKs need four pure packages, and no module that Windows lacks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomli

from maptr.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = str(ROOT / "zones" / "sample.json")
COMMAND = "import sys\nsys.argv = ['maptr', *{words!r}]\nfrom maptr.cli.start import run\nrun()"
# What serves needs users, signals and sockets of POSIX.
OF_SERVERS = ("serve", "gateway", "redirects", "stats", "up", "reload", "control", "status")
FROM_SAMPLE = ("--table", SAMPLE, "--policy", "natab-only")


def without_posix(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that lacks what Windows lacks."""
    program = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nimport tests.support.no_posix\n{code}"
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=600, cwd=folder
    )


def test_pip_install_maptr_brings_four_packages() -> None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert [re.split(r"[^\w-]", text)[0] for text in project["dependencies"]] == [
        "dnspython",
        "dnslib",
        "tomli",
        "click",
    ]
    assert [re.split(r"[^\w-]", text)[0] for text in project["optional-dependencies"]["server"]] == ["siphashc"]


def test_an_installation_registers_nothing() -> None:
    wheel = tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {"/".join(path.split("/")[:2]) for path in wheel["shared-data"].values()} == {"share/doc", "share/man"}


@pytest.mark.parametrize("module", ["maptr", "maptr.registry", "maptr.testing", "maptr.plugins", "maptr.pytest_plugin"])
def test_the_library_is_imported_without_posix_modules(module: str, tmp_path: Path) -> None:
    names = f"import {module}\nfor name in getattr({module}, '__all__', ()): getattr({module}, name)"
    assert without_posix(names, tmp_path).stderr == ""


def test_the_library_discovers_without_posix_modules(tmp_path: Path) -> None:
    code = (
        "import maptr\n"
        f"with maptr.Client(table={SAMPLE!r}, policy='natab-only', cache='cache.sqlite') as client:\n"
        "    print(client.discover('ark:12345/x1').url())\n"
        "print(len([*maptr.find_arks('see ark:12345/x1.')]))"
    )
    done = without_posix(code, tmp_path)
    assert (done.stdout.split("\n"), done.stderr) == (["https://ark.example.org/ark:/12345/x1", "1", ""], "")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["url", "ark:12345/x1", *FROM_SAMPLE, "-q"], 0, "https://ark.example.org/ark:/12345/x1"),
        (["discover", "--trace", "ark:12345/x1", *FROM_SAMPLE], 0, "https://ark.example.org/ark:/12345/x1"),
        (["bulk", "arks.txt", *FROM_SAMPLE], 0, "https://ark.example.org/ark:/12345/x1"),
        (["ark", "ark:12345/x1"], 0, "12345"),
        (["naan", "bnf", "@127.0.0.1#9", "--timeout", "0.1"], 0, "12148"),
        (["table"], 0, "built-in"),
        (["table", "check", SAMPLE], 0, "0 errors"),
        (["table", "pull", SAMPLE, "--table", "naans.json", "--apply", "--force"], 0, "naans.json"),
        (["zone", "build", SAMPLE, "-o", "ark.arpa.zone", "--ns", "ns1=192.0.2.1"], 0, "rules"),
        (["config", "bind"], 0, "ark.arpa"),
        (["completion", "bash"], 0, "_maptr"),
        (["foo"], 2, "No such command 'foo'"),
        ([], 2, "Usage: maptr"),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else None,
)
def test_commands_run_without_posix_modules(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "arks.txt").write_text("ark:12345/x1\n")
    done = without_posix(COMMAND.format(words=words), tmp_path)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done
    assert "Traceback" not in done.stderr


def test_every_other_command_has_its_help_and_servers_say_what_they_lack(tmp_path: Path) -> None:
    code = f"""
import click
from click.testing import CliRunner
from maptr.cli.group import main

def every(command, words):
    yield words
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from every(command.get_command(click.Context(command), name), [*words, name])

for words in every(main, []):
    done = CliRunner().invoke(main, [*words, "--help"])
    if words[:1] and words[0] in {OF_SERVERS!r}:
        assert done.exit_code == 2, words
        assert f"maptr: maptr {{words[0]}} runs on Linux, macOS and BSD only: Python has no" in done.stderr, words
    else:
        assert (done.exit_code, done.stderr) == (0, ""), words
"""
    assert without_posix(code, tmp_path).stderr == ""
    assert {*OF_SERVERS} < {*COMMANDS}
