"""Smoke tests of ``scripts/bench``, and its loads, zones and report."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import dns.message
import dns.zone
import pytest

from maptr.answer.respond import respond
from maptr.zone.snapshot import Snapshot
from scripts.benchmark import report
from scripts.benchmark.loads import DELEGATIONS, LOADS, ORIGIN, Load, ark_zone, delegating_zone, malformed
from scripts.benchmark.servers import ANSWER
from tests.support.peers import find

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.interop
@pytest.mark.skipif(not sys.platform.startswith("linux") or shutil.which("cc") is None, reason="Linux with cc")
def test_server_bench(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scripts.bench_server", "--smoke", "-o", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "server.json").read_text())
    assert figures["schema"] == "maptr-bench/1"
    assert "2,000 names, mix" in figures["rounds"]
    for servers in figures["rounds"].values():
        assert servers["maptr"][0]["rate"] > 0
    if find("dnssec-signzone"):
        assert "flood of NXDOMAIN, NSEC3" in figures["rounds"]
    assert (tmp_path / "server.svg").read_text().startswith("<svg")
    assert "maptr" in (tmp_path / "server.txt").read_text()


@pytest.mark.interop
def test_client_bench() -> None:
    command = [sys.executable, "-m", "scripts.bench_client", "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    title, *rows = done.stdout.splitlines()
    assert title.startswith("== against maptr, 1 rounds")
    assert sum(" / " in row for row in rows) >= 6
    held = [row for row in rows if row.startswith("event loop held by one reply")]
    assert len(held) == 3
    assert all(float(row.split(" ms", 1)[0].split()[-1]) > 0 for row in held)


def test_the_long_echo_adds_the_average_size_of_an_answer() -> None:
    load = LOADS[0]
    snapshot = Snapshot.from_zones([dns.zone.from_text(ark_zone(load.names), ORIGIN, relativize=False)])
    queries = [*load.queries()][:2000]
    more = sum(len(respond(query, snapshot) or b"") - len(query) for query in queries) / len(queries)
    assert round(more) == ANSWER


def test_start_bench() -> None:
    options = ("--rounds", "1", "--names", "100", "--servers", "maptr")
    command = [sys.executable, "-m", "scripts.bench_start", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    title, _, *rows = done.stdout.splitlines()
    assert title == "100 names"
    assert [row.split()[0] for row in rows] == ["maptr"]


@pytest.mark.parametrize("load", [load for load in LOADS if load.alike], ids=lambda load: load.name)
def test_queries_are_well_formed_except_malformed_ones(load: Load) -> None:
    rng = random.Random(0)
    for _ in range(50):
        wire = load.make(rng, 10)
        if load.make is malformed:
            with pytest.raises(dns.exception.DNSException):
                dns.message.from_wire(wire)
        else:
            assert len(dns.message.from_wire(wire).question) == 1


def test_generated_zones_can_be_loaded() -> None:
    assert len(dns.zone.from_text(ark_zone(10), ORIGIN).nodes) == 12
    assert len(dns.zone.from_text(delegating_zone(3), DELEGATIONS).nodes) == 8


def test_report_computes_ratios_per_round() -> None:
    rounds = {
        "load": {
            "maptr": [report.Round(2.0, 1.0, 0, 1, 1), report.Round(4.0, 1.0, 0, 1, 1)],
            "nsd": [report.Round(4.0, 1.0, 0, 1, 1), report.Round(4.0, 1.0, 0, 1, 1)],
            "bind": [],
        }
    }
    assert report.ratio(rounds["load"], "maptr") == "0.75 [0.50-1.00]"
    assert "no figures" in report.table(rounds)
    assert report.chart(rounds).count("<rect") == 3
