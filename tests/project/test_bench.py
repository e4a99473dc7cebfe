"""Smoke tests of ``scripts/bench``, and its loads, zones and report."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.benchmark import model, results
from tests.support.peers import require

ROOT = Path(__file__).resolve().parents[2]
needs_compiler = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None, reason="Linux with cc"
)


@pytest.mark.interop
@pytest.mark.parametrize(
    ("subject", "shown"),
    [
        pytest.param("server", ["2,000 names, mix (maptr: at most 1.15 x nsd)", "memory in MB"], marks=needs_compiler),
        pytest.param("trials", ["maptr     1 reloads:", "ordinary queries a second"], marks=needs_compiler),
        ("start", ["100 names", "maptr"]),
        ("client", ["== against maptr", "discover_many / dnspython", "event loop occupied by one response"]),
        ("cache", ["hit in memory", "hit on disk", "natab of 100 NAANs"]),
        ("scale", ["records of the zone", "maptr zone build, CPU s", "IXFR of one change", "queries/s"]),
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
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


def test_a_result_is_kept_as_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with results.reported("start", save=True, folder=tmp_path / "results"):
        sys.stdout.write("a figure\n")
    printed = capsys.readouterr().out
    assert printed.endswith("a figure\n")
    assert (tmp_path / "results" / "start.txt").read_text() == printed
