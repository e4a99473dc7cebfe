"""Error pages in a real browser: in each language, light and dark, at three widths; and other forms for programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from maptr.config.model import LANGUAGES, GatewayConfig
from maptr.gateway.message import Response, Unreadable
from maptr.gateway.objects import OwnObject, Redirects
from maptr.gateway.site import Site
from maptr.registry.followed_file import TableState
from maptr.registry.table import Entry, Nma, Table, Who
from tests.support.browser import Chromium, Page
from tests.support.caching import Rig
from tests.support.gateway import Objects
from tests.support.http_gateway import gateway

WIDTHS = (390, 768, 1440)
HERE = "https://ark.example.org"
LIBRARY = Who("National Library of Example", None, "NLE")
TABLE = Table(
    [
        Entry("12148", "", (Nma(f"{HERE}/ark:${{content}}"),), LIBRARY),
        Entry("54321", "", (), Who("Archive of Elsewhere", None, "AE")),
    ]
)
ERRORS = {
    "400": (400, "/ark:12148/%zz"),
    "404-no-page": (404, "/nothing"),
    "404-path": (404, "/ark/12148/bt5np1"),
    "404-spelling": (404, "/ark:/12148/BT5NP1)."),
    "404-no-object": (404, "/ark:12148/xyz"),
    "404-unknown": (404, "/ark:86421/x1"),
    "404-no-url": (404, "/ark:54321/x1"),
    "404-example": (404, "/ark:99999/x1"),
    "410": (410, "/ark:12148/k2"),
    "414": (414, "/ark:12148/" + "x" * 8200),
    "429": (429, "/"),
    "500": (500, "/metrics"),
    "503": (503, "/ark:12148/unread"),
}


class Own(Objects):
    """Own objects, of which one cannot be read."""

    def get(self, ark: str) -> OwnObject | None:
        if ark == "ark:12148/unread":
            raise Unreadable("the own objects of this gateway cannot be read now")
        return super().get(ark)


def fail() -> Response:
    raise RuntimeError


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[int, int]]:
    """A gateway by the status of its answers: that of 429 has a limit that one request uses up."""
    own = Own(
        [
            OwnObject("ark:12148/bt5np1", "https://objects.example.org/1"),
            OwnObject(
                "ark:12148/k2", "", 410, "Withdrawn by its author", "A. Author", "A draft of a report", "1998"
            )._replace(replaced_by="ark:12148/bt5np1", withdrawn="2026-11-29"),
            OwnObject(
                "ark:12148/described", "https://objects.example.org/2", who="A. Author", what="A report </script>"
            ),
        ]
    )
    settings = GatewayConfig(
        name="National Library of Example", contact="ark@example.org", imprint=f"{HERE}/imprint", public_url=HERE
    )
    site = Site(settings, table_state=TableState(TABLE), redirects=Redirects(objects=own))
    with ExitStack() as stack:
        rig = Rig(natab=TABLE, policy="natab-only")
        usual = stack.enter_context(gateway(rig, site, rate=0))
        usual.change(metrics=fail)
        limited = stack.enter_context(gateway(rig, site, rate=1)).port
        yield {429: limited, **dict.fromkeys((400, 404, 410, 414, 500, 503), usual.port)}


def opened(browser: Chromium, where: str, code: str, width: int, *, dark: bool) -> Page:
    page = browser.open("about:blank", width=width, dark=dark)
    agent = page.value("navigator.userAgent")
    browser.call("Network.setUserAgentOverride", page.session, userAgent=agent, acceptLanguage=f"{code},en;q=0.1")
    loads = len(page.events("Page.loadEventFired"))
    page.value(f"setTimeout(() => {{location = '{where}'}}, 0); 0")
    page.wait(loads + 1)
    return page


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ERRORS)
def test_each_page_of_an_error_fits_and_axe_has_no_finding(
    name: str, dark: bool, browser: Chromium, ports: dict[int, int]
) -> None:
    """At each width in another language. MAPTR_PICTURES names a folder for pictures of each page in all of them."""
    status, target = ERRORS[name]
    where = f"http://127.0.0.1:{ports[status]}{target}"
    folder = os.environ.get("MAPTR_PICTURES")
    for number, width in enumerate(WIDTHS, [*ERRORS].index(name) + dark):
        for code in LANGUAGES if folder else [LANGUAGES[number % len(LANGUAGES)]]:
            page = opened(browser, where, code, width, dark=dark)
            while status == 429 and "429" not in page.value("document.body.innerText"):
                page = opened(browser, where, code, width, dark=dark)
            assert page.value("document.documentElement.lang") == code
            assert page.value("document.documentElement.scrollWidth") <= width, "no horizontal scrolling"
            text = page.value("document.querySelector('main').innerText")
            assert str(status) in text
            assert "ark@example.org" in text
            for jargon in ("NAAN", "DNS", "gateway", "authority", "mapping", "Ark:"):
                assert jargon not in text, f"{jargon} in {text}"
            assert page.faults("minor", "moderate", "serious", "critical") == []
            if folder:
                kind = "dark" if dark else "light"
                page.picture(Path(folder) / f"{name}-{code}-{width}-{kind}.png")


@pytest.mark.parametrize("target", ["/ark:12148/described?info", "/api"])
def test_pages_for_machines_and_people(target: str, browser: Chromium, ports: dict[int, int]) -> None:
    """The linked data in the page of an object are no script, and the policy of the page refuses nothing in it."""
    for width in WIDTHS:
        page = browser.open(f"http://127.0.0.1:{ports[404]}{target}", width=width, dark=width == WIDTHS[0])
        assert page.value("document.documentElement.scrollWidth") <= width
        assert page.troubles() == []
        assert page.faults("minor", "moderate", "serious", "critical") == []
    if "info" in target:
        data = page.value("JSON.parse(document.scripts[0].textContent)")
        assert (data["@type"], data["name"]) == ("CreativeWork", "A report </script>")
