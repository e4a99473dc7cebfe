"""The HTML page of drift verdicts, whose texts come from DNS and so may be hostile."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from maptr.cache.drift import Drift, Verdict
from maptr.cache.page import render
from maptr.cache.probe_log import Liveness


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


HOSTILE = '"><script>alert(1)</script>&<!--'


@pytest.fixture
def page() -> tuple[str, Page]:
    verdicts = [
        Drift(f"1000{number}", verdict, "ark:10000/x", (f"https://h/{HOSTILE}",), (HOSTILE,), HOSTILE, (HOSTILE,))
        for number, verdict in enumerate(Verdict)
    ]
    verdicts.append(Drift("10000/x.6", Verdict.MISSING, "ark:10000/x.6zzz", ("https://h/",)))
    text = render(verdicts, table=HOSTILE, asked=HOSTILE, origin=HOSTILE)
    parsed = Page()
    parsed.feed(text)
    return text, parsed


def test_the_page_has_no_script_and_loads_nothing(page: tuple[str, Page]) -> None:
    text, parsed = page
    assert not {"script", "img", "link", "iframe", "object"} & {tag for tag, _ in parsed.tags}
    assert not any(name.startswith("on") for _, attributes in parsed.tags for name in attributes)
    assert "url(" not in text
    assert "@import" not in text
    assert "alert(1)</script>" not in text
    assert re.search(r"default-src 'none'", text)


def test_every_marked_square_has_a_label_and_links_to_its_evidence(page: tuple[str, Page]) -> None:
    _, parsed = page
    links = [attributes for tag, attributes in parsed.tags if tag == "a"]
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(ids) == len(set(ids)) == 7
    assert {str(link["href"])[1:] for link in links} <= set(ids)
    assert len(links) == 7, "the square of 10000 shows the worst of its two records"
    assert all(link["aria-label"] for link in links)


def test_a_page_without_deviation_says_so() -> None:
    assert "nothing to compare" in render([], table="t", asked="a", origin="o")
    agreed = render([Drift("12345", Verdict.SAME, "ark:12345/x")], table="t", asked="a", origin="o")
    assert "All 1 records agree" in agreed
    assert "Evidence" not in agreed
    assert "did not answer" not in agreed


def test_the_page_names_silent_places_with_escaped_text() -> None:
    silent = Liveness("https://<b>.example", 1.0, failures=1, since=1.0, note="<silence>")
    page = render([], table="t", asked="s", origin="o", silent=[silent])
    assert "<code>https://&lt;b&gt;.example</code> once: &lt;silence&gt;" in page
