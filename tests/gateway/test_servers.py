"""Mapping authorities that do not answer: background probes, their page and their feed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from maptr.cache.disk import Disk
from maptr.client import Client
from maptr.config import parse
from maptr.config.model import GatewayConfig
from maptr.errors import Fault, time_text
from maptr.gateway import service
from maptr.gateway.pages import moment
from maptr.gateway.servers import picture
from maptr.gateway.service import Service
from maptr.reconcile.probes import AT_ONCE, CERTIFICATE_WARNING, MIN_AGE, Liveness, Period, ProbeLog, Prober, probe_some
from maptr.registry.table import Entry, Nma, Table
from maptr.walk import Settings
from tests.reconcile.test_probes import Network
from tests.support.caching import Clock
from tests.support.gateway import Gateway
from tests.support.http_gateway import get, serving
from tests.support.http_server import pages
from tests.support.waiting import until

REPOSITORY = Path(__file__).resolve().parents[2]
ATOM = "{http://www.w3.org/2005/Atom}"
NOW = 1_700_000_000.0
DAY = 86_400.0
KNOWN = {
    "https://a.example": [Period(NOW - 500, NOW, 3, Fault.TIMEOUT, "no answer")],
    "https://b.example": [Period(NOW - 100, NOW, 1, Fault.DNS, "<script>"), Period(NOW - 9 * DAY, NOW - 200, 9)],
    "https://c.example": [
        Period(NOW - 2 * DAY, NOW, 3),
        Period(NOW - 5 * DAY, NOW - 3 * DAY, 3, Fault.SERVER_ERROR, "HTTP status 503"),
        Period(NOW - 80 * DAY, NOW - 6 * DAY, 70),
    ],
    "https://d.example": [Period(NOW - 80 * DAY, NOW, 80)],
}
LIVENESS = {place: Liveness.of(place, periods) for place, periods in KNOWN.items()}


def ending(place: str, seconds: float) -> dict[str, Liveness]:
    """A server that answers, and whose certificate ends in so many seconds."""
    return {place: Liveness.of(place, [Period(NOW - DAY, NOW, 2)], 200, NOW + seconds)}


def table(count: int) -> Table:
    return Table(Entry(f"{10_000 + n}", nmas=(Nma(f"https://h{n}.example/${{content}}"),)) for n in range(count))


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two probes of one address."""
    monkeypatch.setattr("maptr.reconcile.probes.PAUSE", 0.0)


@contextmanager
def kept(folder: Path) -> Iterator[ProbeLog]:
    disk = Disk(folder / "probes.sqlite", wall=time.time, own=False)
    try:
        yield ProbeLog(disk)
    finally:
        disk.close()


@pytest.mark.usefixtures("no_pause")
def test_a_round_probes_a_few_that_are_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, every = Network(monkeypatch, dead={"h1.example"}), 86_400.0
    with kept(tmp_path) as log:
        counts = [probe_some(table(50), log, every, Prober()) for _ in range(4)]
        assert counts == [AT_ONCE, AT_ONCE, 50 - 2 * AT_ONCE, 0]
        assert sorted(host for host, _ in network.asked) == sorted({f"h{n}.example" for n in range(50)})
        assert [place for place, one in log.all().items() if one.failures] == ["https://h1.example"]


@pytest.mark.usefixtures("no_pause")
def test_nothing_is_kept_if_no_server_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    network, clock = Network(monkeypatch, dead={f"h{n}.example" for n in range(5)}), Clock(0.0)
    prober = Prober(clock=clock)
    with kept(tmp_path) as log:
        for now, asked in ((0.0, 5), (60.0, 5), (MIN_AGE, 10)):
            clock.now = now
            assert probe_some(table(5), log, 86_400.0, prober) == 0
            assert len(network.asked) == asked, "they are not asked again and again"
        assert log.all() == {}
        assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
            "no probe was answered, perhaps because of this machine's network"
        ], "once, and not at each round"


def entries(gateway: Gateway) -> list[dict[str, str]]:
    """The title, time, identifier and summary of each entry of the feed."""
    answer = gateway.ask("/servers.atom")
    assert answer.header("content-type") == "application/atom+xml"
    assert gateway.ask("/servers.atom", if_none_match=answer.header("etag")).status == 304
    feed = ElementTree.fromstring(answer.body)
    found = [{part.tag.removeprefix(ATOM): part.text or "" for part in one} for one in feed.findall(f"{ATOM}entry")]
    assert len({one["id"] for one in found}) == len(found)
    assert feed.findtext(f"{ATOM}updated") == (found[0]["updated"] if found else "1970-01-01T00:00:00Z")
    return found


def test_the_page_shows_each_server_and_those_first_that_do_not_answer() -> None:
    page = Gateway(liveness=LIVENESS).ask("/servers", accept="text/html").body.decode()
    assert "2 of 4 mapping authorities do not answer" in page
    order = [page.index(f"https://{name}.example") for name in "bacd"]
    assert order == sorted(order), "the latest change first"
    assert "&lt;script&gt;" in page
    assert f"since {moment(NOW - 100)}, 1 probe: " in page
    assert f"since {moment(NOW - 2 * DAY)}<" in page
    drawn = [re.findall(r'<rect x="([0-9.]+)" width="([0-9.]+)"', one) for one in page.split("<li>")[1:]]
    assert drawn == [[("89.0", "1.0")], [("89.0", "1.0")], [("85.0", "3.0")], []]
    assert f"{moment(NOW - 5 * DAY)} – {moment(NOW - 2 * DAY)}, server-error" in page
    outage = f"{moment(NOW - 5 * DAY)} – {moment(NOW - 2 * DAY)}, server-error"
    assert f'aria-label="1 outage ({outage})"' in page, "what the bar shows, in words"


def test_the_feed_has_one_entry_for_each_change() -> None:
    gateway = Gateway(
        liveness=LIVENESS, settings=GatewayConfig(name="ARKs of <Example>"), public_url="https://ark.example.org"
    )
    found = entries(gateway)
    assert [(one["title"], one["updated"], one["summary"]) for one in found] == [
        ("https://b.example does not answer", time_text(NOW - 100), "<script>"),
        ("https://a.example does not answer", time_text(NOW - 500), "no answer"),
        ("https://c.example answers again", time_text(NOW - 2 * DAY), ""),
        ("https://c.example does not answer", time_text(NOW - 5 * DAY), "HTTP status 503"),
    ]
    assert all(one["id"].startswith("https://ark.example.org/servers#") for one in found)
    feed = ElementTree.fromstring(gateway.ask("/servers.atom").body)
    assert feed.findtext(f"{ATOM}author/{ATOM}name") == "ARKs of <Example>"


@pytest.mark.parametrize(("days", "warned", "titles"), [(15.0, False, 0), (13.0, True, 1), (-1.0, True, 2)])
def test_the_end_of_a_certificate_is_shown_and_announced(days: float, warned: bool, titles: int) -> None:
    gateway = Gateway(liveness=ending("https://a.example", days * DAY))
    page = gateway.ask("/servers", accept="text/html").body.decode()
    assert "The mapping authority answers" in page
    assert (f'class="bad">certificate until {moment(NOW + days * DAY)}' in page) is warned
    assert moment(NOW + days * DAY) in page
    found = entries(gateway)
    until = f"https://a.example has a certificate until {time_text(NOW + days * DAY)}"
    assert [one["title"] for one in found] == ["https://a.example has an expired certificate", until][2 - titles :]
    if titles:
        assert found[-1]["updated"] == time_text(NOW + days * DAY - CERTIFICATE_WARNING)


def test_an_entry_keeps_its_identifier_while_an_outage_goes_on() -> None:
    first, later = (
        entries(
            Gateway(
                liveness={
                    "https://a.example": Liveness.of(
                        "https://a.example", [Period(NOW - 500, NOW + probes, probes, Fault.DNS)]
                    )
                }
            )
        )
        for probes in (1, 7)
    )
    assert first == later


def test_an_outage_that_is_older_than_the_picture_is_not_drawn() -> None:
    old = [Period(NOW - 91 * DAY, NOW, 90), Period(NOW - 95 * DAY, NOW - 92 * DAY, 3, Fault.DNS)]
    across = [Period(NOW - 80 * DAY, NOW, 90), Period(NOW - 95 * DAY, NOW - 81 * DAY, 3, Fault.DNS)]
    assert picture(Liveness.of("https://a.example", old), NOW) == (0.0, [])
    assert picture(LIVENESS["https://c.example"], NOW).x == 10.0, "its first probe"
    (one,) = picture(Liveness.of("https://a.example", across), NOW).outages
    assert (one.x, one.width, one.until) == (0.0, 10.0, NOW - 80 * DAY)


def test_the_page_of_many_servers_is_in_parts() -> None:
    one = Liveness.of("", [Period(NOW - n * DAY, NOW - n * DAY, 1, Fault.DNS if n % 2 else None) for n in range(20)])
    gateway = Gateway(liveness={f"https://{n}.example": replace(one, place=f"https://{n}.example") for n in range(900)})
    first = gateway.ask("/servers", accept="text/html").body
    assert len(first) < 50_000
    last = int(re.findall(rb"1 of ([0-9]+)", first)[0])
    pages = [gateway.ask(f"/servers?page={n + 1}", accept="text/html").body for n in range(last)]
    assert sum(page.count(b"<li><span") for page in pages) == 900


@pytest.mark.parametrize("liveness", [{}, {"https://d.example": LIVENESS["https://d.example"]}])
def test_the_page_without_a_silent_server(liveness: dict[str, Liveness]) -> None:
    page = Gateway(liveness=liveness).ask("/servers", accept="text/html").body.decode()
    assert ("No mapping authority has been probed yet" if not liveness else "The mapping authority answers") in page
    assert entries(Gateway(liveness=liveness)) == []


@pytest.mark.usefixtures("no_pause")
def test_a_gateway_probes_servers_and_chooses_one_that_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the request of the probe to the page, the feed, the API and the redirect."""
    monkeypatch.setattr(service, "PROBE_ROUND", 0.05)
    with pages(lambda path: (503, {}, b"")) as sick, pages(lambda path: (405, {}, b"")) as well:
        nmas = tuple(Nma(f"{one.url}/ark:/${{content}}") for one in (sick, well))
        registry = Table([Entry("12345", nmas=nmas, extra={"test_identifier": "ark:/12345/b6"})])
        client = Client(
            ["127.0.0.1#9"],
            table=registry,
            cache=tmp_path / "cache.sqlite",
            policy="natab-only",
            settings=Settings(allow_private=True),
        )
        text = '[gateway]\nlisten = ["127.0.0.1:0"]\nprobe_every = "1d"\ncontact = "arks@example.org"\n'
        made = Service(parse(text), client, allow_private=True)
        made.current._prober = Prober(allow_private=True)
        with serving(made, client):
            port = made.bound[0].port
            assert dict(get(port, "/ark:12345/x1").headers)["location"].startswith(sick.url), "the first one"
            until(
                lambda: b"1 of 2 mapping authorities does not answer" in get(port, "/servers").body, "they were probed"
            )
            assert (sick.asked, well.asked) == (["/ark:/12345/b6"], ["/ark:/12345/b6"]), "once in a period"
            assert b"does not answer" in get(port, "/servers.atom").body
            (dead,) = [one for one in json.loads(get(port, "/api/v1/naans/12345").body)["liveness"] if one["fault"]]
            assert (dead["place"], dead["fault"], dead["status"]) == (sick.url, "server-error", 503)
            assert client.history is not None
            log = ProbeLog(client.history)
            log.record(list(made.current._prober.probe({sick.url: f"{sick.url}/"})) * 2)
            until(lambda: dict(get(port, "/ark:12345/x1").headers)["location"].startswith(well.url), "the other one")


def test_the_faults_are_those_of_the_description_and_of_the_pages() -> None:
    described = json.loads((REPOSITORY / "maptr" / "gateway" / "openapi.json").read_text("utf-8"))
    assert described["components"]["schemas"]["Fault"]["enum"] == list(Fault)
    page, reference = ((REPOSITORY / "docs" / f"{name}.md").read_text("utf-8") for name in ("operator", "reference"))
    assert all(f"`{fault}`" in page for fault in Fault)
    assert all(f'"{fault}"' in reference for fault in Fault)


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize("line", ["", 'probe_every = "1d"\n'])
def test_a_gateway_probes_only_if_it_is_told_to(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch)
    monkeypatch.setattr(service, "PROBE_ROUND", 0.05)
    client = Client(["127.0.0.1#9"], table=table(3), cache=tmp_path / "cache.sqlite", policy="natab-only")
    made = Service(parse(f'[gateway]\nlisten = ["127.0.0.1:0"]\n{line}'), client)
    with serving(made, client):
        port = made.bound[0].port
        if line:
            until(lambda: b"All 3 mapping authorities answer" in get(port, "/servers").body, "they were probed")
        else:
            time.sleep(0.3)
            assert network.asked == []
