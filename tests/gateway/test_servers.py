"""Mapping authorities that do not answer: background probes, their page and their feed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from maptr.cache.disk import Disk
from maptr.client import Client
from maptr.config import parse
from maptr.errors import NmaError
from maptr.gateway import service
from maptr.gateway.service import Service
from maptr.gateway.site import Front
from maptr.reconcile.probes import AT_ONCE, Liveness, ProbeLog, Prober, probe_some
from maptr.registry.table import Entry, Nma, Table
from tests.support.gateway import Gateway
from tests.support.http_gateway import get, serving
from tests.support.waiting import until

ATOM = "{http://www.w3.org/2005/Atom}"
NOW = 1_700_000_000.0
SILENT = {
    "https://a.example": Liveness("https://a.example", NOW, None, 3, NOW - 500, "no answer"),
    "https://b.example": Liveness("https://b.example", NOW, None, 1, NOW - 100, "<script>"),
    "https://c.example": Liveness("https://c.example", NOW, NOW),
}


def table(count: int) -> Table:
    return Table(Entry(f"{10_000 + n}", nmas=(Nma(f"https://h{n}.example/${{content}}"),)) for n in range(count))


class Network:
    """A network whose ``silent`` hosts do not answer."""

    def __init__(self, silent: set[str] | None = None) -> None:
        self.silent = silent
        self.asked: list[str] = []

    def ask(self, where: Any, seconds: float) -> None:
        self.asked.append(where.host.text)
        if self.silent is None or where.host.text in self.silent:
            raise NmaError("no answer")

    def prober(self) -> Prober:
        options: dict[str, Any] = {"ask": self.ask, "look_up": lambda host, *_: ["93.184.216.34"]}
        return Prober(sleep=lambda seconds: None, **options)


@contextmanager
def kept(folder: Path) -> Iterator[ProbeLog]:
    disk = Disk(folder / "probes.sqlite", wall=time.time, own=False)
    try:
        yield ProbeLog(disk, wall=time.time)
    finally:
        disk.close()


def test_a_round_probes_a_few_that_are_due(tmp_path: Path) -> None:
    network, every = Network({"h1.example"}), 86_400.0
    with kept(tmp_path) as log:
        counts = [probe_some(table(50), log, every, network.prober(), random.Random(1)) for _ in range(4)]
        assert counts == [AT_ONCE, AT_ONCE, 50 - 2 * AT_ONCE, 0]
        assert sorted(network.asked) == sorted({f"h{n}.example" for n in range(50)})
        assert [place for place, one in log.all().items() if one.failures] == ["https://h1.example"]


def test_nothing_is_kept_if_no_server_answers(tmp_path: Path) -> None:
    with kept(tmp_path) as log:
        assert probe_some(table(5), log, 1.0, Network().prober()) == 0
        assert log.all() == {}


def test_the_page_and_the_feed_name_those_that_are_silent() -> None:
    gateway = Gateway(liveness=SILENT, front=Front("ARKs of <Example>"), public_url="https://ark.example.org")
    page = gateway.ask("/servers", accept="text/html").body.decode()
    assert "2 of 3 mapping authorities do not answer" in page
    assert page.index("https://b.example") < page.index("https://a.example"), "the latest first"
    assert "&lt;script&gt;" in page
    assert "https://c.example" not in page
    answer = gateway.ask("/servers.atom")
    assert answer.header("content-type") == "application/atom+xml"
    feed = ElementTree.fromstring(answer.body)
    assert feed.findtext(f"{ATOM}author/{ATOM}name") == "ARKs of <Example>"
    titles = [entry.findtext(f"{ATOM}title") for entry in feed.findall(f"{ATOM}entry")]
    assert titles == ["https://b.example does not answer", "https://a.example does not answer"]
    ids = [entry.findtext(f"{ATOM}id") or "" for entry in feed.findall(f"{ATOM}entry")]
    assert len(set(ids)) == 2
    assert all(each.startswith("https://ark.example.org/servers#") for each in ids)


@pytest.mark.parametrize("liveness", [{}, {"https://c.example": SILENT["https://c.example"]}])
def test_the_page_without_a_silent_server(liveness: dict[str, Liveness]) -> None:
    page = Gateway(liveness=liveness).ask("/servers", accept="text/html").body.decode()
    assert ("No mapping authority was probed" if not liveness else "All 1 mapping authorities answer") in page
    assert ElementTree.fromstring(Gateway(liveness=liveness).ask("/servers.atom").body).find(f"{ATOM}entry") is None


@pytest.mark.parametrize("line", ["", 'probe_every = "1d"\n'])
def test_a_gateway_probes_only_if_it_is_told_to(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(set())
    monkeypatch.setattr(service, "PROBE_ROUND", 0.05)
    client = Client(["127.0.0.1#9"], table=table(3), cache=tmp_path / "cache.sqlite", policy="natab-only")
    made = Service(parse(f'[gateway]\nlisten = ["127.0.0.1:0"]\n{line}'), client)
    made.current._prober = network.prober()
    with serving(made, client):
        port = made.bound[0].port
        if line:
            until(lambda: b"All 3 mapping authorities answer" in get(port, "/servers").body, "they were probed")
        else:
            time.sleep(0.3)
            assert network.asked == []
