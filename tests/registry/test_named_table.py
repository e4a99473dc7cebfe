"""The named tables "auto" and "builtin", and an installation without the built-in one, in every function and
command."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import maptr
from maptr import Client, ConfigError, DiscoveryFailed, discover, discover_async, discover_many
from maptr.cli import lookup
from maptr.config import parse
from maptr.registry import builtin
from tests.support.command_line import run
from tests.support.registries import natab

ARK = "ark:12148/btv1b8449691v"
URL = "https://ark.bnf.fr/ark:/12148/btv1b8449691v"
DEAD = "127.0.0.1#9"


@pytest.mark.parametrize("table", ["auto", "builtin"])
def test_a_named_table_answers_after_the_nameservers(table: str) -> None:
    found = discover(ARK, nameservers=[DEAD], table=table)
    assert (found.url(), found.table, found.states and found.states[0].name) == (URL, "builtin", "UNKNOWN")
    assert asyncio.run(discover_async(ARK, nameservers=[DEAD], table=table)).url() == URL
    assert [one.url() for one in discover_many([ARK], nameservers=[DEAD], table=table)] == [URL]


@pytest.mark.parametrize("policy", ["dns-first", "natab-first", "natab-only"])
def test_without_a_table_nameservers_answer_alone(policy: maptr.Policy) -> None:
    with pytest.raises(DiscoveryFailed):
        Client([DEAD], policy=policy).discover(ARK, lifetime=1.0)
    with pytest.raises(DiscoveryFailed):
        discover(ARK, nameservers=[DEAD], table=None, lifetime=1.0)


def test_builtin_is_a_name_and_the_path_of_a_file_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("builtin").write_bytes(natab(12148))
    named, file = (Client(table=table, policy="natab-only").discover(ARK) for table in ("builtin", "./builtin"))
    assert (named.url(), named.table, named.fetched, named.table_date) == (URL, "builtin", *2 * [builtin.date()])
    assert (file.url(), file.table) == ("https://h.example.org/ark:/12148/btv1b8449691v", "given")
    assert Client(table=Path("builtin"), policy="natab-only").discover(ARK).table == "given"
    only = ("--policy", "natab-only")
    assert run("url", ARK, "--table", "builtin", *only).stdout == f"{URL}\n"
    assert run("url", ARK, "--table", "./builtin", *only).stdout == "https://h.example.org/ark:/12148/btv1b8449691v\n"
    assert run("naan", "13030", "--table", "builtin", f"@{DEAD}", "--timeout", "0.2").exit_code == 0
    assert run("naan", "13030", "--table", "./builtin", f"@{DEAD}", "--timeout", "0.2").exit_code == 1
    assert run("table", "pull", "./builtin", "--table", "builtin", "--apply").exit_code == 2
    for value, expected in (("builtin", URL), ("./builtin", "https://h.example.org/ark:/12148/btv1b8449691v")):
        Path("maptr.toml").write_text(f'[cache]\nnatab = "{value}"\npath = ""\n')
        assert run("url", ARK, *only).stdout == f"{expected}\n"
        config = parse(f'[cache]\nnatab = "{value}"\n', filename="maptr.toml", directory=tmp_path)
        assert lookup.found_table(config).current().kind == ("builtin" if value == "builtin" else "configured")
    with pytest.raises(ConfigError, match="cannot be written"):
        parse('[table]\nfile = "builtin"\n', filename="maptr.toml", directory=tmp_path)


DOORS = """
import asyncio, sys
import maptr
from maptr.cli.start import run
words = sys.argv[1:]
if words:
    sys.argv = ["maptr", *words]
    sys.exit(run())
for look_up in (
    lambda: maptr.discover("ark:12148/x", table="builtin"),
    lambda: asyncio.run(maptr.discover_async("ark:12148/x", table="builtin")),
    lambda: list(maptr.discover_many(["ark:12148/x"], table="builtin")),
    lambda: maptr.Client(policy="natab-only").discover("ark:12148/x"),
):
    try:
        look_up()
    except maptr.ConfigError as error:
        assert "reinstall maptr" in str(error), error
    else:
        sys.exit("no error")
"""


def damaged(folder: Path, how: str) -> Path:
    """Make a copy of the package whose built-in registry is missing or damaged."""
    shutil.copytree(Path(maptr.__file__).parent, folder / "maptr", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "maptr" / "registry" / "builtin.json"
    content = file.read_bytes()
    file.unlink()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    made = {"empty": b"", "cut": content[:middle], "one bit": flipped, "head": b"[]\n" + content}
    if how != "missing":
        file.write_bytes(made[how])
    return folder


def in_copy(folder: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", DOORS, *words],
        cwd=folder,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def missing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return damaged(tmp_path_factory.mktemp("missing"), "missing")


@pytest.mark.parametrize("how", ["missing", "empty", "cut", "one bit", "head"])
def test_a_damaged_built_in_registry_is_an_error_of_every_look_up(how: str, tmp_path: Path) -> None:
    done = in_copy(damaged(tmp_path, how), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "words",
    [
        ("url", "ark:12148/x", "--policy", "natab-only"),
        ("discover", "--json", "ark:12148/x", "--policy", "natab-only"),
        ("naan", "12148"),
        ("table",),
        ("table", "check"),
        ("zone", "build"),
        ("gateway", "--listen", "127.0.0.1:0", "--policy", "natab-only"),
        ("up", "--offline"),
        ("serve", "--zone", "ark.arpa", "--listen", "127.0.0.1:0", "--check-config"),
    ],
)
def test_an_installation_without_it_says_what_to_do(missing: Path, words: tuple[str, ...], tmp_path: Path) -> None:
    done = in_copy(missing, tmp_path, *words)
    assert "Traceback" not in done.stderr
    assert "reinstall maptr" in done.stderr
    assert done.returncode in (1, 2, 8)


def test_an_installation_without_it_uses_a_pulled_table(missing: Path, tmp_path: Path) -> None:
    pulled = tmp_path / ".local" / "share" / "maptr" / "naans"
    pulled.parent.mkdir(parents=True)
    pulled.write_bytes(natab(12148))
    done = in_copy(missing, tmp_path, "url", "ark:12148/x", "--policy", "natab-only")
    assert (done.returncode, done.stdout) == (0, "https://h.example.org/ark:/12148/x\n")
    shown = in_copy(missing, tmp_path, "table")
    assert (shown.returncode, "reinstall maptr" in shown.stdout) == (0, True)
