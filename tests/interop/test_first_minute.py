"""The first minute: the wheel alone, on a machine with no network but loopback, no file and no configuration."""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from maptr.registry import builtin
from maptr.registry.target import unusable
from tests.support.command_line import ENDING
from tests.support.namespaces import Network, with_loopback
from tests.support.waiting import PATIENCE, until

REPOSITORY = Path(__file__).resolve().parents[2]
ARK = "ark:/12148/btv1b8449691v"
URL = "https://ark.bnf.fr/ark:/12148/btv1b8449691v"
EVERY_RECORD = """
import http.client, json, sys, time
from maptr import Client
connection = http.client.HTTPConnection("127.0.0.1", 8080)
def location(ark):
    while True:
        connection.request("GET", f"/{ark}")
        answer = connection.getresponse()
        answer.read()
        if answer.status != 429:
            return answer.getheader("Location")
        time.sleep(0.5)  # the gateway's limit for one client
found = Client(["127.0.0.1#5300"]).discover_many(sys.argv[1:], lifetime=60)
print(json.dumps([[each.url(), location(ark)] for ark, each in zip(sys.argv[1:], found)]))
"""  # for each ARK: its URL by DNS, and by HTTP


class Machine:
    """A network namespace with loopback, an empty home, and the wheel in a folder of its own."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network = network
        self.home, site = folder / "home", folder / "site"
        self.home.mkdir()
        words = ("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", site, REPOSITORY)
        subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True, timeout=600, cwd=folder)
        self.site = site
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "MAPTR_"))}
        self.environment = {**kept, "HOME": str(self.home), "PYTHONPATH": str(site)}

    def command(self, *words: str) -> list[str]:
        return self.network.command(*ENDING, sys.executable, *words)

    def run(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        options = {"env": self.environment, "cwd": self.home, "timeout": PATIENCE, "input": text}
        return subprocess.run(self.command(*words), capture_output=True, text=True, **options)  # type: ignore[call-overload,no-any-return]

    @contextmanager
    def start(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A command of maptr that runs until the end of the context."""
        running = subprocess.Popen(
            self.command("-u", "-m", "maptr", *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment,
            cwd=self.home,
            text=True,
        )
        try:
            yield running
        finally:
            running.terminate()
            running.communicate(timeout=PATIENCE)

    def ask(self, url: str) -> str:
        """Return the Location of a redirect, asked in the namespace."""
        code = (
            "import http.client, sys; c = http.client.HTTPConnection('127.0.0.1', 8080);"
            f"c.request('GET', '{url}'); print(c.getresponse().getheader('Location'))"
        )
        return self.run("-c", code).stdout.strip()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with with_loopback() as network:
        yield Machine(network, tmp_path_factory.mktemp("machine"))


def meant_urls() -> dict[str, str]:
    """Return the URL of each usable record for an ARK that ends with 9zz, by the start of that ARK: an expansion of
    the registry of its own."""
    table = builtin.state().table
    assert table is not None
    meant = {}
    for entry in table.values():
        if not entry.nmas or unusable(entry.nmas[0].target):
            continue
        url = entry.nmas[0].target
        for name, value in (
            ("content", f"{entry.naan}/{entry.shoulder}9zz"),
            ("pid", f"ark:{entry.naan}/{entry.shoulder}9zz"),
            ("value", f"{entry.shoulder}9zz"),
            ("prefix", entry.naan),
            ("suffix", "9zz"),
        ):
            url = url.replace(f"${{{name}}}", value)
        meant[f"{entry.naan}/{entry.shoulder}"] = url
    return meant


def test_the_first_command_and_the_first_line_of_python(machine: Machine) -> None:
    done = machine.run("-m", "maptr", "url", ARK)
    assert (done.returncode, done.stdout) == (0, f"{URL}\n")
    assert done.stderr.startswith("maptr: from the built-in registry of ")
    assert done.stderr.count("\n") == 1
    done = machine.run("-c", f"import maptr; print(maptr.__file__, maptr.discover('{ARK}').url())")
    assert done.stdout == f"{machine.site}/maptr/__init__.py {URL}\n", done.stderr
    assert machine.run("-m", "maptr", "naan", "bnf").stdout.startswith("NAAN       12148\n")


def test_two_hundred_naans_are_as_an_expansion_of_the_registry(machine: Machine) -> None:
    chosen = random.Random(7).sample([pair for pair in meant_urls().items() if pair[0].endswith("/")], 200)
    done = machine.run("-m", "maptr", "url", *(f"ark:/{key}9zz" for key, _ in chosen))
    assert done.stdout.splitlines() == [url for _, url in chosen]
    assert done.returncode == 0
    assert done.stderr.count("built-in registry") == 1


@pytest.mark.parametrize("words", [["gateway"], ["up"]])
def test_the_first_gateway_and_the_first_server(machine: Machine, words: list[str]) -> None:
    with machine.start(*words) as running:
        found = until(lambda: machine.ask(f"/{ARK}") or running.poll() is not None, "a redirect", pause=0.2)
        assert found == URL
        if words == ["up"]:
            done = machine.run("-c", EVERY_RECORD, *(f"ark:/{key}9zz" for key in meant_urls()))
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout) == [[url, url] for url in meant_urls().values()]


def test_the_first_dns_server_needs_no_file(machine: Machine) -> None:
    with machine.start("serve", "--zone", "ark.arpa", "--listen", "127.0.0.1:5300") as running:
        assert running.stdout is not None
        for line in running.stdout:
            if "ready, serving 1 zone" in line:
                break
        meant = meant_urls()
        arks = "".join(f"ark:/{key}9zz\n" for key in meant)
        found = machine.run("-m", "maptr", "bulk", "-", "@127.0.0.1#5300", "--timeout", "60", text=arks)
        urls = [row["url"] for row in csv.DictReader(found.stdout.splitlines())]
        assert urls == list(meant.values())
