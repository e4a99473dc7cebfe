"""The page of ``maptr table drift --html`` in a real browser: its content, its links and its requests."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from maptr import registry
from maptr.cache.drift import Drift, Verdict
from maptr.cache.page import AGREES, VERDICTS, render
from maptr.zone.build import build
from tests.support.chromium import Chromium, Page
from tests.support.command_line import run
from tests.support.peers import Maptr

SAME = 1400
HOSTILE = '"><img src=//e.example/x onerror=alert(1)><script>document.title=1</script>&<!--' + "long" * 100
URL = "https://resolver.example.org:8443/" + "a-path-without-a-space/" * 12
NAPTR = r'10 10 "u" "ark" "!^ark:/?12345/(.*)$!https://resolver.example.org:8443/p/ark:/12345/\\1!" .'

SQUARES = """[...document.querySelectorAll('.map .q')].map(q => {
  const box = q.getBoundingClientRect(), style = getComputedStyle(q);
  return {left: box.left, right: box.right, width: box.width, height: box.height, verdict: q.classList[1],
          href: q.getAttribute('href'), text: q.textContent, label: q.getAttribute('aria-label'),
          colour: style.backgroundColor, ink: style.color};
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as started:
        yield started


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many NAANs as the registry has, with one of each verdict, and texts from a hostile DNS."""
    verdicts = [Drift(str(10_000 + number), Verdict.SAME, "ark:10000/x") for number in range(SAME)]
    verdicts += [
        Drift(f"9000{number}", verdict, "ark:90000/x", (URL, URL), (HOSTILE,), HOSTILE, (NAPTR, HOSTILE))
        for number, verdict in enumerate(Verdict)
    ]
    path = tmp_path_factory.mktemp("page") / "drift.html"
    path.write_text(render(verdicts, table=HOSTILE, asked=HOSTILE, origin="ark.arpa."), encoding="utf-8")
    return path


def rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
    return red, green, blue


def linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, "contrast ratio"."""
    weights = (0.2126, 0.7152, 0.0722)
    light = sorted(sum(w * linear(part) for w, part in zip(weights, rgb(c), strict=True)) for c in (one, other))
    return (light[1] + 0.05) / (light[0] + 0.05)


def distance(one: str, other: str) -> float:
    """The difference of two colours by CIE 1976; 2.3 is just noticeable."""

    def lab(colour: str) -> tuple[float, float, float]:
        r, g, b = map(linear, rgb(colour))
        x, y, z = (
            (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
            0.2126 * r + 0.7152 * g + 0.0722 * b,
            (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
        )
        fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
        return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)

    return math.dist(lab(one), lab(other))


def colours(squares: list[dict[str, Any]], key: str) -> dict[str, str]:
    return {square["verdict"]: square[key] for square in squares}


def test_every_square_is_drawn_and_every_link_shows_its_evidence(browser: Chromium, page_file: Path) -> None:
    page = browser.open(page_file)
    squares = page.value(SQUARES)
    assert len(squares) == SAME + len(Verdict)
    assert all(square["width"] >= 20 and square["height"] >= 20 for square in squares)
    deviating = [square for square in squares if square["href"]]
    assert {square["verdict"] for square in deviating} == set(Verdict) - set(AGREES)
    for square in deviating:
        assert square["text"] == VERDICTS[Verdict(square["verdict"])][0]
        shown = page.value(f"""new Promise(done => {{
            document.querySelector('.map a[href="{square["href"]}"]').click();
            setTimeout(() => {{
                const target = document.querySelector(':target'), box = target.getBoundingClientRect();
                done({{id: '#' + target.id, seen: box.top >= -1 && box.top < innerHeight, text: target.innerText}});
            }}, 0);
        }})""")
        assert shown["id"] == square["href"]
        assert shown["seen"]
        naan = square["label"].split(":")[0]
        assert f"{naan} {square['verdict']}" in shown["text"]
        assert URL in shown["text"]
        assert HOSTILE in shown["text"], "text from DNS is shown as text"


def test_it_runs_no_script_and_sends_no_request(browser: Chromium, page_file: Path) -> None:
    page = browser.open(page_file)
    asked = [event["request"]["url"] for event in page.events("Network.requestWillBeSent")]
    assert asked == [page_file.resolve().as_uri()]
    assert page.value("document.scripts.length + document.images.length + document.styleSheets.length") == 1
    assert page.value("document.title").startswith("Drift of ark.arpa.")
    assert not page.events("Page.javascriptDialogOpening", "Log.entryAdded", "Runtime.consoleAPICalled")


@pytest.mark.parametrize("width", [320, 400, 1280])
def test_it_fits_a_narrow_window(width: int, browser: Chromium, page_file: Path) -> None:
    page = browser.open(page_file, width=width)
    assert page.value("document.documentElement.scrollWidth") <= width, "no horizontal scrolling"
    assert all(square["left"] >= 0 and square["right"] <= width for square in page.value(SQUARES))
    links = [square for square in page.value(SQUARES) if square["href"]]
    assert all(min(link["width"], link["height"]) >= 24 for link in links), "WCAG 2.2, 2.5.8: wide enough for a finger"
    smallest = "Math.min(...[...document.querySelectorAll('p, li small, dd, dt, code')]"
    assert page.value(f"{smallest}.map(e => parseFloat(getComputedStyle(e).fontSize)))") >= 12


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_colours_have_enough_contrast_in_light_and_dark_mode(
    dark: bool, browser: Chromium, page_file: Path
) -> None:
    page = browser.open(page_file, dark=dark)
    ground = page.value("getComputedStyle(document.body).backgroundColor")
    assert (sum(rgb(ground)) < 1) is dark
    words = page.value("""[...document.querySelectorAll('h1, h2, p, small, dt, dd, code, .counts b, article a')]
        .map(e => getComputedStyle(e).color)""")
    card = page.value("getComputedStyle(document.querySelector('article')).backgroundColor")
    assert min(contrast(word, behind) for word in set(words) for behind in (ground, card)) >= 4.5, "WCAG 2.2, 1.4.3"
    squares = page.value(SQUARES)
    drawn = colours(squares, "colour")
    assert drawn.keys() == set(Verdict)
    for verdict, ink in colours([square for square in squares if square["text"]], "ink").items():
        assert contrast(ink, drawn[verdict]) >= 4.5, verdict
    for one, other in combinations(drawn, 2):
        assert distance(drawn[one], drawn[other]) >= 10, (one, other)
    for verdict, colour in drawn.items():
        assert distance(colour, ground) >= 10, verdict


def test_the_page_that_the_command_writes(browser: Chromium, sample: Path, tmp_path: Path) -> None:
    table = registry.read(sample.read_bytes())
    zone, other, made = tmp_path / "zone", tmp_path / "other.json", tmp_path / "drift.html"
    zone.write_text(build(table, 1).text)
    other.write_text(sample.read_text().replace("ark.nlm.example.org", "elsewhere.example.org"))
    with Maptr({"ark.arpa.": zone}) as server:
        assert run("table", "drift", "--table", other, f"@127.0.0.1#{server.port}", "--html", made).exit_code == 1
    page: Page = browser.open(made, width=400)
    squares = page.value(SQUARES)
    assert len(squares) == len(table.naans())
    assert [square["label"] for square in squares if square["href"]] == ["12025: differs"]
    page.value("document.querySelector('.map a').click()")
    text = page.value("document.querySelector(':target').innerText")
    assert "https://elsewhere.example.org/" in text
    assert "https://ark.nlm.example.org/" in text
