"""The pages of a running gateway in a real browser, between a real DNS server and a web server as mapping authority."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from maptr import registry
from maptr.cache.disk import Disk
from maptr.client import Client
from maptr.config.model import GatewayConfig
from maptr.errors import Fault
from maptr.gateway.links.check import AGAIN, CheckOutcome, CheckResult
from maptr.gateway.links.monitor import SUFFIX
from maptr.gateway.links.store import LinkStore, digest_of
from maptr.gateway.redirects.following import KeptStores
from maptr.gateway.service import Service
from maptr.reconcile.probes import Probe, ProbeLog, ProbeResult
from maptr.walk import Settings
from maptr.zone.build import build
from tests.support.browser import Chromium, Page
from tests.support.http_gateway import LOOPBACK, running_service
from tests.support.http_server import pages
from tests.support.own_objects import imported
from tests.support.peers import Maptr
from tests.support.waiting import until

HOSTILE = '"><img src=//e.example/x onerror=alert(1)><script>document.title=1</script>&<!--'
NAAN = "86420"  # its mapping authority runs here
MISSING = "86421"  # in the table, and not in DNS
NO_ANSWER = CheckResult(CheckOutcome.FAILED, fault="timeout")
WIDTHS = [390, 1280]
TARGETS = {
    "home": "/",
    "status": "/status",
    "search": "/?q=ark:12025/x6np1",
    "without an ARK": f"/?q={quote(HOSTILE)}",
    "own objects": "/?q=library",
    "drift": "/drift",
    "those that agree": "/drift?verdict=same",
    "NAANs": "/naan/?q=library",
    "NAAN": "/naan/12025",
    "shoulders": "/naan/99999",
    "hostile NAAN": f"/naan/{NAAN}",
    "description": "/ark:12025",
    "authorities": "/ark:12025/x6np1?maptr=list",
    "servers": "/servers",
    "statistics": "/stats?days=365",
    "links": "/links",
}
ERRORS = {"no page": "/nothing", "no ARK": f"/ark:{quote(HOSTILE)}", "no authority": "/ark:55555/x1"}


@pytest.fixture(scope="module")
def authority() -> Iterator[str]:
    """A mapping authority, which serves every object as its target."""
    with pages(
        lambda target: (200, {"Content-Type": "text/html"}, f"<title>object {target}</title>".encode())
    ) as server:
        yield server.url


def own_objects(folder: Path) -> Path:
    """A store of own objects, of which two have words to search, and the links of others were checked for two days."""
    targets = {f"ark:86422/x{n}": f"https://h.example/{'long/' * 30 * (n == 2)}{n}" for n in range(9)}
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["ark", "url", "status", "who", "what", "when"])
    rows.writerows([ark, where, "", "", "", ""] for ark, where in targets.items())
    rows.writerow(["ark:12025/k1", "https://objects.example.org/1", "302", "A. Author", f"A library {HOSTILE}", "1999"])
    rows.writerow(["ark:12025/k2", "", "410", "", "The other library " + "of books " * 40, ""])
    store = imported(folder / "own.sqlite", text.getvalue())
    kept = LinkStore(KeptStores(folder).path(store, SUFFIX), 1e9)
    kept.follow("", "", targets)
    for where in [*targets.values()][:4]:
        for days in range(3):
            failed = CheckResult(CheckOutcome.FAILED, 404) if where[-1] == "1" else NO_ANSWER
            kept.record(digest_of(where), failed, 1e9 + days * AGAIN)
    kept.close()
    return store


@pytest.fixture(scope="module")
def gateway(sample: Path, authority: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The sample in DNS, and a table with two more records, one that differs, and an authority that was silent."""
    folder = tmp_path_factory.mktemp("gateway")
    zone, table = folder / "zone", folder / "naans.json"
    zone.write_text(build(registry.read(sample.read_bytes()), 2026112301).text)
    document = json.loads(sample.read_text().replace("ark.loc.example.org", "elsewhere.example.org"))
    hosts = [record["target"]["url"].partition("/ark:")[0] for record in document["data"]]
    for naan, base in ((NAAN, authority), (MISSING, "https://missing.example.org")):
        target = {"url": f"{base}/ark:/${{content}}", "http_code": 302}
        document["data"].append({"what": naan, "who": {"name": HOSTILE}, "target": target})
    table.write_text(json.dumps(document))
    history = Disk(folder / "history.sqlite", wall=lambda: 1_790_000_000.0)
    probes = [Probe(hosts[0], 1_789_000_000.0 + n, ProbeResult.FAILED, HOSTILE, Fault.TIMEOUT) for n in range(3)]
    assert ProbeLog(history).record(probes)
    with ExitStack() as stack:
        server = stack.enter_context(Maptr({"ark.arpa.": zone}))
        client = Client(
            [f"127.0.0.1#{server.port}"],
            table=table,
            policy="natab-first",
            settings=Settings(allow_private=True),
            history=history,
        )
        settings = GatewayConfig(listen=(LOOPBACK,), public_stats=True, redirects=own_objects(folder))
        service = stack.enter_context(running_service(client, gateway=settings))
        until(lambda: service.current.site.drift.at is not None, "table and DNS are compared")
        until(lambda: service.current.site.links is not None, "the results of checks are read")
        yield service


def at(gateway: Service, target: str) -> str:
    return gateway.urls[0].removesuffix("/") + target


def go(page: Page, script: str) -> None:
    """Do something that loads another page, and wait for it."""
    loads = len(page.events("Page.loadEventFired"))
    page.value(f"setTimeout(() => {{{script}}}, 0); 0")
    page.wait(loads + 1)


def test_search_follow_and_read(browser: Chromium, gateway: Service, authority: str) -> None:
    page = browser.open(at(gateway, "/"))
    assert page.value("document.title") == "Where does an ARK lead? – maptr"
    go(page, f"document.querySelector('#q').value = 'see ark:/{NAAN}/x6-np1, p. 4'; document.forms[0].requestSubmit()")
    assert page.value("document.querySelector('h1').innerText") == f"ark:{NAAN}/x6np1 goes to"
    assert page.value("document.querySelector('.target').innerText") == f"{authority}/ark:/{NAAN}/x6np1"
    assert page.value("document.querySelector('.walk .chosen .name').textContent").startswith("http://127.0.0.1")
    go(page, "document.querySelector('.button').click()")
    assert page.value("document.title") == f"object /ark:/{NAAN}/x6np1"
    assert page.value("location.href") == f"{authority}/ark:/{NAAN}/x6np1"
    assert page.troubles() == []


def test_search_for_an_own_object(browser: Chromium, gateway: Service) -> None:
    page = browser.open(at(gateway, "/"))
    go(page, "document.querySelector('#q').value = 'LIBRÁRY'; document.forms[0].requestSubmit()")
    assert page.value("document.querySelector('h1').innerText") == "2 objects for LIBRÁRY"
    titles = page.value("[...document.querySelectorAll('.cards a')].map(one => one.innerText)")
    assert titles[0] == f"A library {HOSTILE}"
    assert "no longer available" in page.value("document.querySelectorAll('.cards li')[1].innerText")
    assert page.value("document.querySelector('#naans').innerText") == "Organisations"
    assert page.value("document.querySelector('.cards a').href") == at(gateway, "/ark:12025/k1")
    assert page.troubles() == []
    go(page, "document.querySelectorAll('.cards a')[1].click()")
    assert page.value("document.querySelector('h1').innerText") == "This object is gone"


def test_from_the_map_to_a_naan_and_back(browser: Chromium, gateway: Service) -> None:
    page = browser.open(at(gateway, "/status"))
    total = len(gateway.current.site.drift.verdicts)
    assert page.value("document.title") == f"Deviating records: 2 of {total} – maptr"
    go(page, "location = document.querySelector('nav a[href=\"/drift\"]').href")
    assert page.value("[...document.querySelectorAll('.record')].map(one => one.classList[1])") == [
        "differs",
        "missing",
    ]
    assert "2026112301" in page.value("document.querySelector('.lede').innerText")
    go(page, "document.querySelector('.map a.differs').dispatchEvent(new MouseEvent('click'))")
    assert page.value("location.pathname") == "/naan/12026"
    text = page.value("document.body.innerText")
    for expected in (
        "US Library of Congress",
        "https://elsewhere.example.org/",
        "https://ark.loc.example.org/",
        "differs",
    ):
        assert expected in text
    assert page.value("document.querySelectorAll('.past li').length") == 1, "its first verdict"
    go(page, "history.back()")
    assert page.value("location.pathname") == "/drift"
    assert page.troubles() == []


def test_hostile_texts_of_the_registry_are_texts(browser: Chromium, gateway: Service) -> None:
    for target in ("/status", "/drift", "/servers", f"/naan/{MISSING}", f"/?q=ark:{NAAN}/x1", f"/ark:{NAAN}"):
        page = browser.open(at(gateway, target))
        assert HOSTILE in page.value("document.body.textContent"), target
        assert page.value("document.images.length + document.scripts.length") == 0
        assert page.troubles() == []


@pytest.mark.parametrize(("target", "where"), [(f"/ark:{NAAN}", "h1, dd"), ("/naan/", "td"), ("/status", ".rows span")])
def test_a_text_from_right_to_left_ends_at_its_left(
    target: str, where: str, browser: Chromium, gateway: Service
) -> None:
    """Of an organisation or an object; the page itself is from left to right."""
    page = browser.open(at(gateway, target))
    ends = page.value(f"""[...document.querySelectorAll('{where}')].filter(one => !one.children.length).map(one => {{
        one.textContent = '\u05d0\u05d1!';
        const [first, last] = [0, 2].map(place => {{
            const range = document.createRange();
            range.setStart(one.firstChild, place);
            range.setEnd(one.firstChild, place + 1);
            return range.getBoundingClientRect().left;
        }});
        return last < first;
    }})""")
    assert set(ends) == {True}


def test_the_keyboard_reaches_everything_and_its_place_is_seen(browser: Chromium, gateway: Service) -> None:
    page = browser.open(at(gateway, "/status"))
    reached: list[str] = []
    for _ in range(40):
        for kind in ("keyDown", "keyUp"):
            browser.call(
                "Input.dispatchKeyEvent", page.session, type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
            )
        seen = page.value("""(() => {
            const one = document.activeElement, box = one.getBoundingClientRect();
            const painted = getComputedStyle(one), square = one.querySelector('rect');
            const marked = painted.outlineStyle !== 'none' || (square && getComputedStyle(square).stroke !== 'none');
            return {what: one.tagName.toLowerCase() + ' ' + (one.getAttribute('href') || one.id), marked,
                    inside: box.left >= 0 && box.width > 0};
        })()""")
        if reached and seen["what"] == reached[0]:
            break
        reached.append(seen["what"])
        assert seen["what"].startswith("body") or (seen["marked"] and seen["inside"]), seen
    assert reached[:6] == ["a #main", "a /", "a /", "a /naan/", "a /drift", "a /servers"]
    assert {"a /naan/12026", f"a /naan/{MISSING}", "a /status", "a /stats", "a /metrics"} <= set(reached)


@pytest.mark.parametrize(
    ("code", "title", "heading"),
    [
        ("fr", "Où mène un identifiant ARK\u202f?", "mène à"),
        ("es", "¿Adónde lleva un identificador ARK?", "lleva a"),
    ],
)
def test_a_browser_gets_its_language(code: str, title: str, heading: str, browser: Chromium, gateway: Service) -> None:
    page = browser.open("about:blank", width=390)
    agent = page.value("navigator.userAgent")
    languages = {"userAgent": agent, "acceptLanguage": f"{code}-CA,{code},en"}  # Chromium adds the qualities
    browser.call("Network.setUserAgentOverride", page.session, **languages)
    go(page, f"location = '{at(gateway, '/')}'")
    assert page.value("document.title") == f"{title} – maptr"
    go(page, f"document.querySelector('#q').value = 'ark:/{NAAN}/x6-np1'; document.forms[0].requestSubmit()")
    assert page.value("document.querySelector('h1').innerText") == f"ark:{NAAN}/x6np1 {heading}"
    for target in (*TARGETS.values(), *ERRORS.values()):
        go(page, f"location = '{at(gateway, target)}'")
        assert page.value("document.documentElement.lang") == code
        assert page.value("document.documentElement.scrollWidth") <= 390, target
        assert page.value("document.querySelector('.brand').getBoundingClientRect().height") < 30, "on one line"
        links = "[...document.querySelectorAll('.top nav a')].map(one => getComputedStyle(one).textDecorationLine)"
        assert set(page.value(links)) == {"none"}, "the menu has its style in each language"
    assert page.faults() == []


@pytest.mark.parametrize("target", [*TARGETS.values(), *ERRORS.values()], ids=[*TARGETS, *ERRORS])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_each_page_fits_and_axe_has_no_serious_finding(
    dark: bool, target: str, browser: Chromium, gateway: Service
) -> None:
    for width in WIDTHS:
        page = browser.open(at(gateway, target), width=width, dark=dark)
        assert page.value("document.documentElement.scrollWidth") <= width, "no horizontal scrolling"
        asked = {event["request"]["url"] for event in page.events("Network.requestWillBeSent")}
        assert all(url.startswith(gateway.urls[0]) for url in asked), asked
        if target in TARGETS.values():
            assert page.troubles() == []
    assert page.faults() == []
