"""The pages, modules and tests named by scripts exist, and CONTRIBUTING.md has every script."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.benchmark import model, patterns, results
from tests.project.test_readme import commands
from tests.support.peers import require
from tests.support.soak.clients import Answer
from tests.support.soak.timeline import Event, Timeline
from tests.support.soak.truth import CANARY_ARK, Truth, Verdict, with_canary

ROOT = Path(__file__).resolve().parents[2]
FIRST_HOUR = runpy.run_path(str(ROOT / "scripts" / "first-hour"))
SCRIPTS = sorted(path.name for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix)


@pytest.mark.parametrize("role", FIRST_HOUR["ROLES"])
def test_each_role_has_pages_with_commands(role: str) -> None:
    """``test_readme`` runs the commands."""
    found = [commands((ROOT / page).read_text("utf-8")) for page in FIRST_HOUR["pages"](role)]
    assert found[0][0].text == "scripts/demo"
    assert all(found), "each page has commands"


def test_the_modules_that_scripts_quality_mutates_and_their_tests_exist() -> None:
    for module, tests in runpy.run_path(str(ROOT / "scripts" / "quality"))["CORE"].items():
        assert (ROOT / "maptr" / f"{module}.py").is_file()
        assert all((ROOT / test).exists() for test in tests)


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_is_documented(script: str) -> None:
    assert re.search(rf"[`/]{script}\b", (ROOT / "CONTRIBUTING.md").read_text("utf-8"))


# ---- scripts/bench


needs_compiler = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None, reason="Linux with cc"
)


@pytest.mark.interop
@pytest.mark.parametrize(
    ("subject", "shown"),
    [
        pytest.param("server", ["2,000 names, mix (maptr: at most 1.15 x nsd)", "memory in MB"], marks=needs_compiler),
        pytest.param("trials", ["maptr     1 reloads:", "ordinary queries a second"], marks=needs_compiler),
        ("start", ["10 zones of 3 names", "100 names, tabs and comments", "maptr", "restarted"]),
        ("client", ["== against maptr", "discover_many / dnspython", "event loop occupied by one response"]),
        ("cache", ["hit in memory", "hit on disk", "a new ARK of a kept NAAN, URL rules", "natab of 100 NAANs"]),
        ("scale", ["records of the zone", "maptr zone build, CPU s", "IXFR of one change", "queries/s"]),
        ("reload", ["reload of 100 names", "in 50 ms, %", "maptr"]),
        ("gateway", ["first redirect after", "the same answers by maptr", "at half load", "memory in MB"]),
    ],
)
def test_each_benchmark_runs(subject: str, shown: list[str]) -> None:
    if subject == "gateway":
        require("wrk")
        pytest.importorskip(
            "fastapi", reason="scripts/bench gateway: FastAPI is not installed: scripts/bootstrap bench"
        )
    command = [sys.executable, "-m", f"scripts.benchmark.{subject}", "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 0 or subject == "trials", done.stdout + done.stderr  # a busy machine loses queries
    assert "Traceback" not in done.stderr
    assert all(text in done.stdout for text in ("machine: ", *shown)), done.stdout


def test_the_model_counts_every_name_and_all_lookups() -> None:
    for naans in (1, 2, 1_100, 1_000_000):
        groups = list(model.shares(naans))
        assert sum(count for count, _ in groups) == naans
        assert sum(count * share for count, share in groups) == pytest.approx(1)


def test_a_cache_asks_once_for_each_ttl_and_pause() -> None:
    one = model.Traffic("one name", 1, 0.5)  # a lookup every two seconds
    assert model.misses(one, 8, caches=1) == pytest.approx(1 / (8 + 2))
    assert model.cached(one, 8, caches=1) == pytest.approx(8 / (8 + 2))
    assert model.misses(one, 0, caches=10) == pytest.approx(0.5), "without caching, all lookups"
    many = model.Traffic("many names", 1_000, 100.0)
    assert model.misses(many, 60, caches=1) < model.misses(many, 60, caches=10) < model.misses(many, 6, caches=10) < 100


def test_a_pattern_that_takes_quadratic_time_is_found() -> None:
    step, _ = patterns.slow_step("quadratic", re.compile(r"\s*\n").search, "blanks", " ".__mul__)
    assert step is not None
    assert step.whole > patterns.FACTOR * step.half
    assert patterns.verdict([patterns.Measured("quadratic", 1, 0.0, "blanks", [step])]) == 1


def test_a_pattern_whose_shortest_text_takes_long_is_found() -> None:
    assert patterns.slow_step("cubic", re.compile(r"\s*\s*\n").search, "blanks", " ".__mul__)[0] is not None


def test_a_pattern_that_takes_exponential_time_is_stopped() -> None:
    assert patterns.slow_step("exponential", re.compile("(?:a+)+b").match, "letters", "a".__mul__)[0] is not None


def test_a_pattern_that_takes_linear_time_is_not_found() -> None:
    linear = patterns.Reader(re.compile(r"\S+").findall)
    assert not patterns.measure("linear", linear).slow
    assert patterns.verdict([patterns.Measured("linear", 1, 0.0, "", [])]) == 0


def test_one_reader_is_measured_by_the_command() -> None:
    command = [sys.executable, "-m", "scripts.benchmark.patterns", "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 readers, " in done.stdout
    assert done.stdout.endswith("all take linear time\n")


def test_a_result_is_kept_as_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with results.reported("start", save=True, folder=tmp_path / "results"):
        sys.stdout.write("a figure\n")
    printed = capsys.readouterr().out
    assert printed.endswith("a figure\n")
    assert (tmp_path / "results" / "start.txt").read_text() == printed


# ---- scripts/bootstrap


BOOTSTRAP = Path(__file__).resolve().parents[2] / "scripts" / "bootstrap"

# Creates a virtual environment by copying itself, installs nothing, and prints its name.
INTERPRETER = """\
#!/bin/sh
case "$1 $2" in
"-m venv") mkdir -p .venv/bin && cp "{path}" .venv/bin/python ;;
"-c "*print*) echo "{path}" ;;
"--version ") echo "{name}" ;;
esac
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    shutil.copy(BOOTSTRAP, tmp_path / "scripts" / "bootstrap")
    (tmp_path / "pyproject.toml").write_text("")
    for name in ("old", "new"):
        path = tmp_path / name
        path.write_text(INTERPRETER.format(path=path, name=name))
        path.chmod(0o755)
    return tmp_path


def bootstrap(repository: Path, interpreter: str | None, extra: str = "dev") -> str:
    """Run the script and return its standard error."""
    environment = {name: value for name, value in os.environ.items() if name != "MAPTR_PYTHON"}
    if interpreter is not None:
        environment["MAPTR_PYTHON"] = str(repository / interpreter)
    command = [str(repository / "scripts" / "bootstrap"), extra]
    return subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=True).stderr


def test_the_environment_is_recreated_only_for_another_interpreter(repository: Path) -> None:
    assert "making .venv with old" in bootstrap(repository, "old")
    assert bootstrap(repository, "old") == ""
    assert "making .venv with new" in bootstrap(repository, "new")
    assert bootstrap(repository, "new") == ""
    assert bootstrap(repository, None) == ""


def test_other_extras_are_installed_unless_dev_is_installed(repository: Path) -> None:
    assert "extras: metrics\n" in bootstrap(repository, "old", "metrics")
    assert "extras: gateway metrics\n" in bootstrap(repository, None, "gateway")
    assert "extras: dev gateway metrics\n" in bootstrap(repository, None)
    assert bootstrap(repository, None, "doh") == ""
    assert "extras: bench dev gateway metrics\n" in bootstrap(repository, None, "bench")


def test_a_command_that_is_not_python_is_an_error(repository: Path) -> None:
    bootstrap(repository, "old")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        bootstrap(repository, "none")
    assert "which is not Python 3.11 or later" in refused.value.stderr
    assert bootstrap(repository, None) == ""


# ---- scripts/soak


CHANGED = 2000.0  # the time of the second version
OLD, NEW = (f"https://v{number}.soak.example.org/ark:/99990/x1" for number in (0, 1))


@pytest.fixture
def truth(sample: Path) -> Truth:
    found = Truth()
    for version, now in enumerate((0.0, CHANGED)):
        found.advance(with_canary(json.loads(sample.read_bytes()), version), now)
    return found


@pytest.mark.parametrize(
    ("answer", "oldest", "verdict"),
    [
        (Answer(NEW), 1, Verdict.RIGHT),
        (Answer(OLD), 0, Verdict.STALE),
        (Answer(OLD), 1, Verdict.WRONG),
        (Answer(OLD, source="memory", stale=True, age=60), 1, Verdict.STALE),
        (Answer(OLD, source="natab", age=20), 1, Verdict.STALE),
        (Answer(OLD, source="natab", age=2), 1, Verdict.WRONG),
        (Answer(OLD, source="natab"), 0, Verdict.WRONG),
        (Answer("https://evil.example/"), 0, Verdict.WRONG),
        (Answer(None), 0, Verdict.WRONG),
        (Answer(None, silent=True), 0, Verdict.SILENT),
    ],
)
def test_an_older_answer_is_stale_only_if_dns_or_the_response_says_so(
    truth: Truth, answer: Answer, oldest: int, verdict: Verdict
) -> None:
    assert truth.judge(CANARY_ARK, answer, oldest, CHANGED + 10) is verdict


@pytest.mark.parametrize(
    ("seen", "oldest"),
    [
        ([], 1),
        ([("a", 1), ("b", 1), ("b", None)], 1),
        ([("a", 0), ("a", 1), ("b", 1)], 0),
    ],
)
def test_dns_has_the_versions_since_the_oldest_that_a_secondary_served(
    truth: Truth, seen: list[tuple[str, int | None]], oldest: int
) -> None:
    for server, version in seen:
        truth.saw(server, version)
    assert truth.oldest_in_dns() == oldest


def test_a_version_that_nobody_saw_between_two_others_is_stale_not_wrong(sample: Path, truth: Truth) -> None:
    truth.advance(with_canary(json.loads(sample.read_bytes()), 2), CHANGED + 1)
    for version in (0, 2):
        truth.saw("a", version)
    assert truth.judge(CANARY_ARK, Answer(NEW), truth.oldest_in_dns(), CHANGED + 10) is Verdict.STALE


def test_the_timeline_is_one_svg_file() -> None:
    timeline = Timeline(("primary",), ("direct",))
    timeline.saw("primary", 0, 0, 2026112400)
    timeline.saw("primary", None, 1, None)
    timeline.events.append(Event("primary", "killed & <restarted>", 0.0, 0.5))
    timeline.rounds.append((0.5, "direct", Counter({Verdict.RIGHT: 2, Verdict.STALE: 1})))
    drawn = "".join(ElementTree.fromstring(timeline.svg("a soak")).itertext())
    assert "killed & <restarted>" in drawn
    assert "serial 2026112400" in drawn
    assert "direct: 1 stale" in drawn
