"""The page of ``maptr table drift --html`` in a real browser: its content, its links and its requests."""

from __future__ import annotations

import json
import math
import os
import re
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations, count
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

from maptr import registry
from maptr.cache.drift import Drift, Verdict
from maptr.cache.page import AGREES, VERDICTS, render
from maptr.zone.build import build
from tests.support.command_line import run
from tests.support.peers import Maptr, find, skip_or_fail
from tests.support.waiting import until

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
MISSING = "browser: Chromium is not installed; run scripts/test as root on Debian"
SECONDS = 60.0  # for one answer on a busy machine; usually milliseconds
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


class Page(NamedTuple):
    """A loaded page and its events."""

    browser: Chromium
    session: str

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        done = self.browser.call(
            "Runtime.evaluate", self.session, expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def events(self, *methods: str) -> list[dict[str, Any]]:
        """The parameters of events of these methods, the earliest first."""
        self.value("0")  # its answer comes after all earlier events
        mine = (event for event in self.browser.events if event.get("sessionId") == self.session)
        return [event["params"] for event in mine if event["method"] in methods]


class Chromium:
    """A headless Chromium with a temporary profile, controlled over a pipe by its DevTools protocol.

    Messages are JSON, each ended by a NUL, on the descriptors 3 and 4 of the browser.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._numbers = count(1)
        self._rest = b""

    def __enter__(self) -> Self:
        self._profile = tempfile.mkdtemp(prefix="maptr-chromium-")
        command = [
            next(filter(None, map(find, BROWSERS)), None) or skip_or_fail(MISSING),
            "--headless",
            "--remote-debugging-pipe",
            "--no-sandbox",  # not available to root and in many containers; the pages are the tests' own
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            f"--user-data-dir={self._profile}",
            "about:blank",
        ]
        its_in, self._out = os.pipe()
        self._in, its_out = os.pipe()
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", f'exec "$@" 3<&{its_in} 4>&{its_out}', "bash", *command],
            pass_fds=(its_in, its_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(its_in)
        os.close(its_out)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)  # the browser exits when the pipe is closed
        os.close(self._in)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def open(self, path: Path, *, width: int = 1280, dark: bool = False) -> Page:
        """Load a file in a window of this width in CSS pixels."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable", session)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", session, **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", session, features=[scheme])
        page = Page(self, session)
        self.call("Page.navigate", session, url=path.resolve().as_uri())
        until(lambda: page.events("Page.loadEventFired"), "the page is loaded", seconds=SECONDS)
        return page

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """The result of one command."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], SECONDS)
            assert ready, "the browser does not answer"
            more = os.read(self._in, 1 << 20)
            assert more, f"the browser exited with {self._process.poll()}"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


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
    assert (max(linear(ground)) < 0.1) is dark
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
