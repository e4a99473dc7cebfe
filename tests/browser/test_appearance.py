"""Pages with an operator's logo, colour and language in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from maptr.config import load
from maptr.gateway.appearance import read_appearance
from maptr.gateway.site import Site
from maptr.registry.followed_file import TableState
from maptr.registry.table import Entry, Nma, Table, Who
from tests.browser.test_errors import opened
from tests.support.browser import Chromium
from tests.support.caching import Rig
from tests.support.http_gateway import gateway

REPOSITORY = Path(__file__).resolve().parents[2]
TABLE = Table(
    [Entry("12148", "", (Nma("https://ark.example.org/ark:${content}"),), Who("Landesbibliothek", None, "LB"))]
)
# Its text is light in the dark theme, and it has a script.
LOGO = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 290 48"><script>document.title = "run"</script>
<style>text { fill: #1b1b3a } @media (prefers-color-scheme: dark) { text { fill: #fff } }</style>
<rect width="40" height="40" fill="#7a1f3d"/><text x="48" y="32" font-size="22">Landesbibliothek</text></svg>"""
SETTINGS = f"""[gateway]
logo = "logo"
name = "Landesbibliothek Beispiel"
accent = "#7a1f3d"
messages = "{REPOSITORY / "docs" / "recipes" / "messages"}"

[gateway.texts.de]
"Where does an ARK lead?" = "Dauerhafte <Links> der Landesbibliothek"
"""
TARGETS = {
    "/": "Dauerhafte <Links>",
    "/?q=ark:12148/x1": "führt zu",
    "/naan/12148": "Eintrag",
    "/nothing": "Fehler 404",
}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("appearance")
    (folder / "logo").write_text(LOGO)
    (folder / "maptr.toml").write_text(SETTINGS)
    config = load(folder / "maptr.toml")
    site = Site(config.gateway, appearance=read_appearance(config), table_state=TableState(TABLE))
    with gateway(Rig(natab=TABLE, policy="natab-only"), site) as running:
        yield running.port


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_the_house_of_an_operator(width: int, dark: bool, browser: Chromium, port: int) -> None:
    for target, text in TARGETS.items():
        page = opened(browser, f"http://127.0.0.1:{port}{target}", "de", width, dark=dark)
        assert page.value("document.documentElement.lang") == "de"
        assert text in page.value("document.querySelector('main').innerText")
        assert page.value("document.querySelector('.logo').naturalWidth") > 0
        assert page.value("document.querySelector('.logo').alt") == "Landesbibliothek Beispiel"
        assert page.value("document.querySelector('.logo').offsetHeight") == 48
        colour = page.value("getComputedStyle(document.querySelector('footer a')).color")
        assert (colour == "rgb(122, 31, 61)") is not dark
        assert page.value("document.documentElement.scrollWidth") <= width
        assert page.faults("minor", "moderate", "serious", "critical") == [], "the contrast, too"
        assert target == "/nothing" or page.troubles() == []


def test_a_logo_that_is_opened_runs_no_script(browser: Chromium, port: int) -> None:
    page = browser.open(f"http://127.0.0.1:{port}/logo")
    assert page.value("document.title") != "run"
    assert page.value("document.documentElement.localName") == "svg"
    assert page.value("getComputedStyle(document.querySelector('text')).fill") == "rgb(27, 27, 58)", "its style holds"
    assert page.value("origin") == "null", "the sandbox"
    assert any("script" in each for each in page.troubles())
