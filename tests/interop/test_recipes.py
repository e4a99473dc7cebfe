"""docs/recipes: the workflow of the table in git, the timer's service, and the containers' steps without containers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dns.message
import dns.query
import pytest
import yaml

from tests.support.command_line import ENDING
from tests.support.http_gateway import get
from tests.support.peers import Checked, Nsd, free_port, output, path_with_maptr, require
from tests.support.peers import run as run_program
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.interop
RECIPES = Path(__file__).resolve().parents[2] / "docs" / "recipes"


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "bin").mkdir()
    return path_with_maptr(tmp_path / "bin")


def environment(path: str, **more: str) -> dict[str, str]:
    """The variables of a program that must find maptr and nothing of this user's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAPTR_", "GIT_", "XDG_"))}
    return {**kept, "PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}


# --- the table in git

WORKFLOW = yaml.safe_load((RECIPES / "table-review.yml").read_text("utf-8"))
INSTALL = "python3 -m pip install maptr"
GH = '#!/bin/sh\nprintf "%s\\n" "$*" >> "$GH_LOG"\ncat plan.md >> "$GH_LOG"\n'  # there is no GitHub here


class Repository:
    """A clone with naans.json, whose ``origin`` is a bare repository, and the registry that the workflow pulls."""

    def __init__(self, folder: Path, path: str, sample: Path) -> None:
        self.clone, self.registry, self.log = folder / "clone", folder / "registry.json", folder / "gh.log"
        self.summary = folder / "summary"
        self.environment = environment(
            path,
            HOME=str(folder),
            GH_LOG=str(self.log),
            GITHUB_STEP_SUMMARY=str(self.summary),
            MAPTR_TABLE_URL=str(self.registry),
            MAPTR_TABLE_FILE=str(self.clone / "naans.json"),
            BASE="origin/main",
        )
        gh = folder / "bin" / "gh"
        gh.write_text(GH)
        gh.chmod(0o755)
        shutil.copy(sample, self.registry)
        self.git("init", "--quiet", "--bare", "--initial-branch=main", str(folder / "origin"), where=folder)
        self.git("clone", "--quiet", str(folder / "origin"), "clone", where=folder)
        self.git("switch", "--quiet", "--create", "main")
        self.run("maptr table pull --table naans.json --apply")
        self.git("add", "naans.json")
        self.git("-c", "user.name=a", "-c", "user.email=a@example", "commit", "--quiet", "--message=the first table")
        self.git("push", "--quiet", "origin", "main")

    def git(self, *words: str, where: Path | None = None) -> str:
        return output("git", *words, cwd=where or self.clone, env=self.environment)

    def run(self, script: str) -> None:
        """Run a step as GitHub does."""
        output("bash", "-e", "-c", script, cwd=self.clone, env=self.environment)

    def job(self, name: str) -> None:
        scripts = [step["run"] for step in WORKFLOW["jobs"][name]["steps"] if "run" in step]
        assert INSTALL in scripts
        for script in scripts:
            if script != INSTALL:  # what is installed here is what is tested
                self.run(script)


def test_a_change_of_the_registry_becomes_a_pull_request(tmp_path: Path, path: str, sample: Path) -> None:
    require("git", "bash")
    repository = Repository(tmp_path, path, sample)
    repository.job("propose")
    assert not repository.log.exists(), "nothing changed, so there is nothing to propose"
    text = repository.registry.read_text()
    assert "https://ark.example.org" in text
    repository.registry.write_text(text.replace("https://ark.example.org", "https://new.example.org"))
    repository.job("propose")
    asked = repository.log.read_text()
    assert asked.startswith("pr create --head table --title NAAN registry --body-file plan.md\n")
    assert "new.example.org" in asked, "the plan is the text of the pull request"
    assert "new.example.org" in repository.git("show", "origin/table:naans.json")
    assert "new.example.org" not in repository.git("show", "origin/main:naans.json")
    repository.job("check")  # of the proposed branch, which is still checked out
    assert "~ 12345.ark.arpa. NAPTR" in repository.summary.read_text()
    repository.git("switch", "--quiet", "main")
    repository.job("propose")  # the next day, before the merge
    assert repository.git("rev-list", "--count", "origin/main..origin/table").strip() == "1"


# --- the timer


@pytest.mark.parametrize("name", ["maptr-table.service", "maptr-table.timer"])
def test_systemd_accepts_the_units_of_the_timer(name: str, tmp_path: Path) -> None:
    require("systemd-analyze")
    for unit in RECIPES.glob("maptr-table.*"):
        shutil.copy(unit, tmp_path)
    assert run_program("systemd-analyze", "verify", tmp_path / name) == Checked(True, "")


def test_the_timer_has_a_calendar() -> None:
    require("systemd-analyze")
    (calendar,) = re.findall(r"^OnCalendar=(.*)$", (RECIPES / "maptr-table.timer").read_text("utf-8"), re.MULTILINE)
    assert run_program("systemd-analyze", "calendar", calendar).accepted


class ControlledNsd(Nsd):
    """NSD that nsd-control reaches by a socket of Unix."""

    def statements(self) -> str:
        control = f"remote-control:\n    control-enable: yes\n    control-interface: {self.directory}/control\n"
        return control + super().statements()


def test_the_steps_of_the_timer_bring_a_new_zone_to_nsd(tmp_path: Path, path: str, sample: Path) -> None:
    require("nsd-control")
    unit = (RECIPES / "maptr-table.service").read_text("utf-8")
    steps = re.findall(r"^Exec\w+=(.*)$", unit, re.MULTILINE)
    assert len(steps) == 3
    registry = tmp_path / "registry.json"
    shutil.copy(sample, registry)
    pulled = {"MAPTR_TABLE_URL": str(registry), "MAPTR_TABLE_FILE": str(tmp_path / "naans")}
    variables = environment(path, HOME=str(tmp_path), **pulled)

    def pass_once(control: str) -> None:
        for step in steps:
            line = step.replace("/var/lib/maptr", str(tmp_path)).replace("nsd-control", control)
            output(*line.split(), env=variables)

    pass_once("true")  # before the first start of NSD
    with ControlledNsd({"ark.arpa": tmp_path / "ark.arpa.zone"}) as nsd:
        assert "new.example.org" not in rules(nsd.port)
        registry.write_text(registry.read_text().replace("https://ark.example.org", "https://new.example.org"))
        pass_once(f"nsd-control -c {nsd.directory}/nsd.conf")
        until(lambda: "new.example.org" in rules(nsd.port), "the new zone")


def rules(port: int) -> str:
    """The NAPTR records of a NAAN of the sample, with the signatures if there are any; empty if nothing answers."""
    query = dns.message.make_query("12345.ark.arpa", "NAPTR", want_dnssec=True)
    try:
        return "".join(map(str, dns.query.tcp(query, "127.0.0.1", 20, port).answer))
    except (OSError, EOFError):
        return ""


# --- the containers


LOCAL_NSD = """server:
    username: ""
    xfrdfile: "/var/lib/nsd/xfrd.state"
    zonelistfile: "/var/lib/nsd/zone.list"
    xfrdir: "/var/lib/nsd"
"""


class Containers:
    """The services of compose.yaml as processes, whose paths, addresses and ports become local ones."""

    def __init__(self, folder: Path, path: str, registry: Path) -> None:
        require("docker-compose", "nsd", "caddy", "openssl")
        parsed = run_program("docker-compose", "-f", RECIPES / "compose.yaml", "config")
        assert parsed.accepted, parsed.output
        self.services: dict[str, Any] = yaml.safe_load(parsed.output)["services"]
        self.files, self.volumes = folder / "files", folder / "volumes"
        self.ports = {number: free_port() for number in ("53", "80", "5300", "8080", "9153", "9154")}
        state = str(self.volumes / "state")
        self.environment = environment(
            path,
            HOME=str(folder),
            MAPTR_CONFIG=str(self.files / "maptr" / "maptr.toml"),
            MAPTR_TABLE_URL=str(registry),
            XDG_CACHE_HOME=state,
            XDG_DATA_HOME=str(folder / "data"),  # whose table a first pull of the sample may not replace
        )
        for name in ("maptr", "nsd", "caddy"):
            (self.files / name).mkdir(parents=True)
        for name in ("state", "nsd", "caddy"):
            (self.volumes / name).mkdir(parents=True)
        for line in re.findall(
            r"^(?:head|printf) .*(?:xfr|nsd|objects).*\n", (RECIPES / "README.md").read_text("utf-8"), re.M
        ):
            subprocess.run(["sh", "-e", "-c", line], cwd=self.files, check=True)
        (self.files / "maptr" / "xfr.key").chmod(0o600)
        self.copy("primary", "maptr/maptr.toml")
        address = f"127.0.0.1@{self.ports['53']}"
        self.copy("nsd", "nsd/nsd.conf", ("ip-address: 0.0.0.0", f"ip-address: {address}"), ("server:\n", LOCAL_NSD))
        site = f"http://127.0.0.1:{self.ports['80']}"
        self.copy("caddy", "caddy/Caddyfile", ("resolver.example.org", "{\n\tadmin off\n}\n" + site))
        self.running = ExitStack()

    def copy(self, service: str, name: str, *changes: tuple[str, str]) -> None:
        """Take over a file of the recipe for these processes."""
        text = (RECIPES / name).read_text("utf-8")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (self.files / name).write_text(self.local(service, text))

    def local(self, service: str, text: str) -> str:
        """A text of a container as it must read on this machine."""
        for volume in self.services[service]["volumes"]:
            source, target, _ = volume.split(":")
            host = self.files / Path(source).name if "/" in source else self.volumes / source
            text = re.sub(rf"{re.escape(target)}\b", str(host), text)
        text = re.sub(r"\b10\.53\.0\.\d+|\b0\.0\.0\.0", "127.0.0.1", text)
        return re.sub(r"(?<=127\.0\.0\.1[:@])\d+\b", lambda port: str(self.ports.get(port[0], port[0])), text)

    def command(self, service: str, *words: str) -> list[str]:
        """The command of a service, or another one in its container."""
        entry = ["maptr"] if self.services[service]["image"] == "maptr" else []
        return [self.local(service, word) for word in [*entry, *(words or self.services[service]["command"])]]

    def run(self, service: str, *words: str) -> str:
        done = subprocess.run(self.command(service, *words), env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def up(self) -> None:
        for service in self.services:
            with (self.files / f"{service}.log").open("wb") as log:
                process = subprocess.Popen(
                    [*ENDING, *self.command(service)], cwd=self.files, env=self.environment, stdout=log, stderr=log
                )
            self.running.callback(process.wait, PATIENCE)
            self.running.callback(process.terminate)

    def logs(self) -> str:
        return "\n".join(file.read_text(errors="replace") for file in sorted(self.files.glob("*.log")))


def test_the_containers_answer_the_public(tmp_path: Path, path: str, sample: Path) -> None:
    containers = Containers(tmp_path, path, sample)
    keys = re.search(r"run --rm primary (zone keys add .*)", (RECIPES / "README.md").read_text("utf-8"))
    assert keys
    containers.run("primary", *keys[1].split())
    with containers.running:
        containers.up()
        until(lambda: "RRSIG" in rules(containers.ports["53"]), containers.logs)
        public, admin = containers.ports["80"], containers.ports["9154"]
        until(lambda: answer(public, "/ready") == (200, None), containers.logs)
        assert answer(public, "/ark:12345/b6x") == (302, "https://ark.example.org/ark:/12345/b6x")
        assert answer(public, "/metrics") == (404, None)
        for port in (admin, containers.ports["9153"]):
            until(lambda: answer(port, "/metrics") == (200, None), containers.logs)  # noqa: B023 - called at once
        (zone,) = json.loads(containers.run("primary", "status", "--json"))["zones"]
        assert (zone["zone"], zone["signatures"]) == ("ark.arpa.", "ok")
        for service in ("primary", "gateway"):
            _, *check = containers.services[service]["healthcheck"]["test"]
            subprocess.run([containers.local(service, word) for word in check], check=True, timeout=PATIENCE)


def answer(port: int, target: str) -> tuple[int, str | None]:
    """The status of a response and its Location; 0 if nothing answers."""
    try:
        reply = get(port, target, f"Host: 127.0.0.1:{port}")  # by which Caddy knows the site
    except (OSError, EOFError):
        return 0, None
    return reply.status, reply.headers.get("location")
