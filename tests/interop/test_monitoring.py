"""docs/monitoring: alert rules with promtool, each query in a real Prometheus over a real maptr, the Nagios check."""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import urllib.parse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from maptr import daemon
from tests.support.command_line import ENDING, MAPTR
from tests.support.http_gateway import get
from tests.support.peers import find, free_port, output, path_with_maptr, require
from tests.support.server_process import Site
from tests.support.waiting import until

pytestmark = pytest.mark.interop
BOX = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
EXPRESSIONS = [
    *re.findall(r"^        expr: (.*)$", (BOX / "alerts.yml").read_text("utf-8"), re.MULTILINE),
    *(
        target["expr"]
        for panel in json.loads((BOX / "dashboard.json").read_text("utf-8"))["panels"]
        for target in panel["targets"]
    ),
]


def test_each_alert_fires_and_clears() -> None:
    names = re.findall(r"- alert: (\w+)", (BOX / "alerts.yml").read_text("utf-8"))
    tested = re.findall(r"alertname: (\w+)", (BOX / "alerts.test.yml").read_text("utf-8"))
    assert sorted(tested) == sorted([*names, *names]), "one test that it fires, one that it clears"
    assert "SUCCESS" in output("promtool", "check", "rules", "alerts.yml", cwd=BOX)
    assert "SUCCESS" in output("promtool", "test", "rules", "alerts.test.yml", cwd=BOX)


@pytest.fixture
def prometheus(site: Site, tmp_path: Path) -> Iterator[int]:
    """The port of a Prometheus that has scraped a server and a gateway."""
    require("prometheus")
    metrics, admin, port = free_port(), free_port(), free_port()
    site.configure(serve=f'metrics = "127.0.0.1:{metrics}"', extra='notify = ["127.0.0.1:9"]\n')
    with site.config.open("a") as file:
        file.write(f'[gateway]\nlisten = ["127.0.0.1:0"]\nadmin_listen = "127.0.0.1:{admin}"\n')
    site.start()
    gateway = subprocess.Popen(
        [*MAPTR, "gateway", "--config", str(site.config), "--policy", "natab-only"],
        stderr=subprocess.DEVNULL,
    )
    targets = ", ".join(f"'127.0.0.1:{each}'" for each in (metrics, admin))
    (tmp_path / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 1s}}\nrule_files: ['{BOX}/alerts.yml']\n"
        f"scrape_configs:\n  - job_name: maptr\n    static_configs: [{{targets: [{targets}]}}]\n"
    )
    running = subprocess.Popen(
        [
            *ENDING,
            str(find("prometheus")),
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    try:
        until(lambda: len(asked(port, "maptr_zone_serial")) == 2, "the server is scraped")
        until(lambda: asked(port, "maptr_gateway_ready"), "the gateway is scraped")
        yield port
    finally:
        for process in (running, gateway):
            process.terminate()
            process.wait(30)


def asked(port: int, expression: str) -> list[Any]:
    """The result of a query; empty if Prometheus does not answer yet."""
    try:
        reply = get(port, f"/api/v1/query?query={urllib.parse.quote(expression, safe='')}")
    except (OSError, EOFError):
        return []
    if reply.status == 503:  # it starts
        return []
    document = json.loads(reply.body)
    assert document["status"] == "success", document
    found: list[Any] = document["data"]["result"]
    return found


def test_every_query_is_understood_and_names_metrics_that_there_are(prometheus: int) -> None:
    assert len(EXPRESSIONS) > 20
    for expression in EXPRESSIONS:
        asked(prometheus, expression)
    for metric in ("maptr_alarms", "maptr_queries_total", "maptr_zone_secondary_lag_seconds", "maptr_table_records"):
        until(partial(asked, prometheus, metric), metric)


def test_the_check_for_nagios(site: Site, tmp_path: Path) -> None:
    path = path_with_maptr(tmp_path)

    def check(*words: str) -> tuple[int, str]:
        own = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run([BOX / "check_maptr", *words], capture_output=True, text=True, timeout=600, env=own)
        return done.returncode, done.stdout

    options = ("--config", str(site.config))
    code, text = check(*options)
    assert (code, text.startswith("MAPTR CRITICAL - maptr: not running")) == (2, True)
    site.start()
    assert check(*options) == (0, "MAPTR OK - 2 zones\n")
    site.write_zone("a.test", "nonsense")
    site.run("reload")
    code, text = check(*options)
    assert (code, text.startswith("MAPTR CRITICAL - ALARM zone a.test. was not reloaded")) == (2, True)
    code, text = check("--no-such-option")
    assert (code, text.startswith("MAPTR UNKNOWN - ")) == (3, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_check_for_nagios_runs_as_the_user_of_the_monitoring(site: Site, tmp_path: Path) -> None:
    """In the group of the control socket: without the configuration, and for nothing but the status."""
    interpreter = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin")
    if interpreter is None:
        pytest.skip("no interpreter of this version in /usr/bin, where every user can run it")
    group = grp.getgrnam("nogroup")
    nobody = pwd.getpwnam("nobody")
    site.configure(serve=f'control_group = "{group.gr_name}"')
    site.config.chmod(0o600)
    site.directory.chmod(0o711)
    (site.directory / "run").mkdir(mode=0o711)
    programs = site.directory / "bin"
    programs.mkdir()
    (programs / "maptr").write_text(f'#!/bin/sh\nexec {interpreter} -m maptr "$@"\n')
    shutil.copy(BOX / "check_maptr", programs)
    for program in programs.iterdir():
        program.chmod(0o755)
    root = Path(daemon.__file__).parents[2]
    own = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "PYTHONPATH": f"{root}:{sysconfig.get_paths()['purelib']}",
        "HOME": "/root",
    }

    def ask(program: str, *words: str, gid: int = group.gr_gid) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [programs / program, *words, "--control", str(site.socket)],
            user=nobody.pw_uid,
            group=gid,
            extra_groups=[],
            cwd="/",
            env=own,
            capture_output=True,
            text=True,
            timeout=600,
        )

    site.start()
    assert stat.S_IMODE(site.socket.stat().st_mode) == 0o660
    done = ask("check_maptr")
    assert (done.returncode, done.stdout) == (0, "MAPTR OK - 2 zones\n")
    for words in (["reload"], ["control", "sign"], ["control", "notify"], ["control", "pull"]):
        done = ask("maptr", *words)
        assert done.returncode != 0
        assert "only root and the server's user may do more than ask for the status" in done.stderr
    done = ask("check_maptr", gid=nobody.pw_uid - 1)
    assert (done.returncode, "Permission denied" in done.stdout) == (3, True)
    assert site.run("reload").exit_code == 0
    site.write_zone("a.test", "nonsense")
    site.run("reload")
    done = ask("check_maptr")
    assert (done.returncode, done.stdout.startswith("MAPTR CRITICAL - ALARM zone a.test. was not")) == (2, True)


def test_a_group_that_there_is_not_leaves_the_control_socket_to_its_owner(site: Site) -> None:
    site.configure(serve='control_group = "nogroup9"')
    site.start()
    site.server.wait_for("^maptr: control socket .* is not for the group nogroup9: there is no such group$")
    assert stat.S_IMODE(site.socket.stat().st_mode) == 0o600
    assert site.run("status").exit_code == 0
