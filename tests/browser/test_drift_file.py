"""The page of ``maptr table drift --html`` in a real browser: its content, its links and its requests."""

from __future__ import annotations

import math
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from maptr import registry
from maptr.gateway import pages
from maptr.gateway.drawing import MARKS
from maptr.reconcile.verdict import AGREES, Drift, Verdict
from maptr.registry.table import Entry, Table, Who
from maptr.zone.build import build
from tests.support.browser import Chromium
from tests.support.command_line import run
from tests.support.peers import Maptr

SAME = 1400
HOSTILE = '"><img src=//e.example/x onerror=alert(1)><script>document.title=1</script>&<!--'
URL = "https://resolver.example.org:8443/" + "a-path-without-a-space/" * 12
NAPTR = r'10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://resolver.example.org:8443/p/ark:/12345/\\1!" .'

BADGES = """[...document.querySelectorAll('.legend .mark')].map(mark => {
  const style = getComputedStyle(mark);
  return {verdict: mark.parentElement.classList[1], text: mark.textContent, colour: style.backgroundColor,
          ink: style.color};
})"""
LINKS = """[...document.querySelectorAll('.map a')].map(link => {
  const box = link.getBoundingClientRect();
  return {left: box.left, right: box.right, verdict: link.className.baseVal, href: link.href.baseVal,
          label: link.getAttribute('aria-label')};
})"""


def linear(colour: str) -> list[float]:
    """Red, green and blue of an sRGB colour in linear light."""
    parts = (int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, "contrast ratio"."""
    light = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(linear, (one, other)))
    return (light[1] + 0.05) / (light[0] + 0.05)


def distance(one: str, other: str) -> float:
    """The difference of two colours by CIE 1976; 2.3 is just noticeable."""

    def lab(colour: str) -> tuple[float, float, float]:
        r, g, b = linear(colour)
        x, y, z = (
            (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
            0.2126 * r + 0.7152 * g + 0.0722 * b,
            (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
        )
        fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
        return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)

    return math.dist(lab(one), lab(other))


def verdicts_of(same: int) -> list[Drift]:
    """Some records that agree, and one of each verdict with texts from a hostile DNS."""
    verdicts = [Drift(str(10_000 + number), Verdict.SAME, "ark:10000/x") for number in range(same)]
    return verdicts + [
        Drift(f"9000{number}", verdict, "ark:90000/x", (URL, URL), (HOSTILE,), HOSTILE, (NAPTR, HOSTILE))
        for number, verdict in enumerate(Verdict)
    ]


def file_of(verdicts: list[Drift]) -> str:
    table = Table([Entry("90000", who=Who(HOSTILE))])
    return pages.drift_file(verdicts, table=table, file=HOSTILE, asked=HOSTILE, origin="ark.arpa.", now=1.7e9)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many NAANs as the registry has."""
    path = tmp_path_factory.mktemp("page") / "drift.html"
    path.write_text(file_of(verdicts_of(SAME)), encoding="utf-8")
    return path


def test_every_link_of_the_map_shows_its_evidence(browser: Chromium, page_file: Path) -> None:
    page = browser.open(page_file)
    links = page.value(LINKS)
    assert {link["verdict"] for link in links} == set(Verdict) - set(AGREES)
    for link in links:
        shown = page.value(f"""new Promise(done => {{
            document.querySelector('.map a[href="{link["href"]}"]').dispatchEvent(new MouseEvent('click'));
            setTimeout(() => {{
                const target = document.querySelector(':target'), box = target.getBoundingClientRect();
                done({{id: '#' + target.id, top: box.top, text: target.innerText}});
            }}, 0);
        }})""")
        assert shown["id"] == link["href"]
        naan = link["label"].split()[0]
        assert naan in shown["text"]
        assert link["verdict"] in shown["text"]
        assert URL in shown["text"]
        assert HOSTILE in shown["text"], "text from DNS is shown as text"


def test_it_runs_no_script_and_sends_no_request(browser: Chromium, page_file: Path) -> None:
    page = browser.open(page_file)
    asked = [event["request"]["url"] for event in page.events("Network.requestWillBeSent")]
    assert asked == [page_file.resolve().as_uri()]
    assert page.value("document.scripts.length + document.images.length + document.styleSheets.length") == 1
    assert page.value("getComputedStyle(document.body).backgroundColor") != "rgba(0, 0, 0, 0)", "its style is allowed"
    assert page.value("document.title").startswith("Deviating records: 5 of 1,408")
    assert page.troubles() == []


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_it_fits_a_narrow_window(width: int, browser: Chromium, page_file: Path) -> None:
    page = browser.open(page_file, width=width)
    assert page.value("document.documentElement.scrollWidth") <= width, "no horizontal scrolling"
    assert all(link["left"] >= 0 and link["right"] <= width for link in page.value(LINKS))
    smallest = "Math.min(...[...document.querySelectorAll('p, li, dd, dt, code')]"
    assert page.value(f"{smallest}.map(e => parseFloat(getComputedStyle(e).fontSize)))") >= 12


@pytest.mark.parametrize("dark", [False, True])
def test_marks_have_enough_contrast_in_light_and_dark_mode(dark: bool, browser: Chromium, page_file: Path) -> None:
    """axe checks the other texts: marks are hidden from screen readers."""
    page = browser.open(page_file, dark=dark)
    ground = page.value("getComputedStyle(document.body).backgroundColor")
    assert (max(linear(ground)) < 0.1) is dark
    badges: list[dict[str, Any]] = page.value(BADGES)
    drawn = {badge["verdict"]: badge["colour"] for badge in badges}
    assert drawn.keys() == set(Verdict)
    for badge in badges:
        assert badge["text"] == MARKS[badge["verdict"]]
        assert contrast(badge["ink"], badge["colour"]) >= 4.5, "WCAG 2.2, 1.4.3"
    for one, other in combinations(drawn, 2):
        assert distance(drawn[one], drawn[other]) >= 10, (one, other)
    for verdict, colour in drawn.items():
        assert distance(colour, ground) >= 10, verdict


@pytest.mark.parametrize("dark", [False, True])
def test_axe_has_no_serious_finding(dark: bool, browser: Chromium, tmp_path: Path) -> None:
    path = tmp_path / "drift.html"  # short, because axe takes a minute for 1,400 records
    path.write_text(file_of(verdicts_of(20)), encoding="utf-8")
    assert browser.open(path, dark=dark).faults() == []


def test_the_page_that_the_command_writes(browser: Chromium, sample: Path, tmp_path: Path) -> None:
    table = registry.read(sample.read_bytes())
    zone, other, made = tmp_path / "zone", tmp_path / "other.json", tmp_path / "drift.html"
    zone.write_text(build(table, 1).text)
    other.write_text(sample.read_text().replace("ark.nlm.example.org", "elsewhere.example.org"))
    with Maptr({"ark.arpa.": zone}) as server:
        assert run("table", "drift", "--table", other, f"@127.0.0.1#{server.port}", "--html", made).exit_code == 1
    page = browser.open(made, width=390)
    assert page.value("document.querySelector('h1').innerText") == f"Deviating records: 1 of {len(table)}"
    (link,) = page.value(LINKS)
    assert link["label"] == "12025 US National Library of Medicine – differs"
    page.value("location.hash = document.querySelector('.map a').href.baseVal")
    text = page.value("document.querySelector(':target').innerText")
    assert "https://elsewhere.example.org/" in text
    assert "https://ark.nlm.example.org/" in text
