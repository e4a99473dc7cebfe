"""Extensions: the package in docs/plugins.md, built, installed and used; and faulty packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from maptr import Client, ConfigError, MaptrError, entry_points, registry
from maptr.config import load
from maptr.errors import PluginError, TableError
from maptr.nma.reachable import named

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "plugins.md").read_text("utf-8")
TABS = "#tabs\n12345\thttps://a.example.org/${content}\n12345/x6\thttps://b.example.org/${suffix}\n"
Install = Callable[..., None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build and install the package of the page. Return the folder that ``sys.path`` needs."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for name, language in (("pyproject.toml", "toml"), ("maptr_example.py", "python")):
        found = re.search(rf"`{name}`:\n\n```{language}\n(.*?)```", PAGE, re.DOTALL)
        assert found is not None
        (source / name).write_text(found[1], "utf-8")
    words = ("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", target, source)
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True, timeout=600)
    return target


@pytest.fixture
def example(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(folder)
    return folder


def maptr(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process that has the package."""
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    command = [sys.executable, "-m", "maptr", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, "PYTHONPATH": path})


def test_reader_and_export(example: Path, tmp_path: Path) -> None:
    source = tmp_path / "naans.txt"
    source.write_text(TABS)
    done = maptr(example, "table", "export", str(source), "--format", "hosts")
    assert (done.returncode, done.stdout, done.stderr) == (0, "12345\n", "lost 12345/x6: shoulder\n")
    source.write_text("#tabs\n12345\thttps://a.example.org/${content}\n???\thttps://b.example.org/\n")
    done = maptr(example, "table", "check", str(source))
    assert done.returncode == 1
    assert f"{source}:3" in done.stdout + done.stderr


def test_chooser_and_policy(example: Path, tmp_path: Path) -> None:
    source = tmp_path / "naans.txt"
    source.write_text("12345: x\n  a.example.org\n  b.example.org\n")
    words = ("url", "ark:12345/x6", "--table", str(source), "--policy", "natab-only")
    assert "//a." in maptr(example, *words).stdout
    assert "//b." in maptr(example, *words, "--choose", "last").stdout
    assert maptr(example, *words[:-1], "office-hours", "@127.0.0.1#9", "--timeout", "1").stdout.startswith("https://a.")
    found = Client("127.0.0.1#9", table=str(source), policy="office-hours", lifetime=0.5).discover("ark:12345/x6")  # type: ignore[arg-type]
    assert found.url() == "https://a.example.org/ark:/12345/x6"
    assert named("last")(found) == found.best[-1]


def test_names_are_listed_and_read_in_a_configuration(example: Path, tmp_path: Path) -> None:
    assert entry_points.names(entry_points.CHOOSERS) == ["last"]
    assert "own|last]" in "".join(maptr(example, "url", "--help").stdout.split())
    done = maptr(example, "url", "ark:12345/x6", "--choose", "lost")
    assert done.returncode == 2
    assert "'last'" in done.stderr
    path = tmp_path / "maptr.toml"
    path.write_text('[client]\nchoose = "last"\n[cache]\npolicy = "office-hours"\n')
    config = load(path)
    assert (config.client.choose, config.cache.policy) == ("last", "office-hours")
    path.write_text('[client]\nchoose = "lost"\n')
    with pytest.raises(ConfigError, match=r"maptr.toml:2.*own, last"):
        load(path)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    monkeypatch.syspath_prepend(tmp_path)

    def install(package: str, group: str, name: str, code: str) -> None:
        (tmp_path / f"{package}.py").write_text(code)
        info = tmp_path / f"{package}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {package}:made\n")

    return install


@pytest.mark.parametrize(
    ("group", "code", "reason"),
    [
        (
            entry_points.CHOOSERS,
            "1 / 0",
            r"'x' \(maptr.choosers\) of the package faulty cannot be loaded: ZeroDivisionError",
        ),
        (entry_points.CHOOSERS, "made = 1", r"'x' \(maptr.choosers\) of the package faulty is 1, not a function"),
        (entry_points.CHOOSERS, "class made: pass", "not a function"),
        (entry_points.POLICIES, "made = print", "not a policy"),
        (entry_points.EXPORTS, "other = 1", "cannot be loaded: AttributeError"),
    ],
)
def test_a_faulty_package(install: Install, group: str, code: str, reason: str) -> None:
    install("faulty", group, "x", code)
    sys.modules.pop("faulty", None)
    with pytest.raises(PluginError, match=reason):
        entry_points.load(group, "x")


def test_two_packages_with_one_name(install: Install) -> None:
    for package in ("one", "two"):
        install(package, entry_points.CHOOSERS, "x", "made = max")
    with pytest.raises(MaptrError, match=r"in the packages (one and two|two and one): uninstall one of them"):
        named("x")


def test_a_built_in_name_is_not_replaced(install: Install) -> None:
    install("replacing", entry_points.CHOOSERS, "first", "made = max")
    chosen: object = named("first")
    assert chosen is not max


def test_a_reader_that_fails_is_named_only_for_an_unknown_format(install: Install) -> None:
    install("broken", entry_points.READERS, "bad", "def made(text, builder): raise KeyError('x')")
    assert len(registry.read("12345: x\n  a.example.org\n")) == 1
    with pytest.raises(TableError, match="the reader 'bad' failed: KeyError: 'x'"):
        registry.read("something else")
    with pytest.raises(ConfigError, match="chooser: 'x' is not one of first, random, reachable, own"):
        named("x")
